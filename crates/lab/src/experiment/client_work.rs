//! What clients do: they write and read on a host of their own, as the program's own commands, whose start is a part of
//! the time; and the coordinator encodes what they wrote plain.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kintsu_dag::NodeId;
use kintsu_wire::message::{Encoding, NodeState};

use super::declare::Case;
use super::meter::Meter;
use super::report::Sample;
use super::site::{Noise, Site, Wanted, finish, parse, sizes};
use crate::error::{LabError, Result};

/// How long the coordinator may take to notice that a node is gone.
const NOTICE: Duration = Duration::from_secs(60);

/// A client on `host` writes one stripe.
///
/// # Errors
/// When it fails.
pub async fn write(site: &Site, case: &Case, host: NodeId) -> Result<Sample> {
    let code = parse(&case.code)?;
    let (block, cell) = sizes(&*code, case.block_bytes, case.cell_bytes);
    let len = code.k() as u64 * block;
    let file = file(site, len).await?;
    let (block, cell) = (block.to_string(), cell.to_string());
    let file = file.display().to_string();
    let args =
        ["put", &file, "written", "--code", &case.code, "--block", &block, "--cell", &cell, "--replace"];
    let meter = Meter::start(site).await?;
    let seconds = command(site, host, &args).await?;
    let sample = meter.stop(site, seconds).await?;
    site.client.remove("written").await?;
    Ok(Sample { goal_bytes: len, ..sample })
}

/// A client on `host` reads an object, or only its first block where blocks are contiguous, while the first `lost` data
/// blocks are on nodes that are gone.
///
/// # Errors
/// When it fails.
pub async fn read(site: &Site, name: &str, lost: usize, one_block: bool, host: NodeId) -> Result<Sample> {
    let stored = site.stripe(name, 0).await?;
    let all = stored.view.layout.data_bytes;
    let goal_bytes = if one_block { stored.block_bytes().min(all) } else { all };
    let range = format!("0-{}", goal_bytes.saturating_sub(1));
    let gone: Vec<NodeId> = stored.view.homes.iter().take(lost).copied().flatten().collect();
    for node in &gone {
        site.lab.kill(*node).await?;
    }
    wait_until_gone(site, &gone).await?;
    let meter = Meter::start(site).await?;
    let args = ["get", name, "-", "--range", &range];
    let seconds = command(site, host, if one_block { &args } else { &args[..3] }).await;
    let sample = meter.stop(site, *seconds.as_ref().unwrap_or(&0.0)).await?;
    for node in &gone {
        site.lab.start(*node).await?;
    }
    seconds?;
    Ok(Sample { goal_bytes, ..sample })
}

/// The coordinator makes the parity of an object that was written plain.
///
/// # Errors
/// When it fails.
pub async fn encode(site: &Site, case: &Case, stripes: u64) -> Result<Sample> {
    let wanted = Wanted { stripes, ..Wanted::of(case) };
    let goal_bytes = site.put(&wanted, "plain", Encoding::Offline).await?;
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    let report = finish(site.client.encode("plain").await?, |_, _| {}).await?;
    let sample = meter.stop(site, started.elapsed().as_secs_f64()).await?;
    site.client.remove("plain").await?;
    Ok(Sample { goal_bytes, planned_bytes: report.bytes_moved, ..sample })
}

/// Waits until the coordinator knows that these nodes are gone, so that what is measured is a read of lost blocks
/// and not the finding out.
async fn wait_until_gone(site: &Site, gone: &[NodeId]) -> Result<()> {
    let patience = Instant::now() + NOTICE;
    while !gone.is_empty() {
        let nodes = site.client.nodes().await?.nodes;
        let alive =
            nodes.iter().filter(|node| gone.contains(&node.id) && node.state == NodeState::Alive).count();
        if alive == 0 {
            break;
        }
        if Instant::now() > patience {
            return Err(LabError::invalid("nodes that were killed", "none alive", alive));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Runs a command of this program on a host; how long it took.
async fn command(site: &Site, host: NodeId, args: &[&str]) -> Result<f64> {
    let program = std::env::current_exe().map_err(LabError::io("the running program"))?;
    let mut command = site.lab.command(Some(host), program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let output = command.output().await.map_err(LabError::io("a client of the lab"))?;
    let seconds = started.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok(seconds);
    }
    Err(LabError::Command {
        command: format!("kintsu {}", args.join(" ")),
        got: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A file of random bytes, made when it is first wanted.
async fn file(site: &Site, len: u64) -> Result<PathBuf> {
    let path = site.lab.data().join(format!("noise-{len}"));
    let made = path.clone();
    let make = move || match std::fs::metadata(&made) {
        Ok(there) if there.len() == len => Ok(()),
        _ => Noise::new(len).write(&made),
    };
    let done = tokio::task::spawn_blocking(make).await.map_err(std::io::Error::other).flatten();
    done.map_err(LabError::io(path.display().to_string()))?;
    Ok(path)
}
