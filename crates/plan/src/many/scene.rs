//! What a scheduler of many repairs sees, and what it returns.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, StripeId};

use super::chameleon::PHASE_SECONDS;
use super::recovery::{Assignment, DamagedStripe};
use crate::optimal::SharedTree;
use crate::program::PAYLOAD;
use crate::repair::{along, along_own, is_long};
use crate::traffic::{Link, Loads, Way};
use crate::{Account, Method, PlanError, Repair, RepairPlan, StripeView, Topology, repair};

/// Repairs that are to end together run this many times as fast as planned: a link that is said to be slower than it is must not
/// be idle.
const HURRY: f64 = 1.026;

/// In how many repairs under way each node takes part at least, where helpers are assigned in advance. With this many all
/// links are loaded about evenly at any time.
pub const REPAIRS_ON_A_LINK: u32 = 96;

/// The cluster when repairs are planned.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    /// The nodes. Its rates are the idle part of each link: without foreground traffic and without other repairs. A
    /// link without a rate counts as fast as the fastest one.
    pub topology: &'a Topology,
    /// The idle part of the disks.
    pub disks: &'a Disks,
    /// The bytes that links and disks still have to carry for repairs that were planned before, each link once or more often.
    /// They count as load, so estimates do not start again from zero.
    pub underway: &'a [(Link, u64)],
    /// The span of ChameleonEC's phases, in seconds.
    pub phase_seconds: f64,
}

impl<'a> Scene<'a> {
    /// These nodes, if nothing is known of their disks and nothing is under way; with the paper's phases.
    pub fn of(topology: &'a Topology) -> Self {
        static UNKNOWN: Disks = Disks { read: BTreeMap::new(), write: BTreeMap::new() };
        Self { topology, disks: &UNKNOWN, underway: &[], phase_seconds: PHASE_SECONDS }
    }
}

/// The idle bandwidth of disks, in bytes a second. A disk without an entry is never the bottleneck.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disks {
    /// What a node can read.
    pub read: BTreeMap<NodeId, NonZeroU64>,
    /// What a node can write.
    pub write: BTreeMap<NodeId, NonZeroU64>,
}

impl Disks {
    /// The disks whose rates are known, reading and then writing.
    pub fn known(&self) -> impl Iterator<Item = (Link, NonZeroU64)> + '_ {
        let read = self.read.iter().map(|(&node, &rate)| (Link::DiskRead(node), rate));
        read.chain(self.write.iter().map(|(&node, &rate)| (Link::DiskWrite(node), rate)))
    }
}

/// A lost block that waits to be repaired.
#[derive(Debug, Clone, Copy)]
pub struct LostBlock<'a> {
    /// Its stripe.
    pub stripe: &'a DamagedStripe,
    /// Which of the stripe's lost blocks.
    pub block: BlockIndex,
}

impl<'a> LostBlock<'a> {
    /// All lost blocks of these stripes, in order.
    pub fn all(stripes: &'a [DamagedStripe]) -> Vec<Self> {
        let of = |stripe: &'a DamagedStripe| stripe.lost.iter().map(move |&block| Self { stripe, block });
        stripes.iter().flat_map(of).collect()
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.stripe.view.block_len(self.block)
    }
}

/// The work of earlier calls, for schedulers that only look back.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Decides random choices.
    pub seed: u64,
    pub(super) clock: u64,
    /// When each node was last a helper.
    pub(super) helped: BTreeMap<NodeId, u64>,
    /// How many blocks each node got.
    pub(super) requested: BTreeMap<NodeId, u64>,
}

/// The way that the slices of a repair go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Partial sums along trees; slices are divided among the trees by share.
    Trees(Vec<SharedTree>),
    /// As this method plans the repair by itself, for blocks with sub-blocks. The bytes that each node sends to another for the whole
    /// block.
    ByMethod(Method, Vec<(NodeId, NodeId, u64)>),
    /// None of its own: the block is repaired along with this block of the stripe, whose [`Planned::also`] names it.
    With(BlockIndex),
}

/// The planned repair of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The stripe.
    pub stripe: StripeId,
    /// The lost block.
    pub block: BlockIndex,
    /// Its length.
    pub bytes: u64,
    /// The node that gets it.
    pub requestor: NodeId,
    /// Who sends to whom.
    pub route: Route,
    /// Other lost blocks of the stripe that the same trees repair, each with the node that gets it.
    pub also: Vec<(BlockIndex, NodeId)>,
    /// Its place in the order in which the repairs of one call are best started.
    pub turn: usize,
}

