//! The nodes of a recovery by number, and the work that they have been given.
//!
//! Links are numbered: uplinks, downlinks, disks that read, disks that write (one of each for every node), uplinks
//! of racks, downlinks of racks. Loads are bytes, so a task for half a block counts half.
//!
//! - `cases`: who can repair a block; `places`: who may get it;
//! - `loads`: what links and disks carry for planned repairs.

mod cases;
mod loads;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};

use super::scene::{LostBlock, Planned, Route, Scene};
use crate::optimal::{SharedTree, ways};
use crate::traffic::{Link, Way};

pub(super) use cases::Case;
pub(super) use places::Places;

use places::room;

/// A tree by numbers of nodes: each helper with the node that it sends to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tree {
    pub requestor: usize,
    pub edges: Vec<(usize, usize)>,
}

impl Tree {
    /// Tells `add` what is sent, read and written along the tree, in blocks ([`SharedTree::ways`]). The nodes `also` get other
    /// blocks.
    pub fn ways(&self, also: &[usize], add: impl FnMut(Way<usize>, usize)) {
        ways(self.edges.iter().copied(), self.requestor, also, add);
    }
}

/// Nodes, idle bandwidth and loads.
#[derive(Clone)]
pub(super) struct Desk<'a> {
    pub scene: Scene<'a>,
    pub ids: Vec<NodeId>,
    pub rack: Vec<usize>,
    pub racks: usize,
    /// Whether links of racks have rates.
    pub racked: bool,
    /// Seconds for each byte, by link; 0 for a link that is never the bottleneck.
    pub pace: Vec<f64>,
    /// Bytes by link, assigned and not done.
    pub load: Vec<f64>,
    /// The part of it that no plan changes: what was under way before, and later what [`Desk::overlook`] adds.
    pub fixed: Vec<f64>,
    /// Links that need longer than this for their fixed part, in seconds, are overlooked.
    limit: f64,
    /// What new blocks may take of each node, in bytes; 0 for a node that cannot get any.
    room: Vec<u64>,
    /// The nodes that may get blocks, ascending.
    getters: Vec<usize>,
    /// The new homes of blocks of stripes that get several.
    given: BTreeMap<StripeId, Vec<(BlockIndex, usize)>>,
    /// The codes of the stripes, by address, with their groups.
    groups: Vec<(*const (), Vec<Vec<BlockIndex>>)>,
    /// The number of each node with a small id.
    numbers: Vec<usize>,
}

