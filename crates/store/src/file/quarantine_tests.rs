//! Setting aside and taking back damaged blocks, and files that earlier versions left.

use std::sync::mpsc;
use std::time::Duration;

use super::tests::{G, simulated};
use super::*;
use crate::contract::{block, get, put, put_labelled};
use crate::format::HEADER_BYTES;
use crate::simdisk::{Failure, NOW_UNIX};

fn names(store: &FileStore) -> Vec<String> {
    store.aside().unwrap().into_iter().map(|aside| aside.name).collect()
}

#[test]
fn a_block_comes_back_in_place_of_a_rotten_one_which_is_set_aside() {
    for rotten_at in [20, HEADER_BYTES + 20] {
        let (disk, store) = simulated();
        let id = block(1, 1);
        put(&store, id, G, 5000).unwrap();
        let name = store.set_aside(id, Reason::Unknown, 5).unwrap();
        put(&store, id, G, 5000).unwrap();
        disk.tamper(&store.path(id), |bytes| bytes[rotten_at] ^= 1);
        store.take_back(&name).unwrap();
        store.verify(id).unwrap();
        let aside = store.aside().unwrap();
        assert!(
            matches!(&aside[..], [one] if (one.id, one.reason, one.at_unix) == (id, Reason::Rotten, NOW_UNIX)),
            "{aside:?}"
        );
    }
}

#[test]
fn a_block_with_a_rotten_header_does_not_come_back() {
    let (disk, store) = simulated();
    let id = block(1, 1);
    put(&store, id, G, 5000).unwrap();
    disk.tamper(&store.path(id), |bytes| bytes[20] ^= 1);
    let name = store.set_aside(id, Reason::Rotten, 5).unwrap();
    assert!(store.take_back(&name).unwrap_err().is_rot());
    assert_eq!((store.ids().unwrap(), names(&store)), (vec![], vec![name]));
}

#[test]
fn a_block_whose_setting_aside_failed_is_durably_gone_when_its_deletion_finds_nothing() {
    for links in [true, false] {
        let begun = || {
            let (disk, store) = simulated();
            let id = block(1, 1);
            put(&store, id, G, 5000).unwrap();
            disk.tamper(&store.path(id), |bytes| bytes[20] ^= 1);
            if !links {
                disk.refuse_links();
            }
            disk.fail(None);
            (disk, store, id)
        };
        let (disk, store, id) = begun();
        store.set_aside(id, Reason::Rotten, 5).unwrap();
        for at in 1..=disk.operations() {
            let (disk, store, id) = begun();
            disk.fail(Some(Failure::Once(at, ErrorKind::Other)));
            let failed = store.set_aside(id, Reason::Rotten, 5).is_err();
            // Its header cannot be read as long as it is there.
            if let Ok(existed) = store.delete(id, Some(G)) {
                assert!(!existed);
                let left = disk.after_power_failure(0);
                let place = store.path(id);
                assert!(!left.files().contains(&place), "links {links}, operation {at}, failed {failed}");
            }
        }
    }
}

#[test]
fn usage_is_told_while_the_disk_works_on_something_else() {
    type Work = fn(&FileStore) -> Result<(), StoreError>;
    let works: [Work; 5] = [
        |store| store.set_aside(block(1, 1), Reason::Unknown, 5).map(drop),
        |store| store.delete(block(1, 1), Some(G)).map(drop),
        |store| put(store, block(1, 2), Generation(2), 5000).map(drop),
        |store| store.aside().map(drop),
        |store| store.wipe().map(drop),
    ];
    let begun = || {
        let (disk, store) = simulated();
        for index in [1, 2] {
            put(&store, block(1, index), G, 5000).unwrap();
        }
        disk.fail(None);
        (disk, Arc::new(store))
    };
    for (which, work) in works.into_iter().enumerate() {
        let (disk, store) = begun();
        work(&store).unwrap();
        for at in 1..=disk.operations() {
            let (disk, store) = begun();
            let (say, said) = mpsc::channel();
            let other = store.clone();
            disk.before(at, move || {
                let (tell, told) = mpsc::channel();
                std::thread::spawn(move || tell.send(other.usage().is_ok()));
                let _ = say.send(told.recv_timeout(Duration::from_secs(20)));
            });
            work(&store).unwrap();
            assert_eq!(said.recv().unwrap(), Ok(true), "work {which}, operation {at}");
        }
    }
}

