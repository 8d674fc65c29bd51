//! Decides who may write to a volume, and which nodes log the updates of a block.
//!
//! A writer has a lease, which ends if it is not renewed. Who takes over gets a newer epoch. The leases are not durable: after
//! a restart of the coordinator each recorded writer has a full lease again.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::update::{Scheme, interim_home};
use kintsu_plan::{StripeView, Topology};
use kintsu_wire::PROTOCOL_VERSION;

/// Who writes to which volume, and until when.
#[derive(Debug, Clone, Default)]
pub struct VolumeLeases {
    lease_ms: u64,
    /// By volume.
    held: BTreeMap<u64, Lease>,
}

/// Who writes to a volume.
#[derive(Debug, Clone, Copy)]
struct Lease {
    writer: u64,
    end_ms: u64,
    /// The newest version of the protocol that the writer speaks; 0 if it has not said it since the coordinator started.
    version: u32,
}

impl VolumeLeases {
    /// Leases for these (volume, writer), each with the full time from now.
    pub fn new(lease_ms: u64, writers: impl IntoIterator<Item = (u64, u64)>, now_ms: u64) -> Self {
        let end_ms = now_ms + lease_ms;
        let lease = |(volume, writer)| (volume, Lease { writer, end_ms, version: 0 });
        Self { lease_ms, held: writers.into_iter().map(lease).collect() }
    }

    /// How long a lease is without renewal.
    pub fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Whether somebody else than `writer` has a lease: for how many milliseconds more.
    pub fn other(&self, volume: u64, writer: u64, now_ms: u64) -> Option<u64> {
        let lease = self.held.get(&volume)?;
        (lease.writer != writer && lease.end_ms > now_ms).then(|| lease.end_ms - now_ms)
    }

    /// Gives the lease to a writer.
    pub fn grant(&mut self, volume: u64, writer: u64, now_ms: u64) {
        let end_ms = now_ms + self.lease_ms;
        self.held.insert(volume, Lease { writer, end_ms, version: PROTOCOL_VERSION });
    }

    /// The writer has called, and speaks this version of the protocol at most.
    pub fn speaks(&mut self, volume: u64, writer: u64, version: u32) {
        if let Some(lease) = self.held.get_mut(&volume).filter(|lease| lease.writer == writer) {
            lease.version = version;
        }
    }

    /// Whether all that write now speak this version or a later one.
    pub fn all_speak(&self, version: u32, now_ms: u64) -> bool {
        self.held.values().all(|lease| lease.version >= version || lease.end_ms <= now_ms)
    }

    /// The writer goes on. Returns false if it is not the writer any more. A lease that ran out and that nobody took goes on
    /// too.
    pub fn renew(&mut self, volume: u64, writer: u64, now_ms: u64) -> bool {
        match self.held.get_mut(&volume) {
            Some(lease) if lease.writer == writer => {
                lease.end_ms = now_ms + self.lease_ms;
                true
            }
            _ => false,
        }
    }

    /// Whether this is the writer.
    pub fn is_writer(&self, volume: u64, writer: u64) -> bool {
        self.held.get(&volume).is_some_and(|lease| lease.writer == writer)
    }

    /// The writer has ended; returns whether it was the writer.
    pub fn end(&mut self, volume: u64, writer: u64) -> bool {
        let ends = self.is_writer(volume, writer);
        if ends {
            self.held.remove(&volume);
        }
        ends
    }

    /// Whether somebody has a lease now.
    pub fn is_held(&self, volume: u64, now_ms: u64) -> bool {
        self.held.get(&volume).is_some_and(|lease| lease.end_ms > now_ms)
    }
}

/// What is known when the log of a block gets new nodes.
#[derive(Debug)]
pub struct Logged<'a> {
    /// The stripe; a block whose home does not answer has none.
    pub view: &'a StripeView,
    /// The nodes; those that do not answer are not usable.
    pub topology: &'a Topology,
    /// Replicas besides the home, at least.
    pub replicas: usize,
    /// Nodes that are to have one if they are usable.
    pub parities: &'a [NodeId],
    /// Nodes that have the log as it was acknowledged, in the same role as before.
    pub sound: &'a [NodeId],
    /// A node that must not be a replica: the home that the block leaves.
    pub leaves: Option<NodeId>,
}

