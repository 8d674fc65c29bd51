//! Copies of the cluster's metadata that this agent keeps for its coordinator, in a folder beside the blocks.
//!
//! The coordinator says which number to get. The agent fetches that copy by its own call, checks it, and keeps the
//! newest two. A copy gets its name only when all of it is durable and its sum was right. The agent does not
//! interpret its content.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use kintsu_store::BlockStore;
use kintsu_wire::MembershipChannel;
use kintsu_wire::copy::{COPY_SUM_BYTES, CheckedCopy, CopyCheck, CopyHeader, CopySum};
use kintsu_wire::message::{Backup, CopyChunk, KeptCopy};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tonic::Status;

/// The folder of copies, inside the agent's folder.
const FOLDER: &str = "metadata-copies";
/// A copy's file name is its number and this suffix.
const SUFFIX: &str = ".kintsu";
/// The suffix of a copy that is not complete.
const UNFINISHED: &str = ".tmp";
/// Copies that are kept.
const KEPT: usize = 2;
/// Bytes of a copy that are read at a time.
const PIECE_BYTES: usize = 512 << 10;
/// A copy's header lies within this many first bytes.
const HEAD_BYTES: u64 = 65 << 10;

/// Gets the copy of this number from the coordinator and keeps it in the folder of this store; removes older ones.
///
/// # Errors
/// The coordinator does not send it, or not completely; the disk fails, or another folder is in its place. The copies kept before stay
/// then.
pub async fn keep(
    store: Arc<dyn BlockStore>,
    dir: &Path,
    coordinator: MembershipChannel,
    number: u64,
) -> Result<KeptCopy, Status> {
    let (dir, folder) = (dir.to_owned(), dir.join(FOLDER));
    let made = folder.clone();
    off(move || make(&*store, &dir, &made)).await.map_err(|e| failed("cannot make", &folder, &e))?;
    let aside = Unfinished(folder.join(format!("{number}{UNFINISHED}")));
    let checked = get(coordinator, number, &aside.0).await?;
    if checked.header.number != number {
        let got = checked.header.number;
        return Err(Status::data_loss(format!("expected copy {number} of the metadata, got {got}")));
    }
    let path = folder.join(format!("{number}{SUFFIX}"));
    let (from, to) = (aside.0.clone(), path.clone());
    let name = move || {
        std::fs::rename(from, to)?;
        File::open(&folder)?.sync_all()?;
        forget(&folder, number);
        Ok(())
    };
    off(name).await.map_err(|e| failed("cannot keep", &path, &e))?;
    Ok(kept(checked.header, checked.bytes, checked.sum))
}

/// Runs blocking disk calls outside of the asynchronous threads.
async fn off(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    kintsu_wire::ambient::blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// A file that is removed when dropped, unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // If this fails, the next copy removes the file.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn make(store: &dyn BlockStore, dir: &Path, folder: &Path) -> io::Result<()> {
    store.check_root().map_err(io::Error::other)?;
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir(folder)?;
    File::open(dir)?.sync_all()
}

/// Writes the copy to `aside`, durably.
async fn get(mut coordinator: MembershipChannel, number: u64, aside: &Path) -> Result<CheckedCopy, Status> {
    let unwritten = |e: io::Error| failed("cannot write", aside, &e);
    let mut pieces = coordinator.backup(Backup { number: Some(number) }).await?.into_inner();
    let mut file = tokio::fs::File::create(aside).await.map_err(unwritten)?;
    let mut check = CopyCheck::default();
    while let Some(piece) = pieces.message().await? {
        check.push(&piece.bytes).map_err(|e| Status::data_loss(e.to_string()))?;
        file.write_all(&piece.bytes).await.map_err(unwritten)?;
    }
    let checked = check.finish().map_err(|e| Status::data_loss(e.to_string()))?;
    file.flush().await.map_err(unwritten)?;
    file.sync_all().await.map_err(unwritten)?;
    Ok(checked)
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Status {
    Status::internal(format!("{what} {}: {error}", path.display()))
}

fn kept(header: CopyHeader, bytes: u64, sum: CopySum) -> KeptCopy {
    let CopyHeader { number, time, history, objects, stripes, .. } = header;
    KeptCopy { number, time, history, objects, stripes, bytes, sum }
}

/// The numbers of the copies in a folder, the newest first.
fn numbers(folder: &Path, suffix: &str) -> Vec<u64> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let number = |name: &str| name.strip_suffix(suffix)?.parse().ok();
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u64> = names.filter_map(|name| number(&name)).collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers
}

/// Removes all but the newest copies, and files that older attempts left.
fn forget(folder: &Path, number: u64) {
    let old = numbers(folder, SUFFIX).into_iter().skip(KEPT).map(|old| format!("{old}{SUFFIX}"));
    let left = numbers(folder, UNFINISHED).into_iter().filter(|left| *left < number);
    for name in old.chain(left.map(|left| format!("{left}{UNFINISHED}"))) {
        if let Err(error) = std::fs::remove_file(folder.join(&name)) {
            tracing::warn!("cannot remove the old copy {name} of the metadata: {error}");
        }
    }
}

