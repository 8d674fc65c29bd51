//! Objects, as `kintsu ls` lists them, and one with its stripes, as `kintsu stat` shows it.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use kintsu_client::{Damage, LocatedBlock, NodeSeen};
use kintsu_dag::StripeId;
use kintsu_plan::Layout;
use kintsu_wire::message::{List, ListPage, ObjectInfo, StripeInfo};
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::page::Shared;

/// Names in an answer at most, and stripes.
const MOST_NAMES: u32 = 200;
const MOST_STRIPES: u64 = 64;

#[derive(Deserialize)]
pub struct AskList {
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    #[serde(default)]
    delimiter: String,
}

pub async fn list(State(shared): State<Arc<Shared>>, Query(ask): Query<AskList>) -> Answer<ListPage> {
    let AskList { prefix, after, delimiter } = ask;
    let after = after.filter(|after| !after.is_empty());
    Ok(Json(shared.client.list_page(List { prefix, after, limit: MOST_NAMES, delimiter }).await?))
}

#[derive(Deserialize)]
pub struct AskObject {
    name: String,
    #[serde(default)]
    first: u64,
    #[serde(default = "all")]
    limit: u64,
}

fn all() -> u64 {
    MOST_STRIPES
}

/// An object, and some of its stripes.
#[derive(Serialize)]
pub struct ObjectShown {
    object: ObjectInfo,
    /// The position of the first stripe.
    first: u64,
    stripes: Vec<StripeShown>,
    /// Of these stripes.
    damage: Damage,
}

/// A stripe.
#[derive(Serialize)]
struct StripeShown {
    id: StripeId,
    code: String,
    /// Blocks, and data blocks among them.
    n: usize,
    k: Option<usize>,
    layout: Layout,
    /// Its first byte in the object.
    offset: u64,
    encoded: bool,
    blocks: Vec<LocatedBlock>,
}

pub async fn one(State(shared): State<Arc<Shared>>, Query(ask): Query<AskObject>) -> Answer<ObjectShown> {
    let limit = ask.limit.clamp(1, MOST_STRIPES);
    let (view, nodes) =
        tokio::try_join!(shared.client.stripes(&ask.name, ask.first, limit), shared.client.nodes())?;
    let nodes: Vec<NodeSeen> = nodes.nodes.iter().map(NodeSeen::from).collect();
    let mut damage = Damage::default();
    let k = |stripe: &StripeInfo| match &view.definition {
        Some(definition) => Some(definition.k),
        None => kintsu_code::parse(&stripe.code).ok().map(|code| code.k()),
    };
    let mut stripes: Vec<StripeShown> = Vec::with_capacity(view.stripes.len());
    for stripe in &view.stripes {
        damage.add(stripe, view.definition.as_ref(), &nodes);
        // All stripes of an object have one code; parsing proves it.
        let k = match stripes.last() {
            Some(last) if last.code == stripe.code => last.k,
            _ => k(stripe),
        };
        stripes.push(StripeShown {
            id: stripe.id,
            code: stripe.code.clone(),
            n: stripe.blocks.len(),
            k,
            layout: stripe.layout,
            offset: stripe.offset,
            encoded: stripe.encoded,
            blocks: LocatedBlock::all(stripe, &nodes).collect(),
        });
    }
    Ok(Json(ObjectShown { object: view.object, first: ask.first, stripes, damage }))
}
