//! Repairs that give way to users: a target for the users' P99, raced against fixed limits and what other systems do.
//!
//! Users are busy and quiet in turns. They first work alone for one turn of each kind: the median P99 of its windows is
//! what is usual in that kind of turn. Then a node is repaired, turn after turn. A window counts as over the target if
//! its P99 is more than `PERCENT` above the usual one of its turn. The first window of a turn does not count, for
//! no policy.

use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kintsu_client::Client;
use kintsu_plan::Method;
use kintsu_wire::message::{ChangeSetting, LinkEnd, NodeAction, Repair, RepairTarget, Settings, Way};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{ExperimentError, Result};
use crate::figures::NO_PAPER;
use crate::figures::catalog::build::{case, mbps};
use crate::figures::catalog::{Entry, Kind, Size};
use crate::figures::meter::Meter;
use crate::figures::site::Site;
use crate::figures::{Aim, Claim, Experiment, Measure, Point, Sample, Scene, Spread, Value, Work};
use crate::jobs::finish;
use crate::workload::{Latency, Leg, Played, Player, Scale, Score, Window, workload};

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
/// What systems allow their repairs as a fixed part of a link, with parts between.
const FIXED: [(&str, f64); 5] = [
    ("5%", 0.05),
    ("10% (CubeFS: 20 MB/s of a disk)", 0.1),
    ("20%", 0.2),
    ("42% (MinIO: 250 ms after each stripe)", ASLEEP),
    ("50% (Ceph, mClock)", 0.5),
];
/// One stripe after the other and 250 ms asleep after each: ten blocks, over 16 nodes.
const ASLEEP: f64 = 10.0 * BLOCK as f64 / 0.25 / 16.0 / LINK;
/// How often the gate looks.
const LOOK: Duration = Duration::from_secs(1);

const MEGABITS: f64 = 50.0;
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
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    /// How repairs give way.
    pub policy: Policy,
    /// Stripes of the object of which a node loses its blocks.
    pub stripes: u64,
    /// How long a turn is, in windows.
    pub turn: usize,
}

/// How repairs give way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// Not at all.
    Free,
    /// They have at most this part of a link.
    Part(f64),
    /// They stop while users take more than this part of some link.
    Gate(f64),
    /// The users' P99 may rise by this percentage.
    Target(u32),
}

