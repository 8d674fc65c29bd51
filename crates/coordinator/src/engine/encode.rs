//! Decides how an object is encoded on the nodes that hold its data: where the parity of a stripe goes, what
//! follows from an attempt, and when to give up. The driver does the work.
//!
//! Invariants: parity is made only while all data blocks can be read; a stripe counts as encoded only when all of its parity
//! is durable; a node that was at fault gets no parity of that stripe.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::{Binding, PlanError, StripeView, Topology, place_lost};
use kintsu_wire::message::{Fault, RunOutcome};

use super::doubt::is_reason;
use super::places::Place;
use super::repair::Tally;
use super::stripe::Stripe;
use crate::meta::change::{LostBlock, Parity};

/// Most attempts for one stripe.
const ATTEMPTS: u32 = 6;

/// The progress of encoding one object.
#[derive(Debug)]
pub struct EncodeProgress {
    name: String,
    tally: Tally,
    failed: Vec<String>,
    done: u64,
    total: u64,
}

impl EncodeProgress {
    /// Begins the encoding of an object of `total` bytes.
    pub fn new(name: &str, total: u64) -> Self {
        Self { name: name.into(), tally: Tally::default(), failed: Vec::new(), done: 0, total }
    }

    /// The work on a stripe has ended. `encoded` is the number of its bytes, or why it is not encoded.
    /// Returns how many bytes are done, and how many there are.
    pub fn ended(&mut self, id: StripeId, encoded: Result<u64, String>, cost: &Tally) -> (u64, u64) {
        self.tally.add(cost);
        match encoded {
            Ok(bytes) => self.done += bytes,
            Err(why) => self.failed.push(format!("stripe {id} of {:?}: {why}", self.name)),
        }
        (self.done, self.total)
    }

    /// What it cost, and what could not be encoded.
    pub fn end(mut self, cancelled: bool) -> (Tally, Vec<String>) {
        if cancelled && self.done < self.total {
            let Self { name, done, total, .. } = &self;
            let why = format!("cancelled after {done} of {total} bytes: `kintsu encode {name}` continues");
            self.failed.insert(0, why);
        }
        (self.tally, self.failed)
    }
}

/// One stripe that is to get its parity.
#[derive(Debug, Clone, Default)]
pub struct StripeEncode {
    binding: Binding,
    shunned: BTreeSet<NodeId>,
    attempts: u32,
    last: String,
}

/// Why an attempt cannot be planned.
#[derive(Debug, Clone, PartialEq)]
pub enum Refused {
    /// There is no node for the parity, and no attempt has failed before.
    Plan(PlanError),
    /// A reason in words.
    Because(String),
}

/// Where the parity of a stripe is to go.
#[derive(Debug, Clone)]
pub struct Placing {
    /// The stripe with homes for its parity.
    pub view: StripeView,
    /// The places that are written to.
    pub places: Vec<Place>,
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// All parity is durable: make it visible.
    Made(Vec<Parity>),
    /// If there is a `doubt`, have that block read again. Then try again: at once, or after a moment if
    /// `wait` is set.
    Again { doubt: Option<LostBlock>, wait: bool },
}

impl StripeEncode {
    /// Nothing was tried yet.
    pub fn new(binding: Binding) -> Self {
        Self { binding, ..Self::default() }
    }

    /// Where its parities are computed.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Whether there is another attempt. An attempt begins with reading the stripe.
    pub fn begins(&mut self) -> bool {
        self.attempts += 1;
        self.attempts <= ATTEMPTS
    }

    /// The stripe was read. Returns the number of its object bytes if nothing is left to do for it.
    pub fn settled(&self, stripe: Option<&Stripe>) -> Option<u64> {
        match stripe {
            None => Some(0),
            Some(stripe) => stripe.record.encoded.then_some(stripe.record.layout.data_bytes),
        }
    }

    /// Chooses where the parity goes. `usable` are the nodes that can be read, `sweeping` the nodes that
    /// still have to delete a block of the stripe.
    ///
    /// # Errors
    /// A data block cannot be read; no node is left for a parity block.
    pub fn place(
        &self,
        stripe: &Stripe,
        topology: Topology,
        usable: &BTreeSet<NodeId>,
        sweeping: &BTreeSet<NodeId>,
    ) -> Result<Placing, Refused> {
        let gone = stripe.record.made().filter(|(_, b)| b.lost || !usable.contains(&b.node));
        let gone: Vec<String> = gone.map(|(index, b)| format!("{index} on {}", b.node)).collect();
        if !gone.is_empty() {
            let why = format!("all but {} of {} data blocks", gone.join(", "), stripe.code.k());
            return Err(Refused::Because(why));
        }
        let mut view = stripe.view(|_, _| true);
        let barred: BTreeSet<NodeId> = self.shunned.union(sweeping).copied().collect();
        // If an attempt failed before, its fault is the reason that no node is left.
        let parity = place_parity(&mut view, topology, &barred).map_err(|e| match self.last.as_str() {
            "" => Refused::Plan(e),
            last => Refused::Because(format!("{e}; after {last}")),
        })?;
        let place = |&index: &BlockIndex| {
            Some((view.homes[usize::from(index.0)]?, BlockId { stripe: stripe.id, index }))
        };
        let places = parity.iter().filter_map(place).collect();
        Ok(Placing { view, places })
    }

