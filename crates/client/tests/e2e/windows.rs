//! Reads of lost blocks: only what the range needs is read, the first bytes come early, memory is bounded, and what has
//! been delivered is not read again when a helper is lost.

use kintsu_client::{Client, ClientError, GetOptions, GetReport, PutOptions};
use kintsu_plan::Method;
use kintsu_wire::message::Encoding;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinHandle;

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, RS, options};

const UNIT: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_range_of_a_lost_block_is_all_that_is_read() {
    let mut cluster = Cluster::start(6, 6).await;
    let client = cluster.client().await;
    let data = content(1, 3 << 20);
    // The code, how many blocks it reads, and the rounding of ranges: to units, or with sub-blocks to cells.
    let codes =
        [(RS, Encoding::Online), (RS, Encoding::Offline), ("hitchhiker-xor:n=5,k=3", Encoding::Offline)];
    for (i, (code, encoding)) in codes.into_iter().enumerate() {
        let long = PutOptions { block_bytes: Some(MIB), ..options(code, encoding) };
        cluster.put(&i.to_string(), &data, long).await.unwrap();
        if encoding == Encoding::Offline {
            cluster.finish(client.encode(&i.to_string()).await.unwrap()).await;
        }
    }
    // The block of each object that is on this node.
    let victim = cluster.home("0", 0, 1).await;
    cluster.kill(victim).await;
    for (i, (code, encoding)) in codes.into_iter().enumerate() {
        let name = i.to_string();
        let lost =
            cluster.stripe(&name, 0).await.blocks.iter().flatten().find(|b| b.node.0 == victim).cloned();
        let Some(lost) = lost.filter(|b| b.id.index.0 < 3) else { continue };
        // Within the lost block, or within one cell of it.
        let range = match encoding {
            Encoding::Offline => {
                u64::from(lost.id.index.0) * MIB + 200_000..u64::from(lost.id.index.0) * MIB + 500_000
            }
            Encoding::Online => {
                let cell = u64::from(crate::cluster::CELL);
                let from = (3 * 7 + u64::from(lost.id.index.0)) * cell;
                from + 1000..from + 5000
            }
        };
        for method in [None, Some(Method::Conventional), Some(Method::Ppr), Some(Method::Pipeline)] {
            let mut got = Vec::new();
            let asked = GetOptions { method };
            let report =
                client.get_with(&name, Some(range.clone()), asked, &mut got, |_, _| {}).await.unwrap();
            assert_same(&got, &data[range.start as usize..range.end as usize]);
            assert_eq!(report.degraded_stripes, 1);
            let most = 4 * (range.end - range.start + 2 * UNIT);
            assert!(report.bytes_read <= most, "{code} {method:?}: {report:?}");
        }
    }
}

/// An object whose first block is long and lost, and a read of that block of which 10 kB are taken.
struct Begun {
    cluster: Cluster,
    data: Vec<u8>,
    reading: JoinHandle<Result<GetReport, ClientError>>,
    read: DuplexStream,
    got: Vec<u8>,
}

const LONG: u64 = 32 * MIB;

async fn begun() -> Begun {
    let mut cluster = Cluster::start(6, 6).await;
    let client: Client = cluster.client().await;
    let data = content(8, 40 << 20);
    let long =
        PutOptions { block_bytes: Some(LONG), cell_bytes: Some(64 << 10), ..options(RS, Encoding::Offline) };
    cluster.put("o", &data, long).await.unwrap();
    cluster.finish(client.encode("o").await.unwrap()).await;
    let home = cluster.home("o", 0, 0).await;
    cluster.kill(home).await;
    let (mut write, mut read) = tokio::io::duplex(16 << 10);
    let reading = tokio::spawn(async move { client.get("o", Some(0..LONG), &mut write, |_, _| {}).await });
    let mut got = vec![0; 10_000];
    read.read_exact(&mut got).await.unwrap();
    Begun { cluster, data, reading, read, got }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_bytes_come_before_the_last_are_read() {
    let mut begun = begun().await;
    // The reader stops here, so once the nodes are gone only what the queues hold can still arrive.
    for index in 1..5 {
        if index != 2 {
            let home = begun.cluster.home("o", 0, index).await;
            begun.cluster.kill(home).await;
        }
    }
    begun.read.read_to_end(&mut begun.got).await.unwrap();
    assert!(begun.reading.await.unwrap().is_err());
    assert!((begun.got.len() as u64) < LONG - 4 * MIB, "{} of {LONG} bytes", begun.got.len());
    assert_same(&begun.got, &begun.data[..begun.got.len()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_lost_on_the_way_is_gone_around_and_nothing_is_read_again() {
    let mut begun = begun().await;
    let most = 20 << 20;
    begun.got.resize(most, 0);
    begun.read.read_exact(&mut begun.got[10_000..]).await.unwrap();
    let home = begun.cluster.home("o", 0, 3).await;
    begun.cluster.kill(home).await;
    begun.read.read_to_end(&mut begun.got).await.unwrap();
    let report = begun.reading.await.unwrap().unwrap();
    assert_same(&begun.got, &begun.data[..LONG as usize]);
    assert!(report.replanned > 0, "{report:?}");
    // Two helpers; only what was in flight is read again.
    assert!(report.bytes_read <= 2 * (LONG + 12 * MIB), "{report:?}");
}
