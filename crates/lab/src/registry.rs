//! The labs of this user, one file each in a folder of the user's own, so that one command finds the labs of
//! another. An entry is a hint: the reader checks that its process lives, and otherwise removes the entry.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, getuid, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::quantity::quoted;

/// How long a lab may take to end after it is told to.
const PATIENCE: Duration = Duration::from_secs(15);

/// A lab of this user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// Its name.
    pub name: String,
    /// The process that was started to run it.
    pub process: u32,
    /// When that process was started, in the kernel's ticks since boot. This distinguishes it from a later process
    /// with the same id.
    pub started: u64,
    /// The first process inside, as this process sees it.
    pub inside: Option<u32>,
    /// The folder of its data, if it is on a disk.
    pub dir: Option<PathBuf>,
    /// The command line that started it.
    pub command: String,
    /// The cluster in it, when that is up.
    pub cluster: Option<Cluster>,
}

/// A cluster that is up in a lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// The coordinator, as seen from inside.
    pub endpoint: String,
    /// The token that the cluster requires.
    pub token: String,
    /// How many nodes it has.
    pub nodes: usize,
    /// How many racks it has.
    pub racks: usize,
}

/// An entry of this process; dropping it removes it.
#[derive(Debug)]
pub(crate) struct Reservation {
    path: PathBuf,
    listing: Listing,
}

