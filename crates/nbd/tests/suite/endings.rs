//! How connections and servers end.

use std::sync::Arc;
use std::time::Duration;

use kintsu_nbd::{Limits, Listen, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::file::FileDevice;
use crate::raw::{Raw, SIZE, Served, request, soon};

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn who_leaves_gets_what_was_asked_for_first() {
    let served = Served::with(Limits::default(), |device| device.slow_at = Some(0)).await;
    let mut raw = Raw::go(served.addr(), false).await;
    raw.send(0, 0, 1, (0, 512), &[]).await;
    raw.send(2, 0, 2, (0, 0), &[]).await;
    served.device.slow.add_permits(1);
    assert_eq!(raw.reply(512).await.cookie, 1);
    assert!(raw.closed().await);
}

#[tokio::test]
async fn a_shutdown_answers_what_is_under_way() {
    let served = Served::with(Limits::default(), |device| device.slow_at = Some(0)).await;
    let addr = served.addr();
    let mut raw = Raw::go(addr, false).await;
    let mut idle = Raw::go(addr, true).await;
    raw.send(0, 0, 1, (0, 512), &[]).await;
    // It is inside when a later one is answered.
    assert_eq!(raw.ask(0, 0, (4096, 512), &[]).await.error, 0);
    let Served { server, device, dir: _dir } = served;
    let ending = tokio::spawn(server.shutdown(LONG));
    assert!(idle.closed().await);
    soon(async { while TcpStream::connect(addr).await.is_ok() {} }).await;
    assert!(!ending.is_finished());
    device.slow.add_permits(1);
    assert_eq!(raw.reply(512).await.cookie, 1);
    assert!(raw.closed().await);
    assert!(soon(ending).await.unwrap());
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let served = Served::with(Limits::default(), |device| device.slow_at = Some(0)).await;
    let mut raw = Raw::go(served.addr(), false).await;
    raw.send(0, 0, 1, (0, 512), &[]).await;
    assert_eq!(raw.ask(0, 0, (4096, 512), &[]).await.error, 0);
    assert!(!soon(served.server.shutdown(Duration::from_millis(50))).await);
    assert!(raw.closed().await);
}

#[tokio::test]
async fn a_client_that_takes_no_answers_harms_only_itself() {
    let served = Served::new().await;
    let mut greedy = Raw::go(served.addr(), false).await;
    let asked: Vec<u8> = (0..64).flat_map(|cookie| request(0, 0, cookie, (0, 8 << 20), &[])).collect();
    greedy.stream.write_all(&asked).await.unwrap();
    let mut other = Raw::go(served.addr(), false).await;
    assert_eq!(other.ask(0, 0, (0, 8 << 20), &[]).await.error, 0);
    drop(other);
    // It does not keep the server from ending, either.
    assert!(!soon(served.server.shutdown(Duration::from_millis(50))).await);
}

#[tokio::test]
async fn a_client_may_vanish_at_any_byte() {
    let served = Served::new().await;
    let whole = request(1, 0, 1, (0, 4096), &[1; 4096]);
    for kept in [0, 1, 27, 28, 29, 4123] {
        let mut raw = Raw::go(served.addr(), true).await;
        raw.stream.write_all(&whole[..kept]).await.unwrap();
    }
    soon(async {
        while served.server.connections() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // A write whose data did not come was not begun.
    let mut raw = Raw::go(served.addr(), false).await;
    assert_eq!(raw.ask(0, 0, (0, 4096), &[]).await.data, [0; 4096]);
}

#[tokio::test]
async fn a_unix_socket_serves_and_vanishes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.sock");
    let device = Arc::new(FileDevice::create(&dir.path().join("disk"), SIZE));
    let listen = Listen::Unix(path.clone());
    let server = Server::start(device, "my disk", listen, Limits::default()).await.unwrap();
    assert_eq!(server.uri(), format!("nbd+unix:///my%20disk?socket={}", path.display()));
    let mut hello = [0; 8];
    soon(UnixStream::connect(&path).await.unwrap().read_exact(&mut hello)).await.unwrap();
    assert_eq!(&hello, b"NBDMAGIC");
    assert!(server.shutdown(LONG).await);
    assert!(!path.exists());
}
