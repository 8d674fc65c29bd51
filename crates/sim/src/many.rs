//! Recovery by the schedulers of [`kintsu_plan::many`]: their plans played as flows.
//!
//! All bandwidth is idle and stays as it is, so nothing is re-scheduled here.

use std::collections::BTreeSet;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::{
    Disks, History, Loss, LostBlock, Planned, Route, Scene, Scheduler, bound, losses, seconds,
};
use kintsu_plan::traffic::{Link, Loads};
use kintsu_plan::{DamagedStripe, Plan, Topology};
use serde::Serialize;

use crate::cluster::{Cluster, LostStripe};
use crate::fluid::{Limits, play};
use crate::job::{Grain, RepairModel};
use crate::recovery::{Options, grain, narrow};
use crate::{Network, Overheads, SimError};

/// Stripes that are planned together.
const WINDOW: usize = 4096;

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recovered {
    /// The name of the scheduler.
    pub scheduler: &'static str,
    /// From the start to the end of the last repair.
    pub seconds: f64,
    /// Seconds until the busiest link would have carried its payload, if it were never idle.
    pub busiest_seconds: f64,
    /// Blocks that were repaired.
    pub blocks: usize,
    /// Blocks moved between nodes, for each lost block.
    pub moved_per_block: f64,
    /// The part of `moved_per_block` that crossed racks.
    pub across_racks_per_block: f64,
}

/// The repairs that a scheduler plans for the blocks that were lost with the failed nodes.
#[derive(Debug)]
pub struct Scheduled<'a> {
    cluster: &'a Cluster,
    topology: Topology,
    scheduler: &'static Scheduler,
    jobs: Vec<RepairModel>,
    /// The same at the rates at which all of them end together; empty if the scheduler leaves that to the links.
    paced: Vec<RepairModel>,
    busiest: f64,
    blocks: usize,
}

/// When blocks are planned that none of the wanted requestors may get, so that they go to any nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stray {
    /// Together with the others.
    Together,
    /// After the others, whose repairs then count as under way.
    After,
}

impl Stray {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Together, Self::After];
}

/// Plans the repairs.
///
/// # Errors
/// `Plan` when a block cannot be repaired; `Invalid` for options out of range.
pub fn schedule<'a>(
    cluster: &'a Cluster,
    failed: &BTreeSet<NodeId>,
    lost: &[LostStripe],
    (scheduler, stray): (&'static Scheduler, Stray),
    options: &Options,
) -> Result<Scheduled<'a>, SimError> {
    options.overheads.check()?;
    if options.requestors == Some(0) {
        return Err(SimError::invalid("requestors", "1 or more", 0));
    }
    let topology = without(cluster, failed);
    let network = Network::new(&topology, &options.overheads);
    let narrow = narrow(&topology, options.requestors);
    let disks = options.overheads.disk_rates(&topology);
    let mut planner =
        Planner { topology: &topology, narrow, disks, scheduler, stray, history: History::default() };
    let (mut jobs, mut paced, mut loads) = (Vec::new(), Vec::new(), vec![0.0; network.capacity().len()]);
    for window in lost.chunks(WINDOW) {
        let stripes: Vec<DamagedStripe> = window.iter().map(|stripe| cluster.waiting(stripe)).collect();
        let planned = planner.plan(&stripes)?;
        let together = seconds(&topology, planned.iter().map(|(_, planned)| planned));
        for (at, planned) in &planned {
            let plan = planned.plan(&stripes[*at].view, &topology)?.plan;
            let (overheads, bytes) = (&options.overheads, cluster.block_bytes);
            // A slice of a byte has no time to fill a pipeline, and the bound counts payload alone.
            let bare = Overheads { wire: 1.0, frame_bytes: 0.0, ..*overheads };
            let load = RepairModel::of(&plan, &network, &topology, bytes, Grain::Slices(1), &bare)?;
            for flow in load.steps.iter().map(|step| &step.flow) {
                flow.uses.iter().for_each(|link| loads[link.link as usize] += flow.bytes * link.weight);
            }
            let model = |plan: &Plan| {
                let grain = grain(plan, scheduler.whole_blocks, options, bytes)?;
                RepairModel::of(plan, &network, &topology, bytes, grain, overheads)
            };
            jobs.push(model(&plan)?);
            if scheduler.ends_together && lost.len() <= WINDOW {
                paced.push(model(&Plan { paced: planned.rate(together), ..plan.clone() })?);
            }
        }
    }
    let blocks = lost.iter().map(|stripe| stripe.lost().len()).sum();
    let seconds = loads.iter().zip(network.capacity()).map(|(load, rate)| load / rate);
    let busiest = seconds.fold(0.0, f64::max);
    Ok(Scheduled { cluster, topology, scheduler, jobs, paced, busiest, blocks })
}

/// A time in seconds that no recovery beats which keeps the rules of placement and, where the code prescribes helpers,
/// reads these. `None` for codes with sub-blocks.
pub fn least_seconds(
    cluster: &Cluster,
    failed: &BTreeSet<NodeId>,
    lost: &[LostStripe],
    options: &Options,
) -> Option<f64> {
    let topology = without(cluster, failed);
    let narrow = narrow(&topology, options.requestors);
    let stripes: Vec<DamagedStripe> = lost.iter().map(|stripe| cluster.waiting(stripe)).collect();
    let [near, far] = [&narrow, &topology].map(|topology| losses(topology, &stripes).into_iter());
    let all: Vec<Vec<Loss>> = near.zip(far).map(|(near, far)| near.or(far)).collect::<Option<_>>()?;
    let all = all.concat();
    let usable = topology.nodes.iter().filter(|(_, node)| node.usable).map(|(id, _)| *id);
    Some(bound(&all, &usable.collect::<Vec<_>>(), &topology))
}

