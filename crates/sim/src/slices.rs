//! One plan, slice by slice.
//!
//! Every connection of the plan is a stream of slices in order. There is one for each lane and pair of nodes, as
//! on agents, and one for each disk that has a rate. A slice is sent when all its inputs have arrived and the
//! slice before it has left. Links serve slices one after the other, in the order of arrival; those that are token
//! buckets let the first ones after a pause pass at once. Time advances from event to event.
//!
//! Not modelled: bounded queues (a fast sender may be any number of slices ahead), the time that TCP takes to
//! reach its rate, and processor time beyond [`Overheads::slice_seconds`]. Of long blocks only the first slices
//! are played; after these, every slice adds the same time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use kintsu_dag::NodeId;
use kintsu_plan::traffic::{Link, Loads, Transfers, Way};
use kintsu_plan::{MOST_STEP_BYTES, Plan, RunMode, Topology};
use serde::Serialize;

use crate::turns::Turns;
use crate::{Network, Overheads, SimError};

/// After this many slices a plan is taken to be in a steady state; twice as many are played.
const STRIDE_SLICES: u64 = 512;

/// More slices than this are not listed one by one.
const MOST_DRAWN: u64 = 256;

/// The time and traffic of a plan on a network.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simulated {
    /// From the start to the last slice's arrival.
    pub seconds: f64,
    /// Payload bytes over each link that is passed, with a rate or not.
    pub links: BTreeMap<Link, u64>,
}

/// Plays a plan over blocks of `block_bytes` in slices of `slice_bytes` (for codes with sub-blocks: cells of
/// `slice_bytes`), on the network that the topology's rates describe. A plan that moves whole blocks ignores
/// `slice_bytes`. In a serial plan each node does one step after the other.
///
/// The bytes equal those of [`kintsu_plan::Account`], except that shares are rounded to whole slices.
///
/// # Errors
/// `Invalid` for a slice of no bytes or overheads out of range; `Plan` when a lane does not lower.
pub fn simulate(
    plan: &Plan,
    topology: &Topology,
    block_bytes: u64,
    slice_bytes: u64,
    overheads: &Overheads,
) -> Result<Simulated, SimError> {
    simulate_on(&Network::new(topology, overheads), plan, topology, block_bytes, slice_bytes, overheads)
}

/// As [`simulate`], on this network of the topology's links.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_on(
    network: &Network,
    plan: &Plan,
    topology: &Topology,
    block_bytes: u64,
    slice_bytes: u64,
    overheads: &Overheads,
) -> Result<Simulated, SimError> {
    let slice_bytes = step(plan, block_bytes, slice_bytes, overheads)?;
    let lanes = lanes(plan, slice_bytes, overheads)?;
    let slices = block_bytes.div_ceil(slice_bytes);
    let period = lanes.iter().map(|lane| u64::from(lane.share)).sum::<u64>().max(1);
    let stride = STRIDE_SLICES.div_ceil(period) * period;
    let play = |bytes: u64| Player::new(&lanes, network, topology, (bytes, slice_bytes), overheads).play().0;
    let seconds = if slices <= 2 * stride {
        play(block_bytes)
    } else {
        let (once, twice) = (stride * slice_bytes, 2 * stride * slice_bytes);
        let (first, both) = (play(once), play(twice));
        both + (block_bytes - twice) as f64 / once as f64 * (both - first)
    };
    let links = link_bytes(&lanes, topology, block_bytes, slice_bytes);
    Ok(Simulated { seconds: overheads.start_seconds + seconds, links })
}

/// A slice on its way from one node to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Passage {
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The number of the slice among those of its lane.
    pub slice: u64,
    /// When the last link on its way begins to serve it, in seconds.
    pub starts: f64,
    /// When that link has served it.
    pub ends: f64,
}

/// Plays a plan as [`simulate`] does, and returns every passage, in the order in which they end.
///
/// # Errors
/// As [`simulate`]; and `Invalid` for more slices than can be drawn.
pub fn passages(
    plan: &Plan,
    topology: &Topology,
    block_bytes: u64,
    slice_bytes: u64,
    overheads: &Overheads,
) -> Result<Vec<Passage>, SimError> {
    let slice_bytes = step(plan, block_bytes, slice_bytes, overheads)?;
    let slices = block_bytes.div_ceil(slice_bytes);
    if slices > MOST_DRAWN {
        return Err(SimError::invalid("slices to draw", format_args!("at most {MOST_DRAWN}"), slices));
    }
    let lanes = lanes(plan, slice_bytes, overheads)?;
    let network = Network::new(topology, overheads);
    let (_, mut passages) =
        Player::new(&lanes, &network, topology, (block_bytes, slice_bytes), overheads).play();
    for passage in &mut passages {
        passage.starts += overheads.start_seconds;
        passage.ends += overheads.start_seconds;
    }
    passages.sort_by(|a, b| a.ends.total_cmp(&b.ends));
    Ok(passages)
}

