#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]
mod damage;
mod deltas;

use std::collections::BTreeMap;
use std::io::ErrorKind;

use kintsu_dag::{BlockIndex, StripeId};

use super::*;
use crate::simdisk::{Failure, SimDisk};
use crate::{BlockStore, FileStore};

const LEN: usize = 4000;
const SEGMENT: u64 = 3000;

fn dir() -> PathBuf {
    PathBuf::from("/data/log")
}

fn open(disk: &SimDisk) -> Result<AppendLog, StoreError> {
    AppendLog::with_segments(Arc::new(disk.clone()), dir(), SEGMENT)
}

fn fresh() -> SimDisk {
    let disk = SimDisk::default();
    disk.create_dir(Path::new("/data")).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    disk
}

fn block(index: u8) -> BlockId {
    BlockId { stripe: StripeId(9), index: BlockIndex(index) }
}

fn update(index: u8, offset: u64, data: Data<'_>) -> Update<'_> {
    Update { volume: 1, epoch: 5, block: block(index), role: Role::Home, offset, data }
}

/// Version 4 of the block as a reader sees it, if it was all 0xEE.
fn seen(log: &AppendLog, index: u8) -> Vec<u8> {
    let mut bytes = vec![0xEE; LEN];
    lay_over(log, index, Role::Home, 0, &mut bytes);
    bytes
}

/// Lays what is logged over bytes of version 4; whether anything is.
fn lay_over(log: &AppendLog, index: u8, role: Role, from: u64, bytes: &mut [u8]) -> bool {
    let logged = log.logged(block(index), role, from..from + bytes.len() as u64).unwrap();
    logged.iter().for_each(|part| part.lay_over(Generation(4), from, bytes).unwrap());
    !logged.is_empty()
}

/// What a commit adds to the block, which is all 0xEE and has this version.
fn delta(log: &Arc<AppendLog>, index: u8, role: Role, version: u32) -> Result<Vec<u8>, StoreError> {
    let mut bytes = vec![0xAA; LEN];
    let frozen = match role {
        Role::Home => FrozenDelta::at_home(log.clone(), block(index), stored(&[0xEE; LEN], version)),
        Role::Replica => FrozenDelta::of_replica(log.clone(), block(index), Generation(version)),
    };
    frozen.unwrap().read_at(0, &mut bytes).map(|()| bytes)
}

/// Block 0 in some version.
fn stored(bytes: &[u8], version: u32) -> Box<dyn crate::BlockRead> {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    let mut write = store.create(block(0), Generation(version), bytes.len() as u64, 4096, &[]).unwrap();
    write.write_at(0, bytes).unwrap();
    write.finish(None).unwrap();
    store.open(block(0), Generation(version)).unwrap()
}

#[test]
fn the_newest_bytes_are_seen_before_and_after_a_restart() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    let (a, b) = ([1u8; 100], [2u8; 50]);
    log.append(&[update(0, 10, Data::Bytes(&a)), update(1, 0, Data::Bytes(&a))]).unwrap();
    log.append(&[update(0, 60, Data::Bytes(&b))]).unwrap();
    log.append(&[update(0, 20, Data::Zeros(5))]).unwrap();
    let mut expected = vec![0xEE; LEN];
    expected[10..110].fill(1);
    expected[60..110].fill(2);
    expected[20..25].fill(0);
    assert!(seen(&log, 0) == expected);
    let mut part = [0xEE; 10];
    assert!(lay_over(&log, 0, Role::Home, 18, &mut part));
    assert_eq!(part, [1, 1, 0, 0, 0, 0, 0, 1, 1, 1]);
    assert!(!lay_over(&log, 0, Role::Replica, 18, &mut part), "another role");
    assert!(!lay_over(&log, 0, Role::Home, 200, &mut part));
    let pending = log.pending();
    assert_eq!(pending.len(), 2);
    assert_eq!((pending[0].ranges.clone(), pending[0].newest), (vec![10..110], 4));
    drop(log);
    let again = open(&disk.after_power_failure(0)).unwrap();
    assert!(seen(&again, 0) == expected);
    assert_eq!(again.pending(), pending);
}

