//! `kintsu up`, `coordinator`, `agent`: the commands that run until they are ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kintsu_agent::{Agent, AgentConfig, AgentHandle};
use kintsu_coordinator::{Config, Coordinator, CoordinatorHandle, Launcher, Launching, Restore};
use kintsu_dag::{NodeId, RackId};
use kintsu_wire::ClusterId;
use serde_json::json;
use tokio::sync::Mutex;

use super::backup;
use crate::cli::{AgentArgs, CoordinatorArgs, Rack, Up};
use crate::launcher::{Shape, coordinator_dir, node_dir, rack_of};
use crate::output;

/// A coordinator and its agents in this process.
pub struct Cluster {
    coordinator: CoordinatorHandle,
    nodes: Arc<Nodes>,
}

/// The agents of this process, by id; starts a stopped one again.
struct Nodes {
    dir: PathBuf,
    racks: u32,
    /// Nodes whose folders are gone for good.
    replace: Vec<u32>,
    coordinator: std::sync::OnceLock<String>,
    token: Option<String>,
    running: Mutex<std::collections::BTreeMap<u32, AgentHandle>>,
}

impl Cluster {
    /// Starts a cluster in `dir`, or continues the one that is there.
    ///
    /// # Errors
    /// The directory is in use, an address is taken or not on loopback, or a node does not start.
    pub async fn start(
        dir: &Path,
        nodes: u32,
        racks: u32,
        listen: SocketAddr,
        token: Option<String>,
    ) -> anyhow::Result<Self> {
        let config = Config { token, ..Config::new(coordinator_dir(dir), listen) };
        Self::with_config(dir, Shape { nodes, racks }, Vec::new(), config).await
    }

    /// As [`Cluster::start`]; lost blocks are repaired automatically after `grace`.
    pub async fn with_grace(
        dir: &Path,
        nodes: u32,
        racks: u32,
        listen: SocketAddr,
        grace: Duration,
    ) -> anyhow::Result<Self> {
        let config = Config { grace, ..Config::new(coordinator_dir(dir), listen) };
        Self::with_config(dir, Shape { nodes, racks }, Vec::new(), config).await
    }

    /// As [`Cluster::start`], with this configuration of the coordinator; the folders of the nodes `replace` are
    /// gone for good.
    async fn with_config(
        dir: &Path,
        shape: Shape,
        replace: Vec<u32>,
        config: Config,
    ) -> anyhow::Result<Self> {
        let Shape { nodes: count, racks } = shape;
        let nodes = Arc::new(Nodes {
            dir: dir.to_owned(),
            racks,
            replace,
            coordinator: std::sync::OnceLock::new(),
            token: config.token.clone(),
            running: Mutex::default(),
        });
        let config = Config { launcher: Some(nodes.clone()), ..config };
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

    /// Waits until the coordinator ends by itself.
    async fn ending(&self) {
        self.coordinator.ending().await;
    }

    /// Ends everything in order. The coordinator ends first, because the agents then take a last copy of its
    /// metadata.
    ///
    /// # Errors
    /// The coordinator had ended because the disk of its metadata failed.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        let ended = end(self.coordinator).await;
        let agents = std::mem::take(&mut *self.nodes.running.lock().await);
        futures::future::join_all(agents.values().map(AgentHandle::shutdown)).await;
        ended
    }
}

impl Nodes {
    async fn start(&self, id: u32) -> anyhow::Result<()> {
        let coordinator = self.coordinator.get().cloned().unwrap_or_default();
        let config = AgentConfig {
            node: Some(NodeId(id)),
            rack: RackId(rack_of(id, self.racks)),
            replace: self.replace.contains(&id),
            token: self.token.clone(),
            ..AgentConfig::new(node_dir(&self.dir, id), coordinator)
        };
        // After its end the former agent has released the directory.
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
        Box::pin(async move { self.start(node.0).await.map_err(|e| output::causes(&e)) })
    }
}

