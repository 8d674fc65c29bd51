//! Next versions, and what power failures leave of them.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

use super::FileStore;
use crate::contract::{block, get, pattern, put};
use crate::simdisk::{Failure, SimDisk};
use crate::{BlockStore, Digest, Generation, Reason, StoreError, UNIT_BYTES};

const LEN: usize = UNIT_BYTES + 3000;
const ONE: Generation = Generation(1);
const TWO: Generation = Generation(2);
const THREE: Generation = Generation(3);

fn open(disk: &SimDisk) -> Result<FileStore, StoreError> {
    FileStore::open_on(Arc::new(disk.clone()), PathBuf::from("/data/store"))
}

fn beside(store: &dyn BlockStore, generation: Generation) -> Result<(), StoreError> {
    let id = block(1, 0);
    let data = pattern(id, generation, LEN);
    let mut writer = store.create_next(id, generation, LEN as u64, UNIT_BYTES as u32, b"label")?;
    writer.write_at(0, &data)?;
    writer.finish(Some(Digest::of_bytes(&data))).map(drop)
}

fn generation(store: &FileStore) -> Generation {
    store.verify(block(1, 0)).unwrap().generation
}

#[test]
fn a_next_version_takes_the_place_when_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let id = block(1, 0);
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, TWO).unwrap();
    assert_eq!((generation(&store), store.ids().unwrap().len()), (ONE, 1), "the block is what it was");
    assert!(get(&store, id, ONE).unwrap() == pattern(id, ONE, LEN));
    assert!(matches!(get(&store, id, THREE), Err(StoreError::Stale { .. })));
    assert_eq!(store.next_versions().unwrap().iter().map(|meta| meta.generation).collect::<Vec<_>>(), [TWO]);
    drop(store);
    // A restart decides nothing.
    let store = FileStore::open(dir.path()).unwrap();
    assert!(get(&store, id, ONE).unwrap() == pattern(id, ONE, LEN));
    assert!(get(&store, id, TWO).unwrap() == pattern(id, TWO, LEN));
    assert_eq!(generation(&store), TWO);
    assert!(matches!(get(&store, id, ONE), Err(StoreError::Stale { .. })));
    assert_eq!((store.next_versions().unwrap(), store.aside().unwrap().len()), (vec![], 0));
    assert_eq!(store.look(id).unwrap().label, b"label");
    assert_eq!(store.promote(id, TWO).unwrap().generation, TWO, "twice is harmless");
    assert!(matches!(store.promote(id, ONE), Err(StoreError::Stale { .. })));
    assert!(matches!(store.promote(id, THREE), Err(StoreError::Stale { .. })));
    assert!(matches!(store.promote(block(2, 0), ONE), Err(StoreError::NotFound { .. })));
    assert!(matches!(beside(&store, TWO), Err(StoreError::Stale { .. })), "that is the block");
}

#[test]
fn a_later_attempt_replaces_a_version_that_nobody_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let id = block(1, 0);
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, TWO).unwrap();
    beside(&store, THREE).unwrap();
    assert!(matches!(get(&store, id, TWO), Err(StoreError::Stale { .. })));
    assert!(!store.discard_next(id, TWO).unwrap() && store.discard_next(id, THREE).unwrap());
    assert_eq!(store.next_versions().unwrap(), []);
    // A block that is there only as a next version: its first one was lost, or there never was one.
    store.delete(id, None).unwrap();
    beside(&store, TWO).unwrap();
    assert!(get(&store, id, TWO).unwrap() == pattern(id, TWO, LEN));
    beside(&store, THREE).unwrap();
    store.delete(id, None).unwrap();
    assert!(store.next_versions().unwrap().is_empty() && store.wipe().unwrap() == 0);
}

#[test]
fn no_next_version_outlives_its_block() {
    let (_, store) = super::tests::simulated();
    let id = block(1, 0);
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, THREE).unwrap();
    assert!(!store.delete(id, Some(TWO)).unwrap(), "neither of them");
    assert!(store.delete(id, Some(ONE)).unwrap() && store.next_versions().unwrap().is_empty());
    // The block was lost before; and a version that was decided, but never asked for.
    beside(&store, TWO).unwrap();
    assert!(!store.delete(id, Some(ONE)).unwrap() && store.next_versions().unwrap().is_empty());
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, TWO).unwrap();
    assert!(store.delete(id, Some(TWO)).unwrap() && store.next_versions().unwrap().is_empty());
    assert_eq!(store.list().unwrap().blocks.len(), 0);
    // A version that is finished after its block was deleted.
    put(&store, id, ONE, LEN).unwrap();
    let mut late = store.create_next(id, TWO, LEN as u64, UNIT_BYTES as u32, b"label").unwrap();
    late.write_at(0, &pattern(id, TWO, LEN)).unwrap();
    assert!(store.delete(id, Some(ONE)).unwrap());
    assert!(matches!(late.finish(None), Err(StoreError::NotFound { .. })));
    assert!(store.next_versions().unwrap().is_empty());
}

