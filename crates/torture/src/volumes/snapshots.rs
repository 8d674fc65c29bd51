//! Snapshots in histories: each holds what its volume may have held while it was taken, whatever is written, removed or lost later.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kintsu_client::{ClientError, VolumeAccess};

use super::disk::Cut;
use super::user::{User, cut, name};

/// The models of all snapshots that were taken.
#[derive(Debug, Default)]
pub struct Snapshots(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How many were tried.
    tried: u64,
    /// By name, what those hold that are there for sure.
    held: BTreeMap<String, Cut>,
}

impl Snapshots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names of those that are there.
    pub fn names(&self) -> Vec<String> {
        self.state().held.keys().cloned().collect()
    }

    /// One of them.
    pub fn pick(&self, which: u64) -> Option<String> {
        let names = self.names();
        names.get((which % names.len().max(1) as u64) as usize).cloned()
    }

    /// Nobody reads them any more.
    pub fn forget_all(&self) {
        self.state().held.clear();
    }
}

impl User<'_> {
    fn snapshots(&self) -> &Snapshots {
        &self.stage.volumes.snapshots
    }

    /// Takes a snapshot of a volume.
    pub async fn snapshot(&self, number: u64) {
        let taken = {
            let mut state = self.snapshots().state();
            state.tried += 1;
            format!("snapshot{}", state.tried)
        };
        let was = self.stage.volumes.with(number, |held| held.is_there());
        let (removed, taking) = self.reading(number, 0, self.shape.size);
        let done = self.client.snapshot_volume(&name(number), &taken).await;
        self.say(format!("{taken} of {}: {done:?}", name(number)));
        self.stage.volumes.with(number, |held| {
            if !held.is_same(removed) {
                return;
            }
            let cut = held.disk.cut(taking);
            // If nobody answered, it is there or not.
            if done.is_ok() && was && held.is_there() {
                self.snapshots().state().held.insert(taken.clone(), cut);
            }
        });
    }

    /// Reads of a snapshot and compares.
    ///
    /// # Errors
    /// It cannot be read. Wrong bytes are told to the stage.
    pub async fn read_snapshot(&self, taken: &str, offset: u64, len: u64) -> Result<(), String> {
        let opened = self.client.open_volume(taken, VolumeAccess::Read).await;
        let is_there = || self.snapshots().state().held.contains_key(taken);
        if is_there() && matches!(opened, Err(ClientError::NotFound(_))) {
            self.stage.fail(format!("{taken} is there and was not found"));
        }
        let volume = opened.map_err(|error| format!("{taken}: {error}"))?;
        let Some((offset, len)) = cut(&volume, offset, len) else { return Ok(()) };
        let read = volume.read(offset, len).await;
        self.say(format!("read {offset}+{len} of {taken}: {:?}", read.as_ref().map(|bytes| bytes.len())));
        let seen = read.map_err(|error| format!("{taken} cannot be read: {error}"))?;
        let judged = self.snapshots().state().held.get(taken).map_or(Ok(()), |cut| cut.check(offset, &seen));
        if let Err(wrong) = judged {
            self.stage.fail(format!("a read of {taken} saw {wrong}"));
        }
        Ok(())
    }

    /// Removes a snapshot.
    pub async fn remove_snapshot(&self, taken: &str) {
        // From now on nobody knows what it holds.
        self.snapshots().state().held.remove(taken);
        let removed = self.client.remove_volume(taken).await;
        self.say(format!("remove {taken}: {removed:?}"));
    }
}
