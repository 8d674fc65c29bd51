//! Group commit: whoever finds nobody writing writes what has gathered, for all.

use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

use super::extents::Place;
use super::fences::Fences;
use super::record::{self, Kind, Record};
use super::{AppendLog, Break, Outcome, State, Tail};
use crate::StoreError;

impl AppendLog {
    /// Appends records and returns when they are durable; the number of the last.
    pub(super) fn commit<'s, 'p>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        records: impl Iterator<Item = (Record, &'p [u8])>,
    ) -> Result<u64, StoreError> {
        let batch = state.enqueue(records);
        self.wait(state, batch)
    }

    /// Returns when these records, the last of which has this number, are durable or have failed.
    pub(super) fn wait<'s>(
        &'s self,
        mut state: MutexGuard<'s, State>,
        (last, outcome): (u64, Outcome),
    ) -> Result<u64, StoreError> {
        loop {
            match outcome.get() {
                Some(Ok(())) => return Ok(last),
                Some(Err(why)) => {
                    let source = std::io::Error::other(format!("not written: {why}"));
                    return Err(StoreError::io(&self.dir, source));
                }
                None => {}
            }
            if state.writing {
                state = self.synced.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            // Nobody has begun with these records, so they are among those that wait.
            let Some(first) = state.waiting.first().map(|(record, _)| record.number) else {
                return Err(super::invalid("records", "one or more", "none"));
            };
            state.writing = true;
            state.outcome = Outcome::default();
            let batch = std::mem::take(&mut state.waiting);
            let bytes = std::mem::take(&mut state.waiting_bytes);
            let tail = state.tail.take();
            let tail = match tail.filter(|tail| tail.at < self.segment_bytes) {
                Some(tail) => Ok(tail),
                None => Err((state.durable, state.breaks, state.fences.clone())),
            };
            drop(state);
            let tail =
                tail.or_else(|(durable, breaks, fences)| self.begin_file(durable, breaks, &fences, first));
            let written = tail.and_then(|tail| self.write(tail, &bytes));
            if let (Ok(_), Some((newest, _))) = (&written, batch.last()) {
                self.end.lock().unwrap_or_else(PoisonError::into_inner).note(newest.number);
            }
            state = self.state();
            state.writing = false;
            match written {
                Ok((tail, at)) => {
                    state.apply(tail, at, &batch);
                    let _ = outcome.set(Ok(()));
                }
                Err(error) => {
                    // These numbers are never used again; the next append begins a file that says what counts, also if
                    // only the sync failed: nobody knows then whether the batch is durable, and it does not count.
                    // A file may have been begun for it, which is deleted in its turn.
                    state.segments.entry(first).or_default();
                    let _ = outcome.set(Err(error.to_string()));
                    self.synced.notify_all();
                    return Err(error);
                }
            }
            self.synced.notify_all();
        }
    }

    /// Writes and syncs a batch; returns the file and where in it the batch begins.
    fn write(&self, mut tail: Tail, bytes: &[u8]) -> Result<(Tail, u64), StoreError> {
        let path = record::path(&self.dir, tail.number);
        let at = tail.at;
        tail.file.write_at(bytes, at).map_err(|source| self.io_error(&path, bytes.len(), source))?;
        tail.file.sync().map_err(|source| StoreError::io(&path, source))?;
        tail.at += bytes.len() as u64;
        Ok((tail, at))
    }

    /// A new file, numbered by its first record. It repeats the newest break and all fences, so that older files are not needed for
    /// them.
    fn begin_file(
        &self,
        durable: u64,
        breaks: Break,
        fences: &Fences,
        first: u64,
    ) -> Result<Tail, StoreError> {
        let path = record::path(&self.dir, first);
        let failed = |source| self.io_error(&path, record::ALIGN, source);
        // Left by an attempt that failed: nothing in it was acknowledged.
        match self.disk.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let file = self.disk.create(&path).map_err(failed)?;
        let mut bytes = record::file_head(first, durable);
        // Not numbered: it repeats what is durable, or what comes with this batch.
        let fences = fences.all().map(|(scope, epoch)| Record::fence(scope, epoch));
        let breaks = (breaks.at > 0).then(|| Record::broken(breaks));
        breaks.into_iter().chain(fences).for_each(|record| record.encode(&[], &mut bytes));
        file.write_at(&bytes, 0).map_err(failed)?;
        self.disk.sync_dir(&self.dir).map_err(failed)?;
        Ok(Tail { number: first, file, at: bytes.len() as u64 })
    }

    fn io_error(&self, path: &std::path::Path, needed: usize, source: std::io::Error) -> StoreError {
        match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                let free = self.disk.space(&self.dir).map_or(0, |(_, free)| free);
                StoreError::Full { path: path.to_path_buf(), needed: needed as u64, free }
            }
            _ => StoreError::io(path, source),
        }
    }

    /// Deletes files, oldest first, in which nothing is needed; the one that is appended to stays. Each file says up to which
    /// number the records of earlier files count, so none between them may be deleted.
    pub(super) fn collect(&self) -> Result<(), StoreError> {
        // One after the other; appends and reads go on while the disk works.
        let _turn = self.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(number) = self.state().not_needed() else { return Ok(()) };
            let path = record::path(&self.dir, number);
            match self.disk.remove(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StoreError::io(&path, error));
                }
                _ => {}
            }
            // Before a newer one is deleted: the two deletions may reach the medium apart.
            self.disk.sync_dir(&self.dir).map_err(|source| StoreError::io(&self.dir, source))?;
            self.state().segments.remove(&number);
        }
    }
}

