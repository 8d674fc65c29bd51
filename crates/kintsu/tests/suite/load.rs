//! `kintsu bench load`: every workload runs on a real cluster, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::Cluster;

#[test]
fn every_workload_runs_and_is_measured() {
    let cluster = Cluster::start(4, 4);
    for (workload, verbs) in [
        ("ycsb-a", &["read", "update"][..]),
        ("ycsb-d", &["insert", "read"]),
        ("ycsb-e", &["insert", "scan"]),
        ("ycsb-f", &["read", "read-modify-write"]),
        ("ibm", &["read", "update"]),
        ("etc", &["read"]),
        ("rados", &["read"]),
    ] {
        let count = if workload == "rados" { "0.01" } else { "0.001" };
        let played = cluster.json(&["bench", "load", workload, "--sizes", "0.0001", "--count", count]);
        let expected = if workload == "ibm" { 300 } else { 100 };
        assert_eq!(
            (&played["all"]["operations"], &played["failed"]),
            (&expected.into(), &0.into()),
            "{played}"
        );
        for verb in verbs {
            let took = &played["verbs"][verb];
            assert!(
                took["p50_ms"].as_f64().unwrap() <= took["p99_ms"].as_f64().unwrap(),
                "{workload}: {played}"
            );
        }
        assert!(played["bytes"].as_u64().unwrap() > 0 && played["seconds"].as_f64().unwrap() > 0.0);
        let left = cluster.json(&["ls"]);
        assert!(!left.to_string().contains(workload), "{left}");
    }
}

#[test]
fn workloads_follow_each_other_and_files_are_played_at_their_times() {
    let cluster = Cluster::start(3, 3);
    let small = ["--sizes", "0.001", "--count", "1"];
    let turns =
        ["bench", "load", "ycsb-c", "twitter", "--span", "1s", "--count", "0.002", "--sizes", "0.001"];
    let played = cluster.json(&turns);
    assert!(played["seconds"].as_f64().unwrap() < 60.0 && played["failed"] == 0, "{played}");
    let trace = cluster.dir.path().join("trace.csv");
    std::fs::write(&trace, "0,put,a,5000\n0.5,get,a,\n1,get,b,1000\n").unwrap();
    let at = trace.to_str().unwrap();
    let played = cluster.json(&[&["bench", "load", at, "--open", "1", "--keep"][..], &small[..]].concat());
    assert_eq!(played["all"]["operations"], 3, "{played}");
    // The last operation is due one second after the first one.
    assert!(played["seconds"].as_f64().unwrap() >= 1.0, "{played}");
    assert!(cluster.json(&["ls"]).to_string().contains(".kintsu-bench/trace/"));
    for wrong in
        [&["bench", "load", "ycsb-z"][..], &["bench", "load", "ycsb-a", "--sizes", "0"], &["bench", "load"]]
    {
        assert!(!cluster.refused(wrong).is_empty());
    }
}

#[test]
fn objects_of_users_stay_whatever_a_workload_or_its_file_is_called() {
    let cluster = Cluster::start(3, 3);
    let file = cluster.file("object", 1000);
    let users = ["photos/a", "trace/a", "twitter/1"];
    for name in users {
        cluster.put(&file, name, &["--code", "replication:n=3"]);
    }
    let trace = cluster.dir.path().join("trace.csv");
    let (missing, bad) = (cluster.dir.path().join("photos.csv"), cluster.dir.path().join("twitter.csv"));
    std::fs::write(&trace, "0,put,a,5000\n1,get,a,\n").unwrap();
    std::fs::write(&bad, "nothing of use\n").unwrap();
    for wrong in ["photos", missing.to_str().unwrap(), bad.to_str().unwrap()] {
        assert!(!cluster.refused(&["bench", "load", wrong]).is_empty());
    }
    let small = ["--sizes", "0.001", "--count", "0.002", "--span", "1s"];
    for work in ["twitter", trace.to_str().unwrap()] {
        let played = cluster.json(&[&["bench", "load", work][..], &small[..]].concat());
        assert_eq!(played["failed"], 0, "{played}");
    }
    let left = cluster.json(&["ls"]);
    let names: Vec<&str> =
        left.as_array().unwrap().iter().map(|object| object["name"].as_str().unwrap()).collect();
    assert_eq!(names, users);
}
