//! Where the blocks of a stripe live: on distinct usable nodes, spread over racks.
//!
//! Rules, in order: never two blocks of a stripe on one node; no new block on a node without room for it; the stripe survives the loss of any one rack (so no
//! rack has more than n-k blocks), where the racks allow it; the code's groups stay together, so that local
//! repairs stay inside racks; emptier nodes get more blocks. All choices are functions of the seed: the same
//! stripe on the same topology gets the same homes.

use std::collections::BTreeMap;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId};

use super::deal::{Room, deal, deal_unsafely, quotas, survives};
use super::draw::draw;
use crate::{Layout, Node, PlanError, StripeView, Topology};

/// Nodes whose stored bytes differ by much less than this count as equally full.
const SLACK_BYTES: u64 = 1 << 30;

/// The homes of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// For each block index the node, or `None` for a block without bytes, which is not stored.
    pub homes: Vec<Option<NodeId>>,
    /// Whether the stripe survives the loss of any one rack. False when there are too few racks or too
    /// few usable nodes in them; then blocks are spread as far as they go.
    pub rack_safe: bool,
}

/// Homes for the blocks of a new stripe. `seed` rotates the choice: pass the stripe's id, so that many stripes
/// load all nodes evenly.
///
/// # Errors
/// `Placement` when fewer usable nodes with room than stored blocks are there.
pub fn place(
    code: &dyn Code,
    layout: &Layout,
    topology: &Topology,
    seed: u64,
) -> Result<Placement, PlanError> {
    let all = (0..code.n()).map(|i| BlockIndex(i as u8));
    let stored: Vec<_> = all.filter(|&block| layout.block_len(code.k(), block) > 0).collect();
    let longest = stored.iter().map(|&block| layout.block_len(code.k(), block)).max().unwrap_or(0);
    let racks = usable_racks(topology, longest);
    let usable: usize = racks.iter().map(Vec::len).sum();
    if usable < stored.len() {
        return Err(PlanError::Placement {
            expected: format!("{} usable nodes for {}", stored.len(), code.name()),
            got: format!("{usable}{}", crowded(topology, longest, &|_| true)),
        });
    }
    let rooms = |cap: usize, even: bool| -> Vec<Room> {
        let weight = |rack: &Vec<(NodeId, u64)>| if even { 1 } else { rack.iter().map(|(_, w)| w).sum() };
        racks.iter().map(|rack| Room { capacity: rack.len().min(cap), weight: weight(rack) }).collect()
    };
    let bearable = code.n() - code.k();
    let safe = [false, true]
        .iter()
        .find_map(|&even| deal(code, &stored, &quotas(&rooms(bearable, even), stored.len(), seed)?, seed));
    let rack_safe = safe.is_some();
    let dealt = safe.unwrap_or_else(|| {
        let counts = quotas(&rooms(bearable, false), stored.len(), seed)
            .or_else(|| quotas(&rooms(usize::MAX, false), stored.len(), seed));
        deal_unsafely(code, &stored, &counts.expect("there are nodes enough"), seed)
    });
    let mut homes = vec![None; code.n()];
    for (i, (rack, blocks)) in racks.into_iter().zip(dealt).enumerate() {
        for (node, block) in pick(rack, draw(seed, 3, i as u64)).zip(blocks) {
            homes[usize::from(block.0)] = Some(node);
        }
    }
    Ok(Placement { homes, rack_safe })
}

/// Requestors for `lost` blocks of a stripe, one each: usable nodes without another block of the stripe. (The home
/// of a lost block may get the block again.) Of these nodes are preferred, in this order: those that keep the rack
/// rule; those in the rack that holds all the rest of the block's group, if there is one (the repair then crosses
/// no racks); those with the smallest `rank` (for example the time of last use); the emptiest.
///
/// # Errors
/// `Placement` when no node is left for some block; `Invalid` for blocks that are not stored.
pub fn place_lost(
    view: &StripeView,
    topology: &Topology,
    lost: &[BlockIndex],
    rank: &mut impl FnMut(NodeId) -> u64,
) -> Result<Vec<NodeId>, PlanError> {
    view.check("lost blocks", lost)?;
    let mut homes = view.homes.clone();
    for block in lost {
        homes[usize::from(block.0)] = None;
    }
    let mut chosen = Vec::with_capacity(lost.len());
    for (done, &block) in lost.iter().enumerate() {
        let open = welcoming(view, topology, &homes, block, &|_| true);
        let best = open
            .into_iter()
            .min_by_key(|(node, count)| (rank(*node), *count, topology.nodes[node].used_bytes, *node));
        let Some((node, _)) = best else {
            return Err(PlanError::Placement {
                expected: format!("{} usable nodes without a block of {}", lost.len(), view.id),
                got: {
                    let spare = |node| !homes.contains(&Some(node));
                    format!("{done}{}", crowded(topology, view.block_len(block), &spare))
                },
            });
        };
        homes[usize::from(block.0)] = Some(node);
        chosen.push(node);
    }
    Ok(chosen)
}

