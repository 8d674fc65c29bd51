//! An agent's life: open the store, listen, join the cluster, serve, end.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::RunId;
use kintsu_runtime::{Carried, Conductor, DataPlane, GiveWay, Limits, StoreLocal};
use kintsu_store::{BlockStore, FileStore, StoreError};
use kintsu_wire::net::TcpListener;
use kintsu_wire::tls::Badge;
use kintsu_wire::{
    Credentials, MembershipChannel, Tls, TrustedNetwork, WireError, channel, check_listen,
    connect_coordinator, guard_agent,
};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::counters::Interface;
use crate::deletes::Deletes;
use crate::identity::{FolderClaim, Identity, Recorded};
use crate::room::Room;
use crate::service::Service;
use crate::tickets::Inspector;
use crate::tombstones::Tombstones;
use crate::updates::Flights;
use crate::{AgentError, identity, membership};

/// How long running calls may take to end when the agent ends.
const LAST_CALLS: Duration = Duration::from_secs(3);

/// How to start an agent.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The folder of its blocks; created if absent.
    pub dir: PathBuf,
    /// Its id; `None` for the folder's recorded id, or a new one.
    pub node: Option<NodeId>,
    /// A name for people; `None` keeps the present one.
    pub name: Option<String>,
    /// Its rack, as a number.
    pub rack: RackId,
    /// Its rack, as a name; if given, the number is ignored.
    pub rack_name: Option<String>,
    /// The folder replaces the node's former one, which is gone: a new disk, or a lost `node.json`.
    pub replace: bool,
    /// The node was moved to another rack together with its blocks.
    pub moved: bool,
    /// Where to listen for commands; port 0 for any.
    pub listen_control: SocketAddr,
    /// Where to listen for slices; port 0 for any.
    pub listen_data: SocketAddr,
    /// The coordinator, `host:port`.
    pub coordinator: String,
    /// The cluster's shared secret.
    pub token: Option<String>,
    /// TLS for all its connections.
    pub tls: Option<Tls>,
    /// A trusted network: besides loopback it may listen there, in plain text.
    pub trusted: Option<TrustedNetwork>,
    /// Timeouts and queue limits of programs.
    pub limits: Limits,
}

impl AgentConfig {
    /// The defaults for a folder and a coordinator: the node that the folder belongs to, or a new node; rack 0; on
    /// loopback.
    pub fn new(dir: impl Into<PathBuf>, coordinator: impl Into<String>) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            dir: dir.into(),
            node: None,
            name: None,
            rack: RackId(0),
            rack_name: None,
            replace: false,
            moved: false,
            listen_control: any,
            listen_data: any,
            coordinator: coordinator.into(),
            token: None,
            tls: None,
            trusted: None,
            limits: Limits::default(),
        }
    }
}

/// The running jobs. Without TLS nobody knows who runs them.
type Jobs = HashMap<(RunId, Option<Arc<Badge>>), CancellationToken>;

/// What the parts of a running agent share.
pub struct Shared {
    /// How it was started; the directory is absolute.
    pub config: AgentConfig,
    pub control: SocketAddr,
    pub data: SocketAddr,
    pub incarnation: u64,
    pub credentials: Credentials,
    /// The folder's identity, as its file says.
    pub identity: Recorded,
    pub store: Arc<dyn BlockStore>,
    /// Objects that were removed for good.
    pub tombstones: Tombstones,
    /// Runs the batches of deletes one after the other.
    pub deletes: Arc<Deletes>,
    /// The store as programs see it; set at the first registration.
    pub local: Mutex<Option<Arc<StoreLocal>>>,
    pub running: AtomicU32,
    /// The cancellation token of each running job, by its number and by who runs it: callers choose the numbers.
    pub jobs: Mutex<Jobs>,
    /// Running programs and scrubs, so that a shutdown can wait for them.
    pub work: Mutex<JoinSet<()>>,
    pub plane: Arc<DataPlane>,
    /// What repairs and other background work have moved.
    pub background: Arc<Carried>,
    /// What runs that users wait for have moved.
    pub foreground: Arc<Carried>,
    /// Makes background runs wait for those of users.
    pub give_way: Arc<GiveWay>,
    /// Memory for the runs of users.
    pub room: Room,
    /// Appends to the log that are under way.
    pub flights: Flights,
    /// The agents that replicas of updates go to.
    pub peers: Conductor,
    pub started: Instant,
    /// The interface of the data listener.
    pub interface: Option<Interface>,
    /// Checks tickets; `None` if the coordinator issues none.
    pub inspector: Mutex<Option<Inspector>>,
    pub end: CancellationToken,
}

