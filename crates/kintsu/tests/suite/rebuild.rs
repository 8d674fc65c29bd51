//! Lost or old metadata are rebuilt from the agents' blocks, through the command line.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::collections::BTreeMap;

use cluster::{Cluster, Running, copy_dir, sha256, wait};
use serde_json::Value;

/// A code of the user's own: rs:n=5,k=3 as data, under another name.
fn register(cluster: &Cluster) {
    let path = cluster.dir.path().join("mine.json");
    let definition = cluster.json(&["code", "export", "rs:n=5,k=3", "--as", "user:mine"]);
    std::fs::write(&path, definition.to_string()).unwrap();
    cluster.json(&["code", "register", path.to_str().unwrap()]);
}

fn put(cluster: &Cluster, objects: &mut BTreeMap<String, String>, name: &str, bytes: u64, more: &[&str]) {
    let file = cluster.file("source", bytes);
    cluster.put(&file, name, more);
    objects.insert(name.to_owned(), sha256(&file));
}

const SMALL: [&str; 4] = ["--block", "64KiB", "--cell", "16KiB"];

/// Objects of several codes and states.
fn fill(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::new();
    let with = |code: &'static str, more: &[&'static str]| [&["--code", code], &SMALL[..], more].concat();
    put(cluster, &mut objects, "rs", 900_001, &with("rs:n=6,k=4", &[]));
    put(cluster, &mut objects, "lrc", 500_000, &with("azure-lrc:n=6,k=3,r=2", &[]));
    put(cluster, &mut objects, "plain", 700_000, &with("rs:n=5,k=3", &["--encode", "offline"]));
    put(cluster, &mut objects, "encoded", 600_000, &with("rs:n=5,k=3", &["--encode", "offline"]));
    cluster.json(&["encode", "encoded"]);
    put(cluster, &mut objects, "clay", 1_000_000, &["--code", "clay:n=4,k=2,d=3"]);
    register(cluster);
    put(cluster, &mut objects, "own", 300_000, &with("user:mine", &[]));
    for (name, bytes) in [("streamed", 900_001), ("whole-stripes", 1 << 20)] {
        let file = cluster.file("source", bytes);
        cluster.put_stream(&file, name, &with("rs:n=6,k=4", &["--content-type", "text/x", "--meta", "a=b"]));
        objects.insert(name.to_owned(), sha256(&file));
    }
    put(cluster, &mut objects, "replaced", 200_000, &with("rs:n=4,k=2", &[]));
    put(cluster, &mut objects, "replaced", 250_000, &with("rs:n=4,k=2", &["--replace"]));
    put(cluster, &mut objects, "removed", 100_000, &with("rs:n=4,k=2", &[]));
    cluster.json(&["rm", "removed"]);
    objects.remove("removed");
    objects
}

/// Name -> (code, size, whether its parity is there).
fn listed(cluster: &Cluster) -> BTreeMap<String, (String, u64, bool)> {
    let row = |o: &Value| {
        let text = |key: &str| o[key].as_str().unwrap().to_owned();
        (text("name"), (text("code"), o["size"].as_u64().unwrap(), o["encoded"].as_bool().unwrap()))
    };
    cluster.json(&["ls"]).as_array().unwrap().iter().map(row).collect()
}

fn all_are_readable(cluster: &Cluster, objects: &BTreeMap<String, String>) {
    for (name, sha) in objects {
        assert_eq!(&cluster.get_sha(name), sha, "{name}");
    }
}

fn swept(cluster: &Cluster) {
    wait("garbage to be deleted", || cluster.json(&["status"])["garbage"] == 0);
}

/// Waits until this many agents have reported all blocks, that is worked in, and this many objects are visible.
fn rebuilt(cluster: &Cluster, agents: u64, objects: usize) -> Value {
    let mut status = Value::Null;
    wait("the objects to be back", || {
        status = cluster.json(&["rebuild"]);
        status["agents"] == agents && status["waiting"].is_null() && listed(cluster).len() == objects
    });
    status
}

