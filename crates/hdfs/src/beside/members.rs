//! The agents beside DataNodes: who is there, where it listens, and what is staged on it.
//!
//! Agents are Kintsu's own; this is the part of a coordinator that they call. An agent's name is the address of its
//! DataNode, and its id is made from that name: so nothing has to be remembered here, and after a restart everybody
//! has the id that stands in its folder. The cluster's id is made from the block pool.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::membership::membership_server::Membership;
use kintsu_wire::message::{
    Backup, BadBlock, BlockPage, CopyChunk, CountedBeside, DiskUsage, Done, FaultKind, Heartbeat,
    HeartbeatReply, HeldBlock, Register, Registered,
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

/// What is staged on an agent that was not heard for this long is rebuilt elsewhere. Before that it may only be restarting.
const KEPT_FOR: Duration = Duration::from_secs(30);

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
    /// The disk of its folder, when it told last.
    pub usage: Option<DiskUsage>,
}

/// Where a rebuilt block waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    pub node: NodeId,
    pub held: HeldBlock,
}

/// Staged blocks. The same block may be staged on two agents: one was away when it was rebuilt, and came back.
pub(crate) type AllStaged = BTreeMap<(BlockId, NodeId), Staged>;

impl Staged {
    fn key(&self) -> (BlockId, NodeId) {
        (self.held.id, self.node)
    }
}

/// The agents on which a block is staged.
pub(crate) fn nodes_with(staged: &AllStaged, id: BlockId) -> impl Iterator<Item = NodeId> {
    staged.range((id, NodeId(0))..=(id, NodeId(u32::MAX))).map(|((_, node), _)| *node)
}

/// All agents.
pub(crate) struct Members {
    cluster: ClusterId,
    /// The version in which agents are called: that of the oldest one.
    speaks: Speaks,
    /// Bytes a second that repairs may use on each agent's host; `None`: no limit.
    repair_rate: Option<NonZeroU64>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    members: BTreeMap<NodeId, Member>,
    staged: AllStaged,
    /// Staged blocks that their agents cannot read, and the agents.
    unreadable: Vec<(BlockId, NodeId)>,
    /// The last blocks that were brought into HDFS: their ids there, and the DataNodes.
    counted: VecDeque<(u64, String, Instant)>,
}

impl Members {
    /// Of an HDFS with this block pool; `speaks` follows the agents.
    pub(crate) fn of(pool: &str, speaks: Speaks) -> Self {
        Self { cluster: cluster_of(pool), speaks, repair_rate: None, table: Mutex::default() }
    }

