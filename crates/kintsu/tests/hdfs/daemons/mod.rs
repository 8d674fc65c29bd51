//! A real, stock HDFS for tests: one NameNode and some DataNodes as processes of their own on loopback, run by
//! `scripts/hdfs.sh`, killed with SIGKILL, and ended by id when a test is over. Tests wait for conditions that they ask
//! the NameNode for, never for a time.

mod counters;
mod disks;
mod kintsu;
mod maintenance;
mod patience;
mod ports;
mod running;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use kintsu_hdfs::proto::names::DatanodeInfo;
use kintsu_hdfs::{Group, HdfsError, NameNode};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, SemaphorePermit};

pub use self::counters::Asked;
pub use self::kintsu::{Daemon, agent, coordinator, coordinator_with};
use self::patience::has_ended;
pub use self::patience::{Patience, wait};
use self::ports::free_ports;
pub use self::running::Running;

pub const MIB: usize = 1 << 20;

/// Clusters at a time. Each waits for most of its time, but two cores do not start thirty Java processes at once in reasonable
/// time.
static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// DataNodes count as dead after 2 x 500 ms + 10 x 1 s, and HDFS itself rebuilds nothing.
pub const SETTINGS: &[&str] = &[
    "dfs.heartbeat.interval=1",
    "dfs.namenode.heartbeat.recheck-interval=500",
    "dfs.namenode.redundancy.interval.seconds=1s",
    REPAIRS_NOTHING[0],
    REPAIRS_NOTHING[1],
];

/// With this the NameNodes call a DataNode dead after 2 x 500 ms + 10 x 60 s, until [`Hdfs::reconfigure`] takes it back: what has to
/// happen before they know of a loss may take as long as it takes. DataNodes still tell of themselves every second.
const SLOW_TO_NOTICE: &str = "dfs.heartbeat.interval=60";

/// With these HDFS itself repairs as it always does.
const REPAIRS: [&str; 2] =
    ["dfs.namenode.replication.max-streams=2", "dfs.namenode.replication.max-streams-hard-limit=4"];

/// With these it does not, until [`Hdfs::reconfigure`] takes them back.
const REPAIRS_NOTHING: [&str; 2] =
    ["dfs.namenode.replication.max-streams=0", "dfs.namenode.replication.max-streams-hard-limit=0"];

/// HDFS's own: it calls a DataNode dead after 2 x 300 s + 10 x 1 s here, so not in any of these tests.
pub const AS_SLOW_AS_EVER: &str = "dfs.namenode.heartbeat.recheck-interval=300000";

pub struct Hdfs {
    pub dir: TempDir,
    pub port: u16,
    /// DataNodes that were started, also those that were killed since.
    pub nodes: u32,
    namenodes: BTreeMap<u16, Child>,
    datanodes: BTreeMap<u32, Child>,
    asks: Runtime,
    calls: NameNode,
    pair: bool,
    special: Special,
    /// Keeps other programs of tests from these ports.
    _claim: TcpListener,
    _turn: SemaphorePermit<'static>,
}

/// What not all clusters have.
#[derive(Default)]
struct Special {
    /// On all class paths.
    jar: Option<PathBuf>,
    /// Settings with which NameNodes are started, besides those of the file, until [`Hdfs::reconfigure`].
    at_first: Vec<&'static str>,
    /// The racks of the DataNodes, by number.
    racks: &'static [&'static str],
    /// Whether there is a list of hosts, for maintenance.
    hosts: bool,
    /// Whether there is a key, for encryption zones.
    key: bool,
}

impl Hdfs {
    /// Starts it; `None`, said aloud, where Maven or Java cannot be had.
    pub fn start(nodes: u32, settings: &[&str]) -> Option<Self> {
        Self::start_as("prepare", nodes, settings, Special::default())
    }

    /// The same, whose NameNode is slow to notice losses.
    pub fn start_slow(nodes: u32, settings: &[&str]) -> Option<Self> {
        let special = Special { at_first: vec![SLOW_TO_NOTICE], ..Special::default() };
        Self::start_as("prepare", nodes, settings, special)
    }

