//! The disk of the metadata fills up: the coordinator ends with a message that says so, and nothing acknowledged is
//! lost.
//!
//! The disk is a small tmpfs mount, which needs root; without it the test says that it is skipped.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::io::Write;
use std::path::Path;

use cluster::{Cluster, Disk, sha256, wait};

/// Fills a disk to its last byte.
fn fill(path: &Path) {
    let mut ballast = std::fs::File::create(path).unwrap();
    while ballast.write_all(&[1; 4096]).is_ok() {}
}

#[test]
fn a_full_disk_of_the_metadata_ends_the_coordinator_with_a_message_and_loses_nothing() {
    let mut cluster = Cluster::start(4, 2);
    cluster.stop_coordinator();
    // The metadata move to a small disk.
    let (dir, moved) = (cluster.coordinator_dir(), cluster.dir.path().join("moved"));
    std::fs::rename(&dir, &moved).unwrap();
    std::fs::create_dir(&dir).unwrap();
    let Some(_disk) = Disk::mount(&dir, "24m") else { return };
    std::fs::copy(moved.join("metadata.redb"), dir.join("metadata.redb")).unwrap();
    let log = cluster.dir.path().join("log");
    cluster.start_coordinator_with(&["--metadata-copies", "0"], Some(&log)).unwrap();
    cluster.wait_alive(4);
    let file = cluster.file("object", 1000);
    cluster.put(&file, "before", &["--code", "rs:n=4,k=2"]);
    let ballast = dir.join("ballast");
    fill(&ballast);

    let mut acknowledged = vec!["before".to_owned()];
    // Free space inside the file is reused first, so puts continue until the metadata need more space.
    while cluster.coordinator_runs() {
        let name = format!("object-{}", acknowledged.len());
        let mut put = cluster.spawn(&["put", file.to_str().unwrap(), &name, "--code", "rs:n=4,k=2"]);
        let mut ended = None;
        wait("the put or the coordinator to end", || {
            ended = put.try_wait().unwrap();
            ended.is_some() || !cluster.coordinator_runs()
        });
        match ended {
            Some(status) if status.success() => acknowledged.push(name),
            Some(_) => break,
            None => {
                // It would wait for the coordinator to come back.
                put.kill().unwrap();
                put.wait().unwrap();
            }
        }
    }
    assert!(!cluster.coordinator_ended().success(), "it ends by itself");
    let said = std::fs::read_to_string(&log).unwrap();
    let expected =
        ["metadata cannot be written: No space left on device", dir.to_str().unwrap(), ": 0 bytes free"];
    for part in
        expected.into_iter().chain(["nothing acknowledged is lost; free some space and start it again"])
    {
        assert!(said.contains(part), "expected {part:?} in {said:?}");
    }

    // Without space the coordinator does not start, and gives the same message.
    if cluster.start_coordinator_with(&[], Some(&log)).is_none() {
        assert!(!cluster.coordinator_ended().success());
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(said.contains("metadata cannot be written: No space left on device"), "{said}");
    } else {
        // Free space inside the file is reused: there may be just enough for a start.
        cluster.kill_coordinator();
    }
    std::fs::remove_file(&ballast).unwrap();
    cluster.start_coordinator();
    cluster.wait_alive(4);
    for name in &acknowledged {
        assert_eq!(cluster.get_sha(name), sha256(&file), "{name}");
    }
    cluster.put(&file, "after", &["--code", "rs:n=4,k=2"]);
    assert!(cluster.coordinator_runs());
}
