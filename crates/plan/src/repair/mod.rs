//! Repair of one or several blocks of a stripe.
//!
//! - [`Method`]: the table of methods, each of which is a file of this folder, which says in a [`MethodRow`] what it is;
//! - `rebuild`: the linear map that rebuilds lost blocks; `own_graph`: the code's own graph in its place;
//! - `shape`: what the methods have in common; then the methods: `auto`, `chameleon` and `boost_*` (many
//!   repairs planned together), `conventional`, `ppr`, `pipeline`, `flat`, `cyclic`,
//!   `weighted` (with the search for its path, `widest`), [`optimal`], `random`, `pipe_b`, `pipe_s`.
//!
//! Sources: ECPipe (TOS'21), sections 2.2 (conventional, PPR), 3.2 and 4.4 (chains, several
//! blocks), 4.1 (cyclic) and 4.2 with Algorithm 1 (racks). Invariants: every helper reads its block once; no
//! requestor holds another block of the stripe; lost blocks without a common helper are repaired
//! independently of each other.

mod method;
pub mod optimal;
mod own_graph;
pub(crate) mod rebuild;
mod shape;
mod weighted;
mod widest;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, Placed, Sink};

use crate::error::listed;
use crate::optimal::SharedTree;
use crate::program::proved;
use crate::{Plan, PlanError, StripeView, Topology};

use shape::{crowds, drawn};

pub(crate) use auto::is_long;
pub use method::{MethodRow, Stragglers};
pub(crate) use shape::{Order, Rebuild, Rebuilt};
pub(crate) use weighted::any_will_do;
pub use widest::{Widest, widest};

