//! Plays one history, in a process (`child.rs`) and a thread of its own, so that it depends only on its seed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use kintsu_wire::ambient::FixedFault;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use turmoil::Sim;

use crate::adversary::{Adversary, MOST_LATENCY};
use crate::finale;
use crate::history::{History, Host};
use crate::stage::Stage;
use crate::trace::{Logged, Trace};
use crate::writer::Writer;

const TICK: Duration = Duration::from_millis(10);
/// Simulated time after which a history counts as endless.
const LONGEST: Duration = Duration::from_secs(900);
const EPOCH_S: u64 = 1_750_000_000;

/// The result of a history.
#[derive(Debug)]
pub struct Outcome {
    /// The first promise that was broken.
    pub failure: Option<String>,
    /// What happened.
    pub trace: Vec<String>,
    /// Simulated time.
    pub lasted: Duration,
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn panics() -> Vec<String> {
    std::mem::take(&mut PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Plays a history. With `logged`, the trace contains what the program logs. Call this only once in a
/// process: randomness is replaced for the whole process, and tokio counts its runtimes.
pub(crate) fn play(history: History, logged: bool, back: Option<FixedFault>) -> Outcome {
    let folder = match folder() {
        Ok(folder) => folder,
        Err(error) => return failed(format!("no folder: {error}")),
    };
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(history.seed));
    std::panic::set_hook(Box::new(|info| {
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(info.to_string());
    }));
    let dir = folder.path().to_owned();
    // The hash tables of a new thread take their keys from the randomness that was set above.
    let played = std::thread::Builder::new().stack_size(8 << 20).spawn(move || {
        let _clocks = mad_turmoil::time::SimClocksGuard::init();
        kintsu_wire::ambient::simulation::put_back(back);
        let trace = Trace::default();
        let log = tracing_subscriber::registry().with(LevelFilter::INFO).with(Logged(trace.clone()));
        let _log = logged.then(|| tracing::subscriber::set_default(log));
        run(&history, trace, &dir)
    });
    match played.map(std::thread::JoinHandle::join) {
        Ok(Ok(Ok(outcome))) => outcome,
        Ok(Ok(Err(error))) => failed(format!("the simulation: {error}")),
        Ok(Err(_)) => failed(format!("panic: {:?}", panics())),
        Err(error) => failed(format!("no thread: {error}")),
    }
}

pub(crate) fn failed(why: String) -> Outcome {
    Outcome { failure: Some(why), trace: Vec::new(), lasted: Duration::ZERO }
}

fn run(history: &History, trace: Trace, dir: &Path) -> anyhow::Result<Outcome> {
    let mut sim = turmoil::Builder::new()
        .tick_duration(TICK)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(MOST_LATENCY)
        .simulation_duration(2 * LONGEST)
        .epoch(UNIX_EPOCH + Duration::from_secs(EPOCH_S))
        .tcp_capacity(1024)
        .rng_seed(history.seed)
        .build();
    let stage = Stage::new(history, &sim, dir, trace)?;
    for machine in &stage.machines {
        let (stage, machine) = (stage.clone(), machine.clone());
        sim.host(machine.host.to_string(), move || stage.clone().live(machine.clone()));
    }
    let clients = clients(stage.clone(), history.clone());
    sim.client(Host::Clients.to_string(), clients);
    let ended = conduct(&mut sim, &stage, history);
    if let Err(why) = ended {
        stage.fail(why);
    }
    let lasted = sim.elapsed();
    drop(sim);
    Ok(Outcome { failure: stage.failed(), trace: stage.trace.take(dir), lasted })
}

/// Steps until the clients have ended or a promise was broken.
fn conduct(sim: &mut Sim<'_>, stage: &Arc<Stage>, history: &History) -> Result<(), String> {
    let mut adversary = Adversary::new(stage.clone(), history.faults.clone());
    loop {
        adversary.act(sim);
        let ended = sim.step().map_err(|error| format!("the simulation: {error}"))?;
        let panics = panics();
        if !panics.is_empty() {
            return Err(format!("panic: {panics:?}"));
        }
        if ended || stage.failed().is_some() {
            return Ok(());
        }
        if sim.elapsed() > LONGEST {
            return Err(format!("no end within {LONGEST:?}"));
        }
    }
}

async fn clients(stage: Arc<Stage>, history: History) -> turmoil::Result {
    let client = stage.client().await?;
    while finale::alive(&client, history.nodes).await.is_err() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let writer = |(number, ops)| {
        let (seed, shape) = (history.seed, history.shape);
        tokio::spawn(Writer { stage: stage.clone(), number, seed, shape }.run(ops))
    };
    let writers: Vec<_> = (0..).zip(history.writers.clone()).map(writer).collect();
    for writer in writers {
        writer.await?;
    }
    finale::hold(&stage, &history).await;
    Ok(())
}

/// A folder in memory, where the system has such a file system.
fn folder() -> std::io::Result<tempfile::TempDir> {
    let memory = std::path::Path::new("/dev/shm");
    let builder = tempfile::Builder::new();
    if memory.is_dir() { builder.tempdir_in(memory) } else { builder.tempdir() }
}
