//! Tests of what a coordinator remembers.

use kintsu_wire::message::HeldBlock;

use super::*;
use crate::group::tests::{datanode, held};
use crate::vigil::Sight;

/// As if so much time had passed.
pub(crate) fn later(memory: &mut Memory, by: Duration) {
    let Memory { resting, unbuilt, barred, bad, silent, damaged, held_back, .. } = memory;
    let all = resting.values_mut().chain(unbuilt.values_mut()).chain(barred.values_mut());
    let all = all
        .chain(bad.values_mut())
        .chain(silent.values_mut())
        .chain(held_back.values_mut().map(|held| &mut held.until));
    let damages = damaged.values_mut().flat_map(BTreeMap::values_mut);
    let times = damages.flat_map(|damage| [&mut damage.seen, &mut damage.looked]);
    all.chain(times).for_each(|time| *time -= by);
}

/// A scan of all files that found these groups.
pub(crate) fn found<const N: usize>(groups: [Group; N]) -> Scan {
    let groups = groups.into_iter().map(|group| (group.id, group)).collect();
    Scan { groups, all: true, ..Scan::default() }
}

/// A group whose index 2 is on the DataNode with port 3, and on further ones.
fn group_of(also: &[u16]) -> Group {
    let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
    let all = (0..5).map(|index| (index, at(u16::from(index) + 1)));
    held(all.chain(also.iter().map(|port| (2, at(*port)))))
}

const DAMAGED: (BlockIndex, &str) = (BlockIndex(2), "10.0.0.1:3");

#[test]
fn a_damaged_copy_counts_as_lost_until_it_is_whole_or_elsewhere() {
    let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
    memory.list(found([group.clone()]), &AllStaged::new());
    assert!(memory.lost(&group).is_empty());
    assert!(memory.damaged(group.id, index, on), "it is news");
    assert!(!memory.damaged(group.id, index, on));
    assert_eq!((memory.lost(&group), memory.bad(group.id)), (vec![index], [index].into()));
    // Another copy: the index is not lost, and while it is listed in both places the damage is remembered.
    let twice = group_of(&[9]);
    memory.renew(twice.clone());
    assert_eq!(memory.holder(&twice, index).as_deref(), Some("10.0.0.1:9"));
    assert!(memory.lost(&twice).is_empty());
    memory.gone.insert("10.0.0.1:9".into(), "silent".into());
    assert_eq!(memory.lost(&twice), [index]);
    memory.whole(group.id, index, on);
    assert!(memory.lost(&twice).is_empty() && memory.bad(group.id).is_empty());
    // Only there, and then elsewhere alone; a scan finds the same.
    memory.gone.clear();
    let mut moved = group_of(&[9]);
    moved.holders.get_mut(&index).unwrap().remove(0);
    for by_scan in [false, true] {
        memory.renew(group.clone());
        memory.damaged(group.id, index, on);
        match by_scan {
            true => _ = memory.list(found([moved.clone()]), &AllStaged::new()),
            false => memory.renew(moved.clone()),
        }
        memory.renew(group.clone());
        assert!(memory.lost(&group).is_empty(), "it may be another copy that is there again");
    }
    memory.damaged(group.id, index, on);
    memory.list(found([]), &AllStaged::new());
    assert!(memory.lost(&group).is_empty(), "its file was deleted");
}

#[test]
fn what_rests_on_a_datanode_in_maintenance_is_absent_and_not_lost() {
    let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
    let mut unlisted = group.clone();
    unlisted.holders.remove(&index);
    let maintenance = vec![datanode(([10, 0, 0, 1], 3).into())];
    memory.maintenance.now(&Sight { maintenance, ..Sight::default() });
    for by_scan in [false, true] {
        memory.list(found([group.clone()]), &AllStaged::new());
        match by_scan {
            true => _ = memory.list(found([unlisted.clone()]), &AllStaged::new()),
            false => memory.renew(unlisted.clone()),
        }
        assert_eq!((memory.absent(&unlisted), memory.lost(&unlisted)), (vec![index], vec![]));
    }
    // Its copy is damaged, and the NameNode knows.
    memory.renew(group.clone());
    memory.damaged(group.id, index, on);
    assert_eq!(memory.lost(&group), [index]);
    memory.renew(unlisted.clone());
    assert_eq!(memory.lost(&unlisted), [index]);
}

