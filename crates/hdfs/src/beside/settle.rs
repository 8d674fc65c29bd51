//! Staged blocks are brought into HDFS by the safe way, or dropped.
//!
//! Each time the NameNode is asked first. If it lists the index on a DataNode that is not gone, and the copy there is not
//! damaged, the staged block is not needed; where it may be the last copy, that DataNode has to say so too (`keep`). The block is compared with the rest of its group, once. If the NameNode lists the
//! index on a DataNode that is gone, it does not know yet, and the block waits; or, after a time that the operator chose, it is
//! told, as readers tell it of corrupt blocks. Of a damaged copy it is told when that was read again. Both only if the staged block
//! is proved.
//! Only if it reports the index missing, and the DataNode beside the staged block is in service and has no index of the group, the
//! agent writes the block there; and it counts when the NameNode lists it. A comparison may read whole blocks over the network, so the
//! NameNode is asked all this once more before it is told anything, and before anything is written. What cannot be handed over is
//! dropped, and rebuilt beside another DataNode, if it can be rebuilt (`keep`).

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::message::{BlockRef, DeleteBlocks, Deleted};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::compare::{Compared, compare, has_wrong_bytes};
use super::damage::look_again;
use super::keep::{again, has_it, keep, nobody_needs};
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
#[derive(Debug)]
enum Verdict {
    /// Nothing yet.
    Wait,
    /// Nobody needs it: why.
    Drop(String),
    /// Its bytes are wrong: why. It is rebuilt beside another DataNode.
    Wrong(String),
    /// The NameNode counts it; whether further blocks confirmed it.
    Counted { proved: bool },
    /// It was not counted or not taken here, or could not be `read`: why. It is rebuilt beside another DataNode, if it can be.
    Elsewhere { why: String, read: bool },
    /// Its group is not as it was, or a DataNode is listed with it, but somebody may need it: why.
    Keep(String),
}

/// What comes next for a staged block that nothing speaks against.
enum Step {
    /// A DataNode is listed with the index.
    Needless(String),
    /// The DataNode beside it can no longer have it: why.
    Unfit(String),
    /// The NameNode lists a lost copy.
    Wait,
    /// So it does, and may be told that it is lost.
    Report,
    /// The NameNode reports the index missing.
    HandOver,
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
                shared.failed("a staged block that cannot be read", error);
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
            let there =
                shared.members.is_staged(&staged) && (group.is_some() || memory.no_file_has(staged.held.id));
            let rests = memory.rests(id, Work::Settle) || memory.is_held_back(&staged);
            if !there || rests || !memory.take(id, Work::Settle) {
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
    shared.tell(Event::Dropped { block, why: "no file has its group any more".into() });
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
            shared.tell(Event::Counted { block, datanode, proved });
            return dropped;
        }
        Verdict::Drop(why) => why,
        Verdict::Wrong(why) => {
            shared.memory().bar(group.id, staged.node);
            why
        }
        Verdict::Elsewhere { why, read } => {
            if !spare(shared, group, staged).await? {
                keep(shared, group, staged, read, &why);
                return Ok(());
            }
            shared.memory().bar(group.id, staged.node);
            why
        }
        Verdict::Keep(why) => {
            keep(shared, group, staged, true, &why);
            return Ok(());
        }
    };
    drop_staged(shared, staged, member).await?;
    shared.tell(Event::Dropped { block: group.name(index), why });
    Ok(())
}

/// Whether a staged block that cannot be handed over may be dropped, by what the NameNode says now.
async fn spare(shared: &Shared, group: &Group, staged: &Staged) -> Result<bool, HdfsError> {
    Ok(match present(shared, group, staged).await? {
        Ok(now) => {
            let there = shared.memory().holder(&now, staged.held.id.index);
            match there {
                Some(datanode) => has_it(shared, &now, staged, &datanode).await?,
                None => again(shared, &now, staged),
            }
        }
        Err(verdict) => matches!(verdict, Verdict::Drop(_)),
    })
}

/// What follows for a staged block when a DataNode that is there is listed with the index.
async fn listed_on(
    shared: &Shared,
    group: &Group,
    staged: &Staged,
    datanode: &str,
) -> Result<Verdict, HdfsError> {
    Ok(match has_it(shared, group, staged, datanode).await? {
        true => Verdict::Drop(format!("{datanode} has it")),
        false => Verdict::Keep(format!("{datanode} is listed with it, and it is not sure that it has it")),
    })
}

