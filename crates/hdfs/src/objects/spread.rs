//! Keeping the blocks of a stripe apart: HDFS chooses which replicas of an encoded file stay, and its balancer moves single blocks. Where
//! two of a stripe are on one DataNode, or more in one rack than the code can lose, one is moved as the balancer moves blocks.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::BlockIndex;
use tokio::time::{Instant, sleep};

use crate::handover::{COUNTED_WITHIN, Now, POLL, refresh, target};
use crate::proto::names::DatanodeInfo;
use crate::status::name;
use crate::token::{MOVE, token};
use crate::{Group, HdfsError, NameNode, transfer, transfer_address};

/// A block that was moved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Moved {
    /// Its object.
    pub path: String,
    /// Its stripe.
    pub stripe: u64,
    /// Its index.
    pub index: u8,
    /// Where it was.
    pub from: String,
    /// Where it is.
    pub to: String,
}

/// Moves blocks of a stripe until each is alone on its DataNode and the stripe survives the loss of a rack, as far as DataNodes allow.
/// Blocks with several replicas are left alone.
///
/// # Errors
/// `Datanode` when a DataNode refuses; `NotHandedOver` when the NameNode does not count what was moved; those of calls.
pub(crate) async fn spread(namenode: &NameNode, group: &Group) -> Result<Vec<Moved>, HdfsError> {
    let (mut moved, mut now) = (Vec::new(), group.clone());
    let mut tried = BTreeSet::new();
    // Each block is moved once at most.
    while moved.len() < group.policy.code.n() {
        let live = namenode.live_datanodes().await?;
        let Some((index, from)) = misplaced(&now, &live) else { break };
        let to = target(&now, &live, &tried).filter(|to| better(&now, index, &from, to));
        let Some(to) = to else { break };
        tried.insert(to.id.uuid.clone());
        carry(namenode, &now, index, &from, &to).await?;
        moved.push(Moved {
            path: now.path.clone(),
            stripe: now.number() as u64,
            index: index.0,
            from: name(&from),
            to: name(&to),
        });
        now = match refresh(namenode, &now).await? {
            Now::Same(now) => *now,
            Now::Changed(_) => break,
        };
    }
    Ok(moved)
}

/// Blocks with one replica, and where that is.
fn alone(group: &Group) -> impl Iterator<Item = (BlockIndex, &DatanodeInfo)> {
    group.holders.iter().filter_map(|(index, holders)| match &holders[..] {
        [holder] => Some((*index, &*holder.datanode)),
        _ => None,
    })
}

/// A block whose only DataNode is also the only one of another block.
pub(super) fn together(group: &Group) -> Option<(BlockIndex, &DatanodeInfo)> {
    let mut met = BTreeSet::new();
    alone(group).find(|(_, node)| !met.insert(node.id.uuid.as_str()))
}

/// A block that should be elsewhere. Where all DataNodes are in one rack, racks do not count.
pub(crate) fn misplaced(group: &Group, live: &[DatanodeInfo]) -> Option<(BlockIndex, DatanodeInfo)> {
    if let Some((index, node)) = together(group) {
        return Some((index, node.clone()));
    }
    let all: BTreeSet<_> = live.iter().map(|node| &node.location).collect();
    if all.len() < 2 {
        return None;
    }
    let mut racks: BTreeMap<&str, Vec<(BlockIndex, &DatanodeInfo)>> = BTreeMap::new();
    for (index, node) in alone(group) {
        racks.entry(node.location.as_deref().unwrap_or_default()).or_default().push((index, node));
    }
    let fatal = |blocks: &Vec<(BlockIndex, &DatanodeInfo)>| {
        let lost: Vec<_> = blocks.iter().map(|(index, _)| *index).collect();
        !group.policy.code.recoverable(&lost)
    };
    let worst = racks.into_values().filter(fatal).max_by_key(Vec::len)?;
    worst.last().map(|(index, node)| (*index, (*node).clone()))
}

/// Whether the stripe is safer with the block there: alone on its DataNode, or in a rack with fewer blocks.
fn better(group: &Group, index: BlockIndex, from: &DatanodeInfo, to: &DatanodeInfo) -> bool {
    let others = || alone(group).filter(|(other, _)| *other != index);
    let shared = others().any(|(_, node)| node.id.uuid == from.id.uuid);
    let crowd = |rack: &Option<String>| others().filter(|(_, node)| node.location == *rack).count();
    shared || crowd(&to.location) < crowd(&from.location)
}

