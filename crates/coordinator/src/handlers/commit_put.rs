//! All blocks of a put are durable: the object becomes visible, whole, in one transaction. Repeating
//! the call is harmless, so that a client may do so when it lost the reply.

use std::sync::Arc;

use kintsu_wire::message::{CommitPut, ObjectInfo};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitPut) -> Result<ObjectInfo> {
    let (put, now) = (request.put, cluster.unix_seconds());
    let committed = cluster.meta.off(move |meta| meta.commit_put(put, &request.stripes, now)).await;
    if matches!(committed, Ok(_) | Err(CoordinatorError::Exists { .. })) {
        cluster.leases().end(put);
        // A replaced object, or this put itself, may have become garbage.
        cluster.sweep.notify_one();
    }
    committed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, written};
    use crate::handlers::{begin_put, lookup};
    use kintsu_wire::message::{Encoding, Lookup};

    #[tokio::test]
    async fn an_object_is_visible_after_its_commit_and_not_before() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let view = || lookup::handle(&cluster, Lookup { name: "a".into(), first: 1, limit: 2 });
        assert!(matches!(view().await, Err(CoordinatorError::NotFound { .. })));
        let stripes = written(&ticket, Encoding::Online, 2);
        let commit = || CommitPut { put: ticket.put, stripes: stripes.clone() };
        let info = handle(&cluster, commit()).await.unwrap();
        assert_eq!(handle(&cluster, commit()).await.unwrap(), info);
        let view = view().await.unwrap();
        assert_eq!((view.object.size, view.object.stripes, view.object.encoded), (100, 4, true));
        assert_eq!(view.stripes.iter().map(|s| s.offset).collect::<Vec<_>>(), [32, 64]);
        assert!(view.nodes.iter().all(|n| n.alive));
    }

    #[tokio::test]
    async fn a_put_that_is_not_renewed_is_undone() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let late = cluster.leases().expired(u64::MAX);
        assert_eq!(late, [ticket.put]);
        cluster.meta.abort_put(ticket.put).unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        let error = handle(&cluster, CommitPut { put: ticket.put, stripes }).await.unwrap_err();
        assert!(error.to_string().contains("lease"), "{error}");
    }
}
