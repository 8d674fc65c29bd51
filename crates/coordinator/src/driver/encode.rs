//! Encodes an object on the nodes that hold its data (OpenEC's offline encoding), stripe by stripe.
//! [`crate::engine::encode`] decides. Each stripe is committed on its own, so that an interrupted encoding
//! continues with the stripes that are left.

use std::sync::Arc;

use futures::StreamExt;
use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::{Binding, Plan, encode_offline};
use kintsu_wire::message::{BlockRef, Encode, JobReport, Label};

use super::doubts::doubt;
use super::guard::guarded;
use super::jobs::Job;
use super::run::{ReadyPlan, run};
use crate::claims::{Barred, Writing};
use crate::cluster::Cluster;
use crate::engine::encode::{EncodeProgress, Placing, Ran, Refused, StripeEncode};
use crate::engine::repair::Tally;
use crate::engine::stripe::Stripe;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, Snapshot};

/// The smallest slice in bytes; larger cells are read in slices of one cell, up to 1 MiB.
const LEAST_SLICE_BYTES: u32 = 32 << 10;

/// Encodes an object, as this job.
pub async fn encode(cluster: Arc<Cluster>, request: Encode, job: Job) {
    let end = guarded(encode_all(&cluster, &request, &job)).await;
    job.end(end).await;
}

async fn encode_all(cluster: &Arc<Cluster>, request: &Encode, job: &Job) -> Result<JobReport> {
    let Encode { name, binding } = request;
    let started_ms = cluster.now_ms();
    let wanted = name.to_owned();
    let object = cluster.meta.off(move |meta| meta.snapshot()?.object(&wanted)).await?;
    let mut encoding = EncodeProgress::new(name, object.size);
    let ids = object.ids(0, u64::MAX).into_iter().map(|(_, id)| id);
    let mut stripes = futures::stream::iter(ids.take_while(|_| !job.is_cancelled()))
        .map(|id| async move {
            let mut tally = Tally::default();
            job.unpaused().await;
            let encoded = encode_stripe(cluster, id, *binding, &mut tally).await;
            (id, encoded, tally)
        })
        .buffer_unordered(cluster.config.parallel.max(1));
    while let Some((id, encoded, cost)) = stripes.next().await {
        let (done, total) = encoding.ended(id, encoded.map_err(|error| error.to_string()), &cost);
        job.progress(done, total, "encoding");
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let (tally, failed) = encoding.end(job.is_cancelled());
    let mut report = tally.report("encode", None, &cluster.nodes().0, seconds);
    report.failed = failed;
    Ok(report)
}

/// Encodes one stripe, unless it is encoded already; returns the number of its object bytes.
async fn encode_stripe(
    cluster: &Arc<Cluster>,
    id: StripeId,
    binding: Binding,
    tally: &mut Tally,
) -> Result<u64> {
    let slot = cluster.slots.clone().acquire_owned().await;
    let _slot = slot.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let (mut touched, mut claims) = (Vec::new(), Vec::new());
    let ended = attempts(cluster, id, binding, tally, &mut touched, &mut claims).await;
    // Files that became homes stay; the others are left over from attempts and become garbage.
    cluster.meta.off(move |meta| meta.trash(&touched)).await?;
    drop(claims);
    cluster.sweep.notify_one();
    ended
}

async fn attempts(
    cluster: &Arc<Cluster>,
    id: StripeId,
    binding: Binding,
    tally: &mut Tally,
    touched: &mut Vec<(NodeId, BlockRef)>,
    claims: &mut Vec<Arc<Writing>>,
) -> Result<u64> {
    let mut encode = StripeEncode::new(binding);
    while encode.begins() {
        let (stripe, label) = cluster.load(id).await?.unzip();
        if let Some(bytes) = encode.settled(stripe.as_ref()) {
            return Ok(bytes);
        }
        let (Some(stripe), Some(label)) = (stripe, label) else { return Ok(0) };
        let (worker, machine, read) = (cluster.clone(), encode.clone(), stripe.clone());
        let planning = move |meta: &Meta| plan(&worker, &meta.snapshot()?, &machine, &read);
        let (placing, plan) = cluster.meta.off(planning).await?;
        let (generation, generations) = (stripe.record.generation, stripe.generations());
        let writing = match cluster.claim(placing.places.clone()).await? {
            Ok(writing) => writing,
            Err(Barred(place)) => {
                encode.barred(place);
                tokio::time::sleep(cluster.config.heartbeat / 2).await;
                continue;
            }
        };
        touched.extend(placing.places.iter().map(|&(node, id)| (node, BlockRef { id, generation })));
        let expect = stripe.expect();
        let label = Label { homes: placing.view.homes.clone(), ..label }.pack();
        let job = ReadyPlan {
            generations: &generations,
            slice_bytes: stripe.record.layout.cell_bytes.clamp(LEAST_SLICE_BYTES, 1 << 20),
            expect: &expect,
            label: &label,
            ..ReadyPlan::of(&plan, &placing.view)
        };
        let writing = Arc::new(writing);
        claims.push(writing.clone());
        let (programs, conducted) = run(cluster, job).await?;
        tally.attempt(&programs, &conducted.outcomes);
        match encode.ran(&stripe, &placing, &conducted.outcomes, conducted.fault.as_ref()) {
            Ran::Made(made) => {
                let blocks = made.len() as u64;
                let set = move |meta: &Meta| meta.set_encoded_if(id, generation, &made, || writing.check());
                if cluster.meta.off(set).await? {
                    tally.blocks += blocks;
                }
                return Ok(stripe.record.layout.data_bytes);
            }
            Ran::Again { doubt: bad, wait } => {
                if let Some(bad) = bad {
                    doubt(cluster, bad).await?;
                }
                if wait {
                    tokio::time::sleep(cluster.config.heartbeat / 2).await;
                }
            }
        }
    }
    Err(conflict(encode.gave_up()))
}

/// Plans an attempt. Blocking.
fn plan(
    cluster: &Cluster,
    snapshot: &Snapshot,
    encode: &StripeEncode,
    stripe: &Stripe,
) -> Result<(Placing, Plan)> {
    let (topology, usable) = cluster.nodes();
    let sweeping = cluster.sweeping(snapshot, stripe.id)?;
    let placing =
        encode.place(stripe, topology.clone(), &usable, &sweeping).map_err(|refused| match refused {
            Refused::Plan(error) => error.into(),
            Refused::Because(why) => conflict(why),
        })?;
    let plan = encode_offline(&placing.view, &topology, encode.binding())?;
    Ok((placing, plan))
}

fn conflict(got: String) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: "encoding".into(),
        expected: "data blocks that can be read and nodes for the parity".into(),
        got,
    }
}
