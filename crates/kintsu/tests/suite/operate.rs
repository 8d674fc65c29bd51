//! What runs by itself, and what an operator does about nodes and options.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::{Cluster, flip, kintsu, sha256, text, wait};

#[test]
fn blocks_are_verified_and_repaired_by_themselves() {
    let mut cluster = Cluster::start(5, 5);
    let file = cluster.file("object", 500_000);
    cluster.put(&file, "object", &["--code", "rs:n=4,k=2"]);
    let block = cluster.blocks("object")[3].clone();
    let path = Path::new(block["path"].as_str().unwrap());
    let sound = std::fs::read(path).unwrap();
    flip(path, sound.len() as u64 / 2);
    cluster.stop_coordinator();
    cluster.start_coordinator_with(&["--scrub-every", "2s"], None).unwrap();
    let node = block["node"].as_u64().unwrap();
    wait("the node to have verified its blocks", || {
        let nodes = cluster.json(&["nodes"]);
        nodes.as_array().unwrap().iter().any(|n| n["id"] == node && n["scrub"]["verified"].is_u64())
    });
    // It may be repaired in its place or elsewhere; nobody read the object meanwhile.
    wait("the rotten block to be repaired", || {
        let block = &cluster.blocks("object")[3];
        let path = Path::new(block["path"].as_str().unwrap());
        block["lost"] == false && std::fs::read(path).is_ok_and(|bytes| bytes[4096..] == sound[4096..])
    });
    wait("the stripes to have been compared", || {
        cluster.json(&["status"])["compared"]["pass"]["verified"].is_u64()
    });
}

#[test]
fn a_node_is_paused_for_a_time() {
    let mut cluster = Cluster::with_grace(5, 5, "1s");
    let file = cluster.file("object", 500_000);
    cluster.put(&file, "object", &["--code", "rs:n=3,k=2"]);
    let node = cluster.blocks("object")[0]["node"].as_u64().unwrap() as u32;
    let id = node.to_string();
    assert!(cluster.refused(&["node", "pause", &id]).contains("--for"));
    assert!(cluster.refused(&["node", "pause", &id, "--for", "0"]).contains("above 0"));
    cluster.run(&["node", "pause", &id, "--for", "2h"]);
    cluster.kill(node);
    cluster.wait_dead(1);
    let shown = cluster.run(&["nodes"]);
    assert!(text(&shown.stdout).contains("DEAD, paused"), "{}", text(&shown.stdout));
    let placed = || cluster.json(&["nodes"])[node as usize]["placed_blocks"].as_u64().unwrap();
    assert!(placed() > 0);
    cluster.run(&["node", "resume", &id]);
    wait("its blocks to be repaired elsewhere", || placed() == 0);
}

