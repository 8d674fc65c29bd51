//! Repairs one stripe, as [`crate::engine::repair`] decides, attempt after attempt, until its blocks have
//! homes again or nothing is left to try. The metadata change last, in one transaction, when the data are
//! durable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_wire::message::{BadBlock, BlockRef, Fault, Label};

use super::run::ReadyPlan;
use super::shown::Showing;
use super::speed_watch::{SpeedWatch, run_on};
use super::volumes::carry;
use super::{doubts, missing, repair_jobs};
use crate::claims::{Barred, Writing};
use crate::cluster::Cluster;
use crate::engine::damage::unavailable;
use crate::engine::places::Place;
use crate::engine::repair::{
    Attempt, Circumstances, MayReturn, Order, Outcome, Planned, Rounds, StripeRepair, Tally, Verdict,
    WaitBudget, plan as plan_next,
};
use crate::engine::stripe::Stripe;
use crate::error::Result;
use crate::meta::{Landing, Meta};

/// Repairs those of the `wanted` blocks of a stripe that still cannot be read.
///
/// The record of the stripe is read once, and again if a commit of updates changed it meanwhile. What this repair commits
/// is added to that copy, and each commit compares the copy with what is recorded then.
pub async fn repair_stripe(
    cluster: &Arc<Cluster>,
    id: StripeId,
    wanted: Vec<BlockIndex>,
    order: Order,
) -> Outcome {
    #[cfg(test)]
    assert!(!cluster.panics.load(std::sync::atomic::Ordering::SeqCst), "a poisoned repair");
    let began_ms = cluster.now_ms();
    let outcome = in_rounds(cluster, id, wanted, order).await;
    cluster.tallies().repaired(&outcome, cluster.now_ms().saturating_sub(began_ms));
    outcome
}

/// Begins anew if not all was repaired and the stripe became another one meanwhile: a commit gives blocks of a volume a next
/// generation, those that it gives up too, and nothing lands in the place of another generation than it was made of.
async fn in_rounds(
    cluster: &Arc<Cluster>,
    id: StripeId,
    mut wanted: Vec<BlockIndex>,
    order: Order,
) -> Outcome {
    let (mut sum, mut before) = (Outcome::default(), Vec::new());
    for beginning in 1.. {
        let mut stripe = match cluster.load(id).await {
            Ok(Some((stripe, _))) if stripe.generations() == before => break,
            Ok(Some((stripe, label))) => StripeInRepair { cluster, stripe, label, waits: waits(cluster) },
            Ok(None) => break,
            Err(error) => {
                if sum.failed.is_none() {
                    sum.failed = Some(unread(cluster, id, &error.to_string()).await);
                }
                break;
            }
        };
        let mut rounds = Rounds::new(wanted.clone());
        while let Some(blocks) = rounds.begin() {
            rounds.ended(stripe.repair(blocks, &order).await);
        }
        let mut outcome = rounds.end();
        (sum.failed, sum.cut_off) = (outcome.failed.take(), outcome.cut_off);
        wanted.retain(|index| !outcome.repaired.contains(index));
        sum.add(outcome);
        if sum.failed.is_none() && wanted.is_empty() {
            break;
        }
        if beginning == ANEW {
            let changed = || stripe.describe("its blocks were changed each time when they were repaired");
            sum.failed.get_or_insert_with(changed);
            break;
        }
        before = stripe.stripe.generations();
    }
    sum
}

/// Most beginnings of the repair of one stripe.
const ANEW: u32 = 8;

/// How often the repair of one stripe may wait for news of nodes.
fn waits(cluster: &Cluster) -> WaitBudget {
    let (heartbeat, dead_after) = (cluster.config.heartbeat, cluster.config.dead_after);
    WaitBudget::new(heartbeat.as_millis() as u64, dead_after.as_millis() as u64)
}

/// The stripe that is being repaired: as it was read, with the changes of this repair.
struct StripeInRepair<'a> {
    cluster: &'a Arc<Cluster>,
    stripe: Stripe,
    label: Label,
    waits: WaitBudget,
}

