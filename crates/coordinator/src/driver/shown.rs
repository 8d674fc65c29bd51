//! The repairs that run now, for those who look.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_dag::{PlacedData, StripeId};
use kintsu_runtime::Observed;
use kintsu_wire::message::{GoneAround, NodeReached, RunningRepair};
use tokio::sync::watch;

use crate::cluster::Cluster;
use crate::engine::repair::{Attempt, StripeRepair};

/// The repairs that run now.
#[derive(Default)]
pub struct Shown(BTreeMap<StripeId, Repair>);

struct Repair {
    object: String,
    began_ms: u64,
    whole: u64,
    method: kintsu_plan::Method,
    around: Vec<GoneAround>,
    /// What runs, and how far it is; `None` before the first attempt.
    running: Option<(Arc<Attempt>, watch::Receiver<Observed>)>,
}

/// A repair is shown until this is dropped.
pub struct Showing {
    cluster: Arc<Cluster>,
    stripe: StripeId,
}

impl Showing {
    /// From now on the repair of a stripe of `object` is shown.
    pub fn begin(cluster: &Arc<Cluster>, repair: &StripeRepair, object: &str) -> Self {
        let (stripe, began_ms) = (repair.id(), cluster.now_ms());
        let (object, whole, method) = (object.to_owned(), repair.whole(), repair.order().method);
        let shown = Repair { object, began_ms, whole, method, around: Vec::new(), running: None };
        cluster.shown().0.insert(stripe, shown);
        Self { cluster: cluster.clone(), stripe }
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        self.cluster.shown().0.remove(&self.stripe);
    }
}

/// An attempt begins; `seen` is its progress.
pub fn attempt(
    cluster: &Cluster,
    repair: &StripeRepair,
    attempt: &Arc<Attempt>,
    seen: &watch::Receiver<Observed>,
) {
    if let Some(shown) = cluster.shown().0.get_mut(&repair.id()) {
        shown.around = repair.around().to_vec();
        shown.running = Some((attempt.clone(), seen.clone()));
    }
}

/// The oldest repairs, at most `most`.
pub fn running(cluster: &Cluster, most: usize) -> Vec<RunningRepair> {
    let now_ms = cluster.now_ms();
    let shown = cluster.shown();
    let mut oldest: Vec<(&StripeId, &Repair)> = shown.0.iter().collect();
    oldest.sort_by_key(|(stripe, repair)| (repair.began_ms, **stripe));
    let parts: Vec<_> = oldest
        .into_iter()
        .filter_map(|(stripe, repair)| Some((*stripe, repair.brief(now_ms), repair.running.clone()?)))
        .take(most)
        .collect();
    // Graphs are copied without the lock.
    drop(shown);
    parts
        .into_iter()
        .map(|(stripe, brief, (attempt, seen))| described(stripe, brief, &attempt, &seen))
        .collect()
}

/// What is known of a repair besides its attempt.
struct Brief {
    object: String,
    method: kintsu_plan::Method,
    whole: u64,
    seconds: f64,
    around: Vec<GoneAround>,
}

impl Repair {
    fn brief(&self, now_ms: u64) -> Brief {
        Brief {
            object: self.object.clone(),
            method: self.method,
            whole: self.whole,
            seconds: now_ms.saturating_sub(self.began_ms) as f64 / 1000.0,
            around: self.around.clone(),
        }
    }
}

fn described(
    stripe: StripeId,
    brief: Brief,
    attempt: &Attempt,
    seen: &watch::Receiver<Observed>,
) -> RunningRepair {
    let (upto, nodes) = {
        let seen = seen.borrow();
        let reached = |(node, standing): (&kintsu_dag::NodeId, &kintsu_wire::message::Standing)| {
            NodeReached { node: *node, upto: standing.upto, bytes_read: standing.bytes_read }
        };
        (seen.upto.max(attempt.start), seen.nodes.iter().map(reached).collect())
    };
    let plan = &attempt.plan.plan;
    RunningRepair {
        stripe,
        object: brief.object,
        code: attempt.view.code.name().to_owned(),
        method: brief.method,
        lost: attempt.plan.lost.clone(),
        requestors: attempt.plan.requestors.clone(),
        helpers: attempt.helpers(),
        start: attempt.start,
        upto,
        whole: brief.whole,
        seconds: brief.seconds,
        rate: plan.rate_limit(),
        nodes,
        around: brief.around,
        lanes: plan.lanes.len() as u32,
        graph: plan.lanes.first().map(|lane| PlacedData::from(&*lane.placed)),
    }
}
