//! What nodes send across racks when they commit a stripe: slices of the span of its dirty ranges, of which those
//! that are all zero are headers alone.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, Ecdag, Vertex};
use kintsu_plan::update::{Dirty, Scheme, update};
use kintsu_plan::{Layout, Plan, StripeView, Topology};
use kintsu_wire::frame::HEADER_BYTES;

use super::dirty::DirtyStripe;
use crate::error::Result;

/// The graphs of one commit, each with what crosses racks in it.
pub(super) struct Commit {
    layout: Layout,
    graphs: Vec<(Plan, Vec<Crossing>)>,
}

/// A vertex that crosses racks: the deltas that it is made of.
type Crossing = BTreeSet<Vertex>;

impl Commit {
    /// The commit of what is dirty in this stripe.
    pub fn new(view: &StripeView, topology: &Topology, dirty: Dirty, scheme: Scheme) -> Result<Self> {
        let mut graphs = Vec::new();
        for plan in update(view, topology, &dirty, scheme)?.plans {
            let mut crossings = Vec::new();
            for lane in &plan.lanes {
                let made_of = made_of(&lane.placed.graph);
                for tasks in lane.placed.lower().map_err(kintsu_plan::PlanError::from)? {
                    let sends = tasks.sends.iter().filter(|(_, to)| topology.across_racks(tasks.node, *to));
                    crossings.extend(sends.map(|(vertex, _)| made_of(*vertex)));
                }
            }
            graphs.push((plan, crossings));
        }
        Ok(Self { layout: view.layout, graphs })
    }

    /// Bytes across racks for what is dirty, headers of slices included.
    pub fn bytes(&self, view: &StripeView, dirty: &DirtyStripe) -> Result<u64> {
        let w = view.code.w() as u64;
        // The sub-blocks of a block lie apart: then all of it.
        let span = if w > 1 { 0..self.layout.block_bytes } else { dirty.span() };
        let mut bytes = 0;
        for (plan, crossings) in &self.graphs {
            let step = u64::from(plan.step_bytes(&self.layout, span.end - span.start, 0)?).max(1);
            let mut at = span.start;
            while at < span.end {
                let len = step.min(span.end - at);
                let part = len / w;
                let mut known: BTreeMap<Vertex, bool> = BTreeMap::new();
                for crossing in crossings {
                    let is_dirty = crossing.iter().any(|leaf| {
                        *known.entry(*leaf).or_insert_with(|| {
                            let from = at + u64::from(leaf.0) % w * part;
                            dirty.has_within(BlockIndex((u64::from(leaf.0) / w) as u8), from..from + part)
                        })
                    });
                    bytes += HEADER_BYTES as u64 + if is_dirty { part } else { 0 };
                }
                at += len;
            }
        }
        Ok(bytes)
    }
}

/// The leaves of which each vertex of a graph is made.
fn made_of(graph: &Ecdag) -> impl Fn(Vertex) -> Crossing + '_ {
    let leaves: BTreeSet<Vertex> = graph.leaves().into_iter().collect();
    move |vertex| {
        let (mut open, mut found) = (vec![vertex], BTreeSet::new());
        while let Some(vertex) = open.pop() {
            if leaves.contains(&vertex) {
                found.insert(vertex);
            } else {
                open.extend(graph.inputs(vertex));
            }
        }
        found
    }
}