#[test]
fn a_replica_with_what_it_replaces_has_the_delta_of_the_home() {
    let (disk, replica_disk) = (fresh(), fresh());
    let (home, replica) = (open(&disk).unwrap(), open(&replica_disk).unwrap());
    let old: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
    let write = |offset: u64, data: Data<'_>, replaced: &[Range<u64>]| {
        home.append(&[update(0, offset, data)]).unwrap();
        let part = |range: &Range<u64>| Update {
            role: Role::Replica,
            ..update(0, range.start, Data::Old(&old[range.start as usize..range.end as usize]))
        };
        let new = Update { role: Role::Replica, ..update(0, offset, data) };
        let all: Vec<_> = replaced.iter().map(part).chain([new]).collect();
        replica.append(&all).unwrap();
    };
    write(100, Data::Bytes(&[1; 300]), &[100..400]);
    write(300, Data::Bytes(&[2; 200]), &[400..500]);
    write(150, Data::Zeros(20), &[]);
    // What is replaced is not read, and not dirty by itself.
    let mut seen = vec![0xEE; 10];
    assert!(!lay_over(&replica, 1, Role::Replica, 0, &mut seen));
    assert_eq!(replica.pending()[0].ranges, [100..500]);
    drop(replica);
    let replica = Arc::new(open(&replica_disk.after_power_failure(0)).unwrap());
    assert!(FrozenDelta::of_replica(replica.clone(), block(0), Generation(1)).is_none(), "nothing is fixed");
    replica.freeze(block(0), Role::Replica).unwrap();
    let delta_of = || FrozenDelta::of_replica(replica.clone(), block(0), Generation(1)).unwrap();
    let mut expected = vec![0; LEN];
    expected[100..300].fill(1);
    expected[300..500].fill(2);
    expected[150..170].fill(0);
    (100..500).for_each(|at| expected[at] ^= old[at]);
    let mut delta = vec![0xEE; LEN];
    delta_of().read_at(0, &mut delta).unwrap();
    assert!(delta == expected);
    let mut part = [0xEE; 30];
    delta_of().read_at(290, &mut part).unwrap();
    assert!(part == expected[290..320]);
    // The home says the same of its block.
    let home = Arc::new(home);
    let at_home = || FrozenDelta::at_home(home.clone(), block(0), stored(&old, 1));
    assert!(at_home().is_none());
    home.freeze(block(0), Role::Home).unwrap();
    let digest = at_home().unwrap().digest().unwrap();
    assert_eq!(delta_of().digest().unwrap(), digest);
    // A range of which it was not said what it replaces.
    replica.append(&[Update { role: Role::Replica, ..update(0, 499, Data::Bytes(&[3; 2])) }]).unwrap();
    replica.freeze(block(0), Role::Replica).unwrap();
    let said = delta_of().digest().unwrap_err().to_string();
    assert!(said.contains("bytes that updates replace"), "{said}");
    // All of it goes with the updates.
    let (upto, _) = replica.freeze(block(0), Role::Replica).unwrap();
    replica.release([(block(0), Role::Replica, upto)]).unwrap();
    assert_eq!(replica.pending(), []);
    let last = Update { role: Role::Replica, ..update(0, 200, Data::Bytes(&[9; 9])) };
    replica.append(&[last]).unwrap();
    replica.freeze(block(0), Role::Replica).unwrap();
    assert!(delta_of().digest().is_err());
}

#[test]
fn a_commit_takes_what_was_frozen_and_leaves_what_came_later() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 100]))]).unwrap();
    assert_eq!(log.freeze(block(0), Role::Home), Some((1, vec![0..100])));
    log.append(&[update(0, 50, Data::Bytes(&[2; 100]))]).unwrap();
    // The same bytes, though part of them was overwritten since.
    let log = Arc::new(log);
    let mut added = vec![0; LEN];
    added[..100].fill(0xEE ^ 1);
    assert!(delta(&log, 0, Role::Home, 4).unwrap() == added);
    assert_eq!(seen(&log, 0)[49..51], [1, 2]);
    log.release([(block(0), Role::Home, 1)]).unwrap();
    assert_eq!(log.pending()[0].ranges, [50..150]);
    assert_eq!(log.freeze(block(0), Role::Home), Some((2, vec![50..150])));
    log.release([(block(0), Role::Home, 2)]).unwrap();
    assert_eq!((log.pending(), log.freeze(block(0), Role::Home)), (vec![], None));
    log.release([(block(0), Role::Home, 2)]).unwrap();
    let again = open(&disk.after_power_failure(0)).unwrap();
    assert_eq!(again.pending(), []);
}

