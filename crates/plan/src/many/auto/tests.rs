//! What is measured where nothing is under way and no disk is known, and where a link has much under way.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, StripeId};

use super::balance::{floor, prescribed};
use super::search::Prices;
use super::*;
use crate::many::{DamagedStripe, Disks};
use crate::traffic::Link;
use crate::{Layout, LayoutKind, Rates, StripeView, Topology, draw, even_cluster};

const NODES: u32 = 16;

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

/// Stripes of several codes, of which some lost two blocks. One of the codes leaves no choice of helpers, and one has a graph of
/// its own.
fn stripes() -> Vec<DamagedStripe> {
    let codes = ["rs:n=9,k=6", "azure-lrc:n=10,k=6,r=3", "butterfly:n=5,k=3"];
    let stripe = |number: u64| {
        let code = kintsu_code::parse(codes[number as usize % codes.len()]).unwrap();
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: 1024,
            cell_bytes: 64,
            w: code.w() as u16,
            data_bytes: 1024 * code.k() as u64,
        };
        let mut homes: Vec<Option<NodeId>> =
            (0..code.n() as u32).map(|block| Some(NodeId((5 * number as u32 + block) % NODES))).collect();
        let gone = if number.is_multiple_of(4) && code.w() == 1 { 2 } else { 1 };
        homes[..gone].fill(None);
        let view = StripeView { id: StripeId(number), code, layout, homes };
        let lost = (0..gone as u8).map(BlockIndex).collect();
        DamagedStripe { view, lost, barred: BTreeSet::new() }
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
    let scene = Scene { topology: &topology, disks: &disks, underway: &underway };
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
    let only = crate::Node { rack: kintsu_dag::RackId(9), usable: true, used_bytes: 0, room_bytes: None };
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
