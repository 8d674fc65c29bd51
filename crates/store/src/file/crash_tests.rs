//! Every operation of the disk fails in turn, against a model of what must be there afterwards.
//!
//! The model of a block is the set of states it may be in: one if nothing is under way, the old
//! and the new one from the start of a change until it returns.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use kintsu_dag::BlockId;

use super::FileStore;
use crate::contract::{block, get, pattern, put_in_units};
use crate::simdisk::{Failure, SimDisk};
use crate::{BlockStore, Generation, LEAST_UNIT_BYTES, QuarantinedFile, Reason, StoreError, UNIT_BYTES};

const LEN: usize = UNIT_BYTES + 3000;
/// Random outcomes of a power failure tried for each operation, besides "only what was synced".
const OUTCOMES: u64 = 12;

/// Later generations use another unit size than the first.
fn unit(generation: Generation) -> usize {
    if generation == Generation(1) { UNIT_BYTES } else { LEAST_UNIT_BYTES }
}

/// A change to a store.
#[derive(Clone, Copy, Debug)]
enum Step {
    Put(BlockId, Generation),
    Drop(BlockId, Generation),
    /// Of a generation if one is given.
    Delete(BlockId, Option<Generation>),
    SetAside(BlockId),
    TakeBack(BlockId),
    Purge,
    Wipe,
}

/// A new block, a rewrite (which sets the old one aside), an abandoned rewrite, a second block in another
/// directory; then all the ways in which a block can disappear and come back.
fn script() -> Vec<Step> {
    let [a, b, c] = [block(1, 0), block(1, 1), block(2, 0)];
    let [one, two] = [Generation(1), Generation(2)];
    use Step::*;
    vec![
        Put(a, one),
        Put(a, two),
        Drop(a, two),
        Put(b, one),
        Put(c, one),
        Delete(b, Some(one)),
        SetAside(a),
        TakeBack(a),
        SetAside(a),
        Put(a, two),
        Put(b, two),
        Wipe,
        Purge,
        Put(c, two),
        Delete(c, None),
        Put(a, one),
        Put(b, one),
        Delete(a, Some(one)),
        SetAside(b),
    ]
}

/// What must or may be there.
#[derive(Clone, Default, Debug)]
struct Model {
    /// What may be there of each block: a generation, or nothing.
    states: BTreeMap<BlockId, Vec<Option<Generation>>>,
    /// Blocks that were finished and then set aside or replaced: each is in its place, or set aside, or both.
    kept: BTreeSet<(BlockId, Generation)>,
}

impl Model {
    fn ids() -> [BlockId; 3] {
        [block(1, 0), block(1, 1), block(2, 0)]
    }

    fn now(&self, id: BlockId) -> Vec<Option<Generation>> {
        self.states.get(&id).cloned().unwrap_or_else(|| vec![None])
    }

    /// The blocks that a step changes, and what they become.
    fn changes(step: Step) -> Vec<(BlockId, Option<Generation>)> {
        match step {
            Step::Put(id, generation) => vec![(id, Some(generation))],
            Step::Drop(..) | Step::Purge => vec![],
            Step::TakeBack(id) => vec![(id, Some(Generation(2)))],
            Step::Delete(id, _) | Step::SetAside(id) => vec![(id, None)],
            Step::Wipe => Self::ids().map(|id| (id, None)).to_vec(),
        }
    }

    /// The step may or may not have happened.
    fn begin(&mut self, step: Step) {
        self.keep(step);
        for (id, new) in Self::changes(step) {
            let mut states = self.now(id);
            states.push(new);
            self.states.insert(id, states);
        }
    }

    /// Updates what the step must not lose. It may lose blocks by deleting and wiping, and blocks set aside by
    /// purging.
    fn keep(&mut self, step: Step) {
        match step {
            Step::SetAside(id) | Step::Put(id, _) => {
                if let [Some(generation)] = self.now(id)[..] {
                    self.kept.insert((id, generation));
                }
            }
            Step::Drop(..) | Step::TakeBack(_) => {}
            Step::Delete(gone, _) => self.kept.retain(|(id, _)| *id != gone),
            Step::Wipe | Step::Purge => self.kept.clear(),
        }
    }

    /// The step has happened.
    fn end(&mut self, step: Step) {
        for (id, new) in Self::changes(step) {
            self.states.insert(id, vec![new]);
        }
    }

    /// Checks that each block is in a state it may be in, whole; narrows the model to that.
    fn check(&mut self, store: &FileStore, context: &str) {
        let listing = store.list().unwrap();
        assert!(listing.damaged.is_empty(), "{context}: {:?}", listing.damaged);
        let listed: BTreeMap<_, _> = listing.blocks.into_iter().map(|m| (m.id, m.generation)).collect();
        for id in Self::ids() {
            let found = listed.get(&id).copied();
            assert!(self.now(id).contains(&found), "{context}: {id} is {found:?}, may be {:?}", self.now(id));
            if let Some(generation) = found {
                store.verify(id).unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(
                    get(store, id, generation).unwrap() == pattern(id, generation, LEN),
                    "{context}: {id}"
                );
            }
            self.states.insert(id, vec![found]);
        }
        assert_eq!(store.ids().unwrap().len(), listed.len(), "{context}: a torn block is visible");
        assert_eq!(store.usage().unwrap().blocks, listed.len() as u64, "{context}: usage");
        let aside = store.aside().unwrap();
        assert!(aside.iter().all(|aside| aside.meta.is_some()), "{context}: {aside:?}");
        assert_eq!(store.usage().unwrap().aside_blocks, aside.len() as u64, "{context}: usage");
        for (id, generation) in &self.kept {
            let kept =
                aside.iter().any(|a| a.id == *id && a.meta.is_some_and(|m| m.generation == *generation));
            assert!(kept || listed.get(id) == Some(generation), "{context}: {id} {generation} is nowhere");
        }
    }
}

