//! Block files as earlier versions of this software wrote them, readable for ever.
//!
//! The files in `tests/golden` were written by the last version that wrote formats 1 and 2, and by an earlier release that
//! wrote format 3. Never regenerate these files: a test that fails means that bytes on somebody's disk cannot be read any
//! more. A new format brings files of its own.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use kintsu_dag::{BlockId, BlockIndex, StripeId};
use kintsu_store::{BlockHead, BlockMeta, BlockStore, Digest, FileStore, Generation, UNIT_BYTES, block_path};

/// Format version, stripe, bytes of data, bytes of a unit, digest.
const FILES: [(u32, u64, usize, usize, &str); 5] = [
    (1, 300, 5000, UNIT_BYTES, "d53b49117930d84da59bbdf6c5f65f1d"),
    (2, 301, 5000, 4096, "27d120fe188ffb0d458467533b08af1a"),
    (1, 302, 0, UNIT_BYTES, "2c0a8a99dc147d5445c3b49d035665b2"),
    (3, 303, 5000, 4096, "27d120fe188ffb0d458467533b08af1a"),
    (3, 304, 0, UNIT_BYTES, "2c0a8a99dc147d5445c3b49d035665b2"),
];
const GENERATION: Generation = Generation(7);

fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

/// The label of an archived block: none before format 3; one that fits its header page, and one that does not.
fn label(stripe: u64) -> Vec<u8> {
    match stripe {
        303 => b"label".to_vec(),
        304 => (0..6000).map(|i| (i * 3 % 253) as u8).collect(),
        _ => Vec::new(),
    }
}

fn id(stripe: u64) -> BlockId {
    BlockId { stripe: StripeId(stripe), index: BlockIndex(2) }
}

/// A store with the archived files in their places.
fn store_of_old_files() -> (tempfile::TempDir, FileStore) {
    let dir = tempfile::tempdir().unwrap();
    for (version, stripe, ..) in FILES {
        let to = block_path(dir.path(), id(stripe));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        let name = format!("version{version}.s{stripe}.b2.block");
        std::fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name), to).unwrap();
    }
    let store = FileStore::open(dir.path()).unwrap();
    (dir, store)
}

fn version_of(store: &FileStore, id: BlockId) -> u32 {
    let file = std::fs::read(store.path(id)).unwrap();
    u32::from_le_bytes(file[8..12].try_into().unwrap())
}

#[test]
fn blocks_of_all_formats_are_listed_and_read() {
    let (_dir, store) = store_of_old_files();
    let listing = store.list().unwrap();
    assert!(listing.damaged.is_empty(), "{:?}", listing.damaged);
    assert_eq!(listing.blocks.len(), FILES.len());
    for ((version, stripe, len, unit, digest), listed) in FILES.into_iter().zip(listing.blocks) {
        let id = id(stripe);
        assert_eq!(version_of(&store, id), version, "an archived file");
        let meta = BlockMeta {
            id,
            generation: GENERATION,
            len: len as u64,
            unit_bytes: unit as u32,
            digest: Digest::in_units(&data(len), unit),
        };
        assert_eq!((listed, meta.digest.to_string()), (meta, digest.to_owned()));
        assert_eq!(store.verify(id).unwrap(), meta);
        assert_eq!(store.look(id).unwrap(), BlockHead { meta, label: label(id.stripe.0) });
        let mut read = vec![0; len];
        let mut reader = store.open(id, GENERATION).unwrap();
        reader.read_at(0, &mut read).unwrap();
        assert_eq!((read, reader.label()), (data(len), label(id.stripe.0).as_slice()));
    }
}

#[test]
fn rot_in_blocks_of_all_formats_is_found() {
    let (_dir, store) = store_of_old_files();
    for (_, stripe, ..) in FILES {
        let path = store.path(id(stripe));
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(61).chain([whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            std::fs::write(&path, bytes).unwrap();
            assert!(store.verify(id(stripe)).unwrap_err().is_rot(), "flip at {at}");
        }
        std::fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
        assert!(store.verify(id(stripe)).unwrap_err().is_rot());
    }
}

#[test]
fn writing_an_old_block_again_gives_it_the_new_format_and_a_label() {
    let (_dir, store) = store_of_old_files();
    for (_, stripe, len, unit, _) in FILES.into_iter().filter(|file| file.0 < 3) {
        let id = id(stripe);
        let before = store.look(id).unwrap().meta;
        let mut writer = store.create(id, GENERATION, len as u64, unit as u32, b"label").unwrap();
        writer.write_at(0, &data(len)).unwrap();
        assert_eq!(writer.finish(Some(before.digest)).unwrap(), before);
        assert_eq!(version_of(&store, id), 3);
        assert_eq!(store.look(id).unwrap(), BlockHead { meta: before, label: b"label".to_vec() });
        store.verify(id).unwrap();
    }
    assert_eq!(store.aside().unwrap(), [], "the same bytes with less said of them need not be kept");
}
