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
