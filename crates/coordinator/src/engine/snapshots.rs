//! Decides what belongs to snapshots of volumes (`docs/adr/0012-snapshots.md`).
//!
//! The snapshots of a volume are numbered. A stripe records how many had been taken when it was made. It belongs to each
//! snapshot that was taken since, until the volume writes to it. It has one owner: the volume while that uses it, then the
//! youngest snapshot that has it. When an owner is removed, the next older snapshot that has it becomes the owner.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::FolderId;

use super::stripe::Stripe;

/// A snapshot that is there: its id and its number. One that `leaves` is being removed: it has its stripes until these have gone to
/// others, and gets no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    pub id: u64,
    pub number: u64,
    pub leaves: bool,
}

/// The youngest snapshot with a stripe that the volume has too. `made`: how many snapshots had been taken when the stripe was
/// made. `family`: the volume's snapshots, oldest first.
pub fn sharer(made: u64, family: &[Taken]) -> Option<u64> {
    let youngest = family.iter().rev().find(|snapshot| !snapshot.leaves);
    youngest.filter(|youngest| made <= youngest.number).map(|youngest| youngest.id)
}

/// Who gets a stripe of a snapshot that is removed; nobody needs it if there is none.
pub fn heir(made: u64, removed: u64, family: &[Taken]) -> Option<u64> {
    let older = family.iter().rev().find(|snapshot| snapshot.number < removed && !snapshot.leaves);
    older.filter(|older| made <= older.number).map(|older| older.id)
}

/// Whose rows a reader of a snapshot looks at: the first of these with a row for a position owns the stripe there. It was made after
/// the snapshot, and is zeros in it, unless [`has`].
pub fn owners(number: u64, family: &[Taken], origin: u64) -> Vec<u64> {
    let since = family.iter().filter(|snapshot| snapshot.number >= number).map(|snapshot| snapshot.id);
    since.chain(std::iter::once(origin)).collect()
}

/// Whether a snapshot has the stripe of the first row that is found for it.
pub fn has(number: u64, made: u64) -> bool {
    made <= number
}

/// Whether nobody can log an update any more under the epoch at which a stripe is logged: a write needs all nodes that log its
/// block, and of each block one at least refuses epochs before `epoch`. `refuse`: the nodes that do, with the folders that they
/// have; another folder is another log.
pub fn is_closed(
    row: (u64, &[Vec<NodeId>], &BTreeMap<NodeId, FolderId>),
    epoch: u64,
    refuse: &BTreeMap<NodeId, FolderId>,
) -> bool {
    closed(row, epoch, refuse).is_some()
}

/// What is left of the logs then: of each the nodes that refuse. The others may still take what nobody acknowledges.
pub fn closed(
    (at, logs, folders): (u64, &[Vec<NodeId>], &BTreeMap<NodeId, FolderId>),
    epoch: u64,
    refuse: &BTreeMap<NodeId, FolderId>,
) -> Option<Vec<Vec<NodeId>>> {
    let refuses = |node: &&NodeId| refuse.get(node).is_some_and(|folder| folders.get(node) == Some(folder));
    let left: Vec<Vec<NodeId>> =
        logs.iter().map(|log| log.iter().filter(refuses).copied().collect()).collect();
    let all = |(log, left): (&Vec<NodeId>, &Vec<NodeId>)| log.is_empty() || (at < epoch && !left.is_empty());
    logs.iter().zip(&left).all(all).then_some(left)
}

/// Why a stripe cannot be copied now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waits {
    /// This node may answer again soon.
    Silent(NodeId),
    /// The copy could not be read without these blocks.
    Beyond(Vec<BlockIndex>),
}

