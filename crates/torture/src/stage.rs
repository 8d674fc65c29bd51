//! The hosts: a coordinator, nodes and clients, each with a disk and a place in the simulated network.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_agent::{Agent, AgentConfig};
use kintsu_client::{Client, ClientError, Options};
use kintsu_coordinator::{Config, Coordinator};
use kintsu_dag::{NodeId, RackId};
use kintsu_store::FileStore;
use kintsu_store::simdisk::SimDisk;
use kintsu_wire::message::BadBlock;
use kintsu_wire::{Credentials, TrustedNetwork, connect_coordinator};
use turmoil::Sim;

use crate::history::{History, Host};
use crate::medium::Slot;
use crate::model::Model;
use crate::trace::Trace;
use crate::volumes::Volumes;

/// The folder of a node's blocks on its disk.
pub const STORE: &str = "/store";

const TOKEN: &str = "tortured";
const CONTROL_PORT: u16 = 7401;
const DATA_PORT: u16 = 7402;
const COORDINATOR_PORT: u16 = 7400;
/// How long after its end a process is started again.
const AGAIN: Duration = Duration::from_millis(300);

/// A machine.
pub struct Machine {
    pub host: Host,
    pub addr: IpAddr,
    pub disk: Slot,
    dir: PathBuf,
    /// Whether its folder replaces one that is gone.
    replaced: AtomicBool,
    /// Whether its folder has joined the cluster.
    joined: AtomicBool,
    /// Its own disk, while another one is in its place.
    away: Mutex<Option<SimDisk>>,
}

/// The state that all hosts, the clients and the adversary share.
pub struct Stage {
    pub trace: Trace,
    pub machines: Vec<Arc<Machine>>,
    pub trusted: TrustedNetwork,
    /// The rack of each node.
    racks: Vec<RackId>,
    model: Mutex<Model>,
    /// The models of volumes.
    pub volumes: Volumes,
    failed: Mutex<Option<String>>,
    /// The clients have ended: now all faults are to end.
    pub done: AtomicBool,
    /// All faults have ended.
    pub healed: AtomicBool,
    /// The coordinator completes its metadata from blocks when it starts.
    pub rebuild: AtomicBool,
}

impl Stage {
    /// The hosts of a history, with their addresses in this simulation and their folders in `dir`.
    pub fn new(history: &History, sim: &Sim<'_>, dir: &Path, trace: Trace) -> anyhow::Result<Arc<Self>> {
        let hosts = [Host::Coordinator].into_iter().chain((0..history.nodes).map(Host::Node));
        let machine = |host: Host| {
            let (addr, dir) = (sim.lookup(host.to_string()), dir.join(host.to_string()));
            let (disk, away) = (Slot::default(), Mutex::default());
            let (replaced, joined) = (AtomicBool::new(false), AtomicBool::new(host == Host::Coordinator));
            Arc::new(Machine { host, addr, disk, dir, replaced, joined, away })
        };
        Ok(Arc::new(Self {
            trace,
            machines: hosts.map(machine).collect(),
            trusted: "192.168.0.0/16".parse()?,
            racks: (0..history.nodes).map(|node| RackId(history.rack(node))).collect(),
            model: Mutex::default(),
            volumes: Volumes::default(),
            failed: Mutex::default(),
            done: AtomicBool::new(false),
            healed: AtomicBool::new(false),
            rebuild: AtomicBool::new(false),
        }))
    }

    /// The machine of the coordinator or of a node.
    pub fn machine(&self, host: Host) -> Option<&Arc<Machine>> {
        self.machines.iter().find(|machine| machine.host == host)
    }

    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise was broken; only the first one is kept.
    pub fn fail(&self, why: String) {
        self.trace.say(format!("FAILED: {why}"));
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
    }

