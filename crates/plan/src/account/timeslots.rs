//! How long a plan takes, in timeslots.
//!
//! A timeslot is the time in which one block passes one link (ECPipe, section 2.2). Every node has an uplink and a
//! downlink, each busy with one transfer at a time; computing and reading are free. [`Plan::timeslots`] plays the
//! plan's transfers slice by slice under these rules, whatever its shape. The result agrees with the papers'
//! formulas: with one slice k+f-1 for conventional repair (section 2.2) and ceil(log2(k+1)) for PPR; with s slices
//! f(1+(k-1)/s) for chains (sections 3.2, 4.4), and for cyclic chains (section 4.1) if the slices go group by
//! group as in the paper. Links that serve transfers first come, first served need a little longer to get into
//! step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use kintsu_dag::NodeId;

use crate::Lane;
use crate::traffic::{Disks, Transfers, Way};
use crate::{Plan, PlanError};

/// This many slices are played one by one. Beyond that, each slice adds the same time.
const PLAYED_SLICES: usize = 512;

impl Plan {
    /// Predicted timeslots when blocks are sent in this many slices and all links are equal. With one slice, nodes
    /// send on whole blocks, as the papers assume for conventional repair and PPR.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub fn timeslots(&self, slices: usize) -> Result<f64, PlanError> {
        let w = self.lanes.first().map_or(1, |lane| lane.placed.graph.w());
        let slices = slices.max(1);
        let ticks = if slices <= 2 * PLAYED_SLICES {
            self.ticks(slices)? as f64
        } else {
            let (half, whole) = (self.ticks(PLAYED_SLICES)?, self.ticks(2 * PLAYED_SLICES)?);
            let more = (slices - 2 * PLAYED_SLICES) as f64 / PLAYED_SLICES as f64;
            whole as f64 + more * (whole - half) as f64
        };
        Ok(ticks / (slices * w) as f64)
    }

    /// Ticks for this many slices. Several lanes are also tried in step, which is best for cyclic paths: a node
    /// then sends all its transfers for a slice together, and every turn is as long as the most that any node
    /// sends.
    fn ticks(&self, slices: usize) -> Result<u64, PlanError> {
        let lanes = self.moves()?;
        let freely = play(self.dealt(lanes.clone(), slices));
        if lanes.len() == 1 {
            return Ok(freely);
        }
        let period = self.lanes.iter().map(|lane| lane.share as usize).sum();
        let most = lanes.iter().map(Moves::most_sent).max().unwrap_or(1) as u64;
        let bundled = lanes.iter().map(Moves::bundled).collect();
        let in_step = play_in_step(self.dealt(bundled, slices), period);
        Ok(in_step.map_or(freely, |turns| freely.min(turns * most)))
    }

    fn moves(&self) -> Result<Vec<Moves>, PlanError> {
        self.lanes.iter().map(Moves::of).collect()
    }

    /// The lanes with the slices that each gets by its share.
    fn dealt(&self, moves: Vec<Moves>, slices: usize) -> Vec<Played> {
        let period: usize = self.lanes.iter().map(|lane| lane.share as usize).sum();
        let mut first = 0;
        let lanes = self.lanes.iter().zip(moves).map(|(lane, moves)| {
            let turns = first..first + lane.share as usize;
            first = turns.end;
            let ours = (0..slices).filter(|slice| turns.contains(&(slice % period.max(1)))).collect();
            Played::new(moves, ours)
        });
        lanes.collect()
    }
}

/// The transfers of one lane for one slice, as they are played.
#[derive(Clone)]
struct Moves {
    /// Sender and receivers (one, unless bundled).
    ends: Vec<(NodeId, Vec<NodeId>)>,
    waits: Vec<BTreeSet<usize>>,
}

