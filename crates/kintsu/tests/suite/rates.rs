//! Plans use the rates of links that the cluster was told.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use cluster::{Cluster, text};
use serde_json::Value;

#[test]
fn explain_goes_by_the_rates_that_were_set() {
    let cluster = Cluster::start(7, 7);
    let file = cluster.file("object", 3_000_000);
    cluster.put(&file, "o", &["--code", "rs:n=6,k=3"]);
    let slow = cluster.blocks("o")[1]["node"].clone();
    let explain = || cluster.json(&["explain", "o", "--lost", "0", "--method", "weighted"]);
    let seconds = |explained: &Value, method: &str| {
        let methods = explained["compared"]["methods"].as_array().unwrap();
        methods.iter().find(|time| time["method"] == method).unwrap()["seconds"].as_f64().unwrap()
    };
    let before = explain();
    assert!(
        before["compared"].is_null() && before["helpers"].as_array().unwrap().contains(&1.into()),
        "{before}"
    );

    let path = cluster.dir.path().join("rates.toml");
    let set = |text: String| {
        std::fs::write(&path, text).unwrap();
        cluster.json(&["rates", "set", path.to_str().unwrap()]);
    };
    set("default = \"1Gb/s\"".into());
    let even = explain();
    set(format!("default = \"1Gb/s\"\n[nodes]\n{slow} = {{ up = \"1Mb/s\" }}"));
    let one_slow = explain();
    assert!(seconds(&one_slow, "pipeline") > 100.0 * seconds(&even, "pipeline"));
    assert!(seconds(&one_slow, "weighted") < 1.01 * seconds(&even, "weighted"));
    assert!(!one_slow["helpers"].as_array().unwrap().contains(&1.into()), "{one_slow}");

    let page = |more: &[&str]| {
        let out = cluster.run(&[&["explain", "o", "--lost", "0"], more].concat());
        assert!(out.status.success(), "{more:?}");
        text(&out.stdout)
    };
    let short = page(&[]);
    assert!(short.lines().count() <= 30 && !short.contains("compute"), "{short}");
    assert!(short.contains("predicted time") && short.contains("x the bound"), "{short}");
    let long = page(&["--verbose"]);
    assert!(long.contains("tasks, for each slice") && long.contains("compute"), "{long}");
    assert!(page(&["--method", "pipe-s"]).contains("not counted: reading, computing"));
}