/// Which blocks of a stripe are copied; the others are lost in the copy from the start, and are repaired like any other lost block.
///
/// # Errors
/// The stripe must wait.
pub fn copies(
    stripe: &Stripe,
    usable: &BTreeSet<NodeId>,
    down: &BTreeSet<NodeId>,
) -> Result<(Vec<BlockIndex>, Vec<BlockIndex>), Waits> {
    let (mut copied, mut lost) = (Vec::new(), Vec::new());
    for (i, block) in stripe.record.blocks.iter().enumerate() {
        let index = BlockIndex(i as u8);
        match block {
            Some(block) if block.lost || down.contains(&block.node) => lost.push(index),
            Some(block) if usable.contains(&block.node) => copied.push(index),
            Some(block) => return Err(Waits::Silent(block.node)),
            None => {}
        }
    }
    if lost.is_empty() || stripe.code.recoverable(&lost) {
        Ok((copied, lost))
    } else {
        Err(Waits::Beyond(lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;

    fn family(numbers: &[u64]) -> Vec<Taken> {
        numbers.iter().map(|&number| Taken { id: 100 + number, number, leaves: false }).collect()
    }

    #[test]
    fn a_stripe_belongs_to_the_snapshots_that_were_taken_since_it_was_made() {
        assert_eq!(
            [0, 1, 2, 3].map(|made| sharer(made, &family(&[0, 2]))),
            [Some(102), Some(102), Some(102), None]
        );
        assert_eq!(sharer(0, &[]), None);
        assert_eq!(sharer(1, &family(&[0])), None, "the younger one was removed");
        assert_eq!([0, 1, 2].map(|made| heir(made, 2, &family(&[0, 1, 2]))), [Some(101), Some(101), None]);
        assert_eq!(heir(0, 0, &family(&[0, 1])), None);
        assert_eq!(heir(1, 3, &family(&[0, 3])), None, "it was made after the older one");
        assert_eq!(owners(1, &family(&[0, 1, 4]), 7), [101, 104, 7]);
        assert!(has(1, 0) && has(1, 1) && !has(1, 2));
    }

    /// Any history of writes, snapshots and removals: each snapshot finds what the volume had when it was taken, and each stripe that
    /// somebody needs has one owner.
    #[test]
    fn every_snapshot_keeps_its_stripe_whatever_is_written_and_removed() {
        const ORIGIN: u64 = 7;
        for seed in 0..3000u64 {
            let mut state = seed;
            let mut dice = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            // One position: who owns which content, made when. What each snapshot must hold.
            let mut rows: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let (mut family, mut cuts, mut expected) = (Vec::<Taken>::new(), 0, BTreeMap::new());
            for content in 1..25 {
                match dice(4) {
                    0 | 1 => {
                        if let Some(&(old, made)) = rows.get(&ORIGIN)
                            && let Some(to) = sharer(made, &family)
                        {
                            assert!(rows.insert(to, (old, made)).is_none(), "seed {seed}");
                            rows.insert(ORIGIN, (content, cuts));
                        } else {
                            let made = rows.get(&ORIGIN).map_or(cuts, |row| row.1);
                            rows.insert(ORIGIN, (content, made));
                        }
                    }
                    2 => {
                        family.push(Taken { id: 100 + cuts, number: cuts, leaves: false });
                        expected.insert(cuts, rows.get(&ORIGIN).map(|row| row.0));
                        cuts += 1;
                    }
                    _ if !family.is_empty() => {
                        // Some are being removed for a while.
                        let at = dice(family.len() as u64) as usize;
                        let gone = family[at];
                        expected.remove(&gone.number);
                        if std::mem::replace(&mut family[at].leaves, true) {
                            if let Some((old, made)) = rows.remove(&gone.id)
                                && let Some(to) = heir(made, gone.number, &family)
                            {
                                assert!(rows.insert(to, (old, made)).is_none(), "seed {seed}");
                            }
                            family.remove(at);
                        }
                    }
                    _ => {}
                }
                for (&number, holds) in &expected {
                    let row = owners(number, &family, ORIGIN).iter().find_map(|owner| rows.get(owner));
                    let found = row.filter(|row| has(number, row.1)).map(|row| row.0);
                    assert_eq!(found, *holds, "seed {seed}, snapshot {number}");
                }
            }
        }
    }

    #[test]
    fn a_stripe_is_closed_when_one_node_of_each_log_refuses() {
        let folder = |byte: u8| FolderId([byte; 16]);
        let folders: BTreeMap<NodeId, FolderId> = (0..4).map(|n| (NodeId(n), folder(n as u8))).collect();
        let logs = [vec![NodeId(0), NodeId(1)], vec![NodeId(2), NodeId(3)]];
        let refuse =
            |nodes: &[u32]| nodes.iter().map(|&n| (NodeId(n), folder(n as u8))).collect::<BTreeMap<_, _>>();
        let closed =
            |epoch, refuse: &BTreeMap<NodeId, FolderId>| is_closed((5, &logs, &folders), epoch, refuse);
        assert!(closed(6, &refuse(&[0, 3])) && closed(6, &refuse(&[0, 1, 2, 3])));
        assert!(!closed(6, &refuse(&[0, 1])), "nobody refuses for the second block");
        assert!(!closed(5, &refuse(&[0, 3])), "they accept the epoch at which it is logged");
        let mut other = refuse(&[0, 3]);
        other.insert(NodeId(3), folder(9));
        assert!(!closed(6, &other), "that node has lost its log");
        assert!(is_closed((0, &[], &BTreeMap::new()), 1, &BTreeMap::new()), "nobody logs");
    }

    #[test]
    fn what_is_lost_or_on_dead_nodes_is_lost_in_the_copy_too_if_that_can_be_borne() {
        let stripe = stripe("rs:n=5,k=3", &[1]);
        let nodes = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<BTreeSet<_>>();
        let blocks = |blocks: &[u8]| blocks.iter().copied().map(BlockIndex).collect::<Vec<_>>();
        let all = nodes(&[0, 1, 2, 3, 4]);
        assert_eq!(copies(&stripe, &all, &nodes(&[])), Ok((blocks(&[0, 2, 3, 4]), blocks(&[1]))));
        let without =
            |down: &[u32]| copies(&stripe, &all.difference(&nodes(down)).copied().collect(), &nodes(down));
        assert_eq!(without(&[4]), Ok((blocks(&[0, 2, 3]), blocks(&[1, 4]))));
        assert_eq!(without(&[0, 4]), Err(Waits::Beyond(blocks(&[0, 1, 4]))));
        assert_eq!(copies(&stripe, &nodes(&[0, 1, 2, 4]), &nodes(&[])), Err(Waits::Silent(NodeId(3))));
    }
}
