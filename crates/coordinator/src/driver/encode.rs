//! Encodes an object where its data are (OpenEC's offline encoding), stripe by stripe. Each stripe
//! is committed for itself, so that an interrupted encoding goes on with the stripes that are left.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::{Plan, PlanError, StripeView, Topology, encode_offline, place_lost};
use kintsu_wire::message::{BlockRef, FaultKind, JobEvent, Label, RunOutcome};

use super::doubts::doubt;
use super::guard::guarded;
use super::run::{Job, run};
use super::{Listener, asks};
use crate::claims::{Barred, Writing};
use crate::cluster::Cluster;
use crate::engine::places::Place;
use crate::engine::repair::Tally;
use crate::engine::stripe::Stripe;
use crate::error::{CoordinatorError, Result};
use crate::meta::{LostBlock, Meta, Parity, Snapshot, StripeRecord};

/// The smallest slice; data blocks are read in cells otherwise.
const LEAST_SLICE_BYTES: u32 = 32 << 10;

/// Attempts for one stripe.
const ATTEMPTS: u32 = 6;

/// Encodes an object and reports to `listener`.
pub async fn encode(cluster: Arc<Cluster>, name: String, listener: Listener) {
    let end = guarded(encode_all(&cluster, &name, &listener)).await;
    asks::tell(&listener, end).await;
}

async fn encode_all(cluster: &Arc<Cluster>, name: &str, listener: &Listener) -> Result<JobEvent> {
    let started_ms = cluster.now_ms();
    let wanted = name.to_owned();
    let object = cluster.meta.off(move |meta| meta.snapshot()?.object(&wanted)).await?;
    let (mut tally, mut failed, mut done) = (Tally::default(), Vec::new(), 0);
    let total = object.size;
    let ids = object.ids(0, u64::MAX).into_iter().map(|(_, id)| id);
    let mut stripes = futures::stream::iter(ids)
        .map(|id| async move {
            let mut tally = Tally::default();
            let encoded = encode_stripe(cluster, id, &mut tally).await;
            (id, encoded, tally)
        })
        .buffer_unordered(cluster.config.parallel.max(1));
    while let Some((id, encoded, cost)) = stripes.next().await {
        tally.add(&cost);
        match encoded {
            Ok(bytes) => done += bytes,
            Err(error) => failed.push(format!("stripe {id} of {name:?}: {error}")),
        }
        let note = "encoding".into();
        // A slow listener misses progress, never the end.
        let _ = listener.try_send(Ok(JobEvent::Progress { done, total, note }));
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let mut report = tally.report("encode", None, &cluster.nodes().0, seconds);
    report.failed = failed;
    Ok(JobEvent::Ended(report))
}

/// Encodes one stripe, if it still has to be; returns its object bytes.
async fn encode_stripe(cluster: &Arc<Cluster>, id: StripeId, tally: &mut Tally) -> Result<u64> {
    let slot = cluster.slots.clone().acquire_owned().await;
    let _slot = slot.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let (mut touched, mut claims) = (Vec::new(), Vec::new());
    let ended = attempts(cluster, id, tally, &mut touched, &mut claims).await;
    // What became a home is spared; the rest is rubble of attempts.
    cluster.meta.off(move |meta| meta.trash(&touched)).await?;
    drop(claims);
    cluster.sweep.notify_one();
    ended
}

async fn attempts(
    cluster: &Arc<Cluster>,
    id: StripeId,
    tally: &mut Tally,
    touched: &mut Vec<(NodeId, BlockRef)>,
    claims: &mut Vec<Arc<Writing>>,
) -> Result<u64> {
    let mut shunned: BTreeSet<NodeId> = BTreeSet::new();
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let Some((stripe, label)) = cluster.load(id).await? else { return Ok(0) };
        if stripe.record.encoded {
            return Ok(stripe.record.layout.data_bytes);
        }
        let (worker, read, shun, before) = (cluster.clone(), stripe.clone(), shunned.clone(), last.clone());
        let planning = move |meta: &Meta| plan(&worker, &meta.snapshot()?, &read, &shun, &before);
        let (view, places, plan) = cluster.meta.off(planning).await?;
        let generation = stripe.record.generation;
        let writing = match cluster.claim(places.clone()).await? {
            Ok(writing) => writing,
            Err(Barred((node, id))) => {
                last = format!("{node} still deletes an earlier file of {id}");
                tokio::time::sleep(cluster.config.heartbeat / 2).await;
                continue;
            }
        };
        touched.extend(places.iter().map(|&(node, id)| (node, BlockRef { id, generation })));
        let expect = stripe.expect();
        let label = Label { homes: view.homes.clone(), ..label }.pack();
        let job = Job {
            plan: &plan,
            view: &view,
            generation,
            start: 0,
            slice_bytes: stripe.record.layout.cell_bytes.clamp(LEAST_SLICE_BYTES, 1 << 20),
            expect: &expect,
            label: &label,
            resume_key: 0,
        };
        let writing = Arc::new(writing);
        claims.push(writing.clone());
        let (programs, conducted) = run(cluster, job).await?;
        tally.attempt(&programs, &conducted.outcomes);
        let made = made(&places, &view, generation, &conducted.outcomes);
        if made.len() == places.len() {
            let blocks = made.len() as u64;
            if cluster
                .meta
                .off(move |meta| meta.set_encoded_if(id, generation, &made, || writing.check()))
                .await?
            {
                tally.blocks += blocks;
            }
            return Ok(stripe.record.layout.data_bytes);
        }
        let Some(fault) = conducted.fault else {
            last = format!("expected {} parity blocks, got {}", places.len(), made.len());
            continue;
        };
        last = fault.to_string();
        if let (FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale | FaultKind::Io, Some(block)) =
            (fault.kind, fault.block)
            && block.stripe == id
            && usize::from(block.index.0) < view.code.k()
        {
            doubt(cluster, LostBlock { id: block, node: fault.node, why: fault.kind }).await?;
        }
        shunned.insert(fault.node);
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
    }
    Err(conflict(format!("gave up after {ATTEMPTS} attempts: {last}")))
}

