//! A node loses all its blocks, and the coordinator repairs them.
//!
//! Every sample loses the blocks of another node, because the blocks of the last one have moved to other nodes.

use std::collections::BTreeSet;
use std::time::Instant;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::DamagedStripe;
use kintsu_plan::many::bound;
use kintsu_wire::message::{NodeAction, Repair, RepairTarget, Requestors};

use super::declare::{Case, Recover};
use super::meter::Meter;
use super::report::Sample;
use super::single::slice_bytes;
use super::site::Site;
use crate::error::Result;
use crate::jobs::finish;

/// Loses and recovers the node with the most blocks. The coordinator is given the rates of the links.
///
/// # Errors
/// When blocks cannot all be repaired.
pub async fn sample(site: &Site, case: &Case, recover: &Recover, object: &str) -> Result<Sample> {
    let victim = fullest(site).await?;
    site.client.set_rates(&site.lab.spec().await.rates()).await?;
    let bound_seconds = least_seconds(site, recover, object, victim).await?;
    finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
    let requestors = match recover.requestors {
        Requestors::Count(count) => Requestors::Nodes(some(site, victim, count as usize).await?),
        ref others => others.clone(),
    };
    let meter = Meter::start(site).await?;
    let started = Instant::now();
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
    let sample = meter.stop(site, started.elapsed().as_secs_f64()).await?;
    Ok(Sample {
        goal_bytes: report.blocks * case.block_bytes,
        planned_bytes: report.bytes_moved,
        planned_cross_rack_bytes: report.bytes_across_racks,
        bound_seconds,
        ..sample
    })
}

/// A lower bound on the time in which the links allow the blocks of a node to be repaired; 0 where not every node
/// may get blocks, or the bound does not cover the code.
async fn least_seconds(site: &Site, recover: &Recover, object: &str, victim: NodeId) -> Result<f64> {
    let mut losses = Vec::new();
    let mut topology = None;
    for position in 0..recover.stripes {
        let stored = site.stripe(object, position).await?;
        let mut view = stored.view;
        let Some(lost) = view.homes.iter().position(|home| *home == Some(victim)) else { continue };
        view.homes[lost] = None;
        let waiting = DamagedStripe { view, lost: vec![BlockIndex(lost as u8)], barred: BTreeSet::new() };
        let Some(loss) = waiting.loss() else { return Ok(0.0) };
        losses.push(loss);
        topology = Some(stored.topology);
    }
    let Some(topology) = topology else { return Ok(0.0) };
    let all: Vec<NodeId> = topology.nodes.keys().copied().collect();
    let every_node = match recover.requestors {
        Requestors::Any => true,
        Requestors::Count(count) => count as usize >= all.len(),
        Requestors::Nodes(_) => false,
    };
    let one = recover.schedule.single_requestor();
    Ok(if every_node && !one { bound(&losses, &all, &topology) } else { 0.0 })
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
