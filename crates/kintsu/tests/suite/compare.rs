//! `kintsu code list`, `check` and `compare`, as a shell sees them. No cluster is needed.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::{Command, Output};

use serde_json::Value;

fn code(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kintsu")).arg("code").args(args.split(' ')).output().unwrap()
}

fn text(args: &str) -> String {
    let output = code(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &str) -> Value {
    serde_json::from_str(&text(args)).unwrap()
}

#[test]
fn the_list_names_codes_that_can_be_checked() {
    let families = json("list --json");
    let list = text("list");
    for family in families.as_array().unwrap() {
        assert!(list.contains(family["example"].as_str().unwrap()));
        assert!(family["keys"].as_array().unwrap().iter().all(|key| key["about"].is_string()));
    }
    assert!(families.as_array().unwrap().iter().any(|family| family["family"] == "azure-lrc"));
}

#[test]
fn a_check_proves_and_counts() {
    let report = json("check azure-lrc:n=10,k=6,r=3 --json");
    assert_eq!((report["distance"].as_u64(), report["exact"].as_bool()), (Some(4), Some(true)));
    assert_eq!(report["locality"], serde_json::json!({"data": 3, "all": 6}));
    assert_eq!(report["costs"]["per_block"][9]["read"], 6.0);
    assert_eq!(report["losses"][3]["fraction"], 1.0);
    let said = text("check azure-lrc:n=16,k=12,r=6 --max-patterns 100");
    for words in
        ["distance 4 (at least)", "b14 to b15  12", "at most 100 patterns, got 2517", "--max-patterns"]
    {
        assert!(said.contains(words), "expected {words:?} in: {said}");
    }
}

#[test]
fn the_table_comes_as_text_json_and_csv() {
    let asked = "compare --n 10..11 --max-overhead 1.7 --families azure-lrc,rs";
    let rows = json(&format!("{asked} --json"));
    let rows = rows.as_array().unwrap();
    let local = rows.iter().find(|row| row["n"] == 10 && row["k"] == 6 && row["r"] == 3).unwrap();
    assert_eq!((local["nrc"].as_f64(), local["degraded"].as_f64()), (Some(6.0), Some(3.0)));
    let keys: Vec<_> = local.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = ["family", "n", "k", "r", "arc", "nrc", "degraded", "overhead", "d", "rd_ratio"];
    expected.sort_unstable();
    assert!(keys.len() == expected.len() && expected.iter().all(|key| keys.contains(key)), "{keys:?}");
    let csv = text(&format!("{asked} --csv"));
    assert_eq!(csv.lines().count(), rows.len() + 1);
    assert!(csv.contains("azure-lrc,10,6,3,3.6,6,3,"));
    assert!(text(asked).lines().any(|line| line.split_whitespace().eq([
        "10",
        "6",
        "3",
        "azure-lrc",
        "3.6",
        "6",
        "3",
        "1.667",
        "4",
        "1.5"
    ])));
    let safe = json(&format!("{asked} --min-distance 5 --json"));
    assert!(safe.as_array().unwrap().iter().all(|row| row["d"].as_u64() >= Some(5)));
}

#[test]
fn the_figures_are_drawn_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.svg");
    let said = text(&format!("compare --n 12..14 --max-overhead 1.6 --svg {}", file.display()));
    let svg = std::fs::read_to_string(&file).unwrap();
    assert!(said.contains("drawn into") && svg.starts_with("<svg "));
    for words in ["Fig. 7", "Fig. 8", "Fig. 9", "Fig. 11", "Fig. 12", "azure-lrc (14, 10, 5): 8.000"] {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn what_cannot_be_compared_is_refused_with_the_reason() {
    for (args, words) in [
        ("compare --n 19..9", "expected A..B with A <= B"),
        ("compare --n 9..60", "patterns, some"),
        ("compare --n 9..300", "2 <= A <= B <= 255"),
        ("compare --n 9..19 --max-overhead 1", "n / (n - 1)"),
        ("compare --n 9..12 --families raid", "got \"raid\""),
        ("compare --n 9..12 --min-distance 20", "at most 7"),
        ("compare --n 9 --svg /no/such/folder/f.svg", "cannot write /no/such/folder/f.svg"),
        ("check azure-lrc:n=10", "a value for k"),
    ] {
        let output = code(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(words), "{args}: {said}");
    }
}