impl Reservation {
    pub fn listing(&self) -> &Listing {
        &self.listing
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Changes the entry atomically.
    pub fn update(&mut self, change: impl FnOnce(&mut Listing)) -> Result<()> {
        change(&mut self.listing);
        let aside = self.path.with_extension("tmp");
        let write = || {
            write(OpenOptions::new().write(true).create(true).truncate(true), &aside, &self.listing)?;
            std::fs::rename(&aside, &self.path)
        };
        write().map_err(LabError::io(self.path.display().to_string()))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Registers a lab of this process under this name, or under the first free name.
pub(crate) fn reserve(name: Option<&str>, dir: Option<&Path>) -> Result<Reservation> {
    let folder = folder()?;
    // Removes entries of dead processes, so that their names are free.
    list()?;
    let numbered = (2..).map(|n| format!("lab-{n}"));
    let names: Box<dyn Iterator<Item = String>> = match name {
        Some(name) => Box::new(std::iter::once(checked(name)?.to_owned())),
        None => Box::new(std::iter::once("lab".to_owned()).chain(numbered.take(1000))),
    };
    let process = std::process::id();
    let mut listing = Listing {
        name: String::new(),
        process,
        started: started(process).unwrap_or_default(),
        inside: None,
        dir: dir.map(Path::to_owned),
        command: std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        cluster: None,
    };
    for name in names {
        let path = path_of(&folder, &name);
        listing.name = name;
        match write(OpenOptions::new().write(true).create_new(true), &path, &listing) {
            Ok(()) => return Ok(Reservation { path, listing }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(LabError::io(path.display().to_string())(e)),
        }
    }
    let got = format!("{:?}, which is up", listing.name);
    Err(LabError::invalid("name of the lab", "one that is free (see kintsu lab list)", got))
}

/// All live labs of this user, by name. Entries of dead labs are removed, with the folders that they left.
///
/// # Errors
/// `Io` when the folder of entries cannot be read, `Invalid` when it is not this user's own.
pub fn list() -> Result<Vec<Listing>> {
    let folder = folder()?;
    let io = || LabError::io(folder.display().to_string());
    let mut labs = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(io())? {
        let path = entry.map_err(io())?.path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        match serde_json::from_str::<Listing>(&text) {
            Ok(listing) if listing.lives() => labs.push(listing),
            Ok(listing) => {
                if let Some(dir) = &listing.dir {
                    let _ = std::fs::remove_dir_all(dir);
                }
                let _ = std::fs::remove_file(&path);
            }
            // Another process is about to write it.
            Err(_) if text.is_empty() => {}
            Err(error) => {
                tracing::warn!("{}: removed, because it is not a valid entry: {error}", path.display());
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    labs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(labs)
}

/// The lab of this name.
///
/// # Errors
/// `Invalid` when none is up, with the names of those that are.
pub fn find(name: &str) -> Result<Listing> {
    let labs = list()?;
    let names: Vec<&str> = labs.iter().map(|lab| lab.name.as_str()).collect();
    let expected = if names.is_empty() { "one that is up; none is".into() } else { names.join(" or ") };
    let found = labs.iter().find(|lab| lab.name == name).cloned();
    found.ok_or_else(|| LabError::invalid("name of the lab", expected, quoted(name)))
}

impl Listing {
    /// Whether its process is still there.
    pub fn lives(&self) -> bool {
        started(self.process) == Some(self.started)
    }

    /// Tells it to end and waits; ends it by force if it does not.
    ///
    /// # Errors
    /// `Io` when it cannot be signalled.
    pub async fn end(&self) -> Result<()> {
        self.signal(self.process, Signal::TERM)?;
        let end = tokio::time::Instant::now() + PATIENCE;
        while self.lives() {
            if tokio::time::Instant::now() > end {
                self.signal(self.process, Signal::KILL)?;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Removes its entry if the lab did not.
        list().map(drop)
    }

    fn signal(&self, process: u32, signal: Signal) -> Result<()> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw).filter(|_| self.lives());
        match pid.map(|pid| kill_process(pid, signal)) {
            None | Some(Ok(()) | Err(rustix::io::Errno::SRCH)) => Ok(()),
            Some(Err(e)) => {
                Err(LabError::io(format!("cannot end process {process} of {}", self.name))(e.into()))
            }
        }
    }

    /// A command that runs a program inside the lab, on the core switch or on a node's host, with the coordinator
    /// and token of its cluster in the environment.
    ///
    /// # Errors
    /// `Invalid` when the lab is not up yet, or has no such node.
    pub fn command(
        &self,
        node: Option<u32>,
        program: &[std::ffi::OsString],
    ) -> Result<std::process::Command> {
        let up = self.inside.zip(self.cluster.as_ref());
        let (inside, cluster) =
            up.ok_or_else(|| LabError::invalid("lab", "one whose cluster is up", quoted(&self.name)))?;
        if node.is_some_and(|node| node as usize >= cluster.nodes) {
            let expected = format!("a number below {}", cluster.nodes);
            return Err(LabError::invalid("node", expected, node.unwrap_or_default()));
        }
        let here = std::env::current_dir().map_err(LabError::io("the current folder"))?;
        let mut command = std::process::Command::new("nsenter");
        command.arg(format!("--target={inside}"));
        command.args(["--user", "--mount", "--net", "--pid", "--preserve-credentials"]);
        command.arg(format!("--wdns={}", here.display())).arg("--");
        if let Some(node) = node {
            let host = crate::address::host(kintsu_dag::NodeId(node));
            command.arg("nsenter").arg(format!("--net={}", crate::net::namespace(&host).display())).arg("--");
        }
        command.args(program);
        command.env("KINTSU_COORDINATOR", &cluster.endpoint).env("KINTSU_TOKEN", &cluster.token);
        Ok(command)
    }
}

fn checked(name: &str) -> Result<&str> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&name.len()) && name.chars().all(sound) {
        return Ok(name);
    }
    Err(LabError::invalid("name of the lab", "1 to 64 letters, digits, - and _", quoted(name)))
}

fn path_of(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// The folder of entries, made if it does not exist. Only the user may read it, because it contains tokens.
fn folder() -> Result<PathBuf> {
    let own = |path: &Path| {
        std::fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == getuid().as_raw())
    };
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| own(path));
    let folder = match runtime {
        Some(runtime) => runtime.join("kintsu-lab"),
        None => std::env::temp_dir().join(format!("kintsu-lab-{}", getuid().as_raw())),
    };
    match std::fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(LabError::io(folder.display().to_string())(e))
        }
        _ if own(&folder) => Ok(folder),
        _ => Err(LabError::invalid("folder of labs", "a folder of this user's own", folder.display())),
    }
}

fn write(options: &mut OpenOptions, path: &Path, listing: &Listing) -> std::io::Result<()> {
    let mut file: File = options.mode(0o600).open(path)?;
    file.write_all(serde_json::to_string(listing)?.as_bytes())
}

/// When a process was started (field 22 of its stat); `None` if it does not exist or has ended.
fn started(process: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["lab", "lab-2", "a_B9"] {
            assert_eq!(checked(good).unwrap(), good);
        }
        for bad in ["", "a/b", "..", "a b", &"x".repeat(65)] {
            assert!(checked(bad).unwrap_err().to_string().contains("expected"), "{bad}");
        }
    }

    #[test]
    fn a_process_is_told_from_a_later_one_of_its_number() {
        let own = std::process::id();
        let mut listing = Listing {
            name: "x".into(),
            process: own,
            started: started(own).unwrap(),
            inside: None,
            dir: None,
            command: String::new(),
            cluster: None,
        };
        assert!(listing.lives());
        listing.started += 1;
        assert!(!listing.lives());
        assert!(listing.command(None, &[]).unwrap_err().to_string().contains("is up"));
    }
}
