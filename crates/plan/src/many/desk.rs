//! The nodes of a recovery by number, and the work that they have been given.
//!
//! Links are numbered: uplinks, downlinks, disks that read, disks that write (one of each for every node), uplinks
//! of racks, downlinks of racks. Loads are bytes, so a task for half a block counts half.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};

use super::recovery::DamagedStripe;
use super::scene::{LostBlock, Planned, Route, Scene};
use crate::optimal::{SharedTree, candidates, ways};
use crate::repair::any_will_do;
use crate::stripe::place::{Verdict, verdict};
use crate::traffic::{Link, Way};
use crate::{Node, PlanError};

/// The nodes that can repair a block: any `k` of `helpers`.
#[derive(Debug, Clone, Default)]
pub(super) struct Case {
    pub bytes: f64,
    pub k: usize,
    /// By number.
    pub helpers: Vec<usize>,
}

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

/// The nodes that may get a block: the best by the rules of placement.
#[derive(Debug, Clone)]
pub(super) struct Places {
    bytes: u64,
    /// Nodes that must not get it, ascending.
    taken: Vec<usize>,
    /// By rack: whether it is among the best. Empty if all are.
    good: Vec<bool>,
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
        let rack = |rack| racks.get(&Some(rack)).copied();
        match link {
            Link::NodeUp(node) => Some(self.up(self.number(node)?)),
            Link::NodeDown(node) => Some(self.down(self.number(node)?)),
            Link::DiskRead(node) => Some(self.read(self.number(node)?)),
            Link::DiskWrite(node) => Some(self.write(self.number(node)?)),
            Link::RackUp(id) => Some(self.rack_up(rack(id)?)),
            Link::RackDown(id) => Some(self.rack_down(rack(id)?)),
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

    /// The nodes that can repair the block. Where the code does not leave the choice of helpers open, those with the
    /// smallest `rank` are taken first.
    ///
    /// # Errors
    /// `Unrecoverable` when the blocks left do not determine the lost one, `Invalid` for a block that the stripe
    /// does not have.
    pub fn case(&self, lost: &LostBlock<'_>, rank: &dyn Fn(usize) -> f64) -> Result<Case, PlanError> {
        Ok(self.case_of(lost, &[lost.block], rank)?.unwrap_or_default())
    }

    /// The nodes that can repair these blocks of the stripe together; `None` for blocks that have no helper in common.
    ///
    /// # Errors
    /// As [`Desk::case`].
    pub fn case_of(
        &self,
        lost: &LostBlock<'_>,
        blocks: &[BlockIndex],
        rank: &dyn Fn(usize) -> f64,
    ) -> Result<Option<Case>, PlanError> {
        let view = &lost.stripe.view;
        view.check("lost blocks", blocks)?;
        let bytes = lost.bytes() as f64;
        let mut known = self.left(lost);
        if any_will_do(view) {
            let k = view.code.k().saturating_sub(view.absent().len()).max(1);
            let mut helpers: Vec<usize> = known.iter().map(|(node, _)| *node).collect();
            if distinct(&mut helpers) >= k {
                return Ok(Some(Case { bytes, k, helpers }));
            }
        }
        known.sort_by(|a, b| rank(a.0).total_cmp(&rank(b.0)).then(a.1.cmp(&b.1)));
        let preference: Vec<BlockIndex> = known.into_iter().map(|(_, block)| block).collect();
        let Some((nodes, k)) = candidates(view, &preference, blocks)? else { return Ok(None) };
        let mut helpers: Vec<usize> = nodes.iter().filter_map(|id| self.number(*id)).collect();
        if distinct(&mut helpers) < k {
            return Err(PlanError::Placement {
                expected: format!("the blocks of {} on distinct nodes", view.id),
                got: "several on one".into(),
            });
        }
        Ok(Some(Case { bytes, k, helpers }))
    }

    /// The nodes that can repair these blocks if all others are preferred to those of the case, which are the same only where the
    /// code leaves no choice; `None` as in [`Desk::case_of`].
    ///
    /// # Errors
    /// As [`Desk::case`].
    pub fn other_case(
        &self,
        lost: &LostBlock<'_>,
        blocks: &[BlockIndex],
        case: &Case,
    ) -> Result<Option<Case>, PlanError> {
        self.case_of(lost, blocks, &|node| f64::from(u8::from(case.helpers.contains(&node))))
    }

    /// The blocks that can be read, each with its node.
    pub fn left(&self, lost: &LostBlock<'_>) -> Vec<(usize, BlockIndex)> {
        let view = &lost.stripe.view;
        let left = |block: &BlockIndex| view.has(*block, &[]) && !lost.stripe.lost.contains(block);
        let home = |block: BlockIndex| view.homes[usize::from(block.0)].and_then(|id| self.number(id));
        view.indices().filter(left).filter_map(|block| Some((home(block)?, block))).collect()
    }

    /// The nodes that may get the block, by number: the best by the rules of placement.
    ///
    /// # Errors
    /// `Placement` when there is none.
    pub fn open(&self, lost: &LostBlock<'_>) -> Result<Vec<usize>, PlanError> {
        Ok(self.at(&self.places(lost)?).collect())
    }

    /// The nodes of these places, ascending.
    pub fn at<'p>(&'p self, places: &'p Places) -> impl Iterator<Item = usize> + 'p {
        let Places { bytes, taken, good } = places;
        let mut next = 0;
        self.getters.iter().copied().filter(move |node| {
            while taken.get(next).is_some_and(|taken| taken < node) {
                next += 1;
            }
            taken.get(next) != Some(node)
                && (good.is_empty() || good[self.rack[*node]])
                && self.room[*node] >= *bytes
        })
    }

    /// Where the block may go.
    ///
    /// # Errors
    /// `Placement` when nowhere.
    pub fn places(&self, lost: &LostBlock<'_>) -> Result<Places, PlanError> {
        let DamagedStripe { view, barred, .. } = lost.stripe;
        let mut homes: Vec<(BlockIndex, usize)> = Vec::with_capacity(view.homes.len());
        let at_home = view.indices().zip(&view.homes).filter(|(block, _)| !lost.stripe.lost.contains(block));
        homes.extend(at_home.filter_map(|(block, home)| Some((block, self.number((*home)?)?))));
        homes.extend(self.given.get(&view.id).into_iter().flatten().filter(|(b, _)| *b != lost.block));
        let mut taken: Vec<usize> = homes.iter().map(|(_, node)| *node).collect();
        taken.extend(barred.iter().filter_map(|id| self.number(*id)));
        taken.sort_unstable();
        let mut places = Places { bytes: lost.bytes().max(1), taken, good: Vec::new() };
        if self.racks > 1 {
            let verdicts = self.verdicts(lost, &homes);
            if verdicts.iter().any(|verdict| *verdict != verdicts[0]) {
                let best = self.at(&places).map(|node| verdicts[self.rack[node]]).min();
                places.good = verdicts.into_iter().map(|verdict| Some(verdict) == best).collect();
            }
        }
        if self.at(&places).next().is_none() {
            return Err(PlanError::Placement {
                expected: format!("a usable node with room and without a block of {}", view.id),
                got: "none".into(),
            });
        }
        Ok(places)
    }

    /// The node of these places that would finish first with `bytes` more to receive; of several, the one with least to
    /// send.
    pub fn idlest(&self, places: &Places, bytes: f64) -> Option<usize> {
        let n = self.ids.len();
        let seconds = |links: std::ops::Range<usize>| {
            let (loads, paces) = (&self.load[links.clone()], &self.pace[links]);
            loads.iter().zip(paces).map(|(load, pace)| (load + bytes) * pace).collect::<Vec<f64>>()
        };
        let mut times = seconds(n..2 * n);
        if !self.scene.disks.write.is_empty() {
            times.iter_mut().zip(seconds(3 * n..4 * n)).for_each(|(time, write)| *time = time.max(write));
        }
        for (time, room) in times.iter_mut().zip(&self.room) {
            *time = if *room < places.bytes { f64::INFINITY } else { *time };
        }
        places.taken.iter().for_each(|node| times[*node] = f64::INFINITY);
        if !places.good.is_empty() {
            let closed = |rack: &usize| !places.good[*rack];
            times
                .iter_mut()
                .zip(&self.rack)
                .filter(|(_, rack)| closed(rack))
                .for_each(|(time, _)| *time = f64::INFINITY);
        }
        let least = least(&times);
        let best = (0..n).filter(|node| times[*node] == least && least.is_finite());
        best.min_by(|a, b| self.sending(*a, 0.0).total_cmp(&self.sending(*b, 0.0)))
    }

    /// How well each rack suits a block of a stripe with these other homes; nothing if all of them are alike.
    fn verdicts(&self, lost: &LostBlock<'_>, homes: &[(BlockIndex, usize)]) -> Vec<Verdict> {
        let view = &lost.stripe.view;
        let known = self.groups.iter().find(|(code, _)| *code == Arc::as_ptr(&view.code).cast());
        let groups = known.map_or_else(|| Cow::Owned(view.code.place()), |(_, groups)| Cow::Borrowed(groups));
        let group = groups.iter().find(|group| groups.len() > 1 && group.contains(&lost.block));
        let mut by_rack: Vec<(usize, BlockIndex)> =
            homes.iter().map(|(block, node)| (self.rack[*node], *block)).collect();
        by_rack.sort_unstable();
        let most = by_rack.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max().unwrap_or(0);
        if group.is_none() && most + 1 < view.code.distance() {
            return Vec::new();
        }
        let mut verdicts = vec![verdict(view, group, &[lost.block]); self.racks];
        let mut set = Vec::with_capacity(by_rack.len() + 1);
        for here in by_rack.chunk_by(|a, b| a.0 == b.0) {
            set.clear();
            set.extend(here.iter().map(|(_, block)| *block));
            set.push(lost.block);
            verdicts[here[0].0] = verdict(view, group, &set);
        }
        verdicts
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

    /// Notes a planned repair: its loads, with `bytes` of the block left to do, and its requestor's new block.
    pub fn settle(&mut self, planned: &Planned, bytes: f64) {
        self.carry(planned, bytes);
        if let Some(number) = self.number(planned.requestor) {
            self.take(number, planned.bytes);
            self.given.entry(planned.stripe).or_default().push((planned.block, number));
        }
    }

    /// Notes only that a node gets the block.
    pub fn give(&mut self, lost: &LostBlock<'_>, number: usize) {
        self.take(number, lost.bytes());
        self.given.entry(lost.stripe.view.id).or_default().push((lost.block, number));
    }

    /// The links that something passes.
    fn passed(&self, way: Way<usize>) -> impl Iterator<Item = usize> + use<> {
        let links = match way {
            Way::Read(node) => [Some(self.read(node)), None, None, None],
            Way::Write(node) => [Some(self.write(node)), None, None, None],
            Way::Between(from, to) => {
                let across = self.racked && self.rack[from] != self.rack[to];
                let out = across.then(|| self.rack_up(self.rack[from]));
                let into = across.then(|| self.rack_down(self.rack[to]));
                [Some(self.up(from)), Some(self.down(to)), out, into]
            }
        };
        links.into_iter().flatten()
    }

    /// The links that a planned repair passes, each once or more often, with bytes for each byte of the block.
    pub fn parts(&self, planned: &Planned) -> Vec<(usize, f64)> {
        let numbered = |way: Way| {
            Some(match way {
                Way::Read(node) => Way::Read(self.number(node)?),
                Way::Between(from, to) => Way::Between(self.number(from)?, self.number(to)?),
                Way::Write(node) => Way::Write(self.number(node)?),
            })
        };
        let mut parts = Vec::new();
        for (way, part) in planned.ways() {
            let links = numbered(way).into_iter().flat_map(|way| self.passed(way));
            parts.extend(links.map(|link| (link, part)));
        }
        parts
    }

    /// Seconds until the links with these parts of `bytes` have carried them and all that they had before.
    pub fn done(&self, parts: impl IntoIterator<Item = (usize, f64)>, bytes: f64) -> f64 {
        let mut more: BTreeMap<usize, f64> = BTreeMap::new();
        parts.into_iter().for_each(|(link, part)| *more.entry(link).or_default() += part * bytes);
        more.into_iter().map(|(link, more)| self.time(link, more)).fold(0.0, f64::max)
    }

    /// Whether a planned repair passes links that still have to carry what was under way, or disks that may be slow.
    pub fn meets_others(&self, planned: &Planned) -> bool {
        let counts = |link: usize| self.fixed[link] > 0.0 || self.is_disk(link);
        self.parts(planned).into_iter().any(|(link, _)| self.pace[link] > 0.0 && counts(link))
    }

    /// Adds the loads of a planned repair, of which `bytes` of the block are left to do.
    pub fn carry(&mut self, planned: &Planned, bytes: f64) {
        for (link, part) in self.parts(planned) {
            self.load[link] += part * bytes;
        }
    }

    /// Adds the loads of a tree that carries `bytes` of each block. The nodes `also` get other blocks along it.
    pub fn carry_tree(&mut self, tree: &Tree, also: &[usize], bytes: f64) {
        tree.ways(also, |way, blocks| {
            self.passed(way).for_each(|link| self.load[link] += blocks as f64 * bytes);
        });
    }

    /// The links that such a tree loads, with how much.
    pub fn links_of(&self, tree: &Tree, also: &[usize], bytes: f64) -> Vec<(usize, f64)> {
        let mut links = Vec::with_capacity(4 * tree.edges.len());
        tree.ways(also, |way, blocks| {
            links.extend(self.passed(way).map(|link| (link, blocks as f64 * bytes)));
        });
        links.sort_unstable_by_key(|(link, _)| *link);
        links.dedup_by(|more, kept| {
            let same = more.0 == kept.0;
            if same {
                kept.1 += more.1;
            }
            same
        });
        links
    }

    /// Adds the load of bytes from one node to another.
    pub fn carry_between(&mut self, from: NodeId, to: NodeId, bytes: f64) {
        if let (Some(from), Some(to)) = (self.number(from), self.number(to)) {
            self.passed(Way::Between(from, to)).for_each(|link| self.load[link] += bytes);
        }
    }

    /// Takes back what [`Desk::give`] noted.
    pub fn take_back(&mut self, lost: &LostBlock<'_>, number: usize) {
        if self.room[number] != u64::MAX {
            self.room[number] += lost.bytes();
        }
        if let Some(given) = self.given.get_mut(&lost.stripe.view.id) {
            given.retain(|(block, _)| *block != lost.block);
        }
    }

    /// Whether a node may get blocks.
    pub fn usable(&self, number: usize) -> bool {
        self.room[number] > 0
    }

    fn take(&mut self, number: usize, bytes: u64) {
        if self.room[number] != u64::MAX {
            self.room[number] = self.room[number].saturating_sub(bytes);
        }
    }

    /// Whether every node that may get blocks has room for this many bytes.
    pub fn fits_everywhere(&self, bytes: u64) -> bool {
        self.room.iter().all(|room| *room == 0 || *room >= bytes)
    }

    /// From now on the fixed part is all that links were given so far, and the `prescribed` bytes that each will be given. Links that
    /// need more than `limit` seconds for it are overlooked: plans are not judged by how long these take in any case.
    pub fn overlook(&mut self, limit: f64, prescribed: &[f64]) {
        self.limit = limit;
        let all = self.load.iter().zip(prescribed).map(|(load, prescribed)| load + prescribed);
        self.fixed = all.collect();
    }

    /// Whether a link is overlooked.
    pub fn is_overlooked(&self, link: usize) -> bool {
        self.fixed[link] * self.pace[link] > self.limit
    }

    /// Of an overlooked link the part of the fixed time that is beyond the limit.
    pub fn beyond_limit(&self, link: usize) -> f64 {
        1.0 - self.limit / (self.fixed[link] * self.pace[link])
    }

    /// Seconds until every link has carried its load. Those that are overlooked count by what they got beside the fixed part.
    pub fn seconds(&self) -> f64 {
        let (mut all, mut beside) = (0.0_f64, 0.0_f64);
        for link in 0..self.load.len() {
            match self.is_overlooked(link) {
                true => beside = beside.max(self.own_time(link, 0.0)),
                false => all = all.max(self.time(link, 0.0)),
            }
        }
        all + beside
    }
}

/// The least of these times, eight at a time.
fn least(times: &[f64]) -> f64 {
    let mut least = [f64::INFINITY; 8];
    let chunks = times.chunks_exact(8);
    let rest = chunks.remainder().iter().copied().fold(f64::INFINITY, f64::min);
    for chunk in chunks {
        for (least, time) in least.iter_mut().zip(chunk) {
            *least = if time < least { *time } else { *least };
        }
    }
    least.into_iter().fold(rest, f64::min)
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

/// Removes repeated nodes; returns how many are left.
fn distinct(nodes: &mut Vec<usize>) -> usize {
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}

/// What new blocks may take of a node.
fn room(node: &Node) -> u64 {
    if node.usable { node.room_bytes.unwrap_or(u64::MAX) } else { 0 }
}
