//! Tells the cluster the rates of its links, which replace all earlier ones. Every node and rack must be known.
//! The call returns when the rates are durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::RackId;
use kintsu_plan::Topology;
use kintsu_wire::message::{Done, Rates};

use crate::cluster::{Cluster, unknown_node};
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, rates: Rates) -> Result<Done> {
    check(&rates, &cluster.nodes().0)?;
    let recorded = rates.clone();
    let worker = cluster.clone();
    let record = move |meta: &crate::meta::Meta| {
        meta.set_rates(&recorded)?;
        worker.set_rates(recorded);
        Ok(())
    };
    cluster.meta.off(record).await?;
    Ok(Done {})
}

fn check(rates: &Rates, topology: &Topology) -> Result<()> {
    let ends = rates.pairs.keys().flat_map(|(from, to)| [from, to]);
    for node in rates.up.keys().chain(rates.down.keys()).chain(ends) {
        topology.nodes.get(node).ok_or_else(|| unknown_node(*node))?;
    }
    let racks: BTreeSet<RackId> = topology.nodes.values().map(|node| node.rack).collect();
    if let Some(rack) = rates.rack_up.keys().chain(rates.rack_down.keys()).find(|rack| !racks.contains(rack))
    {
        return Err(CoordinatorError::NotFound { what: "rack", name: rack.0.to_string() });
    }
    if let Some((node, _)) = rates.pairs.keys().find(|(from, to)| from == to) {
        return Err(CoordinatorError::Invalid {
            what: "pair of nodes",
            expected: "two different nodes".into(),
            got: format!("{node} and {node}"),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use kintsu_dag::NodeId;

    use super::*;
    use crate::handlers::tests::{cluster, reopen};

    #[tokio::test]
    async fn rates_are_checked_kept_and_told_to_planners() {
        let (dir, cluster) = cluster(4, 2).await;
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        let mut rates = Rates::even((0..4).map(NodeId), rate(1000));
        rates.rack_up.insert(RackId(1), rate(100));
        rates.pairs.insert((NodeId(0), NodeId(2)), rate(10));
        for (wrong, word) in [
            (Rates::even([NodeId(4)], rate(1)), "node \"4\""),
            (Rates { rack_down: [(RackId(2), rate(1))].into(), ..Rates::default() }, "rack \"2\""),
            (
                Rates { pairs: [((NodeId(1), NodeId(1)), rate(1))].into(), ..Rates::default() },
                "two different",
            ),
        ] {
            let error = handle(&cluster, wrong).await.unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
            assert!(cluster.rates().is_empty());
        }
        handle(&cluster, rates.clone()).await.unwrap();
        assert_eq!(cluster.nodes().0.rate(NodeId(0), NodeId(2)), Some(rate(10)));
        cluster.close().await.unwrap();
        assert_eq!(reopen(&dir).rates(), rates, "after a restart");
    }
}
