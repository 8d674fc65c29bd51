//! What is measured where nothing is under way and no disk is known, where a link has much under way, and where links of racks are
//! scarce; and what is chosen by that.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId, StripeId};

use super::balance::{Placed, chosen, divide, floor, prescribed};
use super::search::{Open, Prices, search};
use super::*;
use crate::many::desk::Tree;
use crate::many::{DamagedStripe, Disks};
use crate::traffic::Link;
use crate::{Layout, LayoutKind, Rates, StripeView, Topology, draw, even_cluster};

const NODES: u32 = 16;

fn drafted<'a, 'b>(
    scene: &Scene<'a>,
    blocks: &[LostBlock<'b>],
    share: bool,
) -> (Desk<'a>, Results, Vec<Draft<'b>>) {
    super::drafted(by_own_graphs(scene, blocks), blocks, share)
}

/// Nodes in four racks, with links of two speeds.
fn topology() -> Topology {
    let mut topology = even_cluster(NODES as usize, 4);
    let rates = |stream: u64| -> BTreeMap<NodeId, NonZeroU64> {
        let rate = |node: NodeId| 1000 + 2000 * (draw(7, stream, node.0.into()) % 2);
        topology.nodes.keys().filter_map(|node| Some((*node, NonZeroU64::new(rate(*node))?))).collect()
    };
    let (up, down) = (rates(1), rates(2));
    topology.rates = Rates { up, down, ..Rates::default() };
    topology
}

/// A stripe that lost the first `gone` blocks. The others are at home on the nodes that `home` says.
fn stripe(number: u64, code: &str, gone: u8, home: impl Fn(u32) -> u32) -> DamagedStripe {
    let code = kintsu_code::parse(code).unwrap();
    let layout = Layout {
        kind: LayoutKind::Striped,
        block_bytes: 1024,
        cell_bytes: 64,
        w: code.w() as u16,
        data_bytes: 1024 * code.k() as u64,
    };
    let mut homes: Vec<Option<NodeId>> =
        (0..code.n() as u32).map(|block| Some(NodeId(home(block)))).collect();
    homes[..usize::from(gone)].fill(None);
    let view = StripeView { id: StripeId(number), code, layout, homes };
    DamagedStripe { view, lost: (0..gone).map(BlockIndex).collect(), barred: BTreeSet::new() }
}

/// Stripes of several codes, of which some lost two blocks. One of the codes leaves no choice of helpers, and one has a graph of
/// its own.
fn stripes() -> Vec<DamagedStripe> {
    let codes = ["rs:n=9,k=6", "azure-lrc:n=10,k=6,r=3", "butterfly:n=5,k=3"];
    let stripe = |number: u64| {
        let code = codes[number as usize % codes.len()];
        let gone = if number.is_multiple_of(4) && !code.starts_with("butterfly") { 2 } else { 1 };
        stripe(number, code, gone, |block| (5 * number as u32 + block) % NODES)
    };
    (0..30).map(stripe).collect()
}

/// As [`floor`], if nothing could be under way.
fn plain_floor(desk: &Desk<'_>, drafts: &[Draft<'_>]) -> f64 {
    let nodes = || 0..desk.ids.len();
    let helps = |node: usize| drafts.iter().any(|draft| draft.case.helpers.contains(&node));
    let all = |blocks: &dyn Fn(&Draft<'_>) -> usize| -> f64 {
        drafts.iter().map(|draft| blocks(draft) as f64 * draft.case.bytes).sum()
    };
    let together = |bytes: f64, links: Vec<usize>| {
        let rate: f64 = links.iter().map(|link| 1.0 / desk.pace[*link]).sum();
        let load: f64 = links.iter().map(|link| desk.load[*link]).sum();
        (load + bytes) / rate
    };
    let prescribed = |node: usize| {
        let fixed = drafts.iter().filter(|draft| draft.fixed && draft.case.helpers.contains(&node));
        desk.time(desk.up(node), fixed.map(|draft| draft.case.bytes).sum())
    };
    let receives = |node: &usize| helps(*node) || desk.usable(*node);
    let gets = |node: &usize| desk.usable(*node);
    [
        together(all(&|draft| draft.case.k), nodes().filter(|node| helps(*node)).collect()),
        together(all(&|draft| draft.sent()), nodes().filter(receives).map(|node| desk.down(node)).collect()),
        together(
            all(&|draft| draft.blocks().count()),
            nodes().filter(gets).map(|node| desk.down(node)).collect(),
        ),
        busiest(desk),
        nodes().map(prescribed).fold(0.0, f64::max),
    ]
    .into_iter()
    .fold(0.0, f64::max)
}

