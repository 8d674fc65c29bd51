//! Paths by rate and cyclic paths: their predicted costs, compared with the papers' figures and with each other.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, Task};
use kintsu_plan::{
    Account, Layout, LayoutKind, MOST_STEP_BYTES, Method, Program, Rates, Repair, RepairPlan, RunMode,
    StripeView, Topology, place_lost, predicted, repair,
};
use proptest::prelude::*;
use support::{programs, stripe, topology};

const BLOCK: u64 = 9 << 20;

fn rate(bytes: u64) -> NonZeroU64 {
    NonZeroU64::new(bytes).unwrap()
}

fn lose(name: &str, topology: &Topology, lost: &[u8]) -> (StripeView, Vec<BlockIndex>, Vec<NodeId>) {
    let code = kintsu_code::parse(name).unwrap();
    let layout = Layout {
        kind: LayoutKind::Striped,
        block_bytes: BLOCK,
        cell_bytes: 64,
        w: code.w() as u16,
        data_bytes: BLOCK * code.k() as u64,
    };
    let mut view = stripe(&code, layout, topology, 5);
    lost.iter().for_each(|b| view.homes[*b as usize] = None);
    let lost: Vec<_> = lost.iter().copied().map(BlockIndex).collect();
    let requestors = place_lost(&view, topology, &lost, &mut |_| 0).unwrap();
    (view, lost, requestors)
}

fn planned(name: &str, topology: &Topology, lost: &[u8], method: Method) -> RepairPlan {
    let (view, lost, requestors) = lose(name, topology, lost);
    repair(&view, topology, &Repair { lost, requestors, method }, &|_| 0, &[]).unwrap()
}

fn seconds(name: &str, topology: &Topology, lost: &[u8], method: Method) -> f64 {
    predicted(&planned(name, topology, lost, method).plan, topology, BLOCK).unwrap()
}

#[test]
fn paths_in_turns_take_as_long_as_one_on_equal_links() {
    let topology = topology(1, 24);
    for (name, k) in [("rs:n=6,k=4", 4), ("rs:n=9,k=6", 6), ("rs:n=14,k=10", 10), ("rs:n=16,k=12", 12)] {
        // As many as the code can lose, three at most.
        for f in 1..=if k == 4 { 2 } else { 3u8 } {
            let lost: Vec<u8> = (0..f).collect();
            let plan = planned(name, &topology, &lost, Method::Cyclic);
            assert_eq!((plan.plan.lanes.len(), plan.helpers.len()), (k - 1, k));
            let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
            assert_eq!(account.blocks_read, k as u64, "every block is read once");
            // Whether k-1 divides s or not, and with s beyond what is played slice by slice. Every helper
            // sends f blocks, which takes f at least, and several blocks are no slower than one after the
            // other.
            for s in [1, 2, k - 2, k - 1, k, 4 * (k - 1), 97, 300, 2048] {
                let one = 1.0 + (k as f64 - 1.0) / s as f64;
                let got = plan.plan.timeslots(s).unwrap();
                let least = if f == 1 { one } else { f64::from(f) };
                let most = f64::from(f) * one;
                assert!(
                    got >= least - 1e-9 && got <= most + 1e-9,
                    "{name}, f={f}, s={s}: expected {least} to {most}, got {got}"
                );
            }
        }
    }
}

#[test]
fn paths_in_turns_begin_and_deliver_each_at_another_helper() {
    let topology = topology(1, 24);
    // Six helpers, three, two and one: as many paths as helpers less one, and one at least.
    for (name, helpers) in
        [("rs:n=9,k=6", 6), ("azure-lrc:n=10,k=6,r=3", 3), ("rs:n=4,k=2", 2), ("replication:n=3", 1)]
    {
        let plan = planned(name, &topology, &[1], Method::Cyclic);
        assert_eq!(plan.helpers.len(), helpers, "{name}");
        let lanes = helpers.max(2) - 1;
        assert_eq!(plan.plan.lanes.len(), lanes, "{name}");
        let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
        let deliver = account.links.iter().filter(|link| plan.requestors.contains(&link.to));
        let shares: Vec<u64> = deliver.map(|link| link.bytes).collect();
        assert_eq!(shares.len(), lanes, "{name}");
        assert!(shares.iter().all(|bytes| bytes.abs_diff(BLOCK / lanes as u64) <= 1), "{name}: {shares:?}");
    }
}

