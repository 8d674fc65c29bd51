//! The handshake, right and wrong.

use std::time::Duration;

use kintsu_nbd::{BlockSizes, Limits, NbdError, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{Raw, SIZE, Served, loopback, named, soon};

const ACK: u32 = 1;
const INVALID: u32 = (1 << 31) + 3;
const UNSUP: u32 = (1 << 31) + 1;
const UNKNOWN: u32 = (1 << 31) + 6;
const TOO_BIG: u32 = (1 << 31) + 9;

fn kinds(answers: &[(u32, Vec<u8>)]) -> Vec<u32> {
    answers.iter().map(|(kind, _)| *kind).collect()
}

#[tokio::test]
async fn options_are_answered_and_wrong_ones_refused() {
    let served = Served::new().await;
    let mut raw = Raw::greet(served.addr(), 1).await;
    let listed = raw.option(3, b"").await;
    assert_eq!(listed, [(2, named("disk")), (ACK, vec![])]);
    assert_eq!(kinds(&raw.option(3, b"x").await), [INVALID]);
    assert_eq!(kinds(&raw.option(5, b"").await), [UNSUP]);
    assert_eq!(kinds(&raw.option(1234, &[1; 500]).await), [UNSUP]);
    assert_eq!(kinds(&raw.option(6, &vec![0; 100_000]).await), [TOO_BIG]);
    assert_eq!(kinds(&raw.option(6, &[&named("other")[..], &[0, 0]].concat()).await), [UNKNOWN]);
    // Name and sizes are told to those who ask, for the default export too.
    let told = raw.option(6, &[&named("")[..], &[0, 2, 0, 1, 0, 3]].concat()).await;
    assert_eq!(kinds(&told), [3, 3, 3, ACK]);
    assert_eq!(told[0].1[..10], [&[0, 0][..], &SIZE.to_be_bytes()].concat());
    assert_eq!(told[1].1, b"\0\x01disk");
    assert_eq!(told[2].1, [&[0, 3][..], &[0, 0, 0, 1], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat());
    // The farewell is answered.
    assert_eq!(kinds(&raw.option(2, b"bye").await), [ACK]);
    assert!(raw.closed().await);
}

#[tokio::test]
async fn contexts_are_listed_and_chosen() {
    let served = Served::new().await;
    let mut raw = Raw::greet(served.addr(), 3).await;
    let ask = |queries: &[&str]| {
        let all: Vec<u8> = queries.iter().flat_map(|query| named(query)).collect();
        [&named("disk")[..], &(queries.len() as u32).to_be_bytes(), &all].concat()
    };
    // Not without structured replies.
    assert_eq!(kinds(&raw.option(10, &ask(&["base:allocation"])).await), [INVALID]);
    assert_eq!(kinds(&raw.option(8, b"").await), [ACK]);
    assert_eq!(kinds(&raw.option(9, &ask(&[])).await), [4, ACK]);
    assert_eq!(kinds(&raw.option(9, &ask(&["x-other:", "base:"])).await), [4, ACK]);
    assert_eq!(kinds(&raw.option(10, &ask(&["base:"])).await), [ACK]);
    let chosen = raw.option(10, &ask(&["qemu:dirty", "base:allocation"])).await;
    assert_eq!(chosen[0], (4, [&1u32.to_be_bytes()[..], b"base:allocation"].concat()));
    // A choice that fails replaces the former one.
    assert_eq!(kinds(&raw.option(10, &ask(&["base:allocation"])[..14]).await), [INVALID]);
    assert_eq!(raw.option(7, &[&named("disk")[..], &[0, 0]].concat()).await.last().unwrap().0, ACK);
    raw.structured = true;
    assert_eq!(raw.ask(7, 0, (0, 4096), &[]).await.error, 22);
}

#[tokio::test]
async fn the_old_way_in_works_with_and_without_zeroes() {
    let served = Served::with(Limits::default(), |device| device.read_only = true).await;
    for (flags, rest) in [(1, 134), (3, 10)] {
        let mut raw = Raw::greet(served.addr(), flags).await;
        raw.send_option(1, b"disk").await;
        let mut told = vec![0; rest];
        soon(raw.stream.read_exact(&mut told)).await.unwrap();
        assert_eq!(told[..8], SIZE.to_be_bytes());
        // HAS_FLAGS, READ_ONLY, SEND_FLUSH, CAN_MULTI_CONN.
        assert_eq!(told[8..10], [1, 7]);
        assert_eq!(raw.ask(0, 0, (0, 512), &[]).await.data, [0; 512]);
        assert_eq!(raw.ask(1, 0, (0, 4), b"data").await.error, 1);
    }
    let mut raw = Raw::greet(served.addr(), 3).await;
    raw.send_option(1, b"other").await;
    assert!(raw.closed().await);
}

#[tokio::test]
async fn who_breaks_the_rules_or_says_nothing_is_left() {
    let limits = Limits { handshake: Duration::from_secs(1), connections: 2, ..Limits::default() };
    let served = Served::with(limits, |_| {}).await;
    assert!(Raw::greet(served.addr(), 1 << 7).await.closed().await);
    let mut raw = Raw::greet(served.addr(), 3).await;
    raw.stream.write_all(&[0; 16]).await.unwrap();
    assert!(raw.closed().await);
    // Silence in the middle of an option.
    let mut raw = Raw::greet(served.addr(), 3).await;
    raw.stream.write_all(b"IHAVEOPT").await.unwrap();
    assert!(raw.closed().await);
}

#[tokio::test]
async fn there_are_only_as_many_connections_as_allowed() {
    let served = Served::with(Limits { connections: 2, ..Limits::default() }, |_| {}).await;
    let mut first = Raw::go(served.addr(), true).await;
    let second = Raw::go(served.addr(), false).await;
    assert_eq!(served.server.connections(), 2);
    let mut third = tokio::net::TcpStream::connect(served.addr()).await.unwrap();
    assert!(matches!(soon(third.read(&mut [0; 1])).await, Ok(0) | Err(_)));
    assert_eq!(first.ask(0, 0, (0, 512), &[]).await.error, 0);
    // A place that was left can be taken.
    drop(second);
    soon(async {
        while served.server.connections() == 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    Raw::go(served.addr(), true).await;
}

#[tokio::test]
async fn what_the_protocol_does_not_allow_is_not_served() {
    let start = async |name: &str, minimum, preferred, limits| {
        let served =
            Served::with(Limits::default(), |d| d.sizes = BlockSizes { minimum: 1, preferred: 512 }).await;
        let mut device = crate::file::FileDevice::create(&served.dir.path().join("other"), SIZE);
        device.sizes = BlockSizes { minimum, preferred };
        Server::start(device.into(), name, loopback(), limits).await
    };
    for (name, minimum, preferred) in [("", 1, 512), ("disk", 3, 512), ("disk", 1, 256), ("disk", 4096, 512)]
    {
        let refused = start(name, minimum, preferred, Limits::default()).await.unwrap_err();
        assert!(matches!(refused, NbdError::Invalid { .. }), "{refused}");
    }
    let small = Limits { data_bytes: 1 << 20, ..Limits::default() };
    assert!(start("disk", 1, 512, small).await.unwrap_err().to_string().contains("32 MiB"));
    assert!(start(&"x".repeat(4096), 512, 4096, Limits::default()).await.is_ok());
}
