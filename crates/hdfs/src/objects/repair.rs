//! Reading, comparing and repairing objects: what is done with block groups, on stripes.

use std::collections::BTreeSet;
use std::ops::Range;

use kintsu_dag::BlockIndex;
use kintsu_wire::message::FaultKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::list::below;
use super::object::{Found, Object, checked, find};
use super::spread::{Moved, misplaced, spread};
use crate::blocks::GroupBlocks;
use crate::get::{Got, get_of};
use crate::handover::{COUNTED_WITHIN, Now, POLL, refresh};
use crate::proto::names::{DatanodeInfo, LocatedBlock};
use crate::repair::{LeftOut, Repaired, RepairedBlock, named, rebuild, repair_group, resters};
use crate::verify::{Verified, verify_group};
use crate::{Agents, Group, HdfsError, NameNode};

/// The length of an object.
///
/// # Errors
/// `NotFound`, `Unsupported` for what is no object; those of calls.
pub async fn object_bytes(namenode: &NameNode, path: &str) -> Result<u64, HdfsError> {
    let path = checked(path)?;
    Ok(Object::at(namenode, &path).await?.known.record.bytes)
}

/// Sends the bytes `range` of an object to `out`, in order; what cannot be read is decoded, by agents as for [`get()`](crate::get()). Memory: a few MiB for each data block of
/// a stripe. If the receiver goes, this ends early without an error.
///
/// # Errors
/// `Parity` when too many blocks of a stripe cannot be read, and when a block turns out to be wrong of which bytes were delivered;
/// as [`object_bytes`] otherwise.
pub async fn get_object(
    namenode: &NameNode,
    path: &str,
    range: Range<u64>,
    agents: Option<&Agents>,
    out: &mpsc::Sender<Vec<u8>>,
) -> Result<Got, HdfsError> {
    namenode.check_transfer().await?;
    let object = Object::at(namenode, &checked(path)?).await?;
    get_of(object.groups, range, agents, out).await
}

/// The objects at or below a path.
async fn objects(
    namenode: &NameNode,
    root: &str,
    skipped: &mut Vec<String>,
) -> Result<Vec<Object>, HdfsError> {
    let short = root.trim_end_matches('/');
    if !short.is_empty() {
        match find(namenode, &checked(root)?).await? {
            Found::File(..) | Found::Folder(Some(_)) => return Ok(vec![Object::at(namenode, short).await?]),
            Found::Folder(None) => {}
        }
    }
    let (folders, more) = below(namenode, root).await?;
    skipped.extend(more);
    let (mut objects, root) = (Vec::new(), short);
    for folder in folders {
        match Object::in_folder(namenode, &folder).await {
            Ok(object) => objects.push(object),
            Err(error) if error.no_namenode() => return Err(error),
            Err(error) => skipped.push(error.to_string()),
        }
    }
    let below =
        |path: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    objects.retain(|object| below(&object.path));
    Ok(objects)
}

/// Compares all blocks of the objects below `root` with their checksums, with their recorded digests and with each other.
/// `progress` is told each stripe that was read, and the bytes so far.
///
/// # Errors
/// `NotFound`, `Denied` for the root; those of calls. What is wrong with a stripe is in the result.
pub async fn verify_objects(
    namenode: &NameNode,
    root: &str,
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<Verified, HdfsError> {
    namenode.check_transfer().await?;
    let mut verified = Verified::default();
    for object in objects(namenode, root, &mut verified.skipped).await? {
        for group in object.groups {
            verify_group(namenode, group, &mut verified).await?;
            progress(&object.path, verified.bytes);
        }
    }
    Ok(verified)
}

/// What a repair of objects did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct RepairedObjects {
    /// Blocks that the NameNode counts now, and what could not be repaired.
    #[serde(flatten)]
    pub repaired: Repaired,
    /// Blocks that were moved because two of a stripe were on one DataNode, or too many in one rack.
    pub moved: Vec<Moved>,
}

/// Rebuilds the blocks of objects below `root` that the NameNode reports missing or bad, and hands them over to DataNodes under their old
/// names. Blocks of a stripe that are on one DataNode are moved to others. What rests on DataNodes
/// in maintenance, or may rest there, is only rebuilt `despite_maintenance`. With `deep` all blocks are read first, and the NameNode is told of those that are wrong, as readers tell it.
/// `progress` is told each block.
///
/// # Errors
/// `NotFound`, `Denied` for the root or without the right to list DataNodes; those of calls. What could not be repaired is in the
/// result.
pub async fn repair_objects(
    namenode: &NameNode,
    root: &str,
    deep: bool,
    despite_maintenance: bool,
    progress: &mut (dyn FnMut(&RepairedBlock) + Send),
) -> Result<RepairedObjects, HdfsError> {
    namenode.check_transfer().await?;
    let live = namenode.live_datanodes().await?;
    let mut resters = resters(namenode, despite_maintenance).await?;
    let mut repaired = Repaired::default();
    let (mut damaged, mut moved) = (Vec::new(), Vec::new());
    for object in objects(namenode, root, &mut repaired.failed).await? {
        damaged.extend(object.groups);
    }
    damaged.retain(|group| deep || !group.missing().is_empty() || misplaced(group, &live).is_some());
    damaged.sort_by_key(Group::spare);
    for group in damaged {
        let done = match deep {
            true => report_wrong(namenode, &group, &mut repaired.failed).await,
            false => Ok(()),
        };
        let done = match done {
            Ok(()) => repair_group(namenode, &group, &mut resters, &mut repaired, progress).await,
            error => error,
        };
        let done = match (done, refresh(namenode, &group).await?) {
            (Ok(()), Now::Same(now)) => spread(namenode, &now).await.map(|more| moved.extend(more)),
            (done, _) => done,
        };
        match done {
            Ok(()) => {}
            Err(error) if error.no_namenode() || matches!(error, HdfsError::Denied { .. }) => {
                return Err(error);
            }
            Err(error) => repaired.failed.push(named(&group, &error)),
        }
    }
    Ok(RepairedObjects { repaired, moved })
}

