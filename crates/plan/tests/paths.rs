//! Paths by rate and paths in turns: what they promise, held against the papers' figures and against each other.

#![allow(clippy::unwrap_used)]

mod support;

use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{
    Account, Layout, LayoutKind, Method, Rates, Repair, RepairPlan, StripeView, Topology, place_lost,
    predicted, repair,
};
use proptest::prelude::*;
use support::{stripe, topology};

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
    for (name, k) in [("rs:n=9,k=6", 6), ("rs:n=14,k=10", 10), ("rs:n=16,k=12", 12)] {
        let plan = planned(name, &topology, &[0], Method::Cyclic);
        assert_eq!(plan.plan.lanes.len(), k - 1);
        assert_eq!(plan.helpers.len(), k);
        let account = Account::of(&plan.plan, &topology, BLOCK).unwrap();
        assert_eq!(account.blocks_read, k as u64, "every block is read once");
        for groups in [1, 4, 20, 100] {
            let s = groups * (k - 1);
            let slots = plan.plan.timeslots(s).unwrap();
            // 1 + (k-1)/s at best (section 4.1). Links that serve what arrives first take up to (k-1)^2 slices to get
            // into step, however many there are.
            let fill = (slots - 1.0) * s as f64;
            assert!(fill <= (k as f64 - 1.0).powi(2) + 1e-6, "{name}, s={s}: {slots}");
            assert!(slots >= 1.0 + (k as f64 - 1.0) / s as f64 - 1e-9, "{name}, s={s}: {slots}");
        }
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
        let last: std::collections::BTreeSet<_> = account
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
