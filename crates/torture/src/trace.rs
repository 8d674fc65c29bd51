//! The trace: what happened, line by line, with simulated times.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The trace of a history; clones are the same trace.
#[derive(Debug, Clone, Default)]
pub struct Trace(Arc<Mutex<Vec<String>>>);

impl Trace {
    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line, with the time of the running host.
    pub fn say(&self, line: impl fmt::Display) {
        self.say_at(turmoil::sim_elapsed().unwrap_or_default().as_millis(), line);
    }

    /// Adds a line with this time.
    pub fn say_at(&self, ms: u128, line: impl fmt::Display) {
        self.lines().push(format!("{:>4}.{:03} {line}", ms / 1000, ms % 1000));
    }

    /// Takes all lines. The name of this run's folder is replaced by `DIR`, because it differs in each run.
    pub fn take(&self, dir: &std::path::Path) -> Vec<String> {
        let dir = dir.display().to_string();
        std::mem::take(&mut *self.lines()).into_iter().map(|line| line.replace(&dir, "DIR")).collect()
    }
}

/// Puts what the program logs into the trace.
pub struct Logged(pub Trace);

impl<S: tracing::Subscriber> Layer<S> for Logged {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = format!("      {} ", event.metadata().target());
        event.record(&mut Words(&mut line));
        self.0.say(line);
    }
}

struct Words<'a>(&'a mut String);

impl Visit for Words<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?} "),
            name => write!(self.0, "{name}={value:?} "),
        };
    }
}
