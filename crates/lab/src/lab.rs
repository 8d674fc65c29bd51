//! A running lab: a network, a coordinator, an agent on every host, and the operations that experiments need.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kintsu_client::Client;
use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Link;
use serde::Serialize;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::Mutex;

use crate::address::{self, CONTROL_PORT, COORDINATOR_HOST, COORDINATOR_PORT, DATA_PORT};
use crate::changes::Changes;
use crate::counters::{self, Counters};
use crate::cpu::{self, Cpu};
use crate::daemon::{Daemon, on_host};
use crate::error::{LabError, Result};
use crate::inside::{Message, Surroundings, surroundings};
use crate::net;
use crate::quantity::Rate;
use crate::registry::Cluster;
use crate::spec::Spec;

/// One network namespace holds one lab at a time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// How a lab is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program whose `coordinator` and `agent` are run; by default the running one.
    pub program: Option<PathBuf>,
    /// How long a node may be dead before its blocks are repaired automatically.
    pub grace: Duration,
    /// Further arguments of every agent.
    pub agent_args: Vec<OsString>,
    /// Further arguments of the coordinator.
    pub coordinator_args: Vec<OsString>,
    /// Further environment of all processes.
    pub env: Vec<(OsString, OsString)>,
    /// How long a process may take to start.
    pub patience: Duration,
    /// Whether the coordinator is told the rates of the links, as by `kintsu rates set`.
    pub tell_rates: bool,
    /// Whether the coordinator measures the links when the nodes have come, which keeps them busy for seconds.
    pub measure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            program: None,
            grace: Duration::from_secs(3600),
            agent_args: Vec::new(),
            coordinator_args: Vec::new(),
            env: Vec::new(),
            patience: Duration::from_secs(60),
            tell_rates: false,
            measure: false,
        }
    }
}

/// A host with its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Host {
    /// The node id of its agent; hosts are numbered in the order of [`Spec::nodes`].
    pub node: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Its address.
    pub ip: Ipv4Addr,
    /// Where its agent listens for commands.
    pub control: SocketAddr,
    /// Where its agent listens for slices.
    pub data: SocketAddr,
}

impl Host {
    /// The name of its namespace.
    pub fn name(&self) -> String {
        address::host(self.node)
    }
}

/// A lab that is up. Dropping it kills its processes; [`Lab::down`] takes down the network too.
#[derive(Debug)]
pub struct Lab {
    shared: Arc<Shared>,
}

/// The state that a lab shares with its timed changes.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The description that the lab was built from.
    built: Spec,
    /// The current rates of the links.
    spec: Mutex<Spec>,
    hosts: Vec<Host>,
    endpoint: String,
    token: String,
    options: Options,
    program: PathBuf,
    coordinator: Mutex<Option<Daemon>>,
    agents: Mutex<BTreeMap<NodeId, Daemon>>,
    data: TempDir,
    _slot: Slot,
}

/// The right to run the one lab of the namespace. When it is released, the outer process is told.
#[derive(Debug)]
struct Slot;

impl Slot {
    fn take() -> Result<Self> {
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(LabError::invalid("labs in this namespace", "one at a time", "a second one"));
        }
        Ok(Self)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
        if let Some(outside) = surroundings() {
            outside.tell(&Message::Down);
        }
    }
}

impl Lab {
    /// Builds the network, starts coordinator and agents, and waits until the coordinator has registered all
    /// agents. To be called inside, see [`crate::enter`]; labs may follow each other there.
    ///
    /// # Errors
    /// `Invalid` for an invalid description, a second lab, or a process that is not inside; `Command` and `Start`
    /// with the output of the failed process.
    pub async fn up(spec: &Spec, options: Options) -> Result<Self> {
        spec.check()?;
        let place = surroundings().ok_or_else(|| {
            LabError::invalid("place of the lab", "the inside of kintsu_lab::enter", "a process outside")
        })?;
        let slot = Slot::take()?;
        net::build(spec).await?;
        let shared = Arc::new(Shared::new(spec, options, place, slot)?);
        shared.start_all().await?;
        let lab = Self { shared: shared.clone() };
        let rates = spec.rates();
        if shared.options.tell_rates && !rates.is_empty() {
            let client = lab.client().await?;
            client.set_rates(&rates).await?;
            client.close().await;
        }
        place.tell(&Message::Up(Cluster {
            endpoint: shared.endpoint.clone(),
            token: shared.token.clone(),
            nodes: spec.nodes.len(),
            racks: spec.racks.len(),
        }));
        Ok(lab)
    }

    /// Its name in `kintsu lab list`.
    pub fn name(&self) -> &str {
        surroundings().map_or("lab", |place| &place.name)
    }

    /// The coordinator, `host:port`.
    pub fn endpoint(&self) -> &str {
        &self.shared.endpoint
    }

    /// The token that the cluster requires.
    pub fn token(&self) -> &str {
        &self.shared.token
    }

