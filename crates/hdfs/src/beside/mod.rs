//! A coordinator beside an HDFS: sees losses early, has agents beside the DataNodes rebuild lost internal blocks along
//! pipelines, and brings them into HDFS when the NameNode knows of the loss.
//!
//! In the order of a repair: `scene` (what is lost), `rebuild` (plan and run; the block is staged on the requestor), `settle`
//! (hand-over). `members` are the agents. There are no metadata here: what is lost comes from the NameNode, what is
//! staged from the agents, so a restart loses nothing.

mod members;
mod rebuild;
mod scene;
mod settle;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::Method;
use kintsu_runtime::Conductor;
use kintsu_wire::channel::{membership_routes, serve};
use kintsu_wire::net::TcpListener;
use kintsu_wire::{Credentials, TrustedNetwork, check_listen};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::proto::names::DatanodeInfo;
use crate::walk::Walk;
use crate::{Group, HdfsError, NameNode};

use members::Members;

/// Pause between two looks at the DataNodes.
const TICK: Duration = Duration::from_secs(1);

/// After a start agents get this long to register and to tell what is staged, before anything is rebuilt.
const AGENTS_COME: Duration = Duration::from_secs(5);

/// A group whose repair failed is left alone for this long.
const REST: Duration = Duration::from_secs(5);

/// How long a DataNode may take to accept a connection that only tests it.
const PROBE: Duration = Duration::from_millis(500);

/// How a coordinator works.
#[derive(Debug, Clone)]
pub struct Beside {
    /// Where it listens for agents; port 0 for any.
    pub listen: SocketAddr,
    /// The secret that it shares with its agents.
    pub token: Option<String>,
    /// A trusted network, besides loopback, where it may listen in plain text.
    pub trusted: Option<TrustedNetwork>,
    /// How blocks are rebuilt.
    pub method: Method,
    /// Only files below this path.
    pub root: String,
    /// Pause between two scans of the namespace.
    pub scan: Duration,
    /// Groups that are repaired at once.
    pub at_once: usize,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Event {
    /// A DataNode is gone.
    Gone {
        /// Its address.
        datanode: String,
        /// How that is known.
        why: String,
    },
    /// A DataNode that was gone is there again.
    Back {
        /// Its address.
        datanode: String,
    },
    /// A lost block was rebuilt, and waits beside a DataNode.
    Staged {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// The DataNode.
        datanode: String,
        /// How long it took, in milliseconds.
        ms: u64,
        /// Internal blocks that were read.
        helpers: usize,
    },
    /// The NameNode counts a rebuilt block.
    Counted {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// The DataNode.
        datanode: String,
    },
    /// A staged block was dropped.
    Dropped {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// Why.
        why: String,
    },
    /// Something did not work out; it is tried again.
    Failed {
        /// What.
        what: String,
        /// Why.
        why: String,
    },
}

/// An internal block.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Block {
    /// Its file.
    pub path: String,
    /// Its group.
    pub group: i64,
    /// Its index.
    pub index: u8,
}

/// What all parts of a running coordinator share.
pub(crate) struct Shared {
    namenode: NameNode,
    config: Beside,
    members: Arc<Members>,
    conductor: Conductor,
    events: mpsc::Sender<Event>,
    end: CancellationToken,
    memory: Mutex<Memory>,
}

/// What is remembered from tick to tick.
#[derive(Default)]
struct Memory {
    /// Connections that each DataNode refused in a row.
    refused: BTreeMap<String, u32>,
    gone: BTreeMap<String, String>,
    live: Vec<DatanodeInfo>,
    /// All groups as of the last scan.
    groups: BTreeMap<u64, Group>,
    /// Whether there was a scan.
    scanned: bool,
    /// Groups that are worked on.
    busy: BTreeSet<u64>,
    /// Groups whose repair failed, and when.
    failed: BTreeMap<u64, Instant>,
    /// Nodes that did not bring a block of a group into HDFS, or failed at it.
    barred: BTreeMap<u64, BTreeSet<NodeId>>,
    /// Internal blocks that cannot be read.
    unreadable: BTreeMap<u64, BTreeSet<BlockIndex>>,
}

impl Shared {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn tell(&self, event: Event) {
        // Nobody may listen any more.
        let _ = self.events.send(event).await;
    }

    async fn failed(&self, what: impl std::fmt::Display, error: impl std::fmt::Display) {
        self.tell(Event::Failed { what: what.to_string(), why: error.to_string() }).await;
    }
}

impl Group {
    fn name(&self, index: BlockIndex) -> Block {
        Block { path: self.path.clone(), group: self.id as i64, index: index.0 }
    }
}

/// A running coordinator.
pub struct BesideHandle {
    addr: SocketAddr,
    end: CancellationToken,
    tasks: JoinSet<()>,
}

impl BesideHandle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends it. Runs that are under way are aborted; what is staged stays beside the DataNodes.
    pub async fn shutdown(mut self) {
        self.end.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(Duration::from_secs(3), all).await;
    }
}

