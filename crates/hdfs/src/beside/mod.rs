//! A coordinator beside an HDFS: sees losses early, has agents beside the DataNodes rebuild lost internal blocks along
//! pipelines, and brings them into HDFS when the NameNode knows of the loss.
//!
//! In the order of a repair: `vigil` (what is lost), `resting` (what is not, because its DataNode is in maintenance), `scene` (who can help), `rebuild` (plan and run; the block is staged on the
//! requestor), `compare` (with the rest of its group), `settle` (hand-over), `keep` (what may not be dropped), `crowded` (when HDFS rebuilt
//! beside it). `alone` is for groups with too few agents. `busy` are the groups that are worked on. `damage` is
//! what agents find on disks when they read for that: it is lost too. `members` are the agents, `unlisted` those that help nobody. There are no metadata here: what is lost
//! comes from the NameNode and the disks, what is staged from the agents, so a restart loses nothing. `readers` tells who reads
//! files which agents there are.

mod alone;
mod busy;
mod compare;
mod crowded;
mod damage;
mod keep;
mod members;
mod memory;
mod readers;
mod rebuild;
mod resting;
mod scene;
mod settle;
mod unlisted;

use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::BlockIndex;
use kintsu_plan::Method;
use kintsu_runtime::Conductor;
use kintsu_wire::channel::{beside_routes, serve};
use kintsu_wire::net::TcpListener;
use kintsu_wire::{Credentials, TrustedNetwork, check_listen};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::objects::Records;
use crate::proto::names::NamespaceInfo;
use crate::vigil::{Sight, TICK, Vigil};
use crate::walk::{LeftAlone, groups};
use crate::{Group, HdfsError, NameNode, block_id, notes};

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
    /// Bytes a second that this work may send, receive and read on each agent's host; `None`: no limit.
    pub repair_rate: Option<NonZeroU64>,
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
    /// Events that nobody can be told of any more, because whoever takes them was too slow.
    Missed {
        /// Their number.
        events: u64,
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
    /// Events for which there was no room, since the last that was told.
    missed: AtomicU64,
    end: CancellationToken,
    memory: Mutex<Memory>,
}

impl Shared {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of an event, if there is room for it. Nothing here ever waits for whoever takes events.
    fn tell(&self, event: Event) {
        self.tell_missed();
        if !self.send(event) {
            self.missed.fetch_add(1, Relaxed);
        }
    }

    /// Tells how many events there was no room for, as soon as there is some.
    fn tell_missed(&self) {
        let events = self.missed.swap(0, Relaxed);
        if events > 0 && !self.send(Event::Missed { events }) {
            self.missed.fetch_add(events, Relaxed);
        }
    }

    /// Whether there was room. Nobody may listen any more.
    fn send(&self, event: Event) -> bool {
        !matches!(self.events.try_send(event), Err(TrySendError::Full(_)))
    }

