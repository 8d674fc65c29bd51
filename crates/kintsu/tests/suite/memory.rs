//! The memory for repairing a 256 MiB block must not depend on the block: only slices in flight.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::{Cluster, sha256, wait};

const GROWTH_LIMIT_KIB: u64 = 32 * 1024;

/// A line of `/proc/PID/status`, in KiB.
fn memory_kib(pid: u32, key: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(key)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn repairing_a_256_mib_block_keeps_every_agents_peak_growth_under_32_mib() {
    for method in ["conventional", "ppr", "pipeline"] {
        let mut cluster = Cluster::start(7, 7);
        let file = cluster.file("object", 4 * (256 << 20));
        let expected = sha256(&file);
        cluster.put(&file, "object", &["--code", "rs:n=6,k=4", "--block", "256MiB"]);
        std::fs::remove_file(&file).unwrap();
        let lost = cluster.blocks("object")[1]["node"].as_u64().unwrap() as u32;
        cluster.kill(lost);
        cluster.wait_dead(1);
        // Agents restarted after the put: their peak so far is that of an idle agent.
        let rest: Vec<u32> = (0..7).filter(|&id| id != lost).collect();
        for &id in &rest {
            cluster.kill(id);
            cluster.start_agent(id);
        }
        wait("all agents but one", || cluster.count("alive") == 6);
        let before: Vec<u64> = rest.iter().map(|&id| memory_kib(cluster.agent_pid(id), "VmHWM")).collect();

        let report = cluster.json(&["repair", "--node", &lost.to_string(), "--method", method]);
        assert_eq!(report["blocks_repaired"], 1, "{report}");

        for (&id, before) in rest.iter().zip(before) {
            let growth = memory_kib(cluster.agent_pid(id), "VmHWM").saturating_sub(before);
            println!("{method}: agent {id} grew by {growth} KiB at its peak");
            assert!(growth < GROWTH_LIMIT_KIB, "{method}: agent {id} grew by {growth} KiB");
        }
        assert_eq!(cluster.get_sha("object"), expected);
    }
}
