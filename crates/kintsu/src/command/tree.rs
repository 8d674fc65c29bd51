//! `kintsu put` of a folder and `kintsu get` of all objects whose names begin alike: many files at once, each whole
//! or not at all. A file that fails is named at the end; the others are not held up by it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use kintsu_client::{ClientError, FileSource, GetOptions};
use kintsu_wire::message::ObjectInfo;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::Context;
use super::destination::Destination;
use super::object::PutChoices;
use crate::{output, progress, units::human};

/// Files at work at the same time.
const AT_ONCE: u32 = 16;

/// A file of more bytes counts as several of those at work.
const LARGE_BYTES: u64 = 8 << 20;

/// Names found ahead of those at work.
const FOUND_AHEAD: usize = 1024;

/// Names of one call.
const PAGE: u32 = 1000;

/// Most failures that are named.
const MOST_NAMED: usize = 1000;

/// One file to be stored or written, or why it cannot be.
struct Found {
    /// The file, or the name of the object, for messages.
    from: String,
    bytes: u64,
    work: Result<(PathBuf, String), String>,
}

/// Stores all files of a folder under names that begin with `prefix`.
pub async fn put(
    folder: PathBuf,
    prefix: &str,
    choices: PutChoices,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    let (queue, found) = mpsc::channel(FOUND_AHEAD);
    let prefix = as_prefix(prefix);
    let walk = tokio::task::spawn_blocking(move || walk(&folder, &prefix, &queue));
    let (client, choices) = (context.client.clone(), Arc::new(choices));
    let report = all("put", found, move |file, name| {
        let (client, choices) = (client.clone(), choices.clone());
        async move {
            let source = FileSource::open(&file).map_err(anyhow::Error::from)?;
            let options = choices.options(&client, &name).await?;
            Ok(client.put(Arc::new(source), &name, options, |_, _| {}).await?.size)
        }
    });
    let report = report.await;
    walk.await?;
    report.tell(context)
}

/// Whether there are objects below `name`, as there are files below a folder.
///
/// # Errors
/// Whatever keeps the coordinator from answering.
pub async fn exists(name: &str, context: &Context) -> Result<bool, ClientError> {
    let page = context.client.list(&as_prefix(name), None, 1).await?;
    Ok(!page.objects.is_empty())
}

/// Writes all objects whose names begin with `prefix` into a folder, under the rest of their names.
pub async fn get(
    prefix: &str,
    folder: PathBuf,
    slice: Option<u32>,
    options: GetOptions,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        !folder.exists() || folder.is_dir(),
        "cannot write {}: expected a folder for the objects below {prefix:?}, got a file",
        folder.display()
    );
    std::fs::create_dir_all(&folder)
        .map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", folder.display()))?;
    let (queue, found) = mpsc::channel(FOUND_AHEAD);
    let (prefix, lister) = (as_prefix(prefix), context.client.clone());
    let listing = tokio::spawn(async move { list(&lister, &prefix, &folder, &queue).await });
    let client = context.client.in_slices(slice);
    let report = all("get", found, move |file, name| {
        let client = client.clone();
        async move {
            if let Some(folder) = file.parent() {
                tokio::fs::create_dir_all(folder)
                    .await
                    .map_err(|e| anyhow::anyhow!("cannot make the folder {}: {e}", folder.display()))?;
            }
            // A folder in the place of a file belongs to somebody else.
            let to = (file.as_path(), Destination::file(&file)?);
            let report = super::object::get_to(&client, &name, None, options, to, |_, _| {}).await?;
            Ok(report.bytes)
        }
    });
    let report = report.await;
    if !report.stopped {
        listing.await??;
    }
    report.tell(context)
}

/// A prefix as that of a folder: with a slash at its end, unless it is empty.
fn as_prefix(name: &str) -> String {
    if name.is_empty() || name.ends_with('/') { name.to_owned() } else { format!("{name}/") }
}