impl StripeInRepair<'_> {
    async fn repair(&mut self, wanted: Vec<BlockIndex>, order: &Order) -> Outcome {
        let mut outcome = Outcome::default();
        if let Err(error) = self.attempts(wanted, order, &mut outcome).await {
            outcome.failed = Some(self.describe(&error.to_string()));
        }
        outcome
    }

    async fn attempts(
        &mut self,
        wanted: Vec<BlockIndex>,
        order: &Order,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let down = self.cluster.members().down();
        let mut lost = unavailable(&self.stripe.record, &down);
        lost.retain(|index| wanted.contains(index));
        if lost.is_empty() {
            return Ok(());
        }
        let mut repair = StripeRepair::new(self.stripe.clone(), lost, order.clone());
        let mut tally = Tally::default();
        let mut claims = Claims::default();
        let ended = self.attempt_all(&mut repair, &mut tally, &mut claims, outcome).await;
        outcome.tally = tally;
        outcome.around = repair.around().to_vec();
        let places: Vec<_> = repair
            .touched()
            .map(|(node, id)| (node, BlockRef { id, generation: repair.generation_of(id.index) }))
            .collect();
        // Files that became homes stay; the others are left over from attempts and become garbage.
        self.cluster.meta.off(move |meta| meta.trash(&places)).await?;
        drop(claims);
        self.cluster.sweep.notify_one();
        ended
    }

    /// A reason for a failure, with the stripe and the name of its object.
    fn describe(&self, reason: &str) -> String {
        format!("stripe {} of {:?}: {reason}", self.stripe.id, self.label.object.name)
    }

    async fn attempt_all(
        &mut self,
        repair: &mut StripeRepair,
        tally: &mut Tally,
        claims: &mut Claims,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let cluster = self.cluster;
        let (generation, generations, expect) = (repair.generation(), repair.generations(), repair.expect());
        let mut reported = 0;
        let mut speed = SpeedWatch::new(cluster, repair.id(), repair.whole());
        let mut last: Option<Fault> = None;
        let _shown = Showing::begin(cluster, repair, &self.label.object.name);
        loop {
            let attempt = match (plan(cluster, repair, &mut self.waits).await, &last) {
                (Ok(attempt), _) => Arc::new(attempt),
                (Err(error), None) => return Err(error),
                // The earlier fault is the reason that nothing is left to try, so the message names it too.
                (Err(error), Some(fault)) => {
                    outcome.failed = Some(self.describe(&format!("{error}; after {fault}")));
                    outcome.cut_off = fault.kind.is_silence();
                    return Ok(());
                }
            };
            if let Err(Barred(place)) = claims.add(cluster, repair.places(&attempt)).await? {
                let (fault, verdict) = repair.barred(place, attempt.start);
                if let Verdict::Failed(reason) = verdict {
                    outcome.failed = Some(self.describe(&reason));
                    return Ok(());
                }
                last = Some(fault);
                continue;
            }
            let label = label_at(&self.label, repair.places(&attempt)).pack();
            let job = ReadyPlan {
                plan: &attempt.plan.plan,
                view: &attempt.view,
                generations: &generations,
                start: attempt.start,
                slice_bytes: repair.order().slice_bytes,
                expect: &expect,
                label: &label,
                resume_key: attempt.resume_key,
            };
            let (programs, conducted) = run_on(cluster, repair, &attempt, job, &mut speed).await?;
            tally.attempt(&programs, &conducted.outcomes);
            let verdict = repair.ended(&conducted.outcomes, conducted.upto, conducted.fault.as_ref());
            let bad = repair.bad()[reported..].to_vec();
            reported += bad.len();
            if !bad.is_empty() {
                let detail = conducted.fault.as_ref().map_or(String::new(), |f| f.detail.clone());
                let told = |b: &crate::meta::LostBlock| BadBlock {
                    id: b.id,
                    node: b.node,
                    kind: b.why,
                    detail: detail.clone(),
                };
                outcome.bad.extend(bad.iter().map(told));
                doubts::report(cluster, bad);
            }
            last = conducted.fault.or(last);
            match verdict {
                Verdict::Again => {}
                Verdict::Failed(reason) => {
                    outcome.failed = Some(self.describe(&reason));
                    return Ok(());
                }
                Verdict::Done(landings) => {
                    outcome.repaired = self.land(claims, generation, landings).await?;
                    tally.blocks += outcome.repaired.len() as u64;
                    return Ok(());
                }
            }
        }
    }

    /// Makes the blocks visible at their new homes, except those whose record has changed since the stripe
    /// was read.
    async fn land(
        &mut self,
        claims: &Claims,
        generation: u32,
        landings: Vec<Landing>,
    ) -> Result<Vec<BlockIndex>> {
        let (held, id, told) = (claims.guards.clone(), self.stripe.id, landings.clone());
        let check = move || held.iter().try_for_each(|writing| writing.check());
        let changed = carry(self.cluster, id, &landings).await?;
        let carried = changed.as_ref().map(|changed| changed.relogged.clone());
        let rehome = move |meta: &Meta| meta.rehome_logged(id, generation, &told, carried.as_ref(), check);
        let moved = self.cluster.meta.off(rehome).await?;
        let landed: Vec<_> = landings.into_iter().filter(|l| moved.contains(&l.index)).collect();
        self.stripe.landed(&landed);
        self.label =
            label_at(&self.label, landed.iter().map(|l| (l.to, BlockId { stripe: id, index: l.index })));
        Ok(moved)
    }
}

