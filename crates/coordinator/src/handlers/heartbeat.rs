//! An agent says that it is alive. If its incarnation is not known, it is told to register again.

use std::sync::Arc;

use kintsu_wire::message::{Heartbeat, HeartbeatReply};

use crate::cluster::Cluster;
use crate::engine::members::Change;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Heartbeat) -> Result<HeartbeatReply> {
    let now_ms = cluster.now_ms();
    let Heartbeat { node, incarnation, usage, failed, counters, .. } = request;
    let why = failed.clone().unwrap_or_default();
    let seen = cluster.members().seen(node, incarnation, usage, failed, now_ms);
    if seen.is_ok() {
        let place = cluster.members().node(node).map(|member| (member.record.rack, member.record.data.ip()));
        if let Some((rack, address)) = place {
            cluster.bandwidth().placed(node, rack, address);
        }
        cluster.bandwidth().heard(node, counters);
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
    Ok(HeartbeatReply { register_again: seen.is_err(), seen: cluster.seen(), repair_rate })
}
