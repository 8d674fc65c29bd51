//! `kintsu hdfs store`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kintsu_code::Code;
use kintsu_hdfs::NameNode;
use kintsu_hdfs::objects::{self, Listed, Moved, ObjectStatus, PutOptions};

use super::code::resolve;
use super::hdfs::{Reading, get, notes, numbers, repaired, show_repaired, show_verified, skipped};
use super::hdfs_daemons::asked;
use super::{Context, job};
use crate::cli::{Endpoint, HdfsPut, HdfsStore};
use crate::units::{Bytes, human};
use crate::{output, progress};

/// Runs a command on objects in HDFS.
pub async fn run(
    command: HdfsStore,
    namenode: NameNode,
    endpoint: &Endpoint,
    json: bool,
) -> anyhow::Result<ExitCode> {
    match command {
        HdfsStore::Put(args) => put(args, Arc::new(namenode), endpoint, json).await,
        HdfsStore::Get { path, out, range, agents } => {
            let agents = asked(agents, endpoint).await?;
            let reading = Reading { namenode: &namenode, path, range, block: None, agents, object: true };
            get(&reading, &out, json).await
        }
        HdfsStore::Ls { path } => list(&namenode, &path, json).await,
        HdfsStore::Stat { path } => stat(&namenode, &path, json).await,
        HdfsStore::Rm { path } => remove(&namenode, &path, json).await,
        HdfsStore::Verify { path } => {
            let bar = progress::steps("verifying");
            let mut show = |path: &str, bytes| bar.set_message(format!("{} verified; {path}", human(bytes)));
            let found = objects::verify_objects(&namenode, &path, &mut show).await;
            progress::clear();
            show_verified(&found?, "stripe", json)
        }
        HdfsStore::Repair { path, deep, despite_maintenance } => {
            let mut show = show_repaired("stripe", json);
            let done =
                objects::repair_objects(&namenode, &path, deep, despite_maintenance, &mut show).await?;
            if !json {
                show_moved(&done.moved)?;
            }
            repaired(&done, &done.repaired, json)
        }
        HdfsStore::Encode { path, code, cell } => {
            let code = code_of(&code, endpoint, json).await?;
            encode(&Arc::new(namenode), &path, &code, cell, json).await
        }
        HdfsStore::Leftovers { path, remove } => leftovers(&namenode, &path, remove, json).await,
    }
}

/// The code of a name. The cluster is contacted only for registered codes.
async fn code_of(name: &str, endpoint: &Endpoint, json: bool) -> anyhow::Result<Arc<dyn Code>> {
    let client = endpoint.client().await?;
    resolve(name, &Context { client, json, following: job::Following::default() }).await
}

/// Opens a regular file.
fn open(path: &Path) -> anyhow::Result<std::fs::File> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        metadata.is_file(),
        "{}: expected a regular file, whose size is known before it is read, got another kind",
        path.display()
    );
    Ok(file)
}

async fn put(
    args: HdfsPut,
    namenode: Arc<NameNode>,
    endpoint: &Endpoint,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let options = PutOptions {
        code: code_of(&args.code, endpoint, json).await?,
        block_bytes: args.block.map(|bytes| bytes.0),
        cell_bytes: args.cell.map(|bytes| u32::try_from(bytes.0)).transpose().context("--cell")?,
        replace: args.replace,
    };
    let file = open(&args.file)?;
    let bar = progress::bytes(&args.path);
    bar.set_length(file.metadata().map_or(0, |metadata| metadata.len()));
    let mut show = |bytes| bar.set_position(bytes);
    let written = objects::put(&namenode, file, &args.path, &options, &mut show).await;
    progress::clear();
    let written = written?;
    if json {
        output::json(&written)?;
        return Ok(ExitCode::SUCCESS);
    }
    let replaced = if written.replaced { "; the object of this name was replaced" } else { "" };
    let (bytes, code, stripes) = (human(written.bytes), &written.code, written.stripes);
    output::line(&format!("{}: {bytes} under {code} in {stripes} stripes{replaced}", written.path))?;
    if !written.refused.is_empty() {
        output::line(&format!("{} DataNodes did not take blocks; others have them", written.refused.len()))?;
    }
    written.left.iter().try_for_each(|file| output::line(&format!("left of the old version: {file}")))?;
    notes(&written.notes)?;
    Ok(ExitCode::SUCCESS)
}

