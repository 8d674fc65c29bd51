//! Space: what is kept free on each disk, how full a node is, and how much data still fits.

use std::collections::BTreeMap;

use kintsu_code::Code;
use kintsu_dag::NodeId;
use kintsu_plan::{Topology, capacity};
use kintsu_wire::message::{CodeSpace, DiskUsage, Fullness, Space};

use super::members::{Member, Members};

/// Bytes that are kept free on each disk, as a share of the disk and a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Of a thousand bytes of the disk.
    pub per_mille: u64,
    /// But no more than this.
    pub most_bytes: u64,
}

impl Default for Reserve {
    fn default() -> Self {
        Self { per_mille: 50, most_bytes: 1 << 30 }
    }
}

impl Reserve {
    /// This many bytes of every disk that is large enough.
    pub fn bytes(bytes: u64) -> Self {
        Self { per_mille: 1000, most_bytes: bytes }
    }

    /// Bytes to be kept free on a disk of this size.
    pub fn of(self, capacity_bytes: u64) -> u64 {
        let share = u128::from(capacity_bytes) * u128::from(self.per_mille) / 1000;
        u64::try_from(share).unwrap_or(u64::MAX).min(self.most_bytes)
    }

    /// Bytes that new blocks may take; `None` if the disk is not known.
    pub fn room(self, usage: DiskUsage) -> Option<u64> {
        usage.known().map(|usage| usage.free_bytes.saturating_sub(self.of(usage.capacity_bytes)))
    }

    /// How full a disk is. It is nearly full if it has less free than twice the reserve.
    pub fn fullness(self, usage: DiskUsage) -> Fullness {
        let reserve = self.of(usage.capacity_bytes);
        match usage.known() {
            None => Fullness::Unknown,
            Some(usage) if usage.free_bytes <= reserve => Fullness::Full,
            Some(usage) if usage.free_bytes <= reserve.saturating_mul(2) => Fullness::NearlyFull,
            Some(_) => Fullness::Roomy,
        }
    }
}

/// A file system, which nodes may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Medium {
    Known(u64),
    Own(NodeId),
}

impl Medium {
    fn of(id: NodeId, member: &Member) -> Self {
        member.usage.medium.map_or(Self::Own(id), Self::Known)
    }
}

/// The space of the cluster without codes, and its nodes with their shares of the room: file systems that nodes share
/// count once.
pub fn space(members: &Members) -> (Space, Topology) {
    let (reserve, mut topology) = (members.reserve(), members.topology());
    let mut space = Space::default();
    let mut media: BTreeMap<Medium, (DiskUsage, u64)> = BTreeMap::new();
    for (id, member) in members.iter() {
        let open = topology.nodes.get(&id).is_some_and(|node| node.usable && node.has_room(1));
        if !open {
            space.closed.push(id);
        }
        if !member.up {
            continue;
        }
        let Some(usage) = member.usage.known() else {
            space.unknown.push(id);
            continue;
        };
        space.nodes += 1;
        let (sum, sharers) = media.entry(Medium::of(id, member)).or_default();
        *sum = DiskUsage {
            bytes: sum.bytes + usage.bytes,
            aside_bytes: sum.aside_bytes + usage.aside_bytes,
            ..usage
        };
        *sharers += u64::from(open);
    }
    for (usage, sharers) in media.values() {
        let DiskUsage { bytes, aside_bytes, capacity_bytes, free_bytes, .. } = *usage;
        let kept = reserve.of(capacity_bytes).min(free_bytes);
        space.media += 1;
        space.raw_bytes += capacity_bytes;
        space.used_bytes += bytes;
        space.aside_bytes += aside_bytes;
        space.other_bytes += capacity_bytes.saturating_sub(free_bytes + bytes + aside_bytes);
        space.reserved_bytes += kept;
        space.free_bytes += if *sharers > 0 { free_bytes - kept } else { 0 };
    }
    for (id, member) in members.iter() {
        let sharers = media.get(&Medium::of(id, member)).map_or(1, |(_, sharers)| (*sharers).max(1));
        if let Some(node) = topology.nodes.get_mut(&id) {
            node.room_bytes = node.room_bytes.map(|room| room / sharers);
        }
    }
    (space, topology)
}

