//! Writing a stripe: encoded by the client (online), plain (offline, first step), and encoded
//! where the data is (offline, second step; OpenEC, sections 4.2 and 4.3, Table 1).

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, Sink, Vertex};
use serde::{Deserialize, Serialize};

use crate::program::{carried, proved};
use crate::repair::rebuild::shorten;
use crate::{Plan, PlanError, StripeView, Topology};

/// The client encodes: it loads the data blocks, computes the parity blocks and sends all of them
/// home.
///
/// # Errors
/// `Placement` when a stored block has no home; `Graph` when the code's graph fails its proof.
pub fn encode_online(view: &StripeView) -> Result<Plan, PlanError> {
    let graph = parity_graph(view)?;
    let compute_at = graph.joins().keys().map(|vertex| (*vertex, NodeId::CLIENT)).collect();
    let stored: Vec<_> = stored(view, 0..view.code.n());
    let load_at = loads(view, |_| Ok(NodeId::CLIENT))?;
    let placed = Placed { load_at, compute_at, persist_at: persists(view, &stored, Sink::Block)?, graph };
    proved(view, vec![placed], &parities(view))
}

/// The client writes the data blocks home as they are; parity comes later, by [`encode_offline`].
///
/// # Errors
/// `Placement` when a stored data block has no home.
pub fn write_plain(view: &StripeView) -> Result<Plan, PlanError> {
    let data = stored(view, 0..view.code.k()).into_iter();
    let moves = data.map(|block| Ok((block, NodeId::CLIENT, view.home(block)?, Sink::Block)));
    Ok(carried(view, moves.collect::<Result<Vec<_>, PlanError>>()?))
}

/// Where the parities of a stripe are computed by [`encode_offline`] (OpenEC, section 5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// All together on the home of a data block (`bind_x` and `bind_y`).
    #[default]
    Bound,
    /// All together on the home of the first parity block (`bind_x` alone).
    Together,
    /// Each on its home, which fetches what it needs (no binding). What a code computes on the way to several parities
    /// is computed on the home of a data block.
    Apart,
}

/// The nodes encode: the home of one data block fetches the others, computes all parity blocks and
/// sends them home. It is the first of those with the fewest blocks moved across racks. Another [`Binding`] moves more;
/// it is for comparison.
///
/// # Errors
/// `Placement` when a stored block has no home; `Graph` when the code's graph fails its proof.
pub fn encode_offline(view: &StripeView, topology: &Topology, binding: Binding) -> Result<Plan, PlanError> {
    parities_at_home(view, topology, binding, Sink::Block)
}

/// The plan of [`encode_offline`]; `sink` says what becomes of each parity block at its home.
pub(super) fn parities_at_home(
    view: &StripeView,
    topology: &Topology,
    binding: Binding,
    sink: Sink,
) -> Result<Plan, PlanError> {
    let data = stored(view, 0..view.code.k());
    let parity = parities(view);
    let moved = data.iter().chain(&parity).map(|block| view.home(*block)).collect::<Result<Vec<_>, _>>()?;
    let crossings = |node: &NodeId| moved.iter().filter(|m| topology.across_racks(**m, *node)).count();
    let graph = match binding {
        Binding::Bound | Binding::Together => parity_graph(view)?,
        Binding::Apart => without_binds(view, &unbound_parity_graph(view)?)?,
    };
    let encoder = match binding {
        Binding::Together => moved[data.len()..].first().copied(),
        Binding::Bound | Binding::Apart => moved[..data.len()].iter().copied().min_by_key(crossings),
    };
    let place = |vertex: Vertex| match binding == Binding::Apart && graph.is_symbol(vertex) {
        true => view.home(view.block_of(vertex)).map(Some),
        false => Ok(encoder),
    };
    let mut compute_at = BTreeMap::new();
    for vertex in graph.joins().keys() {
        compute_at.extend(place(*vertex)?.map(|node| (*vertex, node)));
    }
    let placed = Placed {
        load_at: loads(view, |block| view.home(block))?,
        compute_at,
        persist_at: persists(view, &parity, sink)?,
        graph,
    };
    proved(view, vec![placed], &parity)
}

/// The code's encode graph without the blocks that have no bytes.
fn parity_graph(view: &StripeView) -> Result<Ecdag, PlanError> {
    let mut graph = unbound_parity_graph(view)?;
    graph.auto_bind_x()?;
    Ok(graph)
}

/// The joins of a graph, with nothing bound, not even what the code binds itself.
fn without_binds(view: &StripeView, graph: &Ecdag) -> Result<Ecdag, PlanError> {
    let mut bare = Ecdag::new(view.code.n(), view.code.w());
    for (vertex, join) in graph.joins() {
        bare.join(*vertex, &join.children, &join.coefs)?;
    }
    Ok(bare)
}

/// The same with nothing bound that the code does not bind itself.
fn unbound_parity_graph(view: &StripeView) -> Result<Ecdag, PlanError> {
    let absent = view.absent();
    if absent.len() == view.code.n() {
        return Ok(Ecdag::new(view.code.n(), view.code.w()));
    }
    shorten(view, view.code.encode(), &absent, Some(Vertex(0)))
}

fn stored(view: &StripeView, range: std::ops::Range<usize>) -> Vec<BlockIndex> {
    range.map(|i| BlockIndex(i as u8)).filter(|block| view.block_len(*block) > 0).collect()
}

fn parities(view: &StripeView) -> Vec<BlockIndex> {
    stored(view, view.code.k()..view.code.n())
}

fn loads(
    view: &StripeView,
    at: impl Fn(BlockIndex) -> Result<NodeId, PlanError>,
) -> Result<BTreeMap<Vertex, NodeId>, PlanError> {
    let mut loads = BTreeMap::new();
    for block in stored(view, 0..view.code.k()) {
        let node = at(block)?;
        loads.extend(view.symbols(block).map(|symbol| (symbol, node)));
    }
    Ok(loads)
}

fn persists(
    view: &StripeView,
    blocks: &[BlockIndex],
    sink: Sink,
) -> Result<BTreeMap<Vertex, (NodeId, Sink)>, PlanError> {
    let mut persists = BTreeMap::new();
    for &block in blocks {
        let home = view.home(block)?;
        persists.extend(view.symbols(block).map(|symbol| (symbol, (home, sink))));
    }
    Ok(persists)
}
