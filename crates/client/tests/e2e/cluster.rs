//! A cluster in this process, in a temporary directory, with small blocks and short timeouts.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_agent::AgentConfig;
use kintsu_client::{Client, ClientError, Jobs, PutOptions};
use kintsu_cluster::Options;
use kintsu_coordinator::{Config, Coordinator, CoordinatorHandle};
use kintsu_dag::BlockId;
use kintsu_store::{BlockStore, FileStore, Role};
use kintsu_wire::message::{Encoding, JobEvent, JobReport, NodeState, ObjectInfo, StripeInfo};
use tempfile::TempDir;
use tokio::time::Instant;

/// Bytes in a cell; blocks have four.
pub const CELL: u32 = 16 << 10;
/// A code that tolerates two losses.
pub const RS: &str = "rs:n=5,k=3";
/// Two local groups of three, four parities, on ten blocks.
pub const LRC: &str = "azure-lrc:n=10,k=6,r=3";

const PATIENCE: Duration = Duration::from_secs(90);

/// Blocks of four cells.
pub fn options(code: &str, encoding: Encoding) -> PutOptions {
    PutOptions {
        block_bytes: Some(4 * u64::from(CELL)),
        cell_bytes: Some(CELL),
        encoding,
        ..PutOptions::new(code)
    }
}

/// Coordinator and agents.
pub struct Cluster {
    /// Where the coordinator listens.
    pub endpoint: String,
    nodes: u32,
    config: Config,
    running: kintsu_cluster::Cluster,
    dir: TempDir,
}

impl Cluster {
    /// Nodes 0.. in racks by turns. Nothing is repaired automatically.
    pub async fn start(nodes: u32, racks: u32) -> Self {
        Self::with(nodes, racks, |_| {}).await
    }

    /// Blocks of a node that has been dead for `grace` are repaired.
    pub async fn with_grace(nodes: u32, racks: u32, grace: Duration) -> Self {
        Self::with(nodes, racks, |config| config.grace = grace).await
    }

