//! What every [`BlockStore`] must do: one test body, run on each implementation.
//!
//! It does not test rot and crashes: those tests need access to the inside of an implementation.

#![allow(clippy::unwrap_used, reason = "this is a test: its panics are what it finds")]

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, StripeId};

use crate::{
    BlockHead, BlockMeta, BlockRead, BlockStore, Digest, Generation, LEAST_UNIT_BYTES, Listing,
    MOST_LABEL_BYTES, Reason, StoreError, UNIT_BYTES, scrub,
};

const UNITS: [usize; 2] = [UNIT_BYTES, LEAST_UNIT_BYTES];

fn lengths(unit: usize) -> [usize; 7] {
    [0, 1, 4096, unit - 1, unit, unit + 1, 9 * unit + 77]
}

/// Runs the whole suite on an empty store and leaves it empty.
///
/// # Panics
/// Where the store breaks the contract.
pub fn contract(store: &dyn BlockStore) {
    absent_blocks_are_not_found(store);
    for unit in UNITS {
        blocks_come_back_as_written(store, unit);
        order_of_writing_does_not_matter(store, unit);
        readers_keep_what_they_opened(store, unit);
        what_is_read_is_counted_in_units(store, unit);
    }
    wrong_writes_are_refused(store);
    unfinished_blocks_leave_nothing(store);
    one_writer_a_block(store);
    generations_replace_and_protect(store);
    deleting_is_exact(store);
    labels_come_back_as_written(store);
    aside::blocks_set_aside_are_gone_and_kept(store);
    aside::what_was_set_aside_comes_back(store);
    aside::the_quarantine_is_purged_by_time_or_name(store);
    aside::other_content_is_never_overwritten(store);
    wiping_ends_open_writes(store);
    many_writers_at_once(store);
    scrubbing_visits_all(store);
}

/// The block of this stripe and index.
pub fn block(stripe: u64, index: u8) -> BlockId {
    BlockId { stripe: StripeId(stripe), index: BlockIndex(index) }
}

