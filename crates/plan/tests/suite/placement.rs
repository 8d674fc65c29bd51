//! Placement: rules kept, groups together, load even.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{Layout, LayoutKind, Node, PlanError, StripeView, Topology, place, place_lost};
use proptest::prelude::*;
use support::{CODES, topology};

fn full(code: &dyn Code) -> Layout {
    Layout {
        kind: LayoutKind::Striped,
        block_bytes: 64,
        cell_bytes: 64,
        w: 1,
        data_bytes: 64 * code.k() as u64,
    }
}

/// The blocks in each rack.
fn by_rack(homes: &[Option<NodeId>], topology: &Topology) -> BTreeMap<RackId, Vec<BlockIndex>> {
    let mut racks: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (i, home) in homes.iter().enumerate() {
        if let Some(node) = home {
            racks.entry(topology.rack(*node).unwrap()).or_default().push(BlockIndex(i as u8));
        }
    }
    racks
}

#[test]
fn what_others_write_to_a_shared_file_system_changes_no_place() {
    let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
    let (layout, told) = (full(code.as_ref()), topology(4, 12));
    let mut later = told.clone();
    for (id, node) in &mut later.nodes {
        node.room_bytes = Some((40 << 30) - u64::from(id.0 % 5) * (50 << 20));
    }
    for stripe in 0..1000 {
        let homes = |topology| place(code.as_ref(), &layout, topology, stripe).unwrap().homes;
        assert_eq!(homes(&told), homes(&later));
    }
}

proptest! {
    #[test]
    fn rules_are_kept_on_any_topology(
        code in 0..CODES.len(),
        nodes in prop::collection::vec((0u32..6, prop::bool::weighted(0.9), 0u64..1 << 40), 0..60),
        seed: u64,
        data_bytes in 0u64..800,
    ) {
        let code = kintsu_code::parse(CODES[code]).unwrap();
        let nodes = nodes.into_iter().enumerate().map(|(i, (rack, usable, used_bytes))| {
            (NodeId(i as u32), Node { rack: RackId(rack), usable, used_bytes, room_bytes: None })
        });
        let topology = Topology { nodes: nodes.collect(), ..Topology::default() };
        let layout = Layout { data_bytes: data_bytes.min(64 * code.k() as u64), ..full(code.as_ref()) };
        let stored = (0..code.n()).filter(|&i| layout.block_len(code.k(), BlockIndex(i as u8)) > 0).count();
        let usable = topology.nodes.values().filter(|node| node.usable).count();
        let placed = place(code.as_ref(), &layout, &topology, seed);
        if usable < stored {
            let refused = matches!(placed, Err(PlanError::Placement { .. }));
            prop_assert!(refused);
            return Ok(());
        }
        let placed = placed.unwrap();
        prop_assert_eq!(&place(code.as_ref(), &layout, &topology, seed).unwrap(), &placed, "deterministic");
        let homes: BTreeSet<_> = placed.homes.iter().flatten().collect();
        prop_assert_eq!(homes.len(), stored);
        prop_assert!(homes.iter().all(|node| topology.nodes[node].usable));
        for (i, home) in placed.homes.iter().enumerate() {
            prop_assert_eq!(home.is_some(), layout.block_len(code.k(), BlockIndex(i as u8)) > 0);
        }
        let racks = by_rack(&placed.homes, &topology);
        prop_assert_eq!(placed.rack_safe, racks.values().all(|blocks| code.recoverable(blocks)));
        // An MDS code has a safe placement whenever there is room under the cap of n-k.
        let mut room: BTreeMap<RackId, usize> = BTreeMap::new();
        topology.nodes.values().filter(|node| node.usable).for_each(|node| *room.entry(node.rack).or_default() += 1);
        let capped: usize = room.values().map(|count| (*count).min(code.n() - code.k())).sum();
        if code.groups().is_empty() {
            prop_assert_eq!(placed.rack_safe, capped >= stored);
        }
    }
}

#[test]
fn any_rack_may_be_lost_and_racks_are_filled_alike() {
    for (name, racks, nodes) in [
        ("rs:n=14,k=10", 5, 4),
        ("rs:n=9,k=6", 3, 3),
        ("azure-lrc:n=16,k=12,r=6", 5, 4),
        ("azure-lrc:n=16,k=12,r=6", 4, 4),
        ("azure-lrc:n=16,k=12,r=6", 8, 2),
        ("azure-lrc:n=10,k=6,r=3", 5, 3),
    ] {
        let code = kintsu_code::parse(name).unwrap();
        let topology = topology(racks, nodes);
        for seed in 0..200 {
            let placed = place(code.as_ref(), &full(code.as_ref()), &topology, seed).unwrap();
            assert!(placed.rack_safe, "{name} in {racks} racks, seed {seed}");
            let counts: Vec<_> = by_rack(&placed.homes, &topology).into_values().map(|b| b.len()).collect();
            assert_eq!(counts.len(), racks);
            let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
            assert!(spread <= 1, "{name} in {racks} racks: {counts:?}");
        }
    }
}

#[test]
fn local_groups_span_as_few_racks_as_is_safe() {
    let code = kintsu_code::parse("azure-lrc:n=16,k=12,r=6").unwrap();
    let topology = topology(5, 4);
    for seed in 0..100 {
        let placed = place(code.as_ref(), &full(code.as_ref()), &topology, seed).unwrap();
        for group in code.groups() {
            let racks: BTreeSet<_> =
                group.iter().map(|b| topology.rack(placed.homes[b.0 as usize].unwrap())).collect();
            assert!(racks.len() <= 3, "a group of 7 in {} racks, seed {seed}", racks.len());
        }
    }
}

