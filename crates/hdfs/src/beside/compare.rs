//! A staged block is compared with the rest of its group before it is handed over: nothing in HDFS ever does that, so a
//! block rebuilt from wrong bytes under valid checksums would be kept for ever.
//!
//! The agents compute one stored block from all other stored ones ([`kintsu_plan::compare`]), and once more from these and the staged
//! block; the agent at the end of each path compares. Once would not do: a staged block that was rebuilt from a wrong one is wrong in the
//! same places, and for some choices of helpers both errors cancel in the sum. Only if one of them fails the coordinator itself reads
//! the group, to find out which block is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, Sink};
use kintsu_plan::{Plan, StripeView, Topology};
use kintsu_store::Digest;
use kintsu_wire::message::{Fault, FaultKind};

use super::damage::{leave_out, rotten, unusable};
use super::members::{Member, Staged};
use super::rebuild::conduct;
use super::{Event, Shared, scene};
use crate::objects::bad_blocks;
use crate::repair::disagreeing;
use crate::store::COMPARE;
use crate::vigil::address;
use crate::{Group, HdfsError};

/// What a comparison says.
pub(super) enum Compared {
    /// Nothing speaks against the block. `proved`: more blocks than needed are there, and agree with it.
    Sound { proved: bool },
    /// It is not what the others say, which agree, or its bytes do not match their checksums: it is of no use to anybody.
    Wrong(String),
    /// It cannot be read now, which proves nothing.
    Unread(String),
}

/// Whether a fault proves that the bytes of a staged block are wrong. Any other one says nothing of them.
pub(super) fn has_wrong_bytes(fault: &Fault, staged: &Staged) -> bool {
    fault.kind == FaultKind::Corrupt && fault.node == staged.node && fault.block == Some(staged.held.id)
}

/// Compares a staged block with its group: once, and again when a block can be read that took no part, as its agent was not
/// there or its DataNode was gone. Where a digest was recorded, that proves it.
///
/// # Errors
/// `Parity` if the stored blocks contradict each other and it cannot be known which is wrong; those of calls and runs.
pub(super) async fn compare(
    shared: &Arc<Shared>,
    group: &Group,
    staged: &Staged,
    members: &BTreeMap<NodeId, Member>,
) -> Result<Compared, HdfsError> {
    let id = staged.held.id;
    if let Some(recorded) = group.digest(id.index) {
        return Ok(match recorded == Digest(staged.held.digest) {
            true => Compared::Sound { proved: true },
            false => Compared::Wrong(format!("its digest is not {recorded}, which was recorded")),
        });
    }
    let mut expect = vec![None; usize::from(id.index.0) + 1];
    expect[usize::from(id.index.0)] = Some(staged.held.digest);
    loop {
        let (view, topology) = seen(shared, group, staged, members);
        let there = view.available();
        if let Some(proved) = shared.memory().compared(staged, &there) {
            return Ok(Compared::Sound { proved });
        }
        let sound = |proved| {
            shared.memory().keep_compared(staged, &there, proved);
            Ok(Compared::Sound { proved })
        };
        let Some((at, plans)) = planned(group, staged, &view, &topology)? else { return sound(false) };
        let [without, with] = &plans;
        let run = async |(view, plan): &(StripeView, Plan)| {
            conduct(shared, group, view, members, (plan, &expect, COMPARE)).await
        };
        let (without, with) = tokio::try_join!(run(without), run(with))?;
        let Some(fault) = without.fault.or(with.fault) else { return sound(true) };
        match unusable(&fault, &view) {
            None => return Err(fault.into()),
            Some(index) if index == id.index => {
                return Ok(match has_wrong_bytes(&fault, staged) {
                    true => Compared::Wrong(fault.detail),
                    false => Compared::Unread(fault.detail),
                });
            }
            Some(index) if index != at || fault.kind != FaultKind::Corrupt => {
                leave_out(shared, group, members, &fault, index).await;
            }
            // Either its bytes are rotten, or some block is wrong.
            Some(_) => {
                if !wrong(shared, group, &view, id.index).await? {
                    let why = "it contradicts the other blocks of its group, which agree".to_owned();
                    return Ok(Compared::Wrong(why));
                }
            }
        }
    }
}

/// The group as it can be read now, with the staged block in its place, and the agents.
fn seen(
    shared: &Shared,
    group: &Group,
    staged: &Staged,
    members: &BTreeMap<NodeId, Member>,
) -> (StripeView, Topology) {
    let (live, gone, bad) = {
        let memory = shared.memory();
        (memory.live.clone(), memory.gone.clone(), memory.bad(group.id))
    };
    let topology = scene::topology(members, &live, &gone);
    let mut view = scene::damaged(group, &[], members, &topology, &BTreeSet::new(), &[]).view;
    let homes = bad.into_iter().map(|index| (index, None));
    for (index, home) in homes.chain([(staged.held.id.index, Some(staged.node))]) {
        set_home(&mut view, index, home);
    }
    (view, topology)
}

fn set_home(view: &mut StripeView, index: BlockIndex, home: Option<NodeId>) {
    if let Some(place) = view.homes.get_mut(usize::from(index.0)) {
        *place = home;
    }
}

