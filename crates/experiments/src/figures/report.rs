//! The result of an experiment: rows of samples, and its claims with their values. Stored as JSON; tables, charts
//! and the page of the documentation are made from it.

use kintsu_wire::message::RepairLimit;
use serde::{Deserialize, Serialize};

use super::declare::{Aim, Baseline, Claim, Experiment, Measure, Point, Value};
use super::simulated::Trial;
use super::spread::Spread;
use super::sweep::Swept;
use crate::Machine;
use crate::workload::Played;

/// A link that carries more than a bound by no more than this part is not what a repair lost its time with.
const EVEN: f64 = 0.02;
/// A point at which this percentage of windows was over the target does not hold it.
const HOLDING: f64 = 1.0;

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
}

impl Sample {
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
    fn over(&self) -> Option<Spread> {
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

impl Judged {
    /// Whether the median meets the aim; none without an aim or a value, and where repetitions do not decide it.
    pub fn holds(&self) -> Option<bool> {
        let (aim, ours) = (self.aim?, self.ours?);
        match aim {
            Aim::AlwaysAtLeast(_) => {
                let least = aim.holds(ours.min);
                (least == aim.holds(ours.max)).then_some(least)
            }
            Aim::AtMost(_) | Aim::AtLeast(_) => Some(aim.holds(ours.median)),
        }
    }
}

impl Report {
    /// The report of an experiment without results yet.
    pub fn new(experiment: &Experiment, machine: Machine, quick: bool) -> Self {
        Self {
            experiment: experiment.name.into(),
            title: experiment.title.into(),
            source: experiment.source.into(),
            differs: experiment.differs.into(),
            measure: experiment.measure,
            axis: experiment.axis.into(),
            baseline: experiment.baseline.clone(),
            scale: experiment.scale,
            quick,
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

    /// Computes the claims from the rows.
    pub fn judge(&mut self, claims: &[Claim]) {
        let judged = claims.iter().map(|claim| Judged {
            text: claim.text.clone(),
            unit: claim.value.unit().into(),
            published: claim.published,
            aim: claim.aim,
            ours: self.measured(&claim.value),
            because: match claim.because {
                "" if claim.aim.is_some() => self.lost_in_the_run(&claim.value),
                because => because.into(),
            },
        });
        self.claims = judged.collect();
    }

    /// What the reports of the repairs at a point say of why they took longer than a bound, or do not count; empty where they
    /// say nothing.
    fn lost_in_the_run(&self, value: &Value) -> String {
        if let Value::RateOverHolding(point, _) = value {
            let over = self.row(point).and_then(Row::over).filter(|over| over.median >= HOLDING);
            return over.map_or(String::new(), |over| {
                format!(
                    "its rate does not count, because {:.1}% of its windows were over the target",
                    over.median
                )
            });
        }
        let (Value::OfBound(point) | Value::OfIdle(point)) = value else { return String::new() };
        let samples = self.row(point).map_or(&[][..], |row| &row.samples);
        let mut said = Vec::new();
        let sent = samples.iter().filter(|sample| sample.bound_seconds > 0.0 && sample.busiest_seconds > 0.0);
        if let Some(over) = Spread::of(sent.map(|sample| sample.busiest_seconds / sample.bound_seconds))
            && over.median > 1.0 + EVEN
        {
            let percent = 100.0 * (over.median - 1.0);
            said.push(format!(
                "the busiest node's link carried what takes it {percent:.0}% longer than the bound"
            ));
        }
        let replanned: u64 = samples.iter().map(|sample| sample.replanned).sum();
        if replanned > 0 {
            said.push(format!("repairs were planned anew around nodes {replanned} times while they ran"));
        }
        said.join("; ")
    }

    fn measured(&self, value: &Value) -> Option<Spread> {
        match value {
            Value::TimeRatio(a, b) => self.pairwise(a, b, |a, b| a.seconds / b.seconds),
            Value::RateRatio(a, b) => {
                self.pairwise(a, b, |a, b| a.value(Measure::Rate) / b.value(Measure::Rate))
            }
            Value::AtPaperRate(point) => self.row(point)?.spread_of(|sample| sample.seconds * self.scale),
            Value::Reduction(a, b) => self.pairwise(a, b, |a, b| 100.0 * (1.0 - a.seconds / b.seconds)),
            Value::Spread(series) => {
                let medians = self.medians(series);
                let (least, most) = (least(&medians)?, medians.iter().copied().fold(0.0, f64::max));
                Spread::of([100.0 * (most / least - 1.0)])
            }
            Value::AboveBest(point) => {
                let own = self.row(point)?.spread(Measure::Seconds)?.median;
                Spread::of([100.0 * (own / least(&self.medians(&point.series))? - 1.0)])
            }
            Value::OffSimulated(series) => {
                let meant = |row: &&Row| series.as_ref().is_none_or(|series| row.point.series == *series);
                let off: Option<Vec<f64>> =
                    self.rows.iter().filter(meant).map(|row| Some(row.simulated_above()?.abs())).collect();
                Spread::of([off?.into_iter().reduce(f64::max)?])
            }
            Value::CrossRackBlocks(point) => {
                let row = self.row(point)?;
                row.spread_of(|sample| sample.cross_rack_bytes as f64 / row.block_bytes as f64)
            }
            Value::Traffic(point) => {
                self.row(point)?.spread_of(|sample| sample.sent_bytes as f64 / sample.planned_bytes as f64)
            }
            Value::OfBound(point) => {
                self.row(point)?.spread_of(|sample| sample.bound_seconds / sample.seconds.max(1e-9))
            }
            Value::OfIdle(point) => {
                let row = self.row(point)?;
                // Without it there is nothing to compare with.
                let known = row.samples.iter().filter(|sample| sample.idle_seconds > 0.0);
                Spread::of(known.map(|sample| sample.idle_seconds / sample.seconds.max(1e-9)))
            }
            Value::Gain(a, b) => {
                let rate = |sample: &Sample| sample.value(Measure::Rate);
                self.pairwise(a, b, |a, b| 100.0 * (rate(a) / rate(b) - 1.0))
            }
            Value::CalmerTail(a, b) => {
                self.pairwise(a, b, |a, b| 100.0 * (1.0 - a.users().all.p99_ms / b.users().all.p99_ms))
            }
            Value::Interference(of, alone) => self
                .pairwise(of, alone, |of, alone| 100.0 * (of.users().seconds / alone.users().seconds - 1.0)),
            Value::Over(point) => self.row(point)?.over(),
            Value::RateOverHolding(point, series) => {
                let of_series = self.rows.iter().filter(|row| row.point.series == *series);
                let holds = |row: &&Row| row.over().is_some_and(|over| over.median < HOLDING);
                let rates = of_series.filter(holds).filter_map(|row| Some(row.spread(Measure::Rate)?.median));
                let (own, best) = (self.row(point)?, rates.max_by(f64::total_cmp)?);
                let counts = if own.over()?.median < HOLDING { 1.0 } else { 0.0 };
                own.spread_of(|sample| counts * sample.value(Measure::Rate) / best)
            }
            Value::TailOverTarget(point) => {
                Spread::of(self.row(point)?.samples.iter().filter_map(|sample| sample.tail))
            }
            Value::SentOver(point, least) => self
                .row(point)?
                .spread_of(|sample| sample.planned_bytes as f64 / sample.seconds.max(1e-9) / least),
            Value::Worst(point) => Spread::of([self.row(point)?.spread(Measure::Seconds)?.max]),
            Value::CalmerTrace(a, b, alone) => {
                let [a, b, alone] = [a, b, alone].map(|point| Some(self.row(point)?.samples.iter()));
                let all = a?.zip(b?).zip(alone?);
                Spread::of(all.map(|((a, b), alone)| {
                    let over = |sample: &Sample| sample.users().seconds - alone.users().seconds;
                    100.0 * (1.0 - over(a) / over(b))
                }))
            }
            Value::Mean(values) => {
                let medians: Option<Vec<f64>> =
                    values.iter().map(|value| Some(self.measured(value)?.median)).collect();
                let medians = medians?;
                let spread = Spread::of(medians.iter().copied())?;
                Some(Spread { median: medians.iter().sum::<f64>() / medians.len() as f64, ..spread })
            }
        }
    }

    fn pairwise(&self, a: &Point, b: &Point, of: impl Fn(&Sample, &Sample) -> f64) -> Option<Spread> {
        let (a, b) = (self.row(a)?, self.row(b)?);
        Spread::of(a.samples.iter().zip(&b.samples).map(|(a, b)| of(a, b)))
    }

    /// The median times of a series.
    fn medians(&self, series: &str) -> Vec<f64> {
        let rows = self.rows.iter().filter(|row| row.point.series == series);
        rows.filter_map(|row| Some(row.spread(Measure::Seconds)?.median)).collect()
    }
}

impl Value {
    /// The unit of the value.
    pub(super) fn unit(&self) -> &'static str {
        match self {
            Self::TimeRatio(..) | Self::RateRatio(..) | Self::Traffic(_) | Self::OfBound(_) => "x",
            Self::OfIdle(_) | Self::RateOverHolding(..) | Self::TailOverTarget(_) | Self::SentOver(..) => "x",
            Self::AtPaperRate(_) | Self::Worst(_) => "s",
            Self::Over(_) => "%",
            Self::Reduction(..) | Self::Spread(_) | Self::AboveBest(_) | Self::OffSimulated(_) => "%",
            Self::Gain(..) | Self::CalmerTail(..) | Self::Interference(..) => "%",
            Self::CalmerTrace(..) => "%",
            Self::Mean(values) => values.first().map_or("x", Self::unit),
            Self::CrossRackBlocks(_) => "blocks",
        }
    }
}

fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
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

    fn row(series: &str, x: &str, seconds: &[f64]) -> Row {
        let sample = |&seconds: &f64| Sample {
            seconds,
            goal_bytes: 2 << 20,
            cross_rack_bytes: 3 << 20,
            ..Sample::default()
        };
        Row {
            point: Point::new(series, x),
            code: "rs:n=3,k=2".into(),
            block_bytes: 1 << 20,
            slice_bytes: 0,
            samples: seconds.iter().map(sample).collect(),
        }
    }

    fn report(rows: Vec<Row>) -> Report {
        Report {
            experiment: "e".into(),
            title: "t".into(),
            source: "s".into(),
            differs: "hosts".into(),
            measure: Measure::Seconds,
            axis: "x".into(),
            baseline: Some(Baseline::Point(Point::new("b", "1"))),
            scale: 0.5,
            quick: false,
            machine: Machine::default(),
            build: String::new(),
            minutes: 0.0,
            rows,
            sweeps: Vec::new(),
            cut_short: false,
            claims: Vec::new(),
            strict: true,
        }
    }

    fn median(report: &Report, value: Value) -> Option<f64> {
        report.measured(&value).map(|spread| spread.median)
    }

    #[test]
    fn claims_are_computed_repetition_by_repetition() {
        // The machine became twice as slow after the first repetition; ratios are not affected.
        let report = report(vec![row("a", "1", &[1.0, 2.0]), row("b", "1", &[4.0, 8.0])]);
        let (a, b) = (Point::new("a", "1"), Point::new("b", "1"));
        assert_eq!(median(&report, Value::TimeRatio(a.clone(), b.clone())), Some(0.25));
        assert_eq!(median(&report, Value::RateRatio(a.clone(), b.clone())), Some(4.0));
        assert_eq!(median(&report, Value::Reduction(a.clone(), b.clone())), Some(75.0));
        assert_eq!(median(&report, Value::CrossRackBlocks(b)), Some(3.0));
        assert_eq!(median(&report, Value::TimeRatio(a, Point::new("a", "2"))), None);
    }

    #[test]
    fn a_series_is_compared_with_itself() {
        let report = report(vec![row("a", "1", &[1.0]), row("a", "2", &[1.5]), row("b", "1", &[9.0])]);
        assert_eq!(median(&report, Value::Spread("a".into())), Some(50.0));
        assert_eq!(median(&report, Value::AboveBest(Point::new("a", "2"))), Some(50.0));
        assert_eq!(median(&report, Value::AboveBest(Point::new("a", "1"))), Some(0.0));
        let over = |i: usize| report.over_baseline(&report.rows[i]).map(|s| s.median);
        assert_eq!(over(1), Some(1.5 / 9.0));
        assert_eq!((report.xs(), report.series()), (vec!["1", "2"], vec!["a", "b"]));
    }

    #[test]
    fn the_largest_difference_from_the_simulator_is_found_whatever_its_sign() {
        let mut a = row("a", "1", &[1.0, 2.0, 3.0]);
        let mut b = row("b", "1", &[4.0, 4.0, 4.0]);
        a.samples.iter_mut().for_each(|sample| sample.simulated_seconds = Some(1.5));
        b.samples.iter_mut().for_each(|sample| sample.simulated_seconds = Some(5.0));
        let of = |rows: Vec<Row>, series: Option<&str>| {
            median(&report(rows), Value::OffSimulated(series.map(Into::into)))
        };
        assert_eq!(of(vec![a.clone(), b.clone()], None), Some(25.0));
        assert_eq!(of(vec![a.clone(), b.clone()], Some("b")), Some(25.0));
        a.samples[1].simulated_seconds = Some(1.0);
        a.samples[2].simulated_seconds = Some(1.0);
        assert_eq!(of(vec![a.clone(), b.clone()], None), Some(50.0));
        // If one repetition was not simulated, there is no simulated median.
        a.samples[1].simulated_seconds = None;
        assert_eq!(of(vec![a.clone(), b.clone()], None), None);
        assert_eq!(of(vec![a, b], Some("b")), Some(25.0));
    }

    #[test]
    fn why_a_bound_was_missed_is_said_only_if_the_reports_of_the_repairs_show_it() {
        let of = |busiest: f64, replanned| {
            let mut row = row("a", "1", &[4.0, 4.0]);
            for sample in &mut row.samples {
                (sample.bound_seconds, sample.busiest_seconds) = (2.0, busiest);
            }
            row.samples[1].replanned = replanned;
            let mut report = report(vec![row]);
            report.judge(&[Claim::new("c", Value::OfBound(Point::new("a", "1"))).aim(Aim::AtLeast(0.9))]);
            report.claims[0].because.clone()
        };
        assert_eq!(of(2.02, 0), "");
        assert_eq!(of(0.0, 0), "");
        assert_eq!(of(2.4, 0), "the busiest node's link carried what takes it 20% longer than the bound");
        assert_eq!(of(2.02, 3), "repairs were planned anew around nodes 3 times while they ran");
        assert_eq!(of(2.4, 3), [of(2.4, 0), of(2.0, 3)].join("; "));
    }

    #[test]
    fn the_worst_repetition_is_the_slowest_one() {
        let report = report(vec![row("a", "1", &[1.0, 2.5, 1.5])]);
        assert_eq!(median(&report, Value::Worst(Point::new("a", "1"))), Some(2.5));
    }

    #[test]
    fn a_repair_under_load_is_compared_with_what_users_left() {
        let mut a = row("a", "1", &[4.0, 4.0]);
        (a.samples[0].bound_seconds, a.samples[0].idle_seconds) = (1.0, 3.0);
        let report = report(vec![a, row("b", "1", &[1.0])]);
        let of = |series: &str| median(&report, Value::OfIdle(Point::new(series, "1")));
        assert_eq!((of("a"), of("b")), (Some(0.75), None));
    }

    #[test]
    fn what_users_feel_and_what_repairs_send_is_compared_with_what_was_promised() {
        let mut a = row("a", "1", &[2.0]);
        (a.samples[0].tail, a.samples[0].planned_bytes) = (Some(1.05), 600);
        let report = report(vec![a, row("b", "1", &[2.0])]);
        assert_eq!(median(&report, Value::TailOverTarget(Point::new("a", "1"))), Some(1.05));
        assert_eq!(median(&report, Value::TailOverTarget(Point::new("b", "1"))), None);
        assert_eq!(median(&report, Value::SentOver(Point::new("a", "1"), 100.0)), Some(3.0));
    }

    #[test]
    fn a_rate_counts_beside_those_that_hold_the_target_only_if_it_holds_it_itself() {
        let row = |series: &str, x: &str, seconds, over| {
            let mut row = row(series, x, &[seconds]);
            row.samples[0].over = over;
            row
        };
        let of = |over| {
            let rows =
                vec![row("f", "1", 8.0, Some(0.0)), row("f", "2", 4.0, Some(0.5)), row("a", "1", 2.0, over)];
            let mut report = report(rows);
            let value = Value::RateOverHolding(Point::new("a", "1"), "f".into());
            report.judge(&[Claim::new("c", value).aim(Aim::AtLeast(1.5))]);
            let claim = report.claims.remove(0);
            (claim.ours.map(|ours| ours.median), claim.holds(), claim.because)
        };
        assert_eq!(of(Some(0.0)), (Some(4.0), Some(true), String::new()));
        let because = "its rate does not count, because 20.0% of its windows were over the target";
        assert_eq!(of(Some(0.2)), (Some(0.0), Some(false), because.into()));
        assert_eq!(of(None), (None, None, String::new()));
    }

    #[test]
    fn aims_are_judged_by_the_median() {
        let mut report = report(vec![row("a", "1", &[1.0, 1.0, 9.0]), row("b", "1", &[1.0, 1.0, 1.0])]);
        let value = Value::TimeRatio(Point::new("a", "1"), Point::new("b", "1"));
        let claim = |aim| Claim::new("", value.clone()).aim(aim);
        report.judge(&[claim(Aim::AtMost(1.02)), claim(Aim::AtLeast(1.5)), Claim::new("", value.clone())]);
        let holds: Vec<_> = report.claims.iter().map(Judged::holds).collect();
        assert_eq!(holds, [Some(true), Some(false), None]);
        // Where one repetition is above it and one below, nothing is decided.
        let always = [1.0, 5.0, 9.5].map(|limit| {
            let aim = Some(Aim::AlwaysAtLeast(limit));
            Judged { aim, ..report.claims[0].clone() }.holds()
        });
        assert_eq!(always, [Some(true), None, Some(false)]);
        assert!(report.failed());
        report.claims.remove(1);
        assert!(!report.failed());
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    }
}
