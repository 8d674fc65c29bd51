//! A repair by the coordinator in which a helper fails when half of the block is repaired.
//!
//! The home of the lost block loses all its blocks (in a lab with one stripe: this block). The helper that fails
//! is inside the chain: it has both received and sent by then.

use std::time::{Duration, Instant};

use kintsu_dag::NodeId;
use kintsu_lab::{Counters, Link, Rate, Spec};
use kintsu_plan::Method;
use kintsu_wire::message::{NodeAction, RepairTarget};

use super::declare::{Case, Fault};
use super::meter::Meter;
use super::report::Sample;
use super::single::slice_bytes;
use super::site::{Site, Stored};
use crate::error::{ExperimentError, Result};
use crate::jobs::finish;

/// The interval at which the kernel's counters are read to see the progress of the repair.
const LOOK: Duration = Duration::from_millis(10);

/// Loses a block and repairs it while a helper fails.
///
/// # Errors
/// When the block is not repaired.
pub async fn sample(
    site: &Site,
    spec: &Spec,
    case: &Case,
    fault: Fault,
    name: &str,
    turn: usize,
) -> Result<Sample> {
    let stored = site.stripe(name, 0).await?;
    let lost = turn % stored.view.code.k();
    let home = stored.view.homes[lost];
    let home = home.ok_or_else(|| ExperimentError::invalid("block to lose", "one with a home", lost))?;
    finish(site.client.command_node(home, NodeAction::Wipe).await?, |_, _| {}).await?;
    let meter = Meter::start(site).await?;
    let before = site.lab.counters().await?;
    let started = Instant::now();
    let target = RepairTarget::Object(name.to_owned());
    let jobs = site.client.repair(target, Method::Pipeline, slice_bytes(case.slice)).await?;
    let repair = async { finish(jobs, |_, _| {}).await.map(|report| (report, started.elapsed())) };
    let trouble = make_trouble(site, spec, &stored, &before, fault);
    let (repaired, victim) = tokio::join!(repair, trouble);
    let (report, elapsed) = repaired?;
    let sample = meter.stop(site, elapsed.as_secs_f64()).await?;
    if let Some(victim) = victim? {
        restore(site, spec, victim, fault).await?;
    }
    Ok(Sample { goal_bytes: stored.block_bytes(), planned_bytes: report.bytes_moved, ..sample })
}

/// Waits until half of the block is repaired, then makes a helper fail; returns the helper.
async fn make_trouble(
    site: &Site,
    spec: &Spec,
    stored: &Stored,
    before: &Counters,
    fault: Fault,
) -> Result<Option<NodeId>> {
    if fault == Fault::None {
        return Ok(None);
    }
    let half = stored.block_bytes() / 2;
    let patience = Instant::now() + Duration::from_secs(120);
    let victim = loop {
        let since = site.lab.counters().await?.since(before);
        let inside = spec.node_ids().zip(&since.nodes);
        let found =
            inside.filter(|(_, link)| link.sent_bytes.min(link.received_bytes) > half).map(|(node, _)| node);
        if let Some(victim) = found.max() {
            break victim;
        }
        if Instant::now() > patience {
            return Err(ExperimentError::invalid(
                "helpers",
                "one that received and sent half a block",
                "none",
            ));
        }
        tokio::time::sleep(LOOK).await;
    };
    inflict(site, spec, victim, fault).await?;
    Ok(Some(victim))
}

/// Makes a node fail.
///
/// # Errors
/// When the lab cannot.
pub async fn inflict(site: &Site, spec: &Spec, victim: NodeId, fault: Fault) -> Result<()> {
    match fault {
        Fault::None => {}
        Fault::Killed => site.lab.kill(victim).await?,
        Fault::Cut => site.lab.cut(victim).await?,
        Fault::Slowed => slow(site, spec, victim, 0.1).await?,
    }
    Ok(())
}

/// Removes the fault of a node, and waits until the coordinator considers it alive.
///
/// # Errors
/// When the lab cannot, or the node does not come back.
pub async fn restore(site: &Site, spec: &Spec, victim: NodeId, fault: Fault) -> Result<()> {
    match fault {
        Fault::None => {}
        Fault::Killed => site.lab.start(victim).await?,
        Fault::Cut => site.lab.heal(victim).await?,
        Fault::Slowed => slow(site, spec, victim, 1.0).await?,
    }
    site.wait_alive(victim).await
}

async fn slow(site: &Site, spec: &Spec, node: NodeId, factor: f64) -> Result<()> {
    let link = spec.nodes.get(node.0 as usize).map(|node| node.link).unwrap_or_default();
    let scaled = |rate: Option<Rate>| rate.map(|rate| rate.scaled(factor)).transpose();
    site.lab.set_rate(Link::NodeUp(node), scaled(link.up)?).await?;
    Ok(site.lab.set_rate(Link::NodeDown(node), scaled(link.down)?).await?)
}
