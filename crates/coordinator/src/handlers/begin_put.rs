//! A client wants to write an object. Every bad request is refused here, before anything is written or recorded.
//! Then the first stripes get their ids and homes (for a small put not durably: see `Meta::begin_put`), and the put gets
//! a lease. A recorded put always gets its lease, even if the caller has disconnected by then.

use std::sync::Arc;

use kintsu_code::{Code, Definition, USER};
use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::{Division, Layout, LayoutKind};
use kintsu_wire::message::{
    Attributes, BeginPut, CodeLabel, Encoding, NewMember, ObjectLabel, PutTicket, StripeGrant,
};

use crate::cluster::Cluster;
use crate::engine::put::{BadName, Homes, check_name};
use crate::error::{CoordinatorError, Result};
use crate::meta::volumes::{RESERVED, stripe_name};
use crate::meta::{CodeRecord, Meta, NewPut, PendingStripe, packs};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BeginPut) -> Result<PutTicket> {
    let expected = match request.volume.map(|of| stripe_name(of.volume, of.index)) {
        Some(own) => (own != request.name).then(|| format!("{own:?}, as that stripe of a volume is named")),
        None => request
            .name
            .starts_with(RESERVED)
            .then(|| format!("one that does not begin with {RESERVED}, which is for stripes of volumes")),
    };
    if let Some(expected) = expected {
        return Err(CoordinatorError::Invalid { what: "object name", expected, got: request.name });
    }
    checked_name(&request.name)?;
    checked_attributes(&request.attributes)?;
    begun(cluster, request, Vec::new()).await
}

/// Begins a put that was checked; of a pack with these members.
///
/// # Errors
/// A bad code or size, a name that exists, too few nodes.
pub async fn begun(cluster: &Arc<Cluster>, request: BeginPut, members: Vec<NewMember>) -> Result<PutTicket> {
    agents_called(cluster).await;
    let registered = match request.code.starts_with(USER) {
        true => Some(cluster.registered(request.code.clone()).await?),
        false => None,
    };
    let worker = cluster.clone();
    // Runs to its end even if the caller disconnects.
    let begun = cluster.meta.off(move |meta| begin(&worker, meta, (request, members), registered)).await;
    cluster.unless_ending(begun).await
}

/// Checks the name of a new object.
///
/// # Errors
/// What was expected, and what came.
pub fn checked_name(name: &str) -> Result<()> {
    let invalid =
        |BadName { expected, got }| CoordinatorError::Invalid { what: "object name", expected, got };
    check_name(name).map_err(invalid)
}

/// Checks what a user says about an object.
///
/// # Errors
/// What was expected, and what came.
pub fn checked_attributes(attributes: &Attributes) -> Result<()> {
    let invalid = |(expected, got)| CoordinatorError::Invalid { what: "attributes", expected, got };
    attributes.check().map_err(invalid)
}

/// Waits until all nodes that are taken for alive have called since the start; for two heartbeats after the start at most. If
/// the metadata are older than what agents hold, those calls tell. Before, an id could be given that is in use: the new
/// blocks would take the place of others.
pub async fn agents_called(cluster: &Cluster) {
    let heartbeat = cluster.config.heartbeat;
    let end_ms = 2 * heartbeat.as_millis() as u64;
    while cluster.now_ms() < end_ms && cluster.members().awaits_calls() {
        tokio::time::sleep(heartbeat / 16).await;
    }
}

type Registered = (Arc<dyn Code>, Definition);

/// Blocks on the disk. Takes seconds if the code is new and its distance must be proved.
fn begin(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    (request, members): (BeginPut, Vec<NewMember>),
    registered: Option<Registered>,
) -> Result<PutTicket> {
    let (code, definition) = match registered {
        Some((code, definition)) => (code, Some(definition)),
        None => (kintsu_code::parse(&request.code)?, None),
    };
    let kind = match request.encoding {
        Encoding::Online => LayoutKind::Striped,
        Encoding::Offline => LayoutKind::Contiguous,
    };
    let (block, cell) = Layout::sizes(code.w(), request.block_bytes, request.cell_bytes);
    let division = match request.size {
        Some(size) => Division::new(size, code.k(), code.w(), kind, block, cell)?,
        None => Division::of_stream(code.k(), code.w(), kind, block, cell)?,
    };
    let label = ObjectLabel {
        id: 0,
        name: request.name.clone(),
        size: request.size,
        created: cluster.unix_seconds(),
        encoding: request.encoding,
        code: CodeLabel::of(code.as_ref(), definition.clone()),
        attributes: request.attributes.clone().for_label(),
        members: Vec::new(),
    };
    if !members.is_empty() && division.count() != 1 {
        let (expected, got) =
            (format!("at most {} bytes", division.full()), format!("{} stripes", division.count()));
        return Err(CoordinatorError::Invalid { what: "size of a pack", expected, got });
    }
    let new = NewPut {
        name: request.name,
        size: request.size,
        code: CodeRecord::of(code.as_ref()),
        encoding: request.encoding,
        replace: request.replace,
        volume: request.volume,
        attributes: request.attributes,
        members: members.clone(),
        division,
        batch: cluster.config.grant.max(1),
    };
    let mut placed = homes(cluster, Vec::new());
    let (put, granted) = meta.begin_put(new, move |id, layout| placed(code.as_ref(), id, layout))?;
    cluster.leases().grant(put, cluster.now_ms());
    let label = match members.is_empty() {
        true => ObjectLabel { id: put, ..label },
        false => {
            let members = packs::labels(put, members);
            ObjectLabel { id: put, name: packs::name_of(put), members, ..label }
        }
    };
    Ok(PutTicket {
        put,
        lease_ms: cluster.config.lease.as_millis() as u64,
        stripes: granted.stripes.into_iter().map(|stripe| grant(cluster, stripe)).collect(),
        definition,
        nodes: cluster.members().addresses(),
        cluster: cluster.id,
        label,
        timed: true,
    })
}

