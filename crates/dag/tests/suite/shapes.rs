//! Random linear maps as star, tree, chain and rack-aware chain: all must give the same map, and after proof,
//! lowering and running the same bytes. Also random graphs with automatic binds.
#![allow(clippy::unwrap_used)]

use crate::interpreter;

use std::collections::{BTreeMap, BTreeSet};

use interpreter::run;
use kintsu_algebra::{Matrix, mul};
use kintsu_dag::{
    BlockIndex, DagError, Ecdag, NodeId, Placed, RackId, Sink, Task, Vertex, chain, over_tree, pipelined,
    star, tree,
};
use proptest::prelude::*;

/// A linear map from the symbols of the first `helpers` blocks to those of the next `lost` ones.
#[derive(Debug, Clone)]
struct Case {
    helpers: usize,
    lost: usize,
    w: usize,
    coefs: Matrix,
    /// The order in which the chain visits the helpers.
    path: Vec<usize>,
    /// For each helper on the path the one that it sends to in some tree.
    parents: Vec<Option<usize>>,
    racks: u32,
}

impl Case {
    fn n(&self) -> usize {
        self.helpers + self.lost
    }

    fn leaves(&self) -> Vec<Vertex> {
        (0..self.helpers * self.w).map(|i| Vertex(i as u32)).collect()
    }

    fn targets(&self) -> Vec<Vertex> {
        (self.helpers * self.w..self.n() * self.w).map(|i| Vertex(i as u32)).collect()
    }

    fn hops(&self) -> Vec<Vec<Vertex>> {
        let block = |b: &usize| (b * self.w..(b + 1) * self.w).map(|i| Vertex(i as u32)).collect();
        self.path.iter().map(block).collect()
    }

    /// The coefficients with columns in the order of the path.
    fn coefs_on_path(&self) -> Matrix {
        let columns: Vec<usize> = self.hops().concat().iter().map(|v| v.0 as usize).collect();
        Matrix::from_fn(self.coefs.rows(), self.coefs.cols(), |i, j| self.coefs.row(i)[columns[j]])
    }

    /// A code in which the map holds: the helpers' blocks are its data, the others follow from them.
    fn generator(&self) -> Matrix {
        let data = self.helpers * self.w;
        Matrix::from_fn(self.n() * self.w, data, |i, j| {
            if i < data { u8::from(i == j) } else { self.coefs.row(i - data)[j] }
        })
    }

    fn rack_of(&self, vertex: Vertex) -> RackId {
        RackId(vertex.0 / self.w as u32 % self.racks)
    }

    fn shapes(&self) -> Vec<(&'static str, Ecdag)> {
        let (n, w, hops, targets, coefs) =
            (self.n(), self.w, self.hops(), self.targets(), self.coefs_on_path());
        let direct = star(n, w, &hops, &targets, &coefs).unwrap();
        let racked = pipelined(&direct, &|v| self.rack_of(v), RackId(0)).unwrap();
        let mut bound = direct.clone();
        bound.auto_bind().unwrap();
        vec![
            ("tree", tree(n, w, &hops, &targets, &coefs).unwrap()),
            ("chain", chain(n, w, &hops, &targets, &coefs).unwrap()),
            ("any tree", over_tree(n, w, &hops, &self.parents, &targets, &coefs).unwrap()),
            ("pipelined", racked),
            ("bound", bound),
            ("star", direct),
        ]
    }

    /// Places every block on the node with its number, and repairs every lost block on its old node.
    fn place(&self, graph: Ecdag) -> Placed {
        let node = |v: &Vertex| NodeId(v.0 / self.w as u32);
        Placed {
            graph,
            load_at: self.leaves().iter().map(|v| (*v, node(v))).collect(),
            compute_at: self.targets().iter().map(|v| (*v, NodeId(self.helpers as u32))).collect(),
            persist_at: self.targets().iter().map(|v| (*v, (node(v), Sink::Block))).collect(),
        }
    }
}

/// Coefficients, many of them 0 and 1.
fn coef() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), any::<u8>()]
}

