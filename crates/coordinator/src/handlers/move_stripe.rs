//! A stripe of a put could not be written: it is placed again, without some nodes and under a new id.
//! Blocks that were written of the old stripe become garbage.

use std::sync::Arc;

use kintsu_wire::message::{MoveStripe, StripeGrants};

use super::begin_put::{agents_called, grant, homes};
use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: MoveStripe) -> Result<StripeGrants> {
    let MoveStripe { put, stripe, avoid } = request;
    agents_called(cluster).await;
    let mut placed = homes(cluster, avoid);
    let worker = cluster.clone();
    let moving = async move {
        let codes = worker.clone();
        let moved = worker.meta.off(move |meta| {
            meta.move_stripe(put, stripe, |id, put, layout| {
                let code = codes.code(put.code)?;
                placed(code.as_ref(), id, layout)
            })
        });
        let moved = moved.await?;
        worker.leases().renew(put, worker.now_ms());
        worker.sweep.notify_one();
        Ok(moved)
    };
    let moved = cluster.whole(moving).await?;
    Ok(StripeGrants { stripes: vec![grant(cluster, moved)], nodes: cluster.members().addresses() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::begin_put;
    use crate::handlers::tests::{begin, cluster};
    use kintsu_dag::NodeId;

    #[tokio::test]
    async fn a_moved_stripe_avoids_what_it_is_told_to() {
        let (_dir, cluster) = cluster(6, 1).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let (put, stripe) = (ticket.put, ticket.stripes[0].id);
        let avoid = vec![NodeId(0), NodeId(1)];
        let reply = handle(&cluster, MoveStripe { put, stripe, avoid: avoid.clone() }).await.unwrap();
        let moved = &reply.stripes[0];
        assert_eq!((reply.stripes.len(), reply.nodes.len()), (1, 6));
        assert!(moved.id != stripe && !moved.homes.iter().flatten().any(|node| avoid.contains(node)));
        let again = handle(&cluster, MoveStripe { put, stripe, avoid: avoid.clone() }).await;
        assert!(matches!(again, Err(CoordinatorError::NotFound { .. })));
        let avoid = (0..3).map(NodeId).collect();
        let too_few = handle(&cluster, MoveStripe { put, stripe: moved.id, avoid }).await;
        assert!(too_few.unwrap_err().to_string().contains("got 3"));
        assert_eq!(cluster.meta.snapshot().unwrap().totals().unwrap().puts, 1);
    }
}
