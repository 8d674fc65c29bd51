//! What a plan costs: bytes over each link and across racks, blocks read, and depth.
//!
//! - [`Account`]: bytes and depth; `timeslots`: time, slice by slice, where all links are equal;
//! - `compare`: the times of all methods; `explain`: a plan for people.

mod compare;
mod explain;
mod timeslots;

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, Task, Vertex};
use serde::Serialize;

use crate::traffic::{Disks, Moved, Transfers};
use crate::{Plan, PlanError, Topology};

pub use compare::{Comparison, MethodTime};
pub use explain::{Explanation, NodeLines, explain};

/// Bytes that go from one node to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairBytes {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// How many.
    pub bytes: u64,
    /// Whether the bytes pass the link of a rack ([`Topology::across_racks`]).
    pub across_racks: bool,
}

/// The cost of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Account {
    /// The links in use, by sender and receiver.
    pub links: Vec<PairBytes>,
    /// Blocks read by nodes (not what a client writes).
    pub blocks_read: u64,
    /// Bytes read by nodes.
    pub bytes_read: u64,
    /// Bytes over all links.
    pub bytes_moved: u64,
    /// The part of `bytes_moved` that passes the link of a rack.
    pub bytes_across_racks: u64,
    /// Bytes sent by each node.
    pub sent: BTreeMap<NodeId, u64>,
    /// Bytes received by each node.
    pub received: BTreeMap<NodeId, u64>,
    /// The most that any node sends or receives: the load of the busiest uplink or downlink.
    pub max_link_bytes: u64,
    /// Transfers on the longest path.
    pub depth: usize,
}

impl Account {
    /// The cost of a plan over blocks of `block_bytes`.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub fn of(plan: &Plan, topology: &Topology, block_bytes: u64) -> Result<Self, PlanError> {
        let mut account = Self::default();
        let mut moved = Moved::default();
        let mut read: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for lane in &plan.lanes {
            let w = lane.placed.graph.w().max(1) as u32;
            let lowered = lane.placed.lower()?;
            for tasks in lowered.iter().filter(|tasks| !tasks.node.is_client()) {
                let loads = tasks.tasks.iter().filter_map(|task| match task {
                    Task::Load { vertex } => Some(*vertex),
                    _ => None,
                });
                let loaded: Vec<Vertex> = loads.collect();
                read.extend(loaded.iter().map(|vertex| (tasks.node, vertex.0 / w)));
                account.bytes_read += plan.bytes_of(lane, loaded.len() as u64, block_bytes);
            }
            plan.count_sent(lane, &lowered, block_bytes, &mut moved);
            account.depth = account.depth.max(Transfers::of(&lowered, Disks::default()).depth());
        }
        account.blocks_read = read.len() as u64;
        account.links = PairBytes::all(&moved, topology);
        account.bytes_moved = moved.total();
        account.bytes_across_racks = moved.across_racks(topology);
        account.max_link_bytes = moved.busiest();
        for ((from, to), bytes) in moved.pairs() {
            *account.sent.entry(from).or_default() += bytes;
            *account.received.entry(to).or_default() += bytes;
        }
        Ok(account)
    }
}

impl PairBytes {
    fn all(moved: &Moved, topology: &Topology) -> Vec<Self> {
        let one =
            |((from, to), bytes)| Self { from, to, bytes, across_racks: topology.across_racks(from, to) };
        moved.pairs().map(one).collect()
    }
}
