//! Who may get a block, by the rules of placement, and what was given already.

use std::borrow::Cow;
use std::sync::Arc;

use kintsu_dag::BlockIndex;

use super::Desk;
use crate::many::recovery::DamagedStripe;
use crate::many::scene::LostBlock;
use crate::stripe::place::{Verdict, verdict};
use crate::{Node, PlanError};

/// The nodes that may get a block: the best by the rules of placement.
#[derive(Debug, Clone)]
pub(in crate::many) struct Places {
    bytes: u64,
    /// Nodes that must not get it, ascending.
    taken: Vec<usize>,
    /// By rack: whether it is among the best. Empty if all are.
    good: Vec<bool>,
}

impl Desk<'_> {
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

    /// Notes only that a node gets the block.
    pub fn give(&mut self, lost: &LostBlock<'_>, number: usize) {
        self.take(number, lost.bytes());
        self.given.entry(lost.stripe.view.id).or_default().push((lost.block, number));
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

    pub(super) fn take(&mut self, number: usize, bytes: u64) {
        if self.room[number] != u64::MAX {
            self.room[number] = self.room[number].saturating_sub(bytes);
        }
    }

    /// Whether every node that may get blocks has room for this many bytes.
    pub fn fits_everywhere(&self, bytes: u64) -> bool {
        self.room.iter().all(|room| *room == 0 || *room >= bytes)
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

/// What new blocks may take of a node.
pub(super) fn room(node: &Node) -> u64 {
    if node.usable { node.room_bytes.unwrap_or(u64::MAX) } else { 0 }
}
