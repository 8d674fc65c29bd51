//! How a process gets namespaces of its own: it starts itself again inside them.
//!
//! [`enter`] is called twice by the same command line. Outside, it uses `unshare` to start the running program
//! once more with the same arguments, in new user, network, mount and pid namespaces. The new process is root in
//! them, without privilege on the machine. The outer process then waits, keeps the entry in the
//! [registry](crate::registry), and passes on the exit code. Inside, it mounts what a lab needs and returns, and
//! the command continues.
//!
//! The whole lab depends on the inner process, which is the first of its pid namespace. When it ends, in whatever
//! way, the kernel ends all other processes of the namespace. With the last of them the interfaces, the namespaces
//! and the memory that held the data disappear. A socket pair, which is the standard input of the inner process,
//! connects the two. Over it the outer process learns what to write into the registry. When it closes, the inner
//! process knows that the outer one is gone, and ends. In addition, `unshare --kill-child` ends the inner process
//! when `unshare` dies.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::command::run;
use crate::error::{LabError, Result};
use crate::outside;
use crate::registry::Cluster;

/// The name of the lab, for the inner process; only the first process of a pid namespace reads it.
pub(crate) const NAME: &str = "KINTSU_LAB_INSIDE";
/// The entry in the registry. The inner process removes it if the outer one cannot.
pub(crate) const ENTRY: &str = "KINTSU_LAB_ENTRY";
/// The folder for data, if data are not kept in memory.
pub(crate) const FOLDER: &str = "KINTSU_LAB_FOLDER";

/// What the outer process sends to ask this one to end.
pub(crate) const END: &[u8] = b"end\n";

/// The default place of data: memory that is freed with the namespace.
const IN_MEMORY: &str = "/run/kintsu-lab";

/// Options of the namespaces.
#[derive(Debug, Clone, Default)]
pub struct Entry {
    /// The name in `kintsu lab list`; by default `lab`, `lab-2` and so on.
    pub name: Option<String>,
    /// A folder on a disk. A folder for the data is made in it and removed at the end. By default data are kept in
    /// memory, so that links are measured and not the disk.
    pub dir: Option<PathBuf>,
}

/// Where [`enter`] returned.
#[derive(Debug)]
pub enum Place {
    /// Inside the namespaces; the command continues.
    Inside,
    /// Outside, after the inner process ended with this code; nothing is left to do.
    Left(ExitCode),
}

/// Messages from the inner process to the outer one, one line of JSON each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The inner process has started; its id as the outer one sees it.
    Inside(u32),
    /// A cluster is up.
    Up(Cluster),
    /// The cluster is down again.
    Down,
}

/// What the inner process knows about its environment.
pub(crate) struct Surroundings {
    pub name: String,
    pub data: PathBuf,
    link: Mutex<UnixStream>,
}

static SURROUNDINGS: OnceLock<Surroundings> = OnceLock::new();

impl Surroundings {
    /// Sends a message to the outer process. If that is gone, this process ends soon too.
    pub fn tell(&self, message: &Message) {
        if let Ok(line) = serde_json::to_string(message) {
            let mut link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writeln!(link, "{line}");
        }
    }
}

/// The free bytes on the file system of a folder.
pub fn room(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// The surroundings of this process, if it is inside.
pub(crate) fn surroundings() -> Option<&'static Surroundings> {
    SURROUNDINGS.get()
}

/// Moves the running command into namespaces of its own. Returns `Inside` there, and `Left` in the original
/// process after the inner one has ended. Both processes run the same code up to this call, so call it first, from
/// the task that the runtime was started with.
///
/// # Errors
/// `Unsupported`, with the reason, where namespaces are not available; `Invalid` for a name that is taken.
pub async fn enter(entry: &Entry) -> Result<Place> {
    if SURROUNDINGS.get().is_some() {
        return Ok(Place::Inside);
    }
    let name = std::env::var(NAME).ok().filter(|_| std::process::id() == 1);
    let Some(name) = name else { return outside::supervise(entry).await.map(Place::Left) };
    let surroundings = prepare(name).await?;
    let _ = SURROUNDINGS.set(surroundings);
    Ok(Place::Inside)
}

async fn prepare(name: String) -> Result<Surroundings> {
    // While the old /proc is mounted, it shows this process as processes outside see it.
    let outer_id = std::fs::read_link("/proc/self").map_err(LabError::io("/proc/self"))?;
    let outer_id = outer_id
        .to_string_lossy()
        .parse()
        .map_err(|_| LabError::invalid("/proc/self", "a process id", outer_id.display()))?;
    let entry = std::env::var_os(ENTRY).map(|path| Unlisted::open(Path::new(&path))).transpose()?;
    let folder = std::env::var_os(FOLDER).map(PathBuf::from);
    // Small pages would cost processor time, which all hosts share. Not every kernel has large pages.
    let mount = async |options| run("mount", &["-t", "tmpfs", "-o", options, "tmpfs", "/run"], "").await;
    if mount("mode=0755,huge=within_size").await.is_err() {
        mount("mode=0755").await?;
    }
    run("mount", &["-t", "proc", "proc", "/proc"], "").await?;
    for needed in ["/run/netns", IN_MEMORY] {
        std::fs::create_dir_all(needed).map_err(LabError::io(needed))?;
    }
    let link = || -> std::io::Result<UnixStream> {
        let stdin: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
        Ok(UnixStream::from(stdin))
    };
    let what = || LabError::io("the link to the process outside");
    let watched = link().map_err(what())?;
    let on_disk = folder.clone();
    std::thread::spawn(move || end_with(watched, entry, on_disk));
    let data = folder.unwrap_or_else(|| IN_MEMORY.into());
    let surroundings = Surroundings { name, data, link: Mutex::new(link().map_err(what())?) };
    surroundings.tell(&Message::Inside(outer_id));
    Ok(surroundings)
}

/// Waits until the outer process is gone, passing on its wish that this one should end, removes what the outer process can no longer remove, and ends
/// everything.
fn end_with(mut link: UnixStream, entry: Option<Unlisted>, on_disk: Option<PathBuf>) {
    let mut nothing = [0; 16];
    while link.read(&mut nothing).is_ok_and(|read| read > 0) {
        // Without a handler the first process of a namespace ignores this; then the outer process closes the link.
        let _ = kill_process(rustix::process::getpid(), Signal::TERM);
    }
    end_all_others();
    if let Some(folder) = on_disk {
        let _ = std::fs::remove_dir_all(folder);
    }
    if let Some(entry) = entry {
        entry.remove();
    }
    std::process::exit(130);
}

/// Ends every other process of this pid namespace, and waits until none is running.
fn end_all_others() {
    for _ in 0..100 {
        let others: Vec<Pid> = others();
        if others.is_empty() {
            return;
        }
        for other in others {
            let _ = kill_process(other, Signal::KILL);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Processes of this namespace that have not ended. A zombie counts as ended.
fn others() -> Vec<Pid> {
    let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let runs = |id: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
    };
    ids.filter(|&id| id > 1).filter(runs).filter_map(Pid::from_raw).collect()
}

/// A file that can be removed although its folder is hidden by a mount.
struct Unlisted {
    folder: OwnedFd,
    name: std::ffi::OsString,
}

impl Unlisted {
    fn open(path: &Path) -> Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty());
        let folder = opened.map_err(|e| LabError::io(folder.display().to_string())(e.into()))?;
        Ok(Self { folder, name: path.file_name().unwrap_or_default().to_owned() })
    }

    fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}
