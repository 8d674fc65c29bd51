//! Decides about blocks that were reported as bad: which reports are checked, and what it means when the node
//! itself has read the block. The driver does the work.
//!
//! Invariants: a report alone makes no block lost; if a node does not answer, its block does not count as
//! bad, because only heartbeats decide about nodes; no block is read twice at the same time.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};

use super::census::{self, Proof, Read};
use super::places::Place;
use super::stripe::Stripe;
use crate::meta::change::LostBlock;

/// Most reports that may wait. Further ones are dropped: a scrub will find their blocks.
const WAITING: usize = 10_000;

/// Whether a fault of this kind on a block gives reason to read the block again.
pub fn is_reason(kind: FaultKind) -> bool {
    use FaultKind::{Corrupt, Io, Missing, Stale};
    matches!(kind, Corrupt | Missing | Stale | Io)
}

/// The blocks that are being checked.
#[derive(Debug, Default)]
pub struct Doubts(BTreeSet<Place>);

impl Doubts {
    /// Whether so many wait already that a report must be dropped.
    pub fn is_full(&self) -> bool {
        self.0.len() >= WAITING
    }

    /// The check of a block begins. Returns false if the block is being checked already.
    pub fn begin(&mut self, place: Place) -> bool {
        self.0.insert(place)
    }

    /// The check of a block has ended.
    pub fn end(&mut self, place: Place) {
        self.0.remove(&place);
    }

    /// Whether no block is being checked.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Several flagged blocks that are read again, one after the other.
#[derive(Debug, Default)]
pub struct Rereading {
    away: BTreeSet<NodeId>,
    /// The blocks whose flags are gone.
    pub sound: Vec<BlockId>,
    /// The blocks to repair at once.
    pub bad: Vec<BlockId>,
}

impl Rereading {
    /// Whether a block is to be read: not if its node could not be reached for another one.
    pub fn reads(&self, node: NodeId) -> bool {
        !self.away.contains(&node)
    }

    /// A block was read: it was found lost, or it is `flagged` still, or not.
    pub fn read(&mut self, id: BlockId, lost: bool, flagged: bool) {
        match (lost, flagged) {
            (true, _) => self.bad.push(id),
            (false, false) => self.sound.push(id),
            (false, true) => {}
        }
    }

    /// A node could not be reached: its blocks stay as they are.
    pub fn away(&mut self, node: NodeId) {
        self.away.insert(node);
    }
}

/// What the reading of a suspected block shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// It is lost, for this reason and with these details.
    Lost(LostBlock, String),
    /// It is sound: a flag that it has is wrong.
    Sound,
    /// It has another home by now, or is gone.
    Elsewhere,
    /// Nothing: its node could not read it.
    Nothing(Fault),
}

/// The node could not read the block.
pub fn unread(suspect: LostBlock, fault: Fault) -> Shown {
    let why = match fault.kind {
        // The agent may have set the block aside already. Then the block is missing, but the reported fault
        // is the reason.
        FaultKind::Missing if !Proof::Header.clears(suspect.why) => suspect.why,
        FaultKind::Mismatch => fault.kind,
        kind if is_reason(kind) => kind,
        _ => return Shown::Nothing(fault),
    };
    Shown::Lost(LostBlock { why, ..suspect }, fault.detail)
}

/// The node has read the block. Reading took a while: `stripe` is what is recorded by now.
pub fn reread(suspect: LostBlock, held: &HeldBlock, stripe: Option<&Stripe>) -> Shown {
    match census::read(suspect.node, held, stripe.map(|stripe| (&stripe.record, stripe.code.k()))) {
        Read::Sound | Read::Found => Shown::Sound,
        Read::Bad(bad) => Shown::Lost(LostBlock { why: bad.kind, ..suspect }, bad.detail),
        Read::Unknown(_) => Shown::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::{BlockId, BlockIndex, NodeId};

    fn suspect(why: FaultKind) -> LostBlock {
        let id = BlockId { stripe: stripe("rs:n=4,k=2", &[]).id, index: BlockIndex(1) };
        LostBlock { id, node: NodeId(1), why }
    }

    #[test]
    fn a_node_that_cannot_look_makes_no_block_bad() {
        let fault = |kind| Fault { kind, node: NodeId(1), block: None, detail: "so".into() };
        let shown = |said, kind| match unread(suspect(said), fault(kind)) {
            Shown::Lost(lost, detail) if detail == "so" => Some(lost.why),
            Shown::Nothing(_) => None,
            other => panic!("{other:?}"),
        };
        use FaultKind::*;
        for kind in [Corrupt, Missing, Stale, Mismatch, Io] {
            assert_eq!(shown(Missing, kind), Some(kind));
        }
        assert_eq!(shown(Corrupt, Missing), Some(Corrupt), "its agent has set it aside");
        assert_eq!(shown(Stale, Missing), Some(Missing));
        for kind in [Lost, Stalled, Full, Invalid, Aborted] {
            assert_eq!(shown(Corrupt, kind), None);
            assert!(!is_reason(kind));
        }
    }

    #[test]
    fn what_was_read_counts_by_what_is_recorded_then() {
        let held = HeldBlock { id: suspect(FaultKind::Io).id, generation: 1, len: 1000, digest: [1; 16] };
        let look = |stripe: Option<&Stripe>, held: &HeldBlock| reread(suspect(FaultKind::Io), held, stripe);
        let (sound, lost) = (stripe("rs:n=4,k=2", &[]), stripe("rs:n=4,k=2", &[1]));
        assert_eq!(look(Some(&sound), &held), Shown::Sound);
        assert_eq!(look(Some(&lost), &held), Shown::Sound);
        assert_eq!(look(None, &held), Shown::Elsewhere);
        let mut moved = sound.clone();
        moved.record.blocks[1].as_mut().unwrap().node = NodeId(9);
        assert_eq!(look(Some(&moved), &held), Shown::Elsewhere);
        let rot = HeldBlock { digest: [9; 16], ..held };
        assert!(matches!(look(Some(&sound), &rot), Shown::Lost(l, _) if l.why == FaultKind::Corrupt));
    }

    #[test]
    fn a_block_is_looked_into_once_at_a_time() {
        let (mut doubts, place) = (Doubts::default(), (NodeId(1), suspect(FaultKind::Io).id));
        assert!(doubts.begin(place) && !doubts.begin(place) && !doubts.is_full());
        doubts.end(place);
        assert!(doubts.is_empty() && doubts.begin(place));
    }
}
