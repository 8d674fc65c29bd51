//! Repair of one or several blocks of a stripe as star (conventional), binary tree (PPR), chain
//! (repair pipelining), or several chains (its cyclic version).
//!
//! Sources: ECPipe (TOS'21), sections 2.2 (conventional, PPR), 3.2 and 4.4 (chains, several
//! blocks), 4.1 (cyclic) and 4.2 with Algorithm 1 (racks). Invariants: every helper reads its block once; no
//! requestor holds another block of the stripe; lost blocks without a common helper are repaired
//! independently of each other.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, RackId, Sink, chain, star, tree};

use crate::error::listed;
use crate::own_graph::place_own;
use crate::proved::proved;
use crate::rebuild::{Part, decode, parts, union};
use crate::weighted::weighted;
use crate::{Method, Plan, PlanError, StripeView, Topology};

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
}

/// Plans a repair from the available blocks that are not `excluded` (rotten, or on nodes that stall). Helpers with
/// the smallest `rank` are taken first (ECPipe's time of last use, section 3.3). Of helpers with equal rank a
/// pipeline prefers those in the requestor's rack, then those in the racks with most helpers, so that few racks
/// take part (Algorithm 1).
///
/// # Errors
/// `Unrecoverable` when the blocks left do not determine the lost ones; `Invalid` for blocks or
/// requestors that do not fit the stripe; `Graph` when the code's graph proves false.
pub fn repair(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    rank: &dyn Fn(NodeId) -> u64,
    excluded: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    check_requestors(view, repair)?;
    let preference = helpers_by_preference(view, topology, repair, rank, excluded);
    if repair.method == Method::Optimal && !topology.rates.is_empty() {
        return crate::optimal::plan(view, topology, repair, &preference)?.limited_to(topology);
    }
    by_method(view, topology, repair, &preference)?.limited_to(topology)
}

/// Plans the repair along these trees.
///
/// # Errors
/// As [`repair`], and [`crate::optimal::over_trees`].
pub(crate) fn along(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    trees: &[crate::optimal::SharedTree],
) -> Result<RepairPlan, PlanError> {
    check_requestors(view, repair)?;
    crate::optimal::over_trees(view, &repair.lost, &repair.requestors, trees)?.limited_to(topology)
}

