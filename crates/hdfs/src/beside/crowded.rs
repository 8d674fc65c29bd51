//! Two blocks of a group on one DataNode. When several blocks of a group are missing, HDFS rebuilds them too, on DataNodes that it has chosen
//! before it heard of a block that was handed over. So one of them may come to the DataNode that has that block by then. Of two the
//! NameNode counts the one of which it heard first, and ignores the other: it stays on the disk, beside the copy that is made of
//! it elsewhere, and HDFS never finds out.
//!
//! So for some minutes after a hand-over its DataNode is asked what else it has of the group, by its own word. If it has two, the one
//! that the NameNode lists is moved to another DataNode, as HDFS's balancer moves blocks. The NameNode counts the other one with the
//! DataNode's next report of all blocks, and has one deleted if there are two copies then.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::BlockIndex;
use tokio::task::JoinSet;

use super::memory::Due;
use super::{Event, Shared};
use crate::handover::{Now, found, free_of, refresh, target};
use crate::objects::carry;
use crate::proto::names::DatanodeInfo;
use crate::vigil::address;
use crate::{Group, HdfsError};

/// Starts on DataNodes that are to be asked now, as many as groups may be worked on at once.
pub(super) fn begin(shared: &Arc<Shared>, work: &mut JoinSet<()>) {
    let all = shared.memory().crowds_due(shared.config.at_once);
    for due in all {
        let group = {
            let mut memory = shared.memory();
            let group = memory.groups.get(&due.group).cloned();
            let Some(group) = group.filter(|group| memory.busy.insert(group.id)) else { continue };
            group
        };
        let shared = shared.clone();
        work.spawn(async move { shared.work_on(&group, one(&shared, &group, &due)).await });
    }
}

async fn one(shared: &Shared, group: &Group, due: &Due) -> Result<(), HdfsError> {
    let now = match refresh(&shared.namenode, group).await? {
        Now::Same(now) => *now,
        Now::Changed(_) => return Ok(()),
    };
    shared.memory().renew(now.clone());
    let Some((listed, from)) = listed(&now, &due.datanode) else { return Ok(()) };
    let others: BTreeSet<BlockIndex> = due.mates.iter().copied().chain([due.index]).collect();
    let others = others.into_iter().filter(|other| *other != listed).collect();
    if shared.namenode.safe_mode().await? || found(&shared.namenode, &now, &from, others).await?.is_none() {
        return Ok(());
    }
    let to = free(shared, &now, listed).await?;
    carry(&shared.namenode, &now, listed, &from, &to).await?;
    let (block, to) = (now.name(listed), address(&to));
    shared.members.keep_counted(now.block(listed).id, &to);
    shared.memory().handed_over(now.id, listed, &to);
    shared.tell(Event::Moved { block, from: due.datanode.clone(), to }).await;
    Ok(())
}

/// The block of the group that the NameNode lists on this DataNode, if it lists it nowhere else: else it will have one deleted.
fn listed(group: &Group, datanode: &str) -> Option<(BlockIndex, DatanodeInfo)> {
    group.holders.iter().find_map(|(index, holders)| match &holders[..] {
        [holder] if address(&holder.datanode) == datanode => Some((*index, holder.datanode.clone())),
        _ => None,
    })
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
    fn what_is_listed_there_and_nowhere_else_can_be_moved() {
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let group = held([(0, at(1)), (1, at(2)), (1, at(3))]);
        let index = |datanode| listed(&group, datanode).map(|(index, _)| index.0);
        assert_eq!(index("10.0.0.1:1"), Some(0));
        assert_eq!(index("10.0.0.1:2"), None, "HDFS has one of both copies deleted");
        assert_eq!(index("10.0.0.1:4"), None);
    }
}
