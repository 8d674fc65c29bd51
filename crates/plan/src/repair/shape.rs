//! What the shapes of repairs have in common: the helpers in order, and one placed graph over them.

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, DagError, Ecdag, NodeId, Placed, RackId, Vertex};

use super::rebuild::{Part, decode, parts, union};
use crate::{PlanError, StripeView, Topology, draw};

/// Lost blocks to compute for their requestors.
#[derive(Clone, Copy)]
pub(crate) struct Rebuild<'a> {
    pub view: &'a StripeView,
    pub topology: &'a Topology,
    /// Each lost block with its requestor. The requestors may be the same node.
    pub goals: &'a [(BlockIndex, NodeId)],
    /// The blocks that may be read, earlier ones preferred.
    pub preference: &'a [BlockIndex],
    /// The blocks that are sent whole to the requestors in any case.
    pub at_hand: &'a [BlockIndex],
    /// The order in which paths pass the helpers.
    pub order: Order,
}

/// Graphs that compute the lost blocks at their requestors, not yet proved and with nothing persisted.
pub(crate) struct Rebuilt {
    /// The placed graphs, one a lane.
    pub lanes: Vec<Placed>,
    /// The blocks that they read, in the order of the path.
    pub helpers: Vec<BlockIndex>,
    /// See [`crate::RepairPlan::path_is_best`].
    pub path_is_best: Option<bool>,
}

/// Makes the graphs of a method.
pub(crate) type Shape = fn(&Rebuild<'_>) -> Result<Rebuilt, PlanError>;

/// A shape of [`kintsu_dag`] over n blocks of w symbols: hops, targets and coefficients.
pub(crate) type Builder = fn(usize, usize, &[Vec<Vertex>], &[Vertex], &Matrix) -> Result<Ecdag, DagError>;

/// Which helpers are preferred among those of equal rank, and the order in which paths pass them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Helpers in the requestor's rack, then in the racks with most helpers, so that few racks take part; rack by
    /// rack (ECPipe, Algorithm 1).
    NearRacks,
    /// Any helpers; rack by rack.
    Racks,
    /// Any helpers; in the order of block numbers.
    Index,
    /// Any helpers; in the order in which they are preferred.
    Preferred,
    /// Random helpers of those of equal rank, in random order.
    Drawn,
}

/// The node that computes what a shape does not bind to a helper, for each part with its helpers in order; `None` if
/// the shape binds everything.
pub(crate) type Center<'a> = Option<&'a dyn Fn(&Part, &[BlockIndex]) -> Result<NodeId, PlanError>>;

