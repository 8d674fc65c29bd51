//! The transfers of a lane's lowered graph: what it moves for each slice, and in what order.
//!
//! Vertices that go the same way and wait for the same inputs are one transfer, as agents send them together.
//! Examples are the sums of several lost blocks at a hop, and the sub-blocks of a cell. A transfer never waits for
//! one that comes later in the list.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kintsu_dag::{NodeId, NodeTasks, Task, Vertex};

use crate::Overheads;

/// From where to where something moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    /// From a node's disk.
    Read(NodeId),
    /// From one node to another.
    Between(NodeId, NodeId),
    /// To a node's disk.
    Write(NodeId),
}

/// A number of symbols that move together, slice by slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub way: Way,
    pub symbols: u32,
    /// The earlier transfers that it waits for.
    pub waits: Vec<usize>,
}

/// The transfers of one slice; those of disks only where disks have rates.
pub(crate) fn transfers(lowered: &[NodeTasks], overheads: &Overheads) -> Vec<Transfer> {
    let (moves, numbers) = moves(lowered, overheads);
    let waits = waits(lowered, &moves, &numbers);
    let mut merged: Vec<Transfer> = Vec::new();
    let mut known: HashMap<(Way, Vec<usize>), usize> = HashMap::new();
    let mut at = vec![0; moves.len()];
    for i in order(&waits) {
        let after: BTreeSet<usize> = waits[i].iter().map(|&before| at[before]).collect();
        let key = (moves[i], after.into_iter().collect::<Vec<_>>());
        at[i] = *known.entry(key).or_insert_with_key(|(way, waits)| {
            merged.push(Transfer { way: *way, symbols: 0, waits: waits.clone() });
            merged.len() - 1
        });
        merged[at[i]].symbols += 1;
    }
    merged
}

/// For each transfer its place on the longest path: 1 plus the number of transfers that must come before it, one
/// after the other. Transfers of disks count as well.
pub(crate) fn depths(transfers: &[Transfer]) -> Vec<usize> {
    let mut depths: Vec<usize> = Vec::with_capacity(transfers.len());
    for transfer in transfers {
        depths.push(1 + transfer.waits.iter().map(|&t| depths[t]).max().unwrap_or(0));
    }
    depths
}

type Numbers = BTreeMap<(Way, Vertex), usize>;

/// The moves of single vertices, not grouped yet.
fn moves(lowered: &[NodeTasks], overheads: &Overheads) -> (Vec<Way>, Numbers) {
    let (reads, writes) = (overheads.disk_read.is_some(), overheads.disk_write.is_some());
    let (mut moves, mut numbers) = (Vec::new(), Numbers::new());
    let mut add = |way: Way, vertex: Vertex| {
        numbers.insert((way, vertex), moves.len());
        moves.push(way);
    };
    for NodeTasks { node, tasks, sends } in lowered {
        for task in tasks.iter().filter(|_| !node.is_client()) {
            match task {
                Task::Load { vertex } if reads => add(Way::Read(*node), *vertex),
                Task::Persist { vertex, .. } if writes => add(Way::Write(*node), *vertex),
                _ => {}
            }
        }
        for (vertex, to) in sends {
            add(Way::Between(*node, *to), *vertex);
        }
    }
    (moves, numbers)
}

fn waits(lowered: &[NodeTasks], moves: &[Way], numbers: &Numbers) -> Vec<BTreeSet<usize>> {
    let mut waits = vec![BTreeSet::new(); moves.len()];
    for NodeTasks { node, tasks, sends } in lowered {
        // For each vertex on this node, the moves into the node that it is computed from.
        let mut made_of: BTreeMap<Vertex, BTreeSet<usize>> = BTreeMap::new();
        let came = |way: Way, vertex: &Vertex| numbers.get(&(way, *vertex)).copied().into_iter().collect();
        for task in tasks {
            match task {
                Task::Load { vertex } => drop(made_of.insert(*vertex, came(Way::Read(*node), vertex))),
                Task::Fetch { vertex, from } => {
                    made_of.insert(*vertex, came(Way::Between(*from, *node), vertex));
                }
                Task::Compute { outputs, inputs, .. } => {
                    let needs: BTreeSet<usize> =
                        inputs.iter().filter_map(|input| made_of.get(input)).flatten().copied().collect();
                    made_of.extend(outputs.iter().map(|output| (*output, needs.clone())));
                }
                Task::Persist { vertex, .. } => {
                    if let Some(&number) = numbers.get(&(Way::Write(*node), *vertex)) {
                        waits[number] = made_of.get(vertex).cloned().unwrap_or_default();
                    }
                }
            }
        }
        for (vertex, to) in sends {
            let number = numbers[&(Way::Between(*node, *to), *vertex)];
            waits[number] = made_of.get(vertex).cloned().unwrap_or_default();
        }
    }
    waits
}

/// An order in which each move comes after those that it waits for; of several possible moves the lowest number
/// comes first.
fn order(waits: &[BTreeSet<usize>]) -> Vec<usize> {
    let mut followers = vec![Vec::new(); waits.len()];
    let mut left: Vec<usize> = waits.iter().map(BTreeSet::len).collect();
    for (i, waits) in waits.iter().enumerate() {
        waits.iter().for_each(|&before| followers[before].push(i));
    }
    let mut open: BTreeSet<usize> = (0..waits.len()).filter(|&i| left[i] == 0).collect();
    let mut order = Vec::with_capacity(waits.len());
    while let Some(i) = open.pop_first() {
        order.push(i);
        for &next in &followers[i] {
            left[next] -= 1;
            if left[next] == 0 {
                open.insert(next);
            }
        }
    }
    order
}
