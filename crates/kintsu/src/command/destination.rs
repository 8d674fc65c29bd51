//! Where `kintsu get` writes.
//!
//! A regular file is written without a name in the folder of the real file, and gets its name when it is whole and durable. So
//! a failed read leaves the old file as it was, a killed one leaves nothing, and after a power failure the name is that of the old
//! file or of the whole new one. On file systems without unnamed
//! files (`O_TMPFILE`) the part has the name `.NAME.kintsu-part-PID-N`, and stays after a kill. The new file keeps
//! the mode of the file that it replaces, and the owner if permitted. Links are followed. Anything but a regular
//! file (a FIFO, a device) is written to directly, never replaced.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Seek as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, OFlags, Uid};

use crate::inherited;

/// Most links that are followed, one after the other.
const MOST_LINKS: usize = 40;

/// Parts that were named until now.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Bytes of a file's name that are kept in the name of its part, so that the whole name stays below 255 bytes.
const NAME_BYTES: usize = 200;

/// What a path means, before anything is opened.
#[derive(Debug)]
pub enum Destination {
    /// This process's standard output.
    Stdout,
    /// Something other than a regular file; or a file that cannot be replaced because its folder is not writable.
    Through(PathBuf),
    /// A regular file by its real name: an existing one (with its metadata), or a new one.
    File(PathBuf, Option<Metadata>),
}

impl Destination {
    /// Finds out what `path` means. A folder means a file in it with the last part of the object's `name`.
    ///
    /// # Errors
    /// Nothing can be written there; the message says why.
    pub fn of(path: &Path, name: &str) -> anyhow::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        let cannot = || format!("cannot write {}", path.display());
        match Self::follow(path).with_context(cannot)? {
            Found::Folder(folder) => {
                let last = file_name(name).with_context(|| {
                    format!(
                        "{} is a folder: expected a file, because the object's name {name:?} gives no file name",
                        path.display()
                    )
                })?;
                Self::file(&folder.join(last))
            }
            Found::Other(destination) => Ok(destination),
        }
    }

    /// Finds out what `path` means, which must not be a folder.
    ///
    /// # Errors
    /// Nothing can be written there; the message says why.
    pub fn file(path: &Path) -> anyhow::Result<Self> {
        match Self::follow(path).with_context(|| format!("cannot write {}", path.display()))? {
            Found::Folder(_) => anyhow::bail!("expected a file to write, got the folder {}", path.display()),
            Found::Other(destination) => Ok(destination),
        }
    }

    fn follow(path: &Path) -> anyhow::Result<Found> {
        let mut at = path.to_owned();
        for _ in 0..MOST_LINKS {
            let link = match std::fs::symlink_metadata(&at) {
                Ok(found) if found.is_symlink() => std::fs::read_link(&at)?,
                Ok(found) => return Self::existing(at, found),
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let slashed = at.as_os_str().as_bytes().ends_with(b"/");
                    anyhow::ensure!(!slashed, "expected a folder that exists");
                    return Ok(Found::Other(Self::File(at, None)));
                }
                Err(e) => return Err(e.into()),
            };
            if is_descriptor(&at) {
                return Self::descriptor(at);
            }
            at = at.parent().unwrap_or(Path::new("")).join(link);
        }
        anyhow::bail!("expected at most {MOST_LINKS} links one after the other, got more")
    }

    fn existing(path: PathBuf, found: Metadata) -> anyhow::Result<Found> {
        let kind = found.file_type();
        if kind.is_dir() {
            return Ok(Found::Folder(path));
        }
        anyhow::ensure!(!kind.is_socket(), "expected a file, a FIFO or a device, got a socket");
        if !kind.is_file() {
            return Ok(Found::Other(Self::Through(path)));
        }
        // A file without write permission is not replaced either.
        rustix::fs::access(&path, Access::WRITE_OK)?;
        let real = std::fs::canonicalize(&path)?;
        if rustix::fs::access(folder_of(&real), Access::WRITE_OK).is_err() {
            return Ok(Found::Other(Self::Through(real)));
        }
        Ok(Found::Other(Self::File(real, Some(found))))
    }

    /// The open file of a process keeps its position: it is written to, not replaced.
    fn descriptor(path: PathBuf) -> anyhow::Result<Found> {
        let same = |mine: io::Result<File>| {
            let (Ok(there), Ok(mine)) = (std::fs::metadata(&path), mine.and_then(|mine| mine.metadata()))
            else {
                return false;
            };
            (there.dev(), there.ino()) == (mine.dev(), mine.ino())
        };
        let number = path.file_name().is_some_and(|name| name == "1");
        if number && same(io::stdout().as_fd().try_clone_to_owned().map(File::from)) {
            return Ok(Found::Other(Self::Stdout));
        }
        Ok(Found::Other(Self::Through(path)))
    }

    /// Opens it. Call this only when there is something to write: a target that is written to directly may lose
    /// its content.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open(self) -> anyhow::Result<Opened> {
        let opened = match &self {
            Self::Stdout => inherited::check_output()
                .and_then(|()| io::stdout().as_fd().try_clone_to_owned())
                .map(|fd| Opened::through(fd.into())),
            Self::Through(path) => {
                OpenOptions::new().write(true).truncate(true).open(path).map(Opened::through)
            }
            Self::File(path, old) => aside(path, old.as_ref()),
        };
        opened.with_context(|| match &self {
            Self::Stdout => "cannot write to standard output".into(),
            Self::Through(path) | Self::File(path, _) => format!("cannot write {}", path.display()),
        })
    }
}

