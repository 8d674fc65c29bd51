//! Deltas in logs, and logs from before there were any.

use super::*;

#[test]
fn a_delta_is_added_to_its_version_and_later_ones_have_it() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    let of = |version, bytes| Data::Delta(Generation(version), bytes);
    // Plain under and over a delta; a delta of an older version over plain bytes, and under a newer one.
    log.append(&[update(0, 0, Data::Bytes(&[1; 100]))]).unwrap();
    log.append(&[update(0, 50, of(4, &[2; 100])), update(0, 120, Data::Zeros(10))]).unwrap();
    log.append(&[update(0, 200, Data::Bytes(&[5; 50])), update(0, 220, of(3, &[6; 60]))]).unwrap();
    log.append(&[update(0, 260, of(4, &[7; 10]))]).unwrap();
    let mut expected = vec![0xEE; LEN];
    expected[..50].fill(1);
    expected[50..150].fill(0xEE ^ 2);
    expected[120..130].fill(0);
    expected[200..220].fill(5);
    expected[260..270].fill(0xEE ^ 7);
    assert!(seen(&log, 0) == expected);
    drop(log);
    let log = Arc::new(open(&disk.after_power_failure(0)).unwrap());
    assert!(seen(&log, 0) == expected, "after a restart");
    let forms: Vec<_> = log.logged(block(0), Role::Home, 40..225).unwrap().into_iter().collect();
    let forms: Vec<_> = forms.iter().map(|part| (part.offset, part.bytes.len(), part.delta_of)).collect();
    let four = Some(Generation(4));
    let plain = |offset, len| (offset, len, None);
    assert_eq!(forms[..3], [plain(40, 10), (50, 70, four), plain(120, 10)]);
    assert_eq!(forms[3..], [(130, 20, four), plain(200, 20), (220, 5, Some(Generation(3)))]);
    // What was added to version 4 is not known of version 3, and is in version 5.
    let parts = log.logged(block(0), Role::Home, 40..120).unwrap();
    let lay = |base| {
        let mut bytes = [0xEE; 80];
        parts.iter().try_for_each(|part| part.lay_over(Generation(base), 40, &mut bytes)).map(|()| bytes)
    };
    let error = lay(3).unwrap_err().to_string();
    assert!(error.contains("expected one of version g3 or before, got g4"), "{error}");
    assert!(lay(5).unwrap()[..10] == [1; 10] && lay(5).unwrap()[10..] == [0xEE; 70]);
    let outside = parts[0].lay_over(Generation(4), 41, &mut [0; 9]).unwrap_err().to_string();
    assert!(outside.contains("within 41..50"), "{outside}");
    // The home adds deltas of its version as they are, and older ones not again.
    log.freeze(block(0), Role::Home).unwrap();
    let added: Vec<u8> = expected.iter().map(|byte| byte ^ 0xEE).collect();
    assert!(delta(&log, 0, Role::Home, 4).unwrap() == added);
    assert!(delta(&log, 0, Role::Home, 3).is_err());
}

#[test]
fn a_replica_with_deltas_of_the_same_version_alone_has_the_delta_of_the_home() {
    let log = Arc::new(open(&fresh()).unwrap());
    let to = |offset, data| Update { role: Role::Replica, ..update(0, offset, data) };
    let of = |version, bytes| Data::Delta(Generation(version), bytes);
    let frozen = || {
        log.freeze(block(0), Role::Replica).unwrap();
        [3, 4, 5].map(|version| delta(&log, 0, Role::Replica, version))
    };
    log.append(&[to(10, of(4, &[1; 100])), to(60, of(4, &[2; 10]))]).unwrap();
    let mut added = vec![0; LEN];
    added[10..110].fill(1);
    added[60..70].fill(2);
    let [before, same, after] = frozen();
    assert!(same.unwrap() == added && before.is_err() && after.is_err());
    // A place of which only new bytes are known.
    log.append(&[to(60, Data::Zeros(1))]).unwrap();
    assert!(frozen()[1].is_err());
    // It is overwritten by one that is known, then by an older one.
    log.append(&[to(50, of(4, &[2; 20]))]).unwrap();
    added[50..60].fill(2);
    assert!(*frozen()[1].as_ref().unwrap() == added);
    log.append(&[to(0, of(3, &[9; 20]))]).unwrap();
    assert!(frozen()[1].is_err());
}

#[test]
fn a_block_is_settled_when_nothing_of_it_may_be_in_a_commit() {
    let disk = fresh();
    let log = open(&disk).unwrap();
    let is_settled = |log: &AppendLog| log.is_settled(block(0), Role::Home);
    let append = |log: &AppendLog| log.append(&[update(0, 0, Data::Bytes(&[1; 10]))]).unwrap();
    append(&log);
    assert!(is_settled(&log));
    let (cut, _) = log.freeze(block(0), Role::Home).unwrap();
    append(&log);
    assert!(!is_settled(&log));
    log.release([(block(0), Role::Home, cut)]).unwrap();
    assert!(is_settled(&log), "what came later is not in the commit");
    // After a restart nobody knows what a commit has taken.
    let log = open(&disk.after_power_failure(0)).unwrap();
    let found = log.pending()[0].newest;
    append(&log);
    assert!(!is_settled(&log) && log.is_settled(block(1), Role::Home));
    log.release([(block(0), Role::Home, found - 1)]).unwrap();
    assert!(!is_settled(&log));
    log.release([(block(0), Role::Home, found)]).unwrap();
    assert!(is_settled(&log) && !log.pending().is_empty());
}

/// Bytes of records as the software before deltas wrote them.
#[test]
fn logs_of_earlier_software_are_read() {
    let record = |kind: u8, number: u8, payload: &[u8], len: u32| {
        let mut head = [0u8; 64];
        head[..4].copy_from_slice(b"KLG1");
        (head[8], head[16], head[24], head[32], head[40]) = (number, number - 1, 1, 5, 9);
        head[50] = kind;
        head[52..56].copy_from_slice(&len.to_le_bytes());
        head[56] = 100;
        let crc = crc_fast::crc32_iscsi(&[&head[8..], payload].concat());
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        let mut bytes = [&head[..], payload].concat();
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes
    };
    let mut file = [&b"KINTLOG1"[..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0; 8]].concat();
    file.extend(crc_fast::crc32_iscsi(&file).to_le_bytes());
    file.resize(64, 0);
    file.extend(record(0, 1, &[7; 70], 70));
    file.extend(record(1, 2, &[], 30));
    let disk = fresh();
    disk.create_dir(&dir()).unwrap();
    disk.sync_dir(Path::new("/data")).unwrap();
    let new = disk.create(&record::path(&dir(), 1)).unwrap();
    new.write_at(&file, 0).unwrap();
    new.sync().unwrap();
    disk.sync_dir(&dir()).unwrap();
    let mut expected = vec![0xEE; LEN];
    expected[100..170].fill(7);
    expected[100..130].fill(0);
    assert!(seen(&open(&disk).unwrap(), 0) == expected);
}
