//! Every plan, run on real bytes: what is written and returned is what the generator matrix and the
//! object say, whatever the code, layout, length, losses, topology, method and slice.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, Task};
use kintsu_plan::{
    Account, Binding, DIGEST_UNKNOWN, LayoutKind, Method, Plan, PlanError, ProgramContext, Repair, RunId,
    StripeView, Topology, copy, encode_offline, encode_online, place_lost, read, read_by, repair,
    write_plain,
};
use proptest::prelude::*;
use support::{Machine, blocks, codes, layout, programs, stripe, sub_packetised, topology};

const METHODS: [Method; Method::ALL.len()] = Method::ALL;

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

    /// Up to `most` stored blocks to lose, chosen by the salt; the code can decode the loss.
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
    let shape = (0..codes().len(), any::<bool>(), 1u32..40, 1u64..4, 1usize..7, 0usize..3);
    (shape, 0.0..1.02f64, 1u32..100, any::<u64>()).prop_map(
        |((code, striped, cell, rows, racks, spare), fill, slice_bytes, salt)| {
            let code = codes()[code].clone();
            let cell = cell * code.w() as u32;
            let kind = if striped { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let most = u64::from(cell) * rows * code.k() as u64;
            let data_bytes = ((most as f64 * fill) as u64).min(most);
            let topology = topology(racks, (code.n() + 3).div_ceil(racks) + spare);
            let view = stripe(&code, layout(kind, cell, code.w(), rows, data_bytes), &topology, salt);
            let object = (0..data_bytes).map(|i| (i.wrapping_mul(salt | 1) >> 5) as u8).collect();
            Case { code, topology, view, object, slice_bytes, salt }
        },
    )
}

