//! Lost blocks are planned together, and rebuilt by the agents along what the plans say.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::Scene;
use kintsu_plan::{DamagedStripe, Plan, Recovery, Repair, Schedule, Shares, StripeView, Topology};
use kintsu_runtime::Conducted;
use kintsu_wire::message::FaultKind;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::compare::wrong;
use super::damage::{leave_out, unusable};
use super::members::{AllStaged, Member, Staged, nodes_with};
use super::{Event, Shared, scene};
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
    let (live, gone, found, room, kept) = {
        let memory = shared.memory();
        // Now: what was staged before a group was free again is among it.
        let kept = shared.members.kept();
        let room = shared.config.at_once.saturating_sub(memory.busy.len());
        let missing = |group: &&Group| {
            let waits = |index: &BlockIndex| waits(group, *index, &kept);
            !memory.rests(group.id)
                && !memory.busy.contains(&group.id)
                && memory.lost(group).iter().any(waits)
        };
        let mut found: Vec<Group> = memory.groups.values().filter(missing).cloned().collect();
        let bears =
            |group: &Group| (group.policy.code.distance() - 1).saturating_sub(memory.lost(group).len());
        found.sort_by_key(bears);
        (memory.live.clone(), memory.gone.clone(), found, room, kept)
    };
    let topology = scene::topology(&members, &live, &gone);
    let staged = shared.members.staged();
    let (mut window, mut groups) = (Vec::new(), Vec::new());
    for old in found.into_iter().take(room) {
        let group = match refresh(&shared.namenode, &old).await {
            Ok(Now::Same(group)) => *group,
            Ok(Now::Changed(_)) => {
                shared.memory().groups.remove(&old.id);
                continue;
            }
            Err(error) => {
                shared.failed(&old, error).await;
                return;
            }
        };
        shared.memory().renew(group.clone());
        let mut lost = shared.memory().lost(&group);
        lost.retain(|index| waits(&group, *index, &kept));
        if lost.is_empty() {
            continue;
        }
        let mut barred = shared.memory().barred(group.id);
        let of_group = |staged: &&Staged| staged.held.id == group.on_agents(staged.held.id.index);
        barred.extend(staged.values().filter(of_group).map(|staged| staged.node));
        window.push(scene::damaged(&group, &lost, &members, &topology, &barred));
        groups.push(group);
    }
    let mut recovery = Recovery::new();
    let method = shared.config.method;
    let nodes = Scene::of(&topology);
    let assigned = recovery.window(Schedule::default(), method, &mut Shares::default(), &nodes, &window);
    for ((group, DamagedStripe { view, lost, .. }), assigned) in groups.into_iter().zip(window).zip(assigned)
    {
        if let Err(error) = assigned {
            shared.memory().rest(group.id);
            shared.failed(&group, error).await;
            continue;
        }
        let (recovery, topology, members) = (recovery.part(view.id), topology.clone(), members.clone());
        let job = Job { group, lost, recovery, topology, view, members };
        let shared = shared.clone();
        shared.memory().busy.insert(job.group.id);
        work.spawn(async move {
            let group = job.group.clone();
            shared.work_on(&group, run(&shared, job)).await;
        });
    }
}

/// Whether a lost block is still to be rebuilt. Nobody could take one that has no name in HDFS any more.
fn waits(group: &Group, index: BlockIndex, kept: &AllStaged) -> bool {
    group.named(index) && nodes_with(kept, group.on_agents(index)).next().is_none()
}

/// Rebuilds the lost blocks of a group; each is staged on its requestor.
async fn run(shared: &Arc<Shared>, mut job: Job) -> Result<(), HdfsError> {
    let began = Instant::now();
    let group = &job.group;
    let excluded: Vec<_> = shared.memory().bad(group.id).into_iter().collect();
    let requestors = job.recovery.requestors(&job.view, &job.topology, &job.lost)?;
    let wanted = Repair { lost: job.lost.clone(), requestors, method: shared.config.method };
    let planned = job.recovery.assign(&job.view, &job.topology, &wanted, &excluded)?;
    let expect: Vec<Option<[u8; 16]>> = (0..group.policy.code.n())
        .map(|i| BlockIndex(i as u8))
        .map(|index| group.digest(index).filter(|_| job.lost.contains(&index)).map(|digest| digest.0))
        .collect();
    let ended = conduct(shared, group, &job.view, &job.members, (&planned.plan, &expect, &[])).await?;
    if let Some(fault) = ended.fault {
        match fault.block.map(|block| block.index) {
            // What was rebuilt is not what was recorded: some block has wrong bytes under valid checksums.
            Some(index) if fault.kind == FaultKind::Mismatch => {
                let found = wrong(shared, group, &job.view, index).await?;
                if !found {
                    shared.memory().give_up(group.id);
                }
            }
            Some(index) if unusable(fault.kind) && !job.lost.contains(&index) => {
                leave_out(shared, group, &job.members, &fault, index).await;
            }
            _ if wanted.requestors.contains(&fault.node) => shared.memory().bar(group.id, fault.node),
            _ => {}
        }
        return Err(fault.into());
    }
    let ms = began.elapsed().as_millis() as u64;
    for outcome in ended.outcomes {
        for held in outcome.written {
            let datanode = job.members.get(&outcome.node).map(|member| member.datanode.clone());
            let block = group.name(held.id.index);
            shared.members.stage(Staged { node: outcome.node, held });
            let datanode = datanode.unwrap_or_default();
            shared.tell(Event::Staged { block, datanode, ms, helpers: planned.helpers.len() }).await;
        }
    }
    Ok(())
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
