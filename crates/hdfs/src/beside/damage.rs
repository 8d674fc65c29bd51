//! Copies that are damaged or gone on the disk of a DataNode that is there. HDFS finds out when a client reads them, or a scan of
//! the DataNode, after weeks. When an agent's read for a repair or a comparison proves it, the index counts as lost: it is rebuilt
//! and staged as if its DataNode were gone.
//!
//! Proof are bytes that do not match their checksums, and a file that is shorter than these say. That the agent finds no file proves
//! nothing, because it may not know all directories: the DataNode itself is asked, with a read of one byte. A read that took too
//! long, a connection that broke, checksums of another kind, another generation: all these say nothing.
//!
//! While the rebuilt block waits, the agent reads the copy again, and only then the NameNode is told (`settle`): an error that
//! passes has passed by then. A copy that turns out to be whole, or that the NameNode no longer lists there, is damaged no more.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::StripeView;
use kintsu_wire::message::{Fault, FaultKind};

use super::Shared;
use super::compare::tell;
use super::members::Member;
use super::memory::Memory;
use super::rebuild::conduct;
use crate::store::COMPARE;
use crate::transfer::{Looked, look_for};
use crate::vigil::address;
use crate::{Group, HdfsError, Holder, transfer_address};

/// What is known of a copy when its agent tried to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Damaged,
    Whole,
    Unknown,
}

/// The block of a group that cannot be used, by this fault of a run, so that others have to take its place: the one that the fault names, or the one
/// whose node stalls, cannot be reached by the others, or has a disk with errors. Such a node may be alive for the NameNode and for the coordinator, and the
/// next run would go along it again.
pub(super) fn unusable(fault: &Fault, view: &StripeView) -> Option<BlockIndex> {
    match fault.kind {
        FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale | FaultKind::Invalid => {
            fault.block.map(|block| block.index)
        }
        kind if says_nothing(kind) => {
            let mut homes = (0..).map(BlockIndex).zip(&view.homes);
            homes.find(|(_, home)| **home == Some(fault.node)).map(|(index, _)| index)
        }
        _ => None,
    }
}

/// Whether such a fault says nothing of blocks.
fn says_nothing(kind: FaultKind) -> bool {
    kind.is_silence() || kind == FaultKind::Io
}

/// A stored block could not be used, by this fault of a run: it is left out for a while. If the fault proves it, its copy counts as
/// damaged, and that is told if it is news. That a node was silent proves nothing.
pub(super) async fn leave_out(
    shared: &Shared,
    group: &Group,
    members: &BTreeMap<NodeId, Member>,
    fault: &Fault,
    index: BlockIndex,
) {
    if says_nothing(fault.kind) {
        shared.memory().silent(group.id, index);
        return;
    }
    shared.memory().unreadable(group.id, index);
    let Some(member) = members.get(&fault.node) else { return };
    let condition = condition(group, index, &member.datanode, Some(fault)).await;
    let is_news = note(&mut shared.memory(), group, index, &member.datanode, condition);
    if is_news {
        tell(shared, group, index);
    }
}

/// The coordinator itself read wrong bytes of a block from its DataNode.
pub(super) fn rotten(shared: &Shared, group: &Group, index: BlockIndex) {
    // Of several copies it is not known which one was read.
    if let Some([holder]) = group.holders.get(&index).map(Vec::as_slice) {
        note(&mut shared.memory(), group, index, &address(&holder.datanode), Condition::Damaged);
    }
}

/// Has the agents read copies of a block again that count as damaged, where it is time.
///
/// # Errors
/// `Plan`; `Unsupported` for a generation stamp that does not fit.
pub(super) async fn look_again(
    shared: &Shared,
    group: &Group,
    index: BlockIndex,
    members: &BTreeMap<NodeId, Member>,
) -> Result<(), HdfsError> {
    let due = shared.memory().looks_due(group.id, index);
    for datanode in due {
        let Some((node, _)) = members.iter().find(|(_, member)| member.datanode == datanode) else {
            continue;
        };
        // It is compared with itself: read on its node, and written nowhere.
        let view = group.view(NodeId::CLIENT, |_| false);
        let plan = kintsu_plan::settle(&view, index, *node)?;
        let ended = conduct(shared, group, &view, members, (&plan, &[], COMPARE)).await?;
        let condition = condition(group, index, &datanode, ended.fault.as_ref()).await;
        note(&mut shared.memory(), group, index, &datanode, condition);
    }
    Ok(())
}

/// The condition of the copy on a DataNode after its agent read it, with this fault or without.
async fn condition(group: &Group, index: BlockIndex, datanode: &str, fault: Option<&Fault>) -> Condition {
    let mut holders = group.holders.get(&index).into_iter().flatten();
    let Some(holder) = holders.find(|holder| address(&holder.datanode) == datanode) else {
        return Condition::Unknown;
    };
    match fault.map(|fault| fault.kind) {
        None => Condition::Whole,
        Some(FaultKind::Corrupt) => Condition::Damaged,
        Some(FaultKind::Missing) => asked(group, index, holder).await,
        Some(_) => Condition::Unknown,
    }
}

