//! A code registered as data outlives every process that knew it: the coordinator and a node are killed, the reading
//! clients are new, and only the cluster has the definition.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::{Cluster, sha256};

const MISER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/miser-4-2.json");

#[test]
fn a_registered_code_outlives_the_processes_that_knew_it() {
    let mut cluster = Cluster::start(6, 6);
    assert_eq!(cluster.json(&["code", "register", MISER])["name"], "user:miser-4-2");
    let file = cluster.file("object", 5_000_003);
    cluster.put(&file, "object", &["--code", "user:miser-4-2", "--block", "1MiB"]);
    let before = cluster.json(&["code", "export", "user:miser-4-2"]);

    cluster.kill_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(6);
    for lost in 0..2 {
        cluster.kill(lost);
        cluster.wait_dead(lost as usize + 1);
        assert_eq!(cluster.get_sha("object"), sha256(&file));
        let report = cluster.json(&["repair"]);
        assert_eq!(report["failed"].as_array().map(Vec::len), Some(0), "{report}");
        cluster.wait_whole();
        assert_eq!(cluster.get_sha("object"), sha256(&file));
    }
    assert_eq!(cluster.json(&["code", "export", "user:miser-4-2"]), before);
}
