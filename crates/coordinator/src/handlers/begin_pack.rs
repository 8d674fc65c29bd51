//! A client wants to write small objects that share a stripe, or to move objects into one. As [`begin_put`], with a name for
//! each of them.

use std::collections::HashSet;
use std::sync::Arc;

use kintsu_wire::message::{
    Attributes, BeginPack, BeginPut, Encoding, MOST_MEMBERS, Moving, NewMember, PutTicket,
};

use super::begin_put::{begun, checked_attributes, checked_name};
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::volumes::RESERVED;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BeginPack) -> Result<PutTicket> {
    let BeginPack { code, block_bytes, cell_bytes, members } = request;
    let size = checked(&members)?;
    let members = match members.iter().any(|member| member.moves.is_some()) {
        true => {
            let code = code.clone();
            cluster.meta.off(move |meta| meta.snapshot()?.moving(members, &code)).await?
        }
        false => members,
    };
    // Members that may not replace are judged one by one at the end.
    let put = BeginPut {
        name: String::new(),
        size: Some(size),
        code,
        encoding: Encoding::Online,
        block_bytes,
        cell_bytes,
        replace: true,
        volume: None,
        attributes: Attributes::default(),
    };
    begun(cluster, put, members).await
}

/// Checks the members of a pack; returns the bytes of all.
fn checked(members: &[NewMember]) -> Result<u64> {
    let invalid = |what, expected: String, got: String| CoordinatorError::Invalid { what, expected, got };
    if !(1..=MOST_MEMBERS).contains(&members.len()) {
        let expected = format!("1 to {MOST_MEMBERS} objects");
        return Err(invalid("pack", expected, members.len().to_string()));
    }
    let mut moved = HashSet::new();
    for member in members {
        if member.size == 0 {
            return Err(invalid("size of a packed object", "at least 1 byte".into(), "0".into()));
        }
        if let Some(Moving { id, .. }) = member.moves {
            if !moved.insert(id) {
                return Err(invalid("pack", "each object once".into(), format!("{id} twice")));
            }
            // It has its name and attributes.
            continue;
        }
        if member.name.starts_with(RESERVED) {
            let expected = "an object; stripes of volumes share nothing with others".into();
            return Err(invalid("object name", expected, member.name.clone()));
        }
        checked_name(&member.name)?;
        checked_attributes(&member.attributes)?;
    }
    let size = members.iter().try_fold(0u64, |sum, member| sum.checked_add(member.size));
    size.ok_or_else(|| invalid("size of a pack", "less than 2^64 bytes".into(), "more".into()))
}
