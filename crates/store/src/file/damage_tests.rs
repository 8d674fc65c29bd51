//! Disks that refuse to read a block, and folders that go away under a running store.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::tests::{G, TinyDisk, simulated};
use super::*;
use crate::contract::{block, get, put};
use crate::simdisk::Failure;
use crate::{UNIT_BYTES, scrub};

fn ids(listing: &Listing) -> (Vec<BlockId>, Vec<BlockId>) {
    (listing.blocks.iter().map(|meta| meta.id).collect(), listing.damaged.iter().map(|(id, _)| *id).collect())
}

/// Replaces the block's file with one on which every read fails with EIO, as on a medium with bad sectors.
fn make_unreadable(path: &Path) {
    std::fs::remove_file(path).unwrap();
    symlink("/proc/self/mem", path).unwrap();
}

#[test]
fn a_block_that_cannot_be_read_keeps_no_other_from_being_listed() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let all = [block(1, 0), block(1, 1), block(2, 0)];
    for id in all {
        put(&store, id, G, 5000).unwrap();
    }
    make_unreadable(&store.path(all[1]));
    let listing = store.list().unwrap();
    assert_eq!(ids(&listing), (vec![all[0], all[2]], vec![all[1]]));
    let error = &listing.damaged[0].1;
    assert!(matches!(error, StoreError::Io { .. }) && error.is_damage() && !error.is_rot(), "{error}");
    for error in [store.verify(all[1]).unwrap_err(), store.look(all[1]).unwrap_err()] {
        assert!(error.is_damage(), "{error}");
    }
    assert_eq!(scrub(&store, &mut |_, _| true).unwrap().unread, [all[1]]);

    // Opening a store does not need readable blocks; an unreadable one can be set aside and written again.
    drop(store);
    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(store.usage().unwrap().blocks, 3);
    let name = store.set_aside(all[1], Reason::Rotten, 9).unwrap();
    assert!(matches!(&store.aside().unwrap()[..], [aside] if aside.name == name && aside.meta.is_none()));
    assert!(store.take_back(&name).unwrap_err().is_damage(), "what cannot be read does not come back");
    put(&store, all[1], G, 5000).unwrap();
    assert_eq!(ids(&store.list().unwrap()), (all.to_vec(), vec![]));
}

#[test]
fn a_block_that_cannot_be_read_is_replaced_by_its_repair() {
    let (disk, store) = simulated();
    let id = block(1, 0);
    put(&store, id, G, 5000).unwrap();
    disk.make_unreadable(&store.path(id));
    assert!(store.verify(id).unwrap_err().is_damage());
    put(&store, id, G, 5000).unwrap();
    store.verify(id).unwrap();
}

#[test]
fn a_block_that_cannot_be_looked_at_for_now_is_not_overwritten() {
    let id = block(1, 0);
    for operation in 1.. {
        let (disk, store) = simulated();
        put(&store, id, G, 5000).unwrap();
        let mut writer = store.create(id, Generation(2), 3, UNIT_BYTES as u32, &[]).unwrap();
        writer.write_at(0, b"new").unwrap();
        disk.fail(Some(Failure::Once(operation, ErrorKind::Other)));
        let finished = writer.finish(None);
        let operations = disk.operations();
        disk.fail(None);
        let kept =
            store.aside().unwrap().iter().any(|aside| aside.meta.is_some_and(|meta| meta.generation == G));
        assert!(kept || get(&store, id, G).is_ok(), "operation {operation} failed: the old block is nowhere");
        if operations < operation {
            finished.unwrap();
            break;
        }
    }
}

#[test]
fn what_says_nothing_of_a_block_is_no_damage_of_it() {
    for code in [rustix::io::Errno::MFILE, rustix::io::Errno::NOMEM, rustix::io::Errno::ACCESS] {
        assert!(!StoreError::io(Path::new("/f"), code.into()).is_damage(), "{code}");
    }
    assert!(!StoreError::NotFound { id: block(1, 1) }.is_damage());
}

macro_rules! vanished {
    ($result:expr) => {
        match $result {
            Err(StoreError::Vanished { dir, detail }) => format!("{} {detail}", dir.display()),
            Err(other) => panic!("{}: expected Vanished, got error: {other}", stringify!($result)),
            Ok(_) => panic!("{}: expected Vanished, got Ok", stringify!($result)),
        }
    };
}

