//! A client wants to write an object: everything that can be refused is refused here, before
//! anything is written or recorded. Then the first stripes get their ids and homes, durably, and the put a lease. A put
//! that is recorded always gets its lease, also when the caller is gone by then.

use std::sync::Arc;

use kintsu_code::USER;
use kintsu_plan::{Division, Layout, LayoutKind, place};
use kintsu_wire::message::{BeginPut, CodeLabel, Encoding, ObjectLabel, PutTicket, StripeGrant};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, NewPut, PendingStripe};

/// Longest name in bytes.
const NAME_BYTES: usize = 1024;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BeginPut) -> Result<PutTicket> {
    check_name(&request.name)?;
    let (code, definition) = match request.code.starts_with(USER) {
        true => cluster.registered(request.code).await.map(|(code, definition)| (code, Some(definition)))?,
        false => {
            let name = request.code;
            // Making a code proves its distance, which may take seconds.
            let code = cluster.meta.off(move |_| Ok(kintsu_code::parse(&name)?)).await?;
            (code, None)
        }
    };
    let kind = match request.encoding {
        Encoding::Online => LayoutKind::Striped,
        Encoding::Offline => LayoutKind::Contiguous,
    };
    let (block, cell) = Layout::sizes(code.w(), request.block_bytes, request.cell_bytes);
    let division = Division::new(request.size, code.k(), code.w(), kind, block, cell)?;
    let label = ObjectLabel {
        id: 0,
        name: request.name.clone(),
        size: request.size,
        created: cluster.unix_seconds(),
        encoding: request.encoding,
        code: CodeLabel::of(code.as_ref(), definition.clone()),
    };
    let new = NewPut {
        name: request.name,
        size: request.size,
        code: CodeRecord::of(code.as_ref()),
        encoding: request.encoding,
        replace: request.replace,
        division,
        batch: cluster.config.grant.max(1),
    };
    let (topology, _) = cluster.nodes();
    let home = move |id: kintsu_dag::StripeId, layout: &Layout| {
        Ok(place(code.as_ref(), layout, &topology, id.0)?.homes)
    };
    let worker = cluster.clone();
    let begin = async move {
        let begun = worker.meta.off(move |meta| meta.begin_put(new, home)).await?;
        worker.leases().grant(begun.0, worker.now_ms());
        Ok(begun)
    };
    let (put, granted) = cluster.whole(begin).await?;
    Ok(PutTicket {
        put,
        lease_ms: cluster.config.lease.as_millis() as u64,
        stripes: granted.stripes.into_iter().map(grant).collect(),
        definition,
        nodes: cluster.members().addresses(),
        cluster: Some(cluster.id),
        label: Some(ObjectLabel { id: put, ..label }),
    })
}

/// A stripe of a put, for its client.
pub fn grant(stripe: PendingStripe) -> StripeGrant {
    let PendingStripe { id, generation, layout, homes, .. } = stripe;
    StripeGrant { id, generation, layout, homes }
}

/// Names are text without control characters, not empty and not long.
pub fn check_name(name: &str) -> Result<()> {
    let got = if name.is_empty() {
        "an empty one".to_owned()
    } else if name.len() > NAME_BYTES {
        format!("{} bytes", name.len())
    } else if let Some(c) = name.chars().find(|c| c.is_control()) {
        format!("one with {c:?}")
    } else {
        return Ok(());
    };
    let expected = format!("1 to {NAME_BYTES} bytes without control characters");
    Err(CoordinatorError::Invalid { what: "object name", expected, got })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, until};

    #[test]
    fn names_are_text() {
        for good in ["a", "a/b c", "日本", &"x".repeat(NAME_BYTES)] {
            check_name(good).unwrap();
        }
        for bad in ["", "a\n", "\u{7f}", &"x".repeat(NAME_BYTES + 1)] {
            assert!(matches!(check_name(bad), Err(CoordinatorError::Invalid { .. })), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn a_put_whose_caller_is_gone_has_a_lease() {
        let (_dir, cluster) = cluster(4, 2).await;
        {
            // As soon as the transaction is done the call is dropped, as if its connection had broken: what it would
            // do next it does not do.
            let mut call = std::pin::pin!(handle(&cluster, begin("a", 100)));
            let recorded = || cluster.meta.snapshot().unwrap().totals().unwrap().puts == 1;
            while !recorded() {
                assert!(futures::poll!(&mut call).is_pending());
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        let puts = cluster.meta.snapshot().unwrap().puts().unwrap();
        until(|| cluster.leases().renew(puts[0], 0)).await;
        assert_eq!(cluster.leases().expired(u64::MAX), puts);
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
