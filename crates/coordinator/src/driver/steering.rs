//! Tells the repairs that were planned together when to stop, to go on, or to take other trees, as
//! [`crate::engine::repair::Courses`] decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::many::{Planned, Route};
use kintsu_plan::{Assignment, Stragglers};
use kintsu_runtime::Observed;
use tokio::sync::mpsc;

use crate::cluster::Cluster;
use crate::engine::repair::{Attempt, Courses, Steer, StripeRepair};

/// A repair that is postponed goes on after this many phases, even if its nodes are still busy. The paper has no limit; without
/// one a stripe could stay damaged for as long as other repairs keep coming.
const PHASES: u32 = 3;

/// The repairs that are steered, and how they are told.
pub struct Steering {
    courses: Courses,
    wheels: HashMap<StripeId, mpsc::UnboundedSender<Steer>>,
}

impl Steering {
    /// None; phases have this span.
    pub fn new(span: Duration) -> Self {
        Self { courses: Courses::new(span.as_secs_f64()), wheels: HashMap::new() }
    }

    /// Whether a repair is steered.
    pub fn has(&self, stripe: StripeId) -> bool {
        self.wheels.contains_key(&stripe)
    }

    /// The progress of a repair, and the nodes that all wait for.
    pub fn reached(&mut self, stripe: StripeId, upto: u64, observed: &Observed, blamed: Vec<NodeId>) {
        if self.wheels.contains_key(&stripe) {
            let sent = |(node, standing): (&NodeId, &kintsu_wire::message::Standing)| {
                Some((*node, standing.lanes.iter().map(|lane| lane.upto).min()?))
            };
            let sent = observed.nodes.iter().filter_map(sent).collect();
            self.courses.reached(stripe, upto, sent, blamed);
        }
    }

    /// The repair of a stripe has ended.
    pub fn ended(&mut self, stripe: StripeId) {
        self.courses.ended(stripe);
        self.wheels.remove(&stripe);
    }
}

/// What tells an attempt to stop.
pub struct Wheel(mpsc::UnboundedReceiver<Steer>);

/// An attempt begins. `None` if its method does not re-schedule, it does not go along the assigned trees, or it was re-scheduled
/// as often as is allowed: such an attempt is watched like those of other methods, and planned around a slow node.
pub fn begin(cluster: &Cluster, repair: &StripeRepair, attempt: &Attempt) -> Option<Wheel> {
    if repair.order().method.row().stragglers != Stragglers::Reschedule {
        return None;
    }
    let assignment = cluster.recovery().assignment(repair.id()).cloned()?;
    let (block, requestor) = assignment.requestors.first_key_value()?;
    let planned = Planned {
        stripe: repair.id(),
        block: *block,
        bytes: attempt.view.block_len(*block),
        requestor: *requestor,
        route: Route::Trees(assignment.trees.clone()),
        also: Vec::new(),
        turn: assignment.turn,
    };
    let follows = assignment.requestors.len() == 1
        && attempt.plan.requestors == [planned.requestor]
        && attempt.helpers().into_iter().collect::<std::collections::BTreeSet<_>>() == assignment.helpers;
    if assignment.trees.is_empty() || !follows {
        return None;
    }
    let (sender, receiver) = mpsc::unbounded_channel();
    let now = seconds(cluster);
    let mut steering = cluster.steering();
    if steering.courses.is_done_with(repair.id()) {
        return None;
    }
    steering.courses.begin(planned, attempt.start, now);
    steering.wheels.insert(repair.id(), sender);
    Some(Wheel(receiver))
}

impl Wheel {
    /// Completes when the attempt is to stop. Never completes without a wheel.
    pub async fn turned(wheel: &mut Option<Self>) -> Steer {
        match wheel {
            Some(Self(steers)) => match steers.recv().await {
                Some(steer) => steer,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

/// An attempt was stopped: takes the new trees, or waits until the repair may go on.
pub async fn follow(
    cluster: &Arc<Cluster>,
    repair: &StripeRepair,
    upto: u64,
    steer: Steer,
    wheel: &mut Option<Wheel>,
) {
    let (id, whole) = (repair.id(), repair.whole());
    match steer {
        Steer::Retune(planned) => {
            tell(cluster, id, &format!("late transmissions go to {} from byte {upto}", planned.requestor));
            let assignment = Assignment::of(std::slice::from_ref(&planned), 0.0);
            cluster.recovery().keep(&assignment);
        }
        Steer::Wake => {}
        Steer::Postpone => {
            tell(cluster, id, &format!("postponed at byte {upto}: what it waits for is late"));
            let freed = cluster.queue().reached(id, whole, whole);
            super::repair_jobs::act(cluster, freed);
            let woken = async { while Wheel::turned(wheel).await == Steer::Postpone {} };
            let _ = tokio::time::timeout(PHASES * cluster.config.phase, woken).await;
            tell(cluster, id, &format!("goes on from byte {upto}"));
            let taken = cluster.queue().reached(id, upto, whole);
            super::repair_jobs::act(cluster, taken);
        }
    }
}

/// Tells operators, and those who wait for the repair, what becomes of it.
fn tell(cluster: &Cluster, id: StripeId, what: &str) {
    tracing::info!("{id}: {what}");
    super::repair_jobs::note(cluster, id, &format!("stripe {id}: {what}"));
}

/// Time has passed: tells the repairs what follows.
pub fn steer(cluster: &Cluster) {
    if cluster.steering().courses.is_empty() {
        return;
    }
    let (topology, _) = cluster.nodes();
    let disks = cluster.disks(&topology.rates);
    let now = seconds(cluster);
    let mut steering = cluster.steering();
    for (stripe, steer) in steering.courses.steps(&topology, &disks, now) {
        if let Some(wheel) = steering.wheels.get(&stripe) {
            // Its attempt may have ended by itself.
            let _ = wheel.send(steer);
        }
    }
}

fn seconds(cluster: &Cluster) -> f64 {
    cluster.now_ms() as f64 / 1000.0
}