fn case() -> impl Strategy<Value = Case> {
    (1..9usize, 1..4usize, 1..4usize, 1..4u32).prop_flat_map(|(helpers, lost, w, racks)| {
        let path = Just((0..helpers).collect::<Vec<_>>()).prop_shuffle();
        let coefs = proptest::collection::vec(coef(), lost * w * helpers * w);
        let ups = proptest::collection::vec(any::<prop::sample::Index>(), helpers);
        (coefs, path, ups).prop_map(move |(coefs, path, ups)| Case {
            parents: any_tree(&path, &ups),
            helpers,
            lost,
            w,
            coefs: Matrix::from_vec(lost * w, helpers * w, coefs).unwrap(),
            path,
            racks,
        })
    })
}

/// A tree over hops in any order: each in turn sends to one of those after it, or to the requestor.
fn any_tree(order: &[usize], ups: &[prop::sample::Index]) -> Vec<Option<usize>> {
    let mut parents = vec![None; order.len()];
    for (at, (hop, up)) in order.iter().zip(ups).enumerate() {
        let after = up.index(order.len() - at);
        parents[*hop] = order.get(at + 1 + after).copied();
    }
    parents
}

/// Different bytes for each leaf.
fn blocks(leaves: &[Vertex]) -> BTreeMap<Vertex, Vec<u8>> {
    let bytes = |v: &Vertex| (0..5u32).map(|i| (v.0 * 59 + i * 101 + 17) as u8).collect();
    leaves.iter().map(|v| (*v, bytes(v))).collect()
}

/// The expected targets, directly from the matrix.
fn expected(leaves: &[Vertex], row: &[u8], blocks: &BTreeMap<Vertex, Vec<u8>>) -> Vec<u8> {
    let mut sum = vec![0; 5];
    for (leaf, &coef) in leaves.iter().zip(row) {
        sum.iter_mut().zip(&blocks[leaf]).for_each(|(s, &b)| *s ^= mul(coef, b));
    }
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn all_shapes_of_a_map_prove_and_run_to_the_same_bytes(case in case()) {
        let blocks = blocks(&case.leaves());
        for (shape, graph) in case.shapes() {
            prop_assert_eq!(graph.prove(&case.generator()), Ok(()), "{}", shape);
            let (leaves, targets, coefs) = graph.flatten().unwrap();
            prop_assert_eq!(&targets, &case.targets(), "{}", shape);
            for (target, row) in (0..).zip(&targets) {
                for (column, leaf) in leaves.iter().enumerate() {
                    let original = case.coefs.row(target)[leaf.0 as usize];
                    prop_assert_eq!(coefs.row(target)[column], original, "{}: {} of {}", shape, leaf, row);
                }
            }
            let placed = case.place(graph);
            let persisted = run(&placed.lower().unwrap(), &blocks);
            for (i, target) in case.targets().iter().enumerate() {
                let wanted = expected(&case.leaves(), case.coefs.row(i), &blocks);
                prop_assert_eq!(&persisted[target], &(placed.persist_at[target].0, wanted), "{}", shape);
            }
        }
    }

    #[test]
    fn a_wrong_coefficient_is_never_proved(case in case(), at in any::<prop::sample::Index>(), by in 1..=255u8) {
        let generator = case.generator();
        let mut wrong = case.clone();
        let at = at.index(case.coefs.as_slice().len());
        wrong.coefs.row_mut(at / case.coefs.cols())[at % case.coefs.cols()] ^= by;
        for (shape, graph) in wrong.shapes() {
            prop_assert!(matches!(graph.prove(&generator), Err(DagError::False { .. })), "{}", shape);
        }
    }

    #[test]
    fn shortened_stripes_prove_and_run_without_the_absent_blocks(case in case(), mask in any::<u8>()) {
        let absent: Vec<BlockIndex> =
            (0..case.helpers).filter(|b| mask >> b & 1 == 1).map(|b| BlockIndex(b as u8)).collect();
        let gone: BTreeSet<Vertex> =
            case.leaves().into_iter().filter(|v| mask >> (v.0 as usize / case.w) & 1 == 1).collect();
        let mut blocks = blocks(&case.leaves());
        gone.iter().for_each(|v| { blocks.insert(*v, vec![0; 5]); });
        for (shape, graph) in case.shapes() {
            let (short, zero) = graph.without_leaves(&gone).unwrap();
            prop_assert_eq!(short.prove_shortened(&case.generator(), &absent), Ok(()), "{}", shape);
            let mut placed = case.place(short);
            placed.load_at.retain(|v, _| !gone.contains(v));
            placed.persist_at.retain(|v, _| !zero.contains(v));
            let persisted = run(&placed.lower().unwrap(), &blocks);
            for (i, target) in case.targets().iter().enumerate() {
                let wanted = expected(&case.leaves(), case.coefs.row(i), &blocks);
                match zero.contains(target) {
                    true => prop_assert_eq!(wanted, vec![0; 5], "{}", shape),
                    false => prop_assert_eq!(&persisted[target].1, &wanted, "{}", shape),
                }
            }
        }
    }

    #[test]
    fn lowered_random_graphs_compute_their_flat_map(
        seeds in proptest::collection::vec((any::<u64>(), coef(), 0..5u32), 1..25),
        binds in 0..3u8,
    ) {
        let mut graph = random_graph(&seeds);
        match binds {
            0 => {}
            1 => graph.auto_bind_x().unwrap(),
            _ => graph.auto_bind().unwrap(),
        }
        let (leaves, targets, coefs) = graph.flatten().unwrap();
        let blocks = blocks(&(0..LEAVES).map(Vertex).collect::<Vec<_>>());
        let places: Vec<NodeId> = seeds.iter().map(|(_, _, node)| NodeId(*node)).collect();
        let mut units: Vec<Vertex> = graph.binds_x().iter().map(|b| b.vertex).collect();
        units.extend(graph.joins().keys().filter(|v| graph.bind_of(**v).is_none()));
        let placed = Placed {
            load_at: (0..LEAVES).map(|i| (Vertex(i), NodeId(i % 5))).collect(),
            compute_at: units.iter().map(|v| (*v, places[v.0 as usize % places.len()])).collect(),
            persist_at: targets.iter().map(|v| (*v, (NodeId(v.0 % 7), Sink::Block)))
                .chain([(Vertex(0), (NodeId(9), Sink::Client))]).collect(),
            graph,
        };
        let lists = placed.lower().unwrap();
        let persisted = run(&lists, &blocks);
        prop_assert_eq!(&persisted[&Vertex(0)], &(NodeId(9), blocks[&Vertex(0)].clone()));
        for (i, target) in targets.iter().enumerate() {
            let wanted = expected(&leaves, coefs.row(i), &blocks);
            prop_assert_eq!(&persisted[target], &(NodeId(target.0 % 7), wanted));
        }
        for list in &lists {
            for task in &list.tasks {
                if let Task::Compute { outputs, .. } = task {
                    prop_assert_eq!(placed.computed_at(outputs[0]), Ok(list.node));
                }
            }
        }
        if !targets.is_empty() {
            let racked = pipelined(&placed.graph, &|v| RackId(v.0 % 3), RackId(1)).unwrap();
            prop_assert_eq!(racked.flatten().unwrap().1, targets);
        }
    }
}

