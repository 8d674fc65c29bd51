//! The state that all handlers and drivers of one coordinator share: the state machines behind locks, the
//! metadata, the clock, and the connections to the agents.
//!
//! A lock is held only for a moment, never across an await or a disk access.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_code::{Code, Definition};
use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::many::Disks;
use kintsu_plan::{Rates, Recovery, RunId, Topology};
use kintsu_runtime::Conductor;
use kintsu_wire::message::{CodeLabel, Label, ObjectLabel};
use kintsu_wire::version::Speaks;
use kintsu_wire::{AgentChannel, ClusterId, Credentials, Seen};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::driver::{Copies, JobTable, RepairJobs, Scanned, Shown, Steering, Turns, UsedCodes};
use crate::engine::agreement::Agreement;
use crate::engine::bandwidth::Bandwidth;
use crate::engine::counts::Tallies;
use crate::engine::doubt::Doubts;
use crate::engine::enroll::Reports;
use crate::engine::gate::Gate;
use crate::engine::give_way::GiveWay;
use crate::engine::leases::Leases;
use crate::engine::members::{Members, Patience};
use crate::engine::patrol::Patrol;
use crate::engine::places::Places;
use crate::engine::quarantine::UnknownLists;
use crate::engine::rebuild::Rebuild;
use crate::engine::repair::{Auto, Phases, Queue, RepairSpeeds, SlowNodes};
use crate::engine::stripe::Stripe;
use crate::engine::volumes::VolumeLeases;
use crate::engine::wipe::Wipes;
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, MOST_BOOTS, Meta, Snapshot, StripeRecord, missing_code, packs};
use crate::tickets::Tickets;

/// Most operations that one start of a coordinator can number.
const NUMBERS_A_BOOT: u64 = 1 << 40;
/// Most blocks that are read again at the same time because somebody reported them as bad.
const VERIFIED_AT_ONCE: usize = 4;
/// How long a coordinator that ends waits for calls and for work on the disk, after its tasks have ended.
const LETTING_GO: Duration = Duration::from_secs(5);

/// A code, and the description of it in labels.
type Labelled = (Arc<dyn Code>, Arc<CodeLabel>);

/// The state that all handlers and drivers share.
pub struct Cluster {
    pub config: Config,
    pub meta: Meta,
    pub conductor: Conductor,
    /// The version in which agents are called.
    pub speaks: Speaks,
    /// Wakes the driver that deletes garbage.
    pub sweep: Notify,
    /// Limits the stripes that encodings and drains work on at once.
    pub slots: Arc<Semaphore>,
    /// Limits the pages of registrations that are compared at once.
    pub registering: Semaphore,
    /// Allows one proof of a definition at a time: a proof takes memory and time in proportion to the definition.
    pub proving: Semaphore,
    /// Allows nodes to read only a few suspected blocks again at once.
    pub doubts: Semaphore,
    /// Allows one measurement of the links at a time.
    pub measuring: Semaphore,
    /// Allows one phase to be planned at a time: each counts what the one before has chosen.
    pub planning_phase: Semaphore,
    /// Allows only one wipe at a time to compute what it would cost.
    pub judging: Semaphore,
    /// How often repairs waited for news of a node.
    pub waits: AtomicU64,
    /// Long work: what runs, and what has ended.
    pub jobs: Arc<JobTable>,
    /// Whose turn it is to change the logs of volumes.
    pub turns: Turns,
    /// Copies of the metadata on agents.
    pub copies: Copies,
    /// Wakes the driver that rebuilds metadata from blocks.
    pub rebuilt: Notify,
    /// Ends everything.
    pub stop: CancellationToken,
    pub tasks: TaskTracker,
    /// Issues tickets to clients; only with TLS.
    pub tickets: Option<Tickets>,
    /// The cluster's id.
    pub id: ClusterId,
    /// This start of the coordinator, and the history when it began.
    start: Seen,
    gate: Mutex<Gate>,
    rebuild: Mutex<Rebuild>,
    reports: Mutex<Reports>,
    pub(crate) members: Mutex<Members>,
    pub(crate) queue: Mutex<Queue>,
    pub(crate) recovery: Mutex<Recovery>,
    rates: Mutex<Arc<Rates>>,
    bandwidth: Mutex<Bandwidth>,
    give_way: Mutex<GiveWay>,
    speeds: Mutex<RepairSpeeds>,
    slow_nodes: Mutex<SlowNodes>,
    leases: Mutex<Leases>,
    volume_leases: Mutex<VolumeLeases>,
    auto: Mutex<Auto>,
    repair_jobs: Mutex<RepairJobs>,
    steering: Mutex<Steering>,
    shown: Mutex<Shown>,
    tallies: Mutex<Tallies>,
    phases: Mutex<Phases>,
    damage: Mutex<Scanned>,
    used_codes: Mutex<UsedCodes>,
    pub(crate) codes: Mutex<HashMap<u16, Labelled>>,
    places: Mutex<Places>,
    verifying: Mutex<Doubts>,
    unknown: Mutex<UnknownLists>,
    wipes: Mutex<Wipes>,
    patrol: Mutex<Patrol>,
    agreement: Mutex<Agreement>,
    #[cfg(test)]
    pub panics: std::sync::atomic::AtomicBool,
    next_number: AtomicU64,
    started: Instant,
}

