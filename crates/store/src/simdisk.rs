//! A disk in memory that loses power and fails on command, for tests.
//!
//! It keeps what was written and what was synced separately. A power failure leaves each 512-byte sector and each
//! name that was changed since its last sync in either the old or the new state, chosen independently: harsher
//! than a journaling file system. A change of a name is atomic, also a rename over an existing name. Unsynced
//! changes reach the medium in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::{Bound, Range};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile, Entry};
use crate::meta::DeviceCounters;

const SECTOR: usize = 512;

/// The time on this disk, as long as nobody sets it: it stands still.
pub const NOW_UNIX: u64 = 1_700_000_000;

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct SimDisk(Arc<Mutex<Medium>>);

#[derive(Default)]
struct Medium {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, Node>,
    synced_names: BTreeMap<PathBuf, Node>,
    operations: u64,
    /// Times that a file was made durable.
    syncs: u64,
    failure: Option<Failure>,
    /// What is done before the operation of this number.
    before: Option<(u64, Box<dyn FnOnce() + Send>)>,
    /// Files whose every read fails.
    unreadable: BTreeSet<usize>,
    /// Whether files can have one name only.
    no_links: bool,
    /// Bytes that all files may have together.
    capacity: Option<u64>,
    /// The time, if it was set.
    now_unix: Option<u64>,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    /// The sectors that may differ between the two.
    dirty: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Dir,
    File(usize),
}

/// What goes wrong, and when.
#[derive(Clone, Copy)]
pub enum Failure {
    /// The operation of this number fails, once.
    Once(u64, ErrorKind),
    /// From the operation of this number on nothing works: the process is dead.
    Dead(u64),
}

/// A small deterministic generator (xorshift), so that a failing seed can be run again.
struct Coin(u64);

impl Coin {
    fn toss(&mut self) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1
    }
}

impl SimDisk {
    fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what goes wrong, counting operations from 1 from now on.
    pub fn fail(&self, failure: Option<Failure>) {
        let mut medium = self.medium();
        medium.operations = 0;
        medium.failure = failure;
    }

    /// Calls `act` once, just before the operation of this number, counting from 1 since [`fail`](Self::fail). Other operations
    /// go on meanwhile.
    pub fn before(&self, operation: u64, act: impl FnOnce() + Send + 'static) {
        self.medium().before = Some((operation, Box::new(act)));
    }

    /// Does what is to be done before the operation that comes next.
    fn act(&self) {
        let act = {
            let mut medium = self.medium();
            let next = medium.operations + 1;
            medium.before.take_if(|(at, _)| *at == next)
        };
        if let Some((_, act)) = act {
            act();
        }
    }

    /// Begins an operation.
    fn operation(&self) -> io::Result<MutexGuard<'_, Medium>> {
        self.act();
        let mut medium = self.medium();
        medium.operation()?;
        Ok(medium)
    }

    /// Operations since [`fail`](Self::fail).
    pub fn operations(&self) -> u64 {
        self.medium().operations
    }

    /// How often a file was made durable.
    pub fn syncs(&self) -> u64 {
        self.medium().syncs
    }

    /// Calls `act` while every operation waits.
    pub fn paused<T>(&self, act: impl FnOnce() -> T) -> T {
        let _medium = self.medium();
        act()
    }

    /// Whether the process that uses it is dead; see [`Failure::Dead`].
    pub fn is_dead(&self) -> bool {
        let medium = self.medium();
        matches!(medium.failure, Some(Failure::Dead(at)) if medium.operations >= at)
    }

    /// Limits the bytes of all files together.
    pub fn limit(&self, capacity: Option<u64>) {
        self.medium().capacity = capacity;
    }

    /// Sets the time.
    pub fn set_now_unix(&self, now: u64) {
        self.medium().now_unix = Some(now);
    }

    /// The bytes of all files that have a name.
    pub fn used(&self) -> u64 {
        self.medium().used()
    }

    /// Another disk with the same content, and as much of it not synced yet.
    pub fn copied(&self) -> Self {
        let medium = self.medium();
        let copy = Medium {
            files: medium.files.clone(),
            names: medium.names.clone(),
            synced_names: medium.synced_names.clone(),
            unreadable: medium.unreadable.clone(),
            capacity: medium.capacity,
            now_unix: medium.now_unix,
            ..Medium::default()
        };
        Self(Arc::new(Mutex::new(copy)))
    }

    /// A file, which is made durably if it is absent: for those who keep something else than blocks here.
    ///
    /// # Errors
    /// The disk's.
    pub fn file(&self, path: &Path) -> io::Result<SimFile> {
        let mut medium = self.operation()?;
        let file = match medium.file(path) {
            Ok(file) => file,
            Err(_) => {
                let file = medium.files.len();
                medium.files.push(Content::default());
                medium.names.insert(path.to_path_buf(), Node::File(file));
                medium.synced_names.insert(path.to_path_buf(), Node::File(file));
                file
            }
        };
        Ok(SimFile { disk: self.clone(), file })
    }

    /// What a power failure now leaves of this disk; `seed` 0 keeps only what was synced.
    pub fn after_power_failure(&self, seed: u64) -> Self {
        let medium = self.medium();
        let mut coin = Coin(seed);
        let mut keep_new = || seed != 0 && coin.toss();
        let mut names = BTreeMap::new();
        let all: BTreeSet<_> = medium.names.keys().chain(medium.synced_names.keys()).collect();
        for path in all {
            let (new, old) = (medium.names.get(path), medium.synced_names.get(path));
            let node = if new != old && keep_new() { new } else { old };
            let reachable = path.parent().is_none_or(|dir| dir == Path::new("/") || names.contains_key(dir));
            if let (Some(&node), true) = (node, reachable) {
                names.insert(path.clone(), node);
            }
        }
        let files = medium.files.iter().map(|file| file.torn(&mut keep_new)).collect();
        let (synced_names, unreadable) = (names.clone(), medium.unreadable.clone());
        let (capacity, now_unix) = (medium.capacity, medium.now_unix);
        let left = Medium { files, names, synced_names, unreadable, capacity, now_unix, ..Medium::default() };
        Self(Arc::new(Mutex::new(left)))
    }

    /// All files, by path.
    pub fn files(&self) -> Vec<PathBuf> {
        let medium = self.medium();
        medium.names.iter().filter(|(_, node)| **node != Node::Dir).map(|(path, _)| path.clone()).collect()
    }

    /// The bytes of a file.
    pub fn bytes(&self, path: &Path) -> Vec<u8> {
        let medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => medium.files[file].bytes.clone(),
            _ => panic!("no file {}", path.display()),
        }
    }

    /// From now on every read of this file fails.
    pub fn make_unreadable(&self, path: &Path) {
        let mut medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => drop(medium.unreadable.insert(file)),
            _ => panic!("no file {}", path.display()),
        }
    }

    /// From now on files can have one name only.
    pub fn refuse_links(&self) {
        self.medium().no_links = true;
    }

    /// Changes the bytes of a file behind the store's back.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => medium.files[file].tamper(change),
            _ => panic!("no file {}", path.display()),
        }
    }
}

