//! Many repairs on links and disks whose idle part changes, without a lab.
//!
//! Every link and disk carries what repairs were planned to send over it, one repair after the other, as fast as its
//! idle part allows at the time. A repair is done when all its links are. What it leaves out: a link never waits for
//! another one of the same repair, so that results are as good as the plans allow.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::many::{Disks, LostBlock, Planned, Scene};
use kintsu_plan::{DamagedStripe, Layout, LayoutKind, Link, Node, Rates, StripeView, Topology};
use rand::RngExt;

use crate::error::Result;
use crate::workload::Random;

/// The paper's cluster and its damage.
pub struct Damage {
    /// How many nodes are left; the lost one is not among them.
    pub nodes: u32,
    /// The code.
    pub code: &'static str,
    /// The lost blocks, each of another stripe.
    pub blocks: usize,
    /// Bytes in a block.
    pub block_bytes: u64,
}

/// What the links and disks of all nodes have idle, in bytes a second.
pub struct Idle {
    /// Links.
    pub rates: Rates,
    /// Disks.
    pub disks: Disks,
}

impl Damage {
    /// The damaged stripes, each on nodes drawn at random.
    pub fn stripes(&self, random: &mut Random) -> Result<Vec<DamagedStripe>> {
        let code = crate::figures::site::parse(self.code)?;
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: self.block_bytes,
            cell_bytes: 128 << 10,
            w: code.w() as u16,
            data_bytes: self.block_bytes * code.k() as u64,
        };
        let stripe = |number: usize| {
            let mut nodes: Vec<u32> = (0..self.nodes).collect();
            let mut homes: Vec<Option<NodeId>> = (0..code.n())
                .map(|_| nodes.swap_remove(random.random_range(0..nodes.len().max(1))))
                .map(|node| Some(NodeId(node)))
                .collect();
            let lost = number % code.n();
            homes[lost] = None;
            let id = StripeId(number as u64);
            let view = StripeView { id, code: code.clone(), layout, homes };
            DamagedStripe { view, lost: vec![BlockIndex(lost as u8)], barred: BTreeSet::new() }
        };
        Ok((0..self.blocks).map(stripe).collect())
    }

    /// The nodes, with these idle rates.
    pub fn topology(&self, rates: Rates) -> Topology {
        let node = |id| (NodeId(id), Node { rack: RackId(0), usable: true, used_bytes: 0, room_bytes: None });
        Topology { nodes: (0..self.nodes).map(node).collect(), rates }
    }

    /// Links of which users take parts drawn between none and `busy`. Where disks have a rate, users read and write up to
    /// half of `busy` of it each, over the links.
    pub fn idle(&self, link: f64, disk: Option<f64>, busy: f64, random: &mut Random) -> Idle {
        let whole = |rate: f64| NonZeroU64::new(rate as u64);
        let mut idle = Idle { rates: Rates::default(), disks: Disks::default() };
        for node in (0..self.nodes).map(NodeId) {
            let most = busy * disk.map_or(link, |disk| disk / 2.0);
            let [read, written] = [(); 2].map(|()| most * random.random::<f64>());
            idle.rates.up.extend(whole(link - read).map(|rate| (node, rate)));
            idle.rates.down.extend(whole(link - written).map(|rate| (node, rate)));
            // One arm reads and writes.
            let both = disk.and_then(|disk| whole(disk - read - written)).map(|rate| (node, rate));
            idle.disks.read.extend(both);
            idle.disks.write.extend(both);
        }
        idle
    }
}

/// All lost blocks.
pub fn lost(stripes: &[DamagedStripe]) -> Vec<LostBlock<'_>> {
    LostBlock::all(stripes)
}

/// What a scheduler sees.
pub fn scene<'a>(topology: &'a Topology, disks: &'a Disks, underway: &'a [(Planned, u64)]) -> Scene<'a> {
    Scene { topology, disks, underway }
}

/// Planned repairs in progress.
#[derive(Default)]
pub struct Fluid {
    /// Bytes left by link, for each repair, in the order of their start.
    repairs: Vec<(Planned, BTreeMap<Link, f64>)>,
}

