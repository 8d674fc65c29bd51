//! Runs the attempts of a repair and watches their speed. If a slow helper delays an attempt and others can
//! replace it, the attempt is ended and the rest is planned without that helper. `engine::repair` decides
//! what is slow and which nodes are to blame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::{PlanError, Program, Topology};
use kintsu_runtime::{Conducted, Observed};
use tokio::sync::watch;

use super::run::{ReadyPlan, run_watched};
use crate::cluster::Cluster;
use crate::engine::repair::{Attempt, RepairSpeed, Slow, StripeRepair, suspects};

/// Time between two measurements of the speed, in milliseconds.
const LOOK_MS: u64 = 250;
/// The nodes that others wait for are judged over at least this many measurements, and over at least as long
/// a time as the speed is measured.
const LOOKS: usize = 5;

/// Watches the speed of one repair, as long as it lasts.
pub struct SpeedWatch {
    cluster: Arc<Cluster>,
    speed: RepairSpeed,
    repair: u64,
    began_ms: u64,
    made: u64,
}

impl SpeedWatch {
    /// A repair begins whose blocks have at most `whole` bytes.
    pub fn new(cluster: &Arc<Cluster>, whole: u64) -> Self {
        let repair = cluster.next_number().0;
        cluster.speeds().begun(repair);
        let speed = RepairSpeed::new(repair, whole);
        Self { cluster: cluster.clone(), speed, repair, began_ms: cluster.now_ms(), made: 0 }
    }
}

impl Drop for SpeedWatch {
    fn drop(&mut self) {
        let now_ms = self.cluster.now_ms();
        let took_ms = now_ms.saturating_sub(self.began_ms);
        self.cluster.speeds().ended(self.repair, now_ms, self.made, took_ms);
    }
}

/// Runs an attempt to its end, or until it is worth replanning without the nodes that delay it.
///
/// # Errors
/// The plan does not become programs.
pub async fn run_on(
    cluster: &Arc<Cluster>,
    repair: &mut StripeRepair,
    attempt: &Attempt,
    job: ReadyPlan<'_>,
    speed_watch: &mut SpeedWatch,
) -> Result<(Vec<Program>, Conducted), PlanError> {
    let cancel = cluster.stop.child_token();
    let (watcher, seen) = watch::channel(Observed::default());
    let running = run_watched(cluster, job, Some(watcher), &cancel);
    tokio::pin!(running);
    let ran = tokio::select! {
        ran = &mut running => ran,
        (slow, nodes) = speed_watch.hold_up(repair, attempt, seen) => {
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
    /// Completes when an attempt is slow because of nodes that it can do without; returns these nodes.
    async fn hold_up(
        &mut self,
        repair: &StripeRepair,
        attempt: &Attempt,
        seen: watch::Receiver<Observed>,
    ) -> (Slow, Vec<NodeId>) {
        self.speed.begin(self.cluster.now_ms(), attempt.start);
        let nodes = [attempt.helpers(), attempt.plan.requestors.clone()].concat();
        self.cluster.speeds().goes(self.repair, nodes);
        let mut looks = VecDeque::from([Observed::default()]);
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            let now = seen.borrow().clone();
            let upto = now.upto.max(attempt.start);
            let slow = self.speed.note(self.cluster.now_ms(), upto, &mut self.cluster.speeds());
            if let Some(slow) = slow {
                let suspected = suspects(&looks[0], &now, &attempt.plan.requestors);
                let (topology, _) = self.cluster.nodes();
                // Checking whether other nodes can replace these means planning again, so it comes last.
                if !self.any_busy(&suspected, &topology) {
                    let (repair, attempt) = (repair.clone(), attempt.clone());
                    let plan = move || repair.could_spare(&attempt, &suspected, &topology);
                    // If planning panics, no node is avoided.
                    let nodes = kintsu_wire::ambient::blocking(plan).await.unwrap_or_default();
                    if !nodes.is_empty() {
                        return (slow, nodes);
                    }
                }
            }
            looks.push_back(now);
            let kept = (self.cluster.speeds().window_ms() / LOOK_MS) as usize;
            while looks.len() > kept.max(LOOKS) {
                looks.pop_front();
            }
        }
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
