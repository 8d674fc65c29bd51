//! The lease of a put: renewed while the object is written, returned when the put is abandoned.

use std::time::Duration;

use kintsu_wire::message::PutRef;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{Client, ClientError};

/// The writes of a put that is undone get this long to end by themselves. A short one has told its nodes all that they need, so
/// that they finish it whoever has gone; and what they write after the put's blocks were deleted stays.
const GRACE: Duration = Duration::from_secs(1);
/// The pause before a renewal that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The writes of a put that have not ended. They go on if nobody waits for them.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningWrites {
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RunningWrites {
    pub(crate) fn start<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, ClientError>> + Send + 'static,
    ) -> JoinHandle<Result<T, ClientError>> {
        let stop = self.stop.clone();
        let stopped = || Err(ClientError::Interrupted("the put has ended".to_owned()));
        self.tasks.spawn(async move { stop.run_until_cancelled(write).await.unwrap_or_else(stopped) })
    }

    /// Waits until all have ended; those that take longer than [`GRACE`] are stopped.
    async fn end(&self) {
        self.tasks.close();
        if tokio::time::timeout(GRACE, self.tasks.wait()).await.is_err() {
            self.stop.cancel();
            self.tasks.wait().await;
        }
    }
}

/// Keeps a put alive. If it is dropped before [`Lease::fulfilled`], it tells the coordinator to undo the put.
pub(crate) struct Lease {
    client: Client,
    put: PutRef,
    renewer: JoinHandle<()>,
    lost: oneshot::Receiver<ClientError>,
    fulfilled: bool,
    /// The writes of the put: it is undone when they have ended.
    pub(crate) writes: RunningWrites,
}

impl Lease {
    pub(crate) fn hold(client: &Client, put: u64, lease_ms: u64) -> Self {
        let put = PutRef { put };
        let (tell, lost) = oneshot::channel();
        let every = Duration::from_millis((lease_ms / 3).max(1));
        let renewer = tokio::spawn(renew(client.clone(), put, every, tell));
        Self {
            client: client.clone(),
            put,
            renewer,
            lost,
            fulfilled: false,
            writes: RunningWrites::default(),
        }
    }

    /// Waits until the coordinator says that the put was undone; for ever if that never happens.
    async fn lost(&mut self) -> ClientError {
        match (&mut self.lost).await {
            Ok(error) => error,
            Err(_) => std::future::pending().await,
        }
    }

    /// Does a part of the put.
    ///
    /// # Errors
    /// Those of the part, and at once the loss of the lease.
    pub(crate) async fn during<T>(
        &mut self,
        part: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        tokio::select! {
            done = part => done,
            lost = self.lost() => Err(lost),
        }
    }

    /// The put was committed: there is nothing to undo.
    pub(crate) fn fulfilled(mut self) {
        self.fulfilled = true;
    }
}

async fn renew(client: Client, put: PutRef, every: Duration, tell: oneshot::Sender<ClientError>) {
    let mut pause = every;
    loop {
        tokio::time::sleep(pause).await;
        // After a failure not much of the lease may be left.
        pause = every.min(AGAIN);
        match client.call(|mut c| async move { c.objects.renew_put(put).await }).await {
            Ok(_) => pause = every,
            // A lease does not expire while the coordinator is away: its time continues when the coordinator is
            // back.
            Err(error) if error.is_unreachable() => tracing::debug!("lease of a put: {error}"),
            Err(error) => {
                let lost = ClientError::Interrupted(format!("the put was undone: {error}"));
                // The waiting task may have ended meanwhile.
                let _ = tell.send(lost);
                return;
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewer.abort();
        if self.fulfilled {
            return;
        }
        let (client, put, writes) = (self.client.clone(), self.put, self.writes.clone());
        self.client.farewell(async move {
            writes.end().await;
            if let Err(error) = client.call(|mut c| async move { c.objects.abort_put(put).await }).await {
                tracing::debug!("an abandoned put was not undone at once: {error}");
            }
        });
    }
}
