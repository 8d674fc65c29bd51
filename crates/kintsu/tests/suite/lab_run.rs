//! The smoke experiment, as continuous integration runs it: every kind of work once on an emulated cluster, with
//! right bytes, traffic as planned, and nothing left on the machine. Times are not tested.
#![allow(clippy::unwrap_used, reason = "a test's scaffolding: what fails is the test's failure")]

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use kintsu_experiments::figures::Report;
use tempfile::TempDir;

use crate::cluster::{Running, compared, skipped, wait};

/// A folder for what runs labs. `None`, and said, where there can be none.
fn home() -> Option<TempDir> {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Err(reason) = runtime.block_on(kintsu_lab::available()) {
        skipped(&reason.to_string());
        return None;
    }
    Some(TempDir::new().unwrap())
}

fn kintsu(home: &TempDir, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
    command.args(args).env("XDG_RUNTIME_DIR", home.path()).output().unwrap()
}

fn interfaces() -> BTreeSet<String> {
    let listed = std::fs::read_dir("/sys/class/net").unwrap();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn smoke_ends_well_and_leaves_nothing() {
    let Some(home) = home() else { return };
    let before = interfaces();
    let results = home.path().join("results");
    let out = results.display().to_string();
    // On a loaded machine a host may look as if it were cut off, and then its work has failed.
    let mut failed = Vec::new();
    let ran = (0..3).find_map(|_| {
        let ran = kintsu(&home, &["lab", "run", "smoke", "--runs", "1", "--json", "--out", &out]);
        if ran.status.success() {
            return Some(ran);
        }
        failed
            .push([ran.stderr, ran.stdout].map(|said| String::from_utf8_lossy(&said).into_owned()).concat());
        None
    });
    let Some(ran) = ran else { panic!("{failed:#?}") };
    let reports: Vec<Report> = serde_json::from_slice(&ran.stdout).unwrap();
    let [report] = &reports[..] else { panic!("{} reports", reports.len()) };
    assert!(report.rows.len() >= 9 && report.rows.iter().all(|row| row.samples.len() == 1), "{report:?}");
    let judged: Vec<_> = report.claims.iter().map(|claim| (claim.text.as_str(), claim.holds())).collect();
    assert!(judged.len() >= 10 && judged.iter().all(|(_, holds)| *holds == Some(true)), "{judged:?}");
    let kept: Report = serde_json::from_slice(&std::fs::read(results.join("smoke.json")).unwrap()).unwrap();
    assert_eq!(kept, *report);
    assert!(std::fs::read_to_string(results.join("smoke.svg")).unwrap().ends_with("</svg>\n"));
    // It is whole, so there is nothing to go on with: times would not come out the same.
    let again = kintsu(&home, &["lab", "run", "smoke", "--runs", "1", "--json", "--out", &out, "--resume"]);
    assert_eq!(serde_json::from_slice::<Vec<Report>>(&again.stdout).unwrap(), reports);
    compared("bytes sent with those that the kernel counted on emulated links");
    let listed = kintsu(&home, &["lab", "list", "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).trim(), "[]");
    assert_eq!(interfaces(), before);
}

#[test]
fn a_run_that_is_ended_shows_and_writes_what_it_has() {
    let Some(home) = home() else { return };
    let results = home.path().join("results");
    let (out, page) = (results.display().to_string(), home.path().join("page.md"));
    std::fs::write(&page, "<!-- results ecpipe-8a --><!-- end -->\n<!-- results smoke --><!-- end -->\n")
        .unwrap();
    let page = page.display().to_string();
    // Far more repetitions than there is time for, and an experiment after them that is not begun.
    let args =
        ["lab", "run", "smoke", "ecpipe-8a", "--runs", "500", "--json", "--out", &out, "--page", &page];
    let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
    command.args(args).env("XDG_RUNTIME_DIR", home.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = Running::new(command.spawn().unwrap());
    let listed = || -> serde_json::Value {
        serde_json::from_slice(&kintsu(&home, &["lab", "list", "--json"]).stdout).unwrap()
    };
    // Before its cluster is up, it may not hear that it is to end.
    wait("the cluster of the lab to be up", || listed()[0]["cluster"].is_object());
    std::thread::sleep(Duration::from_secs(6));
    let asked = Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let ended = run.output();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("not measured: ecpipe-8a"), "{said}");
    let reports: Vec<Report> = serde_json::from_slice(&ended.stdout).unwrap();
    let [report] = &reports[..] else { panic!("{} reports", reports.len()) };
    assert!(report.cut_short && report.rows.iter().all(|row| row.samples.len() < 500), "{report:?}");
    let kept: Report = serde_json::from_slice(&std::fs::read(results.join("smoke.json")).unwrap()).unwrap();
    assert_eq!(kept, *report);
    let written = std::fs::read_to_string(&page).unwrap();
    assert!(written.contains("INTERRUPTED: points or repetitions are missing"), "{written}");
    assert_eq!(listed(), serde_json::json!([]));
}

/// Whole blocks, as in the CAU paper: what the analysis does not count is headers.
#[test]
fn the_kernel_counts_what_the_analysis_of_updates_says() {
    let Some(home) = home() else { return };
    let trace = home.path().join("trace").display().to_string();
    // Two blocks of a stripe and one of another, again and again: time, device, first sector, sectors, 0 for a write.
    let writes = [0, 1, 7].map(|block| format!("1 0 {} 8 0\n", block * 2048)).concat().repeat(4);
    std::fs::write(&trace, writes).unwrap();
    let schemes = ["baseline", "parix", "cau", "optimal"];
    let listed = schemes.join(",");
    let ran = kintsu(&home, &["lab", "replay", &trace, "--whole-blocks", "--json", "--scheme", &listed]);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let told: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let rows = told["traces"][0]["rows"].as_array().unwrap();
    for (row, scheme) in rows.iter().zip(schemes) {
        assert_eq!(row["scheme"], scheme);
        let bytes = |value: &serde_json::Value| value.as_u64().unwrap() as f64;
        let analysis: f64 = ["append", "commit"].map(|part| bytes(&row["analysis"][part])).iter().sum();
        let ratio = bytes(&row["kernel_bytes"]) / analysis;
        assert!((1.0..1.03).contains(&ratio), "{ratio}: {row}");
    }
    assert_eq!(rows.len(), schemes.len());
    compared("the analysis of updates with what the kernel counted between racks");
}

#[test]
fn what_is_asked_wrongly_is_refused_before_anything_is_built() {
    let home = TempDir::new().unwrap();
    let page = home.path().join("page.md");
    std::fs::write(&page, "<!-- results smoke --><!-- end -->\n").unwrap();
    let page = page.display().to_string();
    for args in [
        &["lab", "run", "figure-9"][..],
        // The page has no place for it.
        &["lab", "run", "openec-table2", "--page", &page],
        &["lab", "run", "smoke", "--runs", "0"],
        &["lab", "run", "smoke", "--scale", "0"],
        &["lab", "page", "/nowhere"],
    ] {
        let refused = kintsu(&home, args);
        assert!(!refused.status.success(), "{args:?}");
        assert!(!refused.stderr.is_empty(), "{args:?}");
    }
    let listed = kintsu(&home, &["lab", "run", "--list", "--json"]);
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(listed.as_array().unwrap().iter().any(|entry| entry["name"] == "ecpipe-8a"));
}

#[test]
fn computed_results_go_into_a_page() {
    let home = TempDir::new().unwrap();
    let results = home.path().join("results").display().to_string();
    assert!(kintsu(&home, &["lab", "run", "openec-table2", "--out", &results]).status.success());
    let page = home.path().join("page.md");
    std::fs::write(&page, "before\n<!-- results openec-table2 --><!-- end -->\nafter\n").unwrap();
    let named = page.display().to_string();
    assert!(kintsu(&home, &["lab", "page", &results, "--page", &named]).status.success());
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("Pipeline(9,6) vs. RS(9,6) | 6.000 x | 6.000 x"), "{text}");
    assert!(text.starts_with("before\n") && text.ends_with("\nafter\n"));
}