fn finish(cluster: &Cluster) {
    wait("the rebuild to finish", || cluster.run(&["rebuild", "finish", "--yes"]).status.success());
    let status = cluster.json(&["status"]);
    assert_eq!(status["held_back"].as_array().unwrap().len(), 0, "{status}");
}

fn nothing_held_back(cluster: &Cluster) {
    wait("nothing to be held back", || cluster.json(&["status"])["held_back"].as_array().unwrap().is_empty());
}

#[test]
fn metadata_lost_altogether_are_made_anew_from_the_agents_alone() {
    let mut cluster = Cluster::start(7, 3);
    let objects = fill(&cluster);
    swept(&cluster);
    // A put goes on without a node that seems dead, as it may where all processors are busy.
    wait("every stripe to be whole", || cluster.json(&["status"])["degraded_stripes"] == 0);
    let before = (listed(&cluster), cluster.json(&["status"]));
    cluster.lose_metadata();
    cluster.start_coordinator_with(&["--rebuild"], None).unwrap();
    let status = rebuilt(&cluster, 7, objects.len());
    assert_eq!((&status["active"], &status["incomplete"]), (&Value::Bool(true), &Value::from(0)), "{status}");
    assert_eq!(listed(&cluster), before.0);
    all_are_readable(&cluster, &objects);
    let streamed = cluster.json(&["stat", "streamed"]);
    assert_eq!(streamed["attributes"], serde_json::json!({"content_type": "text/x", "user": {"a": "b"}}));
    assert_eq!(streamed["checksum"], Value::Null, "labels are written before it is known");
    let told = cluster.json(&["status"]);
    assert_eq!(told["cluster"], before.1["cluster"], "it is the same cluster");
    assert!(told["held_back"][0].as_str().unwrap().contains("rebuild finish"), "{told}");
    assert_eq!(
        (&told["degraded_stripes"], &told["stripes"]),
        (&Value::from(0), &before.1["stripes"]),
        "{told}, {}",
        String::from_utf8_lossy(&cluster.run(&["health"]).stdout)
    );
    // Puts continue meanwhile, and the rebuild survives a restart.
    let mut all = objects.clone();
    put(&cluster, &mut all, "meanwhile", 123_456, &["--code", "rs:n=4,k=2"]);
    assert!(cluster.refused(&["rebuild", "finish"]).contains("--yes"));
    cluster.kill_coordinator();
    cluster.start_coordinator();
    rebuilt(&cluster, 7, all.len());
    finish(&cluster);
    swept(&cluster);
    put(&cluster, &mut all, "after", 123_457, &["--code", "user:mine"]);
    cluster.json(&["scrub"]);
    let aside = cluster.json(&["quarantine", "ls"]);
    let nodes = aside["nodes"].as_array().unwrap();
    assert!(nodes.iter().all(|n| n["aside"].as_array().unwrap().is_empty() && n["held"] == 0), "{aside}");
    cluster.kill_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(7);
    all_are_readable(&cluster, &all);
    nothing_held_back(&cluster);
}

#[test]
fn one_node_that_is_dead_meanwhile_costs_nothing() {
    let mut cluster = Cluster::start(7, 7);
    let objects = fill(&cluster);
    swept(&cluster);
    let before = listed(&cluster);
    cluster.kill(2);
    cluster.lose_metadata();
    cluster.start_coordinator_with(&["--rebuild"], None).unwrap();
    // Without its parity `plain` needs every node that holds its data.
    let complete = |name: &str| name != "plain";
    let mut status = Value::Null;
    wait("the objects to be back", || {
        status = cluster.json(&["rebuild"]);
        status["agents"] == 6 && status["waiting"].is_null() && listed(&cluster).len() >= before.len() - 1
    });
    let some: BTreeMap<_, _> =
        objects.iter().filter(|o| complete(o.0)).map(|(n, s)| (n.clone(), s.clone())).collect();
    all_are_readable(&cluster, &some);
    if status["incomplete"] != 0 {
        assert_eq!(status["first_incomplete"][0]["name"], "plain", "{status}");
        let missing = status["first_incomplete"][0]["missing"].as_str().unwrap();
        assert!(missing.contains("last on N2"), "{missing}");
    }
    let nodes = cluster.json(&["nodes"]);
    assert!(nodes.as_array().unwrap().iter().any(|n| n["id"] == 2 && n["state"] == "dead"), "{nodes}");
    let lost = cluster.json(&["status"])["degraded_stripes"].as_u64().unwrap();
    assert!(lost > 0);
    cluster.json(&["repair"]);
    assert_eq!(cluster.json(&["status"])["degraded_stripes"], 0);
    all_are_readable(&cluster, &some);

    // The node comes back with blocks that only it holds.
    cluster.start_agent(2);
    rebuilt(&cluster, 7, objects.len());
    assert_eq!(listed(&cluster), before);
    all_are_readable(&cluster, &objects);
    finish(&cluster);
    swept(&cluster);
    cluster.json(&["scrub"]);
    cluster.wait_whole();
    all_are_readable(&cluster, &objects);
    cluster.kill(3);
    all_are_readable(&cluster, &some);
}

