//! What a replay found, for people and for programs.

use std::collections::BTreeSet;

use kintsu_plan::update::Scheme;
use serde::Serialize;

use super::account::Traffic;
use crate::figures::Table;
use crate::plain;

/// One trace, all schemes.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The name of the trace.
    pub trace: String,
    /// The code.
    pub code: String,
    /// How many racks.
    pub racks: usize,
    /// Whether blocks are in them by turns.
    pub by_turns: bool,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Dirty stripes before a commit (u_s).
    pub dirty_stripes: usize,
    /// Write requests.
    pub writes: u64,
    /// Blocks that they touched.
    pub updates: u64,
    /// Bytes that they wrote.
    pub bytes: u64,
    /// Stripes touched by a thousand writes (the paper's u).
    pub stripes_per_thousand: f64,
    /// The schemes.
    pub rows: Vec<Row>,
}

/// One scheme.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The scheme.
    pub scheme: Scheme,
    /// If whole blocks are sent, as in the paper.
    pub blocks: Traffic,
    /// If the changed ranges are sent.
    pub ranges: Traffic,
    /// What nodes send ([`super::on_hosts`]).
    pub on_nodes: Traffic,
}

impl Row {
    /// As the scheme is defined: by ranges for `optimal`, by blocks for the paper's.
    pub fn traffic(&self) -> Traffic {
        if self.scheme.row().ranges { self.ranges } else { self.blocks }
    }
}

impl Report {
    /// The row of a scheme.
    pub fn row(&self, scheme: Scheme) -> Option<&Row> {
        self.rows.iter().find(|row| row.scheme == scheme)
    }

    /// How much less a scheme sends than another, as a share; `None` if one of them was not replayed.
    pub fn saving(&self, scheme: Scheme, over: Scheme, of: impl Fn(&Row) -> Traffic) -> Option<f64> {
        let (ours, theirs) = (of(self.row(scheme)?).total(), of(self.row(over)?).total());
        Some(saving(ours, theirs))
    }
}

fn saving(ours: u64, theirs: u64) -> f64 {
    if theirs == 0 { 0.0 } else { 1.0 - ours as f64 / theirs as f64 }
}

/// What the paper prints for a code and racks: CAU's average saving over 20 volumes (section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Published {
    /// Over the baseline.
    pub over_baseline: f64,
    /// Over PARIX.
    pub over_parix: f64,
}

impl Published {
    fn of(code: &str, racks: usize) -> Option<Self> {
        match (code, racks) {
            ("rs:n=9,k=6", 3) => Some(Self { over_baseline: 0.484, over_parix: 0.514 }),
            ("rs:n=16,k=12", 4) => Some(Self { over_baseline: 0.609, over_parix: 0.634 }),
            _ => None,
        }
    }
}

/// Averages over traces, each trace with the same weight.
#[derive(Debug, Clone, Serialize)]
pub struct Averages {
    /// Dirty stripes before a commit (u_s) in all of them.
    pub dirty_stripes: Option<usize>,
    /// CAU's saving over the baseline.
    pub cau_over_baseline: Option<f64>,
    /// CAU's saving over PARIX.
    pub cau_over_parix: Option<f64>,
    /// The paper's.
    pub published: Option<Published>,
    /// How much `optimal` is below CAU as the paper has it, in whole blocks.
    pub optimal_below_cau: Option<f64>,
    /// The same if `optimal` sends whole blocks too.
    pub optimal_in_blocks_below_cau: Option<f64>,
    /// The same if CAU sends ranges too.
    pub optimal_below_cau_in_ranges: Option<f64>,
}