#[test]
fn an_older_writer_is_refused_for_ever() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    let whole = Scope { volume: 1, stripe: None };
    log.fence(whole, 5).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1]))]).unwrap();
    log.fence(Scope { stripe: Some(block(1).stripe), ..whole }, 6).unwrap();
    let said = log.append(&[update(0, 0, Data::Bytes(&[2]))]).unwrap_err().to_string();
    assert!(said.contains("expected 6 or later") && said.contains("got 5"), "{said}");
    assert!(log.fence(Scope { stripe: Some(block(0).stripe), ..whole }, 5).is_err());
    let other = Update { volume: 2, ..update(1, 0, Data::Bytes(&[2])) };
    // Many files later the fence still holds.
    for _ in 0..20 {
        log.append(&[Update { data: Data::Bytes(&[3; 1000]), ..other }]).unwrap();
    }
    log.release([(block(0), Role::Home, 1000)]).unwrap();
    log.release([(block(1), Role::Home, 1000)]).unwrap();
    let again = open(&disk.after_power_failure(0)).unwrap();
    assert!(again.append(&[update(0, 0, Data::Bytes(&[2]))]).is_err());
    assert_eq!(seen(&again, 0)[0], 0xEE);
}

#[test]
fn a_fence_that_failed_is_durable_when_it_is_raised_again() {
    for stripe in [None, Some(block(0).stripe)] {
        let disk = fresh();
        let log = open(&disk).unwrap();
        let scope = Scope { volume: 1, stripe };
        log.fence(scope, 5).unwrap();
        disk.fail(Some(Failure::Once(2, ErrorKind::Other)));
        assert!(log.fence(scope, 6).is_err());
        assert_eq!((log.fenced(scope), open(&disk.after_power_failure(0)).unwrap().fenced(scope)), (6, 5));
        log.fence(scope, 6).unwrap();
        assert_eq!(open(&disk.after_power_failure(0)).unwrap().fenced(scope), 6);
        let before = disk.syncs();
        log.fence(scope, 6).unwrap();
        assert_eq!(disk.syncs(), before, "it is durable");
        // What is durable later has the fences before it.
        disk.fail(Some(Failure::Once(2, ErrorKind::Other)));
        assert!(log.fence(scope, 7).is_err());
        log.append(&[Update { epoch: 7, ..update(0, 0, Data::Bytes(&[1])) }]).unwrap();
        let before = disk.syncs();
        log.fence(scope, 7).unwrap();
        assert_eq!((disk.syncs(), open(&disk.after_power_failure(0)).unwrap().fenced(scope)), (before, 7));
    }
}

#[test]
fn a_fence_that_waits_for_its_sync_is_no_fence_yet() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    let scope = Scope { volume: 1, stripe: None };
    log.append(&[update(0, 0, Data::Bytes(&[1]))]).unwrap();
    let before = disk.syncs();
    std::thread::scope(|threads| {
        disk.paused(|| {
            threads.spawn(|| log.fence(scope, 5).unwrap());
            while log.fenced(scope) < 5 {
                std::thread::yield_now();
            }
            threads.spawn(|| log.fence(scope, 5).unwrap());
            while log.state().waiting.is_empty() {
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(disk.syncs() - before, 2);
}

#[test]
fn who_waits_for_a_batch_is_told_what_became_of_it_however_many_come_after_it() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 100]))]).unwrap();
    let enqueued = || {
        let update = update(1, 0, Data::Bytes(&[2; 100]));
        log.state().enqueue(std::iter::once((Record::of(&update), update.data.bytes())))
    };
    let append = || log.append(&[update(2, 0, Data::Bytes(&[3; 1000]))]);
    let waiting = enqueued();
    disk.limit(Some(disk.used()));
    // The first of them writes for both.
    (0..100).for_each(|_| drop(append().unwrap_err()));
    let said = log.wait(log.state(), waiting.clone()).unwrap_err().to_string();
    assert!(said.contains("not written: disk full"), "{said}");
    disk.limit(None);
    append().unwrap();
    assert!(log.wait(log.state(), waiting).is_err());
    // And the other way round.
    let waiting = enqueued();
    append().unwrap();
    disk.limit(Some(disk.used()));
    append().unwrap_err();
    log.wait(log.state(), waiting).unwrap();
    assert_eq!([1, 2].map(|index| seen(&log, index)[99]), [2, 3]);
}

