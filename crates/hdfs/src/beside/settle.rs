//! Staged blocks are brought into HDFS by the safe way, or dropped.
//!
//! Each time the NameNode is asked first. If it lists the index on a DataNode that is not gone, and the copy there is not
//! damaged, the staged block is not needed. The block is compared with the rest of its group, once. If the NameNode lists the
//! index on a DataNode that is gone, it does not know yet, and the block waits; or, after a time that the operator chose, it is
//! told, as readers tell it of corrupt blocks. Of a damaged copy it is told when that was read again. Both only if the staged block
//! is proved.
//! Only if it reports the index missing, and the DataNode beside the staged block is in service and has no index of the group, the
//! agent writes the block there; and it counts when the NameNode lists it. Otherwise it is dropped, and rebuilt beside another
//! DataNode.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::message::{BlockRef, DeleteBlocks, Deleted};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::compare::{Compared, compare};
use super::damage::look_again;
use super::members::{Member, Staged};
use super::memory::{Memory, Work};
use super::rebuild::conduct;
use super::resting::is_lost;
use super::{Block, Event, Shared};
use crate::handover::{COUNTED_WITHIN, Now, POLL, refresh, unit_bytes};
use crate::proto::names::{DatanodeInfo, LocatedBlock};
use crate::store::HandOver;
use crate::token::write_token;
use crate::vigil::{Gone, address, unheard};
use crate::{Group, HdfsError};

/// Staged blocks that are worked on at once. Most of them only wait, which takes two questions to the NameNode; the others have their turn
/// in later ticks.
const MOST_AT_ONCE: usize = 128;

/// How long an agent may take to delete a block.
const DELETED_WITHIN: Duration = Duration::from_secs(10);

/// What is to be done with a staged block.
enum Verdict {
    /// Nothing yet.
    Wait,
    /// It is not needed, or not here: why.
    Drop(String),
    /// The NameNode counts it; whether further blocks confirmed it.
    Counted { proved: bool },
    /// It was not counted, not taken, or wrong: not beside this DataNode again.
    Elsewhere(String),
}

/// Starts on the staged blocks of groups that nobody works on, in turn, as many as may be worked on at once.
pub(super) fn begin(shared: &Arc<Shared>, work: &mut JoinSet<()>) {
    let members = shared.members.alive();
    for (id, node) in shared.members.take_unreadable(&members) {
        let Some(member) = members.get(&node).cloned() else { continue };
        let shared = shared.clone();
        work.spawn(async move {
            // Of no generation: that cannot be read either, and the agent deletes it all the same.
            if let Err(error) = delete(&shared, &member, BlockRef { id, generation: 0 }).await {
                shared.failed("a staged block that cannot be read", error).await;
            }
        });
    }
    let (all, mut room) = {
        let mut memory = shared.memory();
        (memory.in_turn(shared.members.staged()), memory.room(Work::Settle, MOST_AT_ONCE))
    };
    for staged in all {
        if room == 0 {
            break;
        }
        let Some(member) = members.get(&staged.node).cloned() else { continue };
        let (id, group) = {
            let mut memory = shared.memory();
            let group = memory.group_of(staged.held.id).cloned();
            let id = group.as_ref().map_or(staged.held.id.stripe.0, |group| group.id);
            // What was worked on when this list was made may be settled by now.
            let there = shared.members.is_staged(&staged) && (group.is_some() || memory.scanned);
            if !there || memory.rests(id) || !memory.take(id, Work::Settle) {
                continue;
            }
            memory.had_turn(&staged);
            (id, group)
        };
        room -= 1;
        let shared = shared.clone();
        work.spawn(async move {
            match group {
                Some(group) => shared.work_on(id, &group, one(&shared, &group, &staged, &member)).await,
                None => shared.work_on(id, &"a staged block", forgotten(&shared, &staged, &member)).await,
            }
        });
    }
}

/// A staged block of a group that no file has any more.
async fn forgotten(shared: &Shared, staged: &Staged, member: &Member) -> Result<(), HdfsError> {
    drop_staged(shared, staged, member).await?;
    let (stripe, index) = (staged.held.id.stripe.0, staged.held.id.index.0);
    let block = Block { path: String::new(), group: stripe as i64, index };
    shared.tell(Event::Dropped { block, why: "no file has its group any more".into() }).await;
    Ok(())
}