impl Shared {
    /// The folder's identity.
    pub fn identity(&self) -> Identity {
        self.identity.now()
    }

    /// Who checks tickets now.
    pub fn inspector(&self) -> Option<Inspector> {
        self.inspector.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the folder's identity file, durably. Blocking.
    ///
    /// # Errors
    /// The folder cannot be written, or another one is in its place; nothing has changed then.
    pub fn record(&self, change: impl FnOnce(Identity) -> Identity) -> Result<(), AgentError> {
        self.identity.change(change, |new| {
            self.store.check_root()?;
            identity::write(&self.config.dir, new)
        })
    }

    /// The cancellation tokens of the running jobs.
    pub fn jobs(&self) -> std::sync::MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The running work, without what has ended.
    pub fn work(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        while work.try_join_next().is_some() {}
        work
    }
}

/// Starts agents.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// Starts an agent and waits until the coordinator has accepted it.
    ///
    /// # Errors
    /// [`AgentError`]: the directory is in use or belongs to another node, an address cannot be listened on, the
    /// coordinator refuses. If the coordinator cannot be reached, this waits for it.
    pub async fn start(config: AgentConfig) -> Result<AgentHandle, AgentError> {
        Self::start_on(config, |dir| Ok(Arc::new(FileStore::open(dir)?))).await
    }

    /// The same on a store that `open` opens: for tests with a store that fails or lies.
    ///
    /// # Errors
    /// Those of [`Agent::start`] and of `open`.
    pub async fn start_on(
        config: AgentConfig,
        open: impl FnOnce(&Path) -> Result<Arc<dyn BlockStore>, StoreError> + Send + 'static,
    ) -> Result<AgentHandle, AgentError> {
        let credentials = Credentials::of(config.token.as_deref(), config.tls.as_ref())?;
        check_listen(config.listen_control, &credentials, config.trusted)?;
        check_listen(config.listen_data, &credentials, config.trusted)?;
        for addr in [config.listen_control, config.listen_data] {
            if addr.ip().is_unspecified() {
                return Err(AgentError::Wire(WireError::Exposed {
                    addr,
                    expected: "the address of one interface, to which others connect",
                    got: "the address of all interfaces",
                }));
            }
        }
        let coordinator = connect_coordinator(&config.coordinator, &credentials)?.membership;
        let dir = std::path::absolute(&config.dir).unwrap_or(config.dir);
        // If the certificate is for one node, a new folder becomes that node.
        let certified = config.tls.as_ref().and_then(|tls| tls.badge().node());
        let config = AgentConfig { dir, node: config.node.or(certified), ..config };
        let opened = config.clone();
        let open = move || {
            let store = open(&opened.dir)?;
            let claim =
                FolderClaim { node: opened.node, blocks: store.ids()?.len(), replace: opened.replace };
            let identity = identity::open(&opened.dir, claim)?;
            let tombstones = Tombstones::open(&opened.dir)?;
            Ok::<_, AgentError>((store, identity, tombstones))
        };
        let unfinished = |e: tokio::task::JoinError| AgentError::Identity {
            path: config.dir.clone(),
            detail: format!("opening it ended early: {e}"),
        };
        let (store, identity, tombstones) =
            kintsu_wire::ambient::blocking(open).await.map_err(unfinished)??;
        if let Some(cluster) = identity.cluster {
            credentials.join(cluster)?;
        }

        let control = listen(config.listen_control).await?;
        let plane = DataPlane::listen(config.listen_data, credentials.clone(), config.trusted)
            .await
            .map_err(|e| AgentError::Listen { addr: config.listen_data, detail: e.to_string() })?;
        let give_way = Arc::new(GiveWay::default());
        let shared = Arc::new(Shared {
            control: address(&control, config.listen_control)?,
            data: plane.addr().unwrap_or(config.listen_data),
            incarnation: incarnation(),
            credentials: credentials.clone(),
            identity: Recorded::new(identity),
            store,
            tombstones,
            deletes: Arc::default(),
            local: Mutex::default(),
            running: AtomicU32::new(0),
            jobs: Mutex::default(),
            work: Mutex::default(),
            interface: plane.addr().and_then(|addr| Interface::of(addr.ip())),
            plane,
            background: Arc::new(Carried::in_background(give_way.clone())),
            foreground: Arc::new(Carried::by_users(give_way.clone())),
            give_way,
            room: Room::default(),
            flights: Flights::default(),
            peers: Conductor::new(credentials.clone()),
            started: Instant::now(),
            inspector: Mutex::default(),
            end: CancellationToken::new(),
            config,
        });
        let serving = serve(shared.clone(), control, &coordinator, &credentials);
        let mut handle = AgentHandle {
            id: NodeId::CLIENT,
            control: shared.control,
            data: shared.data,
            dir: shared.config.dir.clone(),
            end: shared.end.clone(),
            tasks: Mutex::new(vec![serving]),
            shared: Mutex::new(Some(shared.clone())),
        };
        let (id, staying) = match join(shared, coordinator).await {
            Ok(joined) => joined,
            Err(refused) => {
                handle.shutdown().await;
                return Err(refused);
            }
        };
        handle.id = id;
        handle.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(staying);
        Ok(handle)
    }
}

