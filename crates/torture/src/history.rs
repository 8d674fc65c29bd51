//! Histories: what clients do, and what goes wrong meanwhile. A history is made from a seed before anything
//! runs, so that parts of it can be left out.

use std::collections::BTreeSet;
use std::fmt;

use crate::dice::Dice;
use crate::kinds;
use crate::volumes::{self, Act, Shape};

/// Names that each writer has.
pub const NAMES: u64 = 3;
/// The same where many small objects are put at once.
const MANY_NAMES: u64 = 12;
/// In histories with these seeds, clients put many small objects at once.
const MANY: std::ops::Range<u64> = 900_000..1_000_000;
/// Their objects have up to this many bytes.
const SMALL_BYTES: u64 = 4000;
/// Faults begin within this time, in milliseconds.
pub const FAULTS_MS: u64 = 6_000;

/// A host: the coordinator, a node, or the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// The coordinator.
    Coordinator,
    /// A node's agent.
    Node(u32),
    /// The clients.
    Clients,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Coordinator => f.write_str("coordinator"),
            Self::Node(node) => write!(f, "node{node}"),
            Self::Clients => f.write_str("clients"),
        }
    }
}

/// One step of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    /// Puts or replaces an object of this writer.
    Put { name: u64, len: usize, offline: bool },
    /// Puts or replaces several small objects of this writer at the same time: those whose bits are set.
    PutMany { names: u64, len: usize },
    /// Removes an object of this writer.
    Remove { name: u64 },
    /// Reads an object of any writer: all of it, or a range in thousandths.
    Get { writer: u64, name: u64, range: Option<(u64, u64)> },
    /// Repairs all lost blocks.
    Repair,
    /// Makes the parity of an object of this writer.
    Encode { name: u64 },
    /// Reports falsely that the blocks of an object of this writer are bad.
    Accuse { name: u64 },
    /// Verifies all blocks.
    Scrub,
    /// Gathers small objects into packs.
    Repack,
    /// Empties a node onto others; whoever asked waits so long for the end.
    Drain { node: u32, patience_ms: u64 },
    /// Deletes the blocks of a node; the client waits for the end for at most this time.
    Wipe { node: u32, patience_ms: u64 },
    /// Uses a volume.
    Volume { number: u64, act: Act },
    /// Does nothing.
    Pause { ms: u64 },
}

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fault {
    /// A process is killed; everything that it wrote is still there.
    Kill { host: Host, down_ms: u64 },
    /// A host loses power before its disk operation of this number, counted from now. What was not synced may
    /// be gone or incomplete.
    Power { host: Host, operations: u64, seed: u64, down_ms: u64 },
    /// Packets between two hosts are lost, both ways or one.
    Partition { a: Host, b: Host, one_way: bool, ms: u64 },
    /// Packets between two hosts are held back and arrive later, in order.
    Hold { a: Host, b: Host, ms: u64 },
    /// A link is slow.
    Slow { a: Host, b: Host, latency_ms: u64, ms: u64 },
    /// A byte of a block changes.
    Rot { node: u32, pick: u64 },
    /// A node is killed, and the end of its log is cut or a byte of it changes before it is started again.
    RotLog { node: u32, pick: u64, down_ms: u64 },
    /// A block cannot be read any more.
    Unreadable { node: u32, pick: u64 },
    /// One disk operation fails.
    DiskError { host: Host, operations: u64 },
    /// A disk is full for a while.
    Full { node: u32, ms: u64 },
    /// The time of day jumps.
    Clock { seconds: i64 },
    /// A node's disk is replaced by an empty one.
    LoseDisk { node: u32, down_ms: u64 },
    /// A host is started without its disk, on an empty folder; later the right one is back.
    WrongFolder { host: Host, ms: u64 },
    /// A node is started without `node.json`; later the file is back.
    LoseName { node: u32, ms: u64 },
    /// Somebody copies the metadata.
    CopyMetadata,
    /// The coordinator is started on that copy. At the end the metadata are completed from the blocks.
    OlderMetadata { down_ms: u64 },
}

