//! Runs the attempts of a repair and watches their speed. If a slow helper delays an attempt and others can
//! replace it, the attempt is ended and the rest is planned without that helper. `engine::repair` decides
//! what is slow and which nodes are to blame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::{PlanError, Program, Stragglers, Topology, predicted};
use kintsu_runtime::{Conducted, Observed};
use tokio::sync::watch;

use super::run::{ReadyPlan, run_watched};
use super::steering::Wheel;
use super::{repair_jobs, shown, steering};
use crate::cluster::Cluster;
use crate::engine::repair::{Attempt, RepairSpeed, Slow, StripeRepair, others_are_fine, suspects};

/// Milliseconds between two measurements of the speed of a repair that runs alone. With shorter ones the speed is judged before the silence
/// of a node that is cut off is, while others seem to be to blame.
const LOOK_MS: u64 = 40;
/// With other repairs that time is longer, at most by this factor.
const CROWD: u64 = 5;
/// The nodes that others wait for are judged over at least this many measurements, and over at least the time for which
/// the speed is measured.
const LOOKS: usize = 6;
/// The block size for which a rate is computed.
const PER_BLOCK: u64 = 1 << 30;

/// Watches the speed of one repair, as long as it lasts.
pub struct SpeedWatch {
    cluster: Arc<Cluster>,
    speed: RepairSpeed,
    repair: u64,
    stripe: StripeId,
    began_ms: u64,
    made: u64,
}

impl SpeedWatch {
    /// A repair of a stripe begins whose blocks have at most `whole` bytes.
    pub fn new(cluster: &Arc<Cluster>, stripe: StripeId, whole: u64) -> Self {
        let repair = cluster.next_number();
        cluster.speeds().begun(repair);
        let speed = RepairSpeed::new(repair, whole);
        Self { cluster: cluster.clone(), speed, repair, stripe, began_ms: cluster.now_ms(), made: 0 }
    }
}

impl Drop for SpeedWatch {
    fn drop(&mut self) {
        let now_ms = self.cluster.now_ms();
        let took_ms = now_ms.saturating_sub(self.began_ms);
        self.cluster.speeds().ended(self.repair, now_ms, self.made, took_ms);
        self.cluster.steering().ended(self.stripe);
    }
}

/// Runs an attempt to its end, or until it is worth replanning without the nodes that delay it.
///
/// # Errors
/// The plan does not become programs.
pub async fn run_on(
    cluster: &Arc<Cluster>,
    repair: &mut StripeRepair,
    attempt: &Arc<Attempt>,
    job: ReadyPlan<'_>,
    speed_watch: &mut SpeedWatch,
) -> Result<(Vec<Program>, Conducted), PlanError> {
    let cancel = cluster.stop.child_token();
    let (watcher, seen) = watch::channel(Observed::default());
    shown::attempt(cluster, repair, attempt, &seen);
    let running = run_watched(cluster, job, Some(watcher), &cancel);
    tokio::pin!(running);
    let mut wheel = steering::begin(cluster, repair, attempt);
    let endures = repair.order().method.row().stragglers == Stragglers::Endure;
    let goes_around = wheel.is_none() && !endures;
    let ran = tokio::select! {
        ran = &mut running => ran,
        steer = Wheel::turned(&mut wheel) => {
            cancel.cancel();
            let ran = running.await;
            if let Ok((_, Conducted { upto, fault: Some(_), .. })) = &ran {
                steering::follow(cluster, repair, *upto, steer, &mut wheel).await;
            }
            ran
        }
        (slow, nodes) = speed_watch.hold_up(repair, attempt, seen, goes_around) => {
            cancel.cancel();
            let ran = running.await;
            // The attempt may have ended by itself meanwhile; then no node is to be avoided.
            if let Ok((_, Conducted { upto, fault: Some(_), .. })) = &ran {
                let why = describe(slow, &nodes);
                tracing::warn!("{}: {why}; the rest is planned around", repair.id());
                repair.turn(&nodes, *upto, &why);
                speed_watch.speed.turned(slow, &cluster.speeds());
                let now_ms = cluster.now_ms();
                nodes.iter().for_each(|node| cluster.slow_nodes().found(*node, speed_watch.repair, now_ms));
            }
            ran
        }
    };
    if let Ok((_, conducted)) = &ran {
        speed_watch.made += conducted.upto.saturating_sub(attempt.start);
    }
    ran
}