impl Fluid {
    /// Starts a repair.
    pub fn start(&mut self, planned: &Planned) {
        let bytes = planned.bytes as f64;
        let mut left: BTreeMap<Link, f64> = BTreeMap::new();
        for (from, to, part) in planned.sends() {
            for link in [Link::NodeUp(from), Link::NodeDown(to), Link::DiskRead(from)] {
                *left.entry(link).or_default() += part * bytes;
            }
        }
        left.insert(Link::DiskWrite(planned.requestor), bytes);
        self.repairs.push((planned.clone(), left));
    }

    /// Lets time pass; returns how many repairs were completed.
    pub fn pass(&mut self, seconds: f64, idle: &Idle) -> usize {
        let mut room: BTreeMap<Link, f64> = BTreeMap::new();
        let rate = |link: &Link| match link {
            Link::DiskRead(node) => idle.disks.read.get(node).copied(),
            Link::DiskWrite(node) => idle.disks.write.get(node).copied(),
            link => idle.rates.of(*link),
        };
        for (_, left) in &mut self.repairs {
            left.retain(|link, bytes| {
                let Some(rate) = rate(link) else { return false };
                let room = room.entry(*link).or_insert(rate.get() as f64 * seconds);
                let carried = room.min(*bytes);
                *room -= carried;
                *bytes -= carried;
                *bytes > 0.5
            });
        }
        let before = self.repairs.len();
        self.repairs.retain(|(_, left)| !left.is_empty());
        before - self.repairs.len()
    }

    /// The repairs in progress, with the bytes of their blocks that are left.
    pub fn underway(&self) -> Vec<(Planned, u64)> {
        let left = |(planned, left): &(Planned, BTreeMap<Link, f64>)| {
            let most = left.values().copied().fold(0.0, f64::max);
            (planned.clone(), (most as u64).min(planned.bytes))
        };
        self.repairs.iter().map(left).collect()
    }

    /// Whether nothing is in progress.
    pub fn is_idle(&self) -> bool {
        self.repairs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kintsu_plan::many::{History, scheduler};
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn one_repair_takes_as_long_as_its_slowest_link() {
        let damage = Damage { nodes: 9, code: "rs:n=6,k=4", blocks: 1, block_bytes: 1000 };
        let random = &mut Random::seed_from_u64(1);
        let stripes = damage.stripes(random).unwrap();
        let idle = damage.idle(100.0, None, 0.0, random);
        let topology = damage.topology(idle.rates.clone());
        for (name, seconds) in [("cr", 40), ("ecpipe", 10)] {
            let scene = scene(&topology, &idle.disks, &[]);
            let planned = scheduler(name).unwrap().plan(&scene, &mut History::default(), &lost(&stripes));
            let mut fluid = Fluid::default();
            fluid.start(planned[0].as_ref().unwrap());
            for second in 1..seconds {
                assert_eq!(fluid.pass(1.0, &idle), 0, "{name} after {second} s");
            }
            assert_eq!(fluid.underway().len(), 1);
            assert_eq!(fluid.pass(1.0, &idle), 1, "{name}");
            assert!(fluid.is_idle());
        }
    }

    #[test]
    fn a_slow_disk_counts_like_a_link() {
        let damage = Damage { nodes: 9, code: "rs:n=6,k=4", blocks: 1, block_bytes: 1000 };
        let random = &mut Random::seed_from_u64(1);
        let stripes = damage.stripes(random).unwrap();
        let idle = damage.idle(100.0, Some(10.0), 0.0, random);
        let topology = damage.topology(idle.rates.clone());
        let scene = scene(&topology, &idle.disks, &[]);
        let planned = scheduler("ecpipe").unwrap().plan(&scene, &mut History::default(), &lost(&stripes));
        let mut fluid = Fluid::default();
        fluid.start(planned[0].as_ref().unwrap());
        assert_eq!(fluid.pass(99.0, &idle) + fluid.pass(2.0, &idle), 1);
    }
}
