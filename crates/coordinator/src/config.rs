//! What a coordinator is started with.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::{ClusterId, TrustedNetwork};

use crate::restore::Restore;

/// Starts agents again that were stopped, where one process runs coordinator and agents.
pub trait Launcher: Send + Sync {
    /// Starts the agent of this node on its old directory; it registers by itself.
    fn launch(&self, node: NodeId) -> Launching<'_>;
}

/// A start under way; the error is for people.
pub type Launching<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Where metadata are kept instead of a file.
pub trait Medium: Send + Sync {
    /// Opens it for this process alone.
    ///
    /// # Errors
    /// It cannot be read.
    fn open(&self) -> std::io::Result<Box<dyn redb::StorageBackend>>;
}

/// What a coordinator is started with.
#[derive(Clone)]
pub struct Config {
    /// Where its metadata are.
    pub dir: PathBuf,
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// The token of the cluster, if it has one.
    pub token: Option<String>,
    /// A network beside loopback where it may listen, in plain text.
    pub trusted: Option<TrustedNetwork>,
    /// How often agents must send a heartbeat.
    pub heartbeat: Duration,
    /// An agent without a heartbeat for so long is dead.
    pub dead_after: Duration,
    /// The blocks of an agent that is dead for so long, and blocks that are lost for so long, are
    /// repaired without being asked.
    pub grace: Duration,
    /// A put that is not renewed for so long is undone.
    pub lease: Duration,
    /// Stripes of a put that are granted at once: a put of no more needs no other grants.
    pub grant: u64,
    /// Stripes that are encoded or moved at once.
    pub parallel: usize,
    /// Stripes that are repaired at once.
    pub repairs: usize,
    /// Stripes under repair that one node has a part in at once, where a repair does not say otherwise.
    pub repairs_per_node: u32,
    /// Memory for the cache of the metadata, in bytes.
    pub cache_bytes: usize,
    /// Go on with metadata that are older than what agents remember.
    pub accept_older: bool,
    /// Make metadata anew from blocks: complete what is there, or begin with nothing.
    pub rebuild: bool,
    /// The cluster that new metadata are for; none: one of their own, or where they are made from blocks, that of the first
    /// agent.
    pub adopt: Option<ClusterId>,
    /// What was set aside because the metadata do not know it is deleted after so long.
    pub quarantine_keep: Duration,
    /// Agents that are given a copy of the metadata each time; 0 for no copies.
    pub metadata_copies: usize,
    /// How often they are, if something was committed since.
    pub copy_every: Duration,
    /// Where the metadata come from if the directory is to have none.
    pub restore: Option<Restore>,
    /// Where the metadata are, if not in a file of the directory.
    pub medium: Option<Arc<dyn Medium>>,
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
            trusted: None,
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(5),
            grace: Duration::from_secs(60),
            lease: Duration::from_secs(30),
            grant: 1024,
            parallel: 6,
            repairs: 32,
            repairs_per_node: 4,
            cache_bytes: 128 << 20,
            accept_older: false,
            rebuild: false,
            adopt: None,
            quarantine_keep: Duration::from_secs(7 * 24 * 3600),
            metadata_copies: 3,
            copy_every: Duration::from_secs(600),
            restore: None,
            medium: None,
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
            .field("trusted", &self.trusted)
            .field("heartbeat", &self.heartbeat)
            .field("dead_after", &self.dead_after)
            .field("grace", &self.grace)
            .field("lease", &self.lease)
            .field("grant", &self.grant)
            .field("parallel", &self.parallel)
            .field("repairs", &self.repairs)
            .field("repairs_per_node", &self.repairs_per_node)
            .field("cache_bytes", &self.cache_bytes)
            .field("accept_older", &self.accept_older)
            .field("rebuild", &self.rebuild)
            .field("adopt", &self.adopt)
            .field("quarantine_keep", &self.quarantine_keep)
            .field("metadata_copies", &self.metadata_copies)
            .field("copy_every", &self.copy_every)
            .field("restore", &self.restore)
            .finish_non_exhaustive()
    }
}
