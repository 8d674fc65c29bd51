//! A scrub of live groups: every internal block against its checksums, and all against each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::BlockIndex;

use crate::blocks::GroupBlocks;
use crate::parity::{Examined, examine, suspects};
use crate::proto::names::FileStatus;
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

/// What a scrub found.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Verified {
    /// Block groups that were read.
    pub groups: u64,
    /// Bytes of internal blocks that were read and compared.
    pub bytes: u64,
    /// Groups whose blocks do not agree, and blocks that cannot be read.
    pub bad: Vec<BadGroup>,
    /// Groups in which nothing could be compared: no more blocks than needed are there.
    pub unproved: Vec<String>,
    /// What could not be read at all, and why.
    pub skipped: Vec<String>,
}

/// A group with something wrong.
#[derive(Debug, Clone, serde::Serialize)]
pub struct BadGroup {
    /// Its file.
    pub path: String,
    /// Its id in HDFS.
    pub group: i64,
    /// Indices that cannot be read, with the reason: a wrong checksum, a dead DataNode.
    pub unreadable: Vec<(u8, String)>,
    /// Offsets in the internal blocks at which they contradict each other (at most sixteen).
    pub mismatches: Vec<u64>,
    /// The indices any one of which explains the contradiction. One: its bytes are wrong under valid checksums.
    pub suspects: Vec<u8>,
}

/// Scrubs the groups below `root`. `progress` is told each group that was read, and the bytes so far.
///
/// # Errors
/// `NotFound`, `Denied` for the root; those of calls. What is wrong with a group is in the result.
pub async fn verify(
    namenode: &NameNode,
    root: &str,
    progress: &mut (dyn FnMut(&str, u64) + Send),
) -> Result<Verified, HdfsError> {
    namenode.check_transfer().await?;
    let (mut verified, mut walk) = (Verified::default(), Walk::from(namenode, root));
    while let Some(files) = walk.next().await? {
        for (path, file) in files {
            if file.policy.is_some() && file.bytes > 0 {
                match groups_with_tokens(namenode, &path, &file).await {
                    Ok(groups) => {
                        for group in groups {
                            verify_group(group, &mut verified).await?;
                            progress(&path, verified.bytes);
                        }
                    }
                    Err(error) => verified.skipped.push(error.to_string()),
                }
            }
        }
    }
    verified.skipped.append(&mut walk.skipped);
    Ok(verified)
}

/// The groups of a file with tokens to read them, which listings lack.
pub(crate) async fn groups_with_tokens(
    namenode: &NameNode,
    path: &str,
    file: &FileStatus,
) -> Result<Vec<Group>, HdfsError> {
    let located = namenode.locations(path).await?;
    Group::of(path, file, &located)
}

/// Scrubs a group.
///
/// # Errors
/// `Run` for what is no block's fault. What is wrong is in `verified`.
pub(crate) async fn verify_group(group: Group, verified: &mut Verified) -> Result<(), HdfsError> {
    let blocks = GroupBlocks::of(group);
    let group = blocks.group();
    let (mut unreadable, mut without) = (Vec::new(), BTreeSet::new());
    verified.groups += 1;
    let examined = loop {
        match scrub(&blocks, &without).await {
            Ok(examined) => break examined,
            Err(HdfsError::Run(fault)) => {
                let Some(block) = fault.block.filter(|block| without.insert(block.index)) else {
                    return Err(HdfsError::Run(fault));
                };
                unreadable.push((block.index.0, fault.detail.clone()));
            }
            Err(HdfsError::Plan(error)) => {
                verified.skipped.push(format!("{group}: {error}"));
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    };
    let read = group.expected().filter(|index| group.holders.contains_key(index) && !without.contains(index));
    verified.bytes += read.map(|index| group.block_bytes(index)).sum::<u64>();
    if examined.surplus.is_empty() {
        verified.unproved.push(group.to_string());
    }
    let suspects = match examined.mismatches.is_empty() {
        true => BTreeSet::new(),
        false => {
            let (blocks, places) = (blocks.clone(), examined.mismatches.clone());
            let looking = tokio::task::spawn_blocking(move || suspects(&blocks, &places)).await;
            looking.map_err(|e| HdfsError::io("looking for the wrong block", e.into()))??
        }
    };
    if !unreadable.is_empty() || !examined.mismatches.is_empty() {
        verified.bad.push(BadGroup {
            path: group.path.clone(),
            group: group.number(),
            unreadable,
            mismatches: examined.mismatches,
            suspects: suspects.into_iter().map(|index| index.0).collect(),
        });
    }
    Ok(())
}

/// Compares the blocks with each other, and those with their recorded digests that were not read in order for that.
async fn scrub(blocks: &Arc<GroupBlocks>, without: &BTreeSet<BlockIndex>) -> Result<Examined, HdfsError> {
    let examined = examine(blocks, without, &[]).await?;
    let group = blocks.group();
    let unknown = |index: &BlockIndex| group.digest(*index).is_some() && blocks.digest(*index).is_none();
    let here = |index: &BlockIndex| group.holders.contains_key(index) && !without.contains(index);
    let unread: Vec<_> = group.expected().filter(here).filter(unknown).collect();
    if !unread.is_empty() {
        let blocks = blocks.clone();
        let reading = tokio::task::spawn_blocking(move || {
            unread.into_iter().try_for_each(|index| blocks.read_through(index))
        });
        reading.await.map_err(|e| HdfsError::io("reading a group", e.into()))??;
    }
    Ok(examined)
}
