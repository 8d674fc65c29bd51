//! Repairs that give way to users: a target for the users' P99, raced against fixed limits and what other systems do.
//!
//! Users are busy and quiet in turns. They first work alone for one short turn of each kind: the median P99 of its windows is
//! what is usual in that kind of turn. Then a node is repaired, turn after turn. A window counts as over the target if
//! its P99 is more than `PERCENT` above the usual one of its turn. An operation belongs to the window in which it began, so
//! that all windows count, also the first one of a turn.

mod windows;

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::Duration;

use kintsu_client::Client;
use kintsu_plan::Method;
use kintsu_wire::message::{
    ChangeSetting, JobEvent, JobReport, LinkEnd, NodeAction, Repair, RepairLimit, RepairTarget, Settings, Way,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{ExperimentError, Result};
use crate::figures::NO_PAPER;
use crate::figures::catalog::build::{case, mbps};
use crate::figures::catalog::{Entry, Kind, Size};
use crate::figures::meter::Meter;
use crate::figures::recovery::measured;
use crate::figures::site::Site;
use crate::figures::{Aim, Claim, Experiment, Measure, Point, Sample, Scene, Value, Work};
use crate::jobs::finish;
use crate::workload::{Leg, Played, Player, Scale, Score, Window, workload};

use windows::{limits, over_target, part_over, spans, summary, tail, windows};

/// The experiments of this file.
pub(crate) const ENTRIES: &[Entry] = &[Entry {
    name: "give-way",
    groups: &["page"],
    about: "repairs that hold the users' P99 at a target, beside fixed limits and other systems' policies",
    kind: Kind::Measured(race),
}];

/// By how many percent the users' P99 may rise.
const PERCENT: u32 = 20;
/// One window of users' operations.
const WINDOW: Duration = Duration::from_secs(5);
/// Operations at once in a busy and in a quiet turn.
const TASKS: [usize; 2] = [8, 2];
/// Connections of users.
const CLIENTS: usize = 4;
/// The part of a link that repairs have in any case.
const FLOOR: f64 = 0.02;
/// What systems allow their repairs whatever users feel: a fixed part of a link, or a pause after each stripe; with parts between.
const FIXED: [(&str, Policy); 6] = [
    ("5%", Policy::Part(0.05)),
    ("7%", Policy::Part(0.07)),
    ("10% (CubeFS: 20 MB/s of a disk)", Policy::Part(0.1)),
    ("20%", Policy::Part(0.2)),
    ("one stripe at a time, 250 ms asleep after each (MinIO)", Policy::Asleep(Duration::from_millis(250))),
    ("50% (Ceph, mClock)", Policy::Part(0.5)),
];
/// How long a repair of one stripe may be silent before it is looked at again.
const SILENT: Duration = Duration::from_secs(2);
/// How often the gate looks, and the limit is asked for.
const LOOK: Duration = Duration::from_secs(1);

const MEGABITS: f64 = 25.0;
/// The same in bytes a second.
const LINK: f64 = MEGABITS * 1e6 / 8.0;
const HOSTS: u32 = 17;
const BLOCK: u64 = 1 << 20;
const RS_14_10: &str = "rs:n=14,k=10";
const REPLICATED: &str = "replication:n=3";

const OURS: &str = "target of 20%";
const FIXED_LIMIT: &str = "fixed limit";
const X: &str = "busy and quiet in turns";

/// The repair of a node while users work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Race {
    /// How repairs give way.
    pub policy: Policy,
    /// Stripes of the object of which a node loses its blocks.
    pub stripes: u64,
    /// How long each of the two turns is in which users are alone, in windows.
    pub alone: usize,
    /// How long each later turn is, in windows.
    pub turn: usize,
}

/// How repairs give way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Not at all.
    Free,
    /// They have at most this part of a link.
    Part(f64),
    /// One stripe is repaired after the other, with this pause after each.
    Asleep(Duration),
    /// They stop while users take more than this part of some link.
    Gate(f64),
    /// The users' P99 may rise by this percentage.
    Target(u32),
}