/// Checks the options; returns the slice size that follows from the run mode of the plan.
fn step(plan: &Plan, block_bytes: u64, slice_bytes: u64, overheads: &Overheads) -> Result<u64, SimError> {
    overheads.check()?;
    if slice_bytes == 0 {
        return Err(SimError::invalid("slice", "1 byte or more", slice_bytes));
    }
    let whole = plan.lanes.iter().all(|lane| lane.placed.graph.w() == 1);
    Ok(match plan.run_mode {
        RunMode::WholeBlocks if whole => block_bytes.clamp(1, MOST_STEP_BYTES.into()),
        _ => slice_bytes,
    })
}

/// A lane's transfers and its share.
struct LaneMoves {
    transfers: Transfers,
    /// The least time between the starts of its first transfers for two successive steps.
    interval: f64,
    w: u64,
    share: u32,
    /// The first of its turns in each period.
    phase: u64,
    period: u64,
    /// Whether its nodes do one step after the other.
    serial: bool,
}

impl LaneMoves {
    /// The bytes of a symbol in each of the lane's steps.
    fn steps(&self, block_bytes: u64, slice_bytes: u64) -> impl Iterator<Item = u64> + '_ {
        let turns = self.phase..self.phase + u64::from(self.share);
        let ours = (0..block_bytes.div_ceil(slice_bytes)).filter(move |t| turns.contains(&(t % self.period)));
        ours.map(move |t| (block_bytes - t * slice_bytes).min(slice_bytes) / self.w)
    }
}

fn lanes(plan: &Plan, slice_bytes: u64, overheads: &Overheads) -> Result<Vec<LaneMoves>, SimError> {
    let period = plan.lanes.iter().map(|lane| u64::from(lane.share)).sum::<u64>().max(1);
    let mut phase = 0;
    let lanes = plan.lanes.iter().map(|lane| {
        let moves = LaneMoves {
            transfers: Transfers::of(&lane.placed.lower()?, overheads.disks()).grouped(),
            interval: plan.rate_of(lane.share).map_or(0.0, |rate| slice_bytes as f64 / rate.get() as f64),
            w: lane.placed.graph.w().max(1) as u64,
            share: lane.share,
            phase,
            period,
            serial: plan.run_mode == RunMode::Serial,
        };
        phase += u64::from(lane.share);
        Ok(moves)
    });
    lanes.collect()
}

fn link_bytes(
    lanes: &[LaneMoves],
    topology: &Topology,
    block_bytes: u64,
    slice_bytes: u64,
) -> BTreeMap<Link, u64> {
    let mut loads = Loads::default();
    for lane in lanes {
        let symbol: u64 = lane.steps(block_bytes, slice_bytes).sum();
        for transfer in lane.transfers.iter() {
            loads.add(topology, transfer.way, symbol * u64::from(transfer.symbols));
        }
    }
    loads.into_map()
}

/// A connection: its transfers in order, step after step.
struct Stream {
    lane: usize,
    /// The lane's transfers that go this way.
    transfers: Vec<usize>,
    /// The links with a rate that it passes, in order.
    links: Vec<u32>,
    way: Way,
    /// How many transfers have left the first link.
    sent: usize,
    /// When the sender has handled the last slice that it started.
    handled: f64,
    /// Whether the sender has started a transfer that has not left the first link yet.
    busy: bool,
}

/// One lane while it is played. Instance `i` is transfer `i % count` of step `i / count`.
struct PlayedLane {
    followers: Vec<Vec<usize>>,
    /// By transfer: its stream.
    stream: Vec<usize>,
    symbols: Vec<u32>,
    steps: Vec<f64>,
    /// By instance: how many transfers it still waits for, and when the last of them arrived.
    waiting: Vec<(u32, f64)>,
    /// Where its nodes are, if they do one step after the other.
    turns: Option<Turns>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A transfer has arrived and can be used.
    Came { lane: usize, instance: usize },
    /// A stream's transfer has left the first link.
    Left { stream: usize },
    /// The sender has handled a stream's next transfer, which can now be sent.
    Handled { stream: usize },
    /// A stream's transfer reaches the queue of the link number `hop` on its way; `whole` is when all of it will
    /// be there.
    Queues { stream: usize, instance: usize, hop: usize, whole: Moment },
}

