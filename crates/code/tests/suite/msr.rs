//! Codes that repair from parts of blocks: every loss up to the claim, what single repairs read and move against
//! figures written down by hand, and what is refused.

use std::collections::BTreeSet;

use kintsu_code::{Code, parse};
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

/// A code and, for each block, the symbols that its repair reads and those it moves.
struct Case {
    name: &'static str,
    w: usize,
    /// Runs of blocks with the same figures: how many blocks, symbols read, symbols moved.
    repairs: &'static [(usize, usize, usize)],
}

const CASES: &[Case] = &[
    // One sub-block of each other block; for parities sums of all k of each.
    Case { name: "miser:n=4,k=2", w: 2, repairs: &[(2, 3, 3), (2, 6, 3)] },
    Case { name: "miser:n=6,k=3", w: 3, repairs: &[(3, 5, 5), (3, 15, 5)] },
    Case { name: "miser:n=8,k=4", w: 4, repairs: &[(4, 7, 7), (4, 28, 7)] },
    Case { name: "miser:n=10,k=5", w: 5, repairs: &[(5, 9, 9), (5, 45, 9)] },
    // Data: k halves of the second parts, one for each block of the group. Parities, and one group: k blocks.
    Case { name: "hitchhiker-xor:n=14,k=10", w: 2, repairs: &[(6, 13, 13), (4, 14, 14), (4, 20, 20)] },
    Case { name: "hitchhiker-xor:n=9,k=6", w: 2, repairs: &[(6, 9, 9), (3, 12, 12)] },
    Case { name: "hitchhiker-xor:n=11,k=7", w: 2, repairs: &[(4, 9, 9), (3, 10, 10), (4, 14, 14)] },
    Case { name: "hitchhiker-xor:n=12,k=7", w: 2, repairs: &[(1, 8, 8), (6, 9, 9), (5, 14, 14)] },
    Case { name: "hitchhiker-xor:n=6,k=4", w: 2, repairs: &[(6, 8, 8)] },
    // The sub-stripe of the block's group, less n - k: (n + (alpha - 1) |group|) - (n - k); groups 5, 5, 4 and 4, 4, 3, 3.
    Case {
        name: "less:n=14,k=10,alpha=2",
        w: 2,
        repairs: &[
            (2, 15, 15),
            (1, 14, 14),
            (2, 15, 15),
            (1, 14, 14),
            (2, 15, 15),
            (1, 14, 14),
            (2, 15, 15),
            (1, 14, 14),
            (2, 15, 15),
        ],
    },
    Case {
        name: "less:n=14,k=10,alpha=3",
        w: 3,
        repairs: &[(2, 18, 18), (2, 16, 16), (2, 18, 18), (2, 16, 16), (2, 18, 18), (2, 16, 16), (2, 18, 18)],
    },
    Case {
        name: "less:n=14,k=10,alpha=4",
        w: 4,
        repairs: &[(4, 19, 19), (1, 16, 16), (4, 19, 19), (1, 16, 16), (4, 19, 19)],
    },
    // Half of every other block; for parity B sums of all of each data block but the first.
    Case { name: "butterfly:n=4,k=2", w: 2, repairs: &[(3, 3, 3), (1, 4, 3)] },
    Case { name: "butterfly:n=5,k=3", w: 4, repairs: &[(4, 8, 8), (1, 12, 8)] },
    Case { name: "butterfly:n=6,k=4", w: 8, repairs: &[(5, 20, 20), (1, 32, 20)] },
    Case { name: "butterfly:n=8,k=6", w: 32, repairs: &[(7, 112, 112), (1, 192, 112)] },
    // k blocks are read; each moves to the requestor or to another helper, which sends its sum in its place.
    Case { name: "drc:n=6,k=4", w: 1, repairs: &[(6, 4, 4)] },
    Case { name: "drc:n=9,k=6", w: 1, repairs: &[(9, 6, 6)] },
    // Two parities: three quarters of k blocks. Else as found by a search of another program.
    Case { name: "rotated-rs:n=6,k=4", w: 2, repairs: &[(4, 6, 6), (2, 8, 8)] },
    Case { name: "rotated-rs:n=18,k=16", w: 2, repairs: &[(16, 24, 24), (2, 32, 32)] },
    Case { name: "rotated-rs:n=9,k=6", w: 2, repairs: &[(6, 8, 8), (3, 12, 12)] },
    Case { name: "rotated-rs:n=16,k=12", w: 2, repairs: &[(12, 15, 15), (4, 24, 24)] },
    Case {
        name: "rotated-rs:n=14,k=10",
        w: 2,
        repairs: &[(2, 12, 12), (3, 13, 13), (2, 12, 12), (3, 13, 13), (4, 20, 20)],
    },
];

