//! Reading the log back after a start.
//!
//! The head of each file says which record was the newest durable one when the file was begun. Records of earlier files
//! count up to that number, and must be there. In the last file, the first record that is not whole ends what counts. If a whole
//! record behind it says that it was durable, it is damaged. Otherwise nobody knows: a write that a crash cut off looks like an
//! acknowledged one that rotted. Both break the log off (see [`Break`]): it goes on as another one, so that nobody takes it for
//! complete before it has got what it may lack from another node.
//!
//! What counts is synced before the log goes on: nobody knows whether the process before lived to do that.
//!
//! A file that ends with a whole record tells of nothing behind it; the note beside the log does ([`End`]). A log that ends before what
//! was noted breaks off too. Zeros behind the last record are room that a file system gave.
//!
//! Nothing is written for a break before the next append: a start before that finds the same bytes, and the same break. Files before
//! a break with damage inside are kept under names that end in `.bad`, and not read again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::end::End;
use super::record::{self, ALIGN};
use super::{Break, State};
use crate::StoreError;
use crate::disk::Disk;

/// What is wrong with a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    None,
    /// Bytes at the end of the log are no whole record.
    AtEnd,
    /// A record is missing that was durable.
    Inside,
}

pub(super) fn recover(disk: &dyn Disk, dir: &Path) -> Result<(State, End), StoreError> {
    match disk.create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(StoreError::io(dir, error)),
        _ => {}
    }
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent).map_err(|source| StoreError::io(parent, source))?;
    }
    let (mut state, damage) = loop {
        let listed = disk.list(dir).map_err(|source| StoreError::io(dir, source))?;
        let mut numbers: Vec<u64> = listed.iter().filter_map(|entry| record::parse(&entry.name)).collect();
        numbers.sort_unstable();
        let mut state = State::default();
        let damage = read_files(disk, dir, &numbers, &mut state)?;
        let before = numbers.partition_point(|number| *number < state.breaks.lost);
        if before == 0 {
            break (state, damage);
        }
        // They are from before a break that was made at an earlier start.
        numbers[..before].iter().try_for_each(|number| keep_bad(disk, dir, *number))?;
    };
    sync(disk, dir, &state)?;
    // A commit may have taken them before the start.
    state.blocks.values_mut().for_each(|held| held.found = Some(held.newest));
    let noted = End::noted(disk, dir);
    let is_short = state.durable < noted;
    if is_short {
        // The numbers of what is missing are not used again.
        state.next = state.next.max(noted + 1);
    }
    if is_short || damage != Damage::None {
        // Without any record nothing of it is left to go on with.
        state.break_off(damage == Damage::Inside || (is_short && state.durable == 0));
    }
    let end = End::begin(disk, dir, noted.max(state.durable));
    Ok((state, end))
}

/// Makes what was read durable. A process that was ended between its write and its sync leaves records that the system has in memory
/// alone, and from now on they count. Of files before the last one only that counts which was durable when the last one was begun.
fn sync(disk: &dyn Disk, dir: &Path, state: &State) -> Result<(), StoreError> {
    let Some((&newest, _)) = state.segments.last_key_value() else { return Ok(()) };
    let path = record::path(dir, newest);
    disk.open(&path).and_then(|file| file.sync()).map_err(|source| StoreError::io(&path, source))?;
    disk.sync_dir(dir).map_err(|source| StoreError::io(dir, source))
}

