//! The rows of the metadata tables and their bytes.
//!
//! Stripes have a compact format of their own, because there are millions of them: a stripe of 14 blocks takes 341
//! bytes. The other rows are MessagePack with named fields, so that a field can be added without rewriting a
//! store. Layout: `docs/format.md`, "Metadata".

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{DIGEST_UNKNOWN, Division, Layout, LayoutKind};
use kintsu_wire::FolderId;
use kintsu_wire::message::{
    Attributes, Checksum, DigestBytes, Encoding, NewMember, NodeScrub, StripeOfVolume,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize as SerializeDerive};

use crate::error::{CoordinatorError, Result};

/// A visible object.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct ObjectRecord {
    /// Its id, which is the id of the put that wrote it.
    pub id: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Its code.
    pub code: u16,
    /// Whether it is encoded online or offline.
    pub encoding: Encoding,
    /// Number of its stripes whose parity is made.
    pub encoded: u64,
    /// Seconds since 1970 when it became visible.
    pub created: u64,
    /// Its stripes in order, as runs of ids: (first, count).
    pub runs: Vec<(u64, u64)>,
    /// The checksum of all its bytes, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Where its bytes are, if it shares its stripe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packed: Option<Packed>,
}

/// The place of an object in a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct Packed {
    /// The pack, which owns the stripe.
    pub pack: u64,
    /// The object's first byte there.
    pub at: u64,
}

/// A stripe that several objects share.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct PackRecord {
    /// Its stripe.
    pub stripe: StripeId,
    /// Its length in bytes.
    pub size: u64,
    /// Its code.
    pub code: u16,
    /// Seconds since 1970 when its members became visible.
    pub created: u64,
    /// The members that it was written with.
    pub count: u32,
    /// Those of them that are still there; never 0.
    pub left: u32,
    /// Bytes of these.
    #[serde(default)]
    pub live: u64,
    /// The ids of the members, if they moved into it; those of others follow its own: see [`PackRecord::members`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moved: Vec<u64>,
}

impl PackRecord {
    /// The ids of the members of pack `id`, also of those that are gone, in the order of their bytes.
    pub fn members(&self, id: u64) -> Vec<u64> {
        match self.moved.is_empty() {
            true => (id.saturating_add(1)..=id.saturating_add(self.count.into())).collect(),
            false => self.moved.clone(),
        }
    }
}

impl ObjectRecord {
    /// Number of stripes.
    pub fn stripes(&self) -> u64 {
        self.runs.iter().map(|r| r.1).sum()
    }

    /// Its stripes that have no parity yet.
    pub fn plain(&self) -> u64 {
        self.stripes().saturating_sub(self.encoded)
    }

    /// The ids of at most `limit` stripes from position `first` on, with their positions.
    pub fn ids(&self, first: u64, limit: u64) -> Vec<(u64, StripeId)> {
        ids_of(&self.runs, first, limit)
    }
}

/// One block of a [`StripeRecord`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRecord {
    /// Its home.
    pub node: NodeId,
    /// Its digest; `None` for parity not made yet.
    pub digest: Option<DigestBytes>,
    /// It cannot be read at its home: it must be repaired.
    pub lost: bool,
    /// Its generation: that of the stripe until it is updated in place.
    pub generation: u32,
}

impl BlockRecord {
    /// Whether it was not found when the metadata were rebuilt from blocks: its place and its digest are unknown.
    pub fn is_placeholder(&self) -> bool {
        self.lost && self.digest == Some(DIGEST_UNKNOWN)
    }
}

/// A visible stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeRecord {
    /// Id of the object it belongs to.
    pub owner: u64,
    /// Offset of its first byte in the object.
    pub offset: u64,
    /// Its code.
    pub code: u16,
    /// The generation that its blocks were first written with.
    pub generation: u32,
    /// The layout of object bytes in the stripe.
    pub layout: Layout,
    /// Whether its parity is made.
    pub encoded: bool,
    /// Its blocks by index; `None` for empty blocks.
    pub blocks: Vec<Option<BlockRecord>>,
}

const STRIPE_HEAD: usize = 47;
const BLOCK_BYTES: usize = 21;
const HAS_DIGEST: u8 = 1;
const LOST: u8 = 2;
const EMPTY: u8 = 4;
const ENCODED: u8 = 1;
const STRIPED: u8 = 2;
const SUB_BLOCKS: u8 = 4;
const UPDATED: u8 = 8;