/// The best usable nodes for a block of a stripe with these other homes, among those that `may` get it, by the
/// rules of [`place_lost`] without the rank. Each comes with the number of blocks of the stripe that its rack
/// would then have.
pub(crate) fn welcoming(
    view: &StripeView,
    topology: &Topology,
    homes: &[Option<NodeId>],
    block: BlockIndex,
    may: &dyn Fn(NodeId) -> bool,
) -> Vec<(NodeId, usize)> {
    let (groups, bytes) = (view.code.place(), view.block_len(block));
    // Where all blocks are one group, no group has to be kept together.
    let group = groups.iter().find(|group| groups.len() > 1 && group.contains(&block));
    let mut verdicts: BTreeMap<RackId, (Verdict, usize)> = BTreeMap::new();
    let (mut best, mut open) = (None, Vec::new());
    for (&id, node) in &topology.nodes {
        if !node.usable || !node.has_room(bytes) || !may(id) || homes.contains(&Some(id)) {
            continue;
        }
        let (verdict, count) = *verdicts.entry(node.rack).or_insert_with(|| {
            let mut set = blocks_in(topology, homes, node.rack);
            set.push(block);
            (verdict(view, group, &set), set.len())
        });
        if best.is_none_or(|best| verdict < best) {
            best = Some(verdict);
            open.clear();
        }
        if best == Some(verdict) {
            open.push((id, count));
        }
    }
    open
}

/// How well a rack suits a block; smaller is better. Whether the stripe would not survive the loss of the rack; then
/// how many of its blocks the rack would have; whether the rest of the block's group is elsewhere.
pub(crate) type Verdict = (bool, usize, bool);

/// The verdict on a rack that would hold the blocks `set` of a stripe. `group` is the group of the new block, if the
/// code has several.
pub(crate) fn verdict(view: &StripeView, group: Option<&Vec<BlockIndex>>, set: &[BlockIndex]) -> Verdict {
    let away = !group.is_some_and(|group| group.iter().all(|mate| set.contains(mate)));
    let breaks = !survives(view.code.as_ref(), set);
    // Where the rack rule must be broken, prefer racks with few blocks.
    (breaks, if breaks { set.len() } else { 0 }, away)
}

/// The blocks that a rack holds.
fn blocks_in(topology: &Topology, homes: &[Option<NodeId>], rack: RackId) -> Vec<BlockIndex> {
    let here = |home: &Option<NodeId>| home.is_some_and(|node| topology.rack(node) == Some(rack));
    let blocks = homes.iter().enumerate().filter(|(_, home)| here(home));
    blocks.map(|(i, _)| BlockIndex(i as u8)).collect()
}

/// Says how many usable nodes that `may` get a block lack the room for it; empty if none.
fn crowded(topology: &Topology, bytes: u64, may: &dyn Fn(NodeId) -> bool) -> String {
    let full = topology.nodes.iter().filter(|(id, node)| node.usable && !node.has_room(bytes) && may(**id));
    match full.count() {
        0 => String::new(),
        count => format!("; {count} more have too little free space for a block of {bytes} bytes"),
    }
}

/// The usable nodes of each rack with room for a block, and their weights: 8 for a node that stores as much as the
/// mean, up to 64 for emptier ones, down to 1 for fuller ones; in proportion to the room where that differs by more than
/// a few percent. Nodes that share a file system tell its free space at different moments, and others write to it
/// meanwhile.
fn usable_racks(topology: &Topology, bytes: u64) -> Vec<Vec<(NodeId, u64)>> {
    let fits = |node: &Node| node.usable && node.has_room(bytes);
    let usable: Vec<_> = topology.nodes.iter().filter(|(_, node)| fits(node)).collect();
    let slack = u128::from(SLACK_BYTES);
    let mean = |sizes: &[u64]| {
        sizes.iter().map(|size| u128::from(*size)).sum::<u128>() / sizes.len().max(1) as u128 + slack
    };
    let mean_used = mean(&usable.iter().map(|(_, node)| node.used_bytes).collect::<Vec<_>>());
    let mean_room = mean(&usable.iter().filter_map(|(_, node)| node.room_bytes).collect::<Vec<_>>());
    let mut racks: BTreeMap<RackId, Vec<(NodeId, u64)>> = BTreeMap::new();
    for (&id, node) in usable {
        let room = node.room_bytes.map_or(mean_room, |room| u128::from(room) + slack);
        // Shares of 1024 and of 16: the products of two sizes would be too large.
        let used = 1024 * mean_used / (u128::from(node.used_bytes) + slack);
        let room = (16 * room + mean_room / 2) / mean_room;
        let weight = ((8 * used * room) >> 14).clamp(1, 64) as u64;
        racks.entry(node.rack).or_default().push((id, weight));
    }
    racks.into_values().collect()
}

/// The nodes of a rack in an order drawn by weight, without repetition.
fn pick(mut nodes: Vec<(NodeId, u64)>, seed: u64) -> impl Iterator<Item = NodeId> {
    let mut left: u64 = nodes.iter().map(|(_, weight)| weight).sum();
    (0..nodes.len() as u64).map(move |turn| {
        let mut at = draw(seed, 4, turn) % left.max(1);
        let chosen = nodes.iter().position(|&(_, weight)| {
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        });
        let (node, weight) = nodes.swap_remove(chosen.expect("the weights add up to what is left"));
        left -= weight;
        node
    })
}
