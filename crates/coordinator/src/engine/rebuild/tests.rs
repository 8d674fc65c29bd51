use super::*;
use kintsu_plan::{Division, LayoutKind};
use proptest::prelude::*;
use std::sync::Arc;

const CODES: [&str; 4] = ["rs:n=5,k=3", "azure-lrc:n=6,k=3,r=2", "clay:n=4,k=2,d=3", "replication:n=3"];
const NODES: u32 = 9;

/// An object as it was written, and the nodes that are there.
#[derive(Debug, Clone)]
struct Scene {
    code: usize,
    offline: bool,
    /// How many of its stripes are encoded, if it is offline.
    encoded: u64,
    size: u64,
    /// Shifts the homes of its blocks.
    turn: u32,
    there: BTreeSet<u32>,
}

fn scene() -> impl Strategy<Value = Scene> {
    let there = prop::collection::btree_set(0..NODES, 0..=NODES as usize);
    (0..CODES.len(), any::<bool>(), 0u64..4, 1u64..200_000, 0u32..9, there).prop_map(
        |(code, offline, encoded, size, turn, there)| Scene { code, offline, encoded, size, turn, there },
    )
}

struct World {
    code: Arc<dyn Code>,
    stripes: Vec<FoundStripe>,
    encoding: Encoding,
}

/// The object with all blocks that were written.
fn world(scene: &Scene) -> World {
    let code = kintsu_code::parse(CODES[scene.code]).unwrap();
    let kind = if scene.offline { LayoutKind::Contiguous } else { LayoutKind::Striped };
    let cell = 4096 * code.w() as u32;
    let division = Division::new(scene.size, code.k(), code.w(), kind, u64::from(cell), cell).unwrap();
    let stripe = |at: u64| {
        let (offset, layout) = division.stripe(at);
        let home = |i: usize| NodeId((scene.turn + at as u32 + i as u32) % NODES);
        let len = |i: usize| layout.block_len(code.k(), BlockIndex(i as u8));
        let written = |i: &usize| len(*i) > 0 && (*i < code.k() || !scene.offline || at < scene.encoded);
        let block = |i: usize| FoundBlock {
            index: BlockIndex(i as u8),
            node: home(i),
            generation: 1,
            len: len(i),
            digest: [1 + i as u8; 16],
        };
        FoundStripe {
            id: StripeId(100 + at),
            offset,
            layout,
            homes: (0..code.n()).map(|i| (len(i) > 0).then(|| home(i))).collect(),
            blocks: (0..code.n()).filter(written).map(block).collect(),
        }
    };
    let stripes = (0..division.count()).map(stripe).collect();
    let encoding = if scene.offline { Encoding::Offline } else { Encoding::Online };
    World { code, stripes, encoding }
}

fn seen_by(stripes: &[FoundStripe], there: &BTreeSet<u32>) -> Vec<FoundStripe> {
    let mut out = stripes.to_vec();
    out.iter_mut().for_each(|s| s.blocks.retain(|b| there.contains(&b.node.0)));
    out.retain(|stripe| !stripe.blocks.is_empty());
    out
}

fn try_assemble(
    world: &World,
    size: u64,
    found: &[FoundStripe],
) -> Result<Vec<(StripeId, StripeRecord)>, String> {
    let nodes = (0..NODES).map(NodeId).collect();
    let (code, encoding) = (world.code.as_ref(), world.encoding);
    assemble(Wanted { id: 7, size, encoding, code, key: 3, nodes: &nodes }, found)
}

/// Whether the blocks on the nodes in `there` determine the stripe; this follows from the code alone.
fn decodable(world: &World, stripe: &FoundStripe, there: &BTreeSet<u32>) -> bool {
    let (code, layout) = (&world.code, stripe.layout);
    let mut seen = false;
    let lost: Vec<BlockIndex> = (0..code.n() as u8)
        .map(BlockIndex)
        .filter(|index| {
            let here = stripe.blocks.iter().any(|b| b.index == *index && there.contains(&b.node.0));
            seen |= here && usize::from(index.0) >= code.k();
            layout.block_len(code.k(), *index) > 0 && !here
        })
        .collect();
    let parity = seen || world.encoding == Encoding::Online;
    if parity { code.recoverable(&lost) } else { lost.iter().all(|b| usize::from(b.0) >= code.k()) }
}