#[test]
fn the_namenode_is_told_once_and_only_of_a_copy_that_was_looked_at_again() {
    let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
    memory.renew(group.clone());
    memory.damaged(group.id, index, on);
    later(&mut memory, LONG_REST);
    memory.renew(group.clone());
    assert!(memory.lost(&group).is_empty(), "it was seen once, and nobody looked again");
    memory.damaged(group.id, index, on);
    assert!(memory.looks_due(group.id, index).is_empty(), "a moment ago");
    assert!(!memory.to_tell(group.id, index, on));
    later(&mut memory, REST);
    assert_eq!(memory.looks_due(group.id, index), [on]);
    assert!(memory.looks_due(group.id, index).is_empty(), "somebody looks");
    memory.damaged(group.id, index, on);
    assert!(memory.to_tell(group.id, index, on));
    later(&mut memory, REST);
    assert!(memory.looks_due(group.id, index).is_empty(), "it is sure");
    memory.told(group.id, index, on);
    assert!(!memory.to_tell(group.id, index, on));
    later(&mut memory, LONG_REST);
    assert_eq!(memory.looks_due(group.id, index), [on]);
    assert_eq!(memory.lost(&group), [index]);
    later(&mut memory, WRONG_FOR);
    memory.renew(group.clone());
    assert!(memory.lost(&group).is_empty(), "nobody could look for long");
    memory.damaged(group.id, index, on);
    assert!(!memory.to_tell(group.id, index, on), "what was forgotten is not sure");
}

#[test]
fn a_block_is_compared_again_when_another_can_be_read() {
    let (mut memory, [a, b, c]) = (Memory::default(), [0, 1, 2].map(BlockIndex));
    let staged = |digest| {
        let held = HeldBlock { id: block(16, c), generation: 1001, len: 7, digest: [digest; 16] };
        Staged { node: NodeId(1), held }
    };
    memory.keep_compared(&staged(1), &[a, c], false);
    assert_eq!(memory.compared(&staged(1), &[c]), Some(false));
    assert_eq!(memory.compared(&staged(1), &[a, b, c]), None, "another block is there");
    assert_eq!(memory.compared(&staged(2), &[a, c]), None, "it was rebuilt with other bytes");
    memory.keep_compared(&staged(1), &[b, c], true);
    assert_eq!(memory.compared(&staged(1), &[a, b, c]), Some(true), "each with some");
    memory.keep_compared(&staged(2), &[c], false);
    assert_eq!(memory.compared(&staged(2), &[c]), Some(false));
    assert_eq!(memory.compared(&staged(2), &[b, c]), None);
    memory.dropped(&staged(2));
    assert_eq!(memory.compared(&staged(2), &[c]), None);
}

#[test]
fn a_group_that_a_scan_missed_stays_as_long_as_blocks_of_it_are_staged() {
    let (mut memory, group) = (Memory::default(), group_of(&[]));
    let id = group.on_agents(BlockIndex(2));
    let held = HeldBlock { id, generation: 1001, len: 7, digest: [0; 16] };
    let staged: AllStaged = [((id, NodeId(1)), Staged { node: NodeId(1), held })].into();
    let missed = |all| Scan { unmet: [block_id(id) as u64].into(), all, ..Scan::default() };
    memory.list(found([group.clone()]), &staged);
    // It was renamed into a folder that the scan had behind it.
    assert_eq!(memory.list(missed(true), &staged), 0);
    assert!(memory.group_of(id).is_some() && !memory.no_file_has(id));
    memory.list(found([group.clone()]), &staged);
    assert_eq!(memory.list(missed(true), &staged), 0);
    assert!(memory.group_of(id).is_some() && !memory.no_file_has(id), "it was met in between");
    // Files elsewhere were not looked at.
    for _ in 0..SCANS {
        assert_eq!(memory.list(missed(false), &staged), 0);
    }
    assert!(memory.group_of(id).is_some() && !memory.no_file_has(id));
    for _ in 0..SCANS {
        memory.list(missed(true), &staged);
    }
    assert!(memory.group_of(id).is_some() && memory.no_file_has(id), "the NameNode is asked for it");
    memory.list(missed(true), &AllStaged::new());
    assert!(memory.groups.is_empty(), "nothing is staged of it any more");
    assert_eq!(memory.list(missed(true), &staged), 1);
}

