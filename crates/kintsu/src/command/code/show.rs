//! `kintsu code show`: one code as data.

use kintsu_code::{Code, CodeReport};
use kintsu_dag::BlockIndex;

use crate::output;

/// Wider generators are shown only with `--generator`.
const SHOWN_COLUMNS: usize = 40;

/// Runs `kintsu code show`.
pub fn run(code: &dyn Code, generator: bool, json: bool) -> anyhow::Result<()> {
    let report = kintsu_code::report(code);
    if json {
        return output::json(&report);
    }
    summary(&report)?;
    let costs = kintsu_analysis::costs(code)?;
    output::line(&format!(
        "one lost block is repaired from {} blocks read, on average; a lost data block from {}",
        costs.arc.decimal(),
        costs.degraded.decimal()
    ))?;
    for group in &report.groups {
        output::line(&format!("local repair group: {}", names(group)))?;
    }
    if report.k * report.w > SHOWN_COLUMNS && !generator {
        let (rows, columns) = (report.n * report.w, report.k * report.w);
        return output::line(&format!("generator: {rows} x {columns}, shown with --generator"));
    }
    matrix(&report)
}

fn summary(report: &CodeReport) -> anyhow::Result<()> {
    output::line(&format!(
        "{}: {} blocks, {} of data, {} sub-block(s) a block, over {}",
        report.name, report.n, report.k, report.w, report.field
    ))?;
    output::line(&format!(
        "any {} lost blocks can be repaired (distance {}); stored bytes per data byte {:.3}",
        report.distance - 1,
        report.distance,
        report.n as f64 / report.k as f64
    ))
}

fn matrix(report: &CodeReport) -> anyhow::Result<()> {
    output::line("generator, one row for each symbol:")?;
    for (i, row) in report.generator.iter().enumerate() {
        let cells: Vec<&str> = (0..row.len() / 2).map(|j| &row[2 * j..2 * j + 2]).collect();
        output::line(&format!("  b{:<3} {}", i / report.w, cells.join(" ")))?;
    }
    Ok(())
}

/// Block names in one line.
pub fn names(blocks: &[BlockIndex]) -> String {
    blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}