    /// The first promise that was broken.
    pub fn failed(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn coordinator(&self) -> SocketAddr {
        SocketAddr::new(self.machines[0].addr, COORDINATOR_PORT)
    }

    /// A new client.
    pub async fn client(&self) -> Result<Client, ClientError> {
        let options = Options {
            token: Some(TOKEN.into()),
            tls: None,
            call_timeout: Duration::from_secs(15),
            patience: Duration::from_secs(20),
            ..Options::default()
        };
        Client::connect(&self.coordinator().to_string(), options).await
    }

    /// Reports a block as bad to the coordinator, as a client does that could not read it.
    pub async fn accuse(&self, client: &Client, bad: BadBlock) -> Result<(), String> {
        let credentials = Credentials::token(TOKEN).map_err(|e| e.to_string())?;
        if let Some(cluster) = client.status().await.map_err(|e| e.to_string())?.cluster {
            credentials.join(cluster).map_err(|e| e.to_string())?;
        }
        let mut coordinator =
            connect_coordinator(self.coordinator(), &credentials).map_err(|e| e.to_string())?;
        coordinator.objects.report_bad(bad).await.map(drop).map_err(|status| status.message().to_owned())
    }

    /// Runs a machine: starts its process again whenever it ends.
    pub async fn live(self: Arc<Self>, machine: Arc<Machine>) -> turmoil::Result {
        loop {
            match machine.host {
                Host::Coordinator => self.coordinate(&machine).await,
                Host::Node(node) => self.serve(&machine, NodeId(node)).await,
                Host::Clients => return Ok(()),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    async fn coordinate(&self, machine: &Arc<Machine>) {
        let config = Config {
            token: Some(TOKEN.into()),
            trusted: Some(self.trusted),
            heartbeat: Duration::from_millis(300),
            dead_after: Duration::from_millis(1000),
            grace: Duration::from_millis(1500),
            lease: Duration::from_secs(3),
            grant: 3,
            cache_bytes: 1 << 20,
            metadata_copies: 0,
            rebuild: self.rebuild.load(Ordering::Relaxed),
            medium: Some(Arc::new(Seat(machine.clone()))),
            // What others carry on the links of this machine is no part of a history.
            measure: false,
            ..Config::new(&machine.dir, self.coordinator())
        };
        match Coordinator::start(config).await {
            Ok(running) => {
                self.trace.say("coordinator started");
                let ended = running.wait().await.map(drop);
                self.trace.say(format!("coordinator ended: {ended:?}"));
            }
            Err(error) => self.trace.say(format!("coordinator did not start: {error}")),
        }
    }

    async fn serve(&self, machine: &Arc<Machine>, node: NodeId) {
        let config = AgentConfig {
            node: Some(node),
            rack: self.racks[node.0 as usize],
            replace: machine.replaced.load(Ordering::Relaxed) && !machine.is_away(),
            listen_control: SocketAddr::new(machine.addr, CONTROL_PORT),
            listen_data: SocketAddr::new(machine.addr, DATA_PORT),
            token: Some(TOKEN.into()),
            trusted: Some(self.trusted),
            ..AgentConfig::new(&machine.dir, self.coordinator().to_string())
        };
        if let Err(error) = std::fs::create_dir_all(&machine.dir) {
            return self.fail(format!("{}: {error}", machine.dir.display()));
        }
        let disk = machine.disk.disk();
        let open = move |_: &Path| Ok(Arc::new(FileStore::open_simulated(&disk, Path::new(STORE))?) as _);
        match Agent::start_on(config, open).await {
            Ok(running) => {
                if !machine.is_away() {
                    machine.replaced.store(false, Ordering::Relaxed);
                    machine.joined.store(true, Ordering::Relaxed);
                }
                self.trace.say(format!("{} joined", machine.host));
                running.wait().await;
                self.trace.say(format!("{} ended", machine.host));
            }
            Err(error) => self.trace.say(format!("{} did not start: {error}", machine.host)),
        }
    }
}

impl Machine {
    /// Empties folder and disk, as if a new disk was put in.
    pub fn renew(&self) {
        if !self.is_away() {
            self.disk.replace(Default::default());
            let _ = std::fs::remove_dir_all(&self.dir);
            self.replaced.store(true, Ordering::Relaxed);
            self.joined.store(false, Ordering::Relaxed);
        }
    }

    /// Whether another disk is in the place of its own.
    pub fn is_away(&self) -> bool {
        self.own().is_some()
    }

    /// Whether its folder has not joined yet.
    pub fn is_new(&self) -> bool {
        !self.joined.load(Ordering::Relaxed)
    }

    fn own(&self) -> MutexGuard<'_, Option<SimDisk>> {
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty folder and disk take the place of its own.
    pub fn unmount(&self) {
        let mut own = self.own();
        if own.is_none() {
            *own = Some(self.disk.disk());
            self.disk.replace(Default::default());
            let _ = std::fs::rename(&self.dir, self.dir.with_extension("away"));
        }
    }

    /// Its own disk is back.
    pub fn mount(&self) {
        if let Some(own) = self.own().take() {
            self.disk.replace(own);
            let _ = std::fs::remove_dir_all(&self.dir);
            let _ = std::fs::rename(self.dir.with_extension("away"), &self.dir);
        }
    }

    /// How much of the metadata's history its agent has recorded.
    pub fn recorded(&self) -> u64 {
        let text = std::fs::read_to_string(self.dir.join("node.json")).unwrap_or_default();
        let number = text.split("\"history\":").nth(1).unwrap_or_default();
        number.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
    }

    /// Takes `node.json` away, or brings it back.
    pub fn name(&self, there: bool) {
        let dir = if self.is_away() { self.dir.with_extension("away") } else { self.dir.clone() };
        let (file, away) = (dir.join("node.json"), dir.join("node.json.away"));
        let _ = match there {
            true => std::fs::rename(away, file),
            // Another one may have been written since it was taken away.
            false if away.exists() => Ok(()),
            false => std::fs::rename(file, away),
        };
    }
}

/// The disk that is in the machine at present.
struct Seat(Arc<Machine>);

impl kintsu_coordinator::Medium for Seat {
    fn open(&self) -> std::io::Result<Box<dyn redb::StorageBackend>> {
        self.0.disk.open()
    }
}
