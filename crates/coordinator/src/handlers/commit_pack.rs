//! All blocks of a pack are durable: its members become visible in one transaction, each if it may. Repeating the call is
//! harmless. As [`commit_put`](super::commit_put).

use std::sync::Arc;

use kintsu_wire::message::{CommitPack, PackReply};

use super::change;
use super::commit_put::refused;
use crate::cluster::Cluster;
use crate::driver::{self, Committed, With};
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitPack) -> Result<PackReply> {
    let CommitPack { put, stripes, members } = request;
    for ending in members.iter().filter_map(|member| member.ending.as_ref()) {
        change::check(&ending.change)?;
    }
    let code = change::code_of_nothing()?;
    let with = With { checksum: None, ending: None, members: Some(members), code };
    let committing = driver::commit(cluster.clone(), put, stripes.into(), with);
    Ok(match cluster.whole(committing).await? {
        Committed::Pack(members) => PackReply::Done(members),
        Committed::Refused(refusals) => PackReply::Refused(refused(cluster, refusals)),
        Committed::Visible(_) | Committed::Unmet(_) => {
            return Err(CoordinatorError::Internal("a pack ended as the put of one object".into()));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put, written};
    use crate::handlers::{begin_pack, lookup};
    use kintsu_wire::message::{BeginPack, Encoding, Lookup, MemberEnd, MemberReply, NewMember};

    fn begin(members: &[(&str, u64)]) -> BeginPack {
        let member = |&(name, size): &(&str, u64)| NewMember {
            name: name.into(),
            size,
            replace: false,
            attributes: Default::default(),
            moves: None,
        };
        let members = members.iter().map(member).collect();
        BeginPack { code: "rs:n=4,k=2".into(), block_bytes: Some(16), cell_bytes: Some(8), members }
    }

    #[tokio::test]
    async fn objects_that_share_a_stripe_are_found_each_at_its_place() {
        let (_dir, cluster) = cluster(4, 2).await;
        put(&cluster, "taken", 40).await;
        let ticket =
            begin_pack::handle(&cluster, begin(&[("a", 10), ("taken", 5), ("b", 12)])).await.unwrap();
        let label = &ticket.label;
        let said: Vec<_> =
            label.members.iter().map(|m| (m.id - ticket.put, m.name.as_str(), m.at, m.size)).collect();
        assert_eq!(said, [(1, "a", 0, 10), (2, "taken", 10, 5), (3, "b", 15, 12)]);
        assert_eq!((label.id, label.size), (ticket.put, Some(27)));
        let stripes = written(&ticket, Encoding::Online, 2);
        let commit = CommitPack { put: ticket.put, stripes, members: vec![MemberEnd::default(); 3] };
        let PackReply::Done(replies) = handle(&cluster, commit).await.unwrap() else { panic!("refused") };
        let seen: Vec<_> = replies.iter().map(|reply| matches!(reply, MemberReply::Visible(_))).collect();
        assert_eq!(seen, [true, false, true], "{replies:?}");
        assert!(cluster.leases().expired(u64::MAX).is_empty());
        let view = |name: &str| {
            lookup::handle(&cluster, Lookup { name: name.into(), first: 0, limit: 9, at: Some(3), id: None })
        };
        for (name, before, size) in [("a", 0, 10), ("b", 15, 12)] {
            let (view, cluster_id) = (view(name).await.unwrap(), cluster.id);
            assert_eq!((view.object.size, view.first, view.cluster), (size, 0, cluster_id));
            assert_eq!((view.stripes[0].before, view.stripes[0].offset), (before, 0), "{name}");
        }
        assert_eq!(view("taken").await.unwrap().object.size, 40);
    }

    #[tokio::test]
    async fn what_cannot_share_a_stripe_is_refused_before_anything_is_recorded() {
        let (_dir, cluster) = cluster(4, 2).await;
        let many: Vec<_> = (0..257).map(|_| ("a", 1)).collect();
        for bad in
            [&[][..], &many[..], &[("a", 0)], &[("a\n", 1)], &[(".volume/1/1", 1)], &[("a", 20), ("b", 13)]]
        {
            let refused = begin_pack::handle(&cluster, begin(bad)).await;
            assert!(matches!(refused, Err(CoordinatorError::Invalid { .. })), "{bad:?}: {refused:?}");
        }
        assert_eq!(cluster.meta.snapshot().unwrap().totals().unwrap().puts, 0);
    }
}
