//! What `kintsu put` reads: a file, a folder, or a stream (standard input, a pipe, a FIFO, a device); and how bytes are
//! streamed to an open file or pipe.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kintsu_client::FileSource;
use tokio::io::{AsyncWrite, BufWriter};
use tokio::net::unix::pipe;

use crate::inherited;

/// Bytes that a pipe should hold, so that its two ends wait for each other less often.
const PIPE_BYTES: usize = 1 << 20;

/// Bytes that are gathered before they are written to something that is no pipe.
const GATHERED_BYTES: usize = 1 << 20;

/// What is stored.
pub enum Input {
    /// A regular file.
    File(FileSource),
    /// All files of a folder.
    Folder(PathBuf),
    /// Bytes that come in order, and whose number is not known.
    Stream(File),
}

impl Input {
    /// Opens what is at `path`, `-` for standard input. Waits until a FIFO has a writer.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn open(path: &Path) -> anyhow::Result<Self> {
        let named = || format!("cannot read {}", path.display());
        if path == Path::new("-") {
            let stdin = inherited::check_input().and_then(|()| io::stdin().as_fd().try_clone_to_owned());
            return stdin.map(|fd| Self::Stream(stream(fd.into()))).context("cannot read standard input");
        }
        let found = std::fs::metadata(path).with_context(named)?;
        if found.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        if found.is_file() {
            return FileSource::open(path).map(Self::File).map_err(|e| anyhow::anyhow!("cannot read {e}"));
        }
        anyhow::ensure!(!found.file_type().is_socket(), "cannot read {}: it is a socket", path.display());
        let owned = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || File::open(owned)).await?;
        opened.map(|file| Self::Stream(stream(file))).with_context(named)
    }
}

/// An open file as a stream: its reads wait until there are bytes, also if other holders of a pipe want to be told to
/// come back later.
pub fn stream(file: File) -> File {
    again(&file, File::open).unwrap_or(file)
}

/// The same pipe, opened again by `open`: whether reads and writes wait is a property of the open file, which has other
/// holders. Not for a FIFO with a name: if its other end is gone when it is opened again, nothing tells that it has ended.
fn again<T>(file: &File, open: impl FnOnce(String) -> io::Result<T>) -> io::Result<T> {
    // A smaller pipe is slower, nothing more; what is no pipe refuses.
    let _ = rustix::pipe::fcntl_setpipe_size(file, PIPE_BYTES);
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    if !std::fs::read_link(&own)?.as_os_str().as_encoded_bytes().starts_with(b"pipe:") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    open(own)
}

/// Where bytes go that come in order.
pub type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// Writes to an open file, from its position on.
pub fn sink(file: File) -> Sink {
    match again(&file, |own| pipe::OpenOptions::new().open_sender(own)) {
        Ok(sender) => Box::new(sender),
        Err(_) => Box::new(BufWriter::with_capacity(GATHERED_BYTES, tokio::fs::File::from_std(file))),
    }
}