/// Has a DataNode fetch a block from another one. The NameNode drops the old replica when it hears of the new one; this waits until it has.
///
/// # Errors
/// `Datanode` when one refuses; `NotHandedOver` when the NameNode does not count it there alone in time; those of calls.
pub(crate) async fn carry(
    namenode: &NameNode,
    group: &Group,
    index: BlockIndex,
    from: &DatanodeInfo,
    to: &DatanodeInfo,
) -> Result<(), HdfsError> {
    let block = group.block(index);
    let token = match namenode.block_keys().await? {
        Some(keys) => Some(token(&keys.current, namenode.user(), &block, MOVE)?),
        None => None,
    };
    let (address, source) = (transfer_address(to)?, from.clone());
    let moving =
        tokio::task::spawn_blocking(move || transfer::fetch(address, &block, token.as_ref(), &source)).await;
    moving.map_err(|e| HdfsError::io("moving a block", e.into()))??;
    let deadline = Instant::now() + COUNTED_WITHIN;
    while Instant::now() < deadline {
        let Now::Same(now) = refresh(namenode, group).await? else { return Ok(()) };
        let holders = now.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
        let there = holders.iter().any(|holder| holder.datanode.id.uuid == to.id.uuid);
        if there && holders.iter().all(|holder| holder.datanode.id.uuid != from.id.uuid) {
            return Ok(());
        }
        sleep(POLL).await;
    }
    Err(HdfsError::NotHandedOver {
        what: format!("{group}, block {}", index.0),
        message: format!("{} fetched it, but the NameNode does not count it there alone", name(to)),
    })
}

#[cfg(test)]
mod tests {
    use kintsu_plan::{Layout, LayoutKind};

    use super::*;
    use crate::proto::names::DatanodeId;
    use crate::{EcPolicy, Holder};

    /// A stripe of rs:n=5,k=3 with these DataNodes and racks, by index.
    fn stripe(places: [(&str, &str); 5]) -> Group {
        let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
        let policy = EcPolicy { name: "rs".into(), code, cell_bytes: 1 };
        let layout =
            Layout { kind: LayoutKind::Striped, block_bytes: 8, cell_bytes: 1, w: 1, data_bytes: 24 };
        let holders = places.iter().enumerate().map(|(i, (uuid, rack))| {
            let holder = Holder { datanode: datanode(uuid, rack).into(), token: None };
            (BlockIndex(i as u8), vec![holder])
        });
        Group {
            path: "/x".into(),
            file_id: 0,
            policy,
            pool: String::new(),
            id: 0,
            generation: 0,
            offset: 0,
            layout,
            holders: holders.collect(),
            corrupt: false,
            stored: None,
        }
    }

    fn datanode(uuid: &str, rack: &str) -> DatanodeInfo {
        let id = DatanodeId { uuid: uuid.into(), ..DatanodeId::default() };
        DatanodeInfo { id, location: Some(rack.into()), ..DatanodeInfo::default() }
    }

    #[test]
    fn two_blocks_on_a_datanode_or_too_many_in_a_rack_are_misplaced() {
        let live = [datanode("a", "/1"), datanode("f", "/3")];
        let index = |group: &Group| misplaced(group, &live).map(|(index, _)| index.0);
        let spread = stripe([("a", "/1"), ("b", "/1"), ("c", "/2"), ("d", "/2"), ("e", "/3")]);
        assert_eq!(index(&spread), None);
        let shared = stripe([("a", "/1"), ("b", "/1"), ("c", "/2"), ("a", "/1"), ("e", "/3")]);
        assert_eq!(index(&shared), Some(3));
        let mut replicated = shared.clone();
        let copy = Holder { datanode: datanode("f", "/3").into(), token: None };
        replicated.holders.get_mut(&BlockIndex(3)).unwrap().push(copy);
        assert_eq!(index(&replicated), None, "it is not known which replica stays");
        let crowded = stripe([("a", "/1"), ("b", "/1"), ("c", "/1"), ("d", "/2"), ("e", "/2")]);
        assert_eq!(index(&crowded), Some(2), "three blocks are more than the code can lose");
        assert_eq!(misplaced(&crowded, &live[..1]), None, "there is one rack only");
        let (_, from) = misplaced(&crowded, &live).unwrap();
        assert!(better(&crowded, BlockIndex(2), &from, &datanode("f", "/3")));
        assert!(!better(&crowded, BlockIndex(2), &from, &datanode("f", "/2")), "then two racks have as many");
    }
}
