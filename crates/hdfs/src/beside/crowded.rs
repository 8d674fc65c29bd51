//! Two blocks of a group on one DataNode. HDFS rebuilds blocks on DataNodes that it has chosen before it heard of a block that was
//! handed over to them, or before it read what they have when they came back. So a block may come to a DataNode that has another
//! one of the group by then. Of two the NameNode counts the one of which it heard first, and ignores the other: it stays on the
//! disk, beside the copy that is made of it elsewhere, and HDFS never finds out.
//!
//! So the agent beside a DataNode looks into the directories for groups of which several blocks are there ([`tell_crowds`]), and
//! tells the coordinator those that it finds twice in a row: what HDFS has just deleted is gone by then. Of such a group the block
//! that the NameNode lists is moved to another DataNode, as HDFS's balancer moves blocks. The NameNode counts the other one with
//! the DataNode's next report of all blocks, and has one deleted if there are two copies then.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use kintsu_wire::message::CrowdsBeside;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Event, Shared};
use crate::handover::{Now, found, free_of, refresh, target};
use crate::objects::carry;
use crate::proto::names::DatanodeInfo;
use crate::replica::{Directories, crowded};
use crate::vigil::address;
use crate::{Coordinator, Group, HdfsError};

/// Pause between two looks into the directories.
const PAUSE: Duration = Duration::from_secs(10);

/// A pause is at least so many times as long as the look before it.
const PAUSE_PER_LOOK: u32 = 30;

/// Most blocks that are told at once. The others have their turn in later looks.
const MOST_TOLD: usize = 1024;

/// Several blocks of a group on one DataNode, by the word of its agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Crowd {
    pub datanode: String,
    pub blocks: BTreeSet<BlockIndex>,
}

/// Tells the coordinator, again and again, which blocks of groups share this DataNode with others of theirs. The directories are those of the
/// DataNode.
pub async fn tell_crowds(
    directories: Arc<Directories>,
    datanode: String,
    coordinator: Coordinator,
) -> Infallible {
    let (mut before, mut last) = (BTreeSet::new(), None);
    loop {
        let began = Instant::now();
        let looking = directories.clone();
        let found = tokio::task::spawn_blocking(move || crowded(&looking)).await;
        let took = began.elapsed();
        match found {
            Ok(found) => {
                for crowds in lasting(&datanode, &before, &found, &mut last) {
                    if let Err(error) = coordinator.tell(crowds).await {
                        tracing::debug!("several blocks of a group on {datanode}: {error}");
                    }
                }
                before = found;
            }
            Err(error) => tracing::warn!("looking for several blocks of a group: {error}"),
        }
        tokio::time::sleep(PAUSE.max(took * PAUSE_PER_LOOK)).await;
    }
}

/// What was found twice, a message for each pool. Of more than can be told those come first that follow the `last` one that was told.
fn lasting(
    datanode: &str,
    before: &BTreeSet<(String, u64)>,
    found: &BTreeSet<(String, u64)>,
    last: &mut Option<(String, u64)>,
) -> Vec<CrowdsBeside> {
    let twice: Vec<&(String, u64)> = before.intersection(found).collect();
    let first = twice.partition_point(|block| last.as_ref().is_some_and(|last| *block <= last));
    let in_turn = twice[first..].iter().chain(&twice[..first]).take(MOST_TOLD);
    let mut pools: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (pool, id) in in_turn.clone().copied() {
        pools.entry(pool).or_default().push(*id);
    }
    *last = in_turn.last().map(|block| (*block).clone());
    let message = |(pool, blocks): (&str, _)| CrowdsBeside {
        beside: datanode.to_owned(),
        pool: pool.to_owned(),
        blocks,
    };
    pools.into_iter().map(message).collect()
}

/// Starts on such groups, as many as may be worked on at once.
pub(super) fn begin(shared: &Arc<Shared>, work: &mut JoinSet<()>) {
    for (group, crowd) in shared.memory().crowds_due(shared.config.at_once) {
        let shared = shared.clone();
        work.spawn(async move { shared.work_on(group.id, &group, one(&shared, &group, &crowd)).await });
    }
}

async fn one(shared: &Shared, group: &Group, crowd: &Crowd) -> Result<(), HdfsError> {
    let now = match refresh(&shared.namenode, group).await? {
        Now::Same(now) => *now,
        Now::Changed(_) => return Ok(()),
    };
    shared.memory().renew(now.clone());
    let Some((listed, from)) = listed(&now, &crowd.datanode) else { return Ok(()) };
    let ignored = ignored(&now, crowd);
    if shared.namenode.safe_mode().await? || found(&shared.namenode, &now, &from, ignored).await?.is_none() {
        return Ok(());
    }
    let to = free(shared, &now, listed).await?;
    carry(&shared.namenode, &now, listed, &from, &to).await?;
    let (block, to) = (now.name(listed), address(&to));
    shared.members.keep_counted(now.block(listed).id, &to);
    shared.tell(Event::Moved { block, from: crowd.datanode.clone(), to });
    Ok(())
}