/// The copies that are kept, newest first, from their headers; blocking. A file that is not a copy is skipped.
pub fn list(dir: &Path) -> Vec<KeptCopy> {
    let folder = dir.join(FOLDER);
    let numbers = numbers(&folder, SUFFIX).into_iter();
    numbers.filter_map(|number| glance(&folder.join(format!("{number}{SUFFIX}")))).collect()
}

/// What a copy says about itself, unchecked.
fn glance(path: &Path) -> Option<KeptCopy> {
    let mut file = File::open(path).ok()?;
    let mut head = Vec::new();
    (&mut file).take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let (header, _) = CopyHeader::parse(&head).ok()??;
    let bytes = file.seek(SeekFrom::End(0)).ok()?;
    file.seek(SeekFrom::Start(bytes.checked_sub(COPY_SUM_BYTES as u64)?)).ok()?;
    let mut sum = [0; COPY_SUM_BYTES];
    file.read_exact(&mut sum).ok()?;
    Some(kept(header, bytes, CopySum(sum)))
}

/// Opens a kept copy. Blocking.
///
/// # Errors
/// `NotFound`; the disk fails.
pub fn open(dir: &Path, number: u64) -> Result<File, Status> {
    let path = dir.join(FOLDER).join(format!("{number}{SUFFIX}"));
    File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Status::not_found(format!("copy {number} of the metadata is not kept here"))
        }
        _ => failed("cannot read", &path, &error),
    })
}

/// Sends a copy unchecked; the receiver checks it.
pub async fn send(mut file: File, pieces: mpsc::Sender<Result<CopyChunk, Status>>) {
    loop {
        let read = move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = (&mut file).take(PIECE_BYTES as u64).read_to_end(&mut piece);
            (file, read.map(|_| piece))
        };
        let Ok((back, read)) = kintsu_wire::ambient::blocking(read).await else { return };
        file = back;
        let piece = match read {
            Ok(piece) if piece.is_empty() => return,
            Ok(piece) => Ok(CopyChunk { bytes: Bytes::from(piece), done: 0 }),
            Err(error) => Err(Status::internal(format!("cannot read a copy of the metadata: {error}"))),
        };
        let last = piece.is_err();
        // The receiver may be gone.
        if pieces.send(piece).await.is_err() || last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_store::FileStore;
    use kintsu_wire::copy::CopySeal;

    fn made(dir: &Path) -> PathBuf {
        let folder = dir.join(FOLDER);
        make(&FileStore::open(dir).unwrap(), dir, &folder).unwrap();
        folder
    }

    fn write(folder: &Path, number: u64) -> Vec<u8> {
        let header = CopyHeader { number, time: number, stripes: 5, ..Default::default() };
        let mut copy = header.pack();
        copy.extend([1; 100]);
        let mut seal = CopySeal::default();
        seal.push(&copy);
        copy.extend(seal.sum().0);
        std::fs::write(folder.join(format!("{number}{SUFFIX}")), &copy).unwrap();
        copy
    }

    #[test]
    fn the_newest_two_are_kept_and_listed() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(list(dir.path()), []);
        let folder = made(dir.path());
        for number in [9, 100, 30, 8] {
            write(&folder, number);
        }
        for left in ["99.tmp", "101.tmp", "other.kintsu", "note"] {
            std::fs::write(folder.join(left), b"x").unwrap();
        }
        forget(&folder, 100);
        let listed = list(dir.path());
        assert_eq!(listed.iter().map(|copy| copy.number).collect::<Vec<_>>(), [100, 30]);
        assert_eq!((listed[0].stripes, listed[0].time), (5, 100));
        assert!(!folder.join("99.tmp").exists() && folder.join("101.tmp").exists());
        assert!(folder.join("other.kintsu").exists(), "nobody's files are removed");
    }

    #[test]
    fn nothing_is_made_in_another_folder_in_the_stores_place() {
        let above = tempfile::tempdir().unwrap();
        let (dir, disk) = (above.path().join("dir"), above.path().join("disk"));
        let store = FileStore::open(&dir).unwrap();
        std::fs::rename(&dir, &disk).unwrap();
        std::fs::create_dir(&dir).unwrap();
        assert!(make(&store, &dir, &dir.join(FOLDER)).is_err());
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
        std::fs::rename(&disk, &dir).unwrap();
        make(&store, &dir, &dir.join(FOLDER)).unwrap();
    }

    #[tokio::test]
    async fn a_copy_is_sent_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = made(dir.path());
        let copy = write(&folder, 7);
        let (pieces, mut sent) = mpsc::channel(4);
        tokio::spawn(send(open(dir.path(), 7).unwrap(), pieces));
        assert_eq!(sent.recv().await.unwrap().unwrap().bytes, copy);
        assert!(sent.recv().await.is_none());
        assert_eq!(open(dir.path(), 8).unwrap_err().code(), tonic::Code::NotFound);
    }
}