/// The label of blocks that are written to these places.
fn label_at(label: &Label, places: impl IntoIterator<Item = Place>) -> Label {
    let mut label = label.clone();
    for (node, id) in places {
        if let Some(home) = label.homes.get_mut(usize::from(id.index.0)) {
            *home = Some(node);
        }
    }
    label
}

/// The claims on the places that a repair writes to. They are held until the repair has ended and its
/// leftovers are recorded as garbage.
#[derive(Default)]
struct Claims {
    guards: Vec<Arc<Writing>>,
    places: BTreeSet<Place>,
}

impl Claims {
    /// Claims those of these places that are not claimed yet.
    async fn add(&mut self, cluster: &Arc<Cluster>, places: Vec<Place>) -> Result<Result<(), Barred>> {
        let new: Vec<Place> = places.into_iter().filter(|place| !self.places.contains(place)).collect();
        if new.is_empty() {
            return Ok(Ok(()));
        }
        Ok(cluster.claim(new.clone()).await?.map(|writing| {
            self.guards.push(Arc::new(writing));
            self.places.extend(new);
        }))
    }
}

/// Plans the next attempt, and waits for news of nodes as long as that may help. If it cannot help, fails at
/// once and says which blocks are missing.
async fn plan(cluster: &Arc<Cluster>, repair: &mut StripeRepair, waits: &mut WaitBudget) -> Result<Attempt> {
    loop {
        let (error, awaited) = match plan_now(cluster, repair).await? {
            Planned::Attempt(attempt) => return Ok(*attempt),
            Planned::Later(error, awaited) if waits.again() => (error, awaited),
            Planned::Later(error, _) | Planned::Never(error) => {
                return Err(missing::explain(cluster, repair, error).await);
            }
        };
        cluster.waits.fetch_add(1, Ordering::Relaxed);
        let names: Vec<_> = awaited.iter().map(NodeId::to_string).collect();
        let note = format!("waiting for news of {}: {error}", names.join(", "));
        repair_jobs::note(cluster, repair.id(), &note);
        cluster.sweep.notify_one();
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
    }
}

/// Plans outside the asynchronous threads and without holding a lock, because planning may take a while.
async fn plan_now(cluster: &Arc<Cluster>, repair: &mut StripeRepair) -> Result<Planned> {
    let (worker, mut next) = (cluster.clone(), repair.clone());
    let look = move |meta: &Meta| {
        let sweeping = worker.sweeping(&meta.snapshot()?, next.id())?;
        let (topology, usable) = worker.nodes();
        let topology = next.order().narrow(topology);
        let slow = worker.slow_nodes().now(worker.now_ms());
        let circumstances = Circumstances {
            topology: &topology,
            sweeping: &sweeping,
            readable: &|node| usable.contains(&node),
            slow: &slow,
            fresh_key: worker.next_number(),
        };
        let mut part = worker.recovery().part(next.id());
        let planned = plan_next(&mut next, circumstances, &mut part, || MayReturn::new(&worker.members()));
        if let Planned::Attempt(attempt) = &planned {
            let requestors = attempt.plan.requestors.iter().copied();
            worker.recovery().used(next.id(), attempt.helpers(), requestors);
        }
        Ok((next, planned))
    };
    let (next, planned) = cluster.meta.off(look).await?;
    *repair = next;
    Ok(planned)
}