fn blocks(mask: u32) -> Vec<BlockIndex> {
    (0..32u8).filter(|b| mask >> b & 1 == 1).map(BlockIndex).collect()
}

fn masks(n: usize, ones: usize) -> impl Iterator<Item = u32> {
    (0..1u32 << n).filter(move |m| m.count_ones() as usize == ones)
}

/// The decode graph of these losses from all other blocks, proved and complete.
fn decoded(code: &dyn Code, mask: u32) -> Ecdag {
    let (lost, left) = (blocks(mask), blocks(((1 << code.n()) - 1) & !mask));
    let graph = code.decode(&left, &lost).unwrap_or_else(|e| panic!("{}: {e}", code.name()));
    graph.prove(code.generator()).unwrap_or_else(|e| panic!("{} loses {lost:?}: {e}", code.name()));
    let w = code.w();
    let wanted = lost.iter().flat_map(|b| usize::from(b.0) * w..(usize::from(b.0) + 1) * w);
    assert!(graph.targets().iter().map(|v| v.0 as usize).eq(wanted), "{} loses {lost:?}", code.name());
    assert!(graph.joins().values().all(|j| j.coefs.iter().all(|&c| c != 0)), "{}", code.name());
    graph
}

/// The helper that holds or computes a vertex; none: the requestor computes it.
fn helper(graph: &Ecdag, vertex: Vertex) -> Option<usize> {
    match graph.binds_y().get(&vertex) {
        Some(&child) => helper(graph, child),
        None if graph.joins().contains_key(&vertex) => None,
        None => Some(vertex.0 as usize / graph.w()),
    }
}

/// Vertices that one node sends to another.
fn moved(graph: &Ecdag) -> usize {
    let mut moved = BTreeSet::new();
    for (&parent, join) in graph.joins() {
        let to = helper(graph, parent);
        let sent = join.children.iter().filter(|&&c| helper(graph, c).is_some() && helper(graph, c) != to);
        moved.extend(sent.map(|&c| (c, to)));
    }
    moved.len()
}

