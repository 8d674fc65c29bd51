//! Mistakes of an operator, with separate processes: a wrong folder, a wrong address, a lost record, an older copy
//! of the metadata, an unmounted disk. Afterwards no block is lost, every object is readable, and the messages say
//! what to do.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use cluster::{Cluster, copy_dir, kintsu, sha256, text, wait};
use serde_json::Value;

/// All block files of a cluster with their contents, those in quarantine too.
fn blocks(cluster: &Cluster) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for node in 0..cluster.nodes {
        gather(&cluster.node_dir(node), &mut found);
    }
    found
}

fn gather(dir: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, found);
        } else if path.extension().is_some_and(|e| e == "block") || path.parent().is_some_and(is_quarantine) {
            found.insert(path.clone(), sha256(&path));
        }
    }
}

fn is_quarantine(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name == "quarantine")
}

/// A cluster of six nodes with two objects, and their checksums.
fn filled() -> (Cluster, [(&'static str, String); 2]) {
    let cluster = Cluster::start(6, 3);
    let (a, b) = (cluster.file("a", 3_000_000), cluster.file("b", 700_001));
    cluster.put(&a, "a", &["--code", "rs:n=6,k=4", "--block", "256KiB", "--cell", "64KiB"]);
    cluster.put(&b, "b", &["--code", "rs:n=5,k=3", "--block", "64KiB", "--cell", "16KiB"]);
    let sums = [("a", sha256(&a)), ("b", sha256(&b))];
    (cluster, sums)
}

fn assert_readable(cluster: &Cluster, sums: &[(&str, String)]) {
    for (name, sum) in sums {
        assert_eq!(&cluster.get_sha(name), sum, "{name}");
    }
}

/// Puts object `c`, stops the coordinator and restores the metadata from before the put. Returns the file of `c`,
/// and the folder of the newer metadata.
fn put_and_forget(cluster: &mut Cluster, bytes: u64) -> (PathBuf, PathBuf) {
    cluster.kill_coordinator();
    let (own, copy) = (cluster.coordinator_dir(), cluster.dir.path().join("copy"));
    copy_dir(&own, &copy);
    cluster.start_coordinator();
    cluster.wait_alive(6);
    let file = cluster.file("c", bytes);
    cluster.put(&file, "c", &["--code", "rs:n=6,k=4", "--block", "64KiB", "--cell", "16KiB"]);
    cluster.kill_coordinator();
    let newer = cluster.dir.path().join("newer");
    std::fs::rename(&own, &newer).unwrap();
    std::fs::rename(&copy, &own).unwrap();
    (file, newer)
}

/// Replaces the running coordinator by one on these metadata.
fn put_back(cluster: &mut Cluster, metadata: &Path) {
    cluster.kill_coordinator();
    let own = cluster.coordinator_dir();
    std::fs::remove_dir_all(&own).unwrap();
    std::fs::rename(metadata, &own).unwrap();
    cluster.start_coordinator();
    cluster.wait_alive(6);
}

/// Waits until agents have contacted the coordinator that runs now.
fn meet(cluster: &Cluster) {
    std::thread::sleep(std::time::Duration::from_secs(4));
    // It still answers: nothing from the agents has ended it.
    cluster.json(&["status"]);
}

#[test]
fn a_coordinator_on_an_empty_folder_beside_a_running_cluster_costs_nothing() {
    let (mut cluster, sums) = filled();
    let before = blocks(&cluster);
    cluster.kill_coordinator();
    let aside = cluster.dir.path().join("away");
    std::fs::rename(cluster.coordinator_dir(), &aside).unwrap();
    cluster.start_coordinator();
    meet(&cluster);
    assert_eq!(
        cluster.json(&["nodes"]).as_array().unwrap().len(),
        0,
        "agents of another cluster are refused"
    );
    assert_eq!(blocks(&cluster), before);
    put_back(&mut cluster, &aside);
    assert_readable(&cluster, &sums);
    assert_eq!(blocks(&cluster), before);
}

#[test]
fn an_agent_beside_a_foreign_cluster_is_refused_with_both_ids() {
    let (mut cluster, sums) = filled();
    let other = Cluster::start(1, 1);
    let before = blocks(&cluster);
    cluster.kill(2);
    let refused = |dir: &Path| {
        let out =
            kintsu().args(["agent", "--coordinator", &other.endpoint, "--dir"]).arg(dir).output().unwrap();
        assert!(!out.status.success());
        text(&out.stderr)
    };
    let said = refused(&cluster.node_dir(2));
    for status in [cluster.json(&["status"]), other.json(&["status"])] {
        let id = status["cluster"].as_str().unwrap();
        assert!(said.contains(id), "{said}");
    }
    assert!(said.contains("nothing was changed"), "{said}");
    other.wait_alive(1);
    assert_eq!(blocks(&cluster), before);
    cluster.start_agent(2);
    cluster.wait_alive(6);
    assert_readable(&cluster, &sums);
}

#[test]
fn a_lost_node_record_is_asked_for_and_no_new_node_begins() {
    let (mut cluster, sums) = filled();
    let before = blocks(&cluster);
    cluster.kill(4);
    std::fs::remove_file(cluster.node_dir(4).join("node.json")).unwrap();
    let dir = cluster.node_dir(4);
    let start = |more: &[&str]| {
        let mut command = kintsu();
        command.args(["agent", "--coordinator", &cluster.endpoint, "--dir"]).arg(&dir).args(more);
        let out = command.output().unwrap();
        assert!(!out.status.success());
        text(&out.stderr)
    };
    for said in [start(&[]), start(&["--id", "4"])] {
        assert!(said.contains("no node.json") && said.contains("--id N --replace"), "{said}");
    }
    assert_eq!(blocks(&cluster), before);
    cluster.start_agent_with(4, &["--replace"]);
    cluster.wait_alive(6);
    cluster.wait_whole();
    assert_readable(&cluster, &sums);
    assert_eq!(blocks(&cluster), before);
}

#[test]
fn an_empty_folder_is_not_the_node_that_it_says_it_is() {
    let (mut cluster, sums) = filled();
    cluster.kill(1);
    let (dir, disk) = (cluster.node_dir(1), cluster.dir.path().join("disk"));
    std::fs::rename(&dir, &disk).unwrap();
    // The mount point without its disk.
    std::fs::create_dir(&dir).unwrap();
    let out = kintsu()
        .args(["agent", "--id", "1", "--rack", "1", "--coordinator", &cluster.endpoint, "--dir"])
        .arg(&dir)
        .output()
        .unwrap();
    let said = text(&out.stderr);
    assert!(!out.status.success() && said.contains("mounted") && said.contains("--replace"), "{said}");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&disk, &dir).unwrap();
    cluster.start_agent(1);
    cluster.wait_alive(6);
    cluster.wait_whole();
    assert_readable(&cluster, &sums);
}

#[test]
fn a_disk_that_vanishes_under_its_agent_is_shown_and_repaired_after_the_grace() {
    let cluster = Cluster::with_grace(7, 7, "2s");
    let file = cluster.file("a", 2_000_000);
    cluster.put(&file, "a", &["--code", "rs:n=5,k=3", "--block", "128KiB", "--cell", "32KiB"]);
    let used = cluster.blocks("a")[0]["node"].as_u64().unwrap() as u32;
    let (dir, disk) = (cluster.node_dir(used), cluster.dir.path().join("disk"));
    std::fs::rename(&dir, &disk).unwrap();
    std::fs::create_dir(&dir).unwrap();
    wait("the disk to be shown as failed", || cluster.count("failed") == 1);
    assert_eq!(cluster.get_sha("a"), sha256(&file));
    cluster.wait_whole();
    wait("no block to be placed on it", || {
        let nodes = cluster.json(&["nodes"]);
        let node = nodes.as_array().unwrap().iter().find(|n| n["id"] == used).unwrap();
        node["placed_blocks"] == 0
    });
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0, "nothing is written into the mount point");
    // The disk is mounted again: its blocks are kept, although they were repaired elsewhere.
    std::fs::remove_dir(&dir).unwrap();
    let mut held = BTreeMap::new();
    gather(&disk, &mut held);
    std::fs::rename(&disk, &dir).unwrap();
    cluster.wait_alive(7);
    assert_eq!(cluster.get_sha("a"), sha256(&file));
    assert!(!held.is_empty());
}

