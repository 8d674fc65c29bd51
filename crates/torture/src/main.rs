//! Plays histories of many seeds: `cargo run --profile torture -p kintsu-torture -- --seeds 0..10000`.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clap::Parser;
use kintsu_torture::{FAULTS, History, Options, Outcome, child, fault, play, shrink};

/// Plays the histories of seeds and says which of them fail.
#[derive(Parser)]
struct Arguments {
    /// The seeds: one, or a range such as 0..1000.
    #[arg(long, default_value = "0..1000")]
    seeds: String,
    /// Plays only histories that have this word, such as `Wipe`, in a step or fault.
    #[arg(long)]
    only: Option<String>,
    /// Leaves out these steps and faults, by number.
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Prints the history and the trace of each, including what the program logs.
    #[arg(long)]
    trace: bool,
    /// Continues after a failure; no history is made shorter then.
    #[arg(long)]
    all: bool,
    /// How many histories are played at once, each on one core.
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Puts a fixed fault back, to see which seed finds it.
    #[arg(long, value_parser = FAULTS.map(|(name, _)| name))]
    put_back: Option<String>,
    /// Most attempts to make a failing history shorter.
    #[arg(long, default_value_t = 200)]
    shrink: usize,
}

fn seeds(text: &str) -> anyhow::Result<std::ops::Range<u64>> {
    match text.split_once("..") {
        Some((first, end)) => Ok(first.parse()?..end.parse()?),
        None => {
            let seed = text.parse()?;
            Ok(seed..seed + 1)
        }
    }
}

/// The real time: the simulation replaces the other clocks.
fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The results so far.
struct Tally {
    begun: Duration,
    told: Duration,
    played: u64,
    lasted: Duration,
    failed: Vec<(u64, String)>,
}

impl Tally {
    fn rate(&self) -> f64 {
        self.played as f64 / (now() - self.begun).as_secs_f64()
    }

    fn count(&mut self, seed: u64, outcome: Outcome) {
        self.played += 1;
        self.lasted += outcome.lasted;
        if let Some(why) = outcome.failure {
            println!("seed {seed}: {why}");
            self.failed.push((seed, why));
        }
        if now() - self.told > Duration::from_secs(10) {
            self.told = now();
            println!("{} histories, {:.1} a second, {} failed", self.played, self.rate(), self.failed.len());
        }
    }
}

fn main() -> anyhow::Result<()> {
    child();
    let arguments = Arguments::parse();
    let seeds = seeds(&arguments.seeds)?;
    let without: BTreeSet<usize> = arguments.without.iter().copied().collect();
    let back = arguments.put_back.as_deref().and_then(fault);
    let (quiet, logged) = (Options { logged: false, back }, Options { logged: true, back });
    let only = arguments.only.as_deref();
    let wanted = |seed: u64| only.is_none_or(|word| History::of(seed).to_string().contains(word));
    if arguments.trace {
        for seed in seeds.filter(|seed| wanted(*seed)) {
            let outcome = play(seed, &without, logged);
            println!("{}{}", History::of(seed).without(&without), outcome.trace.join("\n"));
            println!("{}", outcome.failure.unwrap_or("clean".into()));
        }
        return Ok(());
    }
    let mut tally =
        Tally { begun: now(), told: now(), played: 0, lasted: Duration::ZERO, failed: Vec::new() };
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (outcomes, played) = mpsc::channel();
        for _ in 0..arguments.jobs {
            let (outcomes, next, stop, end) = (outcomes.clone(), &next, &stop, seeds.end);
            let (without, wanted) = (&without, &wanted);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    if wanted(seed) && outcomes.send((seed, play(seed, without, quiet))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(outcomes);
        for (seed, outcome) in played {
            tally.count(seed, outcome);
            stop.store(!arguments.all && !tally.failed.is_empty(), Ordering::Relaxed);
        }
    });
    let failed: Vec<u64> = tally.failed.iter().map(|(seed, _)| *seed).collect();
    if let (Some((seed, why)), false) = (tally.failed.first(), arguments.all) {
        let (left_out, why) = shrink(*seed, why, quiet, arguments.shrink);
        let numbers: Vec<String> = left_out.iter().map(usize::to_string).collect();
        println!(
            "{}{}",
            History::of(*seed).without(&left_out),
            play(*seed, &left_out, logged).trace.join("\n")
        );
        println!("{why}\nagain: --seeds {seed} --without {} --trace", numbers.join(","));
    }
    println!(
        "{} histories in {:.1?}: {:.1} a second, simulated {:.0?}; failed: {failed:?}",
        tally.played,
        now() - tally.begun,
        tally.rate(),
        tally.lasted
    );
    if !failed.is_empty() {
        std::process::exit(1);
    }
    Ok(())
}
