//! Jobs of the coordinator, followed to their ends.

use kintsu_client::Jobs;
use kintsu_wire::message::{JobEvent, JobReport};

use crate::error::{ExperimentError, Result};

/// Follows a job to its end; `progress` gets what is done, and the total.
///
/// # Errors
/// When it ends early or does not complete.
pub async fn finish(mut events: Jobs, mut progress: impl FnMut(u64, u64)) -> Result<JobReport> {
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::Began(_) => {}
            JobEvent::Progress { done, total, .. } => progress(done, total),
            JobEvent::Ended(report) if report.failed.is_empty() => return Ok(report),
            JobEvent::Ended(report) => {
                return Err(ExperimentError::invalid(
                    report.kind,
                    "everything done",
                    report.failed.join("; "),
                ));
            }
        }
    }
    Err(ExperimentError::invalid("job", "a report", "none"))
}