/// The group as it is now; or what follows for a staged block of it, if it is not as it was.
async fn present(
    shared: &Shared,
    group: &Group,
    staged: &Staged,
) -> Result<Result<Group, Verdict>, HdfsError> {
    let now = match refresh(&shared.namenode, group).await? {
        Now::Same(now) => *now,
        Now::Changed(change) => {
            let gone = nobody_needs(shared, group, staged).await?;
            return Ok(Err(if gone { Verdict::Drop(change) } else { Verdict::Keep(change) }));
        }
    };
    shared.memory().renew(now.clone());
    Ok(match u64::from(staged.held.generation) == now.block(staged.held.id.index).generation {
        true => Ok(now),
        false => Err(Verdict::Drop("it is of another generation".into())),
    })
}

async fn judge(
    shared: &Arc<Shared>,
    group: &Group,
    staged: &Staged,
    member: &Member,
) -> Result<Verdict, HdfsError> {
    let index = staged.held.id.index;
    let mut now = match present(shared, group, staged).await? {
        Ok(now) => now,
        Err(verdict) => return Ok(verdict),
    };
    let members = shared.members.alive();
    look_again(shared, &now, index, &members).await?;
    let there = shared.memory().holder(&now, index);
    if let Some(datanode) = there {
        return listed_on(shared, &now, staged, &datanode).await;
    }
    let proved = match compare(shared, &now, staged, &members).await? {
        Compared::Sound { proved } => proved,
        Compared::Wrong(why) => return Ok(Verdict::Wrong(why)),
        Compared::Unread(why) => return Ok(Verdict::Elsewhere { why, read: false }),
    };
    // Most blocks only wait, and that needs no further question.
    let mut next = step(shared, &now, staged, member, proved);
    if matches!(next, Step::Report | Step::HandOver) {
        let lost = matches!(next, Step::Report) || is_lost(shared, &now, index).await?;
        if !lost || shared.namenode.safe_mode().await? {
            return Ok(Verdict::Wait);
        }
        now = match present(shared, group, staged).await? {
            Ok(now) => now,
            Err(verdict) => return Ok(verdict),
        };
        next = step(shared, &now, staged, member, proved);
    }
    match next {
        Step::Needless(datanode) => return listed_on(shared, &now, staged, &datanode).await,
        Step::Unfit(why) => return Ok(Verdict::Elsewhere { why, read: true }),
        Step::Wait => return Ok(Verdict::Wait),
        Step::Report => {
            report(shared, &now, index).await?;
            return Ok(Verdict::Wait);
        }
        Step::HandOver => {}
    }
    Ok(match hand_over(shared, &now, index, staged, member).await? {
        None => Verdict::Counted { proved },
        Some(verdict) => verdict,
    })
}