fn busiest(desk: &Desk<'_>) -> f64 {
    (0..desk.load.len()).map(|link| desk.time(link, 0.0)).fold(0.0, f64::max)
}

#[test]
fn where_nothing_is_under_way_and_no_disk_is_known_neither_counts() {
    let (topology, stripes) = (topology(), stripes());
    for share in [false, true] {
        let (mut desk, _, drafts) = drafted(&Scene::of(&topology), &LostBlock::all(&stripes), share);
        assert!(busiest(&desk) > 0.0 && drafts.iter().any(|draft| draft.fixed));
        let prescribed = prescribed(&desk, &drafts);
        let floor = floor(&desk, &drafts, &prescribed);
        assert_eq!((floor.links, floor.all), (floor.all, plain_floor(&desk, &drafts)));
        let load = desk.load.clone();
        desk.overlook(floor.links, &prescribed);
        assert!((0..load.len()).all(|link| !desk.is_overlooked(link)));
        assert_eq!((desk.seconds(), &desk.load), (busiest(&desk), &load));
    }
}

#[test]
fn one_link_with_much_under_way_and_one_slow_disk_do_not_hide_the_others() {
    let (topology, stripes) = (topology(), stripes());
    let blocks = LostBlock::all(&stripes);
    let floor_of = |desk: &Desk<'_>, drafts: &[Draft<'_>]| floor(desk, drafts, &prescribed(desk, drafts));
    let (desk, _, drafts) = drafted(&Scene::of(&topology), &blocks, true);
    let usual = floor_of(&desk, &drafts).links;
    let slow = |node: u32| [(NodeId(node), NonZeroU64::MIN)].into();
    let disks = Disks { read: slow(3), write: slow(4) };
    let underway = [Link::NodeUp(NodeId(1)), Link::NodeDown(NodeId(2)), Link::DiskWrite(NodeId(4))];
    let underway = underway.map(|link| (link, 1_u64 << 50));
    let scene = Scene { disks: &disks, underway: &underway, ..Scene::of(&topology) };
    let (mut desk, _, drafts) = drafted(&scene, &blocks, true);
    let floor = floor_of(&desk, &drafts);
    assert!(floor.links < 1.5 * usual && floor.all == floor.links, "{floor:?} {usual}");
    let prescribed = prescribed(&desk, &drafts);
    desk.overlook(floor.links, &prescribed);
    // Codes prescribe that node 3 reads.
    let full = [desk.up(1), desk.down(2), desk.read(3), desk.write(4)];
    assert!((0..desk.load.len()).filter(|link| desk.is_overlooked(*link)).eq(full));
    // What comes beside it is seen, and costs more than elsewhere, but not so much that nothing else matters.
    let before = desk.seconds();
    desk.load[full[0]] = desk.fixed[full[0]] + 100.0;
    let more = 100.0 * desk.pace[full[0]];
    assert!((desk.seconds() - before - more).abs() < 1e-9, "{before} {more}");
    let prices = Prices { unit: 1.0 / floor.links, power: 96, children: 1, overlooked: 1.1, given: false };
    let price = |prices: &Prices, link: usize| prices.rise(&desk, link, 0.0, 100.0);
    let (own, other) = (price(&prices, full[0]), price(&prices, desk.up(6)));
    assert!(own > other && own < 1e15, "{own} {other}");
    assert!(price(&prices, full[1]) > other);
    let given = Prices { given: true, ..prices };
    assert_eq!(price(&given, full[0]), 0.0);
    assert_eq!(price(&given, desk.up(6)), other);
    assert_eq!(price(&given, full[1]), price(&prices, full[1]));
}

