//! Puts the results of experiments into their places in a page of the documentation ([`crate::page`]), and a summary of all results
//! on the page into the place `summary`. Results that stay on a page although the experiment has another setting or other
//! claims now are marked as older, and no summary counts them.

use std::collections::BTreeSet;

use super::catalog::{Kind, Size, catalog};
use super::declare::Claim;
use super::report::Report;
use super::summary::{Shown, lines};
use super::table::{self, Table};
use crate::error::Result;
use crate::page::{fill, no_place};

/// The name of the place for the summary.
const SUMMARY: &str = "summary";

/// Refuses a page that has no place for one of these experiments.
///
/// # Errors
/// `Invalid` for the first of them, and for a place without an end.
pub fn check_places<'a>(page: &str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut places = BTreeSet::new();
    fill(page, &mut |name, _| {
        places.insert(name.to_owned());
        None
    })?;
    match names.into_iter().find(|name| !places.contains(*name)) {
        Some(name) => Err(no_place(name)),
        None => Ok(()),
    }
}

/// The page with the results of these experiments, and a summary of all that it shows then; places of other experiments stay as
/// they are.
///
/// # Errors
/// `Invalid` for a place without an end, and for a result without a place.
pub fn splice(page: &str, reports: &[Report], charts: &str) -> Result<String> {
    check_places(page, reports.iter().map(|report| report.experiment.as_str()))?;
    let mut shown = Vec::new();
    let filled = fill(page, &mut |name, now| {
        if name == SUMMARY {
            return None;
        }
        let own = reports.iter().find(|report| report.experiment == name);
        let own = own.map(|report| section(report, charts)).or_else(|| marked(name, now));
        shown.push(Shown::section(name, own.as_deref().unwrap_or(now)));
        own
    })?;
    let summary: String = lines(&shown).iter().map(|line| format!("- {line}\n")).collect();
    fill(&filled, &mut |name, _| (name == SUMMARY).then(|| summary.clone()))
}

/// The results in a place, marked as older, if they are and are not marked yet.
fn marked(name: &str, now: &str) -> Option<String> {
    let results = now.trim_start_matches('\n');
    let older = !results.is_empty() && !results.starts_with(table::OLDER) && is_older(name, results);
    older.then(|| format!("{} than its setting or its claims are now.\n\n{results}", table::OLDER))
}

/// Whether the experiment has another setting or other claims now. Of one that is not in the catalogue nothing is known.
fn is_older(name: &str, results: &str) -> bool {
    let Some(entry) = catalog().into_iter().find(|entry| entry.name == name) else { return false };
    let Kind::Measured(make) = entry.kind else { return false };
    let Ok(experiment) = make(Size::default()) else { return true };
    let tables = Table::all_in(results);
    let claims = tables.iter().find(|table| table.column(table::HERE).is_some());
    let shown = claims.map_or(&[][..], |table| &table.rows);
    let same = |(claim, row): (&Claim, &Vec<String>)| {
        let aim = table::aim(claim.aim, claim.value.unit());
        row.first() == Some(&claim.text) && row.get(4) == Some(&aim)
    };
    let all = experiment.claims.len() == shown.len() && experiment.claims.iter().zip(shown).all(same);
    !all || !results.contains(experiment.differs)
}

