//! Every plan, run on real bytes: what is written and returned is what the generator matrix and the
//! object say, whatever the code, layout, length, losses, topology, method and slice.

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, Task};
use kintsu_plan::{
    Account, Layout, LayoutKind, Method, PlanError, Repair, StripeView, Topology, copy, encode_offline,
    encode_online, place_lost, read, repair, write_plain,
};
use proptest::prelude::*;
use support::{CODES, Machine, blocks, layout, programs, stripe, topology};

const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];

/// A placed stripe with its bytes.
#[derive(Debug, Clone)]
struct Case {
    code: Arc<dyn Code>,
    topology: Topology,
    view: StripeView,
    object: Vec<u8>,
    slice_bytes: u32,
    /// Drives losses and ranks.
    salt: u64,
}

impl Case {
    fn blocks(&self) -> Vec<Vec<u8>> {
        blocks(&self.view, &self.object)
    }

    /// Up to `most` stored blocks that are lost, chosen by the salt, such that the code bears it.
    fn losses(&self, most: usize) -> Vec<BlockIndex> {
        let mut stored = self.view.available();
        stored.sort_by_key(|b| {
            (u64::from(b.0) + 1).wrapping_mul(self.salt | 1).rotate_left(23).wrapping_mul(self.salt | 5)
        });
        let mut lost: Vec<BlockIndex> = Vec::new();
        for block in stored.into_iter().take(most) {
            lost.push(block);
            if !self.code.recoverable(&lost) {
                lost.pop();
            }
        }
        lost
    }

    fn without(&self, lost: &[BlockIndex]) -> StripeView {
        let mut view = self.view.clone();
        lost.iter().for_each(|b| view.homes[b.0 as usize] = None);
        view
    }

