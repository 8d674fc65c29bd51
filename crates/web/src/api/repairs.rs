//! Running repairs, with their graphs drawn.

use std::collections::BTreeMap;

use kintsu_dag::{Drawing, NodeId, Placed, RackId};
use kintsu_wire::message::{LinkInFlight, NodeInfo, RunningRepair, RunningRepairs, WaitingRepair};
use serde::Serialize;

/// Graphs with more edges are not drawn: nobody could read them.
const MOST_EDGES: usize = 400;

/// What is repaired now, and what waits.
#[derive(Debug, Serialize)]
pub struct RepairsShown {
    /// Stripes under repair.
    pub count: u64,
    /// The first of them.
    pub running: Vec<RunningShown>,
    /// Stripes that wait.
    pub waiting_count: u64,
    /// The first of them, in the order in which they begin.
    pub waiting: Vec<WaitingRepair>,
    /// What the links have to carry for repairs.
    pub links: Vec<LinkInFlight>,
}

/// A running repair.
#[derive(Debug, Serialize)]
pub struct RunningShown {
    /// What the coordinator says of it.
    #[serde(flatten)]
    pub repair: RunningRepair,
    /// Its placed graph, drawn; `None` if it is too large to read.
    pub drawing: Option<Drawing>,
}

/// Draws the graphs, a colour for each rack.
pub fn shown(repairs: RunningRepairs, nodes: &[NodeInfo]) -> RepairsShown {
    let racks: BTreeMap<NodeId, RackId> = nodes.iter().map(|node| (node.id, node.rack)).collect();
    let rack_of = |node: NodeId| racks.get(&node).copied().unwrap_or(RackId(u32::MAX));
    let running = repairs.running.into_iter().map(|mut repair| {
        let graph = repair.graph.take().filter(|graph| graph.graph.terms() <= MOST_EDGES);
        let drawing = graph.and_then(|graph| Placed::try_from(&graph).ok()?.drawing_by_rack(&rack_of).ok());
        RunningShown { repair, drawing }
    });
    RepairsShown {
        count: repairs.count,
        running: running.collect(),
        waiting_count: repairs.waiting_count,
        waiting: repairs.waiting,
        links: repairs.links,
    }
}
