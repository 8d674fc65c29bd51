//! Puts the results of experiments into their places in a page of the documentation ([`crate::page`]).

use super::declare::Aim;
use super::report::Report;
use super::simulated::judged;
use super::table;
use crate::error::Result;
use crate::page::{fill, no_place};

/// The name of the place for what [`summary`] says.
const SUMMARY: &str = "summary";

/// The page with the results of these experiments; places of others stay as they are.
///
/// # Errors
/// `Invalid` for a place without an end, and for a result without a place.
pub fn splice(page: &str, reports: &[Report], charts: &str) -> Result<String> {
    let mut placed = Vec::new();
    let filled = fill(page, &mut |name| match reports.iter().find(|report| report.experiment == name) {
        // Aims of a single experiment are no summary of the page.
        None if name == SUMMARY && reports.len() > 1 => {
            Some(summary(reports).lines().map(|line| format!("- {line}\n")).collect())
        }
        None => None,
        Some(report) => {
            placed.push(&report.experiment);
            Some(section(report, charts))
        }
    })?;
    match reports.iter().find(|report| !placed.contains(&&report.experiment)) {
        Some(report) => Err(no_place(&report.experiment)),
        None => Ok(filled),
    }
}

/// The text for the place of one experiment.
fn section(report: &Report, charts: &str) -> String {
    let mut text = String::new();
    if !report.rows.is_empty() {
        text += &format!("{} {}.\n\n", table::differences(report), report.machine);
        text += &format!("![{}]({charts}/{}.svg)\n\n", report.title, report.experiment);
    }
    if !report.claims.is_empty() {
        text += &format!("{}\n", table::claims(report).markdown());
    }
    let reasons = table::reasons(report);
    if !reasons.is_empty() {
        text += &reasons.iter().map(|reason| format!("- {reason}\n")).collect::<String>();
        text += "\n";
    }
    if !report.rows.is_empty() {
        text += &format!("{}\n", table::points(report).markdown());
    }
    if !report.sweeps.is_empty() {
        let before = "Settings that were tried once each before the repetitions, which use the best:";
        text += &format!("{before}\n\n{}\n", table::sweeps(report).markdown());
    }
    text
}

/// A summary of reports: how many aims hold, and which do not; and how far the simulator is from what was measured.
pub fn summary(reports: &[Report]) -> String {
    let aims =
        || reports.iter().flat_map(|r| r.claims.iter().map(move |c| (r, c))).filter(|(_, c)| c.aim.is_some());
    let held = aims().filter(|(_, claim)| claim.holds() == Some(true)).count();
    let mut text = format!("{held} of {} aims hold\n", aims().count());
    for (report, claim) in aims().filter(|(_, claim)| claim.holds() != Some(true)) {
        let got = claim.ours.map_or("nothing".into(), |ours| format!("{:.3}", ours.median));
        let limit = match claim.aim {
            Some(Aim::AtMost(limit)) => format!("at most {limit}"),
            Some(Aim::AtLeast(limit)) => format!("at least {limit}"),
            None => continue,
        };
        let because = if claim.because.is_empty() { String::new() } else { format!(" ({})", claim.because) };
        text += &format!("{}: {}: expected {limit}, got {got}{because}\n", report.experiment, claim.text);
    }
    judged(reports).iter().for_each(|line| text += &format!("{line}\n"));
    for report in reports.iter().filter(|report| report.cut_short) {
        text += &format!("{}: interrupted, so points or repetitions are missing\n", report.experiment);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::declare::{Baseline, Measure, Point};
    use super::super::report::{Judged, Row, Sample};
    use super::super::spread::Spread;
    use super::*;
    use crate::Machine;

    fn report(name: &str) -> Report {
        let sample = |seconds| Sample { seconds, sent_bytes: 3 << 20, ..Sample::default() };
        let row = |series: &str, seconds: f64| Row {
            point: Point::new(series, "1"),
            code: "rs:n=3,k=2".into(),
            block_bytes: 1 << 20,
            slice_bytes: 0,
            samples: vec![sample(seconds), sample(2.0 * seconds)],
        };
        let claim = |aim| Judged {
            text: "a over b".into(),
            unit: "x".into(),
            published: Some(1.088),
            aim: Some(aim),
            ours: Spread::of([0.5]),
            because: "a reason".into(),
        };
        Report {
            experiment: name.into(),
            title: "A title".into(),
            source: "s".into(),
            differs: String::new(),
            measure: Measure::Seconds,
            axis: "x".into(),
            baseline: Some(Baseline::Series("b".into())),
            scale: 0.5,
            quick: false,
            machine: Machine::default(),
            rows: vec![row("a", 1.0), row("b", 2.0)],
            sweeps: Vec::new(),
            cut_short: false,
            claims: vec![claim(Aim::AtMost(1.02)), claim(Aim::AtLeast(0.75))],
            strict: false,
        }
    }

    #[test]
    fn results_replace_what_stands_in_their_place_and_nothing_else() {
        let page =
            "# Page\n<!-- results one -->\nstale\n<!-- end -->\ntext\n<!-- results two --><!-- end -->\n";
        let once = splice(page, &[report("one")], "charts").unwrap();
        assert!(once.starts_with("# Page\n<!-- results one -->\n") && !once.contains("stale"), "{once}");
        assert!(once.ends_with("<!-- end -->\ntext\n<!-- results two --><!-- end -->\n"), "{once}");
        assert!(once.contains("| 1 | a | 1.500 | 1.000 to 2.000 | 0.500 | - | - | 3.00 |"), "{once}");
        assert!(once.contains("| a over b | 1.088 x | 0.500 x | - | <= 1.020 x | holds |"), "{once}");
        assert!(once.contains("\n- MISSED: a over b: a reason.\n"), "{once}");
        assert!(
            once.contains("Rates: 0.5 of the paper's; blocks of 1 MiB; 2 runs. Differs: nothing else."),
            "{once}"
        );
        assert!(once.contains("(charts/one.svg)"));
        assert_eq!(splice(&once, &[report("one")], "charts").unwrap(), once);
        let both = "<!-- results one --><!-- end --><!-- results two --><!-- end --><!-- results summary -->\n<!-- end -->";
        let spliced = splice(both, &[report("one"), report("two")], "charts").unwrap();
        assert!(
            spliced.contains("<!-- results summary -->\n- 2 of 4 aims hold\n- one: a over b: expected"),
            "{spliced}"
        );
        assert!(!splice(both, &[report("one")], "charts").unwrap().contains("aims hold"));
        assert!(splice(page, &[report("three")], "charts").unwrap_err().to_string().contains("three"));
        assert!(splice("<!-- results one -->", &[report("one")], "").is_err());
    }

    #[test]
    fn aims_that_are_missed_are_told() {
        let text = summary(&[report("one")]);
        assert_eq!(text, "1 of 2 aims hold\none: a over b: expected at least 0.75, got 0.500 (a reason)\n");
    }
}