impl Cluster {
    /// Opens the metadata in the configured directory and builds the state from them.
    ///
    /// # Errors
    /// The directory is in use; the metadata cannot be read.
    pub fn open(config: Config, credentials: Credentials) -> Result<Self> {
        let meta = Meta::open_in(&config.dir, config.cache_bytes, config.medium.as_deref())?;
        let nonce = getrandom::u64().map_err(|e| no_random(&e))?;
        let fresh = config.adopt.map_or_else(ClusterId::random, Ok).map_err(|e| no_random(&e))?;
        if config.accept_older && meta.accept_older()? {
            tracing::warn!("the metadata are older than what agents remember; accepted as they are");
        }
        let (id, start) = meta.begin(fresh, nonce, config.restore.is_some())?;
        credentials.join(id).map_err(|e| no_random(&e))?;
        if let Some(adopt) = config.adopt.filter(|adopt| *adopt != id) {
            return Err(CoordinatorError::Conflict {
                what: format!("metadata in {}", config.dir.display()),
                expected: format!("those of cluster {adopt}, which the nodes belong to"),
                got: format!("those of cluster {id}; nothing was changed"),
            });
        }
        if config.rebuild {
            meta.begin_rebuild()?;
        }
        let rebuilding = meta.snapshot()?.rebuilding()?;
        if rebuilding {
            meta.forget_found()?;
        }
        let boot = start.boot;
        let snapshot = meta.snapshot()?;
        let tallies = snapshot.tallies()?;
        let known = snapshot.nodes()?;
        let placed = |node: &NodeId| tallies.get(node).map_or(0, |tally| tally.0);
        let placed = known.keys().chain(tallies.keys()).map(|node| (*node, placed(node))).collect();
        let behind = snapshot.behind()?.map(|behind| behind.why);
        let ms = |d: Duration| d.as_millis() as u64;
        let patience = Patience { dead_after_ms: ms(config.dead_after), grace_ms: ms(config.grace) };
        let mut gate = Gate::new(placed, patience.grace_ms, behind);
        gate.set_rebuilding(rebuilding);
        let writers: Vec<(u64, u64)> =
            snapshot.volumes()?.iter().filter_map(|v| Some((v.record.id, v.record.writer?))).collect();
        let mut members = Members::new(patience, snapshot.nodes()?, 0);
        members.keep_free(config.reserve);
        let tickets = config.tls.is_some().then(|| Tickets::open(&config.dir, id)).transpose()?;
        Ok(Self {
            id,
            tickets,
            start,
            gate: Mutex::new(gate),
            rebuild: Mutex::default(),
            rebuilt: Notify::new(),
            reports: Mutex::default(),
            members: Mutex::new(members),
            queue: Mutex::new(Queue::new(config.repairs, config.repairs_per_link)),
            recovery: Mutex::default(),
            rates: Mutex::new(Arc::new(snapshot.rates()?)),
            bandwidth: Mutex::new(Bandwidth::default()),
            give_way: Mutex::new(GiveWay::new(snapshot.settings()?)),
            speeds: Mutex::default(),
            slow_nodes: Mutex::default(),
            leases: Mutex::new(Leases::new(ms(config.lease), snapshot.puts()?, 0)),
            volume_leases: Mutex::new(VolumeLeases::new(ms(config.lease), writers, 0)),
            turns: Turns::default(),
            auto: Mutex::new(Auto::new(patience.grace_ms)),
            repair_jobs: Mutex::default(),
            steering: Mutex::new(Steering::new(config.phase)),
            shown: Mutex::default(),
            tallies: Mutex::default(),
            phases: Mutex::new(Phases::new(ms(config.phase))),
            damage: Mutex::default(),
            used_codes: Mutex::default(),
            codes: Mutex::default(),
            places: Mutex::default(),
            verifying: Mutex::default(),
            unknown: Mutex::default(),
            wipes: Mutex::default(),
            patrol: Mutex::default(),
            agreement: Mutex::new(snapshot.agreement()?),
            #[cfg(test)]
            panics: Default::default(),
            next_number: AtomicU64::new(boot * NUMBERS_A_BOOT),
            jobs: Arc::new(JobTable::new(boot)),
            copies: Copies::new(credentials.clone()),
            speaks: credentials.speaks().clone(),
            conductor: Conductor::new(credentials),
            sweep: Notify::new(),
            slots: Arc::new(Semaphore::new(config.parallel.max(1))),
            registering: Semaphore::new(2),
            proving: Semaphore::new(1),
            doubts: Semaphore::new(VERIFIED_AT_ONCE),
            measuring: Semaphore::new(1),
            planning_phase: Semaphore::new(1),
            judging: Semaphore::new(1),
            waits: AtomicU64::new(0),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            started: Instant::now(),
            meta,
            config,
        })
    }