    /// All hosts, by `NodeId`.
    pub fn hosts(&self) -> &[Host] {
        &self.shared.hosts
    }

    /// A client in this process. It is on the management switch and its link has no limit.
    ///
    /// # Errors
    /// As `Client::connect`.
    pub async fn client(&self) -> Result<Client> {
        let options = kintsu_client::Options { token: Some(self.token().to_owned()), ..Default::default() };
        Ok(Client::connect(self.endpoint(), options).await?)
    }

    /// A command on a node's host, or for `None` at this process's place, with coordinator and token in its
    /// environment. It is killed when its handle is dropped.
    pub fn command(&self, on: Option<NodeId>, program: impl AsRef<Path>) -> Command {
        let mut command = match on {
            Some(node) => on_host(&address::host(node), program.as_ref()),
            None => Command::new(program.as_ref()),
        };
        command.env("KINTSU_COORDINATOR", self.endpoint()).env("KINTSU_TOKEN", self.token());
        command.stdin(std::process::Stdio::null()).kill_on_drop(true);
        command
    }

    /// The current rates of the links.
    pub async fn spec(&self) -> Spec {
        self.shared.spec.lock().await.clone()
    }

    /// Changes the rate of a link immediately; `None`: unlimited. Queued packets stay, unless the link changes
    /// between limited and unlimited.
    ///
    /// # Errors
    /// `Invalid` for a link that does not exist, and for a limit between two nodes if the description had neither
    /// such a limit nor a change that brings one.
    pub async fn set_rate(&self, link: Link, rate: Option<Rate>) -> Result<()> {
        self.shared.set_rate(link, rate).await
    }

    /// Starts the clock of the description's changes; dropping the result stops them.
    pub async fn start_changes(&self) -> Changes {
        let changes = self.shared.spec.lock().await.changes.clone();
        Changes::start(changes, &self.shared)
    }

    /// The kernel's counters of every link.
    ///
    /// # Errors
    /// `Command` when the counters cannot be read.
    pub async fn counters(&self) -> Result<Counters> {
        counters::read(&*self.shared.spec.lock().await).await
    }

    /// The processor seconds used until now, and how busy the machine was.
    pub async fn cpu(&self) -> Cpu {
        let agents: Vec<u32> = self.shared.agents.lock().await.values().filter_map(Daemon::id).collect();
        let coordinator = self.shared.coordinator.lock().await.as_ref().and_then(Daemon::id);
        cpu::read(agents, coordinator)
    }

    /// Kills a node's agent, as a crash would.
    ///
    /// # Errors
    /// `Invalid` when it is not running.
    pub async fn kill(&self, node: NodeId) -> Result<()> {
        let agent = self.shared.agents.lock().await.remove(&node);
        let got = format!("node {} without an agent", node.0);
        agent.ok_or_else(|| LabError::invalid("node", "one whose agent runs", got))?.kill().await
    }

    /// Starts a node's agent again on its old folder, and waits until the coordinator has registered it.
    ///
    /// # Errors
    /// `Invalid` when it runs already or there is no such node; `Start`.
    pub async fn start(&self, node: NodeId) -> Result<()> {
        let mut agents = self.shared.agents.lock().await;
        if agents.contains_key(&node) || self.shared.host(node).is_err() {
            let got = format!("node {}", node.0);
            return Err(LabError::invalid("node", "one without an agent", got));
        }
        let mut agent = self.shared.spawn_agent(self.shared.host(node)?)?;
        agent.ready(self.shared.options.patience).await?;
        agents.insert(node, agent);
        Ok(())
    }

    /// Ends the coordinator, as a crash would, and starts it again on its metadata: it forgets what it knew of running
    /// work and of nodes that were slow. Returns before the agents have registered again.
    ///
    /// # Errors
    /// `Start`.
    pub async fn restart_coordinator(&self) -> Result<()> {
        let mut coordinator = self.shared.coordinator.lock().await;
        if let Some(mut running) = coordinator.take() {
            running.kill().await?;
        }
        *coordinator = Some(self.shared.start_coordinator().await?);
        Ok(())
    }

    /// Pulls the cable of a node's host: nothing reaches it or leaves it, and no process is told.
    ///
    /// # Errors
    /// `Invalid` when there is no such node.
    pub async fn cut(&self, node: NodeId) -> Result<()> {
        net::plug(self.shared.host(node)?.node, false).await
    }

    /// Plugs the cable in again.
    ///
    /// # Errors
    /// `Invalid` when there is no such node.
    pub async fn heal(&self, node: NodeId) -> Result<()> {
        net::plug(self.shared.host(node)?.node, true).await
    }

    /// The folder of a node's blocks.
    pub fn node_dir(&self, node: NodeId) -> PathBuf {
        self.shared.data.path().join(format!("node-{}", node.0))
    }

    /// The folder of all data of this lab, with the logs of its processes.
    pub fn data(&self) -> &Path {
        self.shared.data.path()
    }

