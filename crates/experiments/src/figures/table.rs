//! A report as rows of text, for the terminal and for the page of the documentation.

use std::collections::BTreeSet;

use super::catalog::build::bytes;
use super::declare::{Aim, Measure, NO_PAPER};
use super::report::{Judged, Report, Row};
use super::spread::Spread;
use super::sweep::{Swept, Tried};
use crate::workload::Played;

/// Headings that a summary looks for, and the words of verdicts.
pub(super) const AIM: &str = "aim";
pub(super) const HERE: &str = "here";
pub(super) const OFF: &str = "simulated off";
pub(super) const LOAD: &str = "load";
pub(super) const HOLDS: &str = "holds";
pub(super) const MISSED: &str = "MISSED";
pub(super) const UNDECIDED: &str = "undecided";
/// Begins the heading of what was repeated after trials, and the note that it differs from them.
pub(super) const REPEATED: &str = "repeated";
pub(super) const APART: &str = "repetitions off by";
/// Ends what the simulator is off by where it has played a whole node.
pub(super) const OF_NODE: &str = ", node";
/// What stands where there is no value.
pub(super) const NONE: &str = "-";
/// Follows the time that an experiment took.
pub(super) const MINUTES: &str = " minutes";
/// Begins what says which build has measured.
pub(super) const BUILD: &str = "; kintsu ";
/// Begins the note of results that an experiment would not have now.
pub(super) const OLDER: &str = "OLDER";
/// Begins the note of an experiment that was interrupted.
pub(super) const CUT_SHORT: &str = "INTERRUPTED: points";

/// Headings and rows, all of one width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The first row.
    pub headings: Vec<String>,
    /// The others.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// As a table of Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule: Vec<String> = self.headings.iter().map(|_| "---".into()).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}{}{rows}", line(&self.headings), line(&rule))
    }

    /// The tables of a text in Markdown. Rows of another width than their headings are left out.
    pub(super) fn all_in(text: &str) -> Vec<Self> {
        let (mut tables, mut inside): (Vec<Self>, bool) = (Vec::new(), false);
        for line in text.lines() {
            let cells = line.strip_prefix('|').and_then(|line| line.strip_suffix('|'));
            let Some(cells) = cells else {
                inside = false;
                continue;
            };
            let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_owned()).collect();
            match tables.last_mut().filter(|_| inside) {
                None => tables.push(Self { headings: cells, rows: Vec::new() }),
                Some(_) if cells.iter().all(|cell| cell == "---") => {}
                Some(table) if cells.len() == table.headings.len() => table.rows.push(cells),
                Some(_) => {}
            }
            inside = true;
        }
        tables
    }

    /// The number of the column with this heading.
    pub(super) fn column(&self, heading: &str) -> Option<usize> {
        self.headings.iter().position(|known| known == heading)
    }
}

/// The points of a report.
pub fn points(report: &Report) -> Table {
    let axis = report.axis.as_str();
    let mut headings: Vec<String> =
        [axis, "", unit(report), "least to most", "simulated, s", OFF, "links' bound, s", "sent, blocks"]
            .map(Into::into)
            .into();
    headings.extend(["across racks", "processor, s", LOAD].map(String::from));
    if report.baseline.is_some() {
        headings.insert(4, "over baseline".into());
    }
    let loaded = report.rows.iter().flat_map(|row| &row.samples).any(|sample| sample.users.is_some());
    if loaded {
        headings.extend(
            ["idle links' bound, s", "users, s", "operations/s", "P50, ms", "P99, ms", "P99.9, ms"]
                .map(String::from),
        );
    }
    let judged = report.rows.iter().flat_map(|row| &row.samples).any(|sample| sample.windows > 0);
    if judged {
        headings.extend(["windows with a repair", "over the target"].map(String::from));
    }
    let rows = report.rows.iter().map(|row| {
        let mut cells = point(report, row);
        if loaded {
            let idle = row.spread_of(|sample| sample.idle_seconds).filter(|idle| idle.median > 0.0);
            cells.push(idle.map_or(NONE.into(), |idle| number(idle.median)));
            cells.extend(users(row));
        }
        if judged {
            cells.push(row.samples.iter().map(|sample| sample.windows).sum::<u64>().to_string());
            let over = row.samples.iter().map(|sample| sample.over.unwrap_or(0.0) * sample.windows as f64);
            cells.push(format!("{:.0}", over.sum::<f64>()));
        }
        cells
    });
    let rows = rows.collect();
    Table { headings, rows }
}

