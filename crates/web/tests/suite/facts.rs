//! The facts, as programs get them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_web::{Metrics, Page, PageError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Shown;

/// One request, and the answer with its headers.
async fn ask(page: &Page, method: &str, path: &str, host: &str) -> String {
    ask_at(page.addr(), method, path, host).await
}

async fn ask_at(addr: SocketAddr, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn get(page: &Page, path: &str) -> String {
    ask(page, "GET", path, &page.addr().to_string()).await
}

/// Each name in the dashboard that `of` accepts is told by these metrics.
fn the_dashboard_asks_for_nothing_else(metrics: &str, of: impl Fn(&str) -> bool) {
    let dashboard = include_str!("../../../../docs/grafana.json");
    let names = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: Vec<&str> = names.filter(|name| name.starts_with("kintsu_") && of(name)).collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        let name = name.trim_end_matches("_bucket");
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_of_s3_tells_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "[[key]]\naccess = \"A\"\nsecret = \"0123456789abcdef\"").unwrap();
    let keys = Arc::new(kintsu_s3::Keys::read(&keys).unwrap());
    // What is refused is refused without a cluster.
    let client = kintsu_client::Client::connect("127.0.0.1:1", Default::default()).await.unwrap();
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let listen = kintsu_s3::Listen { addr: local, trusted: None, tls: None };
    let config = kintsu_s3::Config::new("rs:n=3,k=2");
    let server = kintsu_s3::Server::start(client, keys, config, listen).await.unwrap();
    let start = |addr: SocketAddr| {
        let numbers = server.numbers();
        Metrics::start("metrics", addr, move || numbers.text())
    };
    let outside = start("0.0.0.0:0".parse().unwrap()).await.unwrap_err();
    assert!(outside.to_string().starts_with("metrics on 0.0.0.0:0: expected an address on loopback"));
    let metrics = start(local).await.unwrap();
    assert!(start(metrics.addr()).await.unwrap_err().is_taken());
    let scrape = async || ask_at(metrics.addr(), "GET", "/metrics", &metrics.addr().to_string()).await;

    let before = scrape().await;
    assert!(before.starts_with("HTTP/1.1 200") && before.contains("text/plain; version=0.0.4"), "{before}");
    let listed = ask_at(server.addr(), "GET", "/", &server.addr().to_string()).await;
    let wrong = ask_at(server.addr(), "GET", "/?X-Amz-Signature=0", &server.addr().to_string()).await;
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
    let after = scrape().await;
    for line in [
        format!(
            "\nkintsu_s3_requests_total{{operation=\"ListBuckets\",status=\"{}xx\"}} 1\n",
            &listed[9..10]
        ),
        "\nkintsu_s3_requests_total{operation=\"unknown\",status=\"4xx\"} 1\n".to_owned(),
        "\nkintsu_s3_request_seconds_count{operation=\"unknown\"} 1\n".to_owned(),
        "\nkintsu_s3_requests_in_flight 0\n".to_owned(),
        "\nkintsu_s3_refused_total{limit=\"memory\"} 0\n".to_owned(),
        format!("\nkintsu_s3_memory_limit_bytes{{share=\"strangers\"}} {}\n", 128 << 20),
    ] {
        assert!(after.contains(&line), "{line}: {after}");
    }
    the_dashboard_asks_for_nothing_else(&after, |name| name.starts_with("kintsu_s3_"));
    let nothing = ask_at(metrics.addr(), "GET", "/api/cluster", "localhost").await;
    assert!(nothing.starts_with("HTTP/1.1 404") && nothing.contains("metrics are at /metrics"), "{nothing}");
    let stranger = ask_at(metrics.addr(), "GET", "/metrics", "evil.example").await;
    assert!(stranger.starts_with("HTTP/1.1 403"), "{stranger}");
    metrics.shutdown().await;
    server.shutdown(Duration::from_secs(10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_facts_are_those_of_the_commands_and_nothing_can_be_changed() {
    let shown = Shown::start().await;
    let page = &shown.page;

    let health = get(page, "/api/cluster").await;
    assert!(health.starts_with("HTTP/1.1 200"), "{health}");
    for words in
        ["\"verdict\":\"healthy\"", "\"objects\":3", "\"state\":\"alive\"", "\"repairs\":{\"count\":0"]
    {
        assert!(health.contains(words), "{words}: {health}");
    }
    for header in ["content-security-policy: default-src 'self';", "x-content-type-options: nosniff"] {
        assert!(health.to_lowercase().contains(header), "{header}: {health}");
    }
    let list = get(page, "/api/objects?prefix=films/").await;
    assert!(list.contains("films/one.mkv") && !list.contains("notes"), "{list}");
    let object = get(page, "/api/object?name=films/one.mkv").await;
    assert!(object.contains("\"health\":\"whole\"") && object.contains("\"k\":4"), "{object}");
    let explained = get(page, "/api/explain?name=films/one.mkv&stripe=0&lost=2&method=pipeline").await;
    assert!(
        explained.contains("\"drawing\":{\"width\"") && explained.contains("\"helpers\":["),
        "{explained}"
    );
    let paper = get(page, "/api/code/explain?code=azure-lrc:n=16,k=12,r=6&lost=0,1").await;
    assert!(paper.starts_with("HTTP/1.1 200") && paper.contains("\"requestors\""), "{paper}");
    let mut scrub = shown.client.scrub(None).await.unwrap();
    while scrub.next().await.unwrap().is_some() {}
    let metrics = get(page, "/metrics").await;
    let protocol =
        format!("\nkintsu_node_protocol{{node=\"0\",rack=\"0\"}} {}\n", kintsu_wire::PROTOCOL_VERSION);
    for line in [
        "\nkintsu_up 1\n",
        "\nkintsu_objects 3\n",
        "\nkintsu_node_up{node=\"0\",rack=\"0\"} 1\n",
        "\nkintsu_node_scrubbed_blocks{node=\"0\",rack=\"0\"} ",
        "\nkintsu_node_scrubbed_timestamp_seconds{node=\"0\",rack=\"0\"} 1",
        "\nkintsu_compared_stripes 0\n",
        "\nkintsu_compare_waiting_stripes 0\n",
        &protocol,
    ] {
        assert!(metrics.contains(line), "{line:?}: {metrics}");
    }
    let build = format!("\nkintsu_build_info{{version=\"{}\",protocol=\"", env!("CARGO_PKG_VERSION"));
    assert!(metrics.contains(&build), "{metrics}");
    the_dashboard_asks_for_nothing_else(&metrics, |name| !name.starts_with("kintsu_s3_"));

    // What is wrong is said.
    for (path, status, words) in [
        ("/api/object?name=none", 404, "none"),
        ("/api/explain?name=films/one.mkv&lost=x", 400, "expected indices of blocks"),
        ("/api/explain?name=films/one.mkv&lost=0,1,2", 400, "cannot rebuild"),
        ("/api/code?name=rs:n=3", 400, "expected"),
        ("/api/code/explain?code=rs:n=6,k=4&lost=0&racks=100", 400, "racks: expected at most 8"),
        ("/nothing", 404, "the page is at /"),
        ("/../../etc/passwd", 404, "nothing here"),
    ] {
        let answer = get(page, path).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(words),
            "{path}: {answer}"
        );
    }
    // Nothing is taken from other names or by other methods.
    let stranger = ask(page, "GET", "/api/cluster", "evil.example").await;
    assert!(stranger.starts_with("HTTP/1.1 403") && !stranger.contains("films"), "{stranger}");
    for method in ["POST", "PUT", "DELETE"] {
        let answer = ask(page, method, "/api/cluster", "localhost").await;
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    }
    shown.end().await;
}

#[tokio::test]
async fn the_page_stays_on_loopback_and_says_when_the_cluster_is_away() {
    let client = kintsu_client::Client::connect("127.0.0.1:1", Default::default()).await.unwrap();
    let outside = Page::start(client.clone(), "0.0.0.0:0".parse().unwrap(), None).await.unwrap_err();
    assert!(
        matches!(outside, PageError::Exposed { .. }) && outside.to_string().contains("loopback"),
        "{outside}"
    );
    let page = Page::start(client.clone(), "127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    assert!(Page::start(client, page.addr(), None).await.unwrap_err().is_taken());
    let answer = get(&page, "/api/cluster").await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("127.0.0.1:1"), "{answer}");
    let metrics = get(&page, "/metrics").await;
    assert!(metrics.ends_with("kintsu_up 0\n") && metrics.contains("\nkintsu_build_info{"), "{metrics}");
    // The stream says so too.
    let mut stream = TcpStream::connect(page.addr()).await.unwrap();
    stream.write_all(b"GET /api/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    let away = async {
        while !seen.contains("\"away\"") {
            let mut bytes = [0; 4096];
            let read = stream.read(&mut bytes).await.unwrap();
            assert!(read > 0, "the stream ended: {seen}");
            seen += std::str::from_utf8(&bytes[..read]).unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), away).await.unwrap();
    page.shutdown().await;
}
