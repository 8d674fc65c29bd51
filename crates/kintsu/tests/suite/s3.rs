//! `kintsu s3` as a process.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster::{Cluster, kintsu, text};
use crate::page::{Started, get};

#[test]
fn it_tells_metrics_on_an_address_of_their_own() {
    let cluster = Cluster::start(3, 3);
    let keys = cluster.dir.path().join("keys.toml");
    std::fs::write(&keys, "[[key]]\naccess = \"A\"\nsecret = \"0123456789abcdef\"\n").unwrap();
    let gateway = |options: &[&str]| {
        let mut gateway = kintsu();
        gateway.args(["s3", "--json", "--listen", "127.0.0.1:0", "--coordinator", &cluster.endpoint]);
        gateway.arg("--keys").arg(&keys).args(options);
        gateway
    };
    let told = Started::new(gateway(&["--metrics", "127.0.0.1:0"]));
    let address = |name: &str| {
        let url = told.1[name].as_str().unwrap().strip_prefix("http://").unwrap();
        url.strip_suffix("/metrics").unwrap_or(url).to_owned()
    };
    let answer = get(&address("url"), "/none/k");
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("NoSuchBucket"), "{answer}");
    let metrics = get(&address("metrics"), "/metrics");
    let line = "\nkintsu_s3_requests_total{operation=\"GetObject\",status=\"4xx\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");

    assert!(Started::new(gateway(&["--no-metrics"])).1["metrics"].is_null());
    for (taken, words) in
        [(address("metrics").as_str(), "metrics cannot listen"), ("0.0.0.0:0", "on loopback")]
    {
        let out = gateway(&["--metrics", taken]).output().unwrap();
        assert!(!out.status.success() && text(&out.stderr).contains(words), "{}", text(&out.stderr));
    }
}