/// How often a node loads each block: the count of the sub-block that is loaded most often.
fn loads(programs: &[kintsu_plan::Program]) -> BTreeMap<BlockIndex, usize> {
    let mut loads: BTreeMap<_, usize> = BTreeMap::new();
    let mut by_vertex: BTreeMap<_, usize> = BTreeMap::new();
    for program in programs.iter().filter(|p| !p.node.is_client()) {
        for task in &program.tasks {
            if let Task::Load { vertex } = task {
                let count = by_vertex.entry((program.lane, *vertex)).or_default();
                *count += 1;
                let most = loads.entry(program.window.block_of(*vertex)).or_default();
                *most = (*count).max(*most);
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
        let plan = encode_offline(&case.view, &case.topology, Binding::Bound).unwrap();
        let second = programs(&plan, &case.view, whole, case.slice_bytes);
        offline.run(&second);
        prop_assert_eq!(&offline.disks, &expected);
        prop_assert!(loads(&second).values().all(|count| *count == 1));
        prop_assert!(second.iter().all(|program| !program.node.is_client()));
    }

    #[test]
    fn reads_return_what_was_written(case in cases(), most in 0usize..5, method in 0usize..METHODS.len(), from in 0.0..1.0f64, to in 0.0..1.0f64) {
        let lost = case.losses(most);
        let blocks = case.blocks();
        let k = case.code.k();
        let bytes = case.object.len() as f64;
        let range = (bytes * from.min(to)) as u64..(bytes * from.max(to)).ceil() as u64;
        let windows = case.view.layout.block_windows(k, range.clone());
        let wanted: Vec<_> = windows.iter().map(|(block, _)| *block).collect();
        let window = windows.iter().fold((u64::MAX, 0), |(a, b), (_, w)| (a.min(w.start), b.max(w.end)));
        // Codes with sub-blocks are decoded cell by cell.
        let cell = u64::from(case.view.layout.cell_bytes);
        let divided = case.code.w() > 1 && wanted.iter().any(|b| lost.contains(b));
        let window = if divided { (window.0 / cell * cell, window.1.next_multiple_of(cell)) } else { window };
        // Some losses are known to the metadata, some only to the reader.
        let known: Vec<_> = lost.iter().copied().filter(|b| b.0 % 2 == 0).collect();
        let view = case.without(&known);
        let plan = match METHODS[method] {
            Method::Conventional => read(&view, &wanted, &lost).unwrap(),
            method => read_by(&view, &case.topology, &wanted, &lost, method).unwrap(),
        };
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
    fn repairs_write_what_was_lost(case in cases(), most in 1usize..5, method in 0usize..METHODS.len(), resume in 0.0..1.0f64) {
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
        // The account equals what the machine counted, except for blocks shorter than the longest.
        let longest = view.layout.longest(case.code.k());
        let account = Account::of(&planned.plan, &case.topology, longest).unwrap();
        // Lanes take turns by steps: slices, or cells of codes with sub-blocks, whose lanes may send unlike amounts.
        let step = if case.code.w() > 1 { u64::from(case.view.layout.cell_bytes) } else { 1 };
        let rounded = (account.links.len() * planned.plan.lanes.len().pow(2)) as u64 * step;
        let most = if planned.plan.lanes.len() == 1 { 0 } else { rounded };
        prop_assert!(account.bytes_moved.abs_diff(machine.sent) <= most);
        prop_assert_eq!(account.blocks_read as usize, planned.helpers.len());

        // A second attempt continues where the first one stopped.
        let cell = u64::from(case.view.layout.cell_bytes);
        let start = (longest as f64 * resume) as u64;
        let start = if case.code.w() > 1 { start / cell * cell } else { start };
        let mut halted = Machine::with(&view, &blocks);
        halted.run(&programs(&planned.plan, &view, (0, start), 17));
        halted.run(&programs(&planned.plan, &view, (start, u64::MAX), case.slice_bytes));
        prop_assert_eq!(halted.disks, machine.disks);
    }

    #[test]
    fn the_best_trees_write_what_was_lost(case in cases(), most in 1usize..4, even in any::<bool>(), pairs in any::<bool>()) {
        let lost = case.losses(most);
        prop_assume!(!lost.is_empty());
        let blocks = case.blocks();
        let view = case.without(&lost);
        let topology = if even { case.topology.clone() } else { uneven(&case.topology, pairs) };
        let requestors = place_lost(&view, &topology, &lost, &mut |node| case.rank(node)).unwrap();
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method: Method::Optimal };
        let planned = repair(&view, &topology, &wanted, &|node| case.rank(node), &[]).unwrap();
        prop_assert!(planned.plan.lanes.len() <= 32);
        let mut machine = Machine::with(&view, &blocks);
        let all = programs(&planned.plan, &view, (0, u64::MAX), case.slice_bytes);
        machine.run(&all);
        for (block, requestor) in lost.iter().zip(&requestors) {
            prop_assert_eq!(&machine.disks[&(*requestor, *block)], &blocks[block.0 as usize]);
        }
        // In each lane every helper reads its block once, and every tree has the same number of helpers.
        let by_lane = |lane: usize| {
            let ours: Vec<_> = all.iter().filter(|p| usize::from(p.lane) == lane).cloned().collect();
            loads(&ours)
        };
        let lanes: Vec<_> = (0..planned.plan.lanes.len()).map(by_lane).filter(|read| !read.is_empty()).collect();
        for read in &lanes {
            prop_assert!(read.values().all(|count| *count == 1));
            prop_assert!(read.keys().all(|block| planned.helpers.contains(block)));
            prop_assert_eq!(read.len(), lanes[0].len());
        }
    }

    #[test]
    fn requestors_keep_the_rules(case in cases(), most in 1usize..5) {
        let lost = case.losses(most);
        let view = case.without(&lost);
        let chosen = place_lost(&view, &case.topology, &lost, &mut |node| case.rank(node)).unwrap();
        let kept: BTreeSet<NodeId> = view.homes.iter().flatten().copied().chain(chosen.iter().copied()).collect();
        prop_assert_eq!(kept.len(), case.view.available().len(), "never two blocks of a stripe on one node");
        // The rack rule: no requestor breaks it where another node would have kept it.
        let mut homes = view.homes.clone();
        for (block, requestor) in lost.iter().zip(&chosen) {
            let together = |node: NodeId| -> Vec<BlockIndex> {
                let rack = case.topology.rack(node);
                let mates = homes.iter().enumerate().filter(|(_, home)| home.is_some_and(|h| case.topology.rack(h) == rack));
                mates.map(|(i, _)| BlockIndex(i as u8)).chain([*block]).collect()
            };
            let mut free = case.topology.nodes.keys().filter(|node| !homes.contains(&Some(**node)));
            let possible = free.any(|node| case.code.recoverable(&together(*node)));
            prop_assert_eq!(case.code.recoverable(&together(*requestor)), possible);
            homes[block.0 as usize] = Some(*requestor);
        }
    }

    #[test]
    fn helpers_are_k_or_those_of_the_group(case in cases(), method in 0usize..METHODS.len()) {
        let lost = case.losses(1);
        // Codes with repairs of their own may read a little of many.
        if !["rs", "azure-lrc", "test"].contains(&case.code.family()) {
            return Ok(());
        }
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

/// Rates that differ from node to node, and from pair to pair if wanted.
fn uneven(topology: &Topology, pairs: bool) -> Topology {
    let mut topology = topology.clone();
    let rate = |i: u32| NonZeroU64::new(u64::from(i * 7919 % 90 + 10)).unwrap();
    let nodes: Vec<NodeId> = topology.nodes.keys().copied().collect();
    topology.rates.up = nodes.iter().map(|node| (*node, rate(node.0))).collect();
    topology.rates.down = nodes.iter().map(|node| (*node, rate(node.0 + 50))).collect();
    if pairs {
        let ways = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
        topology.rates.pairs = ways.map(|(a, b)| ((a, b), rate(a.0 * 31 + b.0))).collect();
    }
    topology
}

fn whole(name: &str, racks: usize, nodes: usize) -> (StripeView, Topology) {
    let code = kintsu_code::parse(name).unwrap();
    let topology = topology(racks, nodes);
    let full = layout(LayoutKind::Striped, 8, code.w(), 8, 64 * code.k() as u64);
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
            if matches!(method, Method::Ppr | Method::BoostPpr) { 3.0 } else { 6.0 },
            "{method}: side by side, not one after the other"
        );
    }
}

#[test]
fn a_chain_brings_the_client_one_block_where_a_star_brings_k() {
    let (view, topology) = whole("rs:n=14,k=10", 5, 4);
    let received = |method| {
        let plan = read_by(&view, &topology, &[BlockIndex(3)], &[BlockIndex(3)], method).unwrap();
        Account::of(&plan, &topology, 100).unwrap().received[&NodeId::CLIENT]
    };
    assert_eq!(received(Method::Conventional), 1000);
    assert_eq!(received(Method::Pipeline), 100);
}

#[test]
fn lanes_share_the_slices() {
    let (mut view, topology) = whole("rs:n=9,k=6", 4, 4);
    let object: Vec<u8> = (0..view.layout.data_bytes).map(|i| (i * 7) as u8).collect();
    let blocks = blocks(&view, &object);
    let lost = vec![BlockIndex(2), BlockIndex(7)];
    lost.iter().for_each(|b| view.homes[b.0 as usize] = None);
    let requestors = place_lost(&view, &topology, &lost, &mut |_| 0).unwrap();
    let mut lanes = Vec::new();
    for (method, share) in [(Method::Pipeline, 3), (Method::Ppr, 1), (Method::Conventional, 2)] {
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method };
        let mut plan =
            repair(&view, &topology, &wanted, &|node| u64::from(node.0) % share, &[]).unwrap().plan;
        plan.lanes[0].share = share as u32;
        lanes.append(&mut plan.lanes);
    }
    let plan = Plan::new(lanes);
    let programs = programs(&plan, &view, (5, u64::MAX), 3);
    let mut covered: Vec<_> = [0, 1, 2]
        .iter()
        .flat_map(|lane| programs.iter().find(|p| p.lane == *lane).unwrap().window.steps())
        .collect();
    covered.sort_by_key(|step| step.start);
    assert!(covered.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!((covered[0].start, covered.last().unwrap().end), (5, 64));
    let mut machine = Machine::with(&view, &blocks);
    machine.run(&programs);
    for (block, node) in lost.iter().zip(&requestors) {
        assert_eq!(machine.disks[&(*node, *block)][5..], blocks[block.0 as usize][5..]);
    }
    let star = Plan::new(vec![plan.lanes[2].clone()]);
    assert!(plan.timeslots(600).unwrap() < star.timeslots(600).unwrap(), "the load is spread");
}

#[test]
fn blocks_of_sub_blocks_are_coded_cell_by_cell() {
    let (n, k, w) = (5, 3, 2);
    let code = sub_packetised(n, k, w);
    let topology = topology(3, 4);
    let layout = layout(LayoutKind::Striped, 8192, w, 2, 2 * 8192 * k as u64);
    let mut view = stripe(&code, layout, &topology, 9);
    let object: Vec<u8> = (0..layout.data_bytes).map(|i| (i.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
    let mut machine = Machine { object: blocks(&view, &object), ..Machine::default() };
    machine.run(&programs(&encode_online(&view).unwrap(), &view, (0, u64::MAX), 1));
    let written = machine.disks.clone();
    let lost = [BlockIndex(1), BlockIndex(4)];
    let before = view.clone();
    lost.iter().for_each(|b| view.homes[b.0 as usize] = None);
    let requestors = place_lost(&view, &topology, &lost, &mut |_| 0).unwrap();
    for method in METHODS {
        let wanted = Repair { lost: lost.to_vec(), requestors: requestors.clone(), method };
        let planned = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap();
        assert_eq!(planned.helpers.len(), k);
        let mut machine = Machine { disks: written.clone(), ..Machine::default() };
        lost.iter().for_each(|b| {
            machine.disks.remove(&(before.homes[b.0 as usize].unwrap(), *b));
        });
        machine.run(&programs(&planned.plan, &view, (8192, u64::MAX), 1));
        for (b, node) in lost.iter().zip(&requestors) {
            let whole = &written[&(before.homes[b.0 as usize].unwrap(), *b)];
            assert_eq!(machine.disks[&(*node, *b)][8192..], whole[8192..], "{method}");
        }
        let context = |w, start| {
            let mut view = view.clone();
            view.layout.w = w;
            let window = (start, u64::MAX);
            let context = ProgramContext {
                generations: &[],
                job: RunId(1),
                view: &view,
                generation: 1,
                window,
                slice_bytes: 1,
                expect: &[],
                label: &[],
                peers: &|_| Some(([127, 0, 0, 1], 1).into()),
                resume_key: 0,
            };
            planned.plan.programs(&context)
        };
        assert!(context(2, 8192).is_ok());
        assert!(matches!(context(2, 4096), Err(PlanError::Invalid { .. })), "not at a cell");
        assert!(matches!(context(4, 0), Err(PlanError::Invalid { .. })), "a layout for another code");
    }
}

#[test]
fn programs_need_addresses() {
    let (view, topology) = whole("rs:n=5,k=3", 1, 9);
    let plan = read(&view, &[BlockIndex(0)], &[]).unwrap();
    let build = |known: bool, slice_bytes, expect: &[Option<[u8; 16]>]| {
        let address = |_| known.then(|| ([127, 0, 0, 1], 1).into());
        let context = ProgramContext {
            generations: &[],
            job: RunId(1),
            view: &view,
            generation: 1,
            window: (0, u64::MAX),
            slice_bytes,
            expect,
            label: b"label",
            peers: &address,
            resume_key: 0,
        };
        plan.programs(&context)
    };
    assert!(matches!(build(false, 4, &[]), Err(PlanError::Invalid { .. })));
    assert!(
        build(true, 0, &[]).unwrap().iter().all(|p| p.window.step_bytes == 4 << 10),
        "chosen for the plan"
    );
    // A written block carries the label; a digest is checked for written and for read blocks; zeros mean an
    // unknown digest.
    let programs = build(true, 4, &[Some([1; 16])]).unwrap();
    assert!(programs.iter().flat_map(|p| &p.blocks).all(|b| b.label.is_empty()));
    let expects = |digest| {
        let programs = build(true, 4, &[Some(digest)]).unwrap();
        let bound = programs.into_iter().flat_map(|p| p.blocks).filter(|b| b.index == BlockIndex(0));
        bound.map(|b| b.expect).collect::<Vec<_>>()
    };
    assert!(expects([1; 16]).iter().all(|expect| *expect == Some([1; 16])) && !expects([1; 16]).is_empty());
    assert!(expects(DIGEST_UNKNOWN).iter().all(Option::is_none));
    let free = *topology.nodes.keys().find(|node| !view.homes.contains(&Some(**node))).unwrap();
    let moved = copy(&view, BlockIndex(0), free).unwrap();
    let address = |_| Some(([127, 0, 0, 1], 1).into());
    let context = ProgramContext {
        generations: &[],
        job: RunId(1),
        view: &view,
        generation: 1,
        window: (0, u64::MAX),
        slice_bytes: 4,
        expect: &[Some([1; 16])],
        label: b"label",
        peers: &address,
        resume_key: 0,
    };
    let bound: Vec<_> = moved.programs(&context).unwrap().into_iter().map(|p| p.blocks[0].clone()).collect();
    assert_eq!(bound.iter().map(|b| b.expect).collect::<Vec<_>>(), [Some([1; 16]), Some([1; 16])]);
    assert_eq!(bound.iter().map(|b| b.label.as_slice()).collect::<Vec<_>>(), [b"".as_slice(), b"label"]);
}