/// Finds the files of a folder, in order of name. Blocking. Ends early if nobody wants more.
fn walk(folder: &Path, prefix: &str, queue: &mpsc::Sender<Found>) {
    // The folders to look into: where they are, and what the names of their objects begin with.
    let mut rest = vec![(folder.to_owned(), prefix.to_owned())];
    while let Some((folder, prefix)) = rest.pop() {
        let failed = |path: &Path, why: String| {
            let from = path.display().to_string();
            queue.blocking_send(Found { from, bytes: 0, work: Err(why) }).is_ok()
        };
        let listed = std::fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut entries = match listed {
            Ok(entries) => entries,
            Err(e) if failed(&folder, e.to_string()) => continue,
            Err(_) => return,
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        let mut below = Vec::new();
        for entry in entries {
            let path = entry.path();
            let goes_on = match named(&entry, &prefix) {
                Err(why) => failed(&path, why),
                Ok((name, Some(bytes))) => {
                    let from = path.display().to_string();
                    queue.blocking_send(Found { from, bytes, work: Ok((path, name)) }).is_ok()
                }
                Ok((name, None)) => {
                    below.push((path, name + "/"));
                    true
                }
            };
            if !goes_on {
                return;
            }
        }
        rest.extend(below.into_iter().rev());
    }
}

/// The name of the object for an entry of a folder, and its length; `None` for a folder. Links to files are followed.
fn named(entry: &std::fs::DirEntry, prefix: &str) -> Result<(String, Option<u64>), String> {
    let name = entry.file_name();
    let name = name.to_str().ok_or("expected a name in UTF-8, got another one")?;
    let kind = entry.file_type().map_err(|e| e.to_string())?;
    let found = std::fs::metadata(entry.path()).map_err(|e| e.to_string())?;
    let name = format!("{prefix}{name}");
    match (kind.is_symlink(), found.is_dir(), found.is_file()) {
        (true, true, _) => Err("expected a file or a folder, got a link to a folder".into()),
        (false, true, _) => Ok((name, None)),
        (_, _, true) => Ok((name, Some(found.len()))),
        _ => Err("expected a file or a folder, got a device, a FIFO or a socket".into()),
    }
}

/// Finds the objects below a prefix, and where each is to be written.
async fn list(
    client: &kintsu_client::Client,
    prefix: &str,
    folder: &Path,
    queue: &mpsc::Sender<Found>,
) -> Result<(), ClientError> {
    let mut after: Option<String> = None;
    loop {
        let page = client.list(prefix, after.as_deref(), PAGE).await?;
        after = page.last().map(str::to_owned);
        for ObjectInfo { name, size, .. } in page.objects {
            let place = below(folder, name.strip_prefix(prefix).unwrap_or_default());
            let work = place.map(|place| (place, name.clone()));
            if queue.send(Found { from: name, bytes: size, work }).await.is_err() {
                return Ok(());
            }
        }
        if !page.more {
            return Ok(());
        }
    }
}

/// The file of a name below a folder. Names that would lead elsewhere are refused.
fn below(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let good = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    match name.split('/').all(good) {
        true => Ok(folder.join(name)),
        false => {
            Err(format!("{name:?} is no path below a folder: expected parts without \"..\", \".\" and \"\""))
        }
    }
}

/// What came of the files of a tree.
struct Report {
    what: &'static str,
    started: Instant,
    files: u64,
    bytes: u64,
    failures: u64,
    /// The first failures: the file or object, and why.
    failed: Vec<(String, String)>,
    /// Files were left out because the cluster does not answer.
    stopped: bool,
}

/// Does the work for each file that is found, many at a time.
async fn all<F>(
    what: &'static str,
    mut found: mpsc::Receiver<Found>,
    work: impl Fn(PathBuf, String) -> F,
) -> Report
where
    F: Future<Output = anyhow::Result<u64>> + Send + 'static,
{
    let mut report = Report::new(what);
    let (bar, room) = (progress::count(what), Arc::new(Semaphore::new(AT_ONCE as usize)));
    let (mut running, mut open) = (JoinSet::new(), true);
    while open || !running.is_empty() {
        tokio::select! {
            next = found.recv(), if open && running.len() < AT_ONCE as usize => match next {
                None => open = false,
                Some(Found { from, work: Err(why), .. }) => report.fail(from, why),
                Some(Found { from, bytes, work: Ok((file, name)) }) => {
                    bar.inc_length(1);
                    let weight = (bytes / LARGE_BYTES).clamp(1, u64::from(AT_ONCE) / 2) as u32;
                    let (work, room) = (work(file, name), room.clone());
                    running.spawn(async move {
                        let _permit = room.acquire_many_owned(weight).await;
                        (from, work.await)
                    });
                }
            },
            Some(ended) = running.join_next() => {
                bar.inc(1);
                match ended {
                    Ok((_, Ok(bytes))) => {
                        report.files += 1;
                        report.bytes += bytes;
                    }
                    Ok((from, Err(error))) => {
                        let gone = matches!(
                            error.downcast_ref(),
                            Some(ClientError::Unreachable(_) | ClientError::Refused(_))
                        );
                        report.fail(from, crate::output::causes(&error));
                        if gone {
                            (open, report.stopped) = (false, true);
                            found.close();
                        }
                    }
                    Err(error) => report.fail(what.into(), error.to_string()),
                }
            }
        }
    }
    progress::clear();
    report
}

impl Report {
    fn new(what: &'static str) -> Self {
        let started = Instant::now();
        Self { what, started, files: 0, bytes: 0, failures: 0, failed: Vec::new(), stopped: false }
    }

    /// Notes a failure. The name is left out of an error that begins with it.
    fn fail(&mut self, from: String, why: String) {
        self.failures += 1;
        if self.failed.len() < MOST_NAMED {
            let rest = why.strip_prefix(&from).and_then(|rest| rest.strip_prefix(": "));
            let why = rest.map_or_else(|| why.clone(), str::to_owned);
            self.failed.push((from, why));
        }
    }

    /// Prints it. Files that failed make the exit code an error.
    fn tell(self, context: &Context) -> anyhow::Result<ExitCode> {
        let seconds = self.started.elapsed().as_secs_f64();
        let a_second = self.files as f64 / seconds.max(1e-9);
        if context.json {
            let failed: Vec<_> =
                self.failed.iter().map(|(from, why)| json!({"name": from, "error": why})).collect();
            output::json(&json!({
                "files": self.files, "bytes": self.bytes, "seconds": seconds, "files_per_second": a_second,
                "failures": self.failures, "failed": failed, "stopped": self.stopped,
            }))?;
        } else {
            for (from, why) in &self.failed {
                eprintln!("kintsu: {from}: {why}");
            }
            let unnamed = self.failures - self.failed.len() as u64;
            if unnamed > 0 {
                eprintln!("kintsu: and {unnamed} more");
            }
            if self.stopped {
                eprintln!("kintsu: the other files were left out");
            }
            let failed =
                if self.failures > 0 { format!("; {} failed", self.failures) } else { String::new() };
            output::line(&format!(
                "{}: {} files, {}; {a_second:.0} files/s, {:.0} MB/s{failed}",
                self.what,
                self.files,
                human(self.bytes),
                self.bytes as f64 / 1e6 / seconds.max(1e-9),
            ))?;
        }
        Ok(if self.failures > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fails_is_named_once() {
        let mut report = Report::new("put");
        report.fail("d/a".into(), FileSource::open("d/a").unwrap_err().to_string());
        report.fail("d/b".into(), "expected a file".into());
        let [(_, missing), (_, other)] = &report.failed[..] else { panic!("two files") };
        assert!(missing.starts_with("No such file"), "{missing}");
        assert_eq!(other, "expected a file");
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        let folder = Path::new("/f");
        for (good, place) in [("a", "/f/a"), ("a/b c/..d", "/f/a/b c/..d"), ("...", "/f/...")] {
            assert_eq!(below(folder, good).unwrap(), Path::new(place));
        }
        for bad in ["", "/etc/passwd", "../a", "a/../../b", "a/..", "a//b", "a/", "./a", ".", "a\0b"] {
            assert!(below(folder, bad).is_err(), "{bad:?}");
        }
    }
}