impl Planned {
    /// What is sent, read and written, with bytes for each byte of the block. Nothing for a block that is repaired along with
    /// another: that one's trees carry it.
    pub fn ways(&self) -> Vec<(Way, f64)> {
        match &self.route {
            Route::Trees(trees) => {
                let period = trees.iter().map(|tree| f64::from(tree.share)).sum::<f64>().max(1.0);
                let ways = trees.iter().flat_map(|tree| {
                    let part = f64::from(tree.share) / period;
                    let ways = tree.ways(self.requestor, &self.also).into_iter();
                    ways.map(move |(way, blocks)| (way, part * blocks as f64))
                });
                ways.collect()
            }
            Route::With(_) => Vec::new(),
            Route::ByMethod(_, sends) => {
                let bytes = self.bytes.max(1) as f64;
                let ways = sends.iter().flat_map(|(from, to, sent)| {
                    let part = *sent as f64 / bytes;
                    [(Way::Between(*from, *to), part), (Way::Read(*from), part)]
                });
                ways.chain([(Way::Write(self.requestor), 1.0)]).collect()
            }
        }
    }

    /// What is sent: sender, receiver, and bytes for each byte of the block.
    pub fn sends(&self) -> Vec<(NodeId, NodeId, f64)> {
        let between = |(way, part): (Way, f64)| match way {
            Way::Between(from, to) => Some((from, to, part)),
            Way::Read(_) | Way::Write(_) => None,
        };
        self.ways().into_iter().filter_map(between).collect()
    }

    /// Adds what links and disks carry for the last `bytes` of the block.
    pub fn load(&self, topology: &Topology, bytes: u64, loads: &mut Loads) {
        let add = |(way, part): (Way, f64)| loads.add(topology, way, (bytes as f64 * part) as u64);
        self.ways().into_iter().for_each(add);
    }

    /// The nodes whose blocks are read.
    pub fn helpers(&self) -> Vec<NodeId> {
        let mut helpers: Vec<NodeId> = match &self.route {
            Route::Trees(trees) => trees.iter().flat_map(|tree| tree.parents.keys().copied()).collect(),
            Route::ByMethod(_, sends) => sends.iter().map(|(from, _, _)| *from).collect(),
            Route::With(_) => Vec::new(),
        };
        helpers.sort_unstable();
        helpers.dedup();
        helpers
    }

    /// Every block that it repairs, with the node that gets it, in the order of the blocks.
    pub fn goals(&self) -> BTreeMap<BlockIndex, NodeId> {
        self.also.iter().copied().chain([(self.block, self.requestor)]).collect()
    }

    /// The placed and proved graph.
    ///
    /// # Errors
    /// As [`repair`], where the stripe has changed since; `Invalid` for a block that is repaired along with another.
    pub fn plan(&self, view: &StripeView, topology: &Topology) -> Result<RepairPlan, PlanError> {
        let goals = [(self.block, self.requestor)].into_iter().chain(self.also.iter().copied());
        let (lost, requestors) = goals.unzip();
        let wanted = |method| Repair { lost, requestors, method };
        match &self.route {
            Route::Trees(trees) => along(view, topology, &wanted(Method::Optimal), trees),
            Route::ByMethod(method, _) => repair(view, topology, &wanted(*method), &|_| 0, &[]),
            Route::With(block) => Err(PlanError::Invalid {
                what: format!("repair of {} of {}", self.block, self.stripe),
                expected: "trees of its own".into(),
                got: format!("those of {block}"),
            }),
        }
    }

    /// The rate, in bytes of the block a second, at which repairs that take `seconds` in all end together; `None` if no time is
    /// known. It makes up for what [`Plan::rate_limit`](crate::Plan::rate_limit) keeps for headers.
    ///
    /// Repairs along several trees do not hurry. Streams share links fairly, and each tree's stream needs less than its fair
    /// share, so it would get all that it asks for, and repairs along one tree would fall behind.
    pub fn rate(&self, seconds: f64) -> Option<NonZeroU64> {
        let several = matches!(&self.route, Route::Trees(trees) if trees.len() > 1);
        let factor = if several { 1.0 } else { HURRY } / PAYLOAD;
        (seconds > 0.0).then(|| NonZeroU64::new((self.bytes as f64 / seconds * factor) as u64)).flatten()
    }
}

/// Seconds until the busiest link has carried these repairs; 0 where no rates are known. Disks do not count: what is known of
/// them may decide who takes part, but is too rough to hold up repairs.
pub fn seconds<'a>(topology: &Topology, planned: impl IntoIterator<Item = &'a Planned>) -> f64 {
    let mut loads = Loads::default();
    planned.into_iter().for_each(|planned| planned.load(topology, planned.bytes, &mut loads));
    loads.seconds(&topology.rates)
}

