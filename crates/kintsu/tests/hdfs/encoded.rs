//! Files of a real, stock HDFS that are encoded where they are.

use serde_json::json;

use crate::daemons::{Hdfs, MIB, noise, sha256, text};
use crate::objects::{got, kill_when, names, refused, store, wait_each_once, wait_missing};

/// How many replicas a stock client says that a file has.
fn replication(hdfs: &Hdfs, path: &str) -> String {
    hdfs.stock(&["fs", "-stat", "%r", path]).trim().to_owned()
}

/// Whether a folder of HDFS has a file of parity.
fn has_parity(hdfs: &Hdfs) -> bool {
    names(hdfs, "/.kintsu")
        .iter()
        .any(|folder| names(hdfs, folder).iter().any(|name| name.contains("/.kintsu-")))
}

#[test]
fn replicated_files_are_encoded_where_they_are() {
    let Some(mut hdfs) = Hdfs::start(7, &[]) else { return };
    let (large, small) = (noise(31 * MIB + 4321, 1), noise(1000, 2));
    hdfs.stock(&["fs", "-mkdir", "/logs"]);
    hdfs.put_into("/logs", MIB, &[("large", large.clone()), ("small", small.clone()), ("none", Vec::new())]);
    what_does_not_fit_is_refused(&hdfs);
    a_killed_encoding_leaves_the_file_replicated(&hdfs, &large);

    let done = store(&hdfs, 0, &["encode", "/logs/large", "--code", "rs:n=5,k=3"]);
    assert_eq!((&done["replicas"], &done["resumed"]), (&json!(3), &json!(false)), "{done}");
    assert_eq!(done["left"], json!([]), "{done}");
    assert_eq!(replication(&hdfs, "/logs/large"), "1");
    let tiny = store(&hdfs, 0, &["encode", "/logs/small", "--code", "clay:n=5,k=3,d=4"]);
    assert_eq!((&tiny["stripes"], &tiny["left"]), (&json!(1), &json!([])), "{tiny}");
    for (path, bytes) in [("/logs/large", &large), ("/logs/small", &small)] {
        assert_eq!(hdfs.stock_sha(path), sha256(bytes), "HDFS's own readers see the file as it was");
        assert_eq!(got(&hdfs, path), sha256(bytes));
        let status = store(&hdfs, 0, &["stat", path]);
        assert_eq!((&status["crowded"], &status["spare"]), (&json!([]), &json!(2)), "{status}");
    }
    assert_eq!(store(&hdfs, 0, &["verify"])["bad"], json!([]));

    // Killed after the record was published, before the replication was lowered: the same state.
    hdfs.stock(&["fs", "-setrep", "3", "/logs/large"]);
    let again = store(&hdfs, 0, &["encode", "/logs/large", "--code", "rs:n=5,k=3"]);
    assert_eq!(again["resumed"], json!(true), "{again}");
    assert_eq!(replication(&hdfs, "/logs/large"), "1");
    let other = refused(&hdfs, &["encode", "/logs/large", "--code", "rs:n=6,k=4"]);
    assert!(other.contains("rs:n=5,k=3"), "{other}");

    hdfs.stock(&["fs", "-mv", "/logs/large", "/logs/moved"]);
    a_dead_datanode_is_repaired(&mut hdfs, &large);
    a_changed_file_is_encoded_anew(&hdfs, &large);
    hdfs.stock(&["fs", "-rm", "-skipTrash", "/logs/moved"]);
    let left = store(&hdfs, 0, &["leftovers", "--remove"]);
    assert_eq!(left["files"].as_array().unwrap().len(), 3, "two parities and a record: {left}");
    let removed = store(&hdfs, 0, &["rm", "/logs/small"]);
    assert_eq!(removed["left"], json!([]), "{removed}");
    assert_eq!(names(&hdfs, "/logs"), ["/logs/none"]);
    assert!(!has_parity(&hdfs));
}

fn what_does_not_fit_is_refused(hdfs: &Hdfs) {
    for (path, why) in
        [("/logs", "got a folder"), ("/logs/none", "got an empty one"), ("/nothing", "no such file")]
    {
        let refused = refused(hdfs, &["encode", path, "--code", "rs:n=5,k=3"]);
        assert!(refused.contains(why), "{path}: {refused}");
    }
    let few = refused(hdfs, &["encode", "/logs/large"]);
    assert!(few.contains("9 usable nodes for rs:n=9,k=6, got 7"), "{few}");
    let cell = refused(hdfs, &["encode", "/logs/large", "--code", "clay:n=5,k=3,d=4", "--cell", "96KiB"]);
    assert!(cell.contains("expected"), "{cell}");
    let plain =
        hdfs.kintsu(&["--user", "somebody", "store", "encode", "/logs/large", "--code", "rs:n=5,k=3"]);
    assert!(!plain.status.success() && text(&plain).contains("needs a superuser"), "{}", text(&plain));
    assert_eq!(replication(hdfs, "/logs/large"), "3");
    assert!(!has_parity(hdfs));
}