/// The history of one seed.
#[derive(Debug, Clone)]
pub struct History {
    /// The seed. The network and the randomness of the processes depend on it too.
    pub seed: u64,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of nodes in each rack; the last one may have fewer.
    pub rack_nodes: u32,
    /// What each client does.
    pub writers: Vec<Vec<Op>>,
    /// The faults, each with its time in milliseconds.
    pub faults: Vec<(u64, Fault)>,
    /// What its volumes are like, if it has any.
    pub shape: Option<Shape>,
}

impl Fault {
    /// Whether it destroys durable blocks.
    pub fn destroys(&self) -> bool {
        matches!(
            self,
            Self::Rot { .. } | Self::RotLog { .. } | Self::Unreadable { .. } | Self::LoseDisk { .. }
        )
    }
}

impl History {
    /// The history of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let nodes = dice.within(6, 8) as u32;
        // Blocks are destroyed only on these nodes, so a stripe does not lose more than its code tolerates.
        let first = dice.below(u64::from(nodes)) as u32;
        let victims = [first, (first + 1 + dice.below(u64::from(nodes) - 1) as u32) % nodes];
        // A stripe without parity tolerates no loss: so if some objects are encoded later, nothing is
        // destroyed.
        let destructive = dice.percent(75);
        let writers = dice.within(1, 3);
        let writers = (0..writers).map(|_| ops(&mut dice, writers, nodes, victims, destructive)).collect();
        let count = dice.within(1, 10);
        let mut faults: Vec<_> =
            (0..count).map(|_| (dice.below(FAULTS_MS), fault(&mut dice, nodes, victims))).collect();
        faults.retain(|(_, fault)| destructive || !fault.destroys());
        let mut history = Self { seed, nodes, rack_nodes: 1, writers, faults, shape: None };
        kinds::make(&mut history, &mut dice, victims, destructive);
        if seed >= volumes::FIRST_SEED {
            volumes::add(&mut history, &mut dice, victims, destructive);
        }
        if MANY.contains(&seed) {
            history.writers.iter_mut().flatten().for_each(|op| put_many(op, &mut dice));
        }
        history.faults.sort_by_key(|(at, _)| *at);
        history
    }

    /// The rack of a node.
    pub fn rack(&self, node: u32) -> u32 {
        node / self.rack_nodes
    }

    /// The nodes in the rack of a node, which is one of them.
    pub fn rack_mates(&self, node: u32) -> impl Iterator<Item = u32> {
        (0..self.nodes).filter(move |other| self.rack(*other) == self.rack(node))
    }

    /// Whether blocks become bad although nothing need notice it.
    pub fn rots(&self) -> bool {
        let rots = |fault: &Fault| matches!(fault, Fault::Rot { .. } | Fault::Unreadable { .. });
        self.faults.iter().any(|(_, fault)| rots(fault))
    }

    /// Whether a disk fails so that not even an unfinished file can be removed.
    pub fn fails_disks(&self) -> bool {
        self.faults.iter().any(|(_, fault)| matches!(fault, Fault::DiskError { .. }))
    }

    /// Number of steps and faults.
    pub fn len(&self) -> usize {
        self.writers.iter().map(Vec::len).sum::<usize>() + self.faults.len()
    }

    /// Whether nothing happens in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same history without the steps and faults of these numbers. The steps are counted first, one
    /// client after the other.
    pub fn without(&self, left_out: &BTreeSet<usize>) -> Self {
        let mut number = 0..;
        let mut stays = || number.next().is_none_or(|n| !left_out.contains(&n));
        let mut shorter = self.clone();
        shorter.writers.iter_mut().for_each(|ops| ops.retain(|_| stays()));
        shorter.faults.retain(|_| stays());
        shorter
    }
}

/// Makes a step one of a client with many small objects.
fn put_many(op: &mut Op, dice: &mut Dice) {
    match op {
        Op::Put { offline: false, len, .. } if *len > 0 => {
            let names = dice.next() | dice.next();
            *op = Op::PutMany { names, len: dice.within(1, SMALL_BYTES) as usize };
        }
        Op::Remove { name } | Op::Get { name, .. } | Op::Accuse { name } => *name = dice.below(MANY_NAMES),
        // Such objects have their parity.
        Op::Encode { .. } => *op = Op::Repack,
        Op::Pause { ms } if ms.is_multiple_of(3) => *op = Op::Repack,
        _ => {}
    }
}