/// The text for the place of one experiment.
fn section(report: &Report, charts: &str) -> String {
    let mut text = format!("{} {}.\n\n", table::differences(report), table::measured_by(report));
    if !report.rows.is_empty() {
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
        let before = "Settings that were tried in turn before the repetitions, which use the best:";
        text += &format!("{before}\n\n{}\n", table::sweeps(report).markdown());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::catalog::catalog;
    use super::super::declare::{Aim, Baseline, Measure, NO_PAPER, Point};
    use super::super::engine::Settings;
    use super::super::report::{Judged, Row, Sample};
    use super::super::simulated::Trial;
    use super::super::spread::Spread;
    use super::*;
    use crate::Machine;
    use kintsu_dag::StripeId;
    use kintsu_plan::{Layout, LayoutKind};

    /// The groups that the page's commands run.
    const GROUPS: [&str; 2] = ["page", "chameleon"];

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
            differs: "hosts".into(),
            measure: Measure::Seconds,
            axis: "x".into(),
            baseline: Some(Baseline::Series("b".into())),
            scale: 0.5,
            quick: false,
            runs: 3,
            machine: Machine::default(),
            build: "1.2 (abc)".into(),
            minutes: 0.0,
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
        assert!(once.contains("| 1 | a | 1.500 | 1.000 to 2.000 | 0.500 | - | - | - | 3.00 |"), "{once}");
        assert!(once.contains("| a over b | 1.088 x | 0.500 x | - | <= 1.020 x | holds |"), "{once}");
        assert!(once.contains("\n- MISSED: a over b: a reason.\n"), "{once}");
        assert!(
            once.contains("Rates: 0.5 of the paper's; blocks of 1 MiB; 2 runs. Differs: hosts."),
            "{once}"
        );
        let own = Report { source: NO_PAPER.into(), minutes: 1.3, ..report("one") };
        let own = splice(page, &[own], "charts").unwrap();
        assert!(own.contains("Scale 0.5; blocks of 1 MiB; 2 runs in 1.3 minutes. Setting: hosts."), "{own}");
        let computed = Report { rows: Vec::new(), ..report("one") };
        let computed = splice(page, &[computed], "charts").unwrap();
        assert!(computed.contains("Computed. Differs: hosts.") && !computed.contains(".svg"), "{computed}");
        assert!(once.contains("(charts/one.svg)"));
        assert_eq!(splice(&once, &[report("one")], "charts").unwrap(), once);
        assert!(splice(page, &[report("three")], "charts").unwrap_err().to_string().contains("three"));
        assert!(splice("<!-- results one -->", &[report("one")], "").is_err());
    }

    #[test]
    fn the_summary_is_of_all_that_the_page_shows_whatever_was_measured_together() {
        let page = "<!-- results summary -->\nstale\n<!-- end -->\n<!-- results one --><!-- end -->\n\
            <!-- results two --><!-- end -->\n";
        let missed = |name: &str| format!("- {name}: a over b: expected >= 0.750 x, got 0.500 x\n");
        let one = splice(page, &[report("one")], "charts").unwrap();
        let build = "- all of one build: kintsu 1.2 (abc)\n";
        let summary = format!("- 1 of 2 aims hold\n{}{build}- without results: two\n", missed("one"));
        assert!(one.starts_with(&format!("<!-- results summary -->\n{summary}<!-- end -->\n")), "{one}");
        // What is measured later does not take away what was there.
        let both = splice(&one, &[report("two")], "charts").unwrap();
        let summary = format!("- 2 of 4 aims hold\n{}{}{build}", missed("one"), missed("two"));
        assert!(both.starts_with(&format!("<!-- results summary -->\n{summary}<!-- end -->\n")), "{both}");
        assert_eq!(both, splice(page, &[report("one"), report("two")], "charts").unwrap());
    }

    #[test]
    fn the_summary_holds_the_simulator_to_one_limit_for_repairs_and_to_another_one_for_whole_nodes() {
        let layout = Layout { kind: LayoutKind::Striped, block_bytes: 1, cell_bytes: 1, w: 1, data_bytes: 1 };
        let trial =
            Trial { stripe: StripeId(1), layout, homes: Vec::new(), goals: Vec::new(), step_bytes: 1 };
        let mut played = report("one");
        for sample in played.rows.iter_mut().flat_map(|row| &mut row.samples) {
            sample.simulated_seconds = Some(1.08 * sample.seconds);
        }
        // A recovery of a node has no plan of its own.
        played.rows[0].samples.iter_mut().for_each(|sample| sample.trial = Some(trial.clone()));
        let page = "<!-- results summary --><!-- end -->\n<!-- results one --><!-- end -->\n";
        let page = splice(page, &[played], "charts").unwrap();
        let line = |what: &str, far: &str, percent: u32, verdict: &str, series: &str| {
            format!(
                "- the simulator, {what}: {far} at which processors are less than 70% busy are off by more than {percent}%, aim: none, \
                 {verdict}; the most is +8.0%: one, 1, {series}\n"
            )
        };
        assert!(page.contains(&line("one stripe", "1 of 1 points (100.0%)", 5, "MISSED", "a")), "{page}");
        assert!(page.contains(&line("whole nodes", "0 of 1 points (0.0%)", 10, "holds", "b")), "{page}");
    }

    #[test]
    fn results_of_another_setting_or_other_claims_are_marked_and_not_counted() {
        let about = |name: &str| {
            let entry = catalog().into_iter().find(|entry| entry.name == name).unwrap();
            let Kind::Measured(make) = entry.kind else { panic!("not measured") };
            make(Size::default()).unwrap()
        };
        let today = |name: &str| {
            let mut report =
                Report::new(&about(name), Machine::default(), Settings { runs: 3, quick: false });
            report.build = "1.2 (abc)".into();
            report.judge(&about(name).claims);
            report
        };
        let places = |names: &[&str]| -> String {
            let places = names.iter().map(|name| format!("<!-- results {name} -->\n<!-- end -->\n"));
            ["summary"]
                .iter()
                .map(|name| format!("<!-- results {name} -->\n<!-- end -->\n"))
                .chain(places)
                .collect()
        };
        let page = places(&["survive", "less", "smoke"]);
        let whole = splice(&page, &[today("survive"), today("less")], "charts").unwrap();
        assert!(!whole.contains(table::OLDER));
        // Nothing changes if nothing is measured.
        assert_eq!(splice(&whole, &[], "charts").unwrap(), whole);
        for old in [whole.replace("<= 1.100 x", "-"), whole.replacen("17 hosts", "16 hosts", 1)] {
            let marked = splice(&old, &[], "charts").unwrap();
            assert!(marked.contains("<!-- results survive -->\nOLDER than"), "{marked}");
            assert_eq!(marked.matches(table::OLDER).count(), 1);
            assert!(
                marked.contains("- older than their settings or claims, not counted: survive\n"),
                "{marked}"
            );
            assert!(marked.contains("- 0 of 1 aims hold\n"), "{marked}");
            assert_eq!(splice(&marked, &[], "charts").unwrap(), marked);
            assert_eq!(splice(&marked, &[today("survive")], "charts").unwrap(), whole);
        }
    }

    #[test]
    fn the_page_of_the_documentation_has_a_place_for_all_that_its_commands_measure() {
        let page = include_str!("../../../../docs/repair-experiments.md");
        let shown =
            catalog().into_iter().filter(|entry| entry.groups.iter().any(|group| GROUPS.contains(group)));
        check_places(page, shown.map(|entry| entry.name)).unwrap();
        assert!(check_places(page, ["smoke"]).is_err());
    }
}