/// Plans the repair by its method alone, from blocks of `preference`. The caller has checked the requestors. Here
/// [`Method::Optimal`] means the best single path.
pub(crate) fn by_method(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    preference: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    let goals: Vec<_> = repair.lost.iter().copied().zip(repair.requestors.iter().copied()).collect();
    let Rebuilt { mut lanes, helpers, path_is_best } =
        rebuild(view, topology, &goals, repair.method, preference, &[])?;
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

/// Graphs that compute the lost blocks at their requestors, not yet proved and with nothing persisted.
pub(crate) struct Rebuilt {
    /// The placed graphs, one a lane.
    pub lanes: Vec<Placed>,
    /// The blocks that they read, in the order of the path.
    pub helpers: Vec<BlockIndex>,
    /// See [`RepairPlan::path_is_best`].
    pub path_is_best: Option<bool>,
}

/// The placed graphs, one a lane, not yet proved and with nothing persisted, that compute each lost block for its
/// requestor from blocks of `preference`, earlier ones preferred; and the blocks that they read, in the order of
/// the path. The requestors may be the same node. The blocks `at_hand` are sent whole to the requestors in any
/// case. Here [`Method::Optimal`] means the best single path; [`crate::optimal::plan`] has several trees.
pub(crate) fn rebuild(
    view: &StripeView,
    topology: &Topology,
    goals: &[(BlockIndex, NodeId)],
    method: Method,
    preference: &[BlockIndex],
    at_hand: &[BlockIndex],
) -> Result<Rebuilt, PlanError> {
    match method {
        Method::Weighted | Method::Optimal if !topology.rates.is_empty() => {
            weighted(view, topology, goals, preference)
        }
        _ => {
            let (lanes, helpers) = rebuild_by(view, topology, goals, method, preference, at_hand)?;
            Ok(Rebuilt { lanes, helpers, path_is_best: None })
        }
    }
}

/// As [`rebuild`]; a weighted path goes through the helpers in the order of `preference`.
pub(crate) fn rebuild_by(
    view: &StripeView,
    topology: &Topology,
    goals: &[(BlockIndex, NodeId)],
    method: Method,
    preference: &[BlockIndex],
    at_hand: &[BlockIndex],
) -> Result<(Vec<Placed>, Vec<BlockIndex>), PlanError> {
    let lost: Vec<BlockIndex> = goals.iter().map(|(block, _)| *block).collect();
    let graph = decode(view, preference, &lost)?;
    // With sub-blocks, counting the terms of the flat form costs more than the flat form can save.
    let own = method == Method::Conventional && (view.code.w() > 1 || !graph.binds_y().is_empty());
    let parts = if own { Vec::new() } else { parts(view, &graph)? };
    let flat: usize = parts.iter().map(Part::terms).sum();
    let sparse: usize = graph.joins().values().map(|join| join.children.len()).sum();
    if own || (method == Method::Conventional && sparse < flat) {
        let mut helpers: Vec<_> = graph.leaves().into_iter().map(|leaf| view.block_of(leaf)).collect();
        helpers.dedup();
        let last = topology.rack(requestor_of(goals, lost[0])?);
        let helpers = route(view, topology, &helpers, last);
        return Ok((vec![place_own(view, goals, graph, at_hand)?], helpers));
    }
    let mut routes = Vec::with_capacity(parts.len());
    for part in &parts {
        let last = topology.rack(requestor_of(goals, part.lost[0])?);
        routes.push(match method {
            Method::Flat | Method::PipeB | Method::PipeS => part.helpers.clone(),
            Method::Weighted if !topology.rates.is_empty() => as_preferred(&part.helpers, preference),
            _ => route(view, topology, &part.helpers, last),
        });
    }
    let helpers = routes.concat();
    let mut lanes = vec![placed(view, goals, &parts, &routes, method)?];
    if method == Method::Cyclic {
        // Section 4.1: k-1 paths, each beginning one helper later and delivering from another one.
        let longest = routes.iter().map(Vec::len).max().unwrap_or(0);
        for _ in 2..longest {
            routes.iter_mut().for_each(|route| route.rotate_left(1));
            lanes.push(placed(view, goals, &parts, &routes, method)?);
        }
    }
    Ok((lanes, helpers))
}

/// The parts' maps over their helpers in the order of the routes.
fn placed(
    view: &StripeView,
    goals: &[(BlockIndex, NodeId)],
    parts: &[Part],
    routes: &[Vec<BlockIndex>],
    method: Method,
) -> Result<Placed, PlanError> {
    let mut compute_at = BTreeMap::new();
    let mut graphs = Vec::with_capacity(parts.len());
    for (part, route) in parts.iter().zip(routes) {
        graphs.push(shape(view, part, route, method)?);
        if !method.is_path() {
            let at = requestor_of(goals, part.lost[0])?;
            compute_at.extend(part.targets.iter().map(|target| (*target, at)));
        }
    }
    let graph = union(graphs)?;
    let mut load_at = BTreeMap::new();
    for leaf in graph.leaves() {
        load_at.insert(leaf, view.home(view.block_of(leaf))?);
    }
    Ok(Placed { graph, load_at, compute_at, persist_at: BTreeMap::new() })
}

fn shape(view: &StripeView, part: &Part, route: &[BlockIndex], method: Method) -> Result<Ecdag, PlanError> {
    let (hops, coefs) = part.hops(view, route);
    let (n, w) = (view.code.n(), view.code.w());
    let graph = match method {
        Method::Conventional => star(n, w, &hops, &part.targets, &coefs),
        Method::Ppr => tree(n, w, &hops, &part.targets, &coefs),
        _ => chain(n, w, &hops, &part.targets, &coefs),
    };
    Ok(graph?)
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

fn requestor_of(goals: &[(BlockIndex, NodeId)], block: BlockIndex) -> Result<NodeId, PlanError> {
    let found = goals.iter().find(|(lost, _)| *lost == block);
    found.map(|(_, requestor)| *requestor).ok_or_else(|| PlanError::Invalid {
        what: "decode graph".into(),
        expected: "one that computes the lost blocks".into(),
        got: format!("one that computes {block}"),
    })
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
            let far = match repair.method {
                Method::Pipeline | Method::Cyclic | Method::Weighted | Method::Optimal => {
                    (rack != near, usize::MAX - crowd[&rack], rack)
                }
                _ => (false, 0, None),
            };
            (rank(home), far, block)
        })
        .collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(_, _, block)| block).collect()
}

/// The helpers in the order of the path (Algorithm 1, backwards): rack by rack, the rack with the fewest helpers
/// first, the requestor's own rack last. So each rack is entered and left once.
fn route(
    view: &StripeView,
    topology: &Topology,
    helpers: &[BlockIndex],
    last: Option<RackId>,
) -> Vec<BlockIndex> {
    let rack = |block: &BlockIndex| view.home(*block).ok().and_then(|home| topology.rack(home));
    let crowd = crowds(topology, helpers.iter().filter_map(|block| view.home(*block).ok()));
    let mut route = helpers.to_vec();
    route.sort_by_key(|block| {
        let rack = rack(block);
        (rack.is_some() && rack == last, crowd.get(&rack).copied().unwrap_or(0), rack, *block)
    });
    route
}

/// The helpers in the order in which they are preferred.
fn as_preferred(helpers: &[BlockIndex], preference: &[BlockIndex]) -> Vec<BlockIndex> {
    let mut route = helpers.to_vec();
    route.sort_by_key(|block| preference.iter().position(|preferred| preferred == block));
    route
}

/// How many of the nodes are in each rack.
fn crowds(topology: &Topology, nodes: impl Iterator<Item = NodeId>) -> BTreeMap<Option<RackId>, usize> {
    let mut crowd = BTreeMap::new();
    for node in nodes {
        *crowd.entry(topology.rack(node)).or_default() += 1;
    }
    crowd
}
