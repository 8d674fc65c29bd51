//! What an operator sees of a cluster whose nodes come and go, and what can be done about it: exit codes and JSON of
//! `health`, `status`, `stat`, `df`, `nodes`, `jobs` and `node`.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::io::{BufRead, BufReader, Write};
use std::process::{Output, Stdio};

use cluster::{Cluster, Running, kintsu, sha256, text, wait};
use serde_json::Value;

/// A cluster that keeps nothing free, so that the machine's own disk does not matter.
fn cluster_of(nodes: u32, reserve: &str) -> Cluster {
    let mut cluster = Cluster::start(nodes, nodes);
    reserving(&mut cluster, reserve, nodes);
    cluster
}

/// Starts the coordinator again with this reserve.
fn reserving(cluster: &mut Cluster, reserve: &str, nodes: u32) {
    cluster.kill_coordinator();
    cluster.start_coordinator_with(&["--reserve", reserve], None).unwrap();
    cluster.wait_alive(nodes);
    wait("all nodes to report", || {
        let nodes = cluster.json(&["nodes"]);
        let known = nodes.as_array().unwrap().iter().all(|node| node["usage"]["capacity_bytes"].is_u64());
        known && cluster.json(&["status"])["held_back"].as_array().unwrap().is_empty()
    });
}

/// The exit code and the JSON of `health`.
fn health(cluster: &Cluster) -> (i32, Value) {
    let out = cluster.run(&["health", "--json"]);
    (out.status.code().unwrap(), serde_json::from_slice(&out.stdout).unwrap())
}

/// Waits for a verdict with this exit code and these causes.
fn judged(cluster: &Cluster, code: i32, expected: &[&str]) -> Value {
    let mut last = Value::Null;
    wait(&format!("health {code} because of {expected:?}"), || {
        let (now, said) = health(cluster);
        last = said;
        now == code && expected.iter().all(|kind| causes(&last).iter().any(|cause| cause == kind))
    });
    last
}

fn causes(health: &Value) -> Vec<String> {
    let counted = health["causes"].as_array().unwrap().iter().filter(|cause| cause["level"] != "healthy");
    counted.map(|cause| cause["kind"].as_str().unwrap().to_owned()).collect()
}