/// Starts a coordinator beside the HDFS of this NameNode. `events` gets what happens.
///
/// # Errors
/// `Denied` for users who are not superusers of HDFS; `Unsupported` for Kerberos and encrypted transfer; `Io` if it cannot
/// listen; those of calls.
pub async fn start(
    namenode: NameNode,
    config: Beside,
    events: mpsc::Sender<Event>,
) -> Result<BesideHandle, HdfsError> {
    namenode.check_transfer().await?;
    namenode.live_datanodes().await?;
    let pool = namenode.block_pool().await?;
    let cannot = |error: kintsu_wire::WireError| HdfsError::Unsupported {
        what: format!("listening on {}", config.listen),
        expected: "loopback, or a trusted network and a token".into(),
        got: error.to_string(),
    };
    check_listen(config.listen, false, config.token.as_deref(), config.trusted).map_err(cannot)?;
    let credentials = config.token.as_deref().map_or(Ok(Credentials::none()), Credentials::token);
    let credentials = credentials.map_err(cannot)?;
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.map_err(|e| HdfsError::io(format!("listening on {}", config.listen), e))?;
    let addr = listener.local_addr().map_err(|e| HdfsError::io("the listener's address", e))?;
    let (members, end) = (Arc::new(Members::of(&pool)), CancellationToken::new());
    // Agents take calls only from those that show their cluster.
    credentials.join(members.cluster()).map_err(cannot)?;
    let shared = Arc::new(Shared {
        namenode,
        config,
        members: members.clone(),
        conductor: Conductor::new(credentials.clone()),
        events,
        end: end.clone(),
        memory: Mutex::default(),
    });
    let mut tasks = JoinSet::new();
    let stop = end.clone().cancelled_owned();
    tasks.spawn(async move {
        if let Err(error) = serve(membership_routes(members), credentials, listener, stop).await {
            tracing::error!("the listener for agents failed: {error}");
        }
    });
    let scanning = shared.clone();
    tasks.spawn(async move { _ = scanning.end.clone().run_until_cancelled(scan(scanning)).await });
    tasks.spawn(async move { _ = shared.end.clone().run_until_cancelled(watch(shared)).await });
    Ok(BesideHandle { addr, end, tasks })
}

/// Lists all groups, again and again.
async fn scan(shared: Arc<Shared>) {
    loop {
        match groups(&shared).await {
            Ok(groups) => {
                let mut memory = shared.memory();
                (memory.groups, memory.scanned) = (groups, true);
                // Whoever failed gets another chance.
                memory.barred.clear();
                memory.unreadable.clear();
                memory.failed.retain(|_, at| at.elapsed() < REST);
            }
            Err(error) => shared.failed("scan of the namespace", error).await,
        }
        tokio::time::sleep(shared.config.scan).await;
    }
}

async fn groups(shared: &Shared) -> Result<BTreeMap<u64, Group>, HdfsError> {
    let (mut groups, mut walk) = (BTreeMap::new(), Walk::from(&shared.namenode, &shared.config.root));
    while let Some(files) = walk.next().await? {
        for (path, file) in files {
            let Some(blocks) = file.blocks.as_ref().filter(|_| file.policy.is_some()) else { continue };
            match Group::of(&path, &file, blocks) {
                Ok(found) => groups.extend(found.into_iter().map(|group| (group.id, group))),
                Err(error) => tracing::info!("{error}"),
            }
        }
    }
    Ok(groups)
}

/// Looks at DataNodes and groups, and starts what there is to do.
async fn watch(shared: Arc<Shared>) {
    let (mut work, started) = (JoinSet::new(), Instant::now());
    loop {
        let began = Instant::now();
        if let Err(error) = look(&shared).await {
            shared.failed("look at the DataNodes", error).await;
        } else {
            if started.elapsed() >= AGENTS_COME {
                rebuild::begin(&shared, &mut work).await;
            }
            settle::begin(&shared, &mut work);
        }
        while work.try_join_next().is_some() {}
        tokio::time::sleep(TICK.saturating_sub(began.elapsed())).await;
    }
}

/// Finds out which DataNodes are gone.
async fn look(shared: &Arc<Shared>) -> Result<(), HdfsError> {
    let live = shared.namenode.live_datanodes().await?;
    let mut probes = JoinSet::new();
    for address in live.iter().map(scene::address) {
        probes.spawn(async move {
            let connected = timeout(PROBE, tokio::net::TcpStream::connect(&address)).await;
            let refused =
                matches!(connected, Ok(Err(e)) if e.kind() == std::io::ErrorKind::ConnectionRefused);
            (address, refused)
        });
    }
    let probed = probes.join_all().await;
    let (gone, before) = {
        let mut memory = shared.memory();
        let mut refused = std::mem::take(&mut memory.refused);
        for (address, no) in probed {
            match no {
                true => *refused.entry(address).or_default() += 1,
                false => _ = refused.remove(&address),
            }
        }
        let mut gone = scene::gone(&live, &refused);
        // Dead for the NameNode: its blocks may be listed for some seconds more.
        for (address, why) in &memory.gone {
            if !live.iter().any(|node| scene::address(node) == *address) {
                gone.insert(address.clone(), why.clone());
            }
        }
        (memory.refused, memory.live) = (refused, live);
        (gone.clone(), std::mem::replace(&mut memory.gone, gone))
    };
    for (datanode, why) in &gone {
        if !before.contains_key(datanode) {
            shared.tell(Event::Gone { datanode: datanode.clone(), why: why.clone() }).await;
        }
    }
    for datanode in before.into_keys().filter(|datanode| !gone.contains_key(datanode)) {
        shared.tell(Event::Back { datanode }).await;
    }
    Ok(())
}
