//! The steps of a serial plan ([`kintsu_plan::RunMode::Serial`]), in which a node does one step after the other.
//!
//! A node takes the slices of a step when the step starts; a slice that comes earlier waits. The step ends
//! when everything that the node sends or writes for it was taken. Then the next step starts, and no transfer
//! of that step has started before. The way of an acknowledgement back to the sender is not counted.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;
use kintsu_plan::traffic::{Transfer, Way};

/// Where the nodes of one lane are. Instance `i` is transfer `i % count` of step `i / count`.
pub(crate) struct Turns {
    /// By transfer: the node that starts it, and the node that takes it if it does not stay on the first one.
    ends: Vec<(usize, Option<usize>)>,
    nodes: Vec<Turn>,
    /// Instances that have come before their receiver's step.
    early: BTreeSet<usize>,
}

/// Where one node is.
struct Turn {
    /// Its step.
    step: usize,
    /// Transfers of this step that were not taken yet.
    left: u32,
    /// Transfers in each step.
    parts: u32,
}

impl Turns {
    pub fn new(transfers: &[Transfer]) -> Self {
        let mut numbers: BTreeMap<NodeId, usize> = BTreeMap::new();
        let mut nodes: Vec<Turn> = Vec::new();
        let mut part = |node: NodeId| {
            let number = *numbers.entry(node).or_insert_with(|| {
                nodes.push(Turn { step: 0, left: 0, parts: 0 });
                nodes.len() - 1
            });
            nodes[number].parts += 1;
            nodes[number].left += 1;
            number
        };
        let ends = transfers.iter().map(|transfer| match transfer.way {
            Way::Read(node) | Way::Write(node) => (part(node), None),
            Way::Between(from, to) => (part(from), Some(part(to))),
        });
        Self { ends: ends.collect(), nodes, early: BTreeSet::new() }
    }

    /// An instance has come. Returns the instances that their nodes may start now; some may lie beyond the
    /// last step.
    pub fn came(&mut self, instance: usize) -> Vec<usize> {
        let count = self.ends.len();
        let (mut coming, mut released) = (vec![instance], Vec::new());
        while let Some(instance) = coming.pop() {
            let (from, to) = self.ends[instance % count];
            if to.is_some_and(|to| self.nodes[to].step < instance / count) {
                self.early.insert(instance);
                continue;
            }
            for node in [Some(from), to].into_iter().flatten() {
                let turn = &mut self.nodes[node];
                turn.left -= 1;
                if turn.left > 0 {
                    continue;
                }
                turn.step += 1;
                turn.left = turn.parts;
                let step = turn.step * count..(turn.step + 1) * count;
                let taken: Vec<usize> = self
                    .early
                    .range(step.clone())
                    .copied()
                    .filter(|i| self.ends[i % count].1 == Some(node))
                    .collect();
                self.early.retain(|i| !taken.contains(i));
                coming.extend(taken);
                released.extend(step.filter(|i| self.ends[i % count].0 == node));
            }
        }
        released
    }
}
