//! The list of experiments, each made by a function of the [`Size`].

pub(crate) mod build;
mod ecpipe;
mod ecpipe_rates;
mod ecpipe_ways;
mod less;
mod lrc;
mod openec;
pub(crate) mod own;
mod theory;

use super::declare::Experiment;
use super::report::Judged;
use crate::error::{ExperimentError, Result};

/// How large experiments are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Size {
    /// Blocks of 16 MiB at most, and fewer points: a quick check that everything works.
    pub quick: bool,
    /// Rates divided by the paper's rates; by default each experiment chooses.
    pub scale: Option<f64>,
}

/// An experiment of the catalogue.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// Names of groups that contain it.
    pub groups: &'static [&'static str],
    /// One line of description.
    pub about: &'static str,
    /// How its results are made.
    pub kind: Kind,
}

/// The kinds of entries.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Measured in labs.
    Measured(fn(Size) -> Result<Experiment>),
    /// Computed without a lab; with how it differs from the paper's.
    Computed(&'static str, fn() -> Result<Vec<Judged>>),
}

/// All experiments, in the order of their listing.
pub fn catalog() -> Vec<Entry> {
    [
        own::ENTRIES,
        ecpipe::ENTRIES,
        ecpipe_rates::ENTRIES,
        ecpipe_ways::ENTRIES,
        openec::ENTRIES,
        theory::ENTRIES,
        less::ENTRIES,
        lrc::ENTRIES,
        crate::give_way::ENTRIES,
        crate::chameleon::ENTRIES,
    ]
    .concat()
}

/// The experiments with these names or in these groups, each once, in the order of the catalogue.
///
/// # Errors
/// `Invalid` for a name that is neither an experiment's nor a group's.
pub fn find(names: &[String]) -> Result<Vec<Entry>> {
    let all = catalog();
    let asked = |entry: &Entry, name: &str| entry.name == name || entry.groups.contains(&name);
    for name in names {
        if !all.iter().any(|entry| asked(entry, name)) {
            let mut known: Vec<&str> =
                all.iter().flat_map(|e| e.groups.iter().copied().chain([e.name])).collect();
            known.sort_unstable();
            known.dedup();
            return Err(ExperimentError::invalid("experiment", known.join(", "), name));
        }
    }
    Ok(all.into_iter().filter(|entry| names.iter().any(|name| asked(entry, name))).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kintsu_plan::Schedule;
    use kintsu_wire::message::Requestors;

    use super::super::declare::{Baseline, Point, Value, Work};
    use super::*;

    fn points(value: &Value) -> Vec<Point> {
        match value {
            Value::TimeRatio(a, b) | Value::RateRatio(a, b) | Value::Reduction(a, b) => {
                vec![a.clone(), b.clone()]
            }
            Value::AboveBest(point)
            | Value::AtPaperRate(point)
            | Value::CrossRackBlocks(point)
            | Value::Traffic(point)
            | Value::Worst(point)
            | Value::Over(point)
            | Value::RateOverHolding(point, _)
            | Value::TailOverTarget(point)
            | Value::SentOver(point, _)
            | Value::OfBound(point)
            | Value::OfIdle(point) => vec![point.clone()],
            Value::Gain(a, b) | Value::CalmerTail(a, b) | Value::Interference(a, b) => {
                vec![a.clone(), b.clone()]
            }
            Value::CalmerTrace(a, b, alone) => vec![a.clone(), b.clone(), alone.clone()],
            Value::Mean(values) | Value::Least(values) | Value::Most(values) => {
                values.iter().flat_map(points).collect()
            }
            Value::Spread(_) | Value::OffSimulated(_) => Vec::new(),
        }
    }

    /// Whether a difference from a paper is told, in one line of text.
    fn is_said(differs: &str) -> bool {
        !differs.is_empty() && !differs.contains("  ") && !differs.contains(['\n', '\\', '|'])
    }

    #[test]
    fn experiments_are_sound_as_they_are_declared() {
        for entry in catalog() {
            let make = match entry.kind {
                Kind::Measured(make) => make,
                Kind::Computed(differs, _) => {
                    assert!(is_said(differs), "{}: {differs:?}", entry.name);
                    continue;
                }
            };
            for quick in [false, true] {
                let experiment = make(Size { quick, scale: None }).unwrap();
                assert_eq!(experiment.name, entry.name);
                assert!(is_said(experiment.differs), "{}: {:?}", entry.name, experiment.differs);
                // A summary reads the tables of a page.
                assert!(experiment.claims.iter().all(|claim| !claim.text.contains('|')), "{}", entry.name);
                let cases: Vec<_> = experiment.scenes.iter().flat_map(|scene| &scene.cases).collect();
                let known: BTreeSet<_> = cases.iter().map(|c| (c.series.clone(), c.x.clone())).collect();
                assert_eq!(known.len(), cases.len(), "{}: every point once", entry.name);
                for scene in &experiment.scenes {
                    scene.spec.clone().scaled(experiment.scale).unwrap().check().unwrap();
                    let named = scene.free.iter().chain(scene.cases.iter().flat_map(|case| &case.requestor));
                    let most = named.map(|node| node.0 as usize).max().unwrap_or(0);
                    assert!(most < scene.spec.nodes.len() && !scene.cases.is_empty(), "{}", entry.name);
                    for case in &scene.cases {
                        let code = kintsu_code::parse(&case.code).unwrap();
                        assert!(scene.spec.nodes.len() - scene.free.len() >= code.n(), "{}", entry.name);
                    }
                }
                let there = |point: &Point| known.contains(&(point.series.clone(), point.x.clone()));
                for point in experiment.claims.iter().flat_map(|claim| points(&claim.value)) {
                    assert!(there(&point), "{}: {point:?} is no point", entry.name);
                }
                match &experiment.baseline {
                    None => {}
                    Some(Baseline::Series(series)) => assert!(known.iter().any(|(s, _)| s == series)),
                    Some(Baseline::Point(point)) => assert!(there(point), "{}: {point:?}", entry.name),
                }
            }
        }
    }

    #[test]
    fn where_one_requestor_gets_all_blocks_few_repairs_at_once_are_tried_too() {
        let mut swept = 0;
        for entry in catalog() {
            let Kind::Measured(make) = entry.kind else { continue };
            for case in make(Size::default()).unwrap().scenes.into_iter().flat_map(|scene| scene.cases) {
                let (Work::Recover(recover), Some(sweep)) = (&case.work, &case.sweep) else { continue };
                // Whole blocks on a path need many repairs at once.
                if recover.requestors == Requestors::Count(1) && recover.schedule != Schedule::PushRep {
                    assert!(sweep.per_node.contains(&4), "{}: {}, {}", entry.name, case.series, case.x);
                    swept += 1;
                }
            }
        }
        assert_eq!(swept, 2 + 2 * 4 + 2 * 3, "ecpipe-8e, ecpipe-10b and openec-11b");
    }

    #[test]
    fn names_and_groups_are_found_and_others_refused() {
        let names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
            find(&names).map(|found| found.iter().map(|entry| entry.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["ecpipe-8a", "smoke"]).unwrap(), ["smoke", "ecpipe-8a"]);
        assert!(names(&["ecpipe"]).unwrap().len() >= 9);
        assert!(names(&["figure"]).unwrap_err().to_string().contains("ecpipe-8a"));
        let all = catalog();
        assert_eq!(all.iter().map(|e| e.name).collect::<BTreeSet<_>>().len(), all.len());
    }
}