async fn one(shared: &Arc<Shared>, group: &Group, staged: &Staged, member: &Member) -> Result<(), HdfsError> {
    let index = staged.held.id.index;
    let why = match judge(shared, group, staged, member).await? {
        Verdict::Wait => return Ok(()),
        Verdict::Counted { proved } => {
            shared.members.keep_counted(group.block(index).id, &member.datanode);
            let dropped = drop_staged(shared, staged, member).await;
            let (block, datanode) = (group.name(index), member.datanode.clone());
            shared.tell(Event::Counted { block, datanode, proved }).await;
            return dropped;
        }
        Verdict::Drop(why) => why,
        Verdict::Elsewhere(why) => {
            shared.memory().bar(group.id, staged.node);
            why
        }
    };
    drop_staged(shared, staged, member).await?;
    shared.tell(Event::Dropped { block: group.name(index), why }).await;
    Ok(())
}

async fn judge(
    shared: &Arc<Shared>,
    group: &Group,
    staged: &Staged,
    member: &Member,
) -> Result<Verdict, HdfsError> {
    let index = staged.held.id.index;
    let now = match refresh(&shared.namenode, group).await? {
        Now::Same(now) => *now,
        Now::Changed(change) => return Ok(Verdict::Drop(change)),
    };
    shared.memory().renew(now.clone());
    if u64::from(staged.held.generation) != now.block(index).generation {
        return Ok(Verdict::Drop("it is of another generation".into()));
    }
    let members = shared.members.alive();
    look_again(shared, &now, index, &members).await?;
    let there = shared.memory().holder(&now, index);
    if let Some(datanode) = there {
        return Ok(Verdict::Drop(format!("{datanode} has it")));
    }
    let proved = match compare(shared, &now, staged, &members).await? {
        Compared::Sound { proved } => proved,
        Compared::Wrong(why) => return Ok(Verdict::Elsewhere(why)),
    };
    // What cannot be rebuilt from the others is not dropped.
    let (again, unfit) = {
        let memory = shared.memory();
        let again = now.policy.code.recoverable(&memory.absent(&now));
        (again, unfit(&now, &member.datanode, &memory.live, &memory.gone, again))
    };
    match unfit {
        Some(why) if again => return Ok(Verdict::Elsewhere(why)),
        Some(_) => return Ok(Verdict::Wait),
        None => {}
    }
    if now.holders.contains_key(&index) {
        // Its old copy will be deleted, so the new one has to be proved.
        if proved {
            report(shared, &now, index).await?;
        }
        return Ok(Verdict::Wait);
    }
    if !is_lost(shared, &now, index).await? || shared.namenode.safe_mode().await? {
        return Ok(Verdict::Wait);
    }
    Ok(match hand_over(shared, &now, index, staged, member).await? {
        None => Verdict::Counted { proved },
        Some(verdict) => verdict,
    })
}

/// Why the DataNode beside a staged block can no longer have it; `None` if it can. One that leaves may, if the block could not be
/// rebuilt `again`: it serves it, and HDFS copies it away.
fn unfit(group: &Group, datanode: &str, live: &[DatanodeInfo], gone: &Gone, again: bool) -> Option<String> {
    let mut holders = group.holders.values().flatten();
    if holders.any(|holder| address(&holder.datanode) == datanode) {
        return Some(format!("{datanode} has another index of the group by now"));
    }
    if gone.contains_key(datanode) {
        return Some(format!("{datanode} is gone"));
    }
    let leaves = again && live.iter().any(|node| address(node) == datanode && !node.in_service());
    leaves.then(|| format!("{datanode} is being decommissioned, or goes into maintenance"))
}

/// Tells the NameNode of the copies of a block that are bad, if all are of which it may be told.
async fn report(shared: &Shared, group: &Group, index: BlockIndex) -> Result<(), HdfsError> {
    let locations = to_tell(&shared.memory(), group, index, shared.config.report_after);
    if locations.is_empty() || shared.namenode.safe_mode().await? {
        return Ok(());
    }
    let datanodes: Vec<String> = locations.iter().map(address).collect();
    let bad = LocatedBlock { block: group.block(index), locations, ..LocatedBlock::default() };
    shared.namenode.report_bad(bad).await?;
    for datanode in &datanodes {
        shared.memory().told(group.id, index, datanode);
    }
    shared.tell(Event::Reported { block: group.name(index), datanode: datanodes.join(", ") }).await;
    Ok(())
}