/// Every call on a store whose folder was replaced fails and says why.
fn all_is_refused(store: &FileStore, dir: &Path) {
    let id = block(1, 0);
    let message = vanished!(store.check_root());
    assert!(message.contains(&dir.display().to_string()) && message.contains("unmounted?"), "{message}");
    vanished!(store.create(block(1, 9), G, 10, UNIT_BYTES as u32, &[]));
    vanished!(store.ids());
    vanished!(store.list());
    vanished!(store.usage());
    vanished!(store.verify(id));
    vanished!(store.look(id));
    vanished!(store.open(id, G));
    vanished!(store.delete(id, None));
    vanished!(store.set_aside(id, Reason::Unknown, 0));
    vanished!(store.aside());
    vanished!(store.take_back("s1.b0.g1.unknown.0.0"));
    vanished!(store.purge(u64::MAX));
    vanished!(store.purge_one("s1.b0.g1.unknown.0.0"));
    vanished!(store.wipe());
}

/// A store with a block in it, and a writer that is nearly done.
fn in_use(dir: &Path) -> (FileStore, Box<dyn BlockWrite>) {
    let store = FileStore::open(dir).unwrap();
    put(&store, block(1, 0), G, 100).unwrap();
    let mut writer = store.create(block(1, 1), G, 4, UNIT_BYTES as u32, &[]).unwrap();
    writer.write_at(0, b"late").unwrap();
    (store, writer)
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).unwrap().next().is_none()
}

#[test]
fn a_folder_that_another_one_replaced_is_not_written_to() {
    let parent = tempfile::tempdir().unwrap();
    let (dir, away) = (parent.path().join("store"), parent.path().join("away"));
    let (store, writer) = in_use(&dir);
    std::fs::rename(&dir, &away).unwrap();
    std::fs::create_dir(&dir).unwrap();
    all_is_refused(&store, &dir);
    vanished!(writer.finish(None));
    assert!(is_empty(&dir), "nothing is written into the other folder");

    // Another store in this place is refused too, even with a block of the same name.
    let other = FileStore::open(&dir).unwrap();
    put(&other, block(1, 0), G, 200).unwrap();
    vanished!(store.delete(block(1, 0), None));
    vanished!(store.wipe());
    get(&other, block(1, 0), G).unwrap();
    drop(other);

    // The right folder comes back: so does the store.
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&away, &dir).unwrap();
    store.check_root().unwrap();
    get(&store, block(1, 0), G).unwrap();
}

#[test]
fn a_folder_that_was_removed_is_not_made_anew() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("store");
    let (store, writer) = in_use(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    all_is_refused(&store, &dir);
    vanished!(writer.finish(None));
    assert!(!dir.exists());

    let dir = parent.path().join("emptied");
    let (store, writer) = in_use(&dir);
    for name in ["blocks", "quarantine"] {
        std::fs::remove_dir_all(dir.join(name)).unwrap();
    }
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    all_is_refused(&store, &dir);
    vanished!(writer.finish(None));
    assert!(is_empty(&dir));
}

#[test]
fn a_disk_that_was_unmounted_lazily_leaves_its_mount_point_empty() {
    let Some(disk) = TinyDisk::mount(1 << 20) else { return };
    let dir = disk.0.path();
    let (store, writer) = in_use(dir);
    let umount = Command::new("umount").arg("-l").arg(dir).status().unwrap();
    assert!(umount.success());
    all_is_refused(&store, dir);
    vanished!(writer.finish(None));
    assert!(is_empty(dir), "nothing is written into the mount point");
    drop(store);
    // For the unmount at the end of the test.
    let again = Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(dir).status().unwrap();
    assert!(again.success());
}

#[test]
fn a_shelf_that_was_removed_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, block(1, 0), G, 100).unwrap();
    std::fs::remove_dir_all(dir.path().join("blocks/01")).unwrap();
    // The first write notices it.
    let _ = put(&store, block(1, 0), G, 100);
    put(&store, block(1, 0), G, 100).unwrap();
    get(&store, block(1, 0), G).unwrap();
}