/// A running agent; dropping it ends the agent without waiting for it.
pub struct AgentHandle {
    id: NodeId,
    control: SocketAddr,
    data: SocketAddr,
    dir: PathBuf,
    end: CancellationToken,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Released at the end, and with it the directory.
    shared: Mutex<Option<Arc<Shared>>>,
}

/// Registers the agent, and starts the task that keeps it in the cluster.
async fn join(
    shared: Arc<Shared>,
    coordinator: MembershipChannel,
) -> Result<(NodeId, JoinHandle<()>), AgentError> {
    let registered = membership::register(&shared, coordinator.clone()).await?;
    let node = registered.node;
    let local = Arc::new(StoreLocal::new(node, shared.store.clone()));
    *shared.local.lock().unwrap_or_else(PoisonError::into_inner) = Some(local);
    Ok((node, tokio::spawn(membership::keep_alive(shared, coordinator, registered))))
}

impl AgentHandle {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Where it listens for commands.
    pub fn control(&self) -> SocketAddr {
        self.control
    }

    /// Where it listens for slices.
    pub fn data(&self) -> SocketAddr {
        self.data
    }

    /// Where its blocks are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Ends the agent: aborts programs, removes unfinished blocks, releases the directory.
    pub async fn shutdown(&self) {
        self.end.cancel();
        self.wait().await;
    }

    /// Waits until the agent has ended (by [`AgentHandle::shutdown`] or by command).
    pub async fn wait(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        self.end.cancelled().await;
        for mut task in tasks {
            // A task that panicked has ended too. A caller that does not read its replies must not hold up the end.
            if timeout(LAST_CALLS, &mut task).await.is_err() {
                task.abort();
                let _ = task.await;
            }
        }
        let Some(shared) = self.shared.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        shared.plane.close().await;
        let mut work = std::mem::take(&mut *shared.work());
        let _ = timeout(LAST_CALLS, async { while work.join_next().await.is_some() {} }).await;
        let local = shared.local.lock().unwrap_or_else(PoisonError::into_inner).take();
        let let_go = move || {
            // Unfinished blocks that stay are removed at the next start.
            if let Some(local) = local {
                local.discard_unfinished();
            }
            drop(shared);
        };
        let _ = kintsu_wire::ambient::blocking(let_go).await;
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.end.cancel();
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
        // Without a source of randomness, process id and time distinguish starts well enough.
        let now = kintsu_wire::ambient::since_epoch();
        return now.as_nanos() as u64 ^ u64::from(std::process::id()) << 48;
    }
    u64::from_le_bytes(bytes)
}

fn serve(
    shared: Arc<Shared>,
    listener: TcpListener,
    coordinator: &MembershipChannel,
    credentials: &Credentials,
) -> JoinHandle<()> {
    let (end, credentials) = (shared.end.clone(), credentials.clone());
    let service = guard_agent(Service::new(shared, coordinator.clone()), &credentials);
    tokio::spawn(async move {
        let server = channel::server().add_service(service);
        // Running calls end by the same token, so that a shutdown does not wait for them.
        let incoming = channel::incoming(listener, &credentials);
        if let Err(error) = server.serve_with_incoming_shutdown(incoming, end.cancelled()).await {
            tracing::error!("the agent's listener ended: {error}");
        }
        end.cancel();
    })
}
