//! How a repair would go, as `kintsu explain` says: of a stripe that is stored, or of a code on paper.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, Drawing};
use kintsu_plan::{Explanation, Method, StripeView, Topology, even_cluster, stripe_on_paper};
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::error::ApiError;
use crate::page::Shared;

/// Graphs with more edges are not drawn: nobody could read them, and their text is long.
const MOST_EDGES: usize = 1500;
/// Size of a block on paper.
const PAPER_BYTES: u64 = 64 << 20;

/// An explanation, with the graph drawn.
#[derive(Serialize)]
pub struct Explained {
    #[serde(flatten)]
    explanation: Explanation,
    /// The placed graph of the first lane; `None` if it is too large to read.
    drawing: Option<Drawing>,
    /// Lanes: graphs among which the slices are divided.
    lanes: usize,
}

#[derive(Deserialize)]
pub struct AskStored {
    name: String,
    #[serde(default)]
    stripe: u64,
    lost: String,
    #[serde(default)]
    method: String,
}

pub async fn stored(State(shared): State<Arc<Shared>>, Query(ask): Query<AskStored>) -> Answer<Explained> {
    let (lost, method) = (blocks(&ask.lost)?, method(&ask.method)?);
    let (view, topology) = shared.client.stripe_view(&ask.name, ask.stripe).await?;
    shared.codes.work(move || explained(&view, &topology, &lost, method)).await.map(Json)
}

#[derive(Deserialize)]
pub struct AskPaper {
    code: String,
    lost: String,
    #[serde(default)]
    method: String,
    /// Racks; 0 for as few as the code bears the loss of one of.
    #[serde(default)]
    racks: usize,
}

pub async fn on_paper(State(shared): State<Arc<Shared>>, Query(ask): Query<AskPaper>) -> Answer<Explained> {
    let (lost, method) = (blocks(&ask.lost)?, method(&ask.method)?);
    let code = shared.codes.resolve(&ask.code, &shared.client).await?;
    let work = move || {
        let (view, topology) = paper(&code, ask.racks)?;
        explained(&view, &topology, &lost, method)
    };
    shared.codes.work(work).await.map(Json)
}

/// A full stripe of a code on nodes that are all alike: one for each block, and one to spare for each that may be lost.
fn paper(code: &Arc<dyn Code>, racks: usize) -> Result<(StripeView, Topology), ApiError> {
    let nodes = 2 * code.n() - code.k();
    let least = code.n().div_ceil(code.distance().saturating_sub(1).max(1));
    let (from, to) = if racks == 0 { (least.max(2), nodes) } else { (racks, racks) };
    if racks > nodes {
        return Err(ApiError::invalid(format!(
            "racks: expected at most {nodes}, one for each node, got {racks}"
        )));
    }
    let mut last = None;
    for racks in from..=to.max(from) {
        let topology = even_cluster(nodes, racks);
        match stripe_on_paper(code, &topology, PAPER_BYTES) {
            Ok(view) => return Ok((view, topology)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| ApiError::invalid("racks: expected at least 1"), ApiError::from))
}

fn explained(
    view: &StripeView,
    topology: &Topology,
    lost: &[BlockIndex],
    method: Method,
) -> Result<Explained, ApiError> {
    let mut explanation = kintsu_plan::explain(view, topology, lost, method, 0)?;
    let lanes = explanation.plan().lanes.len();
    let edges: usize = explanation
        .plan()
        .lanes
        .iter()
        .map(|lane| lane.placed.graph.joins().values().map(|join| join.children.len()).sum::<usize>())
        .sum();
    let small = edges <= MOST_EDGES;
    let drawing = if small { Some(explanation.drawing()?) } else { None };
    if !small {
        explanation.graph = format!("{edges} edges: too many to show");
        explanation.nodes.clear();
    }
    Ok(Explained { explanation, drawing, lanes })
}

/// `2,5`: indices of blocks.
fn blocks(text: &str) -> Result<Vec<BlockIndex>, ApiError> {
    let wrong = || ApiError::invalid(format!("lost: expected indices of blocks such as 2,5, got {text:?}"));
    text.split(',').map(|index| index.trim().parse().map(BlockIndex).map_err(|_| wrong())).collect()
}

fn method(name: &str) -> Result<Method, ApiError> {
    match name {
        "" => Ok(Method::default()),
        name => name.parse().map_err(|error: kintsu_plan::PlanError| ApiError::from(error)),
    }
}
