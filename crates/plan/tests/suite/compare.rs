//! Comparing one block with all others: every block takes part, and any wrong one shows.

#![allow(clippy::unwrap_used)]

use crate::support;

use kintsu_dag::{BlockIndex, Sink, Vertex};
use kintsu_plan::{Account, Layout, LayoutKind, PlanError, StripeView, compare, compare_encoded};
use support::{stripe, topology};

const BLOCK: u64 = 1 << 20;

fn view(code: &str, data_bytes: u64, without: &[usize]) -> StripeView {
    let code = kintsu_code::parse(code).unwrap();
    let w = code.w() as u16;
    let layout = Layout { kind: LayoutKind::Striped, block_bytes: BLOCK, cell_bytes: 1 << 16, w, data_bytes };
    let mut view = stripe(&code, layout, &topology(3, 24), 5);
    without.iter().for_each(|block| view.homes[*block] = None);
    view
}

/// The blocks that are read, and their coefficients, from the one graph of the plan.
fn map(view: &StripeView, block: u8) -> Option<(Vec<Vertex>, Vec<u8>)> {
    let plan = compare(view, &topology(3, 24), BlockIndex(block), Sink::Compare).unwrap()?;
    let placed = &plan.lanes[0].placed;
    let (leaves, targets, coefs) = placed.graph.flatten().unwrap();
    assert_eq!((plan.lanes.len(), targets), (1, vec![Vertex(block.into())]));
    let home = view.homes[usize::from(block)].unwrap();
    assert_eq!(placed.persist_at[&Vertex(block.into())], (home, Sink::Compare));
    Some((leaves, coefs.row(0).to_vec()))
}

#[test]
fn every_block_takes_part_once() {
    for (code, data, without, block, readers) in [
        ("rs:n=9,k=6", 6 * BLOCK, &[][..], 8, 8),
        ("rs:n=9,k=6", 6 * BLOCK, &[6, 7], 8, 6),
        ("rs:n=9,k=6", 6 * BLOCK, &[2], 0, 7),
        ("rs:n=14,k=10", 10 * BLOCK, &[3], 13, 12),
        ("rs:n=3,k=2,matrix=isal", 2 * BLOCK, &[], 2, 2),
        ("azure-lrc:n=16,k=12,r=6", 12 * BLOCK, &[1], 15, 14),
        // Two cells: four data blocks have no bytes.
        ("rs:n=9,k=6", 1 << 17, &[], 7, 4),
    ] {
        let view = view(code, data, without);
        let (leaves, coefs) = map(&view, block).unwrap();
        assert_eq!((leaves.len(), coefs.contains(&0)), (readers, false), "{code} {without:?}: {coefs:?}");
        // What the graph computes is the block: the proof says so, and this says it once more.
        let generator = view.code.generator();
        for column in (0..view.code.k()).filter(|column| view.block_len(BlockIndex(*column as u8)) > 0) {
            let terms = leaves.iter().zip(&coefs);
            let sum = terms.fold(0, |sum, (leaf, coef)| {
                sum ^ kintsu_algebra::mul(*coef, generator.row(leaf.0 as usize)[column])
            });
            assert_eq!(sum, generator.row(usize::from(block))[column], "{code}, column {column}");
        }
    }
}

/// The coefficient of a block in a comparison; of the block that is compared it is one.
fn coefficient((leaves, coefs): &(Vec<Vertex>, Vec<u8>), at: u8, block: Vertex) -> u8 {
    let place = leaves.iter().position(|leaf| *leaf == block);
    place.map_or(u8::from(block == Vertex(at.into())), |place| coefs[place])
}

