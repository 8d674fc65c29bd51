//! The claims of an experiment, computed from its rows and judged by their aims.

use super::declare::{Aim, Claim, Measure, Point, Value};
use super::report::{Judged, Report, Row, Sample};
use super::spread::Spread;

/// A link that carries more than a bound by no more than this part is not what a repair lost its time with.
const EVEN: f64 = 0.02;
/// A point at which this percentage of windows was over the target does not hold it.
const HOLDING: f64 = 1.0;

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
                let medians = self.each_median(values)?;
                let spread = Spread::of(medians.iter().copied())?;
                Some(Spread { median: medians.iter().sum::<f64>() / medians.len() as f64, ..spread })
            }
            Value::Least(values) => Spread::of(self.each_median(values)?.into_iter().reduce(f64::min)),
            Value::Most(values) => Spread::of(self.each_median(values)?.into_iter().reduce(f64::max)),
        }
    }

    /// The medians of some values; none if one of them has none.
    fn each_median(&self, values: &[Value]) -> Option<Vec<f64>> {
        values.iter().map(|value| Some(self.measured(value)?.median)).collect()
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
            Self::Mean(values) | Self::Least(values) | Self::Most(values) => {
                values.first().map_or("x", Self::unit)
            }
            Self::CrossRackBlocks(_) => "blocks",
        }
    }
}

fn least(values: &[f64]) -> Option<f64> {
    values.iter().copied().min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::figures::declare::Baseline;

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
            runs: 3,
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
    fn of_several_values_the_mean_the_least_and_the_most_are_those_of_their_medians() {
        let at = |seconds: &[f64]| {
            let report = report(vec![row("a", "1", &[1.0, 2.0, 9.0]), row("a", "2", seconds)]);
            let both = || vec![Value::Worst(Point::new("a", "1")), Value::Worst(Point::new("a", "2"))];
            let of = |value| median(&report, value);
            [of(Value::Mean(both())), of(Value::Least(both())), of(Value::Most(both()))]
        };
        assert_eq!(at(&[3.0, 5.0, 4.0]), [Some(7.0), Some(5.0), Some(9.0)]);
        assert_eq!(at(&[]), [None; 3]);
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
