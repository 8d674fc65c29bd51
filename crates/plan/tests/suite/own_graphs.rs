//! Codes with repair graphs of their own: a conventional repair reads the leaves of the graph and no others,
//! helpers combine what the graph binds to them, and no helper combines for a client that fetches all blocks
//! anyway.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeSet;

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Task, Vertex};
use kintsu_plan::{Account, Layout, LayoutKind, Method, Repair, StripeView, place_lost, read, repair};
use support::{Machine, blocks, programs, stripe, topology};

const CODES: [&str; 8] = [
    "miser:n=4,k=2",
    "miser:n=8,k=4",
    "hitchhiker-xor:n=9,k=6",
    "hitchhiker-xor:n=14,k=10",
    "butterfly:n=6,k=4",
    "clay:n=6,k=4,d=5",
    "clay:n=9,k=5,d=7",
    "drc:n=9,k=6",
];

fn full(name: &str) -> (StripeView, Vec<Vec<u8>>) {
    let code = kintsu_code::parse(name).unwrap();
    let (w, k) = (code.w() as u16, code.k() as u64);
    let cell_bytes = 16 * u32::from(w);
    let block_bytes = 3 * u64::from(cell_bytes);
    let kind = LayoutKind::Striped;
    let layout = Layout { kind, block_bytes, cell_bytes, w, data_bytes: k * block_bytes };
    let view = stripe(&code, layout, &topology(20, 1), 4);
    let object: Vec<u8> = (0..k * block_bytes).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    let blocks = blocks(&view, &object);
    (view, blocks)
}

/// Symbols that the graph reads, and vertices that leave a helper, each once for each place that needs it.
fn theory(graph: &Ecdag) -> (u64, u64) {
    let home = |vertex: Vertex| {
        let mut at = vertex;
        loop {
            match graph.joins().contains_key(&at) {
                true => match graph.binds_y().get(&at) {
                    Some(child) => at = *child,
                    None => return None,
                },
                false => return Some(at.0 / graph.w() as u32),
            }
        }
    };
    let mut moved = BTreeSet::new();
    for (parent, join) in graph.joins() {
        let to = home(*parent);
        moved.extend(join.children.iter().filter(|child| home(**child) != to).map(|child| (*child, to)));
    }
    (graph.leaves().len() as u64, moved.len() as u64)
}

#[test]
fn a_star_reads_and_moves_what_the_graph_says() {
    let mut combined = 0;
    for name in CODES {
        let (full, blocks) = full(name);
        let sub_block = full.layout.block_bytes / full.code.w() as u64;
        for lost in full.available() {
            let mut view = full.clone();
            view.homes[lost.0 as usize] = None;
            let topology = topology(20, 1);
            let requestors = place_lost(&view, &topology, &[lost], &mut |_| 0).unwrap();
            let wanted = Repair { lost: vec![lost], requestors, method: Method::Conventional };
            let planned = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap();
            let programs = programs(&planned.plan, &view, (0, u64::MAX), 1);
            let mut machine = Machine::with(&view, &blocks);
            machine.run(&programs);
            assert_eq!(machine.disks[&(planned.requestors[0], lost)], blocks[lost.0 as usize]);
            let others: Vec<_> = full.available().into_iter().filter(|b| *b != lost).collect();
            let (read, moved) = theory(&full.code.decode(&others, &[lost]).unwrap());
            assert_eq!((machine.read, machine.sent), (read * sub_block, moved * sub_block), "{name} {lost}");
            let account = Account::of(&planned.plan, &topology, full.layout.block_bytes).unwrap();
            assert_eq!((account.bytes_read, account.bytes_moved), (machine.read, machine.sent));
            let at_helpers = programs.iter().filter(|p| p.node != planned.requestors[0]);
            combined +=
                at_helpers.flat_map(|p| &p.tasks).filter(|t| matches!(t, Task::Compute { .. })).count();
        }
    }
    assert!(combined > 0, "some of these codes let helpers combine");
}

#[test]
fn a_chain_reads_what_a_star_reads_and_loads_no_link_with_much_more_than_a_block() {
    for name in CODES.into_iter().chain(["less:n=14,k=10,alpha=4", "rotated-rs:n=9,k=6"]) {
        let (full, blocks) = full(name);
        let (mut star_sent, mut chain_sent) = (0, 0);
        for lost in full.available() {
            let mut view = full.clone();
            view.homes[lost.0 as usize] = None;
            let topology = topology(20, 1);
            let requestors = place_lost(&view, &topology, &[lost], &mut |_| 0).unwrap();
            let [star, chain] = [Method::Conventional, Method::Pipeline].map(|method| {
                let wanted = Repair { lost: vec![lost], requestors: requestors.clone(), method };
                let planned = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap();
                let mut machine = Machine::with(&view, &blocks);
                machine.run(&programs(&planned.plan, &view, (0, u64::MAX), 1));
                assert_eq!(machine.disks[&(requestors[0], lost)], blocks[lost.0 as usize], "{name} {lost}");
                Account::of(&planned.plan, &topology, full.layout.block_bytes).unwrap()
            });
            assert_eq!(star.bytes_read, chain.bytes_read, "{name} {lost}");
            // Of some codes a node sends one sum to several that need it.
            let (most, least) = (chain.max_link_bytes, full.layout.block_bytes);
            assert!(3 * most <= 4 * least, "{name} {lost}: {most} of {least}");
            star_sent += star.bytes_moved;
            chain_sent += chain.bytes_moved;
        }
        assert!(star_sent <= chain_sent, "{name}: {star_sent} {chain_sent}");
    }
}

#[test]
fn who_reads_all_blocks_anyway_combines_by_itself() {
    for name in CODES {
        let (full, blocks) = full(name);
        for lost in full.available() {
            let mut view = full.clone();
            view.homes[lost.0 as usize] = None;
            let plan = read(&view, &full.available(), &[]).unwrap();
            let programs = programs(&plan, &view, (0, u64::MAX), 1);
            let mut machine = Machine::with(&view, &blocks);
            machine.run(&programs);
            assert_eq!(machine.returned[&lost], blocks[lost.0 as usize], "{name} {lost}");
            assert_eq!(machine.sent, full.layout.block_bytes * (full.code.n() as u64 - 1), "{name} {lost}");
            let agents = programs.iter().filter(|p| !p.node.is_client());
            assert!(agents.flat_map(|p| &p.tasks).all(|t| !matches!(t, Task::Compute { .. })));
        }
    }
}

#[test]
fn whole_blocks_move_as_blocks_whatever_the_code() {
    let (view, blocks) = full("miser:n=8,k=4");
    let wanted = [BlockIndex(0), BlockIndex(3), BlockIndex(6)];
    let plan = read(&view, &wanted, &[]).unwrap();
    let programs = programs(&plan, &view, (5, 99), 7);
    assert!(programs.iter().all(|p| p.window.w == 1 && p.window.step_bytes == 7));
    let client = programs.iter().find(|p| p.node == NodeId::CLIENT).unwrap();
    assert_eq!(client.tasks.len(), 2 * wanted.len());
    let mut machine = Machine::with(&view, &blocks);
    machine.run(&programs);
    for block in wanted {
        assert_eq!(machine.returned[&block][5..99], blocks[block.0 as usize][5..99]);
    }
}