/// Bytes that differ from block to block and within a block.
pub fn pattern(id: BlockId, generation: Generation, len: usize) -> Vec<u8> {
    let seed = id.stripe.0.wrapping_mul(257) + u64::from(id.index.0) * 31 + u64::from(generation.0);
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

/// Writes [`pattern`] in pieces of 48 KiB and units of 64 KiB.
///
/// # Errors
/// Those of the store.
pub fn put(
    store: &dyn BlockStore,
    id: BlockId,
    generation: Generation,
    len: usize,
) -> Result<BlockMeta, StoreError> {
    put_in_units(store, id, generation, len, UNIT_BYTES)
}

/// Writes [`pattern`] with a label, in units of 64 KiB.
///
/// # Errors
/// Those of the store.
pub fn put_labelled(
    store: &dyn BlockStore,
    id: BlockId,
    generation: Generation,
    len: usize,
    label: &[u8],
) -> Result<BlockMeta, StoreError> {
    let data = pattern(id, generation, len);
    let mut writer = store.create(id, generation, len as u64, UNIT_BYTES as u32, label)?;
    writer.write_at(0, &data)?;
    writer.finish(Some(Digest::of_bytes(&data)))
}

/// Writes [`pattern`] in pieces of 48 KiB and units of `unit` bytes.
///
/// # Errors
/// Those of the store.
pub fn put_in_units(
    store: &dyn BlockStore,
    id: BlockId,
    generation: Generation,
    len: usize,
    unit: usize,
) -> Result<BlockMeta, StoreError> {
    let data = pattern(id, generation, len);
    let mut writer = store.create(id, generation, len as u64, unit as u32, &[])?;
    for (i, piece) in data.chunks(48 * 1024).enumerate() {
        writer.write_at((i * 48 * 1024) as u64, piece)?;
    }
    writer.finish(Some(Digest::in_units(&data, unit)))
}

/// Reads a whole block at once.
///
/// # Errors
/// Those of the store.
pub fn get(store: &dyn BlockStore, id: BlockId, generation: Generation) -> Result<Vec<u8>, StoreError> {
    let mut reader = store.open(id, generation)?;
    let mut data = vec![0; reader.meta().len as usize];
    reader.read_at(0, &mut data)?;
    Ok(data)
}

fn holds(store: &dyn BlockStore, id: BlockId, generation: Generation, len: usize) {
    assert_eq!(get(store, id, generation).unwrap(), pattern(id, generation, len), "{id} {generation}");
}

/// All blocks, none of them damaged.
fn blocks(store: &dyn BlockStore) -> Vec<BlockMeta> {
    let Listing { blocks, damaged } = store.list().unwrap();
    assert!(damaged.is_empty(), "{damaged:?}");
    blocks
}

fn empty(store: &dyn BlockStore) {
    store.wipe().unwrap();
    store.purge(u64::MAX).unwrap();
    assert_eq!(store.ids().unwrap(), []);
    assert_eq!(blocks(store), []);
    let usage = store.usage().unwrap();
    assert_eq!((usage.blocks, usage.bytes, usage.aside_blocks, usage.aside_bytes), (0, 0, 0, 0));
}

macro_rules! refused {
    ($result:expr, $kind:ident) => {
        match $result {
            Err(StoreError::$kind { .. }) => {}
            Err(other) => panic!("expected {}, got error: {other}", stringify!($kind)),
            Ok(_) => panic!("expected {}, got Ok", stringify!($kind)),
        }
    };
}

// Below the macro, which it uses.
mod aside;

fn absent_blocks_are_not_found(store: &dyn BlockStore) {
    empty(store);
    let id = block(1, 2);
    refused!(store.open(id, Generation(0)), NotFound);
    refused!(store.verify(id), NotFound);
    refused!(store.check(id, 0).map_err(|bad| bad.error), NotFound);
    refused!(store.look(id), NotFound);
    refused!(store.set_aside(id, Reason::Rotten, 0), NotFound);
    refused!(store.take_back("s1.b2.g0.rotten.0.0"), Invalid);
    refused!(store.take_back("../s1.b2"), Invalid);
    refused!(store.purge_one("s1.b2.g0.rotten.0.0"), Invalid);
    store.check_root().unwrap();
    assert!(!store.delete(id, None).unwrap());
    assert!(!store.delete(id, Some(Generation(0))).unwrap());
}

fn blocks_come_back_as_written(store: &dyn BlockStore, unit: usize) {
    empty(store);
    let lengths = lengths(unit);
    for (i, len) in lengths.into_iter().enumerate() {
        let (id, generation) = (block(1000 + i as u64, i as u8), Generation(i as u32));
        let data = pattern(id, generation, len);
        let meta = put_in_units(store, id, generation, len, unit).unwrap();
        let digest = Digest::in_units(&data, unit);
        assert_eq!(meta, BlockMeta { id, generation, len: len as u64, unit_bytes: unit as u32, digest });
        assert_eq!(store.verify(id).unwrap(), meta);
        assert_eq!(store.check(id, 0).unwrap(), meta);
        let mut reader = store.open(id, generation).unwrap();
        assert_eq!(*reader.meta(), meta);
        reads_are_right(&mut *reader, &data);
    }
    let metas = blocks(store);
    assert_eq!(metas.len(), lengths.len());
    assert!(metas.is_sorted_by_key(|meta| meta.id));
    assert_eq!(metas.iter().map(|meta| meta.id).collect::<Vec<_>>(), store.ids().unwrap());
    let usage = store.usage().unwrap();
    assert_eq!(usage.blocks, lengths.len() as u64);
    assert!(usage.bytes >= lengths.iter().sum::<usize>() as u64);
    assert!(usage.free_bytes <= usage.capacity_bytes);
    assert_eq!(store.wipe().unwrap(), lengths.len() as u64);
}

fn reads_are_right(reader: &mut dyn BlockRead, data: &[u8]) {
    for step in [4096, 5000, UNIT_BYTES, 3 * UNIT_BYTES + 1, usize::MAX] {
        for (i, want) in data.chunks(step).enumerate() {
            let mut got = vec![0; want.len()];
            reader.read_at((i * step.min(data.len())) as u64, &mut got).unwrap();
            assert!(got == want, "reading by {step}, piece {i}");
        }
    }
    for offset in [data.len() / 2, data.len() / 3, data.len()] {
        let mut got = vec![0; data.len() - offset];
        reader.read_at(offset as u64, &mut got).unwrap();
        assert!(got == data[offset..], "reading from {offset}");
    }
    let len = data.len() as u64;
    refused!(reader.read_at(len, &mut [0]), Invalid);
    refused!(reader.read_at(u64::MAX, &mut [0]), Invalid);
    refused!(reader.read_at(0, &mut vec![0; data.len() + 1]), Invalid);
}

fn order_of_writing_does_not_matter(store: &dyn BlockStore, unit: usize) {
    empty(store);
    let (id, len) = (block(2, 0), 5 * UNIT_BYTES + 1234);
    let data = pattern(id, Generation(1), len);
    for step in [1000, 4096, 32 * 1024, 48 * 1024, UNIT_BYTES, 100_000] {
        let pieces: Vec<_> = data.chunks(step).enumerate().collect();
        let mut writer = store.create(id, Generation(1), len as u64, unit as u32, &[]).unwrap();
        for lane in 0..3 {
            for (i, piece) in pieces.iter().rev().filter(|(i, _)| i % 3 == lane) {
                writer.write_at((i * step) as u64, piece).unwrap();
            }
        }
        assert_eq!(writer.written(), len as u64);
        assert_eq!(writer.finish(None).unwrap().digest, Digest::in_units(&data, unit), "pieces of {step}");
        holds(store, id, Generation(1), len);
    }
}

fn what_is_read_is_counted_in_units(store: &dyn BlockStore, unit: usize) {
    empty(store);
    let (id, len) = (block(12, 0), 20 * unit + 100);
    put_in_units(store, id, Generation(1), len, unit).unwrap();
    let mut reader = store.open(id, Generation(1)).unwrap();
    let mut buf = vec![0; 3 * unit];
    let mut read = |offset: usize, len: usize| {
        let before = reader.bytes_read();
        reader.read_at(offset as u64, &mut buf[..len]).unwrap();
        reader.bytes_read() - before
    };
    let whole = unit as u64;
    assert_eq!(read(unit, unit), whole, "a unit is read without its neighbours");
    assert_eq!(read(4 * unit, 2 * unit), 2 * whole);
    assert_eq!(read(7 * unit + 5, 10), whole, "of any part the whole unit");
    assert_eq!(read(7 * unit + 15, unit - 15), 0, "and that once");
    assert_eq!(read(9 * unit - 1, 2), 2 * whole);
    assert_eq!(read(20 * unit + 50, 50), 100, "the last one is shorter");
}

fn wrong_writes_are_refused(store: &dyn BlockStore) {
    empty(store);
    let id = block(3, 0);
    let unit = UNIT_BYTES as u32;
    refused!(store.create(id, Generation(0), u64::MAX, unit, &[]), Invalid);
    refused!(store.create(id, Generation(0), 1 << 61, unit, &[]), Full);
    for unit in [0, 1, 2048, 5000, 1 << 17] {
        refused!(store.create(id, Generation(0), 100, unit, &[]), Invalid);
    }
    let mut writer = store.create(id, Generation(0), 100, unit, &[]).unwrap();
    refused!(writer.write_at(1, &[0; 100]), Invalid);
    refused!(writer.write_at(u64::MAX, &[0; 100]), Invalid);
    writer.write_at(10, &[7; 10]).unwrap();
    refused!(writer.write_at(19, &[0; 2]), Invalid);
    refused!(writer.write_at(0, &[0; 11]), Invalid);
    writer.write_at(100, &[]).unwrap();
    assert_eq!(writer.written(), 10, "a refused write takes nothing");
    writer.write_at(0, &[7; 10]).unwrap();
    writer.write_at(20, &[7; 80]).unwrap();
    writer.finish(Some(Digest::of_bytes(&[7; 100]))).unwrap();
    assert_eq!(get(store, id, Generation(0)).unwrap(), [7; 100]);
}

fn unfinished_blocks_leave_nothing(store: &dyn BlockStore) {
    empty(store);
    let id = block(4, 4);
    put(store, id, Generation(1), 100).unwrap();
    let mut short = store.create(id, Generation(2), 50, UNIT_BYTES as u32, &[]).unwrap();
    short.write_at(0, &[1; 49]).unwrap();
    refused!(short.finish(None), WrongLength);
    let mut wrong = store.create(id, Generation(2), 50, UNIT_BYTES as u32, &[]).unwrap();
    wrong.write_at(0, &[1; 50]).unwrap();
    refused!(wrong.finish(Some(Digest::of_bytes(&[2; 50]))), DigestMismatch);
    let mut dropped = store.create(id, Generation(2), 50, UNIT_BYTES as u32, &[]).unwrap();
    dropped.write_at(0, &[1; 50]).unwrap();
    drop(dropped);
    holds(store, id, Generation(1), 100);
    assert_eq!(blocks(store).len(), 1);
}

fn one_writer_a_block(store: &dyn BlockStore) {
    empty(store);
    let (one, other) = (block(5, 1), block(5, 2));
    let writer = store.create(one, Generation(1), 10, UNIT_BYTES as u32, &[]).unwrap();
    refused!(store.create(one, Generation(2), 10, UNIT_BYTES as u32, &[]), Busy);
    assert_eq!(store.ids().unwrap(), [], "a block being written is not there");
    put(store, other, Generation(1), 10).unwrap();
    drop(writer);
    put(store, one, Generation(1), 10).unwrap();
}

fn generations_replace_and_protect(store: &dyn BlockStore) {
    empty(store);
    let id = block(6, 0);
    put(store, id, Generation(3), 70_000).unwrap();
    refused!(store.open(id, Generation(2)), Stale);
    refused!(store.open(id, Generation(4)), Stale);
    refused!(store.create(id, Generation(2), 10, UNIT_BYTES as u32, &[]), Stale);
    put(store, id, Generation(3), 70_000).unwrap();
    put(store, id, Generation(5), 30).unwrap();
    refused!(store.open(id, Generation(3)), Stale);
    holds(store, id, Generation(5), 30);
    assert_eq!(store.usage().unwrap().blocks, 1);
}

fn readers_keep_what_they_opened(store: &dyn BlockStore, unit: usize) {
    empty(store);
    let (id, len) = (block(7, 0), 3 * UNIT_BYTES);
    put_in_units(store, id, Generation(1), len, unit).unwrap();
    let mut reader = store.open(id, Generation(1)).unwrap();
    put(store, id, Generation(2), 10).unwrap();
    store.delete(id, None).unwrap();
    reads_are_right(&mut *reader, &pattern(id, Generation(1), len));
}

fn deleting_is_exact(store: &dyn BlockStore) {
    empty(store);
    let (id, other) = (block(8, 0), block(8, 1));
    put(store, id, Generation(1), 10).unwrap();
    put(store, other, Generation(1), 10).unwrap();
    assert!(!store.delete(id, Some(Generation(2))).unwrap());
    holds(store, id, Generation(1), 10);
    assert!(store.delete(id, Some(Generation(1))).unwrap());
    assert!(!store.delete(id, None).unwrap());
    assert_eq!(store.ids().unwrap(), [other]);
    assert!(store.delete(other, None).unwrap());
}

fn labels_come_back_as_written(store: &dyn BlockStore) {
    empty(store);
    let lengths = [0, 1, 200, 4031, 4032, 4033, 4036, 4037, 10_000, MOST_LABEL_BYTES];
    for (i, label_bytes) in lengths.into_iter().enumerate() {
        let (id, len) = (block(13, i as u8), 5000 * (i % 3));
        let label = pattern(id, Generation(9), label_bytes);
        let meta = put_labelled(store, id, Generation(1), len, &label).unwrap();
        assert_eq!(store.look(id).unwrap(), BlockHead { meta, label: label.clone() });
        assert_eq!(store.open(id, Generation(1)).unwrap().label(), label);
        assert_eq!(store.verify(id).unwrap(), meta);
        holds(store, id, Generation(1), len);
    }
    assert_eq!(blocks(store).len(), lengths.len());
    let too_long = vec![0; MOST_LABEL_BYTES + 1];
    refused!(store.create(block(13, 99), Generation(1), 10, UNIT_BYTES as u32, &too_long), Invalid);
}

fn wiping_ends_open_writes(store: &dyn BlockStore) {
    empty(store);
    let id = block(10, 0);
    put(store, id, Generation(1), 10).unwrap();
    let mut writer = store.create(block(10, 1), Generation(1), 4, UNIT_BYTES as u32, &[]).unwrap();
    writer.write_at(0, b"late").unwrap();
    assert_eq!(store.wipe().unwrap(), 1);
    refused!(writer.finish(None), Busy);
    assert_eq!(store.ids().unwrap(), []);
}

fn many_writers_at_once(store: &dyn BlockStore) {
    empty(store);
    std::thread::scope(|scope| {
        for index in 0..8 {
            scope.spawn(move || {
                for stripe in 0..4 {
                    put(store, block(stripe, index), Generation(stripe as u32), 100_000).unwrap();
                }
            });
        }
    });
    let found: BTreeSet<_> = blocks(store).iter().map(|meta| (meta.id, meta.generation)).collect();
    let wanted =
        (0..4).flat_map(|stripe| (0..8).map(move |index| (block(stripe, index), Generation(stripe as u32))));
    assert_eq!(found, wanted.collect());
    for (id, generation) in found {
        holds(store, id, generation, 100_000);
    }
}

fn scrubbing_visits_all(store: &dyn BlockStore) {
    empty(store);
    for index in 0..3 {
        put(store, block(11, index), Generation(1), 1000).unwrap();
    }
    let mut seen = Vec::new();
    let report = scrub(store, &mut |id, outcome| {
        assert_eq!(outcome.unwrap().id, id);
        seen.push(id);
        true
    });
    let report = report.unwrap();
    assert_eq!(seen, [block(11, 0), block(11, 1), block(11, 2)]);
    assert_eq!((report.sound, report.bytes, report.complete), (3, 3000, true));
    assert_eq!(report.rotten.len() + report.unread.len(), 0);
    let report = scrub(store, &mut |_, _| false).unwrap();
    assert_eq!((report.sound, report.complete), (1, false));
    empty(store);
}
