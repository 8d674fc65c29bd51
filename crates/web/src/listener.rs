//! A listener on loopback, from its address to its end.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::PageError;

/// A listener that nobody is answered on yet.
pub struct Bound {
    what: &'static str,
    listener: TcpListener,
    addr: SocketAddr,
}

impl Bound {
    /// Listens on `addr` (port 0: any free port); `what` is for errors and the log.
    ///
    /// # Errors
    /// `Exposed` for an address that is not on loopback; `Listen`.
    pub async fn new(what: &'static str, addr: SocketAddr) -> Result<Self, PageError> {
        if !addr.ip().is_loopback() {
            return Err(PageError::Exposed { what, on: addr });
        }
        let failed = |source| PageError::Listen { what, on: addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        Ok(Self { what, listener, addr })
    }

    /// Answers whoever asks, until `stop`.
    pub fn serve(self, router: Router, stop: CancellationToken) -> Listener {
        let Self { what, listener, addr } = self;
        let ended = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(ended).await {
                tracing::error!("{what} is not served any more: {error}");
            }
        });
        Listener { addr, stop, task }
    }
}

/// A listener that answers. A drop ends it without waiting.
#[derive(Debug)]
pub struct Listener {
    addr: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Listener {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // A browser that does not read holds nothing up.
        if tokio::time::timeout(Duration::from_secs(1), &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}
