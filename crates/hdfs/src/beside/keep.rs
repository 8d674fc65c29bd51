//! A staged block may be the last copy of a block. It is dropped only when nobody needs it, by what the NameNode says; when its bytes are proved
//! to be wrong; or when it can be rebuilt from others. Otherwise it stays, and is tried again.

use kintsu_dag::BlockIndex;

use super::Shared;
use super::members::Staged;
use crate::handover::found;
use crate::objects::is_gone;
use crate::vigil::address;
use crate::{Group, HdfsError};

/// Whether nobody needs a staged block any more whose group is not what it was. An object is found by the name of its folder, and that may have
/// changed; so may the name of a file whose inode is not known.
///
/// # Errors
/// Those of calls.
pub(super) async fn nobody_needs(shared: &Shared, group: &Group, staged: &Staged) -> Result<bool, HdfsError> {
    let gone = match &group.stored {
        Some(stored) => is_gone(&shared.namenode, stored).await?,
        None => group.file_id != 0,
    };
    Ok(gone || shared.memory().no_file_has(staged.held.id))
}

/// Whether a DataNode that is listed with a staged block has that for certain, so that nobody needs the staged one. The NameNode lists a copy on a DataNode that
/// came back until it has read what that has; and where it calls the group corrupt, it lists copies that it knows to be bad. So the DataNode is
/// asked, unless the block could be rebuilt once more.
///
/// # Errors
/// Those of calls to the NameNode.
pub(super) async fn has_it(
    shared: &Shared,
    group: &Group,
    staged: &Staged,
    datanode: &str,
) -> Result<bool, HdfsError> {
    if again(shared, group, staged) {
        return Ok(true);
    }
    let index = staged.held.id.index;
    let mut holders = group.holders.get(&index).into_iter().flatten();
    match holders.find(|holder| address(&holder.datanode) == datanode) {
        Some(holder) if !group.corrupt => {
            Ok(found(&shared.namenode, group, &holder.datanode, vec![index]).await?.is_some())
        }
        _ => Ok(false),
    }
}

/// Whether a block that is staged could be rebuilt without that: from what DataNodes have of others, and from what else is staged on agents that are
/// there.
pub(super) fn again(shared: &Shared, group: &Group, staged: &Staged) -> bool {
    let members = shared.members.alive();
    let others = shared.members.staged_of(group.expected().map(|index| group.on_agents(index)));
    let memory = shared.memory();
    let serves = |other: &Staged| {
        let of_now = u64::from(other.held.generation) == group.block(other.held.id.index).generation;
        let member = members.get(&other.node).filter(|member| !memory.gone.contains_key(&member.datanode));
        other.node != staged.node && of_now && member.is_some() && memory.could_be_read(other)
    };
    let bad = memory.bad(group.id);
    // Of the copies of a corrupt group nobody knows which are bad.
    let sound = |index: BlockIndex| !group.corrupt && index != staged.held.id.index && !bad.contains(&index);
    let stored = |index: BlockIndex| sound(index) && memory.holder(group, index).is_some();
    let lost: Vec<BlockIndex> = group
        .expected()
        .filter(|index| !stored(*index))
        .filter(|index| !others.values().any(|other| other.held.id.index == *index && serves(other)))
        .collect();
    group.policy.code.recoverable(&lost)
}

/// A staged block stays, and is tried again later. That is told once. `read`: whether it could be read.
pub(super) fn keep(shared: &Shared, group: &Group, staged: &Staged, read: bool, why: &str) {
    let news = shared.memory().hold_back(staged, read);
    if news {
        let what = format!("hand-over of {group}, block {}", staged.held.id.index.0);
        let why =
            format!("{why}; the rebuilt block is kept and tried again, because it may be the last copy");
        shared.failed(what, why);
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::NodeId;
    use kintsu_wire::message::HeldBlock;

    use super::*;
    use crate::beside::Event;
    use crate::beside::members::tests::{register, staged};
    use crate::beside::tests::shared;
    use crate::group::tests::{datanode, held};

    /// A group of RS-3-2 whose blocks with these indices are stored.
    fn stored(indices: &[u8]) -> Group {
        let at = |index: u8| datanode(([10, 0, 0, 1], u16::from(index) + 1).into());
        Group { id: 16, ..held(indices.iter().map(|index| (*index, at(*index)))) }
    }

    #[tokio::test]
    async fn a_staged_block_can_be_rebuilt_again_from_stored_ones_and_from_staged_ones_that_can_be_read() {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        let mut nodes = Vec::new();
        for port in 7..=9 {
            nodes.push(register(&shared.members, &format!("10.0.0.1:{port}"), 11).await);
        }
        let block = staged(16, 0, nodes[0]);
        let can = |indices: &[u8]| {
            let group = stored(indices);
            shared.memory().renew(group.clone());
            again(&shared, &group, &block)
        };
        shared.members.stage(block.clone());
        assert!(can(&[1, 2, 3]) && !can(&[1, 2]), "it is the last one that is needed");
        // Another block of the group is staged, of an older generation; then of this one.
        let other = staged(16, 4, nodes[1]);
        let old = HeldBlock { generation: 1000, ..other.held.clone() };
        shared.members.stage(Staged { held: old, ..other.clone() });
        assert!(!can(&[1, 2]));
        shared.members.stage(other.clone());
        assert!(can(&[1, 2]) && !can(&[1]));
        // So is the same one, beside two DataNodes.
        shared.members.stage(staged(16, 0, nodes[2]));
        assert!(can(&[1]));
        shared.memory().gone.insert("10.0.0.1:9".into(), "it refuses connections".into());
        assert!(!can(&[1]) && can(&[1, 2]));
        shared.memory().unreadable(16, BlockIndex(1));
        assert!(!can(&[1, 2]) && can(&[1, 2, 3]), "a stored one cannot be read");
        keep(&shared, &stored(&[]), &other, false, "its file is gone");
        assert!(!can(&[2, 3]), "the other one may be no copy at all");
        shared.members.stage(staged(16, 4, NodeId(5)));
        assert!(!can(&[2, 3]), "its agent is away");
    }

    #[tokio::test]
    async fn that_a_block_is_kept_is_told_once_for_each() {
        let (shared, mut happens) = shared(crate::fake::namenode(&[]));
        for (block, told) in [
            (staged(16, 0, NodeId(1)), true),
            (staged(16, 2, NodeId(1)), true),
            (staged(16, 0, NodeId(1)), false),
        ] {
            keep(&shared, &stored(&[]), &block, true, "the DataNode is busy");
            assert!(shared.memory().is_held_back(&block));
            let event = happens.try_recv();
            assert_eq!(
                matches!(event, Ok(Event::Failed { why, .. }) if why.contains("busy; the rebuilt block is kept")),
                told
            );
        }
    }
}