#[test]
fn a_rack_that_is_gone_is_not_rebuilt_until_a_part_of_it_is_back() {
    // Longer than what lies between the deaths of nodes that are killed together.
    let mut cluster = Cluster::with_grace(9, 3, "3s");
    let file = cluster.file("object", 1_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=6,k=3", "--block", "64KiB"]);
    let homes = |cluster: &Cluster| -> Vec<u64> {
        cluster.blocks("object").iter().map(|block| block["node"].as_u64().unwrap()).collect()
    };
    let repairs = |cluster: &Cluster| {
        let jobs = cluster.json(&["jobs"]);
        jobs.as_array().unwrap().iter().filter(|job| job["kind"] == "repair").count()
    };
    let is_held = |cluster: &Cluster| {
        let health: Value = serde_json::from_slice(&cluster.run(&["health", "--json"]).stdout).unwrap();
        let causes = health["causes"].as_array().unwrap();
        causes.iter().any(|cause| {
            cause["kind"] == "held_repairs" && cause["title"].as_str().unwrap().contains("rack 0")
        })
    };
    let before = homes(&cluster);
    let rack = [0_u32, 3, 6];
    rack.iter().for_each(|node| cluster.kill(*node));
    wait("repairs to be held", || is_held(&cluster));
    wait("the grace time to be over", || {
        let nodes = cluster.json(&["nodes"]);
        rack.iter().all(|node| nodes[*node as usize]["silent_ms"].as_u64().unwrap() > 9500)
    });
    assert!(is_held(&cluster));
    assert_eq!((homes(&cluster), repairs(&cluster)), (before.clone(), 0));
    cluster.start_agent(0);
    wait("the blocks of the other two to be rebuilt", || {
        homes(&cluster).iter().all(|home| ![3, 6].contains(home))
    });
    cluster.wait_whole();
    assert!(!is_held(&cluster) && repairs(&cluster) > 0);
    let now = homes(&cluster);
    let stayed = before.iter().zip(&now).filter(|(before, _)| ![3, 6].contains(*before));
    assert!(before.contains(&0) && stayed.clone().all(|(before, now)| before == now), "{before:?} {now:?}");
    assert_eq!(cluster.get_sha("object"), sha256(&file));
}

#[test]
fn a_coordinator_that_could_not_run_for_a_while_takes_no_node_for_dead() {
    let mut cluster = Cluster::with_grace(4, 4, "1s");
    cluster.put(&cluster.file("object", 100_000), "object", &["--code", "rs:n=4,k=2"]);
    cluster.stop_coordinator();
    let log = cluster.coordinator_dir().with_extension("log");
    cluster.start_coordinator_with(&[], Some(&log)).unwrap();
    cluster.wait_alive(4);
    cluster.signal_coordinator(Signal::STOP);
    std::thread::sleep(Duration::from_secs(12));
    cluster.signal_coordinator(Signal::CONT);
    assert_eq!(cluster.json(&["status"])["dead"], 0);
    cluster.wait_whole();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(!log.contains("is dead") && !log.contains("stays away"), "{log}");
}

#[test]
fn a_rebalance_fills_nodes_that_come() {
    let mut cluster = Cluster::start(4, 4);
    // Nodes are to be equally full: with blocks of one length they also have as many.
    let file = cluster.file("object", 512 << 10);
    for name in 0..10 {
        cluster.put(&file, &name.to_string(), &["--code", "rs:n=4,k=2", "--block", "256KiB"]);
    }
    cluster.start_agent(4);
    cluster.nodes = 5;
    cluster.wait_alive(5);
    let placed = |node: usize| cluster.json(&["nodes"])[node]["placed_blocks"].as_u64().unwrap();
    assert_eq!(placed(4), 0);
    // What a node holds is known by its heartbeats: a rebalance that is ordered right after a put may go by older ones.
    wait("every node to have its share", || {
        let report = cluster.json(&["rebalance"]);
        assert_eq!(report["failed"].as_array().unwrap().len(), 0, "{report}");
        placed(4) >= 6 && (0..5).all(|node| placed(node) <= 9)
    });
    assert_eq!(cluster.json(&["scrub"])["bad"].as_array().unwrap().len(), 0);
}

#[test]
fn options_come_from_a_file_and_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("kintsu.toml");
    let content = "[common]\ncoordinator = \"10.0.0.1:7400\"\n\n[agent]\ndir = \"/data\"\nrack = 7\n";
    std::fs::write(&file, content).unwrap();
    let check = kintsu().args(["config", "check"]).arg(&file).output().unwrap();
    assert!(check.status.success(), "{}", text(&check.stderr));
    let option = |name: &str, coordinator: Option<&str>| {
        let mut show = kintsu();
        show.args(["config", "show", "agent", "--json", "--config"]).arg(&file);
        show.env_remove("KINTSU_COORDINATOR");
        show.envs(coordinator.map(|coordinator| ("KINTSU_COORDINATOR", coordinator)));
        let shown: Value = serde_json::from_slice(&show.output().unwrap().stdout).unwrap();
        let found = shown.as_array().unwrap().iter().find(|row| row["name"] == name).cloned().unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["from"].as_str().unwrap().to_owned())
    };
    let line = |line: u32| format!("{}:{line}", file.display());
    assert_eq!(option("rack", None), ("7".into(), line(6)));
    assert_eq!(option("listen", None), ("127.0.0.1:0".into(), "default".into()));
    // The environment counts more.
    assert_eq!(option("coordinator", None), ("10.0.0.1:7400".into(), line(2)));
    let from = "environment: KINTSU_COORDINATOR".to_owned();
    assert_eq!(option("coordinator", Some("10.0.0.2:7400")), ("10.0.0.2:7400".into(), from));
    std::fs::write(&file, "[agent]\ndir = \"/data\"\nrak = 7\n").unwrap();
    for command in [&["config", "check"][..], &["agent", "--config"]] {
        let refused = kintsu().args(command).arg(&file).output().unwrap();
        assert!(!refused.status.success());
        let words = text(&refused.stderr);
        assert!(words.contains("kintsu.toml:3: ") && words.contains("\"rak\""), "{words}");
    }
}
