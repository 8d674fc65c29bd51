//! Recovery of whole nodes and racks. The planners of real clusters plan the stripes; the plans are played as
//! flows. All schemes get helpers and requestors whose links have about the same load, and each runs as many repairs at
//! once as suit it best.
//!
//! Sources: ECPipe, section 6.4 (PUSH-Rep and PUSH-Sur: block by block along a path, to one requestor or to all
//! survivors; which are not balanced there).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::slice::Chunks;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::{Disks, REPAIRS_ON_A_LINK, Scene, bound as recovery_bound, losses};
use kintsu_plan::{
    DamagedStripe, Method, Plan, Recovery, Repair, RepairPlan, Schedule, Shares, StripeView, Topology,
    even_cluster, repair,
};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, LostStripe};
use crate::floor::floor;
use crate::fluid::{Limits, Played, play};
use crate::job::{Grain, RepairModel};
use crate::{Network, Overheads, SimError};

/// In how many repairs under way each node takes part. Each scheme runs with the one of these that suits it best, or with all
/// repairs at once.
const STREAMS_A_NODE: [usize; 3] = [8, 24, REPAIRS_ON_A_LINK as usize];

/// Stripes that are assigned together.
const WINDOW: usize = 4096;

/// With more flows than this, ends that are close together are merged; `TOLERANCE` says how close.
const EXACT_FLOWS: usize = 200_000;
const TOLERANCE: f64 = 0.005;

/// How stripes are repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Each requestor fetches all that it needs.
    Conventional,
    /// Partial sums along a binary tree, whole blocks in rounds (as published).
    Ppr,
    /// Repair pipelining along chains, rack by rack.
    Pipeline,
    /// Whole blocks along chains to one requestor, whatever the option `requestors` says.
    PushRep,
    /// Whole blocks along chains to all survivors in turn, whatever the option `requestors` says.
    PushSur,
    /// Trees that are planned together, so that all links finish at about the same time.
    Optimal,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Conventional, Self::Ppr, Self::PushRep, Self::PushSur, Self::Pipeline, Self::Optimal];

    /// What there is to know about it.
    const fn row(self) -> Row {
        match self {
            Self::Conventional => Row::streamed("conventional", Method::Conventional),
            Self::Ppr => Row { whole_blocks: true, ..Row::streamed("ppr", Method::Ppr) },
            Self::Pipeline => Row::streamed("pipeline", Method::Pipeline),
            Self::PushRep => Row::push("push-rep", Some(1)),
            Self::PushSur => Row::push("push-sur", None),
            Self::Optimal => Row::streamed("optimal", Method::Optimal),
        }
    }

    /// The number of requestors of this scheme when the options ask for `asked`.
    fn requestors(self, asked: Option<usize>) -> Option<usize> {
        self.row().push.unwrap_or(asked)
    }
}

/// A scheme.
struct Row {
    name: &'static str,
    /// The method of its plans.
    method: Method,
    /// Whether nodes send on only whole blocks.
    whole_blocks: bool,
    /// For PUSH, whose repairs are a chain block after block: how many requestors there are; `None` for all.
    push: Option<Option<usize>>,
}

impl Row {
    const fn streamed(name: &'static str, method: Method) -> Self {
        Self { name, method, whole_blocks: false, push: None }
    }

    const fn push(name: &'static str, requestors: Option<usize>) -> Self {
        Self { name, method: Method::Flat, whole_blocks: true, push: Some(requestors) }
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.row().name)
    }
}

impl std::str::FromStr for Scheme {
    type Err = SimError;

    fn from_str(text: &str) -> Result<Self, SimError> {
        Self::ALL.into_iter().find(|scheme| scheme.to_string() == text).ok_or_else(|| {
            let all = Self::ALL.map(|scheme| scheme.to_string()).join(", ");
            SimError::invalid("method", format_args!("one of {all}"), text)
        })
    }
}

