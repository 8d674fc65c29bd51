//! Compares the blocks that a node holds with the metadata: each block is at home, lost, found again, a
//! stray, or unknown.
//!
//! Invariants: a block is lost only if the metadata place it on this very node; a block that the metadata do not place on
//! the node is never lost there, only unknown; a block of another generation counts as lost and its file as unknown.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{BadBlock, BlockRef, DigestBytes, FaultKind, HeldBlock};

use crate::meta::change::LostBlock;
use crate::meta::record::{BlockRecord, StripeRecord};

/// The proof that a block is as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    /// Its header was read. This clears blocks that were flagged as missing or as another generation.
    Header,
    /// All its bytes were read and verified. This clears every block.
    Read,
}

impl Proof {
    /// Whether a block that was flagged for this reason counts as sound now.
    pub fn clears(self, why: FaultKind) -> bool {
        self == Self::Read || matches!(why, FaultKind::Missing | FaultKind::Stale)
    }
}

/// A block that is lost at its home, but is whole and as recorded on a node, usually another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stray {
    /// The block.
    pub file: BlockRef,
    /// Its home, where it is lost.
    pub home: NodeId,
    /// Its digest.
    pub digest: DigestBytes,
}

/// The differences between the blocks that a node holds and the blocks that the metadata place on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Blocks placed there that are missing, or have another generation, length or digest.
    pub lost: Vec<LostBlock>,
    /// Blocks flagged lost that are there as recorded.
    pub found: Vec<(BlockId, NodeId)>,
    /// Blocks that are there, but not placed there.
    pub unknown: Vec<BlockRef>,
    /// Blocks that are there as recorded, and lost at their homes.
    pub strays: Vec<Stray>,
}

/// The comparison of one page of a node's blocks, row by row.
#[derive(Debug)]
pub struct Census<'a> {
    node: NodeId,
    rest: BTreeMap<BlockId, &'a HeldBlock>,
    damaged: &'a BTreeSet<BlockId>,
    out: Comparison,
}

impl<'a> Census<'a> {
    /// The comparison of these blocks. The blocks in `damaged` are there too, but their headers cannot be
    /// read.
    pub fn new(node: NodeId, held: &'a [HeldBlock], damaged: &'a BTreeSet<BlockId>) -> Self {
        let rest = held.iter().map(|b| (b.id, b)).collect();
        Self { node, rest, damaged, out: Comparison::default() }
    }

    /// The metadata place this block of this stripe of `k` data blocks on the node.
    pub fn placed(&mut self, id: BlockId, stripe: &StripeRecord, block: &BlockRecord, k: usize) {
        let node = self.node;
        let why = match self.rest.get(&id).copied() {
            None if self.damaged.contains(&id) => Some(FaultKind::Corrupt),
            None => Some(FaultKind::Missing),
            Some(held) => {
                let differs = differs(stripe, block, k, held).map(|(why, _)| why);
                // A file of another generation also stays in `rest`, as an unknown file.
                if differs != Some(FaultKind::Stale) {
                    self.rest.remove(&id);
                }
                if block.is_placeholder() && is_whole(stripe, k, held) {
                    // This block was not found when the metadata were rebuilt from blocks. Now its digest is known.
                    self.out.strays.push(Stray { file: file(held), home: node, digest: held.digest });
                    return;
                }
                differs
            }
        };
        match why {
            Some(why) if !block.lost => self.out.lost.push(LostBlock { id, node, why }),
            None if block.lost => self.out.found.push((id, node)),
            _ => {}
        }
    }

    /// The blocks that the metadata do not place on the node; valid once all placed blocks were compared.
    pub fn rest(&self) -> impl Iterator<Item = &'a HeldBlock> + use<'a> {
        self.rest.values().copied().collect::<Vec<_>>().into_iter()
    }

    /// Adds one of the rest as a stray, if it is one.
    pub fn elsewhere(&mut self, stray: Option<Stray>) {
        self.out.strays.extend(stray);
    }

    /// The differences.
    pub fn end(mut self) -> Comparison {
        self.out.unknown = self.rest.values().map(|held| file(held)).collect();
        self.out
    }
}

