//! The latencies of calls to the coordinator.

use std::time::{Duration, Instant};

use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{BeginPut, CommitPut, Encoding, List, Lookup, WrittenStripe};
use serde::Serialize;

use super::{BLOCK_BYTES, CELL_BYTES, CODE, Object, STRIPE_BYTES, block, digest};
use crate::error::Result;

/// Calls of each kind.
const CALLS: usize = 300;

/// How long one kind of call takes, in milliseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    /// The call.
    pub call: &'static str,
    /// Median.
    pub median_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// Measures each kind of call on the objects in turn.
pub(super) async fn latencies(
    coordinator: &mut CoordinatorChannel,
    objects: &[Object],
    progress: &mut dyn FnMut(&str),
) -> Result<Vec<Latency>> {
    let mut stat = Vec::new();
    let mut ls = Vec::new();
    let mut put = Vec::new();
    for i in 0..CALLS {
        progress(&format!("calls: {i} of {CALLS}"));
        let name = objects[i * 7919 % objects.len()].name.clone();
        let started = Instant::now();
        coordinator
            .objects
            .lookup(Lookup { name: name.clone(), first: 0, limit: 1, at: None, id: None })
            .await?;
        stat.push(started.elapsed());
        let started = Instant::now();
        let list = List { prefix: "bench/".into(), after: Some(name), limit: 1000, delimiter: String::new() };
        coordinator.objects.list(list).await?;
        ls.push(started.elapsed());
        let started = Instant::now();
        put_one(coordinator, i).await?;
        put.push(started.elapsed());
    }
    let latency = |call, mut times: Vec<Duration>| {
        times.sort();
        let at = |q: usize| times[(times.len() * q / 100).min(times.len() - 1)].as_secs_f64() * 1e3;
        Latency { call, median_ms: at(50), p99_ms: at(99) }
    };
    Ok(vec![
        latency("stat: lookup of one stripe", stat),
        latency("ls: a page of 1000 names", ls),
        latency("put: begin and commit", put),
    ])
}

async fn put_one(coordinator: &mut CoordinatorChannel, i: usize) -> Result<()> {
    let begin = BeginPut {
        volume: None,
        name: format!("new/object-{i}"),
        size: Some(STRIPE_BYTES),
        code: CODE.into(),
        encoding: Encoding::Online,
        block_bytes: Some(BLOCK_BYTES),
        cell_bytes: Some(CELL_BYTES),
        replace: false,
        attributes: Default::default(),
    };
    let ticket = coordinator.objects.begin_put(begin).await?.into_inner();
    let written = |s: &kintsu_wire::message::StripeGrant| WrittenStripe {
        id: s.id,
        digests: s
            .homes
            .iter()
            .enumerate()
            .map(|(i, home)| home.map(|_| digest(block(s.id, i as u8))))
            .collect(),
    };
    let stripes = ticket.stripes.iter().map(written).collect();
    coordinator
        .objects
        .commit_put(CommitPut { put: ticket.put, stripes, checksum: None, ending: None })
        .await?;
    Ok(())
}