/// What comes next for a staged block of a group that is so now. `proved`: whether further blocks confirmed it.
fn step(shared: &Shared, group: &Group, staged: &Staged, member: &Member, proved: bool) -> Step {
    let (index, again) = (staged.held.id.index, again(shared, group, staged));
    let memory = shared.memory();
    if let Some(datanode) = memory.holder(group, index) {
        return Step::Needless(datanode);
    }
    if let Some(why) = unfit(group, &member.datanode, &memory.live, &memory.gone, again) {
        return Step::Unfit(why);
    }
    if !group.holders.contains_key(&index) {
        return Step::HandOver;
    }
    // Its old copy will be deleted, so the new one has to be proved.
    match proved && !to_tell(&memory, group, index, shared.config.report_after).is_empty() {
        true => Step::Report,
        false => Step::Wait,
    }
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

/// Tells the NameNode of the copies of a block that are bad.
async fn report(shared: &Shared, group: &Group, index: BlockIndex) -> Result<(), HdfsError> {
    let locations = to_tell(&shared.memory(), group, index, shared.config.report_after);
    let datanodes: Vec<String> = locations.iter().map(address).collect();
    let bad = LocatedBlock { block: group.block(index), locations, ..LocatedBlock::default() };
    shared.namenode.report_bad(bad).await?;
    for datanode in &datanodes {
        shared.memory().told(group.id, index, datanode);
    }
    shared.tell(Event::Reported { block: group.name(index), datanode: datanodes.join(", ") });
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
    match ended.fault {
        None => {}
        Some(fault) if has_wrong_bytes(&fault, staged) => return Ok(Some(Verdict::Wrong(fault.detail))),
        Some(fault) => return Ok(Some(Verdict::Elsewhere { why: fault.detail, read: true })),
    }
    let deadline = Instant::now() + COUNTED_WITHIN;
    while Instant::now() < deadline {
        let now = match present(shared, group, staged).await? {
            Ok(now) => now,
            Err(verdict) => return Ok(Some(verdict)),
        };
        let mut there = now.holders.get(&index).into_iter().flatten();
        if there.any(|holder| address(&holder.datanode) == member.datanode) {
            return Ok(None);
        }
        let other = shared.memory().holder(&now, index);
        if let Some(other) = other {
            return listed_on(shared, &now, staged, &other).await.map(Some);
        }
        sleep(POLL).await;
    }
    let why = format!("the NameNode does not count it after {} s", COUNTED_WITHIN.as_secs());
    Ok(Some(Verdict::Elsewhere { why, read: true }))
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
    use prost::Message as _;

    use super::*;
    use crate::NameNode;
    use crate::beside::members::tests::{register, staged};
    use crate::beside::tests::shared;
    use crate::fake::namenode_that;
    use crate::group::tests::{datanode, held, listed};
    use crate::proto::names::{
        BlockKeys, FileInfo, FileStatus, LocatedBlocks, Locations, SafeMode, ServerDefaults,
    };
    use crate::transfer;
    use crate::walk::Scan;

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
        let id = crate::block_id(staged(16, 2, node).held.id) as u64;
        for _ in 0..2 {
            assert!(work.is_empty(), "it may have been renamed while files were listed");
            let nothing = Scan { unmet: [id].into(), all: true, ..Scan::default() };
            shared.memory().list(nothing, &shared.members.staged());
            begin(&shared, &mut work);
        }
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

    /// A NameNode with one file of one group, whose blocks it lists on these DataNodes, by index and port: the last of these lists from then
    /// on. It forgets the file after so many questions. And the group as it is first.
    fn with_file(lists: &'static [&'static [(u8, u16)]], forgets: usize) -> (NameNode, Group) {
        let list = |list: &&[(u8, u16)]| listed(list.iter().map(|(index, port)| (*index, at(*port)))).1;
        with_lists(lists.iter().map(list).collect(), forgets)
    }

    /// The same with these lists.
    fn with_lists(lists: Vec<LocatedBlocks>, forgets: usize) -> (NameNode, Group) {
        let file = move |list: usize| {
            let status = FileStatus { file_id: Some(7), ..listed([]).0 };
            (status, lists[list.min(lists.len() - 1)].clone())
        };
        let (status, blocks) = file(0);
        let group = Group::of("/f", &status, &blocks).unwrap().remove(0);
        let namenode = namenode_that(move |method, before| match method {
            "getFileInfo" => Some(FileInfo { status: (before < forgets).then(|| file(0).0) }.encode_to_vec()),
            "getBlockLocations" => Some(Locations { blocks: Some(file(before).1) }.encode_to_vec()),
            "setSafeMode" => Some(SafeMode { on: false }.encode_to_vec()),
            "getBlockKeys" => Some(BlockKeys { keys: None }.encode_to_vec()),
            "getServerDefaults" => Some(ServerDefaults::default().encode_to_vec()),
            _ => None,
        });
        (namenode, group)
    }

    /// Beside the DataNode with port 9, index 0 of the group is staged on an agent that nobody reaches.
    async fn with_staged(shared: &Shared, group: &Group) -> (Staged, Member) {
        let node = register(&shared.members, "10.0.0.1:9", 11).await;
        let block = staged(group.id, 0, node);
        shared.members.stage(block.clone());
        shared.memory().list(
            Scan { groups: [(group.id, group.clone())].into(), ..Scan::default() },
            &shared.members.staged(),
        );
        shared.memory().live = (1..=9).map(at).collect();
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut member = shared.members.alive().remove(&node).unwrap();
        member.control = nobody;
        (block, member)
    }

    #[tokio::test]
    async fn a_block_that_cannot_be_handed_over_is_dropped_only_if_it_can_be_rebuilt() {
        let (namenode, group) = with_file(&[&[(3, 4), (4, 5)]], usize::MAX);
        let (shared, mut happens) = shared(namenode);
        let (block, member) = with_staged(&shared, &group).await;
        for news in [true, false] {
            one(&shared, &group, &block, &member).await.unwrap();
            assert!(shared.members.is_staged(&block) && shared.memory().is_held_back(&block));
            let told = happens.try_recv();
            assert_eq!(
                matches!(told, Ok(Event::Failed { why, .. }) if why.contains("the rebuilt block is kept")),
                news
            );
        }
        // With one more stored block it can be; nobody is there who would delete it.
        let (namenode, group) = with_file(&[&[(1, 2), (3, 4), (4, 5)]], usize::MAX);
        let (shared, _happens) = crate::beside::tests::shared(namenode);
        let (block, member) = with_staged(&shared, &group).await;
        let tried = one(&shared, &group, &block, &member).await.unwrap_err();
        assert!(matches!(tried, HdfsError::Unreachable { what: "agent", .. }), "{tried}");
        assert!(shared.memory().barred(group.id).contains(&block.node));
    }

    #[tokio::test]
    async fn the_namenode_is_asked_once_more_when_the_block_was_compared() {
        // Before the hand-over somebody else brought the block, or the file was deleted.
        const OTHERS: [(u8, u16); 3] = [(1, 2), (3, 4), (4, 5)];
        let (namenode, group) = with_file(&[&OTHERS, &[(0, 8), (1, 2), (3, 4), (4, 5)]], usize::MAX);
        let (shared, _happens) = shared(namenode);
        let (block, member) = with_staged(&shared, &group).await;
        let verdict = judge(&shared, &group, &block, &member).await.unwrap();
        assert!(matches!(&verdict, Verdict::Drop(why) if why == "10.0.0.1:8 has it"), "{verdict:?}");
        let (namenode, group) = with_file(&[&[(3, 4), (4, 5)]], 1);
        let (shared, _happens) = crate::beside::tests::shared(namenode);
        let (block, member) = with_staged(&shared, &group).await;
        let verdict = judge(&shared, &group, &block, &member).await.unwrap();
        assert!(matches!(&verdict, Verdict::Drop(why) if why == "its file was deleted"), "{verdict:?}");
    }

    #[tokio::test]
    async fn what_may_be_the_last_copy_is_dropped_only_if_a_datanode_says_that_it_has_another_and_hdfs_knows_of_no_bad_one()
     {
        let says = |answer: Result<Vec<u8>, &'static str>| {
            transfer::tests::datanode(move |_| answer.clone().map_err(str::to_owned))
        };
        let absent = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: Replica not found";
        let waits = "java.io.IOException: Replica is not readable";
        let has = || says(Ok(vec![5; 100]));
        for (on, corrupt, dropped) in [
            (has(), false, true),
            (has(), true, false),
            (says(Err(absent)), false, false),
            (says(Err(waits)), false, false),
        ] {
            let mut lists = listed([(0, datanode(on)), (3, at(4)), (4, at(5))]).1;
            lists.blocks[0].corrupt = corrupt;
            let (namenode, group) = with_lists(vec![lists], usize::MAX);
            let (shared, _happens) = shared(namenode);
            let (block, member) = with_staged(&shared, &group).await;
            let verdict = judge(&shared, &group, &block, &member).await.unwrap();
            assert_eq!(matches!(verdict, Verdict::Drop(_)), dropped, "{verdict:?}");
            assert_eq!(matches!(verdict, Verdict::Keep(_)), !dropped, "{verdict:?}");
            assert_eq!(spare(&shared, &group, &block).await.unwrap(), dropped);
        }
        // Of all blocks that are listed too few are good.
        let mut lists = listed((0..5).map(|index| (index, at(u16::from(index) + 1)))).1;
        lists.blocks[0].corrupt = true;
        let (namenode, group) = with_lists(vec![lists], usize::MAX);
        let (shared, _happens) = shared(namenode);
        let (block, member) = with_staged(&shared, &group).await;
        let verdict = judge(&shared, &group, &block, &member).await.unwrap();
        assert!(matches!(verdict, Verdict::Keep(_)), "{verdict:?}");
    }

    #[tokio::test]
    async fn a_file_that_is_not_found_by_its_path_may_have_another_name() {
        let (namenode, group) = with_file(&[&[(3, 4), (4, 5)]], 0);
        let (shared, _happens) = shared(namenode);
        let group = Group { file_id: 0, ..group };
        let (block, member) = with_staged(&shared, &group).await;
        let verdict = judge(&shared, &group, &block, &member).await.unwrap();
        assert!(matches!(verdict, Verdict::Keep(_)), "{verdict:?}");
    }
}