/// The condition of a copy of which its agent finds no file, by what the DataNode says.
async fn asked(group: &Group, index: BlockIndex, holder: &Holder) -> Condition {
    let Ok(datanode) = transfer_address(&holder.datanode) else { return Condition::Unknown };
    let (block, token) = (group.block(index), holder.token.clone());
    let asking = tokio::task::spawn_blocking(move || look_for(datanode, &block, token)).await;
    match asking.unwrap_or_else(|e| Err(HdfsError::io("asking a DataNode", e.into()))) {
        Ok(Looked::Absent | Looked::FileGone) => Condition::Damaged,
        Ok(Looked::There) => {
            tracing::warn!(
                "{group}, block {}: DataNode {datanode} has it, and the agent beside it finds no file: give the agent all directories \
                 of dfs.datanode.data.dir as --data-dir",
                index.0
            );
            Condition::Whole
        }
        Err(error) => {
            tracing::info!("{group}, block {}: {error}", index.0);
            Condition::Unknown
        }
    }
}

/// Remembers the condition of a copy. Whether it is news that it is damaged.
fn note(memory: &mut Memory, group: &Group, index: BlockIndex, datanode: &str, condition: Condition) -> bool {
    match condition {
        Condition::Damaged => return memory.damaged(group.id, index, datanode),
        Condition::Whole => memory.whole(group.id, index, datanode),
        Condition::Unknown => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use kintsu_dag::{BlockId, StripeId};

    use super::*;
    use crate::group::tests::{datanode, held};
    use crate::transfer;

    const INDEX: BlockIndex = BlockIndex(2);

    fn fault(kind: FaultKind) -> Fault {
        Fault { kind, node: NodeId(1), block: None, detail: "its agent says so".into() }
    }

    /// Whether the index counts as lost after a fault of this kind at the agent beside a DataNode.
    async fn lost(at: SocketAddr, kind: FaultKind) -> bool {
        let group = held((0..5).map(|index| match index {
            2 => (index, datanode(at)),
            _ => (index, datanode(([10, 0, 0, 1], u16::from(index)).into())),
        }));
        let (mut memory, on) = (Memory::default(), at.to_string());
        memory.renew(group.clone());
        let found = condition(&group, INDEX, &on, Some(&fault(kind))).await;
        let news = note(&mut memory, &group, INDEX, &on, found);
        assert_eq!(memory.lost(&group), if news { vec![INDEX] } else { vec![] });
        if news {
            let again = condition(&group, INDEX, &on, None).await;
            note(&mut memory, &group, INDEX, &on, again);
            assert!(memory.lost(&group).is_empty(), "it was read whole");
        }
        news
    }

    #[tokio::test]
    async fn a_copy_counts_as_lost_when_it_is_rotten_and_when_its_datanode_has_no_file_either() {
        let exception = |text: &'static str| transfer::tests::datanode(move |_| Err(text.to_owned()));
        let absent =
            exception("org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: Replica not found");
        let no_file = exception("java.io.FileNotFoundException: BlockId -14 is not valid.");
        let busy = exception("java.io.FileNotFoundException: /data/blk_-14 (Too many open files)");
        let has = transfer::tests::datanode(|_| Ok(vec![5; 100]));
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (at, gone) in [(absent, true), (no_file, true), (busy, false), (has, false), (nobody, false)] {
            assert!(lost(at, FaultKind::Corrupt).await, "the bytes on the disk prove it");
            assert_eq!(lost(at, FaultKind::Missing).await, gone);
            for kind in
                [FaultKind::Lost, FaultKind::Stalled, FaultKind::Io, FaultKind::Stale, FaultKind::Invalid]
            {
                assert!(!lost(at, kind).await, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_run_does_without_the_block_that_is_named_and_without_that_of_a_node_that_is_silent() {
        let mut view = held((0..5).map(|index| (index, datanode(([10, 0, 0, 1], index.into()).into()))))
            .view(NodeId::CLIENT, |_| false);
        // The node of the fault has block 3; nobody has block 2.
        view.homes = [Some(NodeId(4)), Some(NodeId(2)), None, Some(NodeId(1)), Some(NodeId(3))].into();
        let out = |kind, block: Option<u8>, node| {
            let block = block.map(|index| BlockId { stripe: StripeId(16), index: BlockIndex(index) });
            unusable(&Fault { node: NodeId(node), block, ..fault(kind) }, &view).map(|index| index.0)
        };
        for kind in [FaultKind::Lost, FaultKind::Stalled, FaultKind::Io] {
            assert_eq!((out(kind, None, 1), out(kind, Some(3), 1)), (Some(3), Some(3)), "{kind:?}");
            assert_eq!(out(kind, None, 9), None, "{kind:?}: it has no block");
        }
        for kind in [FaultKind::Corrupt, FaultKind::Missing, FaultKind::Stale, FaultKind::Invalid] {
            assert_eq!((out(kind, Some(1), 2), out(kind, None, 2)), (Some(1), None), "{kind:?}");
        }
        for kind in [FaultKind::Full, FaultKind::Mismatch, FaultKind::Aborted] {
            assert_eq!((out(kind, Some(1), 2), out(kind, None, 2)), (None, None), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_copy_that_the_namenode_does_not_list_there_is_nobodys_loss() {
        let group = held((0..5).map(|index| (index, datanode(([10, 0, 0, 1], u16::from(index)).into()))));
        let found = condition(&group, INDEX, "10.0.0.1:9", Some(&fault(FaultKind::Corrupt))).await;
        assert_eq!(found, Condition::Unknown);
    }
}