impl StripeRecord {
    /// The record as bytes.
    pub fn pack(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(STRIPE_HEAD + BLOCK_BYTES * self.blocks.len());
        let striped = self.layout.kind == LayoutKind::Striped;
        let divided = self.layout.w != 1;
        let updated = self.blocks.iter().flatten().any(|b| b.generation != self.generation);
        out.push(
            (u8::from(self.encoded) * ENCODED)
                | (u8::from(striped) * STRIPED)
                | (u8::from(divided) * SUB_BLOCKS)
                | (u8::from(updated) * UPDATED),
        );
        out.extend(self.owner.to_le_bytes());
        out.extend(self.offset.to_le_bytes());
        out.extend(self.code.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.layout.block_bytes.to_le_bytes());
        out.extend(self.layout.cell_bytes.to_le_bytes());
        out.extend(self.layout.data_bytes.to_le_bytes());
        if divided {
            out.extend(self.layout.w.to_le_bytes());
        }
        out.extend((self.blocks.len() as u32).to_le_bytes());
        for block in &self.blocks {
            let (flags, node, digest) = match block {
                None => (EMPTY, NodeId(0), [0; 16]),
                Some(b) => {
                    let digest = u8::from(b.digest.is_some()) * HAS_DIGEST;
                    (digest | (u8::from(b.lost) * LOST), b.node, b.digest.unwrap_or([0; 16]))
                }
            };
            out.push(flags);
            out.extend(node.0.to_le_bytes());
            out.extend(digest);
            if updated {
                out.extend(block.map_or(self.generation, |b| b.generation).to_le_bytes());
            }
        }
        out
    }

    /// The record from its bytes.
    ///
    /// # Errors
    /// The bytes do not have the length that the record states.
    pub fn unpack(bytes: &[u8]) -> Result<Self> {
        let bad = |got: usize| CoordinatorError::Corrupt {
            what: "stripe record".into(),
            expected: format!(
                "{STRIPE_HEAD} + {BLOCK_BYTES} n bytes, 2 more with sub-blocks, 4 n more if updated"
            ),
            got: format!("{got} bytes"),
        };
        let mut at = Cursor { bytes };
        let mut read = || -> Option<(Self, bool)> {
            let [flags] = at.take::<1>()?;
            let owner = u64::from_le_bytes(at.take()?);
            let offset = u64::from_le_bytes(at.take()?);
            let code = u16::from_le_bytes(at.take()?);
            let generation = u32::from_le_bytes(at.take()?);
            let kind = if flags & STRIPED != 0 { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let layout = Layout {
                kind,
                block_bytes: u64::from_le_bytes(at.take()?),
                cell_bytes: u32::from_le_bytes(at.take()?),
                data_bytes: u64::from_le_bytes(at.take()?),
                w: if flags & SUB_BLOCKS == 0 { 1 } else { u16::from_le_bytes(at.take()?) },
            };
            let n = u32::from_le_bytes(at.take()?).min(u32::from(u8::MAX) + 1);
            let updated = flags & UPDATED != 0;
            let blocks = (0..n).map(|_| at.block(generation, updated)).collect::<Option<Vec<_>>>()?;
            let encoded = flags & ENCODED != 0;
            let record = Self { owner, offset, code, generation, layout, encoded, blocks };
            Some((record, at.bytes.is_empty()))
        };
        match read() {
            Some((record, true)) => Ok(record),
            _ => Err(bad(bytes.len())),
        }
    }

    /// The block at `index`, if that is in range and not empty.
    pub fn block(&self, index: BlockIndex) -> Option<&BlockRecord> {
        self.blocks.get(usize::from(index.0))?.as_ref()
    }

    /// The generation of a block; that of the stripe for one that is empty.
    pub fn generation_of(&self, index: BlockIndex) -> u32 {
        self.block(index).map_or(self.generation, |block| block.generation)
    }

    /// Whether the blocks are the same, in the same places. A lost flag may have come or gone: it says nothing about contents.
    pub fn same_blocks(&self, other: &Self) -> bool {
        let what = |s: &Self| -> Vec<_> {
            s.blocks.iter().map(|b| b.map(|b| (b.node, b.digest, b.generation))).collect()
        };
        self.generation == other.generation && what(self) == what(other)
    }

    /// The generations of all blocks, by index.
    pub fn generations(&self) -> Vec<u32> {
        self.blocks.iter().map(|block| block.map_or(self.generation, |block| block.generation)).collect()
    }

    /// The block at `index`, if it was made and its home is this node.
    pub fn at_home(&self, index: BlockIndex, node: NodeId) -> Option<&BlockRecord> {
        self.block(index).filter(|b| b.node == node && b.digest.is_some())
    }

    /// The blocks that were made, with their indices.
    pub fn made(&self) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
        let all = self.blocks.iter().enumerate();
        all.filter_map(|(i, b)| Some((BlockIndex(i as u8), b.as_ref()?))).filter(|(_, b)| b.digest.is_some())
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
}

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    fn block(&mut self, first: u32, updated: bool) -> Option<Option<BlockRecord>> {
        let [flags] = self.take::<1>()?;
        let node = NodeId(u32::from_le_bytes(self.take()?));
        let digest = self.take::<16>()?;
        let generation = if updated { u32::from_le_bytes(self.take()?) } else { first };
        let made = BlockRecord {
            node,
            digest: (flags & HAS_DIGEST != 0).then_some(digest),
            lost: flags & LOST != 0,
            generation,
        };
        Some((flags & EMPTY == 0).then_some(made))
    }
}

