//! Puts that fail, compete, or are abandoned: visible whole or not at all.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{ClientError, PutOptions};
use kintsu_wire::message::Encoding;
use tokio::sync::oneshot;

use crate::bytes::{Slow, Treacherous, Waiting, assert_same, content};
use crate::cluster::{Cluster, RS, options};

fn replacing() -> PutOptions {
    PutOptions { replace: true, ..options(RS, Encoding::Online) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_breaks_leaves_nothing() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    for fails_at in [0, 100_000, 499_999] {
        let source = Treacherous { bytes: content(1, 500_000), fails_at, reads: AtomicU64::new(0) };
        let failed = client.put(Arc::new(source), "o", options(RS, Encoding::Online), |_, _| {}).await;
        match failed {
            Err(ClientError::Io(text)) => assert!(text.contains("the source broke"), "{text}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(client.info("o").await, Err(ClientError::NotFound(_))));
    }
    cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_replacement_leaves_the_old_object() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let old = content(2, 200_000);
    cluster.put("o", &old, options(RS, Encoding::Online)).await.unwrap();
    let files = cluster.block_files();
    let source = Treacherous { bytes: content(3, 500_000), fails_at: 300_000, reads: AtomicU64::new(0) };
    client.put(Arc::new(source), "o", replacing(), |_, _| {}).await.unwrap_err();
    assert_same(&cluster.get("o").await.unwrap(), &old);
    cluster.until("only the old blocks are left", || cluster.block_files() == files).await;
    let new = content(4, 450_000);
    cluster.put("o", &new, replacing()).await.unwrap();
    assert_same(&cluster.get("o").await.unwrap(), &new);
    cluster.until("the old blocks are gone", || files.iter().all(|f| !f.exists())).await;
    assert_same(&cluster.get("o").await.unwrap(), &new);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_is_undone_at_once() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let source = Arc::new(Slow { bytes: content(5, 2_000_000), pause: Duration::from_millis(50) });
    tokio::select! {
        ended = client.put(source, "o", options(RS, Encoding::Online), |_, _| {}) => panic!("{ended:?}"),
        () = cluster.until("some of it is written", || !cluster.block_files().is_empty()) => {}
    }
    cluster.close(&client).await;
    assert!(matches!(client.info("o").await, Err(ClientError::NotFound(_))));
    cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
}

#[test]
fn a_client_that_dies_is_forgotten_when_its_lease_ends() {
    let cluster_runtime = tokio::runtime::Runtime::new().unwrap();
    let cluster = cluster_runtime.block_on(Cluster::start(6, 3));
    let endpoint = cluster.endpoint.clone();
    // The client's own runtime dies with everything in it, as its process would, when all blocks are written.
    let client_runtime = tokio::runtime::Runtime::new().unwrap();
    let ((waits, waiting), (go_on, gone_on)) = (oneshot::channel(), mpsc::channel());
    let source = Waiting { bytes: content(6, 2_000_000), pause: Mutex::new(Some((waits, gone_on))) };
    client_runtime.spawn(async move {
        let client = kintsu_client::Client::connect(&endpoint, Default::default()).await.unwrap();
        client.put(Arc::new(source), "o", options(RS, Encoding::Online), |_, _| {}).await.unwrap();
    });
    cluster_runtime.block_on(waiting).unwrap();
    // A client that is dead never goes on.
    std::mem::forget(go_on);
    client_runtime.shutdown_background();
    cluster_runtime.block_on(async {
        let client = cluster.client().await;
        cluster
            .until_async("the lease has ended", || async { client.status().await.unwrap().puts_pending == 0 })
            .await;
        assert!(matches!(client.info("o").await, Err(ClientError::NotFound(_))));
        cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn two_puts_of_one_name() {
    let cluster = Arc::new(Cluster::start(6, 3).await);
    let contents: Vec<_> = (0..4).map(|i| content(10 + i, 200_000 + i as usize)).collect();
    let mut results = Vec::new();
    for replace in [false, true] {
        let tasks: Vec<_> = contents
            .iter()
            .map(|data| {
                let (cluster, data) = (cluster.clone(), data.clone());
                let options = PutOptions { replace, ..options(RS, Encoding::Online) };
                tokio::spawn(async move { cluster.put("o", &data, options).await })
            })
            .collect();
        results.clear();
        for task in tasks {
            results.push(task.await.unwrap());
        }
        let won = results.iter().filter(|r| r.is_ok()).count();
        assert!(if replace { won >= 1 } else { won == 1 }, "{results:?}");
        let got = cluster.get("o").await.unwrap();
        let which = contents.iter().position(|c| c.len() == got.len()).unwrap();
        assert_same(&got, &contents[which]);
        assert!(results[which].is_ok());
    }
    let blocks = cluster.blocks_of("o").await;
    cluster.until("one object's blocks are left", || cluster.block_files().len() == blocks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_dies_in_the_middle_of_a_put() {
    let mut cluster = Cluster::start(9, 3).await;
    let client = cluster.client().await;
    let data = content(7, 3_000_000);
    let source = Arc::new(Slow { bytes: data.clone(), pause: Duration::from_millis(20) });
    let putting = tokio::spawn({
        let client = client.clone();
        async move { client.put(source, "o", options(RS, Encoding::Online), |_, _| {}).await }
    });
    tokio::time::sleep(Duration::from_millis(400)).await;
    cluster.kill(2).await;
    cluster.kill(5).await;
    putting.await.unwrap().unwrap();
    assert_same(&cluster.get("o").await.unwrap(), &data);
    let status = client.status().await.unwrap();
    assert_eq!((status.puts_pending, status.objects), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_restarts_in_the_middle_of_a_put() {
    let mut cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let data = content(8, 2_000_000);
    let source = Arc::new(Slow { bytes: data.clone(), pause: Duration::from_millis(20) });
    let putting =
        tokio::spawn(async move { client.put(source, "o", options(RS, Encoding::Online), |_, _| {}).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    cluster.restart_coordinator().await;
    putting.await.unwrap().unwrap();
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_replaced_under_a_reader_is_never_mixed() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let old = content(9, 4_000_000);
    let new = content(10, 4_000_000);
    cluster.put("o", &old, options(RS, Encoding::Online)).await.unwrap();
    let (mut write, mut read) = tokio::io::duplex(16 << 10);
    let reader = client.clone();
    let getting = tokio::spawn(async move {
        let report = reader.get("o", None, &mut write, |_, _| {}).await;
        drop(write);
        report
    });
    let mut got = vec![0; 50_000];
    tokio::io::AsyncReadExt::read_exact(&mut read, &mut got).await.unwrap();
    client.put(Arc::new(Bytes::from(new.clone())), "o", replacing(), |_, _| {}).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    tokio::io::AsyncReadExt::read_to_end(&mut read, &mut got).await.unwrap();
    match getting.await.unwrap() {
        Ok(_) => assert_same(&got, &old),
        Err(ClientError::Interrupted(_)) => assert_same(&got, &old[..got.len()]),
        Err(other) => panic!("{other:?}"),
    }
    assert_same(&cluster.get("o").await.unwrap(), &new);
}
