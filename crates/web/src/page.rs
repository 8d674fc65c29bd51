//! The listener, and what it serves where.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn;
use axum::routing::get;
use kintsu_client::Client;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::PageError;
use crate::live::Live;
use crate::{api, assets, guard, metrics};

/// Where the page is, unless another address is given.
pub const DEFAULT_PAGE: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7480);

/// What all answers need.
pub struct Shared {
    /// The cluster.
    pub client: Client,
    /// The facts that change.
    pub live: Live,
    /// Results of experiments, if there are any to show.
    pub results: Option<api::Results>,
    /// What is known of codes.
    pub codes: api::Codes,
}

/// A page that is being served. A drop ends it without waiting.
#[derive(Debug)]
pub struct Page {
    addr: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Page {
    /// Serves the page of a client's cluster on `addr` (port 0: any free port), with results of experiments if there are
    /// any. Nothing is asked of the cluster before somebody looks.
    ///
    /// # Errors
    /// `Exposed` for an address that is not on loopback; `Listen`.
    pub async fn start(
        client: Client,
        addr: SocketAddr,
        results: Option<api::Results>,
    ) -> Result<Self, PageError> {
        if !addr.ip().is_loopback() {
            return Err(PageError::Exposed(addr));
        }
        let failed = |source| PageError::Listen { on: addr, source };
        let listener = TcpListener::bind(addr).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let stop = CancellationToken::new();
        let live = Live::new(client.clone(), stop.clone());
        let router = router(Arc::new(Shared { client, live, results, codes: api::Codes::default() }));
        let ended = stop.clone().cancelled_owned();
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(ended).await {
                tracing::error!("the page is not served any more: {error}");
            }
        });
        Ok(Self { addr, stop, task })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What to type into a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// Ends it.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        // A browser that does not read holds nothing up.
        let limit = std::time::Duration::from_secs(1);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.stop.cancel();
        self.task.abort();
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(assets::router())
        .nest("/api", api::router())
        .route("/metrics", get(metrics::handle))
        .fallback(guard::nothing_here)
        .layer(from_fn(guard::guard))
        .with_state(shared)
}
