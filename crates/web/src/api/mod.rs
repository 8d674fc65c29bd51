//! The facts as JSON: the values that commands print with `--json`, asked for in the same way.

mod codes;
mod experiments;
mod explain;
mod objects;
mod overview;
mod repairs;

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::routing::get;
use kintsu_plan::Method;
use kintsu_wire::message::{Health, VolumeInfo};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::live;
use crate::page::Shared;

pub use codes::Codes;
pub use experiments::{ExperimentShown, Results, TableShown};
pub use overview::{Overview, overview};

type Answer<T> = Result<Json<T>, ApiError>;

/// Everything below `/api`.
pub fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/live", get(live::handle))
        .route("/cluster", get(cluster))
        .route("/health", get(health))
        .route("/objects", get(objects::list))
        .route("/object", get(objects::one))
        .route("/explain", get(explain::stored))
        .route("/volumes", get(volumes))
        .route("/methods", get(methods))
        .route("/experiments", get(experiments::handle))
        .route("/codes", get(codes::list))
        .route("/code", get(codes::one))
        .route("/code/explain", get(explain::on_paper))
}

async fn cluster(State(shared): State<Arc<Shared>>) -> Answer<Overview> {
    Ok(Json(overview(&shared.client).await?))
}

#[derive(Deserialize)]
struct Stripes {
    #[serde(default)]
    stripes: u32,
}

async fn health(State(shared): State<Arc<Shared>>, Query(ask): Query<Stripes>) -> Answer<Health> {
    Ok(Json(shared.client.health(ask.stripes.min(1000)).await?))
}

async fn volumes(State(shared): State<Arc<Shared>>) -> Answer<Vec<VolumeInfo>> {
    Ok(Json(shared.client.volumes().await?))
}

/// A way to repair.
#[derive(Serialize)]
struct MethodShown {
    name: &'static str,
    about: &'static str,
}

async fn methods() -> Json<Vec<MethodShown>> {
    Json(Method::ALL.map(|method| MethodShown { name: method.name(), about: method.row().about }).into())
}
