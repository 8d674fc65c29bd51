//! Mends one stripe: attempt after attempt, until its blocks have homes again or nothing is left to
//! try. Metadata change last, in one transaction, when the data are durable.

use std::sync::Arc;

use kintsu_dag::{BlockIndex, StripeId};
use kintsu_plan::PlanError;
use kintsu_wire::message::{BadBlock, BlockRef, Fault};

use super::pacing::{Pacing, run_on};
use super::pages::unavailable;
use super::run::Job;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Landing, StripeRecord};
use crate::repair::{Attempt, Circumstances, Mend, Order, Outcome, Tally, Verdict};

/// Times that planning waits for news of suspected nodes before it gives up.
const WAITS: u32 = 24;

/// Mends those of the `wanted` blocks of a stripe that still cannot be read. Where they cannot all be
/// mended together, for want of nodes or of blocks to read, as many as possible are mended one by one.
pub async fn mend(cluster: &Arc<Cluster>, id: StripeId, wanted: Vec<BlockIndex>, order: Order) -> Outcome {
    let together = mend_together(cluster, id, wanted.clone(), &order).await;
    if wanted.len() == 1 || together.failed.is_none() || !together.mended.is_empty() {
        return together;
    }
    let (mut sum, whole) = (together, wanted.len());
    let reason = sum.failed.take();
    for index in wanted {
        let one = mend_together(cluster, id, vec![index], &order).await;
        sum.mended.extend(one.mended);
        sum.tally.add(&one.tally);
        sum.bad.extend(one.bad);
        sum.around.extend(one.around);
    }
    sum.failed = reason.filter(|_| sum.mended.len() < whole);
    sum
}

async fn mend_together(
    cluster: &Arc<Cluster>,
    id: StripeId,
    wanted: Vec<BlockIndex>,
    order: &Order,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(error) = attempts(cluster, id, wanted, order, &mut outcome).await {
        outcome.failed = Some(describe(cluster, id, &error.to_string()).await);
    }
    outcome
}

async fn attempts(
    cluster: &Arc<Cluster>,
    id: StripeId,
    wanted: Vec<BlockIndex>,
    order: &Order,
    outcome: &mut Outcome,
) -> Result<()> {
    let Some((stripe, code)) = cluster.load(id).await? else { return Ok(()) };
    let down = cluster.members().down().into_iter().collect();
    let mut lost = unavailable(&stripe, &down);
    lost.retain(|index| wanted.contains(index));
    if lost.is_empty() {
        return Ok(());
    }
    let mut mend = Mend::new(id, &stripe, code, lost, order.clone());
    let mut tally = Tally::default();
    let ended = attempt_all(cluster, &mut mend, &mut tally, &stripe, outcome).await;
    outcome.tally = tally;
    outcome.around = mend.around().to_vec();
    let places: Vec<_> =
        mend.touched().map(|(node, id)| (node, BlockRef { id, generation: stripe.generation })).collect();
    // What became a home is spared; the rest is rubble of attempts.
    cluster.meta.off(move |meta| meta.trash(&places)).await?;
    cluster.sweep.notify_one();
    ended
}

async fn attempt_all(
    cluster: &Arc<Cluster>,
    mend: &mut Mend,
    tally: &mut Tally,
    stripe: &StripeRecord,
    outcome: &mut Outcome,
) -> Result<()> {
    let (generation, expect) = (stripe.generation, mend.expect());
    let mut reported = 0;
    let mut pace = Pacing::new(cluster, mend.whole());
    let mut last: Option<Fault> = None;
    loop {
        let attempt = match (plan(cluster, mend).await, &last) {
            (Ok(attempt), _) => attempt,
            (Err(error), None) => return Err(error),
            // What went wrong first is the reason that there is nothing left to try.
            (Err(error), Some(fault)) => {
                outcome.failed = Some(describe(cluster, mend.id(), &format!("{error}; after {fault}")).await);
                return Ok(());
            }
        };
        let _writing = cluster.write_to(mend.touched().collect());
        let job = Job {
            plan: &attempt.plan.plan,
            view: &attempt.view,
            generation,
            start: attempt.start,
            slice_bytes: mend.order().slice_bytes,
            expect: &expect,
            resume_key: attempt.resume_key,
        };
        let (programs, conducted) = run_on(cluster, mend, &attempt, job, &mut pace).await?;
        tally.attempt(&programs, &conducted.outcomes);
        let verdict = mend.ended(&conducted.outcomes, conducted.upto, conducted.fault.as_ref());
        let bad = mend.bad()[reported..].to_vec();
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
            cluster.meta.off(move |meta| meta.mark_lost(&bad)).await?;
        }
        last = conducted.fault.or(last);
        match verdict {
            Verdict::Again => {}
            Verdict::Failed(reason) => {
                outcome.failed = Some(describe(cluster, attempt.view.id, &reason).await);
                return Ok(());
            }
            Verdict::Done(landings) => {
                outcome.mended = land(cluster, &attempt, generation, landings).await?;
                tally.blocks += outcome.mended.len() as u64;
                return Ok(());
            }
        }
    }
}

async fn land(
    cluster: &Arc<Cluster>,
    attempt: &Attempt,
    generation: u32,
    landings: Vec<Landing>,
) -> Result<Vec<BlockIndex>> {
    let id = attempt.view.id;
    cluster.meta.off(move |meta| meta.rehome(id, generation, &landings)).await
}

/// Plans the next attempt; while nodes are suspected it waits for news of them rather than giving up.
async fn plan(cluster: &Arc<Cluster>, mend: &mut Mend) -> Result<Attempt> {
    for wait in 0.. {
        let sweeping = cluster.sweeping(mend.id()).await?;
        let planned = {
            let (topology, usable) = cluster.nodes();
            let topology = mend.order().narrow(topology);
            let slow = cluster.laggards().now(cluster.now_ms());
            let circumstances = Circumstances {
                topology: &topology,
                sweeping: &sweeping,
                readable: &|node| usable.contains(&node),
                slow: &slow,
                fresh_key: cluster.next_job().0,
            };
            mend.plan(circumstances, &mut cluster.recovery())
        };
        match planned {
            Ok(attempt) => return Ok(attempt),
            Err(error) => {
                let passing = matches!(error, PlanError::Unrecoverable { .. } | PlanError::Placement { .. });
                let hope = cluster.members().doubts() || !sweeping.is_empty();
                if !passing || !hope || wait >= WAITS {
                    return Err(mend.order().explain(error).into());
                }
            }
        }
        cluster.sweep.notify_one();
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
    }
    unreachable!("the loop ends by returning")
}

/// A failure with the name of the object that it concerns.
async fn describe(cluster: &Arc<Cluster>, id: StripeId, reason: &str) -> String {
    let name = move |meta: &crate::meta::Meta| {
        let snapshot = meta.snapshot()?;
        let owner = snapshot.stripe(id)?.map(|s| s.owner);
        owner.map_or(Ok(None), |owner| snapshot.name(owner))
    };
    match cluster.meta.off(name).await {
        Ok(Some(name)) => format!("stripe {id} of {name:?}: {reason}"),
        _ => format!("stripe {id}: {reason}"),
    }
}
