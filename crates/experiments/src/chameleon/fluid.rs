//! Many repairs on links and disks whose idle part changes, without a lab.
//!
//! Every link, and the one arm of every disk, carries what repairs were planned to send over it, one repair after the other, as fast as its
//! idle part allows at the time. A repair is done when all its links are. What it leaves out: a link never waits for
//! another one of the same repair, so that results are as good as the plans allow.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::many::{Disks, LostBlock, Planned, Scene};
use kintsu_plan::traffic::Loads;
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
    /// How many stripes; of one lost node each has lost a block.
    pub blocks: usize,
    /// Bytes in a block.
    pub block_bytes: u64,
}

/// What the links and disks of all nodes have idle, in bytes a second.
pub struct Idle {
    /// Links.
    pub rates: Rates,
    /// Disks. One arm reads and writes, so that each rate is that of both together.
    pub disks: Disks,
}

impl Damage {
    /// The damaged stripes, each on nodes drawn at random. Each has lost one block.
    pub fn stripes(&self, random: &mut Random) -> Result<Vec<DamagedStripe>> {
        let drawn = self.drawn(self.nodes, random, |number, homes| vec![number % homes.len().max(1)])?;
        Ok(drawn.into_iter().map(|(stripe, _)| stripe).collect())
    }

    /// The stripes where `gone` more nodes are lost, each with the nodes that had its blocks.
    pub fn without(&self, gone: u32, random: &mut Random) -> Result<Vec<(DamagedStripe, Vec<NodeId>)>> {
        self.drawn(self.nodes + gone, random, |_, homes| {
            (0..homes.len()).filter(|block| homes[*block].0 >= self.nodes).collect()
        })
    }

    /// Stripes on nodes drawn at random, with those nodes. `lost` says which blocks of a stripe are lost, by its number and its
    /// nodes.
    fn drawn(
        &self,
        nodes: u32,
        random: &mut Random,
        lost: impl Fn(usize, &[NodeId]) -> Vec<usize>,
    ) -> Result<Vec<(DamagedStripe, Vec<NodeId>)>> {
        let code = crate::figures::site::parse(self.code)?;
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: self.block_bytes,
            cell_bytes: 128 << 10,
            w: code.w() as u16,
            data_bytes: self.block_bytes * code.k() as u64,
        };
        let stripe = |number: usize| {
            let mut free: Vec<u32> = (0..nodes).collect();
            let drawn: Vec<NodeId> = (0..code.n())
                .map(|_| free.swap_remove(random.random_range(0..free.len().max(1))))
                .map(NodeId)
                .collect();
            let mut homes: Vec<Option<NodeId>> = drawn.iter().copied().map(Some).collect();
            let lost = lost(number, &drawn);
            lost.iter().for_each(|block| homes[*block] = None);
            let view = StripeView { id: StripeId(number as u64), code: code.clone(), layout, homes };
            let lost = lost.into_iter().map(|block| BlockIndex(block as u8)).collect();
            (DamagedStripe { view, lost, barred: BTreeSet::new() }, drawn)
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
pub fn scene<'a>(topology: &'a Topology, disks: &'a Disks, underway: &'a [(Link, u64)]) -> Scene<'a> {
    Scene { disks, underway, ..Scene::of(topology) }
}

/// Planned repairs in progress.
#[derive(Default)]
pub struct Fluid {
    /// The stripe of each repair with the bytes left by link, in the order of their start. What a disk writes is added to what it
    /// reads.
    repairs: Vec<(StripeId, BTreeMap<Link, f64>)>,
}

impl Fluid {
    /// Starts a repair.
    pub fn start(&mut self, topology: &Topology, planned: &Planned) {
        let mut loads = Loads::default();
        planned.load(topology, planned.bytes, &mut loads);
        let mut left: BTreeMap<Link, f64> = BTreeMap::new();
        for (link, bytes) in loads.iter() {
            let arm = if let Link::DiskWrite(node) = link { Link::DiskRead(node) } else { link };
            *left.entry(arm).or_default() += bytes as f64;
        }
        self.repairs.push((planned.stripe, left));
    }

    /// Lets time pass; returns the stripes whose repairs were completed.
    pub fn pass(&mut self, seconds: f64, idle: &Idle) -> Vec<StripeId> {
        let mut room: BTreeMap<Link, f64> = BTreeMap::new();
        let rate = |link: &Link| match link {
            Link::DiskRead(node) => idle.disks.read.get(node).copied(),
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
        let mut done = Vec::new();
        self.repairs.retain(|(stripe, left)| {
            done.extend(left.is_empty().then_some(*stripe));
            !left.is_empty()
        });
        done
    }

    /// The bytes that links and disks still have to carry for the repairs in progress.
    pub fn underway(&self) -> Vec<(Link, u64)> {
        let left = self.repairs.iter().flat_map(|(_, left)| left);
        left.map(|(link, bytes)| (*link, *bytes as u64)).collect()
    }

    /// Whether nothing is in progress.
    pub fn is_idle(&self) -> bool {
        self.repairs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kintsu_plan::many::{History, Route, scheduler};
    use kintsu_plan::optimal::SharedTree;
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
            fluid.start(&topology, planned[0].as_ref().unwrap());
            for second in 1..seconds {
                assert_eq!(fluid.pass(1.0, &idle), [], "{name} after {second} s");
            }
            assert!(!fluid.underway().is_empty() && !fluid.is_idle());
            assert_eq!(fluid.pass(1.0, &idle), [StripeId(0)], "{name}");
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
        fluid.start(&topology, planned[0].as_ref().unwrap());
        let done = [fluid.pass(99.0, &idle), fluid.pass(2.0, &idle)].concat();
        assert_eq!(done, [StripeId(0)]);
    }

    #[test]
    fn a_disk_that_reads_for_one_repair_and_writes_for_another_takes_the_time_of_both() {
        let damage = Damage { nodes: 3, code: "replication:n=2", blocks: 1, block_bytes: 1000 };
        let random = &mut Random::seed_from_u64(1);
        let idle = damage.idle(100.0, Some(10.0), 0.0, random);
        let topology = damage.topology(idle.rates.clone());
        let copy = |stripe: u64, from: u32, to: u32| {
            let parents = [(NodeId(from), None)].into();
            let route = Route::Trees(vec![SharedTree { parents, share: 1 }]);
            let (stripe, block, requestor) = (StripeId(stripe), BlockIndex(0), NodeId(to));
            Planned { stripe, block, bytes: 1000, requestor, route, also: Vec::new(), turn: 0 }
        };
        let mut fluid = Fluid::default();
        fluid.start(&topology, &copy(1, 0, 1));
        fluid.start(&topology, &copy(2, 1, 2));
        assert_eq!(fluid.pass(100.0, &idle), [StripeId(1)]);
        assert_eq!(fluid.pass(99.0, &idle), []);
        assert_eq!(fluid.pass(1.0, &idle), [StripeId(2)]);
    }
}
