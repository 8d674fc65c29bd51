//! What clients may use together; beyond it they are told to slow down.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::time::Duration;

use kintsu_s3::{Config, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use kintsu_wire::message::{Attributes, Change, Step};

use crate::site::{ALICE, Answer, BOB, Site, Who, answer, noise, request};

/// How long somebody waits for a turn or memory in these tests: long enough to get what another one has just given back.
const PATIENCE: Duration = Duration::from_secs(2);

/// Begins a request, and sends no byte of its body.
async fn begun_as(
    site: &Site,
    who: Who,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    len: usize,
) -> TcpStream {
    let mut stream = TcpStream::connect(site.addr).await.unwrap();
    let head = request(who, site.addr, method, target, headers);
    let head = format!("{head}content-length: {len}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Begins a put, and sends no byte of its body.
pub async fn begun(site: &Site, target: &str, len: usize) -> TcpStream {
    begun_as(site, ALICE, "PUT", target, &[], len).await
}

/// Begins to send a form without a key, and sends no byte of it.
async fn begun_form(site: &Site, len: usize) -> TcpStream {
    let kind = [("content-type", "multipart/form-data; boundary=x")];
    begun_as(site, Who::Nobody, "POST", "/bucket", &kind, len).await
}

pub async fn heard(stream: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    answer(&bytes)
}

/// Begins two puts of which the limits allow one, whichever comes first. The other one is refused; returns the one that
/// waits for its body, and its target.
async fn one_of_two(site: &Site, len: usize) -> (TcpStream, &'static str) {
    let (a, b) = ("/bucket/a", "/bucket/b");
    let (mut first, mut second) = (begun(site, a, len).await, begun(site, b, len).await);
    let (refused, left) = tokio::select! {
        refused = heard(&mut first) => (refused, (second, b)),
        refused = heard(&mut second) => (refused, (first, a)),
    };
    refused.is_error(503, "SlowDown");
    left
}

/// Sends the body of a put, which then is stored.
async fn ended(site: &Site, (mut put, target): (TcpStream, &str), body: &[u8]) {
    put.write_all(body).await.unwrap();
    heard(&mut put).await.ok();
    assert!(site.get(target).await.ok().body == body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_turn_does_not_come_is_refused() {
    let limits = Limits { requests: 1, patience: PATIENCE, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let put = one_of_two(&site, 5).await;
    site.get("/bucket").await.is_error(503, "SlowDown");
    ended(&site, put, b"bytes").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_which_there_is_no_memory_is_refused() {
    // Room for one long body, and for short ones.
    let limits = Limits { memory_bytes: 128 << 20, patience: PATIENCE, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    let long = noise(5 << 20);
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/from", &long).await.ok();
    let copy = async || {
        let source = [("x-amz-copy-source", "/bucket/from")];
        site.call_as(ALICE, "PUT", "/bucket/copy", &source, b"").await
    };
    // This one goes on, so it need not give way.
    let mut put = begun(&site, "/bucket/a", long.len()).await;
    let (mut writer, pieces) = (put.split().1, long.chunks(256 << 10));
    let slowly = async {
        for piece in pieces {
            writer.write_all(piece).await.unwrap();
            tokio::time::sleep(PATIENCE / 6).await;
        }
    };
    let refused = async {
        tokio::time::sleep(PATIENCE / 8).await;
        let mut second = begun(&site, "/bucket/b", long.len()).await;
        heard(&mut second).await.is_error(503, "SlowDown");
        copy().await.is_error(503, "SlowDown");
        site.put("/bucket/short", b"bytes").await.ok();
    };
    tokio::join!(slowly, refused);
    heard(&mut put).await.ok();
    assert!(site.get("/bucket/a").await.ok().body == long);
    copy().await.ok();
}

/// Begins to read, and takes no byte.
async fn deaf(site: &Site, who: Who, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(site.addr).await.unwrap();
    let head = request(who, site.addr, "GET", target, &[]);
    stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
    stream
}

/// Bytes of memory that are taken for objects.
fn taken(site: &Site) -> u64 {
    let numbers = site.server.numbers().text();
    let line =
        numbers.lines().find_map(|line| line.strip_prefix("kintsu_s3_memory_bytes{share=\"objects\"} "));
    line.unwrap().parse::<f64>().unwrap() as u64
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..300 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_do_not_keep_others_from_reading() {
    // In the first case strangers have their share, and the rest is for others. In the second one the rest is too little, and they give
    // way.
    for memory_bytes in [256 << 20, 128 << 20] {
        let limits = Limits { memory_bytes, patience: PATIENCE, ..Limits::default() };
        let site = Site::with(|config| Config { limits, ..config }).await;
        site.call_as(ALICE, "PUT", "/bucket", &[("x-amz-acl", "public-read")], b"").await.ok();
        // More than the kernel takes for clients that do not read.
        let long = noise(24 << 20);
        site.call_as(ALICE, "PUT", "/bucket/k", &[("x-amz-acl", "public-read")], &long).await.ok();
        let mut slow = Vec::new();
        for _ in 0..12 {
            slow.push(deaf(&site, Who::Nobody, "/bucket/k").await);
        }
        until("the slow ones hold memory", || taken(&site) >= 90 << 20).await;
        for _ in 0..3 {
            assert!(site.get("/bucket/k").await.ok().body == long, "{memory_bytes} bytes of memory");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_puts_of_one_user_do_not_keep_others_from_writing() {
    let limits = Limits { memory_bytes: 256 << 20, patience: PATIENCE, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    let long = noise(5 << 20);
    site.put("/bucket", b"").await.ok();
    site.call_as(BOB, "PUT", "/bobs", &[], b"").await.ok();
    let mut slow = Vec::new();
    for i in 0..4 {
        slow.push(begun(&site, &format!("/bucket/{i}"), long.len()).await);
    }
    until("the slow ones hold memory", || taken(&site) >= 72 << 20).await;
    site.call_as(BOB, "PUT", "/bobs/k", &[], &long).await.ok();
    // Other puts of their own user wait for them, so they do not stay for long.
    for put in &mut slow[..2] {
        let answer = heard(put).await;
        assert!([400, 503].contains(&answer.status), "{}", answer.text());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_nobody_takes_counts_as_memory() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    // As much in XML as the kernel does not take for a client that does not read.
    let keys = (0..1000).map(|i| format!("{i:04}{}", "&".repeat(1000)));
    let mark = |key| Step::Mark {
        name: format!("s3/bucket/{key}"),
        newest_first: false,
        attributes: Attributes::default(),
    };
    site.client.change(&Change { checks: Vec::new(), steps: keys.map(mark).collect() }).await.unwrap();
    let whole = site.get("/bucket").await.ok();
    assert_eq!((whole.elements("Key").len(), taken(&site)), (1000, 0));
    let list = deaf(&site, ALICE, "/bucket").await;
    until("the list is kept", || taken(&site) >= whole.body.len() as u64).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(taken(&site) >= whole.body.len() as u64);
    drop(list);
    until("it is gone with its connection", || taken(&site) == 0).await;
}

/// Whether a connection has ended; waits for that for a second.
async fn has_ended(stream: &mut TcpStream) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0; 1])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_says_nothing_makes_room_for_another_one() {
    let limits = Limits { connections: 4, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(TcpStream::connect(site.addr).await.unwrap());
    }
    // The first half of a head is no request.
    silent[0].write_all(b"GET / HTTP/1.1\r\nhost: x").await.unwrap();
    site.get("/bucket").await.ok();
    assert!(has_ended(&mut silent[0]).await && !has_ended(&mut silent[3]).await);
    // One with a request under way makes none.
    let mut puts = Vec::new();
    for i in 0..4 {
        puts.push(begun(&site, &format!("/bucket/{i}"), 1).await);
    }
    until("all have a request", || site.server.numbers().text().contains("_requests_in_flight 4\n")).await;
    assert!(has_ended(&mut TcpStream::connect(site.addr).await.unwrap()).await);
    for mut put in puts {
        put.write_all(b"x").await.unwrap();
        heard(&mut put).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_request_comes_soon() {
    let limits = Limits { first: Duration::from_secs(1), ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    let mut silent = TcpStream::connect(site.addr).await.unwrap();
    let mut asked = TcpStream::connect(site.addr).await.unwrap();
    let head = request(ALICE, site.addr, "GET", "/", &[]);
    asked.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let begun = std::time::Instant::now();
    assert!(matches!(silent.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    assert!(begun.elapsed() < Duration::from_secs(30));
    // A later one has more time.
    let mut answer = [0; 4096];
    assert!(asked.read(&mut answer).await.unwrap() > 0);
    asked.write_all(format!("{head}connection: close\r\n\r\n").as_bytes()).await.unwrap();
    heard(&mut asked).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_and_lists_of_strangers_take_no_turns_and_end_by_themselves() {
    let idle = Duration::from_secs(5);
    let limits = Limits { requests: 1, patience: PATIENCE, idle, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(begun_form(&site, 1000).await);
        silent.push(begun_as(&site, Who::Nobody, "POST", "/bucket?delete", &[], 9).await);
    }
    // It says that it is signed, and is a form for the library, which then does not look at that.
    let odd = [("content-type", "multipart/form-data; boundary=x; a=\"\u{e9}\""), ("authorization", "x")];
    silent.push(begun_as(&site, Who::Nobody, "POST", "/bucket", &odd, 1000).await);
    site.put("/bucket/k", b"bytes").await.ok();
    // This one holds the turn, until its time is over.
    let mut put = begun(&site, "/bucket/slow", 1000).await;
    for stream in &mut silent {
        heard(stream).await.is_error(400, "RequestTimeout");
    }
    heard(&mut put).await.is_error(400, "RequestTimeout");
    // Of such a request the library would read the body before it compares the signature.
    let scope = "ALICE/20260101/us-east-1/sts/aws4_request";
    let sts = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0");
    let mut sts =
        begun_as(&site, Who::Nobody, "PUT", "/bucket/k", &[("authorization", sts.as_str())], 1000).await;
    heard(&mut sts).await.is_error(400, "AuthorizationHeaderMalformed");
    site.get("/bucket/k").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_strangers_have_a_share_of_the_memory() {
    let limits = Limits { memory_bytes: 128 << 20, patience: PATIENCE, ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let (mut first, mut second) = (begun_form(&site, 16 << 20).await, begun_form(&site, 16 << 20).await);
    let refused = tokio::select! {
        refused = heard(&mut first) => refused,
        refused = heard(&mut second) => refused,
    };
    refused.is_error(503, "SlowDown");
    // A long put has its memory.
    site.put("/bucket/long", &noise(5 << 20)).await.ok();
    heard(&mut begun_form(&site, 17 << 20).await).await.is_error(400, "EntityTooLarge");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chunk_of_any_size_passes_and_one_that_is_kept_until_its_signature_is_compared_is_small() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let long = noise(6 << 20);
    let put = async |bytes: &[u8], trailer: &str| {
        let len = bytes.len().to_string();
        let headers = [
            ("content-encoding", "aws-chunked"),
            ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
            ("x-amz-decoded-content-length", len.as_str()),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        let first = format!("{:X}\r\n", bytes.len());
        let body = [first.as_bytes(), bytes, b"\r\n0\r\n", trailer.as_bytes(), b"\r\n\r\n"].concat();
        site.call_as(ALICE, "PUT", "/bucket/k", &headers, &body).await
    };
    for bytes in [&b"hello"[..], &long] {
        put(bytes, "").await.ok();
        assert!(site.get("/bucket/k").await.ok().body == bytes);
        // What follows the last chunk still counts.
        put(bytes, "x-amz-checksum-crc32:AAAAAA==").await.is_error(400, "BadDigest");
    }

    let (bytes, len) = (&long, long.len().to_string());
    let mut stream = TcpStream::connect(site.addr).await.unwrap();
    let headers = [
        ("content-encoding", "aws-chunked"),
        ("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("x-amz-decoded-content-length", len.as_str()),
    ];
    let head = request(ALICE, site.addr, "PUT", "/bucket/k", &headers);
    let head = format!("{head}content-length: {}\r\nconnection: close\r\n\r\n", bytes.len() + 200);
    let chunk = format!("{:x};chunk-signature={}\r\n", bytes.len(), "0".repeat(64));
    stream.write_all((head + &chunk).as_bytes()).await.unwrap();
    let refused = heard(&mut stream).await;
    refused.is_error(400, "InvalidRequest");
    assert!(refused.text().contains("wrong chunk: expected at most 1048576 bytes"), "{}", refused.text());
    assert!(site.get("/bucket/k").await.ok().body == *bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_read_is_closed() {
    let limits = Limits { idle: Duration::from_secs(1), ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    // More than the kernel takes for a client that does not read.
    let long = noise(24 << 20);
    site.put("/bucket/k", &long).await.ok();
    let mut deaf = TcpStream::connect(site.addr).await.unwrap();
    let head = request(ALICE, site.addr, "GET", "/bucket/k", &[]);
    deaf.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let until = async |open: usize| {
        for _ in 0..600 {
            if site.server.connections() == open {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("expected {open} connections, got {}", site.server.connections());
    };
    until(1).await;
    until(0).await;
    let mut came = Vec::new();
    let _ = deaf.read_to_end(&mut came).await;
    assert!(came.len() < long.len());
    assert!(site.get("/bucket/k").await.ok().body == long);
}
