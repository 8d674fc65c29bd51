//! Volumes in histories: what clients do with them (here), the model of a disk that judges what they read (`disk.rs`,
//! `sector.rs`), the clients (`user.rs`), snapshots (`snapshots.rs`), and what must hold at the end (`end.rs`).
//!
//! Seeds from [`FIRST_SEED`] on have volumes. Clients of a history share them: the first one makes, resizes and removes
//! them, all of them write (the others by taking the volume over, or when nobody writes) and read.

mod disk;
mod end;
mod sector;
mod snapshots;
mod user;

use std::collections::BTreeSet;

use kintsu_wire::message::Durability;

use crate::dice::Dice;
use crate::history::{FAULTS_MS, Fault, History, Host, Op};

pub use end::{hold, removed, without_snapshots};
pub use user::{Hand, User, Volumes};

/// Histories of these seeds have volumes.
pub const FIRST_SEED: u64 = 1_000_000;

/// From this seed on volumes have several schemes; those of earlier seeds, some of which failed once, keep the default.
pub const FIRST_SEED_WITH_SCHEMES: u64 = FIRST_SEED + 2000;

/// From this seed on clients take, read and remove snapshots of volumes.
pub const FIRST_SEED_WITH_SNAPSHOTS: u64 = FIRST_SEED + 4000;

/// From this seed on racks have several nodes, which fail at once.
pub const FIRST_SEED_WITH_RACKS: u64 = FIRST_SEED + 6000;

/// From this seed on the ends of logs rot.
pub const FIRST_SEED_WITH_ROTTEN_LOGS: u64 = FIRST_SEED + 8000;

/// Nodes of a rack from [`FIRST_SEED_WITH_RACKS`] on: no more than codes of volumes bear losses.
const RACK_NODES: u32 = 2;

/// How the parities of volumes follow; `None` for the default.
const SCHEMES: [Option<&str>; 3] = [Some("parix"), Some("baseline"), None];

/// Most volumes of a history.
const MOST: u64 = 2;

/// What all volumes of a history are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Their code.
    pub code: &'static str,
    /// How many lost blocks of a stripe it bears.
    pub bears: usize,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes of a volume when it is made.
    pub size: u64,
    /// The client that makes and removes them.
    pub first_user: u64,
    /// The scheme of the first one, by its place among [`SCHEMES`]; the next one has the next.
    scheme: Option<u64>,
}

impl Shape {
    /// The scheme of a volume; `None` for the default.
    pub fn scheme(&self, number: u64) -> Option<&'static str> {
        SCHEMES[((self.scheme? + number) % SCHEMES.len() as u64) as usize]
    }
}

/// What a client does with a volume. Ranges are cut at the volume's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Act {
    /// Writes, as the volume's writer. If it is not that yet it becomes it; if `take`, even if there is another one.
    Write { offset: u64, len: u64, take: bool },
    /// The same range several times at once; nobody knows which one is the last.
    Burst { offset: u64, len: u64, count: u64 },
    /// Zeros, as the volume's writer.
    Zeroes { offset: u64, len: u64, trim: bool },
    /// Reads, by the volume that the client has open.
    Read { offset: u64, len: u64 },
    /// Opens the volume to read, and reads.
    ReadAnew { offset: u64, len: u64 },
    /// Asks whether it is still the writer.
    Flush,
    /// Brings what is logged into blocks and parities.
    Commit { scheme: &'static str },
    /// Gives the lease back.
    Close,
    /// Changes the size by this many stripes.
    Resize { more: i64 },
    /// Removes the volume; the next step of the first client makes it again.
    Remove,
    /// Takes a snapshot.
    Snapshot,
    /// Reads of one of the snapshots, whichever volume it is of.
    ReadSnapshot { which: u64, offset: u64, len: u64 },
    /// Removes one of them.
    RemoveSnapshot { which: u64 },
}

