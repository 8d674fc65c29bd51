//! Waits for the answer of an agent, with a time limit.

use std::time::Duration;

use kintsu_dag::NodeId;
use tonic::{Response, Status};

use crate::error::{CoordinatorError, Result};

/// The answer of a node to a call.
///
/// # Errors
/// `Unavailable`: the node answered with an error, or not within `patience`; then the reason is `late`.
pub async fn answer<T>(
    node: NodeId,
    patience: Duration,
    late: &str,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T> {
    let reason = match tokio::time::timeout(patience, call).await {
        Ok(Ok(answer)) => return Ok(answer.into_inner()),
        Ok(Err(status)) => status.message().to_owned(),
        Err(_) => late.to_owned(),
    };
    Err(CoordinatorError::Unavailable { node, reason })
}
