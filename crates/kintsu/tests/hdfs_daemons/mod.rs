//! A real, stock HDFS for tests: one NameNode and some DataNodes as processes of their own on loopback, run by
//! `scripts/hdfs.sh`, killed with SIGKILL, and ended by id when a test is over. Tests wait for conditions that they ask
//! the NameNode for, never for a time.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test's scaffolding: what fails is the test's failure"
)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kintsu_hdfs::proto::names::DatanodeInfo;
use kintsu_hdfs::{Group, NameNode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The longest wait for an expected event: Java on a busy machine may take a minute to start.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// DataNodes count as dead after 2 x 500 ms + 10 x 1 s, and HDFS itself rebuilds nothing.
pub const SETTINGS: &[&str] = &[
    "dfs.heartbeat.interval=1",
    "dfs.namenode.heartbeat.recheck-interval=500",
    "dfs.namenode.redundancy.interval.seconds=1s",
    "dfs.namenode.replication.max-streams=0",
    "dfs.namenode.replication.max-streams-hard-limit=0",
];

pub struct Hdfs {
    pub dir: TempDir,
    pub port: u16,
    pub nodes: u32,
    namenode: Option<Child>,
    datanodes: BTreeMap<u32, Child>,
    asks: Runtime,
    calls: NameNode,
}

impl Hdfs {
    /// Starts it; `None`, said aloud, where Maven or Java cannot be had.
    pub fn start(nodes: u32, settings: &[&str]) -> Option<Self> {
        let fetched = script().arg("fetch").output().unwrap();
        if !fetched.status.success() {
            let why = String::from_utf8_lossy(&fetched.stderr).trim().replace('\n', " ");
            let _ = writeln!(std::io::stderr(), "SKIPPED: tests beside a real HDFS: {why}");
            return None;
        }
        let dir = TempDir::new().unwrap();
        let port = free_ports(nodes);
        let prepared = script()
            .arg("prepare")
            .arg(dir.path())
            .arg(port.to_string())
            .args(SETTINGS)
            .args(settings)
            .output();
        let prepared = prepared.unwrap();
        assert!(prepared.status.success(), "{}", text(&prepared));
        let calls = NameNode::at(&format!("127.0.0.1:{port}"), &user()).unwrap();
        let asks = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (namenode, datanodes) = (None, BTreeMap::new());
        let mut hdfs = Self { dir, port, nodes, namenode, datanodes, asks, calls };
        hdfs.start_namenode();
        (0..nodes).for_each(|i| hdfs.start_datanode(i));
        hdfs.wait_live(nodes as usize);
        Some(hdfs)
    }

    pub fn start_namenode(&mut self) {
        let child = self.daemon("namenode", &["namenode"]);
        self.namenode = Some(child);
    }

    pub fn kill_namenode(&mut self) {
        end(self.namenode.take().unwrap());
    }

    pub fn start_datanode(&mut self, i: u32) {
        let child = self.daemon(&format!("datanode{i}"), &["datanode", &i.to_string()]);
        assert!(self.datanodes.insert(i, child).is_none());
    }

    pub fn kill_datanode(&mut self, i: u32) {
        end(self.datanodes.remove(&i).unwrap());
    }

    fn daemon(&self, log: &str, args: &[&str]) -> Child {
        let log =
            File::options().create(true).append(true).open(self.dir.path().join("log").join(log)).unwrap();
        let mut command = script();
        command.arg(args[0]).arg(self.dir.path()).args(&args[1..]);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// The live DataNodes as the NameNode counts them.
    pub fn live(&self) -> Vec<DatanodeInfo> {
        self.asks.block_on(self.calls.live_datanodes()).unwrap_or_default()
    }

    pub fn wait_live(&self, count: usize) {
        wait(&format!("{count} live DataNodes (logs: {})", self.dir.path().display()), || {
            self.live().len() == count
        });
    }

    /// The groups of a file as they are now.
    pub fn groups(&self, path: &str) -> Vec<Group> {
        self.asks.block_on(async {
            let status = self.calls.file(path).await.unwrap().unwrap();
            Group::of(path, &status, &self.calls.locations(path).await.unwrap()).unwrap()
        })
    }

    /// Waits until the NameNode lists so many missing internal blocks of a file.
    pub fn wait_missing(&self, path: &str, expected: impl Fn(usize) -> bool) {
        wait(&format!("missing blocks of {path} as expected"), || {
            expected(self.groups(path).iter().map(|group| group.missing().len()).sum())
        });
    }

    /// The number of the DataNode with these ports.
    pub fn number(&self, datanode: &DatanodeInfo) -> u32 {
        (datanode.id.transfer_port - u32::from(self.port) - 10) / 3
    }

    /// A block's file on a DataNode's disk, if it is there.
    pub fn block_file(&self, i: u32, id: u64) -> Option<PathBuf> {
        find(&self.dir.path().join(format!("data{i}")), &format!("blk_{}", id as i64))
    }

    /// A stock client: `fs`, `ec`, `admin`, `fsck`.
    pub fn client(&self, args: &[&str]) -> Output {
        script().arg("client").arg(self.dir.path()).args(args).output().unwrap()
    }

    /// The same, which must succeed.
    pub fn stock(&self, args: &[&str]) -> String {
        let out = self.client(args);
        assert!(out.status.success(), "{args:?}: {}", text(&out));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// `kintsu hdfs` with these arguments.
    pub fn kintsu(&self, args: &[&str]) -> Output {
        let namenode = format!("127.0.0.1:{}", self.port);
        kintsu().args(["hdfs", "--namenode", &namenode]).args(args).output().unwrap()
    }

    /// The same with `--json`, and with this exit code.
    pub fn json(&self, code: i32, args: &[&str]) -> Value {
        let out = self.kintsu(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", text(&out)))
    }

    /// The digest of what `kintsu hdfs get` delivers.
    pub fn get_sha(&self, path: &str) -> String {
        let to = self.dir.path().join("got");
        let out = self.kintsu(&["get", path, to.to_str().unwrap()]);
        assert!(out.status.success(), "{}", text(&out));
        sha256(&std::fs::read(&to).unwrap())
    }
}

impl Drop for Hdfs {
    fn drop(&mut self) {
        std::mem::take(&mut self.datanodes).into_values().for_each(end);
        self.namenode.take().into_iter().for_each(end);
        if std::thread::panicking() {
            for entry in std::fs::read_dir(self.dir.path().join("log")).into_iter().flatten().flatten() {
                let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<_> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(15)..].join("\n");
                let _ = writeln!(std::io::stderr(), "--- {}\n{tail}", entry.path().display());
            }
        }
    }
}

fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The first of enough unused ports that follow each other.
fn free_ports(nodes: u32) -> u16 {
    let count = 10 + 3 * nodes as u16;
    let seed = std::process::id() as u16 ^ (Instant::now().elapsed().subsec_nanos() as u16);
    let starts = (0..200u16).map(|i| 20_000 + (seed.wrapping_mul(31).wrapping_add(i * 61)) % 12_000);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    starts.into_iter().find(|start| (*start..start + count).all(free)).unwrap()
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if entry.file_name() == *name {
            return Some(path);
        }
    }
    None
}

pub fn kintsu() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
    command.env_remove("KINTSU_LOG").env("HADOOP_USER_NAME", user());
    command
}

/// The user that the daemons run as, who is HDFS's superuser.
pub fn user() -> String {
    let out = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

fn script() -> Command {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/hdfs.sh"))
}

pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

pub fn text(out: &Output) -> String {
    format!("{} {}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that look random and are the same each time.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next()).take(len).collect()
}
