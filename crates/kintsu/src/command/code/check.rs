//! `kintsu code check`: what was proved about a code.

use kintsu_analysis::{CheckReport, LossCount, RepairCost};
use kintsu_code::Code;

use crate::{output, progress};

/// Shown instead of a count that needs more than 64 bits.
const LARGE: &str = "over 2^64";

/// Runs `kintsu code check`.
pub fn run(code: &dyn Code, max_patterns: u64, json: bool) -> anyhow::Result<()> {
    let bar = progress::steps("proving graphs and trying losses");
    let report = kintsu_analysis::check(code, max_patterns);
    bar.finish_and_clear();
    let report = report?;
    if json {
        return output::json(&report);
    }
    claims(&report)?;
    losses(&report)?;
    repairs(&report)
}

fn claims(report: &CheckReport) -> anyhow::Result<()> {
    let costs = &report.costs;
    let exact = match report.exact {
        Some(true) => "exactly",
        Some(false) => "at least; every loss of this many blocks can be decoded",
        None => "at least",
    };
    output::line(&format!(
        "{}: {} blocks, {} of data, {} sub-block(s) a block",
        report.name, report.n, report.k, report.w
    ))?;
    output::line(&format!(
        "proved: distance {} ({exact}), the graph that encodes ({} sums of {} products) and {} that repair a block",
        report.distance,
        report.encode.joins,
        report.encode.edges,
        report.proved_graphs - 1
    ))?;
    output::line(&format!(
        "overhead {}, ARC {}, NRC {}, degraded cost {}, rd-ratio {}",
        costs.overhead.decimal(),
        costs.arc.decimal(),
        costs.nrc.decimal(),
        costs.degraded.decimal(),
        costs.rd_ratio.decimal()
    ))?;
    output::line(&format!(
        "locality: the repair of a block reads from {} others at most, that of a data block from {}",
        report.locality.all, report.locality.data
    ))
}

fn losses(report: &CheckReport) -> anyhow::Result<()> {
    let mut table = output::table(["LOST", "PATTERNS", "DECODED", "SHARE"]);
    let number = |value: Option<u64>, missing: &str| value.map_or(missing.into(), |v| v.to_string());
    for count in &report.losses {
        let LossCount { losses, patterns, recoverable, .. } = count;
        let share = count.fraction.map_or("not counted".into(), |fraction| share(count, fraction));
        let uncounted = if count.fraction.is_some() { LARGE } else { "?" };
        let [patterns, recoverable] = [number(*patterns, LARGE), number(*recoverable, uncounted)];
        table.add_row([losses.to_string(), patterns, recoverable, share]);
    }
    output::line(&format!("\nlosses that are decoded\n{table}"))?;
    if let Some(why) = &report.not_counted {
        output::line(&format!("{why}; --max-patterns sets the limit"))?;
    }
    Ok(())
}

/// The share in percent; "all" only for exactly all, not for 99.9999%.
fn share(count: &LossCount, fraction: f64) -> String {
    if fraction == 1.0 && count.recoverable == count.patterns {
        return "all".into();
    }
    // Rounded down, so that less than all never shows as 100%.
    format!("{:.3}%", (fraction * 100_000.0).floor() / 1000.0)
}

fn repairs(report: &CheckReport) -> anyhow::Result<()> {
    let mut table = output::table(["BLOCKS", "READ", "MOVED", "FROM"]);
    let alike = |a: &RepairCost, b: &RepairCost| {
        (a.read, a.moved, a.helpers, usize::from(a.block.0) < report.k)
            == (b.read, b.moved, b.helpers, usize::from(b.block.0) < report.k)
    };
    for run in report.costs.per_block.chunk_by(alike) {
        let (first, last) = (&run[0], &run[run.len() - 1]);
        let blocks = match run.len() {
            1 => first.block.to_string(),
            _ => format!("{} to {}", first.block, last.block),
        };
        table.add_row([blocks, first.read.decimal(), first.moved.decimal(), first.helpers.to_string()]);
    }
    output::line(&format!("\nrepair of one block: blocks read, blocks moved, and from how many\n{table}"))
}