#[test]
fn the_next_version_of_an_unknown_block_is_set_aside_with_it() {
    let (_, store) = super::tests::simulated();
    let id = block(1, 0);
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, TWO).unwrap();
    store.set_aside(id, Reason::Unknown, 1).unwrap();
    let aside =
        || store.aside().unwrap().iter().filter_map(|file| Some(file.meta?.generation)).collect::<Vec<_>>();
    assert_eq!((store.next_versions().unwrap(), aside()), (vec![], vec![ONE, TWO]));
    // The block may come back, and its next version may still be needed, when it is only rotten.
    put(&store, id, ONE, LEN).unwrap();
    beside(&store, TWO).unwrap();
    store.set_aside(id, Reason::Rotten, 2).unwrap();
    assert_eq!(store.next_versions().unwrap().len(), 1);
}

#[test]
fn no_next_version_outlives_a_block_that_was_being_deleted_when_the_power_failed() {
    let id = block(1, 0);
    let begun = |promoted: bool| {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        put(&store, id, ONE, LEN).unwrap();
        beside(&store, TWO).unwrap();
        if promoted {
            store.promote(id, TWO).unwrap();
        }
        (disk, store)
    };
    for (promoted, generation) in [(false, ONE), (false, TWO), (true, TWO)] {
        let (disk, store) = begun(promoted);
        disk.fail(None);
        assert!(store.delete(id, Some(generation)).unwrap());
        for at in 1..=disk.operations() {
            let (disk, store) = begun(promoted);
            disk.fail(Some(Failure::Dead(at)));
            assert!(store.delete(id, Some(generation)).is_err());
            disk.fail(None);
            for seed in 0..12 {
                let store = open(&disk.after_power_failure(seed)).unwrap();
                let known = store.next_versions().unwrap().is_empty() || !store.ids().unwrap().is_empty();
                assert!(known, "promoted {promoted}, operation {at}, outcome {seed}");
            }
        }
    }
}

#[test]
fn a_deletion_that_failed_is_done_and_durable_when_it_is_tried_again() {
    let id = block(1, 0);
    let begun = |version: Option<Generation>| {
        let disk = SimDisk::default();
        let store = open(&disk).unwrap();
        put(&store, id, ONE, LEN).unwrap();
        version.into_iter().for_each(|version| beside(&store, version).unwrap());
        disk.fail(None);
        (disk, store)
    };
    // The block, also with a next version that nobody asked for; and one that was decided, which nobody has asked for yet.
    for (version, wanted) in [(None, ONE), (Some(TWO), ONE), (Some(TWO), TWO)] {
        let (disk, store) = begun(version);
        assert!(store.delete(id, Some(wanted)).unwrap());
        for at in 1..=disk.operations() {
            let (disk, store) = begun(version);
            disk.fail(Some(Failure::Once(at, ErrorKind::Other)));
            let what = format!("next version {version:?}, generation {wanted}, operation {at}");
            if store.delete(id, Some(wanted)).is_err() {
                store.delete(id, Some(wanted)).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            for store in [open(&disk.after_power_failure(0)).unwrap(), store] {
                assert_eq!(
                    (store.ids().unwrap(), store.next_versions().unwrap()),
                    (vec![], vec![]),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn a_power_failure_leaves_one_version_or_the_other_whole() {
    let id = block(1, 0);
    let steps = |disk: &SimDisk| -> Result<(), (u8, StoreError)> {
        let store = open(disk).map_err(|error| (0, error))?;
        beside(&store, TWO).map_err(|error| (1, error))?;
        store.promote(id, TWO).map_err(|error| (2, error))?;
        Ok(())
    };
    let begun = || {
        let disk = SimDisk::default();
        put(&open(&disk).unwrap(), id, ONE, LEN).unwrap();
        disk
    };
    let disk = begun();
    disk.fail(None);
    steps(&disk).unwrap();
    for at in 1..=disk.operations() {
        let disk = begun();
        disk.fail(Some(Failure::Dead(at)));
        let failed = steps(&disk).err().map(|(step, _)| step);
        disk.fail(None);
        for seed in 0..12 {
            let store = open(&disk.after_power_failure(seed)).unwrap();
            let found = generation(&store);
            assert!(
                get(&store, id, found).unwrap() == pattern(id, found, LEN),
                "operation {at}, outcome {seed}"
            );
            let next = store.next_versions().unwrap();
            match failed {
                Some(0 | 1) => assert_eq!(found, ONE, "nobody asked for the other"),
                // The next version was durable: it is beside the block, or in its place.
                Some(_) => assert!(found == TWO || next.len() == 1, "operation {at}, outcome {seed}"),
                None => assert_eq!(found, TWO),
            }
        }
    }
}
