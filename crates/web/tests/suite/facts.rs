//! The facts, as programs get them.

use std::time::Duration;

use kintsu_web::{Page, PageError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Shown;

/// One request, and the answer with its headers.
async fn ask(page: &Page, method: &str, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(page.addr()).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap()
}

async fn get(page: &Page, path: &str) -> String {
    ask(page, "GET", path, &page.addr().to_string()).await
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
    let metrics = get(page, "/metrics").await;
    for line in ["\nkintsu_up 1\n", "\nkintsu_objects 3\n", "\nkintsu_node_up{node=\"0\",rack=\"0\"} 1\n"] {
        assert!(metrics.contains(line), "{line:?}: {metrics}");
    }
    // The dashboard asks for nothing that is not told.
    let dashboard = include_str!("../../../../docs/grafana.json");
    let names = dashboard.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names: Vec<&str> = names.filter(|name| name.starts_with("kintsu_")).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        let name = name.trim_end_matches("_bucket");
        assert!(metrics.contains(&format!("# TYPE {name} ")), "{name}");
    }

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
        matches!(outside, PageError::Exposed(_)) && outside.to_string().contains("loopback"),
        "{outside}"
    );
    let page = Page::start(client.clone(), "127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    assert!(Page::start(client, page.addr(), None).await.unwrap_err().is_taken());
    let answer = get(&page, "/api/cluster").await;
    assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("127.0.0.1:1"), "{answer}");
    assert!(get(&page, "/metrics").await.ends_with("kintsu_up 0\n"));
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
