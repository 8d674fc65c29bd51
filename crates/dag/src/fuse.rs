//! Fusing: computations of one node that read the same inputs become one computation, where that saves time.
//!
//! A node that encodes an LRC has a task for each local parity and one for the global ones. Run one by one, these
//! tasks read every data block twice. One task with zeros among its coefficients reads each block once. Fusing
//! changes no vertex, no transfer and no result, only the number of computations. Therefore the executor of the
//! tasks fuses them, and not `lower`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Task, Vertex};

/// A fused task may cost this many multiply-adds for every 2 that it replaces: below that the
/// saved pass over the inputs is worth more than the products with zero.
const FUSED_PER_TWO: usize = 3;

/// Fuses `Compute` tasks that share inputs, do not need each other and have no `Fetch` between them (at a `Fetch`,
/// a node may wait for what another node computes from the first task's outputs). A fused task takes the place of
/// the last of its parts; all other tasks keep their order.
pub fn fuse(tasks: &[Task]) -> Vec<Task> {
    let mut fused = Vec::with_capacity(tasks.len());
    let mut run = Run::default();
    for task in tasks {
        match task {
            Task::Load { .. } => fused.push(task.clone()),
            Task::Compute { outputs, inputs, coefs } => {
                if inputs.iter().any(|input| run.outputs.contains(input)) {
                    run.close(&mut fused);
                }
                run.add(Computation {
                    outputs: outputs.clone(),
                    inputs: inputs.clone(),
                    coefs: coefs.clone(),
                    needed: needed(coefs),
                });
            }
            Task::Fetch { .. } | Task::Persist { .. } => {
                run.close(&mut fused);
                fused.push(task.clone());
            }
        }
    }
    run.close(&mut fused);
    fused
}

/// The fields of `Task::Compute`.
struct Computation {
    outputs: Vec<Vertex>,
    inputs: Vec<Vertex>,
    coefs: Vec<u8>,
    needed: usize,
}

/// Multiply-adds by coefficients other than 0.
fn needed(coefs: &[u8]) -> usize {
    coefs.iter().filter(|&&c| c != 0).count()
}

/// Computations that do not need each other, in order.
#[derive(Default)]
struct Run {
    /// `None` where one was fused into a later one.
    computations: Vec<Option<Computation>>,
    /// The last computation that reads each vertex.
    reader: BTreeMap<Vertex, usize>,
    outputs: BTreeSet<Vertex>,
}

impl Run {
    fn add(&mut self, computation: Computation) {
        self.outputs.extend(&computation.outputs);
        let sharing: BTreeSet<usize> =
            computation.inputs.iter().filter_map(|input| self.reader.get(input).copied()).collect();
        let parts: Vec<&Computation> = sharing
            .iter()
            .filter_map(|&at| self.computations[at].as_ref())
            .chain(std::iter::once(&computation))
            .collect();
        let fused = (parts.len() > 1).then(|| join(&parts)).flatten();
        if fused.is_some() {
            sharing.iter().for_each(|&at| self.computations[at] = None);
        }
        let computation = fused.unwrap_or(computation);
        let at = self.computations.len();
        self.reader.extend(computation.inputs.iter().map(|&input| (input, at)));
        self.computations.push(Some(computation));
    }

    /// Appends the collected computations to `tasks`, and starts again with none.
    fn close(&mut self, tasks: &mut Vec<Task>) {
        let run = std::mem::take(self);
        tasks.extend(
            run.computations
                .into_iter()
                .flatten()
                .map(|Computation { outputs, inputs, coefs, .. }| Task::Compute { outputs, inputs, coefs }),
        );
    }
}

/// One computation in place of all `parts`; `None` when it would cost too much.
fn join(parts: &[&Computation]) -> Option<Computation> {
    let needed: usize = parts.iter().map(|part| part.needed).sum();
    let rows: usize = parts.iter().map(|part| part.outputs.len()).sum();
    let dear = |columns: usize| rows * columns * 2 > needed * FUSED_PER_TWO;
    // The most common case, decided without looking at the vertices.
    if dear(parts.iter().map(|part| part.inputs.len()).max().unwrap_or(0)) {
        return None;
    }
    let mut inputs: Vec<Vertex> = Vec::new();
    let mut column = BTreeMap::new();
    for &input in parts.iter().flat_map(|part| &part.inputs) {
        column.entry(input).or_insert_with(|| {
            inputs.push(input);
            inputs.len() - 1
        });
    }
    let outputs: Vec<Vertex> = parts.iter().flat_map(|part| &part.outputs).copied().collect();
    if dear(inputs.len()) {
        return None;
    }
    let mut coefs = Vec::with_capacity(rows * inputs.len());
    for part in parts {
        for row in part.coefs.chunks(part.inputs.len()) {
            let start = coefs.len();
            coefs.resize(start + inputs.len(), 0);
            part.inputs.iter().zip(row).for_each(|(input, &c)| coefs[start + column[input]] = c);
        }
    }
    Some(Computation { outputs, inputs, coefs, needed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    fn compute(outputs: &[u32], inputs: &[u32], coefs: &[u8]) -> Task {
        let vertices = |v: &[u32]| v.iter().map(|&v| Vertex(v)).collect();
        Task::Compute { outputs: vertices(outputs), inputs: vertices(inputs), coefs: coefs.to_vec() }
    }

    #[test]
    fn local_and_global_parities_become_one_pass_over_the_data() {
        let tasks = [
            compute(&[4], &[0, 1], &[1, 1]),
            compute(&[5], &[2, 3], &[1, 1]),
            compute(&[6, 7], &[0, 1, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        let one = compute(&[4, 5, 6, 7], &[0, 1, 2, 3], &[1, 1, 0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(fuse(&tasks), [one]);
    }

    #[test]
    fn inputs_in_another_order_keep_their_coefficients() {
        let tasks = [compute(&[4], &[0, 1, 2], &[1, 2, 3]), compute(&[5], &[2, 3, 0], &[4, 5, 6])];
        assert_eq!(fuse(&tasks), [compute(&[4, 5], &[0, 1, 2, 3], &[1, 2, 3, 0, 6, 0, 4, 5])]);
    }

    #[test]
    fn strangers_dependants_and_costly_pairs_stay_apart() {
        let strangers = [compute(&[4], &[0, 1], &[1, 1]), compute(&[5], &[2, 3], &[1, 1])];
        let dependants = [compute(&[4], &[0, 1], &[1, 1]), compute(&[5], &[0, 4], &[1, 1])];
        let costly = [compute(&[9], &[0, 1, 2, 3], &[1; 4]), compute(&[10], &[3, 4, 5, 6], &[1; 4])];
        for tasks in [&strangers, &dependants, &costly] {
            assert_eq!(fuse(tasks), tasks);
        }
    }

    #[test]
    fn a_fetch_or_a_persist_divides_and_a_load_does_not() {
        let (first, second) = (compute(&[4], &[0, 1], &[1, 2]), compute(&[5], &[0, 1], &[3, 4]));
        let between = |task: Task| vec![first.clone(), task, second.clone()];
        let fetch = between(Task::Fetch { vertex: Vertex(2), from: NodeId(1) });
        assert_eq!(fuse(&fetch), fetch);
        let persist = between(Task::Persist { vertex: Vertex(4), sink: crate::Sink::Block });
        assert_eq!(fuse(&persist), persist);
        let load = Task::Load { vertex: Vertex(2) };
        let both = compute(&[4, 5], &[0, 1], &[1, 2, 3, 4]);
        assert_eq!(fuse(&between(load.clone())), [load, both]);
    }
}
