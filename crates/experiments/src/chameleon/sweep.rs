//! Each method of the race at other numbers of repairs at once, sizes of slices, and ways to choose helpers than it has in the
//! other experiments.

use super::breakdown::WITH_BOOST;
use super::*;
use crate::figures::catalog::Kind;
use crate::figures::{NO_PAPER, Sweep};

pub const SWEEP: Entry = Entry {
    name: "chameleon-sweep",
    groups: &[GROUP],
    about: "each baseline of chameleon-* under YCSB-A at other concurrencies, slice sizes and balances",
    kind: Kind::Measured(sweep),
};

/// The coordinator's own choice, and caps on the repairs of a node.
const PER_NODE: [u32; 3] = [0, 16, 64];
/// The most that the best settings may gain over those of the other experiments, in percent: about what two runs differ by.
const LEFT_PERCENT: f64 = 10.0;

fn sweep(size: Size) -> Result<Experiment> {
    let x = "YCSB-A";
    let (mut cases, mut claims) = (Vec::new(), Vec::new());
    for racer in BASELINES.into_iter().chain(WITH_BOOST).chain([THE_PAPERS]) {
        let usual = Sweep::usual();
        let others = Sweep {
            per_node: PER_NODE.into_iter().filter(|most| *most != racer.per_node).collect(),
            // A scheduler chooses helpers itself.
            schedules: racer.method.row().scheduler.map_or(vec![Schedule::Greedy], |_| Vec::new()),
            slices: usual.slices,
        };
        let case = racer.case(x, racer.recovery(size, Some(ycsb_a())));
        let used = format!("{}, as elsewhere", racer.series);
        let gain = Value::Gain(Point::new(racer.series, x), Point::new(used.as_str(), x));
        let text = format!("{}: gain of the best settings over those of the other experiments", racer.series);
        claims.push(Claim::new(text, gain).aim(Aim::AtMost(LEFT_PERCENT)));
        cases.push(Case { series: used, ..case.clone() });
        cases.push(case.swept(others));
    }
    Ok(Experiment {
        differs: "blocks of 1 MiB; users are eight tasks; the first setting that is tried is that of the other experiments",
        axis: "users",
        scenes: vec![scene(MEGABITS, cases)?],
        claims,
        ..experiment("chameleon-sweep", "Each baseline at several settings under YCSB-A, RS(14,10)", NO_PAPER)
    })
}
