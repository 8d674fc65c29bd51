//! An agent says that it is alive. If its incarnation is not known, it is told to register again.

use std::sync::Arc;

use kintsu_wire::message::{Heartbeat, HeartbeatReply};

use crate::cluster::Cluster;
use crate::driver;
use crate::engine::bandwidth::Place;
use crate::engine::members::Change;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Heartbeat) -> Result<HeartbeatReply> {
    let now_ms = cluster.now_ms();
    let Heartbeat { node, incarnation, usage, failed, counters, .. } = request;
    let why = failed.clone().unwrap_or_default();
    let seen = cluster.members().seen(node, incarnation, usage, failed, now_ms);
    if seen.is_ok() {
        let place = cluster.members().node(node).map(|member| Place {
            rack: member.record.rack,
            address: member.record.data.ip(),
            medium: member.usage.medium,
        });
        if let Some(place) = place {
            cluster.bandwidth().placed(node, place);
        }
        cluster.bandwidth().heard(node, counters, now_ms);
        cluster.give_way().heard(node, counters);
    }
    match seen {
        Ok(Some(Change::Down(_))) => {
            tracing::error!("the disk of {node} failed: {why}");
            cluster.auto().nodes_changed();
        }
        Ok(Some(_)) => {
            tracing::info!("{node} is back");
            cluster.auto().nodes_changed();
            cluster.sweep.notify_one();
        }
        Ok(None) | Err(()) => {}
    }
    let repair_rate = cluster.give_way().rate();
    let agents_too = driver::everybody_hands_on(cluster);
    Ok(HeartbeatReply { register_again: seen.is_err(), seen: cluster.seen(), repair_rate, agents_too })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::known_rates;
    use crate::handlers::tests::cluster;
    use kintsu_dag::NodeId;
    use kintsu_wire::message::{Counters, LinkCounters, LinkEnd, Moved, Way};

    #[tokio::test]
    async fn agents_at_one_address_share_what_its_interface_carries() {
        let (_dir, cluster) = cluster(2, 2).await;
        for at_ms in [1000, 2000] {
            // The second agent repairs, and both count it. It is heard first.
            for (node, repairs) in [(1, 3000), (0, 0)] {
                let bytes = (at_ms - 1000) * 4000;
                let counters = Counters {
                    at_ms,
                    link: Some(LinkCounters { sent: bytes, received: 0, speed: None }),
                    background: Moved { sent: (at_ms - 1000) * repairs, ..Moved::default() },
                    ..Counters::default()
                };
                let beat = Heartbeat {
                    node: NodeId(node),
                    incarnation: 1,
                    usage: Default::default(),
                    running: 0,
                    failed: None,
                    counters,
                };
                handle(&cluster, beat).await.unwrap();
            }
        }
        let known = known_rates::handle(&cluster).await.unwrap().links;
        let up =
            |node| known.iter().find(|link| link.end == LinkEnd::Node(NodeId(node)) && link.way == Way::Up);
        let users = [0, 1].map(|node| up(node).unwrap().foreground.unwrap());
        assert!(users.iter().all(|users| *users < 1_000_000), "{users:?}");
    }
}
