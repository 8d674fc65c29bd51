//! The links of a cluster and their rates.
//!
//! Only links with a rate are listed, because unlimited links delay nothing. A disk counts as a link that only its
//! node uses.

use std::collections::HashMap;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Topology;
use serde::Serialize;

use crate::Overheads;
use crate::transfers::Way;

/// Something with a rate that streams share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// What a node sends.
    NodeUp(NodeId),
    /// What a node receives.
    NodeDown(NodeId),
    /// What a rack sends to others.
    RackUp(RackId),
    /// What a rack receives from others.
    RackDown(RackId),
    /// From one node to another.
    Pair(NodeId, NodeId),
    /// What a node's disk reads.
    Read(NodeId),
    /// What a node's disk writes.
    Write(NodeId),
}

/// The links that have a rate, numbered.
#[derive(Debug, Clone)]
pub struct Network {
    links: Vec<Link>,
    numbers: HashMap<Link, u32>,
    capacity: Vec<f64>,
}

impl Network {
    /// The links of a topology, in bytes a second, and the disks of its nodes where they have rates.
    pub fn new(topology: &Topology, overheads: &Overheads) -> Self {
        let mut network = Self { links: Vec::new(), numbers: HashMap::new(), capacity: Vec::new() };
        let rates = &topology.rates;
        let nodes = rates.up.iter().map(|(&node, rate)| (Link::NodeUp(node), rate));
        let nodes = nodes.chain(rates.down.iter().map(|(&node, rate)| (Link::NodeDown(node), rate)));
        let racks = rates.rack_up.iter().map(|(&rack, rate)| (Link::RackUp(rack), rate));
        let racks = racks.chain(rates.rack_down.iter().map(|(&rack, rate)| (Link::RackDown(rack), rate)));
        let pairs = rates.pairs.iter().map(|(&(from, to), rate)| (Link::Pair(from, to), rate));
        for (link, rate) in nodes.chain(racks).chain(pairs) {
            network.add(link, rate.get() as f64);
        }
        for &node in topology.nodes.keys() {
            let disks = [(Link::Read(node), overheads.disk_read), (Link::Write(node), overheads.disk_write)];
            for (link, rate) in disks.into_iter().filter_map(|(link, rate)| Some((link, rate?))) {
                network.add(link, rate);
            }
        }
        network
    }

    fn add(&mut self, link: Link, rate: f64) {
        self.numbers.insert(link, self.links.len() as u32);
        self.links.push(link);
        self.capacity.push(rate);
    }

    /// The rate of each link, by number, in bytes a second.
    pub fn capacity(&self) -> &[f64] {
        &self.capacity
    }

    /// The link with this number.
    ///
    /// # Panics
    /// For a number that is not of this network.
    pub fn link(&self, number: u32) -> Link {
        self.links[number as usize]
    }

    /// The numbers of the links with a rate among those that a stream passes.
    pub(crate) fn numbered(&self, way: Way, topology: &Topology) -> impl Iterator<Item = u32> + '_ {
        passed(way, topology).filter_map(|link| self.numbers.get(&link).copied())
    }
}

/// All links that a stream passes, in order, with or without a rate. A client is in no rack: its link goes to the
/// core.
pub(crate) fn passed(way: Way, topology: &Topology) -> impl Iterator<Item = Link> + use<> {
    let links = match way {
        Way::Read(node) => [Some(Link::Read(node)), None, None, None, None],
        Way::Write(node) => [Some(Link::Write(node)), None, None, None, None],
        Way::Between(from, to) => {
            let (here, there) = (topology.rack(from), topology.rack(to));
            let across = |rack: Option<RackId>| rack.filter(|_| here != there);
            [
                Some(Link::Pair(from, to)),
                Some(Link::NodeUp(from)),
                across(here).map(Link::RackUp),
                across(there).map(Link::RackDown),
                Some(Link::NodeDown(to)),
            ]
        }
    };
    links.into_iter().flatten()
}
