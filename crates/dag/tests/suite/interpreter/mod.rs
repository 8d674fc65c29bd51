//! Runs the tasks of all nodes on bytes in memory, under the strictest rules: nothing is buffered between nodes,
//! and a node sends one vertex at a time, in the order of its `sends`.

use std::collections::{BTreeMap, VecDeque};

use kintsu_algebra::mul;
use kintsu_dag::{NodeId, NodeTasks, Task, Vertex};

/// What was persisted: by vertex, the node and the bytes.
pub type Persisted = BTreeMap<Vertex, (NodeId, Vec<u8>)>;

struct Node {
    tasks: VecDeque<Task>,
    sends: VecDeque<(Vertex, NodeId)>,
    values: BTreeMap<Vertex, Vec<u8>>,
}

/// Runs all tasks to the end.
///
/// # Panics
/// When a task misses an input, a fetch has no matching send, sends remain, anything is loaded, fetched or
/// persisted twice, or the nodes wait for each other.
pub fn run(lists: &[NodeTasks], blocks: &BTreeMap<Vertex, Vec<u8>>) -> Persisted {
    let mut nodes: BTreeMap<NodeId, Node> = BTreeMap::new();
    for list in lists {
        let node = Node {
            tasks: list.tasks.clone().into(),
            sends: list.sends.clone().into(),
            values: BTreeMap::new(),
        };
        assert!(nodes.insert(list.node, node).is_none(), "{} has two lists", list.node);
    }
    let mut persisted = Persisted::new();
    loop {
        let mut progress = false;
        for list in lists {
            while step(list.node, &mut nodes, blocks, &mut persisted) {
                progress = true;
            }
        }
        if !progress {
            break;
        }
    }
    for (id, node) in &nodes {
        assert!(node.tasks.is_empty(), "{id} is stuck at {:?}", node.tasks[0]);
    }
    for (id, node) in &nodes {
        assert!(node.sends.is_empty(), "{id} never sends {:?}", node.sends[0]);
    }
    persisted
}

/// Runs the next task of a node, if it can run now.
fn step(
    id: NodeId,
    nodes: &mut BTreeMap<NodeId, Node>,
    blocks: &BTreeMap<Vertex, Vec<u8>>,
    persisted: &mut Persisted,
) -> bool {
    let Some(task) = nodes[&id].tasks.front().cloned() else { return false };
    let values = &nodes[&id].values;
    let made = match task {
        Task::Load { vertex } => vec![(vertex, blocks[&vertex].clone())],
        Task::Fetch { vertex, from } => {
            assert_ne!(from, id, "{id} fetches {vertex} from itself");
            let owner = nodes.get_mut(&from).expect("the owner has tasks");
            assert!(owner.sends.contains(&(vertex, id)), "{from} does not send {vertex} to {id}");
            if owner.sends.front() != Some(&(vertex, id)) || !owner.values.contains_key(&vertex) {
                return false;
            }
            owner.sends.pop_front();
            vec![(vertex, owner.values[&vertex].clone())]
        }
        Task::Compute { outputs, inputs, coefs } => {
            assert_eq!(coefs.len(), outputs.len() * inputs.len());
            let rows = coefs.chunks(inputs.len());
            outputs.iter().zip(rows).map(|(out, row)| (*out, combine(row, &inputs, values))).collect()
        }
        Task::Persist { vertex, .. } => {
            let bytes = values[&vertex].clone();
            assert!(persisted.insert(vertex, (id, bytes)).is_none(), "{vertex} is persisted twice");
            Vec::new()
        }
    };
    let node = nodes.get_mut(&id).expect("it has tasks");
    for (vertex, bytes) in made {
        assert!(node.values.insert(vertex, bytes).is_none(), "{id} gets {vertex} twice");
    }
    node.tasks.pop_front();
    true
}

fn combine(row: &[u8], inputs: &[Vertex], values: &BTreeMap<Vertex, Vec<u8>>) -> Vec<u8> {
    let mut sum = vec![0; values[&inputs[0]].len()];
    for (input, &coef) in inputs.iter().zip(row) {
        sum.iter_mut().zip(&values[input]).for_each(|(s, &b)| *s ^= mul(coef, b));
    }
    sum
}