#[test]
fn a_batch_of_nothing_is_refused() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    assert!(log.commit(log.state(), std::iter::empty()).is_err());
    assert!(!disk.files().contains(&record::path(&dir(), 0)));
}

#[test]
fn files_that_nobody_needs_are_deleted_oldest_first() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    for index in 0..6 {
        log.append(&[update(index, 0, Data::Bytes(&[index; 2900]))]).unwrap();
    }
    let files = || disk.files().len();
    let all = files();
    assert!(all >= 5, "{all}");
    log.release([(block(3), Role::Home, u64::MAX)]).unwrap();
    assert_eq!(files(), all + 1, "older files are needed, and the release began one");
    for index in 0..3 {
        log.release([(block(index), Role::Home, u64::MAX)]).unwrap();
    }
    assert_eq!(files(), all + 1 - 4);
    assert!(log.bytes() < 3 * 2 * SEGMENT);
    assert_eq!([4, 5].map(|index| seen(&log, index)[2899]), [4, 5]);
}

#[test]
fn nobody_waits_for_the_disk_while_files_are_deleted() {
    let begun = || {
        let disk = fresh();
        let log = Arc::new(open(&disk).unwrap());
        for index in 0..6 {
            log.append(&[update(index, 0, Data::Bytes(&[index; 2900]))]).unwrap();
        }
        disk.fail(None);
        (disk, log)
    };
    let release = |log: &AppendLog| {
        log.release((0..6).map(|index| (block(index), Role::Home, u64::MAX))).unwrap();
    };
    let (disk, log) = begun();
    release(&log);
    assert_eq!(disk.files().iter().filter(|path| path.starts_with(dir())).count(), 1);
    for at in 1..=disk.operations() {
        let (disk, log) = begun();
        let (say, said) = std::sync::mpsc::channel();
        let other = log.clone();
        disk.before(at, move || say.send(other.state.try_lock().is_ok()).unwrap());
        release(&log);
        assert_eq!(said.try_recv(), Ok(true), "operation {at}");
    }
}

#[test]
fn senseless_updates_are_refused() {
    let log = open(&fresh()).unwrap();
    let said = |update: Update<'_>| log.append(&[update]).unwrap_err().to_string();
    assert!(said(update(0, 0, Data::Bytes(&[]))).contains("1 to 1048576"));
    assert!(said(update(0, 0, Data::Zeros(0))).contains("got 0"));
    assert!(said(update(0, u64::MAX - 3, Data::Zeros(9))).contains("2^62"));
    assert!(said(update(0, 0, Data::Bytes(&vec![0; MOST_RECORD_BYTES + 1]))).contains("got 1048577"));
    assert!(log.append(&[]).is_err());
    assert_eq!((log.pending(), log.bytes()), (vec![], 0));
}

/// A log with three records of one block each, and a fence; its file. The head of the file is 64 bytes, each record 576.
fn three() -> (SimDisk, PathBuf) {
    let disk = fresh();
    let log = open(&disk).unwrap();
    for turn in 0..3u8 {
        log.append(&[update(turn, 0, Data::Bytes(&[turn + 1; 500]))]).unwrap();
    }
    let file = disk.files().into_iter().next().unwrap();
    (disk, file)
}

/// The file of the log that was begun last.
fn newest(disk: &SimDisk) -> PathBuf {
    disk.files().into_iter().rfind(|path| path.starts_with(dir())).unwrap()
}

fn tampered(disk: &SimDisk, file: &Path, change: impl FnOnce(&mut Vec<u8>)) -> SimDisk {
    let copy = disk.after_power_failure(0);
    copy.tamper(file, change);
    copy
}

fn blocks(log: &AppendLog) -> Vec<u8> {
    log.pending().iter().map(|pending| pending.block.index.0).collect()
}