    /// Milliseconds since the coordinator started.
    pub fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Seconds since 1970.
    pub fn unix_seconds(&self) -> u64 {
        kintsu_wire::ambient::since_epoch().as_secs()
    }

    /// The point of the history that agents are to remember now. `None` while the gate is closed: an operator may
    /// still put back newer metadata, and the agents must then remember what they did before.
    pub fn seen(&self) -> Option<Seen> {
        let open = self.gate().is_open();
        open.then(|| Seen { history: self.meta.history().max(self.start.history), ..self.start })
    }

    pub fn gate(&self) -> MutexGuard<'_, Gate> {
        lock(&self.gate)
    }

    /// The progress of rebuilding the metadata.
    pub fn rebuild(&self) -> MutexGuard<'_, Rebuild> {
        lock(&self.rebuild)
    }

    /// Whether metadata are being rebuilt from blocks.
    pub fn is_rebuilding(&self) -> bool {
        self.gate().is_rebuilding()
    }

    /// From now on jobs get numbers above those of start `boot`, which an agent remembers.
    pub fn outrun(&self, boot: u64) {
        if boot < MOST_BOOTS {
            self.next_number.fetch_max((boot + 1) * NUMBERS_A_BOOT, Ordering::Relaxed);
        }
    }

    pub fn reports(&self) -> MutexGuard<'_, Reports> {
        lock(&self.reports)
    }

    pub fn members(&self) -> MutexGuard<'_, Members> {
        lock(&self.members)
    }

    pub fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    pub fn recovery(&self) -> MutexGuard<'_, Recovery> {
        lock(&self.recovery)
    }

    pub fn speeds(&self) -> MutexGuard<'_, RepairSpeeds> {
        lock(&self.speeds)
    }

    pub fn slow_nodes(&self) -> MutexGuard<'_, SlowNodes> {
        lock(&self.slow_nodes)
    }

    pub fn leases(&self) -> MutexGuard<'_, Leases> {
        lock(&self.leases)
    }

    /// Who may write to volumes.
    pub fn volume_leases(&self) -> MutexGuard<'_, VolumeLeases> {
        lock(&self.volume_leases)
    }

    pub fn auto(&self) -> MutexGuard<'_, Auto> {
        lock(&self.auto)
    }

    pub fn repair_jobs(&self) -> MutexGuard<'_, RepairJobs> {
        lock(&self.repair_jobs)
    }

    /// When repairs that wait are planned again.
    pub fn phases(&self) -> MutexGuard<'_, Phases> {
        lock(&self.phases)
    }

    /// The repairs that run now, for those who look.
    pub fn shown(&self) -> MutexGuard<'_, Shown> {
        lock(&self.shown)
    }

    /// What has happened since the start.
    pub fn tallies(&self) -> MutexGuard<'_, Tallies> {
        lock(&self.tallies)
    }

    /// The repairs that are re-scheduled.
    pub fn steering(&self) -> MutexGuard<'_, Steering> {
        lock(&self.steering)
    }

    /// The places where something is being written or deleted.
    pub fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }

    /// The blocks that nodes are reading once more because somebody reported them as bad.
    pub fn verifying(&self) -> MutexGuard<'_, Doubts> {
        lock(&self.verifying)
    }

    /// The blocks that will be set aside once the gate is open.
    pub fn unknown(&self) -> MutexGuard<'_, UnknownLists> {
        lock(&self.unknown)
    }

    /// The nodes that are being wiped now.
    pub fn wipes(&self) -> MutexGuard<'_, Wipes> {
        lock(&self.wipes)
    }

    /// The blocks that are being verified by the scrub that runs by itself.
    pub fn patrol(&self) -> MutexGuard<'_, Patrol> {
        lock(&self.patrol)
    }

    /// How far the stripes were compared with their codes.
    pub fn agreement(&self) -> MutexGuard<'_, Agreement> {
        lock(&self.agreement)
    }

    pub fn damage(&self) -> MutexGuard<'_, Scanned> {
        lock(&self.damage)
    }

    pub fn used_codes(&self) -> MutexGuard<'_, UsedCodes> {
        lock(&self.used_codes)
    }

    /// The nodes as planners see them, and the nodes that can be read from.
    pub fn nodes(&self) -> (Topology, BTreeSet<NodeId>) {
        let (mut topology, usable) = {
            let members = self.members();
            (members.topology(), members.usable())
        };
        topology.rates = self.rates();
        (topology, usable)
    }

    /// What users leave of the links whose capacity is known.
    pub fn rates(&self) -> Rates {
        let told = self.told_rates();
        self.bandwidth().idle(&told)
    }

    /// The same for schedulers of many repairs, who leave users a part of the links of racks too.
    pub fn spare_rates(&self) -> Rates {
        let told = self.told_rates();
        self.bandwidth().spare(&told)
    }

    /// What users leave of disks, where that is known and less than what `rates` have of the node's link.
    pub fn disks(&self, rates: &Rates) -> Disks {
        self.bandwidth().disks(rates)
    }

    /// What links carry whose capacity is known, if no user is busy.
    pub fn capacities(&self) -> Rates {
        let told = self.told_rates();
        self.bandwidth().capacities(&told)
    }

    /// What users leave, where it is not only what the hardware says.
    pub fn sure_rates(&self) -> Rates {
        let told = self.told_rates();
        self.bandwidth().sure(&told)
    }

    /// The rates of the links, as the cluster was told.
    pub fn told_rates(&self) -> Arc<Rates> {
        lock(&self.rates).clone()
    }

    /// What is known of the links.
    pub fn bandwidth(&self) -> MutexGuard<'_, Bandwidth> {
        lock(&self.bandwidth)
    }

    /// How fast repairs may be.
    pub fn give_way(&self) -> MutexGuard<'_, GiveWay> {
        lock(&self.give_way)
    }

    /// Replaces the rates of the links.
    pub fn set_rates(&self, rates: Rates) {
        *lock(&self.rates) = Arc::new(rates);
    }

    /// A new number for a resume key or a batch of deletes; no number is used twice, not even after a restart.
    pub fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of a new run. It is random, as clients draw theirs: it names streams between agents, and a client that
    /// guessed it could have an agent send bytes of its own to the programs of this run.
    pub fn new_run(&self) -> RunId {
        RunId(getrandom::u64().unwrap_or_else(|_| self.next_number()))
    }

    /// The code of a stripe. The code's name must still mean the recorded generator. Blocking: a code is proved
    /// when it is first used.
    ///
    /// # Errors
    /// The recorded code is unknown to this program, or its name means another generator now.
    pub fn code(&self, key: u16) -> Result<Arc<dyn Code>> {
        Ok(self.labelled_code(key)?.0)
    }

    /// The same, with the description of the code for labels.
    fn labelled_code(&self, key: u16) -> Result<Labelled> {
        if let Some(code) = lock(&self.codes).get(&key) {
            return Ok(code.clone());
        }
        #[cfg(test)]
        assert!(crate::driver::may_block(), "a code is proved on an asynchronous thread");
        let snapshot = self.meta.snapshot()?;
        let record = snapshot.code(key)?;
        let corrupt = |got: String| bad_code(&record.name, got);
        let definition = snapshot.definition(key)?;
        let code = match &definition {
            Some(definition) => definition.prove(),
            None => kintsu_code::parse(&record.name),
        };
        let code = code.map_err(|e| corrupt(e.to_string()))?;
        if CodeRecord::of(code.as_ref()) != record {
            return Err(corrupt("another one".into()));
        }
        let label = Arc::new(CodeLabel::of(code.as_ref(), definition));
        lock(&self.codes).insert(key, (code.clone(), label.clone()));
        Ok((code, label))
    }

    /// A registered code by its name, proved away from the asynchronous threads.
    ///
    /// # Errors
    /// `NotFound`; the proof of the recorded definition fails.
    pub async fn registered(&self, name: String) -> Result<(Arc<dyn Code>, Definition)> {
        let find = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            let key = snapshot.registered(&name)?;
            let definition = key.map(|key| snapshot.definition(key)).transpose()?.flatten();
            let definition = definition.ok_or_else(|| missing_code(&name))?;
            let code = definition.prove().map_err(|e| bad_code(&name, e.to_string()))?;
            Ok((code, definition))
        };
        self.meta.off(find).await
    }

    /// The agent of a node.
    ///
    /// # Errors
    /// The node is unknown.
    pub fn agent(&self, node: NodeId) -> Result<AgentChannel> {
        let address = self.control(node).ok_or_else(|| unknown_node(node))?;
        let unavailable =
            |e: kintsu_wire::WireError| CoordinatorError::Unavailable { node, reason: e.to_string() };
        self.conductor.agent_of(node, address).map_err(unavailable)
    }

    /// The control address of a node.
    pub fn control(&self, node: NodeId) -> Option<SocketAddr> {
        self.members().node(node).map(|m| m.record.control)
    }

    /// The data address of a node.
    pub fn data(&self, node: NodeId) -> Option<SocketAddr> {
        self.members().data(node)
    }

    /// A stripe and the label of its blocks, if it is visible.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn load(self: &Arc<Self>, id: StripeId) -> Result<Option<(Stripe, Label)>> {
        let cluster = self.clone();
        // A code that is used for the first time is proved here, away from the asynchronous threads.
        let look = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            let Some(record) = snapshot.stripe(id)? else { return Ok(None) };
            let label = cluster.label(&snapshot, &record)?;
            Ok(Some((cluster.known(id, record)?, label)))
        };
        self.meta.off(look).await
    }

    /// A stripe that was read, with its code. Blocking.
    ///
    /// # Errors
    /// As [`Cluster::code`].
    pub fn known(&self, id: StripeId, record: StripeRecord) -> Result<Stripe> {
        Ok(Stripe { id, code: self.code(record.code)?, record })
    }

    /// The label for blocks of a visible stripe that are written again. Blocking.
    ///
    /// # Errors
    /// The metadata contradict themselves.
    fn label(&self, snapshot: &Snapshot, stripe: &StripeRecord) -> Result<Label> {
        let code = CodeLabel::clone(&*self.labelled_code(stripe.code)?.1);
        let object = match snapshot.pack(stripe.owner)? {
            Some(pack) => packs::label(stripe.owner, &pack, snapshot.members(stripe.owner, &pack)?, code),
            None => {
                let gone = || CoordinatorError::NotFound { what: "object", name: stripe.owner.to_string() };
                let name = snapshot.name(stripe.owner)?.ok_or_else(gone)?;
                let object = snapshot.object(&name)?;
                ObjectLabel {
                    id: stripe.owner,
                    name,
                    size: Some(object.size),
                    created: object.created,
                    encoding: object.encoding,
                    code,
                    attributes: object.attributes.for_label(),
                    members: Vec::new(),
                }
            }
        };
        let homes = stripe.blocks.iter().map(|block| block.map(|b| b.node)).collect();
        Ok(Label { cluster: self.id, object, offset: stripe.offset, layout: stripe.layout, homes })
    }

    /// The nodes that still have to delete a block of a stripe. Blocking.
    ///
    /// # Errors
    /// The disk fails.
    pub fn sweeping(&self, snapshot: &Snapshot, stripe: StripeId) -> Result<BTreeSet<NodeId>> {
        let nodes: Vec<NodeId> = self.members().iter().map(|(id, _)| id).collect();
        let mut out = BTreeSet::new();
        for node in nodes {
            if snapshot.must_sweep(node, stripe)? {
                out.insert(node);
            }
        }
        Ok(out)
    }

    /// Runs a task that ends with the coordinator at the latest.
    pub fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Ends all tasks, and waits until nothing uses the metadata any more: then their directory is free. After 5 s it
    /// waits no longer; the log says what still uses them.
    ///
    /// # Errors
    /// `Halted` if the disk of the metadata has failed.
    pub async fn close(self: Arc<Self>) -> Result<()> {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let (meta, dir) = (self.meta.clone(), self.config.dir.clone());
        let holders = Arc::downgrade(&self);
        drop(self);
        let free = async {
            while meta.handles() > 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(LETTING_GO, free).await.is_err() {
            let users = still_used_by(holders.strong_count(), meta.handles());
            tracing::warn!("{} is not free yet: it is used by {users} that have not ended", dir.display());
        }
        meta.failure().check()
    }

    /// Runs a short task to its end even if the caller stops waiting. So a change is never left without the steps
    /// that must follow it.
    ///
    /// An error while the coordinator ends is not returned: the connection ends instead, and the caller asks the
    /// next coordinator.
    ///
    /// # Errors
    /// Those of the task; `Storage` if it panicked.
    pub async fn whole<T: Send + 'static>(
        self: &Arc<Self>,
        task: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (tell, told) = oneshot::channel();
        self.tasks.spawn(async move {
            // The caller may be gone.
            let _ = tell.send(task.await);
        });
        let early = || CoordinatorError::Storage("expected the outcome of a change, got a panic".into());
        let outcome = told.await.unwrap_or_else(|_| Err(early()));
        self.unless_ending(outcome).await
    }

    /// Returns the outcome of a change, but never returns if it is an error and the coordinator is ending.
    ///
    /// # Errors
    /// Those of the change.
    pub async fn unless_ending<T>(&self, outcome: Result<T>) -> Result<T> {
        match outcome {
            Err(_) if self.stop.is_cancelled() => std::future::pending().await,
            outcome => outcome,
        }
    }
}

