//! Comparing the blocks of a stripe with each other: one block is computed from all others, on a path through their homes
//! to its own, where it can be compared with what is stored. Each link of the path carries one block.
//!
//! A repair reads as few blocks as the code needs. Here every block takes part with a coefficient that is not zero
//! where the code allows it: the sum of an expression of the block over a base, and of multiples of what each further
//! block adds to the base, which is zero if all are right. So one wrong block always shows, and several do unless
//! their errors cancel in every byte.
//!
//! Codes with sub-blocks are encoded once more instead ([`compare_encoded`]).

use std::collections::BTreeMap;

use kintsu_algebra::{Matrix, add_scaled, pow};
use kintsu_dag::{BlockIndex, NodeId, Placed, Sink, chain};

use super::Binding;
use super::write::parities_at_home;
use crate::program::proved;
use crate::repair::{Order, Rebuild};
use crate::{Plan, PlanError, StripeView, Topology};

/// Choices of multiples that are tried; for MDS codes one of the first few leaves no coefficient zero.
const TRIES: usize = 64;

/// A plan that computes `block` from all other available blocks, to be compared at its home with what is stored there: by
/// [`Sink::Compare`], which compares digests; or, where a store has no digests of its blocks (HDFS), by [`Sink::Block`] and a
/// store that compares the bytes that it is told to write. `None` if the others do not determine the block: there is nothing
/// to compare with. The topology orders the path by racks.
///
/// # Errors
/// `Invalid` for a block that is not of the stripe, and for codes with sub-blocks ([`compare_encoded`]); `Placement` for one without a home.
pub fn compare(
    view: &StripeView,
    topology: &Topology,
    block: BlockIndex,
    sink: Sink,
) -> Result<Option<Plan>, PlanError> {
    view.check("block to compare", &[block])?;
    if view.code.w() != 1 {
        return Err(PlanError::Invalid {
            what: "code of blocks to compare".into(),
            expected: "one without sub-blocks".into(),
            got: view.code.name().to_owned(),
        });
    }
    let home = view.home(block)?;
    let others: Vec<_> = (0..view.code.n())
        .map(|i| BlockIndex(i as u8))
        .filter(|other| *other != block && view.has(*other, &[]))
        .collect();
    let Some(coefs) = coefficients(view, block, &others)? else { return Ok(None) };
    let goals = [(block, home)];
    let path =
        Rebuild { view, topology, goals: &goals, preference: &others, at_hand: &[], order: Order::Racks };
    let route = path.route(&others, block)?;
    let hops: Vec<_> = route.iter().map(|other| view.symbols(*other).collect()).collect();
    let place = |other: &BlockIndex| others.iter().position(|known| known == other).unwrap_or(0);
    let row = Matrix::from_fn(1, route.len(), |_, i| coefs[place(&route[i])]);
    let targets: Vec<_> = view.symbols(block).collect();
    let graph = chain(view.code.n(), 1, &hops, &targets, &row)?;
    let mut load_at = BTreeMap::new();
    for leaf in graph.leaves() {
        load_at.insert(leaf, view.home(view.block_of(leaf))?);
    }
    let persist_at: BTreeMap<_, (NodeId, Sink)> = targets.iter().map(|t| (*t, (home, sink))).collect();
    let placed = Placed { graph, load_at, compute_at: BTreeMap::new(), persist_at };
    proved(view, vec![placed], &[block]).map(Some)
}

/// A plan that computes all parity blocks from all data blocks, as an encoding where the data is, each to be compared at its home with
/// what is stored there. It is for codes with sub-blocks, where one sum over all blocks would cost up to w times the arithmetic of
/// encoding. Whichever blocks are wrong, a parity block differs, unless together they are what the code makes of other data. One node
/// fetches the other data blocks and sends the parity blocks.
///
/// # Errors
/// `Placement` when a stored block has no home; `Graph` when the code's graph fails its proof.
pub fn compare_encoded(view: &StripeView, topology: &Topology) -> Result<Plan, PlanError> {
    parities_at_home(view, topology, Binding::Bound, Sink::Compare)
}

/// Coefficients of the others that give the block, as few of them zero as a few tries find.
fn coefficients(
    view: &StripeView,
    block: BlockIndex,
    others: &[BlockIndex],
) -> Result<Option<Vec<u8>>, PlanError> {
    let (generator, absent) = (view.code.generator(), view.absent());
    // Data blocks without bytes are zero, whatever their coefficients.
    let columns: Vec<_> =
        (0..view.code.k()).filter(|column| !absent.contains(&BlockIndex(*column as u8))).collect();
    let rows = |blocks: &[BlockIndex]| {
        Matrix::from_fn(blocks.len(), columns.len(), |i, j| {
            generator.row(usize::from(blocks[i].0))[columns[j]]
        })
    };
    let wanted = [&[block][..], others].concat();
    let odd = |error: kintsu_algebra::MatrixError| PlanError::Invalid {
        what: "generator".into(),
        expected: "rows of one length".into(),
        got: error.to_string(),
    };
    let all = rows(others);
    if all.express(&rows(&[block])).map_err(odd)?.is_none() {
        return Ok(None);
    }
    // Each other block over the earliest independent ones: those are the base, and the rest adds to it.
    let Some(over_base) = all.express(&rows(&wanted)).map_err(odd)? else { return Ok(None) };
    let adds = |i: &usize| over_base.row(i + 1)[*i] != 1;
    let further: Vec<_> = (0..others.len()).filter(adds).collect();
    let choice = |attempt: usize| {
        let mut coefs = over_base.row(0).to_vec();
        for (turn, i) in further.iter().enumerate() {
            let multiple = pow(2, (attempt + 1) * (turn + 1) + attempt);
            add_scaled(&mut coefs, over_base.row(i + 1), multiple);
            coefs[*i] ^= multiple;
        }
        coefs
    };
    let zeros = |coefs: &Vec<u8>| coefs.iter().filter(|coef| **coef == 0).count();
    Ok((0..TRIES).map(choice).min_by_key(zeros))
}
