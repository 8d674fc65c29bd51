//! A disk in memory that loses power and fails on command, for tests.
//!
//! It keeps what was written and what was synced separately. A power failure leaves each 512-byte sector and each
//! name that was changed since its last sync in either the old or the new state, chosen independently: harsher
//! than a journaling file system. A change of a name is atomic, also a rename over an existing name. Unsynced
//! changes reach the medium in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::{Disk, DiskFile, Entry};

const SECTOR: usize = 512;

/// The time on this disk: it stands still.
pub(crate) const NOW_UNIX: u64 = 1_700_000_000;

/// The disk; clones are the same disk.
#[derive(Clone, Default)]
pub(crate) struct SimDisk(Arc<Mutex<Medium>>);

#[derive(Default)]
struct Medium {
    files: Vec<Content>,
    names: BTreeMap<PathBuf, Node>,
    synced_names: BTreeMap<PathBuf, Node>,
    operations: u64,
    failure: Option<Failure>,
    /// Files whose every read fails.
    unreadable: BTreeSet<usize>,
    /// Whether files can have one name only.
    no_links: bool,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    synced: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Dir,
    File(usize),
}

/// What goes wrong, and when.
#[derive(Clone, Copy)]
pub(crate) enum Failure {
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
        self.0.lock().unwrap()
    }

    /// Sets what goes wrong, counting operations from 1 from now on.
    pub(crate) fn fail(&self, failure: Option<Failure>) {
        let mut medium = self.medium();
        medium.operations = 0;
        medium.failure = failure;
    }

    /// Operations since [`fail`](Self::fail).
    pub(crate) fn operations(&self) -> u64 {
        self.medium().operations
    }

    /// What a power failure now leaves of this disk; `seed` 0 keeps only what was synced.
    pub(crate) fn after_power_failure(&self, seed: u64) -> Self {
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
        Self(Arc::new(Mutex::new(Medium { files, synced_names: names.clone(), names, ..Medium::default() })))
    }

    /// All files, by path.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let medium = self.medium();
        medium.names.iter().filter(|(_, node)| **node != Node::Dir).map(|(path, _)| path.clone()).collect()
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, path: &Path) -> Vec<u8> {
        let medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => medium.files[file].bytes.clone(),
            _ => panic!("no file {}", path.display()),
        }
    }

    /// From now on every read of this file fails.
    pub(crate) fn make_unreadable(&self, path: &Path) {
        let mut medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => drop(medium.unreadable.insert(file)),
            _ => panic!("no file {}", path.display()),
        }
    }

    /// From now on files can have one name only.
    pub(crate) fn refuse_links(&self) {
        self.medium().no_links = true;
    }

    /// Changes the bytes of a file behind the store's back.
    pub(crate) fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut medium = self.medium();
        match medium.names.get(path) {
            Some(&Node::File(file)) => change(&mut medium.files[file].bytes),
            _ => panic!("no file {}", path.display()),
        }
    }
}

impl Content {
    fn torn(&self, keep_new: &mut impl FnMut() -> bool) -> Self {
        let len = if keep_new() { self.bytes.len() } else { self.synced.len() };
        let mut bytes = vec![0; len];
        for at in (0..len).step_by(SECTOR) {
            let source = if keep_new() { &self.bytes } else { &self.synced };
            let end = len.min(at + SECTOR).min(source.len());
            if at < end {
                bytes[at..end].copy_from_slice(&source[at..end]);
            }
        }
        Self { synced: bytes.clone(), bytes }
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

struct SimFile {
    disk: SimDisk,
    file: usize,
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut medium = self.medium();
        medium.operation()?;
        let file = medium.file(path)?;
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut medium = self.medium();
        medium.operation()?;
        medium.vacant(path)?;
        let file = medium.files.len();
        medium.files.push(Content::default());
        medium.names.insert(path.to_path_buf(), Node::File(file));
        Ok(Box::new(SimFile { disk: self.clone(), file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut medium = self.medium();
        medium.operation()?;
        let file = medium.file(from)?;
        medium.names.remove(from);
        medium.names.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut medium = self.medium();
        medium.operation()?;
        let file = medium.file(from)?;
        if medium.no_links {
            return Err(rustix::io::Errno::PERM.into());
        }
        medium.vacant(to)?;
        medium.names.insert(to.to_path_buf(), Node::File(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.medium();
        medium.operation()?;
        medium.file(path)?;
        medium.names.remove(path);
        Ok(())
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.medium();
        medium.operation()?;
        medium.vacant(path)?;
        medium.names.insert(path.to_path_buf(), Node::Dir);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut medium = self.medium();
        medium.operation()?;
        let Medium { names, synced_names, .. } = &mut *medium;
        let inside = |name: &PathBuf| name.parent() == Some(path);
        synced_names.retain(|name, _| !inside(name));
        synced_names
            .extend(names.iter().filter(|(name, _)| inside(name)).map(|(name, node)| (name.clone(), *node)));
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut medium = self.medium();
        medium.operation()?;
        let inside = medium.names.iter().filter(|(path, _)| path.parent() == Some(dir));
        Ok(inside
            .map(|(path, node)| Entry {
                name: path.file_name().unwrap().to_str().unwrap().to_owned(),
                len: if let Node::File(file) = node { medium.files[*file].bytes.len() as u64 } else { 0 },
                is_dir: *node == Node::Dir,
            })
            .collect())
    }

    fn identity(&self, dir: &Path) -> io::Result<(u64, u64)> {
        let mut medium = self.medium();
        medium.operation()?;
        if medium.names.get(dir) != Some(&Node::Dir) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok((0, 0))
    }

    fn now_unix(&self) -> u64 {
        NOW_UNIX
    }

    fn space(&self, _path: &Path) -> io::Result<(u64, u64)> {
        self.medium().operation()?;
        Ok((1 << 30, 1 << 30))
    }

    fn lock(&self, _path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        self.medium().operation()?;
        Ok(Some(Box::new(())))
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        let mut medium = self.disk.medium();
        medium.operation()?;
        Ok(medium.files[self.file].bytes.len() as u64)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut medium = self.disk.medium();
        medium.operation()?;
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
        let mut medium = self.disk.medium();
        let outcome = medium.operation();
        // A write that fails may have done a part of its work.
        let done = if outcome.is_ok() { data.len() } else { data.len() / 2 };
        let bytes = &mut medium.files[self.file].bytes;
        let end = offset as usize + done;
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(&data[..done]);
        outcome
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut medium = self.disk.medium();
        medium.operation()?;
        medium.files[self.file].bytes.resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut medium = self.disk.medium();
        medium.operation()?;
        let file = &mut medium.files[self.file];
        file.synced = file.bytes.clone();
        Ok(())
    }

    fn start_writeback(&self, _range: Range<u64>) {}

    fn advise_sequential(&self) {}
}