/// `kintsu up`.
pub async fn up(args: Up, token: Option<String>, json: bool) -> anyhow::Result<ExitCode> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let found = Shape::read(&args.dir)?;
    let shape = Shape::asked(&args, found)?;
    if Some(shape) != found {
        shape.write(&args.dir)?;
    }
    let config = Config { token, grace: args.grace, ..Config::new(coordinator_dir(&args.dir), args.listen) };
    let mut config = args.metadata.configure(config);
    if config.rebuild {
        // The nodes start after their coordinator, but their folders say to which cluster they belong.
        config.adopt = cluster_of(&args.dir, shape.nodes)?;
    }
    let start = Cluster::with_config(&args.dir, shape, args.replace.clone(), config);
    let cluster = tokio::select! {
        started = start => started?,
        code = super::interrupted() => return code,
    };
    let endpoint = cluster.endpoint();
    if json {
        output::json(
            &json!({"listen": endpoint, "nodes": shape.nodes, "racks": shape.racks, "dir": args.dir}),
        )?;
    } else {
        output::line(&format!(
            "{} nodes in {} racks, kept in {}; coordinator on {endpoint}",
            shape.nodes,
            shape.racks,
            args.dir.display()
        ))?;
        if endpoint != crate::cli::DEFAULT_ENDPOINT {
            output::line(&format!("export KINTSU_COORDINATOR={endpoint}"))?;
        }
        output::line("Ctrl-C ends it; the data stays.")?;
    }
    tokio::select! {
        () = cluster.ending() => {}
        code = super::interrupted() => { code?; }
    }
    cluster.shutdown().await?;
    Ok(ExitCode::SUCCESS)
}

/// The cluster of the nodes in a folder, if they belong to one.
fn cluster_of(dir: &Path, nodes: u32) -> anyhow::Result<Option<ClusterId>> {
    for id in 0..nodes {
        if let Some(cluster) = kintsu_agent::cluster_of(&node_dir(dir, id))? {
            return Ok(Some(cluster));
        }
    }
    anyhow::bail!("--rebuild: expected nodes in {} that belong to a cluster, got none", dir.display())
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
        restore: args.restore.map(|from| match from.to_str() {
            Some("auto") => Restore::Auto { wait: args.restore_wait },
            _ => Restore::File(from),
        }),
        ..Config::new(args.dir, args.listen)
    };
    let config = args.metadata.configure(config);
    let coordinator = tokio::select! {
        started = Coordinator::start(config) => started?,
        code = super::interrupted() => return code,
    };
    let mut value = json!({"listen": coordinator.addr()});
    if let Some(restored) = coordinator.restored() {
        value["restored"] = backup::restored_json(restored);
        if !json {
            output::line(&backup::restored_text(restored))?;
        }
    }
    ready(json, value, &format!("coordinator on {}", coordinator.addr()))?;
    tokio::select! {
        () = coordinator.ending() => {}
        code = super::interrupted() => { code?; }
    }
    end(coordinator).await?;
    Ok(ExitCode::SUCCESS)
}

/// Ends a coordinator, after a last copy of its metadata.
async fn end(coordinator: CoordinatorHandle) -> anyhow::Result<()> {
    coordinator.shutdown();
    let mut ended = std::pin::pin!(coordinator.wait());
    let copied = match tokio::time::timeout(Duration::from_millis(500), &mut ended).await {
        Ok(ended) => ended?,
        Err(_) => {
            eprintln!(
                "kintsu: ending; agents get a last copy of the metadata (20 s at most, Ctrl-C skips it)"
            );
            tokio::select! {
                ended = ended => ended?,
                code = super::interrupted() => return code.map(|_| ()),
            }
        }
    };
    match copied {
        Some(copied) if copied.nodes.is_empty() => {
            let reasons =
                if copied.failed.is_empty() { "no agent is alive".into() } else { copied.failed.join("; ") };
            eprintln!("kintsu: no agent took a last copy of the metadata: {reasons}");
        }
        Some(copied) => {
            let nodes: Vec<String> = copied.nodes.iter().map(ToString::to_string).collect();
            tracing::info!("copy {} of the metadata is kept by {}", copied.number, nodes.join(", "));
        }
        None => {}
    }
    Ok(())
}

/// `kintsu agent`.
pub async fn agent(
    args: AgentArgs,
    coordinator: &str,
    token: Option<String>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (rack, rack_name) = match &args.rack {
        Rack::Number(rack) => (RackId(*rack), None),
        Rack::Name(name) => (RackId(0), Some(name.clone())),
    };
    let config = AgentConfig {
        node: args.id.map(NodeId),
        name: args.name,
        rack,
        rack_name: rack_name.clone(),
        replace: args.replace,
        moved: args.moved,
        listen_control: args.listen,
        listen_data: args.listen_data,
        token,
        trusted: args.trusted_network,
        ..AgentConfig::new(args.dir, coordinator)
    };
    let agent = tokio::select! {
        started = Agent::start(config) => started?,
        code = super::interrupted() => return code,
    };
    let (id, control, data) = (agent.id(), agent.control(), agent.data());
    ready(
        json,
        json!({"node": id.0, "control": control, "data": data}),
        &format!(
            "node {} in rack {}; commands on {control}, slices on {data}",
            id.0,
            rack_name.unwrap_or_else(|| rack.0.to_string())
        ),
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