fn race(size: Size) -> Result<Experiment> {
    let race = |policy| Race {
        policy,
        stripes: if size.quick { 24 } else { 96 },
        turn: if size.quick { 3 } else { 5 },
    };
    // Once, because all of them take a quarter of an hour.
    let point = |series: &str, x: &str, policy| {
        case(series, x, BLOCK, Work::GiveWay(race(policy))).code(RS_14_10).runs(1..=1)
    };
    let mut cases = vec![point(OURS, X, Policy::Target(PERCENT))];
    let systems = [("no limit (HDFS, SeaweedFS)", Policy::Free), ("gate at 80% (RustFS)", Policy::Gate(0.8))];
    cases.extend(systems.map(|(series, policy)| point(series, X, policy)));
    let fixed = size.some(&FIXED);
    cases.extend(fixed.iter().map(|(x, part)| point(FIXED_LIMIT, x, Policy::Part(*part))));
    let ours = Point::new(OURS, X);
    let mut claims = vec![
        Claim::new("windows over the target with the target set", Value::Over(ours.clone())).aim(Aim::AtMost(1.0)),
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
    Ok(Experiment {
        name: "give-way",
        title: "A node repaired while users are busy and quiet in turns, RS(14,10)",
        source: NO_PAPER,
        differs: "YCSB-A with values of 64 KiB, eight operations at once and two in turns of 25 s; windows of 5 s; limits of other \
                  systems as parts of a link of 50 Mb/s; the floor is 2% of a link",
        measure: Measure::Rate,
        axis: "limit",
        baseline: None,
        scale: 1.0,
        scenes: vec![Scene {
            spec: kintsu_lab::Spec::even(HOSTS, 1, mbps(MEGABITS)?),
            free: Vec::new(),
            cases,
        }],
        claims,
        strict: false,
    })
}

impl Race {
    /// Takes a sample: the time is that of the repair.
    ///
    /// # Errors
    /// When a block is not repaired, or users cannot work.
    pub(crate) async fn sample(&self, site: &mut Site, object: &str) -> Result<Sample> {
        let rates = site.lab.spec().await.rates();
        site.client.set_rates(&rates).await?;
        let link = rates.up.values().min().map_or(0.0, |rate| rate.get() as f64);
        let view = site.client.stripes(object, 0, 1).await?;
        let victim = view.stripes.iter().flat_map(|stripe| stripe.blocks.iter().flatten()).next();
        let victim = victim.map(|place| place.node);
        let victim = victim.ok_or_else(|| ExperimentError::invalid("object", "blocks on nodes", "none"))?;
        finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
        let _gate = self.policy.set(&site.client, link).await?;
        let users = Users::start(site, self.turn).await?;
        let alone = 2 * self.turn as u32 * WINDOW;
        tokio::time::sleep(alone).await;
        let meter = Meter::start(site).await?;
        let started = Instant::now();
        let wanted = Repair { method: Method::Auto, ..Repair::new(RepairTarget::Object(object.to_owned())) };
        let report = finish(site.client.repair_by(wanted).await?, |_, _| {}).await?;
        let seconds = started.elapsed().as_secs_f64();
        let sample = meter.stop(site, seconds).await?;
        let windows = users.end().await?;
        unset(&site.client).await?;
        finish(site.client.repair_by(Repair::new(RepairTarget::Node(victim))).await?, |_, _| {}).await?;
        let over = over_target(&windows, self.turn);
        let users = Played { seconds, windows: windows.clone(), all: summary(&windows), ..Played::default() };
        Ok(Sample {
            goal_bytes: report.bytes,
            planned_bytes: report.bytes_moved,
            planned_cross_rack_bytes: report.bytes_across_racks,
            users: Some(users),
            over: over.as_ref().and_then(part_over),
            tail: over.as_ref().and_then(tail),
            ..sample
        })
    }
}

/// The P99 of each window of a repair over the target, in busy and in quiet turns; `None` if the users' usual P99 is not known.
fn over_target(windows: &[Window], turn: usize) -> Option<[Vec<f64>; 2]> {
    let turns: Vec<&[Window]> = windows.chunks(turn).collect();
    // The first window of a turn has operations of the one before.
    let settled = |number: usize| turns.get(number).map(|windows| windows.get(1..).unwrap_or_default());
    let usual = [median(settled(0)?)?, median(settled(1)?)?];
    let mut over = [Vec::new(), Vec::new()];
    for number in 2..turns.len() {
        let target = usual[number % 2] * (1.0 + f64::from(PERCENT) / 100.0);
        let worked = settled(number)?.iter().filter(|window| window.operations > 0);
        over[number % 2].extend(worked.map(|window| window.p99_ms / target));
    }
    Some(over)
}

/// The part of the windows that were over the target; `None` if the repair ended in its first turn.
fn part_over(over: &[Vec<f64>; 2]) -> Option<f64> {
    let all = over.concat();
    let above = all.iter().filter(|window| **window > 1.0).count();
    (!all.is_empty()).then(|| above as f64 / all.len() as f64)
}

/// The P99 over the target: the median over the windows of a kind of turn, of the kind in which it is greater.
fn tail(over: &[Vec<f64>; 2]) -> Option<f64> {
    let medians = over.iter().filter_map(|windows| Some(Spread::of(windows.iter().copied())?.median));
    medians.max_by(f64::total_cmp)
}

fn median(windows: &[Window]) -> Option<f64> {
    Some(Spread::of(windows.iter().map(|window| window.p99_ms))?.median)
}

/// The P99 is the median over the windows.
fn summary(windows: &[Window]) -> Latency {
    let operations = windows.iter().map(|window| window.operations).sum();
    Latency { operations, p99_ms: median(windows).unwrap_or(0.0), ..Latency::default() }
}

impl Policy {
    /// Sets it. The gate is kept as long as the result lives.
    async fn set(self, client: &Client, link: f64) -> Result<Option<DropGuard>> {
        unset(client).await?;
        let rate = |part: f64| NonZeroU64::new((part * link) as u64).unwrap_or(NonZeroU64::MIN);
        client.change_setting(ChangeSetting::RepairMinRate(rate(FLOOR))).await?;
        match self {
            Self::Free => {}
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
    playing: JoinHandle<Result<()>>,
    watching: JoinHandle<Vec<Window>>,
    _stopped: DropGuard,
}

impl Users {
    /// Writes the values that are not there yet, and begins.
    async fn start(site: &Site, turn: usize) -> Result<Self> {
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
        let (score, stop) = (Arc::new(Score::default()), CancellationToken::new());
        let (counted, until) = (score.clone(), stop.clone());
        let playing = tokio::spawn(async move {
            for (number, player) in (1..).zip(players.iter().cycle()) {
                let leg = Leg { work: work(number)?, span: Some(turn as u32 * WINDOW) };
                player.run(vec![leg], &counted, &until).await?;
                if until.is_cancelled() {
                    break;
                }
            }
            Ok(())
        });
        let watching = tokio::spawn(windows(score, stop.clone()));
        let _stopped = stop.clone().drop_guard();
        Ok(Self { clients, stop, playing, watching, _stopped })
    }

    /// Ends them; returns what they measured, window by window.
    async fn end(self) -> Result<Vec<Window>> {
        self.stop.cancel();
        let crashed =
            |error: tokio::task::JoinError| ExperimentError::io("users")(std::io::Error::other(error));
        self.playing.await.map_err(crashed)??;
        let windows = self.watching.await.map_err(crashed)?;
        for client in &self.clients {
            client.close().await;
        }
        Ok(windows)
    }
}

/// Reads the score window by window.
async fn windows(score: Arc<Score>, stop: CancellationToken) -> Vec<Window> {
    let mut windows = Vec::new();
    let mut end = tokio::time::interval_at(tokio::time::Instant::now() + WINDOW, WINDOW);
    loop {
        tokio::select! {
            _ = end.tick() => {}
            () = stop.cancelled() => return windows,
        }
        let played = score.read();
        score.restart();
        let Latency { operations, p99_ms, .. } = played.all;
        windows.push(Window { operations, bytes: played.bytes, p99_ms });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_compared_with_the_usual_ones_of_their_turn() {
        let window = |p99_ms| Window { operations: 100, bytes: 0, p99_ms };
        // Turns of three windows: busy, quiet, then both with a repair.
        let p99 = [999.0, 30.0, 30.0, 999.0, 10.0, 10.0, 999.0, 35.0, 37.0, 999.0, 11.0, 13.0];
        let windows: Vec<Window> = p99.into_iter().map(window).collect();
        let over = |windows: &[Window]| over_target(windows, 3).unwrap();
        assert_eq!(part_over(&over(&windows)), Some(0.5));
        assert_eq!(part_over(&over(&windows[..8])), Some(0.0));
        assert_eq!(part_over(&over(&windows[..6])), None);
        // Both turns have their usual P99 as median, 36 and 12 being the target; in quiet ones it is further up.
        let near = |tail: Option<f64>, wanted: f64| (tail.unwrap() - wanted).abs() < 1e-9;
        assert!(near(tail(&over(&windows)), 1.0));
        let mut worse = windows.clone();
        worse[11].p99_ms = 17.0;
        assert!(near(tail(&over(&worse)), 14.0 / 12.0));
        assert_eq!(tail(&over(&windows[..6])), None);
        assert_eq!(summary(&windows[..3]).p99_ms, 30.0);
    }
}