#[test]
fn an_older_copy_of_the_metadata_is_completed_from_the_blocks() {
    let mut cluster = Cluster::start(6, 3);
    let mut objects = BTreeMap::new();
    let small = ["--code", "rs:n=6,k=4", "--block", "64KiB", "--cell", "16KiB"];
    for name in ["old-1", "old-2", "old-3"] {
        put(&cluster, &mut objects, name, 400_000 + name.len() as u64, &small);
    }
    cluster.kill_coordinator();
    let (dir, copy) = (cluster.coordinator_dir(), cluster.dir.path().join("copy"));
    copy_dir(&dir, &copy);
    cluster.start_coordinator();
    cluster.wait_alive(6);
    put(&cluster, &mut objects, "new", 500_000, &small);
    put(&cluster, &mut objects, "old-2", 333_333, &[&small[..], &["--replace"]].concat());
    cluster.json(&["rm", "old-3"]);
    objects.remove("old-3");
    swept(&cluster);
    cluster.kill_coordinator();
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&copy, &dir).unwrap();
    cluster.start_coordinator();
    cluster.wait_alive(6);
    wait("the status to tell", || {
        let said = cluster.json(&["status"])["held_back"].to_string();
        said.contains("older than what agents hold") && said.contains("--rebuild")
    });
    assert_eq!(cluster.get_sha("old-1"), objects["old-1"]);

    cluster.kill_coordinator();
    cluster.start_coordinator_with(&["--rebuild"], None).unwrap();
    wait("the newer objects to be back", || {
        listed(&cluster).keys().cloned().collect::<Vec<_>>() == ["new", "old-1", "old-2"]
            && listed(&cluster)["old-2"].1 == 333_333
    });
    all_are_readable(&cluster, &objects);
    finish(&cluster);
    swept(&cluster);
    cluster.wait_whole();
    cluster.kill_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(6);
    cluster.json(&["scrub"]);
    all_are_readable(&cluster, &objects);
    nothing_held_back(&cluster);
}

#[test]
fn an_older_version_that_is_whole_too_is_told_and_can_be_brought_back() {
    let mut cluster = Cluster::start(4, 4);
    let mut objects = BTreeMap::new();
    let code = ["--code", "rs:n=4,k=2"];
    put(&cluster, &mut objects, "kept", 100_000, &code);
    cluster.kill_coordinator();
    let (dir, copy) = (cluster.coordinator_dir(), cluster.dir.path().join("copy"));
    copy_dir(&dir, &copy);
    cluster.start_coordinator();
    cluster.wait_alive(4);
    put(&cluster, &mut objects, "twice", 200_000, &code);
    // Metadata that do not know the first version put a second one.
    cluster.kill_coordinator();
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::rename(&copy, &dir).unwrap();
    cluster.start_coordinator();
    cluster.wait_alive(4);
    let mut newer = BTreeMap::new();
    put(&cluster, &mut newer, "twice", 300_000, &code);

    cluster.lose_metadata();
    cluster.start_coordinator_with(&["--rebuild"], None).unwrap();
    let status = rebuilt(&cluster, 4, 2);
    assert_eq!(listed(&cluster)["twice"].1, 300_000);
    assert_eq!((&status["covered"], &status["first_covered"][0]["size"]), (&1.into(), &200_000.into()));
    let told = String::from_utf8(cluster.run(&["rebuild"]).stdout).unwrap();
    assert!(told.contains("`kintsu rm NAME` now brings back the older version"), "{told}");
    cluster.json(&["rm", "twice"]);
    wait("the older version to be back", || {
        listed(&cluster).get("twice").is_some_and(|object| object.1 == 200_000)
    });
    finish(&cluster);
    swept(&cluster);
    all_are_readable(&cluster, &objects);
    cluster.wait_whole();
}

