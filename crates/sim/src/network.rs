//! The links of a cluster that have a rate, numbered.
//!
//! Only links with a rate are listed, because unlimited links delay nothing. A disk counts as a link that only its
//! node uses. A link may be a token bucket, which lets some bytes pass at once after a pause
//! ([`Network::with_bursts`]).

use std::collections::HashMap;

use kintsu_plan::Topology;
use kintsu_plan::traffic::{Link, Way};

use crate::Overheads;

/// The links that have a rate, numbered.
#[derive(Debug, Clone)]
pub struct Network {
    links: Vec<Link>,
    numbers: HashMap<Link, u32>,
    capacity: Vec<f64>,
    /// By link: how long it carries at its rate what passes it at once after a pause, in seconds.
    ahead: Vec<f64>,
}

impl Network {
    /// The links of a topology, in bytes a second, and the disks of its nodes where they have rates.
    pub fn new(topology: &Topology, overheads: &Overheads) -> Self {
        let mut network =
            Self { links: Vec::new(), numbers: HashMap::new(), capacity: Vec::new(), ahead: Vec::new() };
        for (link, rate) in topology.rates.known() {
            network.add(link, rate.get() as f64);
        }
        for &node in topology.nodes.keys() {
            let disks =
                [(Link::DiskRead(node), overheads.disk_read), (Link::DiskWrite(node), overheads.disk_write)];
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
        self.ahead.push(0.0);
    }

    /// The same with links between nodes that are token buckets: `bytes` says how many bytes pass at once after a pause, at a
    /// rate in bytes a second. A pause refills the bucket at that rate. Flows ([`crate::fluid`]) do without them.
    #[must_use]
    pub fn with_bursts(mut self, bytes: impl Fn(f64) -> f64) -> Self {
        for ((link, rate), ahead) in self.links.iter().zip(&self.capacity).zip(&mut self.ahead) {
            let disk = matches!(link, Link::DiskRead(_) | Link::DiskWrite(_));
            *ahead = if disk { 0.0 } else { bytes(*rate) / rate };
        }
        self
    }

    /// The rate of each link, by number, in bytes a second.
    pub fn capacity(&self) -> &[f64] {
        &self.capacity
    }

    /// By number, how long each link carries at its rate what passes it at once after a pause, in seconds.
    pub(crate) fn ahead(&self) -> &[f64] {
        &self.ahead
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
        topology.links(way).filter_map(|link| self.numbers.get(&link).copied())
    }
}