#[test]
fn metadata_of_an_hour_ago_delete_nothing_and_say_so() {
    let (mut cluster, sums) = filled();
    let (later, newer) = put_and_forget(&mut cluster, 900_000);
    let before = blocks(&cluster);
    cluster.start_coordinator();
    cluster.wait_alive(6);
    wait("the status to tell", || {
        let said = cluster.json(&["status"])["held_back"].to_string();
        ["older", "--rebuild", "--accept-older"].iter().all(|word| said.contains(word))
    });
    meet(&cluster);
    assert_readable(&cluster, &sums);
    assert_eq!(blocks(&cluster), before);
    // A put meanwhile gets no id that the newer metadata have assigned.
    let new = cluster.file("d", 300_000);
    cluster.put(&new, "d", &["--code", "rs:n=6,k=4", "--block", "64KiB", "--cell", "16KiB"]);
    assert!(blocks(&cluster).iter().filter(|(path, _)| before.contains_key(*path)).eq(before.iter()));

    // The newer metadata are restored: everything is as before.
    put_back(&mut cluster, &newer);
    assert_readable(&cluster, &sums);
    assert_eq!(cluster.get_sha("c"), sha256(&later));
    assert!(blocks(&cluster).iter().filter(|(path, _)| before.contains_key(*path)).eq(before.iter()));
}