/// The block of the group that the NameNode lists on this DataNode, if it lists it nowhere else: else it will have one deleted.
fn listed(group: &Group, datanode: &str) -> Option<(BlockIndex, DatanodeInfo)> {
    group.holders.iter().find_map(|(index, holders)| match &holders[..] {
        [holder] if address(&holder.datanode) == datanode => Some((*index, (*holder.datanode).clone())),
        _ => None,
    })
}

/// The blocks of the group on this DataNode that the NameNode does not list there.
fn ignored(group: &Group, crowd: &Crowd) -> Vec<BlockIndex> {
    let there = |index: &BlockIndex| {
        let holders = group.holders.get(index).into_iter().flatten();
        holders.map(|holder| address(&holder.datanode)).any(|datanode| datanode == crowd.datanode)
    };
    group.expected().filter(|index| crowd.blocks.contains(index) && !there(index)).collect()
}

/// A DataNode for a block that has none of the group, by its own word.
async fn free(shared: &Shared, group: &Group, index: BlockIndex) -> Result<DatanodeInfo, HdfsError> {
    let (live, mut tried) = (shared.memory().live.clone(), BTreeSet::new());
    while let Some(to) = target(group, &live, &tried) {
        match free_of(&shared.namenode, group, index, &to).await {
            Ok(()) => return Ok(to),
            Err(error) => tracing::debug!("{group}, block {}: not to {}: {error}", index.0, address(&to)),
        }
        tried.insert(to.id.uuid);
    }
    Err(HdfsError::NotHandedOver {
        what: format!("{group}, block {}", index.0),
        message: "its DataNode has another block of the group, which HDFS ignores; no DataNode in service has room and none of \
                  the group, so it stays there"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::{datanode, held};

    #[test]
    fn only_what_was_found_twice_is_told() {
        let all = |ids: &[(&str, u64)]| {
            ids.iter().map(|(pool, id)| ((*pool).to_owned(), *id)).collect::<BTreeSet<_>>()
        };
        let before =
            all(&[("BP-1", 16), ("BP-1", 17), ("BP-1", 32), ("BP-1", 33), ("BP-2", 16), ("BP-2", 18)]);
        let found =
            all(&[("BP-1", 16), ("BP-1", 17), ("BP-1", 48), ("BP-1", 49), ("BP-2", 16), ("BP-2", 18)]);
        let told = lasting("10.0.0.1:1", &before, &found, &mut None);
        let told: Vec<_> =
            told.into_iter().map(|crowds| (crowds.beside, crowds.pool, crowds.blocks)).collect();
        let at = || "10.0.0.1:1".to_owned();
        assert_eq!(told, [(at(), "BP-1".into(), vec![16, 17]), (at(), "BP-2".into(), vec![16, 18])]);
        assert!(lasting("10.0.0.1:1", &BTreeSet::new(), &found, &mut None).is_empty());
    }

    #[test]
    fn of_more_than_can_be_told_each_has_its_turn() {
        let found: BTreeSet<(String, u64)> =
            (0..MOST_TOLD as u64 + 10).map(|id| ("BP-1".to_owned(), id)).collect();
        let mut last = None;
        let mut told = |found: &BTreeSet<(String, u64)>| {
            let messages = lasting("10.0.0.1:1", found, found, &mut last);
            messages.into_iter().flat_map(|crowds| crowds.blocks).collect::<Vec<_>>()
        };
        let most = MOST_TOLD as u64;
        assert_eq!(told(&found), (0..most).collect::<Vec<_>>());
        let second = told(&found);
        assert_eq!(second.len(), MOST_TOLD);
        assert!(second.iter().copied().take(11).eq((most..most + 10).chain([0])));
        assert_eq!(told(&found)[0], most - 10);
        assert_eq!(told(&found.into_iter().take(2).collect()), [0, 1]);
    }

    #[test]
    fn only_what_the_namenode_does_not_list_there_is_ignored() {
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let group = held([(0, at(1)), (1, at(2)), (1, at(1)), (2, at(3))]);
        let crowd = |blocks: &[u8]| Crowd {
            datanode: "10.0.0.1:1".into(),
            blocks: blocks.iter().map(|index| BlockIndex(*index)).collect(),
        };
        assert_eq!(ignored(&group, &crowd(&[0, 2])), [BlockIndex(2)]);
        assert_eq!(ignored(&group, &crowd(&[0, 1])), [], "HDFS knows that there are two");
        assert_eq!(ignored(&group, &crowd(&[0, 15])), [], "no block of the group");
    }

    #[test]
    fn what_is_listed_there_and_nowhere_else_can_be_moved() {
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let group = held([(0, at(1)), (1, at(2)), (1, at(3))]);
        let index = |datanode| listed(&group, datanode).map(|(index, _)| index.0);
        assert_eq!(index("10.0.0.1:1"), Some(0));
        assert_eq!(index("10.0.0.1:2"), None, "HDFS has one of both copies deleted");
        assert_eq!(index("10.0.0.1:4"), None);
    }
}
