//! A node loses all its blocks, and the coordinator repairs them.
//!
//! Every sample begins with the blocks where a writer would have put them: if those of the last one have moved to other nodes, the object
//! is written again.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::many::{bound, losses};
use kintsu_plan::{DamagedStripe, Rates, Topology};
use kintsu_wire::message::{
    JobReport, KnownLink, LinkEnd, NodeAction, NodeLoad, RateSource, Repair, RepairTarget, Requestors, Way,
};

use super::declare::{Case, Recover};
use super::meter::Meter;
use super::report::Sample;
use super::simulated::recovered;
use super::single::slice_bytes;
use super::site::Site;
use crate::error::{ExperimentError, Result};
use crate::jobs::finish;

/// Users who take this part of a link or less are not felt.
const FELT: u64 = 16;

/// Loses and recovers the node with the most blocks.
///
/// # Errors
/// When blocks cannot all be repaired.
pub async fn sample(site: &Site, case: &Case, recover: &Recover, object: &str) -> Result<Sample> {
    let victim = fullest(site).await?;
    if recover.told {
        site.client.set_rates(&site.lab.spec().await.rates()).await?;
    } else {
        measured(site).await?;
    }
    let requestors = chosen(site, victim, &recover.requestors).await?;
    let mut damage = Damage::of(site, object, recover.stripes, &[victim]).await?;
    for node in site.client.nodes().await?.nodes {
        // Of nodes that suit a block alike the emptiest gets it.
        let bytes = node.usage.map_or(0, |usage| usage.bytes);
        damage.topology.nodes.entry(node.id).and_modify(|known| known.used_bytes = bytes);
    }
    let topology = damage.topology(&requestors, site.lab.spec().await.rates());
    let one = recover.schedule.single_requestor();
    let bound_seconds = if one { 0.0 } else { damage.least_seconds(&topology) };
    let simulated_seconds = recovered(case, recover, &damage.stripes, &topology)?;
    finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
    let meter = Meter::start(site).await?;
    let wanted = Repair {
        method: recover.method,
        slice_bytes: slice_bytes(case.slice),
        schedule: recover.schedule,
        per_node: recover.per_node,
        requestors,
        ..Repair::new(RepairTarget::Node(victim))
    };
    let jobs = site.client.repair_by(wanted).await?;
    let report = finish(jobs, |_, _| {}).await?;
    let sample = meter.stop(site, report.seconds).await?;
    calm(site, &report).await?;
    Ok(Sample {
        goal_bytes: report.blocks * case.block_bytes,
        bound_seconds,
        simulated_seconds,
        ..of_job(sample, &report, &site.lab.spec().await.rates())
    })
}

/// A sample with what the report of its repairs says.
pub fn of_job(sample: Sample, report: &JobReport, rates: &Rates) -> Sample {
    let seconds =
        |bytes: u64, rate: Option<&NonZeroU64>| rate.map_or(0.0, |rate| bytes as f64 / rate.get() as f64);
    let of_node = |load: &NodeLoad| {
        seconds(load.up_bytes, rates.up.get(&load.node))
            .max(seconds(load.down_bytes, rates.down.get(&load.node)))
    };
    Sample {
        planned_bytes: report.bytes_moved,
        planned_cross_rack_bytes: report.bytes_across_racks,
        busiest_seconds: report.nodes.iter().map(of_node).fold(0.0, f64::max),
        replanned: report.around.len() as u64,
        ..sample
    }
}

/// After a job in which repairs went around nodes that were slow, the coordinator avoids these nodes for up to minutes. The next
/// sample is to begin without that.
///
/// # Errors
/// As [`Site::forget`].
pub async fn calm(site: &Site, report: &JobReport) -> Result<()> {
    if report.around.is_empty() { Ok(()) } else { site.forget().await }
}

/// Repairs what a recovery that failed has left, as soon as all nodes are alive.
///
/// # Errors
/// When some are not within a minute; when blocks cannot all be repaired.
pub async fn mend(site: &Site) -> Result<()> {
    for node in 0..site.lab.hosts().len() as u32 {
        site.wait_alive(NodeId(node)).await?;
    }
    finish(site.client.repair_by(Repair::new(RepairTarget::All)).await?, |_, _| {}).await.map(drop)
}

/// What an object loses with some nodes.
pub struct Damage {
    stripes: Vec<DamagedStripe>,
    topology: Topology,
}

