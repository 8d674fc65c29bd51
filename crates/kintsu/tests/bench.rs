//! `kintsu bench slices`: the benchmark itself compares digests; the speed is not tested.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::Command;

#[test]
fn slices_of_every_size_are_moved_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_kintsu"))
        .args(["--json", "bench", "slices", "--block", "300KB", "--helpers", "3", "--runs", "1"])
        .args(["--slices", "4KiB,100000,1MiB", "--dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let report: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    let slices: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|row| row["slice_bytes"].as_u64().unwrap()).collect();
    assert_eq!((report["helpers"].as_u64(), slices), (Some(3), vec![4096, 100_000, 1 << 20]));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
}