#[test]
fn a_lost_block_goes_back_to_the_rack_of_its_group() {
    let code: Arc<dyn Code> = kintsu_code::parse("azure-lrc-plus1:n=15,k=8,r=4").unwrap();
    let topology = topology(3, 14);
    for seed in 0..15 {
        let layout = full(code.as_ref());
        let homes = place(code.as_ref(), &layout, &topology, seed).unwrap().homes;
        let racks = by_rack(&homes, &topology);
        assert!(code.groups().iter().all(|group| racks.values().any(|blocks| blocks == group)), "{racks:?}");
        let view = StripeView { id: StripeId(seed), code: code.clone(), layout, homes: homes.clone() };
        let lost = BlockIndex(seed as u8);
        let old = homes[usize::from(lost.0)].unwrap();
        // The nodes of its rack were all used last of all.
        let mut rank = |node| u64::from(topology.rack(node) == topology.rack(old));
        let new = place_lost(&view, &topology, &[lost], &mut rank).unwrap()[0];
        assert_eq!(topology.rack(new), topology.rack(old), "{lost}");
    }
}

#[test]
fn too_few_nodes_are_refused_and_too_few_racks_are_reported() {
    let code = kintsu_code::parse("rs:n=14,k=10").unwrap();
    let refused = place(code.as_ref(), &full(code.as_ref()), &topology(1, 13), 0).unwrap_err();
    assert_eq!(refused.to_string(), "placement needs 14 usable nodes for rs:n=14,k=10, got 13");
    let placed = place(code.as_ref(), &full(code.as_ref()), &topology(3, 5), 0).unwrap();
    assert!(!placed.rack_safe, "14 blocks in 3 racks: one has five");
}

#[test]
fn many_stripes_load_all_nodes_alike() {
    for (name, racks, nodes) in
        [("rs:n=14,k=10", 5, 4), ("azure-lrc:n=16,k=12,r=6", 5, 4), ("rs:n=5,k=3", 4, 6)]
    {
        let code = kintsu_code::parse(name).unwrap();
        let topology = topology(racks, nodes);
        let mut load: BTreeMap<NodeId, (u64, u64)> =
            topology.nodes.keys().map(|node| (*node, (0, 0))).collect();
        let stripes = 20_000;
        for stripe in 0..stripes {
            let placed = place(code.as_ref(), &full(code.as_ref()), &topology, stripe).unwrap();
            for (i, node) in placed.homes.iter().enumerate() {
                let (all, data) = load.get_mut(&node.unwrap()).unwrap();
                *all += 1;
                *data += u64::from(i < code.k());
            }
        }
        let nodes = topology.nodes.len() as f64;
        let (all, data) =
            (stripes as f64 * code.n() as f64 / nodes, stripes as f64 * code.k() as f64 / nodes);
        for (node, (a, d)) in load {
            assert!((a as f64 / all - 1.0).abs() < 0.04, "{name}: {node} has {a} blocks, mean {all}");
            assert!((d as f64 / data - 1.0).abs() < 0.05, "{name}: {node} has {d} data blocks, mean {data}");
        }
    }
}

#[test]
fn emptier_nodes_get_more() {
    let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
    let mut topology = topology(1, 20);
    for (id, node) in &mut topology.nodes {
        node.used_bytes = if id.0 < 4 { 0 } else { 100 << 30 };
    }
    let mut load = [0u64; 20];
    for stripe in 0..2000 {
        let placed = place(code.as_ref(), &full(code.as_ref()), &topology, stripe).unwrap();
        placed.homes.iter().flatten().for_each(|node| load[node.0 as usize] += 1);
    }
    let (empty, rest) = (load[..4].iter().min().unwrap(), load[4..].iter().max().unwrap());
    assert!(*empty > 3 * rest, "{load:?}");
}

#[test]
fn nodes_without_room_get_nothing_and_roomier_ones_get_more() {
    let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
    let layout = full(code.as_ref());
    let mut topology = topology(1, 20);
    for (id, node) in &mut topology.nodes {
        // A block has 64 bytes.
        node.room_bytes = Some(if id.0 < 4 { 63 } else { u64::from(id.0) << 34 });
    }
    let mut load = [0u64; 20];
    for stripe in 0..4000 {
        let placed = place(code.as_ref(), &layout, &topology, stripe).unwrap();
        placed.homes.iter().flatten().for_each(|node| load[node.0 as usize] += 1);
    }
    assert_eq!(load[..4], [0; 4]);
    assert!(load[4..8].iter().sum::<u64>() * 2 < load[16..].iter().sum(), "{load:?}");
    let homes = place(code.as_ref(), &layout, &topology, 0).unwrap().homes;
    let view = StripeView { id: StripeId(0), code: code.clone(), layout, homes };
    let new = place_lost(&view, &topology, &[BlockIndex(0)], &mut |node| node.0.into()).unwrap();
    assert!(new[0].0 >= 4, "{new:?}");
    for (id, node) in &mut topology.nodes {
        node.room_bytes = (id.0 < 18).then_some(0);
    }
    let refused = place(code.as_ref(), &layout, &topology, 0).unwrap_err().to_string();
    assert!(refused.contains("got 2; 18 more have too little free space"), "{refused}");
}