#[test]
fn the_slow_disk_of_the_only_node_that_gets_blocks_does_not_hide_the_links() {
    let (mut topology, stripes) = (topology(), stripes());
    topology.nodes.iter_mut().for_each(|(node, known)| known.usable = *node == NodeId(99));
    let only = crate::Node { rack: RackId(9), usable: true, used_bytes: 0, room_bytes: None };
    topology.nodes.insert(NodeId(99), only);
    topology.rates.down.insert(NodeId(99), NonZeroU64::new(1000).unwrap());
    let disks = Disks { write: [(NodeId(99), NonZeroU64::MIN)].into(), ..Disks::default() };
    let scene = Scene { disks: &disks, ..Scene::of(&topology) };
    let (mut desk, _, drafts) = drafted(&scene, &LostBlock::all(&stripes), true);
    let prescribed = prescribed(&desk, &drafts);
    let floor = floor(&desk, &drafts, &prescribed);
    assert_eq!(floor.all, floor.links);
    desk.overlook(floor.links, &prescribed);
    let number = desk.number(NodeId(99)).unwrap();
    assert!(desk.is_overlooked(desk.write(number)) && !desk.is_overlooked(desk.down(number)));
}

/// Nodes in racks: links of 1000 bytes a second, and those of racks of this many.
fn racked(nodes: usize, racks: u32, rack_rate: u64) -> Topology {
    let mut topology = even_cluster(nodes, racks as usize);
    let rate = |rate| NonZeroU64::new(rate).unwrap();
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    topology.rates.rack_up = (0..racks).map(|rack| (RackId(rack), rate(rack_rate))).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    topology
}

/// Nine hosts in three racks, whose links carry 250 bytes a second. Node 0 lost a block of each of ten stripes, which are on all
/// nodes, so only it can get them.
fn scarce() -> (Topology, Vec<DamagedStripe>) {
    (racked(9, 3, 250), (0..10).map(|number| stripe(number, "rs:n=9,k=6", 1, |block| block)).collect())
}

#[test]
fn where_links_of_racks_are_scarce_one_is_overlooked_only_if_the_others_need_less_for_what_is_planned() {
    let (topology, stripes) = scarce();
    let blocks = LostBlock::all(&stripes);
    // Racks 0, 1 and 2 have 2, 3 and 3 helpers. Six are needed and node 0 is in rack 0, so each repair leaves racks 1 and 2: 20 blocks of
    // 1024 bytes arrive in racks. Rack 1 still has to receive 2500 bytes (10 s) and rack 2 1250 (5 s). So the downlinks of racks together
    // need (20 * 1024 + 3750) / (3 * 250) = 32.3 s. All others need less: uplinks of racks 20 * 1024 / 750 = 27.3 s, and those of the
    // eight helpers 60 * 1024 / 8000 = 7.7 s, which is less than the 10 s that rack 1 needs anyway.
    let underway = [(Link::RackDown(RackId(1)), 2500), (Link::RackDown(RackId(2)), 1250)];
    let scene = Scene { underway: &underway, ..Scene::of(&topology) };
    let (mut desk, _, drafts) = drafted(&scene, &blocks, true);
    let given = prescribed(&desk, &drafts);
    let links = floor(&desk, &drafts, &given).links;
    assert!((links - 24_230.0 / 750.0).abs() < 1e-9, "{links}");
    desk.overlook(links, &given);
    assert!((0..desk.load.len()).all(|link| !desk.is_overlooked(link)));
    // In each repair racks 1 and 2 send once, and what rack 0 needs arrives there once, after the one rack has sent to the other. So the
    // uplinks of racks 1 and 2 need ten blocks each, 40.96 s, and so does the downlink of rack 0. If four repairs go by rack 1 and six
    // by rack 2, the downlinks there need 10 + 4 * 4.096 = 26.4 s and 5 + 6 * 4.096 = 29.6 s. If all go by rack 2, because rack 1 is to be
    // spared, its downlink needs 5 + 40.96 = 45.96 s. Downlinks of nodes need 30 blocks, 30.72 s, at most.
    let tree = |edges: [(usize, usize); 6]| Tree { requestor: 0, edges: edges.to_vec() };
    let by_rack_1 = tree([(1, 0), (2, 1), (3, 0), (4, 1), (6, 0), (7, 1)]);
    let by_rack_2 = tree([(1, 2), (2, 0), (3, 0), (5, 2), (6, 0), (8, 2)]);
    let seconds = |by_1: usize| {
        let mut desk = desk.clone();
        (0..10).for_each(|at| desk.carry_tree(if at < by_1 { &by_rack_1 } else { &by_rack_2 }, &[], 1024.0));
        desk.seconds()
    };
    let (even, spared) = (seconds(4), seconds(0));
    assert!((even - 40.96).abs() < 1e-9 && (spared - 45.96).abs() < 1e-9, "{even} {spared}");
    // What needs longer than all others is overlooked, and the others then need (20 * 1024 + 1250) / 500 = 43.46 s.
    let underway = [(Link::RackDown(RackId(1)), 1_u64 << 40), (Link::RackDown(RackId(2)), 1250)];
    let scene = Scene { underway: &underway, ..Scene::of(&topology) };
    let (mut desk, _, drafts) = drafted(&scene, &blocks, true);
    let given = prescribed(&desk, &drafts);
    let links = floor(&desk, &drafts, &given).links;
    assert!((links - 21_730.0 / 500.0).abs() < 1e-9, "{links}");
    desk.overlook(links, &given);
    assert!((0..desk.load.len()).filter(|link| desk.is_overlooked(*link)).eq([desk.rack_down(desk.rack[1])]));
}