/// Plans that compute one stored block: from all other stored blocks, and with the staged one too. Each with what it may read.
type Plans = [(StripeView, Plan); 2];

/// The block to compare, and the plans that compute it. `None` if no more blocks are stored than needed: those from which the
/// staged block was computed agree with it whatever they are.
fn planned(
    group: &Group,
    staged: &Staged,
    view: &StripeView,
    topology: &Topology,
) -> Result<Option<(BlockIndex, Plans)>, HdfsError> {
    let index = staged.held.id.index;
    let mut stored = view.clone();
    set_home(&mut stored, index, None);
    // A parity block is as long as any, so all bytes are compared.
    let there = stored.available();
    for at in there.into_iter().rev().filter(|other| usize::from(other.0) >= group.policy.code.k()) {
        // No digest is known of a block of HDFS, so not by `Sink::Compare`: the order to compare bytes is in the label.
        let plan = |view: &StripeView| kintsu_plan::compare(view, topology, at, Sink::Block);
        if let (Some(without), Some(with)) = (plan(&stored)?, plan(view)?) {
            return Ok(Some((at, [(stored, without), (view.clone(), with)])));
        }
    }
    Ok(None)
}

/// Says that a stored block cannot be read, or is wrong.
pub(super) fn tell(shared: &Shared, group: &Group, index: BlockIndex) {
    let holder = group.holders.get(&index).and_then(|holders| holders.first());
    let datanode = holder.map(|holder| address(&holder.datanode)).unwrap_or_default();
    shared.tell(Event::Wrong { block: group.name(index), datanode });
}

/// Whether some of the stored blocks that took part cannot be read, or are wrong: these are not used any more. The coordinator reads all of
/// them.
///
/// # Errors
/// `Parity` if they contradict each other and it cannot be known which is wrong; those of calls. The group is left alone then.
pub(super) async fn wrong(
    shared: &Arc<Shared>,
    group: &Group,
    view: &StripeView,
    staged: BlockIndex,
) -> Result<bool, HdfsError> {
    let mut stored = group.clone();
    let takes_part = |index: &BlockIndex| view.available().contains(index) && *index != staged;
    stored.holders.retain(|index, _| takes_part(index));
    // Recorded digests tell which blocks are wrong, also where no more than needed are left.
    let looked: Result<BTreeMap<BlockIndex, Option<FaultKind>>, _> = match group.stored.is_some() {
        true => bad_blocks(&stored).await.map(|bad| {
            let wrong = bad.into_iter().filter(|(_, fault)| fault.kind == FaultKind::Corrupt);
            wrong.map(|(index, _)| (index, None)).collect()
        }),
        false => disagreeing(stored)
            .await
            .map(|left_out| left_out.into_iter().map(|(index, fault)| (index, Some(fault.kind))).collect()),
    };
    let found = match looked {
        Ok(found) => found,
        Err(error) => {
            shared.memory().give_up(group.id);
            return Err(error);
        }
    };
    for (index, kind) in &found {
        shared.memory().wrong(group.id, *index);
        if *kind == Some(FaultKind::Corrupt) {
            rotten(shared, group, *index);
        }
        tell(shared, group, *index);
    }
    Ok(!found.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::members::tests::{register, staged};
    use crate::beside::tests::shared;
    use crate::group::tests::{datanode, held};

    #[tokio::test]
    async fn a_block_is_compared_without_those_whose_agents_cannot_be_reached() {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let group = held((1..5).map(|index| (index, at(index.into()))));
        for port in 1..6 {
            register(&shared.members, &format!("10.0.0.1:{port}"), 11).await;
        }
        shared.memory().live = (1..6).map(at).collect();
        shared.memory().renew(group.clone());
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut members = shared.members.alive();
        members.values_mut().for_each(|member| member.control = nobody);
        let (node, _) = members.iter().find(|(_, member)| member.datanode == "10.0.0.1:5").unwrap();
        let block = staged(group.id, 0, *node);
        let compared = compare(&shared, &group, &block, &members).await.unwrap();
        assert!(matches!(compared, Compared::Sound { proved: false }), "no more are left than needed");
        assert_eq!(shared.memory().bad(group.id), [BlockIndex(4)].into(), "it was not read");
        assert_eq!(shared.memory().lost(&group), [BlockIndex(0)], "that says nothing of the block");
    }

    #[test]
    fn only_wrong_bytes_prove_that_a_staged_block_is_of_no_use() {
        let staged = staged(16, 2, NodeId(1));
        let proved = |kind, node| {
            let fault = Fault { kind, node, block: Some(staged.held.id), detail: String::new() };
            has_wrong_bytes(&fault, &staged)
        };
        assert!(proved(FaultKind::Corrupt, NodeId(1)) && !proved(FaultKind::Corrupt, NodeId(2)));
        for kind in [FaultKind::Missing, FaultKind::Stale, FaultKind::Invalid, FaultKind::Io] {
            assert!(!proved(kind, NodeId(1)), "{kind:?}");
        }
    }
}
