//! Lost blocks are planned together, and rebuilt by the agents along what the plans say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::Scene;
use kintsu_plan::{
    DamagedStripe, Plan, Recovery, Repair, RepairPlan, Schedule, Shares, StripeView, Topology,
};
use kintsu_runtime::Conducted;
use kintsu_wire::message::{FaultKind, HeldBlock, RunOutcome};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::compare::wrong;
use super::damage::{leave_out, unusable};
use super::members::{AllStaged, Member, Staged, nodes_with};
use super::memory::{Memory, Work};
use super::{Block, Event, Shared, alone, resting, scene};
use crate::handover::{Now, refresh};
use crate::{Group, HdfsError};

/// The repair of one group.
struct Job {
    group: Group,
    lost: Vec<BlockIndex>,
    recovery: Recovery,
    topology: Topology,
    view: StripeView,
    members: BTreeMap<NodeId, Member>,
}

/// Starts repairs of damaged groups that nobody works on, as many as may run at once.
pub(super) async fn begin(shared: &Arc<Shared>, work: &mut JoinSet<()>) {
    let members = shared.members.alive();
    let (topology, due, kept) = {
        let mut memory = shared.memory();
        // Taken now: what was staged before a group was free again is among it.
        let kept = shared.members.kept();
        let topology = scene::topology(&members, &memory.live, &memory.gone);
        memory.help(topology.nodes.keys().copied().collect());
        let due = due(&memory, &kept, shared.config.at_once);
        (topology, due, kept)
    };
    let (mut window, mut groups) = (Vec::new(), Vec::new());
    for old in due {
        match wanted(shared, &old, &kept).await {
            Ok(Some((group, lost))) => {
                let also = readable(&shared.memory(), &group, &kept, &members);
                let barred = barred(shared, &group);
                window.push(scene::damaged(&group, &lost, &members, &topology, &barred, &also));
                groups.push(group);
            }
            Ok(None) => {}
            Err(error) => {
                let all_fail = error.no_namenode();
                if !all_fail {
                    shared.memory().not_rebuilt(old.id);
                }
                shared.failed(&old, error);
                if all_fail {
                    return;
                }
            }
        }
    }
    let mut recovery = Recovery::new();
    let method = shared.config.method;
    let nodes = Scene::of(&topology);
    let assigned = recovery.window(Schedule::default(), method, &mut Shares::default(), &nodes, &window);
    for ((group, DamagedStripe { view, lost, .. }), assigned) in groups.into_iter().zip(window).zip(assigned)
    {
        // Agents name a block by 32 bits of its generation.
        let assigned = assigned.map_err(HdfsError::from).and_then(|_| group.generations());
        if let Err(error) = assigned {
            if !alone::begin(shared, &group, &lost, work) {
                shared.memory().not_rebuilt(group.id);
                shared.failed(&group, error);
            }
            continue;
        }
        if !shared.memory().take(group.id, Work::Rebuild) {
            continue;
        }
        let (recovery, topology, members) = (recovery.part(view.id), topology.clone(), members.clone());
        let job = Job { group, lost, recovery, topology, view, members };
        let shared = shared.clone();
        work.spawn(async move {
            let group = job.group.clone();
            shared.work_on(group.id, &group, rebuild(&shared, job)).await;
        });
    }
}

/// The damaged groups to repair now, as many as there is room for. Those come first that bear the fewest further losses; each time that
/// a group could not be rebuilt counts as one more that it bears. Those of which too much is lost come last.
fn due(memory: &Memory, kept: &AllStaged, at_once: usize) -> Vec<Group> {
    let order = |group: &Group| {
        let lost = memory.lost(group);
        let bears = (group.policy.code.distance() - 1).saturating_sub(lost.len());
        let unread: Vec<BlockIndex> =
            lost.into_iter().filter(|index| !is_kept(group, *index, kept)).collect();
        let waits = unread.iter().any(|index| group.named(*index));
        let beyond = unread.len() >= group.policy.code.distance() && !group.policy.code.recoverable(&unread);
        waits.then(|| (beyond, bears + memory.failures(group.id)))
    };
    let rests = |group: &Group| memory.rests(group.id, Work::Rebuild) || memory.is_busy(group.id);
    let free = memory.suspects().filter(|group| !rests(group));
    let mut due: Vec<_> = free.filter_map(|group| Some((order(group)?, group))).collect();
    due.sort_by_key(|(order, _)| *order);
    let room = memory.room(Work::Rebuild, at_once);
    due.into_iter().take(room).map(|(_, group)| group.clone()).collect()
}

