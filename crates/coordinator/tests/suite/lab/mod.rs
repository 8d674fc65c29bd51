//! A small cluster in one process.

#![allow(clippy::unwrap_used)] // a panic is how a test fails

pub mod net;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kintsu_agent::AgentConfig;
use kintsu_client::{Client, Jobs, Options, PutOptions};
use kintsu_cluster::Cluster;
use kintsu_coordinator::Config;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::*;

pub struct Lab {
    pub client: Client,
    cluster: Cluster,
    /// The network between the agents, and the address where they register.
    pub net: Arc<net::Net>,
    front: Option<SocketAddr>,
    objects: BTreeMap<String, Vec<u8>>,
    _dir: tempfile::TempDir,
}

fn bytes(name: &str, len: usize) -> Vec<u8> {
    let mut state = name.bytes().fold(len as u64 | 1, |s, b| s.wrapping_mul(31).wrapping_add(b.into()));
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..len).map(next).collect()
}

impl Lab {
    pub async fn start(nodes: u32, racks: u32, grace: Duration) -> Self {
        Self::with(nodes, racks, |config| config.grace = grace).await
    }

    /// With other options of the coordinator. Nothing is repaired automatically.
    pub async fn with(nodes: u32, racks: u32, change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = kintsu_cluster::Options::new(dir.path(), 0, racks);
        let mut coordinator = Config {
            heartbeat: Duration::from_millis(100),
            // On a loaded machine heartbeats are a second late.
            dead_after: Duration::from_millis(2500),
            // No probe comes in between: bytes on links are counted, and what it finds on a loaded machine changes plans.
            measure: false,
            grace: Duration::from_secs(600),
            ..options.coordinator
        };
        change(&mut coordinator);
        let options = kintsu_cluster::Options { coordinator, ..options };
        let cluster = Cluster::start(options).await.unwrap();
        let client = Client::connect(&cluster.endpoint(), Options::default()).await.unwrap();
        let (net, front, objects) = (Arc::default(), None, BTreeMap::new());
        let mut lab = Self { client, cluster, net, front, objects, _dir: dir };
        for node in 0..nodes {
            lab.revive(node).await;
        }
        lab
    }

    /// A cluster whose nodes have links that can be slowed down or cut.
    pub async fn with_links(nodes: u32, racks: u32) -> Self {
        Self::with_links_and(nodes, racks, |_| {}).await
    }

    /// The same with other options of the coordinator.
    pub async fn with_links_and(nodes: u32, racks: u32, change: impl FnOnce(&mut Config)) -> Self {
        let mut lab = Self::with(0, racks, change).await;
        lab.front = Some(net::Front::serve(lab.net.clone(), lab.cluster.addr()).await);
        for node in 0..nodes {
            lab.revive(node).await;
        }
        lab
    }

    /// Starts the agent of a node.
    pub async fn revive(&mut self, node: u32) {
        let coordinator = self.front.unwrap_or(self.cluster.addr()).to_string();
        let config = AgentConfig { coordinator, ..self.cluster.agent_config(node) };
        self.cluster.start_node_with(node, config).await.unwrap();
    }

    /// Ends the agent of a node without telling the coordinator.
    pub async fn strike(&mut self, node: u32) {
        assert!(self.cluster.kill_node(node).await, "node {node} is not running");
    }

    /// As [`Lab::strike`], and waits until the coordinator notices it.
    pub async fn kill(&mut self, node: u32) {
        self.strike(node).await;
        self.until("the death is noticed", async |lab| lab.node(node).await.state == NodeState::Dead).await;
    }

    pub async fn restart_coordinator(&mut self) {
        self.cluster.restart_coordinator().await.unwrap();
    }

    pub async fn stop(self) {
        self.cluster.shutdown().await.unwrap();
    }

    pub async fn put(&mut self, name: &str, len: usize, code: &str, encoding: Encoding) {
        self.put_in_blocks(name, len, code, encoding, 64 << 10).await;
    }

    pub async fn put_in_blocks(
        &mut self,
        name: &str,
        len: usize,
        code: &str,
        encoding: Encoding,
        block_bytes: u64,
    ) {
        let content = bytes(name, len);
        let mut options = PutOptions::new(code);
        (options.encoding, options.block_bytes, options.cell_bytes) =
            (encoding, Some(block_bytes), Some(16 << 10));
        let source = Arc::new(bytes::Bytes::from(content.clone()));
        self.client.put(source, name, options, |_, _| {}).await.unwrap();
        self.objects.insert(name.into(), content);
    }