/// The ids in `runs` (first id, count), at most `limit` from position `first` on, with their positions.
pub fn ids_of(runs: &[(u64, u64)], first: u64, limit: u64) -> Vec<(u64, StripeId)> {
    let (mut at, mut out) = (0, Vec::new());
    let end = first.saturating_add(limit);
    for &(id, count) in runs {
        let from = first.clamp(at, at + count);
        let to = end.clamp(at, at + count);
        out.extend((from..to).map(|p| (p, StripeId(id + (p - at)))));
        at += count;
    }
    out
}

/// Appends an id to runs.
pub fn push_id(runs: &mut Vec<(u64, u64)>, id: StripeId) {
    match runs.last_mut() {
        Some((first, count)) if *first + *count == id.0 => *count += 1,
        _ => runs.push((id.0, 1)),
    }
}

/// One stripe of a put under way.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct PendingStripe {
    /// Its identity.
    pub id: StripeId,
    /// Generation of its blocks.
    pub generation: u32,
    /// Offset of its first byte in the object.
    pub offset: u64,
    /// The layout of object bytes in the stripe.
    pub layout: Layout,
    /// The node for each block; `None` for empty ones.
    pub homes: Vec<Option<NodeId>>,
    /// The put it belongs to.
    #[serde(default)]
    pub put: u64,
    /// Digests of its blocks, once the client has reported them.
    #[serde(default)]
    pub digests: Option<Vec<Option<DigestBytes>>>,
}

/// Shows whether a node may have lost blocks: blocks are safe as long as neither number has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct Fence {
    /// See [`NodeRecord::incarnation`].
    pub incarnation: u64,
    /// See [`NodeRecord::epoch`].
    pub epoch: u64,
}

impl Fence {
    /// A fence that no node has: blocks that were written under it must be checked.
    pub const UNKNOWN: Self = Self { incarnation: u64::MAX, epoch: u64::MAX };
}

/// A put under way; its stripes have rows of their own. Its lease is kept in memory: after a restart of the
/// coordinator it starts again with its full length.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct PendingPut {
    /// The name of the future object.
    pub name: String,
    /// Its length in bytes; `None` for a stream whose end is not known yet.
    pub size: Option<u64>,
    /// Its code.
    pub code: u16,
    /// Whether it is encoded online or offline.
    pub encoding: Encoding,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
    /// Whether it began as a stream: its client cannot read the bytes again.
    #[serde(default)]
    pub streamed: bool,
    /// The stripe of a volume that it makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<StripeOfVolume>,
    /// What its user says about it.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// How it is divided into stripes; `None` in a put of version 2, which has all of its stripes.
    #[serde(default)]
    pub division: Option<Division>,
    /// The stripes granted so far, in order, as runs of ids: (first, count).
    #[serde(default)]
    pub runs: Vec<(u64, u64)>,
    /// If it is a pack, its members, whose ids follow its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<NewMember>,
    /// For each home of its stripes, the fence of the node when it first became a home.
    #[serde(default)]
    pub fences: BTreeMap<NodeId, Fence>,
}

impl PendingPut {
    /// Number of stripes granted so far.
    pub fn granted(&self) -> u64 {
        self.runs.iter().map(|r| r.1).sum()
    }

    /// Number of all its stripes.
    pub fn stripes(&self) -> u64 {
        self.division.map_or(self.granted(), |division| division.count())
    }

    /// Appends a stripe.
    pub fn push(&mut self, id: StripeId) {
        push_id(&mut self.runs, id);
    }

