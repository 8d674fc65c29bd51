//! Requests: what they do, what is refused, and in which order they are answered.

use std::sync::atomic::Ordering::SeqCst;

use kintsu_nbd::{BlockSizes, DeviceError, Limits};

use crate::raw::{Raw, SIZE, Served};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZEROES: u16 = 6;
const STATUS: u16 = 7;

#[tokio::test]
async fn what_is_written_is_read_by_others() {
    let served = Served::new().await;
    let mut writer = Raw::go(served.addr(), true).await;
    let mut reader = Raw::go(served.addr(), false).await;
    let data: Vec<u8> = (0..100_000u32).map(|i| i as u8 | 1).collect();
    assert_eq!(writer.ask(WRITE, 1, (4097, 100_000), &data).await.error, 0);
    assert_eq!(reader.ask(READ, 0, (4097, 100_000), &[]).await.data, data);
    assert_eq!(writer.ask(READ, 0, (4097, 100_000), &[]).await.data[8..], data);
    assert_eq!(writer.ask(FLUSH, 0, (0, 0), &[]).await.error, 0);
    assert_eq!(served.device.flushes.load(SeqCst), 1);
    // Zeroes are told, not sent.
    assert_eq!(writer.ask(ZEROES, 0, (0, 1 << 20), &[]).await.error, 0);
    let zeroes = writer.ask(READ, 0, (0, 1 << 20), &[]).await;
    assert_eq!((zeroes.kind, zeroes.data.len()), (Some(2), 12));
    assert_eq!(reader.ask(READ, 0, (0, 1 << 20), &[]).await.data, vec![0; 1 << 20]);
}

#[tokio::test]
async fn holes_are_told() {
    let served = Served::new().await;
    let mut raw = Raw::go(served.addr(), true).await;
    let extents = |data: &[u8]| -> Vec<(u32, u32)> {
        assert_eq!(data[..4], 1u32.to_be_bytes());
        let word = |b: &[u8]| u32::from_be_bytes(b.try_into().unwrap());
        data[4..].chunks(8).map(|e| (word(&e[..4]), word(&e[4..]))).collect()
    };
    assert_eq!(raw.ask(WRITE, 0, (1 << 20, 65536), &[7; 65536]).await.error, 0);
    let told = raw.ask(STATUS, 0, (0, SIZE as u32), &[]).await;
    let rest = SIZE as u32 - (1 << 20) - 65536;
    assert_eq!(extents(&told.data), [(1 << 20, 3), (65536, 0), (rest, 3)]);
    let told = raw.ask(STATUS, 8, (4096, 4096), &[]).await;
    assert_eq!(extents(&told.data), [(4096, 3)]);
    assert_eq!(raw.ask(TRIM, 0, (1 << 20, 65536), &[]).await.error, 0);
    let told = raw.ask(STATUS, 0, (0, SIZE as u32), &[]).await;
    assert_eq!(extents(&told.data), [(SIZE as u32, 3)]);
}

#[tokio::test]
async fn refused_requests_leave_the_connection_as_it_was() {
    let sizes = BlockSizes { minimum: 512, preferred: 4096 };
    let served = Served::with(Limits::default(), |device| device.sizes = sizes).await;
    for structured in [true, false] {
        let mut raw = Raw::go(served.addr(), structured).await;
        // The data of a refused write are skipped, however many.
        assert_eq!(raw.ask(WRITE, 0, (SIZE, 512), &[1; 512]).await.error, 28);
        assert_eq!(raw.ask(WRITE, 0, (100, 512), &[1; 512]).await.error, 22);
        assert_eq!(raw.ask(WRITE, 0, (0, 33 << 20), &vec![1; 33 << 20]).await.error, 22);
        assert_eq!(raw.ask(WRITE, 0, (0, 0), &[]).await.error, 22);
        assert_eq!(raw.ask(READ, 0, (SIZE - 512, 1024), &[]).await.error, 22);
        assert_eq!(raw.ask(READ, 0, (0, 33 << 20), &[]).await.error, 22);
        assert_eq!(raw.ask(77, 0, (0, 512), &[]).await.error, 22);
        assert_eq!(raw.ask(READ, 0, (0, 512), &[]).await.error, 0);
    }
    let mut raw = Raw::go(served.addr(), true).await;
    let refused = raw.ask(WRITE, 0, (SIZE, 512), &[1; 512]).await;
    let said = String::from_utf8(refused.data[6..].to_vec()).unwrap();
    assert!(said.contains("expected a range within 67108864 bytes"), "{said}");
}

