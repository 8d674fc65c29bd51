//! Repairs while users work.
//!
//! The users are tasks of the lab's own process, whose link has no limit, so that what they wait for are the nodes'
//! links. Their values are replicated unless a [`Load`] says otherwise: what is damaged and repaired then is another
//! object alone, as in the ChameleonEC paper, where users work on HBase or Memcached and the repair on HDFS.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kintsu_client::Client;
use kintsu_dag::NodeId;
use kintsu_lab::Traffic;
use kintsu_plan::{Method, Rates, Schedule};
use kintsu_wire::message::{JobReport, NodeAction, NodeLoad, Repair, RepairTarget, Requestors};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{ExperimentError, Result};
use crate::figures::client_work::command;
use crate::figures::meter::{Carried, Meter};
use crate::figures::recovery::{Damage, calm, chosen, measured, of_job};
use crate::figures::single::slice_bytes;
use crate::figures::site::{Site, Wanted};
use crate::figures::{Case, Sample};
use crate::jobs::finish;
use crate::workload::{Leg, Played, Player, Scale, Score, Work, workload};

/// How often several workloads are repeated, so that they outlast the slowest repair.
const ROUNDS: usize = 16;
/// Connections of users, as the paper has four instances.
const CLIENTS: usize = 4;
/// Users' operations are the same in every sample.
const SEED: u64 = 1;
/// Tasks of a straggler (ChameleonEC, Exp#11).
const STRAGGLER_TASKS: usize = 8;
/// Blocks that a straggler's readers read, each on its node.
const STRAGGLER_STRIPES: u64 = 17;

/// What is repaired under which load.
#[derive(Debug, Clone, PartialEq)]
pub enum UnderLoad {
    /// Nodes lose their blocks, and the coordinator repairs an object.
    Recover(Recovery),
    /// A client reads lost blocks, one after the other; a sample's time is that of one block.
    Read {
        /// How the blocks are rebuilt on their way; without, as is predicted to be fastest.
        method: Option<Method>,
        /// What users do meanwhile.
        load: Load,
        /// Stripes of the object.
        stripes: u64,
        /// The coordinator's phases; `None`: as long as they are by default.
        phase: Option<Duration>,
    },
}

/// The recovery of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// How; `None`: users work, and nothing is repaired until they have ended. So what users lose by the loss alone is there too.
    pub method: Option<Method>,
    /// How helpers and requestors are chosen.
    pub schedule: Schedule,
    /// Most stripes in whose repair one node takes part; 0: as the coordinator decides.
    pub per_node: u32,
    /// How many nodes lose their blocks.
    pub nodes: usize,
    /// Stripes of the object.
    pub stripes: u64,
    /// Who gets the blocks. Where the number is given, the first is the node that lost them; it is empty now.
    pub requestors: Requestors,
    /// Whether the coordinator is told the rates of the links. Otherwise it measures them, as it does by itself.
    pub told: bool,
    /// The coordinator's phases; `None`: as long as they are by default.
    pub phase: Option<Duration>,
    /// What users do meanwhile; `None`: nothing.
    pub load: Option<Load>,
    /// How long after the start of the repair many clients begin to read from one node that takes part.
    pub straggler: Option<Duration>,
}

/// What users do.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Workloads, one after the other. With more than one, they are repeated.
    pub parts: Vec<&'static str>,
    /// How long each takes before the next one; `None`: until its last operation.
    pub span: Option<Duration>,
    /// The scale of each.
    pub scales: BTreeMap<&'static str, Scale>,
    /// Operations at once.
    pub tasks: usize,
    /// A trace of this many operations, which begins with the repair and counts from its first operation to its last. Users
    /// do the same before it, which does not count. Without, users go on until the repair has ended, and only what they do
    /// meanwhile counts.
    pub trace: Option<u64>,
    /// How many nodes have each value, if it is not coded.
    pub copies: u32,
    /// Whether values are stored by the code of the case, and what is damaged of them is repaired too.
    pub coded: bool,
}