#[test]
fn single_repairs_read_and_move_what_theory_says() {
    for case in CASES {
        let code = parse(case.name).unwrap();
        assert_eq!(code.w(), case.w, "{}", case.name);
        let expected = case.repairs.iter().flat_map(|&(count, read, moved)| vec![(read, moved); count]);
        let counted = (0..code.n()).map(|b| {
            let graph = decoded(code.as_ref(), 1 << b);
            (graph.leaves().len(), moved(&graph))
        });
        assert_eq!(counted.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{}", case.name);
    }
}

#[test]
fn drc_moves_two_blocks_across_racks_whatever_k_blocks_help() {
    for name in ["drc:n=6,k=4", "drc:n=9,k=6"] {
        let code = parse(name).unwrap();
        let racks = code.place();
        assert!(racks.len() == 3 && racks.iter().all(|rack| rack.len() == code.n() / 3), "{name}");
        let rack_of = |b: usize| racks.iter().position(|rack| rack.contains(&BlockIndex(b as u8)));
        for lost in 0..code.n() {
            for left in masks(code.n(), code.k()).filter(|left| left >> lost & 1 == 0) {
                let graph = code.decode(&blocks(left), &[BlockIndex(lost as u8)]).unwrap();
                graph.prove(code.generator()).unwrap();
                // The requestor is in the rack of the lost block.
                let rack = |v| rack_of(helper(&graph, v).unwrap_or(lost));
                let edges =
                    graph.joins().iter().flat_map(|(&p, join)| join.children.iter().map(move |&c| (c, p)));
                assert_eq!(edges.filter(|&(child, parent)| rack(child) != rack(parent)).count(), 2, "{name}");
            }
        }
    }
}

#[test]
fn drc_prefers_its_own_rack_and_even_shares() {
    let code = parse("drc:n=9,k=6").unwrap();
    let graph = decoded(code.as_ref(), 1 << 4);
    assert_eq!(graph.leaves().iter().map(|v| v.0).collect::<Vec<_>>(), [0, 1, 3, 5, 6, 7]);
}

#[test]
fn every_loss_up_to_the_claim_is_recoverable_and_none_beyond() {
    for case in CASES {
        let code = parse(case.name).unwrap();
        assert_eq!(code.distance(), code.n() - code.k() + 1, "{}", case.name);
        for mask in masks(code.n(), code.n() - code.k()) {
            assert!(code.recoverable(&blocks(mask)), "{} loses {:?}", case.name, blocks(mask));
        }
        assert!(masks(code.n(), code.distance()).all(|mask| !code.recoverable(&blocks(mask))));
    }
}

#[test]
fn every_double_loss_is_decoded_and_proved() {
    for case in CASES {
        let code = parse(case.name).unwrap();
        for mask in masks(code.n(), 2) {
            let graph = decoded(code.as_ref(), mask);
            let read: BTreeSet<_> = graph.leaves().iter().map(|v| v.0 as usize / code.w()).collect();
            assert!(read.len() <= code.k(), "{}", case.name);
        }
    }
}

#[test]
fn single_repairs_fall_back_to_k_blocks_when_a_helper_is_missing() {
    for case in CASES {
        let code = parse(case.name).unwrap();
        for lost in 0..code.n() {
            let away = (lost + 1) % code.n();
            let left: Vec<_> = blocks(((1 << code.n()) - 1) & !(1 << lost) & !(1 << away));
            let graph = code.decode(&left, &[BlockIndex(lost as u8)]).unwrap();
            graph.prove(code.generator()).unwrap();
            assert!(graph.leaves().len() <= code.k() * code.w(), "{}", case.name);
        }
    }
}

#[test]
fn encode_graphs_prove() {
    for case in CASES {
        let code = parse(case.name).unwrap();
        code.encode().prove(code.generator()).unwrap();
    }
}

#[test]
fn shapes_that_a_family_does_not_cover_are_refused_with_the_reason() {
    for (name, words) in [
        ("miser:n=7,k=4", "invalid shape of miser: expected n = 2k"),
        ("miser:n=2,k=1", "k from 2 to 8"),
        ("miser:n=18,k=9", "every loss of k blocks is tried, got n=18, k=9"),
        ("hitchhiker-xor:n=5,k=4", "invalid shape of hitchhiker-xor: expected n - k >= 2"),
        ("drc:n=12,k=8", "invalid shape of drc: expected n=6, k=4 or n=9, k=6"),
        ("butterfly:n=7,k=4", "invalid shape of butterfly: expected n = k + 2"),
        ("butterfly:n=11,k=9", "k from 2 to 8, as there are 2^(k-1) sub-blocks in a block, got n=11, k=9"),
        ("rotated-rs:n=5,k=4", "invalid shape of rotated-rs: expected n - k >= 2"),
        ("rotated-rs:n=11,k=6", "does not reach its distance: expected 6"),
    ] {
        let error = parse(name).expect_err(name).to_string();
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    }
}
