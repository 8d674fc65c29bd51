//! The agents of this process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};

use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_coordinator::{Launcher, Launching};
use kintsu_dag::{NodeId, RackId};
use kintsu_store::{BlockStore, FileStore, StoreError};
use kintsu_wire::Tls;
use tokio::sync::Mutex;

use crate::error::{ClusterError, Result};
use crate::folders::{node_dir, rack_of};

/// The agents by number; starts a stopped one again.
pub struct Nodes {
    pub dir: PathBuf,
    pub racks: u32,
    /// Those whose former folders are gone for good, and which have not started with other ones yet.
    pub replace: std::sync::Mutex<BTreeSet<u32>>,
    pub token: Option<String>,
    pub tls: Option<Tls>,
    /// Where the coordinator listens.
    pub coordinator: OnceLock<String>,
    pub running: Mutex<BTreeMap<u32, AgentHandle>>,
}

impl Nodes {
    pub fn config(&self, id: u32) -> AgentConfig {
        let coordinator = self.coordinator.get().cloned().unwrap_or_default();
        AgentConfig {
            node: Some(NodeId(id)),
            rack: RackId(rack_of(id, self.racks)),
            replace: self.replaced().contains(&id),
            token: self.token.clone(),
            tls: self.tls.clone(),
            ..AgentConfig::new(node_dir(&self.dir, id), coordinator)
        }
    }

    pub async fn start_on(
        &self,
        id: u32,
        config: AgentConfig,
        open: impl FnOnce(&Path) -> Result<Arc<dyn BlockStore>, StoreError> + Send + 'static,
    ) -> Result<()> {
        // After its end the former agent has released the folder.
        let before = self.running.lock().await.remove(&id);
        if let Some(before) = before {
            before.shutdown().await;
        }
        let agent = Agent::start_on(config, open).await;
        let agent = agent.map_err(|source| ClusterError::Node { node: id, source })?;
        self.running.lock().await.insert(id, agent);
        // The folder that it has registered with is its own from now on.
        self.replaced().remove(&id);
        Ok(())
    }

    fn replaced(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.replace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn shutdown(&self) {
        let agents = std::mem::take(&mut *self.running.lock().await);
        futures::future::join_all(agents.values().map(AgentHandle::shutdown)).await;
    }
}

/// The store of a node: files in its folder.
pub fn file_store(dir: &Path) -> Result<Arc<dyn BlockStore>, StoreError> {
    Ok(Arc::new(FileStore::open(dir)?))
}

impl Launcher for Nodes {
    fn launches(&self, node: NodeId) -> bool {
        node_dir(&self.dir, node.0).is_dir()
    }

    fn launch(&self, node: NodeId) -> Launching<'_> {
        let started = self.start_on(node.0, self.config(node.0), file_store);
        Box::pin(async move { started.await.map_err(|error| error.to_string()) })
    }
}