impl Load {
    fn player(&self, clients: Vec<Client>, case: &Case) -> Player {
        let code = if self.coded { case.code.clone() } else { format!("replication:n={}", self.copies) };
        Player::new(clients, &code, self.tasks)
    }

    /// Begins a workload, as often as it is called.
    fn start(&self, part: &str) -> Result<impl Fn() -> Work + Send + use<>> {
        let scale = self.scales.get(part).copied().unwrap_or_default();
        let row = *workload(part)?;
        Ok(move || row.start(scale, SEED))
    }

    fn work(&self, part: &str) -> Result<Work> {
        Ok(self.start(part)?())
    }

    /// A workload that is done again when it has ended.
    fn endless(&self, part: &str) -> Result<Work> {
        let start = self.start(part)?;
        let work = start();
        Ok(Work { operations: Box::new((0..u64::MAX).flat_map(move |_| start().operations)), ..work })
    }

    /// Writes the values that are not there yet. What is damaged later is damaged of them too.
    async fn fill(&self, site: &Site, case: &Case) -> Result<()> {
        let player = self.player(vec![site.client.clone()], case);
        for part in &self.parts {
            player.fill(&self.work(part)?, |_| {}).await?;
        }
        Ok(())
    }
}

impl UnderLoad {
    /// How many stripes the object of a case has.
    pub(crate) fn stripes(&self) -> u64 {
        match self {
            Self::Recover(recovery) => recovery.stripes,
            Self::Read { stripes, .. } => *stripes,
        }
    }

    /// The coordinator's phases, if they are to be other than usual.
    pub(crate) fn phase(&self) -> Option<Duration> {
        match self {
            Self::Recover(Recovery { phase, .. }) | Self::Read { phase, .. } => *phase,
        }
    }

    /// Whether the coordinator is told the rates of the links. Otherwise it measures them, as it does by itself.
    pub(crate) fn told(&self) -> bool {
        match self {
            Self::Recover(recovery) => recovery.told,
            Self::Read { .. } => true,
        }
    }

    /// Whether each block of the object holds contiguous bytes.
    pub(crate) fn contiguous(&self) -> bool {
        matches!(self, Self::Read { .. })
    }

    /// Takes a sample.
    ///
    /// # Errors
    /// When a block is not repaired or cannot be read, or users cannot work.
    pub(crate) async fn sample(
        &self,
        site: &mut Site,
        case: &Case,
        hosts: &[NodeId],
        object: &str,
    ) -> Result<Sample> {
        if self.told() {
            site.client.set_rates(&site.lab.spec().await.rates()).await?;
        } else {
            measured(site).await?;
        }
        match self {
            Self::Recover(recovery) => recovery.sample(site, case, object).await,
            Self::Read { method, load, .. } => {
                let host = hosts.first().copied();
                let host =
                    host.ok_or_else(|| ExperimentError::invalid("clients", "a host for one", "none"))?;
                read(site, case, *method, load, host, object).await
            }
        }
    }
}

impl Recovery {
    async fn sample(&self, site: &mut Site, case: &Case, object: &str) -> Result<Sample> {
        if let Some(load) = &self.load {
            load.fill(site, case).await?;
        }
        let victims = fullest(site, object, self.stripes, self.nodes).await?;
        let damage = Damage::of(site, object, self.stripes, &victims).await?;
        let first = victims.first().copied().unwrap_or(NodeId(0));
        let requestors = chosen(site, first, &self.requestors).await?;
        let slow = match self.straggler {
            Some(_) => Some(straggler(site, case, &victims).await?),
            None => None,
        };
        for victim in &victims {
            finish(site.client.command_node(*victim, NodeAction::Wipe).await?, |_, _| {}).await?;
        }
        let users = match &self.load {
            Some(load) => Some(Users::start(site, case, load).await?),
            None => None,
        };
        let meter = Meter::start(site).await?;
        let _straggling = slow.zip(self.straggler).map(|(reads, after)| reads.start(after));
        let Some(method) = self.method else {
            let users =
                users.ok_or_else(|| ExperimentError::invalid("a case", "a repair or users", "none"))?;
            if !users.is_trace {
                tokio::time::sleep(warm(case)).await;
            }
            let played = users.end().await?;
            let sample = meter.stop(site, played.seconds).await?;
            self.heal(site, &victims).await?;
            return Ok(Sample { users: Some(played), ..sample });
        };
        let report = self.repair(site, case, method, object, (&victims, &requestors)).await?;
        let (mut sample, carried) = meter.stop_with_links(site, report.seconds).await?;
        if let Some(users) = users {
            sample.users = Some(users.end().await?);
            if !self.repairs_values() {
                let left = left(site.lab.spec().await.rates(), &carried, &report.nodes);
                sample.idle_seconds = damage.least_seconds(&damage.topology(&requestors, left));
            }
        }
        self.heal(site, &victims).await?;
        calm(site, &report).await?;
        let sample = of_job(sample, &report, &site.lab.spec().await.rates());
        Ok(Sample { goal_bytes: report.bytes, bound_seconds: report.bound_seconds.unwrap_or(0.0), ..sample })
    }

