//! Rebuilding internal blocks that the NameNode reports missing, one group after the other in this process.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_wire::message::{Fault, FaultKind};

use crate::blocks::GroupBlocks;
use crate::handover::{HandedOver, Now, hand_over, refresh};
use crate::maintenance::{self, Resters, Said};
use crate::parity::{Examined, examine, far};
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

/// What a repair did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Repaired {
    /// Blocks that the NameNode counts now.
    pub blocks: Vec<RepairedBlock>,
    /// Blocks that were left alone because DataNodes in maintenance say that they have them.
    pub resting: Vec<String>,
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

/// Repairs the groups below `root`, those that bear the fewest further losses first. What rests on DataNodes in maintenance, or may rest
/// there, is only rebuilt `despite_maintenance`. `progress` is told each block.
///
/// # Errors
/// `NotFound`, `Denied` for the root or without the right to list DataNodes; those of calls. What could not be repaired
/// is in the result.
pub async fn repair(
    namenode: &NameNode,
    root: &str,
    despite_maintenance: bool,
    progress: &mut (dyn FnMut(&RepairedBlock) + Send),
) -> Result<Repaired, HdfsError> {
    namenode.check_transfer().await?;
    // Before anything is read: without the right to list DataNodes nothing can be handed over.
    namenode.live_datanodes().await?;
    let mut resters = resters(namenode, despite_maintenance).await?;
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
        match repair_group(namenode, &group, &mut resters, &mut repaired, progress).await {
            Ok(()) => {}
            Err(error) if error.no_namenode() || matches!(error, HdfsError::Denied { .. }) => {
                return Err(error);
            }
            Err(error) => repaired.failed.push(named(&group, &error)),
        }
    }
    Ok(repaired)
}

/// An error in the work on a group as it is told: with the group, where it does not name it itself.
pub(crate) fn named(group: &Group, error: &HdfsError) -> String {
    match error {
        HdfsError::Parity(_) | HdfsError::Changed { .. } | HdfsError::NotHandedOver { .. } => {
            error.to_string()
        }
        other => format!("{group}: {other}"),
    }
}

/// The DataNodes in maintenance, whose blocks are not rebuilt; none if they are.
///
/// # Errors
/// `Denied` for all but superusers; those of calls.
pub(crate) async fn resters(namenode: &NameNode, despite: bool) -> Result<Resters, HdfsError> {
    if despite { Ok(Resters::default()) } else { Resters::of(namenode).await }
}

