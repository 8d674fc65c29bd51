//! The experiments as a user runs them: bytes equal, measured costs equal to theory, nothing left behind.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::{Command, Output};

use serde_json::Value;

fn lab(dir: &tempfile::TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
    let out = command.arg("lab").args(args).arg("--dir").arg(dir.path()).output().unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the cluster's folder is removed");
    out
}

/// A folder in memory, where there is one: thousands of losses and repairs would mostly wait for the disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn rows(args: &[&str]) -> Vec<Value> {
    let out = lab(&folder(), &[args, &["--json"]].concat());
    let said = [&out.stderr, &out.stdout].map(|said| String::from_utf8_lossy(said).into_owned());
    assert!(out.status.success(), "{}", said.concat());
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn every_family_loses_blocks_and_repairs_them_at_the_cost_of_theory() {
    let rows = rows(&["codes", "--budget", "3000"]);
    assert!(rows.len() >= 12, "{} families", rows.len());
    for row in &rows {
        assert_eq!(row["ok"], true, "{row}");
        let tried = row["losses_tried"].as_u64().unwrap();
        assert!(tried > 0 || row["d"].as_u64().unwrap() <= 2, "{row}");
    }
}

#[test]
fn every_set_of_blocks_within_the_distance_is_lost_and_comes_back() {
    let codes = [
        "azure-lrc:n=10,k=6,r=3",
        "optimal-lrc:n=9,k=4,r=2",
        "xorbas:n=12,k=8,r=4",
        "clay:n=6,k=4,d=5",
        "miser:n=6,k=3",
        "replication:n=3",
    ];
    for row in rows(&[&["codes"][..], &codes].concat()) {
        assert_eq!((&row["ok"], &row["losses_tried"]), (&Value::Bool(true), &row["losses"]), "{row}");
    }
}

#[test]
fn a_lost_node_costs_what_the_lost_blocks_cost_and_a_degraded_read_a_group() {
    let codes = ["rs:n=10,k=6", "azure-lrc:n=10,k=6,r=3", "azure-lrc-plus1:n=10,k=6,r=3"];
    // A loaded machine makes a node late, and what is planned around it reads other blocks.
    let mut tried = Vec::new();
    let as_in_theory = (0..3).any(|_| {
        let asked = ["lrc", "--nodes", "20", "--stripes", "40", "--block", "16KiB"];
        let rows = rows(&[&asked[..], &codes].concat());
        assert_eq!(rows.len(), codes.len());
        let all = rows.iter().zip([6.0, 3.0, 3.0]).all(|(row, degraded)| {
            let [read, theory] = [&row["read"], &row["nrc_of_lost"]].map(|v| v.as_f64().unwrap());
            (read - theory).abs() < 1e-9 && row["degraded_read"] == degraded
        });
        tried.push(rows);
        all
    });
    assert!(as_in_theory, "{tried:?}");
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (args, expected) in [
        (&["codes", "no-code:n=3"][..], "expected one of"),
        (&["lrc", "--nodes", "3"], "expected 17 nodes or more"),
        (&["lrc", "--block", "1000"], "whole 4 KiB pages"),
    ] {
        let out = lab(&dir, args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}