/// The DataNodes with copies of a block, if the NameNode may be told of all of them: each copy is surely damaged, and it was not
/// told before; or its DataNode was not heard for as long as the operator chose. Else none.
fn to_tell(
    memory: &Memory,
    group: &Group,
    index: BlockIndex,
    report_after: Option<Duration>,
) -> Vec<DatanodeInfo> {
    let holders = group.holders.get(&index).into_iter().flatten();
    let datanodes: Vec<DatanodeInfo> = holders.map(|holder| DatanodeInfo::clone(&holder.datanode)).collect();
    let silent = |node: &DatanodeInfo| report_after.is_some_and(|after| unheard(&memory.live, node, after));
    // One on its way into maintenance may be silent.
    let silent = |node: &DatanodeInfo| silent(node) && memory.maintenance.at(group, index).is_none();
    let bad = |node: &DatanodeInfo| memory.to_tell(group.id, index, &address(node)) || silent(node);
    if datanodes.iter().all(bad) { datanodes } else { Vec::new() }
}

/// Has the agent write the block to its DataNode; `None` when the NameNode counts it.
async fn hand_over(
    shared: &Shared,
    group: &Group,
    index: BlockIndex,
    staged: &Staged,
    member: &Member,
) -> Result<Option<Verdict>, HdfsError> {
    let token = match shared.namenode.block_keys().await? {
        Some(keys) => Some(write_token(&keys.current, shared.namenode.user(), &group.block(index))?),
        None => None,
    };
    let unit_bytes = Some(unit_bytes(&shared.namenode, group).await? as u32);
    let order = HandOver { pool: group.pool.clone(), datanode: member.datanode.clone(), token, unit_bytes };
    let view = group.view(NodeId::CLIENT, |_| false);
    let plan = kintsu_plan::settle(&view, index, staged.node)?;
    let mut expect = vec![None; usize::from(index.0) + 1];
    expect[usize::from(index.0)] = Some(staged.held.digest);
    let members = [(staged.node, member.clone())].into();
    let ended = conduct(shared, group, &view, &members, (&plan, &expect, &order.label())).await?;
    if let Some(fault) = ended.fault {
        return Ok(Some(Verdict::Elsewhere(fault.detail)));
    }
    let deadline = Instant::now() + COUNTED_WITHIN;
    while Instant::now() < deadline {
        let Now::Same(now) = refresh(&shared.namenode, group).await? else {
            return Ok(Some(Verdict::Drop("the group changed while the block was handed over".into())));
        };
        let holders = now.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
        let mut there = holders.iter().map(|holder| address(&holder.datanode));
        let counted = there.any(|datanode| datanode == member.datanode);
        if counted {
            shared.memory().renew(*now);
            return Ok(None);
        }
        if let Some(other) = holders.first() {
            return Ok(Some(Verdict::Drop(format!("{} has it", address(&other.datanode)))));
        }
        sleep(POLL).await;
    }
    let waited: Duration = COUNTED_WITHIN;
    let why = format!("the NameNode does not count it after {} s", waited.as_secs());
    Ok(Some(Verdict::Elsewhere(why)))
}

/// Has the agent delete the staged block.
async fn drop_staged(shared: &Shared, staged: &Staged, member: &Member) -> Result<(), HdfsError> {
    delete(shared, member, BlockRef { id: staged.held.id, generation: staged.held.generation }).await?;
    shared.memory().dropped(staged);
    shared.members.unstage(staged);
    Ok(())
}

/// Has an agent delete a block of its folder.
///
/// # Errors
/// `Unreachable`, also for an agent that does not answer in time; `Io` if the block is still there.
async fn delete(shared: &Shared, member: &Member, block: BlockRef) -> Result<(), HdfsError> {
    let call = DeleteBlocks { blocks: vec![block], ..DeleteBlocks::default() };
    let unreachable = |error: String| HdfsError::Unreachable {
        what: "agent",
        address: member.control.to_string(),
        error: std::io::Error::other(error),
    };
    let mut agent = shared.conductor.agent(member.control).map_err(|e| unreachable(e.to_string()))?;
    let answer = timeout(DELETED_WITHIN, agent.delete(call)).await;
    let late = |_| unreachable(format!("it did not answer within {} s", DELETED_WITHIN.as_secs()));
    let deleted = answer.map_err(late)?.map_err(|status| unreachable(status.message().to_owned()))?;
    gone(member, deleted.into_inner())
}