impl Moves {
    fn of(lane: &Lane) -> Result<Self, PlanError> {
        let transfers = Transfers::of(&lane.placed.lower()?, Disks::default());
        let between = transfers.iter().filter_map(|transfer| match transfer.way {
            Way::Between(from, to) => Some((from, vec![to])),
            Way::Read(_) | Way::Write(_) => None,
        });
        let waits = transfers.iter().map(|transfer| transfer.waits.iter().copied().collect());
        Ok(Self { ends: between.collect(), waits: waits.collect() })
    }

    /// The most transfers that one node sends.
    fn most_sent(&self) -> usize {
        let mut sent: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.ends.iter().for_each(|(from, _)| *sent.entry(*from).or_default() += 1);
        sent.into_values().max().unwrap_or(1)
    }

    /// Bundles all that a node sends into one transfer, which waits for everything that any part of it waits for.
    fn bundled(&self) -> Self {
        let senders: BTreeSet<NodeId> = self.ends.iter().map(|(from, _)| *from).collect();
        let number: BTreeMap<NodeId, usize> = senders.into_iter().zip(0..).collect();
        let mut bundles: Vec<_> = number.keys().map(|from| (*from, Vec::new())).collect();
        let mut waits = vec![BTreeSet::new(); bundles.len()];
        for ((from, to), before) in self.ends.iter().zip(&self.waits) {
            bundles[number[from]].1.extend(to);
            waits[number[from]].extend(before.iter().map(|&transfer| number[&self.ends[transfer].0]));
        }
        Self { ends: bundles, waits }
    }
}

/// One lane while it is played. Instance `i` of its transfers is transfer `i % count` of its slice
/// number `i / count`.
struct Played {
    moves: Moves,
    /// For each transfer, those that wait for it.
    followers: Vec<Vec<usize>>,
    /// The lane's slices.
    slices: Vec<usize>,
    /// For each instance, how many transfers it still waits for, and when the last of those came.
    waiting: Vec<(usize, u64)>,
}

impl Played {
    fn new(moves: Moves, slices: Vec<usize>) -> Self {
        let count = moves.ends.len();
        let mut followers = vec![Vec::new(); count];
        for (transfer, waits) in moves.waits.iter().enumerate() {
            waits.iter().for_each(|&before| followers[before].push(transfer));
        }
        // A transfer waits for its inputs and, except for the first slice, for its own previous slice.
        let waits = |i: usize| moves.waits[i % count].len() + usize::from(i >= count);
        let waiting = (0..slices.len() * count).map(|i| (waits(i), 0)).collect();
        Self { moves, followers, slices, waiting }
    }

    fn ends(&self, i: usize) -> &(NodeId, Vec<NodeId>) {
        &self.moves.ends[i % self.moves.ends.len()]
    }

    fn slice(&self, i: usize) -> usize {
        self.slices[i / self.moves.ends.len()]
    }

    /// Whether it waits for no other transfer of its slice.
    fn is_first(&self, i: usize) -> bool {
        self.moves.waits[i % self.moves.ends.len()].is_empty()
    }

    /// Whether no other transfer of its slice waits for it.
    fn is_last(&self, i: usize) -> bool {
        self.followers[i % self.moves.ends.len()].is_empty()
    }

    /// The instances that can start now that instance `i` has ended at `end`, each with the tick from which it
    /// can.
    fn done(&mut self, i: usize, end: u64) -> Vec<(u64, usize)> {
        let count = self.moves.ends.len();
        let next = (i + count < self.waiting.len()).then_some(i + count);
        let after = self.followers[i % count].iter().map(|f| i / count * count + f).chain(next);
        let mut ready = Vec::new();
        for j in after {
            let (left, since) = &mut self.waiting[j];
            *left -= 1;
            *since = end.max(*since);
            if *left == 0 {
                ready.push((*since, j));
            }
        }
        ready
    }
}

/// The tick until which each node's links are busy, out and in.
#[derive(Default)]
struct BusyUntil {
    up: BTreeMap<NodeId, u64>,
    down: BTreeMap<NodeId, u64>,
}

