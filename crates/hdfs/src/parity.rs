//! The parity relation of a group: nothing in HDFS compares internal blocks with each other, so bytes that are wrong
//! under valid checksums are found only here.
//!
//! Present blocks are divided into a base that determines the group, and a surplus. The surplus is computed from the
//! base by a proved plan and compared with what is stored; missing blocks are computed in the same pass.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_runtime::{BlockSource as _, Delivery, InMemory};
use tokio::sync::mpsc;

use crate::blocks::{GroupBlocks, run};
use crate::{Group, HdfsError};

/// Bytes around a mismatch from which the wrong block is found; with sub-blocks it is a cell.
const LOOK_BYTES: u64 = 512;

/// Mismatches that are looked into; the rest of the group is compared all the same.
const MOST_PLACES: usize = 16;

/// What a pass over a group found.
#[derive(Debug, Default)]
pub(crate) struct Examined {
    /// Blocks that were read.
    pub read: Vec<BlockIndex>,
    /// Blocks whose bytes were compared with those of the others; without any nothing was proved.
    pub surplus: Vec<BlockIndex>,
    /// Offsets in the blocks at which they contradict each other; at most some.
    pub mismatches: Vec<u64>,
    /// The blocks any one of which may be the wrong one: without it the others agree at every mismatch. One: it is found.
    /// Several, or none (then several are wrong): it is not known which.
    pub suspects: BTreeSet<BlockIndex>,
    /// Blocks that were rebuilt, each in an unnamed file.
    pub rebuilt: BTreeMap<BlockIndex, std::fs::File>,
    /// Bytes under one checksum of the blocks that were read.
    pub unit_bytes: Option<usize>,
}

impl Examined {
    /// Whether what was rebuilt of this index is proved: further blocks of the group confirm those that it was computed from, or it has the
    /// digest that was recorded.
    pub fn proves(&self, group: &Group, index: BlockIndex) -> bool {
        !self.surplus.is_empty() || group.digest(index).is_some()
    }
}

/// The present blocks as base and surplus. `present` must determine the group.
pub(crate) fn split(group: &Group, present: &BTreeSet<BlockIndex>) -> (Vec<BlockIndex>, Vec<BlockIndex>) {
    let code = &group.policy.code;
    let mut base = present.clone();
    for index in present.iter().rev() {
        base.remove(index);
        let stored = |index: &BlockIndex| group.block_bytes(*index) > 0 && !base.contains(index);
        let lost: Vec<_> = (0..code.n()).map(|i| BlockIndex(i as u8)).filter(stored).collect();
        if !code.recoverable(&lost) {
            base.insert(*index);
        }
    }
    let surplus = present.difference(&base).copied().collect();
    (base.into_iter().collect(), surplus)
}

/// The present blocks that are not needed to rebuild `lost` from fewer blocks than determine the group, as a code with local
/// repair groups can; none where it cannot.
pub(crate) fn far(
    group: &Group,
    without: &BTreeSet<BlockIndex>,
    lost: &[BlockIndex],
) -> BTreeSet<BlockIndex> {
    let code = &group.policy.code;
    let here = |index: &BlockIndex| !without.contains(index) && group.holders.contains_key(index);
    let present: BTreeSet<_> = group.expected().filter(here).collect();
    // Blocks without a byte are zero, and at hand.
    let absent = (0..code.n()).map(|i| BlockIndex(i as u8)).filter(|index| group.block_bytes(*index) == 0);
    let available: Vec<_> = absent.chain(present.iter().copied()).collect();
    let Ok(graph) = code.decode(&available, lost) else { return BTreeSet::new() };
    let read: BTreeSet<_> =
        graph.leaves().into_iter().map(|leaf| BlockIndex((leaf.0 as usize / code.w()) as u8)).collect();
    let near: BTreeSet<_> = present.intersection(&read).copied().collect();
    // Without any, the lost blocks are local parities of blocks without a byte, and planned like those of any other code.
    match !near.is_empty() && near.len() < split(group, &present).0.len() {
        true => present.difference(&near).copied().collect(),
        false => BTreeSet::new(),
    }
}

