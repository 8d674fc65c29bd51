//! Runs an experiment: brings labs up and down, stores objects, interleaves the repetitions and collects rows.

use std::time::Instant;

use kintsu_dag::NodeId;
use kintsu_lab::Spec;
use tokio_util::sync::CancellationToken;

use super::declare::{Case, Experiment, Scene, Work};
use super::report::{Report, Row, Sample};
use super::site::{Site, Wanted};
use super::sweep::{Best, Found, Search, Sweep, Swept};
use super::{client_work, disturbed, recovery, single};
use crate::error::Result;
use crate::{Machine, Step};

/// How an experiment is run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// Repetitions of every case, within its own limits.
    pub runs: usize,
    /// Whether the experiments were made with `Size::quick`.
    pub quick: bool,
}

/// Runs an experiment. Sweeps with a name that were made already are taken from `found`, others are added to it. Its labs are down
/// when this returns. If the future is dropped, the labs end with this
/// process. When `stop` is cancelled, the report has what was measured until then ([`Report::cut_short`]), and does not
/// wait for the lab to go down.
///
/// # Errors
/// When a lab does not come up, an object cannot be stored, or a repair fails or gives wrong bytes.
pub async fn run(
    experiment: &Experiment,
    settings: Settings,
    found: &mut Found,
    stop: &CancellationToken,
    watch: &(dyn Fn(Step) + Send + Sync),
) -> Result<Report> {
    let started = Instant::now();
    let mut report = Report::new(experiment, Machine::this(), settings);
    let cases = experiment.scenes.iter().flat_map(|scene| &scene.cases);
    let samples: usize = cases.map(|case| runs(case, settings)).sum();
    let trials = found.trials(experiment.scenes.iter().flat_map(|scene| &scene.cases));
    let mut progress = Progress { watch, done: 0, total: samples + trials };
    for (number, scene) in experiment.scenes.iter().enumerate() {
        let spec = scene.spec.clone().scaled(experiment.scale)?;
        progress.tell(format!("lab {} of {}", number + 1, experiment.scenes.len()));
        let mut played = Played::of(scene);
        let site = tokio::select! {
            biased;
            // Then the lab before may still be there.
            () = stop.cancelled() => None,
            site = Site::up(scene, &spec) => Some(site?),
        };
        if let Some(mut site) = site {
            let all = async {
                store(&mut site, scene, &mut progress).await?;
                let cases =
                    best_settings(&mut site, scene, &spec, experiment, found, &mut played, &mut progress)
                        .await?;
                repeat(&mut site, scene, &spec, &cases, settings, &mut played, &mut progress).await
            };
            let ended = tokio::select! {
                ended = all => Some(ended),
                () = stop.cancelled() => None,
            };
            // A large lab can take longer than a process has that was told to end, and what was measured is still to be
            // written.
            let down = tokio::spawn(site.down());
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                _ = down => {}
            }
            ended.transpose()?;
        }
        report.rows.extend(played.rows);
        report.sweeps.extend(played.sweeps);
    }
    report.minutes = started.elapsed().as_secs_f64() / 60.0;
    report.cut_short = stop.is_cancelled();
    report.judge(&experiment.claims);
    Ok(report)
}

/// How often a case is repeated.
fn runs(case: &Case, settings: Settings) -> usize {
    settings.runs.max(*case.runs.start()).min(*case.runs.end())
}

struct Progress<'a> {
    watch: &'a (dyn Fn(Step) + Send + Sync),
    done: usize,
    total: usize,
}

impl Progress<'_> {
    fn tell(&self, what: String) {
        (self.watch)(Step { what, done: self.done as u64, total: self.total as u64 });
    }
}

/// What has been measured in a scene.
struct Played {
    rows: Vec<Row>,
    sweeps: Vec<Swept>,
}

impl Played {
    fn of(scene: &Scene) -> Self {
        Self { rows: scene.cases.iter().map(row).collect(), sweeps: Vec::new() }
    }
}

/// The case at which the settings of a case are tried, both as numbers: itself, or the next one of its series that has a sweep, or
/// the last one.
fn tried_at(cases: &[Case], number: usize) -> Option<usize> {
    let same = |at: &usize| cases[*at].sweep.is_some() && cases[*at].series == cases[number].series;
    (number..cases.len()).find(same).or_else(|| (0..number).rev().find(same))
}