    fn failed(&self, what: impl std::fmt::Display, error: impl std::fmt::Display) {
        self.tell(Event::Failed { what: what.to_string(), why: error.to_string() });
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
    let members = Members::of(&pool, credentials.speaks().clone()).at_most(config.repair_rate);
    let (members, end) = (Arc::new(members), CancellationToken::new());
    // Agents take calls only from those that show their cluster.
    credentials.join(members.cluster()).map_err(cannot)?;
    let shared = Arc::new(Shared {
        namenode,
        config,
        members: members.clone(),
        conductor: Conductor::new(credentials.clone()),
        events,
        missed: AtomicU64::new(0),
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
    let (mut records, mut left_alone, mut told) = (Records::default(), LeftAlone::default(), false);
    let root = &shared.config.root;
    loop {
        let staged = shared.members.staged();
        let asked = staged.keys().map(|(id, _)| block_id(*id) as u64).collect();
        match groups(&shared.namenode, root, &mut records, &mut left_alone, asked).await {
            Ok(found) => {
                let all = found.all;
                let unknown = shared.memory().list(found, &shared.members.staged());
                if unknown > 0 && !all && !std::mem::replace(&mut told, true) {
                    let text = format!(
                        "{unknown} rebuilt blocks wait of which no file below {root} is known: they are kept; a coordinator that \
                         may see all files (path /) drops those that no file has"
                    );
                    shared.tell(Event::Note { text });
                }
            }
            Err(error) => shared.failed("scan of the namespace", error),
        }
        for why in left_alone.untold() {
            shared.failed("scan of the namespace", why);
        }
        tokio::time::sleep(shared.config.scan).await;
    }
}

/// What is remembered from tick to tick of watching.
struct Watching {
    vigil: Vigil,
    unlisted: Unlisted,
    /// Whether the NameNode was in safe mode when it was asked last.
    safe_mode: bool,
    started: Instant,
}

/// Tells the notes; then looks at DataNodes and groups, and starts what there is to do.
async fn watch(shared: Arc<Shared>, notes: Vec<String>) {
    for text in notes {
        shared.tell(Event::Note { text });
    }
    let (mut work, started) = (JoinSet::new(), Instant::now());
    let (vigil, unlisted) = (Vigil::default(), Unlisted::default());
    let mut watching = Watching { vigil, unlisted, safe_mode: false, started };
    loop {
        let began = Instant::now();
        tick(&shared, &mut watching, &mut work).await;
        tokio::time::sleep(TICK.saturating_sub(began.elapsed())).await;
    }
}

/// Looks once, and starts what there is to do.
async fn tick(shared: &Arc<Shared>, watching: &mut Watching, work: &mut JoinSet<()>) {
    if let Err(error) = look(shared, watching).await {
        shared.failed("look at the DataNodes", error);
    } else {
        if !watching.safe_mode {
            if watching.started.elapsed() >= AGENTS_COME {
                rebuild::begin(shared, work).await;
            }
            settle::begin(shared, work);
            crowded::begin(shared, work);
        }
        if let Err(error) = unlisted::look(shared, &mut watching.unlisted).await {
            shared.failed("look for DataNodes of agents", error);
        }
    }
    while let Some(ended) = work.try_join_next() {
        // A panic was told with its group.
        if let Err(error) = ended {
            tracing::error!("{error}");
        }
    }
    shared.tell_missed();
}

/// Finds out which DataNodes are gone, and whether the NameNode is in safe mode. One that starts is, until DataNodes have told it of nearly all
/// blocks: what it misses before that is not lost.
async fn look(shared: &Arc<Shared>, watching: &mut Watching) -> Result<(), HdfsError> {
    let safe_mode = shared.namenode.safe_mode().await?;
    if std::mem::replace(&mut watching.safe_mode, safe_mode) != safe_mode {
        let text = match safe_mode {
            true => "the NameNode is in safe mode: nothing is rebuilt or handed over until it leaves it",
            false => "the NameNode has left safe mode",
        };
        shared.tell(Event::Note { text: text.into() });
    }
    let sight = watching.vigil.look(&shared.namenode).await?;
    shared.memory().maintenance.now(&sight);
    let Sight { live, gone, left, back, notes, .. } = sight;
    shared.memory().look(live, gone);
    for text in notes {
        shared.tell(Event::Note { text });
    }
    for (datanode, why) in left {
        shared.tell(Event::Gone { datanode, why });
    }
    for datanode in back {
        shared.tell(Event::Back { datanode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use kintsu_wire::version::Speaks;
    use prost::Message as _;

    use super::*;
    use crate::group::tests::held;
    use crate::proto::names::{Datanodes, SafeMode};
    use crate::walk::Scan;

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
            repair_rate: None,
        };
        let shared = Shared {
            namenode,
            config,
            members: Arc::new(Members::of("BP", Speaks::default())),
            conductor: Conductor::new(Credentials::of(None, None).unwrap()),
            events,
            missed: AtomicU64::new(0),
            end: CancellationToken::new(),
            memory: Mutex::default(),
        };
        (Arc::new(shared), happens)
    }

    #[tokio::test]
    async fn nobody_waits_for_whoever_takes_events_and_what_was_missed_is_told() {
        let (shared, mut happens) = shared(crate::fake::namenode(&[]));
        let note = |number: usize| Event::Note { text: number.to_string() };
        let room = happens.max_capacity();
        (0..room + 3).for_each(|number| shared.tell(note(number)));
        assert_eq!(happens.recv().await, Some(note(0)));
        shared.tell_missed();
        for number in 1..room {
            assert_eq!(happens.recv().await, Some(note(number)));
        }
        assert_eq!(happens.recv().await, Some(Event::Missed { events: 3 }));
        shared.tell(note(7));
        assert_eq!(happens.recv().await, Some(note(7)), "that was told once");
    }

    #[tokio::test]
    async fn in_safe_mode_nothing_is_rebuilt_or_handed_over_and_that_is_told_once() {
        let safe_mode = Arc::new(AtomicBool::new(true));
        let on = safe_mode.clone();
        let namenode = crate::fake::namenode_that(move |method, _| match method {
            "setSafeMode" => Some(SafeMode { on: on.load(Relaxed) }.encode_to_vec()),
            "getDatanodeReport" => Some(Datanodes::default().encode_to_vec()),
            _ => None,
        });
        let (shared, mut happens) = shared(namenode);
        let group = held([]);
        let groups = [(group.id, group)].into();
        shared.memory().list(Scan { groups, ..Scan::default() }, &shared.members.staged());
        let (vigil, unlisted) = (Vigil::default(), Unlisted::default());
        let started = Instant::now() - AGENTS_COME;
        let (mut watching, mut work) =
            (Watching { vigil, unlisted, safe_mode: false, started }, JoinSet::new());
        for _ in 0..2 {
            tick(&shared, &mut watching, &mut work).await;
        }
        let mut told = || std::iter::from_fn(|| happens.try_recv().ok()).collect::<Vec<_>>();
        let first = told();
        assert!(
            matches!(&first[..], [Event::Note { text }] if text.contains("is in safe mode")),
            "{first:?}"
        );
        safe_mode.store(false, Relaxed);
        tick(&shared, &mut watching, &mut work).await;
        let then = told();
        // The group is asked for, of which this NameNode says nothing.
        assert!(matches!(&then[..], [Event::Note { .. }, Event::Failed { .. }]), "{then:?}");
    }
}
