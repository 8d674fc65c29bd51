//! A repair as flows, the form in which [`crate::fluid`] plays a plan.
//!
//! All streams of a pipelined lane move at one rate, so the lane is one flow over all their links. The time to
//! fill the pipeline is modelled as additional slices, and the delays of hops as a pause before the start. A plan
//! whose nodes send on only whole blocks is a sequence of rounds, with a flow for each block that is sent.

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
    /// When it has the whole block, round by round (PPR and PUSH as published).
    Blocks,
}

/// Streams that move at one rate.
#[derive(Debug, Clone, PartialEq)]
pub struct StageFlow {
    /// The bytes to move.
    pub bytes: f64,
    /// An upper limit on its rate besides the links.
    pub limit: f64,
    /// The links that it loads.
    pub uses: Vec<Use>,
}

/// Flows that run at the same time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Stage {
    /// Seconds before they start.
    pub delay: f64,
    /// The flows; the stage ends with the last of them.
    pub flows: Vec<StageFlow>,
}

/// Payload that a repair moves, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Traffic {
    /// Between nodes.
    pub moved: f64,
    /// Of these, across racks.
    pub across_racks: f64,
}

/// A repair: stages one after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RepairModel {
    /// The stages.
    pub stages: Vec<Stage>,
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
                    moves.pipelined(slice.min(block_bytes.max(1)) as f64, &mut job.stages)
                }
                Grain::Blocks => moves.rounds(&mut job.stages),
            }
        }
        if let Some(first) = job.stages.first_mut() {
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

    /// All transfers as one flow of the first stage.
    fn pipelined(&self, slice: f64, stages: &mut Vec<Stage>) {
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
        let stage = stage(stages, 0);
        stage.delay = stage.delay.max(depth as f64 * self.overheads.hop());
        stage.flows.push(StageFlow { bytes: filled * wire, limit, uses });
    }

    /// Each transfer as a flow of its round.
    fn rounds(&self, stages: &mut Vec<Stage>) {
        for (transfer, depth) in self.transfers.iter().zip(self.transfers.depths()) {
            let between = matches!(transfer.way, Way::Between(..));
            let links = self.network.numbered(transfer.way, self.topology);
            let uses = links.map(|link| Use { link, weight: 1.0 }).collect();
            let payload = self.bytes * f64::from(transfer.symbols) / self.w;
            let bytes = if between { self.overheads.on_wire(payload) } else { payload };
            let stage = stage(stages, depth - 1);
            if between {
                stage.delay = self.overheads.hop();
            }
            stage.flows.push(StageFlow { bytes, limit: f64::INFINITY, uses });
        }
    }
}

fn stage(stages: &mut Vec<Stage>, number: usize) -> &mut Stage {
    if stages.len() <= number {
        stages.resize(number + 1, Stage::default());
    }
    &mut stages[number]
}
