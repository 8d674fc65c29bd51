//! The contract on a real file system, and everything that can be wrong with a block file.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::contract::{block, contract, get, pattern, put, put_labelled};
use crate::format::{HEADER_BYTES, LABEL_ROOM};
use crate::simdisk::SimDisk;
use crate::{Digest, LEAST_UNIT_BYTES, UNIT_BYTES, scrub};

pub(super) const G: Generation = Generation(1);

pub(super) fn simulated() -> (SimDisk, FileStore) {
    let disk = SimDisk::default();
    let store = FileStore::open_on(Arc::new(disk.clone()), PathBuf::from("/store")).unwrap();
    (disk, store)
}

#[test]
fn a_real_directory_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    contract(&FileStore::open(&dir.path().join("made/on/the/way")).unwrap());
}

#[test]
fn a_simulated_disk_keeps_the_contract() {
    contract(&simulated().1);
}

#[test]
fn data_lies_in_the_file_from_byte_4096_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let id = block(300, 2);
    put(&store, id, G, 70_000).unwrap();
    let path = store.path(id);
    assert_eq!(path, dir.path().join("blocks/2c/s300.b2.block"));
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[HEADER_BYTES..HEADER_BYTES + 70_000], pattern(id, G, 70_000));
    assert_eq!(bytes.len(), HEADER_BYTES + 70_000 + 2 * 4 + 4);
    assert_eq!(store.usage().unwrap().bytes, bytes.len() as u64);
    assert_eq!(crate::file_bytes(70_000, UNIT_BYTES as u32, 0).unwrap(), bytes.len() as u64);
}

#[test]
fn a_second_store_on_the_same_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let Err(refused) = FileStore::open(dir.path()) else { panic!("opened twice") };
    assert!(matches!(refused, StoreError::Locked { .. }));
    let message = refused.to_string();
    assert!(message.contains(&dir.path().display().to_string()), "{message}");
    assert!(message.contains("is another kintsu running on it?"), "{message}");

    let writer = store.create(block(1, 1), G, 10, UNIT_BYTES as u32, &[]).unwrap();
    drop(store);
    assert!(FileStore::open(dir.path()).is_err(), "a writer still holds the store");
    drop(writer);
    FileStore::open(dir.path()).unwrap();
}

/// Where a flip is, and which reads must find it.
fn found_by(at: usize, len: usize, unit: usize) -> (bool, Option<usize>) {
    let in_data = (HEADER_BYTES..HEADER_BYTES + len).contains(&at);
    (!in_data, in_data.then(|| (at - HEADER_BYTES) / unit))
}

#[test]
fn every_flipped_byte_is_found_by_verify_and_by_the_reads_that_touch_it() {
    for (unit, label_bytes) in
        [(UNIT_BYTES, 0), (LEAST_UNIT_BYTES, 300), (LEAST_UNIT_BYTES, LABEL_ROOM + 500)]
    {
        every_flipped_byte_is_found(unit, &vec![0xa5; label_bytes]);
    }
}

fn every_flipped_byte_is_found(unit_bytes: usize, label: &[u8]) {
    let (disk, store) = simulated();
    let (id, len) = (block(1, 1), unit_bytes + 100);
    let mut writer = store.create(id, G, len as u64, unit_bytes as u32, label).unwrap();
    writer.write_at(0, &pattern(id, G, len)).unwrap();
    writer.finish(None).unwrap();
    let path = store.path(id);
    let trailer = HEADER_BYTES + len..HEADER_BYTES + len + 12;
    for at in 0..disk.bytes(&path).len() {
        let mask = 1 << (at % 8);
        disk.tamper(&path, |bytes| bytes[at] ^= mask);
        let error = store.verify(id).expect_err("verify");
        assert!(error.is_rot(), "flip at {at}: {error}");
        let (by_open, by_unit) = found_by(at, len, unit_bytes);
        let opened = store.open(id, G);
        assert_eq!(opened.is_err(), by_open, "open, flip at {at}");
        assert_eq!(store.look(id).is_err(), by_open && !trailer.contains(&at), "look, flip at {at}");
        if let Ok(mut reader) = opened {
            for (unit, last) in [unit_bytes - 1, len - 1].into_iter().enumerate() {
                let read = reader.read_at(last as u64, &mut [0]);
                assert_eq!(read.is_err(), by_unit == Some(unit), "unit {unit}, flip at {at}");
            }
        }
        disk.tamper(&path, |bytes| bytes[at] ^= mask);
    }
    store.verify(id).unwrap();
}