/// Gives stripes of a put their homes, none of them on a node in `avoid`. The states of the nodes are read for the
/// first stripe, within the transaction that grants it. So a drain that was ordered before is respected, and a
/// drain that is ordered later finds the put.
pub fn homes(
    cluster: &Arc<Cluster>,
    avoid: Vec<NodeId>,
) -> impl FnMut(&dyn Code, StripeId, &Layout) -> Result<Vec<Option<NodeId>>> + Clone + use<> {
    let (cluster, mut known) = (cluster.clone(), None);
    move |code, id, layout| {
        let homes = known.get_or_insert_with(|| Homes::new(cluster.nodes().0, &avoid));
        Ok(homes.of(code, id, layout)?)
    }
}

/// A stripe of a put, as its client sees it.
pub fn grant(cluster: &Cluster, stripe: PendingStripe) -> StripeGrant {
    let PendingStripe { id, generation, layout, homes, .. } = stripe;
    let mut grant = StripeGrant { id, generation, layout, homes, tickets: Vec::new() };
    if let Some(tickets) = &cluster.tickets {
        tickets.write(&mut grant);
    }
    grant
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, until, volume};
    use kintsu_wire::message::StripeOfVolume;

    #[tokio::test]
    async fn a_put_whose_caller_is_gone_has_a_lease() {
        let (_dir, cluster) = cluster(4, 2).await;
        {
            // The call is dropped as soon as the transaction is done, as if its connection had broken: what the
            // call would do next does not happen.
            let mut call = std::pin::pin!(handle(&cluster, begin("a", 100)));
            let recorded = || cluster.meta.snapshot().unwrap().totals().unwrap().puts == 1;
            // It may be through already, if this thread had to wait for a processor.
            let _ = futures::poll!(&mut call);
            while !recorded() {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        let puts = cluster.meta.snapshot().unwrap().puts().unwrap();
        until(|| cluster.leases().renew(puts[0], 0)).await;
        assert_eq!(cluster.leases().expired(u64::MAX), puts);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_stripe_is_granted_on_a_node_after_its_drain_was_ordered() {
        let (_dir, cluster) = cluster(5, 5).await;
        let home = handle(&cluster, begin("a", 16)).await.unwrap().stripes[0].homes[0].unwrap();
        // The puts begin while the order to drain is still being recorded.
        let (recording, begun) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
        let meta = cluster.meta.clone();
        let order = tokio::task::spawn_blocking(move || {
            meta.change_node(home, |record| {
                recording.0.send(()).unwrap();
                begun.1.recv().unwrap();
                record.draining = true;
            })
        });
        tokio::task::spawn_blocking(move || recording.1.recv().unwrap()).await.unwrap();
        let mut puts = Vec::new();
        for i in 0..8 {
            let worker = cluster.clone();
            puts.push(tokio::spawn(async move { handle(&worker, begin(&format!("o{i}"), 16)).await }));
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        cluster.members().set_draining(home, true);
        begun.0.send(()).unwrap();
        assert!(order.await.unwrap().unwrap());
        for put in puts {
            let ticket = put.await.unwrap().unwrap();
            assert!(!ticket.stripes[0].homes.contains(&Some(home)), "{:?}", ticket.stripes);
        }
    }

    #[tokio::test]
    async fn a_stripe_of_a_volume_has_the_name_of_that_stripe() {
        let (_dir, cluster) = cluster(6, 3).await;
        volume(&cluster).await;
        let id = cluster.meta.snapshot().unwrap().volumes().unwrap()[0].record.id;
        let of = |index| Some(StripeOfVolume { volume: id, index, epoch: 0 });
        for name in ["a".to_owned(), stripe_name(id, 2), stripe_name(id + 1, 1)] {
            let refused = handle(&cluster, BeginPut { volume: of(1), ..begin(&name, 16) }).await;
            assert!(matches!(refused, Err(CoordinatorError::Invalid { .. })), "{refused:?}");
        }
        let alone = handle(&cluster, begin(&stripe_name(id, 1), 16)).await;
        assert!(matches!(alone, Err(CoordinatorError::Invalid { .. })), "{alone:?}");
        handle(&cluster, BeginPut { volume: of(1), ..begin(&stripe_name(id, 1), 16) }).await.unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_written_is_refused_and_leaves_nothing() {
        let (_dir, cluster) = cluster(4, 4).await;
        let refused = |request: BeginPut, words: &'static str| {
            let cluster = cluster.clone();
            async move {
                let error = handle(&cluster, request).await.unwrap_err().to_string();
                assert!(error.contains(words), "{error}");
            }
        };
        refused(BeginPut { code: "xor:n=3,k=2".into(), ..begin("a", 100) }, "xor").await;
        refused(BeginPut { code: "rs:n=4,k=4".into(), ..begin("a", 100) }, "expected").await;
        refused(BeginPut { code: "rs:n=5,k=2".into(), ..begin("a", 100) }, "got 4").await;
        refused(BeginPut { cell_bytes: Some(0), ..begin("a", 100) }, "expected").await;
        refused(begin("", 100), "empty").await;
        assert_eq!(cluster.meta.snapshot().unwrap().totals().unwrap(), Default::default());
        let ticket = handle(&cluster, begin("a", 100)).await.unwrap();
        assert_eq!((ticket.stripes.len(), ticket.nodes.len()), (4, 4));
        for stripe in ticket.stripes {
            let homes: std::collections::BTreeSet<_> = stripe.homes.iter().flatten().collect();
            assert_eq!(homes.len(), stripe.homes.iter().flatten().count());
        }
    }
}
