//! Results of experiments, which whoever serves the page supplies.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use kintsu_analysis::BarChart;
use serde::Serialize;

use super::Answer;
use crate::error::ApiError;
use crate::page::Shared;

/// One experiment.
#[derive(Debug, Serialize)]
pub struct ExperimentShown {
    /// Its name in the catalogue.
    pub name: String,
    /// What is shown.
    pub title: String,
    /// Paper and figure.
    pub source: String,
    /// The differences from the paper's setting.
    pub differs: String,
    /// Every point.
    pub chart: BarChart,
    /// Its claims, then its points.
    pub tables: Vec<TableShown>,
}

/// A table.
#[derive(Debug, Serialize)]
pub struct TableShown {
    /// Its headings.
    pub headings: Vec<String>,
    /// Its rows.
    pub rows: Vec<Vec<String>>,
}

/// Where results come from: a folder, and what reads it. It is read again whenever somebody looks, and may block.
#[derive(Clone)]
pub struct Results {
    /// The folder, for people.
    pub folder: PathBuf,
    /// Reads it; the error is text for people.
    #[allow(clippy::type_complexity, reason = "it is named once")]
    pub read: Arc<dyn Fn() -> Result<Vec<ExperimentShown>, String> + Send + Sync>,
}

/// What is told.
#[derive(Serialize)]
pub struct Told {
    folder: Option<PathBuf>,
    experiments: Vec<ExperimentShown>,
}

pub async fn handle(State(shared): State<Arc<Shared>>) -> Answer<Told> {
    let Some(Results { folder, read }) = shared.results.clone() else {
        return Ok(Json(Told { folder: None, experiments: Vec::new() }));
    };
    let experiments = shared.codes.work(move || read().map_err(ApiError::invalid)).await?;
    Ok(Json(Told { folder: Some(folder), experiments }))
}