#[test]
fn reads_that_do_not_wait_are_of_whole_units_and_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let (id, len) = (block(1, 1), 20 * UNIT_BYTES + 5);
    put(&store, id, G, len).unwrap();
    let expected = pattern(id, G, len);
    let path = store.path(id);
    let file = std::fs::File::open(&path).unwrap();
    let knows = crate::disk::DiskFile::read_now(&file, &mut [0; 100], 0);
    let read = |offset: usize, bytes: usize| {
        let (mut reader, mut buf) = (store.open(id, G).unwrap(), vec![0; bytes]);
        let done = reader.read_now(offset as u64, &mut buf);
        assert_eq!(reader.bytes_read(), if done.as_ref().is_ok_and(|done| *done) { bytes as u64 } else { 0 });
        done.map(|done| done.then_some(buf))
    };
    let whole = [(0, len), (0, UNIT_BYTES), (3 * UNIT_BYTES, 12 * UNIT_BYTES), (20 * UNIT_BYTES, 5)];
    for (offset, bytes) in whole {
        let got = read(offset, bytes).unwrap();
        assert_eq!(got.is_some(), knows, "{bytes} bytes at {offset}");
        assert!(got.is_none_or(|got| got == expected[offset..offset + bytes]), "{bytes} bytes at {offset}");
    }
    for (offset, bytes) in [(1, UNIT_BYTES), (0, UNIT_BYTES - 1), (20 * UNIT_BYTES, 4), (20 * UNIT_BYTES, 6)]
    {
        assert_eq!(read(offset, bytes).unwrap(), None, "{bytes} bytes at {offset}");
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[HEADER_BYTES + 7 * UNIT_BYTES] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read(0, len).is_err_and(|error| error.is_rot()), knows);
    assert_eq!(read(0, 7 * UNIT_BYTES).unwrap().is_some(), knows);
}

#[test]
fn whole_unit_reads_find_a_flip_anywhere_in_a_long_run() {
    let (disk, store) = simulated();
    let (id, len) = (block(1, 1), 20 * UNIT_BYTES + 5);
    put(&store, id, G, len).unwrap();
    for unit in 0..21 {
        let at = HEADER_BYTES + unit * UNIT_BYTES + unit % 5;
        disk.tamper(&store.path(id), |bytes| bytes[at] ^= 0x80);
        match get(&store, id, G) {
            Err(StoreError::Corrupt { unit: Some(found), .. }) => assert_eq!(found, unit as u64),
            other => panic!("unit {unit}: {:?}", other.map(|data| data.len())),
        }
        disk.tamper(&store.path(id), |bytes| bytes[at] ^= 0x80);
    }
}

#[test]
fn a_file_of_any_other_length_is_refused() {
    let (disk, store) = simulated();
    let id = block(1, 1);
    put_labelled(&store, id, G, 5000, &[7; LABEL_ROOM + 100]).unwrap();
    let path = store.path(id);
    let whole = disk.bytes(&path);
    for len in 0..whole.len() {
        disk.tamper(&path, |bytes| bytes.truncate(len));
        let Err(error) = store.open(id, G) else { panic!("opened with {len} bytes") };
        assert!(matches!(error, StoreError::Truncated { .. }), "{len} bytes: {error}");
        assert!(store.verify(id).unwrap_err().is_rot());
        disk.tamper(&path, |bytes| bytes.clone_from(&whole));
    }
    disk.tamper(&path, |bytes| bytes.push(0));
    assert!(matches!(store.verify(id), Err(StoreError::WrongLength { .. })));
}

