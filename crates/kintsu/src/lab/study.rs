//! `kintsu lab codes`, `kintsu lab lrc`: studies on a cluster in this process.

use std::process::ExitCode;

use kintsu_experiments::Step;
use kintsu_experiments::study::{codes, lrc};

use crate::cli::{LabCodes, LabLrc};
use crate::{output, progress, units};

/// `kintsu lab codes`.
pub async fn codes(args: LabCodes, json: bool) -> anyhow::Result<ExitCode> {
    let LabCodes { codes, file, racks, budget, dir } = args;
    let bar = progress::count("starting");
    let rows =
        codes::run(&codes::Options { codes, file, racks, budget, dir }, &mut |step| show(&bar, step)).await?;
    progress::clear();
    if json {
        output::json(&rows)?
    } else {
        output::line(&codes::table(&rows))?
    }
    Ok(if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `kintsu lab lrc`.
pub async fn lrc(args: LabLrc, json: bool) -> anyhow::Result<ExitCode> {
    let block = args.block;
    let LabLrc { codes, nodes, zones, stripes, victims, method, dir, .. } = args;
    let block_bytes = block.as_u32("--block")?;
    let options = lrc::Options { codes, nodes, zones, stripes, block_bytes, victims, method, dir };
    let bar = progress::bytes("starting");
    let rows = lrc::run(&options, &mut |step| show(&bar, step)).await?;
    progress::clear();
    if json {
        output::json(&rows)?;
    } else {
        output::line(&lrc::table(&rows, &options, &units::human(block.0)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(bar: &indicatif::ProgressBar, step: &Step) {
    bar.set_message(step.what.clone());
    bar.set_length(step.total);
    bar.set_position(step.done);
}
