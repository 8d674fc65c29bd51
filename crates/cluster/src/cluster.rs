//! A coordinator and its agents.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kintsu_agent::AgentConfig;
use kintsu_coordinator::{Config, Coordinator, CoordinatorError, CoordinatorHandle};
use kintsu_store::{BlockStore, StoreError};
use tokio::sync::Mutex;

use crate::error::Result;
use crate::folders::{coordinator_dir, node_dir};
use crate::nodes::{Nodes, file_store};

/// What a cluster consists of.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of the cluster; what is there is continued.
    pub dir: PathBuf,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of racks; nodes are assigned to them in turn.
    pub racks: u32,
    /// Nodes whose former folders are gone for good. It holds for the first start of each.
    pub replace: Vec<u32>,
    /// The settings of the coordinator.
    pub coordinator: Config,
}

impl Options {
    /// A cluster in `dir`, with a coordinator on any free port of loopback.
    pub fn new(dir: impl Into<PathBuf>, nodes: u32, racks: u32) -> Self {
        let dir = dir.into();
        let coordinator = Config::new(coordinator_dir(&dir), SocketAddr::from(([127, 0, 0, 1], 0)));
        Self { dir, nodes, racks, replace: Vec::new(), coordinator }
    }
}

/// A running coordinator and its agents. [`Cluster::shutdown`] ends them in order; a drop ends them without waiting.
pub struct Cluster {
    /// As the coordinator is started again.
    config: Config,
    /// `None` if it was stopped, or a restart failed.
    coordinator: Option<CoordinatorHandle>,
    nodes: Arc<Nodes>,
}

impl Cluster {
    /// Starts a cluster, or continues the one that is in the folder. Returns when the coordinator has accepted all nodes.
    ///
    /// # Errors
    /// The folder is in use, an address is taken or not on loopback, or a node does not start.
    pub async fn start(options: Options) -> Result<Self> {
        let Options { dir, nodes: count, racks, replace, coordinator: config } = options;
        let nodes = Arc::new(Nodes {
            dir,
            racks,
            replace: std::sync::Mutex::new(replace.into_iter().collect()),
            token: config.token.clone(),
            tls: config.tls.clone(),
            coordinator: OnceLock::new(),
            running: Mutex::default(),
        });
        let config = Config { launcher: Some(nodes.clone()), ..config };
        let coordinator = Coordinator::start(config.clone()).await?;
        nodes.coordinator.get_or_init(|| coordinator.addr().to_string());
        // A coordinator that starts again continues with its metadata, on the same address.
        let config = Config { listen: coordinator.addr(), restore: None, adopt: None, ..config };
        let cluster = Self { config, coordinator: Some(coordinator), nodes };
        futures::future::try_join_all((0..count).map(|id| cluster.start_node(id))).await?;
        Ok(cluster)
    }

    /// Where the coordinator listens.
    pub fn addr(&self) -> SocketAddr {
        self.config.listen
    }

    /// The same as text, for clients.
    pub fn endpoint(&self) -> String {
        self.addr().to_string()
    }

    /// The folder of a node.
    pub fn node_dir(&self, id: u32) -> PathBuf {
        node_dir(&self.nodes.dir, id)
    }

    /// The configuration with which the agent of a node is started.
    pub fn agent_config(&self, id: u32) -> AgentConfig {
        self.nodes.config(id)
    }

    /// Starts the agent of a node, a new one or one that has ended.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_node(&self, id: u32) -> Result<()> {
        self.start_node_with(id, self.agent_config(id)).await
    }

    /// As [`Cluster::start_node`], with another configuration.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_node_with(&self, id: u32, config: AgentConfig) -> Result<()> {
        self.nodes.start_on(id, config, file_store).await
    }

    /// As [`Cluster::start_node`], on a store that `open` opens.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_node_on(
        &self,
        id: u32,
        open: impl FnOnce(&Path) -> Result<Arc<dyn BlockStore>, StoreError> + Send + 'static,
    ) -> Result<()> {
        self.nodes.start_on(id, self.nodes.config(id), open).await
    }

    /// Ends the agent of a node without telling the coordinator. Returns whether it was running.
    pub async fn kill_node(&self, id: u32) -> bool {
        let agent = self.nodes.running.lock().await.remove(&id);
        if let Some(agent) = &agent {
            agent.shutdown().await;
        }
        agent.is_some()
    }

    /// The nodes whose agents were started and not ended by this process.
    pub async fn running(&self) -> Vec<u32> {
        self.nodes.running.lock().await.keys().copied().collect()
    }

    /// Ends the coordinator and starts it again, on the same address. The agents go on, and wait for it.
    ///
    /// # Errors
    /// It had ended because its disk failed, or does not start again.
    pub async fn restart_coordinator(&mut self) -> Result<()> {
        self.stop_coordinator().await?;
        self.coordinator = Some(Coordinator::start(self.config.clone()).await?);
        Ok(())
    }

    /// Ends the coordinator. The agents go on, and wait for it.
    ///
    /// # Errors
    /// It had ended because its disk failed.
    pub async fn stop_coordinator(&mut self) -> Result<()> {
        if let Some(before) = self.coordinator.take() {
            before.shutdown();
            before.wait().await?;
        }
        Ok(())
    }

    /// Waits until the coordinator ends by itself.
    pub async fn ending(&self) {
        if let Some(coordinator) = &self.coordinator {
            coordinator.ending().await;
        }
    }

    /// Ends everything in order. The coordinator ends first, because the agents then take a last copy of its metadata.
    ///
    /// # Errors
    /// The coordinator had ended because the disk of its metadata failed.
    pub async fn shutdown(self) -> Result<()> {
        let end = async |coordinator: CoordinatorHandle| {
            coordinator.shutdown();
            coordinator.wait().await.map(drop)
        };
        Ok(self.shutdown_by::<CoordinatorError>(end).await?)
    }

    /// As [`Cluster::shutdown`], with a coordinator that `end` ends.
    ///
    /// # Errors
    /// Those of `end`.
    pub async fn shutdown_by<E>(
        mut self,
        end: impl AsyncFnOnce(CoordinatorHandle) -> Result<(), E>,
    ) -> Result<(), E> {
        let ended = match self.coordinator.take() {
            Some(coordinator) => end(coordinator).await,
            None => Ok(()),
        };
        self.nodes.shutdown().await;
        ended
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(coordinator) = &self.coordinator {
            coordinator.shutdown();
        }
        // The coordinator can start agents, so it holds them.
        if let Ok(mut running) = self.nodes.running.try_lock() {
            running.clear();
        }
    }
}