fn apply(store: &FileStore, step: Step) -> Result<(), StoreError> {
    match step {
        Step::Put(id, generation) => put_in_units(store, id, generation, LEN, unit(generation)).map(drop),
        Step::Drop(id, generation) => {
            let mut writer = store.create(id, generation, LEN as u64, unit(generation) as u32, &[])?;
            writer.write_at(0, &pattern(id, generation, LEN / 2))
        }
        Step::Delete(id, generation) => store.delete(id, generation).map(drop),
        Step::SetAside(id) => match store.set_aside(id, Reason::Unknown, 7) {
            Err(StoreError::NotFound { .. }) => Ok(()),
            other => other.map(drop),
        },
        Step::TakeBack(id) => {
            let wanted = |aside: &QuarantinedFile| aside.id == id && aside.reason == Reason::Unknown;
            match store.aside()?.into_iter().find(wanted) {
                Some(aside) => match store.take_back(&aside.name) {
                    // The first attempt got this far.
                    Err(StoreError::Busy { .. }) => Ok(()),
                    other => other.map(drop),
                },
                None => Ok(()),
            }
        }
        Step::Purge => store.purge(u64::MAX).map(drop),
        Step::Wipe => store.wipe().map(drop),
    }
}

fn open(disk: &SimDisk) -> Result<FileStore, StoreError> {
    FileStore::open_on(Arc::new(disk.clone()), PathBuf::from("/data/store"))
}

/// Opens a store and takes steps until one fails; the model says what may be there then.
fn run(disk: &SimDisk) -> (Model, Result<(), StoreError>) {
    let mut model = Model::default();
    let outcome = open(disk).and_then(|store| {
        script().into_iter().try_for_each(|step| {
            model.begin(step);
            apply(&store, step)?;
            model.end(step);
            Ok(())
        })
    });
    (model, outcome)
}

/// How many operations the script takes if all goes well.
fn operations() -> u64 {
    let disk = SimDisk::default();
    let (mut model, outcome) = run(&disk);
    outcome.unwrap();
    let operations = disk.operations();
    model.check(&open(&disk).unwrap(), "no failure");
    assert!(operations > 100, "the script should exercise the disk, but took {operations} operations");
    operations
}

fn no_leftovers(disk: &SimDisk, context: &str) {
    let temp = disk.files().into_iter().find(|path| path.extension().is_some_and(|e| e == "tmp"));
    assert_eq!(temp, None, "{context}");
}

#[test]
fn power_failure_at_any_operation_leaves_old_or_new() {
    for at in 1..=operations() {
        let disk = SimDisk::default();
        disk.fail(Some(Failure::Dead(at)));
        let (model, outcome) = run(&disk);
        assert!(outcome.is_err() || at == disk.operations(), "operation {at} was ignored");
        for seed in 0..=OUTCOMES {
            let context = format!("power failure at operation {at}, outcome {seed}");
            let rest = disk.after_power_failure(seed * 0x1234_5677);
            let mut model = model.clone();
            let store = open(&rest).unwrap_or_else(|error| panic!("{context}: {error}"));
            model.check(&store, &context);
            no_leftovers(&rest, &context);
            drop(store);
            // What was visible after the restart stays, whatever the power does.
            let again = rest.after_power_failure(0);
            model.check(&open(&again).unwrap(), &format!("{context}, and again"));
        }
    }
}

#[test]
fn a_killed_process_leaves_old_or_new() {
    for at in 1..=operations() {
        let context = format!("killed at operation {at}");
        let disk = SimDisk::default();
        disk.fail(Some(Failure::Dead(at)));
        let (mut model, _) = run(&disk);
        disk.fail(None);
        let store = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        model.check(&store, &context);
        no_leftovers(&disk, &context);
    }
}

#[test]
fn an_operation_that_fails_once_is_survived_in_place() {
    for kind in [ErrorKind::Other, ErrorKind::StorageFull] {
        for at in 1..=operations() {
            fail_once(at, kind);
        }
    }
}

/// One operation fails; the same store then does the step again and all others.
fn fail_once(at: u64, kind: ErrorKind) {
    let context = format!("{kind} at operation {at}");
    let disk = SimDisk::default();
    disk.fail(Some(Failure::Once(at, kind)));
    let store = open(&disk).or_else(|_| open(&disk)).unwrap();
    let mut model = Model::default();
    for step in script() {
        model.begin(step);
        if let Err(error) = apply(&store, step) {
            assert!(
                matches!(
                    (&error, kind),
                    (StoreError::Io { .. }, _) | (StoreError::Full { .. }, ErrorKind::StorageFull)
                ),
                "{context}: {error}"
            );
            model.check(&store, &format!("{context}, {step:?}: {error}"));
            model.begin(step);
            apply(&store, step).unwrap_or_else(|error| panic!("{context}, again: {error}"));
        }
        model.end(step);
    }
    model.check(&store, &context);
    drop(store);
    model.check(&open(&disk.after_power_failure(0)).unwrap(), &format!("{context}, then power failure"));
}
