//! Clients that send anything: the server neither panics nor holds more than it may, and serves others afterwards.

use std::sync::atomic::Ordering::SeqCst;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::raw::{Raw, SIZE, Served, named, request, soon};

/// Mostly a sensible message with some bits flipped, now and then noise.
fn options(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..random.random_range(1..6) {
        let option: u32 = random.random_range(1..13);
        let data = match random.random_range(0..4) {
            0 => [&named("disk")[..], &1u32.to_be_bytes(), &named("base:allocation")].concat(),
            1 => [&named("disk")[..], &[0, 1, 0, 3]].concat(),
            2 => vec![],
            _ => (0..random.random_range(0..40)).map(|_| random.random()).collect(),
        };
        bytes.extend(b"IHAVEOPT");
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
    }
    flip(&mut bytes, random);
    bytes
}

fn requests(random: &mut StdRng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cookie in 0..random.random_range(1..20) {
        let (kind, flags) =
            (random.random_range(0..9), random.random_range(0..2) * random.random_range(0..32));
        let offset = match random.random_range(0..3) {
            0 => random.random(),
            _ => random.random_range(0..SIZE + 4096),
        };
        let len = match random.random_range(0..6) {
            0 if kind != 1 => random.random(),
            _ => random.random_range(0..70_000),
        };
        let data = if kind == 1 { vec![3; len as usize] } else { vec![] };
        bytes.extend(request(kind, flags, cookie, (offset, len), &data));
    }
    flip(&mut bytes, random);
    bytes
}

fn flip(bytes: &mut [u8], random: &mut StdRng) {
    for _ in 0..random.random_range(0..4u32).saturating_sub(1) {
        let at = random.random_range(0..bytes.len());
        bytes[at] ^= 1 << random.random_range(0..8);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anything_may_come() {
    let served = Served::new().await;
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut raw, sent) = match random.random_range(0..3) {
            0 => (Raw::greet(served.addr(), 3).await, options(&mut random)),
            _ => (Raw::go(served.addr(), random.random()).await, requests(&mut random)),
        };
        let (mut reader, mut writer) = raw.stream.split();
        let send = async {
            // The server may leave first.
            let _ = writer.write_all(&sent).await;
            let _ = writer.shutdown().await;
        };
        let take = async {
            let mut sink = vec![0; 1 << 16];
            while matches!(reader.read(&mut sink).await, Ok(1..)) {}
        };
        soon(async { tokio::join!(send, take) }).await;
    }
    let most = served.device.most_held.load(SeqCst);
    assert!(most > 0 && most <= 32 << 20, "{most}");
    // Who leaves does not see what was still under way for it.
    soon(async {
        while served.device.held.load(SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let mut raw = Raw::go(served.addr(), true).await;
    assert_eq!(raw.ask(0, 0, (0, 512), &[]).await.error, 0);
    let mut noise = vec![0; 100_000];
    StdRng::seed_from_u64(1).fill_bytes(&mut noise);
    let _ = raw.stream.write_all(&noise).await;
    assert!(raw.closed().await);
}
