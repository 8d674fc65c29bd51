//! A real cluster for tests: a coordinator and agents in separate processes, controlled through the command line
//! as a user would, killed with SIGKILL, and ended by id when a test is over.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test's scaffolding: what fails is the test's failure"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

#[path = "../../hdfs/daemons/patience.rs"]
mod patience;
#[path = "../../hdfs/daemons/running.rs"]
mod running;

pub use patience::{Patience, wait};
pub use running::Running;

pub struct Cluster {
    pub dir: TempDir,
    pub endpoint: String,
    pub nodes: u32,
    racks: u32,
    grace: &'static str,
    coordinator: Option<Child>,
    agents: BTreeMap<u32, Child>,
}

impl Cluster {
    /// Starts a cluster that repairs only on command (the grace time is an hour).
    pub fn start(nodes: u32, racks: u32) -> Self {
        Self::with_grace(nodes, racks, "1h")
    }

    pub fn with_grace(nodes: u32, racks: u32, grace: &'static str) -> Self {
        Self::prepared(nodes, racks, grace, |_, _| {})
    }

    /// Starts a cluster after `prepare(folder, node)` has prepared each node's folder.
    pub fn prepared(nodes: u32, racks: u32, grace: &'static str, prepare: impl Fn(&Path, u32)) -> Self {
        let dir = TempDir::new().unwrap();
        let mut cluster = Self {
            dir,
            endpoint: "127.0.0.1:0".into(),
            nodes,
            racks,
            grace,
            coordinator: None,
            agents: BTreeMap::new(),
        };
        cluster.start_coordinator();
        for id in 0..nodes {
            std::fs::create_dir_all(cluster.node_dir(id)).unwrap();
            prepare(&cluster.node_dir(id), id);
            cluster.start_agent(id);
        }
        cluster.wait_alive(nodes);
        cluster
    }

    /// Starts the coordinator, at the same address as before if there was one.
    pub fn start_coordinator(&mut self) {
        let ready = self.start_coordinator_with(&[], None);
        ready.expect("the coordinator says where it listens");
    }

