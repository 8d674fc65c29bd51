//! The description of a lab: nodes in racks, the rate of each link, and when rates change.
//!
//! A value of this type is made from a file ([`Spec::from_toml`]) or in code ([`Spec::even`] and its fields), and
//! checked once, by [`Spec::check`], before anything is built. It is not a planner's view; [`Spec::rates`] gives
//! that.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::time::Duration;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::{Link, Node, Rates, Topology};

use crate::error::{LabError, Result};
use crate::quantity::Rate;

/// The most nodes that a lab may have; a bridge has 1024 ports.
pub const MOST_NODES: usize = 1000;

/// The most limits towards other nodes that one node may have.
const MOST_PAIRS: usize = 1000;

/// The rates of both directions of a link; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rated {
    /// The rate towards the core.
    pub up: Option<Rate>,
    /// The rate from the core.
    pub down: Option<Rate>,
}

impl From<Option<Rate>> for Rated {
    fn from(rate: Option<Rate>) -> Self {
        Self { up: rate, down: rate }
    }
}

/// One node of a lab. Its place in [`Spec::nodes`] is its `NodeId`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSpec {
    /// Its rack.
    pub rack: RackId,
    /// Its link to the rack's switch.
    pub link: Rated,
}

/// A rate that changes while the lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The time since the changes were started.
    pub at: Duration,
    /// Which link.
    pub link: Link,
    /// The rate from then on; `None`: unlimited.
    pub rate: Option<Rate>,
}

/// How a link is shaped, apart from its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes that may pass at once after a pause. `None`: the bytes of 4.2 ms at the rate, but at least 64 KiB and
    /// at most 256 KiB.
    pub burst: Option<u64>,
    /// How long a packet may wait in the queue before packets are dropped.
    pub latency: Duration,
}

impl Default for Shape {
    fn default() -> Self {
        Self { burst: None, latency: Duration::from_millis(100) }
    }
}

/// The description of a lab.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    /// The nodes, by `NodeId`.
    pub nodes: Vec<NodeSpec>,
    /// The links of racks to the core, by `RackId`.
    pub racks: Vec<Rated>,
    /// Limits from one node to another, within the uplink of the first and the downlink of the second.
    pub pairs: BTreeMap<(NodeId, NodeId), Rate>,
    /// The changes during a run, see [`crate::Lab::start_changes`].
    pub changes: Vec<Change>,
    /// How links are shaped.
    pub shape: Shape,
}

impl Spec {
    /// `nodes` nodes, dealt in turn to `racks` racks. Every node's link has this rate in both directions; racks'
    /// links are unlimited.
    pub fn even(nodes: u32, racks: u32, rate: Option<Rate>) -> Self {
        let of = |id| NodeSpec { rack: RackId(id % racks.max(1)), link: rate.into() };
        Self {
            nodes: (0..nodes).map(of).collect(),
            racks: vec![Rated::default(); racks as usize],
            ..Self::default()
        }
    }

    /// One node for each entry, in the rack that it names: `&[0, 0, 0, 1, 1, 1]`; otherwise as [`Spec::even`].
    pub fn in_racks(racks: &[u32], rate: Option<Rate>) -> Self {
        let count = racks.iter().max().map_or(0, |&last| last as usize + 1);
        Self {
            nodes: racks.iter().map(|&rack| NodeSpec { rack: RackId(rack), link: rate.into() }).collect(),
            racks: vec![Rated::default(); count],
            ..Self::default()
        }
    }

    /// The description in a file; see `docs/examples/lab-*.toml`.
    ///
    /// # Errors
    /// `Invalid`, with what was expected and what is there.
    pub fn from_toml(text: &str) -> Result<Self> {
        crate::file::parse(text)
    }

    /// Sets every rack's link to this rate in both directions.
    #[must_use]
    pub fn with_rack_links(mut self, rate: Option<Rate>) -> Self {
        self.racks.fill(rate.into());
        self
    }

    /// Limits between nodes by their groups (racks, regions): from a node of group `a` to one of group `b` at most
    /// `rates[a][b]` (square, row-major; `None`: no limit). Existing limits stay where the matrix has none.
    ///
    /// # Errors
    /// `Invalid` unless there is a group for each node and a row and column for each group.
    pub fn with_pair_rates(mut self, groups: &[usize], rates: &[Vec<Option<Rate>>]) -> Result<Self> {
        if groups.len() != self.nodes.len() {
            let expected = format!("{}, one for each node", self.nodes.len());
            return Err(LabError::invalid("groups of nodes", expected, groups.len()));
        }
        let needed = groups.iter().max().map_or(0, |last| last + 1);
        if rates.len() < needed || rates.iter().any(|row| row.len() != rates.len()) {
            let got: Vec<usize> = rates.iter().map(Vec::len).collect();
            let expected = format!("a square matrix of {needed} groups or more");
            return Err(LabError::invalid("rates of pairs", expected, format_args!("rows of {got:?}")));
        }
        for (from, &a) in groups.iter().enumerate() {
            for (to, &b) in groups.iter().enumerate().filter(|&(to, _)| to != from) {
                if let Some(rate) = rates[a][b] {
                    self.pairs.insert((NodeId(from as u32), NodeId(to as u32)), rate);
                }
            }
        }
        Ok(self)
    }