    /// This place cannot be written to now: wait a moment and try again.
    pub fn barred(&mut self, (node, id): Place) {
        self.last = format!("{node} still deletes an earlier file of {id}");
    }

    /// An attempt has ended.
    pub fn ran(
        &mut self,
        stripe: &Stripe,
        placing: &Placing,
        outcomes: &[RunOutcome],
        fault: Option<&Fault>,
    ) -> Ran {
        let made = made(stripe, &placing.places, outcomes);
        if made.len() == placing.places.len() {
            return Ran::Made(made);
        }
        let Some(fault) = fault else {
            self.last = format!("expected {} parity blocks, got {}", placing.places.len(), made.len());
            return Ran::Again { doubt: None, wait: false };
        };
        self.last = fault.to_string();
        self.shunned.insert(fault.node);
        let data = |id: &BlockId| id.stripe == stripe.id && usize::from(id.index.0) < stripe.code.k();
        let bad = fault.block.filter(data).filter(|_| is_reason(fault.kind));
        let doubt = bad.map(|id| LostBlock { id, node: fault.node, why: fault.kind });
        Ran::Again { doubt, wait: true }
    }

    /// Why there is no further attempt.
    pub fn gave_up(&self) -> String {
        format!("gave up after {ATTEMPTS} attempts: {}", self.last)
    }
}

/// Keeps the planned homes of parity blocks that can be used, and finds others for the remaining parity
/// blocks.
fn place_parity(
    view: &mut StripeView,
    mut topology: Topology,
    barred: &BTreeSet<NodeId>,
) -> Result<Vec<BlockIndex>, PlanError> {
    for node in barred {
        if let Some(node) = topology.nodes.get_mut(node) {
            node.usable = false;
        }
    }
    let (k, n) = (view.code.k(), view.code.n());
    let parity = (k..n).map(|i| BlockIndex(i as u8)).filter(|b| view.block_len(*b) > 0);
    let parity: Vec<BlockIndex> = parity.collect();
    let mut taken: BTreeSet<NodeId> = view.homes[..k].iter().flatten().copied().collect();
    let mut rest = Vec::new();
    for &index in &parity {
        let home = &mut view.homes[usize::from(index.0)];
        let fits =
            |node: &NodeId| topology.nodes.get(node).is_some_and(|n| n.usable) && !taken.contains(node);
        *home = home.filter(fits);
        match *home {
            Some(node) => drop(taken.insert(node)),
            None => rest.push(index),
        }
    }
    for (index, node) in rest.iter().zip(place_lost(view, &topology, &rest, &mut |_| 0)?) {
        view.homes[usize::from(index.0)] = Some(node);
    }
    Ok(parity)
}