#[test]
fn what_nobody_may_get_is_no_floor() {
    let mut topology = even_cluster(10, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(1000).unwrap());
    topology.nodes.iter_mut().for_each(|(node, known)| known.usable = *node == NodeId(9));
    // Only node 9 may get blocks, and it has a block of two of the three stripes.
    let stripes = [(0, 0), (1, 1), (2, 1)]
        .map(|(number, first)| stripe(number, "rs:n=9,k=6", 1, |block| block + first));
    let (desk, results, drafts) = drafted(&Scene::of(&topology), &LostBlock::all(&stripes), true);
    assert!(matches!(results[..], [None, Some(Err(_)), Some(Err(_))]));
    // One block over the downlink of node 9.
    let links = floor(&desk, &drafts, &prescribed(&desk, &drafts)).links;
    assert!((links - 1.024).abs() < 1e-9, "{links}");
}

#[test]
fn links_of_racks_that_no_repair_needs_are_no_floor() {
    let topology = racked(6, 2, 250);
    // The blocks left are on nodes 2 and 4, in rack 0, where node 0 is, too. So nothing has to leave it, and whatever racks still have to
    // carry, the links of nodes decide.
    let stripes = [stripe(0, "rs:n=3,k=2", 1, |block| 2 * block)];
    let (one, other) = (RackId(0), RackId(1));
    let busy = [Link::RackUp(one), Link::RackUp(other), Link::RackDown(one), Link::RackDown(other)];
    let underway = busy.map(|link| (link, 1_u64 << 30));
    let scene = Scene { underway: &underway, ..Scene::of(&topology) };
    let (desk, _, drafts) = drafted(&scene, &LostBlock::all(&stripes), true);
    let links = floor(&desk, &drafts, &prescribed(&desk, &drafts)).links;
    // Two blocks over the uplinks of two helpers.
    assert!((links - 1.024).abs() < 1e-9, "{links}");
}

#[test]
fn a_block_does_not_go_into_a_rack_whose_link_is_busy_if_it_may_go_elsewhere() {
    let topology = racked(12, 4, 1000);
    let prices = Prices { unit: 1.0, power: 16, children: 1, overlooked: 1.1, given: false };
    // With blocks on nodes 0 to 8 each rack has two helpers and a node that may get the block. With blocks on nodes 0, 4 and 8, all in
    // rack 0, the other racks have no helpers, and only they may get it.
    for (code, step, rack) in [("rs:n=9,k=6", 1, 0), ("rs:n=3,k=2", 4, 1)] {
        let stripes = [stripe(0, code, 1, |block| step * block)];
        let blocks = LostBlock::all(&stripes);
        let mut desk = Desk::new(&Scene::of(&topology), &blocks);
        let case = desk.case(&blocks[0], &|_| 0.0).unwrap();
        let places = desk.places(&blocks[0]).unwrap();
        // The nodes of one rack are idle, the downlinks of all others have 0.5 s to do. So 100 bytes cost 0.6^16 - 0.5^16 = 2.7e-4 there.
        for node in (0..12).filter(|node| node % 4 != rack) {
            let down = desk.down(node);
            desk.load[down] = 500.0;
        }
        let to = |desk: &Desk<'_>| {
            let tree = search(desk, &case, 100.0, Open::Any(&places), &prices).unwrap();
            desk.rack[tree.requestor]
        };
        assert_eq!(to(&desk), rack, "{code}");
        // What enters that rack costs 2.1^16 - 2^16 = 8e4, and one sum enters the requestor's at least.
        let down = desk.rack_down(rack);
        desk.load[down] = 2000.0;
        assert_ne!(to(&desk), rack, "{code}");
    }
}

