//! Reading the log back after a start.
//!
//! The head of each file says which record was the newest durable one when the file was begun. Records of earlier files
//! count up to that number, and must be there. In the last file, the first record that is not whole ends what counts:
//! it was never acknowledged, unless a whole record behind it says that it was durable. Of the last batch of all
//! nothing says so: damage there cannot be told from a write that a crash cut off, and is found by the replica alone.

use std::io::ErrorKind;
use std::path::Path;

use super::record::{self, ALIGN};
use super::{State, damaged, invalid};
use crate::StoreError;
use crate::disk::Disk;

pub(super) fn recover(disk: &dyn Disk, dir: &Path) -> Result<State, StoreError> {
    match disk.create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(StoreError::io(dir, error)),
        _ => {}
    }
    if let Some(parent) = dir.parent() {
        disk.sync_dir(parent).map_err(|source| StoreError::io(parent, source))?;
    }
    let listed = disk.list(dir).map_err(|source| StoreError::io(dir, source))?;
    let mut numbers: Vec<u64> = listed.iter().filter_map(|entry| record::parse(&entry.name)).collect();
    numbers.sort_unstable();
    // The number of each file, and the newest record of earlier files that counts.
    let mut files = Vec::new();
    for &number in &numbers {
        let path = record::path(dir, number);
        match record::read_file_head(&read(disk, &path, Some(ALIGN))?) {
            Some((named, counts)) if named == number => files.push((number, counts)),
            Some((named, _)) => {
                let expected = format!("number {number} in {}", path.display());
                return Err(invalid("update log", &expected, named));
            }
            // Begun and not synced: nothing in it was acknowledged.
            None => disk.remove(&path).map_err(|source| StoreError::io(&path, source))?,
        }
    }
    let mut state = State::default();
    let mut seen = numbers.last().copied().unwrap_or(0);
    for (at, &(number, durable)) in files.iter().enumerate() {
        state.durable = state.durable.max(durable);
        let counts = files.get(at + 1).map(|(_, counts)| *counts);
        let path = record::path(dir, number);
        let bytes = read(disk, &path, None)?;
        seen = seen.max(take(&mut state, &path, number, &bytes, counts)?);
        state.found(number, bytes.len() as u64);
    }
    // A commit may have taken them before the start.
    state.blocks.values_mut().for_each(|held| held.found = Some(held.newest));
    // Numbers of records that do not count are not used again.
    state.next = seen.max(state.durable) + 1;
    Ok(state)
}

/// Takes the records of one file that count, up to number `counts` if a later file says so; returns the highest number
/// seen in it.
fn take(
    state: &mut State,
    path: &Path,
    segment: u64,
    bytes: &[u8],
    counts: Option<u64>,
) -> Result<u64, StoreError> {
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
    let mut claimed = counts.unwrap_or(0);
    for behind in (at..bytes.len()).step_by(ALIGN) {
        if let Some((found, _)) = record::decode(&bytes[behind..]) {
            seen = seen.max(found.number);
            claimed = if counts.is_none() { claimed.max(found.durable) } else { claimed };
        }
    }
    match claimed > state.durable {
        true => Err(damaged(path, at as u64, state.durable + 1)),
        false => Ok(seen),
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
