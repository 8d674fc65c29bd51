//! `kintsu backup`, and how a coordinator reports what it restored.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use kintsu_client::Backup;
use kintsu_coordinator::Restored;
use kintsu_wire::copy::CheckedCopy;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use super::Context;
use super::destination::folder_of;
use crate::units::{human, moment, span};
use crate::{cli, inherited, output, progress};

/// `kintsu backup`.
pub async fn backup(args: cli::Backup, context: &Context) -> anyhow::Result<ExitCode> {
    let started = Instant::now();
    let backup = context.client.backup().await?;
    let to_output = args.out.as_os_str() == "-";
    let copy = if to_output {
        inherited::check_output()?;
        let mut out = std::io::stdout().lock();
        let copy = receive(backup, &mut out).await?;
        out.flush()?;
        copy
    } else {
        to_file(backup, &args.out).await?
    };
    progress::clear();
    let seconds = started.elapsed().as_secs_f64();
    let said = if context.json {
        as_json(&copy, seconds).to_string()
    } else {
        let header = &copy.header;
        format!(
            "metadata of {}: {} object(s), {} stripe(s), in {} ({seconds:.2} s)",
            moment(header.time),
            header.objects,
            header.stripes,
            human(copy.bytes)
        )
    };
    // Standard output may be the copy itself.
    if to_output {
        eprintln!("{said}");
    } else {
        output::line(&said)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes to a temporary file, syncs and renames it, so that a file with this name is a whole copy.
async fn to_file(backup: Backup, path: &Path) -> anyhow::Result<CheckedCopy> {
    let cannot = || format!("cannot write {}", path.display());
    // Links are followed; anything that is not a regular file, such as a pipe, is written to directly.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let mut out = std::fs::File::options().write(true).open(path).with_context(cannot)?;
        return receive(backup, &mut out).await;
    }
    let folder = folder_of(path);
    let mut aside = NamedTempFile::with_prefix_in(".kintsu-backup-", folder).with_context(cannot)?;
    let copy = receive(backup, aside.as_file_mut()).await?;
    let file = aside.as_file();
    file.sync_all().with_context(cannot)?;
    aside.persist(path).with_context(cannot)?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).with_context(cannot)?;
    Ok(copy)
}

async fn receive(mut backup: Backup, out: &mut impl Write) -> anyhow::Result<CheckedCopy> {
    let bar = progress::count("stripes");
    while let Some(bytes) = backup.next().await? {
        out.write_all(&bytes).context("cannot write the copy")?;
        bar.set_length(backup.header().map_or(0, |header| header.stripes));
        bar.set_position(backup.stripes());
    }
    Ok(backup.finish()?)
}

fn as_json(copy: &CheckedCopy, seconds: f64) -> Value {
    let header = &copy.header;
    json!({
        "number": header.number,
        "time": header.time,
        "history": header.history,
        "objects": header.objects,
        "stripes": header.stripes,
        "bytes": copy.bytes,
        "sum": copy.sum.to_string(),
        "seconds": seconds,
    })
}

/// What was restored, for programs.
pub fn restored_json(restored: &Restored) -> Value {
    let header = &restored.header;
    json!({
        "from": restored.from,
        "number": header.number,
        "time": header.time,
        "age_seconds": restored.age_seconds,
        "objects": header.objects,
        "stripes": header.stripes,
        "seconds": restored.seconds,
    })
}

/// What was restored, for people.
pub fn restored_text(restored: &Restored) -> String {
    let header = &restored.header;
    format!(
        "metadata of {}, {} ago, restored from {} in {:.2} s: {} object(s), {} stripe(s)",
        moment(header.time),
        span(restored.age_seconds),
        restored.from,
        restored.seconds,
        header.objects,
        header.stripes
    )
}
