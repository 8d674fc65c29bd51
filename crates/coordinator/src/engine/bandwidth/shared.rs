//! What the agents that share an interface or a disk have moved together in the background.
//!
//! The kernel counts for whole interfaces and disks. What users moved there is the rest after the background work of all agents
//! there, which tell at different times. Between its heartbeats an agent is taken to go on as between the last two, for no
//! longer than these were apart, and the next one corrects that. So the sum is wrong only for agents whose work has just begun or
//! ended, by at most what they move between two heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kintsu_dag::{NodeId, RackId};

use super::Flows;

/// Where an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its rack.
    pub rack: RackId,
    /// Its data address: agents with the same one share an interface.
    pub address: IpAddr,
    /// A number for its file system: agents with the same one share a disk. `None` if not known.
    pub medium: Option<u64>,
}

/// Something for which the kernel counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meter {
    Interface(IpAddr),
    Disk(u64),
}

impl Place {
    /// What counts the bytes that go this way.
    fn meter(&self, way: usize) -> Option<Meter> {
        if way < 2 { Some(Meter::Interface(self.address)) } else { self.medium.map(Meter::Disk) }
    }
}

/// What agents have told of their background work, and what they share.
#[derive(Debug, Default)]
pub struct Background {
    told: BTreeMap<NodeId, Told>,
    places: BTreeMap<NodeId, Place>,
    sharers: BTreeMap<Meter, BTreeSet<NodeId>>,
}

/// The background work of one agent, by its heartbeats.
#[derive(Debug, Default)]
struct Told {
    /// When the last one came, and the time between it and the one before, in milliseconds.
    at_ms: u64,
    took_ms: u64,
    /// What was moved since the first one, in bytes.
    bytes: Flows,
    /// What was moved between the last two, in bytes a millisecond.
    rate: Flows,
}

impl Told {
    /// What it has probably moved by now.
    fn by(&self, now_ms: u64, way: usize) -> f64 {
        let since_ms = now_ms.saturating_sub(self.at_ms).min(self.took_ms);
        self.bytes[way] + self.rate[way] * since_ms as f64
    }
}

impl Background {
    /// Where an agent is now. Returns whether that is another place than before: then what it told does not count here.
    pub fn placed(&mut self, node: NodeId, place: Place) -> bool {
        if self.place(node) == Some(place) {
            return false;
        }
        self.forget(node);
        self.places.insert(node, place);
        for meter in [0, 2].into_iter().filter_map(|way| place.meter(way)) {
            self.sharers.entry(meter).or_default().insert(node);
        }
        true
    }

    /// Where an agent is, if that was told.
    pub fn place(&self, node: NodeId) -> Option<Place> {
        self.places.get(&node).copied()
    }

    /// Whether other agents are known to use this one's disk too.
    pub fn shares_disk(&self, node: NodeId) -> bool {
        let meter = self.place(node).and_then(|place| place.meter(2));
        meter.and_then(|meter| self.sharers.get(&meter)).is_some_and(|agents| agents.len() > 1)
    }

    /// An agent is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.told.remove(&node);
        self.places.remove(&node);
        self.sharers.retain(|_, agents| {
            agents.remove(&node);
            !agents.is_empty()
        });
    }

    /// An agent has told that it moved these bytes in the `took_ms` milliseconds before; 0 if it has just started.
    pub fn told(&mut self, node: NodeId, now_ms: u64, took_ms: u64, moved: [u64; 4]) {
        let told = self.told.entry(node).or_default();
        (told.at_ms, told.took_ms) = (now_ms, took_ms);
        for (way, bytes) in moved.into_iter().enumerate() {
            told.bytes[way] += bytes as f64;
            told.rate[way] = bytes as f64 / took_ms.max(1) as f64;
        }
    }

    /// What all agents that share this one's interface and disk have moved by now, itself included: bytes since some moment.
    /// It may become less when one of them was taken to go on and did not, or is forgotten.
    pub fn all(&self, node: NodeId, now_ms: u64) -> Flows {
        let alone = BTreeSet::from([node]);
        let place = self.place(node);
        std::array::from_fn(|way| {
            let meter = place.and_then(|place| place.meter(way));
            let agents = meter.and_then(|meter| self.sharers.get(&meter)).unwrap_or(&alone);
            let told = agents.iter().filter_map(|agent| self.told.get(agent));
            told.map(|told| told.by(now_ms, way)).sum()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: u8, medium: Option<u64>) -> Place {
        Place { rack: RackId(0), address: [10, 0, 0, host].into(), medium }
    }

    #[test]
    fn an_agent_goes_on_until_its_next_heartbeat_is_due() {
        let (mut it, node) = (Background::default(), NodeId(1));
        let up = |it: &Background, now_ms| it.all(node, now_ms)[0];
        assert_eq!(up(&it, 500), 0.0);
        it.told(node, 1000, 0, [0; 4]);
        it.told(node, 2000, 1000, [4000, 0, 0, 0]);
        assert_eq!(
            [1900, 2000, 2500, 3000, 9000].map(|now_ms| up(&it, now_ms)),
            [4000.0, 4000.0, 6000.0, 8000.0, 8000.0]
        );
        // It had ended.
        it.told(node, 3100, 1000, [0; 4]);
        assert_eq!(up(&it, 3500), 4000.0);
        // It starts again.
        it.told(node, 5000, 0, [700, 0, 0, 0]);
        assert_eq!(up(&it, 6000), 4700.0);
    }

    #[test]
    fn agents_share_what_has_one_address_or_one_number() {
        let mut it = Background::default();
        let [a, b, c, d] = [1, 2, 3, 4].map(NodeId);
        let places =
            [(a, place(1, Some(1))), (b, place(1, Some(2))), (c, place(2, Some(2))), (d, place(3, None))];
        for (node, place) in places {
            assert!(it.placed(node, place) && !it.placed(node, place));
            it.told(node, 1000, 1000, [1, 10, 100, 1000].map(|bytes: u64| bytes << (4 * node.0)));
        }
        let all = |it: &Background, node| it.all(node, 1000).map(|bytes| bytes as u64);
        assert_eq!(all(&it, a), [0x110, 0x110 * 10, 0x10 * 100, 0x10 * 1000]);
        assert_eq!(all(&it, b), [0x110, 0x110 * 10, 0x1100 * 100, 0x1100 * 1000]);
        assert_eq!(all(&it, c), [0x1000, 0x1000 * 10, 0x1100 * 100, 0x1100 * 1000]);
        assert_eq!(all(&it, d), [0x10000, 0x10000 * 10, 0x10000 * 100, 0x10000 * 1000]);
        assert_eq!([a, b, c, d].map(|node| it.shares_disk(node)), [false, true, true, false]);
        // What an agent moved elsewhere does not count where it comes to.
        assert!(it.placed(c, place(1, Some(2))));
        assert_eq!((all(&it, a)[0], all(&it, b)[2]), (0x110, 0x100 * 100));
        it.forget(b);
        assert_eq!((all(&it, a)[0], it.place(b)), (0x10, None));
    }
}
