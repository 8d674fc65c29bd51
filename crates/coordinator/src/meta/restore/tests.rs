//! Dump and restore: the tables are the same afterwards, whatever was done before; a copy that is not sound
//! restores nothing.

use std::collections::BTreeMap;

use kintsu_wire::ClusterId;
use kintsu_wire::message::Encoding;
use proptest::prelude::*;
use redb::ReadableTable;

use super::*;
use crate::meta::tests::{apply, check, new_put, op, open, store};
use crate::meta::{Meta, tests};

const CACHE: usize = 1 << 20;

/// All rows of all tables, as bytes.
type Rows = BTreeMap<String, BTreeMap<Vec<u8>, Vec<u8>>>;

struct All<'a> {
    txn: &'a redb::ReadTransaction,
    rows: Rows,
}

impl Visit for All<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        table: TableDefinition<'static, K, V>,
    ) -> Result<()> {
        let mut out = BTreeMap::new();
        for row in self.txn.open_table(table)?.iter()? {
            let (key, value) = row?;
            let (key, value) = (key.value(), value.value());
            out.insert(K::as_bytes(&key).as_ref().to_vec(), V::as_bytes(&value).as_ref().to_vec());
        }
        self.rows.insert(table.name().to_owned(), out);
        Ok(())
    }
}

/// All rows, without what a restore changes: the counters of the last copy.
fn rows(meta: &Meta) -> Rows {
    let snapshot = meta.snapshot().unwrap();
    let mut all = All { txn: &snapshot.txn, rows: Rows::new() };
    tables::copied(&mut all).unwrap();
    all.table(tables::BY_NODE).unwrap();
    all.table(tables::TALLY).unwrap();
    let mut rows = all.rows;
    // A row of zeros (a node that has no blocks any more) and no row (it never had any) mean the same.
    rows.get_mut("tally").unwrap().retain(|_, counts| counts.iter().any(|byte| *byte != 0));
    let counters = rows.get_mut("counters").unwrap();
    counters.remove(tables::COUNT_COPY.as_bytes());
    counters.remove(tables::COUNT_COPY_TIME.as_bytes());
    rows
}

fn dump(meta: &Meta) -> Vec<u8> {
    let snapshot = meta.snapshot().unwrap();
    let header = snapshot.copy_header(1000, Some(ClusterId([7; 16]))).unwrap();
    let mut out = Vec::new();
    snapshot.dump(&header, &mut out, &mut |_| {}).unwrap();
    out
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn restored(copy: &[u8]) -> (tempfile::TempDir, Meta) {
    let dir = folder();
    let header = restore(dir.path(), CACHE, copy, &mut |_| {}).unwrap();
    assert_eq!(header.cluster, Some(ClusterId([7; 16])));
    let meta = open(dir.path());
    (dir, meta)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_restored_copy_has_the_same_rows_after_any_operations(ops in prop::collection::vec(op(), 0..40)) {
        let dir = folder();
        let meta = open(dir.path());
        ops.into_iter().for_each(|op| apply(&meta, op));
        let copy = dump(&meta);
        let (_keep, again) = restored(&copy);
        check(&again);
        prop_assert_eq!(rows(&again), rows(&meta));
        prop_assert_eq!(again.snapshot().unwrap().totals().unwrap(), meta.snapshot().unwrap().totals().unwrap());
    }
}

#[test]
fn every_table_is_copied_or_made_anew() {
    let dir = folder();
    let meta = open(dir.path());
    let snapshot = meta.snapshot().unwrap();
    let mut all = All { txn: &snapshot.txn, rows: Rows::new() };
    tables::copied(&mut all).unwrap();
    // The blocks found by a rebuild are cleared at each start.
    let others = ["by_node", "found", "tally"].map(String::from);
    let mut known: Vec<String> = all.rows.into_keys().chain(others).collect();
    let mut there: Vec<String> = snapshot.txn.list_tables().unwrap().map(|t| t.name().to_owned()).collect();
    known.sort();
    there.sort();
    assert_eq!(there, known, "a new table belongs in tables::copied, or must be derived in restore.rs");
}

#[test]
fn a_copy_of_many_frames_is_that_of_one_moment_while_puts_go_on() {
    let dir = folder();
    let meta = open(dir.path());
    // 20,000 stripes are several frames and several transactions of a restore.
    (0..20).for_each(|i| drop(store(&meta, &format!("before-{i}"), 16 * 1000, i % 4)));
    let before = rows(&meta);
    let snapshot = meta.snapshot().unwrap();
    let header = snapshot.copy_header(1000, Some(ClusterId([7; 16]))).unwrap();
    let (mut copy, mut during) = (Vec::new(), 0);
    snapshot
        .dump(&header, &mut copy, &mut |_| {
            store(&meta, &format!("during-{during}"), 16, 0);
            during += 1;
        })
        .unwrap();
    assert!(during > 10, "one frame a table at least, got {during}");
    let (_keep, again) = restored(&copy);
    check(&again);
    assert_eq!(rows(&again), before);
    assert_eq!((header.objects, header.stripes), (20, 20_000));
}

#[test]
fn a_copy_that_is_cut_or_changed_is_refused_and_leaves_nothing() {
    let dir = folder();
    let meta = open(dir.path());
    store(&meta, "a", 48, 0);
    meta.begin_put(new_put("b", 32, false, Encoding::Online), |_, l| Ok(tests::homes(1, l))).unwrap();
    let copy = dump(&meta);
    let empty = folder();
    let refuse = |bytes: &[u8], what: String| {
        assert!(restore(empty.path(), CACHE, bytes, &mut |_| {}).is_err(), "{what} was taken");
        assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0, "{what} left something");
    };
    for at in 0..copy.len() {
        let mut flipped = copy.clone();
        flipped[at] ^= 1 << (at % 8);
        refuse(&flipped, format!("byte {at} changed"));
    }
    for len in (0..copy.len()).step_by(7) {
        refuse(&copy[..len], format!("a copy cut to {len} bytes"));
    }
    refuse(&[copy.clone(), vec![0]].concat(), "a byte too many".into());
    restore(empty.path(), CACHE, copy.as_slice(), &mut |_| {}).unwrap();
    let again = restore(empty.path(), CACHE, copy.as_slice(), &mut |_| {}).unwrap_err();
    assert!(again.to_string().contains("a folder without metadata"), "{again}");
    assert_eq!(rows(&open(empty.path())), rows(&meta));
}

#[test]
fn a_copy_of_a_newer_layout_is_refused() {
    let dir = folder();
    let meta = open(dir.path());
    let snapshot = meta.snapshot().unwrap();
    let header = CopyHeader { layout: 99, ..snapshot.copy_header(1, None).unwrap() };
    let mut copy = Vec::new();
    snapshot.dump(&header, &mut copy, &mut |_| {}).unwrap();
    let error = restore(folder().path(), CACHE, copy.as_slice(), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("version 99"), "{error}");
}

#[test]
fn numbers_of_copies_grow_whatever_the_clock_says() {
    let dir = folder();
    let meta = open(dir.path());
    let number = |time| meta.snapshot().unwrap().copy_header(time, None).unwrap();
    let first = number(5000);
    meta.copied(&first).unwrap();
    assert!(number(10).number > first.number, "the clock went back");
    assert_eq!(number(6000).number, 6000);
    assert_eq!(meta.snapshot().unwrap().last_copy().unwrap(), Some((5000, 5000)));
}
