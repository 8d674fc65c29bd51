//! A registry in place of a coordinator, which only keeps what agents report; the agents are real.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_dag::{NodeId, RackId};
use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::*;
use kintsu_wire::{ClusterId, Credentials, Seen, channel};
use tokio::net::TcpListener;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

/// Guards against hangs only.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

/// Waits until `so` is true.
pub async fn until(mut so: impl FnMut() -> bool) {
    within(async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// The cluster of every registry.
pub const CLUSTER: ClusterId = ClusterId([0xc1; 16]);
/// The point of the history that every registry tells agents.
pub const SEEN: Seen = Seen { boot: 3, nonce: 5, history: 7 };

/// What a member of the cluster shows.
pub fn member() -> Credentials {
    let credentials = Credentials::none();
    credentials.join(CLUSTER).unwrap();
    credentials
}

#[derive(Default)]
pub struct Registry {
    pub registered: Mutex<Vec<Register>>,
    pub heartbeats: Mutex<BTreeMap<NodeId, u32>>,
    pub bad: Mutex<Vec<BadBlock>>,
    pub pages: Mutex<Vec<BlockPage>>,
    /// Why a node's folder cannot be used, from its last heartbeat.
    pub failed: Mutex<BTreeMap<NodeId, Option<String>>>,
    pub register_again: AtomicBool,
}

impl Registry {
    pub async fn serve(self: &Arc<Self>, credentials: &Credentials) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let routes = channel::membership_routes(Arc::new(Desk(self.clone())));
        tokio::spawn(channel::serve(routes, credentials.clone(), listener, std::future::pending()));
        addr
    }

    pub fn registrations(&self, node: NodeId) -> usize {
        self.registered.lock().unwrap().iter().filter(|r| r.node == Some(node)).count()
    }
}

pub fn config(dir: &Path, coordinator: SocketAddr) -> AgentConfig {
    AgentConfig { rack: RackId(1), ..AgentConfig::new(dir, coordinator.to_string()) }
}

/// Starts agents 0..count in folders of `dir`.
pub async fn agents(dir: &Path, coordinator: SocketAddr, count: u32) -> Vec<AgentHandle> {
    let mut agents = Vec::new();
    for node in 0..count {
        let config =
            AgentConfig { node: Some(NodeId(node)), ..config(&dir.join(node.to_string()), coordinator) };
        agents.push(within(Agent::start(config)).await.unwrap());
    }
    agents
}

struct Desk(Arc<Registry>);

#[tonic::async_trait]
impl Membership for Desk {
    async fn register(&self, request: Request<Register>) -> Result<Response<Registered>, Status> {
        let register = request.into_inner();
        let mut registered = self.0.registered.lock().unwrap();
        let node = register.node.unwrap_or(NodeId(100 + registered.len() as u32));
        registered.push(Register { node: Some(node), ..register });
        self.0.register_again.store(false, Ordering::SeqCst);
        Ok(Response::new(Registered {
            node,
            cluster: CLUSTER,
            heartbeat_ms: 20,
            seen: Some(SEEN),
            labels: false,
            tickets: None,
            agents_too: false,
        }))
    }

    async fn heartbeat(&self, request: Request<Heartbeat>) -> Result<Response<HeartbeatReply>, Status> {
        let Heartbeat { node, incarnation, failed, .. } = request.into_inner();
        self.0.failed.lock().unwrap().insert(node, failed);
        *self.0.heartbeats.lock().unwrap().entry(node).or_default() += 1;
        let known = self.0.registered.lock().unwrap().iter().any(|r| r.incarnation == incarnation);
        let register_again = !known || self.0.register_again.load(Ordering::SeqCst);
        Ok(Response::new(HeartbeatReply {
            register_again,
            seen: Some(SEEN),
            repair_rate: None,
            agents_too: false,
        }))
    }

    async fn report_blocks(&self, request: Request<BlockPage>) -> Result<Response<Done>, Status> {
        self.0.pages.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Done {}))
    }

    async fn report_bad(&self, request: Request<BadBlock>) -> Result<Response<Done>, Status> {
        self.0.bad.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Done {}))
    }

    type BackupStream = ReceiverStream<Result<CopyChunk, Status>>;
    async fn backup(&self, _: Request<Backup>) -> Result<Response<Self::BackupStream>, Status> {
        Err(Status::unimplemented("only a registry"))
    }
}
