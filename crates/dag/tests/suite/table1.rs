//! OpenEC's Table 1: the tasks of encoding with RS(6,4), online and offline.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use kintsu_dag::{DagError, Ecdag, NodeId, NodeTasks, Placed, Sink, Task, Vertex};

const C: NodeId = NodeId::CLIENT;

fn v(indices: &[u32]) -> Vec<Vertex> {
    indices.iter().copied().map(Vertex).collect()
}

/// The graph of Listing 3; v6 is the joint computation.
fn listing_3() -> Ecdag {
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 1, 2, 3]), &[1, 1, 1, 1]).unwrap();
    graph.join(Vertex(5), &v(&[0, 1, 2, 3]), &[1, 2, 4, 8]).unwrap();
    let joint = graph.bind_x(&v(&[4, 5])).unwrap();
    assert_eq!(joint, Vertex(6));
    graph.bind_y(joint, Vertex(0)).unwrap();
    graph
}

fn load(vertex: u32) -> Task {
    Task::Load { vertex: Vertex(vertex) }
}

fn fetch(vertex: u32, from: u32) -> Task {
    Task::Fetch { vertex: Vertex(vertex), from: NodeId(from) }
}

fn persist(vertex: u32) -> Task {
    Task::Persist { vertex: Vertex(vertex), sink: Sink::Block }
}

fn compute() -> Task {
    Task::Compute { outputs: v(&[4, 5]), inputs: v(&[0, 1, 2, 3]), coefs: vec![1, 1, 1, 1, 1, 2, 4, 8] }
}

fn tasks(node: NodeId, tasks: Vec<Task>, sends: &[(u32, u32)]) -> NodeTasks {
    NodeTasks { node, tasks, sends: sends.iter().map(|&(v, n)| (Vertex(v), NodeId(n))).collect() }
}

fn offline() -> Placed {
    Placed {
        graph: listing_3(),
        load_at: (0..4).map(|i| (Vertex(i), NodeId(i))).collect(),
        compute_at: BTreeMap::new(),
        persist_at: (4..6).map(|i| (Vertex(i), (NodeId(i), Sink::Block))).collect(),
    }
}

#[test]
fn online_encoding_is_table_1_a() {
    let placed = Placed {
        graph: listing_3(),
        load_at: (0..4).map(|i| (Vertex(i), C)).collect(),
        compute_at: BTreeMap::new(),
        persist_at: (0..6).map(|i| (Vertex(i), (C, Sink::Block))).collect(),
    };
    let mut expected: Vec<_> = (0..4).map(load).collect();
    expected.push(compute());
    expected.extend((0..6).map(persist));
    assert_eq!(placed.lower().unwrap(), [tasks(C, expected, &[])]);
}

#[test]
fn offline_encoding_is_table_1_b() {
    let placed = offline();
    let expected = [
        tasks(NodeId(0), vec![load(0), fetch(1, 1), fetch(2, 2), fetch(3, 3), compute()], &[(4, 4), (5, 5)]),
        tasks(NodeId(1), vec![load(1)], &[(1, 0)]),
        tasks(NodeId(2), vec![load(2)], &[(2, 0)]),
        tasks(NodeId(3), vec![load(3)], &[(3, 0)]),
        tasks(NodeId(4), vec![fetch(4, 0), persist(4)], &[]),
        tasks(NodeId(5), vec![fetch(5, 0), persist(5)], &[]),
    ];
    assert_eq!(placed.lower().unwrap(), expected);
    for vertex in v(&[4, 5, 6]) {
        assert_eq!(placed.computed_at(vertex), Ok(NodeId(0)));
    }
    assert_eq!(placed.lives_at(Vertex(3)), Ok(NodeId(3)));
}

#[test]
fn blocks_without_any_join_are_stored_copied_and_read() {
    let placed = Placed {
        graph: Ecdag::new(6, 1),
        load_at: [(Vertex(0), C), (Vertex(1), NodeId(1)), (Vertex(2), NodeId(2))].into(),
        compute_at: BTreeMap::new(),
        persist_at: [(Vertex(0), (NodeId(7), Sink::Block)), (Vertex(1), (C, Sink::Client))].into(),
    };
    let read = Task::Persist { vertex: Vertex(1), sink: Sink::Client };
    let expected = [
        tasks(C, vec![load(0), fetch(1, 1), read], &[(0, 7)]),
        tasks(NodeId(1), vec![load(1)], &[(1, C.0)]),
        tasks(NodeId(7), vec![Task::Fetch { vertex: Vertex(0), from: C }, persist(0)], &[]),
    ];
    assert_eq!(placed.lower().unwrap(), expected);
}

