//! What a read has learnt about nodes, blocks and links, shared by its portions.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{Node, Rates, Topology};
use kintsu_wire::message::{Fault, FaultKind, NodeAddress};
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::ClientError;
use crate::late::{Late, Learnt};
use crate::stripe::Nodes;

/// How long a read waits for the rates of links. It can plan without them.
const RATES_WITHIN: Duration = Duration::from_secs(2);

/// How long a read avoids a node that was slow, before it tries the node again; doubled each time.
const ASIDE: Duration = Duration::from_secs(10);

/// Nodes and blocks that a read avoids.
#[derive(Debug)]
pub(crate) struct Avoid {
    state: Mutex<State>,
    /// The rates of links that the coordinator knows; fetched when something must be decoded.
    rates: OnceCell<Rates>,
    begun: Instant,
    learnt: Mutex<Learnt>,
}

#[derive(Debug)]
struct State {
    /// Nodes that were slow, and how often.
    slow: BTreeMap<NodeId, (Aside, u32)>,
    /// Those of them whose blocks were not read for that reason.
    left_aside: BTreeSet<NodeId>,
    nodes: Nodes,
    /// Nodes that failed, and how at last.
    shunned: BTreeMap<NodeId, String>,
    /// Blocks that were bad, and how at last.
    bad: BTreeMap<(BlockId, NodeId), String>,
    /// Last resort: nodes count as alive until tried, even if the coordinator reports them dead.
    desperate: bool,
}

/// A slow node that a read avoids for a while.
#[derive(Debug, Clone, Copy)]
struct Aside {
    late: Late,
    until: Instant,
}

impl Avoid {
    /// `rates`: those of the links, if the coordinator's answer had them. `answered`: how long that answer took.
    pub(crate) fn new(nodes: Nodes, rates: Option<Rates>, answered: Duration) -> Self {
        let state = State {
            nodes,
            slow: BTreeMap::new(),
            left_aside: BTreeSet::new(),
            shunned: BTreeMap::new(),
            bad: BTreeMap::new(),
            desperate: false,
        };
        let state = Mutex::new(state);
        let (begun, learnt) = (Instant::now(), Mutex::new(Learnt::new(answered)));
        Self { state, rates: OnceCell::new_with(rates), begun, learnt }
    }

    /// Seconds since the read began.
    pub(crate) fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// What is known of the sources.
    pub(crate) fn learnt(&self) -> MutexGuard<'_, Learnt> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Avoids a node that was late, for a while.
    pub(crate) fn leave_aside(&self, late: Late) {
        self.learnt().changed(&late, self.now());
        let mut state = self.state();
        let times = state.slow.get(&late.node).map_or(0, |(_, times)| *times);
        let until = Instant::now() + ASIDE * 2u32.saturating_pow(times.min(10));
        state.slow.insert(late.node, (Aside { late, until }, times + 1));
    }

    /// Avoids those of the nodes that the coordinator knows to be slow senders.
    pub(crate) fn known_to_be_slow(&self, nodes: &BTreeSet<NodeId>) {
        let Some(rates) = self.rates.get() else { return };
        let until = Instant::now() + ASIDE;
        let aside = rates.slow_senders(nodes).into_iter().map(|slow| {
            let (rate, expected) = (slow.rate.get() as f64, Some(slow.median.get() as f64));
            let late = Late { node: slow.node, rate, expected };
            (slow.node, (Aside { late, until }, 1))
        });
        self.state().slow.extend(aside);
    }

    /// The nodes to avoid if that is possible, the slowest first.
    pub(crate) fn slow(&self) -> Vec<Late> {
        let (state, now) = (self.state(), Instant::now());
        let aside = state.slow.values().filter(|(aside, _)| aside.until > now);
        let mut slow: Vec<Late> = aside.map(|(aside, _)| aside.late).collect();
        slow.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        slow
    }

    /// Blocks of this node are not read, because it is slow.
    pub(crate) fn note_left_aside(&self, node: NodeId) {
        self.state().left_aside.insert(node);
    }

    /// All nodes whose blocks were not read because they were slow.
    pub(crate) fn left_aside(&self) -> BTreeSet<NodeId> {
        self.state().left_aside.clone()
    }

    /// Whether a block may be read on a node, as far as this read knows.
    pub(crate) fn usable(&self, block: BlockId, node: NodeId) -> bool {
        self.why_not(block, node).is_none()
    }

    /// Why a block cannot be read on a node, as far as this read knows; `None` if it can.
    pub(crate) fn why_not(&self, block: BlockId, node: NodeId) -> Option<String> {
        let state = self.state();
        let failed = state.bad.get(&(block, node)).or_else(|| state.shunned.get(&node)).cloned();
        let alive = state.nodes.get(&node).is_some_and(|n| n.alive || state.desperate);
        failed.or_else(|| (!alive).then(|| format!("{node} counts as dead")))
    }