impl super::Held {
    /// The oldest record that is needed.
    fn oldest(&self) -> Option<u64> {
        self.frozen.numbers().chain(self.active.numbers()).chain(self.old.numbers()).min()
    }
}

impl State {
    /// The oldest file, if nothing in it is needed and it is not appended to. Nothing in it will be needed later.
    fn not_needed(&self) -> Option<u64> {
        let tail = self.tail.as_ref()?.number;
        let (&number, segment) = self.segments.first_key_value().filter(|(number, _)| **number < tail)?;
        let needed = |(key, newest): (&super::Key, &u64)| {
            let oldest = self.blocks.get(key).and_then(super::Held::oldest);
            oldest.is_some_and(|oldest| oldest <= *newest)
        };
        (!segment.newest.iter().any(needed)).then_some(number)
    }

    /// Has records wait for whoever writes next. Returns the number of the last, and what will tell what became of them.
    pub(super) fn enqueue<'p>(
        &mut self,
        records: impl Iterator<Item = (Record, &'p [u8])>,
    ) -> (u64, Outcome) {
        let mut last = 0;
        for (record, payload) in records {
            last = self.next;
            self.next += 1;
            let record = Record { number: last, durable: self.durable, ..record };
            let from = self.waiting_bytes.len();
            record.encode(payload, &mut self.waiting_bytes);
            let to = self.waiting_bytes.len();
            self.waiting.push((record, from..to));
        }
        (last, self.outcome.clone())
    }

    /// A batch is durable: it can be read from now on.
    fn apply(&mut self, tail: Tail, at: u64, batch: &[(Record, std::ops::Range<usize>)]) {
        let segment = tail.number;
        for (record, bytes) in batch {
            self.learn(record, segment, at + bytes.start as u64);
        }
        self.segments.entry(segment).or_default().bytes = tail.at;
        self.durable = batch.last().map_or(self.durable, |(record, _)| record.number);
        self.tail = Some(tail);
    }

    /// One record counts.
    pub(super) fn learn(&mut self, record: &Record, segment: u64, at: u64) {
        let Record { kind, number, block, role, offset, len, .. } = *record;
        let key = (block, role);
        match kind {
            Kind::Fence => self.fences.raise(record.scope(), record.epoch),
            Kind::Break => self.breaks = record.breaks(),
            Kind::Release => {
                if let Some(held) = self.blocks.get_mut(&key) {
                    held.frozen.forget(offset);
                    held.active.forget(offset);
                    held.old.forget(offset);
                    held.cut = held.cut.filter(|cut| *cut > offset);
                    held.found = held.found.filter(|found| *found > offset);
                    if held.frozen.is_empty() && held.active.is_empty() {
                        self.blocks.remove(&key);
                    }
                }
            }
            Kind::Bytes | Kind::Zeros | Kind::Old | Kind::Delta(_) => {
                let delta_of = if let Kind::Delta(version) = kind { Some(version) } else { None };
                let (len_there, zeros) = (record.payload_len(), kind == Kind::Zeros);
                let place = Place { number, segment, at, offset, len: len_there, zeros, delta_of };
                let held = self.blocks.entry(key).or_default();
                held.volume = record.volume;
                let layer = if kind == Kind::Old { &mut held.old } else { &mut held.active };
                layer.add(offset..offset + u64::from(len), place);
                held.newest = number;
                let segments: &mut HashMap<_, _> = &mut self.segments.entry(segment).or_default().newest;
                segments.insert(key, number);
            }
        }
    }

    /// A file, as it was found.
    pub(super) fn found(&mut self, number: u64, bytes: u64) {
        self.segments.entry(number).or_default().bytes = bytes;
    }
}