#[test]
fn paths_in_turns_escape_a_slow_edge() {
    let mut topology = topology(1, 24);
    let (view, _, requestors) = lose("rs:n=14,k=10", &topology, &[0]);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(100 << 20));
    for home in view.homes.iter().flatten() {
        topology.rates.pairs.insert((*home, requestors[0]), rate(10 << 20));
    }
    let [one, turns] =
        [Method::Pipeline, Method::Cyclic].map(|m| seconds("rs:n=14,k=10", &topology, &[0], m));
    // Nine links of a tenth against one: 1 - 1/9 less time.
    assert!((1.0 - turns / one - 8.0 / 9.0).abs() < 1e-3, "{one} {turns}");
}

/// Where a link carries streams of several depths, nodes that wait for no other start no more than the links can
/// carry.
#[test]
fn who_waits_for_nobody_is_held_to_what_links_carry() {
    let mut topology = topology(1, 24);
    let rate_of = |method, topology: &Topology| {
        planned("rs:n=9,k=6", topology, &[1], method).plan.rate_limit().map(NonZeroU64::get)
    };
    assert!(Method::ALL.into_iter().all(|method| rate_of(method, &topology).is_none()), "nothing is known");
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(6_000_000));
    for method in [Method::Pipeline, Method::Conventional, Method::Weighted, Method::PipeB] {
        assert_eq!(rate_of(method, &topology), None, "{method}: streams of one depth on each link");
    }
    // 5 paths that load each link with one block; a tree whose root receives two.
    assert_eq!(rate_of(Method::Cyclic, &topology), Some(5_700_000));
    assert_eq!(rate_of(Method::Ppr, &topology), Some(5_700_000 / 2));

    let (view, ..) = lose("rs:n=9,k=6", &topology, &[1]);
    let mut plan = planned("rs:n=9,k=6", &topology, &[1], Method::Cyclic).plan;
    plan.lanes[0].share = 6;
    let programs = programs(&plan, &view, (0, u64::MAX), 4096);
    let fetches = |program: &&Program| program.tasks.iter().any(|task| matches!(task, Task::Fetch { .. }));
    let (later, first): (Vec<_>, Vec<_>) = programs.iter().partition(fetches);
    assert!(later.iter().all(|program| program.rate.is_none()));
    let rates: Vec<u64> = first.iter().map(|program| program.rate.unwrap().get()).collect();
    assert_eq!(rates, [3_420_000, 570_000, 570_000, 570_000, 570_000]);
    plan.run_mode = RunMode::Serial;
    assert_eq!(plan.rate_of(1), None);
}

/// The overhead of a slice is a time, which is worth few bytes on slow links: 8 KiB slices instead of 32 KiB for
/// links of 1 Gb/s.
#[test]
fn slices_are_smaller_where_links_are_known_to_be_slow() {
    let mut topology = topology(1, 24);
    let slice = |topology: &Topology| {
        planned("rs:n=14,k=10", topology, &[1], Method::Pipeline).plan.slice_bytes(4 << 20).unwrap()
    };
    assert_eq!(slice(&topology), 32 << 10);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(25_000_000 / 8));
    assert_eq!(slice(&topology), 8 << 10);
}

#[test]
fn without_rates_a_weighted_path_is_the_plain_one() {
    let topology = topology(3, 8);
    for lost in [&[2][..], &[1, 7]] {
        let [plain, weighted] =
            [Method::Pipeline, Method::Weighted].map(|m| planned("rs:n=14,k=10", &topology, lost, m));
        assert_eq!(plain, weighted);
    }
}

#[test]
fn a_flat_path_goes_by_number_and_crosses_racks_more_often() {
    let topology = topology(3, 4);
    let [aware, flat] = [Method::Pipeline, Method::Flat].map(|m| planned("rs:n=9,k=6", &topology, &[0], m));
    assert!(flat.helpers.is_sorted(), "{:?}", flat.helpers);
    let across = |plan: &RepairPlan| Account::of(&plan.plan, &topology, BLOCK).unwrap().bytes_across_racks;
    assert_eq!(across(&aware), 2 * BLOCK, "two racks beside the requestor's");
    assert!(across(&flat) > across(&aware));
}

