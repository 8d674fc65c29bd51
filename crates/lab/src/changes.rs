//! Rates that change at given times while an experiment runs.

use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::error::Result;
use crate::lab::Shared;
use crate::spec::Change;

/// Timed changes; dropping this cancels those still to come.
#[derive(Debug)]
pub struct Changes {
    task: JoinHandle<Result<()>>,
}

impl Changes {
    /// The clock does not keep the lab up: when the lab ends, the changes end too.
    pub(crate) fn start(mut changes: Vec<Change>, lab: &Arc<Shared>) -> Self {
        let (start, lab): (_, Weak<Shared>) = (Instant::now(), Arc::downgrade(lab));
        changes.sort_by_key(|change| change.at);
        let task = tokio::spawn(async move {
            for change in changes {
                sleep_until(start + change.at).await;
                let Some(lab) = lab.upgrade() else { break };
                lab.set_rate(change.link, change.rate).await?;
                tracing::info!("{} now carries {:?}", change.link, change.rate);
            }
            Ok(())
        });
        Self { task }
    }

    /// Waits until all changes are made.
    ///
    /// # Errors
    /// The error of the first change that failed; the changes after it were not made.
    pub async fn finished(mut self) -> Result<()> {
        match (&mut self.task).await {
            Ok(done) => done,
            Err(e) => Err(crate::LabError::Io { what: "timed changes".into(), source: e.into() }),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}
