//! Rebuilds the stripes of an object from the blocks that were found, or says why that cannot be done. Pure.
//!
//! Several stripes may have been found at one offset. Of those that can be decoded, the one with the highest
//! generation counts, and then the one with the highest id: a stripe that a put has placed again has a higher
//! id. A block that was not found gets the home that the label names, unless another block of the stripe is
//! there. It counts as lost, and its digest is unknown ([`DIGEST_UNKNOWN`]).
//!
//! This file does not judge bytes: a block counts as found if its header is sound.

mod progress;

pub use progress::{Pass, Ranges, Rebuild, is_in};

use std::collections::{BTreeMap, BTreeSet};

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::{DIGEST_UNKNOWN, Layout};
use kintsu_wire::message::{DigestBytes, Encoding};
use serde::{Deserialize, Serialize};

use crate::meta::record::{BlockRecord, StripeRecord};

/// A block that a node holds, of a stripe that the metadata do not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBlock {
    /// Which block of the stripe.
    pub index: BlockIndex,
    /// The node that holds it.
    pub node: NodeId,
    /// Its generation.
    pub generation: u32,
    /// Its length in bytes.
    pub len: u64,
    /// Its digest.
    pub digest: DigestBytes,
}

/// What was found of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundStripe {
    /// Its id.
    pub id: StripeId,
    /// Its first byte in the object.
    pub offset: u64,
    /// How object bytes lie in it.
    pub layout: Layout,
    /// Where its blocks were written to.
    pub homes: Vec<Option<NodeId>>,
    /// Its blocks.
    pub blocks: Vec<FoundBlock>,
}

/// An object whose stripes were found.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Its id.
    pub id: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Whether it is encoded online or offline.
    pub encoding: Encoding,
    /// Its code.
    pub code: &'a dyn Code,
    /// The key of its code.
    pub key: u16,
    /// All known nodes: they serve as homes for blocks whose homes are unknown.
    pub nodes: &'a BTreeSet<NodeId>,
}

/// The stripes of an object in order, if what was found covers all of it and can be decoded.
///
/// # Errors
/// What is missing, as a message for operators.
pub fn assemble(wanted: Wanted<'_>, found: &[FoundStripe]) -> Result<Vec<(StripeId, StripeRecord)>, String> {
    let mut at_offset: BTreeMap<u64, Vec<&FoundStripe>> = BTreeMap::new();
    for stripe in found {
        at_offset.entry(stripe.offset).or_default().push(stripe);
    }
    let (mut at, mut out) = (0, Vec::new());
    while at < wanted.size {
        let mut candidates = at_offset.remove(&at).unwrap_or_default();
        let generation = |stripe: &FoundStripe| stripe.blocks.iter().map(|b| b.generation).max();
        candidates.sort_by_key(|stripe| std::cmp::Reverse((generation(stripe), stripe.id)));
        let mut reason = format!("nothing was found of the stripe that begins at byte {at}");
        let mut whole = None;
        for (i, stripe) in candidates.into_iter().enumerate() {
            match record(wanted, stripe) {
                Ok(record) => {
                    whole = Some((stripe.id, record));
                    break;
                }
                Err(why) if i == 0 => reason = format!("{} at byte {at}: {why}", stripe.id),
                Err(_) => {}
            }
        }
        let (id, record) = whole.ok_or(reason)?;
        at += record.layout.data_bytes;
        out.push((id, record));
    }
    Ok(out)
}

/// The new record of a stripe, if it can be decoded.
fn record(wanted: Wanted<'_>, stripe: &FoundStripe) -> Result<StripeRecord, String> {
    check(wanted, stripe)?;
    let generations: BTreeSet<u32> = stripe.blocks.iter().map(|b| b.generation).collect();
    let mut reason = "no block of it was found".to_owned();
    for (i, generation) in generations.into_iter().rev().enumerate() {
        match of_generation(wanted, stripe, generation) {
            Ok(record) => return Ok(record),
            Err(why) if i == 0 => reason = why,
            Err(_) => {}
        }
    }
    Err(reason)
}

/// Refuses a label that contradicts its object or its code.
fn check(wanted: Wanted<'_>, stripe: &FoundStripe) -> Result<(), String> {
    let (layout, code) = (&stripe.layout, wanted.code);
    let most = layout.block_bytes.checked_mul(code.k() as u64);
    let end = stripe.offset.checked_add(layout.data_bytes);
    let sane = layout.data_bytes > 0
        && layout.cell_bytes > 0
        && usize::from(layout.w) == code.w()
        && stripe.homes.len() == code.n()
        && most.is_some_and(|most| layout.data_bytes <= most)
        && end.is_some_and(|end| end <= wanted.size);
    let expected = || format!("expected a stripe of {} within {} bytes", code.name(), wanted.size);
    if sane { Ok(()) } else { Err(format!("{}, got a layout of {layout:?}", expected())) }
}