#[test]
fn what_a_block_that_was_rebuilt_from_a_wrong_one_hides_shows_among_the_others() {
    let code = "rs:n=5,k=2";
    let mut hidden = Vec::new();
    for lost in 0..5u8 {
        let (whole, rest) = (view(code, 2 * BLOCK, &[]), view(code, 2 * BLOCK, &[lost.into()]));
        let at = (2..5).rev().find(|parity| *parity != lost).unwrap();
        let (with, without) = (map(&whole, at).unwrap(), map(&rest, at).unwrap());
        let pairs = (0..5u8).flat_map(|a| (a + 1..5).map(move |b| [a, b]));
        for helpers in pairs.filter(|pair| !pair.contains(&lost)) {
            let decode = whole.code.decode(&helpers.map(BlockIndex), &[BlockIndex(lost)]).unwrap();
            let (leaves, _, coefs) = decode.flatten().unwrap();
            for (helper, passed_on) in leaves.into_iter().zip(coefs.row(0)) {
                let rebuilt = coefficient(&with, at, Vertex(lost.into()));
                if coefficient(&with, at, helper) == kintsu_algebra::mul(rebuilt, *passed_on) {
                    hidden.push((lost, helpers, helper.0));
                }
                assert_ne!(coefficient(&without, at, helper), 0, "{lost} from {helpers:?}, {helper} wrong");
            }
        }
    }
    assert_eq!(hidden, [(4, [0, 2], 0), (4, [1, 2], 2)], "one comparison with the rebuilt block does not do");
}

#[test]
fn each_link_carries_one_block_and_racks_are_entered_once() {
    let (view, topology) = (view("rs:n=9,k=6", 6 * BLOCK, &[1]), topology(3, 24));
    let plan = compare(&view, &topology, BlockIndex(8), Sink::Compare).unwrap().unwrap();
    let account = Account::of(&plan, &topology, BLOCK).unwrap();
    assert_eq!((account.blocks_read, account.bytes_moved, account.max_link_bytes), (7, 7 * BLOCK, BLOCK));
    let across = account.bytes_across_racks / BLOCK;
    assert_eq!(across, 2, "three racks, each entered once");
}

#[test]
fn a_code_with_sub_blocks_is_encoded_once_more_and_every_parity_is_compared_at_home() {
    for (code, data_bytes) in [
        ("clay:n=6,k=4,d=5", 4 * BLOCK),
        ("hitchhiker-xor:n=9,k=6", 6 * BLOCK),
        ("clay:n=6,k=4,d=5", 1 << 17),
    ] {
        let (view, topology) = (view(code, data_bytes, &[]), topology(3, 24));
        let plan = compare_encoded(&view, &topology).unwrap();
        let placed = &plan.lanes[0].placed;
        let (k, n, w) = (view.code.k(), view.code.n(), view.code.w());
        let symbols = |block: usize| (block * w..(block + 1) * w).map(|symbol| Vertex(symbol as u32));
        let stored = |block: &usize| view.block_len(BlockIndex(*block as u8)) > 0;
        let data: Vec<Vertex> = (0..k).filter(stored).flat_map(symbols).collect();
        assert_eq!(placed.graph.leaves(), data, "{code}");
        let at = |block: usize| (view.homes[block].unwrap(), Sink::Compare);
        let sinks = (k..n).flat_map(|block| symbols(block).map(move |symbol| (symbol, at(block)))).collect();
        assert_eq!(placed.persist_at, sinks, "{code}");
    }
}

#[test]
fn without_more_blocks_than_needed_there_is_nothing_to_compare() {
    assert!(map(&view("rs:n=9,k=6", 6 * BLOCK, &[0, 1, 2]), 8).is_none());
    // One block is left of a local group, and the other group is as it should be.
    let lrc = view("azure-lrc:n=16,k=12,r=6", 12 * BLOCK, &[0, 1, 14, 15]);
    assert!(map(&lrc, 2).is_none());
    assert!(map(&lrc, 6).is_some());
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let refused = |view: &StripeView, block| {
        compare(view, &topology(3, 24), BlockIndex(block), Sink::Compare).unwrap_err()
    };
    assert!(matches!(refused(&view("rs:n=9,k=6", 6 * BLOCK, &[8]), 8), PlanError::Placement { .. }));
    assert!(matches!(refused(&view("rs:n=9,k=6", 6 * BLOCK, &[]), 9), PlanError::Invalid { .. }));
    let clay = refused(&view("clay:n=6,k=4,d=5", 4 * BLOCK, &[]), 5).to_string();
    assert!(clay.contains("without sub-blocks"), "{clay}");
}