/// Stores the objects of all cases.
async fn store(site: &mut Site, scene: &Scene, progress: &mut Progress<'_>) -> Result<()> {
    for wanted in scene.cases.iter().filter_map(wanted) {
        progress.tell(format!("storing {} in blocks of {} bytes", wanted.code, wanted.block_bytes));
        site.object(&wanted).await?;
    }
    Ok(())
}

/// The cases with the settings that suit them best.
async fn best_settings(
    site: &mut Site,
    scene: &Scene,
    spec: &Spec,
    experiment: &Experiment,
    found: &mut Found,
    played: &mut Played,
    progress: &mut Progress<'_>,
) -> Result<Vec<Case>> {
    let mut best: Vec<Option<Best>> = Vec::new();
    for case in &scene.cases {
        if let Some((swept, settings)) = found.of(case) {
            if swept.elsewhere.as_deref() != Some(experiment.name) {
                played.sweeps.push(swept);
            }
            best.push(Some(settings));
            continue;
        }
        let Some(mut search) = Search::new(case, experiment.measure) else {
            best.push(None);
            continue;
        };
        let after = progress.done + case.sweep.as_ref().map_or(0, Sweep::trials);
        while let Some(trial) = search.next() {
            progress.tell(format!("the best settings for {}, {}", case.series, case.x));
            let tried = match sample(site, scene, spec, trial, 0).await {
                Ok(sample) => Ok(sample.value(experiment.measure)),
                // It may be too much for a link, so that its node counts as dead. Then it is not the best.
                Err(error) => {
                    site.forget().await?;
                    recovery::mend(site).await?;
                    Err(format!("{error:#}"))
                }
            };
            search.tried(tried);
            progress.done += 1;
        }
        progress.done = after;
        let (swept, settings) = search.end();
        found.keep(case, experiment.name, &swept, settings);
        played.sweeps.push(swept);
        best.push(Some(settings));
    }
    let mut cases = scene.cases.clone();
    for (number, case) in cases.iter_mut().enumerate() {
        if let Some(best) = tried_at(&scene.cases, number).and_then(|at| best[at]) {
            best.give(case);
        }
    }
    Ok(cases)
}

/// Measures these cases of a scene in turns, as often as they are repeated.
async fn repeat(
    site: &mut Site,
    scene: &Scene,
    spec: &Spec,
    cases: &[Case],
    settings: Settings,
    played: &mut Played,
    progress: &mut Progress<'_>,
) -> Result<()> {
    for (case, row) in cases.iter().zip(&mut played.rows) {
        row.slice_bytes = single::slice_bytes(case.slice);
    }
    let most = cases.iter().map(|case| runs(case, settings)).max().unwrap_or(0);
    for repetition in 0..most {
        let both = cases.iter().zip(&mut played.rows);
        for (case, row) in both.filter(|(case, _)| repetition < runs(case, settings)) {
            progress.tell(format!("{}, {}", case.series, case.x));
            row.samples.push(sample(site, scene, spec, case, repetition).await?);
            progress.done += 1;
        }
    }
    Ok(())
}