impl Damage {
    /// Looks at the stripes of an object before these nodes lose their blocks.
    ///
    /// # Errors
    /// When the coordinator does not know a stripe.
    pub async fn of(site: &Site, object: &str, stripes: u64, victims: &[NodeId]) -> Result<Self> {
        let mut damage = Self { stripes: Vec::new(), topology: Topology::default() };
        for position in 0..stripes {
            let stored = site.stripe(object, position).await?;
            let mut view = stored.view;
            let gone = |home: &Option<NodeId>| home.is_some_and(|home| victims.contains(&home));
            let at = view.homes.iter().enumerate().filter(|(_, home)| gone(home));
            let lost: Vec<BlockIndex> = at.map(|(index, _)| BlockIndex(index as u8)).collect();
            if lost.is_empty() {
                continue;
            }
            lost.iter().for_each(|block| view.homes[usize::from(block.0)] = None);
            damage.stripes.push(DamagedStripe { view, lost, barred: BTreeSet::new() });
            damage.topology = stored.topology;
        }
        Ok(damage)
    }

    /// The nodes, of which only these requestors are usable, with links of these rates.
    pub fn topology(&self, requestors: &Requestors, rates: Rates) -> Topology {
        let mut topology = Topology { rates, ..self.topology.clone() };
        let gets = |node: &NodeId| match requestors {
            Requestors::Nodes(nodes) => nodes.contains(node),
            Requestors::Any | Requestors::Count(_) => true,
        };
        topology.nodes.iter_mut().for_each(|(id, node)| node.usable &= gets(id));
        topology
    }

    /// A lower bound on the time in which the links allow the lost blocks to be repaired by the usable nodes; 0 where it is not
    /// known for the code.
    pub fn least_seconds(&self, topology: &Topology) -> f64 {
        let common: Vec<NodeId> =
            topology.nodes.iter().filter(|(_, node)| node.usable).map(|(id, _)| *id).collect();
        let all: Option<Vec<_>> = losses(topology, &self.stripes).into_iter().collect();
        all.map_or(0.0, |all| bound(&all.concat(), &common, topology))
    }
}

/// Waits until the coordinator has measured the links of all nodes, which it does by itself.
/// Users must be gone too, as whoever wrote an object: the coordinator sees them for some seconds more, and would plan around them.
///
/// # Errors
/// When some are not known within a minute.
pub async fn measured(site: &Site) -> Result<()> {
    let nodes = site.lab.hosts().len();
    for _ in 0..600 {
        let known = site.client.known_rates().await?;
        let of_nodes = known.links.iter().filter(|link| matches!(link.end, LinkEnd::Node(_)));
        let surely = |source| matches!(source, RateSource::Measured | RateSource::Seen);
        let users = |link: &KnownLink| {
            link.foreground.zip(link.capacity).is_some_and(|(users, (most, _))| users > most / FELT)
        };
        let busy = of_nodes.clone().any(|link| matches!(link.way, Way::Up | Way::Down) && users(link));
        let sent = of_nodes.filter(|link| link.way == Way::Up && link.capacity.is_some_and(|c| surely(c.1)));
        if sent.count() >= nodes && !busy {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(ExperimentError::invalid("rates", "those of all nodes measured within a minute", "some that are not"))
}

/// The requestors; where a number is given, as many nodes.
///
/// # Errors
/// When the nodes are not known.
pub async fn chosen(site: &Site, victim: NodeId, requestors: &Requestors) -> Result<Requestors> {
    Ok(match requestors {
        Requestors::Count(count) => Requestors::Nodes(some(site, victim, *count as usize).await?),
        others => others.clone(),
    })
}

/// `count` requestors: the node that lost its blocks, because only it is sure to have no block of the damaged
/// stripes, and the nodes that follow it.
async fn some(site: &Site, victim: NodeId, count: usize) -> Result<Vec<NodeId>> {
    let mut nodes: Vec<NodeId> = site.client.nodes().await?.nodes.iter().map(|node| node.id).collect();
    nodes.sort_by_key(|node| (*node < victim, *node));
    nodes.truncate(count);
    Ok(nodes)
}

async fn fullest(site: &Site) -> Result<NodeId> {
    let nodes = site.client.nodes().await?.nodes;
    let fullest = nodes.iter().max_by_key(|node| (node.placed_blocks, node.id));
    Ok(fullest.map_or(NodeId(0), |node| node.id))
}
