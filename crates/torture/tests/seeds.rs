//! The histories of a few hundred seeds, and those that failed once. This test has its own `main`, because
//! the usual test runner waits by clocks that are simulated here.

use std::collections::BTreeSet;

use kintsu_torture::{
    FIRST_SEED, FIRST_SEED_WITH_RACKS, FIRST_SEED_WITH_ROTTEN_LOGS, FIRST_SEED_WITH_SCHEMES,
    FIRST_SEED_WITH_SNAPSHOTS, Options, child, fault, play,
};

/// Seeds that once failed. 121, 188, 328 and 629: older metadata gave ids that were in use, undid puts that were
/// committed since, or had blocks set aside. 1399: blocks deleted during a scrub counted as unknown. 2228: a block
/// that its home had lost was set aside elsewhere. 7725: a block got its home on a node that was just deleting it.
/// 8387: an agent that had ended still listened. 313: who listened to a job
/// waited on after the end of the coordinator. 5742 and 6525: a block was deleted after its agent had listed it, and got
/// its home there. 1, 4 and 110 found fixed faults that were put back (`wipes`, `reports`, `deletes`). 6961: what a
/// foreign coordinator refused counted as refused, though its own one had committed it.
const ONCE_FAILED: &[u64] = &[1, 4, 110, 121, 188, 313, 328, 629, 1399, 2228, 5742, 6525, 6961, 7725, 8387];

/// The same with volumes. 27: a node that had missed an epoch answered with its old log. 71: a commit gave up a parity while an
/// older version of it was being repaired, or decided for a block whose disk was replaced. 115 and 143: readers were refused
/// for ever after an epoch that was never recorded. 177 and 449: one failed sync ended the log of a node for good. 269: a full
/// disk and later deletions made the log look damaged. 1, 229, 367, 379, 420 and 460: next versions outlived their blocks.
/// 239: what only a replica had logged was never forgotten. 426: nor was the log of a node that was away when its volume was removed.
/// 826: a node was registering with an empty folder when a commit froze its logs. 1147: the next version of an unknown block
/// stayed. 1824: so did a block that a commit had left out. 4300, 4321 and 4502: nodes that were away kept what they had logged for
/// stripes that went with a snapshot.
const ONCE_FAILED_VOLUMES: &[u64] = &[
    1, 27, 71, 115, 143, 177, 229, 239, 269, 367, 379, 420, 426, 449, 460, 826, 1147, 1824, 4300, 4321, 4502,
];

/// Seeds that find a fixed fault when it is put back.
const FINDS: &[(&str, u64)] = &[("reports", 4), ("wipes", 721), ("deletes", 2023)];

const SEEDS: std::ops::Range<u64> = 0..200;
const SEEDS_WITH_VOLUMES: std::ops::Range<u64> = FIRST_SEED..FIRST_SEED + 40;
const SEEDS_WITH_SCHEMES: std::ops::Range<u64> = FIRST_SEED_WITH_SCHEMES..FIRST_SEED_WITH_SCHEMES + 30;
const SEEDS_WITH_SNAPSHOTS: std::ops::Range<u64> = FIRST_SEED_WITH_SNAPSHOTS..FIRST_SEED_WITH_SNAPSHOTS + 40;
const SEEDS_WITH_RACKS: std::ops::Range<u64> = FIRST_SEED_WITH_RACKS..FIRST_SEED_WITH_RACKS + 30;
const SEEDS_WITH_ROTTEN_LOGS: std::ops::Range<u64> =
    FIRST_SEED_WITH_ROTTEN_LOGS..FIRST_SEED_WITH_ROTTEN_LOGS + 40;

fn main() {
    child();
    let all = BTreeSet::new();
    let logged = Options { logged: true, ..Options::default() };
    for seed in [7, FIRST_SEED + 2] {
        same_trace(seed, &all, logged);
    }

    for &(name, seed) in FINDS {
        let back = Options { back: fault(name), ..Options::default() };
        assert!(
            back.back.is_some() && play(seed, &all, back).failure.is_some(),
            "{seed} no longer finds {name}"
        );
    }

    let mut failed = Vec::new();
    let with_volumes = ONCE_FAILED_VOLUMES.iter().map(|seed| FIRST_SEED + seed).chain(SEEDS_WITH_VOLUMES);
    let with_volumes = with_volumes.chain(SEEDS_WITH_SCHEMES).chain(SEEDS_WITH_SNAPSHOTS);
    let with_volumes = with_volumes.chain(SEEDS_WITH_RACKS).chain(SEEDS_WITH_ROTTEN_LOGS);
    let seeds: Vec<u64> = ONCE_FAILED.iter().copied().chain(SEEDS).chain(with_volumes).collect();
    let count = seeds.len();
    for seed in seeds {
        if let Some(why) = play(seed, &all, Options::default()).failure {
            println!("seed {seed}: {why}");
            failed.push(seed);
        }
    }
    println!("{count} histories, failed: {failed:?}");
    assert!(
        failed.is_empty(),
        "`cargo run --profile torture -p kintsu-torture -- --seeds {}` shows why",
        failed[0]
    );
}

/// Two runs of one seed give the same trace.
fn same_trace(seed: u64, all: &BTreeSet<usize>, logged: Options) {
    let [first, second] = [(), ()].map(|()| {
        let played = play(seed, all, logged);
        assert_eq!(played.failure, None, "after {} lines", played.trace.len());
        played.trace
    });
    for (number, (a, b)) in first.iter().zip(&second).enumerate() {
        assert_eq!(a, b, "line {number} of two runs of seed {seed}");
    }
    assert_eq!(first.len(), second.len());
    assert!(first.len() > 60, "{} lines", first.len());
    println!("two runs of seed {seed} give the same trace of {} lines", first.len());
}