/// Reads a whole stripe. The NameNode is told of blocks that are wrong, once they could be rebuilt as they were recorded. Those that cannot be read may be
/// right; they go to `failed`.
async fn report_wrong(namenode: &NameNode, group: &Group, failed: &mut Vec<String>) -> Result<(), HdfsError> {
    // What permits reading it may have expired since it was listed.
    let Now::Same(group) = refresh(namenode, group).await? else { return Ok(()) };
    let group = &*group;
    let mut wrong = BTreeSet::new();
    for (index, fault) in bad_blocks(group).await? {
        match fault.kind {
            FaultKind::Corrupt => _ = wrong.insert(index),
            _ => failed.push(format!("{group}, block {}: it could not be read: {}", index.0, fault.detail)),
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    let mut without = group.clone();
    without.holders.retain(|index, _| !wrong.contains(index));
    let lost: Vec<_> = wrong.iter().copied().collect();
    let (examined, _) = rebuild(without, &lost).await?;
    for index in wrong {
        let file = examined.rebuilt.get(&index);
        crate::handover::check_digest(group, index, file).await?;
        let holders = group.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
        let locations = holders.iter().map(|holder| DatanodeInfo::clone(&holder.datanode)).collect();
        let bad = LocatedBlock { block: group.block(index), locations, ..LocatedBlock::default() };
        namenode.report_bad(bad).await?;
        noted(namenode, group, index).await?;
    }
    Ok(())
}

/// Waits until the NameNode no longer counts a block that was reported.
async fn noted(namenode: &NameNode, group: &Group, index: BlockIndex) -> Result<(), HdfsError> {
    let deadline = Instant::now() + COUNTED_WITHIN;
    while Instant::now() < deadline {
        match refresh(namenode, group).await? {
            Now::Same(now) if now.holders.contains_key(&index) => sleep(POLL).await,
            Now::Same(_) | Now::Changed(_) => return Ok(()),
        }
    }
    Err(HdfsError::NotHandedOver {
        what: format!("{group}, block {}", index.0),
        message: "the NameNode still counts a block that was reported bad".into(),
    })
}

/// The blocks of a stripe that cannot be read, or have wrong bytes (`Corrupt`): by their checksums, or by their recorded digests.
pub(crate) async fn bad_blocks(group: &Group) -> Result<LeftOut, HdfsError> {
    let blocks = GroupBlocks::of(group.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let group = blocks.group();
        let here = group.expected().filter(|index| group.holders.contains_key(index));
        here.filter_map(|index| Some((index, blocks.read_through(index).err()?))).collect()
    });
    reading.await.map_err(|e| HdfsError::io("reading a stripe", e.into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message as _;

    use super::*;
    use crate::group::tests::datanode;
    use crate::objects::object::tests::stripe;
    use crate::proto::names::{AskLocations, FileInfo, FileStatus, LocatedBlocks, Locations};
    use crate::{Stored, fake, transfer};

    #[tokio::test]
    async fn what_a_deep_repair_cannot_read_is_a_failure() {
        let busy = datanode(transfer::tests::datanode(|_| Err("java.io.IOException: busy".to_owned())));
        let mut group = stripe([101, 103, 105, 107, 109].map(Some));
        let stored = Stored { stripe: 0, ..(**group.stored.as_ref().unwrap()).clone() };
        let blocks = stored.blocks.clone();
        group.stored = Some(Arc::new(stored));
        let namenode = fake::namenode_that_reads(move |method, arguments, _| match method {
            "getFileInfo" => {
                let status = FileStatus { kind: 2, file_id: Some(0), ..FileStatus::default() };
                Some(FileInfo { status: Some(status) }.encode_to_vec())
            }
            "getBlockLocations" => {
                let path = AskLocations::decode(arguments).unwrap().path;
                let index: usize = path.rsplit('-').next().unwrap().parse().unwrap();
                let block = blocks[index].clone().unwrap();
                let located =
                    LocatedBlock { block, locations: vec![busy.clone()], ..LocatedBlock::default() };
                let located = LocatedBlocks { blocks: vec![located], ..LocatedBlocks::default() };
                Some(Locations { blocks: Some(located) }.encode_to_vec())
            }
            _ => None,
        });
        let mut failed = Vec::new();
        report_wrong(&namenode, &group, &mut failed).await.unwrap();
        assert_eq!(failed.len(), 5, "{failed:?}");
        assert!(failed[3].starts_with("/x, stripe 0, block 3: it could not be read"), "{failed:?}");
    }
}
