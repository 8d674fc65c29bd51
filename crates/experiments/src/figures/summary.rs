//! What is shown of several experiments, in a few lines: how many aims hold, which do not, and how far the simulator is off.
//!
//! It is made from tables as they are shown, so that the summary of a page is of all results on the page, whenever and
//! by whichever command they were measured.

use std::collections::BTreeMap;

use super::report::Report;
use super::table::{self, Table};

/// The simulator is compared with what was measured where processors were busy for less than this part of the time, in
/// percent: elsewhere the experiment measures processors.
const MOST_LOAD: f64 = 70.0;
/// What the simulator plays, and by how many percent it may be off.
const PLAYED: [(&str, f64); 2] = [("one stripe", 5.0), ("whole nodes", 10.0)];

/// The results of an experiment as they are shown.
#[derive(Debug)]
pub struct Shown {
    name: String,
    tables: Vec<Table>,
    cut_short: bool,
    /// Whether the experiment has another setting or other claims now.
    older: bool,
    /// The build that measured, if that is said.
    build: Option<String>,
    /// How long it took to measure, if that is said.
    minutes: Option<f64>,
}

/// A point that the simulator has played.
struct Played {
    /// The number of its kind in [`PLAYED`].
    kind: usize,
    /// By how many percent the simulator is above what was measured.
    off: f64,
    experiment: String,
    x: String,
    series: String,
}

impl Played {
    /// What it may have in common with others.
    fn traits(&self) -> [String; 3] {
        let side = if self.off > 0.0 { "slow" } else { "fast" };
        [self.series.clone(), format!("in {}", self.experiment), format!("simulated too {side}")]
    }
}

impl Shown {
    /// A section of a page.
    pub fn section(name: &str, text: &str) -> Self {
        let older = text.trim_start().starts_with(table::OLDER);
        let line = text
            .lines()
            .find(|line| line.contains(table::BUILD))
            .and_then(|line| line.split_once(table::BUILD));
        let build = line.map(|(_, build)| build.trim_end_matches('.').to_owned());
        let minutes =
            text.split_once(table::MINUTES).and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok());
        let cut_short = text.contains(table::CUT_SHORT);
        Self { name: name.into(), tables: Table::all_in(text), cut_short, older, build, minutes }
    }

    fn report(report: &Report) -> Self {
        Self {
            name: report.experiment.clone(),
            tables: vec![table::claims(report), table::points(report), table::sweeps(report)],
            cut_short: report.cut_short,
            older: false,
            build: Some(report.build.clone()).filter(|build| !build.is_empty()),
            minutes: (report.minutes > 0.0).then_some(report.minutes),
        }
    }

    /// Whether each aim holds, and what is to be said if not.
    fn aims(&self) -> Vec<(bool, String)> {
        let mut aims = Vec::new();
        for table in &self.tables {
            let (Some(aim), Some(here)) = (table.column(table::AIM), table.column(table::HERE)) else {
                continue;
            };
            for row in &table.rows {
                let ([text, .., verdict], Some(aim), Some(here)) = (&row[..], row.get(aim), row.get(here))
                else {
                    continue;
                };
                if aim != table::NONE {
                    let undecided = if verdict == table::UNDECIDED { ", undecided" } else { "" };
                    let missed = format!("{}: {text}: expected {aim}, got {here}{undecided}", self.name);
                    aims.push((verdict == table::HOLDS, missed));
                }
            }
        }
        aims
    }

    /// Series whose repetitions are far from the trials of their settings.
    fn apart(&self) -> Vec<String> {
        let sweeps = self
            .tables
            .iter()
            .filter(|table| table.headings.iter().any(|of| of.starts_with(table::REPEATED)));
        let marked = sweeps.flat_map(|table| &table.rows).filter_map(|row| match &row[..] {
            [x, series, settings, .., verdict] => {
                let (_, off) = verdict.split_once(table::APART)?;
                Some(format!(
                    "{}: {series}, {x}: {} {} from the trials of its settings ({settings})",
                    self.name,
                    table::APART,
                    off.trim()
                ))
            }
            _ => None,
        });
        marked.collect()
    }

    /// The points that the simulator has played where processors were not the limit.
    fn played(&self) -> Vec<Played> {
        let mut played = Vec::new();
        for table in &self.tables {
            let (Some(off), Some(load)) = (table.column(table::OFF), table.column(table::LOAD)) else {
                continue;
            };
            for row in &table.rows {
                let percent = |column: usize| row.get(column)?.split_once('%')?.0.parse::<f64>().ok();
                let kind = usize::from(row.get(off).is_some_and(|off| off.ends_with(table::OF_NODE)));
                if let (Some(off), Some(load)) = (percent(off), percent(load))
                    && load < MOST_LOAD
                    && let [x, series, ..] = &row[..]
                {
                    let (x, series) = (x.clone(), series.clone());
                    played.push(Played { kind, off, experiment: self.name.clone(), x, series });
                }
            }
        }
        played
    }
}

