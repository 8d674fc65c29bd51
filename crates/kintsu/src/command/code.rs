//! `kintsu code ...`.

use std::process::ExitCode;

use crate::cli::CodeCommand;
use crate::output;

/// Runs `kintsu code ...`.
pub fn run(command: CodeCommand, json: bool) -> anyhow::Result<ExitCode> {
    let CodeCommand::Show { code } = command;
    let report = kintsu_code::report(&*kintsu_code::parse(&code)?);
    if json {
        output::json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!(
        "{}: {} blocks, {} of data, {} sub-block(s) a block, over {}",
        report.name, report.n, report.k, report.w, report.field
    ))?;
    output::line(&format!(
        "any {} losses are repaired (distance {}); stored bytes per data byte {:.3}",
        report.distance - 1,
        report.distance,
        report.n as f64 / report.k as f64
    ))?;
    for group in &report.groups {
        let group: Vec<String> = group.iter().map(ToString::to_string).collect();
        output::line(&format!("local repair group: {}", group.join(" ")))?;
    }
    output::line("generator, a row a symbol:")?;
    for (i, row) in report.generator.iter().enumerate() {
        let cells: Vec<&str> = (0..row.len() / 2).map(|j| &row[2 * j..2 * j + 2]).collect();
        output::line(&format!("  b{:<3} {}", i / report.w, cells.join(" ")))?;
    }
    Ok(ExitCode::SUCCESS)
}
