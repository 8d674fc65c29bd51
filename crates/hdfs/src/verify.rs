//! A scrub of live groups: every internal block against its checksums, and all against each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::BlockIndex;

use crate::blocks::GroupBlocks;
use crate::handover::{Now, refresh};
use crate::parity::{Examined, examine};
use crate::proto::names::FileStatus;
use crate::repair::named;
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

/// How often a group is read whose blocks are elsewhere each time.
const MOST_LOOKS: usize = 4;

/// What a scrub found.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Verified {
    /// Block groups that were read.
    pub groups: u64,
    /// Bytes of internal blocks that were read, and compared with their checksums.
    pub bytes: u64,
    /// Groups whose blocks do not agree, or cannot be read, or are lost.
    pub bad: Vec<BadGroup>,
    /// Groups whose blocks could not be compared with each other: no more of them than needed are there.
    pub unproved: Vec<String>,
    /// What could not be read at all, and why: nobody knows whether it is right.
    pub skipped: Vec<String>,
    /// What was deleted or changed while this ran.
    pub changed: Vec<String>,
}

impl Verified {
    fn add(&mut self, other: Self) {
        self.groups += other.groups;
        self.bytes += other.bytes;
        self.bad.extend(other.bad);
        self.unproved.extend(other.unproved);
        self.skipped.extend(other.skipped);
        self.changed.extend(other.changed);
    }
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
    /// All indices that are gone or cannot be read, if those are more than the code bears: bytes are lost.
    pub lost: Vec<u8>,
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
                            verify_group(namenode, group, &mut verified).await?;
                            progress(&path, verified.bytes);
                        }
                    }
                    Err(error @ HdfsError::NotFound(_)) => verified.changed.push(error.to_string()),
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

/// Scrubs a group. If blocks cannot be read or are lost, and the NameNode lists it otherwise by then, it is read where it is now:
/// HDFS moves blocks and deletes surplus ones at any time.
///
/// # Errors
/// `Run` for what is no block's fault; those of calls. What is wrong is in `verified`.
pub(crate) async fn verify_group(
    namenode: &NameNode,
    mut group: Group,
    verified: &mut Verified,
) -> Result<(), HdfsError> {
    for left in (0..MOST_LOOKS).rev() {
        let mut found = Verified::default();
        scrub_group(group.clone(), &mut found).await?;
        let absent = |bad: &BadGroup| !bad.unreadable.is_empty() || !bad.lost.is_empty();
        if left > 0 && found.bad.iter().any(absent) {
            match refresh(namenode, &group).await {
                Ok(Now::Same(now)) if places(&now) != places(&group) => {
                    group = *now;
                    continue;
                }
                Ok(Now::Same(_)) => {}
                Ok(Now::Changed(change)) => {
                    found = Verified { changed: vec![format!("{group}: {change}")], ..Verified::default() };
                }
                Err(error) if error.no_namenode() => return Err(error),
                Err(error) => found.skipped.push(named(&group, &error)),
            }
        }
        verified.add(found);
        break;
    }
    Ok(())
}

/// The DataNodes of each block.
fn places(group: &Group) -> BTreeSet<(BlockIndex, &str)> {
    let all =
        group.holders.iter().flat_map(|(index, holders)| holders.iter().map(move |holder| (index, holder)));
    all.map(|(index, holder)| (*index, holder.datanode.id.uuid.as_str())).collect()
}

/// Scrubs a group where its blocks are said to be.
///
/// # Errors
/// `Run` for what is no block's fault.
pub(crate) async fn scrub_group(group: Group, verified: &mut Verified) -> Result<(), HdfsError> {
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
    let here = |index: &BlockIndex| group.holders.contains_key(index) && !without.contains(index);
    let (read, mut lost): (Vec<_>, Vec<_>) = group.expected().partition(here);
    verified.bytes += read.into_iter().map(|index| group.block_bytes(index)).sum::<u64>();
    if group.policy.code.recoverable(&lost) {
        lost.clear();
    }
    if examined.surplus.is_empty() && lost.is_empty() {
        verified.unproved.push(group.to_string());
    }
    if !unreadable.is_empty() || !lost.is_empty() || !examined.mismatches.is_empty() {
        verified.bad.push(BadGroup {
            path: group.path.clone(),
            group: group.number(),
            unreadable,
            lost: lost.into_iter().map(|index| index.0).collect(),
            mismatches: examined.mismatches,
            suspects: examined.suspects.into_iter().map(|index| index.0).collect(),
        });
    }
    Ok(())
}