    /// Where a node listens.
    pub(crate) fn address(&self, node: NodeId) -> Option<NodeAddress> {
        self.state().nodes.get(&node).cloned()
    }

    /// The nodes as planners see them, with the rates of links if known.
    pub(crate) fn topology(&self) -> Topology {
        let state = self.state();
        let node = |n: &NodeAddress| Node { rack: n.rack, usable: n.alive, used_bytes: 0, room_bytes: None };
        let nodes = state.nodes.iter().map(|(id, n)| (*id, node(n))).collect();
        Topology { nodes, rates: self.rates.get().cloned().unwrap_or_default() }
    }

    /// Fetches the rates of links, if they are not known yet. If the coordinator does not answer, the read goes on without them.
    pub(crate) async fn learn_rates(&self, ask: impl Future<Output = Result<Rates, ClientError>>) {
        let asked = async {
            match tokio::time::timeout(RATES_WITHIN, ask).await {
                Ok(Ok(rates)) => rates,
                Ok(Err(error)) => {
                    tracing::debug!("reading without rates of links: {error}");
                    Rates::default()
                }
                Err(_) => {
                    tracing::debug!("reading without rates of links: no answer within {RATES_WITHIN:?}");
                    Rates::default()
                }
            }
        };
        self.rates.get_or_init(|| asked).await;
    }

    /// Avoids the node or block that a fault names; false if that is nothing new.
    pub(crate) fn blame(&self, fault: &Fault) -> bool {
        if fault.node.is_client() {
            return false;
        }
        let mut state = self.state();
        match (fault.kind, fault.block) {
            (FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale | FaultKind::Io, Some(block)) => {
                state.bad.insert((block, fault.node), fault.to_string()).is_none()
            }
            (FaultKind::Aborted, _) => false,
            _ => state.shunned.insert(fault.node, fault.to_string()).is_none(),
        }
    }

    /// Takes the coordinator's present list of nodes.
    pub(crate) fn refresh(&self, nodes: Nodes) {
        self.state().nodes = nodes;
    }

    /// Whether nodes are tried even if the coordinator reports them dead.
    pub(crate) fn is_desperate(&self) -> bool {
        self.state().desperate
    }

    /// When too few blocks are left: gives every node another chance, even those that the coordinator reports dead
    /// (it may have just started). Done once; false if the failed plan `was_desperate` already.
    pub(crate) fn forgive(&self, was_desperate: bool) -> bool {
        let mut state = self.state();
        if !state.desperate {
            state.desperate = true;
            state.shunned.clear();
        }
        !was_desperate
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::{BlockIndex, RackId, StripeId};

    use super::*;
    use crate::stripe::by_id;

    fn fault(kind: FaultKind, node: u32, block: Option<BlockId>) -> Fault {
        Fault { kind, node: NodeId(node), block, detail: String::new() }
    }

    #[test]
    fn a_bad_block_spares_its_node_and_a_lost_node_loses_all() {
        let node = |id, alive| NodeAddress {
            id: NodeId(id),
            rack: RackId(0),
            control: "127.0.0.1:1".parse().unwrap(),
            data: "127.0.0.1:2".parse().unwrap(),
            alive,
            older: None,
        };
        let block = |i| BlockId { stripe: StripeId(1), index: BlockIndex(i) };
        let avoid =
            Avoid::new(by_id(vec![node(1, true), node(2, true), node(3, false)]), None, Duration::ZERO);
        assert!(avoid.usable(block(0), NodeId(1)) && !avoid.usable(block(0), NodeId(3)));
        assert!(avoid.blame(&fault(FaultKind::Corrupt, 1, Some(block(0)))));
        assert!(!avoid.blame(&fault(FaultKind::Corrupt, 1, Some(block(0)))));
        assert!(!avoid.usable(block(0), NodeId(1)) && avoid.usable(block(1), NodeId(1)));
        assert!(avoid.blame(&fault(FaultKind::Lost, 2, None)));
        assert!(!avoid.usable(block(1), NodeId(2)));
        assert!(avoid.forgive(false) && avoid.is_desperate() && !avoid.forgive(true));
        assert!(avoid.usable(block(1), NodeId(2)) && !avoid.usable(block(0), NodeId(1)));
        assert!(avoid.usable(block(0), NodeId(3)));
        assert!(avoid.blame(&fault(FaultKind::Lost, 3, None)));
        assert!(!avoid.usable(block(0), NodeId(3)));
        let why = |b, node| avoid.why_not(block(b), NodeId(node));
        assert_eq!(why(0, 1).unwrap(), "Corrupt on N1: ");
        assert_eq!((why(1, 1), why(1, 2)), (None, None));
        assert_eq!(why(1, 3).unwrap(), "Lost on N3: ");
        assert_eq!(why(1, 4).unwrap(), "N4 counts as dead");
    }
}
