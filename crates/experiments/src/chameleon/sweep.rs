//! The baselines at several numbers of repairs at once, sizes of slices, and ways to choose helpers.

use super::*;
use crate::figures::Slice;
use crate::figures::catalog::Kind;

pub const SWEEP: Entry = Entry {
    name: "chameleon-sweep",
    groups: &[],
    about: "each method of chameleon-* under YCSB-A at several concurrencies, slice sizes and balances",
    kind: Kind::Measured(sweep),
};

/// The coordinator's own choice, and caps on the repairs of a node.
const PER_NODE: [u32; 5] = [0, 4, 8, 16, 64];

fn sweep(size: Size) -> Result<Experiment> {
    let mut cases = Vec::new();
    for racer in all() {
        for per_node in size.some(&PER_NODE) {
            let x = match per_node {
                0 => "own choice".to_owned(),
                most => format!("{most} a node"),
            };
            let racer = Racer { per_node, ..racer };
            cases.push(racer.case(x, racer.recovery(size, Some(ycsb_a()))));
        }
        let best = racer.recovery(size, Some(ycsb_a()));
        for slice in [32 << 10, 256 << 10] {
            let x = format!("slices of {} KiB", slice >> 10);
            cases.push(racer.case(x, best.clone()).slice(Slice::Bytes(slice)));
        }
        if racer.method.row().scheduler.is_none() {
            let least_recent = Recovery { schedule: Schedule::Greedy, ..best };
            cases.push(racer.case("least recently used", least_recent));
        }
    }
    Ok(Experiment {
        differs: "blocks of 1 MiB; users are eight tasks",
        axis: "at once, slices, balance",
        scenes: vec![scene(MEGABITS, cases)?],
        ..experiment("chameleon-sweep", "Each method at several settings under YCSB-A, RS(14,10)", "none")
    })
}