/// The names whose bits are set.
pub fn many(names: u64) -> impl Iterator<Item = u64> {
    (0..MANY_NAMES).filter(move |name| names & (1 << name) != 0)
}

/// The only node that is ever drained.
pub fn drained(nodes: u32, victims: [u32; 2]) -> u32 {
    (victims[0] + victims[1]) % nodes
}

fn ops(dice: &mut Dice, writers: u64, nodes: u32, victims: [u32; 2], destructive: bool) -> Vec<Op> {
    let count = dice.within(6, 18);
    (0..count)
        .map(|_| match dice.below(100) {
            0..35 => Op::Put {
                name: dice.below(NAMES),
                len: if dice.percent(10) { 0 } else { dice.below(40_000) as usize },
                offline: !destructive && dice.percent(30),
            },
            35..45 => Op::Remove { name: dice.below(NAMES) },
            45..70 => Op::Get {
                writer: dice.below(writers),
                name: dice.below(NAMES),
                range: dice.percent(50).then(|| (dice.below(1000), dice.below(1000))),
            },
            70..74 => Op::Repair,
            74..76 => Op::Encode { name: dice.below(NAMES) },
            76..78 => Op::Accuse { name: dice.below(NAMES) },
            78..81 => Op::Scrub,
            // Only one node is drained: no drain is revoked, and the other nodes must be enough for the code.
            81..84 => Op::Drain { node: drained(nodes, victims), patience_ms: 60_000 },
            84..87 if destructive => {
                let node = victims[dice.below(2) as usize];
                Op::Wipe { node, patience_ms: if dice.percent(70) { 60_000 } else { dice.within(5, 300) } }
            }
            _ => Op::Pause { ms: dice.within(50, 1500) },
        })
        .collect()
}

fn fault(dice: &mut Dice, nodes: u32, victims: [u32; 2]) -> Fault {
    let victim = victims[dice.below(2) as usize];
    let any = |dice: &mut Dice| Host::Node(dice.below(u64::from(nodes)) as u32);
    let server = |dice: &mut Dice| if dice.percent(25) { Host::Coordinator } else { any(dice) };
    let pair = |dice: &mut Dice| {
        let a = match dice.below(10) {
            0..4 => Host::Coordinator,
            4..6 => Host::Clients,
            _ => any(dice),
        };
        loop {
            let b = any(dice);
            if b != a {
                return (a, b);
            }
        }
    };
    match dice.below(100) {
        0..16 => Fault::Kill { host: server(dice), down_ms: dice.within(0, 4000) },
        16..40 => Fault::Power {
            host: server(dice),
            operations: dice.within(1, 60),
            seed: dice.next(),
            down_ms: dice.within(0, 4000),
        },
        40..50 => {
            let (a, b) = pair(dice);
            Fault::Partition { a, b, one_way: dice.percent(40), ms: dice.within(100, 6000) }
        }
        50..58 => {
            let (a, b) = pair(dice);
            Fault::Hold { a, b, ms: dice.within(100, 6000) }
        }
        58..64 => {
            let (a, b) = pair(dice);
            Fault::Slow { a, b, latency_ms: dice.within(50, 900), ms: dice.within(500, 6000) }
        }
        64..74 => Fault::Rot { node: victim, pick: dice.next() },
        74..79 => Fault::Unreadable { node: victim, pick: dice.next() },
        79..87 => Fault::DiskError { host: server(dice), operations: dice.within(1, 40) },
        87..91 => Fault::Full { node: dice.below(u64::from(nodes)) as u32, ms: dice.within(500, 4000) },
        91..94 => Fault::Clock { seconds: dice.below(2_000_000) as i64 - 1_000_000 },
        _ => Fault::LoseDisk { node: victim, down_ms: dice.within(0, 3000) },
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {} nodes, {} in a rack", self.seed, self.nodes, self.rack_nodes)?;
        self.shape.iter().try_for_each(|shape| writeln!(f, "  volumes: {shape:?}"))?;
        for (writer, ops) in self.writers.iter().enumerate() {
            writeln!(f, "  client {writer}:")?;
            ops.iter().try_for_each(|op| writeln!(f, "    {op:?}"))?;
        }
        self.faults.iter().try_for_each(|(at, fault)| writeln!(f, "  after {at} ms: {fault:?}"))
    }
}