fn of_generation(wanted: Wanted<'_>, stripe: &FoundStripe, generation: u32) -> Result<StripeRecord, String> {
    let (code, layout) = (wanted.code, stripe.layout);
    let (n, k) = (code.n(), code.k());
    let len = |i: usize| layout.block_len(k, BlockIndex(i as u8));
    let there = chosen(stripe, generation, n, &len);
    let encoded = wanted.encoding == Encoding::Online || there.keys().any(|&i| i >= k);
    let made = |i: usize| len(i) > 0 && (encoded || i < k);
    let lost: Vec<usize> = (0..n).filter(|&i| made(i) && !there.contains_key(&i)).collect();
    let indices: Vec<BlockIndex> = lost.iter().map(|&i| BlockIndex(i as u8)).collect();
    let readable =
        if encoded { lost.len() < code.distance() || code.recoverable(&indices) } else { lost.is_empty() };
    if !readable {
        return Err(missing(stripe, &lost, (0..n).filter(|&i| made(i)).count()));
    }
    let mut homes = Homes::new(stripe, &there, wanted.nodes);
    let block = |i: usize| {
        if len(i) == 0 {
            return None;
        }
        Some(match there.get(&i) {
            Some(block) => {
                BlockRecord { node: block.node, digest: Some(block.digest), lost: false, generation }
            }
            None => {
                let digest = made(i).then_some(DIGEST_UNKNOWN);
                BlockRecord { node: homes.of(i), digest, lost: made(i), generation }
            }
        })
    };
    let blocks = (0..n).map(block).collect();
    let (owner, offset, code) = (wanted.id, stripe.offset, wanted.key);
    Ok(StripeRecord { owner, offset, code, generation, layout, encoded, blocks })
}

/// Chooses one block for each index, no two of them on one node. Of several copies, it prefers the one on the
/// node that the label names.
fn chosen(
    stripe: &FoundStripe,
    generation: u32,
    n: usize,
    len: &dyn Fn(usize) -> u64,
) -> BTreeMap<usize, FoundBlock> {
    let mut copies: Vec<(usize, Vec<FoundBlock>)> = Vec::new();
    for i in 0..n {
        let fits = |b: &&FoundBlock| {
            usize::from(b.index.0) == i && b.generation == generation && b.len == len(i) && b.len > 0
        };
        let mut of: Vec<FoundBlock> = stripe.blocks.iter().filter(fits).copied().collect();
        of.sort_by_key(|b| (stripe.homes[i] != Some(b.node), b.node));
        copies.push((i, of));
    }
    // Blocks with only one copy choose first.
    copies.sort_by_key(|(_, of)| of.len());
    let (mut out, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for (i, of) in copies {
        if let Some(block) = of.into_iter().find(|b| !taken.contains(&b.node)) {
            taken.insert(block.node);
            out.insert(i, block);
        }
    }
    out
}

/// Homes for blocks that were not found.
struct Homes<'a> {
    stripe: &'a FoundStripe,
    nodes: &'a BTreeSet<NodeId>,
    taken: BTreeSet<NodeId>,
}

impl<'a> Homes<'a> {
    fn new(
        stripe: &'a FoundStripe,
        there: &BTreeMap<usize, FoundBlock>,
        nodes: &'a BTreeSet<NodeId>,
    ) -> Self {
        Self { stripe, nodes, taken: there.values().map(|b| b.node).collect() }
    }

    /// The home that the label names, if it is free; else another node of the label; else any node without a
    /// block of the stripe.
    fn of(&mut self, index: usize) -> NodeId {
        let free = |node: &NodeId| !node.is_client() && !self.taken.contains(node);
        let own = self.stripe.homes[index].filter(free);
        let told = || self.stripe.homes.iter().flatten().copied().find(free);
        let known = || self.nodes.iter().copied().find(free);
        // There are more node ids than blocks in a stripe.
        let any = || (0..u32::MAX).map(NodeId).find(free);
        let node = own.or_else(told).or_else(known).or_else(any).unwrap_or(NodeId(0));
        self.taken.insert(node);
        node
    }
}

fn missing(stripe: &FoundStripe, lost: &[usize], of: usize) -> String {
    let place = |&i: &usize| match stripe.homes[i] {
        Some(node) => format!("{} (last on {node})", BlockIndex(i as u8)),
        None => BlockIndex(i as u8).to_string(),
    };
    let named: Vec<String> = lost.iter().map(place).collect();
    format!("{} of {of} blocks are missing: {}", lost.len(), named.join(", "))
}

#[cfg(test)]
mod tests;