const LEAVES: u32 = 6;

/// Joins over earlier vertices, the seed's bits choosing which; every third one is a symbol.
fn random_graph(seeds: &[(u64, u8, u32)]) -> Ecdag {
    let mut graph = Ecdag::new(20, 1);
    let mut made: Vec<Vertex> = (0..LEAVES).map(Vertex).collect();
    for (i, &(seed, coef, _)) in (0..).zip(seeds) {
        let parent = Vertex(if i % 3 == 2 { LEAVES + i / 3 } else { 40 + i });
        let mut children: Vec<Vertex> =
            made.iter().enumerate().filter(|(bit, _)| seed >> bit & 5 == 5).map(|(_, v)| *v).collect();
        if children.is_empty() {
            children.push(made[seed as usize % made.len()]);
        }
        let coefs: Vec<u8> =
            (0..).zip(&children).map(|(j, _)| coef ^ (seed >> (40 + j % 16)) as u8).collect();
        graph.join(parent, &children, &coefs).unwrap();
        made.push(parent);
    }
    graph
}

fn ones(helpers: usize) -> Case {
    Case {
        helpers,
        lost: 1,
        w: 1,
        coefs: Matrix::from_fn(1, helpers, |_, _| 1),
        path: (0..helpers).collect(),
        parents: vec![None; helpers],
        racks: 1,
    }
}

#[test]
fn a_tree_of_four_helpers_is_that_of_ecpipe_figure_2_b() {
    let case = ones(4);
    let graph = tree(5, 1, &case.hops(), &case.targets(), &case.coefs).unwrap();
    let rounds = case.place(graph).lower().unwrap();
    let sends: BTreeMap<u32, Vec<u32>> =
        rounds.iter().map(|l| (l.node.0, l.sends.iter().map(|(_, to)| to.0).collect())).collect();
    assert_eq!(sends, [(0, vec![1]), (1, vec![3]), (2, vec![3]), (3, vec![4]), (4, vec![])].into());
}