/// Compares the group's present blocks except `without` with each other, and rebuilds the blocks `lost`.
///
/// # Errors
/// `Plan` when too few blocks are left, `Run` for a block that cannot be read, `Io` for the files.
pub(crate) async fn examine(
    blocks: &Arc<GroupBlocks>,
    without: &BTreeSet<BlockIndex>,
    lost: &[BlockIndex],
) -> Result<Examined, HdfsError> {
    let group = blocks.group();
    let here = |index: &BlockIndex| !without.contains(index) && group.holders.contains_key(index);
    let present: BTreeSet<_> = group.expected().filter(here).collect();
    let (base, surplus) = split(group, &present);
    let computed: BTreeSet<_> = surplus.iter().chain(lost).copied().collect();
    if computed.is_empty() {
        return Ok(Examined::default());
    }
    let computed: Vec<_> = computed.into_iter().collect();
    let view = group.view(NodeId::CLIENT, |index| base.contains(&index));
    let plan = kintsu_plan::read(&view, &computed, &computed)?;
    let (source, compared, staged) = (blocks.clone(), surplus.clone(), lost.to_vec());
    let take = move |deliveries| compare(deliveries, &source, compared, &staged);
    let mut examined = run(&plan, &view, blocks, (0, u64::MAX), take).await?;
    if !examined.mismatches.is_empty() {
        let (blocks, places) = (blocks.clone(), examined.mismatches.clone());
        let looking = tokio::task::spawn_blocking(move || suspects(&blocks, &present, &places)).await;
        examined.suspects = looking.map_err(|e| HdfsError::io("looking for the wrong block", e.into()))??;
    }
    examined.read = base.into_iter().chain(surplus).collect();
    examined.unit_bytes = blocks.unit_bytes();
    Ok(examined)
}

/// Compares deliveries of `surplus` with the stored blocks, and keeps those of `lost` in files.
fn compare(
    mut deliveries: mpsc::Receiver<Delivery>,
    blocks: &Arc<GroupBlocks>,
    surplus: Vec<BlockIndex>,
    lost: &[BlockIndex],
) -> Result<Examined, HdfsError> {
    let mut sources = BTreeMap::new();
    for index in &surplus {
        sources.insert(*index, blocks.source(*index)?);
    }
    let file = || tempfile::tempfile().map_err(|e| HdfsError::io("a file for a rebuilt block", e));
    let mut rebuilt = BTreeMap::new();
    for index in lost {
        rebuilt.insert(*index, file()?);
    }
    let (mut mismatches, mut stored) = (BTreeSet::new(), Vec::new());
    while let Some(Delivery { index, offset, bytes, .. }) = deliveries.blocking_recv() {
        if let Some(source) = sources.get_mut(&index) {
            stored.resize(bytes.len(), 0);
            source.read_at(offset, &mut stored)?;
            let wrong = stored.iter().zip(&bytes[..]).position(|(a, b)| a != b);
            if let Some(at) = wrong.filter(|_| mismatches.len() < MOST_PLACES) {
                mismatches.insert(offset + at as u64);
            }
        }
        if let Some(file) = rebuilt.get_mut(&index) {
            let written = file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(&bytes));
            written.map_err(|e| HdfsError::io("writing a rebuilt block", e))?;
        }
    }
    let mismatches = mismatches.into_iter().collect();
    Ok(Examined { surplus, mismatches, rebuilt, ..Examined::default() })
}

/// Which of the `present` blocks may be wrong ([`Examined::suspects`]).
///
/// # Errors
/// `Run` for a block that cannot be read.
fn suspects(
    blocks: &Arc<GroupBlocks>,
    present: &BTreeSet<BlockIndex>,
    mismatches: &[u64],
) -> Result<BTreeSet<BlockIndex>, HdfsError> {
    let group = blocks.group();
    let mut common: Option<BTreeSet<BlockIndex>> = None;
    for at in mismatches {
        let mut bytes: BTreeMap<BlockIndex, Vec<u8>> = BTreeMap::new();
        for index in present.iter().copied() {
            let look = look_bytes(group);
            let from = at / look * look;
            // A cell that is cut is divided into sub-blocks all the same.
            let coded = group.layout.longest(group.policy.code.k()) - from;
            let mut piece = vec![0; if group.policy.code.w() > 1 { look.min(coded) } else { look } as usize];
            let some = group.block_bytes(index).saturating_sub(from).min(look) as usize;
            if some > 0 {
                blocks.source(index)?.read_at(from, &mut piece[..some])?;
            }
            bytes.insert(index, piece);
        }
        let alone: BTreeSet<_> =
            bytes.keys().copied().filter(|index| agree_without(group, &bytes, *index)).collect();
        common = Some(match common {
            Some(common) => common.intersection(&alone).copied().collect(),
            None => alone,
        });
    }
    Ok(common.unwrap_or_default())
}

