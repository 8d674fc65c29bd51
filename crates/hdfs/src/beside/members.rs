//! The agents beside DataNodes: who is there, where it listens, and what is staged on it.
//!
//! Agents are Kintsu's own; this is the part of a coordinator that they call. An agent's name is the address of its
//! DataNode, and its id is made from that name: so nothing has to be remembered here, and after a restart everybody
//! has the id that stands in its folder. The cluster's id is made from the block pool.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::{
    Backup, BadBlock, BlockPage, CopyChunk, CountedBeside, Done, Heartbeat, HeartbeatReply, HeldBlock,
    Register, Registered,
};
use kintsu_wire::version::{Speaks, Spoken};
use kintsu_wire::{ClusterId, PROTOCOL_VERSION};
use sha1::{Digest as _, Sha1};
use tokio::time::Instant;
use tokio_stream::Stream;
use tonic::{Request, Response, Status};

/// How often agents send heartbeats.
const HEARTBEAT: Duration = Duration::from_millis(500);

/// An agent that was not heard for this long takes no part in repairs.
const DEAD_AFTER: Duration = Duration::from_secs(3);

/// Blocks that were brought into HDFS are remembered up to this number. Whoever watches asks every second.
const MOST_COUNTED: usize = 1024;

/// One agent.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    /// The address of its DataNode's transfers.
    pub datanode: String,
    pub control: SocketAddr,
    pub data: SocketAddr,
    /// The newest version of the protocol that it speaks.
    pub protocol: u32,
    /// Another one for each start.
    pub incarnation: u64,
    heard: Instant,
}

/// Where a rebuilt block waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    pub node: NodeId,
    pub held: HeldBlock,
}

/// All agents.
pub(crate) struct Members {
    cluster: ClusterId,
    /// The version in which agents are called: that of the oldest one.
    speaks: Speaks,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    members: BTreeMap<NodeId, Member>,
    staged: BTreeMap<BlockId, Staged>,
    /// The last blocks that were brought into HDFS: their ids there, and the DataNodes.
    counted: VecDeque<(u64, String, Instant)>,
}

impl Members {
    /// Of an HDFS with this block pool; `speaks` follows the agents.
    pub(crate) fn of(pool: &str, speaks: Speaks) -> Self {
        Self { cluster: cluster_of(pool), speaks, table: Mutex::default() }
    }

    /// The cluster's id.
    pub(crate) fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agents that are alive.
    pub(crate) fn alive(&self) -> BTreeMap<NodeId, Member> {
        let table = self.table();
        let alive = table.members.iter().filter(|(_, member)| member.heard.elapsed() < DEAD_AFTER);
        let alive: BTreeMap<NodeId, Member> = alive.map(|(node, member)| (*node, member.clone())).collect();
        let oldest = alive.values().map(|member| member.protocol).min();
        self.speaks.set(oldest.unwrap_or(PROTOCOL_VERSION));
        alive
    }

    /// The staged blocks.
    pub(crate) fn staged(&self) -> BTreeMap<BlockId, Staged> {
        self.table().staged.clone()
    }

    /// Whether this block is still staged.
    pub(crate) fn is_staged(&self, staged: &Staged) -> bool {
        self.table().staged.get(&staged.held.id) == Some(staged)
    }

    /// A block was staged.
    pub(crate) fn stage(&self, staged: Staged) {
        self.table().staged.insert(staged.held.id, staged);
    }

    /// A staged block was brought into HDFS: its id there, and the DataNode.
    pub(crate) fn keep_counted(&self, block: u64, datanode: &str) {
        let mut table = self.table();
        table.counted.push_back((block, datanode.to_owned(), Instant::now()));
        if table.counted.len() > MOST_COUNTED {
            table.counted.pop_front();
        }
    }

    /// The last blocks that were brought into HDFS.
    pub(crate) fn counted(&self) -> Vec<CountedBeside> {
        let one = |(block, datanode, at): &(u64, String, Instant)| CountedBeside {
            block: *block,
            beside: datanode.clone(),
            age_ms: at.elapsed().as_millis() as u64,
        };
        self.table().counted.iter().map(one).collect()
    }