/// Adds volumes to a history.
pub fn add(history: &mut History, dice: &mut Dice, victims: [u32; 2], destructive: bool) {
    // A code whose tolerance is shared by what is destroyed and by parities that commits give up because nodes are away.
    let (code, k, bears) = if dice.percent(60) { ("rs:n=5,k=3", 3, 2) } else { ("rs:n=5,k=2", 2, 3) };
    let durability = [Durability::Rack, Durability::Node, Durability::Parity][dice.below(3) as usize];
    let block_bytes = if dice.percent(70) { 4096 } else { 8192 };
    let stripes = dice.within(1, 5);
    let size = stripes * k * block_bytes - if dice.percent(50) { 0 } else { 512 * dice.below(k * 8) };
    // Volumes are only in metadata: older ones would lack them.
    let older = |fault: &Fault| match fault {
        Fault::CopyMetadata | Fault::OlderMetadata { .. } => true,
        Fault::WrongFolder { host, .. } => *host == Host::Coordinator,
        _ => false,
    };
    history.faults.retain(|(_, fault)| !older(fault));
    let mut rack = BTreeSet::new();
    if history.seed >= FIRST_SEED_WITH_RACKS {
        history.rack_nodes = RACK_NODES;
        rack.extend(history.rack_mates(victims[0]));
    }
    if destructive {
        spare(history, dice, victims, bears, durability, &rack);
    }
    if !rack.is_empty() {
        // A replica may be in the rack of its block otherwise.
        let loses = destructive && durability != Durability::Node && dice.percent(50);
        fail_together(history, dice, &rack, loses);
    }
    if history.seed >= FIRST_SEED_WITH_ROTTEN_LOGS {
        rot_logs(history);
    }
    // Objects are tortured by other seeds.
    history.writers.truncate(if dice.percent(50) { 1 } else { 4 });
    let first_user = history.writers.len() as u64;
    // Not drawn, so that seeds keep their steps.
    let scheme = (history.seed >= FIRST_SEED_WITH_SCHEMES).then_some(history.seed);
    history.shape = Some(Shape { code, bears, durability, block_bytes, size, first_user, scheme });
    let volumes = dice.within(1, MOST);
    let snapshots = history.seed >= FIRST_SEED_WITH_SNAPSHOTS;
    for client in 0..dice.within(1, 3) {
        let count = dice.within(8, 24);
        let ops = (0..count).map(|_| op(dice, volumes, size, client == 0, snapshots)).collect();
        history.writers.push(ops);
    }
}

/// Leaves no more faults than a stripe bears: what a node loses for good, and parities of nodes that count as dead, such as those
/// of `rack`.
fn spare(
    history: &mut History,
    dice: &mut Dice,
    victims: [u32; 2],
    bears: usize,
    durability: Durability,
    rack: &BTreeSet<u32>,
) {
    // Other volumes log on two nodes.
    let two = durability == Durability::Parity && bears > 2 && dice.percent(50);
    let lost: BTreeSet<u32> = victims.into_iter().take(if two { 2 } else { 1 }).collect();
    let mut dead: BTreeSet<u32> = lost.union(rack).copied().collect();
    while dead.len() < bears {
        dead.insert(dice.below(u64::from(history.nodes)) as u32);
    }
    let kept = |(_, fault): &(u64, Fault)| {
        let hosts = match fault {
            Fault::Rot { node, .. }
            | Fault::RotLog { node, .. }
            | Fault::Unreadable { node, .. }
            | Fault::LoseDisk { node, .. } => {
                return lost.contains(node);
            }
            Fault::LoseName { node, .. } => return dead.contains(node),
            Fault::Kill { host, .. }
            | Fault::Power { host, .. }
            | Fault::WrongFolder { host, .. }
            | Fault::DiskError { host, .. } => [*host, Host::Coordinator],
            // Two nodes that do not reach each other are not dead.
            Fault::Partition { a, b, .. } | Fault::Hold { a, b, .. } | Fault::Slow { a, b, .. }
                if [*a, *b].contains(&Host::Coordinator) =>
            {
                [*a, *b]
            }
            _ => return true,
        };
        hosts.iter().all(|host| !matches!(host, Host::Node(node) if !dead.contains(node)))
    };
    history.faults.retain(kept);
    for op in history.writers.iter_mut().flatten() {
        if let Op::Wipe { node, .. } = op
            && !lost.contains(node)
        {
            *node = victims[0];
        }
    }
}

