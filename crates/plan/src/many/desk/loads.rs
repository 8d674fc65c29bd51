//! What links and disks carry for planned repairs.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::{Desk, Tree};
use crate::many::scene::Planned;
use crate::traffic::Way;

impl Desk<'_> {
    /// Notes a planned repair: its loads, with `bytes` of the block left to do, and its requestor's new block.
    pub fn settle(&mut self, planned: &Planned, bytes: f64) {
        self.carry(planned, bytes);
        if let Some(number) = self.number(planned.requestor) {
            self.take(number, planned.bytes);
            self.given.entry(planned.stripe).or_default().push((planned.block, number));
        }
    }

    /// The numbers of the links that something passes.
    fn passed(&self, way: Way<usize>) -> impl Iterator<Item = usize> + '_ {
        // Without rates of racks' links nothing needs to know which of them it passes.
        let links = way.links(&|node| self.racked.then(|| self.rack[node]));
        links.filter_map(|link| self.numbered(link))
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
        let mut load = std::mem::take(&mut self.load);
        tree.ways(also, |way, blocks| {
            self.passed(way).for_each(|link| load[link] += blocks as f64 * bytes);
        });
        self.load = load;
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
            let links: Vec<usize> = self.passed(Way::Between(from, to)).collect();
            links.into_iter().for_each(|link| self.load[link] += bytes);
        }
    }

    /// Time passes in which links and disks carry what they were given; what is left is fixed.
    pub fn pass(&mut self, seconds: f64) {
        for (load, pace) in self.load.iter_mut().zip(&self.pace) {
            *load = if *pace > 0.0 { (*load - seconds / pace).max(0.0) } else { 0.0 };
        }
        self.fixed.clone_from(&self.load);
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