/// How a recovery runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The number of nodes that get repaired blocks, spread over the remaining nodes; `None`: all of them.
    pub requestors: Option<usize>,
    /// The unit of pipelining; 0: what each plan takes by default ([`Plan::slice_bytes`]).
    pub slice_bytes: u64,
    /// Repairs under way at one time; `None`: of some numbers the one that suits the scheme best.
    pub at_once: Option<usize>,
    /// Repairs under way in which one node takes part.
    pub per_node: Option<usize>,
    /// The overheads of slices.
    pub overheads: Overheads,
}

/// The result of a recovery.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// How the stripes were repaired.
    pub scheme: Scheme,
    /// From the start to the end of the last repair.
    pub seconds: f64,
    /// Bytes that were lost and repaired.
    pub repaired_bytes: u64,
    /// Repaired bytes a second.
    pub rate: f64,
    /// No recovery to these requestors is faster; `None` for codes with sub-blocks.
    pub bound_seconds: Option<f64>,
    /// Stripes that lost blocks.
    pub stripes: u64,
    /// Blocks that were lost.
    pub blocks: u64,
    /// Blocks moved between nodes, for each lost block.
    pub moved_per_block: f64,
    /// The part of `moved_per_block` that crossed racks.
    pub across_racks_per_block: f64,
    /// Bytes across racks.
    pub across_racks_bytes: u64,
    /// How many repairs could be under way at one time.
    pub at_once: usize,
}