    /// The same, whose agents may use so many bytes a second for repairs; `None`: as many as there is room for.
    pub(crate) fn at_most(self, repair_rate: Option<NonZeroU64>) -> Self {
        Self { repair_rate, ..self }
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

    /// The staged blocks, also those of agents that are away.
    pub(crate) fn staged(&self) -> AllStaged {
        self.table().staged.clone()
    }

    /// The staged ones of these blocks, also those of agents that are away.
    pub(crate) fn staged_of(&self, blocks: impl IntoIterator<Item = BlockId>) -> AllStaged {
        let table = self.table();
        let of = |id| table.staged.range((id, NodeId(0))..=(id, NodeId(u32::MAX)));
        blocks.into_iter().flat_map(of).map(|(key, staged)| (*key, staged.clone())).collect()
    }

    /// The staged blocks that need not be rebuilt: those of agents that were heard lately.
    pub(crate) fn kept(&self) -> AllStaged {
        let table = self.table();
        let heard = |node| table.members.get(&node).is_some_and(|member| member.heard.elapsed() < KEPT_FOR);
        let kept = table.staged.iter().filter(|((_, node), _)| heard(*node));
        kept.map(|(key, staged)| (*key, staged.clone())).collect()
    }

    /// Takes the staged blocks of agents that are alive, which these cannot read.
    pub(crate) fn take_unreadable(&self, alive: &BTreeMap<NodeId, Member>) -> Vec<(BlockId, NodeId)> {
        let all = &mut self.table().unreadable;
        all.extract_if(.., |(_, node)| alive.contains_key(node)).collect()
    }

    /// Whether this block is still staged.
    pub(crate) fn is_staged(&self, staged: &Staged) -> bool {
        self.table().staged.get(&staged.key()) == Some(staged)
    }

    /// A block was staged.
    pub(crate) fn stage(&self, staged: Staged) {
        self.table().staged.insert(staged.key(), staged);
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
    pub(crate) fn unstage(&self, staged: &Staged) {
        self.table().staged.remove(&staged.key());
    }
}

/// The id of the agents' cluster beside an HDFS with this block pool.
pub fn cluster_of(pool: &str) -> ClusterId {
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
        let member = Member { datanode: name, control, data, protocol, incarnation, heard, usage: None };
        table.members.insert(node, member);
        table.staged.retain(|_, staged| staged.node != node);
        table.unreadable.retain(|(_, other)| *other != node);
        let heartbeat_ms = HEARTBEAT.as_millis() as u64;
        Ok(Response::new(Registered {
            node,
            cluster: self.cluster,
            heartbeat_ms,
            seen: None,
            labels: false,
            tickets: None,
            agents_too: false,
        }))
    }

    async fn report_blocks(&self, request: Request<BlockPage>) -> Result<Response<Done>, Status> {
        let page = request.into_inner();
        let mut table = self.table();
        // An error that may pass proves nothing.
        let rotten = page.damaged.iter().filter(|bad| bad.kind == FaultKind::Corrupt);
        table.unreadable.extend(rotten.map(|bad| (bad.id, page.node)));
        for held in page.blocks {
            let staged = Staged { node: page.node, held };
            table.staged.insert(staged.key(), staged);
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
            (member.heard, member.usage) = (Instant::now(), beat.usage.known());
        }
        Ok(Response::new(HeartbeatReply {
            register_again,
            seen: None,
            repair_rate: self.repair_rate,
            agents_too: false,
        }))
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

#[cfg(test)]
pub(super) mod tests {
    use kintsu_dag::{BlockIndex, RackId, StripeId};
    use kintsu_wire::FolderId;
    use kintsu_wire::message::Counters;

    use super::*;

    /// An agent beside this DataNode registers.
    pub(crate) async fn register(members: &Members, datanode: &str, incarnation: u64) -> NodeId {
        let at = "10.0.0.1:7401".parse().unwrap();
        let register = Register {
            node: None,
            name: Some(datanode.into()),
            rack: RackId(0),
            rack_name: None,
            control: at,
            data: at,
            dir: String::new(),
            incarnation,
            cluster: None,
            folder: FolderId([0; 16]),
            log: None,
            seen: None,
            blocks: 0,
            next_stripe: 0,
            replace: false,
            moved: false,
            protocol: 0,
        };
        members.register(Request::new(register)).await.unwrap().into_inner().node
    }

    pub(crate) fn staged(group: u64, index: u8, node: NodeId) -> Staged {
        let id = BlockId { stripe: StripeId(group), index: BlockIndex(index) };
        Staged { node, held: HeldBlock { id, generation: 1001, len: 7, digest: [index; 16] } }
    }

    /// The agent tells what it has.
    async fn report(members: &Members, node: NodeId, blocks: Vec<HeldBlock>, damaged: Vec<BadBlock>) {
        let (incarnation, number, upto) = (0, 0, None);
        let (aside, labels) = (Vec::new(), Vec::new());
        let page = BlockPage { node, incarnation, number, upto, blocks, damaged, aside, labels };
        members.report_blocks(Request::new(page)).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_staged_on_an_agent_that_is_away_for_long_is_kept_no_more_and_may_be_staged_twice() {
        let members = Members::of("BP", Speaks::default());
        let a = register(&members, "10.0.0.1:1", 11).await;
        let b = register(&members, "10.0.0.1:2", 12).await;
        let first = staged(16, 2, a);
        members.stage(first.clone());
        let away = |by| members.table().members.get_mut(&a).unwrap().heard -= by;
        away(DEAD_AFTER);
        assert!(!members.alive().contains_key(&a));
        assert_eq!(members.kept().len(), 1, "it may only be restarting");
        away(KEPT_FOR);
        assert!(members.kept().is_empty() && members.is_staged(&first));
        let second = staged(16, 2, b);
        members.stage(second.clone());
        assert_eq!(nodes_with(&members.kept(), first.held.id).collect::<Vec<_>>(), [b]);
        // It comes back, and tells what it has.
        register(&members, "10.0.0.1:1", 13).await;
        assert!(!members.is_staged(&first) && members.is_staged(&second));
        report(&members, a, vec![first.held.clone()], Vec::new()).await;
        assert_eq!(nodes_with(&members.kept(), first.held.id).count(), 2);
        members.unstage(&second);
        assert!(members.is_staged(&first) && !members.is_staged(&second));
    }
    #[tokio::test]
    async fn a_staged_block_that_its_agent_cannot_read_is_not_staged_and_is_taken_once_to_be_deleted() {
        let members = Members::of("BP", Speaks::default());
        let node = register(&members, "10.0.0.1:1", 11).await;
        let id = staged(16, 2, node).held.id;
        let bad = || BadBlock { id, node, kind: FaultKind::Corrupt, detail: "its header is rotten".into() };
        report(&members, node, Vec::new(), vec![BadBlock { kind: FaultKind::Io, ..bad() }]).await;
        assert!(members.take_unreadable(&members.alive()).is_empty(), "that may pass");
        report(&members, node, Vec::new(), vec![bad()]).await;
        assert!(members.staged().is_empty());
        assert!(members.take_unreadable(&BTreeMap::new()).is_empty(), "nobody could be asked");
        assert_eq!(members.take_unreadable(&members.alive()), [(id, node)]);
        assert!(members.take_unreadable(&members.alive()).is_empty());
        report(&members, node, Vec::new(), vec![bad()]).await;
        register(&members, "10.0.0.1:1", 11).await;
        assert!(members.take_unreadable(&members.alive()).is_empty(), "it tells again what it has");
    }

    #[tokio::test]
    async fn a_heartbeat_tells_the_room_of_the_folder_and_gets_the_limit_of_repairs() {
        let rate = NonZeroU64::new(20_000_000);
        let members = Members::of("BP", Speaks::default()).at_most(rate);
        let node = register(&members, "10.0.0.1:1", 11).await;
        let usage = DiskUsage { free_bytes: 7, capacity_bytes: 9, ..DiskUsage::default() };
        let beat = |incarnation, usage| Heartbeat {
            node,
            incarnation,
            usage,
            running: 0,
            failed: None,
            counters: Counters::default(),
        };
        let usage_after = async |incarnation, usage| {
            let reply = members.heartbeat(Request::new(beat(incarnation, usage))).await.unwrap().into_inner();
            assert_eq!(reply.repair_rate, rate);
            members.alive()[&node].usage
        };
        assert_eq!(usage_after(10, usage).await, None, "of another start");
        assert_eq!(usage_after(11, usage).await, Some(usage));
        let unknown = DiskUsage { capacity_bytes: 0, ..usage };
        assert_eq!(usage_after(11, unknown).await, None, "its agent cannot tell");
    }
}
