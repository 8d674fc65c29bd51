//! Logs that were damaged, or lost their ends, while they were closed.

use super::*;

#[test]
fn a_log_that_was_damaged_inside_begins_empty_and_keeps_its_files() {
    let (disk, file) = three();
    // Also the head of the file: a record behind it says what was durable.
    for at in [3, 70, 200, 64 + 576 + 3, 64 + 576 + 300] {
        let disk = tampered(&disk, &file, |bytes| bytes[at] ^= 1);
        let log = open(&disk).unwrap();
        let broken = log.breaks();
        assert!(broken.at > 3 && broken.lost == broken.at, "{at}: {broken:?}");
        assert_eq!(blocks(&log), [] as [u8; 0]);
        drop(log);
        let log = open(&disk).unwrap();
        assert_eq!(log.breaks(), broken, "the same break as long as nothing was logged");
        log.append(&[update(7, 0, Data::Bytes(&[7; 100]))]).unwrap();
        drop(log);
        let log = open(&disk.after_power_failure(0)).unwrap();
        assert_eq!((log.breaks(), blocks(&log)), (broken, vec![7]));
        let bad = disk.files().into_iter().filter(|path| path.extension().is_some_and(|e| e == "bad"));
        assert_eq!(bad.count(), 0, "that was another disk");
        drop(open(&disk).unwrap());
        let kept = file.with_extension("log.bad");
        assert!(disk.files().contains(&kept), "{:?}", disk.files());
        assert_eq!(disk.bytes(&kept).len(), 64 + 3 * 576);
    }
}