/// Why a stripe could not be read, with the name of its object or volume if that can be found.
async fn unread(cluster: &Arc<Cluster>, id: StripeId, reason: &str) -> String {
    let whose = move |meta: &crate::meta::Meta| {
        let snapshot = meta.snapshot()?;
        let owner = snapshot.stripe(id)?.map(|s| s.owner);
        owner.map_or(Ok(None), |owner| snapshot.whose(owner))
    };
    match cluster.meta.off(whose).await {
        Ok(Some(whose)) => format!("stripe {id} of {whose}: {reason}"),
        _ => format!("stripe {id}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Source, start_repairs};
    use crate::handlers::tests::{cluster, put, silence};
    use kintsu_wire::message::{DiskUsage, FaultKind, JobEvent, JobReport};
    use tokio::sync::mpsc;

    /// One stripe of rs:n=4,k=2 on five nodes: the homes of its blocks, and the node without one.
    async fn stripe() -> (tempfile::TempDir, Arc<Cluster>, Vec<NodeId>, NodeId) {
        let (dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 16).await;
        let record = cluster.meta.snapshot().unwrap().stripe(StripeId(1)).unwrap().unwrap();
        let homes: Vec<NodeId> = record.made().map(|(_, block)| block.node).collect();
        assert_eq!(homes.len(), 4);
        let spare = (0..5).map(NodeId).find(|node| !homes.contains(node)).unwrap();
        (dir, cluster, homes, spare)
    }

    fn repair(cluster: &Arc<Cluster>) -> mpsc::Receiver<std::result::Result<JobEvent, tonic::Status>> {
        let (listener, events) = mpsc::channel(64);
        start_repairs(cluster, Source::Object("a".into()), Order::default(), Some(listener));
        events
    }

    async fn report(mut events: mpsc::Receiver<std::result::Result<JobEvent, tonic::Status>>) -> JobReport {
        while let Some(event) = events.recv().await {
            if let Ok(JobEvent::Ended(report)) = event {
                return report;
            }
        }
        panic!("no report")
    }

    #[tokio::test]
    async fn what_cannot_be_repaired_is_told_at_once_with_the_missing_blocks_and_their_places() {
        let (_dir, cluster, homes, spare) = stripe().await;
        silence(&cluster, &[homes[0].0, homes[2].0]);
        let lost = BlockId { stripe: StripeId(1), index: BlockIndex(3) };
        let lost = crate::meta::LostBlock { id: lost, node: homes[3], why: FaultKind::Corrupt };
        cluster.meta.mark_lost(&[lost]).unwrap();
        // Neither of these is a reason to wait: the node has no block of the stripe.
        cluster.members().suspect(spare);
        let rubble = BlockRef { id: BlockId { stripe: StripeId(1), index: BlockIndex(0) }, generation: 1 };
        cluster.meta.trash(&[(spare, rubble)]).unwrap();
        let report = report(repair(&cluster)).await;
        assert_eq!(cluster.waits.load(Ordering::Relaxed), 0, "it waited in vain");
        let message = &report.failed[0];
        for words in [
            "\"a\"".to_owned(),
            format!("missing: b0 on {} (dead for ", homes[0]),
            format!("b2 on {} (dead for ", homes[2]),
            format!("b3 on {} (lost: corrupt)", homes[3]),
        ] {
            assert!(message.contains(&words), "{words} is not in {message}");
        }
    }

    #[tokio::test]
    async fn a_node_that_was_not_reached_is_waited_for_where_its_return_would_help() {
        let (_dir, cluster, homes, _) = stripe().await;
        silence(&cluster, &[homes[0].0]);
        let unheard = [homes[2].min(homes[3]), homes[2].max(homes[3])];
        unheard.iter().for_each(|node| cluster.members().suspect(*node));
        let mut events = repair(&cluster);
        let note = loop {
            match events.recv().await {
                Some(Ok(JobEvent::Progress { note, .. })) if note.contains("waiting") => break note,
                Some(Ok(JobEvent::Began(_) | JobEvent::Progress { .. })) => {}
                other => panic!("expected a note, got {other:?}"),
            }
        };
        assert!(note.starts_with(&format!("waiting for news of {}, {}: ", unheard[0], unheard[1])), "{note}");
        // Both nodes turn out to be dead: now there is nothing left to wait for.
        let now_ms = cluster.members().iter().map(|(_, m)| m.seen_ms).max().unwrap();
        let dead_ms = now_ms + cluster.config.dead_after.as_millis() as u64;
        {
            let mut members = cluster.members();
            let known: Vec<NodeId> = members.iter().map(|(id, _)| id).collect();
            for node in known.into_iter().filter(|node| *node != homes[0] && !unheard.contains(node)) {
                members.seen(node, 1, DiskUsage::default(), None, dead_ms).unwrap();
            }
            members.tick(dead_ms);
        }
        let waits = cluster.waits.load(Ordering::Relaxed);
        let report = report(events).await;
        assert!(report.failed[0].contains(&format!("b3 on {} (dead", homes[3])), "{:?}", report.failed);
        assert!(waits >= 1 && cluster.waits.load(Ordering::Relaxed) <= waits + 1);
    }
}