/// How much data of a code still fits, on nodes whose rooms are their shares.
pub fn code_space(code: &dyn Code, topology: &Topology) -> CodeSpace {
    let fits = capacity(code, topology);
    let open =
        topology.nodes.values().filter(|node| node.usable && node.room_bytes.is_some_and(|room| room > 0));
    let note = match fits {
        None => Some(format!("needs {} nodes with room, got {}", code.n(), open.count())),
        Some(fits) if !fits.rack_safe => Some(format!(
            "too few racks: the loss of a rack may lose data; expected racks with {} or fewer of {} blocks",
            code.n() - code.k(),
            code.n()
        )),
        Some(_) => None,
    };
    CodeSpace {
        code: code.name().into(),
        overhead: code.n() as f64 / code.k() as f64,
        usable_bytes: fits.map(|fits| fits.data_bytes),
        rack_safe: fits.is_some_and(|fits| fits.rack_safe),
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;
    use kintsu_dag::RackId;

    const GIB: u64 = 1 << 30;

    fn disk(capacity: u64, free: u64, medium: Option<u64>) -> DiskUsage {
        DiskUsage {
            blocks: 1,
            bytes: 10,
            free_bytes: free,
            capacity_bytes: capacity,
            medium,
            ..DiskUsage::default()
        }
    }

    fn members(disks: &[DiskUsage]) -> Members {
        let mut members = Members::new(Patience { dead_after_ms: 50, grace_ms: 600 }, BTreeMap::new(), 0);
        members.keep_free(Reserve { per_mille: 100, most_bytes: u64::MAX });
        for (i, disk) in disks.iter().enumerate() {
            let mut record = record(7);
            record.rack = RackId(i as u32);
            members.enrolled(NodeId(i as u32), record, 0);
            members.seen(NodeId(i as u32), 7, *disk, None, 1).unwrap();
        }
        members
    }

    #[test]
    fn the_reserve_is_a_share_of_small_disks_and_a_limit_on_large_ones() {
        let reserve = Reserve::default();
        assert_eq!((reserve.of(10 * GIB), reserve.of(100 * GIB)), (GIB / 2, GIB));
        assert_eq!((Reserve::bytes(7).of(5), Reserve::bytes(7).of(GIB)), (5, 7));
        assert_eq!(reserve.room(DiskUsage::default()), None);
        assert_eq!(reserve.room(disk(100 * GIB, 3 * GIB, None)), Some(2 * GIB));
        let full = |free| reserve.fullness(disk(100 * GIB, free * GIB, None));
        assert_eq!([full(1), full(2), full(3)], [Fullness::Full, Fullness::NearlyFull, Fullness::Roomy]);
        assert_eq!(reserve.fullness(DiskUsage::default()), Fullness::Unknown);
    }

    #[test]
    fn a_full_node_gets_no_new_blocks() {
        let members = members(&[disk(1000, 100, None), disk(1000, 101, None), DiskUsage::default()]);
        let rooms: Vec<_> = members.topology().nodes.values().map(|node| node.room_bytes).collect();
        assert_eq!(rooms, [Some(0), Some(1), None]);
        let (space, _) = space(&members);
        assert_eq!((space.closed, space.unknown), (vec![NodeId(0)], vec![NodeId(2)]));
    }

    #[test]
    fn a_file_system_that_nodes_share_counts_once() {
        let shared = disk(1000, 500, Some(1));
        let (space, topology) = space(&members(&[shared, shared, shared, disk(1000, 900, None)]));
        assert_eq!((space.raw_bytes, space.media, space.nodes), (2000, 2, 4));
        assert_eq!((space.used_bytes, space.other_bytes), (40, 470 + 90));
        assert_eq!((space.reserved_bytes, space.free_bytes), (200, 400 + 800));
        let rooms: Vec<_> = topology.nodes.values().map(|node| node.room_bytes.unwrap()).collect();
        assert_eq!(rooms, [133, 133, 133, 800]);
        let code = kintsu_code::parse("rs:n=4,k=3").unwrap();
        let fits = code_space(code.as_ref(), &topology);
        assert_eq!((fits.usable_bytes, fits.rack_safe, fits.note), (Some(399), true, None));
        let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
        let none = code_space(code.as_ref(), &topology);
        assert_eq!((none.usable_bytes, none.note.as_deref()), (None, Some("needs 5 nodes with room, got 4")));
    }

    #[test]
    fn what_is_down_or_draining_takes_nothing() {
        let mut members = members(&[disk(1000, 900, None); 3]);
        members.stopped(NodeId(0), 2);
        members.set_draining(NodeId(1), true);
        let (space, topology) = space(&members);
        assert_eq!((space.nodes, space.raw_bytes, space.free_bytes), (2, 2000, 800));
        assert_eq!(space.closed, [NodeId(0), NodeId(1)]);
        let code = kintsu_code::parse("replication:n=1").ok();
        assert!(code.is_none_or(|code| code_space(code.as_ref(), &topology).usable_bytes == Some(800)));
    }
}