#[test]
fn a_file_cut_while_it_is_read_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let id = block(1, 1);
    put(&store, id, G, 2 * UNIT_BYTES).unwrap();
    let mut reader = store.open(id, G).unwrap();
    std::fs::File::options().write(true).open(store.path(id)).unwrap().set_len(10_000).unwrap();
    assert!(matches!(reader.read_at(0, &mut [0; 10]), Err(StoreError::Truncated { .. })));
}

#[test]
fn a_block_under_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let (id, other) = (block(1, 1), block(1, 2));
    put(&store, id, G, 100).unwrap();
    std::fs::copy(store.path(id), store.path(other)).unwrap();
    assert!(matches!(store.verify(other), Err(StoreError::Corrupt { what: "block id", .. })));
}

#[test]
fn rotten_blocks_are_scrubbed_out_and_written_again() {
    let (disk, store) = simulated();
    let ids = [block(1, 0), block(1, 1), block(1, 2), block(1, 3)];
    for id in ids {
        put(&store, id, G, 5000).unwrap();
    }
    disk.tamper(&store.path(ids[1]), |bytes| bytes[20] ^= 1);
    disk.tamper(&store.path(ids[3]), |bytes| bytes[HEADER_BYTES + 20] ^= 1);
    let Listing { blocks, damaged } = store.list().unwrap();
    assert_eq!(blocks.iter().map(|meta| meta.id).collect::<Vec<_>>(), [ids[0], ids[2], ids[3]]);
    assert!(matches!(damaged[..], [(id, StoreError::Corrupt { .. })] if id == ids[1]), "{damaged:?}");

    let report = scrub(&store, &mut |id, outcome| {
        if outcome.is_err() {
            store.set_aside(id, Reason::Rotten, 5).unwrap();
        }
        true
    });
    let report = report.unwrap();
    assert_eq!((report.sound, report.rotten), (2, vec![ids[1], ids[3]]));
    assert_eq!(store.ids().unwrap(), [ids[0], ids[2]]);
    let aside: Vec<_> = store.aside().unwrap().into_iter().map(|aside| aside.name).collect();
    assert_eq!(aside, ["s1.b1.rotten.5.0", "s1.b3.g1.rotten.5.1"], "kept, with what is known of them");

    for id in [ids[1], ids[3]] {
        put(&store, id, G, 5000).unwrap();
    }
    assert_eq!(scrub(&store, &mut |_, _| true).unwrap().sound, 4);
}

#[test]
fn a_rotten_header_does_not_stop_a_rewrite_but_stops_a_picky_delete() {
    let (disk, store) = simulated();
    let id = block(1, 1);
    put(&store, id, Generation(9), 100).unwrap();
    disk.tamper(&store.path(id), |bytes| bytes[12] ^= 1);
    assert!(store.delete(id, Some(Generation(9))).unwrap_err().is_rot());
    put(&store, id, G, 100).unwrap();
    assert!(store.delete(id, Some(G)).unwrap());
}

#[test]
fn usage_forgets_a_block_file_that_somebody_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    put(&store, block(1, 1), G, 100).unwrap();
    std::fs::remove_file(store.path(block(1, 1))).unwrap();
    assert!(matches!(store.verify(block(1, 1)), Err(StoreError::NotFound { .. })));
    assert_eq!(store.usage().unwrap().blocks, 0);
}

