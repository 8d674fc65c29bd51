//! What Kintsu cannot repair or read is said, and nothing is written: a codec that it does not know, checksums of another kind, more
//! losses than the code bears.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::json;

use crate::daemons::{Hdfs, MIB, noise, text, wait};

const LEGACY: &str = "/legacy/file";
const CRC32: &str = "/ec/crc32";

/// `path`: a file of one group under RS-3-2-1024k in a cluster of seven DataNodes, all of which run. Some are killed.
pub fn what_cannot_be_repaired_is_said(hdfs: &mut Hdfs, path: &str) {
    another_codec(hdfs);
    hdfs.put_with("dfs.checksum.type=CRC32", "/ec", &[(CRC32, noise(5 * MIB, 6))]);
    hdfs.wait_each_index_once(&[path, CRC32]);
    // One that both files have a block on.
    let holders = holders(hdfs, path);
    let both = holders.iter().position(|node| hdfs.blocks_on(CRC32, *node) > 0).unwrap();
    hdfs.kill_datanode(holders[both]);
    hdfs.wait_missing(CRC32, |missing| missing == 1);
    another_kind_of_checksums(hdfs);
    let others: Vec<u32> = holders.iter().copied().filter(|node| *node != holders[both]).collect();
    let lost = [holders[both], others[0], others[1]];
    more_losses_than_the_code_bears(hdfs, path, lost);
    lost.into_iter().for_each(|node| hdfs.start_datanode(node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[path, CRC32]);
    hdfs.json(0, &["status", path]);
}

/// The DataNodes with the blocks of a file's first group.
fn holders(hdfs: &Hdfs, path: &str) -> Vec<u32> {
    let group = hdfs.groups(path).remove(0);
    group.holders.values().flatten().map(|holder| hdfs.number(&holder.datanode)).collect()
}

/// Fails with these words, and writes nothing to any DataNode.
fn refused(hdfs: &Hdfs, before: &BTreeSet<PathBuf>, args: &[&str], words: &[&str]) {
    let out = hdfs.kintsu(args);
    let said = text(&out);
    assert!(!out.status.success(), "{args:?}: {said}");
    words.iter().for_each(|words| assert!(said.contains(words), "{args:?}: expected {words:?}, got {said}"));
    let now = hdfs.on_disks();
    let new: Vec<_> = now.difference(before).collect();
    assert!(new.is_empty(), "{args:?}: {new:?}");
}

/// One that HDFS has built in. It writes six data blocks and one of three parities, because there are seven DataNodes; so there would be
/// something to repair.
fn another_codec(hdfs: &Hdfs) {
    let policy = "RS-LEGACY-6-3-1024k";
    hdfs.stock(&["fs", "-mkdir", "/legacy"]);
    hdfs.stock(&["ec", "-enablePolicy", "-policy", policy]);
    hdfs.stock(&["ec", "-setPolicy", "-path", "/legacy", "-policy", policy]);
    hdfs.put_into("/legacy", 4 * MIB, &[(LEGACY, noise(7 * MIB, 7))]);
    let (before, words) = (hdfs.on_disks(), [policy, "got codec \"rs-legacy\""]);
    refused(hdfs, &before, &["get", LEGACY, "-"], &words);
    refused(hdfs, &before, &["repair", LEGACY], &words);
    for (command, code) in [("status", 0), ("verify", 1)] {
        let out = hdfs.kintsu(&[command, LEGACY]);
        let said = text(&out);
        assert!(words.iter().all(|words| said.contains(words)), "{command}: {said}");
        assert_eq!(out.status.code(), Some(code), "{command}: {said}");
    }
}

/// A block of the file is missing.
fn another_kind_of_checksums(hdfs: &Hdfs) {
    let (before, words) = (hdfs.on_disks(), ["expected CRC32C (dfs.checksum.type), got CRC32,"]);
    for args in [&["get", CRC32, "-"][..], &["verify", CRC32], &["repair", CRC32]] {
        refused(hdfs, &before, args, &words);
    }
}

/// Three blocks of a group are lost, and two are there, or one.
fn more_losses_than_the_code_bears(hdfs: &mut Hdfs, path: &str, lost: [u32; 3]) {
    lost[1..].iter().for_each(|node| hdfs.kill_datanode(*node));
    wait("the NameNode to miss three blocks", || hdfs.groups(path)[0].missing().len() == 3);
    let (before, number) = (hdfs.on_disks(), hdfs.groups(path)[0].number());
    let status = hdfs.json(2, &["status", path]);
    let group = &status["at_risk"][0];
    assert_eq!((&group["group"], &group["spare"]), (&json!(number), &json!(null)), "{status}");
    let group = number.to_string();
    for args in [&["get", path, "-"][..], &["verify", path], &["repair", path]] {
        refused(hdfs, &before, args, &[path, &group]);
    }
    assert_eq!(hdfs.groups(path)[0].missing().len(), 3);
}