/// The heading of the values.
fn unit(report: &Report) -> &'static str {
    match report.measure {
        Measure::Seconds => "time, s",
        Measure::Rate => "MiB/s",
    }
}

fn point(report: &Report, row: &Row) -> Vec<String> {
    let value = row.spread(report.measure);
    let median = |of: &dyn Fn(&super::report::Sample) -> f64| row.spread_of(of).map_or(0.0, |s| s.median);
    let blocks =
        |bytes: f64| if bytes > 0.0 { format!("{:.2}", bytes / row.block_bytes as f64) } else { NONE.into() };
    let bound = median(&|sample| sample.bound_seconds);
    let mut cells = vec![
        row.point.x.clone(),
        row.point.series.clone(),
        value.map_or(NONE.into(), |s| number(s.median)),
        value.map_or(NONE.into(), |s| format!("{} to {}", number(s.min), number(s.max))),
    ];
    if report.baseline.is_some() {
        cells.push(report.over_baseline(row).map_or(NONE.into(), |s| format!("{:.3}", s.median)));
    }
    cells.push(row.simulated().map_or(NONE.into(), |s| number(s.median)));
    let of = if row.samples.iter().any(|sample| sample.trial.is_some()) { "" } else { OF_NODE };
    cells.push(row.simulated_above().map_or(NONE.into(), |percent| format!("{percent:+.1}%{of}")));
    cells.push(if bound > 0.0 { number(bound) } else { NONE.into() });
    cells.push(blocks(median(&|sample| sample.sent_bytes as f64)));
    cells.push(blocks(median(&|sample| sample.cross_rack_bytes as f64)));
    cells.push(number(median(&|sample| sample.cpu_seconds)));
    let stolen = match 100.0 * median(&|sample| sample.stolen) {
        percent if percent >= 1.0 => format!(", {percent:.0}% stolen"),
        _ => String::new(),
    };
    cells.push(format!("{:.0}%{stolen}", 100.0 * median(&|sample| sample.load)));
    cells
}

/// What users measured, the medians over the repetitions.
fn users(row: &Row) -> [String; 5] {
    type Of = fn(&Played) -> f64;
    let all: [Of; 5] = [|u| u.seconds, Played::rate, |u| u.all.p50_ms, |u| u.all.p99_ms, |u| u.all.p999_ms];
    all.map(|of| {
        let values = row.samples.iter().filter_map(|sample| sample.users.as_ref()).map(of);
        Spread::of(values).map_or(NONE.into(), |spread| number(spread.median))
    })
}

/// The claims of a report.
pub fn claims(report: &Report) -> Table {
    let headings = ["", "paper", HERE, "least to most", AIM, ""].map(String::from).into();
    let rows = report.claims.iter().map(claim).collect();
    Table { headings, rows }
}

/// A value with its unit.
fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "%" => format!("{value:.1}%"),
        "x" => format!("{value:.3} x"),
        unit => format!("{value:.2} {unit}"),
    }
}

/// An aim for a value of this unit.
pub(super) fn aim(aim: Option<Aim>, unit: &str) -> String {
    match aim {
        Some(Aim::AtMost(limit)) => format!("<= {}", with_unit(limit, unit)),
        Some(Aim::AtLeast(limit)) => format!(">= {}", with_unit(limit, unit)),
        Some(Aim::AlwaysAtLeast(limit)) => format!("always >= {}", with_unit(limit, unit)),
        None => NONE.into(),
    }
}

fn claim(claim: &Judged) -> Vec<String> {
    let unit = |value: f64| with_unit(value, &claim.unit);
    let spread = |s: Spread| format!("{} to {}", unit(s.min), unit(s.max));
    let verdict = match claim.holds() {
        Some(true) => HOLDS,
        Some(false) => MISSED,
        None if claim.aim.is_some() && claim.ours.is_some() => UNDECIDED,
        None => "",
    };
    vec![
        claim.text.clone(),
        claim.published.map_or(NONE.into(), unit),
        claim.ours.map_or("not measured".into(), |s| unit(s.median)),
        claim.ours.filter(|s| s.runs > 1).map_or(NONE.into(), spread),
        aim(claim.aim, &claim.unit),
        verdict.into(),
    ]
}