/// Whether a block is staged where it is kept.
fn is_kept(group: &Group, index: BlockIndex, kept: &AllStaged) -> bool {
    nodes_with(kept, group.on_agents(index)).next().is_some()
}

/// The group as it is now, with the blocks that are still to be rebuilt; `None` if none are. Nobody could take a block that has no name in
/// HDFS any more.
///
/// # Errors
/// Those of calls.
async fn wanted(
    shared: &Shared,
    old: &Group,
    kept: &AllStaged,
) -> Result<Option<(Group, Vec<BlockIndex>)>, HdfsError> {
    let group = match refresh(&shared.namenode, old).await? {
        Now::Same(group) => *group,
        Now::Changed(_) => {
            // What is staged of it is judged once more, by the state that is known.
            let staged = shared.members.staged_of(old.expected().map(|index| old.on_agents(index)));
            if staged.is_empty() {
                shared.memory().groups.remove(&old.id);
            }
            return Ok(None);
        }
    };
    shared.memory().renew(group.clone());
    let mut lost = resting::lost(shared, &group).await?;
    lost.retain(|index| group.named(*index) && !is_kept(&group, *index, kept));
    Ok((!lost.is_empty()).then_some((group, lost)))
}

/// Blocks of a group that are read besides those that HDFS lists, to rebuild others: none, as long as these suffice; else staged ones,
/// and those on DataNodes in maintenance that live.
fn readable(
    memory: &Memory,
    group: &Group,
    kept: &AllStaged,
    members: &BTreeMap<NodeId, Member>,
) -> Vec<(BlockIndex, NodeId)> {
    let absent = memory.absent(group);
    if group.policy.code.recoverable(&absent) {
        return Vec::new();
    }
    let fits =
        |staged: &&Staged| u64::from(staged.held.generation) == group.block(staged.held.id.index).generation;
    let of_group = absent.iter().flat_map(|index| {
        let id = group.on_agents(*index);
        kept.range((id, NodeId(0))..=(id, NodeId(u32::MAX))).map(|(_, staged)| staged)
    });
    let staged = of_group.filter(fits).map(|staged| (staged.held.id.index, staged.node));
    let resting = absent.iter().filter_map(|index| {
        let datanode = memory.maintenance.at(group, *index)?;
        Some((*index, *members.iter().find(|(_, member)| member.datanode == datanode)?.0))
    });
    staged.chain(resting).collect()
}

/// The nodes that get no block of a group: those that failed at one, and those with a staged one.
fn barred(shared: &Shared, group: &Group) -> BTreeSet<NodeId> {
    let mut barred = shared.memory().barred(group.id);
    let staged = shared.members.staged();
    barred.extend(group.expected().flat_map(|index| nodes_with(&staged, group.on_agents(index))));
    barred
}

/// Rebuilds the lost blocks of a group, and remembers how that went.
async fn rebuild(shared: &Arc<Shared>, job: Job) -> Result<(), HdfsError> {
    let group = job.group.id;
    let done = run(shared, job).await;
    match &done {
        Ok(()) => shared.memory().rebuilt(group),
        Err(_) => shared.memory().not_rebuilt(group),
    }
    done
}