#[test]
fn what_metadata_do_not_know_is_set_aside_and_can_be_taken_back() {
    let (mut cluster, sums) = filled();
    // The metadata lose an object while an agent is away, and an operator accepts the older metadata.
    let (lost, newer) = put_and_forget(&mut cluster, 4_000_000);
    cluster.start_coordinator_with(&["--accept-older", "--quarantine-keep", "1s"], None);
    cluster.wait_alive(6);
    wait("unknown blocks to be set aside", || {
        let all = |node: &Value| {
            node["held"].as_u64().unwrap() > 10 && node["aside"].as_array().unwrap().len() >= 15
        };
        aside(&cluster).iter().all(all)
    });
    // Too many at once: nothing is purged, although the time of one second has passed.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let nodes = aside(&cluster);
    assert!(
        nodes.iter().all(|n| n["held"].as_u64().unwrap() > 10 && n["aside"].as_array().unwrap().len() >= 15)
    );
    assert!(cluster.json(&["status"])["held_back"].to_string().contains("quarantine confirm"));
    assert_readable(&cluster, &sums);
    let one = nodes[0]["aside"][0]["name"].as_str().unwrap().to_owned();
    let node = nodes[0]["node"].to_string();
    assert!(cluster.refused(&["quarantine", "restore", &node, "nothing"]).contains("nothing"));
    cluster.json(&["quarantine", "restore", &node, &one]);
    assert!(aside(&cluster)[0]["aside"].as_array().unwrap().iter().all(|a| a["name"] != one.as_str()));

    // The metadata that know the blocks are restored, and the blocks are taken back automatically.
    put_back(&mut cluster, &newer);
    wait("the quarantine to be empty", || {
        aside(&cluster).iter().all(|node| node["aside"].as_array().unwrap().is_empty())
    });
    cluster.wait_whole();
    assert_eq!(cluster.get_sha("c"), sha256(&lost));
}

#[test]
fn what_an_operator_has_confirmed_is_purged_in_time() {
    let (mut cluster, sums) = filled();
    put_and_forget(&mut cluster, 4_000_000);
    cluster.start_coordinator_with(&["--accept-older", "--quarantine-keep", "1s"], None);
    cluster.wait_alive(6);
    let held = || cluster.json(&["nodes"]).as_array().unwrap().iter().filter(|n| n["held"] != 0).count();
    wait("the purge to be held", || held() == 6);
    for node in 0..6 {
        cluster.json(&["quarantine", "confirm", &node.to_string()]);
    }
    wait("the purge", || {
        let nodes = cluster.json(&["quarantine", "ls"])["nodes"].as_array().unwrap().clone();
        nodes.iter().all(|node| node["aside"].as_array().unwrap().is_empty())
    });
    assert_readable(&cluster, &sums);
}

#[test]
fn up_keeps_the_shape_that_its_folder_was_made_with() {
    let dir = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| {
        let mut command = kintsu();
        command.args(["up", "--json", "--listen", "127.0.0.1:0", "--dir"]).arg(dir.path()).args(more);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        if !line.is_empty() {
            child.kill().unwrap();
        }
        let out = child.wait_with_output().unwrap();
        (line, text(&out.stderr))
    };
    let (made, said) = run(&["--nodes", "4", "--racks", "2"]);
    assert!(made.contains("\"nodes\":4"), "{made}{said}");
    for (wrong, words) in [
        (&["--nodes", "4", "--racks", "4"][..], "4 nodes in 2 racks"),
        (&["--nodes", "3"], "4 nodes"),
        (&["--nodes", "6"], "--grow"),
    ] {
        let (line, said) = run(wrong);
        assert!(line.is_empty() && said.contains(words), "{wrong:?}: {line}{said}");
    }
    let (again, said) = run(&[]);
    assert!(again.contains("\"nodes\":4") && again.contains("\"racks\":2"), "{again}{said}");
    let (grown, said) = run(&["--nodes", "6", "--grow"]);
    assert!(grown.contains("\"nodes\":6") && grown.contains("\"racks\":2"), "{grown}{said}");
}

/// The quarantine of each node.
fn aside(cluster: &Cluster) -> Vec<Value> {
    cluster.json(&["quarantine", "ls"])["nodes"].as_array().unwrap().clone()
}
