//! Starting and ending a coordinator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_wire::{Credentials, channel, check_listen, guard_coordinator};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::driver;
use crate::error::{CoordinatorError, Result};
use crate::service::Service;

/// How long calls may take to end when the coordinator does.
const FAREWELL: Duration = Duration::from_secs(2);

/// A coordinator: metadata, decisions, and the conduct of long work.
#[derive(Debug)]
pub struct Coordinator;

impl Coordinator {
    /// Starts a coordinator. It holds its directory exclusively until it has ended.
    ///
    /// # Errors
    /// A listener beyond loopback, a port that is taken, a directory that is in use, metadata that
    /// cannot be read.
    pub async fn start(config: Config) -> Result<CoordinatorHandle> {
        let wire = |e: kintsu_wire::WireError| CoordinatorError::Conflict {
            what: "start of the coordinator".into(),
            expected: "a listener and a token that are safe".into(),
            got: e.to_string(),
        };
        let token = config.token.as_deref();
        check_listen(config.listen, false, token, config.trusted).map_err(wire)?;
        let credentials = token.map_or(Ok(Credentials::none()), Credentials::token).map_err(wire)?;
        let shown = credentials.clone();
        let listen = config.listen;
        let opened = tokio::task::spawn_blocking(move || Cluster::open(config, shown)).await;
        let cluster = Arc::new(opened.map_err(|e| CoordinatorError::Storage(e.to_string()))??);
        let io = |source| CoordinatorError::Io { what: format!("cannot listen on {listen}"), source };
        let listener = TcpListener::bind(listen).await.map_err(io)?;
        let addr = listener.local_addr().map_err(io)?;
        let stop = cluster.stop.clone();
        let server = serve(cluster.clone(), listener, credentials);
        cluster.spawn(driver::ticks(cluster.clone()));
        cluster.spawn(driver::sweep(cluster.clone()));
        cluster.spawn(driver::purge(cluster.clone()));
        cluster.tasks.close();
        let ended = tokio::spawn(end(cluster, server));
        Ok(CoordinatorHandle { addr, stop, ended })
    }
}

/// A coordinator that runs. Dropping the handle lets it run on.
#[derive(Debug)]
pub struct CoordinatorHandle {
    addr: SocketAddr,
    stop: CancellationToken,
    ended: JoinHandle<()>,
}

impl CoordinatorHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Asks it to end; [`Self::wait`] tells when it has.
    pub fn shutdown(&self) {
        self.stop.cancel();
    }

    /// Waits until it has ended and its directory is free.
    pub async fn wait(self) {
        // It has ended even if its last task was aborted.
        let _ = self.ended.await;
    }
}

pub(crate) fn serve(
    cluster: Arc<Cluster>,
    listener: TcpListener,
    credentials: Credentials,
) -> JoinHandle<()> {
    let stop = cluster.stop.clone();
    let service = guard_coordinator(Service::new(cluster), &credentials);
    let incoming = channel::incoming(listener);
    let signal = stop.clone().cancelled_owned();
    let server = channel::server().add_service(service).serve_with_incoming_shutdown(incoming, signal);
    tokio::spawn(async move {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(FAREWELL).await;
        };
        tokio::select! {
            served = server => {
                if let Err(error) = served {
                    tracing::error!("the listener failed: {error}");
                }
                stop.cancel();
            }
            () = late => {}
        }
    })
}

/// Waits for the end of everything, and then until nothing holds the metadata any more.
async fn end(cluster: Arc<Cluster>, server: JoinHandle<()>) {
    cluster.stop.cancelled().await;
    // Reports of repairs end here; whoever follows them asks again.
    cluster.asks().clear();
    // A panic of the server ends it too.
    let _ = server.await;
    cluster.tasks.wait().await;
    let meta = cluster.meta.clone();
    drop(cluster);
    for _ in 0..1000 {
        if meta.is_last() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
