//! Says where an object is: returns the object, a page of its stripes, and all nodes; and if a block of the page cannot be
//! read, or its node is slow, what the client needs to decode it. Reads one snapshot.

use std::sync::Arc;

use kintsu_wire::message::{Lookup, ObjectView, StripeInfo};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Meta;

/// Most stripes in one answer, so that it stays well below the size limit of messages.
const MOST_STRIPES: u64 = 16_384;

/// A lookup of at most this many stripes is read in the thread of the call.
const FEW_STRIPES: u64 = 16;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Lookup) -> Result<ObjectView> {
    let Lookup { name, first, limit, at, id } = request;
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let name = id.map_or(Ok(name.clone()), |id| snapshot.name_of(id, &name))?;
        let mut view = snapshot.view(&name, (first, at), limit.min(MOST_STRIPES))?;
        if let Some(tickets) = &worker.tickets {
            view.1.1.iter_mut().for_each(|stripe| tickets.read(stripe));
        }
        Ok(view)
    };
    let (object, (first, stripes), definition) =
        if limit <= FEW_STRIPES { cluster.meta.here(look)? } else { cluster.meta.off(look).await? };
    let (down, nodes) = {
        let members = cluster.members();
        (members.down(), members.addresses())
    };
    let absent =
        |stripe: &StripeInfo| stripe.blocks.iter().flatten().any(|b| b.lost || down.contains(&b.node));
    // A client that must decode wants them; that there are none is told at once.
    let rates = cluster.rates();
    let homes =
        || stripes.iter().flat_map(|stripe| stripe.blocks.iter().flatten()).map(|block| block.node).collect();
    let uneven = || !rates.slow_senders(&homes()).is_empty();
    let wanted = rates.is_empty() || stripes.iter().any(absent) || uneven();
    let rates = wanted.then_some(rates);
    Ok(ObjectView { object, stripes, first, definition, nodes, cluster: cluster.id, rates, timed: true })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{cluster, put, silence};
    use kintsu_plan::Rates;

    #[tokio::test]
    async fn rates_come_along_when_a_block_cannot_be_read() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let view = || handle(&cluster, Lookup { name: "a".into(), first: 0, limit: 9, at: None, id: None });
        assert_eq!(view().await.unwrap().rates, Some(Rates::default()), "there are none");
        let rates = Rates::even((0..4).map(kintsu_dag::NodeId), std::num::NonZeroU64::new(1000).unwrap());
        cluster.set_rates(rates.clone());
        assert_eq!(view().await.unwrap().rates, None);
        let mut uneven = rates.clone();
        uneven.up.insert(kintsu_dag::NodeId(1), std::num::NonZeroU64::new(100).unwrap());
        cluster.set_rates(uneven.clone());
        assert_eq!(view().await.unwrap().rates, Some(uneven), "a node is slow");
        cluster.set_rates(rates.clone());
        silence(&cluster, &[2]);
        assert_eq!(view().await.unwrap().rates, Some(rates));
    }

    #[tokio::test]
    async fn an_object_is_found_by_its_id_among_names_that_begin_alike() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a/b", 48).await;
        let look = async |name: &str, id| {
            handle(&cluster, Lookup { name: name.into(), first: 0, limit: 0, at: None, id }).await
        };
        let id = look("a/b", None).await.unwrap().object.id;
        for begins in ["a/", "", "a/b"] {
            assert_eq!(look(begins, Some(id)).await.unwrap().object.name, "a/b");
        }
        for (begins, id) in [("b/", id), ("a/b/", id), ("a/", id + 1)] {
            assert!(
                matches!(look(begins, Some(id)).await, Err(CoordinatorError::NotFound { .. })),
                "{begins} {id}"
            );
        }
    }
}
