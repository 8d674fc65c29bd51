//! The page, and what it serves where.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::middleware::from_fn;
use axum::routing::get;
use kintsu_client::Client;
use tokio_util::sync::CancellationToken;

use crate::error::PageError;
use crate::listener::{Bound, Listener};
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
pub struct Page(Listener);

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
        let bound = Bound::new("the page", addr).await?;
        let stop = CancellationToken::new();
        let live = Live::new(client.clone(), stop.clone());
        let router = router(Arc::new(Shared { client, live, results, codes: api::Codes::default() }));
        Ok(Self(bound.serve(router, stop)))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    /// What to type into a browser.
    pub fn url(&self) -> String {
        format!("http://{}/", self.addr())
    }

    /// Ends it.
    pub async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .merge(assets::router())
        .nest("/api", api::router())
        .route("/metrics", get(metrics::handle))
        .fallback(|uri: Uri| async move { guard::nothing_here(&uri, "the page is at /") })
        .layer(from_fn(guard::guard))
        .with_state(shared)
}
