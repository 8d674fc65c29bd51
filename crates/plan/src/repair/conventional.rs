//! A star (ECPipe, section 2.2): the requestor fetches all that it needs. What the code's own graph combines at
//! helpers is combined there.

use kintsu_dag::{BlockIndex, star};

use super::method::{MethodRow, Stragglers};
use super::own_graph::place_own;
use super::rebuild::{Part, parts};
use super::shape::{Order, Rebuild, Rebuilt};
use crate::{PlanError, RunMode};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "conventional",
    about: "One requestor fetches everything (star)",
    order: Order::Racks,
    shape,
    run_mode: RunMode::Streamed,
    helpers_receive: false,
    without_rates: None,
    plan: None,
    together: false,
    scheduler: None,
    stragglers: Stragglers::Avoid,
};

/// The code's own graph, or a star over its flat map where that is no longer.
fn shape(rebuild: &Rebuild<'_>) -> Result<Rebuilt, PlanError> {
    let view = rebuild.view;
    let graph = rebuild.graph()?;
    // With sub-blocks, counting the terms of the flat form costs more than the flat form can save.
    if view.code.w() == 1 && graph.binds_y().is_empty() {
        let parts = parts(view, &graph)?;
        let flat: usize = parts.iter().map(Part::terms).sum();
        let sparse: usize = graph.joins().values().map(|join| join.children.len()).sum();
        if sparse >= flat {
            return rebuild.over_parts(&parts, star, Some(&|part, _| rebuild.at_requestor(part)));
        }
    }
    let mut helpers: Vec<BlockIndex> = graph.leaves().into_iter().map(|leaf| view.block_of(leaf)).collect();
    helpers.dedup();
    let first = rebuild.goals.first().map(|(block, _)| *block);
    let helpers = first.map_or(Ok(helpers.clone()), |lost| rebuild.route(&helpers, lost))?;
    let lanes = vec![place_own(view, rebuild.goals, graph, rebuild.at_hand)?];
    Ok(Rebuilt { lanes, helpers, path_is_best: None })
}
