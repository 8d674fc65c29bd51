//! Says where an object is: returns the object, a page of its stripes, and all nodes; and if a block of the page cannot be
//! read, what the client needs to decode it. Reads one snapshot.

use std::sync::Arc;

use kintsu_plan::Rates;
use kintsu_wire::message::{Lookup, ObjectView, StripeInfo};

use crate::cluster::Cluster;
use crate::error::Result;

/// Most stripes in one answer, so that it stays well below the size limit of messages.
const MOST_STRIPES: u64 = 16_384;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Lookup) -> Result<ObjectView> {
    let Lookup { name, first, limit } = request;
    let (object, stripes, definition) = cluster
        .meta
        .off(move |meta| {
            let snapshot = meta.snapshot()?;
            let object = snapshot.object(&name)?;
            let stripes = snapshot.stripes(&object, first, limit.min(MOST_STRIPES))?;
            let definition = if limit == 0 { None } else { snapshot.definition(object.code)? };
            Ok((snapshot.object_info(&name)?, stripes, definition))
        })
        .await?;
    let (down, nodes) = {
        let members = cluster.members();
        (members.down(), members.addresses())
    };
    let rates = cluster.rates();
    let absent =
        |stripe: &StripeInfo| stripe.blocks.iter().flatten().any(|b| b.lost || down.contains(&b.node));
    let rates = (rates.is_empty() || stripes.iter().any(absent)).then(|| Rates::clone(&rates));
    Ok(ObjectView { object, stripes, definition, nodes, cluster: cluster.id, rates })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put, silence};

    #[tokio::test]
    async fn rates_come_along_when_a_block_cannot_be_read() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let view = || handle(&cluster, Lookup { name: "a".into(), first: 0, limit: 9 });
        assert_eq!(view().await.unwrap().rates, Some(Rates::default()), "there are none");
        let rates = Rates::even((0..4).map(kintsu_dag::NodeId), std::num::NonZeroU64::new(1000).unwrap());
        cluster.set_rates(rates.clone());
        assert_eq!(view().await.unwrap().rates, None);
        silence(&cluster, &[2]);
        assert_eq!(view().await.unwrap().rates, Some(rates));
    }
}
