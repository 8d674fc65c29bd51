//! What a plan costs: bytes over each link and across racks, blocks read, and depth.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, Task, Vertex};
use serde::Serialize;

use crate::timeslots::Transfers;
use crate::{Plan, PlanError, Topology};

/// Bytes that go from one node to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairBytes {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// How many.
    pub bytes: u64,
    /// Whether the nodes are in different racks; the client is in none.
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
    /// The part of `bytes_moved` between racks.
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
        let period: u64 = plan.lanes.iter().map(|lane| u64::from(lane.share)).sum();
        let mut links: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
        let mut read: BTreeSet<(NodeId, u32)> = BTreeSet::new();
        for lane in &plan.lanes {
            let w = lane.placed.graph.w().max(1) as u64;
            // Bytes of one vertex in this lane's share of the slices.
            let weight = |vertices: u64| {
                let parts = u128::from(vertices) * u128::from(lane.share) * u128::from(block_bytes);
                (parts / u128::from(period * w).max(1)) as u64
            };
            let lowered = lane.placed.lower()?;
            let mut counts: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
            for tasks in &lowered {
                for (_, to) in &tasks.sends {
                    *counts.entry((tasks.node, *to)).or_default() += 1;
                }
                let loads = tasks.tasks.iter().filter_map(|task| match task {
                    Task::Load { vertex } if !tasks.node.is_client() => Some(*vertex),
                    _ => None,
                });
                let before = read.len();
                let loaded: Vec<Vertex> = loads.collect();
                read.extend(loaded.iter().map(|vertex| (tasks.node, vertex.0 / w as u32)));
                account.blocks_read += (read.len() - before) as u64;
                account.bytes_read += weight(loaded.len() as u64);
            }
            for (link, vertices) in counts {
                *links.entry(link).or_default() += weight(vertices);
            }
            account.depth = account.depth.max(Transfers::of(&lowered).depth());
        }
        for ((from, to), bytes) in links {
            account.add(topology, from, to, bytes);
        }
        account.max_link_bytes =
            account.sent.values().chain(account.received.values()).copied().max().unwrap_or(0);
        Ok(account)
    }

    fn add(&mut self, topology: &Topology, from: NodeId, to: NodeId, bytes: u64) {
        let racks = (topology.rack(from), topology.rack(to));
        let across_racks = matches!(racks, (Some(a), Some(b)) if a != b);
        self.links.push(PairBytes { from, to, bytes, across_racks });
        self.bytes_moved += bytes;
        self.bytes_across_racks += if across_racks { bytes } else { 0 };
        *self.sent.entry(from).or_default() += bytes;
        *self.received.entry(to).or_default() += bytes;
    }
}