#[test]
fn damage_while_the_log_is_open_is_found_by_the_read() {
    let (disk, file) = three();
    let log = open(&disk).unwrap();
    disk.tamper(&file, |bytes| bytes[200] ^= 1);
    let read = log.logged(block(0), Role::Home, 0..10).unwrap_err().to_string();
    assert!(read.contains("record 1"), "{read}");
}

#[test]
fn a_full_disk_loses_nothing_and_passes() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 1000]))]).unwrap();
    disk.limit(Some(disk.used() + 500));
    let full = log.append(&[update(1, 0, Data::Bytes(&[2; 1000]))]).unwrap_err();
    assert!(matches!(full, StoreError::Full { .. }), "{full}");
    disk.limit(None);
    log.append(&[update(2, 0, Data::Bytes(&[3; 1000]))]).unwrap();
    for log in [open(&disk.after_power_failure(0)).unwrap(), log] {
        assert_eq!([0, 1, 2].map(|index| seen(&log, index)[999]), [1, 0xEE, 3]);
    }
}

#[test]
fn a_failed_sync_is_an_error_of_one_append() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 1000]))]).unwrap();
    disk.fail(Some(Failure::Once(2, ErrorKind::Other)));
    assert!(log.append(&[update(0, 0, Data::Bytes(&[2; 1000]))]).is_err());
    assert_eq!(seen(&log, 0)[999], 1);
    log.append(&[update(0, 0, Data::Bytes(&[3; 500]))]).unwrap();
    for log in [open(&disk.after_power_failure(0)).unwrap(), open(&disk.copied()).unwrap(), log] {
        let seen = seen(&log, 0);
        assert_eq!((seen[0], seen[499], seen[500]), (3, 3, 1), "what failed does not come back");
    }
}

#[test]
fn what_a_killed_process_had_not_synced_is_durable_once_a_start_has_taken_it() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 500]))]).unwrap();
    // It writes, and is killed before the sync.
    disk.fail(Some(Failure::Dead(2)));
    assert!(log.append(&[update(1, 0, Data::Bytes(&[2; 500]))]).is_err());
    drop(log);
    disk.fail(None);
    let log = open(&disk).unwrap();
    log.append(&[update(2, 0, Data::Bytes(&[3; 500]))]).unwrap();
    let log = open(&disk.after_power_failure(0)).unwrap();
    assert_eq!((log.breaks(), blocks(&log)), (Break::default(), vec![0, 1, 2]));
}

#[test]
fn files_of_failed_appends_are_deleted_in_their_turn() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[1; 2900]))]).unwrap();
    log.append(&[update(1, 0, Data::Bytes(&[1; 100]))]).unwrap();
    // The file is begun, and the record has no room in it.
    disk.limit(Some(disk.used() + 300));
    for _ in 0..3 {
        assert!(log.append(&[update(1, 0, Data::Bytes(&[2; 1000]))]).is_err());
    }
    disk.limit(None);
    for index in 2..6 {
        log.append(&[update(index, 0, Data::Bytes(&[index; 2900]))]).unwrap();
    }
    // What is needed is in the newest files alone; the older ones go one after the other.
    for index in 0..5 {
        log.release([(block(index), Role::Home, u64::MAX)]).unwrap();
        let again = open(&disk.copied()).unwrap();
        assert_eq!(again.pending(), log.pending(), "after the release of {index}");
    }
}

/// Some appends, a fence, freezes and releases; what was acknowledged, and what was begun when it failed.
fn script(log: &AppendLog, model: &mut Vec<BTreeMap<u8, Vec<u8>>>) -> Result<(), StoreError> {
    for turn in 0..14u8 {
        let (index, offset) = (turn % 3, u64::from(turn) * 70);
        let (bytes, more) = (vec![turn + 1; 300 + usize::from(turn) * 40], [turn + 101; 30]);
        let mut next = model[0].clone();
        for (index, offset, data) in [(index, offset, &bytes[..]), ((index + 1) % 3, 5, &more[..])] {
            let block = next.entry(index).or_insert_with(|| vec![0xEE; LEN]);
            block[offset as usize..][..data.len()].copy_from_slice(data);
        }
        // Until it is acknowledged, both states are right.
        model.push(next);
        log.append(&[
            update(index, offset, Data::Bytes(&bytes)),
            update((index + 1) % 3, 5, Data::Bytes(&more)),
        ])?;
        model.remove(0);
        if turn == 6 {
            log.fence(Scope { volume: 1, stripe: None }, 5)?;
        }
        if turn == 9 {
            let (cut, _) = log.freeze(block(0), Role::Home).unwrap();
            // What is released is in the block by then, as far as a reader can tell: the model keeps it.
            let released = std::mem::take(&mut model[0]);
            let mut without = released.clone();
            without.remove(&0);
            *model = vec![released, without];
            log.release([(block(0), Role::Home, cut)])?;
            model.remove(0);
        }
    }
    Ok(())
}

