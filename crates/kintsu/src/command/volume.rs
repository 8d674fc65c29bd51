//! `kintsu volume`: virtual disks.

use std::collections::BTreeSet;
use std::process::ExitCode;

use bytes::Bytes;
use kintsu_client::{ClientError, Volume, VolumeAccess};
use kintsu_dag::NodeId;
use kintsu_wire::message::{CreateVolume, Durability, LostLog, VolumeInfo};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Context;
use super::confirm::confirm;
use crate::cli::{Survives, VolumeCommand, VolumeCreate, VolumeRead, VolumeWrite};
use crate::units::human;
use crate::{inherited, output};

/// Bytes that are read or written with one call.
const PIECE_BYTES: u64 = 4 << 20;

/// `kintsu volume ...`.
pub async fn run(command: VolumeCommand, context: &Context) -> anyhow::Result<ExitCode> {
    let client = &context.client;
    match command {
        VolumeCommand::Create(args) => told(&create(args, context).await?, "made", context)?,
        VolumeCommand::Ls => list(context).await?,
        VolumeCommand::Stat { name } => stat(&client.volume_info(&name).await?, context)?,
        VolumeCommand::Rm { name } => told(&client.remove_volume(&name).await?, "removed", context)?,
        VolumeCommand::Snapshot { name, snapshot } => return take_snapshot(&name, &snapshot, context).await,
        VolumeCommand::Resize { name, size } => {
            told(&client.resize_volume(&name, size.0).await?, "resized", context)?;
        }
        VolumeCommand::Commit { name, scheme } => return commit(&name, scheme, context).await,
        VolumeCommand::AbandonLogs { name, yes } => abandon_logs(&name, yes, context).await?,
        VolumeCommand::Read(args) => read(args, context).await?,
        VolumeCommand::Write(args) => write(args, context).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn create(args: VolumeCreate, context: &Context) -> anyhow::Result<VolumeInfo> {
    let durability = match args.durability {
        Survives::Rack => Durability::Rack,
        Survives::Node => Durability::Node,
        Survives::Parity => Durability::Parity,
    };
    let VolumeCreate { name, size, code, block, scheme, .. } = args;
    let volume = CreateVolume { name, size: size.0, code, block_bytes: block.0, durability, scheme };
    Ok(context.client.create_volume(&volume).await?)
}

fn told(volume: &VolumeInfo, what: &str, context: &Context) -> anyhow::Result<()> {
    if context.json {
        return output::json(volume);
    }
    output::line(&format!("volume {} {what}: {}, {}", volume.name, human(volume.size), volume.code))
}

async fn take_snapshot(name: &str, snapshot: &str, context: &Context) -> anyhow::Result<ExitCode> {
    let taken = context.client.snapshot_volume(name, snapshot).await?;
    if context.json {
        output::json(&taken)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("snapshot {snapshot} of volume {name} taken: {}", human(taken.snapshot.size)))?;
    for left in &taken.left {
        eprintln!("kintsu: still to be committed: {left}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let volumes = context.client.volumes().await?;
    if context.json {
        return output::json(&json!({ "volumes": volumes }));
    }
    if volumes.is_empty() {
        return output::line("no volumes");
    }
    let mut table =
        output::table(["name", "size", "stored", "code", "block", "durability", "writer", "snapshot of"]);
    for volume in &volumes {
        table.add_row([
            volume.name.clone(),
            human(volume.size),
            human(volume.stripes * volume.stripe_bytes()),
            volume.code.clone(),
            human(volume.block_bytes),
            volume.durability.to_string(),
            writer(volume).to_owned(),
            snapshot_of(volume),
        ]);
    }
    output::line(&table.to_string())
}

fn writer(volume: &VolumeInfo) -> &'static str {
    if volume.writer { "yes" } else { "none" }
}

fn snapshot_of(volume: &VolumeInfo) -> String {
    match volume.snapshot_of.as_deref() {
        None => String::new(),
        Some("") => "one that was removed".into(),
        Some(name) => name.into(),
    }
}

fn stat(volume: &VolumeInfo, context: &Context) -> anyhow::Result<()> {
    if context.json {
        return output::json(volume);
    }
    let all = volume.size.div_ceil(volume.stripe_bytes().max(1));
    for (what, value) in [
        ("name", volume.name.clone()),
        ("id", format!("{:016x}", volume.id)),
        ("size", human(volume.size)),
        ("code", volume.code.clone()),
        ("block", human(volume.block_bytes)),
        match volume.snapshot_of {
            None => ("stripes", format!("{} of {all} written", volume.stripes)),
            Some(_) => {
                ("stripes", format!("{} of {all} its own, the others shared or zeros", volume.stripes))
            }
        },
        ("durability", volume.durability.to_string()),
        ("scheme", volume.scheme.clone()),
        ("epoch", volume.epoch.to_string()),
        ("writer", writer(volume).to_owned()),
    ] {
        output::line(&format!("{what:<11} {value}"))?;
    }
    if volume.snapshot_of.is_some() {
        output::line(&format!("snapshot of {}", snapshot_of(volume)))?;
    }
    if !volume.snapshots.is_empty() {
        output::line(&format!("snapshots   {}", volume.snapshots.join(", ")))?;
    }
    Ok(())
}

async fn commit(name: &str, scheme: Option<String>, context: &Context) -> anyhow::Result<ExitCode> {
    let done = context.client.commit_volume(name, scheme).await?;
    let code = if done.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if context.json {
        output::json(&done)?;
        return Ok(code);
    }
    output::line(&format!(
        "{} stripes committed: {} data blocks, {} parities, {} across racks",
        done.stripes,
        done.blocks,
        done.parities,
        human(done.across_racks)
    ))?;
    for left in &done.left {
        eprintln!("kintsu: still dirty: {left}");
    }
    Ok(code)
}

async fn abandon_logs(name: &str, yes: bool, context: &Context) -> anyhow::Result<()> {
    let mut lost = context.client.lost_logs(name).await?;
    if !lost.is_empty() {
        let (bytes, nodes) = (lost.iter().map(|log| log.len).sum(), names_of(&lost));
        let question = format!(
            "Abandon what only {nodes} logged for volume {name}: up to {} in {} blocks, the first at byte {}, would be as the last \
             commit left them?",
            human(bytes),
            lost.len(),
            lost[0].offset
        );
        confirm(question, yes).await?;
        // More nodes may be away by now: nobody was asked about their logs.
        lost = context.client.abandon_logs(name, nodes_of(&lost)).await?;
    }
    if context.json {
        return output::json(&json!({ "name": name, "abandoned": lost }));
    }
    if lost.is_empty() {
        return output::line(&format!(
            "every log of volume {name} is on a node that answers: nothing to abandon"
        ));
    }
    output::line(&format!("{} logs abandoned; these blocks are as the last commit left them:", lost.len()))?;
    let mut table = output::table(["from byte", "bytes", "nodes that logged"]);
    for log in &lost {
        table.add_row([log.offset.to_string(), log.len.to_string(), names_of(std::slice::from_ref(log))]);
    }
    output::line(&table.to_string())
}

/// The nodes of these logs.
fn nodes_of(logs: &[LostLog]) -> BTreeSet<NodeId> {
    logs.iter().flat_map(|log| log.nodes.iter().copied()).collect()
}

/// Their names, each once.
fn names_of(logs: &[LostLog]) -> String {
    nodes_of(logs).iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

async fn read(args: VolumeRead, context: &Context) -> anyhow::Result<()> {
    let volume = context.client.open_volume(&args.name, VolumeAccess::Read).await?;
    let rest = volume.size().saturating_sub(args.offset.0);
    let (mut at, mut left) = (args.offset.0, args.length.map_or(rest, |length| length.0));
    anyhow::ensure!(
        left > 0 && left <= rest,
        "range of volume {}: expected at least 1 byte within its {} bytes, got {left} from {at}",
        args.name,
        volume.size()
    );
    inherited::check_output()?;
    let mut out = tokio::io::stdout();
    while left > 0 {
        let len = left.min(PIECE_BYTES - at % PIECE_BYTES);
        let written = out.write_all(&volume.read(at, len).await?).await;
        written.map_err(|error| ClientError::of_sink(&error))?;
        (at, left) = (at + len, left - len);
    }
    out.flush().await.map_err(|error| ClientError::of_sink(&error))?;
    Ok(())
}

async fn write(args: VolumeWrite, context: &Context) -> anyhow::Result<()> {
    let access = if args.take { VolumeAccess::TakeOver } else { VolumeAccess::Write };
    let volume = context.client.open_volume(&args.name, access).await?;
    let written = copy_in(&volume, args.offset.0, args.length.map(|length| length.0)).await;
    let closed = volume.close().await;
    let bytes = written?;
    closed?;
    if context.json {
        return output::json(&json!({ "name": args.name, "offset": args.offset.0, "bytes": bytes }));
    }
    output::line(&format!("{} written to {} from byte {}", human(bytes), args.name, args.offset.0))
}

/// Writes standard input, at most `length` bytes of it; returns how many.
async fn copy_in(volume: &Volume, offset: u64, length: Option<u64>) -> anyhow::Result<u64> {
    anyhow::ensure!(length != Some(0), "length: expected at least 1 byte, got 0");
    // Whole stripes are stored without a log if they are written at once.
    let stripe = volume.info().stripe_bytes().max(1);
    let piece = stripe * (PIECE_BYTES / stripe).max(1);
    inherited::check_input()?;
    let mut input = tokio::io::stdin().take(length.unwrap_or(u64::MAX));
    let mut at = offset;
    loop {
        let mut bytes = Vec::new();
        let want = piece - at % piece;
        (&mut input).take(want).read_to_end(&mut bytes).await?;
        let got = bytes.len() as u64;
        if got > 0 {
            volume.write(at, Bytes::from(bytes)).await?;
            at += got;
        }
        if got < want {
            break;
        }
    }
    if let Some(length) = length.filter(|length| at - offset < *length) {
        anyhow::bail!("standard input: expected {length} bytes, got {}", at - offset);
    }
    anyhow::ensure!(at > offset, "standard input: expected at least 1 byte, got none");
    Ok(at - offset)
}