async fn encode(
    namenode: &Arc<NameNode>,
    path: &str,
    code: &Arc<dyn Code>,
    cell: Option<Bytes>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let cell = cell.map(|bytes| u32::try_from(bytes.0)).transpose().context("--cell")?;
    let bar = progress::steps("encoding");
    let mut show = |step: &str, bytes| bar.set_message(format!("{} {step}; {path}", human(bytes)));
    let done = objects::encode(namenode, path, code, cell, &mut show).await;
    progress::clear();
    let done = done?;
    if json {
        output::json(&done)?;
        return Ok(ExitCode::SUCCESS);
    }
    let resumed = if done.resumed { "; it was encoded before" } else { "" };
    output::line(&format!(
        "{path}: {} under {} in {} stripes, {} of parity; {} replicas before, 1 now{resumed}",
        human(done.bytes),
        done.code,
        done.stripes,
        human(done.parity_bytes),
        done.replicas
    ))?;
    show_moved(&done.moved)?;
    done.left.iter().try_for_each(|why| output::line(&format!("left: {why}")))?;
    notes(&done.notes)?;
    Ok(ExitCode::SUCCESS)
}

fn show_moved(moved: &[Moved]) -> anyhow::Result<()> {
    moved.iter().try_for_each(|Moved { path, stripe, index, from, to }| {
        output::line(&format!("{path}, stripe {stripe}, block {index}: moved from {from} to {to}"))
    })
}

async fn list(namenode: &NameNode, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let found = objects::list(namenode, path).await?;
    if json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["object", "size", "code", "stripes", "kind"]);
    for Listed { path, code, bytes, stripes, encoded } in &found.objects {
        let kind = if *encoded { "encoded file" } else { "object" };
        table.add_row([path.clone(), human(*bytes), code.clone(), stripes.to_string(), kind.to_owned()]);
    }
    output::line(&table.to_string())?;
    skipped(&found.skipped)?;
    Ok(ExitCode::SUCCESS)
}

async fn stat(namenode: &NameNode, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let found = match objects::object_status(namenode, path).await {
        Ok(found) => found,
        Err(error) => {
            output::complain(json, "hdfs", &error.to_string());
            return Ok(ExitCode::from(2));
        }
    };
    let replicated = found.replication.is_some_and(|count| count > 1);
    match json {
        true => output::json(&found)?,
        false => show_status(&found, replicated)?,
    }
    Ok(ExitCode::from(match found.spare {
        None => 2,
        Some(_) if found.missing.is_empty() && (found.crowded.is_empty() || replicated) => 0,
        Some(_) => 1,
    }))
}

fn show_status(found: &ObjectStatus, replicated: bool) -> anyhow::Result<()> {
    let Listed { path, code, bytes, stripes, encoded } = &found.listed;
    let kind = if *encoded { "encoded file" } else { "object" };
    output::line(&format!(
        "{path}: {kind} of {} under {code}, {stripes} stripes, blocks of {}",
        human(*bytes),
        human(found.block_bytes)
    ))?;
    if replicated {
        let count = found.replication.unwrap_or_default();
        output::line(&format!("its blocks still have {count} replicas: kintsu hdfs store encode goes on"))?;
    }
    match found.spare {
        Some(spare) => output::line(&format!("survives the loss of any {spare} further blocks of a stripe"))?,
        None => output::line("bytes are lost: too many blocks of a stripe are missing")?,
    }
    for stripe in found.missing.iter().map(|(stripe, _)| *stripe).collect::<std::collections::BTreeSet<_>>() {
        let of_it = found.missing.iter().filter(|(other, _)| *other == stripe).map(|(_, index)| *index);
        let indices: Vec<u8> = of_it.collect();
        output::line(&format!("stripe {stripe}: blocks {} are missing", numbers(&indices)))?;
    }
    for stripe in &found.crowded {
        output::line(&format!("stripe {stripe}: two blocks are on one DataNode"))?;
    }
    Ok(())
}

async fn remove(namenode: &NameNode, path: &str, json: bool) -> anyhow::Result<ExitCode> {
    let removed = objects::remove(namenode, path).await?;
    if json {
        output::json(&removed)?;
    } else {
        output::line(&format!("{} is removed ({})", removed.path, human(removed.bytes)))?;
        removed.left.iter().try_for_each(|file| output::line(&format!("left: {file}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn leftovers(namenode: &NameNode, path: &str, remove: bool, json: bool) -> anyhow::Result<ExitCode> {
    let found = objects::leftovers(namenode, path, remove).await?;
    if json {
        output::json(&serde_json::json!({ "files": found, "removed": remove }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let verb = if remove { "removed" } else { "left over" };
    found.iter().try_for_each(|file| output::line(&format!("{verb}: {file}")))?;
    output::line(&format!("{} files {verb}", found.len()))?;
    Ok(ExitCode::SUCCESS)
}
