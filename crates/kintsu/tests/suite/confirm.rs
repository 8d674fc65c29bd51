//! Commands that cannot be undone need a confirmation: `rm` of several objects and `node wipe`.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::io::Write as _;
use std::process::{Command, Stdio};

use cluster::{Cluster, skipped, text};

fn names(cluster: &Cluster) -> Vec<String> {
    let objects = cluster.json(&["ls"]);
    objects.as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap().to_owned()).collect()
}

fn put(cluster: &Cluster, names: &[&str]) {
    let file = cluster.file("object", 600_000);
    for name in names {
        cluster.put(&file, name, &["--code", "rs:n=5,k=3"]);
    }
}

/// Runs a command on its own terminal, where `answer` is typed. Returns whether it succeeded, and its output;
/// `None` if there is no `script` command to make a terminal.
fn on_terminal(cluster: &Cluster, args: &str, answer: &str) -> Option<(bool, String)> {
    let mut command = Command::new("script");
    command.args(["-qec", &format!("{} {args}", env!("CARGO_BIN_EXE_kintsu")), "/dev/null"]);
    command
        .env("KINTSU_COORDINATOR", &cluster.endpoint)
        .env("KINTSU_LOG", "error")
        .env_remove("KINTSU_TOKEN");
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        skipped("no `script` of util-linux to make a terminal with");
        return None;
    };
    let mut typed = child.stdin.take().unwrap();
    writeln!(typed, "{answer}").unwrap();
    // The terminal stays open until the command has ended.
    let out = child.wait_with_output().unwrap();
    drop(typed);
    Some((out.status.success(), text(&out.stdout)))
}

#[test]
fn several_objects_go_when_it_is_meant_and_one_at_once() {
    let cluster = Cluster::start(5, 5);
    put(&cluster, &["a", "b", "c", "d", "e"]);
    let told = cluster.refused(&["rm", "a", "b"]);
    assert!(told.contains("Remove 2 objects: a, b?") && told.contains("--yes"), "{told}");
    assert_eq!(names(&cluster), ["a", "b", "c", "d", "e"]);

    assert_eq!(cluster.json(&["rm", "a"])["name"], "a");

    if let Some((done, told)) = on_terminal(&cluster, "rm b c", "no") {
        assert!(!done && told.contains("Remove 2 objects: b, c? Type yes:"), "{told}");
        assert!(told.contains("nothing was done") && told.contains("\"no\""), "{told}");
        assert_eq!(names(&cluster), ["b", "c", "d", "e"]);
        let (done, told) = on_terminal(&cluster, "rm b c", "yes").unwrap();
        assert!(done && told.contains("removed b") && told.contains("removed c"), "{told}");
    } else {
        cluster.json(&["rm", "b", "c", "--yes"]);
    }
    assert_eq!(names(&cluster), ["d", "e"]);

    // A missing object is reported and does not stop the others.
    let out = cluster.run(&["rm", "d", "nothing", "e", "--yes", "--json"]);
    assert!(!out.status.success());
    let rows: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let of = |row: usize, key: &str| rows[row][key].clone();
    assert_eq!([of(0, "name"), of(1, "name"), of(2, "name")], ["d", "nothing", "e"]);
    assert_eq!([of(0, "removed")["name"].clone(), of(2, "removed")["name"].clone()], ["d", "e"]);
    assert!(of(1, "error").as_str().unwrap().contains("nothing"), "{rows}");
    assert_eq!(text(&out.stderr), "", "the report has it");
    assert!(names(&cluster).is_empty());
}

#[test]
fn a_node_is_wiped_when_it_is_meant() {
    let cluster = Cluster::start(6, 6);
    put(&cluster, &["a", "b", "c"]);
    let blocks = |node: usize| cluster.json(&["nodes"])[node]["placed_blocks"].as_u64().unwrap();
    let node = (0..6).max_by_key(|node| blocks(*node)).unwrap();
    let held = blocks(node);
    let (id, question) = (node.to_string(), format!("Wipe node {node}: delete {held} blocks"));
    assert!(held > 0);

    let told = cluster.refused(&["node", "wipe", &id]);
    assert!(told.contains(&question) && told.contains("--yes"), "{told}");
    let told = cluster.refused(&["node", "wipe", "77", "--yes"]);
    assert!(told.contains("77"), "{told}");
    let told = cluster.refused(&["node", "stop", &id, "--force"]);
    assert!(told.contains("--force"), "{told}");
    cluster.wait_alive(6);
    assert_eq!(cluster.json(&["status"])["degraded_stripes"], 0);

    if let Some((done, told)) = on_terminal(&cluster, &format!("node wipe {node}"), "y") {
        assert!(!done && told.contains(&question) && told.contains("\"y\""), "{told}");
        assert_eq!(cluster.json(&["status"])["degraded_stripes"], 0);
        let (done, told) = on_terminal(&cluster, &format!("node wipe {node}"), "yes").unwrap();
        assert!(done && told.contains("wiped"), "{told}");
    } else {
        cluster.json(&["node", "wipe", &id, "--yes"]);
    }
    assert_eq!(cluster.json(&["status"])["degraded_stripes"], held);
    cluster.get_sha("a");
}

/// Three of five blocks are needed, so the loss of a third node is not tolerated.
#[test]
fn a_wipe_that_would_cost_an_object_wants_force_as_well() {
    let mut cluster = Cluster::start(5, 5);
    put(&cluster, &["a"]);
    cluster.kill(0);
    cluster.kill(1);
    cluster.wait_dead(2);
    let told = cluster.refused(&["node", "wipe", "2", "--yes"]);
    assert!(told.contains("--force"), "{told}");
    cluster.get_sha("a");
    cluster.json(&["node", "wipe", "2", "--yes", "--force"]);
    cluster.refused(&["get", "a", "-"]);
}
