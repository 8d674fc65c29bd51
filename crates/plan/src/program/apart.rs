//! Independent parts of a lane, so that each can run by itself.
//!
//! A node runs its tasks in order, slice by slice. Suppose that two independent paths go through the same helpers
//! in different orders. A helper that is early on one path and late on the other would then delay the first path
//! until the slice of the second has come through all its hops, and nothing would be pipelined. As separate lanes
//! over the same slices the two paths run side by side. A shared leaf does not join two parts: each part loads it
//! for itself.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeTasks, Task, Vertex};

/// The tasks of one lane by independent part, or all together where no node computes for two parts. A lane that
/// fetches or persists a vertex that is only loaded is not divided either.
pub(crate) fn apart(lowered: Vec<NodeTasks>) -> Vec<Vec<NodeTasks>> {
    let persisted = tasks(&lowered).filter(|task| matches!(task, Task::Persist { .. })).count();
    if persisted < 2 {
        return vec![lowered];
    }
    let Some(part_of) = parts(&lowered) else { return vec![lowered] };
    let shared = |node: &NodeTasks| {
        let computed = node.tasks.iter().filter_map(|task| match task {
            Task::Compute { outputs, .. } => part_of.get(outputs.first()?),
            _ => None,
        });
        computed.collect::<BTreeSet<_>>().len() > 1
    };
    if !lowered.iter().any(shared) {
        return vec![lowered];
    }
    let all: BTreeSet<Vertex> = part_of.values().copied().collect();
    all.into_iter()
        .map(|part| lowered.iter().filter_map(|node| only(node, part, &part_of)).collect())
        .collect()
}

fn tasks(lowered: &[NodeTasks]) -> impl Iterator<Item = &Task> {
    lowered.iter().flat_map(|node| &node.tasks)
}

/// For each computed vertex the vertex that represents its part; `None` when a loaded vertex is fetched or
/// persisted.
fn parts(lowered: &[NodeTasks]) -> Option<BTreeMap<Vertex, Vertex>> {
    let mut part_of: BTreeMap<Vertex, Vertex> = BTreeMap::new();
    let computations = tasks(lowered).filter_map(|task| match task {
        Task::Compute { outputs, inputs, .. } => Some((outputs, inputs)),
        _ => None,
    });
    let computations: Vec<_> = computations.collect();
    part_of.extend(computations.iter().flat_map(|(outputs, _)| *outputs).map(|vertex| (*vertex, *vertex)));
    for (outputs, inputs) in computations {
        let tied: BTreeSet<Vertex> =
            outputs.iter().chain(inputs).filter_map(|vertex| part_of.get(vertex)).copied().collect();
        if let Some(&first) = tied.first().filter(|_| tied.len() > 1) {
            part_of.values_mut().filter(|part| tied.contains(part)).for_each(|part| *part = first);
        }
    }
    let moved = tasks(lowered).filter_map(|task| match task {
        Task::Fetch { vertex, .. } | Task::Persist { vertex, .. } => Some(vertex),
        _ => None,
    });
    let all_computed = moved.into_iter().all(|vertex| part_of.contains_key(vertex));
    all_computed.then_some(part_of)
}

/// What a node does for one part.
fn only(node: &NodeTasks, part: Vertex, part_of: &BTreeMap<Vertex, Vertex>) -> Option<NodeTasks> {
    let ours = |vertex: &Vertex| part_of.get(vertex) == Some(&part);
    let inputs = node.tasks.iter().filter_map(|task| match task {
        Task::Compute { outputs, inputs, .. } if outputs.iter().any(ours) => Some(inputs),
        _ => None,
    });
    let inputs: BTreeSet<Vertex> = inputs.flatten().copied().collect();
    let kept = |task: &&Task| match task {
        Task::Load { vertex } => inputs.contains(vertex),
        Task::Fetch { vertex, .. } | Task::Persist { vertex, .. } => ours(vertex),
        Task::Compute { outputs, .. } => outputs.iter().any(ours),
    };
    let tasks: Vec<Task> = node.tasks.iter().filter(kept).cloned().collect();
    let sends = node.sends.iter().filter(|(vertex, _)| ours(vertex)).copied().collect();
    (!tasks.is_empty()).then_some(NodeTasks { node: node.node, tasks, sends })
}