#[tokio::test]
async fn errors_of_the_device_reach_the_client() {
    let cases = [
        (DeviceError::Full("12 of 12 nodes".into()), 28),
        (DeviceError::Forbidden("another writer holds the lease".into()), 1),
        (DeviceError::Invalid("odd".into()), 22),
        (DeviceError::Io("node 3 is silent".into()), 5),
    ];
    for (error, number) in cases {
        let said = error.to_string();
        let served = Served::with(Limits::default(), |device| device.write_fails = Some(error)).await;
        let mut raw = Raw::go(served.addr(), true).await;
        let refused = raw.ask(WRITE, 0, (0, 4), b"data").await;
        assert_eq!(refused.error, number);
        assert_eq!(refused.data[6..], *said.as_bytes());
    }
}

#[tokio::test]
async fn answers_come_as_requests_end() {
    let served = Served::with(Limits::default(), |device| device.slow_at = Some(8192)).await;
    let mut raw = Raw::go(served.addr(), false).await;
    raw.send(READ, 0, 1, (8192, 512), &[]).await;
    for cookie in 2..50 {
        raw.send(READ, 0, cookie, (0, 512), &[]).await;
    }
    let mut first: Vec<u64> = Vec::new();
    for _ in 2..50 {
        first.push(raw.reply(512).await.cookie);
    }
    first.sort_unstable();
    assert_eq!(first, (2..50).collect::<Vec<_>>());
    served.device.slow.add_permits(1);
    assert_eq!(raw.reply(512).await.cookie, 1);
}

#[tokio::test]
async fn requests_under_way_and_their_data_are_limited() {
    let limits = Limits { requests: 4, ..Limits::default() };
    let served = Served::with(limits, |device| device.slow_at = Some(0)).await;
    let mut raw = Raw::go(served.addr(), false).await;
    // Four wait inside; the fifth, which would be quick, is not even read.
    for cookie in 0..4 {
        raw.send(READ, 0, cookie, (0, 512), &[]).await;
    }
    raw.send(READ, 0, 4, (4096, 512), &[]).await;
    let early = tokio::time::timeout(std::time::Duration::from_millis(50), raw.reply(512)).await;
    assert!(early.is_err(), "{early:?}");

    // Reads of 3 x 20 MiB at once hold 32 MiB at most.
    let served = Served::new().await;
    let mut raw = Raw::go(served.addr(), false).await;
    for cookie in 0..3 {
        raw.send(READ, 0, cookie, (0, 20 << 20), &[]).await;
    }
    for _ in 0..3 {
        assert_eq!(raw.reply(20 << 20).await.data.len(), 20 << 20);
    }
    let most = served.device.most_held.load(SeqCst);
    assert!((20 << 20..=32 << 20).contains(&most), "{most}");
}

#[tokio::test]
async fn a_panic_inside_is_an_error_for_the_client() {
    let served = Served::with(Limits::default(), |device| device.panic_at = Some(4096)).await;
    let mut raw = Raw::go(served.addr(), false).await;
    assert_eq!(raw.ask(READ, 0, (4096, 512), &[]).await.error, 5);
    assert_eq!(raw.ask(READ, 0, (0, 512), &[]).await.error, 0);
}
