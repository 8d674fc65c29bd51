//! Restores metadata into a folder that has none: from a file, or from the newest copy that an agent keeps.
//!
//! To get a copy from an agent, the coordinator listens before it has metadata. Agents that want to register are
//! told to try again, and their addresses are noted. When no new agent has come for a while, all are asked for
//! their copies; the newest sound copy is restored.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use kintsu_wire::copy::CopyHeader;
use kintsu_wire::message::{KeptCopy, Nothing, ReadCopy};
use kintsu_wire::{AgentChannel, ClusterId, Credentials, connect_agent};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout};

use crate::cluster::lock;
use crate::config::Config;
use crate::error::{CoordinatorError, Result};
use crate::meta;

/// How long an agent may take to list its copies, and to send each piece of a copy.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most pieces that wait to be written to the disk.
const PIECES: usize = 8;

/// Where metadata come from when the folder has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restore {
    /// A copy in a file.
    File(PathBuf),
    /// The newest sound copy of the agents that register, until no new agent has come for `wait`.
    Auto {
        /// How long no new agent must have come.
        wait: Duration,
    },
}

/// Metadata that were restored.
#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// The header of the copy.
    pub header: CopyHeader,
    /// The file or the agent that it came from.
    pub from: String,
    /// Age of the copy in seconds.
    pub age_seconds: u64,
    /// How long restoring it took.
    pub seconds: f64,
}

impl Restored {
    fn new(header: CopyHeader, from: String, started: Instant) -> Self {
        let now = kintsu_wire::ambient::since_epoch().as_secs();
        let age_seconds = now.saturating_sub(header.time);
        Self { header, from, age_seconds, seconds: started.elapsed().as_secs_f64() }
    }
}

/// Restores the metadata from a file.
///
/// # Errors
/// The folder holds metadata; the copy is not sound; the disk fails. Nothing was changed then.
pub async fn from_file(config: &Config, path: &Path) -> Result<Restored> {
    let started = Instant::now();
    let (dir, cache, from) = (config.dir.clone(), config.cache_bytes, path.to_owned());
    let work = move || {
        let io = |source| CoordinatorError::Io { what: format!("cannot read {}", from.display()), source };
        let file = std::fs::File::open(&from).map_err(io)?;
        meta::restore(&dir, cache, io::BufReader::with_capacity(1 << 20, file), &mut |_| {})
    };
    let header = blocking(work).await?;
    Ok(Restored::new(header, path.display().to_string(), started))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    kintsu_wire::ambient::blocking(work).await.map_err(|e| CoordinatorError::Storage(e.to_string()))?
}

/// The agents that called before there were metadata.
#[derive(Default)]
pub struct Callers {
    /// Their control addresses, and the cluster that each showed.
    agents: Mutex<BTreeMap<SocketAddr, Option<ClusterId>>>,
    news: Notify,
}

impl Callers {
    /// An agent wants to register.
    pub fn note(&self, control: SocketAddr, cluster: Option<ClusterId>) {
        if lock(&self.agents).insert(control, cluster).is_none() {
            tracing::info!("the agent at {control} wants to register");
            self.news.notify_one();
        }
    }

    /// The cluster of the first agent that belongs to one.
    pub async fn cluster(&self) -> ClusterId {
        loop {
            let known = lock(&self.agents).values().find_map(|cluster| *cluster);
            match known {
                Some(cluster) => return cluster,
                None => self.news.notified().await,
            }
        }
    }

    /// Waits for the first agent, and then until no new agent has come for `wait`; returns all of them.
    async fn gather(&self, wait: Duration) -> BTreeMap<SocketAddr, Option<ClusterId>> {
        self.news.notified().await;
        while timeout(wait, self.news.notified()).await.is_ok() {}
        lock(&self.agents).clone()
    }
}

/// Restores the newest sound copy of the agents that call.
///
/// # Errors
/// `NoCopy` when there is none; `Conflict` for agents of several clusters; the disk fails. Nothing was changed then.
pub async fn auto(config: &Config, wait: Duration, callers: &Callers) -> Result<Restored> {
    let agents = callers.gather(wait).await;
    let started = Instant::now();
    let credentials = credentials(config, &agents)?;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for &address in agents.keys() {
        match list(address, &credentials).await {
            Ok(copies) => found.extend(copies.into_iter().map(|copy| (copy, address))),
            Err(why) => failed.push(format!("the agent at {address}: {why}")),
        }
    }
    found.sort_by_key(|(copy, _)| std::cmp::Reverse((copy.number, copy.history)));
    for (copy, address) in found {
        match fetch(config, &copy, address, &credentials).await {
            Ok(header) => {
                let restored = Restored::new(header, format!("the agent at {address}"), started);
                if restored.age_seconds > 0 {
                    let age = restored.age_seconds;
                    tracing::warn!(
                        "the copy was taken {age} s ago: what was stored or removed since is not in it"
                    );
                }
                return Ok(restored);
            }
            Err(error) => {
                tracing::warn!("copy {} of the agent at {address} is not used: {error}", copy.number);
                failed.push(format!("copy {} of the agent at {address}: {error}", copy.number));
            }
        }
    }
    let addresses: Vec<String> = agents.keys().map(ToString::to_string).collect();
    let reasons = if failed.is_empty() { String::new() } else { format!(" ({})", failed.join("; ")) };
    Err(CoordinatorError::NoCopy(format!(
        "cannot restore the metadata: expected an agent that keeps a sound copy, got none among the {} that came: \
         {}{reasons}; nothing was changed; start again when more agents run or with a longer --restore-wait, or \
         with --restore FILE",
        addresses.len(),
        addresses.join(", ")
    )))
}

