//! Kinds of histories: what an operator or an accident does on top of what chance brings, so that hazards
//! which chance seldom reaches are reached often.

use crate::dice::Dice;
use crate::history::{Fault, History, Host, NAMES, Op, drained};

/// Clients begin about so long after the start.
const CLIENTS_BEGIN_MS: u64 = 130;

/// Adds to a history what makes it one of its kind.
pub fn make(history: &mut History, dice: &mut Dice, victims: [u32; 2], destructive: bool) {
    match (dice.below(12), destructive) {
        (0..2, true) => wipe_amid_puts(history, dice, victims),
        (2..4, true) => disturb_repairs(history, dice, victims),
        (0..4, false) => older_metadata(history, dice),
        (4..7, _) => drain_again(history, dice, victims),
        (7, _) => wrong_folders(history, dice),
        _ => {}
    }
}

fn any(history: &History, dice: &mut Dice) -> Host {
    Host::Node(dice.below(u64::from(history.nodes)) as u32)
}

/// A node is wiped while objects are slowly written to it, and the coordinator dies about then.
fn wipe_amid_puts(history: &mut History, dice: &mut Dice, victims: [u32; 2]) {
    let at = dice.within(1000, 2000);
    let put = |dice: &mut Dice| Op::Put { name: dice.below(NAMES), len: 40_000, offline: false };
    let before = dice.within(50, 600);
    let writing = vec![Op::Pause { ms: at - before }, put(dice), put(dice)];
    history.writers.push(writing);
    history.writers.push(vec![Op::Pause { ms: at }, Op::Wipe { node: victims[0], patience_ms: 60 }]);
    let slow = dice.below(u64::from(history.nodes)) as u32;
    let latency_ms = dice.within(50, 300);
    history.faults.retain(|(_, fault)| !fault.destroys());
    let slow = Fault::Slow { a: Host::Clients, b: Host::Node(slow), latency_ms, ms: 4000 };
    let kill = Fault::Kill { host: Host::Coordinator, down_ms: dice.below(300) };
    // The node answers late, so that there is time between its wipe and the record of it.
    let (b, latency_ms) = (Host::Node(victims[0]), dice.within(60, 250));
    let late = Fault::Slow { a: Host::Coordinator, b, latency_ms, ms: 3000 };
    let dies = at + CLIENTS_BEGIN_MS + latency_ms + dice.below(latency_ms);
    history.faults.extend([(at - before - 50, slow), (at, late), (dies, kill)]);
}

/// A disk is lost, and nodes die while it is repaired, again and again.
fn disturb_repairs(history: &mut History, dice: &mut Dice, victims: [u32; 2]) {
    let mut steps = Vec::new();
    for name in 0..NAMES {
        steps.push(Op::Put { name, len: 40_000, offline: false });
    }
    history.faults.retain(|(_, fault)| !fault.destroys());
    let mut at = 1000;
    steps.push(Op::Pause { ms: 700 });
    for _ in 0..4 {
        history.faults.push((at, Fault::LoseDisk { node: victims[dice.below(2) as usize], down_ms: 0 }));
        let host = any(history, dice);
        history.faults.push((at + dice.within(50, 400), Fault::Kill { host, down_ms: dice.below(1200) }));
        let b = any(history, dice);
        let latency_ms = dice.within(20, 300);
        history.faults.push((at, Fault::Slow { a: Host::Coordinator, b, latency_ms, ms: 800 }));
        steps.extend([Op::Pause { ms: dice.within(50, 300) }, Op::Repair, Op::Pause { ms: 300 }, Op::Repair]);
        at += dice.within(600, 1200);
    }
    history.writers.push(steps);
}

/// A node is drained by somebody who asks again when it takes long, while the node dies or cannot be reached
/// and its blocks are repaired: several jobs write the same blocks to the same places.
fn drain_again(history: &mut History, dice: &mut Dice, victims: [u32; 2]) {
    let node = drained(history.nodes, victims);
    let at = dice.within(700, 1500);
    history.faults.retain(|(_, fault)| !fault.destroys());
    let mut owner: Vec<Op> = (0..NAMES).map(|name| Op::Put { name, len: 40_000, offline: false }).collect();
    owner.push(Op::Pause { ms: at });
    for _ in 0..dice.within(1, 5) {
        owner.extend([Op::Repair, Op::Pause { ms: dice.within(20, 500) }]);
    }
    let mut operator = vec![Op::Pause { ms: at }];
    for _ in 0..dice.within(2, 6) {
        operator.push(Op::Drain { node, patience_ms: dice.within(10, 300) });
        if dice.percent(30) {
            operator.push(Op::Pause { ms: dice.within(10, 400) });
        }
    }
    history.writers.extend([owner, operator]);
    let begins = at + CLIENTS_BEGIN_MS;
    for _ in 0..dice.within(1, 4) {
        let (b, latency_ms) = (any(history, dice), dice.within(20, 400));
        let slow = Fault::Slow { a: Host::Coordinator, b, latency_ms, ms: dice.within(500, 4000) };
        history.faults.push((begins - dice.below(100), slow));
    }
    for _ in 0..dice.within(1, 2) {
        let (when, host) = (begins + dice.below(600), Host::Node(node));
        let ms = dice.within(200, 5000);
        let fault = match dice.below(4) {
            0 => Fault::Kill { host, down_ms: ms },
            1 => Fault::Partition { a: Host::Coordinator, b: host, one_way: dice.percent(50), ms },
            2 => Fault::Hold { a: Host::Coordinator, b: host, ms },
            _ => match any(history, dice) {
                b if b == host => Fault::Kill { host, down_ms: ms },
                b => Fault::Partition { a: host, b, one_way: false, ms },
            },
        };
        history.faults.push((when, fault));
    }
}

/// Hosts start where their disk is not.
fn wrong_folders(history: &mut History, dice: &mut Dice) {
    for _ in 0..dice.within(1, 3) {
        let (at, ms) = (dice.within(300, 3000), dice.within(100, 3000));
        let fault = match (dice.below(4), any(history, dice)) {
            (0, Host::Node(node)) => Fault::LoseName { node, ms },
            (1, host) => Fault::WrongFolder { host, ms },
            _ => Fault::WrongFolder { host: Host::Coordinator, ms },
        };
        history.faults.push((at, fault));
    }
}

/// The coordinator is started on metadata of some time ago. Agents record at most every five seconds which
/// metadata they know, so that is how old the copy must be.
fn older_metadata(history: &mut History, dice: &mut Dice) {
    let copied = dice.within(200, 1500);
    let back = 5600 + dice.below(2000);
    let down_ms = dice.below(500);
    history.faults.extend([(copied, Fault::CopyMetadata), (back, Fault::OlderMetadata { down_ms })]);
    let put = |dice: &mut Dice| Op::Put { name: dice.below(NAMES), len: 40_000, offline: false };
    let before = dice.within(300, 1200);
    history.writers.push(vec![
        put(dice),
        Op::Pause { ms: copied },
        put(dice),
        Op::Pause { ms: back - copied - before },
        put(dice),
        Op::Pause { ms: before },
        put(dice),
        Op::Pause { ms: dice.below(1000) },
        Op::Scrub,
        put(dice),
    ]);
}
