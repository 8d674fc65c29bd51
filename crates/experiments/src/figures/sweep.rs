//! Every baseline runs at its own best: before the repetitions, recoveries are tried with several numbers of repairs at
//! once, ways to choose helpers and sizes of slices. All settings that differ in one quantity are tried in turn, and then once
//! more in turn, except those that were much slower than the best; then the best of each quantity together. The
//! setting with the best median is used. The report shows all trials, beside the repetitions.
//!
//! A sweep with a name is made once in a run of this program. Later series of the same name in scenes with a sweep of this name
//! use what was found ([`Found`]), and the report says where it was tried.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kintsu_plan::Schedule;
use serde::{Deserialize, Serialize};

use super::declare::{Case, Measure, Point, Slice, Work};
use super::spread::Spread;
use crate::under_load::UnderLoad;

/// How often a setting is tried.
const TRIALS: usize = 2;
/// A setting that reached less than this part of the best one is not tried again.
const AGAIN: f64 = 0.8;

/// What is tried for a series. What the case itself says is tried first, so lists of alternatives may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
    /// Its name, if it is made only once in a run of this program.
    pub once: Option<&'static str>,
    /// Most repairs in which a node takes part at once; 0: as the coordinator decides.
    pub per_node: Vec<u32>,
    /// Ways to choose helpers and requestors.
    pub schedules: Vec<Schedule>,
    /// Sizes of slices.
    pub slices: Vec<Slice>,
}

impl Sweep {
    /// For methods of one fixed shape: with and without a limit for a node, and slices of several sizes.
    pub fn usual() -> Self {
        Self { slices: vec![Slice::Bytes(32 << 10), Slice::Bytes(256 << 10)], ..Self::at_once() }
    }

    /// With a limit of 16 repairs a node, beside what the case says.
    pub fn few() -> Self {
        Self { per_node: vec![16], ..Self::default() }
    }

    /// Only numbers of repairs at once.
    pub fn at_once() -> Self {
        Self { per_node: vec![16, 64], ..Self::default() }
    }

    /// Also with 4 repairs a node: where one requestor gets all blocks its link is full with few repairs, and more only disturb
    /// one another.
    #[must_use]
    pub fn for_one_requestor(mut self) -> Self {
        self.per_node.insert(0, 4);
        self
    }

    /// With this schedule as an alternative.
    #[must_use]
    pub fn or_schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// With these slices as an alternative.
    #[must_use]
    pub fn or_slice(mut self, slice: Slice) -> Self {
        self.slices.push(slice);
        self
    }

    /// How many trials this is at most.
    pub(crate) fn trials(&self) -> usize {
        TRIALS * (2 + self.per_node.len() + self.schedules.len() + self.slices.len())
    }

    /// The alternatives to a case.
    fn changes(&self) -> Vec<Change> {
        let per_node = self.per_node.iter().map(|most| Change::PerNode(*most));
        let schedules = self.schedules.iter().map(|schedule| Change::Schedule(*schedule));
        let slices = self.slices.iter().map(|slice| Change::Slice(*slice));
        per_node.chain(schedules).chain(slices).collect()
    }
}

/// One setting that differs.
#[derive(Debug, Clone, Copy)]
enum Change {
    PerNode(u32),
    Schedule(Schedule),
    Slice(Slice),
}

impl Change {
    /// The number of the quantity.
    fn kind(self) -> usize {
        match self {
            Self::PerNode(_) => 0,
            Self::Schedule(_) => 1,
            Self::Slice(_) => 2,
        }
    }

    fn of(self, case: &Case) -> Case {
        let mut changed = case.clone();
        match (self, at_once_and_schedule(&mut changed.work)) {
            (Self::Slice(slice), _) => changed.slice = slice,
            (Self::PerNode(most), Some((per_node, _))) => *per_node = most,
            (Self::Schedule(new), Some((_, schedule))) => *schedule = new,
            _ => {}
        }
        changed
    }
}

/// The most repairs of a node at once, and how helpers and requestors are chosen; none for what is no recovery.
fn at_once_and_schedule(work: &mut Work) -> Option<(&mut u32, &mut Schedule)> {
    match work {
        Work::Recover(recover) => Some((&mut recover.per_node, &mut recover.schedule)),
        Work::UnderLoad(UnderLoad::Recover(recovery)) => {
            Some((&mut recovery.per_node, &mut recovery.schedule))
        }
        _ => None,
    }
}