async fn sample(
    site: &mut Site,
    scene: &Scene,
    spec: &Spec,
    case: &Case,
    repetition: usize,
) -> Result<Sample> {
    let name = match wanted(case) {
        Some(wanted) if case.work.loses_nodes() => site.laid_out(&wanted, case.work.is_told()).await?,
        Some(wanted) => site.object(&wanted).await?,
        None => String::new(),
    };
    let prefer = case.requestor.or_else(|| scene.free.first().copied());
    match &case.work {
        Work::Direct => {
            let stored = site.stripe(&name, 0).await?;
            let block = single::lost_blocks(&stored, 1, repetition)[0];
            let to = single::requestors(&stored, &[block], prefer, repetition)?[0];
            single::copy_one(site, &stored, block, to, case.slice).await
        }
        Work::Repair { method, lost, run_mode } => {
            let stored = site.stripe(&name, 0).await?;
            let lost = single::lost_blocks(&stored, *lost, repetition);
            let to = single::requestors(&stored, &lost, prefer, repetition)?;
            let steps = single::Steps { slice: case.slice, run_mode: *run_mode };
            single::repair_one(site, &stored, &lost, &to, *method, steps).await
        }
        Work::Recover(recover) => recovery::sample(site, case, recover, &name).await,
        Work::Write => client_work::write(site, case, &hosts(site, scene, case)).await,
        Work::Read { lost } | Work::ReadBlock { lost } => {
            let one_block = matches!(case.work, Work::ReadBlock { .. });
            client_work::read(site, &name, *lost, one_block, &hosts(site, scene, case)).await
        }
        Work::ReadBeside { lost, fault } => {
            client_work::read_beside(site, spec, &name, *lost, *fault, repetition).await
        }
        Work::Encode { stripes, binding } => client_work::encode(site, case, *stripes, *binding).await,
        Work::Disturbed(fault) => disturbed::sample(site, spec, case, *fault, &name, repetition).await,
        Work::UnderLoad(work) => work.sample(site, case, &hosts(site, scene, case), &name).await,
        Work::GiveWay(race) => race.sample(site, &name).await,
    }
}

/// The hosts of a case's clients: first the requested node or nodes without blocks, then any.
fn hosts(site: &Site, scene: &Scene, case: &Case) -> Vec<NodeId> {
    let any = (0..site.lab.hosts().len() as u32).map(NodeId);
    let mut hosts: Vec<NodeId> = Vec::new();
    for host in case.requestor.into_iter().chain(scene.free.iter().copied()).chain(any) {
        if hosts.len() < case.clients && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts
}

/// The object that must be in the lab before a case.
fn wanted(case: &Case) -> Option<Wanted> {
    let stripes = match &case.work {
        Work::UnderLoad(work) => work.stripes(),
        Work::GiveWay(race) => race.stripes,
        Work::Recover(recover) => recover.stripes,
        Work::Write | Work::Encode { .. } => return None,
        Work::Read { .. } | Work::ReadBlock { .. } => case.clients as u64,
        Work::Direct | Work::Repair { .. } | Work::ReadBeside { .. } | Work::Disturbed(_) => 1,
    };
    let encoded_later = match &case.work {
        Work::ReadBlock { .. } => true,
        Work::UnderLoad(work) => work.contiguous(),
        _ => false,
    };
    Some(Wanted { stripes, encoded_later, ..Wanted::of(case) })
}

fn row(case: &Case) -> Row {
    Row {
        point: super::declare::Point::new(case.series.clone(), case.x.clone()),
        code: case.code.clone(),
        block_bytes: case.block_bytes,
        slice_bytes: single::slice_bytes(case.slice),
        samples: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kintsu_plan::Method;

    use super::super::catalog::build::{case, one};
    use super::super::catalog::{Kind, Size, catalog};
    use super::*;

    #[test]
    fn a_lab_in_which_a_node_loses_all_blocks_has_one_object() {
        for entry in catalog() {
            let Kind::Measured(make) = entry.kind else { continue };
            for quick in [false, true] {
                for scene in make(Size { quick, scale: None }).unwrap().scenes {
                    let loses = scene.cases.iter().any(|case| case.work.loses_nodes());
                    let objects: BTreeSet<_> = scene.cases.iter().filter_map(wanted).collect();
                    assert!(!loses || objects.len() == 1, "{}: {objects:?}", entry.name);
                }
            }
        }
    }

    #[test]
    fn settings_are_those_that_were_tried_at_the_next_point_of_the_series_or_the_last_one() {
        let of = |series: &str, x: &str, swept: bool| {
            let case = case(series, x, 1, one(Method::Ppr));
            if swept { case.swept(Sweep::at_once()) } else { case }
        };
        let cases = [
            of("a", "1", false),
            of("a", "4", true),
            of("b", "4", false),
            of("a", "8", false),
            of("a", "16", true),
            of("a", "32", false),
        ];
        let at: Vec<_> = (0..cases.len()).map(|number| tried_at(&cases, number)).collect();
        assert_eq!(at, [Some(1), Some(1), None, Some(4), Some(4), Some(4)]);
    }
}