    fn rank(&self, node: NodeId) -> u64 {
        (u64::from(node.0) + 3).wrapping_mul(self.salt | 1) >> 61
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (0..CODES.len(), any::<bool>(), 1u32..40, 1u64..4, 1usize..7, 0usize..3);
    (shape, 0.0..1.02f64, 1u32..100, any::<u64>()).prop_map(
        |((code, striped, cell, rows, racks, spare), fill, slice_bytes, salt)| {
            let code = kintsu_code::parse(CODES[code]).unwrap();
            let kind = if striped { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let most = u64::from(cell) * rows * code.k() as u64;
            let data_bytes = ((most as f64 * fill) as u64).min(most);
            let topology = topology(racks, (code.n() + 3).div_ceil(racks) + spare);
            let view = stripe(&code, layout(kind, cell, rows, data_bytes), &topology, salt);
            let object = (0..data_bytes).map(|i| (i.wrapping_mul(salt | 1) >> 5) as u8).collect();
            Case { code, topology, view, object, slice_bytes, salt }
        },
    )
}

/// How often each block is loaded by a node.
fn loads(programs: &[kintsu_plan::Program]) -> BTreeMap<BlockIndex, usize> {
    let mut loads = BTreeMap::new();
    for program in programs.iter().filter(|p| !p.node.is_client()) {
        for task in &program.tasks {
            if let Task::Load { vertex } = task {
                *loads.entry(BlockIndex((vertex.0 / u32::from(program.window.w)) as u8)).or_default() += 1;
            }
        }
    }
    loads
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn both_encodings_store_the_blocks_of_the_code(case in cases()) {
        let expected = Machine::with(&case.view, &case.blocks()).disks;
        let object = case.blocks();
        let whole = (0, u64::MAX);
        let mut online = Machine { object: object.clone(), ..Machine::default() };
        online.run(&programs(&encode_online(&case.view).unwrap(), &case.view, whole, case.slice_bytes));
        prop_assert_eq!(&online.disks, &expected);
        let mut offline = Machine { object, ..Machine::default() };
        offline.run(&programs(&write_plain(&case.view).unwrap(), &case.view, whole, case.slice_bytes));
        offline.object.clear();
        let plan = encode_offline(&case.view, &case.topology).unwrap();
        let second = programs(&plan, &case.view, whole, case.slice_bytes);
        offline.run(&second);
        prop_assert_eq!(&offline.disks, &expected);
        prop_assert!(loads(&second).values().all(|count| *count == 1));
        prop_assert!(second.iter().all(|program| !program.node.is_client()));
    }

    #[test]
    fn reads_return_what_was_written(case in cases(), most in 0usize..5, from in 0.0..1.0f64, to in 0.0..1.0f64) {
        let lost = case.losses(most);
        let blocks = case.blocks();
        let k = case.code.k();
        let bytes = case.object.len() as f64;
        let range = (bytes * from.min(to)) as u64..(bytes * from.max(to)).ceil() as u64;
        let windows = case.view.layout.block_windows(k, range.clone());
        let wanted: Vec<_> = windows.iter().map(|(block, _)| *block).collect();
        let window = windows.iter().fold((u64::MAX, 0), |(a, b), (_, w)| (a.min(w.start), b.max(w.end)));
        // Some losses are known to the metadata, some only to the reader.
        let known: Vec<_> = lost.iter().copied().filter(|b| b.0 % 2 == 0).collect();
        let view = case.without(&known);
        let plan = read(&view, &wanted, &lost).unwrap();
        let mut machine = Machine::with(&view, &blocks);
        lost.iter().for_each(|lost| machine.disks.retain(|(_, block), _| block != lost));
        let programs = programs(&plan, &view, window, case.slice_bytes);
        machine.run(&programs);
        let mut got = Vec::new();
        for extent in view.layout.locate(k, range.clone()) {
            let part = extent.block_range.start as usize..extent.block_range.end as usize;
            got.extend_from_slice(&machine.returned[&extent.block][part]);
        }
        prop_assert_eq!(got, &case.object[range.start as usize..range.end as usize]);
        prop_assert!(loads(&programs).values().all(|count| *count == 1));
        if wanted.iter().all(|block| !lost.contains(block)) {
            let read: Vec<_> = loads(&programs).into_keys().collect();
            prop_assert_eq!(read, wanted);
        }
    }

    #[test]
    fn repairs_write_what_was_lost(case in cases(), most in 1usize..5, method in 0usize..3, resume in 0.0..1.0f64) {
        let lost = case.losses(most);
        prop_assume!(!lost.is_empty());
        let method = METHODS[method];
        let blocks = case.blocks();
        let view = case.without(&lost);
        let requestors = place_lost(&view, &case.topology, &lost, &mut |node| case.rank(node)).unwrap();
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method };
        let planned = repair(&view, &case.topology, &wanted, &|node| case.rank(node), &[]).unwrap();
        let expected: BTreeMap<_, _> = lost.iter().zip(&requestors).map(|(b, r)| ((*r, *b), &blocks[b.0 as usize])).collect();

        let mut machine = Machine::with(&view, &blocks);
        let before = machine.disks.clone();
        let all = programs(&planned.plan, &view, (0, u64::MAX), case.slice_bytes);
        machine.run(&all);
        for (place, bytes) in &expected {
            prop_assert_eq!(&&machine.disks[place], bytes);
        }
        prop_assert_eq!(machine.disks.len(), before.len() + lost.len());
        // Every helper reads its block once, and no one else reads.
        let read = loads(&all);
        prop_assert!(read.values().all(|count| *count == 1));
        prop_assert_eq!(read.keys().copied().collect::<BTreeSet<_>>(), planned.helpers.iter().copied().collect());
        prop_assert_eq!(read.len(), planned.helpers.len());
        // The account is what the machine saw, but for blocks shorter than the longest.
        let longest = view.layout.longest(case.code.k());
        let account = Account::of(&planned.plan, &case.topology, longest).unwrap();
        prop_assert_eq!(account.bytes_moved, machine.sent);
        prop_assert_eq!(account.blocks_read as usize, planned.helpers.len());

        // A second attempt goes on where the first one stopped.
        let start = (longest as f64 * resume) as u64;
        let mut halted = Machine::with(&view, &blocks);
        halted.run(&programs(&planned.plan, &view, (0, start), 17));
        halted.run(&programs(&planned.plan, &view, (start, u64::MAX), case.slice_bytes));
        prop_assert_eq!(halted.disks, machine.disks);
    }

    #[test]
    fn requestors_keep_the_rules(case in cases(), most in 1usize..5) {
        let lost = case.losses(most);
        let view = case.without(&lost);
        let chosen = place_lost(&view, &case.topology, &lost, &mut |node| case.rank(node)).unwrap();
        let kept: BTreeSet<NodeId> = view.homes.iter().flatten().copied().chain(chosen.iter().copied()).collect();
        prop_assert_eq!(kept.len(), case.view.available().len(), "never two blocks of a stripe on one node");
    }

    #[test]
    fn helpers_are_k_or_those_of_the_group(case in cases(), method in 0usize..3) {
        let lost = case.losses(1);
        prop_assume!(lost.len() == 1);
        let view = case.without(&lost);
        let requestors = place_lost(&view, &case.topology, &lost, &mut |_| 0).unwrap();
        let planned = repair(&view, &case.topology, &Repair { lost: lost.clone(), requestors, method: METHODS[method] }, &|_| 0, &[]).unwrap();
        let absent = view.absent();
        match case.code.groups().into_iter().find(|group| group.contains(&lost[0])) {
            Some(group) => {
                let helpers: BTreeSet<_> = planned.helpers.iter().copied().collect();
                let mates: BTreeSet<_> = group.iter().copied().filter(|b| *b != lost[0] && !absent.contains(b)).collect();
                prop_assert!(helpers == mates || (mates.is_empty() && helpers.len() == 1));
            }
            None if case.code.groups().is_empty() => prop_assert_eq!(planned.helpers.len(), case.code.k() - absent.len()),
            None => prop_assert!(planned.helpers.len() <= case.code.k() - absent.len()),
        }
    }
}

fn whole(name: &str, racks: usize, nodes: usize) -> (StripeView, Topology) {
    let code = kintsu_code::parse(name).unwrap();
    let topology = topology(racks, nodes);
    let full = Layout {
        kind: LayoutKind::Striped,
        block_bytes: 64,
        cell_bytes: 8,
        data_bytes: 64 * code.k() as u64,
    };
    (stripe(&code, full, &topology, 1), topology)
}

#[test]
fn too_many_losses_name_what_is_left_and_what_is_needed() {
    let (mut view, topology) = whole("rs:n=5,k=3", 1, 9);
    let lost: Vec<_> = [0, 2, 4].map(BlockIndex).to_vec();
    lost.iter().for_each(|b| view.homes[b.0 as usize] = None);
    let requestors = place_lost(&view, &topology, &lost, &mut |_| 0).unwrap();
    for method in METHODS {
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method };
        let refused = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap_err();
        let PlanError::Unrecoverable { left, .. } = &refused else { panic!("{refused}") };
        assert_eq!(left[..], [BlockIndex(1), BlockIndex(3)]);
        assert!(refused.to_string().contains("at least 1 more"), "{refused}");
    }
    assert!(matches!(read(&view, &[BlockIndex(0)], &[]), Err(PlanError::Unrecoverable { .. })));
    assert!(read(&view, &[BlockIndex(1)], &[]).is_ok(), "a block that is there needs no decoding");
}