#[test]
fn racks_send_to_the_one_whose_downlink_is_idlest_whatever_its_number() {
    let topology = racked(4, 4, 1000);
    // A helper in each of racks 1, 2 and 3, and the requestor in rack 0. Something has to enter rack 0; the rest may enter rack 3, whose
    // downlink is idle, while those of the others have 2 s to do.
    let stripes = [stripe(0, "rs:n=4,k=3", 1, |block| block)];
    let blocks = LostBlock::all(&stripes);
    let mut desk = Desk::new(&Scene::of(&topology), &blocks);
    let case = desk.case(&blocks[0], &|_| 0.0).unwrap();
    for rack in 0..3 {
        let down = desk.rack_down(rack);
        desk.load[down] = 2000.0;
    }
    let prices = Prices { unit: 1.0, power: 16, children: 1, overlooked: 1.1, given: true };
    let tree = search(&desk, &case, 100.0, Open::Given(0), &prices).unwrap();
    assert_eq!(tree.edges, [(1, 3), (2, 3), (3, 0)]);
}

#[test]
fn where_a_code_leaves_a_choice_of_helpers_none_is_behind_the_busy_link_of_a_rack() {
    let topology = racked(9, 3, 1000);
    // Block 6 is a global parity: four helpers repair it that are independent of each other. Its groups are the blocks 0, 1, 4 and 2, 3, 5,
    // so racks 1 and 2 have enough (1, 4 and 2, 5), and racks 0 and 1 (0, 1, 3, 7).
    let mut stripes = [stripe(0, "azure-lrc:n=8,k=4,r=2", 0, |block| block)];
    stripes[0].view.homes[6] = None;
    stripes[0].lost = vec![BlockIndex(6)];
    let (desk, _, drafts) = drafted(&Scene::of(&topology), &LostBlock::all(&stripes), true);
    assert!(drafts[0].varies);
    for busy in [0, 2] {
        let mut desk = desk.clone();
        let link = desk.rack_up(busy);
        desk.load[link] = 10_000.0;
        let helpers = chosen(&desk, &drafts[0]).unwrap().helpers;
        assert!(helpers.iter().all(|node| desk.rack[*node] != busy), "{busy}: {helpers:?}");
    }
}

#[test]
fn of_the_blocks_on_a_busy_link_the_largest_is_divided() {
    let mut topology = even_cluster(12, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(1000).unwrap());
    let mut stripes = [0, 1].map(|number| stripe(number, "rs:n=9,k=6", 1, |block| block));
    stripes[0].view.layout.data_bytes = 6 * 64;
    let (mut desk, _, drafts) = drafted(&Scene::of(&topology), &LostBlock::all(&stripes), true);
    // Blocks of 64 and 1024 bytes along one chain: 1.088 s on each of its links. Eight helpers together need 6 * 1088 / 8000 = 0.816 s. To
    // divide the small block can save 0.064 s at most.
    let chain = Tree { requestor: 9, edges: vec![(1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 9)] };
    let placed = |_: &Draft<'_>| Ok(Placed { also: Vec::new(), trees: vec![chain.clone()] });
    let laid: Vec<Result<Placed, PlanError>> = drafts.iter().map(placed).collect();
    let floor = floor(&desk, &drafts, &prescribed(&desk, &drafts));
    let mut parts = [1, 1];
    assert!(divide(&mut desk, &drafts, &laid, &mut parts, floor) && parts == [1, 2], "{parts:?}");
}