/// The comparison of a block that was read in full with its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// As recorded.
    Sound,
    /// As recorded, but flagged lost.
    Found,
    /// Not as recorded.
    Bad(BadBlock),
    /// The metadata do not place it on the node.
    Unknown(BlockRef),
}

/// Compares a block that a node has read in full with its record. `stripe` is the recorded stripe with its
/// number of data blocks, if there is one.
pub fn read(node: NodeId, held: &HeldBlock, stripe: Option<(&StripeRecord, usize)>) -> Read {
    let id = held.id;
    let recorded = stripe.and_then(|(stripe, k)| Some((stripe, stripe.at_home(id.index, node)?, k)));
    let Some((stripe, recorded, k)) = recorded else { return Read::Unknown(file(held)) };
    match differs(stripe, recorded, k, held) {
        Some((kind, detail)) => Read::Bad(BadBlock { id, node, kind, detail }),
        None if recorded.lost => Read::Found,
        None => Read::Sound,
    }
}

/// How a block differs from what is recorded, if it does.
pub fn differs(
    stripe: &StripeRecord,
    recorded: &BlockRecord,
    k: usize,
    held: &HeldBlock,
) -> Option<(FaultKind, String)> {
    if held.generation != recorded.generation {
        let (expected, got) = (recorded.generation, held.generation);
        Some((FaultKind::Stale, format!("expected generation {expected}, got {got}")))
    } else if !is_whole(stripe, k, held) {
        let expected = stripe.layout.block_len(k, held.id.index);
        Some((FaultKind::Corrupt, format!("expected {expected} bytes, got {}", held.len)))
    } else if Some(held.digest) != recorded.digest {
        Some((FaultKind::Corrupt, "expected the recorded digest, got another one".into()))
    } else {
        None
    }
}

/// The block as a stray, if it is as recorded and lost at its home.
pub fn stray(stripe: &StripeRecord, k: usize, held: &HeldBlock) -> Option<Stray> {
    let block = stripe.block(held.id.index).filter(|b| b.lost)?;
    let known = block.digest == Some(held.digest) || block.is_placeholder();
    let same = known && is_whole(stripe, k, held);
    same.then_some(Stray { file: file(held), home: block.node, digest: held.digest })
}

/// The home at which this block is lost, if `node` holds it as recorded and may become its home: it must not be the home
/// of another block of the stripe.
pub fn missed_at(node: NodeId, stripe: &StripeRecord, k: usize, held: &HeldBlock) -> Option<NodeId> {
    let Stray { home, .. } = stray(stripe, k, held)?;
    let taken = stripe.made().any(|(_, b)| b.node == node && !b.is_placeholder());
    (home == node || !taken).then_some(home)
}

/// Whether a block has the generation and the length that are recorded.
fn is_whole(stripe: &StripeRecord, k: usize, held: &HeldBlock) -> bool {
    held.generation == stripe.generation_of(held.id.index)
        && held.len == stripe.layout.block_len(k, held.id.index)
}