#[test]
fn requestors_that_hold_a_block_of_the_stripe_are_refused() {
    let (view, topology) = whole("rs:n=5,k=3", 1, 9);
    let other = view.homes[1].unwrap();
    let free = *topology.nodes.keys().find(|node| !view.homes.contains(&Some(**node))).unwrap();
    let attempt = |lost: Vec<u8>, requestors: Vec<NodeId>| {
        let lost = lost.into_iter().map(BlockIndex).collect();
        let wanted = Repair { lost, requestors, method: Method::Pipeline };
        repair(&view, &topology, &wanted, &|_| 0, &[])
    };
    assert!(attempt(vec![0], vec![free]).is_ok());
    assert!(attempt(vec![0], vec![view.homes[0].unwrap()]).is_ok(), "its own home may be used again");
    for (lost, requestors) in [
        (vec![0], vec![other]),
        (vec![0], vec![NodeId::CLIENT]),
        (vec![0, 2], vec![free, free]),
        (vec![0], vec![]),
        (vec![], vec![]),
        (vec![0, 0], vec![free, other]),
        (vec![5], vec![free]),
    ] {
        assert!(matches!(attempt(lost.clone(), requestors), Err(PlanError::Invalid { .. })), "{lost:?}");
    }
    assert!(copy(&view, BlockIndex(0), other).is_err());
}

#[test]
fn a_copy_is_the_block() {
    let (view, topology) = whole("rs:n=5,k=3", 1, 9);
    let free = *topology.nodes.keys().find(|node| !view.homes.contains(&Some(**node))).unwrap();
    let object: Vec<u8> = (0..view.layout.data_bytes).map(|i| i as u8).collect();
    let blocks = blocks(&view, &object);
    let mut machine = Machine::with(&view, &blocks);
    machine.run(&programs(&copy(&view, BlockIndex(4), free).unwrap(), &view, (0, u64::MAX), 10));
    assert_eq!(machine.disks[&(free, BlockIndex(4))], blocks[4]);
    assert_eq!(machine.sent, blocks[4].len() as u64);
}

#[test]
fn losses_in_two_local_groups_are_two_local_repairs() {
    let (mut view, topology) = whole("azure-lrc:n=16,k=12,r=6", 5, 4);
    let lost = [BlockIndex(1), BlockIndex(9)];
    lost.iter().for_each(|b| view.homes[b.0 as usize] = None);
    let requestors = place_lost(&view, &topology, &lost, &mut |_| 0).unwrap();
    for method in METHODS {
        let wanted = Repair { lost: lost.to_vec(), requestors: requestors.clone(), method };
        let planned = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap();
        assert_eq!(planned.helpers.len(), 12);
        let account = Account::of(&planned.plan, &topology, 1000).unwrap();
        assert_eq!(account.bytes_moved, 12_000, "no partial sum is carried for the other group");
        let slots = planned.plan.timeslots(1).unwrap();
        assert_eq!(
            slots,
            [6.0, 3.0, 6.0][method as usize],
            "{method}: side by side, not one after the other"
        );
    }
}