fn race(size: Size) -> Result<Experiment> {
    let race = |policy| {
        let (stripes, alone, turn) = if size.quick { (12, 3, 3) } else { (48, 5, 12) };
        let race = Race { policy, stripes, alone, turn };
        if race.is_slow() { Race { stripes: stripes / 2, ..race } } else { race }
    };
    // Once, because all of them take a third of an hour.
    let point = |series: &str, x: &str, policy| {
        case(series, x, BLOCK, Work::GiveWay(race(policy))).code(RS_14_10).runs(1..=1)
    };
    let mut cases = vec![point(OURS, X, Policy::Target(PERCENT))];
    let systems = [("no limit (HDFS, SeaweedFS)", Policy::Free), ("gate at 80% (RustFS)", Policy::Gate(0.8))];
    cases.extend(systems.map(|(series, policy)| point(series, X, policy)));
    let fixed = size.some(&FIXED);
    cases.extend(fixed.iter().map(|(x, policy)| point(FIXED_LIMIT, x, *policy)));
    // An object of fewer stripes is in a lab of its own.
    let (slow, cases): (Vec<_>, Vec<_>) =
        cases.into_iter().partition(|case| matches!(&case.work, Work::GiveWay(race) if race.is_slow()));
    let ours = Point::new(OURS, X);
    let mut claims = vec![
        Claim::new("windows over the target with the target set", Value::Over(ours.clone()))
            .aim(Aim::AtMost(1.0))
            .because("one window in twelve is the first one after users became busy or quiet, in which repairs have the limit of before"),
        Claim::new(
            "repair rate with the target over that of the fastest fixed limit that keeps 99% of windows below",
            Value::RateOverHolding(ours.clone(), FIXED_LIMIT.into()),
        )
        .aim(Aim::AtLeast(1.5)),
        Claim::new(
            "users' P99 with the target set, over the target, in busy or quiet turns, whichever is worse",
            Value::TailOverTarget(ours.clone()),
        )
        .aim(Aim::AtMost(1.1)),
        Claim::new(
            "what nodes send for the repair with the target set, over what the floor alone allows them",
            Value::SentOver(ours, FLOOR * LINK * f64::from(HOSTS - 1)),
        )
        .aim(Aim::AtLeast(1.0)),
    ];
    for (series, _) in systems {
        let value = Value::Over(Point::new(series, X));
        claims.push(Claim::new(format!("windows over the target: {series}"), value));
    }
    for (x, _) in fixed {
        let value = Value::Over(Point::new(FIXED_LIMIT, x));
        claims.push(Claim::new(format!("windows over the target: fixed limit, {x}"), value));
    }
    let scene = |cases| {
        let spec = kintsu_lab::Spec::even(HOSTS, 1, mbps(MEGABITS)?);
        Ok::<_, ExperimentError>(Scene { spec, free: Vec::new(), cases })
    };
    Ok(Experiment {
        name: "give-way",
        title: "A node repaired while users are busy and quiet in turns, RS(14,10)",
        source: NO_PAPER,
        differs: "YCSB-A with values of 64 KiB, eight operations at once and two in turns of 60 s, of 25 s while they work alone; windows of 5 s, of \
                  operations by when they began; the limits of Ceph and CubeFS are played as a fixed part of a link of 25 Mb/s, and RustFS's gate looks at links; \
                  MinIO's pauses are played as such, with half as many stripes; nobody tells the rates of links; the floor is 2% of a link; each policy once",
        measure: Measure::Rate,
        axis: "limit",
        baseline: None,
        scale: 1.0,
        scenes: [cases, slow]
            .into_iter()
            .filter(|cases| !cases.is_empty())
            .map(scene)
            .collect::<Result<_>>()?,
        claims,
        strict: false,
    })
}

impl Race {
    /// Whether it would take as long as half of the others together.
    fn is_slow(&self) -> bool {
        matches!(self.policy, Policy::Asleep(_))
    }

    /// The windows of a turn.
    fn windows(&self, turn: usize) -> usize {
        if turn < 2 { self.alone } else { self.turn }
    }