impl Assignment {
    /// The plan along its trees.
    ///
    /// # Errors
    /// As [`repair`], where the stripe has changed since.
    pub(super) fn plan(
        &self,
        view: &StripeView,
        topology: &Topology,
        wanted: &Repair,
    ) -> Result<RepairPlan, PlanError> {
        match self.own_trees.is_empty() {
            true => along(view, topology, wanted, &self.trees),
            false => along_own(view, topology, wanted, &self.own_trees),
        }
    }

    /// The form in which [`crate::Recovery`] keeps the repair of a stripe: the planned repairs of all its lost blocks,
    /// which end with others after `seconds`, 0 where that is not known. `None` for no repairs.
    pub fn of(planned: &[Planned], seconds: f64) -> Option<Self> {
        let first = planned.first()?;
        let own: Vec<&Planned> =
            planned.iter().filter(|planned| !matches!(planned.route, Route::With(_))).collect();
        let of = |planned: &Planned| match &planned.route {
            Route::Trees(trees) => trees.clone(),
            _ => Vec::new(),
        };
        let (mut trees, mut own_trees) = (Vec::new(), BTreeMap::new());
        match &own[..] {
            [only] => trees = of(only),
            _ => {
                let single =
                    |planned: &&Planned| Some((planned.block, <[_; 1]>::try_from(of(planned)).ok()?));
                let all: Option<Vec<_>> = own.iter().map(single).collect();
                own_trees.extend(all.into_iter().flatten().map(|(block, [tree])| (block, tree)));
            }
        }
        let method = own.iter().find_map(|planned| match planned.route {
            Route::ByMethod(method, _) => Some(method),
            _ => None,
        });
        let planned_ahead = !trees.is_empty() || !own_trees.is_empty();
        let rate = own.first().filter(|_| planned_ahead).and_then(|planned| planned.rate(seconds));
        Some(Self {
            stripe: first.stripe,
            requestors: planned.iter().map(|planned| (planned.block, planned.requestor)).collect(),
            helpers: planned.iter().flat_map(Planned::helpers).collect(),
            trees,
            own_trees,
            method,
            turn: own.iter().map(|planned| planned.turn).min().unwrap_or_default(),
            rate,
            is_later: false,
        })
    }
}

/// The repair of a block as this method plans it by itself, at this requestor; the star by the code's own graph where a path would take
/// too long to plan.
///
/// # Errors
/// As [`repair`].
pub(super) fn by_method(
    method: Method,
    lost: &LostBlock<'_>,
    topology: &Topology,
    requestor: NodeId,
) -> Result<Planned, PlanError> {
    let (view, bytes) = (&lost.stripe.view, lost.bytes());
    let by = |method| {
        let wanted = Repair { lost: vec![lost.block], requestors: vec![requestor], method };
        repair(view, topology, &wanted, &|_| 0, &[])
    };
    let (method, planned) = match method {
        Method::Pipeline => match by(Method::Conventional)? {
            star if is_long(view, &star) => (Method::Conventional, star),
            _ => (method, by(method)?),
        },
        _ => (method, by(method)?),
    };
    let account = Account::of(&planned.plan, topology, bytes)?;
    let sends = account.links.iter().map(|link| (link.from, link.to, link.bytes)).collect();
    let route = Route::ByMethod(method, sends);
    Ok(Planned { stripe: view.id, block: lost.block, bytes, requestor, route, also: Vec::new(), turn: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, LayoutKind, even_cluster};

    /// Blocks of 1,000,000 bytes, paced to end together after 10 s.
    #[test]
    fn repairs_along_several_trees_go_as_fast_as_planned_and_others_hurry() {
        let (topology, code) = (even_cluster(4, 1), kintsu_code::parse("rs:n=4,k=2").unwrap());
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: 1_000_000,
            cell_bytes: 1000,
            w: 1,
            data_bytes: 2_000_000,
        };
        let homes = [None, Some(NodeId(1)), Some(NodeId(2)), Some(NodeId(3))];
        let view = StripeView { id: StripeId(0), code, layout, homes: homes.to_vec() };
        let tree = |helpers: [u32; 2]| SharedTree {
            parents: helpers.map(|helper| (NodeId(helper), None)).into(),
            share: 1,
        };
        let rate = |trees: Vec<SharedTree>| {
            let planned = Planned {
                stripe: view.id,
                block: BlockIndex(0),
                bytes: 1_000_000,
                requestor: NodeId(0),
                route: Route::Trees(trees),
                also: Vec::new(),
                turn: 0,
            };
            let plan = planned.plan(&view, &topology).unwrap().paced(planned.rate(10.0)).plan;
            plan.rate_limit().unwrap().get() as f64
        };
        let several = rate(vec![tree([1, 2]), tree([2, 3])]);
        assert!((several - 100_000.0).abs() < 2.0, "{several}");
        let single = rate(vec![tree([1, 2])]);
        assert!((single - HURRY * 100_000.0).abs() < 2.0, "{single}");
    }
}
