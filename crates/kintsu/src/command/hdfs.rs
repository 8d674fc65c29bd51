//! `kintsu hdfs`.

use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use kintsu_client::ClientError;
use kintsu_hdfs::{
    Agents, AtRisk, BadGroup, Got, HandedOver, NameNode, Repaired, RepairedBlock, Status, Verified, objects,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::destination::Destination;
use super::{hdfs_codec, hdfs_daemons, hdfs_store, hdfs_watch};
use crate::cli::{Endpoint, Hdfs, HdfsCommand};
use crate::units::{ByteRange, human};
use crate::{output, progress};

/// Groups that are listed for people; `--json` has all.
const SHOWN: usize = 20;

/// `kintsu hdfs ...`. Ctrl-C ends it; what a DataNode took half stays there as a block that is not counted.
pub async fn run(args: Hdfs, endpoint: Endpoint, json: bool) -> anyhow::Result<ExitCode> {
    let user = args.user.map_or_else(user, Ok)?;
    let namenode = NameNode::at(&args.namenode, &user)?;
    let command = match args.command {
        HdfsCommand::Coordinator(args) => {
            return hdfs_daemons::coordinator(args, namenode, endpoint, json).await;
        }
        HdfsCommand::Agent(args) => return hdfs_daemons::agent(args, endpoint, json).await,
        HdfsCommand::Store(command) => {
            return tokio::select! {
                done = hdfs_store::run(command, namenode, &endpoint, json) => done,
                code = super::interrupted() => code,
            };
        }
        HdfsCommand::Codec { codes, out } => return hdfs_codec::run(&codes, &out, &endpoint, json).await,
        command => command,
    };
    let work = async {
        match command {
            HdfsCommand::Status { path } => status(&namenode, &path, json).await,
            HdfsCommand::Get { path, out, range, block, agents } => {
                let agents = hdfs_daemons::asked(agents, &endpoint).await?;
                let reading = Reading { namenode: &namenode, path, range, block, agents, object: false };
                get(&reading, &out, json).await
            }
            HdfsCommand::Verify { path } => verify(&namenode, &path, json).await,
            HdfsCommand::Repair { path, despite_maintenance } => {
                repair(&namenode, &path, despite_maintenance, json).await
            }
            HdfsCommand::Watch { path, scan, agents } => {
                let coordinator = hdfs_daemons::coordinator_of(agents, &endpoint)?;
                hdfs_watch::run(&namenode, &path, scan, coordinator, json).await
            }
            HdfsCommand::Coordinator(_)
            | HdfsCommand::Agent(_)
            | HdfsCommand::Codec { .. }
            | HdfsCommand::Store(_) => Ok(ExitCode::FAILURE),
        }
    };
    tokio::select! {
        done = work => done,
        code = super::interrupted() => code,
    }
}

/// The user as Hadoop's own clients determine it.
fn user() -> anyhow::Result<String> {
    let told = ["HADOOP_USER_NAME", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    match told.filter(|user| !user.is_empty()) {
        Some(user) => Ok(user),
        None if rustix::process::getuid().is_root() => Ok("root".into()),
        None => anyhow::bail!("who calls HDFS: expected HADOOP_USER_NAME, USER or --user, got none"),
    }
}

async fn status(namenode: &NameNode, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let found = match kintsu_hdfs::status(namenode, path).await {
        Ok(found) => found,
        Err(error) => {
            output::complain(json, "hdfs", &error.to_string());
            return Ok(ExitCode::from(2));
        }
    };
    if json {
        output::json(&found)?;
    } else {
        show_status(&found)?;
    }
    Ok(ExitCode::from(match (found.lost(), found.at_risk.len()) {
        (0, 0) => 0,
        (0, _) => 1,
        _ => 2,
    }))
}

fn show_status(found: &Status) -> anyhow::Result<()> {
    output::line(&format!(
        "{} block groups of {} files ({}), {} at risk, {} lost; {} replicated files",
        found.groups,
        found.files,
        human(found.bytes),
        found.at_risk.len() - found.lost(),
        found.lost(),
        found.replicated
    ))?;
    for (node, ms) in &found.silent {
        output::line(&format!("DataNode {node} is silent for {} s", ms / 1000))?;
    }
    if !found.at_risk.is_empty() {
        let mut table = output::table(["file", "group", "policy", "missing", "silent", "survives"]);
        for group in found.at_risk.iter().take(SHOWN) {
            let AtRisk { path, group, policy, missing, silent, corrupt, spare } = group;
            let lost = if *corrupt { "lost: HDFS lists bad copies" } else { "lost" };
            let survives = spare.map_or(lost.to_owned(), |spare| format!("{spare} more"));
            table.add_row([
                path.clone(),
                group.to_string(),
                policy.clone(),
                numbers(missing),
                numbers(silent),
                survives,
            ]);
        }
        output::line(&table.to_string())?;
        if found.at_risk.len() > SHOWN {
            output::line(&format!("and {} more: --json lists all", found.at_risk.len() - SHOWN))?;
        }
    }
    skipped(&found.skipped)?;
    notes(&found.notes)
}

pub(super) fn numbers(indices: &[u8]) -> String {
    if indices.is_empty() {
        return "-".into();
    }
    indices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn skipped(skipped: &[String]) -> anyhow::Result<()> {
    skipped.iter().try_for_each(|why| output::line(&format!("not judged: {why}")))
}

pub(super) fn notes(notes: &[String]) -> anyhow::Result<()> {
    notes.iter().try_for_each(|text| output::line(&format!("note: {text}")))
}

/// What `kintsu hdfs get` reads.
pub(super) struct Reading<'a> {
    pub namenode: &'a NameNode,
    pub path: String,
    pub range: Option<ByteRange>,
    pub block: Option<i64>,
    pub agents: Option<Agents>,
    /// An object of `kintsu hdfs store`.
    pub object: bool,
}

impl Reading<'_> {
    /// The range of the file; nothing for a single block.
    async fn range(&self) -> anyhow::Result<Option<Range<u64>>> {
        if self.block.is_some() {
            return Ok(None);
        }
        let bytes = match self.object {
            true => objects::object_bytes(self.namenode, &self.path).await?,
            false => kintsu_hdfs::file_bytes(self.namenode, &self.path).await?,
        };
        let Some(ByteRange { first, last }) = self.range else { return Ok(Some(0..bytes)) };
        let end = last.map_or(bytes, |last| last + 1).min(bytes);
        let path = &self.path;
        anyhow::ensure!(first < end, "{path}: expected a range within {bytes} bytes, got one from {first}");
        Ok(Some(first..end))
    }

    async fn run(&self, range: Option<Range<u64>>, out: &mpsc::Sender<Vec<u8>>) -> anyhow::Result<Got> {
        let (namenode, path, agents) = (self.namenode, &self.path, self.agents.as_ref());
        let Some(range) = range else {
            let block = self.block.unwrap_or_default();
            return Ok(kintsu_hdfs::get_block(namenode, path, block, agents, out).await?);
        };
        let expected = range.end - range.start;
        let got = match self.object {
            true => objects::get_object(namenode, path, range, agents, out).await?,
            false => kintsu_hdfs::get(namenode, path, range, agents, out).await?,
        };
        anyhow::ensure!(
            got.bytes == expected || out.is_closed(),
            "{path}: expected {expected} bytes, got {}; it is being written, and its last block group is not complete",
            got.bytes
        );
        Ok(got)
    }
}

pub(super) async fn get(reading: &Reading<'_>, out: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let path = &reading.path;
    let range = reading.range().await?;
    let destination = Destination::of(out, path)?;
    let to_stdout = matches!(destination, Destination::Stdout);
    let opened = tokio::task::spawn_blocking(|| destination.open()).await??;
    let mut file = opened.file.try_clone()?;
    let bar = progress::bytes(path);
    if let Some(range) = &range {
        bar.set_length(range.end - range.start);
    }
    let (sender, mut receiver) = mpsc::channel::<Vec<u8>>(2);
    let written = bar.clone();
    let writing = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        while let Some(piece) = receiver.blocking_recv() {
            file.write_all(&piece)?;
            written.inc(piece.len() as u64);
        }
        file.flush()
    });
    let got = reading.run(range, &sender).await;
    drop(sender);
    let written = writing.await?;
    progress::clear();
    let got = got?;
    match written {
        Err(error) if to_stdout => return Err(ClientError::of_sink(&error).into()),
        written => written.with_context(|| format!("cannot write {}", out.display()))?,
    }
    tokio::task::spawn_blocking(|| opened.publish())
        .await?
        .with_context(|| format!("cannot write {}", out.display()))?;
    match (json, to_stdout) {
        (true, false) => output::json(&got)?,
        (true, true) => eprintln!("{}", json!(got)),
        (false, true) => {}
        (false, false) => show_got(path, &got)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn show_got(path: &str, got: &Got) -> anyhow::Result<()> {
    let degraded = match got.degraded {
        0 => String::new(),
        some => format!("; {some} of {} block groups read degraded, {} by agents", got.groups, got.by_agents),
    };
    output::line(&format!("{path}: {}{degraded}", human(got.bytes)))?;
    got.causes.iter().try_for_each(|cause| output::line(&format!("  {cause}")))
}

async fn verify(namenode: &NameNode, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let bar = progress::steps("verifying");
    let mut show = |path: &str, bytes| bar.set_message(format!("{} verified; {path}", human(bytes)));
    let found = kintsu_hdfs::verify(namenode, path, &mut show).await;
    progress::clear();
    show_verified(&found?, "group", json)
}

/// Shows what was verified; `part` is what the groups are called.
pub(super) fn show_verified(found: &Verified, part: &str, json: bool) -> anyhow::Result<ExitCode> {
    let code = ExitCode::from(match (found.bad.is_empty(), found.skipped.is_empty()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    });
    if json {
        output::json(&found)?;
        return Ok(code);
    }
    output::line(&format!(
        "{} {part}s, {} read and compared: {} with something wrong",
        found.groups,
        human(found.bytes),
        found.bad.len()
    ))?;
    for BadGroup { path, group, unreadable, lost, mismatches, suspects } in &found.bad {
        for (index, why) in unreadable {
            output::line(&format!("{path}, {part} {group}: block {index} cannot be read: {why}"))?;
        }
        if !lost.is_empty() {
            output::line(&format!(
                "{path}, {part} {group}: blocks {} are lost, more than its code bears",
                numbers(lost)
            ))?;
        }
        if let Some(first) = mismatches.first() {
            let who = match suspects[..] {
                [one] => format!("block {one} holds wrong bytes under valid checksums"),
                [] => "several blocks hold wrong bytes under valid checksums".to_owned(),
                _ => {
                    format!("one of the blocks {} holds wrong bytes under valid checksums", numbers(suspects))
                }
            };
            output::line(&format!("{path}, {part} {group}: {who} (first at byte {first} of the blocks)"))?;
        }
    }
    for group in &found.unproved {
        output::line(&format!(
            "{group}: its blocks were not compared with each other; no more of them than needed are there"
        ))?;
    }
    skipped(&found.skipped)?;
    found.changed.iter().try_for_each(|what| output::line(&format!("changed meanwhile: {what}")))?;
    Ok(code)
}

async fn repair(namenode: &NameNode, path: &str, despite: bool, json: bool) -> anyhow::Result<ExitCode> {
    let mut show = show_repaired("group", json);
    let done = kintsu_hdfs::repair(namenode, path, despite, &mut show).await?;
    repaired(&done, &done, json)
}

/// Shows each block that is repaired; `part` is what groups are called.
pub(super) fn show_repaired(part: &'static str, json: bool) -> impl FnMut(&RepairedBlock) + Send {
    move |block| {
        if !json {
            // A repair goes on though its words cannot be written.
            let _ = output::line(&described(block, part));
        }
    }
}

/// Shows what a repair did: `all` of it for programs.
pub(super) fn repaired(all: &impl serde::Serialize, done: &Repaired, json: bool) -> anyhow::Result<ExitCode> {
    if json {
        output::json(all)?;
    } else {
        for resting in &done.resting {
            output::line(&format!("left alone: {resting}"))?;
        }
        for failure in &done.failed {
            output::line(&format!("failed: {failure}"))?;
        }
        output::line(&format!("{} blocks repaired, {} failures", done.blocks.len(), done.failed.len()))?;
    }
    Ok(ExitCode::from(if done.failed.is_empty() { 0 } else { 1 }))
}

fn described(block: &RepairedBlock, part: &str) -> String {
    let where_to = match &block.handed_over {
        HandedOver::To(node) => format!("counted on {node}"),
        HandedOver::NotNeeded(node) => format!("not needed any more, {node} has it"),
    };
    let proved = match block.proved {
        true => "",
        false => "; not proved, because no more blocks than needed were read",
    };
    let left_out = match block.left_out.is_empty() {
        true => String::new(),
        false => format!("; without blocks {}, which are bad", numbers(&block.left_out)),
    };
    let RepairedBlock { path, group, index, bytes, read, .. } = block;
    let read = read.len();
    format!(
        "{path}, {part} {group}, block {index} ({}) from {read}: {where_to}{proved}{left_out}",
        human(*bytes)
    )
}
