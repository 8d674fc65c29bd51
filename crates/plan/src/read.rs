//! Reads by a client, normal and degraded (OpenEC, section 4.2).
//!
//! Blocks that can be read come as they are; the others are computed by the client from blocks
//! that it reads anyway, as far as the code allows, and as few more as it needs.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, Sink, star};

use crate::rebuild::{Part, decode, parts, proved};
use crate::{Plan, PlanError, StripeView};

/// Brings the `wanted` blocks to the client, those without a home or in `unavailable` by decoding. Every
/// block is fetched once, whatever it serves. Blocks without bytes are left out. As long as a
/// stripe has no parity yet, its parity blocks are `unavailable`.
///
/// # Errors
/// `Unrecoverable` when too few blocks are left; `Invalid` for blocks that are not of the stripe.
pub fn read(view: &StripeView, wanted: &[BlockIndex], unavailable: &[BlockIndex]) -> Result<Plan, PlanError> {
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
    let others = view.indices().filter(|b| view.has(*b, unavailable) && !direct.contains(b));
    let preference: Vec<_> = direct.iter().copied().chain(others).collect();
    let graph = if lost.is_empty() {
        Ecdag::new(n, view.code.w())
    } else {
        cheapest(view, decode(view, &preference, &lost)?)?
    };
    let leaves = graph.leaves().into_iter().chain(direct.iter().flat_map(|b| view.symbols(*b)));
    let load_at = leaves.map(|leaf| Ok((leaf, view.home(view.block_of(leaf))?)));
    let persisted = wanted.iter().flat_map(|block| view.symbols(*block));
    let placed = Placed {
        load_at: load_at.collect::<Result<_, PlanError>>()?,
        compute_at: graph.joins().keys().map(|vertex| (*vertex, NodeId::CLIENT)).collect(),
        persist_at: persisted
            .map(|symbol| (symbol, (NodeId::CLIENT, Sink::Client)))
            .collect::<BTreeMap<_, _>>(),
        graph,
    };
    proved(view, placed, &lost)
}

/// The graph itself, or its flat form with all targets computed together, whichever costs fewer
/// multiply-adds.
fn cheapest(view: &StripeView, mut graph: Ecdag) -> Result<Ecdag, PlanError> {
    let parts = parts(view, &graph)?;
    let sparse: usize = graph.joins().values().map(|join| join.children.len()).sum();
    if parts.iter().map(Part::terms).sum::<usize>() > sparse {
        graph.auto_bind_x()?;
        return Ok(graph);
    }
    let stars = parts.iter().map(|part| {
        let (hops, coefs) = part.hops(view, &part.helpers);
        star(graph.n(), graph.w(), &hops, &part.targets, &coefs)
    });
    Ok(crate::rebuild::union(stars.collect::<Result<_, _>>()?)?)
}