    /// Takes a sample: the time is that of the repair.
    ///
    /// # Errors
    /// When a block is not repaired, or users cannot work.
    pub(crate) async fn sample(&self, site: &mut Site, object: &str) -> Result<Sample> {
        measured(site).await?;
        let rates = site.lab.spec().await.rates();
        let link = rates.up.values().min().map_or(0.0, |rate| rate.get() as f64);
        let view = site.client.stripes(object, 0, 1).await?;
        let victim = view.stripes.iter().flat_map(|stripe| stripe.blocks.iter().flatten()).next();
        let victim = victim.map(|place| place.node);
        let victim = victim.ok_or_else(|| ExperimentError::invalid("object", "blocks on nodes", "none"))?;
        finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
        let _gate = self.policy.set(&site.client, link).await?;
        let users = Users::start(site, *self).await?;
        let alone = 2 * self.alone as u32 * WINDOW;
        tokio::time::sleep(alone).await;
        let meter = Meter::start(site).await?;
        let started = Instant::now();
        let wanted = Repair { method: Method::Auto, ..Repair::new(RepairTarget::Object(object.to_owned())) };
        let report = match self.policy {
            Policy::Asleep(pause) => one_by_one(&site.client, wanted, pause).await?,
            _ => finish(site.client.repair_by(wanted).await?, |_, _| {}).await?,
        };
        let seconds = started.elapsed().as_secs_f64();
        let sample = meter.stop(site, seconds).await?;
        let (turns, limits) = users.end().await?;
        unset(&site.client).await?;
        finish(site.client.repair_by(Repair::new(RepairTarget::Node(victim))).await?, |_, _| {}).await?;
        let over = over_target(&turns);
        let windows = turns.concat();
        let users = Played { seconds, windows: windows.clone(), all: summary(&windows), ..Played::default() };
        Ok(Sample {
            goal_bytes: report.bytes,
            planned_bytes: report.bytes_moved,
            planned_cross_rack_bytes: report.bytes_across_racks,
            users: Some(users),
            over: over.as_ref().and_then(part_over),
            windows: over.as_ref().map_or(0, |over| over.iter().map(Vec::len).sum::<usize>() as u64),
            tail: over.as_ref().and_then(tail),
            limits,
            ..sample
        })
    }
}

/// Repairs stripe by stripe, with a pause after each. The job is paused but for moments in which a stripe begins: what has
/// begun is finished. No second one begins, because it would need nodes that take part in the first.
async fn one_by_one(client: &Client, wanted: Repair, pause: Duration) -> Result<JobReport> {
    let mut events = client.repair_by(Repair { per_node: 1, ..wanted }).await?;
    let (mut id, mut repaired) = (None, 0);
    loop {
        // Silence: nothing had begun.
        if let Ok(event) = tokio::time::timeout(SILENT, events.next()).await {
            match event?.ok_or_else(|| ExperimentError::invalid("job", "a report", "none"))? {
                JobEvent::Began(job) => id = Some(job.id),
                JobEvent::Progress { done, .. } if done > repaired => {
                    repaired = done;
                    tokio::time::sleep(pause).await;
                }
                JobEvent::Progress { .. } => continue,
                JobEvent::Ended(report) if report.failed.is_empty() => return Ok(report),
                JobEvent::Ended(report) => {
                    let failed = report.failed.join("; ");
                    return Err(ExperimentError::invalid(report.kind, "everything done", failed));
                }
            }
        }
        // A job that has ended refuses, and says so itself.
        if let Some(id) = id {
            let _ = client.resume_job(id).await;
            let _ = client.pause_job(id).await;
        }
    }
}

impl Policy {
    /// Sets it. The gate is kept as long as the result lives.
    async fn set(self, client: &Client, link: f64) -> Result<Option<DropGuard>> {
        unset(client).await?;
        let rate = |part: f64| NonZeroU64::new((part * link) as u64).unwrap_or(NonZeroU64::MIN);
        client.change_setting(ChangeSetting::RepairMinRate(rate(FLOOR))).await?;
        match self {
            Self::Free | Self::Asleep(_) => {}
            Self::Part(part) => {
                client.change_setting(ChangeSetting::RepairMaxRate(Some(rate(part)))).await?;
            }
            Self::Target(percent) => {
                client.change_setting(ChangeSetting::RepairTarget(NonZeroU32::new(percent))).await?;
            }
            Self::Gate(part) => {
                let stop = CancellationToken::new();
                tokio::spawn(gate(client.clone(), part, rate(FLOOR), stop.clone()));
                return Ok(Some(stop.drop_guard()));
            }
        }
        Ok(None)
    }
}