    /// With other options of the coordinator.
    pub async fn with(nodes: u32, racks: u32, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path(), nodes, racks);
        options.coordinator = Config {
            heartbeat: Duration::from_millis(100),
            // On a loaded machine heartbeats and renewals are a second late.
            dead_after: Duration::from_millis(2500),
            lease: Duration::from_secs(8),
            grant: 3,
            grace: Duration::from_secs(3600),
            // No probe comes in between: what it finds on a loaded machine changes plans, and bytes are counted.
            measure: false,
            ..options.coordinator
        };
        change(&mut options.coordinator);
        let config = options.coordinator.clone();
        let running = kintsu_cluster::Cluster::start(options).await.unwrap();
        Self { endpoint: running.endpoint(), nodes, config, running, dir }
    }

    /// The blocks of which a node that is down has logged updates, with whether as a replica.
    pub fn logged_by(&self, id: u32) -> Vec<(BlockId, bool)> {
        let log = FileStore::open(&self.node_dir(id)).unwrap().log().unwrap();
        log.pending().into_iter().map(|pending| (pending.block, pending.role == Role::Replica)).collect()
    }

    /// Changes the newest file of the log of a node that is down.
    pub fn tamper_log(&self, id: u32, change: impl FnOnce(&mut Vec<u8>)) {
        let mut files = Vec::new();
        collect(&self.node_dir(id).join("log"), &mut files);
        files.retain(|file| file.extension().is_some_and(|e| e == "log"));
        let newest = files.into_iter().max().unwrap();
        let mut bytes = std::fs::read(&newest).unwrap();
        change(&mut bytes);
        std::fs::write(newest, bytes).unwrap();
    }

    fn node_dir(&self, id: u32) -> PathBuf {
        self.running.node_dir(id)
    }

    /// A new client.
    pub async fn client(&self) -> Client {
        Client::connect(&self.endpoint, Default::default()).await.unwrap()
    }

    /// A client that waits for nobody.
    pub async fn impatient_client(&self) -> Client {
        let options = kintsu_client::Options { patience: Duration::ZERO, ..Default::default() };
        self.client_with(options).await
    }

    /// A client with these options.
    pub async fn client_with(&self, options: kintsu_client::Options) -> Client {
        Client::connect(&self.endpoint, options).await.unwrap()
    }

    /// Ends a node's agent without telling anybody.
    pub async fn kill(&mut self, id: u32) {
        assert!(self.running.kill_node(id).await, "node {id} is not running");
    }

    /// Kills these nodes at once, and waits until they count as dead.
    pub async fn lose(&mut self, ids: std::ops::Range<u32>) {
        for id in ids.clone() {
            self.kill(id).await;
        }
        for id in ids {
            self.until_state(id, NodeState::Dead).await;
        }
    }

    /// Starts a node again on what its directory holds.
    pub async fn start_node(&mut self, id: u32) {
        self.running.start_node(id).await.unwrap();
        self.until_state(id, NodeState::Alive).await;
    }

    /// Starts a node again with an empty folder, as if its disk had been replaced.
    pub async fn replace_node(&mut self, id: u32) {
        self.kill(id).await;
        self.replace_dead_node(id).await;
    }

    /// The same for one that is down.
    pub async fn replace_dead_node(&mut self, id: u32) {
        std::fs::remove_dir_all(self.node_dir(id)).unwrap();
        let config = self.running.agent_config(id);
        self.running.start_node_with(id, AgentConfig { replace: true, ..config }).await.unwrap();
        self.until_state(id, NodeState::Alive).await;
    }

    /// Starts a node again on a store of another kind over its directory.
    pub async fn start_node_on(
        &mut self,
        id: u32,
        over: impl FnOnce(FileStore) -> Arc<dyn BlockStore> + Send + 'static,
    ) {
        let open = |dir: &Path| FileStore::open(dir).map(over);
        self.running.start_node_on(id, open).await.unwrap();
        self.until_state(id, NodeState::Alive).await;
    }

    /// Removes all block files of a node that is down, as if its disk had been replaced.
    pub fn empty(&self, id: u32) {
        for file in self.block_files_of(id) {
            std::fs::remove_file(file).unwrap();
        }
    }

    /// Ends the coordinator and starts it again, on the same address.
    pub async fn restart_coordinator(&mut self) {
        self.running.restart_coordinator().await.unwrap();
    }

    /// Ends the coordinator, and starts one on an empty folder that rebuilds the metadata.
    pub async fn lose_metadata(&mut self) -> CoordinatorHandle {
        let listen = self.running.addr();
        self.running.stop_coordinator().await.unwrap();
        let dir = kintsu_cluster::coordinator_dir(self.dir.path());
        std::fs::remove_dir_all(&dir).unwrap();
        Coordinator::start(Config { dir, listen, rebuild: true, ..self.config.clone() }).await.unwrap()
    }

    /// Ends the coordinator.
    pub async fn stop_coordinator(&mut self) {
        self.running.stop_coordinator().await.unwrap();
    }

    /// Puts bytes.
    pub async fn put(&self, name: &str, data: &[u8], options: PutOptions) -> Result<ObjectInfo, ClientError> {
        let source = Arc::new(Bytes::copy_from_slice(data));
        self.client().await.put(source, name, options, |_, _| {}).await
    }

    /// Gets all bytes.
    pub async fn get(&self, name: &str) -> Result<Vec<u8>, ClientError> {
        let mut out = Vec::new();
        let report = self.client().await.get(name, None, &mut out, |_, _| {}).await?;
        assert_eq!(report.bytes, out.len() as u64);
        Ok(out)
    }

    /// Gets a range.
    pub async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ClientError> {
        let mut out = Vec::new();
        self.client().await.get(name, Some(range), &mut out, |_, _| {}).await?;
        Ok(out)
    }

    /// Follows a job to its end.
    pub async fn finish(&self, mut jobs: Jobs) -> JobReport {
        let following = async {
            loop {
                match jobs.next().await.unwrap() {
                    Some(JobEvent::Ended(report)) => break report,
                    Some(JobEvent::Began(_) | JobEvent::Progress { .. }) => {}
                    None => panic!("a job ended without a report"),
                }
            }
        };
        tokio::time::timeout(PATIENCE, following).await.expect("the job ends")
    }

    /// A stripe of an object, by position.
    pub async fn stripe(&self, name: &str, position: u64) -> StripeInfo {
        self.client().await.stripes(name, position, 1).await.unwrap().stripes.remove(0)
    }

    /// The node that a block is on.
    pub async fn home(&self, name: &str, position: u64, index: u8) -> u32 {
        self.stripe(name, position).await.blocks[usize::from(index)].as_ref().unwrap().node.0
    }

    /// The file of a block.
    pub async fn block_path(&self, name: &str, position: u64, index: u8) -> PathBuf {
        let block = self.stripe(name, position).await.blocks[usize::from(index)].clone().unwrap();
        self.path_of(block.node.0, block.id)
    }

    fn path_of(&self, node: u32, id: BlockId) -> PathBuf {
        kintsu_store::block_path(&self.node_dir(node), id)
    }

    /// How many blocks an object has.
    pub async fn blocks_of(&self, name: &str) -> usize {
        let view = self.client().await.stripes(name, 0, 1000).await.unwrap();
        view.stripes.iter().flat_map(|s| s.blocks.iter().flatten()).count()
    }

    /// All blocks of all objects with their homes and the data in their files; missing blocks are left out.
    /// Headers are left out too: their labels name the nodes at the time of writing.
    pub async fn all_blocks(&self) -> BTreeMap<BlockId, (u32, Vec<u8>)> {
        let client = self.client().await;
        let mut blocks = BTreeMap::new();
        for object in client.list("", None, 1000).await.unwrap().objects {
            let view = client.stripes(&object.name, 0, 1000).await.unwrap();
            for block in view.stripes.iter().flat_map(|s| s.blocks.iter().flatten()) {
                if let Ok(mut bytes) = std::fs::read(self.path_of(block.node.0, block.id)) {
                    let len = u64::from_le_bytes(bytes[32..40].try_into().unwrap()) as usize;
                    blocks.insert(block.id, (block.node.0, bytes.drain(4096..4096 + len).collect()));
                }
            }
        }
        blocks
    }

    /// Block files of all nodes, finished or not.
    pub fn block_files(&self) -> Vec<PathBuf> {
        (0..self.nodes).flat_map(|id| self.block_files_of(id)).collect()
    }

    /// Block files of a node, finished or not.
    pub fn block_files_of(&self, id: u32) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&self.node_dir(id).join("blocks"), &mut files);
        files.retain(|f| f.extension().is_some_and(|e| e == "block" || e == "tmp"));
        files.sort();
        files
    }

    /// Closes a client that has given up puts: the coordinator has undone them then. A client that cannot tell it so within
    /// three seconds leaves them to the end of their leases.
    pub async fn close(&self, client: &Client) {
        let begun = Instant::now();
        client.close().await;
        let pending = || async { client.status().await.unwrap().puts_pending };
        if begun.elapsed() < Duration::from_millis(2900) {
            assert_eq!(pending().await, 0);
        }
        self.until_async("no put is under way", || async { pending().await == 0 }).await;
    }

    /// The ids of removed objects that any agent remembers.
    pub fn removed_objects(&self) -> Vec<RangeInclusive<u64>> {
        let files = (0..self.nodes).map(|id| std::fs::read_to_string(self.node_dir(id).join("removed")));
        // The first and the last of each line, and their checksum.
        let range = |line: &str| {
            let mut words = line.split(' ').map(str::parse::<u64>);
            Some(words.next()?.ok()?..=words.next()?.ok()?)
        };
        files.flatten().flat_map(|file| file.lines().filter_map(range).collect::<Vec<_>>()).collect()
    }

    /// Waits for something to become true.
    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        self.until_async(what, || std::future::ready(holds())).await;
    }

    /// Waits for something to become true.
    pub async fn until_async<F: Future<Output = bool>>(&self, what: &str, holds: impl Fn() -> F) {
        let end = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < end, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the coordinator sees a node in a state.
    pub async fn until_state(&self, id: u32, state: NodeState) {
        let client = self.client().await;
        let what = format!("node {id} is {state:?}");
        self.until_async(&what, || async {
            let nodes = client.nodes().await.unwrap().nodes;
            nodes.iter().any(|n| n.id.0 == id && n.state == state)
        })
        .await;
    }
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => collect(&path, files),
            path => files.push(path),
        }
    }
}