#[test]
fn a_tree_takes_logarithmic_rounds_and_a_chain_passes_one_vertex_on_each_link() {
    for k in 1..40 {
        let case = ones(k);
        let (n, hops, targets) = (case.n(), case.hops(), case.targets());
        let graph = tree(n, 1, &hops, &targets, &case.coefs).unwrap();
        let mut rounds: BTreeMap<Vertex, u32> = BTreeMap::new();
        for vertex in graph.topological().unwrap() {
            // A node receives one vertex per round: the i-th one arrives in round i at the earliest.
            let mut arrivals: Vec<u32> = graph
                .inputs(vertex)
                .iter()
                .filter(|v| !case.leaves().contains(v))
                .map(|v| rounds[v])
                .collect();
            arrivals.sort_unstable();
            let done = arrivals.iter().fold(0, |round, &sent| round.max(sent) + 1);
            rounds.insert(vertex, done);
        }
        // The last helper may have computed the target, which then takes one more round to the requestor.
        let placed = case.place(graph);
        let last = u32::from(placed.lives_at(targets[0]).unwrap() != placed.compute_at[&targets[0]]);
        assert_eq!(rounds[&targets[0]] + last, (k as u32 + 1).next_power_of_two().ilog2(), "k = {k}");

        let graph = chain(n, 1, &hops, &targets, &case.coefs).unwrap();
        for (i, list) in (0..).zip(case.place(graph).lower().unwrap()) {
            assert_eq!(list.sends.len(), usize::from(i < k), "{}", list.node);
            assert!(list.sends.iter().all(|(_, to)| to.0 == list.node.0 + 1));
        }
    }
}

#[test]
fn what_a_hop_has_got_for_one_target_goes_on_from_there_for_another() {
    // Helpers 0 and 2 send to 1, which adds to the second target only; the first is of 0 and 3.
    let case = Case {
        lost: 2,
        coefs: Matrix::from_fn(2, 4, |t, c| [[2, 0, 0, 3], [1, 4, 5, 6]][t][c]),
        parents: vec![Some(1), None, Some(1), None],
        ..ones(4)
    };
    let graph = over_tree(6, 1, &case.hops(), &case.parents, &case.targets(), &case.coefs).unwrap();
    graph.prove(&case.generator()).unwrap();
    let lists = case.place(graph).lower().unwrap();
    let sent = |list: &kintsu_dag::NodeTasks| list.sends.iter().map(|(_, to)| to.0).collect::<Vec<_>>();
    assert_eq!(
        lists.iter().map(sent).collect::<Vec<_>>(),
        [vec![1], vec![4, 4], vec![1], vec![4], vec![5], vec![]]
    );
}

#[test]
fn a_hop_sends_no_more_than_it_and_those_before_it_know() {
    // Four targets from one symbol of each of six helpers, and two of a seventh; as a chain and as a tree.
    let (w, targets) = (4, (28..32).map(Vertex).collect::<Vec<_>>());
    let leaf = |block: u32, sub: u32| Vertex(block * 4 + sub);
    let hops: Vec<Vec<Vertex>> =
        (0..6).map(|b| vec![leaf(b, b % 4)]).chain([vec![leaf(6, 0), leaf(6, 2)]]).collect();
    let coefs = Matrix::from_fn(4, 8, |t, c| kintsu_algebra::exp(t * c));
    let generator = Matrix::from_fn(32, 28, |i, j| match i.checked_sub(28) {
        None => u8::from(i == j),
        Some(t) => hops.concat().iter().position(|v| v.0 as usize == j).map_or(0, |c| coefs.row(t)[c]),
    });
    let sends = |graph: Ecdag| {
        graph.prove(&generator).unwrap();
        let node = |v: &Vertex| (*v, NodeId(v.0 / 4));
        let placed = Placed {
            load_at: graph.leaves().iter().map(node).collect(),
            compute_at: targets.iter().map(node).collect(),
            persist_at: targets.iter().map(|v| (*v, (NodeId(7), Sink::Block))).collect(),
            graph,
        };
        let lists = placed.lower().unwrap();
        let blocks = blocks(&hops.concat());
        let persisted = run(&lists, &blocks);
        for (t, target) in targets.iter().enumerate() {
            assert_eq!(persisted[target].1, expected(&hops.concat(), coefs.row(t), &blocks));
        }
        lists.iter().map(|list| list.sends.len()).collect::<Vec<_>>()
    };
    assert_eq!(sends(chain(8, w, &hops, &targets, &coefs).unwrap()), [1, 2, 3, 4, 4, 4, 4, 0]);
    assert_eq!(sends(tree(8, w, &hops, &targets, &coefs).unwrap()), [1, 2, 1, 4, 1, 2, 2, 0]);
}