#[test]
fn a_log_whose_end_was_damaged_or_cut_off_goes_on_as_another_one() {
    let (disk, file) = three();
    let whole = open(&disk.after_power_failure(0)).unwrap();
    assert_eq!((blocks(&whole), whole.breaks()), (vec![0, 1, 2], Break::default()));
    let len = 64 + 3 * 576;
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [(&str, Change<'_>); 5] = [
        ("a byte of the head of the last record", &|bytes| bytes[len - 576 + 9] ^= 1),
        ("a byte of its content", &|bytes| bytes[len - 100] ^= 0x80),
        ("cut", &|bytes| bytes.truncate(len - 300)),
        ("cut behind its content", &|bytes| bytes.truncate(len - 10)),
        ("cut soon after its begin", &|bytes| bytes.truncate(len - 576 + 5)),
    ];
    for (what, change) in changes {
        let disk = tampered(&disk, &file, change);
        let log = open(&disk).unwrap();
        let broken = log.breaks();
        assert!(broken.at > 2 && broken.lost == 0, "{what}: {broken:?}");
        let mut whole = if what == "cut behind its content" { vec![0, 1, 2] } else { vec![0, 1] };
        assert_eq!(blocks(&log), whole, "{what}");
        drop(log);
        let log = open(&disk).unwrap();
        assert_eq!(log.breaks(), broken, "{what}: the same break as long as nothing was logged");
        // What is logged from now on is complete, and the same log after a start.
        log.append(&[update(7, 0, Data::Bytes(&[7; 100]))]).unwrap();
        let log = open(&disk.after_power_failure(0)).unwrap();
        whole.push(7);
        assert_eq!((log.breaks(), blocks(&log)), (broken, whole.clone()), "{what}");
        // The next damage makes it another one again, also of the first record since.
        let last = newest(&disk);
        let again = tampered(&disk, &last, |bytes| *bytes.last_mut().unwrap() = 1);
        assert_eq!(
            open(&again).unwrap().breaks(),
            broken,
            "what is behind the bytes of a record is not read"
        );
        let again = tampered(&disk, &last, |bytes| {
            let len = bytes.len();
            bytes[len - 100] ^= 1;
        });
        let log = open(&again).unwrap();
        assert!(log.breaks().at > broken.at && log.breaks().lost == 0, "{what}: {:?}", log.breaks());
        whole.pop();
        assert_eq!(blocks(&log), whole, "{what}");
    }
    // The only file of a log: nothing says how much was in it.
    let one = fresh();
    open(&one).unwrap().append(&[update(0, 0, Data::Bytes(&[1; 500]))]).unwrap();
    let headless = open(&tampered(&one, &file, |bytes| bytes[9] ^= 1)).unwrap();
    assert!(headless.breaks().at > 1, "{:?}", headless.breaks());
    // Room that the file system gave is no damage, nor is a file that was begun and not written.
    let longer = tampered(&disk, &file, |bytes| bytes.resize(bytes.len() + 5056, 0));
    let log = open(&longer).unwrap();
    assert_eq!((log.breaks(), blocks(&log)), (Break::default(), vec![0, 1, 2]));
    let empty = tampered(&one, &file, |bytes| bytes.fill(0));
    assert_eq!(open(&empty).unwrap().breaks(), Break::default());
}

#[test]
fn a_log_that_ends_before_a_record_that_was_durable_goes_on_as_another_one() {
    // What is left of three records when the process was killed, and the log cut between two of them.
    for (left, len) in [(2, 64 + 2 * 576), (1, 64 + 576), (0, 64), (0, 0)] {
        let (disk, file) = three();
        disk.tamper(&file, |bytes| bytes.truncate(len));
        let log = open(&disk).unwrap();
        let broken = log.breaks();
        assert_eq!((broken.at, broken.lost), (4, if left == 0 { 4 } else { 0 }), "{left} left");
        assert_eq!(blocks(&log), (0..left).collect::<Vec<u8>>());
        drop(log);
        let log = open(&disk).unwrap();
        assert_eq!(log.breaks(), broken, "the same break as long as nothing was logged");
        assert_eq!(
            log.append(&[update(7, 0, Data::Bytes(&[7; 100]))]).unwrap(),
            4,
            "no number is used twice"
        );
        drop(log);
        assert_eq!(open(&disk).unwrap().breaks(), broken, "what is logged from now on is complete");
    }
    // Whole files, and the folder of the log.
    let (disk, file) = three();
    let log = open(&disk).unwrap();
    for _ in 0..2 {
        log.append(&[update(3, 0, Data::Bytes(&[3; SEGMENT as usize]))]).unwrap();
    }
    drop(log);
    assert!(newest(&disk) > file);
    disk.remove(&newest(&disk)).unwrap();
    assert_eq!(open(&disk).unwrap().breaks(), Break { at: 6, lost: 0 });
    let (disk, file) = three();
    disk.remove(&file).unwrap();
    assert!(AppendLog::is_begun(&disk, &dir()).unwrap());
    assert_eq!(open(&disk).unwrap().breaks(), Break { at: 4, lost: 4 });
    // A note that says less, or nothing, is no proof.
    let end = dir().with_extension("end");
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [Change<'_>; 3] = [&|bytes| bytes.clear(), &|bytes| bytes[0] ^= 1, &|bytes| bytes[11] ^= 1];
    for change in changes {
        let (disk, _) = three();
        disk.tamper(&end, change);
        assert_eq!(open(&disk).unwrap().breaks(), Break::default());
    }
}

#[test]
fn a_log_that_is_another_one_refuses_those_who_knew_it() {
    let (disk, _) = three();
    let log = open(&disk).unwrap();
    let whole = Scope { volume: 1, stripe: None };
    log.fence(whole, 5).unwrap();
    log.append(&[update(3, 0, Data::Bytes(&[4; 500]))]).unwrap();
    drop(log);
    let file = newest(&disk);
    let disk = tampered(&disk, &file, |bytes| bytes.truncate(bytes.len() - 300));
    let log = open(&disk).unwrap();
    assert!(log.append(&[update(0, 0, Data::Bytes(&[2]))]).is_err());
    assert_eq!(log.fenced(whole), 6);
    log.fence(whole, 6).unwrap();
    log.append(&[Update { epoch: 6, ..update(0, 0, Data::Bytes(&[2])) }]).unwrap();
    assert_eq!(open(&disk.after_power_failure(0)).unwrap().fenced(whole), 6);
}
