//! A coordinator without its tick and sweep drivers, with real agents and a real client: tests decide step by step
//! what happens when.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_client::{Client, Options, PutOptions};
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_wire::Credentials;
use kintsu_wire::net::TcpListener;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::meta::{self, StripeRecord};
use crate::server;
use crate::service::ServedCluster;

pub(crate) struct Live {
    pub cluster: Arc<Cluster>,
    pub client: Client,
    addr: SocketAddr,
    agents: Vec<AgentHandle>,
    dir: tempfile::TempDir,
}

impl Live {
    /// Starts this many nodes, each in a rack of its own.
    pub async fn start(nodes: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::new(dir.path().join("coordinator"), any);
        (config.cache_bytes, config.heartbeat) = (1 << 20, Duration::from_millis(100));
        let cluster = Arc::new(Cluster::open(config, Credentials::none()).unwrap());
        let listener = TcpListener::bind(any).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let credentials = Credentials::none();
        credentials.join(cluster.id).unwrap();
        let served = Arc::new(ServedCluster::default());
        served.open(cluster.clone());
        server::serve(served, listener, &credentials, &cluster.stop);
        let client = Client::connect(&addr.to_string(), Options::default()).await.unwrap();
        let mut live = Self { cluster, client, addr, agents: Vec::new(), dir };
        for node in 0..nodes {
            let config = live.config(node);
            live.agents.push(Agent::start(config).await.unwrap());
        }
        live
    }

    /// One more node, in a rack of its own.
    pub async fn add(&mut self, node: u32) {
        let config = self.config(node);
        self.agents.push(Agent::start(config).await.unwrap());
    }

    fn config(&self, node: u32) -> AgentConfig {
        AgentConfig {
            node: Some(NodeId(node)),
            rack: RackId(node),
            ..AgentConfig::new(self.dir.path().join(node.to_string()), self.addr.to_string())
        }
    }

    /// Puts an object of one stripe, rs:n=4,k=2, and returns the stripe.
    pub async fn put(&self, name: &str) -> (StripeId, StripeRecord) {
        self.put_as(name, "rs:n=4,k=2", 4 << 10).await
    }

    /// The same in another code of k = 2, with cells of so many bytes.
    pub async fn put_as(&self, name: &str, code: &str, cell_bytes: u32) -> (StripeId, StripeRecord) {
        let mut options = PutOptions::new(code);
        (options.block_bytes, options.cell_bytes) = (Some(64 << 10), Some(cell_bytes));
        let source = Arc::new(bytes::Bytes::from(content(name)));
        self.client.put(source, name, options, |_, _| {}).await.unwrap();
        self.stripe(name)
    }

    /// Follows a job to its end; it must succeed.
    pub async fn follow(&self, mut jobs: kintsu_client::Jobs) {
        while let Some(event) = jobs.next().await.unwrap() {
            if let kintsu_wire::message::JobEvent::Ended(report) = event {
                assert_eq!(report.failed, Vec::<String>::new());
            }
        }
    }

    /// The stripe of an object as it is recorded.
    pub fn stripe(&self, name: &str) -> (StripeId, StripeRecord) {
        crate::handlers::tests::stripe(&self.cluster, name)
    }

    /// Reads an object and compares its content.
    pub async fn check(&self, name: &str) {
        let mut got = Vec::new();
        self.client.get(name, None, &mut got, |_, _| {}).await.unwrap();
        assert!(got == content(name), "{name} came back differently");
    }

    /// A node without a block of a stripe.
    pub fn spare(&self, stripe: &StripeRecord) -> NodeId {
        let taken: BTreeSet<NodeId> = stripe.made().map(|(_, block)| block.node).collect();
        (0..).map(NodeId).find(|node| !taken.contains(node)).unwrap()
    }

    /// The file of a block on a node.
    pub fn file(&self, node: NodeId, stripe: StripeId, index: u8) -> PathBuf {
        let id = BlockId { stripe, index: BlockIndex(index) };
        kintsu_store::block_path(&self.dir.path().join(node.0.to_string()), id)
    }

    /// Writes a block of one node to another node, as a drain does before it commits.
    pub fn copy(&self, from: NodeId, to: NodeId, stripe: StripeId, index: u8) {
        let file = self.file(to, stripe, index);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::copy(self.file(from, stripe, index), file).unwrap();
    }

    /// Changes one byte of a block without its agent's knowledge.
    pub fn flip(&self, node: NodeId, stripe: StripeId, index: u8) {
        let file = self.file(node, stripe, index);
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }

    /// Waits for a condition that comes true by itself.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Cluster) -> bool) {
        for _ in 0..6000 {
            if holds(&self.cluster) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("waited in vain until {what}");
    }

    /// Ends the agents and closes the metadata, as a crash of the coordinator does; returns the directory of the
    /// cluster.
    pub async fn end(self) -> tempfile::TempDir {
        for agent in &self.agents {
            agent.shutdown().await;
        }
        self.cluster.close().await.unwrap();
        self.dir
    }

    /// Starts a coordinator on a copy of the metadata, as if this one had been killed now. The agents still talk
    /// to the old one.
    pub async fn reopen(mut self) -> (Self, Arc<Cluster>) {
        let copy = self.dir.path().join("after");
        std::fs::create_dir_all(&copy).unwrap();
        std::fs::copy(self.cluster.config.dir.join(meta::FILE), copy.join(meta::FILE)).unwrap();
        let config = Config { dir: copy, ..self.cluster.config.clone() };
        let cluster = Arc::new(Cluster::open(config, Credentials::none()).unwrap());
        let old = std::mem::replace(&mut self.cluster, cluster);
        (self, old)
    }
}

fn content(name: &str) -> Vec<u8> {
    let seed = name.bytes().fold(7, |sum, byte| sum * 31 + u64::from(byte));
    (0..100_000u64).map(|at| ((at ^ seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
