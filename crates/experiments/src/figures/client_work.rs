//! The work of clients. They write and read on a host of their own through the program's own commands; the start
//! of the command is part of the time. Also the coordinator's encoding of objects that were written plain.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use kintsu_dag::NodeId;
use kintsu_lab::Spec;
use kintsu_plan::Binding;
use kintsu_wire::message::{Encode, Encoding, NodeState};

use super::declare::{Case, Fault};
use super::disturbed::{inflict, restore};
use super::meter::Meter;
use super::report::Sample;
use super::site::{Noise, Site, Wanted, parse, sizes};
use crate::error::{ExperimentError, Result};
use crate::jobs::finish;

/// How long the coordinator may take to notice that a node is gone.
const NOTICE: Duration = Duration::from_secs(60);

/// Clients on `hosts` write a stripe each, all at once; the time ends with the last.
///
/// # Errors
/// When one fails.
pub async fn write(site: &Site, case: &Case, hosts: &[NodeId]) -> Result<Sample> {
    let code = parse(&case.code)?;
    let (block, cell) = sizes(&*code, case.block_bytes, case.cell_bytes);
    let len = code.k() as u64 * block;
    let file = file(site, len).await?;
    let (block, cell) = (block.to_string(), cell.to_string());
    let file = file.display().to_string();
    let names: Vec<String> = (0..hosts.len()).map(|number| format!("written-{number}")).collect();
    let put = |(host, name): (&NodeId, &String)| {
        let args =
            ["put", &file, name, "--code", &case.code, "--block", &block, "--cell", &cell, "--replace"];
        (*host, args.map(str::to_owned).to_vec())
    };
    let commands = hosts.iter().zip(&names).map(put).collect();
    let meter = Meter::start(site).await?;
    let seconds = all(site, commands).await?;
    let sample = meter.stop(site, seconds).await?;
    for name in &names {
        site.client.remove(name).await?;
    }
    Ok(Sample { goal_bytes: len * hosts.len() as u64, ..sample })
}

/// Clients on `hosts` read one stripe each of an object, all at once; with `one_block`, only the first block of a
/// contiguous stripe. Meanwhile `lost` data blocks of each stripe are on dead nodes. The time ends with the last.
///
/// # Errors
/// When one fails.
pub async fn read(site: &Site, name: &str, lost: usize, one_block: bool, hosts: &[NodeId]) -> Result<Sample> {
    let (mut commands, mut homes, mut goal_bytes, mut start) = (Vec::new(), Vec::new(), 0, 0);
    for (position, host) in hosts.iter().enumerate() {
        let stored = site.stripe(name, position as u64).await?;
        let all = stored.view.layout.data_bytes;
        let wanted = if one_block { stored.block_bytes().min(all) } else { all };
        let range = format!("{start}-{}", (start + wanted).saturating_sub(1));
        commands.push((*host, ["get", name, "-", "--range", &range].map(str::to_owned).to_vec()));
        let data = stored.view.code.k();
        homes.push(stored.view.homes.into_iter().take(data).flatten().collect());
        goal_bytes += wanted;
        start += all;
    }
    let gone = to_lose(&homes, lost);
    for node in &gone {
        site.lab.kill(*node).await?;
    }
    wait_until_gone(site, &gone).await?;
    let meter = Meter::start(site).await?;
    let seconds = all(site, commands).await;
    let sample = meter.stop(site, *seconds.as_ref().unwrap_or(&0.0)).await?;
    for node in &gone {
        site.lab.start(*node).await?;
    }
    seconds?;
    Ok(Sample { goal_bytes, ..sample })
}

/// A client outside of all hosts reads a stripe while a node has a `fault` that nobody knows of yet, and `lost` data
/// blocks are on dead nodes. With each `turn` another node has the fault.
///
/// # Errors
/// When the read fails.
pub async fn read_beside(
    site: &Site,
    spec: &Spec,
    name: &str,
    lost: usize,
    fault: Fault,
    turn: usize,
) -> Result<Sample> {
    let stored = site.stripe(name, 0).await?;
    let data: Vec<NodeId> = stored.view.homes.iter().take(stored.view.code.k()).copied().flatten().collect();
    let gone = to_lose(std::slice::from_ref(&data), lost);
    let left: Vec<NodeId> = data.into_iter().filter(|node| !gone.contains(node)).collect();
    let victim = left.get(turn % left.len().max(1)).copied();
    let victim = victim.ok_or_else(|| ExperimentError::invalid("a node that is left", "one", "none"))?;
    for node in &gone {
        site.lab.kill(*node).await?;
    }
    wait_until_gone(site, &gone).await?;
    inflict(site, spec, victim, fault).await?;
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    let read = command(site, None, &["get", name, "-"].map(str::to_owned)).await;
    let sample = meter.stop(site, started.elapsed().as_secs_f64()).await?;
    restore(site, spec, victim, fault).await?;
    for node in &gone {
        site.lab.start(*node).await?;
        site.wait_alive(*node).await?;
    }
    read?;
    Ok(Sample { goal_bytes: stored.view.layout.data_bytes, ..sample })
}