macro_rules! table {
    (@declare mod $file:ident) => { mod $file; };
    (@declare $file:ident) => {};
    (@row mod $file:ident) => { &$file::METHOD };
    (@row $file:ident) => { &$file::METHOD };
    ($($(#[$attribute:meta])* $method:ident: $($file:ident)+,)*) => {
        $(table! { @declare $($file)+ })*

        /// How a repair moves its slices.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub enum Method {
            $($(#[$attribute])* $method,)*
        }

        impl Method {
            /// All methods, in the order in which they are shown.
            pub const ALL: [Self; [$(stringify!($method)),*].len()] = [$(Self::$method),*];

            /// Its row of the table.
            pub const fn row(self) -> &'static MethodRow {
                match self {
                    $(Self::$method => table!(@row $($file)+),)*
                }
            }
        }
    };
}

// The table of methods: a row names a method and its file. With `mod` the row declares the file, too; the others are declared
// above, because they are more than a method. `cargo fmt` does not see what a macro declares: `rustfmt` with the files does.
table! {
    /// What suits the stripes and links at hand.
    #[default]
    Auto: mod auto,
    /// A star: one requestor fetches everything, and helpers combine only what the code says they should.
    Conventional: mod conventional,
    /// A binary tree.
    Ppr: mod ppr,
    /// A chain, through as few racks as possible.
    Pipeline: mod pipeline,
    /// A chain in the order of block numbers, whatever the racks.
    Flat: mod flat,
    /// One chain fewer than there are helpers. Each chain ends at a different helper, which delivers to the
    /// requestor.
    Cyclic: mod cyclic,
    /// The chain with the fastest slowest link.
    Weighted: weighted,
    /// The best trees that the rates of the links allow, several at once ([`crate::optimal`]).
    Optimal: optimal,
    /// ChameleonEC's tunable plans.
    Chameleon: mod chameleon,
    /// The same without re-scheduling.
    ChameleonStatic: mod chameleon_static,
    /// RepairBoost over conventional repair. A baseline.
    BoostCr: mod boost_cr,
    /// RepairBoost over binary trees. A baseline.
    BoostPpr: mod boost_ppr,
    /// RepairBoost over chains. A baseline.
    BoostEcpipe: mod boost_ecpipe,
    /// A chain through random helpers in random order. A baseline.
    Random: mod random,
    /// As [`Self::Flat`] with whole blocks for slices. A baseline.
    PipeB: mod pipe_b,
    /// As [`Self::Flat`], each helper doing one thing after the other. A baseline.
    PipeS: mod pipe_s,
}

/// What to repair, where to, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repair {
    /// The lost blocks.
    pub lost: Vec<BlockIndex>,
    /// The node that gets each of them, in the same order ([`crate::place_lost`] chooses them).
    pub requestors: Vec<NodeId>,
    /// The shape.
    pub method: Method,
}

/// A repair that has been planned.
#[derive(Debug, Clone, PartialEq)]
pub struct RepairPlan {
    /// The placed graph.
    pub plan: Plan,
    /// The blocks that are read, each once, in the order of the path.
    pub helpers: Vec<BlockIndex>,
    /// The lost blocks.
    pub lost: Vec<BlockIndex>,
    /// The node that gets each of them.
    pub requestors: Vec<NodeId>,
    /// Whether it is proved that no path in the search has a faster slowest link ([`crate::Widest::exact`]);
    /// `None` where no path was searched by rate. For MDS codes without sub-blocks the search covers paths over
    /// any k blocks, for others only paths over the blocks that decoding reads.
    pub path_is_best: Option<bool>,
}

impl RepairPlan {
    fn limited_to(self, topology: &Topology) -> Result<Self, PlanError> {
        Ok(Self { plan: self.plan.limited_to(topology)?, ..self })
    }

    /// The same, run at this rate of each block if there is one, which leaves room for other repairs.
    pub(crate) fn paced(mut self, rate: Option<NonZeroU64>) -> Self {
        self.plan.paced = rate;
        self
    }
}

/// Plans a repair from the available blocks that are not `excluded` (rotten, or on nodes that stall). Helpers with
/// the smallest `rank` are taken first (ECPipe's time of last use, section 3.3). Of helpers with equal rank a
/// pipeline prefers those in the requestor's rack, then those in the racks with most helpers, so that few racks
/// take part (Algorithm 1).
///
/// # Errors
/// `Unrecoverable` when the blocks left do not determine the lost ones; `Invalid` for blocks or
/// requestors that do not fit the stripe; `Graph` when the code's graph fails its proof.
pub fn repair(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    rank: &dyn Fn(NodeId) -> u64,
    excluded: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    check_requestors(view, repair)?;
    let preference = helpers_by_preference(view, topology, repair, rank, excluded);
    let plan = repair.method.given(&topology.rates).row().plan.unwrap_or(by_shape);
    plan(view, topology, repair, &preference)?.limited_to(topology)
}

/// Plans the repair along these trees.
///
/// # Errors
/// As [`repair`], and [`crate::optimal::over_trees`].
pub(crate) fn along(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    trees: &[SharedTree],
) -> Result<RepairPlan, PlanError> {
    check_requestors(view, repair)?;
    crate::optimal::over_trees(view, &repair.lost, &repair.requestors, trees)?.limited_to(topology)
}

/// Plans the repair of each block along a tree of its own.
///
/// # Errors
/// As [`repair`], and [`crate::optimal::over_own_trees`].
pub(crate) fn along_own(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    trees: &BTreeMap<BlockIndex, SharedTree>,
) -> Result<RepairPlan, PlanError> {
    check_requestors(view, repair)?;
    crate::optimal::over_own_trees(view, &repair.lost, &repair.requestors, trees)?.limited_to(topology)
}

/// Plans the repair by the shape of its method, from blocks of `preference`. The caller has checked the requestors.
pub(crate) fn by_shape(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    preference: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    let goals: Vec<_> = repair.lost.iter().copied().zip(repair.requestors.iter().copied()).collect();
    let Rebuilt { mut lanes, helpers, path_is_best } =
        rebuild_by(view, topology, &goals, repair.method, preference, &[])?;
    lanes.iter_mut().for_each(|placed| persist(view, placed, &goals));
    let plan = Plan { run_mode: repair.method.run_mode(), ..proved(view, lanes, &repair.lost)? };
    let (lost, requestors) = (repair.lost.clone(), repair.requestors.clone());
    Ok(RepairPlan { plan, helpers, lost, requestors, path_is_best })
}

/// Persists each lost block at its requestor.
pub(crate) fn persist(view: &StripeView, placed: &mut Placed, goals: &[(BlockIndex, NodeId)]) {
    for &(block, requestor) in goals {
        placed.persist_at.extend(view.symbols(block).map(|symbol| (symbol, (requestor, Sink::Block))));
    }
}

/// The placed graphs, one a lane, not yet proved and with nothing persisted, that compute each lost block for its
/// requestor from blocks of `preference`, earlier ones preferred; and the blocks that they read, in the order of
/// the path. The requestors may be the same node. The blocks `at_hand` are sent whole to the requestors in any
/// case. Here [`Method::Optimal`] means the best single path; [`optimal`] has several trees.
pub(crate) fn rebuild_by(
    view: &StripeView,
    topology: &Topology,
    goals: &[(BlockIndex, NodeId)],
    method: Method,
    preference: &[BlockIndex],
    at_hand: &[BlockIndex],
) -> Result<Rebuilt, PlanError> {
    let row = method.given(&topology.rates).row();
    (row.shape)(&Rebuild { view, topology, goals, preference, at_hand, order: row.order })
}

fn check_requestors(view: &StripeView, repair: &Repair) -> Result<(), PlanError> {
    view.check("lost blocks", &repair.lost)?;
    let invalid = |expected: String, got: String| {
        Err(PlanError::Invalid { what: format!("requestors for {}", view.id), expected, got })
    };
    if repair.lost.is_empty() || repair.lost.len() != repair.requestors.len() {
        let got = format!("{} for {} blocks", repair.requestors.len(), repair.lost.len());
        return invalid("one for each of one or more lost blocks".into(), got);
    }
    for (i, &requestor) in repair.requestors.iter().enumerate() {
        let kept = |block: BlockIndex| !repair.lost.contains(&block) && view.home(block) == Ok(requestor);
        if let Some(block) = view.indices().find(|block| kept(*block)) {
            return invalid(
                "nodes without another block of the stripe".into(),
                format!("{requestor}, which has {block}"),
            );
        }
        if requestor.is_client() || repair.requestors[..i].contains(&requestor) {
            return invalid("distinct storage nodes".into(), listed(&repair.requestors));
        }
    }
    Ok(())
}

/// The available blocks, the best to read first.
pub(crate) fn helpers_by_preference(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    rank: &dyn Fn(NodeId) -> u64,
    excluded: &[BlockIndex],
) -> Vec<BlockIndex> {
    let usable = |block: &BlockIndex| view.has(*block, excluded) && !repair.lost.contains(block);
    let homes: Vec<(BlockIndex, NodeId)> =
        view.indices().filter(usable).filter_map(|block| Some((block, view.home(block).ok()?))).collect();
    let near = topology.rack(repair.requestors[0]);
    let crowd = crowds(topology, homes.iter().map(|(_, home)| *home));
    let mut ranked: Vec<_> = homes
        .iter()
        .map(|&(block, home)| {
            let rack = topology.rack(home);
            let far = match repair.method.row().order {
                Order::NearRacks => (rack != near, usize::MAX - crowd[&rack], rack),
                Order::Drawn => (false, drawn(view, &repair.lost, block), None),
                Order::Racks | Order::Index | Order::Preferred => (false, 0, None),
            };
            (rank(home), far, block)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, block)| block).collect()
}