#[test]
fn what_comes_to_the_place_of_a_rotten_block_while_it_is_checked_stays_there() {
    let id = block(1, 1);
    let begun = || {
        let (disk, store) = simulated();
        put(&store, id, G, 5000).unwrap();
        disk.tamper(&store.path(id), |bytes| bytes[HEADER_BYTES + 20] ^= 1);
        disk.fail(None);
        (disk, Arc::new(store))
    };
    let (disk, store) = begun();
    store.verify(id).unwrap_err();
    // Both times it is read, and what tells which file it is.
    let judged = 2 * disk.operations() + 2;
    for at in 1..=judged {
        let (disk, store) = begun();
        let other = store.clone();
        // A repair in its place.
        disk.before(at, move || put(&*other, id, G, 5000).map(drop).unwrap());
        let _ = store.check(id, 5);
        store.verify(id).unwrap_or_else(|error| panic!("operation {at}: {error}"));
        assert_eq!(names(&store), Vec::<String>::new(), "operation {at}");
    }
    let (_disk, store) = begun();
    let Bad { error, stays } = store.check(id, 5).unwrap_err();
    assert!(error.is_rot() && stays.is_none());
    assert_eq!((store.ids().unwrap(), names(&store)), (vec![], vec!["s1.b1.g1.rotten.5.0".to_owned()]));
}

#[test]
fn a_rotten_block_that_is_repaired_in_place_is_replaced() {
    let (disk, store) = simulated();
    let id = block(1, 1);
    put_labelled(&store, id, G, 5000, b"label").unwrap();
    disk.tamper(&store.path(id), |bytes| bytes[HEADER_BYTES + 20] ^= 1);
    put_labelled(&store, id, G, 5000, b"label").unwrap();
    store.verify(id).unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
}

#[test]
fn blocks_that_earlier_versions_set_aside_move_into_the_quarantine() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let (id, rotten) = (block(1, 1), block(1, 2));
    put(&store, id, G, 5000).unwrap();
    put(&store, rotten, G, 5000).unwrap();
    drop(store);
    let shelf = dir.path().join("blocks/01");
    std::fs::rename(shelf.join("s1.b2.block"), shelf.join("s1.b2.bad")).unwrap();
    std::fs::write(shelf.join("s1.b1.bad"), b"nonsense").unwrap();

    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(store.ids().unwrap(), [id]);
    let usage = store.usage().unwrap();
    assert_eq!((usage.blocks, usage.aside_blocks), (1, 2));
    let aside = store.aside().unwrap();
    assert!(aside.iter().all(|aside| aside.reason == Reason::Rotten && aside.at_unix > 1_700_000_000));
    assert_eq!(usage.aside_bytes, aside.iter().map(|aside| aside.bytes).sum::<u64>());
    let left: Vec<_> = std::fs::read_dir(&shelf).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["s1.b1.block"]);
    let sound = aside.iter().find(|aside| aside.meta.is_some()).unwrap();
    store.take_back(&sound.name).unwrap();
    get(&store, rotten, G).unwrap();
}

#[test]
fn names_stay_unique_over_restarts_and_strangers_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let id = block(1, 1);
    for round in 0..3 {
        let store = FileStore::open(dir.path()).unwrap();
        put(&store, id, G, 10).unwrap();
        let name = store.set_aside(id, Reason::Unknown, 5).unwrap();
        assert_eq!(name, format!("s1.b1.g1.unknown.5.{round}"));
        assert_eq!(names(&store).len(), round + 1);
    }
    let stranger = dir.path().join("quarantine/notes.txt");
    std::fs::write(&stranger, b"mine").unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(store.purge(u64::MAX).unwrap(), 3);
    assert!(stranger.exists());
    // An operator who needs the space may remove the folder.
    std::fs::remove_dir_all(dir.path().join("quarantine")).unwrap();
    assert_eq!(names(&store), Vec::<String>::new());
    put(&store, id, G, 10).unwrap();
    store.set_aside(id, Reason::Unknown, 5).unwrap();
    assert_eq!(names(&store).len(), 1);
}

#[test]
fn blocks_are_moved_where_files_have_one_name_only() {
    let (disk, store) = simulated();
    disk.refuse_links();
    crate::contract::contract(&store);
    drop(store);
}

#[test]
fn a_block_set_aside_is_moved_and_not_copied() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let id = block(1, 1);
    put(&store, id, G, 5000).unwrap();
    let inode = std::fs::metadata(store.path(id)).unwrap().ino();
    let name = store.set_aside(id, Reason::Unknown, 5).unwrap();
    let moved = std::fs::metadata(dir.path().join("quarantine").join(name)).unwrap();
    assert_eq!((moved.ino(), moved.nlink()), (inode, 1));
    assert!(!store.path(id).exists());
}
