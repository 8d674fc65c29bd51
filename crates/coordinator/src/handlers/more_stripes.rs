//! A client needs the next stripes of its put, and reports which ones it has written: the stripes of a large
//! object are granted in batches. The client of a stream tells its size here. Repeating the call gives the same
//! stripes.

use std::sync::Arc;

use kintsu_wire::message::{MoreStripes, StripeGrants};

use super::begin_put::{agents_called, grant, homes};
use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: MoreStripes) -> Result<StripeGrants> {
    let MoreStripes { put, from, written, size } = request;
    agents_called(cluster).await;
    let mut placed = homes(cluster, Vec::new());
    let batch = cluster.config.grant.max(1);
    let worker = cluster.clone();
    let granted = cluster
        .meta
        .off(move |meta| {
            meta.more_stripes(put, from, batch, (&written, size), move |id, put, layout| {
                let code = worker.code(put.code)?;
                placed(code.as_ref(), id, layout)
            })
        })
        .await?;
    cluster.leases().renew(put, cluster.now_ms());
    let nodes = cluster.members().addresses();
    let stripes = granted.stripes.into_iter().map(|stripe| grant(cluster, stripe)).collect();
    Ok(StripeGrants { stripes, nodes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{begin, cluster, reopen_with, visible, written};
    use crate::handlers::{begin_put, commit_put, lookup};
    use kintsu_wire::message::{CommitPut, Encoding, Lookup, PutTicket};

    #[tokio::test]
    async fn a_large_put_is_granted_in_batches_and_visible_at_once() {
        let (dir, first) = cluster(4, 2).await;
        first.close().await.unwrap();
        let cluster = reopen_with(&dir, |config| config.grant = 3);
        // Ten stripes of 32 bytes.
        let ticket = begin_put::handle(&cluster, begin("a", 310)).await.unwrap();
        assert_eq!(ticket.stripes.len(), 3);
        let put = ticket.put;
        let more = |from, written| handle(&cluster, MoreStripes { put, from, written, size: None });
        let too_far = more(4, Vec::new()).await.unwrap_err();
        assert!(matches!(too_far, CoordinatorError::Invalid { .. }), "{too_far}");
        let (mut granted, mut told) = (ticket.stripes.clone(), Vec::new());
        while granted.len() < 10 {
            let last = PutTicket { stripes: granted[told.len()..].to_vec(), ..ticket.clone() };
            let done = written(&last, Encoding::Online, 2);
            let reply = more(granted.len() as u64, done.clone()).await.unwrap();
            let again = more(granted.len() as u64, done.clone()).await.unwrap();
            let ids = |grants: &StripeGrants| grants.stripes.iter().map(|s| s.id).collect::<Vec<_>>();
            assert_eq!(ids(&reply), ids(&again), "a lost reply is repeated");
            assert!(!reply.stripes.is_empty() && reply.stripes.len() <= 3 && reply.nodes.len() == 4);
            told.extend(done);
            granted.extend(reply.stripes);
        }
        assert!(more(10, Vec::new()).await.unwrap().stripes.is_empty());
        let row = cluster.meta.snapshot().unwrap().put(put).unwrap().unwrap();
        assert_eq!(row.runs.len(), 1, "ids of one batch follow each other: {:?}", row.runs);
        for stripe in &granted {
            assert!(cluster.meta.snapshot().unwrap().is_pending(stripe.id).unwrap());
        }
        let rest = PutTicket { stripes: granted[told.len()..].to_vec(), ..ticket.clone() };
        let commit =
            |stripes| commit_put::handle(&cluster, CommitPut { put, stripes, checksum: None, ending: None });
        let incomplete = commit(Vec::new()).await.unwrap_err();
        assert!(matches!(incomplete, CoordinatorError::Invalid { .. }), "{incomplete}");
        let last = written(&rest, Encoding::Online, 2);
        let object = visible(commit(last.clone()).await.unwrap());
        assert_eq!((object.size, object.stripes), (310, 10));
        assert_eq!(visible(commit(last).await.unwrap()), object);
        let view =
            lookup::handle(&cluster, Lookup { name: "a".into(), first: 0, limit: 99, at: None, id: None })
                .await
                .unwrap();
        let offsets: Vec<_> = view.stripes.iter().map(|s| s.offset).collect();
        assert_eq!(offsets, (0..10).map(|i| i * 32).collect::<Vec<_>>());
        assert!(!cluster.meta.snapshot().unwrap().is_pending(granted[0].id).unwrap());
    }

    #[tokio::test]
    async fn a_put_that_is_not_granted_to_its_end_cannot_be_committed() {
        let (dir, first) = cluster(4, 2).await;
        first.close().await.unwrap();
        let cluster = reopen_with(&dir, |config| config.grant = 2);
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        let refused = commit_put::handle(
            &cluster,
            CommitPut { put: ticket.put, stripes, checksum: None, ending: None },
        )
        .await
        .unwrap_err();
        assert!(refused.to_string().contains("all 4 stripes"), "{refused}");
    }
}
