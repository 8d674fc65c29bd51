//! `kintsu bench ...`.

use std::process::ExitCode;

use crate::bench::{ecdag, io, kernel, meta, plan, slices, small};
use crate::cli::BenchCommand;
use crate::{output, progress};

/// Runs `kintsu bench ...`.
pub async fn run(command: BenchCommand, json: bool) -> anyhow::Result<ExitCode> {
    let bar = progress::steps("measuring");
    let mut show = |what: &str| bar.set_message(what.to_owned());
    match command {
        BenchCommand::Kernel { seconds } => {
            let options = kernel::Options { seconds_per_case: seconds, ..Default::default() };
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
            let report = meta::run(&meta::Options { stripes, dir }, &mut show).await?;
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Slices { block, helpers, slices, runs, dir } => {
            let slices = slices.iter().map(|slice| slice.as_u32("--slices")).collect::<Result<_, _>>()?;
            let options =
                slices::Options { block_bytes: block.0, helpers: helpers as usize, slices, runs, dir };
            let report = slices::run(&options, &mut show).await?;
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Small { size, code, clients, objects, dir } => {
            let options = small::Options { size: size.0, code, clients, objects, dir };
            let report = small::run(&options, &mut show).await?;
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
        BenchCommand::Io { size, code, dir, runs } => {
            let report = io::run(&io::Options { size: size.0, code, dir, runs }, &mut show).await?;
            progress::clear();
            if json { output::json(&report)? } else { output::line(&report.table())? }
        }
    }
    Ok(ExitCode::SUCCESS)
}
