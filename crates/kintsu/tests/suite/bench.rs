//! `kintsu bench slices` and `io`: that they work and leave nothing behind; the speed is not tested. `all`: that it does not begin
//! in vain.

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

#[test]
fn put_and_get_are_measured_in_a_folder_that_is_there_and_stays_empty() {
    let dir = tempfile::tempdir().unwrap();
    let run = |at: &std::path::Path| {
        Command::new(env!("CARGO_BIN_EXE_kintsu"))
            .args(["--json", "bench", "io", "--size", "1MiB", "--code", "rs:n=4,k=2", "--runs", "1", "--dir"])
            .arg(at)
            .output()
            .unwrap()
    };
    let refused = run(&dir.path().join("missing"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("--dir: expected a folder"), "{said}");
    assert!(said.matches("missing").count() == 1 && !said.contains("kintsu-bench-"), "{said}");
    let done = run(dir.path());
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((report["nodes"].as_u64(), report["size"].as_u64()), (Some(4), Some(1 << 20)));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn a_page_without_a_place_for_the_table_is_refused_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.md");
    std::fs::write(&page, "# A page\n").unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_kintsu"))
        .args(["bench", "all", "--page"])
        .arg(&page)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success() && said.contains("page.md"), "{said}");
    assert!(said.contains("expected <!-- results bench --> in the page, got none"), "{said}");
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "# A page\n");
}