impl BusyUntil {
    /// When the links of a transfer that is ready at tick `ready` are free.
    fn free(&self, (from, to): &(NodeId, Vec<NodeId>), ready: u64) -> u64 {
        let busy = |links: &BTreeMap<NodeId, u64>, node| links.get(node).copied().unwrap_or(0);
        to.iter().map(|to| busy(&self.down, to)).fold(ready.max(busy(&self.up, from)), u64::max)
    }

    fn take(&mut self, (from, to): &(NodeId, Vec<NodeId>), end: u64) {
        self.up.insert(*from, end);
        self.down.extend(to.iter().map(|to| (*to, end)));
    }
}

/// The tick at which the last transfer ends, if a transfer takes one tick. Transfers start in the
/// order in which they become ready, those of earlier slices first.
fn play(mut lanes: Vec<Played>) -> u64 {
    let mut queue = BinaryHeap::new();
    for (number, lane) in lanes.iter().enumerate() {
        let start = (0..lane.waiting.len()).filter(|&i| lane.waiting[i].0 == 0);
        queue.extend(start.map(|i| Reverse((0u64, lane.slice(i), number, i))));
    }
    let mut links = BusyUntil::default();
    let mut last = 0;
    while let Some(Reverse((ready, _, number, i))) = queue.pop() {
        let lane = &mut lanes[number];
        let end = links.free(lane.ends(i), ready) + 1;
        links.take(lane.ends(i), end);
        last = last.max(end);
        for (ready, next) in lane.done(i, end) {
            queue.push(Reverse((ready, lane.slice(next), number, next)));
        }
    }
    last
}

/// As [`play`], with the slices in groups of `period`, one turn of all lanes. A group starts when the slices of
/// the group before have finished all but their last transfers (ECPipe, section 4.1). Where a link is busy for one
/// transfer, later ones may overtake it. `None` where transfers wait for each other in a cycle, which bundled ones
/// can.
fn play_in_step(mut lanes: Vec<Played>, period: usize) -> Option<u64> {
    let mut queue = BinaryHeap::new();
    // For each group: how many transfers, the last ones of each slice not counted, are not done, and when the
    // latest finished one ended.
    let mut phases: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    let mut held: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, lane) in lanes.iter().enumerate() {
        for i in 0..lane.waiting.len() {
            let group = lane.slice(i) / period;
            phases.entry(group).or_default().0 += usize::from(!lane.is_last(i));
            if lane.is_first(i) {
                held.entry(group).or_default().push((number, i));
            }
        }
    }
    let start = |lanes: &[Played], held: Option<Vec<(usize, usize)>>, at: u64| -> Vec<_> {
        let held = held.unwrap_or_default().into_iter();
        held.map(|(number, i)| Reverse((at, lanes[number].slice(i), number, i))).collect()
    };
    queue.extend(start(&lanes, held.remove(&0), 0));
    let mut left: usize = lanes.iter().map(|lane| lane.waiting.len()).sum();
    let mut links = BusyUntil::default();
    let (mut last, mut open) = (0, 0);
    while let Some(Reverse((ready, slice, number, i))) = queue.pop() {
        let free = links.free(lanes[number].ends(i), ready);
        if free > ready {
            queue.push(Reverse((free, slice, number, i)));
            continue;
        }
        let end = ready + 1;
        links.take(lanes[number].ends(i), end);
        left -= 1;
        last = last.max(end);
        for (ready, next) in lanes[number].done(i, end) {
            if !lanes[number].is_first(next) {
                queue.push(Reverse((ready, lanes[number].slice(next), number, next)));
            }
        }
        if !lanes[number].is_last(i) {
            let phase = phases.entry(slice / period).or_default();
            *phase = (phase.0 - 1, phase.1.max(end));
        }
        while let Some((0, end)) = phases.get(&open).copied() {
            open += 1;
            queue.extend(start(&lanes, held.remove(&open), end));
        }
    }
    (left == 0).then_some(last)
}