    /// Repairs what is still lacking. If the coordinator is told what links carry, and so does not learn it from this, they have no
    /// limits meanwhile.
    async fn heal(&self, site: &Site, victims: &[NodeId]) -> Result<()> {
        if !self.told {
            return heal(site, victims).await;
        }
        let limits = site.lift().await?;
        let healed = heal(site, victims).await;
        site.limit(&limits).await?;
        healed
    }

    /// Whether users' values are repaired with the object.
    fn repairs_values(&self) -> bool {
        self.load.as_ref().is_some_and(|load| load.coded)
    }

    async fn repair(
        &self,
        site: &Site,
        case: &Case,
        method: Method,
        object: &str,
        (victims, requestors): (&[NodeId], &Requestors),
    ) -> Result<JobReport> {
        let target = match victims {
            [victim] if self.repairs_values() => RepairTarget::Node(*victim),
            _ => RepairTarget::Object(object.to_owned()),
        };
        let wanted = Repair {
            method,
            slice_bytes: slice_bytes(case.slice),
            schedule: self.schedule,
            per_node: self.per_node,
            requestors: requestors.clone(),
            ..Repair::new(target)
        };
        finish(site.client.repair_by(wanted).await?, |_, _| {}).await
    }
}

/// What users left of the links of nodes on average: these rates, less the bytes a second that links carried and no repair sent. So
/// headers of the repair's packets count as users' bytes, a few thousandths of what it sent.
fn left(rates: Rates, carried: &Carried, repair: &[NodeLoad]) -> Rates {
    let mut left = rates;
    for (node, link) in (0..).map(NodeId).zip(&carried.nodes) {
        let load = repair.iter().find(|load| load.node == node);
        let Traffic { sent_bytes, received_bytes, .. } = *link;
        let (up, down) = load.map_or((0, 0), |load| (load.up_bytes, load.down_bytes));
        for (of, all, own) in [(&mut left.up, sent_bytes, up), (&mut left.down, received_bytes, down)] {
            let users = all.saturating_sub(own) as f64 / carried.seconds.max(1e-9);
            if let Some(rate) = of.get_mut(&node) {
                let idle = rate.get().saturating_sub(users as u64);
                *rate = NonZeroU64::new(idle).unwrap_or(NonZeroU64::MIN);
            }
        }
    }
    left
}

/// Wipes the home of a data block and reads the lost blocks of the object, the first block of each stripe that has
/// one, with the program's own command on a host.
async fn read(
    site: &mut Site,
    case: &Case,
    method: Option<Method>,
    load: &Load,
    host: NodeId,
    object: &str,
) -> Result<Sample> {
    load.fill(site, case).await?;
    let (victim, ranges) = data_on_a_node(site, object, &[]).await?;
    finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
    let users = Users::start(site, case, load).await?;
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    for (first, last) in &ranges {
        let mut args =
            vec!["get".into(), object.into(), "-".into(), "--range".into(), format!("{first}-{last}")];
        args.extend(method.into_iter().flat_map(|method| ["--method".into(), method.to_string()]));
        command(site, Some(host), &args).await?;
    }
    let each = started.elapsed().as_secs_f64() / ranges.len().max(1) as f64;
    let sample = meter.stop(site, each).await?;
    let played = users.end().await?;
    heal(site, &[victim]).await?;
    let goal_bytes = ranges.first().map_or(0, |(first, last)| last - first + 1);
    Ok(Sample { goal_bytes, users: Some(played), ..sample })
}