/// Bytes of each block that can be judged together.
fn look_bytes(group: &Group) -> u64 {
    if group.policy.code.w() > 1 { group.layout.cell_bytes.into() } else { LOOK_BYTES }
}

/// Whether the blocks except one agree. Too few to tell counts as agreement.
fn agree_without(group: &Group, bytes: &BTreeMap<BlockIndex, Vec<u8>>, left_out: BlockIndex) -> bool {
    let present: BTreeSet<_> = bytes.keys().copied().filter(|index| *index != left_out).collect();
    let (base, surplus) = split(group, &present);
    if surplus.is_empty() {
        return true;
    }
    // Blocks without a byte are zero, and at hand.
    let absent = (0..group.policy.code.n()).map(|i| BlockIndex(i as u8));
    let absent: Vec<_> = absent.filter(|index| group.block_bytes(*index) == 0).collect();
    let available = [absent, base].concat();
    let Ok(graph) = group.policy.code.decode(&available, &surplus) else { return true };
    let Ok(mut memory) = InMemory::new(graph) else { return true };
    let zeros = vec![0; bytes.values().next().map_or(0, Vec::len)];
    let part = zeros.len() / group.policy.code.w();
    let sub_block = |bytes: &'_ [u8], sub: u16| -> std::ops::Range<usize> {
        let from = usize::from(sub) * part;
        from.min(bytes.len())..(from + part).min(bytes.len())
    };
    let load = |index: BlockIndex, sub| {
        let whole = bytes.get(&index).unwrap_or(&zeros).as_slice();
        Some(&whole[sub_block(whole, sub)])
    };
    let mut same = true;
    let done = memory.step(part, load, |index, sub, computed| {
        let stored = bytes.get(&index).map(|whole| &whole[sub_block(whole, sub)]);
        same &= stored.is_some_and(|stored| computed.unwrap_or(&zeros[..part]) == stored);
    });
    done.is_err() || same
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EcPolicy;
    use crate::proto::names::Policy;
    use kintsu_plan::{Layout, LayoutKind};

    fn group(id: u32, data_bytes: u64) -> Group {
        let policy = EcPolicy::of(&Policy { id, ..Policy::default() }).unwrap();
        let cell_bytes = policy.cell_bytes;
        let layout = Layout { kind: LayoutKind::Striped, block_bytes: 1 << 22, cell_bytes, w: 1, data_bytes };
        Group {
            path: "/f".into(),
            file_id: 0,
            policy,
            pool: "BP".into(),
            id: -16i64 as u64,
            generation: 1001,
            offset: 0,
            layout,
            holders: BTreeMap::new(),
            corrupt: false,
            stored: None,
        }
    }

    /// Data blocks of a pattern, and their parity.
    fn coded(group: &Group) -> BTreeMap<BlockIndex, Vec<u8>> {
        let (k, len) = (group.policy.code.k(), LOOK_BYTES as usize);
        let pattern = |i: usize| (0..len).map(|at| (at * (2 * i + 3) + i) as u8).collect::<Vec<u8>>();
        let mut bytes: BTreeMap<_, _> = (0..k)
            .map(|i| BlockIndex(i as u8))
            .filter(|index| group.block_bytes(*index) > 0)
            .map(|index| (index, pattern(usize::from(index.0))))
            .collect();
        let (data, zeros) = (bytes.clone(), vec![0; len]);
        let load = |index: BlockIndex, _| Some(data.get(&index).unwrap_or(&zeros).as_slice());
        let mut memory = InMemory::new(group.policy.code.encode()).unwrap();
        memory.step(len, load, |index, _, out| _ = bytes.insert(index, out.unwrap().to_vec())).unwrap();
        bytes
    }

    fn culprits(group: &Group, bytes: &BTreeMap<BlockIndex, Vec<u8>>) -> Vec<u8> {
        bytes.keys().filter(|index| agree_without(group, bytes, **index)).map(|index| index.0).collect()
    }

    #[test]
    fn the_base_determines_the_group_and_the_rest_is_surplus() {
        let whole = group(1, 6 << 20);
        let all: BTreeSet<_> = whole.expected().collect();
        let (base, surplus) = split(&whole, &all);
        assert_eq!((base.len(), surplus), (6, vec![BlockIndex(6), BlockIndex(7), BlockIndex(8)]));
        // Two cells: four data blocks do not exist, so two blocks determine the group.
        let short = group(1, 2 << 20);
        let (base, surplus) = split(&short, &short.expected().collect());
        assert_eq!((base, surplus.len()), (vec![BlockIndex(0), BlockIndex(1)], 3));
        let lost: BTreeSet<_> = short.expected().filter(|index| index.0 != 1).collect();
        assert_eq!(split(&short, &lost).0, [BlockIndex(0), BlockIndex(6)]);
    }

    #[test]
    fn a_local_loss_needs_only_its_group() {
        let mut group = group(1, 12 << 20);
        let lrc = kintsu_code::parse("azure-lrc:n=16,k=12,r=6").unwrap();
        let codec = crate::Codec::of(&*lrc).unwrap();
        group.policy.code = codec.code;
        let indices = |list: &[u8]| list.iter().map(|i| BlockIndex(*i)).collect::<BTreeSet<_>>();
        let holder = crate::Holder { datanode: Default::default(), token: None };
        group.holders = (0..16).map(|i| (BlockIndex(i), vec![holder.clone()])).collect();
        let far_of = |lost: &[u8], without: &[u8]| {
            let lost: Vec<_> = lost.iter().map(|i| BlockIndex(*i)).collect();
            let mut group = group.clone();
            group.holders.retain(|index, _| !lost.contains(index));
            far(&group, &indices(without), &lost)
        };
        assert_eq!(far_of(&[2], &[]), indices(&[6, 7, 8, 9, 10, 11, 12, 13, 15]));
        assert_eq!(far_of(&[15], &[]), indices(&[0, 1, 2, 3, 4, 5, 12, 13, 14]));
        // A second loss in the group, a block of it that cannot be read, a global parity, nothing.
        for (lost, without) in [(&[2, 3][..], &[][..]), (&[2], &[3]), (&[12], &[]), (&[], &[])] {
            assert_eq!(far_of(lost, without), BTreeSet::new(), "{lost:?} {without:?}");
        }
        // Six cells: blocks 6 to 11 do not exist, and their local parity is zero.
        group.layout.data_bytes = 6 << 20;
        group.holders.retain(|index, _| index.0 < 6 || index.0 > 11 && index.0 != 15);
        let lost = [BlockIndex(15)];
        assert_eq!(far(&group, &BTreeSet::new(), &lost), BTreeSet::new());
    }

    #[test]
    fn one_wrong_block_is_found_and_one_of_too_few_is_not() {
        for (group, indices) in [(group(1, 6 << 20), 9), (group(1, 2 << 20), 5), (group(2, 3 << 20), 5)] {
            let sound = coded(&group);
            assert_eq!(sound.len(), indices);
            for wrong in sound.keys() {
                let mut bytes = sound.clone();
                bytes.get_mut(wrong).unwrap()[77] ^= 0x10;
                assert_eq!(culprits(&group, &bytes), [wrong.0]);
            }
        }
        // One parity shows that something is wrong, not what.
        let xor = group(4, 2 << 20);
        let mut bytes = coded(&xor);
        bytes.get_mut(&BlockIndex(1)).unwrap()[0] ^= 1;
        assert_eq!(culprits(&xor, &bytes), [0, 1, 2]);
    }
}