/// Whether the blocks are no longer there.
fn gone(member: &Member, deleted: Deleted) -> Result<(), HdfsError> {
    match deleted.failed.into_iter().next() {
        None => Ok(()),
        Some((block, why)) => {
            let what = format!("agent at {}: deleting the staged {}", member.control, block.id);
            Err(HdfsError::io(what, std::io::Error::other(why)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::members::tests::{register, staged};
    use crate::beside::tests::shared;
    use crate::group::tests::{datanode, held};

    fn at(port: u16) -> DatanodeInfo {
        datanode(([10, 0, 0, 1], port).into())
    }

    #[tokio::test]
    async fn a_staged_block_that_is_being_deleted_is_not_deleted_once_more() {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        // Nobody answers there.
        let node = register(&shared.members, "10.0.0.1:1", 11).await;
        shared.members.stage(staged(16, 2, node));
        let mut work = JoinSet::new();
        begin(&shared, &mut work);
        assert!(work.is_empty(), "files were not listed yet");
        shared.memory().list(std::collections::BTreeMap::new());
        begin(&shared, &mut work);
        begin(&shared, &mut work);
        assert_eq!(work.len(), 1);
    }

    #[tokio::test]
    async fn what_an_agent_could_not_delete_is_still_staged() {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        let node = register(&shared.members, "10.0.0.1:1", 11).await;
        let member = shared.members.alive().remove(&node).unwrap();
        let block = BlockRef { id: staged(16, 2, node).held.id, generation: 1001 };
        assert!(gone(&member, Deleted { gone: vec![block], failed: Vec::new() }).is_ok());
        let failed = Deleted { gone: Vec::new(), failed: vec![(block, "the disk is full".into())] };
        assert!(gone(&member, failed).unwrap_err().to_string().contains("the disk is full"));
    }

    #[test]
    fn a_datanode_that_leaves_is_gone_or_has_an_index_by_now_does_not_get_the_block() {
        let (group, mut live) = (held([(0, at(1)), (1, at(2))]), vec![at(1), at(2), at(3), at(4)]);
        let gone = Gone::from([("10.0.0.1:4".to_owned(), "it refuses connections".to_owned())]);
        let why = |live: &[DatanodeInfo], datanode| unfit(&group, datanode, live, &gone, true);
        assert!(why(&live, "10.0.0.1:2").unwrap().contains("has another index"));
        assert!(why(&live, "10.0.0.1:4").unwrap().contains("is gone"));
        assert_eq!(why(&live, "10.0.0.1:3"), None);
        // Decommissioning, decommissioned, going into maintenance, in maintenance.
        for state in 1..=4 {
            live[2].admin_state = Some(state);
            assert!(why(&live, "10.0.0.1:3").unwrap().contains("is being decommissioned"), "{state}");
            assert_eq!(unfit(&group, "10.0.0.1:3", &live, &gone, false), None);
        }
        live[2].admin_state = Some(0);
        live[1].admin_state = Some(1);
        assert_eq!(why(&live, "10.0.0.1:3"), None, "another one leaves");
    }

    #[test]
    fn the_namenode_is_told_of_a_block_if_each_of_its_copies_is_surely_damaged_or_silent() {
        let index = BlockIndex(0);
        let (one, two) = (held([(0, at(1)), (1, at(2))]), held([(0, at(1)), (0, at(3)), (1, at(2))]));
        let heard = |node: DatanodeInfo, last_update| DatanodeInfo { last_update: Some(last_update), ..node };
        let live = vec![heard(at(1), 60_000), heard(at(2), 60_000), heard(at(3), 40_000)];
        let ports = |memory: &Memory, group: &Group, after: Option<u64>| -> Vec<u32> {
            let told = to_tell(memory, group, index, after.map(Duration::from_secs));
            told.iter().map(|node| node.id.transfer_port).collect()
        };
        let mut memory = Memory::default();
        memory.renew(two.clone());
        memory.live = live;
        assert!(ports(&memory, &one, Some(10)).is_empty(), "it was heard, and nothing is known of a damage");
        memory.damaged(two.id, index, "10.0.0.1:1");
        assert!(ports(&memory, &one, None).is_empty(), "it was seen once");
        memory.damaged(two.id, index, "10.0.0.1:1");
        assert_eq!(ports(&memory, &one, None), [1]);
        assert!(ports(&memory, &two, None).is_empty(), "another copy may be whole");
        assert!(ports(&memory, &two, Some(30)).is_empty());
        assert_eq!(ports(&memory, &two, Some(20)), [1, 3]);
        memory.told(two.id, index, "10.0.0.1:1");
        assert!(ports(&memory, &one, None).is_empty(), "once is enough");
        let none = held([(1, at(2))]);
        assert!(ports(&memory, &none, None).is_empty(), "it is missing already");
    }
}
