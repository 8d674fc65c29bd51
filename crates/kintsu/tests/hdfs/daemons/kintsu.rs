//! Daemons of Kintsu beside the HDFS, and what they say.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::{Hdfs, wait};

/// A daemon of Kintsu, and the lines of JSON that it printed.
pub struct Daemon {
    child: Child,
    pub lines: Arc<Mutex<Vec<Value>>>,
}

impl Daemon {
    /// Starts it, and waits for its first line.
    pub fn start(mut command: Command) -> Self {
        command.arg("--json").stdin(Stdio::null()).stdout(Stdio::piped());
        let what = format!("{command:?}");
        let mut child = command.spawn().unwrap();
        let lines: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (out, sink) = (BufReader::new(child.stdout.take().unwrap()), lines.clone());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                eprintln!("{line}");
                sink.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let daemon = Self { child, lines };
        wait(&format!("{what} to be ready"), || !daemon.lines.lock().unwrap().is_empty());
        daemon
    }

    /// The events of this kind so far.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line["event"] == kind).cloned().collect()
    }
}

impl Daemon {
    /// Kills it.
    pub fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.end();
    }
}

/// A coordinator, and the address that it listens on.
pub fn coordinator(hdfs: &Hdfs, listen: &str) -> (Daemon, String) {
    coordinator_with(hdfs, listen, &[])
}

/// The same with more options.
pub fn coordinator_with(hdfs: &Hdfs, listen: &str, more: &[&str]) -> (Daemon, String) {
    let args = [&["coordinator", "--listen", listen, "--scan", "1s"], more].concat();
    let daemon = Daemon::start(hdfs.kintsu_command(&args));
    let at = daemon.lines.lock().unwrap()[0]["listen"].as_str().unwrap().to_owned();
    (daemon, at)
}

/// The agent beside a DataNode.
pub fn agent(hdfs: &Hdfs, coordinator: &str, i: u32) -> Daemon {
    let dir = |name: &str| hdfs.dir.path().join(format!("{name}{i}")).to_str().unwrap().to_owned();
    let mut command = super::kintsu();
    command.args(["--coordinator", coordinator, "hdfs", "agent", "--dir", &dir("agent")]);
    command.args(["--datanode", &hdfs.transfer(i), "--data-dir", &dir("data")]);
    Daemon::start(command)
}