/// Rebuilds what a group lost, and hands it over.
///
/// # Errors
/// `Parity` for blocks that contradict each other, and for too few; `NotHandedOver` if all that are missing may rest; those of calls.
/// What was not handed over is in `repaired`.
pub(crate) async fn repair_group(
    namenode: &NameNode,
    group: &Group,
    resters: &mut Resters,
    repaired: &mut Repaired,
    progress: &mut (dyn FnMut(&RepairedBlock) + Send),
) -> Result<(), HdfsError> {
    let mut now = match refresh(namenode, group).await? {
        Now::Same(now) => *now,
        // Deleted or changed since it was listed: there is nothing to repair any more.
        Now::Changed(_) => return Ok(()),
    };
    let Said { resting, mute } = resters.find(namenode, &mut now).await?;
    for (index, at) in resting {
        repaired
            .resting
            .push(format!("{now}, block {}: DataNode {at}, which is in maintenance, has it", index.0));
    }
    let missing = now.missing();
    if missing.is_empty() {
        return Ok(());
    }
    // Each of these DataNodes has one block of the group at most.
    let may_rest = maintenance::named(&now);
    if !may_rest.is_empty() && may_rest.len() <= mute.len() {
        let indices: Vec<String> = may_rest.iter().map(|index| index.0.to_string()).collect();
        return Err(HdfsError::NotHandedOver {
            what: now.to_string(),
            message: format!(
                "missing blocks ({}) may be on DataNodes in maintenance that do not say what they have ({}); nothing was written \
                 (--despite-maintenance rebuilds them)",
                indices.join(", "),
                mute.join(", ")
            ),
        });
    }
    let (examined, left_out) = rebuild(now.clone(), &missing).await?;
    for index in missing {
        let Some(file) = examined.rebuilt.get(&index) else { continue };
        match hand_over(namenode, &now, index, file, examined.unit_bytes).await {
            Ok(handed_over) => {
                let block = RepairedBlock {
                    path: now.path.clone(),
                    group: now.number(),
                    index: index.0,
                    bytes: now.block_bytes(index),
                    handed_over,
                    read: examined.read.iter().map(|index| index.0).collect(),
                    proved: examined.proves(&now, index),
                    left_out: left_out.keys().map(|index| index.0).collect(),
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

/// Blocks that were left out, each with what is wrong with it.
pub(crate) type LeftOut = BTreeMap<BlockIndex, Fault>;

/// The present blocks that cannot be read, or contradict the others (`Mismatch`).
///
/// # Errors
/// As [`rebuild`].
pub(crate) async fn disagreeing(group: Group) -> Result<LeftOut, HdfsError> {
    rebuild(group, &[]).await.map(|(_, left_out)| left_out)
}

/// Rebuilds blocks from those that agree; the second value are blocks that were left out. Where local repair groups rebuild all,
/// only these are read: that is what such codes are for, and nothing confirms the result then.
///
/// # Errors
/// `Parity` if too few blocks can be read, or if they contradict each other and it cannot be known which is wrong, both with the
/// reasons of those that were left out; `Run` for what is no block's fault; `Io` for the files.
pub(crate) async fn rebuild(group: Group, missing: &[BlockIndex]) -> Result<(Examined, LeftOut), HdfsError> {
    let blocks = GroupBlocks::of(group);
    let group = blocks.group();
    let mut left_out = LeftOut::new();
    loop {
        let without: BTreeSet<_> = left_out.keys().copied().collect();
        let unread = without.union(&far(group, &without, missing)).copied().collect();
        match examine(&blocks, &unread, missing).await {
            Ok(examined) if examined.mismatches.is_empty() => return Ok((examined, left_out)),
            Ok(examined) => {
                let found = examined.suspects;
                let contradicted = left_out.values().any(|fault| fault.kind == FaultKind::Mismatch);
                let one = found.iter().next().copied().filter(|_| found.len() == 1 && !contradicted);
                match one {
                    Some(culprit) => _ = left_out.insert(culprit, contradicts(group, culprit)),
                    None => {
                        let list: Vec<u8> = found.iter().map(|index| index.0).collect();
                        return Err(HdfsError::Parity(format!(
                            "{group}: its blocks contradict each other under valid checksums, and any of {list:?} may \
                             be the wrong one; nothing was handed over{}",
                            reasons(&left_out)
                        )));
                    }
                }
            }
            Err(HdfsError::Run(fault)) => {
                let unreadable = fault.block.filter(|block| !left_out.contains_key(&block.index));
                let Some(block) = unreadable else { return Err(HdfsError::Run(fault)) };
                left_out.insert(block.index, *fault);
            }
            Err(HdfsError::Plan(error)) => {
                return Err(HdfsError::Parity(format!("{group}: {error}{}", reasons(&left_out))));
            }
            Err(error) => return Err(error),
        }
    }
}

fn contradicts(group: &Group, index: BlockIndex) -> Fault {
    let block = Some(BlockId { stripe: StripeId(group.id), index });
    let detail = "it contradicts the other blocks under valid checksums".to_owned();
    Fault { kind: FaultKind::Mismatch, node: NodeId::CLIENT, block, detail }
}

/// Why blocks were left out, as the end of a message.
fn reasons(left_out: &LeftOut) -> String {
    let one =
        |(index, fault): (&BlockIndex, &Fault)| format!("; left out block {}: {}", index.0, fault.detail);
    left_out.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::{datanode, held};
    use crate::transfer;

    #[tokio::test]
    async fn what_cannot_be_rebuilt_is_told_with_its_group_and_why_blocks_were_left_out() {
        let asked =
            transfer::tests::datanode(|block| Err(format!("java.io.IOException: worn {}", block.id as i64)));
        // Block 4 is lost, and no other one can be read.
        let group = held((0..4).map(|index| (index, datanode(asked))));
        let error = rebuild(group.clone(), &[BlockIndex(4)]).await.unwrap_err();
        let told = named(&group, &error);
        assert!(told.starts_with("/f, group -16: cannot rebuild"), "{told}");
        assert_eq!(told.matches("/f, group -16").count(), 1, "{told}");
        let left_out = (0..4).filter(|index| told.contains(&format!("; left out block {index}: ")));
        let reasons = (0..4).filter(|index| told.contains(&format!("worn {}", index - 16)));
        assert_eq!((left_out.count(), reasons.count()), (2, 2), "then too few are left to go on: {told}");
    }

    #[tokio::test]
    async fn what_may_rest_on_a_datanode_in_maintenance_is_left_alone() {
        use prost::Message as _;

        use crate::group::tests::listed;
        use crate::proto::names::{BlockKeys, Datanodes, FileInfo, Locations};

        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut away = datanode(nobody);
        away.admin_state = Some(4);
        let (status, blocks) =
            listed((1..5).map(|index| (index, datanode(([10, 0, 0, 1], index.into()).into()))));
        let group = Group::of("/f", &status, &blocks).unwrap().remove(0);
        let namenode = crate::fake::namenode(&[
            ("getFileInfo", FileInfo { status: Some(status) }.encode_to_vec()),
            ("getBlockLocations", Locations { blocks: Some(blocks) }.encode_to_vec()),
            ("getDatanodeReport", Datanodes { datanodes: vec![away] }.encode_to_vec()),
            ("getBlockKeys", BlockKeys { keys: None }.encode_to_vec()),
        ]);
        let mut resters = resters(&namenode, false).await.unwrap();
        let (mut repaired, mut progress) = (Repaired::default(), |_: &RepairedBlock| {});
        let done = repair_group(&namenode, &group, &mut resters, &mut repaired, &mut progress).await;
        let why = done.unwrap_err().to_string();
        assert!(
            why.contains("/f, group -16: missing blocks (0) may be on DataNodes in maintenance"),
            "{why}"
        );
        assert!(why.contains(&nobody.to_string()), "{why}");
    }

    #[test]
    fn an_error_names_the_group_once() {
        let group = held([]);
        let refused = HdfsError::Unsupported { what: "x".into(), expected: "a".into(), got: "b".into() };
        assert_eq!(named(&group, &refused), "/f, group -16: x: expected a, got b");
        let named_already = HdfsError::Changed { what: group.to_string(), change: "it is gone".into() };
        assert_eq!(named(&group, &named_already), "/f, group -16: it is gone; nothing was handed over");
    }
}