/// Repairs what the nodes lost and still lack: users' values, and the object if nobody has repaired it.
async fn heal(site: &Site, victims: &[NodeId]) -> Result<()> {
    for victim in victims {
        let rest = Repair::new(RepairTarget::Node(*victim));
        let report = finish(site.client.repair_by(rest).await?, |_, _| {}).await?;
        calm(site, &report).await?;
    }
    Ok(())
}

/// The node, none of these, that has most data blocks of an object whose blocks are contiguous, and the ranges of bytes
/// in them.
async fn data_on_a_node(site: &Site, object: &str, not: &[NodeId]) -> Result<(NodeId, Vec<(u64, u64)>)> {
    let mut ranges: BTreeMap<NodeId, Vec<(u64, u64)>> = BTreeMap::new();
    let view = site.client.stripes(object, 0, u64::from(u16::MAX)).await?;
    for stripe in &view.stripes {
        let code = crate::figures::site::parse(&stripe.code)?;
        let mut at = stripe.offset;
        for (index, place) in stripe.blocks.iter().take(code.k()).enumerate() {
            let bytes = stripe.layout.block_len(code.k(), kintsu_dag::BlockIndex(index as u8));
            let end = (at + bytes).min(stripe.offset + stripe.layout.data_bytes);
            if let Some(place) = place.as_ref().filter(|place| end > at && !not.contains(&place.node)) {
                ranges.entry(place.node).or_default().push((at, end - 1));
            }
            at = end;
        }
    }
    let most = ranges.into_iter().max_by_key(|(node, ranges)| (ranges.len(), *node));
    most.ok_or_else(|| ExperimentError::invalid("object", "data blocks on nodes", "none"))
}

/// The nodes with most blocks of an object.
async fn fullest(site: &Site, object: &str, stripes: u64, count: usize) -> Result<Vec<NodeId>> {
    let mut blocks: BTreeMap<NodeId, usize> = BTreeMap::new();
    for stripe in site.client.stripes(object, 0, stripes).await?.stripes {
        stripe.blocks.iter().flatten().for_each(|place| *blocks.entry(place.node).or_default() += 1);
    }
    let mut nodes: Vec<(usize, NodeId)> = blocks.into_iter().map(|(node, blocks)| (blocks, node)).collect();
    nodes.sort_unstable_by(|a, b| b.cmp(a));
    Ok(nodes.into_iter().take(count).map(|(_, node)| node).collect())
}

/// Users who work until they are dropped.
struct Users {
    clients: Vec<Client>,
    score: Arc<Score>,
    stop: CancellationToken,
    is_trace: bool,
    running: JoinHandle<Result<()>>,
    _stopped: DropGuard,
}