/// What was tried for a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Swept {
    /// The series and the point at which it was tried.
    pub point: Point,
    /// The experiment in which it was tried, if it was another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<String>,
    /// The settings, in the order in which they were tried.
    pub tried: Vec<Tried>,
    /// The number of the best one, which the repetitions use.
    pub best: usize,
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// In words.
    pub settings: String,
    /// Its samples, in the experiment's measure.
    pub values: Vec<f64>,
    /// Why it failed; then it is never the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Tried {
    /// The median of its samples; none if it failed.
    pub fn median(&self) -> Option<f64> {
        Spread::of(self.values.iter().copied()).filter(|_| self.error.is_none()).map(|spread| spread.median)
    }
}

/// Searches for the settings of a case that suit it best.
pub(crate) struct Search {
    measure: Measure,
    /// By the number of the setting; the first is the case as it is declared.
    cases: Vec<Case>,
    changes: Vec<Change>,
    /// The numbers of those that are tried next.
    due: VecDeque<usize>,
    rounds: usize,
    swept: Swept,
}

impl Search {
    /// Nothing has been tried yet. `None` for a case without a sweep.
    pub fn new(case: &Case, measure: Measure) -> Option<Self> {
        let changes = case.sweep.as_ref()?.changes();
        let cases: Vec<Case> =
            [case.clone()].into_iter().chain(changes.iter().map(|change| change.of(case))).collect();
        let point = Point::new(case.series.clone(), case.x.clone());
        let mut search = Self {
            measure,
            due: (0..cases.len()).collect(),
            cases: Vec::new(),
            changes,
            rounds: 1,
            swept: Swept { point, elsewhere: None, tried: Vec::new(), best: 0 },
        };
        cases.into_iter().for_each(|case| search.add(case));
        Some(search)
    }

    fn add(&mut self, case: Case) {
        let settings = settings(&case);
        self.swept.tried.push(Tried { settings, values: Vec::new(), error: None });
        self.cases.push(case);
    }

    /// What to try next; `None` when all has been tried.
    pub fn next(&self) -> Option<&Case> {
        self.cases.get(*self.due.front()?)
    }

    /// The value of what was tried, or why it failed.
    pub fn tried(&mut self, tried: Result<f64, String>) {
        let Some(tell) = self.due.pop_front().and_then(|at| self.swept.tried.get_mut(at)) else { return };
        match tried {
            Ok(value) => tell.values.push(value),
            Err(error) => tell.error = Some(error),
        }
        if self.due.is_empty() {
            self.rounds += 1;
            match self.rounds {
                rounds if rounds <= TRIALS => self.due = self.promising(),
                rounds if rounds == TRIALS + 1 => self.try_together(),
                _ => {}
            }
        }
        self.swept.best = self.best_of(0..self.cases.len()).unwrap_or(0);
    }

    /// The settings that may still be the best.
    fn promising(&self) -> VecDeque<usize> {
        let best = self.best_of(0..self.cases.len()).and_then(|at| self.goodness(at));
        let good = |at: &usize| self.goodness(*at).zip(best).is_some_and(|(own, best)| own >= AGAIN * best);
        (0..self.cases.len()).filter(good).collect()
    }

    /// The best of each quantity, if more than one of them is better than what the case says.
    fn try_together(&mut self) {
        let mut together = self.cases[0].clone();
        let mut better = 0;
        for kind in 0..3 {
            let of_kind = (0..self.cases.len()).filter(|at| *at == 0 || self.changes[at - 1].kind() == kind);
            if let Some(best) = self.best_of(of_kind).filter(|best| *best > 0) {
                together = self.changes[best - 1].of(&together);
                better += 1;
            }
        }
        if better > 1 {
            self.due = [self.cases.len(); TRIALS].into();
            self.add(together);
        }
    }

    /// A setting's median, so that more is better; none if it failed or was not tried.
    fn goodness(&self, at: usize) -> Option<f64> {
        let median = self.swept.tried[at].median()?;
        Some(match self.measure {
            Measure::Seconds => 1.0 / median.max(1e-9),
            Measure::Rate => median,
        })
    }

    /// The best of these settings; of equals the first.
    fn best_of(&self, settings: impl IntoIterator<Item = usize>) -> Option<usize> {
        let known = settings.into_iter().filter_map(|at| Some((at, self.goodness(at)?)));
        known.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(at, _)| at)
    }

    /// What was tried, and the settings that were found.
    pub fn end(self) -> (Swept, Best) {
        let best = &self.cases[self.swept.best];
        let at_once =
            at_once_and_schedule(&mut best.work.clone()).map(|(per_node, schedule)| (*per_node, *schedule));
        let best = Best { slice: best.slice, at_once };
        (self.swept, best)
    }
}

