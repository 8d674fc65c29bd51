//! `kintsu s3` as a process.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::Command;

use kintsu_wire::Tls;
use kintsu_wire::net::TcpStream;
use kintsu_wire::tls::Wanted;
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::{Cluster, kintsu, text};
use crate::page::{Started, get};
use crate::roles::Secure;

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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC with SHA-256, of a key that is no longer than a block.
fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let padded = |pad: u8| -> Vec<u8> { (0..64).map(|i| key.get(i).copied().unwrap_or(0) ^ pad).collect() };
    let inner = Sha256::digest([padded(0x36), text.as_bytes().to_vec()].concat());
    Sha256::digest([padded(0x5c), inner.to_vec()].concat()).to_vec()
}

/// A signed request (Signature Version 4) of the key `A`.
fn request(host: &str, method: &str, path: &str, body: &str) -> String {
    let date = Command::new("date").args(["-u", "+%Y%m%dT%H%M%SZ"]).output().unwrap();
    let date = text(&date.stdout).trim().to_owned();
    let (kind, names) = ("UNSIGNED-PAYLOAD", "host;x-amz-content-sha256;x-amz-date");
    let headers = format!("host:{host}\nx-amz-content-sha256:{kind}\nx-amz-date:{date}\n");
    let canonical = format!("{method}\n{path}\n\n{headers}\n{names}\n{kind}");
    let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let key = scope.split('/').fold(b"AWS40123456789abcdef".to_vec(), |key, part| sign(&key, part));
    let signature = hex(&sign(&key, &format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}")));
    let headers = headers.replace('\n', "\r\n");
    format!(
        "{method} {path} HTTP/1.1\r\n{headers}authorization: AWS4-HMAC-SHA256 Credential=A/{scope}, \
         SignedHeaders={names}, Signature={signature}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn in_a_cluster_with_tls_it_serves_with_the_certificate_of_a_client() {
    let cluster = Secure::start();
    let tls = cluster.issued("s3", &["client/s3"]);
    let keys = cluster.path("keys.toml");
    std::fs::write(&keys, "[[key]]\naccess = \"A\"\nsecret = \"0123456789abcdef\"\ncreate = true\n").unwrap();
    let listen = ["s3", "--json", "--no-metrics", "--listen", "127.0.0.1:0", "--code", "rs:n=3,k=2"];
    let mut gateway = cluster.command("s3", &listen);
    gateway.arg("--keys").arg(&keys);
    let gateway = Started::new(gateway);
    let host = gateway.1["url"].as_str().unwrap().strip_prefix("https://").unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let call = |method: &str, path: &str, body: &str| {
        runtime.block_on(async {
            let tcp = TcpStream::connect(host.parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
            let mut stream = Tls::open(&tls).unwrap().connect(tcp, Wanted::User).await.unwrap();
            stream.write_all(request(&host, method, path, body).as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
            text(&answer)
        })
    };
    for (method, path, body) in
        [("PUT", "/bucket", ""), ("PUT", "/bucket/k", "some bytes"), ("GET", "/bucket/k", "")]
    {
        let answer = call(method, path, body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        assert!(method == "PUT" || answer.ends_with("\r\n\r\nsome bytes"), "{answer}");
    }
    let stat = cluster.run("s3", &["stat", "s3/bucket/k"]);
    assert!(stat.status.success(), "{}", text(&stat.stderr));
}
