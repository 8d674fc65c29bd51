//! A coordinator beside an HDFS: sees losses early, has agents beside the DataNodes rebuild lost internal blocks along
//! pipelines, and brings them into HDFS when the NameNode knows of the loss.
//!
//! In the order of a repair: `vigil` (what is lost), `resting` (what is not, because its DataNode is in maintenance), `scene` (who can help), `rebuild` (plan and run; the block is staged on the
//! requestor), `compare` (with the rest of its group), `settle` (hand-over), `crowded` (when HDFS rebuilt beside it). `damage` is
//! what agents find on disks when they read for that: it is lost too. `members` are the agents, `unlisted` those that help nobody. There are no metadata here: what is lost
//! comes from the NameNode and the disks, what is staged from the agents, so a restart loses nothing. `readers` tells who reads
//! files which agents there are.

mod compare;
mod crowded;
mod damage;
mod members;
mod memory;
mod readers;
mod rebuild;
mod resting;
mod scene;
mod settle;
mod unlisted;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::BlockIndex;
use kintsu_plan::Method;
use kintsu_runtime::Conductor;
use kintsu_wire::channel::{beside_routes, serve};
use kintsu_wire::net::TcpListener;
use kintsu_wire::{Credentials, TrustedNetwork, check_listen};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::objects::Records;
use crate::proto::names::NamespaceInfo;
use crate::vigil::{Sight, TICK, Vigil};
use crate::walk::{LeftAlone, groups};
use crate::{Group, HdfsError, NameNode, notes};

use members::Members;
use memory::Memory;
use readers::Readers;
use unlisted::Unlisted;

pub use crowded::tell_crowds;
pub use members::cluster_of;