/// Takes what counts of these files, oldest first.
fn read_files(disk: &dyn Disk, dir: &Path, numbers: &[u64], state: &mut State) -> Result<Damage, StoreError> {
    let heads = numbers.iter().map(|&number| {
        let head = record::read_file_head(&read(disk, &record::path(dir, number), Some(ALIGN))?);
        Ok((number, head.filter(|(named, _)| *named == number).map(|(_, counts)| counts)))
    });
    let heads = heads.collect::<Result<Vec<(u64, Option<u64>)>, StoreError>>()?;
    let (mut damage, mut seen) = (Damage::None, numbers.last().copied().unwrap_or(0));
    for (at, &(number, durable)) in heads.iter().enumerate() {
        let counts = heads[at + 1..].iter().find_map(|(_, counts)| *counts);
        let bytes = read(disk, &record::path(dir, number), None)?;
        let (newest, found) = match durable {
            Some(durable) => {
                state.durable = state.durable.max(durable);
                state.found(number, bytes.len() as u64);
                take(state, number, &bytes, counts)
            }
            None => {
                behind(state.durable, &bytes, 0, counts.map(|counts| counts * u64::from(counts >= number)))
            }
        };
        // Begun and not synced: nothing in it was acknowledged.
        if durable.is_none() && found == Damage::None {
            match newest {
                0 => remove(disk, &record::path(dir, number))?,
                _ => keep_bad(disk, dir, number)?,
            }
        }
        (damage, seen) = (damage.max(found), seen.max(newest));
    }
    // Numbers of records that do not count are not used again.
    state.next = seen.max(state.durable) + 1;
    Ok(damage)
}

/// Takes the records of one file that count, up to number `counts` if a later file says so. Returns the highest number seen in it.
fn take(state: &mut State, segment: u64, bytes: &[u8], counts: Option<u64>) -> (u64, Damage) {
    let (mut at, mut seen) = (ALIGN, 0);
    while let Some((found, _)) = record::decode(bytes.get(at..).unwrap_or_default()) {
        if counts.is_some_and(|counts| found.number > counts) {
            break;
        }
        state.learn(&found, segment, at as u64);
        state.durable = state.durable.max(found.number);
        seen = seen.max(found.number);
        at += found.encoded_len();
    }
    let (newest, damage) = behind(state.durable, bytes, at, counts);
    (seen.max(newest), damage)
}

/// Looks at what is behind the last record that counts, `durable`. Up to `counts` all must be there, if a later file says so. Returns
/// the highest number seen.
fn behind(durable: u64, bytes: &[u8], at: usize, counts: Option<u64>) -> (u64, Damage) {
    let (mut seen, mut claimed) = (0, counts.unwrap_or(0));
    for behind in (at..bytes.len()).step_by(ALIGN) {
        if let Some((found, _)) = record::decode(&bytes[behind..]) {
            seen = seen.max(found.number);
            claimed = if counts.is_none() { claimed.max(found.durable) } else { claimed };
        }
    }
    let rest = bytes.get(at..).unwrap_or_default();
    let is_odd = !bytes.len().is_multiple_of(ALIGN) || rest.iter().any(|byte| *byte != 0);
    let damage = match counts {
        _ if claimed > durable => Damage::Inside,
        None if is_odd => Damage::AtEnd,
        _ => Damage::None,
    };
    (seen, damage)
}

impl State {
    /// The log goes on as another one. Older writers and readers are refused until the coordinator has given it what it may lack.
    fn break_off(&mut self, inside: bool) {
        let at = self.next.max(self.breaks.at + 1);
        self.next = at;
        self.breaks = Break { at, lost: if inside { at } else { self.breaks.lost } };
        self.fences.raise_all();
        self.raised = at;
        if inside {
            self.blocks.clear();
            self.segments.clear();
        }
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    disk.remove(path).map_err(|source| StoreError::io(path, source))
}

/// Keeps a file that is not read any more, if it is there.
fn keep_bad(disk: &dyn Disk, dir: &Path, number: u64) -> Result<(), StoreError> {
    let path = record::path(dir, number);
    let mut bad = path.clone().into_os_string();
    bad.push(".bad");
    match disk.rename(&path, &PathBuf::from(bad)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(&path, error)),
        _ => Ok(()),
    }
}

/// The first bytes of a file, or all.
fn read(disk: &dyn Disk, path: &Path, first: Option<usize>) -> Result<Vec<u8>, StoreError> {
    let failed = |source| StoreError::io(path, source);
    let file = disk.open(path).map_err(failed)?;
    let len = usize::try_from(file.len().map_err(failed)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; first.map_or(len, |first| first.min(len))];
    let got = file.read_at(&mut bytes, 0).map_err(failed)?;
    bytes.truncate(got);
    Ok(bytes)
}