#[test]
fn a_pipelined_graph_leaves_each_rack_once() {
    // OpenEC, Fig. 5: b0 from b1..b6; the odd ones in rack 1, the even ones with the requestor.
    let mut graph = Ecdag::new(9, 1);
    let children: Vec<Vertex> = (1..7).map(Vertex).collect();
    graph.join(Vertex(0), &children, &[3, 4, 5, 6, 7, 8]).unwrap();
    let racked = pipelined(&graph, &|v| RackId(v.0 % 2), RackId(0)).unwrap();
    let node = |v: u32| NodeId(v);
    let placed = Placed {
        graph: racked,
        load_at: (1..7).map(|i| (Vertex(i), node(i))).collect(),
        compute_at: BTreeMap::new(),
        persist_at: [(Vertex(0), (node(0), Sink::Block))].into(),
    };
    let hops: Vec<(u32, u32)> = placed
        .lower()
        .unwrap()
        .iter()
        .flat_map(|l| l.sends.iter().map(|(_, to)| (l.node.0, to.0)).collect::<Vec<_>>())
        .collect();
    let hops: BTreeSet<_> = hops.into_iter().collect();
    assert_eq!(hops, [(1, 3), (3, 5), (5, 2), (2, 4), (4, 6), (6, 0)].into());
}

#[test]
fn automatic_binds_are_those_of_openec_figure_3() {
    let leaves: Vec<Vertex> = (0..4).map(Vertex).collect();
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &leaves, &[1, 1, 1, 1]).unwrap();
    graph.join(Vertex(5), &[3, 1, 2, 0].map(Vertex), &[8, 2, 4, 1]).unwrap();
    graph.join(Vertex(9), &[Vertex(0)], &[1]).unwrap();
    graph.join(Vertex(10), &[Vertex(0)], &[2]).unwrap();
    graph.auto_bind().unwrap();
    assert_eq!(graph.binds_x().len(), 1, "single children are not worth a joint computation");
    assert_eq!(graph.binds_x()[0].members, [Vertex(4), Vertex(5)]);
    let joint = graph.binds_x()[0].vertex;
    let bound = [(Vertex(9), Vertex(0)), (Vertex(10), Vertex(0)), (joint, Vertex(0))];
    assert_eq!(graph.binds_y(), &bound.into());
    let once = graph.clone();
    graph.auto_bind().unwrap();
    assert_eq!(graph, once, "what is bound stays as it is");
}

#[test]
#[should_panic(expected = "is stuck")]
fn the_interpreter_notices_sends_out_of_order() {
    let case = Case { lost: 2, coefs: Matrix::from_fn(2, 3, |_, _| 1), ..ones(3) };
    let graph = chain(5, 1, &case.hops(), &case.targets(), &case.coefs).unwrap();
    let mut lists = case.place(graph).lower().unwrap();
    lists[1].sends.reverse();
    run(&lists, &blocks(&case.leaves()));
}

#[test]
fn misshapen_maps_are_refused() {
    let case = ones(3);
    let (hops, targets) = (case.hops(), case.targets());
    for shape in [star, tree, chain] {
        assert!(shape(4, 1, &hops, &targets, &Matrix::zero(1, 2)).is_err(), "a column short");
        assert!(shape(4, 1, &hops, &targets, &Matrix::zero(2, 3)).is_err(), "a row too many");
        assert!(shape(4, 1, &[], &targets, &Matrix::zero(1, 0)).is_err(), "no leaves");
        assert!(shape(4, 1, &hops, &[Vertex(2)], &case.coefs).is_err(), "a target that is a leaf");
        assert!(shape(4, 1, &hops, &[Vertex(1 << 20)], &case.coefs).is_err(), "numbered too high");
    }
    assert!(pipelined(&Ecdag::new(4, 1), &|_| RackId(0), RackId(0)).is_err(), "computes nothing");
}