/// Repairs the blocks that were lost with the failed nodes. `progress` is called with the number of stripes done, from 0
/// again for each number of repairs at once that is tried.
///
/// # Errors
/// `Plan` when a stripe cannot be repaired; `Invalid` for options out of range.
pub fn recover(
    cluster: &Cluster,
    failed: &BTreeSet<NodeId>,
    lost: &[LostStripe],
    scheme: Scheme,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Outcome, SimError> {
    options.overheads.check()?;
    let mut topology = cluster.topology.clone();
    for node in failed {
        topology.nodes.get_mut(node).into_iter().for_each(|node| node.usable = false);
    }
    let mut best: Option<(usize, Played)> = None;
    for at_once in limits(&topology, cluster, scheme, lost.len(), options) {
        let played =
            at(cluster, &topology, lost, scheme, &Options { at_once: Some(at_once), ..*options }, progress)?;
        if best.as_ref().is_none_or(|(_, best)| played.seconds < best.seconds) {
            best = Some((at_once, played));
        }
    }
    let (at_once, played) = best.ok_or_else(|| SimError::invalid("repairs at once", "1 or more", 0))?;
    let blocks: u64 = lost.iter().map(|stripe| stripe.lost().len() as u64).sum();
    let repaired_bytes = blocks * cluster.block_bytes;
    let per_block = |bytes: f64| if blocks == 0 { 0.0 } else { bytes / repaired_bytes as f64 };
    Ok(Outcome {
        scheme,
        seconds: played.seconds,
        repaired_bytes,
        bound_seconds: bound(cluster, &topology, lost, scheme.requestors(options.requestors))?,
        rate: if played.seconds > 0.0 { repaired_bytes as f64 / played.seconds } else { 0.0 },
        stripes: played.repairs,
        blocks,
        moved_per_block: per_block(played.traffic.moved),
        across_racks_per_block: per_block(played.traffic.across_racks),
        across_racks_bytes: played.traffic.across_racks.round() as u64,
        at_once: at_once.min(lost.len()),
    })
}

/// The same with at most `options.at_once` repairs at one time.
fn at(
    cluster: &Cluster,
    topology: &Topology,
    lost: &[LostStripe],
    scheme: Scheme,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> Result<Played, SimError> {
    let at_once = options.at_once.unwrap_or(usize::MAX);
    let network = Network::new(topology, &options.overheads);
    let mut planner = Planner::new(topology, lost, scheme, options)?;
    planner.ends_together = lost.len() <= at_once.min(WINDOW);
    let job = |plan| {
        let grain = grain(&plan, scheme.row().whole_blocks, options, cluster.block_bytes)?;
        RepairModel::of(&plan, &network, topology, cluster.block_bytes, grain, &options.overheads)
    };
    let jobs = std::iter::from_fn(|| {
        let stripe = planner.next(cluster)?;
        Some(planner.plan(&cluster.view(stripe), stripe).and_then(job))
    });
    let rounds = if scheme.row().push.is_some() { cluster.code.k() } else { 1 };
    let steps = lost.len().saturating_mul(rounds).saturating_mul(at_once.min(lost.len()));
    let tolerance = if steps <= EXACT_FLOWS { 0.0 } else { TOLERANCE };
    play(&network, jobs, &Limits { at_once, per_node: options.per_node, tolerance }, progress)
}

/// When the nodes of a plan send on what they receive.
pub(crate) fn grain(
    plan: &Plan,
    whole: bool,
    options: &Options,
    block_bytes: u64,
) -> Result<Grain, SimError> {
    Ok(match (whole, options.slice_bytes) {
        (true, _) => Grain::Blocks,
        (false, 0) => Grain::Slices(plan.slice_bytes(block_bytes)?.into()),
        (false, bytes) => Grain::Slices(bytes),
    })
}

/// `count` nodes that get blocks, spread evenly over the remaining nodes; `None`: all of them.
pub fn requestors(topology: &Topology, count: Option<usize>) -> Vec<NodeId> {
    let left: Vec<NodeId> =
        topology.nodes.iter().filter(|(_, node)| node.usable).map(|(id, _)| *id).collect();
    match count.filter(|&count| count < left.len()) {
        Some(count) => (0..count).map(|i| left[i * left.len() / count]).collect(),
        None => left,
    }
}

/// The topology with only these [`requestors`] usable.
pub(crate) fn narrow(topology: &Topology, count: Option<usize>) -> Topology {
    let getters: BTreeSet<NodeId> = requestors(topology, count).into_iter().collect();
    let mut narrow = topology.clone();
    narrow.nodes.iter_mut().for_each(|(id, node)| node.usable &= getters.contains(id));
    narrow
}

/// See [`Outcome::bound_seconds`].
fn bound(
    cluster: &Cluster,
    topology: &Topology,
    lost: &[LostStripe],
    count: Option<usize>,
) -> Result<Option<f64>, SimError> {
    if cluster.code.w() > 1 {
        return Ok(None);
    }
    let requestors = requestors(topology, count);
    let floor = floor(cluster, topology, lost, &requestors, fewest_helpers(cluster)?);
    // A stripe with too few requestors that have no block of it is repaired at other nodes too.
    let comes = |stripe: &&LostStripe| {
        let free = requestors.iter().filter(|node| !stripe.homes.contains(&Some(**node)));
        free.count() >= stripe.lost().len()
    };
    let stripes: Vec<_> = lost.iter().filter(comes).map(|stripe| cluster.waiting(stripe)).collect();
    let losses: Option<Vec<_>> = losses(&narrow(topology, count), &stripes).into_iter().collect();
    let bound = losses.map_or(0.0, |losses| recovery_bound(&losses.concat(), &requestors, topology));
    Ok(Some(bound.max(floor)))
}

/// The number of helpers in the smallest repair of one block.
fn fewest_helpers(cluster: &Cluster) -> Result<usize, SimError> {
    let n = cluster.code.n();
    let on_paper = even_cluster(n + 1, 1);
    let mut fewest = n;
    for block in 0..n {
        let homes = (0..n).map(|i| (i != block).then_some(NodeId(i as u32))).collect();
        let view = cluster.view(&LostStripe { id: 0, homes });
        let wanted = Repair {
            lost: vec![BlockIndex(block as u8)],
            requestors: vec![NodeId(n as u32)],
            method: Method::Conventional,
        };
        fewest = fewest.min(repair(&view, &on_paper, &wanted, &|_| 0, &[])?.helpers.len());
    }
    Ok(fewest)
}

/// How many repairs may run at one time: as `options` says, else each number that is tried.
fn limits(
    topology: &Topology,
    cluster: &Cluster,
    scheme: Scheme,
    stripes: usize,
    options: &Options,
) -> BTreeSet<usize> {
    if let Some(at_once) = options.at_once {
        return [at_once].into();
    }
    // A PUSH repair keeps one link busy at a time, the others as many as there are helpers.
    let nodes_at_work = if scheme.row().push.is_some() { 1 } else { cluster.code.k() + 1 };
    let all = stripes.max(1);
    let tried =
        STREAMS_A_NODE.map(|streams| (streams * topology.nodes.len()).div_ceil(nodes_at_work).min(all));
    tried.into_iter().chain([all]).collect()
}

/// Plans one stripe after the other.
struct Planner<'a> {
    topology: &'a Topology,
    disks: Disks,
    scheme: Scheme,
    windows: Chunks<'a, LostStripe>,
    /// The stripes of the last window that are not planned yet, in their order.
    ready: VecDeque<&'a LostStripe>,
    recovery: Recovery,
    shares: Shares,
    /// With only the nodes usable that get blocks.
    narrow: Topology,
    /// Whether all repairs run at once, so that they can be paced to end together.
    ends_together: bool,
}

impl<'a> Planner<'a> {
    fn new(
        topology: &'a Topology,
        lost: &'a [LostStripe],
        scheme: Scheme,
        options: &Options,
    ) -> Result<Self, SimError> {
        let count = scheme.requestors(options.requestors);
        if count == Some(0) {
            return Err(SimError::invalid("requestors", "1 or more", 0));
        }
        Ok(Self {
            topology,
            disks: options.overheads.disk_rates(topology),
            scheme,
            windows: lost.chunks(WINDOW),
            ready: VecDeque::new(),
            recovery: Recovery::new(),
            shares: Shares::default(),
            narrow: narrow(topology, count),
            ends_together: false,
        })
    }

    /// The stripe whose repair starts next.
    fn next(&mut self, cluster: &Cluster) -> Option<&'a LostStripe> {
        if self.ready.is_empty() {
            let window = self.windows.next()?;
            self.ready.extend(window);
            let turns = self.assign(cluster, window);
            self.ready.make_contiguous().sort_by_key(|stripe| turns.get(&stripe.id).copied());
        }
        self.ready.pop_front()
    }

    /// Assigns these stripes together to the requestors. A stripe that has a block on every requestor goes to any
    /// node. A stripe that cannot be assigned is planned by itself. Returns the turn of each stripe by its number.
    fn assign(&mut self, cluster: &Cluster, lost: &[LostStripe]) -> HashMap<u64, usize> {
        let mut turns = HashMap::new();
        let mut waiting: Vec<DamagedStripe> = lost.iter().map(|stripe| cluster.waiting(stripe)).collect();
        for topology in [&self.narrow, self.topology] {
            let (schedule, method) = (Schedule::Balanced, self.scheme.row().method);
            let scene = Scene { disks: &self.disks, ..Scene::of(topology) };
            let mut assigned = self.recovery.window(schedule, method, &mut self.shares, &scene, &waiting);
            if !self.ends_together {
                assigned.iter_mut().flatten().for_each(|assignment| assignment.rate = None);
                self.recovery.keep(assigned.iter().flatten());
            }
            turns.extend(assigned.iter().flatten().map(|assigned| (assigned.stripe.0, assigned.turn)));
            let left = waiting.into_iter().zip(assigned).filter(|(_, assigned)| assigned.is_err());
            waiting = left.map(|(waiting, _)| waiting).collect();
        }
        turns
    }

    fn plan(&mut self, view: &StripeView, stripe: &LostStripe) -> Result<Plan, SimError> {
        let lost = stripe.lost();
        let requestors = self.recovery.requestors(view, self.topology, &lost)?;
        let wanted = Repair { lost, requestors, method: self.scheme.row().method };
        let RepairPlan { plan, .. } = self.recovery.assign(view, self.topology, &wanted, &[])?;
        self.recovery.release(view.id);
        Ok(plan)
    }
}
