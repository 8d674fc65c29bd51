//! `kintsu code advise` and `kintsu code reliability`, as a shell sees them. No cluster is needed.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::{Command, Output};

use serde_json::Value;

fn code(args: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kintsu")).arg("code").args(args.split(' ')).output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

fn says(output: &Output, words: &[&str]) {
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    for word in words {
        assert!(said.contains(word), "expected {word:?} in: {said}");
    }
}

#[test]
fn a_cluster_gets_an_answer_with_reasons() {
    let asked = "advise --nodes 12 --racks 4 --tolerate 3 --overhead 1.7 --objective degraded --survive-rack";
    let told = json(&code(&format!("{asked} --json")));
    let best = &told["advice"]["answers"][0];
    assert!(best["d"].as_u64().unwrap() >= 4 && best["n"].as_u64().unwrap() <= 12);
    assert!(best["overhead"].as_f64().unwrap() <= 1.7 && best["degraded"].as_f64().unwrap() <= 3.0);
    assert_eq!(best["reliability"]["racks"]["survives_any_rack"], true);
    assert_eq!(told["requirements"]["environment"]["nodes"], 12);
    let text = code(asked);
    assert!(text.status.success());
    let name = format!("Take {}", best["code"].as_str().unwrap());
    says(&text, &[&name, "lost nodes are tolerated", "rs:n=8,k=5: worse: degraded read", "MTTDL"]);
}

#[test]
fn where_nothing_fits_the_exit_code_says_so_and_the_text_what_would() {
    let none = code("advise --nodes 10 --racks 5 --tolerate 4 --overhead 1.6");
    assert_eq!(none.status.code(), Some(1));
    says(
        &none,
        &["Nothing fits", "allow an overhead of 1.667 (now 1.6): then rs:n=10,k=6 fits", "use 11 nodes"],
    );
}

#[test]
fn codes_are_compared_by_how_long_they_live() {
    let told = json(&code("reliability rs:n=9,k=6 rs:n=14,k=10 --nodes 20 --racks 5 --json"));
    let life = |i: usize, path: &str| told["codes"][i].pointer(path).unwrap().as_f64().unwrap();
    assert!(life(0, "/stripe/mttdl_years") < life(1, "/stripe/mttdl_years"));
    assert!(life(0, "/racks/stripe/nines") < life(0, "/stripe/nines"));
    says(
        &code("reliability rs:n=9,k=6 --afr 4"),
        &["rs:n=9,k=6", "9 nodes that live 24.5 years", "survived"],
    );
}

#[test]
fn the_papers_values_stand_beside_ours() {
    says(&code("reliability --papers"), &["Pr_ec", "2.24e-7", "9.83e-7", "ChameleonEC", "curve only"]);
    let told = json(&code("reliability --papers --json"));
    let printed = told.as_array().unwrap().iter().filter(|value| !value["paper"].is_null());
    assert_eq!(printed.count(), 3);
}

#[test]
fn bad_input_is_refused_with_what_was_expected() {
    for (args, words) in [
        ("reliability", &["CODE"][..]),
        ("reliability rs:n=6,k=9", &["n > k", "n=6, k=9"]),
        ("reliability rs:n=9,k=6 --nodes 8", &["expected at least 9", "got 8"]),
        ("reliability rs:n=9,k=6 --racks 10", &["--racks: expected 1 to 9", "got 10"]),
        ("reliability rs:n=9,k=6 --bandwidth 0", &["repair bandwidth", "got 0"]),
        ("reliability rs:n=9,k=6 --rack-afr 100", &["--rack-afr", "between 0 and 100"]),
        ("advise --nodes 9 --overhead 1", &["largest overhead", "more than 1"]),
        ("advise --nodes 9 --racks 12", &["number of racks", "1 to 9", "got 12"]),
        ("advise --nodes 9 --widest 99", &["widest stripe", "2 to 32", "got 99"]),
    ] {
        let refused = code(args);
        assert!(!refused.status.success(), "{args}");
        says(&refused, words);
    }
}
