//! A node loses all its blocks, and the coordinator repairs them.
//!
//! Every sample loses another node's blocks, since those of the last one have moved on to others.

use std::time::Instant;

use kintsu_dag::NodeId;
use kintsu_wire::message::{NodeAction, Repair, RepairTarget};

use super::declare::{Case, Recover};
use super::meter::Meter;
use super::report::Sample;
use super::single::slice_bytes;
use super::site::{Site, finish};
use crate::error::Result;

/// Loses and recovers the node with the most blocks.
///
/// # Errors
/// When blocks cannot all be repaired.
pub async fn sample(site: &Site, case: &Case, recover: &Recover) -> Result<Sample> {
    let victim = fullest(site).await?;
    finish(site.client.command_node(victim, NodeAction::Wipe).await?, |_, _| {}).await?;
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    let wanted = Repair {
        method: recover.method,
        slice_bytes: slice_bytes(case.slice),
        schedule: recover.schedule,
        requestors: recover.requestors.clone(),
        ..Repair::new(RepairTarget::Node(victim))
    };
    let jobs = site.client.repair_by(wanted).await?;
    let report = finish(jobs, |_, _| {}).await?;
    let sample = meter.stop(site, started.elapsed().as_secs_f64()).await?;
    Ok(Sample {
        goal_bytes: report.blocks * case.block_bytes,
        planned_bytes: report.bytes_moved,
        planned_cross_rack_bytes: report.bytes_across_racks,
        ..sample
    })
}

async fn fullest(site: &Site) -> Result<NodeId> {
    let nodes = site.client.nodes().await?.nodes;
    let fullest = nodes.iter().max_by_key(|node| (node.placed_blocks, node.id));
    Ok(fullest.map_or(NodeId(0), |node| node.id))
}