/// Rebuilds the lost blocks of a group; each is staged on its requestor.
async fn run(shared: &Arc<Shared>, mut job: Job) -> Result<(), HdfsError> {
    let began = Instant::now();
    let group = &job.group;
    let out = {
        let memory = shared.memory();
        [memory.bad(group.id), memory.of_no_use(group.id)]
    };
    let requestors = job.recovery.requestors(&job.view, &job.topology, &job.lost)?;
    let wanted = Repair { lost: job.lost.clone(), requestors, method: shared.config.method };
    let planned = planned(&mut job.recovery, (&job.view, &job.topology), &wanted, out)?;
    let expect: Vec<Option<[u8; 16]>> = (0..group.policy.code.n())
        .map(|i| BlockIndex(i as u8))
        .map(|index| group.digest(index).filter(|_| job.lost.contains(&index)).map(|digest| digest.0))
        .collect();
    let ended = conduct(shared, group, &job.view, &job.members, (&planned.plan, &expect, &[])).await?;
    // What is finished is there, also if something else failed.
    let (ms, helpers) = (began.elapsed().as_millis() as u64, planned.helpers.len());
    for (block, staged) in finished(group, &ended.outcomes) {
        let datanode = job.members.get(&staged.node).map(|member| member.datanode.clone());
        shared.members.stage(staged);
        let datanode = datanode.unwrap_or_default();
        shared.tell(Event::Staged { block, datanode, ms, helpers });
    }
    if let Some(fault) = ended.fault {
        let mismatch = fault.block.filter(|_| fault.kind == FaultKind::Mismatch);
        match mismatch.map(|block| block.index).or_else(|| unusable(&fault, &job.view)) {
            // What was rebuilt is not what was recorded: some block has wrong bytes under valid checksums.
            Some(index) if fault.kind == FaultKind::Mismatch => {
                let found = wrong(shared, group, &job.view, index).await?;
                if !found {
                    shared.memory().give_up(group.id);
                }
            }
            Some(index) if !job.lost.contains(&index) => {
                leave_out(shared, group, &job.members, &fault, index).await;
            }
            _ if wanted.requestors.contains(&fault.node) => shared.memory().bar(group.id, fault.node),
            _ => {}
        }
        return Err(fault.into());
    }
    Ok(())
}

/// Plans a rebuild without the first of these blocks; if too few are left, without the second ones, which are of no use to anybody: an agent that was silent may
/// answer now.
///
/// # Errors
/// `Plan`.
fn planned(
    recovery: &mut Recovery,
    (view, topology): (&StripeView, &Topology),
    wanted: &Repair,
    out: [BTreeSet<BlockIndex>; 2],
) -> Result<RepairPlan, HdfsError> {
    let [most, least] = out.map(|blocks| blocks.into_iter().collect::<Vec<_>>());
    let planned = recovery.assign(view, topology, wanted, &most);
    Ok(planned.or_else(|_| recovery.assign(view, topology, wanted, &least))?)
}

/// The blocks that agents finished in a run.
fn finished(group: &Group, outcomes: &[RunOutcome]) -> Vec<(Block, Staged)> {
    let of = |outcome: &RunOutcome| {
        let node = outcome.node;
        let one = |held: &HeldBlock| (group.name(held.id.index), Staged { node, held: held.clone() });
        outcome.written.iter().map(one).collect::<Vec<_>>()
    };
    outcomes.iter().flat_map(of).collect()
}

/// Runs a plan on the agents. `what`: the plan, the digests of the blocks by index, the label of what is written.
///
/// # Errors
/// `Plan`; `Unsupported` for a generation stamp that does not fit.
pub(super) async fn conduct(
    shared: &Shared,
    group: &Group,
    view: &StripeView,
    members: &BTreeMap<NodeId, Member>,
    what: (&Plan, &[Option<[u8; 16]>], &[u8]),
) -> Result<Conducted, HdfsError> {
    let (plan, expect, label) = what;
    let peers = |node: NodeId| members.get(&node).map(|member| member.data);
    let programs = group.programs((plan, view), (0, u64::MAX), (expect, label), &peers)?;
    let control = |node: NodeId| members.get(&node).map(|member| member.control);
    Ok(shared.conductor.conduct(programs, &control, None, None, &shared.end).await)
}

#[cfg(test)]
mod tests {
    use kintsu_wire::message::HeldBlock;

    use super::*;
    use crate::beside::members::tests::{register, staged};
    use crate::beside::memory::tests::later;
    use crate::beside::tests::shared;
    use crate::group::tests::{datanode, held};
    use crate::vigil::Sight;
    use crate::walk::Scan;