    /// The same with a jar on all class paths.
    pub fn start_with(jar: &Path, nodes: u32, settings: &[&str]) -> Option<Self> {
        let special = Special { jar: Some(jar.to_owned()), ..Special::default() };
        Self::start_as("prepare", nodes, settings, special)
    }

    /// The same, which repairs by itself from [`Self::reconfigure`] on.
    pub fn start_to_repair(nodes: u32, settings: &[&str]) -> Option<Self> {
        let special = Special { at_first: REPAIRS_NOTHING.to_vec(), ..Special::default() };
        Self::start_as("prepare", nodes, &[&REPAIRS[..], settings].concat(), special)
    }

    /// The same with a DataNode in each of these racks.
    pub fn start_in_racks(racks: &'static [&'static str]) -> Option<Self> {
        Self::start_as("prepare", racks.len() as u32, &[], Special { racks, ..Special::default() })
    }

    /// The same with DataNodes that [`Self::maintain`] puts into maintenance.
    pub fn start_maintained(nodes: u32) -> Option<Self> {
        let special = Special { hosts: true, ..Special::default() };
        Self::start_as("prepare", nodes, &["dfs.namenode.decommission.interval=1s"], special)
    }

    /// The same with a key for [`Self::make_zone`].
    pub fn start_with_key(nodes: u32) -> Option<Self> {
        Self::start_as("prepare", nodes, &[], Special { key: true, ..Special::default() })
    }

    /// The same with two NameNodes that are slow to notice losses, the first of them active.
    pub fn start_pair(nodes: u32, settings: &[&str]) -> Option<Self> {
        let special = Special { at_first: vec![SLOW_TO_NOTICE], ..Special::default() };
        Self::start_as("pair", nodes, settings, special)
    }

    fn start_as(kind: &str, nodes: u32, settings: &[&str], special: Special) -> Option<Self> {
        if !fetched() {
            return None;
        }
        let asks = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let turn = asks.block_on(AT_ONCE.acquire()).unwrap();
        let dir = TempDir::new().unwrap();
        // Two more than at first, for those that are started later.
        let (claim, port) = free_ports(nodes + 2);
        let mut prepare = script();
        prepare.arg(kind).arg(dir.path()).arg(port.to_string()).args(SETTINGS).args(settings);
        if !special.racks.is_empty() {
            prepare.args(map_of_racks(dir.path(), special.racks));
        }
        if special.hosts {
            prepare.args(maintenance::prepare(dir.path()));
        }
        if special.key {
            prepare.args(zones::settings(dir.path()));
        }
        let prepared = prepare.output().unwrap();
        assert!(prepared.status.success(), "{}", text(&prepared));
        if special.key {
            zones::make_key(dir.path());
        }
        if let Some(jar) = &special.jar {
            std::fs::copy(jar, dir.path().join("jars").join(jar.file_name().unwrap())).unwrap();
        }
        let pair = kind == "pair";
        let calls = NameNode::at(&addresses(port, pair), &user()).unwrap();
        let (namenodes, datanodes) = (BTreeMap::new(), BTreeMap::new());
        let (_claim, _turn) = (claim, turn);
        let mut hdfs =
            Self { dir, port, nodes, namenodes, datanodes, asks, calls, pair, special, _claim, _turn };
        (1..=1 + u16::from(pair)).for_each(|i| hdfs.start_namenode(i));
        (0..nodes).for_each(|i| hdfs.start_datanode(i));
        if pair {
            hdfs.make_active(1);
        }
        hdfs.wait_live();
        Some(hdfs)
    }

    /// The addresses of the NameNodes' RPC.
    pub fn namenodes(&self) -> String {
        addresses(self.port, self.pair)
    }

    pub fn start_namenode(&mut self, i: u16) {
        let number = i.to_string();
        let mut args = vec!["namenode", &number];
        args.extend(&self.special.at_first);
        let child = self.daemon(&format!("namenode{i}"), &args);
        assert!(self.namenodes.insert(i, child).is_none());
    }

    pub fn kill_namenode(&mut self, i: u16) {
        end(self.namenodes.remove(&i).unwrap());
    }

    /// Starts the only NameNode anew; it is slow to notice losses then.
    pub fn restart_slow(&mut self) {
        self.kill_namenode(1);
        self.special.at_first.push(SLOW_TO_NOTICE);
        self.start_namenode(1);
        self.wait_live();
        self.wait_each_out_of_safe_mode();
    }

    /// Makes one of a pair active, as soon as it answers.
    pub fn make_active(&self, i: u16) {
        self.wait(&format!("NameNode {i} to become active"), || {
            let command = ["haadmin", "-transitionToActive", "--forceactive", &format!("nn{i}")];
            self.client(&command).status.success()
        });
    }

    /// Waits until the DataNodes have told all NameNodes where the blocks are.
    pub fn wait_each_out_of_safe_mode(&self) {
        self.wait("all NameNodes to leave safe mode", || {
            let said = self.client(&["admin", "-safemode", "get"]);
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            said.matches("Safe mode is OFF").count() == self.namenodes.len()
        });
    }

    /// Has a NameNode take the settings of the file, which all daemons have in common, instead of those that it was started with,
    /// until it is started again. One that is slow to notice losses calls DataNodes dead as soon as others do then.
    pub fn reconfigure(&self, i: u16) {
        let namenode = format!("127.0.0.1:{}", self.port + 2 * i - 2);
        self.stock(&["admin", "-reconfig", "namenode", &namenode, "start"]);
    }

    pub fn start_datanode(&mut self, i: u32) {
        self.start_datanode_with(i, &[]);
    }

    /// The same with settings of its own.
    pub fn start_datanode_with(&mut self, i: u32, settings: &[&str]) {
        let (number, host) = (i.to_string(), format!("dfs.datanode.hostname={}", rack_host(i)));
        let host = (!self.special.racks.is_empty()).then_some(&host[..]);
        let args: Vec<&str> = ["datanode", &number].into_iter().chain(host).collect();
        let child = self.daemon(&format!("datanode{i}"), &[&args[..], settings].concat());
        assert!(self.datanodes.insert(i, child).is_none());
    }

    /// One more than there were.
    pub fn add_datanode(&mut self) -> u32 {
        let i = self.nodes;
        self.nodes += 1;
        self.start_datanode(i);
        i
    }

    pub fn kill_datanode(&mut self, i: u32) {
        end(self.datanodes.remove(&i).unwrap());
    }

    /// The DataNodes that run.
    pub fn running(&self) -> Vec<u32> {
        self.datanodes.keys().copied().collect()
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

    /// Waits until the running DataNodes, and no others, are live for the NameNode, and listen: the NameNode does not know at once
    /// that one was killed.
    pub fn wait_live(&self) {
        let running: BTreeSet<u32> = self.datanodes.keys().copied().collect();
        self.wait(&format!("DataNodes {running:?} to be live"), || {
            self.live().iter().map(|node| self.number(node)).collect::<BTreeSet<u32>>() == running
                && running.iter().all(|i| TcpStream::connect(("127.0.0.1", self.http(*i))).is_ok())
        });
    }

    /// Waits for something that daemons have to be up for.
    fn wait(&self, what: &str, mut condition: impl FnMut() -> bool) {
        wait(what, || {
            let done = condition();
            if !done {
                let namenodes = self.namenodes.iter().map(|(i, child)| (format!("namenode{i}"), child));
                let datanodes = self.datanodes.iter().map(|(i, child)| (format!("datanode{i}"), child));
                let ended = namenodes.chain(datanodes).find(|(_, child)| has_ended(child.id()));
                assert!(ended.is_none(), "{} has ended before {what}", ended.unwrap().0);
            }
            done
        });
    }

    /// Puts files below `/ec` under a policy.
    pub fn put(&self, policy: &str, block_bytes: usize, files: &[(&str, Vec<u8>)]) {
        self.stock(&["fs", "-mkdir", "-p", "/ec"]);
        self.stock(&["ec", "-enablePolicy", "-policy", policy]);
        self.stock(&["ec", "-setPolicy", "-path", "/ec", "-policy", policy]);
        self.put_into("/ec", block_bytes, files);
    }

    /// Puts files into a folder; their names there are the last parts of those given.
    pub fn put_into(&self, folder: &str, block_bytes: usize, files: &[(&str, Vec<u8>)]) {
        self.put_with(&format!("dfs.blocksize={block_bytes}"), folder, files);
    }

    /// The same with a setting of the client.
    pub fn put_with(&self, setting: &str, folder: &str, files: &[(&str, Vec<u8>)]) {
        let local = self.dir.path().join("local");
        std::fs::create_dir_all(&local).unwrap();
        let mut args = vec!["fs".to_owned(), format!("-D{setting}"), "-put".to_owned()];
        for (name, bytes) in files {
            let path = local.join(Path::new(name).file_name().unwrap());
            std::fs::write(&path, bytes).unwrap();
            args.push(path.to_str().unwrap().to_owned());
        }
        args.push(folder.to_owned());
        self.stock(&args.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// The groups of a file as they are now.
    pub fn groups(&self, path: &str) -> Vec<Group> {
        self.ask_groups(path).unwrap()
    }

    fn ask_groups(&self, path: &str) -> Result<Vec<Group>, HdfsError> {
        self.asks.block_on(async {
            let status = self.calls.file(path).await?.ok_or_else(|| HdfsError::NotFound(path.into()))?;
            Group::of(path, &status, &self.calls.locations(path).await?)
        })
    }

    /// Waits for a state of the groups of these files. A NameNode that does not answer is asked again.
    fn wait_groups(&self, what: &str, paths: &[&str], condition: impl Fn(&[Group]) -> bool) {
        let mut last = String::new();
        self.wait(what, || {
            let asked: Result<Vec<Vec<Group>>, _> = paths.iter().map(|path| self.ask_groups(path)).collect();
            match asked {
                Ok(groups) => condition(&groups.concat()),
                Err(error) => {
                    let error = error.to_string();
                    if error != last {
                        eprintln!("waiting for {what}: {error}");
                        last = error;
                    }
                    false
                }
            }
        });
    }

    /// Waits until the number of missing internal blocks that the NameNode lists of a file is as expected.
    pub fn wait_missing(&self, path: &str, expected: impl Fn(usize) -> bool) {
        self.wait_groups(&format!("missing blocks of {path} as expected"), &[path], |groups| {
            expected(groups.iter().map(|group| group.missing().len()).sum())
        });
    }

    /// Waits until each internal block of these files is listed once, and lies once on the disks of live DataNodes.
    pub fn wait_each_index_once(&self, paths: &[&str]) {
        self.wait_groups(&format!("each index of {paths:?} to be there once"), paths, |groups| {
            groups.iter().all(|group| {
                let once = group.holders.values().all(|holders| holders.len() == 1);
                let on_disk =
                    |id| self.datanodes.keys().filter(|i| self.block_file(**i, id).is_some()).count();
                let stored = || group.expected().all(|index| on_disk(group.block(index).id) == 1);
                group.missing().is_empty() && once && stored()
            })
        });
    }

    /// How many internal blocks of a file a DataNode has, by what the NameNode lists.
    pub fn blocks_on(&self, path: &str, node: u32) -> usize {
        let groups = self.groups(path);
        let holders = groups.iter().flat_map(|group| group.holders.values().flatten());
        holders.filter(|holder| self.number(&holder.datanode) == node).count()
    }

    /// The running DataNodes without an internal block of the file's first group.
    pub fn spare(&self, path: &str) -> Vec<u32> {
        let group = self.groups(path).remove(0);
        let held: Vec<u32> =
            group.holders.values().flatten().map(|holder| self.number(&holder.datanode)).collect();
        self.datanodes.keys().copied().filter(|i| !held.contains(i)).collect()
    }

    /// The address of a DataNode's transfers.
    pub fn transfer(&self, i: u32) -> String {
        format!("127.0.0.1:{}", u32::from(self.port) + 10 + 3 * i)
    }

    /// The number of the DataNode with these ports.
    pub fn number(&self, datanode: &DatanodeInfo) -> u32 {
        (datanode.id.transfer_port - u32::from(self.port) - 10) / 3
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
        self.kintsu_command(args).output().unwrap()
    }

    /// The same, not started yet.
    pub fn kintsu_command(&self, args: &[&str]) -> Command {
        let mut command = kintsu();
        command.args(["hdfs", "--namenode", &self.namenodes()]).args(args);
        command
    }

    /// The same with `--json`, and with this exit code.
    pub fn json(&self, code: i32, args: &[&str]) -> Value {
        let out = self.kintsu(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(code), "{args:?}: {}", text(&out));
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", text(&out)))
    }

    /// The digest of what a stock client reads.
    pub fn stock_sha(&self, path: &str) -> String {
        let out = self.client(&["fs", "-cat", path]);
        assert!(out.status.success(), "{path}: {}", text(&out));
        self.compared("as its own clients read them");
        sha256(&out.stdout)
    }

    /// The digest of what `kintsu hdfs get` delivers.
    pub fn get_sha(&self, path: &str) -> String {
        let to = self.dir.path().join("got");
        let out = self.kintsu(&["get", path, to.to_str().unwrap()]);
        assert!(out.status.success(), "{}", text(&out));
        self.compared("as kintsu hdfs get delivers them");
        sha256(&std::fs::read(&to).unwrap())
    }

    /// Says aloud what is compared with the bytes that a file was written with, and which release the NameNode is of.
    fn compared(&self, files: &str) {
        if let Ok(namespace) = self.asks.block_on(self.calls.namespace()) {
            let release = namespace.release;
            let _ = writeln!(
                std::io::stderr(),
                "COMPARED: files of a real HDFS {release}, {files}, with what was written"
            );
        }
    }
}

impl Drop for Hdfs {
    fn drop(&mut self) {
        std::mem::take(&mut self.datanodes).into_values().for_each(end);
        std::mem::take(&mut self.namenodes).into_values().for_each(end);
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

/// The settings of a NameNode with a table of racks, and the table. All DataNodes on loopback have one address for the NameNode, so
/// the table is of the names with which they are started; it is asked for addresses only where answers are remembered
/// (`TableMapping` itself).
fn map_of_racks(dir: &Path, racks: &[&str]) -> [String; 2] {
    let table = dir.join("racks");
    let lines = (0..).zip(racks).map(|(i, rack)| format!("{} {rack}\n", rack_host(i)));
    std::fs::write(&table, lines.collect::<String>()).unwrap();
    [
        "net.topology.node.switch.mapping.impl=org.apache.hadoop.net.TableMapping$RawTableMapping".into(),
        format!("net.topology.table.file.name={}", table.display()),
    ]
}

/// The name of a DataNode in a cluster with racks. Nobody connects to it.
fn rack_host(i: u32) -> String {
    format!("127.0.0.{}", 11 + i)
}

fn addresses(port: u16, pair: bool) -> String {
    let other = if pair { format!(",127.0.0.1:{}", port + 2) } else { String::new() };
    format!("127.0.0.1:{port}{other}")
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

/// Whether the jars of HDFS are here; if they cannot be had, says so.
pub fn fetched() -> bool {
    let fetched = script().arg("fetch").output().unwrap();
    if !fetched.status.success() {
        let why = String::from_utf8_lossy(&fetched.stderr).trim().replace('\n', " ");
        let _ = writeln!(std::io::stderr(), "SKIPPED: tests beside a real HDFS: {why}");
    }
    fetched.status.success()
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
