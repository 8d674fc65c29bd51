//! An agent lives. One that is not known under its incarnation is told to register again.

use std::sync::Arc;

use kintsu_wire::message::{Heartbeat, HeartbeatReply};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Heartbeat) -> Result<HeartbeatReply> {
    let now_ms = cluster.now_ms();
    let seen = cluster.members().seen(request.node, request.incarnation, request.usage, now_ms);
    if let Ok(Some(_)) = seen {
        tracing::info!("{} is back", request.node);
        cluster.auto().nodes_changed();
        cluster.sweep.notify_one();
    }
    Ok(HeartbeatReply { register_again: seen.is_err(), delete: Vec::new() })
}