/// The parity blocks that are durable where they should be.
fn made(stripe: &Stripe, places: &[Place], outcomes: &[RunOutcome]) -> Vec<Parity> {
    let parity = |&(node, id): &Place| {
        let mut written = outcomes.iter().filter(|o| o.node == node).flat_map(|o| &o.written);
        let held = written.find(|h| h.id == id && h.generation == stripe.record.generation_of(id.index))?;
        let whole = held.len == stripe.block_len(id.index);
        whole.then_some(Parity { index: id.index, node, digest: held.digest })
    };
    places.iter().filter_map(parity).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::RackId;
    use kintsu_plan::{Layout, LayoutKind, Node};
    use kintsu_wire::message::{FaultKind, HeldBlock};

    /// Two data blocks and two parity blocks that are not made yet, on nodes 0 to 3 of 6.
    fn plain() -> (Stripe, Topology, BTreeSet<NodeId>) {
        let mut stripe = stripe("rs:n=4,k=2", &[]);
        stripe.record.encoded = false;
        stripe.record.blocks[2..].iter_mut().flatten().for_each(|block| block.digest = None);
        let node = |i| (NodeId(i), Node { rack: RackId(i), usable: true, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: (0..6).map(node).collect(), ..Topology::default() };
        (stripe, topology, (0..6).map(NodeId).collect())
    }

    fn outcome((node, id): Place) -> RunOutcome {
        let written = vec![HeldBlock { id, generation: 1, len: 1000, digest: [8; 16] }];
        RunOutcome { node, fault: None, upto: 1000, bytes_read: 0, sent: Vec::new(), written }
    }

    #[test]
    fn a_stripe_is_encoded_when_all_parity_is_durable() {
        let (stripe, topology, usable) = plain();
        let mut encode = StripeEncode::default();
        assert_eq!((encode.settled(None), encode.settled(Some(&stripe))), (Some(0), None));
        assert!(encode.begins());
        let placing = encode.place(&stripe, topology, &usable, &BTreeSet::new()).unwrap();
        assert_eq!(placing.places.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [2, 3]);
        let all: Vec<_> = placing.places.iter().map(|place| outcome(*place)).collect();
        assert_eq!(encode.ran(&stripe, &placing, &all[..1], None), Ran::Again { doubt: None, wait: false });
        assert!(matches!(encode.ran(&stripe, &placing, &all, None), Ran::Made(made) if made.len() == 2));
    }

    #[test]
    fn a_node_at_fault_is_shunned_and_its_bad_data_are_looked_into() {
        let (stripe, topology, usable) = plain();
        let mut encode = StripeEncode::default();
        let placing = encode.place(&stripe, topology.clone(), &usable, &BTreeSet::new()).unwrap();
        let detail = String::new();
        let lost = Fault { kind: FaultKind::Lost, node: NodeId(2), block: None, detail: detail.clone() };
        assert_eq!(encode.ran(&stripe, &placing, &[], Some(&lost)), Ran::Again { doubt: None, wait: true });
        let next = encode.place(&stripe, topology.clone(), &usable, &BTreeSet::from([NodeId(4)])).unwrap();
        assert_eq!(next.places.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [5, 3]);
        let id = BlockId { stripe: stripe.id, index: BlockIndex(1) };
        let rot = Fault { kind: FaultKind::Corrupt, node: NodeId(1), block: Some(id), detail };
        let doubt = Some(LostBlock { id, node: NodeId(1), why: FaultKind::Corrupt });
        assert_eq!(encode.ran(&stripe, &placing, &[], Some(&rot)), Ran::Again { doubt, wait: true });
        // No node is left, and the message says which fault led to that.
        let refused = encode.place(&stripe, topology.clone(), &usable, &usable).unwrap_err();
        assert!(matches!(&refused, Refused::Because(why) if why.contains("; after ")), "{refused:?}");
        let fresh = StripeEncode::default().place(&stripe, topology, &usable, &usable).unwrap_err();
        assert!(matches!(fresh, Refused::Plan(_)));
    }

    #[test]
    fn without_all_data_there_is_no_parity_and_after_six_attempts_no_more() {
        let (stripe, topology, mut usable) = plain();
        let mut encode = StripeEncode::default();
        usable.remove(&NodeId(1));
        let refused = encode.place(&stripe, topology, &usable, &BTreeSet::new()).unwrap_err();
        assert_eq!(refused, Refused::Because("all but b1 on N1 of 2 data blocks".into()));
        assert_eq!((0..9).filter(|_| encode.begins()).count(), 6);
        encode.barred((NodeId(2), BlockId { stripe: stripe.id, index: BlockIndex(2) }));
        assert!(
            encode.gave_up().starts_with("gave up after 6 attempts: N2 still deletes an earlier file of ")
        );
        let mut object = EncodeProgress::new("a", 10);
        assert_eq!(object.ended(stripe.id, Ok(4), &Tally::default()), (4, 10));
        assert_eq!(object.ended(stripe.id, Err("no".into()), &Tally::default()), (4, 10));
        let failed = [
            "cancelled after 4 of 10 bytes: `kintsu encode a` continues".to_owned(),
            format!("stripe {} of \"a\": no", stripe.id),
        ];
        assert_eq!(object.end(true).1, failed);
    }

    #[test]
    fn parity_stays_where_it_was_planned_unless_that_cannot_be() {
        let node = |i| (NodeId(i), Node { rack: RackId(i), usable: i != 3, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 8, cell_bytes: 8, w: 1, data_bytes: 16 };
        let homes = [0, 1, 2, 3, 1].map(|i| Some(NodeId(i))).to_vec();
        let code = kintsu_code::parse("rs:n=5,k=2").unwrap();
        let mut view = StripeView { id: StripeId(1), code, layout, homes };
        let parity = place_parity(&mut view, topology, &BTreeSet::from([NodeId(4)])).unwrap();
        assert_eq!(parity, [2, 3, 4].map(BlockIndex));
        assert_eq!(view.homes[..3], [0, 1, 2].map(|i| Some(NodeId(i))));
        let others: BTreeSet<_> = view.homes[3..].iter().flatten().map(|n| n.0).collect();
        assert_eq!(others, BTreeSet::from([5, 6]));
    }
}