    /// Multiplies all rates, including those of changes, by `factor`.
    ///
    /// # Errors
    /// `Invalid` when a rate leaves the range of [`Rate::bits`].
    pub fn scaled(mut self, factor: f64) -> Result<Self> {
        let links = self.nodes.iter_mut().map(|node| &mut node.link).chain(&mut self.racks);
        let both = links.flat_map(|link| [&mut link.up, &mut link.down]);
        let changed = self.changes.iter_mut().map(|change| &mut change.rate);
        let pairs = self.pairs.values_mut();
        for rate in both.chain(changed).flatten().chain(pairs) {
            *rate = rate.scaled(factor)?;
        }
        Ok(self)
    }

    /// The ids of all nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The rates of links at the start, in bytes a second, headers included.
    pub fn rates(&self) -> Rates {
        self.rates_as(Rate::bytes)
    }

    /// The topology as planners and the simulator see it: all nodes usable and empty, and links with their payload
    /// rates (see [`Rate::payload`]), because plans count payload.
    pub fn topology(&self) -> Topology {
        let node = |(id, node): (NodeId, &NodeSpec)| {
            (id, Node { rack: node.rack, usable: true, used_bytes: 0, room_bytes: None })
        };
        let payload = |rate: Rate| NonZeroU64::new(rate.payload() as u64).unwrap_or(NonZeroU64::MIN);
        Topology {
            nodes: self.node_ids().zip(&self.nodes).map(node).collect(),
            rates: self.rates_as(payload),
        }
    }

    fn rates_as(&self, bytes: impl Fn(Rate) -> NonZeroU64) -> Rates {
        let ids = || self.node_ids().zip(&self.nodes);
        let racks = || (0..).map(RackId).zip(&self.racks);
        Rates {
            up: ids().filter_map(|(id, node)| Some((id, bytes(node.link.up?)))).collect(),
            down: ids().filter_map(|(id, node)| Some((id, bytes(node.link.down?)))).collect(),
            rack_up: racks().filter_map(|(id, rack)| Some((id, bytes(rack.up?)))).collect(),
            rack_down: racks().filter_map(|(id, rack)| Some((id, bytes(rack.down?)))).collect(),
            pairs: self.pairs.iter().map(|(&pair, &rate)| (pair, bytes(rate))).collect(),
        }
    }

    /// Changes the rate of a link.
    ///
    /// # Errors
    /// `Invalid` for a link that is not there.
    pub fn set_rate(&mut self, link: Link, rate: Option<Rate>) -> Result<()> {
        self.check_link(link)?;
        match link {
            Link::NodeUp(node) => self.nodes[node.0 as usize].link.up = rate,
            Link::NodeDown(node) => self.nodes[node.0 as usize].link.down = rate,
            Link::RackUp(rack) => self.racks[rack.0 as usize].up = rate,
            Link::RackDown(rack) => self.racks[rack.0 as usize].down = rate,
            Link::Pair(from, to) => {
                match rate {
                    Some(rate) => self.pairs.insert((from, to), rate),
                    None => self.pairs.remove(&(from, to)),
                };
            }
            Link::DiskRead(_) | Link::DiskWrite(_) => {}
        }
        Ok(())
    }

    /// Checks that everything that the description names exists.
    ///
    /// # Errors
    /// `Invalid`, with what was expected and what is there.
    pub fn check(&self) -> Result<()> {
        if !(1..=MOST_NODES).contains(&self.nodes.len()) {
            return Err(LabError::invalid("nodes", format!("1 to {MOST_NODES}"), self.nodes.len()));
        }
        for (id, node) in self.node_ids().zip(&self.nodes) {
            if node.rack.0 as usize >= self.racks.len() {
                let expected = format!("a rack below {}", self.racks.len());
                return Err(LabError::invalid(format!("rack of node {}", id.0), expected, node.rack.0));
            }
        }
        let used: BTreeSet<_> = self.nodes.iter().map(|node| node.rack).collect();
        if used.len() != self.racks.len() {
            return Err(LabError::invalid("racks", "every rack with a node", self.racks.len()));
        }
        self.pairs.keys().try_for_each(|&(from, to)| self.check_link(Link::Pair(from, to)))?;
        self.changes.iter().try_for_each(|change| self.check_link(change.link))?;
        for id in self.node_ids() {
            let limits = self.limited_peers(id).len();
            if limits > MOST_PAIRS {
                let what = format!("limits of node {}", id.0);
                return Err(LabError::invalid(what, format!("at most {MOST_PAIRS}"), limits));
            }
        }
        Ok(())
    }