/// Compares the blocks with each other, and reads those through that were not read from the first byte to the last for that: all
/// of them where no more than needed are there. Each is compared with its checksums, and with its recorded digest.
async fn scrub(blocks: &Arc<GroupBlocks>, without: &BTreeSet<BlockIndex>) -> Result<Examined, HdfsError> {
    let examined = examine(blocks, without, &[]).await?;
    let group = blocks.group();
    let here = |index: &BlockIndex| group.holders.contains_key(index) && !without.contains(index);
    let unread = group.expected().filter(here).filter(|index| blocks.digest(*index).is_none());
    let unread: Vec<_> = unread.collect();
    if !unread.is_empty() {
        let blocks = blocks.clone();
        let reading = tokio::task::spawn_blocking(move || {
            unread.into_iter().try_for_each(|index| blocks.read_through(index))
        });
        reading.await.map_err(|e| HdfsError::io("reading a group", e.into()))??;
    }
    Ok(examined)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kintsu_code::Code;
    use kintsu_plan::{Layout, LayoutKind};
    use kintsu_runtime::InMemory;
    use prost::Message as _;

    use super::*;
    use crate::fake::{self, Datanode};
    use crate::group::tests::{datanode, held, listed};
    use crate::proto::names::{DatanodeInfo, FileInfo, Locations};
    use crate::{Codec, EcPolicy};

    const CELL: usize = 4096;

    /// Each block of the groups here has two cells.
    const BLOCK: usize = 2 * CELL;

    /// The id of the groups.
    const GROUP: u64 = -16i64 as u64;

    /// Data blocks of a pattern and this length, and their parity.
    fn coded(code: &dyn Code, len: usize) -> BTreeMap<BlockIndex, Vec<u8>> {
        let pattern = |i: usize| (0..len).map(|at| (at * (2 * i + 3) + i) as u8).collect::<Vec<u8>>();
        let data: BTreeMap<_, _> = (0..code.k()).map(|i| (BlockIndex(i as u8), pattern(i))).collect();
        let mut bytes = data.clone();
        let load = |index: BlockIndex, _| data.get(&index).map(Vec::as_slice);
        let mut memory = InMemory::new(code.encode()).unwrap();
        memory.step(len, load, |index, _, out| _ = bytes.insert(index, out.unwrap().to_vec())).unwrap();
        bytes
    }

    /// What is found in a group of this code, of which the NameNode lists no blocks `lost`, and those in `rotten` have a wrong
    /// checksum at their end. Also the bytes that were sent.
    async fn found(code: &str, lost: &[u8], rotten: &[u8]) -> (Verified, u64) {
        let code = Codec::of(&*kintsu_code::parse(code).unwrap()).unwrap().code;
        let blocks = coded(&*code, BLOCK);
        let id = |index: u8| GROUP + u64::from(index);
        let by_id = blocks.iter().map(|(index, bytes)| (id(index.0), bytes.clone())).collect();
        let datanode = Datanode::with(by_id, rotten.iter().map(|index| id(*index)).collect());
        let there = blocks.into_keys().filter(|index| !lost.contains(&index.0));
        let data_bytes = (code.k() * BLOCK) as u64;
        let group = Group {
            path: "/f".into(),
            file_id: 0,
            policy: EcPolicy { name: "P".into(), code, cell_bytes: CELL as u32 },
            pool: "BP".into(),
            id: GROUP,
            generation: 1001,
            offset: 0,
            layout: Layout {
                kind: LayoutKind::Striped,
                block_bytes: 1 << 20,
                cell_bytes: CELL as u32,
                w: 1,
                data_bytes,
            },
            holders: there.map(|index| (index, vec![datanode.holder()])).collect(),
            corrupt: false,
            stored: None,
        };
        let mut verified = Verified::default();
        scrub_group(group, &mut verified).await.unwrap();
        (verified, datanode.sent())
    }

    #[tokio::test]
    async fn all_blocks_are_read_once_where_nothing_is_wrong() {
        for (code, lost, left, unproved) in [
            ("rs:n=5,k=3", &[][..], 5, 0),
            ("rs:n=5,k=3", &[1], 4, 0),
            ("rs:n=5,k=3", &[0, 4], 3, 1),
            ("azure-lrc:n=16,k=12,r=6", &[12, 13, 14], 13, 0),
        ] {
            let (verified, sent) = found(code, lost, &[]).await;
            let bytes = (left * BLOCK) as u64;
            assert_eq!((verified.bytes, sent), (bytes, bytes), "{code} without {lost:?}");
            assert_eq!(
                (verified.bad.len(), verified.unproved.len()),
                (0, unproved),
                "{code} without {lost:?}"
            );
        }
    }

    #[tokio::test]
    async fn rot_is_found_also_in_blocks_with_which_nothing_is_compared() {
        // No more blocks than needed; and a local parity, which says nothing of the other local group.
        for (code, lost, rotten) in
            [("rs:n=5,k=3", &[0, 4][..], 3), ("azure-lrc:n=16,k=12,r=6", &[12, 13, 14], 0)]
        {
            let (verified, _) = found(code, lost, &[rotten]).await;
            let unreadable: Vec<u8> = verified.bad[0].unreadable.iter().map(|(index, _)| *index).collect();
            assert_eq!(unreadable, [rotten], "{code}");
            let mut all = [lost, &[rotten]].concat();
            all.sort();
            assert_eq!(verified.bad[0].lost, all, "{code}");
        }
        let (verified, _) = found("rs:n=5,k=3", &[0], &[3]).await;
        assert_eq!((verified.bad[0].unreadable.len(), verified.bad[0].lost.len()), (1, 0), "it bears both");
    }

    #[tokio::test]
    async fn a_group_with_more_losses_than_its_code_bears_is_bad() {
        let (verified, sent) = found("rs:n=5,k=3", &[0, 1, 4], &[]).await;
        assert_eq!((&verified.bad[0].lost[..], verified.bad[0].unreadable.len()), (&[0, 1, 4][..], 0));
        assert_eq!((verified.unproved.len(), sent), (0, 2 * BLOCK as u64), "what is left is read through");
    }

    #[tokio::test]
    async fn a_block_that_is_elsewhere_by_now_is_read_there() {
        let group = held([]);
        let blocks = coded(&*group.policy.code, 1 << 20).into_iter();
        let there = Datanode::with(blocks.map(|(i, bytes)| (group.block(i).id, bytes)).collect(), vec![]);
        let there = there.info();
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let with = |third: &DatanodeInfo| {
            let of = |index| (index, if index == 3 { third.clone() } else { there.clone() });
            (0..5).map(of).collect::<Vec<_>>()
        };
        let gone = datanode(nobody);
        // What the NameNode lists after the first look, and whether the group is bad then.
        for (now, bad) in [(with(&there), false), (with(&gone), true)] {
            let (status, located) = listed(now);
            let namenode = fake::namenode(&[
                ("getFileInfo", FileInfo { status: Some(status) }.encode_to_vec()),
                ("getBlockLocations", Locations { blocks: Some(located) }.encode_to_vec()),
            ]);
            let mut verified = Verified::default();
            verify_group(&namenode, held(with(&gone)), &mut verified).await.unwrap();
            let unreadable: Vec<u8> =
                verified.bad.iter().flat_map(|bad| &bad.unreadable).map(|(i, _)| *i).collect();
            assert_eq!(unreadable, if bad { vec![3] } else { vec![] });
            assert_eq!((verified.groups, verified.bytes), (1, if bad { 4 << 20 } else { 5 << 20 }));
        }
        // A file that is gone by then is not bad.
        let namenode = fake::namenode(&[("getFileInfo", FileInfo { status: None }.encode_to_vec())]);
        let mut verified = Verified::default();
        verify_group(&namenode, held(with(&gone)), &mut verified).await.unwrap();
        assert_eq!(verified.bad.len(), 0);
        assert_eq!(verified.changed, ["/f, group -16: its file was deleted"]);
        assert_eq!(verified.skipped, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_wrong_block_is_found_beside_one_that_cannot_be_read() {
        let group = held([]);
        let mut blocks = coded(&*group.policy.code, 1 << 20);
        blocks.get_mut(&BlockIndex(1)).unwrap()[77] ^= 1;
        let id = |index: u8| group.block(BlockIndex(index)).id;
        let by_id = blocks.into_iter().map(|(i, bytes)| (id(i.0), bytes)).collect();
        let there = Datanode::with(by_id, vec![]).info();
        let nobody = datanode(std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
        let of = |index| (index, if index == 4 { nobody.clone() } else { there.clone() });
        let mut verified = Verified::default();
        scrub_group(held((0..5).map(of)), &mut verified).await.unwrap();
        let bad = &verified.bad[0];
        assert_eq!((bad.unreadable.len(), &bad.mismatches[..]), (1, &[77][..]));
        assert_eq!(bad.suspects, [0, 1, 2, 3], "four blocks of three do not say which");
    }
}
