//! Bringing a rebuilt internal block into HDFS by the safe way.
//!
//! Before each try the NameNode is asked again. The block is written only if its file and group are as they were, the
//! NameNode reports the index missing and is not in safe mode; only to a live DataNode in service without any index of
//! the group, by what the NameNode lists and by what the DataNode says itself; and it counts only when the NameNode lists it.
//! Otherwise another DataNode is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use tokio::time::{Instant, sleep};

use crate::digest::Running;
use crate::proto::names::{BlockKey, DatanodeInfo, ExtendedBlock, Token};
use crate::status::{Heard, SILENT_MS, name};
use crate::token::{READ, token, write_token};
use crate::transfer::{BlockWriter, Looked, look_for, unit_of};
use crate::{Group, HdfsError, NameNode, objects, transfer_address};

/// How long the NameNode may take to list a block. DataNodes report a new block with the next heartbeat or earlier.
pub(crate) const COUNTED_WITHIN: Duration = Duration::from_secs(15);

/// Pause between two questions to the NameNode.
pub(crate) const POLL: Duration = Duration::from_millis(200);

/// DataNodes that are tried for one block.
const MOST_TRIES: usize = 4;

/// Bytes of a rebuilt block that are read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// What became of a rebuilt block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub enum HandedOver {
    /// The NameNode lists it on this DataNode.
    To(String),
    /// The NameNode lists the index on another DataNode by now: somebody else was first, or the lost one came back.
    NotNeeded(String),
}

/// Where a group is now.
pub(crate) enum Now {
    /// As before, perhaps with other holders.
    Same(Box<Group>),
    /// Its file is gone, or is another one: why.
    Changed(String),
}

/// Asks for the present state of a group, and for nothing else of its file.
///
/// # Errors
/// Those of calls.
pub(crate) async fn refresh(namenode: &NameNode, group: &Group) -> Result<Now, HdfsError> {
    if let Some(stored) = &group.stored {
        return objects::refresh(namenode, &group.path, stored).await;
    }
    let path = group.inode_path();
    let gone = || Ok(Now::Changed("its file was deleted".into()));
    let status = match namenode.file(&path).await {
        Ok(Some(status)) => status,
        Ok(None) | Err(HdfsError::NotFound(_)) => return gone(),
        Err(error) => return Err(error),
    };
    // The inode of a file that was deleted, and that a snapshot has, leads to what has its old name by now.
    if group.file_id != 0 && status.file_id != Some(group.file_id) {
        return gone();
    }
    // Only this group: a file may have thousands.
    let range = group.offset..group.offset.saturating_add(group.layout.data_bytes.max(1));
    let located = match namenode.locations_of(&path, range).await {
        Ok(located) => located,
        Err(HdfsError::NotFound(_)) => return gone(),
        Err(error) => return Err(error),
    };
    let groups = Group::of(&group.path, &status, &located)?;
    let Some(now) = groups.into_iter().find(|now| now.id == group.id) else {
        return Ok(Now::Changed("its file no longer has this group, or is writing it".into()));
    };
    let told = |g: &Group| format!("generation {} and {} bytes", g.generation, g.layout.data_bytes);
    if (now.generation, now.layout, &now.pool) != (group.generation, group.layout, &group.pool) {
        return Ok(Now::Changed(format!("it had {}, now {}", told(group), told(&now))));
    }
    Ok(Now::Same(Box::new(now)))
}