/// The settings that suit a series best.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Best {
    slice: Slice,
    at_once: Option<(u32, Schedule)>,
}

impl Best {
    /// Gives them to a case.
    pub fn give(self, case: &mut Case) {
        case.slice = self.slice;
        if let (Some(to), Some(from)) = (at_once_and_schedule(&mut case.work), self.at_once) {
            (*to.0, *to.1) = from;
        }
    }
}

/// What sweeps with a name have found in a run of this program, by their names and series.
#[derive(Debug, Default)]
pub struct Found(BTreeMap<(&'static str, String), (Swept, Best)>);

impl Found {
    /// What was found for a case, if its sweep was made already.
    pub(crate) fn of(&self, case: &Case) -> Option<(Swept, Best)> {
        let once = case.sweep.as_ref()?.once?;
        self.0.get(&(once, case.series.clone())).cloned()
    }

    /// How many trials these cases still need, at most.
    pub(crate) fn trials<'a>(&self, cases: impl Iterator<Item = &'a Case>) -> usize {
        let mut named = BTreeSet::new();
        let open = cases.filter(|case| self.of(case).is_none()).filter_map(|case| {
            let sweep = case.sweep.as_ref()?;
            let first = sweep.once.is_none_or(|once| named.insert((once, &case.series)));
            first.then(|| sweep.trials())
        });
        open.sum()
    }

    /// Keeps what was found in an experiment, if the sweep has a name.
    pub(crate) fn keep(&mut self, case: &Case, experiment: &str, swept: &Swept, best: Best) {
        if let Some(once) = case.sweep.as_ref().and_then(|sweep| sweep.once) {
            let swept = Swept { elsewhere: Some(experiment.to_owned()), ..swept.clone() };
            self.0.insert((once, case.series.clone()), (swept, best));
        }
    }
}

fn settings(case: &Case) -> String {
    let slices = match case.slice {
        Slice::Auto => "automatic slices".to_owned(),
        Slice::Bytes(bytes) => format!("slices of {} KiB", bytes >> 10),
    };
    match at_once_and_schedule(&mut case.work.clone()) {
        Some((per_node, schedule)) => {
            let at_once = match *per_node {
                0 => "no limit for a node".to_owned(),
                most => format!("{most} a node"),
            };
            format!("{at_once}, {schedule}, {slices}")
        }
        None => slices,
    }
}

#[cfg(test)]
mod tests {
    use kintsu_plan::Method;
    use kintsu_wire::message::Requestors;

    use super::super::catalog::build::{case, recover};
    use super::*;
    use crate::under_load::Recovery;

    fn recovery(case: &Case) -> (u32, Schedule, u32) {
        let slice = match case.slice {
            Slice::Bytes(bytes) => bytes >> 10,
            Slice::Auto => 0,
        };
        let (per_node, schedule) =
            at_once_and_schedule(&mut case.work.clone()).map(|of| (*of.0, *of.1)).unwrap();
        (per_node, schedule, slice)
    }

    #[test]
    fn settings_are_tried_in_turn_twice_and_the_best_of_each_quantity_together() {
        let (index, balanced) = (Schedule::ByIndex, Schedule::Balanced);
        let sweep = Sweep::usual().or_schedule(balanced);
        let plain = case("a", "x", 1, recover(Method::Conventional, index, 4, Requestors::Any));
        assert!(Search::new(&plain, Measure::Rate).is_none());
        let case = Case { sweep: Some(sweep.clone()), ..plain };
        // Sixteen a node is best and 64 much slower, the schedule makes no difference, small slices fail, large ones are better.
        // The machine is slower from trial to trial.
        let mut search = Search::new(&case, Measure::Rate).unwrap();
        let mut seen = Vec::new();
        while let Some(next) = search.next() {
            let (per_node, schedule, slice) = recovery(next);
            let first = [(0, 3.0), (16, 3.6), (64, 1.9)].iter().find(|of| of.0 == per_node).unwrap().1;
            let more = if slice == 256 { 0.5 } else { 0.0 };
            let drift = seen.len() as f64 / 1000.0;
            search.tried(if slice == 32 { Err("too much".into()) } else { Ok(first + more - drift) });
            seen.push((per_node, schedule, slice));
        }
        let once = [
            (0, index, 0),
            (16, index, 0),
            (64, index, 0),
            (0, balanced, 0),
            (0, index, 32),
            (0, index, 256),
        ];
        let again = [(0, index, 0), (16, index, 0), (0, balanced, 0), (0, index, 256)];
        let together = [(16, index, 256); 2];
        assert_eq!(seen, [&once[..], &again, &together].concat());
        assert!(seen.len() <= sweep.trials());
        let (swept, best) = search.end();
        assert_eq!((swept.best, swept.tried.len()), (6, 7));
        assert_eq!(swept.tried[6].settings, "16 a node, by-index, slices of 256 KiB");
        assert_eq!(
            swept.tried.iter().map(|tried| tried.values.len()).collect::<Vec<_>>(),
            [2, 2, 1, 2, 0, 2, 2]
        );
        let mut other = case.clone();
        best.give(&mut other);
        assert_eq!(recovery(&other), (16, index, 256));
        // Where less is better, the least is taken; what fails is never the best, also if it is the first.
        let mut search = Search::new(&case, Measure::Seconds).unwrap();
        while let Some(next) = search.next() {
            let (per_node, _, slice) = recovery(next);
            let first = (per_node, slice) == (0, 0);
            search.tried(if first {
                Err("too much".into())
            } else {
                Ok(if slice == 32 { 1.0 } else { 2.0 })
            });
        }
        let (swept, _) = search.end();
        assert_eq!(swept.tried[swept.best].settings, "no limit for a node, by-index, slices of 32 KiB");
    }

    #[test]
    fn what_a_sweep_with_a_name_found_is_used_again_for_its_series() {
        let work = recover(Method::Ppr, Schedule::ByIndex, 4, Requestors::Any);
        let sweep = Sweep { once: Some("quiet"), ..Sweep::at_once() };
        let first = case("a", "x", 1, work).swept(sweep);
        let mut found = Found::default();
        assert!(found.of(&first).is_none());
        let (second, other) =
            (Case { x: "y".into(), ..first.clone() }, Case { series: "b".into(), ..first.clone() });
        let trials = first.sweep.as_ref().map_or(0, Sweep::trials);
        let three = [&first, &second, &other];
        assert_eq!(found.trials(three.into_iter()), 2 * trials);
        let mut search = Search::new(&first, Measure::Rate).unwrap();
        while let Some(next) = search.next() {
            let value = f64::from(recovery(next).0);
            search.tried(Ok(value));
        }
        let (swept, best) = search.end();
        found.keep(&first, "e", &swept, best);
        assert_eq!(found.trials(three.into_iter()), trials);
        let (again, best) = found.of(&second).unwrap();
        assert_eq!((again.elsewhere.as_deref(), again.best, again.point.x.as_str()), (Some("e"), 2, "x"));
        let mut given = first.clone();
        best.give(&mut given);
        assert_eq!(recovery(&given), (64, Schedule::ByIndex, 0));
        assert!(found.of(&other).is_none());
        let other = Sweep { once: Some("busy"), ..Sweep::at_once() };
        assert!(found.of(&first.swept(other)).is_none());
    }

    #[test]
    fn a_recovery_under_load_has_the_same_settings() {
        let recovery = Recovery {
            method: Some(Method::Ppr),
            schedule: Schedule::ByIndex,
            per_node: 64,
            nodes: 1,
            stripes: 4,
            requestors: Requestors::Any,
            told: true,
            phase: None,
            load: None,
            straggler: None,
        };
        let sweep = Sweep { per_node: vec![16], ..Sweep::default() }.or_schedule(Schedule::Greedy);
        let plain = case("a", "x", 1, Work::UnderLoad(UnderLoad::Recover(recovery)));
        let mut search = Search::new(&plain.clone().swept(sweep), Measure::Rate).unwrap();
        let mut tried = Vec::new();
        while let Some(next) = search.next() {
            tried.push(settings(next));
            search.tried(Ok(10.0 + tried.len() as f64));
        }
        let wanted = ["64 a node, by-index", "16 a node, by-index", "64 a node, greedy"];
        let wanted = [&wanted[..], &wanted, &["16 a node, greedy"; 2]].concat();
        assert_eq!(tried, wanted.iter().map(|of| format!("{of}, automatic slices")).collect::<Vec<_>>());
        let mut other = plain.clone();
        search.end().1.give(&mut other);
        let Work::UnderLoad(UnderLoad::Recover(best)) = other.work else { panic!("another work") };
        assert_eq!((best.per_node, best.schedule), (16, Schedule::Greedy));
    }
}