impl Rebuild<'_> {
    pub fn lost(&self) -> Vec<BlockIndex> {
        self.goals.iter().map(|(block, _)| *block).collect()
    }

    /// The code's graph from the preferred blocks.
    pub fn graph(&self) -> Result<Ecdag, PlanError> {
        decode(self.view, self.preference, &self.lost())
    }

    /// One graph of this shape over the helpers in order.
    pub fn over_helpers(&self, builder: Builder, center: Center<'_>) -> Result<Rebuilt, PlanError> {
        let parts = parts(self.view, &self.graph()?)?;
        self.over_parts(&parts, builder, center)
    }

    pub fn over_parts(
        &self,
        parts: &[Part],
        builder: Builder,
        center: Center<'_>,
    ) -> Result<Rebuilt, PlanError> {
        let routes = self.routes(parts)?;
        let lanes = vec![self.lane(parts, &routes, builder, center)?];
        Ok(Rebuilt { lanes, helpers: routes.concat(), path_is_best: None })
    }

    /// The helpers of each part in order.
    pub fn routes(&self, parts: &[Part]) -> Result<Vec<Vec<BlockIndex>>, PlanError> {
        parts
            .iter()
            .map(|part| Ok(self.least_first(part, self.route(&part.helpers, part.lost[0])?)))
            .collect()
    }

    /// If only racks decide the order: within each rack the helpers that read the fewest symbols first. A link of a path
    /// carries no more than was read before it, so its first links carry little.
    fn least_first(&self, part: &Part, mut route: Vec<BlockIndex>) -> Vec<BlockIndex> {
        if self.view.code.w() > 1 && matches!(self.order, Order::NearRacks | Order::Racks) {
            let rack =
                |block: &BlockIndex| self.view.home(*block).ok().and_then(|home| self.topology.rack(home));
            let racks: Vec<_> = route.iter().map(rack).collect();
            let turn = |block: &BlockIndex| racks.iter().position(|known| *known == rack(block));
            route.sort_by_key(|block| (turn(block), part.symbols_of(self.view, *block)));
        }
        route
    }

    /// The helpers in order. Rack by rack means (Algorithm 1, backwards): the rack with the fewest helpers first,
    /// the rack of the requestor of `lost` last. So each rack is entered and left once.
    pub fn route(&self, helpers: &[BlockIndex], lost: BlockIndex) -> Result<Vec<BlockIndex>, PlanError> {
        let mut route = helpers.to_vec();
        match self.order {
            Order::Index => {}
            Order::Preferred => {
                route.sort_by_key(|block| self.preference.iter().position(|preferred| preferred == block));
            }
            Order::Drawn => {
                route.sort_by_key(|block| drawn(self.view, &[lost, lost], *block));
            }
            Order::NearRacks | Order::Racks => {
                let last = self.topology.rack(self.requestor_of(lost)?);
                let home = |block: &BlockIndex| self.view.home(*block).ok();
                let crowd = crowds(self.topology, helpers.iter().filter_map(home));
                route.sort_by_key(|block| {
                    let rack = home(block).and_then(|home| self.topology.rack(home));
                    (rack.is_some() && rack == last, crowd.get(&rack).copied().unwrap_or(0), rack, *block)
                });
            }
        }
        Ok(route)
    }

    /// The parts' maps over their helpers in the order of the routes, as one graph.
    pub fn lane(
        &self,
        parts: &[Part],
        routes: &[Vec<BlockIndex>],
        builder: Builder,
        center: Center<'_>,
    ) -> Result<Placed, PlanError> {
        let (n, w) = (self.view.code.n(), self.view.code.w());
        let mut compute_at = BTreeMap::new();
        let mut graphs = Vec::with_capacity(parts.len());
        for (part, route) in parts.iter().zip(routes) {
            let (hops, coefs) = part.hops(self.view, route);
            graphs.push(builder(n, w, &hops, &part.targets, &coefs)?);
            if let Some(center) = center {
                let at = center(part, route)?;
                compute_at.extend(part.targets.iter().map(|target| (*target, at)));
            }
        }
        let graph = union(graphs)?;
        let mut load_at = BTreeMap::new();
        for leaf in graph.leaves() {
            load_at.insert(leaf, self.view.home(self.view.block_of(leaf))?);
        }
        Ok(Placed { graph, load_at, compute_at, persist_at: BTreeMap::new() })
    }

    /// The requestor of a part's first lost block.
    pub fn at_requestor(&self, part: &Part) -> Result<NodeId, PlanError> {
        self.requestor_of(part.lost[0])
    }

    fn requestor_of(&self, block: BlockIndex) -> Result<NodeId, PlanError> {
        let found = self.goals.iter().find(|(lost, _)| *lost == block);
        found.map(|(_, requestor)| *requestor).ok_or_else(|| PlanError::Invalid {
            what: "decode graph".into(),
            expected: "one that computes the lost blocks".into(),
            got: format!("one that computes {block}"),
        })
    }
}

/// A number for a block of the stripe that looks random and is the same for the same lost blocks.
pub(super) fn drawn(view: &StripeView, lost: &[BlockIndex], block: BlockIndex) -> usize {
    let seed = lost.iter().fold(view.id.0, |seed, lost| draw(seed, 5, u64::from(lost.0)));
    (draw(seed, 6, u64::from(block.0)) >> 1) as usize
}

/// How many of the nodes are in each rack.
pub(super) fn crowds(
    topology: &Topology,
    nodes: impl Iterator<Item = NodeId>,
) -> BTreeMap<Option<RackId>, usize> {
    let mut crowd = BTreeMap::new();
    for node in nodes {
        *crowd.entry(topology.rack(node)).or_default() += 1;
    }
    crowd
}
