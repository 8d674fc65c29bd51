//! The settings of a coordinator.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::many::{PHASE_SECONDS, REPAIRS_ON_A_LINK};
use kintsu_wire::{ClusterId, Tls, TrustedNetwork};

use crate::engine::space::Reserve;
use crate::restore::Restore;

/// Starts stopped agents again, if one process runs coordinator and agents.
pub trait Launcher: Send + Sync {
    /// Whether it is this launcher that starts the agent of this node: others run apart.
    fn launches(&self, node: NodeId) -> bool;

    /// Starts the agent of this node on its old directory; it registers by itself.
    fn launch(&self, node: NodeId) -> Launching<'_>;
}

/// A start under way; the error is text for people.
pub type Launching<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Where metadata are kept instead of a file.
pub trait Medium: Send + Sync {
    /// Opens it for this process alone.
    ///
    /// # Errors
    /// It cannot be read.
    fn open(&self) -> std::io::Result<Box<dyn redb::StorageBackend>>;
}

/// The settings of a coordinator.
#[derive(Clone)]
pub struct Config {
    /// The directory of its metadata.
    pub dir: PathBuf,
    /// The address where it listens; port 0 for any free port.
    pub listen: SocketAddr,
    /// The token of the cluster, if it has one.
    pub token: Option<String>,
    /// TLS for all its connections. The id of a new cluster is then that of the certificate.
    pub tls: Option<Tls>,
    /// A network, besides loopback, where it may listen without encryption.
    pub trusted: Option<TrustedNetwork>,
    /// How often agents must send a heartbeat.
    pub heartbeat: Duration,
    /// An agent that sent no heartbeat for this long is dead.
    pub dead_after: Duration,
    /// When an agent has been dead, or a block has been lost, for this long, the blocks are repaired
    /// automatically.
    pub grace: Duration,
    /// A put that is not renewed for this long is undone.
    pub lease: Duration,
    /// Stripes of a put that are granted at once. A put with no more stripes than this needs only one grant.
    pub grant: u64,
    /// Stripes that are encoded or moved at once.
    pub parallel: usize,
    /// Most stripes that are repaired at once, whatever the links would carry, because each takes memory and connections of
    /// the coordinator and of its agents.
    pub repairs: usize,
    /// Stripes under repair that may always share a link; more do on a link that carries them soon. Why this is a count says
    /// `engine/repair/flight.rs`.
    pub repairs_per_link: u64,
    /// What waits to be repaired is planned again at most once in this time, if links have changed. Also the span of
    /// ChameleonEC's phases (section V-A: T_phase).
    pub phase: Duration,
    /// When as many stripes of volumes are dirty, they are committed (CAU, section 5.1: u_s).
    pub most_dirty: usize,
    /// A stripe that has been dirty for this long is committed.
    pub longest_dirty: Duration,
    /// A node's log of updates of this many bytes is emptied.
    pub largest_log_bytes: u64,
    /// Memory for the cache of the metadata, in bytes.
    pub cache_bytes: usize,
    /// Accept metadata that are older than what agents remember.
    pub accept_older: bool,
    /// Rebuild metadata from blocks: complete the metadata that are there, or begin with none.
    pub rebuild: bool,
    /// The cluster id for new metadata. `None`: a new id; or, if the metadata are rebuilt from blocks, the id that
    /// the first agent shows.
    pub adopt: Option<ClusterId>,
    /// Blocks that were set aside because the metadata do not know them are deleted after this long.
    pub quarantine_keep: Duration,
    /// Each block is verified once in this time; zero: only on request.
    pub scrub_every: Duration,
    /// What is kept free on each disk: a node with less free space gets no new blocks.
    pub reserve: Reserve,
    /// Number of agents that get each copy of the metadata; 0 for no copies.
    pub metadata_copies: usize,
    /// How often a copy is made, if something was committed since the last one.
    pub copy_every: Duration,
    /// Where to restore the metadata from. The directory must then have none.
    pub restore: Option<Restore>,
    /// Where the metadata are, if not in a file of the directory.
    pub medium: Option<Arc<dyn Medium>>,
    /// Measure links whose rates nobody set, by short probes.
    pub measure: bool,
    /// Starts agents, where that is possible.
    pub launcher: Option<Arc<dyn Launcher>>,
}

impl Config {
    /// The defaults for a directory and a listener.
    pub fn new(dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            dir: dir.into(),
            listen,
            token: None,
            tls: None,
            trusted: None,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
            grace: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            grant: 1024,
            parallel: 6,
            repairs: 384,
            repairs_per_link: REPAIRS_ON_A_LINK.into(),
            phase: Duration::from_secs_f64(PHASE_SECONDS),
            most_dirty: 100,
            longest_dirty: Duration::from_secs(30),
            largest_log_bytes: 512 << 20,
            cache_bytes: 128 << 20,
            accept_older: false,
            rebuild: false,
            adopt: None,
            quarantine_keep: Duration::from_secs(7 * 24 * 3600),
            scrub_every: Duration::from_secs(30 * 24 * 3600),
            reserve: Reserve::default(),
            metadata_copies: 3,
            copy_every: Duration::from_secs(600),
            restore: None,
            medium: None,
            measure: true,
            launcher: None,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("dir", &self.dir)
            .field("listen", &self.listen)
            .field("token", &self.token.as_ref().map(|_| "set"))
            .field("tls", &self.tls)
            .field("trusted", &self.trusted)
            .field("heartbeat", &self.heartbeat)
            .field("dead_after", &self.dead_after)
            .field("grace", &self.grace)
            .field("lease", &self.lease)
            .field("grant", &self.grant)
            .field("parallel", &self.parallel)
            .field("repairs", &self.repairs)
            .field("phase", &self.phase)
            .field("most_dirty", &self.most_dirty)
            .field("longest_dirty", &self.longest_dirty)
            .field("largest_log_bytes", &self.largest_log_bytes)
            .field("cache_bytes", &self.cache_bytes)
            .field("accept_older", &self.accept_older)
            .field("rebuild", &self.rebuild)
            .field("adopt", &self.adopt)
            .field("quarantine_keep", &self.quarantine_keep)
            .field("scrub_every", &self.scrub_every)
            .field("reserve", &self.reserve)
            .field("metadata_copies", &self.metadata_copies)
            .field("copy_every", &self.copy_every)
            .field("restore", &self.restore)
            .finish_non_exhaustive()
    }
}
