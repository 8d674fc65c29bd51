//! Somebody found a bad block, or met an error when it read one. The block's node reads it once more; when it is bad
//! and the metadata place it there, it is flagged lost and mended at once. Nothing is recorded on the
//! reporter's word alone, and a node that does not answer is no bad block: heartbeats decide about nodes.

use std::sync::Arc;

use kintsu_wire::message::{BadBlock, Done, FaultKind};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;
use crate::meta::LostBlock;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BadBlock) -> Result<Done> {
    use FaultKind::{Corrupt, Io, Missing, Stale};
    if matches!(request.kind, Corrupt | Missing | Stale | Io) {
        tracing::info!("{} on {} is reported: {}", request.id, request.node, request.detail);
        let suspect = LostBlock { id: request.id, node: request.node, why: request.kind };
        driver::report(cluster, vec![suspect]);
    }
    Ok(Done {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put};
    use kintsu_dag::{BlockId, BlockIndex, StripeId};

    #[tokio::test]
    async fn only_a_bad_block_at_its_home_is_flagged() {
        let (_dir, cluster) = cluster(4, 1).await;
        put(&cluster, "a", 16).await;
        let id = BlockId { stripe: StripeId(1), index: BlockIndex(0) };
        let home =
            cluster.meta.snapshot().unwrap().stripe(id.stripe).unwrap().unwrap().blocks[0].unwrap().node;
        let report = |node, kind| BadBlock { id, node, kind, detail: String::new() };
        let elsewhere = kintsu_dag::NodeId((home.0 + 1) % 4);
        for harmless in [report(home, FaultKind::Lost), report(elsewhere, FaultKind::Corrupt)] {
            handle(&cluster, harmless).await.unwrap();
            assert_eq!(cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0);
        }
        handle(&cluster, report(home, FaultKind::Corrupt)).await.unwrap();
        let lost = cluster.meta.snapshot().unwrap().lost(None, 9).unwrap();
        assert_eq!(lost, [(id, FaultKind::Corrupt)]);
        assert_eq!(cluster.queue().asks(), 1);
    }
}