    /// A group with this id whose blocks with these indices are lost.
    fn group(id: u64, lost: &[u8]) -> Group {
        let there = (0..5).filter(|index| !lost.contains(index));
        let at = |index: u8| datanode(([10, 0, 0, 1], u16::from(index) + 1).into());
        Group { id, ..held(there.map(|index| (index, at(index)))) }
    }

    fn listed(groups: impl IntoIterator<Item = Group>) -> Memory {
        let mut memory = Memory::default();
        let groups = groups.into_iter().map(|group| (group.id, group)).collect();
        memory.list(Scan { groups, ..Scan::default() }, &AllStaged::new());
        memory
    }

    fn ids(memory: &Memory, kept: &AllStaged, at_once: usize) -> Vec<u64> {
        due(memory, kept, at_once).into_iter().map(|group| group.id).collect()
    }

    #[test]
    fn groups_that_cannot_be_rebuilt_leave_the_room_to_others() {
        let beyond = (1..=20).map(|number| group(number * 16, &[0, 1, 2]));
        let others = [group(400 * 16, &[0]), group(500 * 16, &[0, 1]), group(600 * 16, &[])];
        let mut memory = listed(beyond.chain(others));
        let none = AllStaged::new();
        assert_eq!(ids(&memory, &none, 3), [500 * 16, 400 * 16, 16]);
        assert_eq!(ids(&memory, &none, 99).len(), 22);
        // One that bears nothing more, and fails: it rests, and then it goes with those that bear one more, and after them.
        memory.not_rebuilt(500 * 16);
        assert_eq!(ids(&memory, &none, 1), [400 * 16]);
        later(&mut memory, std::time::Duration::from_secs(5));
        assert_eq!(ids(&memory, &none, 2), [400 * 16, 500 * 16]);
        memory.not_rebuilt(500 * 16);
        later(&mut memory, std::time::Duration::from_secs(10));
        memory.rebuilt(400 * 16);
        assert_eq!(ids(&memory, &none, 2), [400 * 16, 500 * 16]);
        memory.rebuilt(500 * 16);
        assert_eq!(ids(&memory, &none, 2), [500 * 16, 400 * 16]);
    }

    #[test]
    fn groups_with_staged_blocks_that_are_judged_take_no_room_of_those_that_are_rebuilt() {
        let mut memory = listed((1..=9).map(|number| group(number * 16, &[3])));
        (1..=8).for_each(|number| assert!(memory.take(number * 16, Work::Settle)));
        assert_eq!(ids(&memory, &AllStaged::new(), 1), [9 * 16]);
        memory.take(9 * 16, Work::Rebuild);
        memory.free(16);
        assert!(ids(&memory, &AllStaged::new(), 1).is_empty());
    }

    #[test]
    fn staged_blocks_are_read_where_too_few_are_stored() {
        let (group, [a, b, c]) = (group(16, &[0, 1, 2]), [7, 8, 9].map(NodeId));
        let memory = listed([group.clone(), self::group(32, &[0, 1, 2])]);
        let old = Staged { held: HeldBlock { generation: 1000, ..staged(16, 1, c).held }, node: c };
        let kept: AllStaged = [staged(16, 0, a), staged(16, 1, b), old]
            .map(|staged| ((staged.held.id, staged.node), staged))
            .into();
        assert_eq!(ids(&memory, &kept, 1), [16], "it can be rebuilt, the other one not");
        let homes = readable(&memory, &group, &kept, &BTreeMap::new());
        assert_eq!(homes, [(BlockIndex(0), a), (BlockIndex(1), b)], "one is of an older generation");
        let fewer = self::group(16, &[0, 1]);
        let stored = readable(&listed([fewer.clone()]), &fewer, &kept, &BTreeMap::new());
        assert!(stored.is_empty(), "three are stored");
        let node =
            kintsu_plan::Node { rack: kintsu_dag::RackId(0), usable: true, used_bytes: 0, room_bytes: None };
        let topology = Topology { nodes: [a, b].map(|id| (id, node.clone())).into(), ..Topology::default() };
        let barred = [a, b].into();
        let damaged = scene::damaged(&group, &[BlockIndex(2)], &BTreeMap::new(), &topology, &barred, &homes);
        assert_eq!(damaged.view.homes, [Some(a), Some(b), None, None, None]);
        assert!(damaged.barred.is_empty());
    }