fn first_line(out: &Output) -> String {
    text(&out.stdout).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn the_verdict_follows_the_nodes_and_what_it_advises_helps() {
    let mut cluster = cluster_of(6, "0");
    let file = cluster.file("object", 1_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=4,k=2", "--block", "64KiB", "--cell", "16KiB"]);
    let well = judged(&cluster, 0, &[]);
    assert_eq!((&well["verdict"], causes(&well)), (&Value::from("healthy"), vec![]), "{well}");
    let status = cluster.run(&["status"]);
    assert_eq!(first_line(&status), "health                 healthy");
    assert_eq!(cluster.json(&["stat", "object"])["damage"]["health"], "whole");

    // One node dies: everything can be read.
    let blocks = cluster.blocks("object");
    let homes: Vec<u32> = (0..3).map(|i| blocks[i]["node"].as_u64().unwrap() as u32).collect();
    cluster.kill(homes[0]);
    cluster.wait_dead(1);
    let degraded = judged(&cluster, 1, &["reduced_redundancy", "dead_nodes"]);
    let named = &degraded["causes"][0]["stripes"][0];
    assert_eq!(
        (&named["object"], &named["readable"], &named["bears"]),
        (&"object".into(), &true.into(), &1.into())
    );
    let stat = cluster.json(&["stat", "object"]);
    assert_eq!(stat["damage"]["health"], "degraded");
    let on_dead = stat["blocks"].as_array().unwrap().iter().filter(|block| block["node"] == homes[0]);
    assert!(on_dead.clone().count() > 0 && on_dead.clone().all(|block| block["fault"] == "DEAD"), "{stat}");
    let words = text(&cluster.run(&["stat", "object"]).stdout);
    assert!(
        words.contains(&format!("b0 on node {} (DEAD)", homes[0])) && words.contains("it can be read"),
        "{words}"
    );

    // Two more: more blocks of a stripe are gone than the code bears.
    cluster.kill(homes[1]);
    cluster.kill(homes[2]);
    cluster.wait_dead(3);
    let lost = judged(&cluster, 2, &["unreadable_stripes", "dead_nodes"]);
    assert_eq!(lost["causes"][0]["kind"], "unreadable_stripes", "{lost}");
    let status = cluster.run(&["status"]);
    assert!(status.status.success() && first_line(&status).contains("error: "), "{}", text(&status.stdout));
    let said = &cluster.json(&["status"])["health"];
    assert_eq!(said["verdict"], "error");
    assert!(said["headline"].as_str().unwrap().contains("cannot be read"), "{said}");
    assert_eq!(cluster.json(&["stat", "object"])["damage"]["health"], "unreadable");
    assert!(text(&cluster.run(&["health"]).stdout).contains("to do: bring nodes "));
    cluster.start_agent(homes[1]);
    cluster.start_agent(homes[2]);
    cluster.wait_alive(5);
    judged(&cluster, 1, &["dead_nodes"]);

    // The dead node's blocks are needed; its agent runs apart.
    let id = homes[0].to_string();
    let refused = cluster.refused(&["node", "forget", &id, "--yes"]);
    assert!(refused.contains(&format!("kintsu repair --node {id}")), "{refused}");
    let refused = cluster.refused(&["node", "start", &id]);
    assert!(refused.contains("kintsu agent --dir") && refused.contains(&format!("node-{id}")), "{refused}");
    let refused = cluster.refused(&["node", "drain", &id]);
    assert!(refused.contains("one that is dead"), "{refused}");
    let report = cluster.json(&["repair", "--node", &id]);
    assert_eq!(report["failed"].as_array().unwrap().len(), 0, "{report}");
    let job = report["job"].as_u64().unwrap();
    let jobs = cluster.json(&["jobs"]);
    let row = jobs.as_array().unwrap().iter().find(|row| row["id"] == job).unwrap();
    assert_eq!(
        (&row["kind"], &row["state"], &row["unit"]),
        (&"repair".into(), &"done".into(), &"bytes".into())
    );
    let again = cluster.json(&["jobs", "follow", &job.to_string()]);
    assert_eq!((&again["job"], &again["blocks_repaired"]), (&report["job"], &report["blocks_repaired"]));
    assert!(cluster.refused(&["jobs", "cancel", &job.to_string()]).contains("one that has ended"));
    assert!(cluster.refused(&["jobs", "follow", "7"]).contains("job"));
    cluster.wait_whole();
    // Three nodes were gone, which holds automatic repairs; the next tick sees that they are back.
    wait("nothing to be held", || causes(&judged(&cluster, 1, &["dead_nodes"])) == ["dead_nodes"]);
    cluster.json(&["node", "forget", &id, "--yes"]);
    judged(&cluster, 0, &[]);
    assert_eq!(cluster.json(&["nodes"]).as_array().unwrap().len(), 5);
    assert_eq!(cluster.get_sha("object"), sha256(&file));

    // A command that is no job has a short answer; a stop is a warning while blocks are needed.
    let stopped = cluster.json(&["node", "stop", &homes[1].to_string()]);
    assert_eq!(stopped, serde_json::json!({"node": homes[1], "action": "stop", "done": true}));
    judged(&cluster, 1, &["stopped_nodes"]);

    // No coordinator: an error, also for programs.
    cluster.kill_coordinator();
    let (code, away) = health(&cluster);
    assert_eq!((code, &away["verdict"]), (2, &Value::from("error")));
}

#[test]
fn space_is_counted_once_and_full_nodes_get_nothing() {
    let mut cluster = cluster_of(6, "0");
    let file = cluster.file("object", 1_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=4,k=2"]);
    let space = cluster.json(&["df"]);
    let number = |key: &str| space[key].as_u64().unwrap();
    assert_eq!((number("nodes"), number("media"), number("reserved_bytes")), (6, 1, 0), "{space}");
    assert!(number("free_bytes") > 0 && number("free_bytes") < number("raw_bytes"), "{space}");
    let code = &space["codes"][0];
    assert_eq!((&code["code"], &code["rack_safe"]), (&"rs:n=4,k=2".into(), &true.into()), "{space}");
    let usable = code["usable_bytes"].as_u64().unwrap();
    // Half of the bytes are parity; six nodes share one file system.
    assert!(usable < number("free_bytes") / 10 * 6 && usable > number("free_bytes") / 3, "{space}");
    let wide = cluster.json(&["df", "--code", "rs:n=9,k=6"]);
    assert_eq!(wide["codes"][0]["note"], "needs 9 nodes with room, got 6");
    assert!(cluster.refused(&["df", "--code", "rs:n=2,k=6"]).contains("expected"));
    assert!(text(&cluster.run(&["df"]).stdout).contains("an estimate"));

    // A reserve as large as the disks.
    reserving(&mut cluster, "100%", 6);
    let nodes = cluster.json(&["nodes"]);
    assert!(nodes.as_array().unwrap().iter().all(|node| node["fullness"] == "full"), "{nodes}");
    let refused = cluster.refused(&["put", file.to_str().unwrap(), "other", "--code", "rs:n=4,k=2"]);
    assert!(refused.contains("got 0; 6 more have too little free space"), "{refused}");
    let (code, full) = health(&cluster);
    assert_eq!((code, causes(&full)), (2, vec!["no_place".to_owned(), "full_nodes".to_owned()]), "{full}");
    assert_eq!(cluster.get_sha("object"), sha256(&file));
    assert!(cluster.json(&["df"])["codes"][0]["usable_bytes"].is_null());
}

#[test]
fn the_space_of_a_node_that_has_not_called_is_not_known_rather_than_zero() {
    let mut cluster = Cluster::start(2, 2);
    cluster.kill(1);
    cluster.kill_coordinator();
    cluster.start_coordinator();
    let said = text(&cluster.run(&["nodes"]).stdout);
    let row = said.lines().find(|line| line.trim_start().starts_with("1 ")).unwrap();
    assert_eq!(row.matches("not known yet").count(), 2, "{said}");
    assert!(cluster.json(&["nodes"])[1]["usage"].is_null());
}

#[test]
fn a_job_goes_on_without_its_follower_and_can_be_cancelled() {
    use rustix::process::{Pid, Signal, kill_process};
    let cluster = Cluster::start(6, 6);
    // A put under way keeps a drain waiting.
    let mut put = cluster.spawn_stream("object", &["--code", "rs:n=6,k=4", "--block", "32KiB"]);
    let mut pipe = put.stdin.take().unwrap();
    pipe.write_all(&[1; 300_000]).unwrap();
    wait("the put to begin", || cluster.json(&["status"])["puts_pending"] == 1);
    let running = || {
        let jobs = cluster.json(&["jobs"]);
        jobs.as_array().unwrap().iter().find(|job| job["kind"] == "drain").cloned()
    };
    let mut last = None;
    wait("a follower that knew its job", || {
        let drain = cluster.spawn(&["node", "drain", "2", "--json"]);
        wait("the drain to begin", || running().is_some());
        // Until its first event is there, the follower does not know the job.
        std::thread::sleep(std::time::Duration::from_secs(2));
        kill_process(Pid::from_child(&drain), Signal::INT).unwrap();
        let out = drain.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
        !last.insert(out).stdout.is_empty()
    });
    let (job, out) = (running().unwrap(), last.unwrap());
    let id = job["id"].as_u64().unwrap();
    let said = text(&out.stderr);
    assert!(said.contains(&format!("goes on as job {id}")) && said.contains("kintsu jobs cancel"), "{said}");
    let left: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(
        (&left["id"], &left["interrupted"], &left["state"]),
        (&job["id"], &true.into(), &"running".into())
    );
    assert_eq!(running().unwrap()["state"], "running");
    cluster.json(&["jobs", "cancel", &id.to_string()]);
    wait("the drain to end", || running().unwrap()["state"] != "cancelling");
    assert_eq!(cluster.count("draining"), 0, "it gets new blocks again");
    assert_eq!(cluster.json(&["node", "undrain", "2"])["done"], true);
    put.kill().unwrap();
    put.wait().unwrap();
}

/// What an agent that meets nobody logs first.
fn alone(options: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let mut command = kintsu();
    command.env("KINTSU_LOG", "warn").args(["agent", "--coordinator", "127.0.0.1:1"]).args(options);
    command.arg("--dir").arg(dir.path());
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(agent.stderr.take().unwrap()).read_line(&mut line).unwrap();
    agent.kill().unwrap();
    agent.wait().unwrap();
    line
}

#[test]
fn a_log_of_json_has_an_object_in_each_line() {
    let line = alone(&["--log", "json"]);
    let said: Value = serde_json::from_str(&line).unwrap();
    let value = |key: &str| said[key].as_str().unwrap();
    assert_eq!((value("level"), value("target")), ("WARN", "kintsu_agent::membership"));
    assert!(value("message").contains("waits for the coordinator at 127.0.0.1:1"), "{line}");
    assert!(value("timestamp").starts_with("20"), "{line}");
}

#[test]
fn processes_that_meet_nobody_or_the_wrong_one_say_so() {
    let cluster = Cluster::start(1, 1);
    let control = cluster.json(&["nodes"])[0]["control"].as_str().unwrap().to_owned();
    let out = kintsu().args(["ls", "--coordinator", &control]).output().unwrap();
    let said = text(&out.stderr);
    let known = ["coordinator's address", control.as_str()].iter().all(|words| said.contains(words));
    assert!(!out.status.success() && known, "{said:?}");
    let slices = cluster.json(&["nodes"])[0]["data"].as_str().unwrap().to_owned();
    for _ in 0..5 {
        let said = text(&kintsu().args(["ls", "--coordinator", &slices]).output().unwrap().stderr);
        assert!(said.contains("another port than the coordinator's"), "{said:?}");
    }
    let line = alone(&[]);
    assert!(line.contains("waits for the coordinator at 127.0.0.1:1"), "{line}");
    let dir = tempfile::tempdir().unwrap();
    let demo = ["demo", "--nodes", "20", "--racks", "30", "--file", "/etc/hostname", "--dir"];
    for (args, nodes) in [(&["up", "--nodes", "3", "--racks", "7", "--dir"][..], 3), (&demo[..], 20)] {
        let out = kintsu().args(args).arg(dir.path().join("new")).output().unwrap();
        let (said, expected) = (text(&out.stderr), format!("at most as many racks as nodes ({nodes})"));
        assert!(!out.status.success() && said.contains(&expected), "{said}");
        assert!(!dir.path().join("new").exists(), "what is refused leaves no folder");
    }
}

#[test]
fn a_cluster_that_cannot_be_asked_is_an_error_of_its_health() {
    let out = kintsu().args(["health", "--json", "--tls", "/nowhere"]).output().unwrap();
    let health: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &health["verdict"]), (Some(2), &Value::from("error")), "{health}");
    assert!(health["headline"].as_str().unwrap().contains("/nowhere"), "{health}");
}

#[test]
fn objects_without_parity_are_warned_of_until_they_are_encoded() {
    let cluster = cluster_of(4, "0");
    let file = cluster.file("object", 100_000);
    cluster.put(&file, "plain", &["--code", "rs:n=4,k=2", "--block", "16KiB", "--encode", "offline"]);
    let warned = judged(&cluster, 1, &["not_encoded"]);
    assert_eq!(warned["causes"][0]["count"], 4, "{warned}");
    cluster.json(&["encode", "plain"]);
    judged(&cluster, 0, &[]);
    cluster.put(&file, "other", &["--code", "rs:n=4,k=2", "--encode", "offline"]);
    judged(&cluster, 1, &["not_encoded"]);
    cluster.json(&["rm", "other"]);
    judged(&cluster, 0, &[]);
}

#[test]
fn a_drain_goes_on_when_the_coordinator_has_started_again() {
    let mut cluster = cluster_of(5, "0");
    let file = cluster.file("object", 1_000_000);
    cluster.put(&file, "object", &["--code", "rs:n=4,k=2", "--block", "32KiB"]);
    // A put under way keeps the drain waiting, and brings more blocks after the restart.
    let options = ["--code", "rs:n=4,k=2", "--block", "32KiB"];
    let mut put = cluster.spawn_stream("stream", &options);
    let (bytes, mut pipe) = (std::fs::read(&file).unwrap(), put.stdin.take().unwrap());
    let (first, rest) = bytes.split_at(300_000);
    pipe.write_all(first).unwrap();
    wait("the put to begin", || cluster.json(&["status"])["puts_pending"] == 1);
    let mut drain = cluster.spawn(&["node", "drain", "2", "--json"]);
    let drain_of = |cluster: &Cluster, is: &dyn Fn(&Value) -> bool| {
        let jobs = cluster.json(&["jobs"]);
        jobs.as_array().unwrap().iter().any(|job| job["kind"] == "drain" && is(job))
    };
    let drains = |cluster: &Cluster, state: &str| drain_of(cluster, &|job| job["state"] == state);
    // By then it is recorded. Before, it is only shown, and would end with the coordinator.
    let waits = |job: &Value| job["note"].as_str().is_some_and(|note| note.starts_with("waiting for puts"));
    wait("the drain to wait for the put", || drain_of(&cluster, &waits));
    drain.kill().unwrap();
    drain.wait().unwrap();
    reserving(&mut cluster, "0", 4);
    wait("the drain to go on", || drains(&cluster, "running"));
    pipe.write_all(rest).unwrap();
    drop(pipe);
    let out = put.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    wait("the drain to end", || drains(&cluster, "done"));
    let nodes = cluster.json(&["nodes"]);
    let node = nodes.as_array().unwrap().iter().find(|node| node["id"] == 2).unwrap();
    assert_eq!((&node["placed_blocks"], &node["state"]), (&0.into(), &"draining".into()), "{node}");
    for name in ["object", "stream"] {
        assert_eq!(cluster.get_sha(name), sha256(&file));
    }
}

#[test]
fn a_node_that_is_stopped_while_it_drains_still_drains_when_it_is_started() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = kintsu();
    up.args([
        "up",
        "--json",
        "--no-page",
        "--nodes",
        "5",
        "--racks",
        "5",
        "--listen",
        "127.0.0.1:0",
        "--dir",
    ]);
    let mut up = Running::new(up.arg(dir.path().join("nodes")).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(up.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).expect("the cluster says that it is up");
    let json = |args: &[&str]| -> Value {
        let mut command = kintsu();
        command.args(args).arg("--json").env("KINTSU_COORDINATOR", ready["listen"].as_str().unwrap());
        let out = command.output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let node = || json(&["nodes"]).as_array().unwrap().iter().find(|node| node["id"] == 2).unwrap().clone();
    let object = dir.path().join("object");
    std::fs::write(&object, vec![7; 300_000]).unwrap();
    let put = |name: &str| {
        json(&["put", object.to_str().unwrap(), name, "--code", "rs:n=4,k=2", "--block", "32KiB"]);
    };
    put("before");
    json(&["node", "drain", "2"]);
    json(&["node", "stop", "2"]);
    wait("the node to stop", || node()["state"] == "stopped");
    json(&["node", "start", "2"]);
    wait("the node to drain again", || node()["state"] == "draining");
    put("after");
    assert_eq!(node()["placed_blocks"], 0, "it gets no blocks");
    json(&["node", "undrain", "2"]);
    assert_eq!(node()["state"], "alive");
}
