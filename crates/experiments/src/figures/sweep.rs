//! Every baseline runs at its own best: before the repetitions, the recoveries of a series are tried once with several
//! numbers of repairs at once, ways to choose helpers and sizes of slices, one quantity after the other. What was
//! fastest is used for all points of the series in this lab. The report shows what was tried.

use kintsu_plan::Schedule;
use serde::{Deserialize, Serialize};

use super::declare::{Case, Measure, Point, Slice, Work};
use crate::under_load::UnderLoad;

/// What is tried for a series. What the case itself says is tried first, so lists of alternatives may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sweep {
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
        Self {
            per_node: vec![4, 16, 64],
            schedules: Vec::new(),
            slices: vec![Slice::Bytes(32 << 10), Slice::Bytes(256 << 10)],
        }
    }

    /// With this schedule as an alternative.
    #[must_use]
    pub fn or_schedule(mut self, schedule: Schedule) -> Self {
        self.schedules.push(schedule);
        self
    }

    /// With slices as the case says and no others.
    #[must_use]
    pub fn only_own_slices(self) -> Self {
        Self { slices: Vec::new(), ..self }
    }

    /// How many trials this is.
    pub(crate) fn trials(&self) -> usize {
        1 + self.per_node.len() + self.schedules.len() + self.slices.len()
    }

    /// The alternatives to a case, in stages: each stage starts from the best so far.
    fn stages(&self) -> [Vec<Change>; 3] {
        [
            self.per_node.iter().map(|most| Change::PerNode(*most)).collect(),
            self.schedules.iter().map(|schedule| Change::Schedule(*schedule)).collect(),
            self.slices.iter().map(|slice| Change::Slice(*slice)).collect(),
        ]
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
    /// One sample of it, in the experiment's measure; none if it failed.
    pub value: Option<f64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Searches for the settings of a case that suit it best.
pub(crate) struct Search {
    stages: std::vec::IntoIter<Vec<Change>>,
    stage: std::vec::IntoIter<Change>,
    best: Case,
    next: Option<Case>,
    measure: Measure,
    swept: Swept,
}

impl Search {
    /// Nothing has been tried yet. `None` for a case without a sweep.
    pub fn new(case: &Case, measure: Measure) -> Option<Self> {
        let sweep = case.sweep.as_ref()?;
        let point = Point::new(case.series.clone(), case.x.clone());
        Some(Self {
            stages: Vec::from(sweep.stages()).into_iter(),
            stage: Vec::new().into_iter(),
            best: case.clone(),
            next: Some(case.clone()),
            measure,
            swept: Swept { point, tried: Vec::new(), best: 0 },
        })
    }

    /// What to try next; `None` when all has been tried.
    pub fn next(&self) -> Option<&Case> {
        self.next.as_ref()
    }

    /// The value of what was tried, or why it failed.
    pub fn tried(&mut self, tried: Result<f64, String>) {
        let Some(case) = self.next.take() else { return };
        let (value, error) = match tried {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(error)),
        };
        let best = self.swept.tried.get(self.swept.best).and_then(|best| best.value);
        let better = |value: f64| match (best, self.measure) {
            (None, _) => true,
            (Some(best), Measure::Seconds) => value < best,
            (Some(best), Measure::Rate) => value > best,
        };
        if value.is_some_and(better) {
            self.swept.best = self.swept.tried.len();
            self.best = case.clone();
        }
        self.swept.tried.push(Tried { settings: settings(&case), value, error });
        self.next = loop {
            if let Some(change) = self.stage.next() {
                break Some(change.of(&self.best));
            }
            match self.stages.next() {
                Some(stage) => self.stage = stage.into_iter(),
                None => break None,
            }
        };
    }

    /// What was tried, and a function that gives a case the best settings.
    pub fn end(self) -> (Swept, impl Fn(&mut Case)) {
        let best = self.best;
        let give = move |case: &mut Case| {
            case.slice = best.slice;
            let mut from = best.work.clone();
            if let (Some(to), Some(from)) =
                (at_once_and_schedule(&mut case.work), at_once_and_schedule(&mut from))
            {
                (*to.0, *to.1) = (*from.0, *from.1);
            }
        };
        (self.swept, give)
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

    #[test]
    fn each_stage_starts_from_the_best_so_far_and_the_best_of_all_is_used() {
        let work = recover(Method::Conventional, Schedule::ByIndex, 4, Requestors::Any);
        let sweep = Sweep::usual().or_schedule(Schedule::Balanced);
        let plain = case("a", "x", 1, work);
        assert!(Search::new(&plain, Measure::Rate).is_none());
        let case = Case { sweep: Some(sweep.clone()), ..plain };
        // Sixteen a node is best, the schedule makes no difference, small slices are worse and large ones better.
        let mut search = Search::new(&case, Measure::Rate).unwrap();
        let mut seen = Vec::new();
        while let Some(next) = search.next() {
            let Work::Recover(recover) = &next.work else { panic!("another work") };
            let slice = match next.slice {
                Slice::Bytes(bytes) => bytes >> 10,
                Slice::Auto => 0,
            };
            seen.push((recover.per_node, recover.schedule, slice));
            let first: f64 = if recover.per_node == 16 { 5.0 } else { 3.0 };
            let more = [(0, 0.0), (32, -1.0), (256, 1.0)].iter().find(|s| s.0 == slice).unwrap().1;
            // What fails is never the best, also if it is the first.
            let failed = recover.per_node == 0;
            search.tried(if failed { Err("too much".into()) } else { Ok(first + more) });
        }
        let (index, balanced) = (Schedule::ByIndex, Schedule::Balanced);
        let wanted = [(0, index, 0), (4, index, 0), (16, index, 0), (64, index, 0), (16, balanced, 0)];
        assert_eq!(seen, [&wanted[..], &[(16, index, 32), (16, index, 256)]].concat());
        assert_eq!(seen.len(), sweep.trials());
        let (swept, give) = search.end();
        assert_eq!((swept.best, swept.tried.len()), (6, 7));
        assert_eq!(swept.tried[6].settings, "16 a node, by-index, slices of 256 KiB");
        let mut other = case.clone();
        give(&mut other);
        assert_eq!(other.slice, Slice::Bytes(256 << 10));
        let Work::Recover(recover) = &other.work else { panic!("another work") };
        assert_eq!(recover.per_node, 16);
        // Where less is better, the least is taken.
        let mut search = Search::new(&case, Measure::Seconds).unwrap();
        let mut value = 9.0;
        while search.next().is_some() {
            value -= 1.0;
            search.tried(Ok(value));
        }
        assert_eq!(search.end().0.best, 6);
    }

    #[test]
    fn a_recovery_under_load_has_the_same_settings() {
        let recovery = Recovery {
            method: Some(Method::Ppr),
            schedule: Schedule::ByIndex,
            per_node: 64,
            nodes: 1,
            stripes: 4,
            load: None,
            straggler: None,
        };
        let sweep = Sweep { per_node: vec![16], ..Sweep::default() }.or_schedule(Schedule::Greedy);
        let plain = case("a", "x", 1, Work::UnderLoad(UnderLoad::Recover(recovery)));
        let mut search = Search::new(&plain.clone().swept(sweep), Measure::Rate).unwrap();
        let mut tried = Vec::new();
        while let Some(next) = search.next() {
            tried.push(settings(next));
            search.tried(Ok(tried.len() as f64));
        }
        let wanted = ["64 a node, by-index", "16 a node, by-index", "16 a node, greedy"];
        assert_eq!(tried, wanted.map(|settings| format!("{settings}, automatic slices")));
        let mut other = plain.clone();
        search.end().1(&mut other);
        let Work::UnderLoad(UnderLoad::Recover(best)) = other.work else { panic!("another work") };
        assert_eq!((best.per_node, best.schedule), (16, Schedule::Greedy));
    }
}