/// Who still uses metadata with this many handles, one of them the asker's, when the coordinator has this many holders.
fn still_used_by(holders: usize, handles: usize) -> String {
    // The coordinator itself has a handle too.
    let work = handles.saturating_sub(1 + usize::from(holders > 0));
    match (holders > 0, work) {
        (true, 0) => "calls".into(),
        (true, work) => format!("calls, and reads or writes of the disk ({work})"),
        (false, work) => format!("reads or writes of the disk ({work})"),
    }
}

fn no_random(error: &dyn std::fmt::Display) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: "start of the coordinator".into(),
        expected: "random numbers from the operating system, and a cluster of its own".into(),
        got: error.to_string(),
    }
}

fn bad_code(name: &str, got: String) -> CoordinatorError {
    let expected = "a name or a definition that means the recorded generator".into();
    CoordinatorError::Corrupt { what: format!("code {name}"), expected, got }
}

/// The error for an unknown node.
pub fn unknown_node(node: NodeId) -> CoordinatorError {
    CoordinatorError::NotFound { what: "node", name: node.0.to_string() }
}

/// Locks even after a panic elsewhere: these states stay usable, because a panic leaves them as they were between
/// two calls.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_keeps_the_metadata_of_a_coordinator_that_ended_is_told() {
        assert_eq!(still_used_by(1, 2), "calls");
        assert_eq!(still_used_by(3, 4), "calls, and reads or writes of the disk (2)");
        assert_eq!(still_used_by(0, 2), "reads or writes of the disk (1)");
    }
}
