//! `kintsu page`, and the page of processes that run a coordinator.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use kintsu_experiments::figures;
use kintsu_web::{DEFAULT_PAGE, ExperimentShown, Page, PageError, Results, TableShown};
use serde_json::json;

use super::interrupted;
use super::serve::ready;
use crate::cli::{Endpoint, OwnPage, PageArgs};
use crate::lab::reports_in;

/// Shows the page until Ctrl-C or SIGTERM.
pub async fn run(args: PageArgs, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let client = endpoint.client().await?;
    let results = args.results.map(results);
    let page = Page::start(client, args.listen, results).await.map_err(|error| match error.is_taken() {
        true => anyhow::anyhow!("{error}; choose another one with --listen (port 0: any free one)"),
        false => error.into(),
    })?;
    let text = format!("page of the cluster at {}: {}\nCtrl-C ends it.", endpoint.coordinator, page.url());
    ready(json, json!({"page": page.url(), "coordinator": endpoint.coordinator}), &text)?;
    let code = interrupted().await?;
    page.shutdown().await;
    Ok(code)
}

/// The page of a coordinator in this process. `None` with `--no-page`; if the default address is taken, which standard error
/// tells; or with TLS, because a coordinator's certificate is not allowed the calls of an operator.
///
/// # Errors
/// An address that was asked for cannot be listened on, or there is TLS.
pub async fn own(args: OwnPage, endpoint: &Endpoint) -> anyhow::Result<Option<Page>> {
    if args.no_page || (endpoint.tls.is_some() && args.page.is_none()) {
        return Ok(None);
    }
    anyhow::ensure!(
        endpoint.tls.is_none(),
        "--page: expected a cluster without TLS, got --tls; `kintsu page --tls DIR` with an operator's certificate shows it"
    );
    let client = endpoint.client().await?;
    let started = Page::start(client, args.page.unwrap_or(DEFAULT_PAGE), None).await;
    unless_taken(started, "page", args.page.is_some())
}

/// A listener that was started. `None`, which standard error tells, if its usual address cannot be listened on; `option` is the
/// one that chooses another address.
///
/// # Errors
/// An address that was asked for cannot be listened on.
pub fn unless_taken<T>(
    started: Result<T, PageError>,
    option: &str,
    asked: bool,
) -> anyhow::Result<Option<T>> {
    match started {
        Ok(started) => Ok(Some(started)),
        Err(error) if asked => Err(error.into()),
        Err(error) => {
            eprintln!(
                "kintsu: no {option}: {error} (--{option} ADDR chooses another address, --no-{option} does without)"
            );
            Ok(None)
        }
    }
}

/// What shows the results of experiments in a folder.
fn results(folder: PathBuf) -> Results {
    let from = folder.clone();
    let read = move || {
        let reports = reports_in(&from).map_err(|error| format!("{error:#}"))?;
        Ok(reports.iter().map(shown).collect())
    };
    Results { folder, read: Arc::new(read) }
}

fn shown(report: &figures::Report) -> ExperimentShown {
    let table = |table: figures::Table| TableShown { headings: table.headings, rows: table.rows };
    ExperimentShown {
        name: report.experiment.clone(),
        title: report.title.clone(),
        source: report.source.clone(),
        differs: report.differs.clone(),
        chart: figures::bar_chart(report),
        tables: vec![table(figures::claims(report)), table(figures::points(report))],
    }
}