/// The machine and the build that measured.
pub fn measured_by(report: &Report) -> String {
    match report.build.as_str() {
        "" => report.machine.to_string(),
        build => format!("{}{BUILD}{build}", report.machine),
    }
}

/// How the experiment was made and where it differs from the paper's, in a sentence or two.
pub fn differences(report: &Report) -> String {
    let differs = match report.source.as_str() {
        NO_PAPER => format!("Setting: {}.", report.differs),
        _ => format!("Differs: {}.", report.differs),
    };
    if report.rows.is_empty() {
        return format!("Computed. {differs}");
    }
    let runs = || report.rows.iter().map(|row| row.samples.len());
    let (fewest, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
    let runs = match (fewest, most) {
        (1, 1) => "1 run".to_owned(),
        (fewest, most) if fewest == most => format!("{most} runs"),
        (fewest, most) => format!("{fewest} to {most} runs"),
    };
    let took =
        if report.minutes > 0.0 { format!(" in {:.1}{MINUTES}", report.minutes) } else { String::new() };
    let blocks: BTreeSet<u64> = report.rows.iter().map(|row| row.block_bytes).collect();
    let blocks: Vec<String> = blocks.into_iter().map(bytes).collect();
    let rates = match report.source.as_str() {
        NO_PAPER => format!("Scale {}", report.scale),
        _ => format!("Rates: {} of the paper's", report.scale),
    };
    let quick = if report.quick { " Quick: blocks of 16 MiB at most." } else { "" };
    let cut =
        if report.cut_short { format!(" {CUT_SHORT} or repetitions are missing.") } else { String::new() };
    format!("{rates}; blocks of {}; {runs}{took}. {differs}{quick}{cut}", blocks.join(", "))
}

/// Why values differ from the paper's and aims are missed, as far as the experiment says; claims with the same reason together.
pub fn reasons(report: &Report) -> Vec<String> {
    let mut reasons: Vec<(bool, &str, Vec<&str>)> = Vec::new();
    for claim in &report.claims {
        let missed = claim.holds() == Some(false);
        let why = match claim.because.as_str() {
            "" if missed => "the reason is not known",
            because => because,
        };
        // An aim that holds needs no reason, if it is not beside a paper's value.
        if why.is_empty() || (claim.holds() == Some(true) && claim.published.is_none()) {
            continue;
        }
        match reasons.iter_mut().find(|(of, known, _)| (*of, *known) == (missed, why)) {
            Some((.., claims)) => claims.push(&claim.text),
            None => reasons.push((missed, why, vec![claim.text.as_str()])),
        }
    }
    let line = |(missed, why, claims): (bool, &str, Vec<&str>)| {
        let verdict = if missed { format!("{MISSED}: ") } else { String::new() };
        format!("{verdict}{}: {why}.", claims.join("; "))
    };
    reasons.into_iter().map(line).collect()
}

/// By how many percent repetitions may differ from the trials of their settings before that is marked.
const APART_PERCENT: f64 = 20.0;

/// The settings that were tried, each with its trials, and the best of each series also with the repetitions at the same point.
pub fn sweeps(report: &Report) -> Table {
    let rows = report.sweeps.iter().flat_map(|swept| {
        swept.tried.iter().enumerate().filter_map(move |(at, tried)| {
            let best = at == swept.best;
            // What was tried in another experiment is shown there.
            (best || swept.elsewhere.is_none()).then(|| tried_row(report, swept, tried, best))
        })
    });
    let unit = unit(report);
    let headings = [report.axis.clone(), String::new(), "settings".into(), format!("trials, {unit}")];
    let headings = headings.into_iter().chain([format!("{REPEATED}, {unit}"), String::new()]);
    Table { headings: headings.collect(), rows: rows.collect() }
}

fn tried_row(report: &Report, swept: &Swept, tried: &Tried, best: bool) -> Vec<String> {
    let mut trials: Vec<String> = tried.values.iter().map(|value| number(*value)).collect();
    trials.extend(tried.error.as_ref().map(|_| "failed".into()));
    let repeated = report.row(&swept.point).and_then(|row| row.spread(report.measure));
    let repeated = repeated.filter(|_| best && swept.elsewhere.is_none());
    let (mut shown, mut verdict) = (String::new(), if best { "best".to_owned() } else { String::new() });
    if let Some(spread) = repeated {
        shown = format!("{} ({} to {})", number(spread.median), number(spread.min), number(spread.max));
        let percent = tried.median().map_or(0.0, |trial| 100.0 * (spread.median / trial - 1.0));
        if percent.abs() > APART_PERCENT {
            verdict = format!("best; {APART} {percent:+.0}%");
        }
    }
    if let Some(elsewhere) = &swept.elsewhere {
        verdict = format!("best, tried in {elsewhere}");
    }
    let (x, series) = (swept.point.x.clone(), swept.point.series.clone());
    vec![x, series, tried.settings.clone(), trials.join(", "), shown, verdict]
}

/// A number with three or four significant digits.
fn number(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.1}"),
        v if v >= 10.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::declare::{Experiment, Point};
    use super::super::engine::Settings;
    use super::super::report::Sample;
    use super::*;
    use crate::Machine;

    #[test]
    fn trials_stand_beside_the_repetitions_and_those_that_are_far_apart_are_marked() {
        let about = Experiment::computed("e", "t");
        let tried = |settings: &str, values: &[f64], error: Option<&str>| Tried {
            settings: settings.into(),
            values: values.to_vec(),
            error: error.map(Into::into),
        };
        let swept = |series: &str, elsewhere: Option<&str>| Swept {
            point: Point::new(series, "1"),
            elsewhere: elsewhere.map(Into::into),
            tried: vec![tried("one", &[1.0], Some("gone")), tried("two", &[2.0, 4.0], None)],
            best: 1,
        };
        let row = |series: &str, seconds: &[f64]| Row {
            point: Point::new(series, "1"),
            code: "rs:n=3,k=2".into(),
            block_bytes: 1,
            slice_bytes: 0,
            samples: seconds.iter().map(|&seconds| Sample { seconds, ..Sample::default() }).collect(),
        };
        let report = Report {
            axis: "x".into(),
            rows: vec![row("a", &[3.5]), row("b", &[1.5, 2.0, 9.0]), row("c", &[9.0])],
            sweeps: vec![swept("a", None), swept("b", None), swept("c", Some("other"))],
            ..Report::new(&about, Machine::default(), Settings { runs: 3, quick: false })
        };
        let table = sweeps(&report);
        assert_eq!(table.headings, ["x", "", "settings", "trials, time, s", "repeated, time, s", ""]);
        let rows: Vec<String> = table.rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            rows,
            [
                "1|a|one|1.000, failed||",
                "1|a|two|2.000, 4.000|3.500 (3.500 to 3.500)|best",
                "1|b|one|1.000, failed||",
                "1|b|two|2.000, 4.000|2.000 (1.500 to 9.000)|best; repetitions off by -33%",
                "1|c|two|2.000, 4.000||best, tried in other",
            ]
        );
    }

    #[test]
    fn a_reason_stands_once_and_only_where_one_is_needed() {
        let claim = |text: &str, ours: f64, published: Option<f64>, because: &str| Judged {
            text: text.into(),
            unit: "x".into(),
            published,
            aim: Some(Aim::AtLeast(0.9)),
            ours: Spread::of([ours]),
            because: because.into(),
        };
        let about = Experiment::computed("e", "t");
        let claims = vec![
            claim("a", 0.8, None, "links are idle at the end"),
            claim("b", 0.95, None, "links are idle at the end"),
            claim("c", 0.7, None, "links are idle at the end"),
            claim("d", 0.7, None, ""),
            claim("e", 0.95, Some(1.5), "our baseline is faster"),
            claim("f", 0.95, Some(1.5), ""),
        ];
        let report =
            Report { claims, ..Report::new(&about, Machine::default(), Settings { runs: 3, quick: false }) };
        assert_eq!(
            reasons(&report),
            [
                "MISSED: a; c: links are idle at the end.",
                "MISSED: d: the reason is not known.",
                "e: our baseline is faster.",
            ]
        );
    }
}