    /// Ends every process, takes the network down, removes the data.
    pub async fn down(self) {
        let mut ending = std::mem::take(&mut *self.shared.agents.lock().await);
        ending.extend(self.shared.coordinator.lock().await.take().map(|c| (NodeId::CLIENT, c)));
        for daemon in ending.values_mut() {
            if let Err(error) = daemon.kill().await {
                tracing::warn!("{error}");
            }
        }
        net::clear().await;
    }
}

impl Shared {
    fn new(spec: &Spec, options: Options, place: &Surroundings, slot: Slot) -> Result<Self> {
        let program = match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(LabError::io("the running program"))?,
        };
        let data = tempfile::Builder::new().prefix(&format!("{}-", place.name)).tempdir_in(&place.data);
        let host = |(node, about): (NodeId, &crate::NodeSpec)| Host {
            node,
            rack: about.rack,
            ip: address::of_node(node),
            control: address::listener(node, CONTROL_PORT),
            data: address::listener(node, DATA_PORT),
        };
        Ok(Self {
            built: spec.clone(),
            spec: Mutex::new(spec.clone()),
            hosts: spec.node_ids().zip(&spec.nodes).map(host).collect(),
            endpoint: SocketAddr::from((address::COORDINATOR, COORDINATOR_PORT)).to_string(),
            token: random_token()?,
            options,
            program,
            coordinator: Mutex::default(),
            agents: Mutex::default(),
            data: data.map_err(LabError::io(place.data.display().to_string()))?,
            _slot: slot,
        })
    }

    async fn start_coordinator(&self) -> Result<Daemon> {
        let mut coordinator = self.daemon("coordinator", COORDINATOR_HOST);
        coordinator.arg("--listen").arg(&self.endpoint);
        coordinator.arg("--grace").arg(format!("{}ms", self.options.grace.as_millis()));
        if !self.options.measure {
            coordinator.arg("--no-measure");
        }
        coordinator.args(&self.options.coordinator_args);
        let mut coordinator = self.spawn("coordinator", coordinator)?;
        coordinator.ready(self.options.patience).await?;
        Ok(coordinator)
    }

    async fn start_all(&self) -> Result<()> {
        *self.coordinator.lock().await = Some(self.start_coordinator().await?);
        let mut agents = self.agents.lock().await;
        for host in &self.hosts {
            agents.insert(host.node, self.spawn_agent(host)?);
        }
        for agent in agents.values_mut() {
            agent.ready(self.options.patience).await?;
        }
        Ok(())
    }

    fn spawn_agent(&self, host: &Host) -> Result<Daemon> {
        let mut command = self.daemon("agent", &host.name());
        command.arg("--id").arg(host.node.0.to_string()).arg("--rack").arg(host.rack.0.to_string());
        command.arg("--listen").arg(host.control.to_string());
        command.arg("--listen-data").arg(host.data.to_string());
        command.arg("--coordinator").arg(&self.endpoint).args(&self.options.agent_args);
        // All hosts share this machine's processors, so more threads on one host would only wait for other hosts.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        command.env("TOKIO_WORKER_THREADS", (processors / self.hosts.len()).clamp(1, 8).to_string());
        self.spawn(&format!("node-{}", host.node.0), command)
    }

    fn daemon(&self, role: &str, host: &str) -> Command {
        let mut command = on_host(host, &self.program);
        command.args([role, "--json", "--trusted-network", address::NETWORK]);
        command.env("KINTSU_TOKEN", &self.token).envs(self.options.env.iter().cloned());
        command
    }

    fn spawn(&self, name: &str, mut command: Command) -> Result<Daemon> {
        let folder = self.data.path().join(name);
        std::fs::create_dir_all(&folder).map_err(LabError::io(folder.display().to_string()))?;
        command.arg("--dir").arg(&folder);
        Daemon::spawn(name.to_owned(), command, self.data.path().join(format!("{name}.log")))
    }

    fn host(&self, node: NodeId) -> Result<&Host> {
        let expected = format!("a number below {}", self.hosts.len());
        self.hosts.get(node.0 as usize).ok_or_else(|| LabError::invalid("node", expected, node.0))
    }

    pub(crate) async fn set_rate(&self, link: Link, rate: Option<Rate>) -> Result<()> {
        let mut spec = self.spec.lock().await;
        if let Link::Pair(from, to) = link
            && !self.built.limited_peers(from).contains(&to)
        {
            let expected = "a pair that had a limit, or a change that brings one, when the lab came up";
            return Err(LabError::invalid("link", expected, link));
        }
        let mut changed = spec.clone();
        changed.set_rate(link, rate)?;
        net::reshape(&changed, link, &self.built).await?;
        *spec = changed;
        Ok(())
    }
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    let filled = getrandom::fill(&mut bytes).map_err(|e| std::io::Error::other(e.to_string()));
    filled.map_err(LabError::io("a random token"))?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
