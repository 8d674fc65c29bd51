//! Says which blocks a repair lacks, where they should be, and why they cannot be read there.

use std::sync::Arc;

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::PlanError;
use kintsu_wire::message::FaultKind;

use crate::cluster::Cluster;
use crate::engine::repair::{Absent, StripeRepair};
use crate::error::CoordinatorError;
use crate::meta::Meta;

/// The error of a repair that has no plan. If blocks are missing, it names them.
pub async fn explain(cluster: &Arc<Cluster>, repair: &StripeRepair, error: PlanError) -> CoordinatorError {
    if !matches!(error, PlanError::Unrecoverable { .. }) {
        return error.into();
    }
    let (_, usable) = cluster.nodes();
    let (absent, stripe) = (repair.absent(&|node| usable.contains(&node)), repair.id());
    let ids: Vec<BlockId> = absent.iter().map(|a| BlockId { stripe, index: a.index }).collect();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        ids.into_iter().map(|id| snapshot.why_lost(id)).collect()
    };
    // If the reasons cannot be read, the places alone still help.
    let reasons: Vec<Option<FaultKind>> = cluster.meta.off(look).await.unwrap_or_default();
    let reasons = reasons.into_iter().chain(std::iter::repeat(None));
    let missing: Vec<String> =
        absent.iter().zip(reasons).map(|(absent, why)| describe(cluster, absent, why)).collect();
    CoordinatorError::Missing { error, missing: missing.join(", ") }
}

/// One block: `b3 on N4 (dead for 20 s)`.
fn describe(cluster: &Cluster, absent: &Absent, why: Option<FaultKind>) -> String {
    let reason = state(cluster, absent.node).unwrap_or_else(|| match (absent.lost || why.is_some(), why) {
        (true, Some(why)) => format!("lost: {}", format!("{why:?}").to_lowercase()),
        (true, None) => "lost".into(),
        (false, _) => "found bad or not reached by this repair".into(),
    });
    format!("{} on {} ({reason})", absent.index, absent.node)
}

/// What is wrong with the whole node, if anything.
fn state(cluster: &Cluster, node: NodeId) -> Option<String> {
    let now_ms = cluster.now_ms();
    let members = cluster.members();
    let Some(member) = members.node(node) else { return Some("an unknown node".into()) };
    let seconds = |since_ms: u64| now_ms.saturating_sub(since_ms) / 1000;
    if !member.up {
        let what = if member.record.stopped { "stopped" } else { "dead" };
        return Some(format!("{what} for {} s", seconds(member.down_ms)));
    }
    if member.record.wiping {
        return Some("being wiped".into());
    }
    member.suspect.then(|| format!("not reached; last heard of {} s ago", seconds(member.seen_ms)))
}
