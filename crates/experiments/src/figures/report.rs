//! The result of an experiment: rows of samples, and its claims with their values. Stored as JSON; tables, charts
//! and the page of the documentation are made from it.

use kintsu_wire::message::RepairLimit;
use serde::{Deserialize, Serialize};

use super::declare::{Aim, Baseline, Experiment, Measure, Point};
use super::engine::Settings;
use super::simulated::Trial;
use super::spread::Spread;
use super::sweep::Swept;
use crate::Machine;
use crate::workload::Played;

/// The result of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Which experiment.
    pub experiment: String,
    /// What is shown.
    pub title: String,
    /// Paper and figure.
    pub source: String,
    /// The differences from the paper's setting; without a paper, the setting.
    pub differs: String,
    /// What is measured.
    pub measure: Measure,
    /// What the x axis is.
    pub axis: String,
    /// The row that the others are divided by.
    pub baseline: Option<Baseline>,
    /// Rates here divided by rates in the paper.
    pub scale: f64,
    /// Whether it was a quick run with smaller blocks.
    pub quick: bool,
    /// Repetitions that were asked for; a point may have limits of its own. 0 where it is not known.
    #[serde(default)]
    pub runs: usize,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The version of the program, with the commit that it was built from; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub build: String,
    /// How long it took to measure, with the labs and the objects in them; 0 where it is not known.
    #[serde(default)]
    pub minutes: f64,
    /// The points, in the order of their declaration.
    pub rows: Vec<Row>,
    /// What was tried to find the best settings of series.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sweeps: Vec<Swept>,
    /// Whether it was interrupted before its last repetition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut_short: bool,
    /// The claims about them.
    pub claims: Vec<Judged>,
    /// Whether an aim that is missed means that something is broken.
    #[serde(default)]
    pub strict: bool,
}

/// One point of the figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where it is.
    pub point: Point,
    /// Name of the code.
    pub code: String,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Bytes in a slice; 0 where the system chose.
    pub slice_bytes: u32,
    /// The repetitions, in their order.
    pub samples: Vec<Sample>,
}

/// One repetition.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// From the start until the end.
    pub seconds: f64,
    /// The bytes repaired or transferred: of the lost blocks, or of the object.
    pub goal_bytes: u64,
    /// Bytes that nodes sent, as the kernel counted, headers included.
    pub sent_bytes: u64,
    /// Bytes that racks sent to one another and to the lab's own process, as the kernel counted.
    pub cross_rack_bytes: u64,
    /// Bytes that the plan sends from node to node; 0 where there is no plan.
    pub planned_bytes: u64,
    /// The part of `planned_bytes` that crosses racks.
    pub planned_cross_rack_bytes: u64,
    /// The least time in which the links can carry the plan, or for a whole node any plan, if nobody else used them; 0
    /// where it is not known.
    pub bound_seconds: f64,
    /// The least time in which what users left of the links on average can carry any plan; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub idle_seconds: f64,
    /// The least time in which the busiest node's link carries what repairs have sent, as their job says; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub busiest_seconds: f64,
    /// How often a running repair was planned anew around a node.
    #[serde(default, skip_serializing_if = "is_none")]
    pub replanned: u64,
    /// The simulator's time for the same plans on the same links; none where it does not play such work.
    #[serde(default)]
    pub simulated_seconds: Option<f64>,
    /// The inputs of the plan, so that it can be played again; none where there is no plan, or there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// What users measured meanwhile; none where nobody worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Played>,
    /// The part of the windows in which users' 99th percentile was above a target; none where there is no target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<f64>,
    /// The number of these windows; 0 where there is no target.
    #[serde(default, skip_serializing_if = "is_none")]
    pub windows: u64,
    /// Users' 99th percentile over the target; none where there is no target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<f64>,
    /// What the coordinator said of the limit of repairs last in each of the users' windows; none where that was not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Option<RepairLimit>>,
    /// Processor seconds of the lab's processes.
    pub cpu_seconds: f64,
    /// The share of the machine's processor time that was used or stolen, 0 to 1.
    pub load: f64,
    /// The share that was stolen, if it is a virtual machine.
    #[serde(default)]
    pub stolen: f64,
}

/// A claim and the measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// In words.
    pub text: String,
    /// `x`, `%` or `blocks`.
    pub unit: String,
    /// The paper's value.
    pub published: Option<f64>,
    /// Our aim.
    pub aim: Option<Aim>,
    /// The measured value; none when a point is missing.
    pub ours: Option<Spread>,
    /// Why it differs from the paper's, or an aim may be missed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
}

impl Sample {
    /// The value of this sample in the experiment's measure.
    pub fn value(&self, measure: Measure) -> f64 {
        match measure {
            Measure::Seconds => self.seconds,
            Measure::Rate => self.goal_bytes as f64 / (1 << 20) as f64 / self.seconds.max(1e-9),
        }
    }