impl Content {
    fn whole(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.clone(), bytes, dirty: BTreeSet::new() }
    }

    fn touch(&mut self, range: Range<usize>) {
        self.dirty.extend(range.start / SECTOR..range.end.div_ceil(SECTOR));
    }

    fn write(&mut self, data: &[u8], at: usize) {
        let end = at + data.len();
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(data);
        self.touch(at..end);
    }

    fn resize(&mut self, len: usize) {
        let cut = len.min(self.bytes.len())..self.bytes.len();
        self.touch(cut);
        self.bytes.resize(len, 0);
    }

    fn sync(&mut self) {
        let len = self.bytes.len();
        self.synced.resize(len, 0);
        for sector in std::mem::take(&mut self.dirty) {
            let part = (sector * SECTOR).min(len)..((sector + 1) * SECTOR).min(len);
            self.synced[part.clone()].copy_from_slice(&self.bytes[part]);
        }
    }

    fn tamper(&mut self, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut self.bytes);
        self.touch(0..self.bytes.len().max(self.synced.len()));
    }

    fn torn(&self, keep_new: &mut impl FnMut() -> bool) -> Self {
        let len = if keep_new() { self.bytes.len() } else { self.synced.len() };
        let mut bytes = self.synced.clone();
        bytes.resize(len, 0);
        for sector in &self.dirty {
            let part = (sector * SECTOR).min(len)..((sector + 1) * SECTOR).min(len);
            if keep_new() {
                let there = part.start.min(self.bytes.len())..part.end.min(self.bytes.len());
                let until = part.start + there.len();
                bytes[part.start..until].copy_from_slice(&self.bytes[there]);
                bytes[until..part.end].fill(0);
            }
        }
        Self::whole(bytes)
    }
}

impl Medium {
    /// Counts an operation; fails it if its time has come.
    fn operation(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.failure {
            Some(Failure::Once(at, kind)) if self.operations == at => Err(kind.into()),
            Some(Failure::Dead(at)) if self.operations >= at => Err(io::Error::other("power is off")),
            _ => Ok(()),
        }
    }

    fn used(&self) -> u64 {
        let files: BTreeSet<usize> = self
            .names
            .values()
            .filter_map(|node| if let Node::File(file) = node { Some(*file) } else { None })
            .collect();
        files.into_iter().map(|file| self.files[file].bytes.len() as u64).sum()
    }

