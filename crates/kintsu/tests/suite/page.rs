//! The page of `kintsu up`, and `kintsu page`.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::cluster::{kintsu, text};

/// A process, and the line of JSON that it begins with.
pub struct Started(Child, pub Value);

impl Started {
    pub fn new(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, serde_json::from_str(&line).unwrap())
    }

    /// Where its page is.
    fn page(&self) -> String {
        let url = self.1["page"].as_str().unwrap();
        url.strip_prefix("http://").unwrap().strip_suffix('/').unwrap().to_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn up_shows_a_page_and_so_does_a_command_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = kintsu();
    up.args([
        "up",
        "--json",
        "--nodes",
        "3",
        "--racks",
        "3",
        "--listen",
        "127.0.0.1:0",
        "--page",
        "127.0.0.1:0",
    ]);
    up.arg("--dir").arg(dir.path());
    let up = Started::new(up);
    let cluster = get(&up.page(), "/api/cluster");
    assert!(cluster.starts_with("HTTP/1.1 200") && cluster.contains("\"alive\":3"), "{cluster}");
    assert!(get(&up.page(), "/").contains("This page needs JavaScript"));
    // Its address is not that of the coordinator.
    let mistaken = kintsu().args(["ls", "--coordinator", &up.page()]).output().unwrap();
    assert!(text(&mistaken.stderr).contains("is no coordinator of Kintsu"), "{}", text(&mistaken.stderr));

    let endpoint = up.1["listen"].as_str().unwrap();
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/repair-experiments");
    let mut page = kintsu();
    page.args(["page", "--json", "--listen", "127.0.0.1:0", "--coordinator", endpoint, "--results", results]);
    let page = Started::new(page);
    assert!(get(&page.page(), "/metrics").contains("\nkintsu_node_up{node=\"2\",rack=\"2\"} 1\n"));
    let experiments = get(&page.page(), "/api/experiments");
    assert!(
        experiments.contains("\"name\":\"agreement\"") && experiments.contains("\"groups\""),
        "{experiments}"
    );

    // What cannot be is said.
    for (address, words) in
        [(up.page().as_str(), "choose another one with --listen"), ("0.0.0.0:0", "on loopback")]
    {
        let out = kintsu().args(["page", "--listen", address, "--coordinator", endpoint]).output().unwrap();
        assert!(!out.status.success() && text(&out.stderr).contains(words), "{}", text(&out.stderr));
    }
}