#[test]
fn whatever_fails_what_was_acknowledged_is_there() {
    let counted = fresh();
    counted.fail(None);
    let mut model = vec![BTreeMap::new()];
    script(&open(&counted).unwrap(), &mut model).unwrap();
    let operations = counted.operations();
    assert!(operations > 40, "{operations}");
    for at in 1..=operations {
        for failure in [Failure::Dead(at), Failure::Once(at, ErrorKind::Other)] {
            let disk = fresh();
            disk.fail(Some(failure));
            let mut model = vec![BTreeMap::new()];
            let Ok(log) = open(&disk) else { continue };
            let outcome = script(&log, &mut model);
            drop(log);
            disk.fail(None);
            for seed in 0..8 {
                let what = format!("operation {at}, outcome {seed}, {outcome:?}");
                let log = open(&disk.after_power_failure(seed)).unwrap_or_else(|e| panic!("{what}: {e}"));
                let got = [0, 1, 2].map(|index| seen(&log, index));
                let blank = vec![0xEE; LEN];
                let fits = |state: &BTreeMap<u8, Vec<u8>>| {
                    (0..3u8).all(|index| got[usize::from(index)] == *state.get(&index).unwrap_or(&blank))
                };
                // Of the records of one append that failed, each may be there or not.
                let mixed = |index: u8| {
                    model.iter().any(|state| got[usize::from(index)] == *state.get(&index).unwrap_or(&blank))
                };
                let failed = outcome.is_err();
                assert!(model.iter().any(fits) || failed && (0..3).all(mixed), "{what}");
                // What was cut off was never acknowledged.
                assert_eq!(log.breaks().lost, 0, "{what}");
                // The log goes on.
                let epoch = log.fenced(Scope { volume: 1, stripe: None }).max(5);
                log.append(&[Update { epoch, ..update(2, 0, Data::Bytes(&[9; 10])) }]).unwrap();
                assert_eq!(seen(&log, 2)[..10], [9; 10]);
            }
        }
    }
}

#[test]
fn of_appends_at_once_none_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let log = FileStore::open(dir.path()).unwrap().log().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let log = &log;
            scope.spawn(move || {
                for turn in 0..20u64 {
                    log.append(&[update(thread, turn * 10, Data::Bytes(&[thread + 1; 10]))]).unwrap();
                }
            });
        }
    });
    drop(log);
    let log = FileStore::open(dir.path()).unwrap().log().unwrap();
    for thread in 0..8u8 {
        assert!(seen(&log, thread)[..200] == [thread + 1; 200]);
    }
    assert_eq!(log.pending().len(), 8);
}

#[test]
fn appends_that_come_during_a_sync_share_the_next_one() {
    const APPENDS: u8 = 8;
    let disk = fresh();
    let log = open(&disk).unwrap();
    log.append(&[update(0, 0, Data::Bytes(&[9; 10]))]).unwrap();
    let before = disk.syncs();
    std::thread::scope(|scope| {
        disk.paused(|| {
            for index in 0..APPENDS {
                let log = &log;
                scope.spawn(move || log.append(&[update(index, 0, Data::Bytes(&[index; 10]))]).unwrap());
            }
            // One writes, the others wait for it.
            while log.state().waiting.len() < usize::from(APPENDS) - 1 {
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(disk.syncs() - before, 2, "one for the first, one for all others");
    let again = open(&disk.after_power_failure(0)).unwrap();
    (0..APPENDS).for_each(|index| assert_eq!(seen(&again, index)[..10], [index; 10]));
}
