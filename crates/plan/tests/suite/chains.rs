//! Codes that are repaired from few blocks, along chains (ECPipe, section 6.1: LRC and Rotated RS): as many
//! helpers as the code's locality says, each block read once, and the lost block's bytes written.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, Task};
use kintsu_plan::{
    Account, Layout, LayoutKind, Method, Program, Repair, RepairPlan, StripeView, Topology, place_lost,
    repair,
};
use support::{Machine, blocks, programs, stripe, topology};

/// Bytes of a cell, and of a row of sub-blocks where there are two.
const CELL: u32 = 64;

/// Each data block, and the parity blocks of every kind, with how many helpers each has.
const LRCS: [(&str, &[(u8, usize)]); 4] = [
    // Two groups of six; b12 and b13 are their XORs, b14 and b15 global.
    ("azure-lrc:n=16,k=12,r=6", &[(0, 6), (7, 6), (12, 6), (13, 6), (14, 12), (15, 12)]),
    // b8 and b9 are global and b10 is their XOR.
    ("azure-lrc-plus1:n=11,k=6,r=3", &[(1, 3), (5, 3), (6, 3), (7, 3), (8, 2), (9, 2), (10, 2)]),
    // b12..b15 are global, in a group with the local parities b10 and b11.
    ("xorbas:n=16,k=10,r=5", &[(3, 5), (9, 5), (10, 5), (11, 5), (12, 5), (15, 5)]),
    ("optimal-lrc:n=12,k=6,r=3", &[(0, 3), (4, 3), (6, 3), (8, 3), (9, 3), (11, 3)]),
];

fn stored(name: &str) -> (StripeView, Topology, Vec<Vec<u8>>) {
    let code = kintsu_code::parse(name).unwrap();
    let topology = topology(5, 5);
    let block_bytes = 3 * u64::from(CELL);
    let layout = Layout {
        kind: LayoutKind::Striped,
        block_bytes,
        cell_bytes: CELL,
        w: code.w() as u16,
        data_bytes: block_bytes * code.k() as u64,
    };
    let view = stripe(&code, layout, &topology, 11);
    let object: Vec<u8> = (0..layout.data_bytes).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    let blocks = blocks(&view, &object);
    (view, topology, blocks)
}

/// The times that each sub-block of each block is loaded.
fn loads(programs: &[Program]) -> BTreeMap<(BlockIndex, u32), usize> {
    let mut loads = BTreeMap::new();
    for program in programs {
        for task in &program.tasks {
            if let Task::Load { vertex } = task {
                *loads.entry((program.window.block_of(*vertex), vertex.0)).or_default() += 1;
            }
        }
    }
    loads
}

/// Loses the block, repairs it along a chain on a machine in memory and compares the bytes.
fn repaired(view: &StripeView, topology: &Topology, blocks: &[Vec<u8>], lost: u8) -> (RepairPlan, Machine) {
    let mut view = view.clone();
    view.homes[usize::from(lost)] = None;
    let lost = BlockIndex(lost);
    let requestors = place_lost(&view, topology, &[lost], &mut |_| 0).unwrap();
    let wanted = Repair { lost: vec![lost], requestors: requestors.clone(), method: Method::Pipeline };
    let planned = repair(&view, topology, &wanted, &|_| 0, &[]).unwrap();
    let programs = programs(&planned.plan, &view, (0, u64::MAX), 16);
    let loads = loads(&programs);
    assert!(loads.values().all(|count| *count == 1), "{lost}: each sub-block is read once at most");
    let read: BTreeSet<BlockIndex> = loads.keys().map(|(block, _)| *block).collect();
    assert_eq!(read, planned.helpers.iter().copied().collect(), "{lost}");
    assert_eq!(read.len(), planned.helpers.len(), "{lost}: no helper twice");
    let mut machine = Machine::with(&view, blocks);
    machine.run(&programs);
    assert_eq!(machine.disks[&(requestors[0], lost)], blocks[usize::from(lost.0)], "{lost}");
    (planned, machine)
}

/// Who sends to whom: every helper to the next one, the last one to the requestor.
fn assert_chain(view: &StripeView, topology: &Topology, planned: &RepairPlan) {
    let account = Account::of(&planned.plan, topology, view.layout.block_bytes).unwrap();
    let homes = planned.helpers.iter().map(|helper| view.homes[usize::from(helper.0)].unwrap());
    let path: Vec<NodeId> = homes.chain([planned.requestors[0]]).collect();
    let hops: BTreeMap<(NodeId, NodeId), u64> =
        path.windows(2).map(|pair| ((pair[0], pair[1]), view.layout.block_bytes)).collect();
    let links: BTreeMap<(NodeId, NodeId), u64> =
        account.links.iter().map(|link| ((link.from, link.to), link.bytes)).collect();
    assert_eq!(links, hops);
}

/// Each of the two sums goes only along the helpers that add to it. So no node sends or receives more than a
/// block, nothing goes back, and the requestor receives one block.
fn assert_two_chains(view: &StripeView, topology: &Topology, planned: &RepairPlan) {
    let block = view.layout.block_bytes;
    let account = Account::of(&planned.plan, topology, block).unwrap();
    let homes = planned.helpers.iter().map(|helper| view.homes[usize::from(helper.0)].unwrap());
    let path: Vec<NodeId> = homes.chain([planned.requestors[0]]).collect();
    let at = |node: NodeId| path.iter().position(|on_path| *on_path == node).unwrap();
    assert!(account.links.iter().all(|link| at(link.from) < at(link.to)), "{:?}", account.links);
    assert!(account.sent.values().chain(account.received.values()).all(|bytes| *bytes <= block));
    assert_eq!(account.received[&planned.requestors[0]], block);
}

#[test]
fn lrcs_are_repaired_along_a_chain_of_their_locality() {
    for (name, cases) in LRCS {
        let (view, topology, blocks) = stored(name);
        for &(lost, locality) in cases {
            let (planned, machine) = repaired(&view, &topology, &blocks, lost);
            assert_eq!(planned.helpers.len(), locality, "{name}, b{lost}");
            let bytes = locality as u64 * view.layout.block_bytes;
            assert_eq!((machine.read, machine.sent), (bytes, bytes), "{name}, b{lost}");
            assert_chain(&view, &topology, &planned);
        }
    }
}

#[test]
fn rotated_rs_is_repaired_along_a_chain_from_the_sub_blocks_that_it_needs() {
    let (view, topology, blocks) = stored("rotated-rs:n=16,k=12");
    let block = view.layout.block_bytes;
    let mut read_for_data = 0;
    for lost in 0..16u8 {
        let (planned, machine) = repaired(&view, &topology, &blocks, lost);
        assert_two_chains(&view, &topology, &planned);
        if usize::from(lost) < view.code.k() {
            assert!(machine.read < 12 * block, "b{lost}: less than from k whole blocks");
            read_for_data += machine.read;
        } else {
            assert_eq!((planned.helpers.len(), machine.read), (12, 12 * block), "b{lost}");
        }
    }
    // ECPipe reads nine blocks on average for a data block (section 6.1).
    assert!(
        read_for_data <= 12 * 9 * block + 12 * block / 2,
        "{}",
        read_for_data as f64 / block as f64 / 12.0
    );
}
