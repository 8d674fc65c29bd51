//! Full disks during put, encode, repair and writes to volumes: a clear error or another node, and nothing half-written.
//!
//! Disks are small tmpfs mounts, which need root; without it these tests say that they are skipped.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::io::Write as _;
use std::process::Stdio;

use crate::cluster;

use cluster::{Cluster, Disk, kintsu, sha256, text, wait};

/// A cluster in which the nodes that `small` accepts have disks of `size`; `None` without root.
fn with_small_disks(nodes: u32, size: &str, small: impl Fn(u32) -> bool) -> Option<(Vec<Disk>, Cluster)> {
    let probe = tempfile::tempdir().unwrap();
    drop(Disk::mount(probe.path(), "1m")?);
    let mounted = std::cell::RefCell::new(Vec::new());
    let cluster = Cluster::prepared(nodes, nodes, "1h", |dir, id| {
        if small(id) {
            mounted.borrow_mut().push(Disk::mount(dir, size).unwrap());
        }
    });
    Some((mounted.into_inner(), cluster))
}

#[test]
fn a_put_that_fits_nowhere_says_so_and_leaves_nothing() {
    let Some((_disks, cluster)) = with_small_disks(6, "3m", |_| true) else { return };
    let file = cluster.file("object", 30_000_000);
    let message = cluster.refused(&["put", file.to_str().unwrap(), "object", "--code", "rs:n=6,k=4"]);
    assert!(message.contains("full") || message.contains("free") || message.contains("space"), "{message}");
    assert_eq!(cluster.json(&["ls"]).as_array().unwrap().len(), 0);
    wait("the half-written blocks to be deleted", || {
        let status = cluster.json(&["status"]);
        status["puts_pending"] == 0 && status["garbage"] == 0
    });
    // Until its next heartbeat a node counts as full.
    wait("the nodes to tell that they have room", || {
        let nodes = cluster.json(&["nodes"]);
        nodes.as_array().unwrap().iter().all(|node| node["fullness"] == "roomy")
    });
    let small = cluster.file("small", 1_000_000);
    cluster.put(&small, "small", &["--code", "rs:n=6,k=4"]);
    assert_eq!(cluster.get_sha("small"), sha256(&small));
}

#[test]
fn a_put_goes_round_one_full_disk() {
    let Some((_disks, cluster)) = with_small_disks(7, "1m", |id| id == 2) else { return };
    let file = cluster.file("object", 30_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=6,k=4"]);
    assert!(cluster.blocks("object").iter().all(|b| b["node"] != 2));
    assert_eq!(cluster.get_sha("object"), sha256(&file));
}

#[test]
fn encoding_onto_full_disks_fails_clearly_and_the_data_stays() {
    let Some((_disks, cluster)) = with_small_disks(6, "6m", |_| true) else { return };
    let file = cluster.file("object", 16_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=6,k=4", "--encode", "offline"]);
    let expected = sha256(&file);
    let homes: Vec<u64> = cluster.blocks("object").iter().map(|b| b["node"].as_u64().unwrap()).collect();
    for id in (0..6).filter(|id| !homes.iter().take(4).any(|h| h == id)) {
        std::fs::write(cluster.node_dir(id as u32).join("ballast"), vec![0; 5_000_000]).unwrap();
    }
    let out = cluster.run(&["encode", "object"]);
    assert!(!out.status.success());
    let message = text(&out.stderr);
    assert!(message.contains("full") || message.contains("free") || message.contains("space"), "{message}");
    assert_eq!(cluster.json(&["stat", "object"])["encoded"], false);
    assert_eq!(cluster.get_sha("object"), expected);
    for id in 0..6 {
        let _ = std::fs::remove_file(cluster.node_dir(id).join("ballast"));
    }
    // A node that still has to delete what the first try left gets no parity.
    wait("what was half written to be deleted", || cluster.json(&["status"])["garbage"] == 0);
    cluster.json(&["encode", "object"]);
    assert_eq!(cluster.json(&["stat", "object"])["encoded"], true);
}

#[test]
fn a_repair_onto_a_full_disk_fails_clearly_and_changes_nothing() {
    let Some((_disks, mut cluster)) = with_small_disks(7, "1m", |id| id == 6) else { return };
    let file = cluster.file("object", 16_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=6,k=4"]);
    let expected = sha256(&file);
    cluster.kill(0);
    cluster.wait_dead(1);
    let out = cluster.run(&["repair", "--node", "0", "--json"]);
    assert!(!out.status.success());
    let said = format!("{}{}", text(&out.stdout), text(&out.stderr));
    assert!(said.contains("full") || said.contains("Full") || said.contains("free"), "{said}");
    assert_eq!(cluster.get_sha("object"), expected);
    assert!(cluster.blocks("object").iter().all(|b| b["node"] != 6));
    cluster.start_agent(0);
    cluster.wait_alive(7);
    cluster.wait_whole();
}

#[test]
fn a_write_to_a_volume_on_full_disks_fails_clearly_and_takes_nothing() {
    let Some((_disks, cluster)) = with_small_disks(6, "4m", |_| true) else { return };
    cluster.json(&["volume", "create", "disk", "--size", "2MiB", "--code", "rs:n=5,k=3", "--block", "64KiB"]);
    let write = |fill: u8, offset: usize, len: usize| {
        let mut command = kintsu();
        command.args(["volume", "write", "disk", "--take", "--offset", &offset.to_string()]);
        command.env("KINTSU_COORDINATOR", &cluster.endpoint).stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // It may end before it has read all.
        let _ = child.stdin.take().unwrap().write_all(&vec![fill; len]);
        let ended = child.wait_with_output().unwrap();
        if ended.status.success() { Ok(()) } else { Err(text(&ended.stderr)) }
    };
    let read = || {
        let read = cluster.run(&["volume", "read", "disk"]);
        assert!(read.status.success(), "{}", text(&read.stderr));
        read.stdout
    };
    let half = 1 << 20;
    write(1, 0, half).unwrap();
    let ballast = |id| cluster.node_dir(id).join("ballast");
    for id in 0..6 {
        let mut file = std::fs::File::create(ballast(id)).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
    // Over what is there, and where nothing is yet.
    for offset in [0, half] {
        let message = write(2, offset, 256 << 10).unwrap_err();
        assert!(["full", "free", "space"].iter().any(|word| message.contains(word)), "{message}");
    }
    // A log whose commit has begun is frozen by a record of its own, for which a full disk has no room; such a stripe is read when there is.
    (0..6).for_each(|id| std::fs::remove_file(ballast(id)).unwrap());
    wait("room to be known", || cluster.run(&["volume", "read", "disk"]).status.success());
    // What was not acknowledged may be seen, in whole pieces; all else is as it was.
    let there = read();
    assert!(there[..256 << 10].iter().all(|byte| [1, 2].contains(byte)));
    assert!(there[256 << 10..half].iter().all(|byte| *byte == 1));
    assert!(there[half..].iter().all(|byte| [0, 2].contains(byte)));
    wait("room to be known", || write(3, 0, 256 << 10).is_ok());
    cluster.json(&["volume", "commit", "disk"]);
    let there = read();
    assert!(there[..256 << 10].iter().all(|byte| *byte == 3));
    assert!(there[256 << 10..half].iter().all(|byte| *byte == 1));
    let scrubbed = cluster.json(&["scrub"]);
    assert_eq!(scrubbed["bad"].as_array().unwrap().len(), 0, "{scrubbed}");
}