impl Users {
    /// Begins, and returns when the coordinator has seen them.
    async fn start(site: &Site, case: &Case, load: &Load) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(site.lab.client().await?);
        }
        let player = load.player(clients.clone(), case);
        let mut legs = Vec::new();
        let rounds = if load.parts.len() > 1 { ROUNDS } else { 1 };
        for part in load.parts.iter().cycle().take(rounds * load.parts.len()) {
            let mut work = load.work(part)?;
            if let Some(operations) = load.trace {
                work.operations = Box::new(work.operations.take(operations as usize));
            }
            legs.push(Leg { work, span: load.span });
        }
        let prelude = match load.parts.first().filter(|_| load.trace.is_some()) {
            Some(part) => Some(Leg { work: load.endless(part)?, span: Some(warm(case)) }),
            None => None,
        };
        let (score, stop) = (Arc::new(Score::default()), CancellationToken::new());
        let (counted, until) = (score.clone(), stop.clone());
        let running = tokio::spawn(async move {
            match prelude {
                Some(prelude) => player.run_after(prelude, legs, &counted, &until).await,
                None => player.run(legs, &counted, &until).await,
            }
        });
        let _stopped = stop.clone().drop_guard();
        let users = Self { clients, score, stop, is_trace: load.trace.is_some(), running, _stopped };
        tokio::time::sleep(warm(case)).await;
        if !users.is_trace {
            users.score.restart();
        }
        Ok(users)
    }

    /// Waits for the end where that is wanted, and tells what was measured.
    async fn end(mut self) -> Result<Played> {
        if self.is_trace {
            ended((&mut self.running).await)?;
        }
        let played = self.score.read();
        if !self.is_trace {
            self.stop.cancel();
            ended((&mut self.running).await)?;
        }
        for client in &self.clients {
            client.close().await;
        }
        Ok(played)
    }
}

/// How long users of a case work before a repair begins. A coordinator that has just been told all rates has started anew, so what it knows
/// of users is the average of this time. The others smooth what they see over 3 s, and know by then all but a twentieth of it.
fn warm(case: &Case) -> Duration {
    Duration::from_secs(if case.work.is_told() { 4 } else { 9 })
}

fn ended(done: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    done.map_err(|error| ExperimentError::io("users")(std::io::Error::other(error)))?
}

/// Readers that keep the uplink of one node busy.
struct Straggler {
    client: Client,
    object: String,
    ranges: Vec<(u64, u64)>,
}

/// Prepares readers of blocks on a node that has not lost its own.
async fn straggler(site: &mut Site, case: &Case, victims: &[NodeId]) -> Result<Straggler> {
    let wanted = Wanted { stripes: STRAGGLER_STRIPES, encoded_later: true, ..Wanted::of(case) };
    let object = site.object(&wanted).await?;
    let (_, ranges) = data_on_a_node(site, &object, victims).await?;
    Ok(Straggler { client: site.client.clone(), object, ranges })
}

impl Straggler {
    /// Reads after a while, until the result is dropped.
    fn start(self, after: Duration) -> DropGuard {
        let stop = CancellationToken::new();
        let shared = Arc::new(self);
        for number in 0..STRAGGLER_TASKS {
            let (stop, shared) = (stop.clone(), shared.clone());
            let reads = async move {
                tokio::time::sleep(after).await;
                for (first, last) in shared.ranges.iter().cycle().skip(number) {
                    let range = Some(*first..*last + 1);
                    // A read that fails leaves the link idle; the next one goes on.
                    let _ = shared.client.get(&shared.object, range, &mut tokio::io::sink(), |_, _| {}).await;
                }
            };
            tokio::spawn(async move {
                tokio::select! {
                    () = reads => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        stop.drop_guard()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_leave_of_a_link_what_it_carried_for_nobody_but_the_repair() {
        let rate = |bytes: u64| NonZeroU64::new(bytes).unwrap();
        let rates = Rates::even((0..3).map(NodeId), rate(1000));
        let link = |sent_bytes, received_bytes| Traffic { sent_bytes, received_bytes, ..Traffic::default() };
        // The last link is said to have carried more than it can: it counts as fully used.
        let nodes = vec![link(6000, 2000), link(500, 0), link(90_000, 0)];
        let carried = Carried { nodes, seconds: 10.0 };
        let load = |node, up_bytes, down_bytes| NodeLoad {
            node: NodeId(node),
            up_bytes,
            down_bytes,
            helped: 0,
            requested: 0,
        };
        let left = left(rates, &carried, &[load(0, 1000, 500), load(1, 600, 0)]);
        let of =
            |rates: &BTreeMap<NodeId, NonZeroU64>| rates.values().map(|rate| rate.get()).collect::<Vec<_>>();
        assert_eq!(of(&left.up), [500, 1000, 1]);
        assert_eq!(of(&left.down), [850, 1000, 1000]);
    }
}