    /// What users measured; nothing where nobody worked.
    pub fn users(&self) -> Played {
        self.users.clone().unwrap_or_default()
    }
}

impl Row {
    /// Median and spread in the experiment's measure; none before the first repetition.
    pub fn spread(&self, measure: Measure) -> Option<Spread> {
        Spread::of(self.samples.iter().map(|sample| sample.value(measure)))
    }

    /// In how many percent of the windows users' 99th percentile was above the target.
    pub(super) fn over(&self) -> Option<Spread> {
        Spread::of(self.samples.iter().filter_map(|sample| sample.over).map(|part| 100.0 * part))
    }

    /// Median and spread of a quantity over the repetitions.
    pub fn spread_of(&self, what: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.samples.iter().map(what))
    }

    /// Median and spread of the simulator's times; none unless every repetition has one.
    pub fn simulated(&self) -> Option<Spread> {
        let all: Option<Vec<f64>> = self.samples.iter().map(|sample| sample.simulated_seconds).collect();
        Spread::of(all?)
    }

    /// By how many percent the simulator's median time is above the measured one.
    pub fn simulated_above(&self) -> Option<f64> {
        Some(100.0 * (self.simulated()?.median / self.spread(Measure::Seconds)?.median - 1.0))
    }
}

impl Report {
    /// The report of an experiment without results yet.
    pub fn new(experiment: &Experiment, machine: Machine, settings: Settings) -> Self {
        Self {
            experiment: experiment.name.into(),
            title: experiment.title.into(),
            source: experiment.source.into(),
            differs: experiment.differs.into(),
            measure: experiment.measure,
            axis: experiment.axis.into(),
            baseline: experiment.baseline.clone(),
            scale: experiment.scale,
            quick: settings.quick,
            runs: settings.runs,
            machine,
            build: String::new(),
            minutes: 0.0,
            rows: Vec::new(),
            sweeps: Vec::new(),
            cut_short: false,
            claims: Vec::new(),
            strict: experiment.strict,
        }
    }

    /// Whether this is all that an experiment with these settings would measure on this machine with this build.
    pub fn stands_for(
        &self,
        experiment: &Experiment,
        settings: Settings,
        machine: &Machine,
        build: &str,
    ) -> bool {
        let asked = Self { build: build.into(), ..Self::new(experiment, machine.clone(), settings) };
        let (rows, sweeps, claims) = Default::default();
        asked == Self { minutes: 0.0, rows, sweeps, claims, ..self.clone() }
    }

    /// Whether a strict aim is missed.
    pub fn failed(&self) -> bool {
        self.strict && self.claims.iter().any(|claim| claim.holds() == Some(false) || claim.ours.is_none())
    }

    /// The row of a point.
    pub fn row(&self, point: &Point) -> Option<&Row> {
        self.rows.iter().find(|row| row.point == *point)
    }

    /// The points of the x axis, in order of appearance.
    pub fn xs(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.point.x.as_str()))
    }

    /// The series, in order of appearance.
    pub fn series(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.point.series.as_str()))
    }

    /// The value of a row over that of the baseline at the same x, repetition by repetition.
    pub fn over_baseline(&self, row: &Row) -> Option<Spread> {
        let other = match self.baseline.as_ref()? {
            Baseline::Series(series) => self.row(&Point::new(series.clone(), row.point.x.clone()))?,
            Baseline::Point(point) => self.row(point)?,
        };
        let pairs = row.samples.iter().zip(&other.samples);
        Spread::of(pairs.map(|(own, base)| own.value(self.measure) / base.value(self.measure)))
    }
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn distinct<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for one in all {
        if !seen.contains(&one) {
            seen.push(one);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_stands_for_the_same_experiment_of_the_same_build_alone() {
        let (about, machine) = (Experiment::computed("e", "about"), Machine::default());
        let asked = Settings { runs: 3, quick: false };
        let whole = Report { build: "1.2 (abc)".into(), ..Report::new(&about, machine.clone(), asked) };
        let stands = |report: &Report, settings| report.stands_for(&about, settings, &machine, "1.2 (abc)");
        assert!(stands(&whole, asked));
        assert!(!stands(&whole, Settings { runs: 5, quick: false }));
        assert!(!stands(&whole, Settings { runs: 3, quick: true }));
        assert!(!whole.stands_for(&about, asked, &machine, "1.2 (abd)"));
        assert!(!whole.stands_for(&Experiment { scale: 0.5, ..about.clone() }, asked, &machine, "1.2 (abc)"));
        assert!(!whole.stands_for(&Experiment::computed("f", "about"), asked, &machine, "1.2 (abc)"));
        let other = Machine { cores: machine.cores + 1, ..machine.clone() };
        assert!(!whole.stands_for(&about, asked, &other, "1.2 (abc)"));
        assert!(!stands(&Report { cut_short: true, ..whole }, asked));
    }
}