impl SpeedWatch {
    /// Completes when an attempt is slow because of nodes that it can do without; returns these nodes. Never completes
    /// if the attempt must keep its nodes.
    async fn hold_up(
        &mut self,
        repair: &StripeRepair,
        attempt: &Attempt,
        seen: watch::Receiver<Observed>,
        goes_around: bool,
    ) -> (Slow, Vec<NodeId>) {
        self.speed.begin(self.cluster.now_ms(), attempt.start, self.promised(attempt));
        let nodes = [attempt.helpers(), attempt.plan.requestors.clone()].concat();
        self.cluster.speeds().goes(self.repair, nodes);
        let mut looks = VecDeque::from([(self.cluster.now_ms(), Observed::default())]);
        loop {
            let look_ms = LOOK_MS * (self.cluster.speeds().running() as u64).min(CROWD);
            tokio::time::sleep(Duration::from_millis(look_ms)).await;
            let (now_ms, now) = (self.cluster.now_ms(), seen.borrow().clone());
            let upto = now.upto.max(attempt.start);
            let commands = self.cluster.queue().reached(repair.id(), upto, repair.whole());
            repair_jobs::act(&self.cluster, commands);
            if self.cluster.steering().has(repair.id()) {
                let blamed = suspects(&looks[0].1, &now, &attempt.plan.requestors);
                self.cluster.steering().reached(repair.id(), upto, &now, blamed);
            }
            let slow = self.speed.note(now_ms, upto, &mut self.cluster.speeds());
            if let Some(slow) = slow.filter(|_| goes_around) {
                let (since_ms, before) = &looks[0];
                let suspected = suspects(before, &now, &attempt.plan.requestors);
                let fine = others_are_fine(before, &now, &suspected, now_ms.saturating_sub(*since_ms));
                let (topology, _) = self.cluster.nodes();
                // Checking whether other nodes can replace these means planning again, so it comes last.
                if fine && !self.any_busy(&suspected, &topology) {
                    let (repair, attempt) = (repair.clone(), attempt.clone());
                    let plan = move || repair.could_spare(&attempt, &suspected, &topology);
                    // If planning panics, no node is avoided.
                    let nodes = kintsu_wire::ambient::blocking(plan).await.unwrap_or_default();
                    if !nodes.is_empty() {
                        return (slow, nodes);
                    }
                }
            }
            looks.push_back((now_ms, now));
            let kept = (self.cluster.speeds().window_ms() / look_ms) as usize;
            while looks.len() > kept.max(LOOKS) {
                looks.pop_front();
            }
        }
    }

    /// What the plan of an attempt promises if nothing else runs, in bytes of every block per millisecond.
    fn promised(&self, attempt: &Attempt) -> Option<f64> {
        let (mut topology, _) = self.cluster.nodes();
        topology.rates = self.cluster.sure_rates();
        let plan = &attempt.plan.plan;
        let seconds = predicted(plan, &topology, PER_BLOCK).ok().filter(|seconds| *seconds > 0.0)?;
        let paced = plan.rate_limit().map_or(f64::INFINITY, |rate| rate.get() as f64);
        Some((PER_BLOCK as f64 / seconds).min(paced) / 1000.0)
    }

    /// Whether all repairs together keep one of these nodes busy.
    fn any_busy(&self, nodes: &[NodeId], topology: &Topology) -> bool {
        let speeds = self.cluster.speeds();
        // The rate that the cluster was told for the node, in bytes per millisecond.
        let told = |node| topology.rate(node, node).map(|rate| rate.get() as f64 / 1000.0);
        nodes.iter().any(|&node| speeds.is_busy(node, self.repair, told(node)))
    }
}

fn describe(slow: Slow, nodes: &[NodeId]) -> String {
    // Bytes per millisecond are kilobytes per second.
    let names: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    format!(
        "slow: expected {:.0} KB/s of every block, got {:.0} KB/s; all waited for {}",
        slow.expected,
        slow.rate,
        names.join(" or ")
    )
}