#[test]
fn for_several_blocks_the_better_of_both_ways_is_taken() {
    let mut both = [0, 0];
    for seed in 0..40u64 {
        let mut topology = topology(1, 9);
        let draw = |a: u64, b: u64| ((seed + 1) * 0x9e37_79b9) ^ ((a * 131 + b * 7919) * 0x85eb_ca6b);
        for a in topology.nodes.keys().copied() {
            for b in topology.nodes.keys().copied() {
                let mb = 1 + draw(a.0.into(), b.0.into()) % 97;
                topology.rates.pairs.insert((a, b), rate(mb << 20));
            }
        }
        let plan = planned("rs:n=6,k=4", &topology, &[0, 1], Method::Weighted);
        let plain = seconds("rs:n=6,k=4", &topology, &[0, 1], Method::Pipeline);
        let weighted = predicted(&plan.plan, &topology, BLOCK).unwrap();
        assert!(weighted <= plain + 1e-9, "seed {seed}: {weighted} against {plain}");
        // One path has one link into each requestor from the same helper.
        let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
        let last: BTreeSet<_> = account
            .links
            .iter()
            .filter(|link| plan.requestors.contains(&link.to))
            .map(|link| link.from)
            .collect();
        both[usize::from(last.len() > 1)] += 1;
    }
    assert!(both.iter().all(|count| *count > 0), "each way wins somewhere: {both:?}");
}

proptest! {
    #[test]
    fn a_weighted_path_is_never_slower_than_the_plain_one(
        code in prop::sample::select(vec!["rs:n=9,k=6", "rs:n=6,k=4", "azure-lrc:n=10,k=6,r=3"]),
        lost in 0u8..6,
        draws in prop::collection::vec(1u64..100, 14 * 14),
    ) {
        let mut topology = topology(2, 7);
        for (i, draw) in draws.iter().enumerate() {
            let pair = (NodeId(i as u32 / 14), NodeId(i as u32 % 14));
            topology.rates.pairs.insert(pair, rate(draw << 20));
        }
        let [plain, weighted] =
            [Method::Pipeline, Method::Weighted].map(|m| seconds(code, &topology, &[lost], m));
        prop_assert!(weighted <= plain + 1e-9);
    }
}

#[test]
fn several_blocks_take_as_many_timeslots_and_each_helper_reads_once() {
    let topology = topology(1, 24);
    for f in 1..=4u8 {
        let lost: Vec<u8> = (0..f).collect();
        let plan = planned("rs:n=14,k=10", &topology, &lost, Method::Pipeline);
        let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
        assert_eq!((account.blocks_read, account.bytes_read), (10, 10 * BLOCK));
        let slots = plan.plan.timeslots(2048).unwrap();
        assert!((slots - f64::from(f) * (1.0 + 9.0 / 2048.0)).abs() < 1e-9, "f={f}: {slots}");
    }
}

/// The fewest racks, besides the requestor's own, from which `k` of the available blocks can come; tries all sets.
fn fewest_racks(
    view: &StripeView,
    topology: &Topology,
    lost: &[BlockIndex],
    home: NodeId,
    k: usize,
) -> usize {
    let blocks: Vec<_> = view.available().into_iter().filter(|block| !lost.contains(block)).collect();
    let sets = (0u32..1 << blocks.len()).filter(|set| set.count_ones() as usize == k);
    let racks = sets.map(|set| {
        let chosen = blocks.iter().enumerate().filter(|(i, _)| set >> i & 1 == 1);
        let racks: BTreeSet<_> =
            chosen.map(|(_, block)| topology.rack(view.homes[usize::from(block.0)].unwrap())).collect();
        racks.iter().filter(|rack| **rack != topology.rack(home)).count()
    });
    racks.min().unwrap()
}

#[test]
fn no_set_of_helpers_crosses_racks_less_often() {
    for (name, k, racks, nodes) in [
        ("rs:n=9,k=6", 6, 3, 5),
        ("rs:n=9,k=6", 6, 4, 4),
        ("rs:n=9,k=6", 6, 5, 3),
        ("rs:n=14,k=10", 10, 5, 4),
        ("rs:n=8,k=4", 4, 3, 5),
    ] {
        let topology = topology(racks, nodes);
        for lost in [&[0][..], &[3], &[8 % k as u8], &[0, 4], &[1, 2, 5]] {
            let (view, blocks, requestors) = lose(name, &topology, lost);
            let plan = planned(name, &topology, lost, Method::Pipeline);
            let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
            // Every rack that is left or passed sends one combination for each lost block, and each requestor
            // that is not in the last helper's rack gets its own across.
            let fewest = fewest_racks(&view, &topology, &blocks, requestors[0], k);
            let last = view.homes[usize::from(plan.helpers.last().unwrap().0)].unwrap();
            let elsewhere = requestors.iter().filter(|r| topology.rack(**r) != topology.rack(last)).count();
            let within = usize::from(topology.rack(last) == topology.rack(requestors[0]));
            let racks_passed = fewest - 1 + within;
            assert_eq!(
                account.bytes_across_racks,
                ((racks_passed * lost.len() + elsewhere) as u64) * BLOCK,
                "{name}, {racks} racks, lost {lost:?}"
            );
        }
    }
}