    /// The nodes towards which `from` has a limit of its own, or gets one by a change.
    pub(crate) fn limited_peers(&self, from: NodeId) -> BTreeSet<NodeId> {
        let now = self.pairs.range((from, NodeId(0))..=(from, NodeId(u32::MAX))).map(|(&(_, to), _)| to);
        let later = self.changes.iter().filter_map(|change| match change.link {
            Link::Pair(a, to) if a == from => Some(to),
            _ => None,
        });
        now.chain(later).collect()
    }

    fn check_link(&self, link: Link) -> Result<()> {
        let node = |id: NodeId| (id.0 as usize) < self.nodes.len();
        let rack = |id: RackId| (id.0 as usize) < self.racks.len();
        let there = match link {
            Link::NodeUp(id) | Link::NodeDown(id) => node(id),
            Link::RackUp(id) | Link::RackDown(id) => rack(id),
            Link::Pair(from, to) => node(from) && node(to) && from != to,
            // A lab shapes no disks.
            Link::DiskRead(_) | Link::DiskWrite(_) => false,
        };
        if there {
            return Ok(());
        }
        let (nodes, racks) = (self.nodes.len(), self.racks.len());
        let expected = format!("a link of different nodes below {nodes} or racks below {racks}");
        Err(LabError::invalid("link", expected, link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn rates_reach_planners_in_bytes() {
        let mut spec = Spec::in_racks(&[0, 0, 1], rate("80Mb/s")).with_rack_links(rate("8Mb/s"));
        spec.set_rate(Link::NodeUp(NodeId(2)), rate("800kb/s")).unwrap();
        spec.set_rate(Link::NodeDown(NodeId(1)), None).unwrap();
        spec.set_rate(Link::Pair(NodeId(0), NodeId(1)), rate("16Mb/s")).unwrap();
        spec.check().unwrap();
        let rates = spec.rates();
        assert_eq!(rates.up[&NodeId(0)].get(), 10_000_000);
        assert_eq!(rates.up[&NodeId(2)].get(), 100_000);
        assert_eq!(rates.down.get(&NodeId(1)), None);
        assert_eq!(rates.rack_down[&RackId(1)].get(), 1_000_000);
        assert_eq!(rates.pairs[&(NodeId(0), NodeId(1))].get(), 2_000_000);
        let topology = spec.topology();
        assert_eq!(topology.rack(NodeId(2)), Some(RackId(1)));
        let payload = topology.rates.up[&NodeId(0)].get();
        assert_eq!(payload, 10_000_000 * 8948 / 9014, "a frame of 9014 bytes carries 8948");
        assert_eq!(spec.scaled(0.5).unwrap().rates().pairs[&(NodeId(0), NodeId(1))].get(), 1_000_000);
    }

    #[test]
    fn a_matrix_of_groups_becomes_limits_of_pairs() {
        let matrix = vec![vec![None, rate("10Mb/s")], vec![rate("20Mb/s"), rate("90Mb/s")]];
        let spec = Spec::even(4, 2, None).with_pair_rates(&[0, 1, 0, 1], &matrix).unwrap();
        let of = |a, b| spec.pairs.get(&(NodeId(a), NodeId(b))).copied();
        assert_eq!(of(0, 2), None);
        assert_eq!(of(0, 3), rate("10Mb/s"));
        assert_eq!(of(1, 2), rate("20Mb/s"));
        assert_eq!(of(3, 1), rate("90Mb/s"));
        assert_eq!(of(1, 1), None);
        for (groups, matrix) in [
            (&[0, 1][..], matrix.clone()),
            (&[0, 1, 2, 0], matrix),
            (&[0, 0, 0, 1], vec![vec![None], vec![None]]),
        ] {
            let error = Spec::even(4, 2, None).with_pair_rates(groups, &matrix).unwrap_err();
            assert!(error.to_string().contains("expected"), "{error}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        assert!(Spec::even(0, 1, None).check().is_err());
        assert!(Spec::even(1001, 1, None).check().is_err());
        assert!(Spec::in_racks(&[0, 2], None).check().is_err());
        assert!(Spec::even(2, 3, None).check().is_err());
        let mut spec = Spec::even(3, 1, None);
        for link in ["node 3 up", "rack 1 down", "node 0 to 0", "node 0 to 7", "disk 0 read"] {
            let error = spec.set_rate(link.parse().unwrap(), rate("1Mb/s")).unwrap_err();
            assert!(error.to_string().contains(link), "{error}");
        }
        let change = Change { at: Duration::ZERO, link: Link::RackUp(RackId(4)), rate: None };
        spec.changes.push(change);
        assert!(spec.check().is_err());
    }
}