/// The nodes without those that failed.
fn without(cluster: &Cluster, failed: &BTreeSet<NodeId>) -> Topology {
    let mut topology = cluster.topology.clone();
    topology.nodes.iter_mut().for_each(|(id, node)| node.usable &= !failed.contains(id));
    topology
}

impl Scheduled<'_> {
    /// Plays the repairs in their order, at most `at_once` at one time. If all of them run at once, they are paced where the
    /// scheduler wants it.
    ///
    /// # Errors
    /// `Invalid` for 0 at once.
    pub fn play(&self, options: &Options, at_once: usize) -> Result<Recovered, SimError> {
        let network = Network::new(&self.topology, &options.overheads);
        let limits = Limits { at_once, per_node: options.per_node, tolerance: 0.0 };
        let paced = !self.paced.is_empty() && at_once >= self.jobs.len();
        let jobs = if paced { &self.paced } else { &self.jobs };
        let played = play(&network, jobs.iter().cloned().map(Ok), &limits, &mut |_| {})?;
        let repaired = (self.blocks as u64 * self.cluster.block_bytes).max(1) as f64;
        Ok(Recovered {
            scheduler: self.scheduler.name,
            seconds: played.seconds,
            busiest_seconds: self.busiest,
            blocks: self.blocks,
            moved_per_block: played.traffic.moved / repaired,
            across_racks_per_block: played.traffic.across_racks / repaired,
        })
    }

    /// The number of repairs.
    pub fn repairs(&self) -> usize {
        self.jobs.len()
    }
}

struct Planner<'a> {
    topology: &'a Topology,
    /// With only the wanted requestors usable.
    narrow: Topology,
    disks: Disks,
    scheduler: &'static Scheduler,
    stray: Stray,
    history: History,
}

impl Planner<'_> {
    /// The repairs in the order in which they start, each with the number of its stripe.
    fn plan(&mut self, stripes: &[DamagedStripe]) -> Result<Vec<(usize, Planned)>, SimError> {
        let mut all = match self.stray {
            Stray::Together => self.together(stripes)?,
            Stray::After => self.one_after_the_other(stripes)?,
        };
        all.retain(|(_, planned)| !matches!(planned.route, Route::With(_)));
        all.sort_by_key(|(_, planned)| planned.turn);
        Ok(all)
    }

    fn together(&mut self, stripes: &[DamagedStripe]) -> Result<Vec<(usize, Planned)>, SimError> {
        let stripes: Vec<DamagedStripe> = stripes.iter().map(|stripe| self.limited(stripe)).collect();
        let blocks = LostBlock::all(&stripes);
        let scene = Scene { disks: &self.disks, ..Scene::of(self.topology) };
        let made = self.scheduler.plan(&scene, &mut self.history, &blocks);
        let number =
            |lost: &LostBlock<'_>| stripes.iter().position(|stripe| stripe.view.id == lost.stripe.view.id);
        let numbered = blocks.iter().zip(made).filter_map(|(lost, made)| Some((number(lost)?, made)));
        numbered.map(|(at, made)| Ok((at, made?))).collect()
    }

    /// The stripe, with all but the wanted requestors barred, if enough of them have no block of it.
    fn limited(&self, stripe: &DamagedStripe) -> DamagedStripe {
        let mut limited = stripe.clone();
        let taken = |node: &NodeId| stripe.view.homes.contains(&Some(*node)) || stripe.barred.contains(node);
        let (wanted, others): (Vec<_>, Vec<_>) =
            self.narrow.nodes.iter().map(|(id, node)| (*id, node.usable)).partition(|(_, usable)| *usable);
        if wanted.iter().filter(|(node, _)| !taken(node)).count() >= stripe.lost.len() {
            limited.barred.extend(others.into_iter().map(|(node, _)| node));
        }
        limited
    }

    fn one_after_the_other(&mut self, stripes: &[DamagedStripe]) -> Result<Vec<(usize, Planned)>, SimError> {
        let blocks = LostBlock::all(stripes);
        let scene = Scene { disks: &self.disks, ..Scene::of(&self.narrow) };
        let made = self.scheduler.plan(&scene, &mut self.history, &blocks);
        let number =
            |lost: &LostBlock<'_>| stripes.iter().position(|stripe| stripe.view.id == lost.stripe.view.id);
        let (mut all, mut left): (Vec<(usize, Planned)>, Vec<LostBlock<'_>>) = Default::default();
        for (lost, made) in blocks.iter().zip(made) {
            match (made, number(lost)) {
                (Ok(planned), Some(at)) => all.push((at, planned)),
                _ => left.push(*lost),
            }
        }
        if !left.is_empty() {
            // They go to any node, but no node gets two blocks of a stripe.
            let (mut stripes, mut loads) = (stripes.to_vec(), Loads::default());
            for (at, planned) in &all {
                planned.load(self.topology, planned.bytes, &mut loads);
                stripes[*at].barred.extend(planned.goals().into_values());
            }
            let again = |lost: &LostBlock<'_>| Some((number(lost)?, lost.block));
            let left: Vec<(usize, BlockIndex)> = left.iter().filter_map(again).collect();
            let of = |(at, block): &(usize, BlockIndex)| LostBlock { stripe: &stripes[*at], block: *block };
            let blocks: Vec<LostBlock<'_>> = left.iter().map(of).collect();
            let underway: Vec<(Link, u64)> = loads.iter().collect();
            let scene = Scene { disks: &self.disks, underway: &underway, ..Scene::of(self.topology) };
            let made = self.scheduler.plan(&scene, &mut self.history, &blocks);
            for ((at, _), made) in left.iter().zip(made) {
                all.push((*at, made?));
            }
        }
        Ok(all)
    }
}
