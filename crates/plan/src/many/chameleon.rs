//! ChameleonEC as a scheduler: repair phases, expectations, and the order of several failed nodes.
//!
//! Source: "ChameleonEC: Exploiting Tunability of Erasure Coding for Low-Interference Repair", sections III-A, III-B
//! and III-D. What lags is handled by [`super::reschedule`]. In a phase, blocks are taken one after the other until
//! the estimated time of the next one exceeds the span of the phase. What earlier phases left undone counts as load.
//! LRCs are repaired within the group. Codes with sub-blocks keep their own graph; only the requestor is chosen.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::desk::Desk;
use super::dispatch::{Tasks, dispatch, requestor};
use super::scene::{History, LostBlock, Planned, Scene, by_method};
use super::tunable::tree;
use crate::{Method, PlanError};

/// The paper's span of a phase, in seconds (section V-A).
pub const PHASE_SECONDS: f64 = 20.0;

/// A planned repair with its expectations.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The repair.
    pub planned: Planned,
    /// By sender: when it should have sent its part, in seconds since the plan was made. A node with several tasks
    /// does them in the order in which they were planned.
    pub sent_by: BTreeMap<NodeId, f64>,
}

/// The repairs of one phase.
#[derive(Debug, Clone, Default)]
pub struct Phase<'a> {
    /// In the order in which they were planned.
    pub repairs: Vec<Expected>,
    /// Blocks that cannot be repaired now, and why.
    pub refused: Vec<(LostBlock<'a>, PlanError)>,
    /// Blocks for later phases.
    pub left: Vec<LostBlock<'a>>,
}

