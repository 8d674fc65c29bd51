//! Rebuilding internal blocks that the NameNode reports missing, one group after the other in this process.

use std::collections::BTreeSet;

use kintsu_dag::BlockIndex;

use crate::blocks::GroupBlocks;
use crate::handover::{HandedOver, Now, hand_over, refresh};
use crate::parity::{Examined, examine, far, suspects};
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

/// What a repair did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Repaired {
    /// Blocks that the NameNode counts now.
    pub blocks: Vec<RepairedBlock>,
    /// Blocks that could not be repaired, with the reason.
    pub failed: Vec<String>,
}

/// A block that was lost.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RepairedBlock {
    /// Its file.
    pub path: String,
    /// The id of its group.
    pub group: i64,
    /// Its index.
    pub index: u8,
    /// Its length.
    pub bytes: u64,
    /// What became of it.
    pub handed_over: HandedOver,
    /// Indices of the blocks that were read for it.
    pub read: Vec<u8>,
    /// Whether further blocks of the group confirmed those that it was computed from, or it has the digest that was recorded.
    pub proved: bool,
    /// Indices that were left out because they cannot be read, or contradict the others.
    pub left_out: Vec<u8>,
}

/// Repairs the groups below `root`, those that bear the fewest further losses first. `progress` is told each block.
///
/// # Errors
/// `NotFound`, `Denied` for the root or without the right to list DataNodes; those of calls. What could not be repaired
/// is in the result.
pub async fn repair(
    namenode: &NameNode,
    root: &str,
    progress: &mut (dyn FnMut(&RepairedBlock) + Send),
) -> Result<Repaired, HdfsError> {
    namenode.check_transfer().await?;
    // Before anything is read: without the right to list DataNodes nothing can be handed over.
    namenode.live_datanodes().await?;
    let (mut repaired, mut damaged, mut walk) = (Repaired::default(), Vec::new(), Walk::from(namenode, root));
    while let Some(files) = walk.next().await? {
        for (path, file) in files {
            let Some(blocks) = file.blocks.as_ref().filter(|_| file.policy.is_some()) else { continue };
            match Group::of(&path, &file, blocks) {
                Ok(groups) => damaged.extend(groups.into_iter().filter(|group| !group.missing().is_empty())),
                Err(error) => repaired.failed.push(error.to_string()),
            }
        }
    }
    repaired.failed.append(&mut walk.skipped);
    damaged.sort_by_key(Group::spare);
    for group in damaged {
        match repair_group(namenode, &group, &mut repaired, progress).await {
            Ok(()) => {}
            Err(error) if error.no_namenode() || matches!(error, HdfsError::Denied { .. }) => {
                return Err(error);
            }
            Err(error) => repaired.failed.push(error.to_string()),
        }
    }
    Ok(repaired)
}

/// Rebuilds what a group lost, and hands it over.
///
/// # Errors
/// `Parity` for blocks that contradict each other, `Plan` for too few; those of calls. What was not handed over is in `repaired`.
pub(crate) async fn repair_group(
    namenode: &NameNode,
    group: &Group,
    repaired: &mut Repaired,
    progress: &mut (dyn FnMut(&RepairedBlock) + Send),
) -> Result<(), HdfsError> {
    let now = match refresh(namenode, group).await? {
        Now::Same(now) => *now,
        // Deleted or changed since it was listed: there is nothing to repair any more.
        Now::Changed(_) => return Ok(()),
    };
    let missing = now.missing();
    if missing.is_empty() {
        return Ok(());
    }
    let (examined, left_out) = rebuild(now.clone(), &missing).await?;
    for index in missing {
        let Some(file) = examined.rebuilt.get(&index) else { continue };
        match hand_over(namenode, &now, index, file).await {
            Ok(handed_over) => {
                let block = RepairedBlock {
                    path: now.path.clone(),
                    group: now.number(),
                    index: index.0,
                    bytes: now.block_bytes(index),
                    handed_over,
                    read: examined.read.iter().map(|index| index.0).collect(),
                    proved: !examined.surplus.is_empty() || now.digest(index).is_some(),
                    left_out: left_out.iter().map(|index| index.0).collect(),
                };
                progress(&block);
                repaired.blocks.push(block);
            }
            Err(error @ (HdfsError::NotHandedOver { .. } | HdfsError::Changed { .. })) => {
                repaired.failed.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The present blocks that cannot be read, or contradict the others.
///
/// # Errors
/// As [`rebuild`].
pub(crate) async fn disagreeing(group: Group) -> Result<BTreeSet<BlockIndex>, HdfsError> {
    rebuild(group, &[]).await.map(|(_, left_out)| left_out)
}

/// Rebuilds blocks from those that agree; the second value are blocks that were left out. Where local repair groups rebuild all,
/// only these are read: that is what such codes are for, and nothing confirms the result then.
///
/// # Errors
/// `Parity` if the blocks contradict each other and it cannot be known which is wrong; those of [`examine`].
pub(crate) async fn rebuild(
    group: Group,
    missing: &[BlockIndex],
) -> Result<(Examined, BTreeSet<BlockIndex>), HdfsError> {
    let blocks = GroupBlocks::of(group);
    let group = blocks.group();
    let mut without = BTreeSet::new();
    loop {
        let unread = without.union(&far(group, &without, missing)).copied().collect();
        match examine(&blocks, &unread, missing).await {
            Ok(examined) if examined.mismatches.is_empty() => return Ok((examined, without)),
            Ok(examined) => {
                let (source, places) = (blocks.clone(), examined.mismatches);
                let looking = tokio::task::spawn_blocking(move || suspects(&source, &places)).await;
                let found = looking.map_err(|e| HdfsError::io("looking for the wrong block", e.into()))??;
                let one = found.iter().next().copied().filter(|_| found.len() == 1 && without.is_empty());
                match one {
                    Some(culprit) => _ = without.insert(culprit),
                    None => {
                        let list: Vec<u8> = found.iter().map(|index| index.0).collect();
                        return Err(HdfsError::Parity(format!(
                            "{group}: its blocks contradict each other under valid checksums, and any of {list:?} may \
                             be the wrong one; nothing was handed over"
                        )));
                    }
                }
            }
            Err(HdfsError::Run(fault)) => {
                let unreadable = fault.block.filter(|block| without.insert(block.index));
                if unreadable.is_none() {
                    return Err(HdfsError::Run(fault));
                }
            }
            Err(error) => return Err(error),
        }
    }
}
