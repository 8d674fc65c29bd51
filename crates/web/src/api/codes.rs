//! Codes: the families, those that are registered with the cluster, and one with its generator, groups and costs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{Query, State};
use kintsu_analysis::{Costs, costs};
use kintsu_client::Client;
use kintsu_code::{Code, CodeReport, FamilyReport, USER};
use kintsu_wire::message::CodeInfo;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::Answer;
use crate::error::ApiError;
use crate::page::Shared;

/// Codes that are kept, because a proof may take a second.
const KEPT: usize = 32;
/// A generator with more coefficients is not sent: nobody could read it.
const MOST_COEFFICIENTS: usize = 20_000;
/// Costs are counted on graphs; those of codes with more symbols take long.
const MOST_SYMBOLS: usize = 2048;
/// Longest name.
const MOST_NAME: usize = 200;

/// What is known of codes, and the right to compute: one at a time, so that a page does not take all processors.
pub struct Codes {
    known: Mutex<VecDeque<(String, Arc<dyn Code>)>>,
    turn: Arc<Semaphore>,
}

impl Default for Codes {
    fn default() -> Self {
        Self { known: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }
}

impl Codes {
    /// The code of a name: built in, or registered with the cluster.
    ///
    /// # Errors
    /// There is no such code.
    pub async fn resolve(&self, name: &str, client: &Client) -> Result<Arc<dyn Code>, ApiError> {
        if name.len() > MOST_NAME {
            return Err(ApiError::invalid(format!("code: expected a name of at most {MOST_NAME} bytes")));
        }
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, code)) = known().iter().find(|(known, _)| known == name) {
            return Ok(code.clone());
        }
        let definition = match name.starts_with(USER) {
            true => Some(client.find_code(name).await?),
            false => None,
        };
        // A registered code may be removed, and its name given to another.
        let keep = definition.is_none();
        let asked = name.to_owned();
        let code = self
            .work(move || match definition {
                Some(definition) => Ok(definition.prove()?),
                None => Ok(kintsu_code::parse(&asked)?),
            })
            .await?;
        if keep {
            let mut known = known();
            known.truncate(KEPT - 1);
            known.push_front((name.to_owned(), code.clone()));
        }
        Ok(code)
    }

    /// Computes when it is this one's turn, away from the asynchronous threads.
    ///
    /// # Errors
    /// Those of the work.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turn.clone().acquire_owned().await;
        let done = kintsu_wire::ambient::blocking(move || {
            let _turn = turn;
            work()
        });
        done.await.unwrap_or_else(|_| Err(ApiError::busy("expected a result, got a panic; see the log")))
    }
}

/// All codes to choose from.
#[derive(Serialize)]
pub struct CodesShown {
    families: Vec<FamilyReport>,
    registered: Vec<CodeInfo>,
}

pub async fn list(State(shared): State<Arc<Shared>>) -> Answer<CodesShown> {
    let registered = shared.client.codes().await.unwrap_or_default();
    let families = shared.codes.work(|| Ok(kintsu_code::family_reports()?)).await?;
    Ok(Json(CodesShown { families, registered }))
}

#[derive(Deserialize)]
pub struct AskCode {
    name: String,
}

/// A code.
#[derive(Serialize)]
pub struct CodeShown {
    /// Without its generator if that is too large to read.
    #[serde(flatten)]
    report: CodeReport,
    /// Rows and columns of the generator.
    rows: usize,
    columns: usize,
    /// What repairs cost; `None` for codes with very many sub-blocks.
    costs: Option<Costs>,
}

pub async fn one(State(shared): State<Arc<Shared>>, Query(ask): Query<AskCode>) -> Answer<CodeShown> {
    let code = shared.codes.resolve(&ask.name, &shared.client).await?;
    let work = move || {
        let mut report = kintsu_code::report(&*code);
        let (rows, columns) = (code.n() * code.w(), code.k() * code.w());
        if rows * columns > MOST_COEFFICIENTS {
            report.generator.clear();
        }
        let costs = if rows <= MOST_SYMBOLS { Some(costs(&*code)?) } else { None };
        Ok(CodeShown { report, rows, columns, costs })
    };
    shared.codes.work(work).await.map(Json)
}
