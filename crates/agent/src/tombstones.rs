//! Tombstones: the removed objects that this agent was told of, in a small file beside the blocks.
//!
//! A rebuild of the metadata from blocks must not bring a removed object back. An agent may still have blocks of
//! such an object, because it was down or its disk failed; this file records that the object is gone.
//!
//! The file has one line for each range of ids: first, last, and a checksum of the two. Lines are appended and
//! synced before blocks are deleted. When many lines could be merged, a new file is written and renamed over the
//! old one. A line that was cut by a crash, or that does not match its checksum, is ignored: the coordinator names
//! its ids again.
//!
//! What this is not: a list of all removed objects. It has only those that the coordinator told this agent.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::AgentError;
use crate::identity::replace;

/// The file in the agent's directory.
const FILE: &str = "removed";
/// The file is rewritten when it has this many lines more than twice the number of ranges.
const SPARE_LINES: usize = 1024;

/// The removed objects that an agent remembers, durably.
#[derive(Debug)]
pub struct Tombstones {
    dir: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ranges: Ranges,
    /// Lines of the file.
    lines: usize,
    /// Open since the first append.
    file: Option<File>,
}

/// Sets of ids as ranges, merged where they touch: first -> last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    fn contains(&self, id: u64) -> bool {
        self.0.range(..=id).next_back().is_some_and(|(_, last)| *last >= id)
    }

    /// Adds a range, which may overlap others.
    fn add(&mut self, mut first: u64, mut last: u64) {
        if let Some((&before, &end)) = self.0.range(..=first).next_back()
            && end.saturating_add(1) >= first
        {
            (first, last) = (before, last.max(end));
        }
        while let Some((&next, &end)) = self.0.range(first..).next()
            && next <= last.saturating_add(1)
        {
            self.0.remove(&next);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }
}

impl Tombstones {
    /// Reads the file of an agent's directory.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn open(dir: &Path) -> Result<Self, AgentError> {
        let path = dir.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(AgentError::Identity { path, detail: e.to_string() }),
        };
        let mut inner = Inner::default();
        let whole = text.split_inclusive('\n').inspect(|_| inner.lines += 1);
        for (first, last) in whole.filter_map(parse).collect::<Vec<_>>() {
            inner.ranges.add(first, last);
        }
        if !text.is_empty() && !text.ends_with('\n') {
            // The next append must begin a new line.
            inner.lines = usize::MAX;
        }
        Ok(Self { dir: dir.to_owned(), inner: Mutex::new(inner) })
    }

    /// Remembers these ids; durable on return. Ids that are known already cost nothing. Blocking.
    ///
    /// # Errors
    /// The file cannot be written; then no new id counts as known.
    pub fn add(&self, ids: &[u64]) -> std::io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut new = Ranges::default();
        ids.iter().filter(|id| !inner.ranges.contains(**id)).for_each(|&id| new.add(id, id));
        if new.0.is_empty() {
            return Ok(());
        }
        let mut all = inner.ranges.clone();
        new.0.iter().for_each(|(&first, &last)| all.add(first, last));
        if inner.lines.saturating_add(new.0.len()) > 2 * all.0.len() + SPARE_LINES {
            // After a failure too: the open file may have lost its name.
            inner.file = None;
            replace(&self.dir, FILE, lines(&all).as_bytes())?;
            inner.lines = all.0.len();
        } else {
            // After a failure the end of the file is unknown, so the whole file is rewritten.
            let lines = std::mem::replace(&mut inner.lines, usize::MAX);
            self.append(&mut inner.file, &new)?;
            inner.lines = lines + new.0.len();
        }
        inner.ranges = all;
        Ok(())
    }

    /// All removed ids: first and last of each range, in order, neither overlapping nor touching.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.ranges.0.iter().map(|(first, last)| (*first, *last)).collect()
    }

    fn append(&self, file: &mut Option<File>, new: &Ranges) -> std::io::Result<()> {
        let path = self.dir.join(FILE);
        let created = file.is_none() && !path.exists();
        let out = match file {
            Some(out) => out,
            None => file.insert(OpenOptions::new().append(true).create(true).open(path)?),
        };
        out.write_all(lines(new).as_bytes())?;
        out.sync_data()?;
        if created { File::open(&self.dir)?.sync_all() } else { Ok(()) }
    }
}

fn lines(ranges: &Ranges) -> String {
    ranges.0.iter().map(|(first, last)| format!("{first} {last} {:08x}\n", checksum(*first, *last))).collect()
}

/// A range from its line, if the line is complete and matches its checksum.
fn parse(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_suffix('\n')?.split(' ');
    let (first, last) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let sum = u32::from_str_radix(words.next()?, 16).ok()?;
    (words.next().is_none() && first <= last && sum == checksum(first, last)).then_some((first, last))
}

/// FNV-1a of both numbers.
fn checksum(first: u64, last: u64) -> u32 {
    let bytes = first.to_le_bytes().into_iter().chain(last.to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_remembered_as_ranges_across_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let tombstones = Tombstones::open(dir.path()).unwrap();
        assert_eq!(tombstones.ranges(), []);
        for ids in [&[5, 3, 9][..], &[4, 5], &[], &[u64::MAX, u64::MAX - 1, 0]] {
            tombstones.add(ids).unwrap();
        }
        let want = [(0, 0), (3, 5), (9, 9), (u64::MAX - 1, u64::MAX)];
        assert_eq!(tombstones.ranges(), want);
        assert_eq!(Tombstones::open(dir.path()).unwrap().ranges(), want);
    }

    #[test]
    fn a_line_that_was_cut_or_changed_is_left_out_and_spoils_no_other() {
        let dir = tempfile::tempdir().unwrap();
        Tombstones::open(dir.path()).unwrap().add(&[7, 20, 30]).unwrap();
        let path = dir.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in 0..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let tombstones = Tombstones::open(dir.path()).unwrap();
            let whole: Vec<_> = [7, 20, 30].into_iter().take(text[..cut].matches('\n').count()).collect();
            assert_eq!(tombstones.ranges(), whole.iter().map(|id| (*id, *id)).collect::<Vec<_>>());
            tombstones.add(&[100]).unwrap();
            let again = Tombstones::open(dir.path()).unwrap().ranges();
            assert_eq!(again.len(), whole.len() + 1, "cut at {cut}");
        }
        std::fs::write(&path, text.replace("20 20", "20 29")).unwrap();
        assert_eq!(Tombstones::open(dir.path()).unwrap().ranges(), [(7, 7), (30, 30)]);
    }

    #[test]
    fn a_file_of_many_lines_is_written_anew() {
        let dir = tempfile::tempdir().unwrap();
        let tombstones = Tombstones::open(dir.path()).unwrap();
        let many = 2 * SPARE_LINES as u64;
        (1..=many).for_each(|id| tombstones.add(&[id]).unwrap());
        let lines = std::fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count();
        assert!(lines <= SPARE_LINES + 2, "{lines}");
        assert_eq!(Tombstones::open(dir.path()).unwrap().ranges(), [(1, many)]);
    }
}
