//! What a lowered graph moves for each slice, and which transfers wait for which.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kintsu_dag::{NodeTasks, Task, Vertex};

use super::Way;

/// Symbols that move together, slice by slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// From where to where.
    pub way: Way,
    /// How many symbols.
    pub symbols: u32,
    /// The transfers whose symbols it is computed from, by their place in the list, ascending.
    pub waits: Vec<usize>,
}

/// Whether reading from and writing to the disks of nodes count as transfers. A client's do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Disks {
    /// Reads do.
    pub reads: bool,
    /// Writes do.
    pub writes: bool,
}

/// The transfers of one slice of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transfers(Vec<Transfer>);

impl std::ops::Deref for Transfers {
    type Target = [Transfer];

    fn deref(&self) -> &[Transfer] {
        &self.0
    }
}

impl Transfers {
    /// One transfer for each symbol that moves, node by node in the order of the lowered graph.
    pub fn of(lowered: &[NodeTasks], disks: Disks) -> Self {
        let (ways, numbers) = moves(lowered, disks);
        let waits = waits(lowered, ways.len(), &numbers);
        let transfers = ways.into_iter().zip(waits);
        let one = |(way, waits): (Way, BTreeSet<usize>)| Transfer {
            way,
            symbols: 1,
            waits: waits.into_iter().collect(),
        };
        Self(transfers.map(one).collect())
    }

    /// Symbols that go the same way and wait for the same transfers, as one transfer: agents send them together.
    /// Examples are the sums of several lost blocks at a hop, and the sub-blocks of a cell. In the result each
    /// transfer comes after those that it waits for.
    pub fn grouped(&self) -> Self {
        let mut grouped: Vec<Transfer> = Vec::new();
        let mut known: HashMap<(Way, Vec<usize>), usize> = HashMap::new();
        let mut at = vec![0; self.len()];
        for i in self.order() {
            let waits: BTreeSet<usize> = self[i].waits.iter().map(|&before| at[before]).collect();
            let key = (self[i].way, waits.into_iter().collect::<Vec<_>>());
            at[i] = *known.entry(key).or_insert_with_key(|(way, waits)| {
                grouped.push(Transfer { way: *way, symbols: 0, waits: waits.clone() });
                grouped.len() - 1
            });
            grouped[at[i]].symbols += self[i].symbols;
        }
        Self(grouped)
    }

    /// For each transfer its place on the longest path: 1 plus the number of transfers that must come before it,
    /// one after the other.
    pub fn depths(&self) -> Vec<usize> {
        let mut depths = vec![0; self.len()];
        for i in self.order() {
            depths[i] = 1 + self[i].waits.iter().map(|&before| depths[before]).max().unwrap_or(0);
        }
        depths
    }

    /// The number of transfers on the longest path.
    pub fn depth(&self) -> usize {
        self.depths().into_iter().max().unwrap_or(0)
    }

    /// An order in which each transfer comes after those that it waits for; of several possible ones the lowest
    /// number comes first.
    fn order(&self) -> Vec<usize> {
        let mut followers = vec![Vec::new(); self.len()];
        let mut left: Vec<usize> = self.iter().map(|transfer| transfer.waits.len()).collect();
        for (i, transfer) in self.iter().enumerate() {
            transfer.waits.iter().for_each(|&before| followers[before].push(i));
        }
        let mut open: BTreeSet<usize> = (0..self.len()).filter(|&i| left[i] == 0).collect();
        let mut order = Vec::with_capacity(self.len());
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
}

type Numbers = BTreeMap<(Way, Vertex), usize>;

/// The moves of single vertices.
fn moves(lowered: &[NodeTasks], disks: Disks) -> (Vec<Way>, Numbers) {
    let (mut moves, mut numbers) = (Vec::new(), Numbers::new());
    let mut add = |way: Way, vertex: Vertex| {
        numbers.insert((way, vertex), moves.len());
        moves.push(way);
    };
    for NodeTasks { node, tasks, sends } in lowered {
        for task in tasks.iter().filter(|_| !node.is_client()) {
            match task {
                Task::Load { vertex } if disks.reads => add(Way::Read(*node), *vertex),
                Task::Persist { vertex, .. } if disks.writes => add(Way::Write(*node), *vertex),
                _ => {}
            }
        }
        for (vertex, to) in sends {
            add(Way::Between(*node, *to), *vertex);
        }
    }
    (moves, numbers)
}

/// For each move, the moves into its node that its vertex is computed from.
fn waits(lowered: &[NodeTasks], count: usize, numbers: &Numbers) -> Vec<BTreeSet<usize>> {
    let mut waits = vec![BTreeSet::new(); count];
    for NodeTasks { node, tasks, sends } in lowered {
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
