//! A repair as flows, the form in which [`crate::fluid`] plays a plan.
//!
//! All streams of a pipelined lane move at one rate, so the lane is one flow over all their links. The time to
//! fill the pipeline is modelled as additional slices, and the delays of hops as a pause before the start. In a plan
//! whose nodes send on only whole blocks, each block that is sent is a flow, which waits for those that it is made of.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_plan::traffic::{Transfers, Way};
use kintsu_plan::{Plan, Topology};

use crate::fair::Use;
use crate::{Network, Overheads, SimError};

/// When a node sends on what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grain {
    /// Slice by slice, with slices of this many bytes.
    Slices(u64),
    /// When it has the whole block (PPR and PUSH as published).
    Blocks,
}

/// Streams that move at one rate.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFlow {
    /// The bytes to move.
    pub bytes: f64,
    /// An upper limit on its rate besides the links.
    pub limit: f64,
    /// The links that it loads.
    pub uses: Vec<Use>,
}

/// A flow and when it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The steps that must have ended before, by their place in the list; they come earlier in it.
    pub waits: Vec<usize>,
    /// Seconds from then to its start.
    pub delay: f64,
    /// What moves.
    pub flow: StepFlow,
}

/// Payload that a repair moves, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// Between nodes.
    pub moved: f64,
    /// Of these, across racks.
    pub across_racks: f64,
}

/// A repair: steps, some of which wait for others.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RepairModel {
    /// The steps.
    pub steps: Vec<Step>,
    /// The nodes that send or receive.
    pub nodes: Vec<NodeId>,
    /// What it moves.
    pub traffic: Traffic,
}

impl RepairModel {
    /// The flows of a plan over blocks of `block_bytes`.
    ///
    /// # Errors
    /// `Plan` when a lane does not lower; `Invalid` for a slice of no bytes.
    pub fn of(
        plan: &Plan,
        network: &Network,
        topology: &Topology,
        block_bytes: u64,
        grain: Grain,
        overheads: &Overheads,
    ) -> Result<Self, SimError> {
        if grain == Grain::Slices(0) {
            return Err(SimError::invalid("slice", "1 byte or more", 0));
        }
        let period = plan.lanes.iter().map(|lane| u64::from(lane.share)).sum::<u64>().max(1) as f64;
        let mut job = Self::default();
        for lane in &plan.lanes {
            let moves = LaneFlows {
                transfers: Transfers::of(&lane.placed.lower()?, overheads.disks()).grouped(),
                w: lane.placed.graph.w().max(1) as f64,
                bytes: block_bytes as f64 * f64::from(lane.share) / period,
                rate: plan.rate_of(lane.share).map_or(f64::INFINITY, |rate| rate.get() as f64),
                network,
                topology,
                overheads,
            };
            moves.count(&mut job);
            match grain {
                Grain::Slices(slice) => {
                    job.steps.push(moves.pipelined(slice.min(block_bytes.max(1)) as f64));
                }
                Grain::Blocks => moves.blocks(&mut job.steps),
            }
        }
        for first in job.steps.iter_mut().filter(|step| step.waits.is_empty()) {
            first.delay += overheads.start_seconds;
        }
        job.nodes.sort_unstable();
        job.nodes.dedup();
        Ok(job)
    }
}

struct LaneFlows<'a> {
    transfers: Transfers,
    w: f64,
    bytes: f64,
    /// Upper limit on the rate of its first senders, in payload bytes of a block a second.
    rate: f64,
    network: &'a Network,
    topology: &'a Topology,
    overheads: &'a Overheads,
}

impl LaneFlows<'_> {
    fn count(&self, job: &mut RepairModel) {
        for transfer in self.transfers.iter() {
            let Way::Between(from, to) = transfer.way else { continue };
            job.nodes.extend([from, to]);
            let bytes = self.bytes * f64::from(transfer.symbols) / self.w;
            job.traffic.moved += bytes;
            if self.topology.across_racks(from, to) {
                job.traffic.across_racks += bytes;
            }
        }
    }

    /// All transfers as one flow.
    fn pipelined(&self, slice: f64) -> Step {
        let wire = self.overheads.on_wire(slice) / slice;
        let mut loads: BTreeMap<u32, f64> = BTreeMap::new();
        for transfer in self.transfers.iter() {
            // The flow counts bytes on the wire; disks carry only the payload.
            let part = if matches!(transfer.way, Way::Between(..)) { 1.0 } else { 1.0 / wire };
            for link in self.network.numbered(transfer.way, self.topology) {
                *loads.entry(link).or_default() += part * f64::from(transfer.symbols) / self.w;
            }
        }
        let depth = self.transfers.depth();
        let filled = self.bytes + slice * depth.saturating_sub(1) as f64;
        let handled = match self.overheads.slice_seconds > 0.0 {
            true => slice / self.overheads.slice_seconds,
            false => f64::INFINITY,
        };
        let limit = handled.min(self.rate) * wire;
        let uses = loads.into_iter().map(|(link, weight)| Use { link, weight }).collect();
        Step {
            waits: Vec::new(),
            delay: depth as f64 * self.overheads.hop(),
            flow: StepFlow { bytes: filled * wire, limit, uses },
        }
    }

    /// Each transfer as a flow.
    fn blocks(&self, steps: &mut Vec<Step>) {
        let first = steps.len();
        for transfer in self.transfers.iter() {
            let between = matches!(transfer.way, Way::Between(..));
            let links = self.network.numbered(transfer.way, self.topology);
            let uses = links.map(|link| Use { link, weight: 1.0 }).collect();
            let payload = self.bytes * f64::from(transfer.symbols) / self.w;
            let bytes = if between { self.overheads.on_wire(payload) } else { payload };
            steps.push(Step {
                // Transfers that are grouped come after those that they wait for.
                waits: transfer.waits.iter().map(|before| first + before).collect(),
                delay: if between { self.overheads.hop() } else { 0.0 },
                flow: StepFlow { bytes, limit: f64::INFINITY, uses },
            });
        }
    }
}