fn a_killed_encoding_leaves_the_file_replicated(hdfs: &Hdfs, large: &[u8]) {
    kill_when(hdfs, &["encode", "/logs/large", "--code", "rs:n=5,k=3"], "parity to be written", || {
        has_parity(hdfs)
    });
    assert_eq!(replication(hdfs, "/logs/large"), "3");
    assert_eq!(hdfs.stock_sha("/logs/large"), sha256(large));
    assert!(refused(hdfs, &["stat", "/logs/large"]).contains("a file that was not encoded"));
    assert_ne!(store(hdfs, 0, &["leftovers"])["files"], json!([]));
    store(hdfs, 0, &["leftovers", "--remove"]);
}

fn a_dead_datanode_is_repaired(hdfs: &mut Hdfs, large: &[u8]) {
    let status = store(hdfs, 0, &["stat", "/logs/moved"]);
    let place = status["places"][0][0].as_str().unwrap().to_owned();
    let node = (0..hdfs.nodes).find(|i| hdfs.transfer(*i) == place).unwrap();
    hdfs.kill_datanode(node);
    assert_eq!(got(hdfs, "/logs/moved"), sha256(large), "before HDFS knows");
    wait_missing(hdfs, "/logs/moved");
    let lost = hdfs.client(&["fs", "-Ddfs.client.max.block.acquire.failures=0", "-cat", "/logs/moved"]);
    assert!(!lost.status.success(), "HDFS itself has lost bytes of it");
    let repaired = store(hdfs, 0, &["repair"]);
    assert!(repaired["blocks"].as_array().unwrap().len() >= 2, "{repaired}");
    assert_eq!(hdfs.stock_sha("/logs/moved"), sha256(large), "HDFS's own readers have it again");
    assert!(hdfs.stock(&["fsck", "/"]).contains("is HEALTHY"));
    hdfs.start_datanode(node);
    hdfs.wait_live();
    wait_each_once(hdfs, "/logs/moved");
}

fn a_changed_file_is_encoded_anew(hdfs: &Hdfs, large: &[u8]) {
    let more = hdfs.dir.path().join("more");
    std::fs::write(&more, b"more").unwrap();
    hdfs.stock(&["fs", "-appendToFile", more.to_str().unwrap(), "/logs/moved"]);
    let changed = refused(hdfs, &["get", "/logs/moved", "-"]);
    assert!(changed.contains("it was changed since it was encoded"), "{changed}");
    let skipped = store(hdfs, 1, &["repair"]);
    assert!(skipped["failed"][0].as_str().unwrap().contains("encode it again"), "{skipped}");
    let again = store(hdfs, 0, &["encode", "/logs/moved", "--code", "rs:n=5,k=3"]);
    assert_eq!((&again["resumed"], &again["left"]), (&json!(false), &json!([])), "{again}");
    assert_eq!(got(hdfs, "/logs/moved"), sha256(&[large, b"more"].concat()));
    assert_eq!(store(hdfs, 0, &["leftovers"])["files"], json!([]), "the old parity is removed");
}

#[test]
fn with_block_tokens_objects_are_stored_moved_and_repaired() {
    let Some(mut hdfs) = Hdfs::start(6, &["dfs.block.access.token.enable=true"]) else { return };
    let bytes = noise(9 * MIB + 7, 5);
    hdfs.stock(&["fs", "-mkdir", "/logs"]);
    hdfs.put_into("/logs", MIB, &[("file", bytes.clone())]);
    let done = store(&hdfs, 0, &["encode", "/logs/file", "--code", "rs:n=5,k=3"]);
    assert_eq!(done["left"], json!([]), "{done}");
    let local = hdfs.dir.path().join("local/file");
    store(&hdfs, 0, &["put", local.to_str().unwrap(), "/object", "--code", "rs:n=4,k=2", "--block", "1MiB"]);
    hdfs.kill_datanode(0);
    wait_missing(&hdfs, "/logs/file");
    for path in ["/logs/file", "/object"] {
        assert_eq!(got(&hdfs, path), sha256(&bytes));
    }
    let repaired = store(&hdfs, 0, &["repair"]);
    assert_eq!(repaired["failed"], json!([]), "{repaired}");
    for path in ["/logs/file", "/object"] {
        assert_eq!(store(&hdfs, 0, &["stat", path])["missing"], json!([]));
        assert_eq!(got(&hdfs, path), sha256(&bytes));
    }
    assert_eq!(hdfs.stock_sha("/logs/file"), sha256(&bytes));
}