/// Has repairs wait while users take more than this part of some link.
async fn gate(client: Client, part: f64, closed: NonZeroU64, stop: CancellationToken) {
    let mut now = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
        // A look that fails is taken again.
        let Ok(known) = client.known_rates().await else { continue };
        let busy = known.links.iter().any(|link| {
            let of_node = matches!((link.end, link.way), (LinkEnd::Node(_), Way::Up | Way::Down));
            let taken = link.capacity.zip(link.foreground);
            of_node && taken.is_some_and(|((capacity, _), users)| users as f64 > part * capacity as f64)
        });
        let limit = busy.then_some(closed);
        if now != Some(limit) && client.change_setting(ChangeSetting::RepairMaxRate(limit)).await.is_ok() {
            now = Some(limit);
        }
    }
}

/// Asks for the limit of repairs until somebody stops it.
async fn watch(client: Client, stop: CancellationToken) -> Vec<(Instant, RepairLimit)> {
    let mut said = Vec::new();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return said,
        }
        let limit = client.job_list().await.ok().and_then(|list| list.repair_limit);
        said.extend(limit.map(|limit| (Instant::now(), limit)));
    }
}

/// Puts back the defaults.
async fn unset(client: &Client) -> Result<()> {
    let defaults = Settings::default();
    client.change_setting(ChangeSetting::RepairTarget(defaults.repair_target)).await?;
    client.change_setting(ChangeSetting::RepairMaxRate(defaults.repair_max_rate)).await?;
    client.change_setting(ChangeSetting::RepairMinRate(defaults.repair_min_rate)).await?;
    Ok(())
}

/// Users who work until they are dropped.
struct Users {
    clients: Vec<Client>,
    stop: CancellationToken,
    score: Arc<Score>,
    race: Race,
    /// Ends with the times at which turns began.
    playing: JoinHandle<Result<Vec<Instant>>>,
    watching: JoinHandle<Vec<(Instant, RepairLimit)>>,
    _stopped: DropGuard,
}

impl Users {
    /// Writes the values that are not there yet, and begins.
    async fn start(site: &Site, race: Race) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(site.lab.client().await?);
        }
        let players = TASKS.map(|tasks| Player::new(clients.clone(), REPLICATED, tasks));
        // 200 values of 64 KiB.
        let work = |seed| {
            Ok::<_, ExperimentError>(workload("ycsb-a")?.start(Scale { sizes: 0.125, count: 0.2 }, seed))
        };
        players[0].fill(&work(1)?, |_| {}).await?;
        let (score, stop) = (Arc::new(Score::with_log()), CancellationToken::new());
        let (counted, until) = (score.clone(), stop.clone());
        let playing = tokio::spawn(async move {
            let mut starts = Vec::new();
            for (number, player) in players.iter().cycle().enumerate() {
                let span = race.windows(number) as u32 * WINDOW;
                let leg = Leg { work: work(number as u64 + 1)?, span: Some(span) };
                starts.push(Instant::now());
                player.run(vec![leg], &counted, &until).await?;
                if until.is_cancelled() {
                    break;
                }
            }
            Ok(starts)
        });
        let watching = tokio::spawn(watch(site.client.clone(), stop.clone()));
        let _stopped = stop.clone().drop_guard();
        Ok(Self { clients, stop, score, race, playing, watching, _stopped })
    }

    /// Ends them; returns what they measured, window by window of each turn, and what the limit of repairs was in each window.
    async fn end(self) -> Result<(Vec<Vec<Window>>, Vec<Option<RepairLimit>>)> {
        let stopped = Instant::now();
        self.stop.cancel();
        let crashed =
            |error: tokio::task::JoinError| ExperimentError::io("users")(std::io::Error::other(error));
        let starts = self.playing.await.map_err(crashed)??;
        let said = self.watching.await.map_err(crashed)?;
        let spans = spans(&starts, stopped, self.race);
        for client in &self.clients {
            client.close().await;
        }
        Ok((windows(&spans, &self.score.take_log()), limits(&spans, &said)))
    }
}
