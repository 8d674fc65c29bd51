//! Reads by a client, normal and degraded (OpenEC, section 4.2; ECPipe, section 3.2).
//!
//! Available blocks are sent as they are. The others are rebuilt, in one of two ways: by the client, from the
//! blocks that it reads anyway and as few further blocks as the code needs; or on the way to the client, by a tree
//! or a chain.

use kintsu_dag::{BlockIndex, NodeId, Sink};

use crate::program::{carried, proved};
use crate::repair::rebuild_by;
use crate::{Method, Plan, PlanError, StripeView, Topology};

/// Brings the `wanted` blocks to the client. The client itself decodes those that have no home or are in
/// `unavailable`. Every block is fetched only once, so this is the way to read much of a stripe. Blocks without
/// bytes are left out. While a stripe has no parity yet, pass its parity blocks as `unavailable`.
///
/// # Errors
/// `Unrecoverable` when too few blocks are left; `Invalid` for blocks that are not of the stripe.
pub fn read(view: &StripeView, wanted: &[BlockIndex], unavailable: &[BlockIndex]) -> Result<Plan, PlanError> {
    read_by(view, &Topology::default(), wanted, unavailable, Method::Conventional)
}

/// As [`read`], with unavailable blocks rebuilt by `method`. A chain brings the client one block instead of k for
/// each unavailable block, and takes about as long as a normal read, so this is the way to read little of a
/// stripe. The topology orders the path by racks. Where rates are known, the blocks with the fastest way to the
/// client are taken first, and [`Method::Weighted`] takes the path with the fastest slowest link;
/// [`Method::Optimal`] does the same here.
///
/// # Errors
/// As [`read`].
pub fn read_by(
    view: &StripeView,
    topology: &Topology,
    wanted: &[BlockIndex],
    unavailable: &[BlockIndex],
    method: Method,
) -> Result<Plan, PlanError> {
    let n = view.code.n();
    if let Some(block) = wanted.iter().find(|block| usize::from(block.0) >= n) {
        return Err(PlanError::Invalid {
            what: format!("blocks of {}", view.id),
            expected: format!("below b{n}"),
            got: block.to_string(),
        });
    }
    let mut wanted: Vec<_> = wanted.iter().copied().filter(|b| view.block_len(*b) > 0).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let (direct, lost): (Vec<_>, Vec<_>) = wanted.iter().partition(|b| view.has(**b, unavailable));
    if lost.is_empty() {
        let moves = direct.into_iter().map(|b| Ok((b, view.home(b)?, NodeId::CLIENT, Sink::Client)));
        return Ok(carried(view, moves.collect::<Result<Vec<_>, PlanError>>()?));
    }
    let mut others: Vec<_> =
        view.indices().filter(|b| view.has(*b, unavailable) && !direct.contains(b)).collect();
    if !topology.rates.is_empty() {
        let rate = |block: &BlockIndex| {
            let home = view.home(*block).ok();
            home.and_then(|home| topology.rate(home, NodeId::CLIENT)).map_or(u64::MAX, |rate| rate.get())
        };
        others.sort_by_key(|block| std::cmp::Reverse(rate(block)));
    }
    let preference = [direct.clone(), others].concat();
    let goals: Vec<_> = lost.iter().map(|block| (*block, NodeId::CLIENT)).collect();
    let mut lanes = rebuild_by(view, topology, &goals, method, &preference, &direct)?.lanes;
    for placed in &mut lanes {
        for &block in &direct {
            let home = view.home(block)?;
            placed.load_at.extend(view.symbols(block).map(|symbol| (symbol, home)));
        }
        for &block in &wanted {
            let client = (NodeId::CLIENT, Sink::Client);
            placed.persist_at.extend(view.symbols(block).map(|symbol| (symbol, client)));
        }
    }
    Plan { run_mode: method.run_mode(), ..proved(view, lanes, &lost)? }.limited_to(topology)
}
