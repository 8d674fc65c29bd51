//! Processes killed with SIGKILL at the worst moments; the bytes must stay the same.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::{Cluster, sha256, text, wait};

const MB_300: u64 = 300_000_000;

/// Puts, kills as many nodes as the code tolerates, reads, restarts them empty, repairs, kills others.
fn survives_twice(code: &str, losses: u32) {
    let mut cluster = Cluster::start(20, 5);
    let file = cluster.file("object", MB_300);
    let expected = sha256(&file);
    cluster.put(&file, "object", &["--code", code, "--block", "8MiB"]);

    let first: Vec<u32> = (0..losses).map(|i| 3 + 4 * i).collect();
    first.iter().for_each(|&id| cluster.kill(id));
    assert_eq!(cluster.get_sha("object"), expected, "degraded read");

    first.iter().for_each(|&id| cluster.restart_empty(id));
    cluster.wait_alive(20);
    for method in ["conventional", "ppr", "pipeline"].iter().cycle().zip(&first) {
        let report = cluster.json(&["repair", "--node", &method.1.to_string(), "--method", method.0]);
        assert_eq!(report["failed"].as_array().unwrap().len(), 0, "{report}");
    }
    cluster.json(&["repair"]);
    cluster.wait_whole();

    let second: Vec<u32> = (0..losses).map(|i| 1 + 4 * i).collect();
    second.iter().for_each(|&id| cluster.kill(id));
    assert_eq!(cluster.get_sha("object"), expected, "degraded read after repair");
}

#[test]
fn rs_14_10_survives_four_kills_and_four_others_after_repair() {
    survives_twice("rs:n=14,k=10", 4);
}

#[test]
fn azure_lrc_16_12_survives_three_kills_and_three_others_after_repair() {
    survives_twice("azure-lrc:n=16,k=12,r=6", 3);
}

#[test]
fn a_helper_killed_in_the_middle_of_a_pipelined_repair_is_gone_round() {
    let mut cluster = Cluster::start(18, 6);
    let file = cluster.file("object", 256 << 20);
    let expected = sha256(&file);
    cluster.put(&file, "object", &["--code", "rs:n=14,k=10"]);
    let blocks = cluster.blocks("object");
    let node = |i: usize| blocks[i]["node"].as_u64().unwrap() as u32;
    cluster.kill(node(0));
    cluster.wait_dead(1);

    slowed(&cluster);
    let repair = cluster.spawn(&["repair", "--node", &node(0).to_string(), "--json"]);
    // Somewhere in the middle: the requestor's unfinished block has begun to grow.
    wait("the repair to begin", || unfinished_blocks(&cluster) > 0);
    let report_before = cluster.count("alive");
    cluster.kill(node(5));
    at_full_speed(&cluster);
    let out = repair.wait_with_output().unwrap();
    assert!(out.status.success(), "alive before: {report_before}; {}", text(&out.stderr));
    cluster.json(&["repair"]);
    cluster.wait_whole();
    assert_eq!(cluster.get_sha("object"), expected);
}

/// Lets a repair take seconds, so that it is seen while it runs.
fn slowed(cluster: &Cluster) {
    cluster.json(&["config", "set", "repair.max-rate", "10MB/s"]);
}

fn at_full_speed(cluster: &Cluster) {
    cluster.json(&["config", "set", "repair.max-rate", "none"]);
}

/// The number of unfinished blocks: temporary files in the nodes' folders.
fn unfinished_blocks(cluster: &Cluster) -> usize {
    let all = (0..cluster.nodes).map(|id| cluster.node_dir(id));
    all.map(|dir| count_files(&dir, &|name| name.contains("tmp"))).sum()
}

fn count_files(dir: &std::path::Path, wanted: &dyn Fn(&str) -> bool) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let mut count = 0;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            count += count_files(&path, wanted);
        } else if path.file_name().is_some_and(|n| wanted(&n.to_string_lossy())) {
            count += 1;
        }
    }
    count
}

