//! An agent's life: open the store, listen, join the cluster, serve, end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::{NodeId, RackId};
use kintsu_runtime::{DataPlane, Limits, StoreLocal};
use kintsu_store::{BlockStore, FileStore};
use kintsu_wire::{CoordinatorChannel, Credentials, channel, check_listen, connect_coordinator, guard_agent};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::service::Service;
use crate::{AgentError, identity, membership};

/// How to start an agent.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// Where its blocks are; made if it is not there.
    pub dir: PathBuf,
    /// Its id; without one the directory's, or a new one.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: RackId,
    /// Where to listen for commands; port 0 for any.
    pub listen_control: SocketAddr,
    /// Where to listen for slices; port 0 for any.
    pub listen_data: SocketAddr,
    /// The coordinator, `host:port`.
    pub coordinator: String,
    /// The cluster's shared secret.
    pub token: Option<String>,
    /// Time and memory limits of programs.
    pub limits: Limits,
}

/// What the parts of a running agent share.
pub struct Shared {
    pub dir: PathBuf,
    pub rack: RackId,
    pub control: SocketAddr,
    pub data: SocketAddr,
    pub incarnation: u64,
    /// Known from the start, or from the first registration on.
    pub node: Mutex<Option<NodeId>>,
    pub store: Arc<dyn BlockStore>,
    /// The store as programs see it; there from the first registration on.
    pub local: Mutex<Option<Arc<StoreLocal>>>,
    pub running: AtomicU32,
    pub plane: Arc<DataPlane>,
    pub limits: Limits,
    pub end: CancellationToken,
}

/// Starts agents.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// Starts an agent and waits until the coordinator has taken it in.
    ///
    /// # Errors
    /// [`AgentError`]: the directory is in use or another node's, an address cannot be listened
    /// on, the coordinator refuses. An unreachable coordinator is waited for.
    pub async fn start(config: AgentConfig) -> Result<AgentHandle, AgentError> {
        let token = config.token.as_deref();
        check_listen(config.listen_control, false, token)?;
        check_listen(config.listen_data, false, token)?;
        let credentials = token.map_or(Ok(Credentials::none()), Credentials::token)?;
        let coordinator = connect_coordinator(&config.coordinator, &credentials)?;
        let store: Arc<dyn BlockStore> = Arc::new(FileStore::open(&config.dir)?);
        let node = identity::read(&config.dir, config.node)?;

        let control = listen(config.listen_control).await?;
        let plane = DataPlane::listen(config.listen_data, credentials.clone())
            .await
            .map_err(|e| AgentError::Listen { addr: config.listen_data, detail: e.to_string() })?;
        let shared = Arc::new(Shared {
            dir: std::path::absolute(&config.dir).unwrap_or(config.dir),
            rack: config.rack,
            control: address(&control, config.listen_control)?,
            data: plane.addr().unwrap_or(config.listen_data),
            incarnation: incarnation(),
            node: Mutex::new(node),
            store,
            local: Mutex::default(),
            running: AtomicU32::new(0),
            plane,
            limits: config.limits,
            end: CancellationToken::new(),
        });
        let serving = serve(shared.clone(), control, &coordinator, &credentials);
        let handle = AgentHandle { shared: shared.clone(), tasks: Mutex::new(vec![serving]) };
        handle.join(coordinator, &config.coordinator).await?;
        Ok(handle)
    }
}

/// A running agent; dropping it ends the agent without waiting for it.
pub struct AgentHandle {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl AgentHandle {
    async fn join(&self, coordinator: CoordinatorChannel, address: &str) -> Result<(), AgentError> {
        let refused = |detail| AgentError::Refused { coordinator: address.to_owned(), detail };
        let registered = membership::register(&self.shared, coordinator.clone()).await.map_err(refused)?;
        identity::write(&self.shared.dir, registered.node)?;
        let local = Arc::new(StoreLocal::new(registered.node, self.shared.store.clone()));
        *self.shared.local.lock().unwrap_or_else(PoisonError::into_inner) = Some(local);
        *self.shared.node.lock().unwrap_or_else(PoisonError::into_inner) = Some(registered.node);
        let beat = membership::keep_alive(self.shared.clone(), coordinator, registered);
        let end = self.shared.end.clone();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = beat => {}
            }
        });
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task);
        Ok(())
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        let node = self.shared.node.lock().unwrap_or_else(PoisonError::into_inner);
        node.expect("an agent that was taken in has an id")
    }

    /// Where it listens for commands.
    pub fn control(&self) -> SocketAddr {
        self.shared.control
    }

    /// Where it listens for slices.
    pub fn data(&self) -> SocketAddr {
        self.shared.data
    }

    /// Ends the agent: programs are aborted, unfinished blocks removed, the directory released.
    pub async fn shutdown(&self) {
        self.shared.end.cancel();
        self.wait().await;
    }

    /// Waits until the agent has ended (by [`AgentHandle::shutdown`] or by command).
    pub async fn wait(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            // A task that panicked has ended too.
            let _ = task.await;
        }
        let local = self.shared.local.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(local) = local {
            // What fails here is removed at the next start.
            let _ = tokio::task::spawn_blocking(move || local.discard_unfinished()).await;
        }
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.shared.end.cancel();
    }
}

async fn listen(addr: SocketAddr) -> Result<TcpListener, AgentError> {
    TcpListener::bind(addr).await.map_err(|e| AgentError::Listen { addr, detail: e.to_string() })
}

fn address(listener: &TcpListener, asked: SocketAddr) -> Result<SocketAddr, AgentError> {
    listener.local_addr().map_err(|e| AgentError::Listen { addr: asked, detail: e.to_string() })
}

fn incarnation() -> u64 {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // Without a source of randomness the process id and time tell starts apart well enough.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        return now.as_nanos() as u64 ^ u64::from(std::process::id()) << 48;
    }
    u64::from_le_bytes(bytes)
}

fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    coordinator: &CoordinatorChannel,
    credentials: &Credentials,
) -> JoinHandle<()> {
    let end = shared.end.clone();
    let service = guard_agent(Service::new(shared, coordinator.clone()), credentials);
    tokio::spawn(async move {
        let server = channel::server().add_service(service);
        // Calls under way end by the same token, so that a shutdown does not wait for them.
        let result = server.serve_with_incoming_shutdown(channel::incoming(listener), end.cancelled()).await;
        if let Err(error) = result {
            tracing::error!("the agent's listener ended: {error}");
        }
    })
}