/// The averages of reports of one code.
pub fn averages(reports: &[Report]) -> Averages {
    let mean = |of: &dyn Fn(&Report) -> Option<f64>| -> Option<f64> {
        let values = reports.iter().map(of).collect::<Option<Vec<f64>>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let first = reports.first();
    Averages {
        dirty_stripes: first.map(|report| report.dirty_stripes),
        cau_over_baseline: mean(&|report| report.saving(Scheme::Cau, Scheme::Baseline, |row| row.blocks)),
        cau_over_parix: mean(&|report| report.saving(Scheme::Cau, Scheme::Parix, |row| row.blocks)),
        published: first.and_then(|report| Published::of(&report.code, report.racks)),
        optimal_below_cau: mean(&|report| report.saving(Scheme::Optimal, Scheme::Cau, Row::traffic)),
        optimal_in_blocks_below_cau: mean(&|report| {
            report.saving(Scheme::Optimal, Scheme::Cau, |row| row.blocks)
        }),
        optimal_below_cau_in_ranges: mean(&|report| {
            report.saving(Scheme::Optimal, Scheme::Cau, |row| row.ranges)
        }),
    }
}

/// The reports of one code as text.
pub fn table(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        text += &one(report);
        text.push('\n');
    }
    let averages = averages(reports);
    let paper = |of: fn(Published) -> f64| {
        averages.published.map_or(String::new(), |p| format!(" (paper, 20 volumes: {:.1}%)", 100.0 * of(p)))
    };
    text += &format!("average over {} traces:\n", reports.len());
    text += &format!(
        "  cau saves {} over baseline{}, {} over parix{}\n",
        percent(averages.cau_over_baseline),
        paper(|p| p.over_baseline),
        percent(averages.cau_over_parix),
        paper(|p| p.over_parix),
    );
    text += &format!(
        "  optimal is {} below cau; {} if it sends whole blocks too; {} if both send changed ranges",
        percent(averages.optimal_below_cau),
        percent(averages.optimal_in_blocks_below_cau),
        percent(averages.optimal_below_cau_in_ranges),
    );
    text + &orders(reports).map_or_else(String::new, |orders| format!("\n  {orders}"))
}

/// Of how many traces a scheme sends no more than another one, where that is to hold of all; `None` if they were not replayed.
fn orders(reports: &[Report]) -> Option<String> {
    let pairs = [
        (Scheme::CauNogroup, Scheme::DataDelta),
        (Scheme::CauNogroup, Scheme::ParityDelta),
        (Scheme::Optimal, Scheme::Cau),
    ];
    let of = |(scheme, other): (Scheme, Scheme)| {
        let saved = reports.iter().map(|report| report.saving(scheme, other, Row::traffic));
        let saved: Vec<f64> = saved.collect::<Option<_>>()?;
        let holds = saved.iter().filter(|saved| **saved >= 0.0).count();
        Some(format!("{scheme} sends no more than {other} for {holds} of {} traces", saved.len()))
    };
    let known: Vec<String> = pairs.into_iter().filter_map(of).collect();
    (!known.is_empty()).then(|| known.join("; "))
}

fn one(report: &Report) -> String {
    let mut table = plain::table([
        "SCHEME",
        "APPEND",
        "COMMIT",
        "LEAST",
        "GROUPING",
        "TOTAL",
        "BASELINE",
        "PARIX",
        "IN RANGES",
        "ON NODES",
        "COMMITS",
    ]);
    let of = |scheme, bytes: u64| {
        let row = report.row(scheme);
        row.map_or("-".to_owned(), |row| format!("{:+.1}%", -100.0 * saving(bytes, row.blocks.total())))
    };
    for row in &report.rows {
        let blocks = &row.blocks;
        table.add_row([
            row.scheme.to_string(),
            mib(blocks.append),
            mib(blocks.commit),
            if waits_for_no_commit(row) { "-".to_owned() } else { mib(blocks.commit_bound) },
            mib(blocks.grouping),
            mib(blocks.total()),
            of(Scheme::Baseline, blocks.total()),
            of(Scheme::Parix, blocks.total()),
            mib(row.ranges.total()),
            mib(row.on_nodes.total()),
            blocks.commits.to_string(),
        ]);
    }
    format!(
        "{}: {} writes, {} block updates, {} MiB written, {:.1} stripes in 1000 writes\n\
         {} on {} racks{}, blocks of {} KiB, u_s = {}; MiB across racks\n{table}\n",
        report.trace,
        report.writes,
        report.updates,
        mib(report.bytes),
        report.stripes_per_thousand,
        report.code,
        report.racks,
        by_turns(report),
        report.block_bytes >> 10,
        report.dirty_stripes,
    )
}

fn by_turns(report: &Report) -> &'static str {
    if report.by_turns { " by turns" } else { "" }
}