    /// A block is staged no longer.
    pub(crate) fn unstage(&self, id: BlockId) {
        self.table().staged.remove(&id);
    }
}

/// The id of the agents' cluster beside an HDFS with this block pool.
pub(crate) fn cluster_of(pool: &str) -> ClusterId {
    let mut id = [0; 16];
    id.copy_from_slice(&Sha1::digest(pool.as_bytes())[..16]);
    ClusterId(id)
}

/// The id of the agent beside a DataNode.
fn node_of(datanode: &str) -> NodeId {
    let hash = Sha1::digest(datanode.as_bytes());
    NodeId(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) >> 1)
}

#[tonic::async_trait]
impl Membership for Members {
    type BackupStream = Pin<Box<dyn Stream<Item = Result<CopyChunk, Status>> + Send>>;

    async fn register(&self, request: Request<Register>) -> Result<Response<Registered>, Status> {
        let protocol = Spoken::of(request.extensions()).newest;
        let register = request.into_inner();
        let name = register.name.unwrap_or_default();
        if name.parse::<SocketAddr>().is_err() {
            let message =
                format!("expected the address of a DataNode (ip:port) as the agent's name, got {name:?}");
            return Err(Status::invalid_argument(message));
        }
        let node = node_of(&name);
        if let Some(own) = register.node.filter(|own| *own != node) {
            let message = format!(
                "expected the folder of {node}, which is beside DataNode {name}, got that of {own}: it is beside another \
                 DataNode"
            );
            return Err(Status::failed_precondition(message));
        }
        let mut table = self.table();
        if let Some(other) = table.members.get(&node) {
            let alive = other.incarnation != register.incarnation && other.heard.elapsed() < DEAD_AFTER;
            if alive {
                // Agents try again on this code, because a former process may be about to end.
                return Err(Status::already_exists(format!("another agent is beside DataNode {name}")));
            }
        }
        let (control, data, incarnation) = (register.control, register.data, register.incarnation);
        let heard = Instant::now();
        let member = Member { datanode: name, control, data, protocol, incarnation, heard };
        table.members.insert(node, member);
        table.staged.retain(|_, staged| staged.node != node);
        let heartbeat_ms = HEARTBEAT.as_millis() as u64;
        Ok(Response::new(Registered {
            node,
            cluster: self.cluster,
            heartbeat_ms,
            seen: None,
            labels: false,
            tickets: None,
        }))
    }

    async fn report_blocks(&self, request: Request<BlockPage>) -> Result<Response<Done>, Status> {
        let page = request.into_inner();
        let mut table = self.table();
        for held in page.blocks {
            table.staged.insert(held.id, Staged { node: page.node, held });
        }
        Ok(Response::new(Done {}))
    }

    async fn heartbeat(&self, request: Request<Heartbeat>) -> Result<Response<HeartbeatReply>, Status> {
        let beat = request.into_inner();
        let mut table = self.table();
        let member = table.members.get_mut(&beat.node);
        let known = member.filter(|member| member.incarnation == beat.incarnation && beat.failed.is_none());
        let register_again = known.is_none() && beat.failed.is_none();
        if let Some(member) = known {
            member.heard = Instant::now();
        }
        Ok(Response::new(HeartbeatReply { register_again, seen: None, repair_rate: None }))
    }

    async fn report_bad(&self, request: Request<BadBlock>) -> Result<Response<Done>, Status> {
        let bad = request.into_inner();
        tracing::warn!("{} on {}: {}", bad.id, bad.node, bad.detail);
        Ok(Response::new(Done {}))
    }

    async fn backup(&self, _: Request<Backup>) -> Result<Response<Self::BackupStream>, Status> {
        Err(Status::unimplemented("beside an HDFS there are no metadata but those of the NameNode"))
    }
}