/// Plans an attempt: the stripe with homes for its parity, the places that are written to, the plan. Blocking.
fn plan(
    cluster: &Cluster,
    snapshot: &Snapshot,
    stripe: &Stripe,
    shunned: &BTreeSet<NodeId>,
    last: &str,
) -> Result<(StripeView, Vec<Place>, Plan)> {
    let (topology, usable) = cluster.nodes();
    let id = stripe.id;
    let sweeping = cluster.sweeping(snapshot, id)?;
    let mut view = stripe.view(|_, _| true);
    check_data(&stripe.record, &view, &usable)?;
    let barred: BTreeSet<NodeId> = shunned.union(&sweeping).copied().collect();
    let parity = place_parity(&mut view, topology.clone(), &barred);
    // What went wrong first is the reason that no node is left.
    let parity = parity.map_err(|e| match last {
        "" => CoordinatorError::from(e),
        last => conflict(format!("{e}; after {last}")),
    })?;
    let plan = encode_offline(&view, &topology)?;
    let place =
        |&index: &BlockIndex| Some((view.homes[usize::from(index.0)]?, BlockId { stripe: id, index }));
    let places = parity.iter().filter_map(place).collect();
    Ok((view, places, plan))
}

/// Until there is parity, all data blocks must be there.
fn check_data(stripe: &StripeRecord, view: &StripeView, usable: &BTreeSet<NodeId>) -> Result<()> {
    let gone = stripe.made().filter(|(_, b)| b.lost || !usable.contains(&b.node));
    let gone: Vec<String> = gone.map(|(index, b)| format!("{index} on {}", b.node)).collect();
    if gone.is_empty() {
        return Ok(());
    }
    Err(conflict(format!("all but {} of {} data blocks", gone.join(", "), view.code.k())))
}

/// Keeps the planned homes of the parity blocks that can be used, and finds others for the rest.
fn place_parity(
    view: &mut StripeView,
    mut topology: Topology,
    barred: &BTreeSet<NodeId>,
) -> Result<Vec<BlockIndex>, PlanError> {
    for node in barred {
        if let Some(node) = topology.nodes.get_mut(node) {
            node.usable = false;
        }
    }
    let (k, n) = (view.code.k(), view.code.n());
    let parity = (k..n).map(|i| BlockIndex(i as u8)).filter(|b| view.block_len(*b) > 0);
    let parity: Vec<BlockIndex> = parity.collect();
    let mut taken: BTreeSet<NodeId> = view.homes[..k].iter().flatten().copied().collect();
    let mut rest = Vec::new();
    for &index in &parity {
        let home = &mut view.homes[usize::from(index.0)];
        let fits =
            |node: &NodeId| topology.nodes.get(node).is_some_and(|n| n.usable) && !taken.contains(node);
        *home = home.filter(fits);
        match *home {
            Some(node) => drop(taken.insert(node)),
            None => rest.push(index),
        }
    }
    for (index, node) in rest.iter().zip(place_lost(view, &topology, &rest, &mut |_| 0)?) {
        view.homes[usize::from(index.0)] = Some(node);
    }
    Ok(parity)
}

fn made(
    places: &[(NodeId, BlockId)],
    view: &StripeView,
    generation: u32,
    outcomes: &[RunOutcome],
) -> Vec<Parity> {
    let parity = |&(node, id): &(NodeId, BlockId)| {
        let mut written = outcomes.iter().filter(|o| o.node == node).flat_map(|o| &o.written);
        let held = written.find(|h| h.id == id && h.generation == generation)?;
        (held.len == view.block_len(id.index)).then_some(Parity {
            index: id.index,
            node,
            digest: held.digest,
        })
    };
    places.iter().filter_map(parity).collect()
}

fn conflict(got: String) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: "encoding".into(),
        expected: "data blocks that can be read and nodes for the parity".into(),
        got,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::RackId;
    use kintsu_plan::{Layout, LayoutKind, Node};

    #[test]
    fn parity_stays_where_it_was_planned_unless_that_cannot_be() {
        let node = |i| (NodeId(i), Node { rack: RackId(i), usable: i != 3, used_bytes: 0 });
        let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 8, cell_bytes: 8, w: 1, data_bytes: 16 };
        let homes = [0, 1, 2, 3, 1].map(|i| Some(NodeId(i))).to_vec();
        let code = kintsu_code::parse("rs:n=5,k=2").unwrap();
        let mut view = StripeView { id: StripeId(1), code, layout, homes };
        let parity = place_parity(&mut view, topology, &BTreeSet::from([NodeId(4)])).unwrap();
        assert_eq!(parity, [2, 3, 4].map(BlockIndex));
        assert_eq!(view.homes[..3], [0, 1, 2].map(|i| Some(NodeId(i))));
        let others: BTreeSet<_> = view.homes[3..].iter().flatten().map(|n| n.0).collect();
        assert_eq!(others, BTreeSet::from([5, 6]));
    }
}