/// The credentials that the coordinator shows to the agents. It has no cluster id yet, so it shows theirs.
fn credentials(config: &Config, agents: &BTreeMap<SocketAddr, Option<ClusterId>>) -> Result<Credentials> {
    let conflict = |got: String| CoordinatorError::Conflict {
        what: "restoring from agents".into(),
        expected: "agents of one cluster".into(),
        got,
    };
    let credentials = Credentials::of(config.token.as_deref(), config.tls.as_ref());
    let credentials = credentials.map_err(|e| conflict(e.to_string()))?;
    for (address, cluster) in agents {
        if let Some(cluster) = cluster {
            let joined = credentials.join(*cluster);
            joined.map_err(|e| conflict(format!("{e} from the agent at {address}")))?;
        }
    }
    Ok(credentials)
}

async fn list(address: SocketAddr, credentials: &Credentials) -> Result<Vec<KeptCopy>, String> {
    let mut agent = connect(address, credentials)?;
    loop {
        let listed = timeout(PATIENCE, agent.copies(Nothing {})).await;
        match listed.map_err(|_| format!("no answer within {} s", PATIENCE.as_secs()))? {
            Ok(listed) => return Ok(listed.into_inner().copies),
            // It is of an earlier release that we understand.
            Err(status) if credentials.speaks().adopt(&status) => {}
            Err(status) => return Err(status.message().to_owned()),
        }
    }
}

fn connect(address: SocketAddr, credentials: &Credentials) -> Result<AgentChannel, String> {
    connect_agent(address, credentials).map_err(|e| e.to_string())
}

/// Gets a copy and restores it as it comes.
async fn fetch(
    config: &Config,
    copy: &KeptCopy,
    address: SocketAddr,
    credentials: &Credentials,
) -> Result<CopyHeader> {
    let (pieces, from) = mpsc::channel(PIECES);
    let (dir, cache) = (config.dir.clone(), config.cache_bytes);
    let from = Pieces { from, piece: Bytes::new() };
    let restoring = tokio::spawn(blocking(move || meta::restore(&dir, cache, from, &mut |_| {})));
    if let Err(why) = pass(copy, address, credentials, &pieces).await {
        // If the restore has ended already, its own error says why.
        let _ = pieces.send(Err(io::Error::other(why))).await;
    }
    drop(pieces);
    restoring.await.map_err(|e| CoordinatorError::Storage(e.to_string()))?
}

async fn pass(
    copy: &KeptCopy,
    address: SocketAddr,
    credentials: &Credentials,
    pieces: &mpsc::Sender<io::Result<Bytes>>,
) -> Result<(), String> {
    let late = |_| format!("it sent nothing for {} s", PATIENCE.as_secs());
    let said = |status: tonic::Status| status.message().to_owned();
    let mut agent = connect(address, credentials)?;
    let asked = agent.read_copy(ReadCopy { number: copy.number });
    let mut stream = timeout(PATIENCE, asked).await.map_err(late)?.map_err(said)?.into_inner();
    while let Some(piece) = timeout(PATIENCE, stream.message()).await.map_err(late)?.map_err(said)? {
        if pieces.send(Ok(piece.bytes)).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// A copy that arrives in pieces; reading from it blocks.
struct Pieces {
    from: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.from.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let len = out.len().min(self.piece.len());
        out[..len].copy_from_slice(&self.piece.split_to(len));
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_two_clusters_are_refused_with_both_ids() {
        let config = Config::new("/nowhere", "127.0.0.1:0".parse().unwrap());
        let agent =
            |port, id: Option<u8>| (SocketAddr::from(([127, 0, 0, 1], port)), id.map(|b| ClusterId([b; 16])));
        let one = BTreeMap::from([agent(1, Some(0xaa)), agent(2, None), agent(3, Some(0xaa))]);
        assert_eq!(credentials(&config, &one).unwrap().cluster(), Some(ClusterId([0xaa; 16])));
        let two = BTreeMap::from([agent(1, Some(0xaa)), agent(2, Some(0xbb))]);
        let error = credentials(&config, &two).unwrap_err().to_string();
        assert!(error.contains(&"aa".repeat(16)) && error.contains(&"bb".repeat(16)), "{error}");
    }

    #[tokio::test]
    async fn every_agent_that_calls_is_noted_once() {
        let callers = Callers::default();
        for port in [1, 2, 3, 4, 4, 1] {
            callers.note(SocketAddr::from(([127, 0, 0, 1], port)), None);
        }
        assert_eq!(callers.gather(Duration::from_millis(1)).await.len(), 4);
    }
}