impl<'a> Desk<'a> {
    /// The desk with the work under way.
    pub fn new(scene: &Scene<'a>, blocks: &[LostBlock<'_>]) -> Self {
        let topology = scene.topology;
        let mut ids: Vec<NodeId> = topology.nodes.keys().copied().collect();
        let known = numbers(&ids);
        let is_known = |node: &NodeId| numbered(&ids, &known, *node).is_some();
        let homes = blocks.iter().flat_map(|lost| lost.stripe.view.homes.iter().flatten().copied());
        let strange: BTreeSet<NodeId> = homes.filter(|node| !is_known(node)).collect();
        if !strange.is_empty() {
            ids.extend(strange);
            ids.sort_unstable();
        }
        let mut racks: BTreeMap<Option<RackId>, usize> = BTreeMap::new();
        let mut rack = Vec::with_capacity(ids.len());
        for id in &ids {
            let next = racks.len();
            rack.push(*racks.entry(topology.rack(*id)).or_insert(next));
        }
        let rates = &topology.rates;
        let racked = !rates.rack_up.is_empty() || !rates.rack_down.is_empty();
        let room: Vec<u64> = ids.iter().map(|id| topology.nodes.get(id).map_or(0, room)).collect();
        let mut groups: Vec<(*const (), Vec<Vec<BlockIndex>>)> = Vec::new();
        for code in blocks.iter().map(|lost| &lost.stripe.view.code) {
            if !groups.iter().any(|(known, _)| *known == Arc::as_ptr(code).cast()) {
                groups.push((Arc::as_ptr(code).cast(), code.place()));
            }
        }
        let mut desk = Self {
            scene: *scene,
            getters: (0..ids.len()).filter(|node| room[*node] > 0).collect(),
            room,
            load: vec![0.0; 4 * ids.len() + 2 * racks.len()],
            fixed: Vec::new(),
            limit: f64::INFINITY,
            groups,
            numbers: numbers(&ids),
            pace: Vec::new(),
            rack,
            racks: racks.len(),
            racked,
            given: BTreeMap::new(),
            ids,
        };
        desk.pace = desk.paces(&racks);
        for (link, bytes) in scene.underway {
            if let Some(number) = desk.link(*link, &racks) {
                desk.load[number] += *bytes as f64;
            }
        }
        desk.fixed.clone_from(&desk.load);
        desk
    }

    /// The number of a link; `None` for one of a pair, or of a node or rack that takes no part.
    fn link(&self, link: Link, racks: &BTreeMap<Option<RackId>, usize>) -> Option<usize> {
        let link = link.named(|node| self.number(node), |rack| racks.get(&Some(rack)).copied())?;
        self.numbered(link)
    }

    /// The number of a link by the numbers of its node or rack; `None` for one of a pair.
    fn numbered(&self, link: Link<usize, usize>) -> Option<usize> {
        match link {
            Link::NodeUp(node) => Some(self.up(node)),
            Link::NodeDown(node) => Some(self.down(node)),
            Link::DiskRead(node) => Some(self.read(node)),
            Link::DiskWrite(node) => Some(self.write(node)),
            Link::RackUp(rack) => Some(self.rack_up(rack)),
            Link::RackDown(rack) => Some(self.rack_down(rack)),
            Link::Pair(..) => None,
        }
    }

    fn paces(&self, racks: &BTreeMap<Option<RackId>, usize>) -> Vec<f64> {
        let rates = &self.scene.topology.rates;
        let known = rates.up.values().chain(rates.down.values()).map(|rate| rate.get() as f64);
        let fastest = known.fold(0.0, f64::max);
        let usual = if fastest > 0.0 { 1.0 / fastest } else { 1.0 };
        let pace = |rate: Option<&NonZeroU64>, usual: f64| rate.map_or(usual, |rate| 1.0 / rate.get() as f64);
        let of = |rates: &'a BTreeMap<NodeId, NonZeroU64>, usual: f64| {
            self.ids.iter().map(|id| pace(rates.get(id), usual)).collect::<Vec<_>>()
        };
        let mut by_number = vec![None; racks.len()];
        racks.iter().for_each(|(rack, number)| by_number[*number] = *rack);
        let of_racks = |rates: &BTreeMap<RackId, NonZeroU64>| {
            by_number.iter().map(|rack| pace(rack.and_then(|rack| rates.get(&rack)), 0.0)).collect::<Vec<_>>()
        };
        let disks = self.scene.disks;
        let nodes =
            [of(&rates.up, usual), of(&rates.down, usual), of(&disks.read, 0.0), of(&disks.write, 0.0)];
        [nodes.concat(), of_racks(&rates.rack_up), of_racks(&rates.rack_down)].concat()
    }

    /// The uplink of a node.
    pub fn up(&self, node: usize) -> usize {
        node
    }

    /// The downlink of a node.
    pub fn down(&self, node: usize) -> usize {
        self.ids.len() + node
    }

    /// The disk of a node, reading.
    pub fn read(&self, node: usize) -> usize {
        2 * self.ids.len() + node
    }

    /// The disk of a node, writing.
    pub fn write(&self, node: usize) -> usize {
        3 * self.ids.len() + node
    }

    /// Whether this is the uplink of a node, or its disk, reading.
    pub fn sends(&self, link: usize) -> bool {
        link < self.down(0) || (self.read(0)..self.write(0)).contains(&link)
    }

    /// Whether this is a disk.
    pub fn is_disk(&self, link: usize) -> bool {
        (self.read(0)..self.rack_up(0)).contains(&link)
    }

    /// The uplink of a rack.
    pub fn rack_up(&self, rack: usize) -> usize {
        4 * self.ids.len() + rack
    }

    /// The downlink of a rack.
    pub fn rack_down(&self, rack: usize) -> usize {
        4 * self.ids.len() + self.racks + rack
    }

    /// Seconds until a link has carried what it was given and `more` bytes.
    pub fn time(&self, link: usize, more: f64) -> f64 {
        (self.load[link] + more) * self.pace[link]
    }

    /// The same without the fixed part of what it was given.
    pub fn own_time(&self, link: usize, more: f64) -> f64 {
        (self.load[link] - self.fixed[link] + more) * self.pace[link]
    }

    /// Seconds until a node has received and written what it was given and `more` bytes.
    pub fn receiving(&self, node: usize, more: f64) -> f64 {
        self.time(self.down(node), more).max(self.time(self.write(node), more))
    }

    /// Seconds until a node has read and sent what it was given and `more` bytes.
    pub fn sending(&self, node: usize, more: f64) -> f64 {
        self.time(self.up(node), more).max(self.time(self.read(node), more))
    }

    /// The number of a node.
    pub fn number(&self, id: NodeId) -> Option<usize> {
        numbered(&self.ids, &self.numbers, id)
    }

    /// The planned repair along these trees, which have the same requestor. Equal trees become one.
    pub fn planned(&self, lost: &LostBlock<'_>, trees: &[Tree]) -> Option<Planned> {
        let requestor = trees.first()?.requestor;
        let mut shares: BTreeMap<&Tree, u32> = BTreeMap::new();
        trees.iter().for_each(|tree| *shares.entry(tree).or_default() += 1);
        let one = shares.len() == 1;
        let shared = |(tree, share): (&Tree, u32)| {
            let parent = |to: usize| (to != requestor).then(|| self.ids[to]);
            let parents = tree.edges.iter().map(|(from, to)| (self.ids[*from], parent(*to))).collect();
            SharedTree { parents, share: if one { 1 } else { share } }
        };
        Some(Planned {
            stripe: lost.stripe.view.id,
            block: lost.block,
            bytes: lost.bytes(),
            requestor: self.ids[requestor],
            route: Route::Trees(shares.into_iter().map(shared).collect()),
            also: Vec::new(),
            turn: 0,
        })
    }
}

/// By id the number of each node; ids are dense, as a rule. Those that are not are left out.
fn numbers(ids: &[NodeId]) -> Vec<usize> {
    let mut numbers = Vec::new();
    for (number, id) in ids.iter().enumerate().take_while(|(_, id)| (id.0 as usize) < 4 * ids.len()) {
        numbers.resize(id.0 as usize + 1, usize::MAX);
        numbers[id.0 as usize] = number;
    }
    numbers
}

fn numbered(ids: &[NodeId], numbers: &[usize], id: NodeId) -> Option<usize> {
    match numbers.get(id.0 as usize) {
        Some(number) => Some(*number).filter(|number| *number != usize::MAX),
        None => ids.binary_search(&id).ok(),
    }
}