#[test]
fn a_removed_object_stays_away_though_a_node_that_was_down_holds_all_of_it() {
    let mut cluster = Cluster::start(4, 4);
    let mut objects = BTreeMap::new();
    let copies = ["--code", "replication:n=3"];
    put(&cluster, &mut objects, "kept", 100_000, &copies);
    put(&cluster, &mut objects, "removed", 100_001, &copies);
    let holder = cluster.blocks("removed")[0]["node"].as_u64().unwrap() as u32;
    cluster.kill(holder);
    cluster.wait_dead(1);
    cluster.json(&["rm", "removed"]);
    // Only the dead node's block is still waiting.
    wait("the others to delete", || cluster.json(&["status"])["garbage"] == 1);
    cluster.lose_metadata();
    cluster.start_coordinator_with(&["--rebuild"], None).unwrap();
    cluster.start_agent(holder);
    rebuilt(&cluster, 4, 1);
    finish(&cluster);
    assert_eq!(listed(&cluster).keys().cloned().collect::<Vec<_>>(), ["kept"]);
    assert_eq!(cluster.get_sha("kept"), objects["kept"]);
}

#[test]
fn a_restored_copy_is_completed_by_itself() {
    let mut cluster = Cluster::start(6, 3);
    let mut objects = BTreeMap::new();
    let code = ["--code", "rs:n=5,k=3"];
    put(&cluster, &mut objects, "before", 300_000, &code);
    let copy = cluster.dir.path().join("copy.kintsu");
    cluster.json(&["backup", copy.to_str().unwrap()]);
    put(&cluster, &mut objects, "after", 400_000, &code);
    cluster.lose_metadata();
    cluster.start_coordinator_with(&["--restore", copy.to_str().unwrap()], None).unwrap();
    wait("the newer object to be back", || listed(&cluster).len() == 2);
    all_are_readable(&cluster, &objects);
    finish(&cluster);
    cluster.wait_whole();
}

#[test]
fn up_makes_its_metadata_anew_too() {
    let dir = tempfile::TempDir::new().unwrap();
    let (nodes, data) = (dir.path().join("cluster"), dir.path().join("data"));
    std::fs::write(&data, vec![7; 200_000]).unwrap();
    let start = |more: &[&str]| {
        let mut up = cluster::kintsu();
        up.args(["up", "--json", "--nodes", "5", "--listen", "127.0.0.1:0", "--dir"]).arg(&nodes).args(more);
        let mut up = Running::new(up.stdout(std::process::Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(up.stdout.take().unwrap()), &mut line)
            .unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        (up, ready["listen"].as_str().unwrap().to_owned())
    };
    let run = |at: &str, args: &[&str]| {
        cluster::kintsu().args(args).env("KINTSU_COORDINATOR", at).output().unwrap()
    };
    let (up, at) = start(&[]);
    assert!(run(&at, &["put", data.to_str().unwrap(), "a", "--code", "rs:n=5,k=3"]).status.success());
    drop(up);
    std::fs::remove_dir_all(nodes.join("coordinator")).unwrap();
    let (_up, at) = start(&["--rebuild"]);
    let out = dir.path().join("out");
    wait("the object to be back", || run(&at, &["get", "a", out.to_str().unwrap()]).status.success());
    assert_eq!(sha256(&out), sha256(&data));
}