#[test]
fn a_block_of_an_object_that_is_not_known_is_of_no_group() {
    // A stripe of another object, whose first block has the number in the name of that block.
    let stripe = crate::objects::tests::stripe([101, 103, 105, 107, 109].map(Some));
    let (mut memory, name) = (Memory::default(), BlockId { stripe: StripeId(101), index: BlockIndex(1) });
    let held = HeldBlock { id: name, generation: 1001, len: 7, digest: [0; 16] };
    let staged: AllStaged = [((name, NodeId(1)), Staged { node: NodeId(1), held })].into();
    for _ in 0..2 {
        assert_eq!(memory.list(found([stripe.clone()]), &staged), 1);
        assert!(memory.group_of(name).is_none());
    }
    let own = stripe.on_agents(BlockIndex(1));
    assert_eq!(memory.group_of(own).map(|group| group.id), Some(101));
}

#[test]
fn a_group_with_several_blocks_on_a_datanode_is_taken_once_and_when_nobody_works_on_it() {
    let (mut memory, group) = (Memory::default(), group_of(&[]));
    memory.list(found([group.clone()]), &AllStaged::new());
    let two = [group.id, group.id + 3];
    memory.crowded("another", "10.0.0.1:1", &two);
    memory.crowded(&group.pool, "10.0.0.1:1", &[group.id - 16, group.id - 15]);
    assert!(memory.crowds_due(9).is_empty(), "no groups of files here");
    memory.crowded(&group.pool, "10.0.0.1:1", &two);
    memory.take(group.id, Work::Rebuild);
    assert!(memory.crowds_due(9).is_empty() && memory.crowds_due(0).is_empty());
    memory.free(group.id);
    let due = memory.crowds_due(9).remove(0).1;
    assert_eq!(due, Crowd { datanode: "10.0.0.1:1".into(), blocks: [0, 3].map(BlockIndex).into() });
    assert!(memory.is_busy(group.id) && memory.crowds_due(9).is_empty());
    memory.crowded(&group.pool, "10.0.0.1:1", &two);
    memory.list(found([]), &AllStaged::new());
    assert!(memory.crowds.is_empty(), "its file was deleted");
}

#[test]
fn a_group_that_cannot_be_rebuilt_rests_longer_each_time_until_another_agent_can_help() {
    let (mut memory, group) = (Memory::default(), group_of(&[]));
    memory.list(found([group.clone()]), &AllStaged::new());
    let rests = |memory: &mut Memory| {
        memory.not_rebuilt(group.id);
        let second = Duration::from_secs(1);
        (1..=99).find(|_| {
            later(memory, second);
            !memory.rests(group.id, Work::Rebuild)
        })
    };
    memory.help([NodeId(1), NodeId(2)].into());
    for seconds in [5, 10, 20, 40, 60, 60] {
        assert_eq!(rests(&mut memory), Some(seconds));
    }
    memory.not_rebuilt(group.id);
    memory.help([NodeId(1)].into());
    assert!(memory.rests(group.id, Work::Rebuild) && memory.failures(group.id) == 7);
    assert!(!memory.rests(group.id, Work::Settle), "what is staged of it does not wait for that");
    memory.help([NodeId(1), NodeId(3)].into());
    assert!(!memory.rests(group.id, Work::Rebuild), "what lacked may be there now");
    assert_eq!(rests(&mut memory), Some(5));
    memory.rebuilt(group.id);
    assert_eq!(rests(&mut memory), Some(5));
    memory.list(found([]), &AllStaged::new());
    assert_eq!(memory.failures(group.id), 0, "its file was deleted");
}

#[test]
fn staged_blocks_have_their_turns_also_if_their_groups_are_busy_at_times() {
    let staged = |group: u64, index: u8| {
        let held =
            HeldBlock { id: block(group, BlockIndex(index)), generation: 1001, len: 7, digest: [0; 16] };
        Staged { node: NodeId(1), held }
    };
    let all: AllStaged = [staged(16, 0), staged(16, 2), staged(32, 1)]
        .map(|staged| ((staged.held.id, staged.node), staged))
        .into();
    let mut memory = Memory::default();
    let mut met = BTreeSet::new();
    for _ in 0..2 {
        for staged in memory.in_turn(all.clone()) {
            if memory.take(staged.held.id.stripe.0, Work::Settle) {
                memory.had_turn(&staged);
                met.insert(staged.held.id);
            }
        }
        memory.free(16);
        memory.free(32);
    }
    assert_eq!(met.len(), 3, "the second one of a group had its turn too");
    assert!(memory.in_turn(AllStaged::new()).is_empty() && memory.turns.is_empty());
}