/// Brings the block into HDFS; its bytes are in `file`. It gets checksums over `unit` bytes each, as the blocks have that it was rebuilt from;
/// if that is not known, a DataNode is asked.
///
/// # Errors
/// `Changed` when the group is not the same any more; `NotHandedOver` when no DataNode took it, or in safe mode;
/// `Denied` for users who may not list DataNodes; those of calls.
pub(crate) async fn hand_over(
    namenode: &NameNode,
    group: &Group,
    index: BlockIndex,
    file: &std::fs::File,
    unit: Option<usize>,
) -> Result<HandedOver, HdfsError> {
    let what = format!("{group}, internal block {}", index.0);
    if !group.named(index) {
        let message = "the file that had it is gone, or is not whole; nothing was written".to_owned();
        return Err(HdfsError::NotHandedOver { what, message });
    }
    check_digest(group, index, Some(file)).await?;
    let (mut tried, mut failures) = (BTreeSet::new(), Vec::new());
    while failures.len() < MOST_TRIES {
        if namenode.safe_mode().await? {
            let message = "the NameNode is in safe mode; nothing was written".to_owned();
            return Err(HdfsError::NotHandedOver { what, message });
        }
        let now = match refresh(namenode, group).await? {
            Now::Same(now) => now,
            Now::Changed(change) => return Err(HdfsError::Changed { what, change }),
        };
        if let Some(holder) = now.holders.get(&index).and_then(|holders| holders.first()) {
            return Ok(HandedOver::NotNeeded(name(&holder.datanode)));
        }
        let live = namenode.live_datanodes().await?;
        let Some(target) = target(&now, &live, &tried) else {
            failures.push("no further DataNode in service has room and no index of the group".into());
            break;
        };
        tried.insert(target.id.uuid.clone());
        let target_name = name(&target);
        let done = match write(namenode, &now, index, &target, (file, unit)).await {
            Ok(()) => counted(namenode, group, index, &target).await?,
            Err(error) => Err(error.to_string()),
        };
        match done {
            Ok(done) => return Ok(done),
            Err(why) => {
                tracing::warn!("{what}: {target_name}: {why}");
                failures.push(format!("{target_name}: {why}"));
            }
        }
    }
    Err(HdfsError::NotHandedOver { what, message: failures.join("; ") })
}

/// Refuses a rebuilt block whose bytes are not those that were recorded, where a digest was.
///
/// # Errors
/// `Parity`; `Io` for the file.
pub(crate) async fn check_digest(
    group: &Group,
    index: BlockIndex,
    file: Option<&std::fs::File>,
) -> Result<(), HdfsError> {
    let Some(expected) = group.digest(index) else { return Ok(()) };
    let failed = |e| HdfsError::io("the rebuilt block", e);
    let file = file.ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
    let (file, len) = (file.try_clone().map_err(failed)?, group.block_bytes(index));
    let reading = tokio::task::spawn_blocking(move || {
        use std::os::unix::fs::FileExt as _;
        let (mut digest, mut piece) = (Running::new(), vec![0; PIECE_BYTES]);
        while digest.len() < len {
            let some = (len - digest.len()).min(PIECE_BYTES as u64) as usize;
            file.read_exact_at(&mut piece[..some], digest.len())?;
            digest.update(&piece[..some]);
        }
        Ok(digest.finish())
    });
    let got = reading.await.map_err(|e| failed(e.into()))?.map_err(failed)?;
    match got == expected {
        true => Ok(()),
        false => Err(HdfsError::Parity(format!(
            "{group}, block {}: expected the recorded digest {expected} of what was rebuilt, got {got}; nothing was handed over",
            index.0
        ))),
    }
}