/// A summary of what is shown, line by line.
pub fn lines(shown: &[Shown]) -> Vec<String> {
    let all: Vec<&Shown> = shown.iter().filter(|shown| !shown.older).collect();
    let all = &all[..];
    let simulator = simulator(all);
    let aims: Vec<(bool, String)> = all.iter().flat_map(|shown| shown.aims()).collect();
    let held = aims.iter().chain(&simulator).filter(|(holds, _)| *holds).count();
    let mut lines = vec![format!("{held} of {} aims hold", aims.len() + simulator.len())];
    lines.extend(aims.into_iter().filter(|(holds, _)| !holds).map(|(_, missed)| missed));
    lines.extend(simulator.into_iter().map(|(_, line)| line));
    lines.extend(all.iter().flat_map(|shown| shown.apart()));
    for shown in all.iter().filter(|shown| shown.cut_short) {
        lines.push(format!("{}: interrupted, so points or repetitions are missing", shown.name));
    }
    lines.extend(builds(all));
    let minutes: f64 = all.iter().filter_map(|shown| shown.minutes).sum();
    if minutes > 0.0 {
        lines.push(format!("measured in {minutes:.0} minutes"));
    }
    let older: Vec<&str> =
        shown.iter().filter(|shown| shown.older).map(|shown| shown.name.as_str()).collect();
    if !older.is_empty() {
        lines.push(format!("older than their settings or claims, not counted: {}", older.join(", ")));
    }
    let without: Vec<&str> =
        all.iter().filter(|shown| shown.tables.is_empty()).map(|shown| shown.name.as_str()).collect();
    if !without.is_empty() {
        lines.push(format!("without results: {}", without.join(", ")));
    }
    lines
}

/// Which builds have measured what is shown.
fn builds(all: &[&Shown]) -> Option<String> {
    let mut builds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for shown in all.iter().filter(|shown| !shown.tables.is_empty()) {
        builds.entry(shown.build.as_deref().unwrap_or("of an unknown build")).or_default().push(&shown.name);
    }
    let each: Vec<String> =
        builds.iter().map(|(build, names)| format!("kintsu {build}: {}", names.join(", "))).collect();
    match builds.len() {
        0 => None,
        1 => builds.keys().next().map(|build| format!("all of one build: kintsu {build}")),
        count => Some(format!("NOT of one build but of {count}: {}", each.join("; "))),
    }
}

/// A summary of reports.
pub fn summary(reports: &[Report]) -> String {
    let shown: Vec<Shown> = reports.iter().map(Shown::report).collect();
    lines(&shown).iter().map(|line| format!("{line}\n")).collect()
}

/// For each kind of what the simulator plays, whether it is near enough at all points, and how far it is off.
fn simulator(all: &[&Shown]) -> Vec<(bool, String)> {
    let played: Vec<Played> = all.iter().flat_map(|shown| shown.played()).collect();
    let of = |(kind, (what, most)): (usize, (&str, f64))| {
        let points = || played.iter().filter(|point| point.kind == kind);
        let worst = points().max_by(|a, b| a.off.abs().total_cmp(&b.off.abs()))?;
        let far: Vec<&Played> = points().filter(|point| point.off.abs() > most).collect();
        let verdict = if far.is_empty() { table::HOLDS } else { table::MISSED };
        let (count, too_far) = (points().count(), far.len());
        let share = 100.0 * too_far as f64 / count as f64;
        let line = format!(
            "the simulator, {what}: {too_far} of {count} points ({share:.1}%) at which processors are less than {MOST_LOAD:.0}% busy are \
             off by more than {most:.0}%, aim: none, {verdict}; the most is {:+.1}%: {}, {}, {}{}",
            worst.off,
            worst.experiment,
            worst.x,
            worst.series,
            in_common(&far)
        );
        Some((far.is_empty(), line))
    };
    PLAYED.into_iter().enumerate().filter_map(of).collect()
}