/// A moment. Positive numbers have the same order as their bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Moment {
    fn new(seconds: f64) -> Self {
        Self(seconds.to_bits())
    }

    fn seconds(self) -> f64 {
        f64::from_bits(self.0)
    }
}

struct Player<'a> {
    overheads: &'a Overheads,
    capacity: &'a [f64],
    /// See [`Network::ahead`].
    ahead: &'a [f64],
    lanes: Vec<PlayedLane>,
    streams: Vec<Stream>,
    events: BinaryHeap<Reverse<(Moment, Event)>>,
    now: f64,
    /// When each link will have served all that has come to it, at its rate.
    free: Vec<f64>,
    passages: Vec<Passage>,
}

impl<'a> Player<'a> {
    fn new(
        lanes: &[LaneMoves],
        network: &'a Network,
        topology: &Topology,
        (block_bytes, slice_bytes): (u64, u64),
        overheads: &'a Overheads,
    ) -> Self {
        let mut player = Self {
            overheads,
            capacity: network.capacity(),
            ahead: network.ahead(),
            lanes: Vec::new(),
            streams: Vec::new(),
            events: BinaryHeap::new(),
            now: 0.0,
            // Idle for long: buckets are full.
            free: vec![f64::NEG_INFINITY; network.capacity().len()],
            passages: Vec::new(),
        };
        for (number, lane) in lanes.iter().enumerate() {
            let steps = lane.steps(block_bytes, slice_bytes).map(|bytes| bytes as f64).collect();
            player.add(number, lane, steps, |way| network.numbered(way, topology).collect());
        }
        player
    }

    fn add(&mut self, number: usize, lane: &LaneMoves, steps: Vec<f64>, links: impl Fn(Way) -> Vec<u32>) {
        let count = lane.transfers.len();
        let mut played = PlayedLane {
            followers: vec![Vec::new(); count],
            stream: Vec::with_capacity(count),
            symbols: lane.transfers.iter().map(|transfer| transfer.symbols).collect(),
            waiting: Vec::with_capacity(count * steps.len()),
            turns: lane.serial.then(|| Turns::new(&lane.transfers)),
            steps,
        };
        let mut ways: BTreeMap<Way, usize> = BTreeMap::new();
        for (i, transfer) in lane.transfers.iter().enumerate() {
            transfer.waits.iter().for_each(|&before| played.followers[before].push(i));
            let stream = *ways.entry(transfer.way).or_insert_with(|| {
                self.streams.push(Stream {
                    lane: number,
                    transfers: Vec::new(),
                    links: links(transfer.way),
                    way: transfer.way,
                    sent: 0,
                    handled: 0.0,
                    busy: false,
                });
                self.streams.len() - 1
            });
            self.streams[stream].transfers.push(i);
            played.stream.push(stream);
        }
        for step in 0..played.steps.len() {
            // A transfer that waits for no other can start at this time; for others the time is replaced when the
            // last input arrives.
            let since = step as f64 * lane.interval;
            let turn = u32::from(lane.serial && step > 0);
            played
                .waiting
                .extend(lane.transfers.iter().map(|transfer| (transfer.waits.len() as u32 + turn, since)));
        }
        self.lanes.push(played);
    }

    /// Seconds until the last transfer has come, and all passages.
    fn play(mut self) -> (f64, Vec<Passage>) {
        (0..self.streams.len()).for_each(|stream| self.take_up(stream));
        while let Some(Reverse((at, event))) = self.events.pop() {
            self.now = at.seconds();
            match event {
                Event::Came { lane, instance } => self.came(lane, instance),
                Event::Left { stream } => {
                    self.streams[stream].sent += 1;
                    self.streams[stream].busy = false;
                    self.take_up(stream);
                }
                Event::Handled { stream } => self.send(stream),
                Event::Queues { stream, instance, hop, whole } => {
                    self.queue(stream, instance, hop, whole.seconds());
                }
            }
        }
        (self.now, self.passages)
    }

    fn at(&mut self, seconds: f64, event: Event) {
        self.events.push(Reverse((Moment::new(seconds), event)));
    }

