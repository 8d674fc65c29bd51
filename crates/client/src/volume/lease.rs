//! The lease of a volume's writer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_wire::message::VolumeWriter;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::{Client, ClientError};

/// Renews the lease as long as it lives, and gives it back when it is dropped.
pub(super) struct Writer {
    client: Client,
    of: VolumeWriter,
    taken: u64,
    state: Arc<Mutex<State>>,
    news: watch::Receiver<()>,
    renewer: JoinHandle<()>,
}

struct State {
    /// Until when the coordinator gives the volume to nobody else.
    until: Instant,
    /// Why it is over.
    lost: Option<ClientError>,
}

impl Writer {
    /// `asked`: when the lease was asked for.
    pub fn hold(
        client: &Client,
        (volume, writer): (u64, u64),
        taken: u64,
        asked: Instant,
        lease: Duration,
    ) -> Self {
        let of = VolumeWriter { volume, writer };
        let state = Arc::new(Mutex::new(State { until: asked + lease, lost: None }));
        let (tell, news) = watch::channel(());
        let renewer = tokio::spawn(renew(client.clone(), of, state.clone(), lease, tell));
        Self { client: client.clone(), of, taken, state, news, renewer }
    }

    /// The number that the coordinator knows it by.
    pub fn number(&self) -> u64 {
        self.of.writer
    }

    /// The epoch at which it took the volume.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Waits until the lease is sure.
    ///
    /// # Errors
    /// `Interrupted` if it is over; `Unreachable` if the coordinator is away for too long.
    pub async fn check(&self) -> Result<(), ClientError> {
        let mut news = self.news.clone();
        let end = Instant::now() + self.client.patience();
        loop {
            news.mark_unchanged();
            {
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(lost) = &state.lost {
                    return Err(lost.clone());
                }
                if Instant::now() < state.until {
                    return Ok(());
                }
            }
            if tokio::time::timeout_at(end, news.changed()).await.is_err() {
                return Err(ClientError::unreachable(self.client.endpoint(), "a lease could not be renewed"));
            }
        }
    }

    /// Somebody else is the writer.
    pub fn lose(&self, why: ClientError) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).lost.get_or_insert(why);
    }

    /// Gives the lease back.
    pub async fn close(&self) -> Result<(), ClientError> {
        self.renewer.abort();
        self.lose(ClientError::Interrupted("the volume was closed".into()));
        let of = self.of;
        self.client.call(|mut c| async move { c.volumes.close_volume(of).await }).await.map(drop)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.renewer.abort();
        let (client, of) = (self.client.clone(), self.of);
        let lost = self.state.lock().unwrap_or_else(PoisonError::into_inner).lost.is_some();
        if !lost {
            self.client.farewell(async move {
                // Otherwise the lease ends by itself.
                let _ = client.call(|mut c| async move { c.volumes.close_volume(of).await }).await;
            });
        }
    }
}

async fn renew(
    client: Client,
    of: VolumeWriter,
    state: Arc<Mutex<State>>,
    lease: Duration,
    tell: watch::Sender<()>,
) {
    let mut pause = lease / 3;
    loop {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        let renewed = client.call(|mut c| async move { c.volumes.renew_volume(of).await }).await;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        match renewed {
            Ok(lease) => {
                pause = Duration::from_millis(lease.lease_ms) / 3;
                state.until = asked + Duration::from_millis(lease.lease_ms);
            }
            Err(ClientError::Interrupted(why) | ClientError::NotFound(why)) => {
                state.lost.get_or_insert(ClientError::Interrupted(why));
                drop(state);
                tell.send_replace(());
                return;
            }
            Err(error) => {
                pause = Duration::from_millis(200);
                tracing::debug!("lease of a volume: {error}");
            }
        }
        drop(state);
        tell.send_replace(());
    }
}