#[test]
fn a_coordinator_killed_in_the_middle_of_a_put_loses_nothing_acknowledged() {
    let mut cluster = Cluster::start(12, 4);
    let small = cluster.file("small", 1 << 20);
    cluster.put(&small, "before", &["--code", "rs:n=9,k=6"]);
    let file = cluster.file("object", 300 << 20);
    let put =
        cluster.spawn(&["put", file.to_str().unwrap(), "object", "--code", "rs:n=9,k=6", "--block", "4MiB"]);
    wait("the put to begin", || unfinished_blocks(&cluster) > 0);
    cluster.kill_coordinator();
    cluster.start_coordinator();
    let out = put.wait_with_output().unwrap();
    cluster.wait_alive(12);
    assert_eq!(cluster.get_sha("before"), sha256(&small));
    // The object is whole or absent: the put may outlive the coordinator, but never leaves half an object.
    if out.status.success() {
        assert_eq!(cluster.get_sha("object"), sha256(&file));
    } else {
        assert!(!cluster.run(&["stat", "object"]).status.success(), "{}", text(&out.stderr));
    }
    cluster.put(&file, "object", &["--code", "rs:n=9,k=6", "--replace"]);
    assert_eq!(cluster.get_sha("object"), sha256(&file));
}

#[test]
fn a_coordinator_killed_in_the_middle_of_a_repair_repairs_after_its_restart() {
    let mut cluster = Cluster::start(12, 4);
    let file = cluster.file("object", 256 << 20);
    cluster.put(&file, "object", &["--code", "rs:n=9,k=6", "--block", "16MiB"]);
    let expected = sha256(&file);
    let lost = cluster.blocks("object")[0]["node"].as_u64().unwrap() as u32;
    cluster.kill(lost);
    cluster.wait_dead(1);
    slowed(&cluster);
    let repair = cluster.spawn(&["repair", "--node", &lost.to_string()]);
    wait("the repair to begin", || unfinished_blocks(&cluster) > 0);
    cluster.kill_coordinator();
    cluster.start_coordinator();
    drop(repair.wait_with_output().unwrap());
    cluster.wait_alive(11);
    cluster.wait_dead(1);
    at_full_speed(&cluster);
    assert_eq!(cluster.get_sha("object"), expected);
    let report = cluster.json(&["repair", "--node", &lost.to_string()]);
    assert_eq!(report["failed"].as_array().unwrap().len(), 0, "{report}");
    cluster.wait_whole();
    assert_eq!(cluster.get_sha("object"), expected);
}

#[test]
fn a_client_killed_in_the_middle_of_a_put_leaves_nothing_behind() {
    let cluster = Cluster::start(9, 3);
    let file = cluster.file("object", 300 << 20);
    let mut put =
        cluster.spawn(&["put", file.to_str().unwrap(), "object", "--code", "rs:n=9,k=6", "--block", "4MiB"]);
    wait("the put to begin", || unfinished_blocks(&cluster) > 0);
    put.kill().unwrap();
    put.wait().unwrap();
    assert!(cluster.refused(&["stat", "object"]).contains("object"));
    wait("the blocks of the dead put to be deleted", || {
        let status = cluster.json(&["status"]);
        let files: usize =
            (0..9).map(|id| count_files(&cluster.node_dir(id).join("blocks"), &|_| true)).sum();
        status["puts_pending"] == 0 && status["garbage"] == 0 && files == 0
    });
}

#[test]
fn a_dead_node_is_recovered_without_being_asked_after_the_grace_time() {
    let mut cluster = Cluster::with_grace(12, 4, "2s");
    let file = cluster.file("object", 8 << 20);
    cluster.put(&file, "object", &["--code", "rs:n=9,k=6", "--block", "256KiB"]);
    let expected = sha256(&file);
    let lost = cluster.blocks("object")[0]["node"].as_u64().unwrap() as u32;
    cluster.kill(lost);
    cluster.wait_dead(1);
    wait("the lost blocks to be rebuilt elsewhere", || {
        cluster.blocks("object").iter().all(|b| b["node"] != lost && b["lost"] == false)
    });
    cluster.wait_whole();
    assert_eq!(cluster.get_sha("object"), expected);
}