enum Found {
    Folder(PathBuf),
    Other(Destination),
}

/// The last part of an object's name, if it is a valid file name.
fn file_name(name: &str) -> Option<&str> {
    let last = name.rsplit('/').next()?;
    (!matches!(last, "" | "." | "..") && !last.contains('\0')).then_some(last)
}

/// Whether the link is one of `/proc/PID/fd`: it leads to an open file, whatever its name.
fn is_descriptor(link: &Path) -> bool {
    let folder = link.parent().and_then(|folder| std::fs::canonicalize(folder).ok());
    folder.is_some_and(|folder| folder.starts_with("/proc") && folder.ends_with("fd"))
}

/// A file that is being written.
#[derive(Debug)]
pub struct Opened {
    /// What to write to.
    pub file: File,
    /// How to publish the file when all is written; `None` if it is written to directly.
    publish: Option<Publish>,
}

#[derive(Debug)]
struct Publish {
    path: PathBuf,
    old: Option<Metadata>,
    /// The part's name until the file is whole; `None` if it has no name.
    part: Option<Part>,
}

/// A name in the file system that is removed on drop.
#[derive(Debug)]
struct Part(PathBuf);

impl Drop for Part {
    fn drop(&mut self) {
        // After the rename there is nothing left to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A new file beside `path`, without a name if possible.
fn aside(path: &Path, old: Option<&Metadata>) -> io::Result<Opened> {
    let folder = folder_of(path);
    // The new file must not be readable by more users than the old one, until it has the old one's mode.
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    let publish = |part| Some(Publish { path: path.to_owned(), old: old.cloned(), part });
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    // It gets its name through /proc.
    if Path::new("/proc/self/fd").exists()
        && let Ok(file) = rustix::fs::openat(CWD, folder, flags, Mode::from_raw_mode(mode))
    {
        return Ok(Opened { file: file.into(), publish: publish(None) });
    }
    let part = part_of(path);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(mode).open(&part)?;
    Ok(Opened { file, publish: publish(Some(Part(part))) })
}

/// The folder that a file is in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The name of a part while it is written: names the program, the file and the process.
fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let mut part = OsString::from(".");
    part.push(OsString::from_vec(name[..name.len().min(NAME_BYTES)].to_vec()));
    // Long names may be cut to the same.
    let number = PARTS.fetch_add(1, Ordering::Relaxed);
    part.push(format!(".kintsu-part-{}-{number}", std::process::id()));
    folder_of(path).join(part)
}

impl Opened {
    fn through(file: File) -> Self {
        Self { file, publish: None }
    }

    /// Gives the file its name, now that it is whole. Waits until its bytes are durable.
    ///
    /// # Errors
    /// Errors of the file system; then the old file is as it was, unless it had to be overwritten.
    pub fn publish(self) -> io::Result<()> {
        let Self { mut file, publish } = self;
        let Some(Publish { path, old, part }) = publish else { return Ok(()) };
        if let Some(old) = &old {
            inherit(&file, old)?;
        }
        // Otherwise a file system may keep the new name, and neither the old bytes nor the new ones.
        file.sync_all()?;
        let part = match part {
            Some(part) => Ok(part),
            None => linked(&file, part_of(&path)),
        };
        // Only the rename happens here; the part itself is removed when dropped.
        match part.and_then(|part| std::fs::rename(&part.0, &path)) {
            Ok(()) => Ok(()),
            // A file of another user in a folder like /tmp, or a file that is a mount point.
            Err(e)
                if old.is_some()
                    && matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::ResourceBusy) =>
            {
                file.rewind()?;
                let mut over = OpenOptions::new().write(true).truncate(true).open(&path)?;
                io::copy(&mut file, &mut over)?;
                over.sync_all()
            }
            Err(e) => Err(e),
        }
    }
}

/// Gives a file without a name this one.
fn linked(file: &File, name: PathBuf) -> io::Result<Part> {
    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    let link = || rustix::fs::linkat(CWD, &open, CWD, &name, AtFlags::SYMLINK_FOLLOW);
    match link() {
        // Left by a killed process that had the same id.
        Err(rustix::io::Errno::EXIST) => {
            std::fs::remove_file(&name)?;
            link()?;
        }
        other => other?,
    }
    Ok(Part(name))
}

/// Copies owner and mode of the replaced file. If the owner cannot be kept, the set-user and set-group bits are
/// dropped.
fn inherit(file: &File, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let same = (new.uid(), new.gid()) == (old.uid(), old.gid());
    let owner = (Some(Uid::from_raw(old.uid())), Some(Gid::from_raw(old.gid())));
    let kept = same || rustix::fs::fchown(file, owner.0, owner.1).is_ok();
    let mode = old.mode() & if kept { 0o7777 } else { 0o777 };
    Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
}
