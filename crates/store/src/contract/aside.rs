//! The part of the contract about blocks that are set aside.

use std::collections::BTreeSet;

use kintsu_dag::BlockId;

use super::{block, empty, get, holds, put, put_labelled};
use crate::{BlockHead, BlockStore, Generation, QuarantinedFile, Reason, StoreError, UNIT_BYTES};

pub(super) fn blocks_set_aside_are_gone_and_kept(store: &dyn BlockStore) {
    empty(store);
    let id = block(9, 0);
    let mut names = BTreeSet::new();
    for (round, reason) in [Reason::Rotten, Reason::Rotten, Reason::Unknown].into_iter().enumerate() {
        put_labelled(store, id, Generation(1), 10, b"label").unwrap();
        names.insert(store.set_aside(id, reason, 5).unwrap());
        refused!(store.open(id, Generation(1)), NotFound);
        refused!(store.look(id), NotFound);
        assert_eq!(store.ids().unwrap(), []);
        let usage = store.usage().unwrap();
        assert_eq!((usage.blocks, usage.aside_blocks), (0, round as u64 + 1));
        assert!(usage.aside_bytes >= 10 * usage.aside_blocks);
    }
    assert_eq!(names.len(), 3, "each has a name of its own");
    let aside = store.aside().unwrap();
    assert_eq!(aside.iter().map(|aside| aside.name.clone()).collect::<BTreeSet<_>>(), names);
    assert!(aside.iter().all(|aside| aside.id == id && aside.at_unix == 5 && aside.meta.unwrap().len == 10));
    assert_eq!(aside.iter().filter(|aside| aside.reason == Reason::Unknown).count(), 1);
    put(store, id, Generation(1), 10).unwrap();
    holds(store, id, Generation(1), 10);
    assert_eq!(store.wipe().unwrap(), 1);
    assert_eq!(store.aside().unwrap(), aside, "wiping deletes blocks only");
}

pub(super) fn what_was_set_aside_comes_back(store: &dyn BlockStore) {
    empty(store);
    let id = block(14, 3);
    let meta = put_labelled(store, id, Generation(4), 70_000, b"label").unwrap();
    let name = store.set_aside(id, Reason::Unknown, 77).unwrap();
    assert_eq!(store.take_back(&name).unwrap(), meta);
    assert_eq!(store.look(id).unwrap(), BlockHead { meta, label: b"label".to_vec() });
    holds(store, id, Generation(4), 70_000);
    assert_eq!(store.aside().unwrap(), []);
    let usage = store.usage().unwrap();
    assert_eq!((usage.blocks, usage.aside_blocks), (1, 0));
    refused!(store.take_back(&name), Invalid);

    let name = store.set_aside(id, Reason::Unknown, 77).unwrap();
    put(store, id, Generation(5), 10).unwrap();
    refused!(store.take_back(&name), Busy);
    holds(store, id, Generation(5), 10);
    assert_eq!(store.aside().unwrap().len(), 1, "it is still set aside");
    store.delete(id, None).unwrap();
    assert_eq!(store.take_back(&name).unwrap(), meta);
}

pub(super) fn the_quarantine_is_purged_by_time_or_name(store: &dyn BlockStore) {
    empty(store);
    let mut names = Vec::new();
    for (index, at_unix) in [100, 200, 200, 300].into_iter().enumerate() {
        let id = block(15, index as u8);
        put(store, id, Generation(1), 10).unwrap();
        names.push(store.set_aside(id, Reason::Unknown, at_unix).unwrap());
    }
    put(store, block(15, 0), Generation(1), 10).unwrap();
    let left = || store.aside().unwrap().into_iter().map(|aside| aside.name).collect::<Vec<_>>();
    assert_eq!(left(), names);
    assert_eq!(store.purge(100).unwrap(), 0, "only what is older");
    assert_eq!(store.purge(200).unwrap(), 1);
    assert_eq!(left(), names[1..]);
    store.purge_one(&names[2]).unwrap();
    refused!(store.purge_one(&names[2]), Invalid);
    assert_eq!(left(), [names[1].clone(), names[3].clone()]);
    assert_eq!(store.usage().unwrap().aside_blocks, 2);
    assert_eq!(store.purge(u64::MAX).unwrap(), 2);
    assert_eq!(left(), Vec::<String>::new());
    holds(store, block(15, 0), Generation(1), 10);
}

/// Writes these bytes with a label.
fn put_bytes(store: &dyn BlockStore, id: BlockId, generation: u32, data: &[u8], label: &[u8]) {
    let unit = UNIT_BYTES as u32;
    let mut writer = store.create(id, Generation(generation), data.len() as u64, unit, label).unwrap();
    writer.write_at(0, data).unwrap();
    writer.finish(None).unwrap();
}

pub(super) fn other_content_is_never_overwritten(store: &dyn BlockStore) {
    let id = block(16, 1);
    let new = (2, b"the bytes".as_slice(), b"label".as_slice());
    let same: [(u32, &[u8], &[u8]); 2] = [new, (2, b"the bytes", b"")];
    let others: [(u32, &[u8], &[u8]); 4] = [
        (2, b"other bytes", b"label"),
        (2, b"the bytes", b"other label"),
        (1, b"the bytes", b"label"),
        (1, b"other bytes", b""),
    ];
    for (generation, data, label) in same {
        empty(store);
        put_bytes(store, id, generation, data, label);
        put_bytes(store, id, new.0, new.1, new.2);
        assert_eq!(store.aside().unwrap(), [], "the same block, or one without a label, is replaced");
        assert_eq!(store.look(id).unwrap().label, new.2);
    }
    for (generation, data, label) in others {
        empty(store);
        put_bytes(store, id, generation, data, label);
        let before = store.look(id).unwrap();
        put_bytes(store, id, new.0, new.1, new.2);
        assert_eq!(get(store, id, Generation(new.0)).unwrap(), new.1);
        assert_eq!(store.ids().unwrap(), [id]);
        let aside = store.aside().unwrap();
        let [QuarantinedFile { name, reason: Reason::Displaced, meta, .. }] = &aside[..] else {
            panic!("{aside:?}")
        };
        assert_eq!(*meta, Some(before.meta));
        store.delete(id, None).unwrap();
        store.take_back(name).unwrap();
        assert_eq!(store.look(id).unwrap(), before);
        assert_eq!(get(store, id, Generation(generation)).unwrap(), data);
    }
    // A later generation that comes back while an earlier one is being written stays.
    empty(store);
    put_bytes(store, id, 3, b"later", b"");
    let name = store.set_aside(id, Reason::Unknown, 1).unwrap();
    let mut writer = store.create(id, Generation(2), 1, UNIT_BYTES as u32, &[]).unwrap();
    writer.write_at(0, &[0]).unwrap();
    store.take_back(&name).unwrap();
    refused!(writer.finish(None), Stale);
    assert_eq!(get(store, id, Generation(3)).unwrap(), b"later");
}
