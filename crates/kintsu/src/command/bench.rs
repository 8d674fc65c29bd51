//! `kintsu bench ...`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_experiments::ExperimentError;
use kintsu_experiments::bench::{all, ecdag, folder, io, kernel, meta, plan, slices, small};

use super::input::{sink, stream};
use crate::cli::BenchCommand;
use crate::{output, progress};

/// Runs `kintsu bench ...`.
pub async fn run(command: BenchCommand, json: bool) -> anyhow::Result<ExitCode> {
    let bar = progress::steps("measuring");
    let mut show = |what: &str| bar.set_message(what.to_owned());
    match command {
        BenchCommand::All { stripes, dir, page } => {
            // Before minutes of work.
            page.iter().try_for_each(|page| in_page(page, all::check(&read(page)?)))?;
            let options = all::Options { stripes, dir, executor, stream, sink, build: crate::cli::VERSION };
            let report = tokio::select! {
                report = all::run(&options, &mut show) => report?,
                code = super::interrupted() => return code,
            };
            progress::clear();
            if json {
                output::json(&report)?
            } else {
                output::line(&report.table())?
            }
            page.iter().try_for_each(|page| write(page, &report))?;
        }
        BenchCommand::Kernel { seconds, backend } => {
            let backend = backend.as_deref().map(kernel::backend).transpose()?;
            let options = kernel::Options { seconds_per_case: seconds, backend, ..Default::default() };
            let kernel = kernel::run(&options, &mut show)?;
            let ecdag = ecdag::run(&ecdag::Options::default(), &mut show)?;
            progress::clear();
            if json {
                output::json(&serde_json::json!({"kernel": kernel, "ecdag": ecdag}))?;
            } else {
                output::line(&format!("{}\n{}", kernel.table(), ecdag.table()))?;
            }
        }
        BenchCommand::Plan => {
            let report = plan::run(&plan::Options::default(), &mut show)?;
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Meta { stripes, dir } => {
            let folder = folder(&dir)?;
            let options = meta::Options { stripes, dir: folder.path().to_owned() };
            let report = tokio::select! {
                report = meta::run(&options, &mut show) => report?,
                code = super::interrupted() => return code,
            };
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Slices { block, helpers, slices, runs, dir } => {
            let slices = slices.iter().map(|slice| slice.as_u32("--slices")).collect::<Result<_, _>>()?;
            let folder = folder(&dir)?;
            let (dir, helpers) = (folder.path().to_owned(), helpers as usize);
            let options = slices::Options { block_bytes: block.0, helpers, slices, runs, dir, executor };
            let report = tokio::select! {
                report = slices::run(&options, &mut show) => report?,
                code = super::interrupted() => return code,
            };
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Small { size, code, clients, objects, dir } => {
            let folder = folder(&dir)?;
            let options =
                small::Options { size: size.0, code, clients, objects, dir: folder.path().to_owned() };
            let report = tokio::select! {
                report = small::run(&options, &mut show) => report?,
                code = super::interrupted() => return code,
            };
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Load(_) => anyhow::bail!("expected a cluster for bench load, got none"),
        BenchCommand::Io { size, code, dir, runs } => {
            let folder = folder(&dir)?;
            let dir = folder.path().to_owned();
            let options = io::Options { size: size.0, code, dir, runs, stream, sink };
            let report = tokio::select! {
                report = io::run(&options, &mut show) => report?,
                code = super::interrupted() => return code,
            };
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn read(page: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(page).with_context(|| format!("--page: cannot read {}", page.display()))
}

/// Puts the table into its place in a page.
fn write(page: &Path, report: &all::Report) -> anyhow::Result<()> {
    let text = in_page(page, report.fill(&read(page)?))?;
    std::fs::write(page, text).with_context(|| format!("--page: cannot write {}", page.display()))
}

fn in_page<T>(page: &Path, done: Result<T, ExperimentError>) -> anyhow::Result<T> {
    done.with_context(|| format!("--page: {}", page.display()))
}

/// The executor of a process of this program.
fn executor() -> Result<tokio::runtime::Runtime, ExperimentError> {
    crate::runtime().map_err(|error| ExperimentError::Failed(output::causes(&error)))
}