/// Plans the next phase: takes blocks in their order until the estimated time exceeds `span` seconds. If nothing is
/// under way, at least one block is taken. Blocks of one stripe that follow one another are taken all or none.
pub fn phase<'a>(scene: &Scene<'_>, waiting: &[LostBlock<'a>], span: f64) -> Phase<'a> {
    let idle = scene.underway.iter().all(|(_, left)| *left == 0);
    take(&mut Desk::new(scene, waiting), waiting, span, idle, &expectations)
}

fn take<'a>(
    desk: &mut Desk<'_>,
    waiting: &[LostBlock<'a>],
    span: f64,
    idle: bool,
    expect: &dyn Fn(&Desk<'_>, &Planned) -> BTreeMap<NodeId, f64>,
) -> Phase<'a> {
    let mut phase = Phase::default();
    let mut rest = waiting.iter();
    let begun = |phase: &Phase<'_>, lost: &LostBlock<'_>| {
        phase.repairs.last().is_some_and(|last| last.planned.stripe == lost.stripe.view.id)
    };
    for lost in rest.by_ref() {
        match next(desk, lost) {
            Err(error) => phase.refused.push((*lost, error)),
            Ok((_, seconds))
                if seconds > span && !(idle && phase.repairs.is_empty()) && !begun(&phase, lost) =>
            {
                phase.left.push(*lost);
                break;
            }
            Ok((planned, _)) => {
                desk.settle(&planned, planned.bytes as f64);
                let planned = Planned { turn: phase.repairs.len(), ..planned };
                phase.repairs.push(Expected { sent_by: expect(desk, &planned), planned });
            }
        }
    }
    phase.left.extend(rest);
    phase
}

/// The repair of one block, and when the last of its nodes will be done, in seconds.
fn next(desk: &mut Desk<'_>, lost: &LostBlock<'_>) -> Result<(Planned, f64), PlanError> {
    let view = &lost.stripe.view;
    view.check("lost blocks", &[lost.block])?;
    let open = desk.open(lost)?;
    let nobody = |what: &str| PlanError::Placement {
        expected: format!("{what} for {} of {}", lost.block, view.id),
        got: "none".into(),
    };
    if view.code.w() > 1 {
        let requestor = requestor(desk, lost.bytes() as f64, open.iter().copied())
            .ok_or_else(|| nobody("a requestor"))?;
        let planned = by_method(Method::Conventional, lost, desk.scene.topology, desk.ids[requestor])?;
        let seconds = seconds(desk, &planned);
        return Ok((planned, seconds));
    }
    let case = desk.case(lost, &|node| desk.sending(node, lost.bytes() as f64))?;
    let tasks: Tasks = dispatch(desk, &case, &open).ok_or_else(|| nobody("helpers"))?;
    let planned = desk.planned(lost, &[tree(&tasks)]).ok_or_else(|| nobody("a tree"))?;
    Ok((planned, tasks.seconds))
}

/// When the nodes of a repair would be done with it and all that they have.
fn seconds(desk: &Desk<'_>, planned: &Planned) -> f64 {
    let of_nodes = desk.parts(planned).into_iter().filter(|(link, _)| *link < desk.rack_up(0));
    desk.done(of_nodes, planned.bytes as f64)
}

/// When each sender of a repair should be done, once the loads of the repair are on the desk: when the sender and
/// its receiver have carried all that they were given so far, and not before those that send to the sender.
pub(super) fn expectations(desk: &Desk<'_>, planned: &Planned) -> BTreeMap<NodeId, f64> {
    let mut by: BTreeMap<NodeId, f64> = BTreeMap::new();
    let sends = planned.sends();
    for &(from, to, _) in &sends {
        let (Some(sender), Some(receiver)) = (desk.number(from), desk.number(to)) else { continue };
        let received = match to == planned.requestor {
            true => desk.receiving(receiver, 0.0),
            false => desk.time(desk.down(receiver), 0.0),
        };
        let seconds = desk.sending(sender, 0.0).max(received);
        let known = by.entry(from).or_default();
        *known = known.max(seconds);
    }
    // At most as many rounds as the longest way has steps.
    for _ in 0..sends.len() {
        let mut changed = false;
        for (from, to, _) in &sends {
            let Some(before) = by.get(from).copied() else { continue };
            if let Some(after) = by.get_mut(to).filter(|after| **after < before) {
                *after = before;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    by
}

/// All blocks in phases, one after the other, as if each phase ended in its span. What a link could not carry in it is left for
/// the next one.
pub(super) fn all(
    scene: &Scene<'_>,
    _: &mut History,
    blocks: &[LostBlock<'_>],
) -> Vec<Result<Planned, PlanError>> {
    let mut results: Vec<Option<Result<Planned, PlanError>>> = vec![None; blocks.len()];
    let key = |lost: &LostBlock<'_>| (lost.stripe.view.id, lost.block);
    let numbers: BTreeMap<_, usize> = blocks.iter().enumerate().map(|(at, lost)| (key(lost), at)).collect();
    let (mut waiting, mut turn) = (blocks.to_vec(), 0);
    let mut desk = Desk::new(scene, blocks);
    let mut idle = scene.underway.iter().all(|(_, left)| *left == 0);
    while !waiting.is_empty() {
        let phase = take(&mut desk, &waiting, scene.phase_seconds, idle, &|_, _| BTreeMap::new());
        for Expected { planned, .. } in phase.repairs {
            let at = numbers.get(&(planned.stripe, planned.block)).copied();
            let planned = Planned { turn, ..planned };
            turn += 1;
            at.into_iter().for_each(|at| results[at] = Some(Ok(planned.clone())));
        }
        for (lost, error) in phase.refused {
            let at = numbers.get(&key(&lost)).copied();
            at.into_iter().for_each(|at| results[at] = Some(Err(error.clone())));
        }
        // If nothing could begin, everything ends first.
        let span = if phase.left.len() < waiting.len() { scene.phase_seconds } else { f64::INFINITY };
        waiting = phase.left;
        desk.pass(span);
        idle = desk.load.iter().all(|load| *load == 0.0);
    }
    let twice = || PlanError::Invalid {
        what: "lost blocks".into(),
        expected: "each once".into(),
        got: "one twice".into(),
    };
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(twice()))).collect()
}

/// The order in which the blocks of several failed nodes are repaired (section III-D).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FailedNodes {
    /// One node after the other.
    NodeByNode,
    /// Stripes with more lost blocks first.
    #[default]
    MostLost,
    /// Blocks with a shorter estimated repair first.
    Shortest,
}

/// Sorts lost blocks, each with the node that held it. Otherwise the order stays.
pub fn in_order<'a>(
    scene: &Scene<'_>,
    blocks: &[(NodeId, LostBlock<'a>)],
    order: FailedNodes,
) -> Vec<LostBlock<'a>> {
    let mut sorted = blocks.to_vec();
    match order {
        FailedNodes::NodeByNode => sorted.sort_by_key(|(node, _)| *node),
        FailedNodes::MostLost => sorted.sort_by_key(|(_, lost)| std::cmp::Reverse(lost.stripe.lost.len())),
        FailedNodes::Shortest => {
            let all: Vec<LostBlock<'_>> = blocks.iter().map(|(_, lost)| *lost).collect();
            let mut desk = Desk::new(scene, &all);
            sorted.sort_by_cached_key(|(_, lost)| {
                // Positive numbers have the same order as their bits. What cannot be planned comes last.
                next(&mut desk, lost).map_or(u64::MAX, |(_, seconds)| seconds.to_bits())
            });
        }
    }
    sorted.into_iter().map(|(_, lost)| lost).collect()
}