proptest! {
    #[test]
    fn an_object_is_back_exactly_if_every_stripe_can_be_decoded(scene in scene()) {
        let world = world(&scene);
        let found = seen_by(&world.stripes, &scene.there);
        let whole = world.stripes.iter().all(|stripe| decodable(&world, stripe, &scene.there));
        let got = try_assemble(&world, scene.size, &found);
        prop_assert_eq!(got.is_ok(), whole, "{:?}", got.err());
        let Ok(stripes) = got else { return Ok(()) };
        for ((id, record), wrote) in stripes.iter().zip(&world.stripes) {
            prop_assert_eq!((*id, record.offset, record.layout), (wrote.id, wrote.offset, wrote.layout));
            prop_assert_eq!((record.owner, record.code, record.generation), (7, 3, 1));
            let homes: BTreeSet<NodeId> = record.made().map(|(_, b)| b.node).collect();
            prop_assert_eq!(homes.len(), record.made().count(), "a node holds at most one block of a stripe");
            for (index, block) in record.made() {
                let i = usize::from(index.0);
                let was = wrote.blocks.iter().find(|b| b.index == index && scene.there.contains(&b.node.0));
                prop_assert_eq!(block.lost, was.is_none());
                let digest = was.map_or(DIGEST_UNKNOWN, |b| b.digest);
                prop_assert_eq!((block.node, block.digest), (wrote.homes[i].unwrap(), Some(digest)));
            }
            if scene.offline {
                let parity = record.made().any(|(index, _)| usize::from(index.0) >= world.code.k());
                prop_assert_eq!(record.encoded, parity);
            }
        }
    }

    #[test]
    fn of_the_stripes_at_one_offset_the_newest_that_can_be_decoded_counts(scene in scene(), spoil in any::<bool>()) {
        let world = world(&scene);
        let mut anew = world.stripes[0].clone();
        anew.id = StripeId(500);
        if spoil {
            anew.blocks.truncate(world.code.k().saturating_sub(1));
        }
        let mut found = world.stripes.clone();
        found.insert(0, anew.clone());
        let all = (0..NODES).collect();
        let expected = if decodable(&world, &anew, &all) { 500 } else { 100 };
        let got = try_assemble(&world, scene.size, &found).unwrap();
        prop_assert_eq!(got[0].0, StripeId(expected));
    }
}

fn sample() -> (World, Scene) {
    let all = (0..NODES).collect();
    let scene = Scene { code: 0, offline: false, encoded: 0, size: 30_000, turn: 0, there: all };
    (world(&scene), scene)
}

#[test]
fn what_is_missing_is_told() {
    let (mut world, scene) = sample();
    world.stripes[1].blocks.retain(|b| b.index.0 > 2);
    let why = try_assemble(&world, scene.size, &world.stripes).unwrap_err();
    assert!(why.contains("3 of 5 blocks are missing: b0 (last on N1), b1 (last on N2)"), "{why}");
    world.stripes.remove(1);
    let why = try_assemble(&world, scene.size, &world.stripes).unwrap_err();
    assert!(why.contains("nothing was found of the stripe that begins at byte 12288"), "{why}");
}

#[test]
fn a_block_that_moved_leaves_its_old_place_to_nobody_and_takes_no_second_place() {
    let (mut world, scene) = sample();
    let stripe = &mut world.stripes[0];
    // Block 1 was repaired on the node of block 3, after that node had lost block 3; block 4 is on two nodes.
    stripe.blocks.retain(|b| b.index.0 != 3);
    stripe.blocks[1].node = NodeId(3);
    let copy = FoundBlock { node: NodeId(8), ..stripe.blocks[3] };
    stripe.blocks.push(copy);
    let got = try_assemble(&world, scene.size, &world.stripes).unwrap();
    let blocks: Vec<BlockRecord> = got[0].1.blocks.iter().map(|b| b.unwrap()).collect();
    assert_eq!(blocks[1].node, NodeId(3));
    assert_eq!((blocks[3].node, blocks[3].lost), (NodeId(1), true), "the label's own home is taken");
    assert_eq!((blocks[4].node, blocks[4].lost), (NodeId(4), false));
}

#[test]
fn blocks_of_an_older_generation_or_of_a_wrong_length_do_not_count() {
    let (mut world, scene) = sample();
    world.stripes[0].blocks[0].generation = 2;
    world.stripes[0].blocks[1].len -= 1;
    world.stripes[0].blocks[2].len += 1;
    let got = try_assemble(&world, scene.size, &world.stripes).unwrap_err();
    assert!(got.contains("4 of 5 blocks are missing"), "{got}");
    let world = sample().0;
    let mut labels = world.stripes.clone();
    labels[0].layout.data_bytes = 1 << 40;
    assert!(try_assemble(&world, scene.size, &labels).unwrap_err().contains("got a layout"));
}