    fn came(&mut self, lane: usize, instance: usize) {
        let played = &self.lanes[lane];
        let count = played.stream.len();
        let step = instance / count * count;
        for f in 0..played.followers[instance % count].len() {
            let follower = self.lanes[lane].followers[instance % count][f];
            self.no_longer_waits(lane, step + follower);
        }
        let turns = self.lanes[lane].turns.as_mut();
        for released in turns.map(|turns| turns.came(instance)).unwrap_or_default() {
            self.no_longer_waits(lane, released);
        }
    }

    /// One of the things that an instance waits for has happened.
    fn no_longer_waits(&mut self, lane: usize, instance: usize) {
        let played = &mut self.lanes[lane];
        let Some((left, since)) = played.waiting.get_mut(instance) else { return };
        *left -= 1;
        if *left == 0 {
            *since = self.now;
            let stream = played.stream[instance % played.stream.len()];
            self.take_up(stream);
        }
    }

    /// Lets a stream handle its next transfer, if all inputs of the transfer are there and the transfer before it
    /// has left.
    fn take_up(&mut self, stream: usize) {
        let at = &mut self.streams[stream];
        let lane = &self.lanes[at.lane];
        let Some(instance) = at.next(lane).filter(|_| !at.busy) else { return };
        let (left, since) = lane.waiting[instance];
        if left > 0 {
            return;
        }
        let handling = if at.between() { self.overheads.slice_seconds } else { 0.0 };
        // It was handled while the transfer before it was on its way.
        at.handled = at.handled.max(since) + handling;
        at.busy = true;
        let handled = at.handled.max(self.now);
        self.at(handled, Event::Handled { stream });
    }

    fn send(&mut self, stream: usize) {
        let at = &self.streams[stream];
        let Some(instance) = at.next(&self.lanes[at.lane]) else { return };
        if at.links.is_empty() {
            self.at(self.now, Event::Left { stream });
            self.arrive(stream, instance, (self.now, self.now));
        } else {
            self.queue(stream, instance, 0, self.now);
        }
    }

    /// A transfer waits until the link has served what came before it. It enters the next link while this link
    /// still serves it. Its last byte leaves when this link has served it, but not before its last byte has
    /// arrived, at `whole`. A link that is faster than the links before it serves other transfers in between. A token
    /// bucket serves what comes after a pause as if it had come [`Network::ahead`] earlier.
    fn queue(&mut self, stream: usize, instance: usize, hop: usize, whole: f64) {
        let at = &self.streams[stream];
        let link = at.links[hop] as usize;
        let last = hop + 1 == at.links.len();
        let served = self.free[link].max(self.now - self.ahead[link]);
        self.free[link] = served + self.bytes(at, instance) / self.capacity[link];
        let (starts, ends) = (served.max(self.now), self.free[link].max(whole));
        if hop == 0 {
            self.at(ends, Event::Left { stream });
        }
        match last {
            true => self.arrive(stream, instance, (starts, ends)),
            false => {
                self.at(starts, Event::Queues { stream, instance, hop: hop + 1, whole: Moment::new(ends) })
            }
        }
    }

    fn arrive(&mut self, stream: usize, instance: usize, (starts, ends): (f64, f64)) {
        let Stream { lane, way, .. } = self.streams[stream];
        let mut hop = 0.0;
        if let Way::Between(from, to) = way {
            hop = self.overheads.hop_seconds;
            let slice = (instance / self.lanes[lane].stream.len()) as u64;
            self.passages.push(Passage { from, to, slice, starts, ends });
        }
        self.at(ends + hop, Event::Came { lane, instance });
    }

    /// Bytes of a transfer on links.
    fn bytes(&self, stream: &Stream, instance: usize) -> f64 {
        let lane = &self.lanes[stream.lane];
        let count = lane.stream.len();
        let payload = lane.steps[instance / count] * f64::from(lane.symbols[instance % count]);
        if stream.between() { self.overheads.on_wire(payload) } else { payload }
    }
}

impl Stream {
    /// Whether the overheads of slices apply; to disks they do not.
    fn between(&self) -> bool {
        matches!(self.way, Way::Between(..))
    }

    /// The instance that is to be sent next.
    fn next(&self, lane: &PlayedLane) -> Option<usize> {
        let (step, at) = (self.sent / self.transfers.len(), self.sent % self.transfers.len());
        (step < lane.steps.len()).then(|| step * lane.stream.len() + self.transfers[at])
    }
}
