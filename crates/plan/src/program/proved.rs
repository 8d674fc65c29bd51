//! Placed graphs that were proved: only these can be lanes of a plan, and so only these become programs.

use std::collections::BTreeMap;
use std::ops::Deref;

use kintsu_dag::{BlockIndex, DagError, Ecdag, NodeId, Placed, Sink, Vertex};

use crate::{Lane, Plan, PlanError, StripeView};

/// A placed graph that computes what it should, or computes nothing. It cannot be changed, and only this file
/// creates it.
///
/// A graph that was not proved cannot be a lane, and a plan consists of lanes:
///
/// ```compile_fail,E0423
/// fn lane(placed: kintsu_dag::Placed) -> kintsu_plan::Lane {
///     kintsu_plan::Lane { placed: kintsu_plan::Proved(placed), share: 1 }
/// }
/// ```
///
/// ```compile_fail,E0308
/// fn lane(placed: kintsu_dag::Placed) -> kintsu_plan::Lane {
///     kintsu_plan::Lane { placed, share: 1 }
/// }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Proved(Placed);

impl Deref for Proved {
    type Target = Placed;

    fn deref(&self) -> &Placed {
        &self.0
    }
}

/// The move of one block: which block, from where, to where, and what is done with it there.
pub(crate) type Move = (BlockIndex, NodeId, NodeId, Sink);

/// The plan that moves blocks as they are. Its vertices are whole blocks even where the code has sub-blocks. Its
/// graph computes nothing, so there is nothing to prove.
pub(crate) fn carried(view: &StripeView, moves: impl IntoIterator<Item = Move>) -> Plan {
    let mut placed = Placed {
        graph: Ecdag::new(view.code.n(), 1),
        load_at: BTreeMap::new(),
        compute_at: BTreeMap::new(),
        persist_at: BTreeMap::new(),
    };
    for (block, from, to, sink) in moves {
        placed.load_at.insert(Vertex(block.0.into()), from);
        placed.persist_at.insert(Vertex(block.0.into()), (to, sink));
    }
    Plan::new(vec![Lane { placed: Proved(placed), share: 1 }])
}

/// A plan of these lanes with equal shares. Proves each graph, and checks that it computes exactly the
/// symbols of these blocks.
///
/// # Errors
/// `Graph` if a graph does not pass.
pub(crate) fn proved(
    view: &StripeView,
    lanes: Vec<Placed>,
    computed: &[BlockIndex],
) -> Result<Plan, PlanError> {
    let mut absent = view.absent();
    absent.retain(|block| usize::from(block.0) < view.code.k());
    let mut expected: Vec<Vertex> = computed.iter().flat_map(|block| view.symbols(*block)).collect();
    expected.sort_unstable();
    for placed in &lanes {
        placed.graph.prove_shortened(view.code.generator(), &absent)?;
        let targets = placed.graph.targets();
        if targets != expected {
            return Err(PlanError::Graph(DagError::Invalid {
                what: "targets".into(),
                expected: format!("{expected:?}"),
                got: format!("{targets:?}"),
            }));
        }
    }
    Ok(Plan::new(lanes.into_iter().map(|placed| Lane { placed: Proved(placed), share: 1 }).collect()))
}

/// The plans of an update: graphs over deltas, in which all data symbols but the `dirty` ones are zero. Proves each
/// graph, and checks that the leaves are dirty symbols, and that together they add, at home and exactly once, to each
/// dirty symbol and to each parity symbol that depends on them.
///
/// # Errors
/// `Graph` if a graph does not pass.
pub(crate) fn proved_update(
    view: &StripeView,
    graphs: Vec<Placed>,
    dirty: &[Vertex],
) -> Result<Vec<Plan>, PlanError> {
    let mut deltas = view.code.generator().clone();
    for row in 0..deltas.rows() {
        let of_row = deltas.row_mut(row).iter_mut().enumerate();
        of_row.filter(|(column, _)| !dirty.contains(&Vertex(*column as u32))).for_each(|(_, coef)| *coef = 0);
    }
    let data = (view.code.k() * view.code.w()) as u32;
    let follows = |symbol: &Vertex| {
        let block = view.block_of(*symbol);
        view.has(block, &[]) && deltas.row(symbol.0 as usize).iter().any(|coef| *coef != 0)
    };
    let parities = (data..deltas.rows() as u32).map(Vertex).filter(follows);
    let at_home = dirty.iter().copied().filter(|symbol| view.has(view.block_of(*symbol), &[]));
    let mut expected: Vec<Vertex> = at_home.chain(parities).collect();
    let mut got: Vec<Vertex> = Vec::new();
    for placed in &graphs {
        placed.graph.prove(&deltas)?;
        let strangers: Vec<_> =
            placed.graph.leaves().into_iter().filter(|leaf| !dirty.contains(leaf)).collect();
        if !strangers.is_empty() {
            return Err(wrong("leaves of an update", format!("some of {dirty:?}"), format!("{strangers:?}")));
        }
        let targets = placed.graph.targets();
        let right = |(symbol, at): (&Vertex, &(NodeId, Sink))| {
            let home = view.home(view.block_of(*symbol)).map(|home| (home, Sink::BlockXor));
            home.as_ref() == Ok(at) && (targets.contains(symbol) || dirty.contains(symbol))
        };
        let all = targets.iter().all(|target| placed.persist_at.contains_key(target));
        if !all || !placed.persist_at.iter().all(right) {
            let expected = format!("{targets:?} and dirty ones, each added at its home");
            return Err(wrong("sinks of an update", expected, format!("{:?}", placed.persist_at)));
        }
        got.extend(placed.persist_at.keys());
    }
    got.sort_unstable();
    expected.sort_unstable();
    if got != expected {
        return Err(wrong("blocks of an update", format!("{expected:?}"), format!("{got:?}")));
    }
    Ok(graphs.into_iter().map(|placed| Plan::new(vec![Lane { placed: Proved(placed), share: 1 }])).collect())
}

fn wrong(what: &str, expected: String, got: String) -> PlanError {
    PlanError::Graph(DagError::Invalid { what: what.into(), expected, got })
}