/// Whether parity nodes have all that they need before a commit.
fn waits_for_no_commit(row: &Row) -> bool {
    row.scheme.row().at_once || row.scheme.row().old_first
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", whole_mib(bytes))
}

/// The reports of one code as a Markdown table, for `docs/updates.md`.
pub fn markdown(reports: &[Report]) -> String {
    let schemes: Vec<Scheme> =
        reports.first().map_or_else(Vec::new, |report| report.rows.iter().map(|row| row.scheme).collect());
    let names: Vec<String> = schemes.iter().map(ToString::to_string).collect();
    let mut text = String::new();
    if let Some(first) = reports.first() {
        text += &format!(
            "{} on {} racks{}, blocks of {} KiB, u_s = {}; MiB across racks, whole blocks / changed ranges:\n\n",
            first.code,
            first.racks,
            by_turns(first),
            first.block_bytes >> 10,
            first.dirty_stripes
        );
    }
    text += &format!(
        "| trace | writes | {} | cau over baseline, parix | optimal below cau |\n",
        names.join(" | ")
    );
    text += &format!("|---|---|{}---|---|\n", "---|".repeat(schemes.len()));
    for report in reports {
        let cells: Vec<String> = report
            .rows
            .iter()
            .map(|row| format!("{:.0} / {:.0}", whole_mib(row.blocks.total()), whole_mib(row.ranges.total())))
            .collect();
        let saved = |scheme, over, of: fn(&Row) -> Traffic| percent(report.saving(scheme, over, of));
        text += &format!(
            "| {} | {} | {} | {}, {} | {} |\n",
            report.trace,
            report.writes,
            cells.join(" | "),
            saved(Scheme::Cau, Scheme::Baseline, |row| row.blocks),
            saved(Scheme::Cau, Scheme::Parix, |row| row.blocks),
            saved(Scheme::Optimal, Scheme::Cau, Row::traffic),
        );
    }
    let averages = averages(reports);
    text += &format!(
        "| average | | {}{}, {} | {} |\n",
        "| ".repeat(schemes.len()),
        percent(averages.cau_over_baseline),
        percent(averages.cau_over_parix),
        percent(averages.optimal_below_cau),
    );
    if let Some(published) = averages.published {
        text += &format!(
            "| paper, 20 volumes | | {}{}, {} | |\n",
            "| ".repeat(schemes.len()),
            percent(Some(published.over_baseline)),
            percent(Some(published.over_parix)),
        );
    }
    text += &format!(
        "\nIf `optimal` sends whole blocks too it is {} below `cau` on average; if `cau` sends ranges too, {}.\n",
        percent(averages.optimal_in_blocks_below_cau),
        percent(averages.optimal_below_cau_in_ranges),
    );
    text + &orders(reports).map_or_else(String::new, |orders| format!("\n{orders}.\n"))
}

/// How much data grouping saves of the traffic of CAU (CAU, Fig. 10), for each trace and u_s; `None` unless there are several u_s
/// with both schemes.
pub fn grouping(reports: &[Report]) -> Option<Table> {
    let us: BTreeSet<usize> = reports.iter().map(|report| report.dirty_stripes).collect();
    let both =
        |report: &Report| report.row(Scheme::Cau).is_some() && report.row(Scheme::CauNogroup).is_some();
    if us.len() < 2 || !reports.iter().all(both) {
        return None;
    }
    let head =
        std::iter::once("data grouping saves".to_owned()).chain(us.iter().map(|us| format!("u_s = {us}")));
    let mut rows: Vec<Vec<String>> = Vec::new();
    for report in reports.iter().filter(|report| report.dirty_stripes == reports[0].dirty_stripes) {
        let saved = us.iter().map(|us| {
            let same = |other: &&Report| other.trace == report.trace && other.dirty_stripes == *us;
            let other = reports.iter().find(same);
            percent(other.and_then(|r| r.saving(Scheme::Cau, Scheme::CauNogroup, |row| row.blocks)))
        });
        rows.push(std::iter::once(report.trace.clone()).chain(saved).collect());
    }
    Some(Table { headings: head.collect(), rows })
}

fn whole_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share))
}