#[test]
fn one_kind_of_work_leaves_its_room_to_the_others() {
    let mut memory = Memory::default();
    assert!(memory.take(16, Work::Settle) && !memory.take(16, Work::Rebuild));
    assert!(memory.take(32, Work::Move));
    let rooms = [Work::Rebuild, Work::Settle, Work::Move].map(|work| memory.room(work, 1));
    assert_eq!(rooms, [1, 0, 0]);
    memory.free(16);
    assert!(memory.take(16, Work::Rebuild) && memory.room(Work::Rebuild, 1) == 0);
}

#[test]
fn what_was_bad_is_tried_again_in_time() {
    let (mut memory, group) = (Memory::default(), 1 << 63);
    memory.rest(group);
    memory.bar(group, NodeId(7));
    memory.unreadable(group, BlockIndex(2));
    memory.wrong(group, BlockIndex(3));
    memory.unreadable(group, BlockIndex(3));
    memory.wrong(group + 16, BlockIndex(0));
    memory.silent(group, BlockIndex(1));
    assert!(memory.rests(group, Work::Settle) && !memory.rests(group + 16, Work::Settle));
    assert_eq!(memory.barred(group), [NodeId(7)].into());
    assert_eq!(memory.bad(group), [1, 2, 3].map(BlockIndex).into());
    assert_eq!(memory.of_no_use(group), [2, 3].map(BlockIndex).into());
    later(&mut memory, REST);
    assert!(!memory.rests(group, Work::Settle));
    memory.give_up(group);
    memory.rest(group);
    later(&mut memory, REST);
    assert!(memory.rests(group, Work::Settle), "the longer rest counts");
    later(&mut memory, LONG_REST);
    memory.forget();
    assert_eq!((memory.barred(group).len(), memory.rests(group, Work::Settle)), (0, false));
    assert_eq!(memory.bad(group), [BlockIndex(3)].into());
    later(&mut memory, WRONG_FOR);
    memory.forget();
    assert!(memory.bad.is_empty() && memory.silent.is_empty());
}

#[test]
fn whatever_happens_each_group_that_lacks_an_index_is_among_the_suspects() {
    let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
    let name = |port: u16| format!("10.0.0.1:{port}");
    let (mut memory, mut lacking, state) = (Memory::default(), 0, std::cell::Cell::new(7_u64));
    let random = |below: u64| {
        state
            .set(state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        (state.get() >> 33) % below
    };
    for _ in 0..2000 {
        // Each index but perhaps one, on DataNodes of its own.
        let some = || {
            let (id, without) = ((1 + random(6)) * 16, random(8));
            let first = random(4) as u16;
            let there = (0..5).filter(|index| u64::from(*index) != without);
            Group { id, ..held(there.map(|index| (index, at(first + u16::from(index))))) }
        };
        match random(6) {
            0 => _ = memory.list(found([some(), some(), some(), some()]), &AllStaged::new()),
            1 => memory.renew(some()),
            2 => {
                let gone = (0..9).filter(|_| random(4) == 0).map(|port| (name(port), "silent".into()));
                memory.look(Vec::new(), gone.collect());
            }
            kind => {
                let (id, index, port) = ((1 + random(6)) * 16, BlockIndex(random(5) as u8), random(9) as u16);
                match kind {
                    3 => memory.whole(id, index, &name(port)),
                    _ => _ = memory.damaged(id, index, &name(port)),
                }
            }
        }
        let suspects: BTreeSet<u64> = memory.suspects().map(|group| group.id).collect();
        let lacks: Vec<u64> = memory
            .groups
            .values()
            .filter(|group| !memory.absent(group).is_empty())
            .map(|group| group.id)
            .collect();
        assert!(lacks.iter().all(|id| suspects.contains(id)), "{lacks:?}, {suspects:?}");
        lacking += lacks.len();
    }
    assert!(lacking > 1000);
}
