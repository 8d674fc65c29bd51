//! Ranged reads: every boundary, whole and degraded, and no more bytes read than needed.

use kintsu_client::{ClientError, PutOptions};
use kintsu_wire::message::Encoding;

use crate::bytes::{assert_same, content};
use crate::cluster::{CELL, Cluster, RS, options};

async fn boundaries(encoding: Encoding) {
    let mut cluster = Cluster::start(7, 4).await;
    let client = cluster.client().await;
    let cell = u64::from(CELL);
    let data = content(3, (cell * 12 + cell * 3 + cell / 2) as usize);
    let size = data.len() as u64;
    cluster.put("o", &data, options(RS, encoding)).await.unwrap();
    if encoding == Encoding::Offline {
        cluster.finish(client.encode("o").await.unwrap()).await;
    }
    let mut ranges = vec![0..0, 0..size, size..size, 5..6, size - 1..size, cell / 2..size - cell / 2];
    for edge in (0..=size).step_by(cell as usize) {
        ranges.push(edge.saturating_sub(1)..(edge + 1).min(size));
        ranges.push(edge..(edge + cell + 1).min(size));
        ranges.push(edge..(edge + 1).min(size));
    }
    for degraded in [false, true] {
        for range in &ranges {
            let got = cluster.get_range("o", range.clone()).await.unwrap();
            assert_same(&got, &data[range.start as usize..range.end as usize]);
        }
        if !degraded {
            let lost = cluster.home("o", 0, 1).await;
            cluster.kill(lost).await;
        }
    }
    for bad in [0..size + 1, size + 1..size + 2, size..u64::MAX] {
        let refused = cluster.get_range("o", bad).await;
        assert!(matches!(refused, Err(ClientError::Invalid(_))), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn striped() {
    boundaries(Encoding::Online).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contiguous() {
    boundaries(Encoding::Offline).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_range_reads_little() {
    let mut cluster = Cluster::start(7, 4).await;
    let client = cluster.client().await;
    let data = content(4, 12 * CELL as usize);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let at = u64::from(CELL) + 100;
    let mut out = Vec::new();
    let report = client.get("o", Some(at..at + 50), &mut out, |_, _| {}).await.unwrap();
    assert_same(&out, &data[at as usize..at as usize + 50]);
    // A block of four cells is one checksum unit.
    let unit = 4 * u64::from(CELL);
    assert_eq!((report.bytes, report.bytes_read, report.degraded_stripes), (50, unit, 0));

    let lost = cluster.home("o", 0, 1).await;
    cluster.kill(lost).await;
    let mut out = Vec::new();
    let report = client.get("o", Some(at..at + 50), &mut out, |_, _| {}).await.unwrap();
    assert_same(&out, &data[at as usize..at as usize + 50]);
    assert_eq!((report.bytes_read, report.degraded_stripes), (3 * unit, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_stripes_than_are_looked_up_at_once() {
    let cluster = Cluster::start(4, 4).await;
    let client = cluster.client().await;
    let (stripe, stripes) = (2 * 512, 600);
    let data = content(5, stripe * stripes - 100);
    let small = PutOptions {
        block_bytes: Some(512),
        cell_bytes: Some(512),
        ..options("rs:n=3,k=2", Encoding::Online)
    };
    let object = cluster.put("o", &data, small).await.unwrap();
    assert_eq!(object.stripes, stripes as u64);
    assert_same(&cluster.get("o").await.unwrap(), &data);
    for from in [1, 255, 256, 257, 511, 512, 513, 598].map(|s| s * stripe + 17) {
        let upto = data.len().min(from + 2 * stripe);
        let mut out = Vec::new();
        client.get("o", Some(from as u64..upto as u64), &mut out, |_, _| {}).await.unwrap();
        assert_same(&out, &data[from..upto]);
    }
}