    #[test]
    fn a_block_whose_agent_was_silent_is_left_out_unless_it_is_needed() {
        let node =
            kintsu_plan::Node { rack: kintsu_dag::RackId(0), usable: true, used_bytes: 0, room_bytes: None };
        let topology =
            Topology { nodes: (0..8).map(|id| (NodeId(id), node.clone())).collect(), ..Topology::default() };
        let helpers = |lost: &[u8], memory: &Memory| {
            let mut view = group(16, lost).view(NodeId::CLIENT, |_| true);
            for (index, home) in view.homes.iter_mut().enumerate() {
                *home = home.map(|_| NodeId(index as u32));
            }
            let (lost, requestors) = (lost.iter().map(|index| BlockIndex(*index)), [6, 7].map(NodeId));
            let requestors = requestors[..lost.len()].to_vec();
            let wanted = Repair { lost: lost.collect(), requestors, method: kintsu_plan::Method::Pipeline };
            let out = [memory.bad(16), memory.of_no_use(16)];
            let planned = planned(&mut Recovery::new(), (&view, &topology), &wanted, out);
            planned.ok().map(|planned| planned.helpers.into_iter().collect::<BTreeSet<_>>())
        };
        let mut memory = Memory::default();
        memory.silent(16, BlockIndex(2));
        assert_eq!(helpers(&[0], &memory), Some([1, 3, 4].map(BlockIndex).into()));
        assert_eq!(helpers(&[0, 1], &memory), Some([2, 3, 4].map(BlockIndex).into()), "it may answer now");
        memory.unreadable(16, BlockIndex(3));
        assert_eq!(helpers(&[0], &memory), Some([1, 2, 4].map(BlockIndex).into()));
        assert_eq!(helpers(&[0, 1], &memory), None);
    }

    #[tokio::test]
    async fn what_rests_on_a_datanode_in_maintenance_that_lives_is_read_where_too_few_are_stored() {
        let (shared, _happens) = shared(crate::fake::namenode(&[]));
        let node = register(&shared.members, "10.0.0.1:1", 11).await;
        let (group, members) = (group(16, &[0, 1, 2]), shared.members.alive());
        let mut memory = listed([self::group(16, &[1, 2])]);
        let maintenance = vec![datanode(([10, 0, 0, 1], 1).into())];
        memory.maintenance.now(&Sight { live: maintenance.clone(), maintenance, ..Sight::default() });
        memory.renew(group.clone());
        assert_eq!(memory.lost(&group), [1, 2].map(BlockIndex));
        assert_eq!(readable(&memory, &group, &AllStaged::new(), &members), [(BlockIndex(0), node)]);
    }

    #[tokio::test]
    async fn a_group_of_which_the_namenode_says_nothing_does_not_end_the_work_on_others() {
        let (shared, mut happens) = shared(crate::fake::namenode(&[]));
        let groups = [group(16, &[0]), group(32, &[1]), group(48, &[2])];
        *shared.memory() = listed(groups);
        let mut work = JoinSet::new();
        begin(&shared, &mut work).await;
        assert!(work.is_empty());
        for id in [16, 32, 48] {
            assert!(shared.memory().rests(id, Work::Rebuild), "it is not the first again in the next tick");
        }
        let told = std::iter::from_fn(|| happens.try_recv().ok());
        assert_eq!(told.filter(|event| matches!(event, Event::Failed { .. })).count(), 3);
    }

    #[test]
    fn what_agents_finished_in_a_run_that_failed_is_staged() {
        let group = group(16, &[0, 1]);
        let outcome = |node, written| RunOutcome {
            node,
            fault: None,
            upto: 0,
            bytes_read: 0,
            sent: Vec::new(),
            written,
        };
        let (done, failed) = (staged(16, 0, NodeId(7)), NodeId(8));
        let all = [outcome(done.node, vec![done.held.clone()]), outcome(failed, Vec::new())];
        assert_eq!(finished(&group, &all), [(group.name(BlockIndex(0)), done)]);
    }
}
