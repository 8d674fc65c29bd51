//! Agents and a coordinator beside a real, stock HDFS: losses are seen and rebuilt before the NameNode knows of them, and
//! handed over when it does.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

mod hdfs_daemons;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use hdfs_daemons::{Hdfs, kintsu, noise, sha256, wait};
use serde_json::Value;

const MIB: usize = 1 << 20;
const PATH: &str = "/ec/file";

/// The NameNode calls a DataNode dead after 2 x 15 s + 10 x 1 s: long enough to start one again in between.
const SLOW_TO_NOTICE: &[&str] = &["dfs.namenode.heartbeat.recheck-interval=15000"];

/// A daemon of Kintsu, and the lines of JSON that it printed.
struct Daemon {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Daemon {
    /// Starts it, and waits for its first line.
    fn start(args: &[&str]) -> Self {
        let mut command = kintsu();
        command.args(args).arg("--json").stdin(Stdio::null()).stdout(Stdio::piped());
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
        wait(&format!("{args:?} to be ready"), || !daemon.lines.lock().unwrap().is_empty());
        daemon
    }

    /// The events of this kind so far.
    fn events(&self, kind: &str) -> Vec<Value> {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line["event"] == kind).cloned().collect()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn coordinator(hdfs: &Hdfs, listen: &str) -> (Daemon, String) {
    let namenode = format!("127.0.0.1:{}", hdfs.port);
    let args = ["hdfs", "--namenode", &namenode, "coordinator", "--listen", listen, "--scan", "1s"];
    let daemon = Daemon::start(&args);
    let at = daemon.lines.lock().unwrap()[0]["listen"].as_str().unwrap().to_owned();
    (daemon, at)
}

fn agent(hdfs: &Hdfs, coordinator: &str, i: u32) -> Daemon {
    let dir = |name: &str| hdfs.dir.path().join(format!("{name}{i}")).to_str().unwrap().to_owned();
    let datanode = format!("127.0.0.1:{}", u32::from(hdfs.port) + 10 + 3 * i);
    let (own, data) = (dir("agent"), dir("data"));
    let args = ["hdfs", "agent", "--dir", &own, "--datanode", &datanode, "--data-dir", &data];
    Daemon::start(&[&["--coordinator", coordinator], &args[..]].concat())
}

#[test]
fn losses_are_rebuilt_early_and_handed_over_when_hdfs_knows() {
    let Some(mut hdfs) = Hdfs::start(7, SLOW_TO_NOTICE) else { return };
    let bytes = noise(24 * MIB + 77, 9);
    let local = hdfs.dir.path().join("local");
    std::fs::write(&local, &bytes).unwrap();
    hdfs.stock(&["fs", "-mkdir", "/ec"]);
    hdfs.stock(&["ec", "-setPolicy", "-path", "/ec", "-policy", "RS-3-2-1024k"]);
    hdfs.stock(&["fs", "-Ddfs.blocksize=4194304", "-put", local.to_str().unwrap(), PATH]);
    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let _agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();

    // A DataNode that comes back before the NameNode calls it dead: nothing is handed over.
    let node = busiest(&hdfs);
    let lost = blocks_on(&hdfs, node);
    hdfs.kill_datanode(node);
    wait("all lost blocks to be staged", || watching.events("staged").len() >= lost);
    assert!(watching.events("gone")[0]["why"].as_str().unwrap().contains("refuses connections"));
    assert!(
        hdfs.groups(PATH).iter().all(|group| group.missing().is_empty()),
        "the NameNode knows of nothing"
    );
    hdfs.start_datanode(node);
    wait("the staged blocks to be dropped", || watching.events("dropped").len() >= lost);
    assert_eq!(watching.events("counted"), Vec::<Value>::new());

    // It goes for good. The coordinator is killed while blocks are staged: the next one finds them beside the agents.
    hdfs.kill_datanode(node);
    wait("all lost blocks to be staged again", || watching.events("staged").len() >= 2 * lost);
    // The address is free only when the first one has ended.
    drop(watching);
    let (watching, _) = coordinator(&hdfs, &at);
    wait("the NameNode to count the blocks", || watching.events("counted").len() >= lost);
    assert_eq!(watching.events("staged"), Vec::<Value>::new(), "nothing was rebuilt twice");
    assert!(hdfs.groups(PATH).iter().all(|group| group.missing().is_empty()));
    hdfs.json(0, &["status"]);
    assert_eq!(hdfs.json(0, &["verify"])["bad"], serde_json::json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
    assert_eq!(hdfs.get_sha(PATH), sha256(&bytes));
}

/// The DataNode with most internal blocks of the file.
fn busiest(hdfs: &Hdfs) -> u32 {
    (0..hdfs.nodes).max_by_key(|i| blocks_on(hdfs, *i)).unwrap()
}

fn blocks_on(hdfs: &Hdfs, node: u32) -> usize {
    let groups = hdfs.groups(PATH);
    let holders = groups.iter().flat_map(|group| group.holders.values().flatten());
    holders.filter(|holder| hdfs.number(&holder.datanode) == node).count()
}