/// What most of several points have in common.
fn in_common(points: &[&Played]) -> String {
    let all = points.len();
    let mut said = String::new();
    for kind in 0..3 {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        points.iter().for_each(|point| *counts.entry(point.traits()[kind].clone()).or_default() += 1);
        let most = counts.into_iter().find(|(_, count)| all > 1 && 2 * count > all);
        said += &most.map_or(String::new(), |(of, count)| match count == all {
            true => format!("; all {all} are {of}"),
            false => format!("; {count} of the {all} are {of}"),
        });
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIMS: &str = "\
        |  | paper | here | least to most | aim |  |\n\
        | --- | --- | --- | --- | --- | --- |\n\
        | a over b | 1.088 x | 0.500 x | - | <= 1.020 x | holds |\n\
        | c over d | - | 0.500 x | - | >= 0.750 x | MISSED |\n\
        | e over f | - | not measured | - | >= 0.750 x |  |\n\
        | g over h | - | 2.000 x | - | - |  |\n";

    fn points(rows: &[(&str, &str, &str)]) -> String {
        let rows = rows.iter().map(|(x, off, load)| format!("| {x} | chain | 1.0 | {off} | {load} |\n"));
        format!(
            "| x |  | time, s | simulated off | load |\n| --- | --- | --- | --- | --- |\n{}",
            rows.collect::<String>()
        )
    }

    #[test]
    fn aims_are_counted_in_what_is_shown_and_those_that_are_missed_are_told() {
        let one = Shown::section(
            "one",
            &format!(
                "Rates: 1; 2 runs in 1.6 minutes. A machine; kintsu 1.2 (abc).\n\n{CLAIMS}\n- a reason.\n"
            ),
        );
        let two = Shown::section("two", &format!("{} or repetitions.\n\n{CLAIMS}", table::CUT_SHORT));
        let none = Shown::section("three", "\n");
        assert_eq!(
            lines(&[one, two, none]),
            [
                "2 of 6 aims hold",
                "one: c over d: expected >= 0.750 x, got 0.500 x",
                "one: e over f: expected >= 0.750 x, got not measured",
                "two: c over d: expected >= 0.750 x, got 0.500 x",
                "two: e over f: expected >= 0.750 x, got not measured",
                "two: interrupted, so points or repetitions are missing",
                "NOT of one build but of 2: kintsu 1.2 (abc): one; kintsu of an unknown build: two",
                "measured in 2 minutes",
                "without results: three",
            ]
        );
    }

    #[test]
    fn series_that_did_not_repeat_their_trials_are_told() {
        let sweeps = "| nodes |  | settings | trials, MiB/s | repeated, MiB/s |  |\n| --- | --- | --- | --- | --- | --- |\n\
            | alike | stars | 16 a node | 4.6, 4.7 | 2.8 (2.5 to 2.9) | best; repetitions off by -39% |\n\
            | alike | paths | 16 a node | 7.0, 7.1 | 7.0 (7.0 to 7.1) | best |\n";
        assert_eq!(
            lines(&[Shown::section("one", sweeps)]),
            [
                "0 of 0 aims hold",
                "one: stars, alike: repetitions off by -39% from the trials of its settings (16 a node)",
                "all of one build: kintsu of an unknown build",
            ]
        );
    }

    #[test]
    fn what_most_points_have_in_common_at_which_the_simulator_is_far_off_is_told() {
        let said = |of: &[(&str, &str)]| {
            let rows = of.iter().map(|(series, off)| format!("| 1 | {series} | {off} | 9% |\n"));
            let text = format!(
                "| x |  | simulated off | load |\n| --- | --- | --- | --- |\n{}",
                rows.collect::<String>()
            );
            let lines =
                lines(&[Shown::section("one", &text), Shown::section("two", &points(&[("1", "+9%", "9%")]))]);
            lines[1].split_once(": one, 1, star").unwrap().1.to_owned()
        };
        assert_eq!(
            said(&[
                ("star", "+19.0%"),
                ("tree", "-6.0%"),
                ("star", "+8.0%"),
                ("star", "-7.0%"),
                ("star", "0.0%")
            ]),
            "; 3 of the 5 are star; 4 of the 5 are in one; 3 of the 5 are simulated too slow"
        );
        assert_eq!(
            said(&[("star", "-19.0%"), ("tree", "-6.0%")]),
            "; 2 of the 3 are in one; 2 of the 3 are simulated too fast"
        );
        assert_eq!(said(&[("star", "+19.0%")]), "; all 2 are simulated too slow");
    }

    #[test]
    fn the_simulator_is_held_to_all_points_that_are_not_bound_by_processors() {
        let far = [
            ("1", "+4.9%", "69%"),
            ("2", "-5.1%", "9%, 5% stolen"),
            ("3", "+40.0%", "70%"),
            ("4", "-", "9%"),
        ];
        let stripes = Shown::section("stripes", &points(&far));
        let near = [("1", "+9.0%, node", "10%"), ("2", "-3.0%, node", "10%")];
        let nodes = Shown::section("nodes", &points(&near));
        assert_eq!(
            lines(&[stripes, nodes]),
            [
                "1 of 2 aims hold",
                "the simulator, one stripe: 1 of 2 points (50.0%) at which processors are less than 70% busy are off by more than \
                 5%, aim: none, MISSED; the most is -5.1%: stripes, 2, chain",
                "the simulator, whole nodes: 0 of 2 points (0.0%) at which processors are less than 70% busy are off by more than \
                 10%, aim: none, holds; the most is +9.0%: nodes, 1, chain",
                "all of one build: kintsu of an unknown build",
            ]
        );
    }
}