impl Logged<'_> {
    /// The nodes that log the updates of `block` from now on: its home first if it answers, those that are to have a replica,
    /// nodes that have its log, then others. They are not all in one rack, if there are others.
    ///
    /// # Errors
    /// Too few nodes are usable: how many are needed and how many there are.
    pub fn nodes(&self, block: BlockIndex) -> Result<Vec<NodeId>, (usize, usize)> {
        let usable = |node: &NodeId| self.topology.nodes.get(node).is_some_and(|known| known.usable);
        let home = self.view.homes.get(usize::from(block.0)).copied().flatten().filter(usable);
        let may = |node: &NodeId| usable(node) && Some(*node) != home && self.leaves != Some(*node);
        let mut nodes: Vec<NodeId> = home.into_iter().collect();
        nodes.extend(self.parities.iter().filter(|node| may(node)));
        let far = |from: Option<NodeId>, node: &NodeId| {
            from.is_none_or(|from| self.topology.across_racks(from, *node))
        };
        let is_near = |nodes: &[NodeId]| !nodes.iter().any(|node| far(nodes.first().copied(), node));
        // Parities may all be in the rack of the home; then one more, if there are other racks.
        let more = nodes.len() > 1
            && is_near(&nodes)
            && self.topology.nodes.keys().any(|node| may(node) && far(nodes.first().copied(), node));
        let wanted = (nodes.len() + usize::from(more)).max(self.replicas + 1);
        let mut others: Vec<NodeId> = self.sound.to_vec();
        if home.is_some()
            && let Ok(Some(interim)) = interim_home(self.view, self.topology, block, Scheme::Optimal)
        {
            others.push(interim.node);
        }
        // Other racks first, then homes of the stripe: they need the updates at a commit. From a different one for each
        // block.
        let of_stripe: BTreeSet<NodeId> = self.view.homes.iter().copied().flatten().collect();
        let mut all: Vec<NodeId> = self.topology.nodes.keys().copied().collect();
        let turn = usize::from(block.0) % all.len().max(1);
        all.rotate_left(turn);
        let first = home.or(self.sound.first().copied());
        all.sort_by_key(|node| (!far(first, node), !of_stripe.contains(node)));
        others.extend(all);
        others.retain(may);
        while nodes.len() < wanted {
            let first = nodes.first().copied();
            let mut free = others.iter().copied().filter(|node| !nodes.contains(node));
            // Whoever has the log already may be beside the home: a rack fails as a whole.
            let next = match is_near(&nodes) {
                true => free.clone().find(|node| far(first, node)).or_else(|| free.next()),
                false => free.next(),
            };
            let Some(next) = next else { return Err((wanted, nodes.len())) };
            nodes.push(next);
        }
        Ok(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::RackId;
    use kintsu_plan::Node;

    #[test]
    fn one_writer_at_a_time_until_its_lease_runs_out() {
        let mut leases = VolumeLeases::new(10, [(1, 7)], 100);
        assert_eq!(
            (leases.other(1, 8, 104), leases.other(1, 7, 104), leases.other(2, 8, 0)),
            (Some(6), None, None)
        );
        assert!(leases.renew(1, 7, 105) && !leases.renew(1, 8, 105) && !leases.renew(2, 8, 105));
        assert_eq!((leases.other(1, 8, 114), leases.other(1, 8, 115)), (Some(1), None));
        assert!(leases.renew(1, 7, 200), "nobody has taken it");
        leases.grant(1, 8, 300);
        assert!(!leases.renew(1, 7, 300) && leases.is_held(1, 309) && !leases.is_held(1, 310));
        assert!(!leases.end(1, 7) && leases.end(1, 8) && !leases.is_writer(1, 8));
    }

    #[test]
    fn a_log_is_kept_at_home_and_in_another_rack() {
        let stripe = stripe("rs:n=6,k=4", &[]);
        let node =
            |i: u32| (NodeId(i), Node { rack: RackId(i / 2), usable: true, used_bytes: 0, room_bytes: None });
        let mut topology = Topology { nodes: (0..8).map(node).collect(), ..Topology::default() };
        let view = stripe.view(|_, _| true);
        let nodes = |topology: &Topology, replicas, sound: &[NodeId], leaves| {
            Logged { view: &view, topology, replicas, parities: &[], sound, leaves }.nodes(BlockIndex(1))
        };
        let two = nodes(&topology, 1, &[], None).unwrap();
        assert!(two[0] == NodeId(1) && two[1].0 > 1, "{two:?}");
        assert_eq!(nodes(&topology, 1, &[NodeId(7)], None).unwrap(), [NodeId(1), NodeId(7)]);
        assert_eq!(nodes(&topology, 2, &[], None).unwrap().len(), 3);
        // One that has the log is in the rack of the home, which may fail as a whole.
        assert_eq!(nodes(&topology, 1, &[NodeId(0), NodeId(7)], None).unwrap(), [NodeId(1), NodeId(7)]);
        let beside_home = nodes(&topology, 1, &[NodeId(0)], None).unwrap();
        assert!(beside_home[0] == NodeId(1) && beside_home[1].0 > 1, "{beside_home:?}");
        // Nodes with parities: in other racks, or in that of the home, where they are not enough.
        let beside = |parities: &[u32]| {
            let parities: Vec<NodeId> = parities.iter().map(|node| NodeId(*node)).collect();
            let (view, topology, sound) = (&view, &topology, &[NodeId(7)]);
            let logged = Logged { view, topology, replicas: 1, parities: &parities, sound, leaves: None };
            logged.nodes(BlockIndex(1)).unwrap()
        };
        assert_eq!(beside(&[4, 5]), [1, 4, 5].map(NodeId));
        assert_eq!(beside(&[0]), [1, 0, 7].map(NodeId));
        assert_eq!(beside(&[99]), [1, 7].map(NodeId), "that one is not there");
        // Without its home, and without a node that the block leaves.
        topology.nodes.get_mut(&NodeId(1)).unwrap().usable = false;
        let away = nodes(&topology, 1, &[NodeId(5)], None).unwrap();
        assert!(away[0] == NodeId(5) && away[1] != NodeId(1), "{away:?}");
        assert!(!nodes(&topology, 5, &[], Some(NodeId(5))).unwrap().contains(&NodeId(5)));
        let nowhere_yet = nodes(&topology, 1, &[], None).unwrap();
        assert!(topology.across_racks(nowhere_yet[0], nowhere_yet[1]), "{nowhere_yet:?}");
        assert_eq!(nodes(&topology, 9, &[], None), Err((10, 7)));
        // There is one rack alone.
        topology.nodes.retain(|node, _| node.0 < 2);
        topology.nodes.values_mut().for_each(|node| node.usable = true);
        assert_eq!(nodes(&topology, 1, &[], None).unwrap(), [NodeId(1), NodeId(0)]);
    }
}
