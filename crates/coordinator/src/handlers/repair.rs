//! Repairs now, without waiting for the grace time. A stripe that is under repair already is not repaired twice:
//! the call then reports how that repair ended. If the caller disconnects, the repairs go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_plan::{Schedule, choose_requestors};
use kintsu_wire::message::{Repair, RepairTarget, Requestors};

use crate::cluster::{Cluster, unknown_node};
use crate::driver::{AUTOMATIC_SLICE, Listener, Source, start_repairs};
use crate::engine::repair::Order;
use crate::error::{CoordinatorError, Result};

/// Smallest and largest slice in bytes.
const SLICES: std::ops::RangeInclusive<u32> = 512..=16 << 20;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Repair, listener: Listener) -> Result<()> {
    let slice_bytes = match request.slice_bytes {
        bytes if bytes == AUTOMATIC_SLICE || SLICES.contains(&bytes) => bytes,
        bytes => {
            return Err(CoordinatorError::Invalid {
                what: "slice",
                expected: format!("{} to {} bytes", SLICES.start(), SLICES.end()),
                got: bytes.to_string(),
            });
        }
    };
    let source = match request.target {
        RepairTarget::Node(node) => {
            if cluster.members().node(node).is_none() {
                return Err(unknown_node(node));
            }
            Source::Node(node)
        }
        RepairTarget::Object(name) => {
            let wanted = name.clone();
            cluster.meta.off(move |meta| meta.snapshot()?.object(&wanted)).await?;
            Source::Object(name)
        }
        RepairTarget::All => Source::Everything(cluster.members().down().into_iter().collect()),
    };
    let requestors = requestors(cluster, request.schedule, request.requestors)?.map(Arc::new);
    let (schedule, per_node) = (request.schedule, request.per_node);
    let method = request.method.given(&cluster.rates());
    let order = Order { method, slice_bytes, in_place: false, schedule, requestors, per_node };
    cluster.auto().nodes_changed();
    start_repairs(cluster, source, order, Some(listener));
    Ok(())
}

/// The nodes that may get blocks; `None` for all. Every named node must be alive and not draining.
fn requestors(
    cluster: &Arc<Cluster>,
    schedule: Schedule,
    asked: Requestors,
) -> Result<Option<BTreeSet<NodeId>>> {
    let (topology, _) = cluster.nodes();
    let one = |got: String| CoordinatorError::Invalid {
        what: "requestors",
        expected: format!("one for {schedule}"),
        got,
    };
    let nodes = match asked {
        Requestors::Any if schedule.single_requestor() => choose_requestors(&topology, 1)?,
        Requestors::Any => return Ok(None),
        Requestors::Count(count) => choose_requestors(&topology, count as usize)?,
        Requestors::Nodes(nodes) => nodes.into_iter().collect(),
    };
    if schedule.single_requestor() && nodes.len() != 1 {
        return Err(one(nodes.len().to_string()));
    }
    if nodes.is_empty() {
        let (expected, got) = ("one node or more".into(), "none".into());
        return Err(CoordinatorError::Invalid { what: "requestors", expected, got });
    }
    for node in &nodes {
        let known = topology.nodes.get(node).ok_or_else(|| unknown_node(*node))?;
        if !known.usable {
            return Err(CoordinatorError::Conflict {
                what: format!("blocks for {node}"),
                expected: "a node that is alive and not draining".into(),
                got: "one that is not".into(),
            });
        }
    }
    Ok(Some(nodes))
}

#[cfg(test)]
mod tests {
    use kintsu_plan::Method;

    use super::*;
    use crate::handlers::tests::{cluster, put};
    use kintsu_wire::message::JobEvent;
    use tokio::sync::mpsc;

    fn ask(target: RepairTarget, slice_bytes: u32) -> Repair {
        Repair { method: Method::Ppr, slice_bytes, ..Repair::new(target) }
    }

    fn to(requestors: Requestors) -> Repair {
        Repair { requestors, ..Repair::new(RepairTarget::All) }
    }

    #[tokio::test]
    async fn what_does_not_exist_is_refused() {
        let (_dir, cluster) = cluster(4, 1).await;
        let (listener, _events) = mpsc::channel(1);
        for (wrong, word) in [
            (ask(RepairTarget::Node(NodeId(9)), 0), "node \"9\""),
            (ask(RepairTarget::Object("x".into()), 0), "object \"x\""),
            (ask(RepairTarget::All, 17), "slice"),
            (to(Requestors::Nodes(vec![NodeId(1), NodeId(9)])), "node \"9\""),
            (to(Requestors::Nodes(vec![])), "one node or more"),
            (to(Requestors::Count(5)), "1 to 4 requestors"),
            (Repair { schedule: Schedule::PushRep, ..to(Requestors::Count(2)) }, "one for push-rep"),
        ] {
            let error = handle(&cluster, wrong, listener.clone()).await.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(cluster.queue().jobs(), 0);
    }

    #[tokio::test]
    async fn where_nothing_is_lost_the_report_says_so_at_once() {
        let (_dir, cluster) = cluster(4, 1).await;
        put(&cluster, "a", 48).await;
        for target in [RepairTarget::Node(NodeId(0)), RepairTarget::Object("a".into()), RepairTarget::All] {
            let (listener, mut events) = mpsc::channel(8);
            handle(&cluster, ask(target, 0), listener).await.unwrap();
            assert!(matches!(events.recv().await, Some(Ok(JobEvent::Began(_)))));
            let Some(Ok(JobEvent::Ended(report))) = events.recv().await else { panic!("no report") };
            assert_eq!(
                (report.kind.as_str(), report.blocks, report.method),
                ("repair", 0, Some(Method::Ppr))
            );
            assert_eq!(report.failed, [""; 0]);
        }
    }

    #[tokio::test]
    async fn the_best_trees_are_chains_until_rates_are_known() {
        let (_dir, cluster) = cluster(4, 1).await;
        put(&cluster, "a", 48).await;
        let method = async || {
            let (listener, mut events) = mpsc::channel(8);
            let wanted = Repair { method: Method::Optimal, ..Repair::new(RepairTarget::All) };
            handle(&cluster, wanted, listener).await.unwrap();
            assert!(matches!(events.recv().await, Some(Ok(JobEvent::Began(_)))));
            let Some(Ok(JobEvent::Ended(report))) = events.recv().await else { panic!("no report") };
            report.method
        };
        assert_eq!(method().await, Some(Method::Pipeline));
        let rates = kintsu_plan::Rates::even((0..4).map(NodeId), std::num::NonZeroU64::MIN);
        crate::handlers::set_rates::handle(&cluster, rates).await.unwrap();
        assert_eq!(method().await, Some(Method::Optimal));
    }
}
