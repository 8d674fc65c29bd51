//! `kintsu up`, `coordinator`, `agent`: the commands that run until they are ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_coordinator::{Config, Coordinator, CoordinatorHandle, Launcher, Launching};
use kintsu_dag::{NodeId, RackId};
use serde_json::json;
use tokio::sync::Mutex;

use crate::cli::{AgentArgs, CoordinatorArgs, Up};
use crate::launcher::{coordinator_dir, node_dir, rack_of};
use crate::output;

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// A coordinator and its agents in this process.
pub struct Cluster {
    coordinator: CoordinatorHandle,
    nodes: Arc<Nodes>,
}

/// The agents of this process, by id; starts a stopped one again.
struct Nodes {
    dir: PathBuf,
    racks: u32,
    coordinator: std::sync::OnceLock<String>,
    token: Option<String>,
    running: Mutex<std::collections::BTreeMap<u32, AgentHandle>>,
}

impl Cluster {
    /// Starts a cluster in `dir`, or goes on with the one that is there.
    ///
    /// # Errors
    /// When the directory is in use, an address is taken or leaves loopback, a node does not start.
    pub async fn start(
        dir: &Path,
        nodes: u32,
        racks: u32,
        listen: SocketAddr,
        token: Option<String>,
    ) -> anyhow::Result<Self> {
        Self::with_grace(dir, nodes, racks, listen, token, Duration::from_secs(60)).await
    }

    /// As [`Cluster::start`]; what is lost is repaired unasked after `grace`.
    pub async fn with_grace(
        dir: &Path,
        count: u32,
        racks: u32,
        listen: SocketAddr,
        token: Option<String>,
        grace: Duration,
    ) -> anyhow::Result<Self> {
        let nodes = Arc::new(Nodes {
            dir: dir.to_owned(),
            racks,
            coordinator: std::sync::OnceLock::new(),
            token: token.clone(),
            running: Mutex::default(),
        });
        let config = Config {
            token,
            grace,
            launcher: Some(nodes.clone()),
            ..Config::new(coordinator_dir(dir), listen)
        };
        let coordinator = Coordinator::start(config).await?;
        nodes.coordinator.get_or_init(|| coordinator.addr().to_string());
        let started = (0..count).map(|id| nodes.start(id));
        futures::future::try_join_all(started).await?;
        Ok(Self { coordinator, nodes })
    }

    /// Where the coordinator listens.
    pub fn endpoint(&self) -> String {
        self.coordinator.addr().to_string()
    }

    /// Ends everything in order.
    pub async fn shutdown(self) {
        let agents = std::mem::take(&mut *self.nodes.running.lock().await);
        futures::future::join_all(agents.values().map(AgentHandle::shutdown)).await;
        self.coordinator.shutdown();
        self.coordinator.wait().await;
    }
}

impl Nodes {
    async fn start(&self, id: u32) -> anyhow::Result<()> {
        let config = AgentConfig {
            dir: node_dir(&self.dir, id),
            node: Some(NodeId(id)),
            rack: RackId(rack_of(id, self.racks)),
            listen_control: ANY_PORT,
            listen_data: ANY_PORT,
            coordinator: self.coordinator.get().cloned().unwrap_or_default(),
            token: self.token.clone(),
            trusted: None,
            limits: Default::default(),
        };
        // The one that ran before has let go of its directory.
        let before = self.running.lock().await.remove(&id);
        if let Some(before) = before {
            before.wait().await;
        }
        let agent = Agent::start(config).await.with_context(|| format!("node {id}"))?;
        self.running.lock().await.insert(id, agent);
        Ok(())
    }
}

impl Launcher for Nodes {
    fn launch(&self, node: NodeId) -> Launching<'_> {
        Box::pin(async move { self.start(node.0).await.map_err(|e| format!("{e:#}")) })
    }
}

/// `kintsu up`.
pub async fn up(args: Up, token: Option<String>, json: bool) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let start = Cluster::with_grace(&args.dir, args.nodes, args.racks, args.listen, token, args.grace);
    let cluster = tokio::select! {
        started = start => started?,
        code = super::interrupted() => return code,
    };
    let endpoint = cluster.endpoint();
    if json {
        output::json(
            &json!({"listen": endpoint, "nodes": args.nodes, "racks": args.racks, "dir": args.dir}),
        )?;
    } else {
        output::line(&format!(
            "{} nodes in {} racks, kept in {}; coordinator on {endpoint}",
            args.nodes,
            args.racks,
            args.dir.display()
        ))?;
        if endpoint != crate::cli::DEFAULT_ENDPOINT {
            output::line(&format!("export KINTSU_COORDINATOR={endpoint}"))?;
        }
        output::line("Ctrl-C ends it; the data stays.")?;
    }
    super::interrupted().await?;
    cluster.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// `kintsu coordinator`.
pub async fn coordinator(
    args: CoordinatorArgs,
    token: Option<String>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let config = Config {
        token,
        trusted: args.trusted_network,
        grace: args.grace,
        ..Config::new(args.dir, args.listen)
    };
    let coordinator = Coordinator::start(config).await?;
    ready(json, json!({"listen": coordinator.addr()}), &format!("coordinator on {}", coordinator.addr()))?;
    super::interrupted().await?;
    coordinator.shutdown();
    coordinator.wait().await;
    Ok(ExitCode::SUCCESS)
}

/// `kintsu agent`.
pub async fn agent(
    args: AgentArgs,
    coordinator: &str,
    token: Option<String>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let config = AgentConfig {
        dir: args.dir,
        node: args.id.map(NodeId),
        rack: RackId(args.rack),
        listen_control: args.listen,
        listen_data: args.listen_data,
        coordinator: coordinator.to_owned(),
        token,
        trusted: args.trusted_network,
        limits: Default::default(),
    };
    let agent = tokio::select! {
        started = Agent::start(config) => started?,
        code = super::interrupted() => return code,
    };
    let (id, control, data) = (agent.id(), agent.control(), agent.data());
    ready(
        json,
        json!({"node": id.0, "control": control, "data": data}),
        &format!("node {} in rack {}; commands on {control}, slices on {data}", id.0, args.rack),
    )?;
    tokio::select! {
        () = agent.wait() => return Ok(ExitCode::SUCCESS),
        code = super::interrupted() => { code?; }
    }
    agent.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

fn ready(as_json: bool, value: serde_json::Value, text: &str) -> anyhow::Result<()> {
    if as_json { output::json(&value) } else { output::line(text) }
}
