//! The limits of repairs, as an operator sets and sees them, and jobs that pause.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::{Cluster, sha256, text, wait};
use serde_json::Value;

fn setting(cluster: &Cluster, name: &str) -> String {
    let all = cluster.json(&["config", "show"]);
    let row = all.as_array().unwrap().iter().find(|row| row["name"] == name).unwrap();
    row["value"].as_str().unwrap().to_owned()
}

#[test]
fn settings_are_shown_changed_and_kept() {
    let mut cluster = Cluster::start(1, 1);
    let shown = text(&cluster.run(&["config", "show"]).stdout);
    for word in ["repair.max-rate", "repair.min-rate", "1MB/s", "repair.target", "none"] {
        assert!(shown.contains(word), "{shown}");
    }
    cluster.json(&["config", "set", "repair.max-rate", "20MB/s"]);
    cluster.json(&["config", "set", "repair.target", "20%"]);
    for (name, value, word) in [
        ("repair.max-rate", "fast", "MB/s"),
        ("repair.min-rate", "30MB/s", "at most repair.max-rate"),
        ("repair.target", "20", "such as 20%"),
        ("repair.sped", "1", "repair.min-rate"),
    ] {
        let said = cluster.refused(&["config", "set", name, value]);
        assert!(said.contains(word), "{said}");
    }
    cluster.stop_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(1);
    assert_eq!(setting(&cluster, "repair.max-rate"), "20MB/s");
    assert_eq!(setting(&cluster, "repair.target"), "20%");
    // It looks for what users feel, and soon sees that there are none.
    let status = cluster.json(&["status"]);
    let why = status["repair_limit"]["why"].as_str().unwrap();
    assert!(["looking", "no_users"].contains(&why), "{status}");
    cluster.json(&["config", "set", "repair.target", "default"]);
    let got = text(&cluster.run(&["config", "get", "repair.target"]).stdout);
    assert_eq!(got.trim(), "none");
    let status = text(&cluster.run(&["status"]).stdout);
    assert!(status.contains("at most 20.0 MB/s a node (repair.max-rate)"), "{status}");
}

#[test]
fn a_repair_keeps_its_limit_pauses_and_goes_on() {
    let mut cluster = Cluster::start(6, 6);
    let file = cluster.file("object", 24 << 20);
    cluster.put(&file, "o", &["--code", "rs:n=5,k=3", "--block", "1MiB"]);
    cluster.json(&["config", "set", "repair.min-rate", "10kB/s"]);
    // On a loaded machine some node may really be slow, but hardly each time.
    let mut reports = Vec::new();
    let nobody_is_slow = (0..3).any(|node| {
        reports.push(pauses_and_goes_on(&mut cluster, node));
        reports.last().is_some_and(|report| report["around"].as_array().unwrap().is_empty())
    });
    assert!(nobody_is_slow, "{reports:?}");
    assert_eq!(cluster.get_sha("o"), sha256(&file));
}

/// Repairs a node that has lost its blocks: within a limit, paused, and then without a limit. Returns the report.
fn pauses_and_goes_on(cluster: &mut Cluster, node: u32) -> Value {
    cluster.json(&["config", "set", "repair.max-rate", "10kB/s"]);
    let earlier = cluster.json(&["jobs"]);
    cluster.restart_empty(node);
    cluster.wait_alive(6);
    let repair = cluster.spawn(&["repair", "--node", &node.to_string(), "--json"]);
    let job = || {
        let jobs = cluster.json(&["jobs"]);
        let is_new = |job: &Value| earlier.as_array().unwrap().iter().all(|old| old["id"] != job["id"]);
        jobs.as_array().unwrap().iter().find(|job| job["kind"] == "repair" && is_new(job)).cloned()
    };
    wait("the repair to begin", || job().is_some_and(|job| job["total"].as_u64() > Some(0)));
    let id = job().unwrap()["id"].as_u64().unwrap().to_string();
    let shown = text(&cluster.run(&["jobs"]).stdout);
    assert!(shown.contains("repairs: at most 10 kB/s a node (repair.max-rate)"), "{shown}");
    assert_eq!(cluster.json(&["jobs", "pause", &id])["state"], "paused");
    assert_eq!(cluster.json(&["status"])["repair_limit"]["rate"], 10_000);
    assert_eq!(job().unwrap()["state"], "paused");
    cluster.json(&["config", "set", "repair.max-rate", "none"]);
    assert_eq!(cluster.json(&["jobs", "resume", &id])["state"], "running");
    let out = repair.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(out.status.success(), "{report}");
    assert!(cluster.refused(&["jobs", "pause", &id]).contains("one that has ended"));
    report
}