#[test]
fn codes_with_local_groups_are_repaired_along_their_group() {
    let topology = topology(1, 24);
    use Method::{Auto, Chameleon, Cyclic, Flat, Optimal, PipeB, PipeS, Pipeline, Weighted};
    for method in [Auto, Pipeline, Flat, Cyclic, Weighted, Optimal, Chameleon, PipeB, PipeS] {
        let plan = planned("azure-lrc:n=16,k=12,r=6", &topology, &[4], method);
        assert_eq!(plan.helpers.len(), 6, "{method}");
        let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
        let cycles = plan.plan.lanes.len() as u64;
        assert_eq!((account.blocks_read, account.depth), (6, 6), "{method}");
        assert!(account.bytes_moved.abs_diff(6 * BLOCK) <= 6 * cycles, "{method}");
    }
}

#[test]
fn the_baselines_differ_in_their_pace_alone() {
    let topology = topology(3, 8);
    let [flat, blocks, serial] =
        [Method::Flat, Method::PipeB, Method::PipeS].map(|m| planned("rs:n=9,k=6", &topology, &[2], m));
    assert!(flat.plan.lanes == blocks.plan.lanes && flat.plan.lanes == serial.plan.lanes);
    let (view, ..) = lose("rs:n=9,k=6", &topology, &[2]);
    let run = |plan: &RepairPlan, slice| programs(&plan.plan, &view, (0, u64::MAX), slice);
    assert!(run(&flat, 4096).iter().all(|program| !program.serial && program.window.step_bytes == 4096));
    assert!(run(&serial, 4096).iter().all(|program| program.serial && program.window.step_bytes == 4096));
    for slice in [0, 4096] {
        let whole = run(&blocks, slice);
        assert!(whole.iter().all(|program| u64::from(program.window.step_bytes) == BLOCK && !program.serial));
    }
    for baseline in [Method::Random, Method::PipeB, Method::PipeS] {
        assert!(!Method::streamed().any(|method| method == baseline), "{baseline}");
    }
    assert_eq!(blocks.plan.step_bytes(&view.layout, 1 << 40, 0).unwrap(), MOST_STEP_BYTES);
}

#[test]
fn the_documentation_has_a_row_for_each_method() {
    let docs = include_str!("../../../../docs/repair-methods.md");
    let (_, table) = docs.split_once("| name |").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|') || line.starts_with(" how"));
    let rows = rows.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    assert_eq!(rows.collect::<Vec<_>>(), Method::ALL.map(Method::name));
}

#[test]
fn a_path_for_each_block_is_run_side_by_side() {
    // Lost 0 and 1: the best path for one is the reverse of the best path for the other.
    let mut topology = topology(1, 6);
    let (view, lost, requestors) = lose("rs:n=4,k=2", &topology, &[0, 1]);
    let [a, b] = [2, 3].map(|block: usize| view.homes[block].unwrap());
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(100 << 20));
    for (from, to) in [(a, requestors[0]), (b, requestors[1])] {
        topology.rates.pairs.insert((from, to), rate(1 << 20));
    }
    let wanted = Repair { lost, requestors: requestors.clone(), method: Method::Weighted };
    let plan = repair(&view, &topology, &wanted, &|_| 0, &[]).unwrap();
    let programs = programs(&plan.plan, &view, (0, u64::MAX), 4096);
    let lanes: BTreeSet<_> = programs.iter().map(|program| program.lane).collect();
    assert_eq!((plan.plan.lanes.len(), lanes.len(), programs.len()), (1, 2, 6));
    assert!(programs.iter().all(|p| (p.window.period, p.window.phase, p.window.share) == (1, 0, 1)));
    for program in programs.iter().filter(|program| program.lane == 0) {
        assert!(!program.sends.iter().any(|(_, to)| *to == requestors[1]));
    }
    assert!(predicted(&plan.plan, &topology, BLOCK).unwrap() < 1.0);
}
