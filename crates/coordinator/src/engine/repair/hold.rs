//! Decides whether automatic repair of nodes that are gone is held, because so many are gone at once that power or a
//! switch is a likelier reason than their disks. To rebuild them would move very many bytes for nothing, while the
//! nodes are on their way back.
//!
//! Nodes that hold no block do not count, so what was rebuilt is forgotten. Nodes whose own disk failed do not count either:
//! their agents say so. Blocks that are flagged lost are repaired all the same, and so is what an operator asks for.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use kintsu_dag::RackId;

/// Fewer nodes that are gone never hold repairs.
const LEAST: u32 = 3;

/// Why automatic repair is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// All nodes of this rack are gone.
    Rack(RackId),
    /// More than a share of all nodes is gone.
    Nodes {
        /// How many are gone.
        gone: u32,
        /// How many there are.
        all: u32,
        /// The share, in percent.
        share: NonZeroU32,
    },
}

/// A node that holds blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Its rack.
    pub rack: RackId,
    /// It sends no heartbeats.
    pub gone: bool,
}

/// Whether automatic repair is held. With a `share` of `None` it never is.
pub fn held(holders: impl IntoIterator<Item = Holder>, share: Option<NonZeroU32>) -> Option<Held> {
    let share = share?;
    // By rack: how many are gone, and how many there are.
    let mut racks: BTreeMap<RackId, (u32, u32)> = BTreeMap::new();
    for holder in holders {
        let (gone, all) = racks.entry(holder.rack).or_default();
        *gone += u32::from(holder.gone);
        *all += 1;
    }
    let gone: u32 = racks.values().map(|(gone, _)| gone).sum();
    let all: u32 = racks.values().map(|(_, all)| all).sum();
    if gone < LEAST {
        return None;
    }
    // A rack of one node is a node.
    let whole = |&(_, (gone, all)): &(&RackId, &(u32, u32))| *all > 1 && gone == all;
    if let Some((rack, _)) = racks.iter().find(whole) {
        return Some(Held::Rack(*rack));
    }
    let over = u64::from(gone) * 100 > u64::from(all) * u64::from(share.get());
    over.then_some(Held::Nodes { gone, all, share })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes by rack: how many are gone, of how many.
    fn asked(racks: &[(u32, u32)], share: u32) -> Option<Held> {
        let holders = racks.iter().enumerate().flat_map(|(rack, (gone, all))| {
            (0..*all).map(move |node| Holder { rack: RackId(rack as u32), gone: node < *gone })
        });
        held(holders, NonZeroU32::new(share))
    }

    #[test]
    fn a_few_nodes_are_repaired_many_and_whole_racks_wait() {
        assert_eq!(asked(&[(1, 4), (1, 4), (0, 4)], 10), None, "two are never too many");
        assert_eq!(asked(&[(2, 2), (0, 4)], 10), None, "nor is a rack of two");
        assert_eq!(asked(&[(1, 4), (1, 4), (1, 4)], 25), None, "a quarter is not more than a quarter");
        let share = NonZeroU32::new(24).unwrap();
        assert_eq!(asked(&[(1, 4), (1, 4), (1, 4)], 24), Some(Held::Nodes { gone: 3, all: 12, share }));
        assert_eq!(
            asked(&[(0, 40), (3, 3)], 25),
            Some(Held::Rack(RackId(1))),
            "a rack, however small its share"
        );
        assert_eq!(asked(&[(1, 1), (1, 1), (1, 1), (0, 20)], 25), None, "racks of one node are nodes");
        assert_eq!(asked(&[(4, 4), (4, 4)], 0), None, "it was switched off");
        assert_eq!(asked(&[], 25), None);
    }
}