/// A star sends least, so it is best where all nodes get blocks; a path spares the link of the only one that does. What was decided for
/// all stripes together holds when each repair is planned.
#[test]
fn sub_blocks_of_many_stripes_go_by_stars_or_paths_as_the_requestors_links_demand() {
    let mut topology = even_cluster(NODES as usize, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(100_000).unwrap());
    let stripes: Vec<DamagedStripe> = (0..24)
        .map(|number| stripe(number, "less:n=9,k=6,alpha=2", 1, |block| (5 * number as u32 + block) % NODES))
        .collect();
    for (getting, expected) in [(NODES, Method::Conventional), (1, Method::Pipeline)] {
        let mut topology = topology.clone();
        topology.nodes.iter_mut().for_each(|(id, node)| node.usable = getting > 1 || id.0 == NODES);
        if getting == 1 {
            let node = topology.nodes[&NodeId(0)].clone();
            topology.nodes.insert(NodeId(NODES), crate::Node { usable: true, ..node });
            topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(100_000).unwrap());
        }
        let mut recovery = crate::Recovery::new();
        let assigned = recovery.window(
            crate::Schedule::Balanced,
            Method::Auto,
            &mut crate::Shares::default(),
            &Scene::of(&topology),
            &stripes,
        );
        for (stripe, assigned) in stripes.iter().zip(assigned) {
            let assigned = assigned.unwrap();
            assert_eq!(assigned.method, Some(expected), "{getting} get blocks");
            let requestors = vec![assigned.requestors[&BlockIndex(0)]];
            let plan = |method| {
                let wanted =
                    crate::Repair { lost: stripe.lost.clone(), requestors: requestors.clone(), method };
                let planned = recovery.clone().assign(&stripe.view, &topology, &wanted, &[]).unwrap();
                crate::Account::of(&planned.plan, &topology, 1024).unwrap().bytes_moved
            };
            assert_eq!(plan(Method::Auto), plan(expected));
        }
    }
}

#[test]
fn where_uplinks_are_busiest_downlinks_are_loaded_evenly_too() {
    const LINK: u64 = 4_375_000;
    let code = kintsu_code::parse("rs:n=15,k=10").unwrap();
    let lost = |seed: u64, number: u64| {
        let bytes = if number < 24 { 1 << 20 } else { 26 << 10 };
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: bytes,
            cell_bytes: 1024,
            w: 1,
            data_bytes: bytes * 10,
        };
        let mut nodes: Vec<u32> = (0..16).collect();
        nodes.sort_by_key(|node| draw(seed + 100, number, u64::from(*node)));
        let mut homes: Vec<Option<NodeId>> = nodes.into_iter().take(14).map(|n| Some(NodeId(n))).collect();
        let at = draw(seed, 3, number) % 15;
        homes.insert(at as usize, None);
        let view = StripeView { id: StripeId(number), code: code.clone(), layout, homes };
        DamagedStripe { view, lost: vec![BlockIndex(at as u8)], barred: BTreeSet::new() }
    };
    for (seed, least) in (0..9).zip([10, 30, 50].into_iter().cycle()) {
        // Users leave another part of each uplink, and downlinks whole.
        let mut topology = even_cluster(17, 17);
        topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(LINK).unwrap());
        for (node, rate) in &mut topology.rates.up {
            let left = least + draw(seed, 1, node.0.into()) % (90 - least);
            *rate = NonZeroU64::new(LINK * left / 100).unwrap();
        }
        let stripes: Vec<DamagedStripe> = (0..90).map(|number| lost(seed, number)).collect();
        let (scene, blocks) = (Scene::of(&topology), LostBlock::all(&stripes));
        let mut desk = Desk::new(&scene, &blocks);
        for planned in auto(&scene, &mut History::default(), &blocks) {
            let planned = planned.unwrap();
            desk.carry(&planned, planned.bytes as f64);
        }
        let downs: Vec<f64> = (0..17).map(|node| desk.time(desk.down(node), 0.0)).collect();
        let mean = downs.iter().sum::<f64>() / 17.0;
        let most = downs.iter().copied().fold(0.0, f64::max);
        assert!(most < 1.3 * mean && most < desk.seconds(), "{seed}: {downs:?}");
    }
}