/// After a start agents get this long to register and to tell what is staged, before anything is rebuilt.
const AGENTS_COME: Duration = Duration::from_secs(5);

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
    /// The NameNode is told of lost blocks of a DataNode that it has not heard for this long; without, only of damaged ones.
    pub report_after: Option<Duration>,
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
    /// The NameNode was told that the copy of a DataNode is lost: it is damaged, or the DataNode is gone. It will report the
    /// block missing.
    Reported {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// The DataNode that had it.
        datanode: String,
    },
    /// The NameNode counts a rebuilt block.
    Counted {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// The DataNode.
        datanode: String,
        /// Whether more blocks than needed were there, and agree with it.
        proved: bool,
    },
    /// A block was moved away from a DataNode to which HDFS had brought another one of the group.
    Moved {
        /// Which.
        #[serde(flatten)]
        block: Block,
        /// The DataNode that had both.
        from: String,
        /// The DataNode that has it.
        to: String,
    },
    /// A stored block cannot be read, or is not what the others of its group say.
    Wrong {
        /// Which block.
        #[serde(flatten)]
        block: Block,
        /// The DataNode that has it.
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
    /// What an operator should know of this HDFS, with which everything works.
    Note {
        /// In words.
        text: String,
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

    /// Does this with a group that counts as busy, until the coordinator ends; then the group is free. If it fails, that is told, and the
    /// group rests.
    async fn work_on(
        &self,
        group: u64,
        what: &(dyn std::fmt::Display + Sync),
        doing: impl Future<Output = Result<(), HdfsError>>,
    ) {
        let done = self.end.run_until_cancelled(doing).await;
        self.memory().free(group);
        if let Some(Err(error)) = done {
            self.memory().rest(group);
            self.failed(what, error).await;
        }
    }
}

impl Group {
    fn name(&self, index: BlockIndex) -> Block {
        Block { path: self.path.clone(), group: self.number(), index: index.0 }
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
    let live = namenode.live_datanodes().await?;
    let NamespaceInfo { pool, release } = namenode.namespace().await?;
    let notes = notes::release(&release).into_iter().chain(notes::racks(&live)).collect();
    let cannot = |error: kintsu_wire::WireError| HdfsError::Unsupported {
        what: format!("listening on {}", config.listen),
        expected: "loopback, or a trusted network and a token".into(),
        got: error.to_string(),
    };
    let credentials = Credentials::of(config.token.as_deref(), None).map_err(cannot)?;
    check_listen(config.listen, &credentials, config.trusted).map_err(cannot)?;
    let listener = TcpListener::bind(config.listen).await;
    let listener = listener.map_err(|e| HdfsError::io(format!("listening on {}", config.listen), e))?;
    let addr = listener.local_addr().map_err(|e| HdfsError::io("the listener's address", e))?;
    let (members, end) =
        (Arc::new(Members::of(&pool, credentials.speaks().clone())), CancellationToken::new());
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
    let routes = beside_routes(members, Readers(shared.clone()));
    tasks.spawn(async move {
        if let Err(error) = serve(routes, credentials, listener, stop).await {
            tracing::error!("the listener for agents failed: {error}");
        }
    });
    let scanning = shared.clone();
    tasks.spawn(async move { _ = scanning.end.clone().run_until_cancelled(scan(scanning)).await });
    tasks.spawn(async move { _ = shared.end.clone().run_until_cancelled(watch(shared, notes)).await });
    Ok(BesideHandle { addr, end, tasks })
}

/// Lists all groups, again and again.
async fn scan(shared: Arc<Shared>) {
    let (mut records, mut left_alone) = (Records::default(), LeftAlone::default());
    loop {
        match groups(&shared.namenode, &shared.config.root, &mut records, &mut left_alone).await {
            Ok(groups) => {
                shared.memory().list(groups);
            }
            Err(error) => shared.failed("scan of the namespace", error).await,
        }
        for why in left_alone.untold() {
            shared.failed("scan of the namespace", why).await;
        }
        tokio::time::sleep(shared.config.scan).await;
    }
}

/// Tells the notes; then looks at DataNodes and groups, and starts what there is to do.
async fn watch(shared: Arc<Shared>, notes: Vec<String>) {
    for text in notes {
        shared.tell(Event::Note { text }).await;
    }
    let (mut work, mut vigil, started) = (JoinSet::new(), Vigil::default(), Instant::now());
    let mut unlisted = Unlisted::default();
    loop {
        let began = Instant::now();
        if let Err(error) = look(&shared, &mut vigil).await {
            shared.failed("look at the DataNodes", error).await;
        } else {
            if started.elapsed() >= AGENTS_COME {
                rebuild::begin(&shared, &mut work).await;
            }
            settle::begin(&shared, &mut work);
            crowded::begin(&shared, &mut work);
            if let Err(error) = unlisted::look(&shared, &mut unlisted).await {
                shared.failed("look for DataNodes of agents", error).await;
            }
        }
        while work.try_join_next().is_some() {}
        tokio::time::sleep(TICK.saturating_sub(began.elapsed())).await;
    }
}

/// Finds out which DataNodes are gone.
async fn look(shared: &Arc<Shared>, vigil: &mut Vigil) -> Result<(), HdfsError> {
    let sight = vigil.look(&shared.namenode).await?;
    shared.memory().maintenance.now(&sight);
    let Sight { live, gone, left, back, notes, .. } = sight;
    {
        let mut memory = shared.memory();
        (memory.live, memory.gone) = (live, gone);
    }
    for text in notes {
        shared.tell(Event::Note { text }).await;
    }
    for (datanode, why) in left {
        shared.tell(Event::Gone { datanode, why }).await;
    }
    for datanode in back {
        shared.tell(Event::Back { datanode }).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kintsu_wire::version::Speaks;

    use super::*;

    /// What the parts of a coordinator share beside this NameNode, and what happens. Nobody listens for agents.
    pub(super) fn shared(namenode: NameNode) -> (Arc<Shared>, mpsc::Receiver<Event>) {
        let (events, happens) = mpsc::channel(64);
        let config = Beside {
            listen: "127.0.0.1:0".parse().unwrap(),
            token: None,
            trusted: None,
            method: Method::Auto,
            root: "/".into(),
            scan: Duration::from_secs(60),
            at_once: 8,
            report_after: None,
        };
        let shared = Shared {
            namenode,
            config,
            members: Arc::new(Members::of("BP", Speaks::default())),
            conductor: Conductor::new(Credentials::of(None, None).unwrap()),
            events,
            end: CancellationToken::new(),
            memory: Mutex::default(),
        };
        (Arc::new(shared), happens)
    }
}