    /// The same with more options, and with its standard error in a file; `None` if the coordinator ends instead.
    pub fn start_coordinator_with(&mut self, more: &[&str], log: Option<&Path>) -> Option<Value> {
        let mut command = kintsu();
        command.args([
            "coordinator",
            "--json",
            "--no-page",
            "--grace",
            self.grace,
            "--listen",
            &self.endpoint,
        ]);
        command.arg("--dir").arg(self.coordinator_dir()).args(more);
        if let Some(log) = log {
            command.stderr(std::fs::File::create(log).unwrap());
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.coordinator = Some(child);
        let ready: Value = serde_json::from_str(&line).ok()?;
        self.endpoint = ready["listen"].as_str().unwrap().to_owned();
        Some(ready)
    }

    pub fn coordinator_dir(&self) -> PathBuf {
        self.dir.path().join("coordinator")
    }

    /// SIGTERM, as an operator would; waits for its end.
    pub fn stop_coordinator(&mut self) {
        self.signal_coordinator(Signal::TERM);
        assert!(self.coordinator_ended().success());
    }

    pub fn signal_coordinator(&self, signal: Signal) {
        kill_process(Pid::from_child(self.coordinator.as_ref().unwrap()), signal).unwrap();
    }

    /// Ends the coordinator and removes its folder.
    pub fn lose_metadata(&mut self) {
        self.kill_coordinator();
        std::fs::remove_dir_all(self.coordinator_dir()).unwrap();
    }

    /// Waits until the coordinator has ended by itself.
    pub fn coordinator_ended(&mut self) -> std::process::ExitStatus {
        let mut child = self.coordinator.take().unwrap();
        let mut status = None;
        wait("the coordinator to end", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn coordinator_runs(&mut self) -> bool {
        self.coordinator.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    /// Starts an agent and waits until the cluster has accepted it.
    pub fn start_agent(&mut self, id: u32) {
        self.start_agent_with(id, &[]);
    }

    /// As [`Self::start_agent`], with more options.
    pub fn start_agent_with(&mut self, id: u32, more: &[&str]) {
        let mut command = kintsu();
        command.args(["agent", "--id", &id.to_string(), "--rack", &(id % self.racks).to_string()]);
        command
            .args(["--json", "--coordinator", &self.endpoint])
            .arg("--dir")
            .arg(self.node_dir(id))
            .args(more);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("\"node\""), "agent {id} did not start: {line:?}");
        if let Some(mut before) = self.agents.insert(id, child) {
            let _ = before.kill();
            let _ = before.wait();
        }
    }

    pub fn node_dir(&self, id: u32) -> PathBuf {
        self.dir.path().join(format!("node-{id}"))
    }

    pub fn agent_pid(&self, id: u32) -> u32 {
        self.agents[&id].id()
    }

    /// SIGKILL, as a crash would.
    pub fn kill(&mut self, id: u32) {
        let mut child = self.agents.remove(&id).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn kill_coordinator(&mut self) {
        let mut child = self.coordinator.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Starts a killed agent with an empty folder: a new disk.
    pub fn restart_empty(&mut self, id: u32) {
        std::fs::remove_dir_all(self.node_dir(id)).unwrap();
        self.start_agent_with(id, &["--replace"]);
    }

    /// Runs a client command to its end.
    pub fn run<S: AsRef<str>>(&self, args: &[S]) -> Output {
        self.spawn(args).wait_with_output().unwrap()
    }

    /// Starts a client command.
    pub fn spawn<S: AsRef<str>>(&self, args: &[S]) -> Child {
        let mut command = kintsu();
        command.args(args.iter().map(AsRef::as_ref)).env("KINTSU_COORDINATOR", &self.endpoint);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs a client command that must succeed; returns its JSON.
    pub fn json<S: AsRef<str>>(&self, args: &[S]) -> Value {
        let mut args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        args.push("--json");
        let out = self.run(&args);
        assert!(out.status.success(), "{args:?}: {}{}", text(&out.stdout), text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", text(&out.stdout)))
    }

    /// Runs a client command that must fail; returns what it says.
    pub fn refused<S: AsRef<str>>(&self, args: &[S]) -> String {
        let out = self.run(args);
        assert!(!out.status.success(), "{:?} succeeded", args.iter().map(AsRef::as_ref).collect::<Vec<_>>());
        text(&out.stderr)
    }

    pub fn put(&self, file: &Path, name: &str, more: &[&str]) {
        let mut args = vec!["put", file.to_str().unwrap(), name];
        args.extend(more);
        self.json(&args);
    }

    /// Starts `put -`, which reads from a pipe.
    pub fn spawn_stream(&self, name: &str, more: &[&str]) -> Child {
        let mut command = kintsu();
        command.args(["put", "-", name, "--json"]).args(more).env("KINTSU_COORDINATOR", &self.endpoint);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Stores the bytes of a file that come through a pipe; returns the JSON.
    pub fn put_stream(&self, file: &Path, name: &str, more: &[&str]) -> Value {
        let mut child = self.spawn_stream(name, more);
        let mut pipe = child.stdin.take().unwrap();
        std::io::copy(&mut std::fs::File::open(file).unwrap(), &mut pipe).unwrap();
        drop(pipe);
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{name}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// Reads an object and returns the SHA-256 of its bytes.
    pub fn get_sha(&self, name: &str) -> String {
        let out = self.dir.path().join("out");
        self.json(&["get", name, out.to_str().unwrap()]);
        sha256(&out)
    }

    /// The rows of `stat`, one a block.
    pub fn blocks(&self, name: &str) -> Vec<Value> {
        self.json(&["stat", name])["blocks"].as_array().unwrap().clone()
    }

    /// How many nodes are in the given state.
    pub fn count(&self, state: &str) -> usize {
        let nodes = self.json(&["nodes"]);
        nodes.as_array().unwrap().iter().filter(|n| n["state"] == state).count()
    }

    pub fn wait_alive(&self, nodes: u32) {
        wait(&format!("{nodes} nodes alive"), || self.count("alive") == nodes as usize);
    }

    pub fn wait_dead(&self, nodes: usize) {
        wait(&format!("{nodes} nodes dead"), || self.count("dead") == nodes);
    }

    /// Waits until nothing is degraded and nothing waits for repair.
    pub fn wait_whole(&self) {
        wait("every stripe to be whole", || {
            let status = self.json(&["status"]);
            status["degraded_stripes"] == 0 && status["repairs_pending"] == 0
        });
    }

    /// A file of `bytes` pseudo-random bytes.
    pub fn file(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.dir.path().join(name);
        let mut out = std::io::BufWriter::with_capacity(1 << 20, std::fs::File::create(&path).unwrap());
        let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ bytes;
        let mut left = bytes;
        while left > 0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let take = left.min(8) as usize;
            out.write_all(&state.to_le_bytes()[..take]).unwrap();
            left -= take as u64;
        }
        out.flush().unwrap();
        path
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.agents.values_mut().chain(self.coordinator.as_mut()) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub fn kintsu() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
    command.env_remove("KINTSU_TOKEN");
    // Daemons log deaths and rot, which tests expect; this would hide the output of the tests.
    if std::env::var_os("KINTSU_LOG").is_none() {
        command.env("KINTSU_LOG", "error");
    }
    command
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn sha256(path: &Path) -> String {
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path).unwrap(), &mut hash).unwrap();
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// Flips one bit of one byte of a file.
pub fn flip(path: &Path, offset: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Copies a folder of files.
pub fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// Reports what was compared with whose results, where that was done.
pub fn compared(what: &str) {
    let _ = writeln!(std::io::stderr(), "COMPARED: {what}");
}

/// Reports what is not tested here, directly to standard error: the harness hides the output of passing tests.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// A small disk; unmounted when dropped.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts a tmpfs, which needs root; `None` without it.
    pub fn mount(path: &Path, size: &str) -> Option<Self> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(path);
        if command.status().is_ok_and(|status| status.success()) {
            return Some(Self(path.to_owned()));
        }
        skipped("no permission to mount a tmpfs, so no disk can be made full");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