/// The DataNode to write to: in service, heard lately, with room, without an index of the group, not tried; of these
/// one in a rack with the fewest blocks of the group, then the one with most room.
pub(crate) fn target(group: &Group, live: &[DatanodeInfo], tried: &BTreeSet<String>) -> Option<DatanodeInfo> {
    let holders = || group.holders.values().flatten().map(|holder| &*holder.datanode);
    let held: BTreeSet<&str> = holders().map(|node| node.id.uuid.as_str()).collect();
    let mut crowd: BTreeMap<&str, usize> = BTreeMap::new();
    for node in holders() {
        *crowd.entry(node.location.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let heard = Heard::of(live.iter());
    // A block as long as any of the group; HDFS itself wants some blocks' room.
    let room = group.block_bytes(BlockIndex(0)).saturating_mul(2);
    let fits = |node: &&DatanodeInfo| {
        node.in_service()
            && heard.silence_ms(node) < SILENT_MS
            && node.remaining.unwrap_or(0) >= room
            && !held.contains(node.id.uuid.as_str())
            && !tried.contains(&node.id.uuid)
    };
    let order = |node: &&DatanodeInfo| {
        let rack = node.location.as_deref().unwrap_or_default();
        (crowd.get(rack).copied().unwrap_or(0), u64::MAX - node.remaining.unwrap_or(0))
    };
    live.iter().filter(fits).min_by_key(order).cloned()
}

/// Another internal block of a group, and what permits reading it.
pub(crate) type Mate = (BlockIndex, ExtendedBlock, Option<Token>);

/// Refuses a DataNode that has another internal block of the group, or does not say that it has none. A DataNode that comes back
/// is live before the NameNode knows its blocks; of two of a group on one DataNode it would see only one. This call blocks.
fn alone(datanode: SocketAddr, mates: Vec<Mate>) -> Result<(), HdfsError> {
    for (index, block, token) in mates {
        let message = match look_for(datanode, &block, token) {
            Ok(Looked::Absent) => continue,
            Ok(Looked::There | Looked::FileGone) => {
                "the DataNode has it, of which the NameNode may not know yet".to_owned()
            }
            Err(error) => format!("expected the DataNode to say that it has none, got {error}"),
        };
        let what = format!("internal block {} of the group", index.0);
        return Err(HdfsError::NotHandedOver { what, message });
    }
    Ok(())
}

/// These internal blocks of the group, and what permits reading them.
pub(crate) fn mates(
    namenode: &NameNode,
    key: Option<&BlockKey>,
    group: &Group,
    blocks: impl IntoIterator<Item = BlockIndex>,
) -> Result<Vec<Mate>, HdfsError> {
    let one = |index| {
        let block = group.block(index);
        let permit = key.map(|key| token(key, namenode.user(), &block, READ)).transpose()?;
        Ok((index, block, permit))
    };
    blocks.into_iter().map(one).collect()
}

/// Refuses a DataNode that has another internal block of the group than this one, or does not say that it has none.
///
/// # Errors
/// `NotHandedOver` for such a DataNode; those of calls.
pub(crate) async fn free_of(
    namenode: &NameNode,
    group: &Group,
    index: BlockIndex,
    datanode: &DatanodeInfo,
) -> Result<(), HdfsError> {
    let (address, keys) = (transfer_address(datanode)?, namenode.block_keys().await?);
    let others = group.expected().filter(|other| *other != index);
    let mates = mates(namenode, keys.as_ref().map(|keys| &keys.current), group, others)?;
    let asking = tokio::task::spawn_blocking(move || alone(address, mates)).await;
    asking.map_err(|e| HdfsError::io("asking a DataNode", e.into()))?
}

/// The first of these internal blocks of the group that the DataNode has by its own word. One that is coming does not count yet.
///
/// # Errors
/// Those of calls to the NameNode.
pub(crate) async fn found(
    namenode: &NameNode,
    group: &Group,
    datanode: &DatanodeInfo,
    blocks: Vec<BlockIndex>,
) -> Result<Option<BlockIndex>, HdfsError> {
    let (address, keys) = (transfer_address(datanode)?, namenode.block_keys().await?);
    let mates = mates(namenode, keys.as_ref().map(|keys| &keys.current), group, blocks)?;
    let there = move |(index, block, token): Mate| {
        matches!(look_for(address, &block, token), Ok(Looked::There)).then_some(index)
    };
    let asking = tokio::task::spawn_blocking(move || mates.into_iter().find_map(there)).await;
    asking.map_err(|e| HdfsError::io("asking a DataNode", e.into()))
}

/// Bytes under one checksum of the blocks of a group, as the first DataNode says that has one: HDFS computes no checksum of a file in
/// whose blocks they differ. Where none says it, as clients of this HDFS write.
///
/// # Errors
/// Those of calls.
pub(crate) async fn unit_bytes(namenode: &NameNode, group: &Group) -> Result<usize, HdfsError> {
    let holders =
        group.holders.iter().flat_map(|(index, holders)| holders.iter().map(move |holder| (*index, holder)));
    let stored = holders.filter_map(|(index, holder)| {
        Some((transfer_address(&holder.datanode).ok()?, group.block(index), holder.token.clone()))
    });
    let stored: Vec<_> = stored.collect();
    let asking = tokio::task::spawn_blocking(move || {
        stored.into_iter().find_map(|(datanode, block, token)| unit_of(datanode, &block, token).ok())
    });
    match asking.await.map_err(|e| HdfsError::io("asking a DataNode", e.into()))? {
        Some(unit) => Ok(unit),
        None => namenode.unit_bytes().await,
    }
}

/// Writes the block to a DataNode that has no other one of the group. Blocks of objects are files of their own, and may be
/// together.
async fn write(
    namenode: &NameNode,
    group: &Group,
    index: BlockIndex,
    target: &DatanodeInfo,
    (file, unit): (&std::fs::File, Option<usize>),
) -> Result<(), HdfsError> {
    let (address, block) = (transfer_address(target)?, group.block(index));
    let (key, user) = (namenode.block_keys().await?.map(|keys| keys.current), namenode.user());
    let permit = key.as_ref().map(|key| write_token(key, user, &block)).transpose()?;
    let others = group.expected().filter(|other| group.stored.is_none() && *other != index);
    let mates = mates(namenode, key.as_ref(), group, others)?;
    let unit = match unit {
        Some(unit) => unit,
        None => unit_bytes(namenode, group).await?,
    };
    let file = file.try_clone().map_err(|e| HdfsError::io("the rebuilt block", e))?;
    let writing = tokio::task::spawn_blocking(move || {
        use std::os::unix::fs::FileExt as _;
        alone(address, mates)?;
        let (mut writer, mut piece) =
            (BlockWriter::begin(address, &[], &block, unit, permit.as_ref(), false)?, vec![0; PIECE_BYTES]);
        let (mut offset, len) = (0, block.bytes.unwrap_or(0));
        while offset < len {
            let some = (len - offset).min(PIECE_BYTES as u64) as usize;
            let read = file.read_exact_at(&mut piece[..some], offset);
            read.map_err(|e| HdfsError::io("reading the rebuilt block", e))?;
            writer.write(&piece[..some])?;
            offset += some as u64;
        }
        writer.finish()
    });
    writing.await.map_err(|e| HdfsError::io("writing to a DataNode", e.into()))?
}

/// Waits until the NameNode lists the index; the inner error says what it lists instead.
async fn counted(
    namenode: &NameNode,
    group: &Group,
    index: BlockIndex,
    target: &DatanodeInfo,
) -> Result<Result<HandedOver, String>, HdfsError> {
    let deadline = Instant::now() + COUNTED_WITHIN;
    loop {
        let Now::Same(now) = refresh(namenode, group).await? else {
            return Ok(Err("the group changed while the block was handed over".into()));
        };
        let holders = now.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
        if holders.iter().any(|holder| holder.datanode.id.uuid == target.id.uuid) {
            return Ok(Ok(HandedOver::To(name(target))));
        }
        if let Some(other) = holders.first() {
            return Ok(Ok(HandedOver::NotNeeded(name(&other.datanode))));
        }
        if Instant::now() > deadline {
            let waited = COUNTED_WITHIN.as_secs();
            return Ok(Err(format!(
                "it took the block, but the NameNode does not count it after {waited} s"
            )));
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::{DatanodeId, FileStatus, LocatedBlock, LocatedBlocks, Policy};
    use crate::transfer;

    fn datanode(number: u32, rack: &str, remaining: u64) -> DatanodeInfo {
        let id = DatanodeId { uuid: format!("u{number}"), transfer_port: number, ..DatanodeId::default() };
        let (location, last_update) = (Some(rack.to_owned()), Some(100_000));
        DatanodeInfo { id, location, last_update, remaining: Some(remaining), ..DatanodeInfo::default() }
    }

    #[test]
    fn a_target_is_in_service_heard_of_has_room_and_no_index_of_the_group() {
        let block = ExtendedBlock { id: -16i64 as u64, bytes: Some(3 << 20), ..ExtendedBlock::default() };
        let locations = vec![datanode(1, "/a", 1 << 30), datanode(2, "/a", 1 << 30)];
        let located = LocatedBlock { block, locations, indices: Some(vec![0, 1]), ..LocatedBlock::default() };
        let policy = Some(Policy { id: 2, ..Policy::default() });
        let status = FileStatus { block_bytes: Some(1 << 20), ..FileStatus::default() };
        let blocks = LocatedBlocks { blocks: vec![located], policy, ..LocatedBlocks::default() };
        let group = Group::of("/f", &status, &blocks).unwrap().remove(0);

        let mut live =
            vec![datanode(1, "/a", 1 << 40), datanode(3, "/a", 1 << 30), datanode(4, "/b", 1 << 29)];
        let chosen = |live: &[DatanodeInfo], tried: &[&str]| {
            let tried = tried.iter().map(|uuid| (*uuid).to_owned()).collect();
            target(&group, live, &tried).map(|node| node.id.transfer_port)
        };
        assert_eq!(chosen(&live, &[]), Some(4), "the emptier rack");
        assert_eq!(chosen(&live, &["u4"]), Some(3));
        live[2].admin_state = Some(1);
        assert_eq!(chosen(&live, &[]), Some(3), "not a decommissioning one");
        live[1].last_update = Some(100_000 - SILENT_MS);
        assert_eq!(chosen(&live, &[]), None, "not a silent one, and never one that has an index");
        live[1].last_update = Some(100_000);
        live[1].remaining = Some((2 << 20) - 1);
        assert_eq!(chosen(&live, &[]), None, "not a full one");
    }

    #[tokio::test]
    async fn a_whole_group_of_an_open_file_is_the_same_as_long_as_it_is() {
        use prost::Message as _;

        use crate::group::tests::listed;
        use crate::proto::names::{FileInfo, Locations};

        // The NameNode is asked for this group alone, and another one of the file is being written.
        let (status, mut blocks) = listed([]);
        let group = Group::of("/f", &status, &blocks).unwrap().remove(0);
        let mut last = blocks.blocks[0].clone();
        last.block.id = -32i64 as u64;
        (blocks.under_construction, blocks.last) = (true, Some(last));
        let answers = [
            ("getFileInfo", FileInfo { status: Some(status) }.encode_to_vec()),
            ("getBlockLocations", Locations { blocks: Some(blocks) }.encode_to_vec()),
        ];
        let now = refresh(&crate::fake::namenode(&answers), &group).await.unwrap();
        assert!(matches!(now, Now::Same(now) if now.id == group.id));
    }

    #[tokio::test]
    async fn a_file_that_has_the_name_of_a_deleted_one_is_not_that_file() {
        use prost::Message as _;

        use crate::group::tests::held;
        use crate::proto::names::FileInfo;

        // A replicated file, which is no group.
        let status = FileStatus { kind: 2, file_id: Some(8), ..FileStatus::default() };
        let namenode =
            crate::fake::namenode(&[("getFileInfo", FileInfo { status: Some(status) }.encode_to_vec())]);
        let group = Group { file_id: 7, ..held([]) };
        let now = refresh(&namenode, &group).await.unwrap();
        assert!(matches!(now, Now::Changed(why) if why == "its file was deleted"));
    }

    #[tokio::test]
    async fn a_block_gets_the_units_of_the_others_of_its_group_or_those_of_the_cluster() {
        use prost::Message as _;

        use crate::group::tests::{datanode, held};
        use crate::proto::names::{Defaults, ServerDefaults};

        let defaults = Defaults { unit_bytes: Some(1024), encrypted_transfer: None };
        let defaults = ServerDefaults { defaults }.encode_to_vec();
        let namenode = crate::fake::namenode(&[("getServerDefaults", defaults)]);
        let stored = transfer::tests::datanode_with(4096, |_| Ok(vec![3; 9000]));
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let group = held([(0, datanode(nobody)), (2, datanode(stored))]);
        assert_eq!(unit_bytes(&namenode, &group).await.unwrap(), 4096);
        assert_eq!(unit_bytes(&namenode, &held([(0, datanode(nobody))])).await.unwrap(), 1024);
    }

    #[test]
    fn a_datanode_gets_no_block_if_it_has_another_of_the_group_or_does_not_say() {
        let none = |block: &ExtendedBlock| -> Result<Vec<u8>, String> {
            Err(format!("org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: for {}", block.id))
        };
        // None of the group; block 4; block 4 of an older generation, or coming; block 4, but its file is gone.
        let answers: [(Result<Vec<u8>, &str>, &str); 4] = [
            (Ok(vec![1; 700]), "the DataNode has it"),
            (Err("java.io.IOException: Replica gen stamp < block genstamp"), "expected the DataNode to say"),
            (Err("java.io.IOException: Replica is not readable"), "got DataNode"),
            (Err("java.io.FileNotFoundException: BlockId -12 is not valid."), "the DataNode has it"),
        ];
        let mates = || -> Vec<Mate> {
            let of = |index: u8| {
                let id = (-16 + i64::from(index)) as u64;
                (BlockIndex(index), ExtendedBlock { id, generation: 1001, ..ExtendedBlock::default() }, None)
            };
            vec![of(0), of(3), of(4)]
        };
        alone(transfer::tests::datanode(none), mates()).unwrap();
        for (answer, why) in answers {
            let asked = transfer::tests::datanode(move |block| match block.id as i64 {
                -12 => answer.clone().map_err(str::to_owned),
                _ => none(block),
            });
            let error = alone(asked, mates()).unwrap_err().to_string();
            assert!(error.contains("internal block 4 of the group") && error.contains(why), "{error}");
        }
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(alone(nobody, mates()).unwrap_err().to_string().contains("internal block 0"));
    }
}