/// A few nodes whose loss takes at least `lost` data blocks from each stripe (given by the homes of its data
/// blocks). Prefers nodes on which other stripes have a block too, then the first ones of the stripe.
fn to_lose(stripes: &[Vec<NodeId>], lost: usize) -> Vec<NodeId> {
    let mut gone: Vec<NodeId> = Vec::new();
    for stripe in stripes {
        let is_short = |homes: &&Vec<NodeId>, gone: &[NodeId]| {
            homes.iter().filter(|home| gone.contains(home)).count() < lost.min(homes.len())
        };
        while is_short(&stripe, &gone) {
            let short: Vec<_> = stripes.iter().filter(|homes| is_short(homes, &gone)).collect();
            let shared = |home: &NodeId| short.iter().filter(|homes| homes.contains(home)).count();
            let left = stripe.iter().rev().filter(|home| !gone.contains(home));
            gone.extend(left.max_by_key(|home| shared(home)).copied());
        }
    }
    gone
}

/// The coordinator makes the parity of an object that was written plain.
///
/// # Errors
/// When it fails.
pub async fn encode(site: &Site, case: &Case, stripes: u64, binding: Binding) -> Result<Sample> {
    let wanted = Wanted { stripes, ..Wanted::of(case) };
    let goal_bytes = site.put(&wanted, "plain", Encoding::Offline).await?;
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    let report =
        finish(site.client.encode_by(Encode { name: "plain".into(), binding }).await?, |_, _| {}).await?;
    let sample = meter.stop(site, started.elapsed().as_secs_f64()).await?;
    site.client.remove("plain").await?;
    Ok(Sample { goal_bytes, planned_bytes: report.bytes_moved, ..sample })
}

/// Waits until the coordinator knows that these nodes are dead, so that the measured time is that of a degraded
/// read, without the detection of the failure.
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
            return Err(ExperimentError::invalid("nodes that were killed", "none alive", alive));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Runs commands of this program on hosts, all at once; returns the time until the last has ended.
async fn all(site: &Site, commands: Vec<(NodeId, Vec<String>)>) -> Result<f64> {
    let started = Instant::now();
    try_join_all(commands.iter().map(|(host, args)| command(site, Some(*host), args))).await?;
    Ok(started.elapsed().as_secs_f64())
}

/// Runs a command of this program on a host, or where the coordinator is, to its end.
pub async fn command(site: &Site, host: Option<NodeId>, args: &[String]) -> Result<()> {
    let program = std::env::current_exe().map_err(ExperimentError::io("the running program"))?;
    let mut command = site.lab.command(host, program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = command.output().await.map_err(ExperimentError::io("a client of the lab"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(ExperimentError::Command {
        command: format!("kintsu {}", args.join(" ")),
        got: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

/// A file of random bytes, made at its first use.
async fn file(site: &Site, len: u64) -> Result<PathBuf> {
    let path = site.lab.data().join(format!("noise-{len}"));
    let made = path.clone();
    let make = move || match std::fs::metadata(&made) {
        Ok(there) if there.len() == len => Ok(()),
        _ => Noise::new(len).write(&made),
    };
    let done = tokio::task::spawn_blocking(make).await.map_err(std::io::Error::other).flatten();
    done.map_err(ExperimentError::io(path.display().to_string()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_lost_that_many_stripes_have_blocks_on() {
        let n = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect::<Vec<_>>();
        let one = [n(&[5, 3, 4])];
        assert_eq!(to_lose(&one, 0), []);
        assert_eq!(to_lose(&one, 1), n(&[5]));
        assert_eq!(to_lose(&one, 2), n(&[5, 3]));
        assert_eq!(to_lose(&one, 9), n(&[5, 3, 4]));
        let several = [n(&[5, 3, 4]), n(&[1, 2, 4]), n(&[1, 3, 6]), n(&[7, 8, 9])];
        assert_eq!(to_lose(&several, 1), n(&[3, 1, 7]));
        assert_eq!(to_lose(&several, 2), n(&[3, 4, 1, 7, 8]));
    }
}
