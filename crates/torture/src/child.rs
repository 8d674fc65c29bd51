//! A process for each history. What a process keeps for itself (how many runtimes it has made, which keys its
//! hash tables have) is then the same each time, and a history that hangs or crashes does not affect others.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use kintsu_wire::ambient::FixedFault;

use crate::history::History;
use crate::play::{self, Outcome, failed};

/// The first argument of a child; the seed, the numbers of the steps and faults to leave out, and whether the
/// log is wanted follow.
const CHILD: &str = "--play-one";
/// The beginning of the last line.
const OUTCOME: &str = "OUTCOME ";
/// More bytes than a history takes.
const KEPT: &str = "4000000000";
/// Real time after which a history counts as hung.
const LONGEST: Duration = Duration::from_secs(120);

/// How a history is played.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether the trace contains what the program logs.
    pub logged: bool,
    /// A fixed fault that is put back.
    pub back: Option<FixedFault>,
}

/// The fixed faults that can be put back, by name.
pub const FAULTS: [(&str, FixedFault); 5] = [
    ("deletes", FixedFault::DeletesUnfenced),
    ("wipes", FixedFault::WipesUnrecorded),
    ("reports", FixedFault::ReportsBelieved),
    ("epochs", FixedFault::EpochsKnown),
    ("unconfirmed", FixedFault::ReadsUnconfirmed),
];

fn name(fault: FixedFault) -> &'static str {
    FAULTS.iter().find(|(_, known)| *known == fault).map_or("", |(name, _)| name)
}

/// The fixed fault of this name.
pub fn fault(name: &str) -> Option<FixedFault> {
    FAULTS.iter().find(|(known, _)| *known == name).map(|(_, fault)| *fault)
}

/// Plays a history in another process, which must call [`child`] first thing.
pub fn play(seed: u64, left_out: &BTreeSet<usize>, options: Options) -> Outcome {
    let left_out: Vec<String> = left_out.iter().map(usize::to_string).collect();
    let run = || {
        let mut command = Command::new(std::env::current_exe()?);
        let back = options.back.map_or("", name);
        let logged = if options.logged { "log" } else { "" };
        command.args([CHILD, &seed.to_string(), &left_out.join(","), logged, back]);
        // Memory is not given back and taken again.
        command.env("MALLOC_TRIM_THRESHOLD_", KEPT).env("MALLOC_MMAP_THRESHOLD_", KEPT);
        command.env("MALLOC_TOP_PAD_", "33554432").stderr(Stdio::inherit()).output()
    };
    let output = match run() {
        Ok(output) => output,
        Err(error) => return failed(format!("no process: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut trace: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = trace.pop_if(|line| line.starts_with(OUTCOME));
    let told = last.as_deref().and_then(|line| line.strip_prefix(OUTCOME)?.split_once(' '));
    let Some((lasted_ms, failure)) = told.and_then(|(ms, why)| Some((ms.parse().ok()?, why))) else {
        return Outcome { trace, ..failed(format!("the process ended: {}", output.status)) };
    };
    let failure = (!failure.is_empty()).then(|| failure.to_owned());
    Outcome { failure, trace, lasted: Duration::from_millis(lasted_ms) }
}

/// If the arguments ask for a history, plays it and ends the process.
pub fn child() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, first, seed, left_out, logged, back] = &arguments[..] else { return };
    if first != CHILD {
        return;
    }
    let left_out = left_out.split(',').filter_map(|number| number.parse().ok()).collect();
    let Ok(seed) = seed.parse() else { std::process::exit(2) };
    std::thread::spawn(|| {
        // This thread waits in real time, which no simulation controls.
        std::thread::sleep(LONGEST);
        println!("{OUTCOME}0 no end within {LONGEST:?} of real time");
        std::process::exit(1);
    });
    let outcome = play::play(History::of(seed).without(&left_out), !logged.is_empty(), fault(back));
    let trace: String = outcome.trace.into_iter().map(|line| line + "\n").collect();
    let why = outcome.failure.unwrap_or_default().replace('\n', " ");
    println!("{trace}{OUTCOME}{} {why}", outcome.lasted.as_millis());
    std::process::exit(0);
}
