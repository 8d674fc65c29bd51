//! The demo's processes: one coordinator, one agent a node, ended by id and never left behind.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use kintsu_client::Client;
use kintsu_cluster::{coordinator_dir, node_dir, rack_of};
use kintsu_wire::message::NodeState;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Everything that was started. Dropping it kills what still runs.
#[derive(Default)]
pub struct Processes {
    coordinator: Option<Child>,
    agents: BTreeMap<u32, Child>,
    /// Serves a volume.
    server: Option<Child>,
}

impl Processes {
    /// Starts a cluster in `dir` on free ports; returns the coordinator's address.
    pub async fn start(&mut self, dir: &Path, nodes: u32, racks: u32) -> anyhow::Result<String> {
        let mut coordinator = command(&coordinator_dir(dir), "coordinator")?;
        // The demo starts recovery itself, after the degraded reads.
        coordinator.args(["--listen", "127.0.0.1:0", "--grace", "1h", "--json"]);
        let (child, ready) = until_ready(coordinator, "the coordinator").await?;
        self.coordinator = Some(child);
        let endpoint = ready["listen"].as_str().context("the coordinator's address")?.to_owned();
        for id in 0..nodes {
            let mut agent = command(&node_dir(dir, id), "agent")?;
            agent.args(["--id", &id.to_string(), "--rack", &rack_of(id, racks).to_string()]);
            agent.args(["--coordinator", &endpoint]).stdout(Stdio::null());
            self.agents.insert(id, agent.spawn().with_context(|| format!("cannot start agent {id}"))?);
        }
        Ok(endpoint)
    }

    /// Serves a volume on a Unix socket; returns what clients call it.
    pub async fn serve(&mut self, endpoint: &str, volume: &str, socket: &Path) -> anyhow::Result<String> {
        let folder = socket.parent().context("a folder for the socket")?;
        let mut server = Command::new(std::env::current_exe()?);
        server.args(["--coordinator", endpoint, "nbd", volume, "--json", "--unix"]).arg(socket);
        apart(&mut server, folder)?;
        let (child, ready) = until_ready(server, "`kintsu nbd`").await?;
        self.server = Some(child);
        Ok(ready["uri"].as_str().context("the volume's URI")?.to_owned())
    }

    /// Ends what serves a volume.
    pub async fn end_server(&mut self) {
        if let Some(server) = self.server.take() {
            end(server).await;
        }
    }

    /// Kills an agent with SIGKILL.
    pub async fn kill(&mut self, id: u32) -> anyhow::Result<()> {
        let mut child = self.agents.remove(&id).with_context(|| format!("no agent {id}"))?;
        child.kill().await.with_context(|| format!("cannot kill agent {id}"))
    }

    /// Waits until the coordinator counts this many nodes alive.
    pub async fn wait_alive(&mut self, client: &Client, nodes: u32) -> anyhow::Result<()> {
        self.wait(client, "all agents to register", |states| {
            states.iter().filter(|(_, s)| *s == NodeState::Alive).count() == nodes as usize
        })
        .await
    }

    /// Waits until the coordinator counts these nodes as dead.
    pub async fn wait_dead(&mut self, client: &Client, dead: &[u32]) -> anyhow::Result<()> {
        self.wait(client, "the coordinator to notice the dead nodes", |states| {
            states.iter().filter(|(id, s)| dead.contains(id) && *s == NodeState::Dead).count() == dead.len()
        })
        .await
    }

    async fn wait(
        &mut self,
        client: &Client,
        what: &str,
        done: impl Fn(&[(u32, NodeState)]) -> bool,
    ) -> anyhow::Result<()> {
        let bar = crate::progress::steps(&format!("waiting for {what}"));
        for _ in 0..600 {
            let nodes = client.nodes().await?.nodes;
            let states: Vec<_> = nodes.iter().map(|n| (n.id.0, n.state)).collect();
            if done(&states) {
                bar.finish_and_clear();
                return Ok(());
            }
            for (id, agent) in &mut self.agents {
                if let Some(status) = agent.try_wait()? {
                    bail!("agent {id} ended by itself: {status}");
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("gave up waiting for {what} after a minute")
    }

    /// Terminates every process, waits, and kills those that do not end.
    pub async fn end(&mut self) {
        self.end_server().await;
        let agents = std::mem::take(&mut self.agents).into_values();
        for child in agents.chain(self.coordinator.take()) {
            end(child).await;
        }
    }
}

async fn end(mut child: Child) {
    if let Some(pid) = child.id() {
        let _ = Command::new("kill").arg(pid.to_string()).status().await;
    }
    if tokio::time::timeout(Duration::from_secs(5), child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Starts a process, and reads the line by which it says that it is ready.
async fn until_ready(mut command: Command, what: &str) -> anyhow::Result<(Child, serde_json::Value)> {
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot start {what}"))?;
    let out = child.stdout.take().with_context(|| format!("the output of {what}"))?;
    let mut first = String::new();
    BufReader::new(out).read_line(&mut first).await?;
    let ready = serde_json::from_str(&first).with_context(|| format!("{what} did not start: {first:?}"))?;
    Ok((child, ready))
}

fn command(dir: &Path, role: &str) -> anyhow::Result<Command> {
    std::fs::create_dir_all(dir)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role).arg("--dir").arg(dir);
    apart(&mut command, dir)?;
    Ok(command)
}

/// Has a process log into `dir`, and end with the demo.
fn apart(command: &mut Command, dir: &Path) -> anyhow::Result<()> {
    let log = std::fs::File::create(dir.join("log.txt"))?;
    command.stdin(Stdio::null()).stderr(log).kill_on_drop(true);
    // Only the demo itself gets Ctrl-C; it then ends its processes in order.
    command.process_group(0);
    Ok(())
}