    /// Reads every object and compares its content.
    pub async fn check_all(&self) {
        for (name, content) in &self.objects {
            let mut got = Vec::new();
            self.client.get(name, None, &mut got, |_, _| {}).await.unwrap();
            assert!(got == *content, "{name} came back differently");
        }
    }

    /// Checks that every block is a file on a living node, and that no node has two blocks of a stripe.
    pub async fn check_places(&self) {
        // An agent may report rot only after the read or repair that found it went on; it is then repaired
        // automatically.
        let at_rest = async |lab: &Self| {
            let status = lab.client.status().await.unwrap();
            status.repairs_pending == 0 && status.degraded_stripes == 0
        };
        self.until("nothing is being repaired", at_rest).await;
        let running = self.cluster.running().await;
        for name in self.objects.keys() {
            let view = self.client.stripes(name, 0, 1000).await.unwrap();
            for stripe in view.stripes {
                let blocks: Vec<_> = stripe.blocks.iter().flatten().collect();
                let nodes: BTreeSet<NodeId> = blocks.iter().map(|b| b.node).collect();
                assert_eq!(nodes.len(), blocks.len(), "two blocks of {} on a node", stripe.id);
                for block in blocks {
                    assert!(!block.lost, "{} is lost", block.id);
                    assert!(running.contains(&block.node.0), "{} on dead {}", block.id, block.node);
                    assert!(self.file(block).exists(), "{} is not on {}", block.id, block.node);
                }
            }
        }
    }

    pub async fn node(&self, node: u32) -> NodeInfo {
        let nodes = self.client.nodes().await.unwrap().nodes;
        nodes.into_iter().find(|n| n.id.0 == node).unwrap()
    }

    pub async fn repair(&self, target: RepairTarget, method: Method) -> JobReport {
        report(self.client.repair(target, method, 4096).await.unwrap()).await
    }

    pub async fn repair_by(&self, repair: Repair) -> JobReport {
        report(self.client.repair_by(repair).await.unwrap()).await
    }

    /// The blocks of all objects on each node.
    pub async fn held(&self) -> BTreeMap<NodeId, BTreeSet<kintsu_dag::BlockId>> {
        let mut held: BTreeMap<NodeId, BTreeSet<_>> = BTreeMap::new();
        for name in self.objects.keys() {
            for stripe in self.client.stripes(name, 0, 1000).await.unwrap().stripes {
                for block in stripe.blocks.iter().flatten() {
                    held.entry(block.node).or_default().insert(block.id);
                }
            }
        }
        held
    }

    /// Begins a repair with slices of 16 KiB.
    pub async fn begin_repair(
        &self,
        target: RepairTarget,
        method: Method,
    ) -> tokio::task::JoinHandle<JobReport> {
        let jobs = self.client.repair(target, method, 16 << 10).await.unwrap();
        tokio::spawn(report(jobs))
    }

    pub async fn scrub(&self) -> JobReport {
        report(self.client.scrub(None).await.unwrap()).await
    }

    pub async fn encode(&self, name: &str) -> JobReport {
        report(self.client.encode(name).await.unwrap()).await
    }

    pub async fn command(&self, node: u32, action: NodeAction) -> JobReport {
        report(self.client.command_node(NodeId(node), action).await.unwrap()).await
    }

    /// Changes the bytes of a block file without its agent's knowledge.
    pub fn damage(&self, block: &BlockPlace, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.file(block);
        let mut content = std::fs::read(&path).unwrap();
        change(&mut content);
        std::fs::write(&path, content).unwrap();
    }

    pub fn remove(&self, block: &BlockPlace) {
        std::fs::remove_file(self.file(block)).unwrap();
    }

    /// Waits for a condition that comes true by itself.
    pub async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> bool) {
        for _ in 0..1800 {
            if holds(self).await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited in vain until {what}");
    }

    fn file(&self, block: &BlockPlace) -> PathBuf {
        kintsu_store::block_path(&self.cluster.node_dir(block.node.0), block.id)
    }
}

pub async fn report(mut job: Jobs) -> JobReport {
    loop {
        match job.next().await.unwrap() {
            Some(JobEvent::Ended(report)) => return report,
            Some(JobEvent::Began(_) | JobEvent::Progress { .. }) => {}
            None => panic!("the job ended without a report"),
        }
    }
}
