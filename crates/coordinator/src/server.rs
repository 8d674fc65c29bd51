//! Starting and ending a coordinator.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_wire::net::TcpListener;
use kintsu_wire::tls::Wanted;
use kintsu_wire::{ClusterId, Credentials, Tls, channel, check_listen};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;
use crate::config::Config;
use crate::driver::{self, Copied};
use crate::error::{CoordinatorError, Result};
use crate::meta;
use crate::restore::{self, Restore, Restored};
use crate::service::{ServedCluster, Service};

/// How long calls may go on after the coordinator began to end.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long the last copy of the metadata may take.
const LAST_COPY: Duration = Duration::from_secs(20);

/// A coordinator: it keeps the metadata, decides, and runs the jobs.
#[derive(Debug)]
pub struct Coordinator;

impl Coordinator {
    /// Starts a coordinator. It holds its directory exclusively until it has ended.
    ///
    /// # Errors
    /// A listener beyond loopback that is not protected, a port that is taken, a directory that is in use,
    /// metadata that cannot be read.
    pub async fn start(mut config: Config) -> Result<CoordinatorHandle> {
        let credentials = Credentials::of(config.token.as_deref(), config.tls.as_ref())?;
        check_listen(config.listen, &credentials, config.trusted)?;
        if let Some(tls) = &config.tls {
            adopt(&mut config.adopt, tls)?;
        }
        let stop = CancellationToken::new();
        // If the start fails or is cancelled, the listener ends too.
        let unfinished = stop.clone().drop_guard();
        let served = Arc::new(ServedCluster::default());
        let (listen, restore) = (config.listen, config.restore.clone());
        let (mut server, mut restored) = (None, None);
        match restore {
            None => {}
            Some(Restore::File(path)) => restored = Some(restore::from_file(&config, &path).await?),
            Some(Restore::Auto { wait }) => {
                meta::refuse_present(&config.dir)?;
                let (addr, listener) = listener(listen).await?;
                server = Some((addr, serve(served.clone(), listener, &credentials, &stop)));
                tracing::warn!("waiting on {addr} for agents that keep copies of the metadata");
                restored = Some(restore::auto(&config, wait, &served.callers).await?);
            }
        }
        if config.rebuild && config.adopt.is_none() && !meta::present(&config.dir)? {
            if server.is_none() {
                let (addr, listener) = listener(listen).await?;
                server = Some((addr, serve(served.clone(), listener, &credentials, &stop)));
                tracing::warn!("waiting on {addr} for the first agent, to take over the id of its cluster");
            }
            config.adopt = Some(served.callers.cluster().await);
        }
        let shown = credentials.clone();
        let opened = kintsu_wire::ambient::blocking(move || Cluster::open(config, shown)).await;
        let mut cluster = opened.map_err(|e| CoordinatorError::Storage(e.to_string()))??;
        cluster.stop = stop.clone();
        let cluster = Arc::new(cluster);
        served.open(cluster.clone());
        let (addr, server) = match server {
            Some(server) => server,
            None => {
                let (addr, listener) = listener(listen).await?;
                (addr, serve(served, listener, &credentials, &stop))
            }
        };
        unfinished.disarm();
        cluster.spawn(driver::ticks(cluster.clone()));
        cluster.spawn(driver::sweep(cluster.clone()));
        cluster.spawn(driver::purge(cluster.clone()));
        cluster.spawn(driver::patrol(cluster.clone()));
        cluster.spawn(driver::agreement(cluster.clone()));
        cluster.spawn(driver::copies(cluster.clone()));
        cluster.spawn(driver::rebuild(cluster.clone()));
        cluster.spawn(driver::volumes(cluster.clone()));
        cluster.spawn(driver::keep_logs(cluster.clone()));
        let leave = CancellationToken::new();
        let ended = tokio::spawn(end(cluster, server, leave.clone()));
        Ok(CoordinatorHandle { addr, leave, stop, restored, ended })
    }
}

/// A running coordinator. It goes on running if the handle is dropped.
#[derive(Debug)]
pub struct CoordinatorHandle {
    addr: SocketAddr,
    leave: CancellationToken,
    stop: CancellationToken,
    restored: Option<Restored>,
    ended: JoinHandle<Result<Option<Copied>>>,
}

impl CoordinatorHandle {
    /// The address where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The copy that its metadata were restored from, if any.
    pub fn restored(&self) -> Option<&Restored> {
        self.restored.as_ref()
    }

    /// Tells it to end; [`Self::wait`] returns when it has ended. If something was committed since the last copy
    /// of the metadata, agents get a new copy first, for 20 s at most.
    pub fn shutdown(&self) {
        self.leave.cancel();
    }

    /// Waits until it begins to end: by itself, or after [`Self::shutdown`] when its last copy is done.
    pub async fn ending(&self) {
        self.stop.cancelled().await;
    }

    /// Waits until it has ended and its directory is free. If calls or the disk keep the directory for longer than 5 s, the
    /// log says so. Returns the last copy of its metadata, if there was something to copy.
    ///
    /// # Errors
    /// `Halted` if it ended by itself because the disk of its metadata failed.
    pub async fn wait(self) -> Result<Option<Copied>> {
        // If its last task was aborted, the coordinator has ended too.
        self.ended.await.unwrap_or(Ok(None))
    }
}

/// The certificate says whose coordinator this is.
fn adopt(adopted: &mut Option<ClusterId>, tls: &Tls) -> Result<()> {
    let badge = tls.badge();
    let conflict = |expected, got| CoordinatorError::Conflict { what: "certificate".into(), expected, got };
    if !badge.is(Wanted::Coordinator) {
        return Err(conflict("one for a coordinator".into(), badge.to_string()));
    }
    match *adopted.get_or_insert(badge.cluster()) {
        own if own == badge.cluster() => Ok(()),
        other => Err(conflict(format!("one of cluster {other}"), badge.to_string())),
    }
}

async fn listener(listen: SocketAddr) -> Result<(SocketAddr, TcpListener)> {
    let io = |source| CoordinatorError::Io { what: format!("cannot listen on {listen}"), source };
    let listener = TcpListener::bind(listen).await.map_err(io)?;
    Ok((listener.local_addr().map_err(io)?, listener))
}

pub(crate) fn serve(
    served: Arc<ServedCluster>,
    listener: TcpListener,
    credentials: &Credentials,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let routes = channel::coordinator_routes(Arc::new(Service::new(served)));
    let (stop, signal) = (stop.clone(), stop.clone().cancelled_owned());
    let server = channel::serve(routes, credentials.clone(), listener, signal);
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

/// Waits for the signal to end, and ends the coordinator.
async fn end(
    cluster: Arc<Cluster>,
    server: JoinHandle<()>,
    leave: CancellationToken,
) -> Result<Option<Copied>> {
    let left = async {
        leave.cancelled().await;
        let copying = tokio::time::timeout(LAST_COPY, driver::last_copy(&cluster));
        copying.await.unwrap_or_else(|_| Some(Copied::late(LAST_COPY)))
    };
    let copied = tokio::select! {
        () = cluster.stop.cancelled() => None,
        () = cluster.meta.failure().happened() => None,
        copied = left => copied,
    };
    cluster.stop.cancel();
    // Progress reports end here; clients that follow a job ask again.
    cluster.jobs.let_go();
    // If the server panicked, it has ended too.
    let _ = server.await;
    cluster.close().await?;
    Ok(copied)
}