#[test]
fn opening_removes_unfinished_writes_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let (id, aside) = (block(1, 1), block(1, 2));
    put(&store, id, G, 100).unwrap();
    put(&store, aside, G, 100).unwrap();
    store.set_aside(aside, Reason::Rotten, 5).unwrap();
    drop(store);
    let shelf = dir.path().join("blocks/01");
    let whole = std::fs::read(shelf.join("s1.b1.block")).unwrap();
    std::fs::write(shelf.join("s1.b1.tmp"), b"").unwrap();
    std::fs::write(shelf.join("s1.b5.tmp"), &whole[..50]).unwrap();
    std::fs::write(shelf.join("s1.b6.tmp"), &whole).unwrap();
    std::fs::write(shelf.join("notes.txt"), b"mine").unwrap();

    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(store.ids().unwrap(), [id]);
    assert_eq!(store.usage().unwrap().blocks, 1);
    store.verify(id).unwrap();
    let mut left: Vec<_> =
        std::fs::read_dir(&shelf).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["notes.txt", "s1.b1.block"]);
    assert_eq!(store.aside().unwrap().len(), 1);
}

/// A file system of this size, until dropped.
pub(super) struct TinyDisk(pub(super) tempfile::TempDir);

impl TinyDisk {
    pub(super) fn mount(bytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"])
            .arg(dir.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(dir)),
            other => {
                let why = "a disk of its own cannot be tried, mounting tmpfs failed";
                let _ = writeln!(std::io::stderr(), "SKIPPED: {why}: {other:?}");
                None
            }
        }
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        let unmounted = unmounted.is_ok_and(|status| status.success());
        assert!(unmounted || std::thread::panicking(), "umount {}", self.0.path().display());
    }
}

#[test]
fn a_full_disk_is_found_at_create_and_changes_nothing() {
    let Some(disk) = TinyDisk::mount(1 << 20) else { return };
    let store = FileStore::open(disk.0.path()).unwrap();
    put(&store, block(1, 0), G, 300_000).unwrap();
    let files_before = store.usage().unwrap();
    match store.create(block(1, 1), G, 10 << 20, UNIT_BYTES as u32, &[]) {
        Err(StoreError::Full { needed, free, .. }) => assert!(needed > 10 << 20 && free < 1 << 20),
        other => panic!("expected Full, got {:?}", other.map(|_| ())),
    }
    // Space is taken at create: two writers that fit one by one do not fit together.
    let first = store.create(block(1, 1), G, 400_000, UNIT_BYTES as u32, &[]).unwrap();
    assert!(matches!(
        store.create(block(1, 2), G, 400_000, UNIT_BYTES as u32, &[]),
        Err(StoreError::Full { .. })
    ));
    drop(first);
    assert_eq!(store.usage().unwrap(), files_before, "nothing is left behind");
    put(&store, block(1, 2), G, 400_000).unwrap();
    get(&store, block(1, 0), G).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn random_pieces_in_random_order_read_back_in_random_ranges(
        unit in (12u32..=16).prop_map(|bits| 1usize << bits),
        len in 1usize..5 * UNIT_BYTES,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        shuffle in any::<u64>(),
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        let id = block(shuffle, 0);
        let data = pattern(id, G, len);
        let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(len)).chain([0, len]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut pieces: Vec<_> = bounds.windows(2).map(|pair| pair[0]..pair[1]).collect();
        pieces.sort_by_key(|piece| (piece.start as u64 + 1).wrapping_mul(shuffle | 1).rotate_left(17));

        let mut writer = store.create(id, G, len as u64, unit as u32, &[]).unwrap();
        for piece in pieces {
            writer.write_at(piece.start as u64, &data[piece]).unwrap();
        }
        let meta = writer.finish(None).unwrap();
        prop_assert_eq!(meta.digest, Digest::in_units(&data, unit));
        prop_assert_eq!(store.verify(id).unwrap(), meta);
        let mut reader = store.open(id, G).unwrap();
        for (a, b) in ranges {
            let (a, b) = (a.index(len), b.index(len));
            let range = a.min(b)..a.max(b);
            let mut got = vec![0; range.len()];
            reader.read_at(range.start as u64, &mut got).unwrap();
            prop_assert!(got == data[range]);
        }
    }
}
