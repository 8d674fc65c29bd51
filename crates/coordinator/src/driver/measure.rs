//! Measures links by short probes, as [`crate::engine::probe`] orders them. A probe is a plan like any other: its bytes are
//! made on the sender and dropped on the receiver.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kintsu_dag::NodeId;
use kintsu_plan::probe;
use kintsu_runtime::Observed;
use tokio::sync::watch;

use super::run::{ReadyPlan, run_watched};
use crate::cluster::Cluster;
use crate::engine::probe::{
    Links, MOST_MORE, MOST_TURNS, Places, Round, conclude, confirm, for_all, one_of_each_host, rounds, unsure,
};
use crate::error::{CoordinatorError, Result};

/// How long a probe runs; the part before its first report does not count.
const RUNS: Duration = Duration::from_millis(900);
/// No link sends more than this in that time.
const BYTES: u64 = 1 << 40;
const SLICE: u32 = 64 << 10;

/// Measures the links of all nodes that live, except those that share loopback.
///
/// # Errors
/// They have fewer than two addresses.
pub async fn measure(cluster: &Arc<Cluster>) -> Result<()> {
    let _turn = cluster.measuring.acquire().await.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let places: Places = {
        let members = cluster.members();
        let apart = members.iter().filter(|(_, m)| m.holds() && !m.record.data.ip().is_loopback());
        apart.map(|(node, m)| (node, (m.record.rack, m.record.data.ip()))).collect()
    };
    let nodes = one_of_each_host(&places);
    if nodes.len() < 2 {
        return Err(CoordinatorError::Invalid {
            what: "hosts whose links can be measured",
            expected: "two or more addresses of nodes that live, apart from loopback".into(),
            got: nodes.len().to_string(),
        });
    }
    let (mut results, mut more) = (Vec::new(), Vec::new());
    let mut known: Option<Links> = None;
    for _ in 0..MOST_TURNS {
        for round in rounds(&nodes) {
            results.push(played(cluster, round).await);
        }
        while more.len() < MOST_MORE {
            let round = unsure(&nodes, &results, &more);
            if round.is_empty() {
                break;
            }
            more.push(played(cluster, round).await);
        }
        let now = conclude(&nodes, &results, &more);
        let before = known.replace(now.clone());
        if before.is_some_and(|before| confirm(&before, &now)) {
            break;
        }
    }
    let (links, racks) = known.unwrap_or_default();
    let links = for_all(&places, &links);
    tracing::info!("the links of {} nodes and {} racks were measured", links.len(), racks.len());
    cluster.bandwidth().measured(links, racks);
    Ok(())
}

/// What came through between the nodes of a round.
async fn played(cluster: &Arc<Cluster>, round: Round) -> Vec<crate::engine::probe::Result> {
    let probes =
        round.into_iter().map(|(from, to)| async move { (from, to, probe_link(cluster, from, to).await) });
    join_all(probes).await
}

/// What comes from one node to another, in bytes a second; `None` if nothing does.
async fn probe_link(cluster: &Arc<Cluster>, from: NodeId, to: NodeId) -> Option<f64> {
    let code = kintsu_code::parse("rs:n=2,k=1").ok()?;
    let (view, plan) = probe(code, from, to, BYTES, SLICE);
    let (watcher, mut seen) = watch::channel(Observed::default());
    let cancel = cluster.stop.child_token();
    let ready = ReadyPlan { slice_bytes: SLICE, expect: &[None, None], ..ReadyPlan::of(&plan, &view) };
    let mut samples: Vec<(u64, u64)> = Vec::new();
    let watching = async {
        let watch = async {
            while seen.changed().await.is_ok() {
                // By the receiver's clock: its reports may be late on links that are full.
                let Some((at_ms, upto)) = seen.borrow_and_update().nodes.get(&to).map(|s| (s.at_ms, s.upto))
                else {
                    continue;
                };
                if samples.last().map_or(upto > 0, |last| at_ms > last.0) {
                    samples.push((at_ms, upto));
                }
            }
        };
        let _ = tokio::time::timeout(RUNS, watch).await;
        cancel.cancel();
    };
    let (ran, ()) = tokio::join!(run_watched(cluster, ready, Some(watcher), &cancel), watching);
    ran.ok()?;
    let ((begin_ms, begun), (end_ms, ended)) = (samples.first()?, samples.last()?);
    let seconds = end_ms.checked_sub(*begin_ms).filter(|ms| *ms > 0)? as f64 / 1000.0;
    Some((ended - begun) as f64 / seconds)
}