fn file(held: &HeldBlock) -> BlockRef {
    BlockRef { id: held.id, generation: held.generation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::BlockIndex;
    use kintsu_plan::DIGEST_UNKNOWN;

    /// Block `index` of the stripe of [`stripe`], as its home, node `index`, holds it.
    fn held(index: u8) -> HeldBlock {
        let id = BlockId { stripe: stripe("rs:n=4,k=2", &[]).id, index: BlockIndex(index) };
        HeldBlock { id, generation: 1, len: 1000, digest: [index; 16] }
    }

    fn census(record: &StripeRecord, node: u32, held: &[HeldBlock], damaged: &[HeldBlock]) -> Comparison {
        let (node, damaged) = (NodeId(node), damaged.iter().map(|b| b.id).collect());
        let mut census = Census::new(node, held, &damaged);
        for (index, block) in record.made().filter(|(_, block)| block.node == node) {
            let id = BlockId { index, ..self::held(0).id };
            census.placed(id, record, block, 2);
        }
        for held in census.rest() {
            census.elsewhere(stray(record, 2, held));
        }
        census.end()
    }

    #[test]
    fn a_block_at_home_is_sound_found_or_lost_for_a_reason() {
        let (sound, lost) = (stripe("rs:n=4,k=2", &[]).record, stripe("rs:n=4,k=2", &[1]).record);
        assert_eq!(census(&sound, 1, &[held(1)], &[]), Comparison::default());
        assert_eq!(census(&lost, 1, &[held(1)], &[]).found, [(held(1).id, NodeId(1))]);
        let why = |held: &[HeldBlock], damaged: &[HeldBlock]| {
            let comparison = census(&sound, 1, held, damaged);
            assert_eq!(census(&lost, 1, held, damaged).lost, [], "flagged already");
            (comparison.lost[0].why, comparison.unknown.len())
        };
        assert_eq!(why(&[], &[]), (FaultKind::Missing, 0));
        assert_eq!(why(&[], &[held(1)]), (FaultKind::Corrupt, 0));
        assert_eq!(why(&[HeldBlock { len: 999, ..held(1) }], &[]), (FaultKind::Corrupt, 0));
        assert_eq!(why(&[HeldBlock { digest: [9; 16], ..held(1) }], &[]), (FaultKind::Corrupt, 0));
        assert_eq!(why(&[HeldBlock { generation: 2, ..held(1) }], &[]), (FaultKind::Stale, 1));
    }

    #[test]
    fn a_block_elsewhere_is_unknown_and_a_stray_where_it_is_missed() {
        let (sound, lost) = (stripe("rs:n=4,k=2", &[]).record, stripe("rs:n=4,k=2", &[1]).record);
        let there = census(&sound, 9, &[held(1)], &[]);
        assert_eq!((there.unknown.len(), there.strays.len(), there.lost.len()), (1, 0, 0));
        let strays = census(&lost, 9, &[held(1)], &[]).strays;
        assert_eq!((strays.len(), strays[0].home), (1, NodeId(1)));
        assert_eq!(census(&lost, 9, &[HeldBlock { digest: [9; 16], ..held(1) }], &[]).strays, []);
        assert_eq!(missed_at(NodeId(9), &lost, 2, &held(1)), Some(NodeId(1)));
        assert_eq!(missed_at(NodeId(1), &lost, 2, &held(1)), Some(NodeId(1)));
        assert_eq!(missed_at(NodeId(2), &lost, 2, &held(1)), None, "it is the home of another block");
        assert_eq!(missed_at(NodeId(9), &sound, 2, &held(1)), None);
    }

    #[test]
    fn a_placeholder_takes_any_whole_block_and_its_digest() {
        let mut record = stripe("rs:n=4,k=2", &[1]).record;
        record.blocks[1].as_mut().unwrap().digest = Some(DIGEST_UNKNOWN);
        let any = HeldBlock { digest: [77; 16], ..held(1) };
        for node in [1, 9] {
            let strays = census(&record, node, std::slice::from_ref(&any), &[]).strays;
            assert_eq!((strays[0].home, strays[0].digest), (NodeId(1), [77; 16]));
        }
        let short = census(&record, 1, &[HeldBlock { len: 7, ..any }], &[]);
        assert_eq!((short.strays.len(), short.found.len(), short.lost.len()), (0, 0, 0));
    }

    #[test]
    fn what_was_read_whole_is_sound_found_bad_or_unknown() {
        let (sound, lost) = (stripe("rs:n=4,k=2", &[]).record, stripe("rs:n=4,k=2", &[1]).record);
        assert_eq!(read(NodeId(1), &held(1), Some((&sound, 2))), Read::Sound);
        assert_eq!(read(NodeId(1), &held(1), Some((&lost, 2))), Read::Found);
        assert!(matches!(read(NodeId(2), &held(1), Some((&sound, 2))), Read::Unknown(_)));
        assert!(matches!(read(NodeId(1), &held(1), None), Read::Unknown(_)));
        let rot = HeldBlock { digest: [9; 16], ..held(1) };
        assert!(
            matches!(read(NodeId(1), &rot, Some((&sound, 2))), Read::Bad(b) if b.kind == FaultKind::Corrupt)
        );
        for why in [FaultKind::Missing, FaultKind::Stale] {
            assert!(Proof::Header.clears(why) && Proof::Read.clears(why));
        }
        assert!(!Proof::Header.clears(FaultKind::Corrupt) && Proof::Read.clears(FaultKind::Corrupt));
    }
}
