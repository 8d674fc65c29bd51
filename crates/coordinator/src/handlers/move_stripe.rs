//! A stripe of a put could not be written: it is placed again, without some nodes and under a new id.
//! What was written of the old one becomes garbage.

use std::sync::Arc;

use kintsu_plan::place;
use kintsu_wire::message::{MoveStripe, StripeGrant};

use super::begin_put::grant;
use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: MoveStripe) -> Result<StripeGrant> {
    let (mut topology, _) = cluster.nodes();
    for node in &request.avoid {
        if let Some(node) = topology.nodes.get_mut(node) {
            node.usable = false;
        }
    }
    let (put, stripe) = (request.put, request.stripe);
    let worker = cluster.clone();
    let moved = cluster
        .meta
        .off(move |meta| {
            meta.move_stripe(put, stripe, |id, put, layout| {
                let code = worker.code(put.code)?;
                Ok(place(code.as_ref(), layout, &topology, id.0)?.homes)
            })
        })
        .await?;
    cluster.leases().renew(put, cluster.now_ms());
    cluster.sweep.notify_one();
    Ok(grant(moved))
}