/// All nodes of a rack fail at the same moment, once or several times; if it `loses` its disks, once.
fn fail_together(history: &mut History, dice: &mut Dice, rack: &BTreeSet<u32>, loses: bool) {
    if loses {
        // Whatever else is destroyed, or brought to these nodes from others, may be more than a stripe bears.
        history.faults.retain(|(_, fault)| !fault.destroys());
        for op in history.writers.iter_mut().flatten() {
            if matches!(op, Op::Wipe { .. } | Op::Drain { .. }) {
                *op = Op::Pause { ms: 200 };
            }
        }
    }
    for _ in 0..if loses { 1 } else { dice.within(1, 3) } {
        let (at, down_ms, power) = (dice.below(FAULTS_MS), dice.within(0, 4000), dice.percent(50));
        for &node in rack {
            let host = Host::Node(node);
            let fault = match (loses, power) {
                (true, _) => Fault::LoseDisk { node, down_ms },
                (false, true) => {
                    Fault::Power { host, operations: dice.within(1, 20), seed: dice.next(), down_ms }
                }
                (false, false) => Fault::Kill { host, down_ms },
            };
            history.faults.push((at, fault));
        }
    }
}

/// What would spoil a block spoils the end of its node's log. No node loses power: where a crash cuts off another log of the same block at
/// the same time, nobody can tell which of the two lacks something.
fn rot_logs(history: &mut History) {
    for (_, fault) in &mut history.faults {
        *fault = match *fault {
            Fault::Rot { node, pick } | Fault::Unreadable { node, pick } => {
                Fault::RotLog { node, pick, down_ms: pick % 3000 }
            }
            Fault::Power { host: Host::Node(node), down_ms, .. } => {
                Fault::Kill { host: Host::Node(node), down_ms }
            }
            other => other,
        };
    }
}

fn op(dice: &mut Dice, volumes: u64, size: u64, first: bool, snapshots: bool) -> Op {
    if dice.percent(12) {
        return Op::Pause { ms: dice.within(50, 1200) };
    }
    if dice.percent(4) {
        return Op::Repair;
    }
    let number = if dice.percent(75) { 0 } else { dice.below(volumes) };
    let (offset, len) = range(dice, size);
    if snapshots && dice.percent(30) {
        let which = dice.below(4);
        let act = match dice.below(10) {
            0..3 => Act::Snapshot,
            3..9 => Act::ReadSnapshot { which, offset, len },
            _ => Act::RemoveSnapshot { which },
        };
        return Op::Volume { number, act };
    }
    let act = match dice.below(100) {
        0..34 => Act::Write { offset, len, take: dice.percent(if first { 50 } else { 15 }) },
        34..40 => Act::Burst { offset, len, count: dice.within(2, 3) },
        40..47 => Act::Zeroes { offset, len, trim: dice.percent(50) },
        47..65 => Act::Read { offset, len },
        65..76 => Act::ReadAnew { offset, len },
        76..80 => Act::Flush,
        80..91 => Act::Commit { scheme: ["optimal", "cau", "baseline"][dice.below(3) as usize] },
        91..94 => Act::Close,
        94..97 if first => Act::Resize { more: dice.below(4) as i64 - 1 },
        97..99 if first => Act::Remove,
        _ => Act::Read { offset: 0, len: u64::MAX },
    };
    Op::Volume { number, act }
}

/// Any bytes, whole sectors, or about a block.
fn range(dice: &mut Dice, size: u64) -> (u64, u64) {
    let (offset, len) = match dice.below(10) {
        0..4 => (dice.below(size), dice.within(1, 3000)),
        4..7 => (dice.below(size) / 512 * 512, 512 * dice.within(1, 12)),
        7..9 => (dice.below(size) / 4096 * 4096, 4096 * dice.within(1, 3)),
        _ => (dice.below(size), dice.within(1, size)),
    };
    (offset, len)
}
