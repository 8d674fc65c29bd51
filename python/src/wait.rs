//! Waiting for the cluster: outside the interpreter's lock, and ended by Ctrl-C.

use std::future::Future;
use std::time::Duration;

use kintsu_client::ClientError;
use pyo3::prelude::*;
use tokio::runtime::Runtime;

use crate::error::of_cluster;

/// How often Python is checked for a signal.
const SIGNALS_EVERY: Duration = Duration::from_millis(100);

/// Waits for the result of `work`. A signal drops the work and raises what Python's handler raises.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    runtime: &Runtime,
    work: impl Future<Output = Result<T, ClientError>> + Send,
) -> PyResult<T> {
    py.detach(|| {
        runtime.block_on(async {
            let mut work = std::pin::pin!(work);
            loop {
                tokio::select! {
                    done = &mut work => return done.map_err(of_cluster),
                    () = tokio::time::sleep(SIGNALS_EVERY) => Python::attach(|py| py.check_signals())?,
                }
            }
        })
    })
}