    /// Forgets all stripes but the first `count`.
    pub fn truncate(&mut self, count: u64) {
        let mut left = count;
        self.runs.retain_mut(|run| {
            run.1 = run.1.min(left);
            left -= run.1;
            run.1 > 0
        });
    }

    /// Replaces one stripe by another, if the old one is there.
    pub fn swap(&mut self, old: StripeId, new: StripeId) {
        let holds = |&(first, count): &(u64, u64)| (first..first + count).contains(&old.0);
        let Some(at) = self.runs.iter().position(holds) else { return };
        let (first, count) = self.runs[at];
        let before = old.0 - first;
        let parts = [(first, before), (new.0, 1), (old.0 + 1, count - before - 1)];
        self.runs.splice(at..=at, parts.into_iter().filter(|part| part.1 > 0));
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct NodeRecord {
    /// Its rack.
    pub rack: RackId,
    /// Its gRPC listener at its last start.
    pub control: SocketAddr,
    /// Its slice listener at its last start.
    pub data: SocketAddr,
    /// Its data directory.
    pub dir: String,
    /// A random number of its agent's last start.
    pub incarnation: u64,
    /// It is being drained, or was drained.
    pub draining: bool,
    /// It was stopped on purpose.
    pub stopped: bool,
    /// Grows each time its blocks may have vanished without a restart: when it is wiped, or gets another folder.
    #[serde(default)]
    pub epoch: u64,
    /// The id of its folder; unknown if it last registered with a program that had no ids of folders.
    #[serde(default)]
    pub folder: Option<FolderId>,
    /// Its name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// The name of its rack, if the rack has one.
    #[serde(default)]
    pub rack_name: Option<String>,
    /// If many of its blocks were unknown at once, their number: they are set aside and kept until an operator
    /// confirms.
    #[serde(default)]
    pub held: u64,
    /// A wipe was ordered and is not finished.
    #[serde(default)]
    pub wiping: bool,
    /// How far its blocks have been verified.
    #[serde(default)]
    pub scrub: Option<NodeScrub>,
    /// Until then no repair of its blocks begins by itself, in seconds since 1970.
    #[serde(default)]
    pub paused_until: Option<u64>,
    /// The newest version of the protocol that its agent speaks; 0: not known yet.
    #[serde(default)]
    pub protocol: u32,
    /// The id of the log in its folder, if that was damaged ([`FolderId::log`]).
    #[serde(default)]
    pub log: Option<FolderId>,
}

impl NodeRecord {
    /// What distinguishes its log from another one that it had.
    pub fn log(&self) -> Option<FolderId> {
        self.log.or(self.folder)
    }

    /// Its fence now.
    pub fn fence(&self) -> Fence {
        Fence { incarnation: self.incarnation, epoch: self.epoch }
    }

    /// A node that is neither draining nor stopped, without names.
    pub fn new(rack: RackId, control: SocketAddr, data: SocketAddr, dir: String, incarnation: u64) -> Self {
        Self {
            rack,
            control,
            data,
            dir,
            incarnation,
            draining: false,
            stopped: false,
            epoch: 0,
            folder: None,
            name: None,
            rack_name: None,
            held: 0,
            wiping: false,
            scrub: None,
            paused_until: None,
            protocol: 0,
            log: None,
        }
    }
}

/// A code as data, so that a stripe can be read even by a program that does not know the code's name.
#[derive(Debug, Clone, PartialEq, Eq, SerializeDerive, Deserialize)]
pub struct CodeRecord {
    /// Its name: `rs:n=14,k=10`.
    pub name: String,
    /// Blocks of a stripe.
    pub n: u16,
    /// Data blocks of a stripe.
    pub k: u16,
    /// Sub-blocks of a block.
    pub w: u16,
    /// `n w` rows of `k w` bytes.
    pub generator: Vec<u8>,
}

impl CodeRecord {
    /// A code as data.
    pub fn of(code: &dyn kintsu_code::Code) -> Self {
        Self {
            name: code.name().into(),
            n: code.n() as u16,
            k: code.k() as u16,
            w: code.w() as u16,
            generator: code.generator().as_slice().to_vec(),
        }
    }
}

/// Encodes a row as MessagePack with named fields.
pub fn pack<T: Serialize>(row: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(row).expect("rows are plain data, writing them to memory cannot fail")
}

/// Decodes a row from MessagePack.
///
/// # Errors
/// The bytes are no such row.
pub fn unpack<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    rmp_serde::from_slice(bytes).map_err(|e| CoordinatorError::Corrupt {
        what: what.into(),
        expected: format!("a {}", std::any::type_name::<T>()),
        got: e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn block()(node in any::<u32>(), digest in any::<Option<[u8; 16]>>(), lost in any::<bool>(), generation in 0u32..3) -> BlockRecord {
            BlockRecord { node: NodeId(node), digest, lost, generation }
        }
    }

    prop_compose! {
        fn record()(
            numbers in any::<(u64, u64, u16, u32, u64, u32, u64)>(),
            w in prop_oneof![Just(1u16), any::<u16>()],
            striped in any::<bool>(),
            encoded in any::<bool>(),
            blocks in prop::collection::vec(prop::option::of(block()), 0..=255),
        ) -> StripeRecord {
            let (owner, offset, code, generation, block_bytes, cell_bytes, data_bytes) = numbers;
            let kind = if striped { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let layout = Layout { kind, block_bytes, cell_bytes, w, data_bytes };
            StripeRecord { owner, offset, code, generation, layout, encoded, blocks }
        }
    }

    proptest! {
        #[test]
        fn a_stripe_comes_back_from_its_bytes(record in record()) {
            prop_assert_eq!(StripeRecord::unpack(&record.pack()).unwrap(), record);
        }

        #[test]
        fn a_cut_or_longer_stripe_is_refused(record in record(), cut in 1usize..40) {
            let mut bytes = record.pack();
            prop_assert!(StripeRecord::unpack(&bytes[..bytes.len() - cut.min(bytes.len())]).is_err());
            bytes.push(0);
            prop_assert!(StripeRecord::unpack(&bytes).is_err());
        }

        #[test]
        fn ids_are_a_window_of_all_ids(
            runs in prop::collection::vec((0u64..1000, 0u64..5), 0..6), first in 0u64..30, limit in 0u64..30,
        ) {
            let record = ObjectRecord {
                id: 1, size: 1, code: 0, encoding: Encoding::Online, encoded: 0, created: 0, runs: runs.clone(),
                checksum: None, attributes: Attributes::default(), packed: None,
            };
            let all: Vec<u64> = runs.iter().flat_map(|&(id, n)| id..id + n).collect();
            let want: Vec<(u64, StripeId)> = all.iter().enumerate().skip(first as usize).take(limit as usize)
                .map(|(p, &id)| (p as u64, StripeId(id))).collect();
            prop_assert_eq!(record.ids(first, limit), want);
        }
    }

    #[test]
    fn a_stripe_takes_the_place_of_another() {
        let mut put = PendingPut {
            name: "a".into(),
            size: Some(0),
            code: 0,
            encoding: Encoding::Online,
            replace: false,
            streamed: false,
            volume: None,
            attributes: Attributes::default(),
            division: None,
            runs: Vec::new(),
            members: Vec::new(),
            fences: BTreeMap::new(),
        };
        for id in [4, 5, 6, 9] {
            put.push(StripeId(id));
        }
        assert_eq!((put.runs.clone(), put.granted()), (vec![(4, 3), (9, 1)], 4));
        for (old, new) in [(5, 20), (4, 21), (9, 22), (6, 23), (7, 24)] {
            put.swap(StripeId(old), StripeId(new));
        }
        assert_eq!(put.runs, [(21, 1), (20, 1), (23, 1), (22, 1)]);
        put.runs = vec![(4, 3), (9, 1), (20, 5)];
        for (count, runs) in
            [(9, vec![(4, 3), (9, 1), (20, 5)]), (5, vec![(4, 3), (9, 1), (20, 1)]), (3, vec![(4, 3)])]
        {
            put.truncate(count);
            assert_eq!(put.runs, runs);
        }
        put.truncate(0);
        assert_eq!(put.granted(), 0);
    }

    #[test]
    fn a_stripe_of_14_blocks_is_small() {
        let block = BlockRecord { node: NodeId(7), digest: Some([1; 16]), lost: false, generation: 1 };
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: 1 << 26,
            cell_bytes: 1 << 17,
            w: 1,
            data_bytes: 9,
        };
        let record = StripeRecord {
            owner: 1,
            offset: 0,
            code: 0,
            generation: 1,
            layout,
            encoded: true,
            blocks: vec![Some(block); 14],
        };
        assert_eq!(record.pack().len(), STRIPE_HEAD + 14 * BLOCK_BYTES);
        assert!(record.pack().len() < 400);
    }
}