#[test]
fn places_that_are_missing_or_contradict_are_refused() {
    let mut placed = offline();
    placed.load_at.remove(&Vertex(2));
    assert_eq!(placed.lower(), Err(DagError::Unplaced { vertex: Vertex(2), role: "load" }));

    let mut placed = offline();
    placed.compute_at.insert(Vertex(5), NodeId(3));
    assert!(placed.lower().is_ok(), "bind_y decides");

    let mut unbound = Ecdag::new(6, 1);
    unbound.join(Vertex(4), &v(&[0, 1]), &[1, 1]).unwrap();
    unbound.join(Vertex(5), &v(&[0, 1]), &[1, 2]).unwrap();
    unbound.bind_x(&v(&[4, 5])).unwrap();
    let compute_at = [(Vertex(4), NodeId(0)), (Vertex(5), NodeId(3))].into();
    let placed = Placed { graph: unbound, compute_at, ..offline() };
    let conflict = DagError::Conflict { vertex: Vertex(5), first: NodeId(0), second: NodeId(3) };
    assert_eq!(placed.lower(), Err(conflict));

    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 1]), &[1, 1]).unwrap();
    graph.join(Vertex(5), &v(&[0, 1]), &[1, 2]).unwrap();
    graph.bind_y(Vertex(5), Vertex(1)).unwrap();
    let joint = graph.bind_x(&v(&[4, 5])).unwrap();
    graph.bind_y(joint, Vertex(0)).unwrap();
    let conflict = DagError::Conflict { vertex: Vertex(5), first: NodeId(0), second: NodeId(1) };
    assert_eq!(Placed { graph, ..offline() }.lower(), Err(conflict));

    let mut placed = offline();
    placed.load_at.insert(Vertex(4), NodeId(4));
    assert!(matches!(placed.lower(), Err(DagError::Invalid { .. })));

    let mut placed = offline();
    placed.persist_at.insert(Vertex(u32::MAX), (C, Sink::Client));
    placed.load_at.insert(Vertex(u32::MAX), NodeId(0));
    assert!(matches!(placed.lower(), Err(DagError::Invalid { .. })));

    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 1]), &[1, 1]).unwrap();
    let nowhere = Placed { graph, persist_at: BTreeMap::new(), ..offline() };
    assert_eq!(nowhere.lower(), Err(DagError::Unplaced { vertex: Vertex(4), role: "compute" }));
    assert_eq!(
        nowhere.computed_at(Vertex(0)),
        Err(DagError::Unplaced { vertex: Vertex(0), role: "compute" })
    );
}

#[test]
fn joint_computations_that_wait_for_each_other_are_a_cycle() {
    let mut graph = Ecdag::new(4, 1);
    for (parent, child) in [(10, 0), (11, 20), (20, 10), (21, 1)] {
        graph.join(Vertex(parent), &v(&[child]), &[1]).unwrap();
    }
    assert!(graph.topological().is_ok());
    graph.bind_x(&v(&[10, 11])).unwrap();
    assert!(matches!(graph.topological(), Err(DagError::Cycle { .. })));

    let mut circle = Ecdag::new(4, 1);
    circle.join(Vertex(8), &v(&[9]), &[1]).unwrap();
    circle.join(Vertex(9), &v(&[8]), &[1]).unwrap();
    assert_eq!(circle.topological(), Err(DagError::Cycle { vertex: Vertex(8) }));
}

#[test]
fn malformed_calls_are_refused() {
    let mut graph = listing_3();
    assert!(graph.join(Vertex(4), &v(&[0]), &[1]).is_err(), "joined twice");
    assert!(graph.join(Vertex(9), &[], &[]).is_err(), "no children");
    assert!(graph.join(Vertex(9), &v(&[0, 0]), &[1, 1]).is_err(), "repeated child");
    assert!(graph.join(Vertex(9), &v(&[0, 9]), &[1, 1]).is_err(), "its own child");
    assert!(graph.join(Vertex(9), &v(&[0, 1]), &[1]).is_err(), "a coefficient short");
    assert!(graph.join(Vertex(9), &v(&[6]), &[1]).is_err(), "the bind's vertex has no data");
    assert!(graph.join(Vertex(1 << 20), &v(&[0]), &[1]).is_err(), "numbered too high");
    assert!(graph.bind_x(&v(&[4])).is_err(), "bound twice");
    assert!(graph.bind_x(&v(&[0])).is_err(), "a leaf");
    assert!(graph.bind_y(Vertex(6), Vertex(1)).is_err(), "bound twice");
    assert!(graph.bind_y(Vertex(4), Vertex(9)).is_err(), "not a child");
    assert_eq!(graph, listing_3(), "nothing was changed");
}