    /// Checks that a file can be made so long.
    fn room(&self, file: usize, len: usize) -> io::Result<()> {
        let more = len.saturating_sub(self.files[file].bytes.len()) as u64;
        match self.capacity {
            Some(capacity) if more > 0 && self.used() + more > capacity => Err(ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        match self.names.get(path) {
            Some(&Node::File(file)) => Ok(file),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Checks that a name can be made: absent, in a directory that is there.
    fn vacant(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().ok_or(ErrorKind::AlreadyExists)?;
        if self.names.contains_key(path) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if dir != Path::new("/") && self.names.get(dir) != Some(&Node::Dir) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(())
    }
}

/// What is in a directory itself. Paths are ordered by their components, so all that is below a directory comes
/// right after it.
fn inside<'a>(
    names: &'a BTreeMap<PathBuf, Node>,
    dir: &'a Path,
) -> impl Iterator<Item = (&'a PathBuf, &'a Node)> {
    let below = names.range::<Path, _>((Bound::Excluded(dir), Bound::Unbounded));
    below
        .take_while(move |(path, _)| path.starts_with(dir))
        .filter(move |(path, _)| path.parent() == Some(dir))
}

/// An open file.
pub struct SimFile {
    disk: SimDisk,
    file: usize,
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let medium = self.operation()?;
        let file = medium.file(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut medium = self.operation()?;
        medium.vacant(path)?;
        let file = medium.files.len();
        medium.files.push(Content::default());
        medium.names.insert(path.to_path_buf(), Node::File(file));
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut medium = self.operation()?;
        let file = medium.file(from)?;
        medium.names.remove(from);
        medium.names.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut medium = self.operation()?;
        let file = medium.file(from)?;
        if medium.no_links {
            return Err(rustix::io::Errno::PERM.into());
        }
        medium.vacant(to)?;
        medium.names.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.operation()?;
        medium.file(path)?;
        medium.names.remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.operation()?;
        medium.vacant(path)?;
        medium.names.insert(path.to_path_buf(), Node::Dir);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.operation()?;
        let Medium { names, synced_names, .. } = &mut *medium;
        let gone = inside(synced_names, path).map(|(name, _)| name).filter(|name| !names.contains_key(*name));
        for name in gone.cloned().collect::<Vec<_>>() {
            synced_names.remove(&name);
        }
        for (name, node) in inside(names, path) {
            if synced_names.get(name) != Some(node) {
                synced_names.insert(name.clone(), *node);
            }
        }
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let medium = self.operation()?;
        Ok(inside(&medium.names, dir)
            .filter_map(|(path, node)| {
                let name = path.file_name()?.to_str()?.to_owned();
                let len =
                    if let Node::File(file) = node { medium.files[*file].bytes.len() as u64 } else { 0 };
                Some(Entry { name, len, is_dir: *node == Node::Dir })
            })
            .collect())
    }

    fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
        let medium = self.operation()?;
        match medium.names.get(path) {
            None => Err(ErrorKind::NotFound.into()),
            Some(Node::Dir) => Ok((0, 0)),
            Some(Node::File(file)) => Ok((0, *file as u64 + 1)),
        }
    }

    fn now_unix(&self) -> u64 {
        self.medium().now_unix.unwrap_or(NOW_UNIX)
    }

    fn space(&self, _path: &Path) -> io::Result<(u64, u64)> {
        let medium = self.operation()?;
        let capacity = medium.capacity.unwrap_or(1 << 30);
        Ok((capacity, capacity.saturating_sub(medium.used())))
    }

    fn device(&self, _path: &Path) -> Option<DeviceCounters> {
        None
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        drop(self.operation()?);
        Ok(Some(Box::new(())))
    }
}

impl SimFile {
    /// Its length.
    ///
    /// # Errors
    /// The disk's.
    pub fn length(&self) -> io::Result<u64> {
        DiskFile::len(self)
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// The disk's; the file is shorter.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let read = DiskFile::read_at(self, buf, offset)?;
        if read < buf.len() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// The disk's.
    pub fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        DiskFile::write_at(self, data, offset)
    }

    /// Makes it so long, with zeros where it grows.
    ///
    /// # Errors
    /// The disk's.
    pub fn set_length(&self, len: u64) -> io::Result<()> {
        DiskFile::allocate(self, len)
    }

    /// Makes it durable.
    ///
    /// # Errors
    /// The disk's.
    pub fn make_durable(&self) -> io::Result<()> {
        DiskFile::sync(self)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let medium = self.disk.operation()?;
        Ok(medium.files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let medium = self.disk.operation()?;
        if medium.unreadable.contains(&self.file) {
            return Err(rustix::io::Errno::IO.into());
        }
        let bytes = &medium.files[self.file].bytes;
        let start = bytes.len().min(offset as usize);
        let end = bytes.len().min(start + buf.len());
        buf[..end - start].copy_from_slice(&bytes[start..end]);
        Ok(end - start)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.disk.act();
        let mut medium = self.disk.medium();
        let outcome = medium.operation();
        // A write that fails may have done a part of its work.
        let done = if outcome.is_ok() { data.len() } else { data.len() / 2 };
        medium.room(self.file, offset as usize + done)?;
        medium.files[self.file].write(&data[..done], offset as usize);
        outcome
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut medium = self.disk.operation()?;
        medium.room(self.file, len as usize)?;
        medium.files[self.file].resize(len as usize);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut medium = self.disk.operation()?;
        medium.syncs += 1;
        medium.files[self.file].sync();
        Ok(())
    }

    fn start_writeback(&self, _range: Range<u64>) {}

    fn advise_sequential(&self) {}
}
