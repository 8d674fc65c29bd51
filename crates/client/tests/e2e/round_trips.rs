//! What was put can be read back: sizes, codes, encodings, many clients.

use std::sync::Arc;

use kintsu_client::{ClientError, FileSource};
use kintsu_wire::message::Encoding;

use crate::bytes::{assert_same, content};
use crate::cluster::{CELL, Cluster, LRC, RS, options};

/// Around every boundary of a cell, a row and a stripe of RS(5,3) with blocks of 4 cells.
fn sizes() -> Vec<usize> {
    let (cell, k) = (CELL as usize, 3);
    let stripe = cell * 4 * k;
    let mut sizes = vec![0, 1, 2];
    for edge in [cell, k * cell, stripe, 2 * stripe] {
        sizes.extend([edge - 1, edge, edge + 1]);
    }
    sizes.push(3 * stripe + 2 * cell + 77);
    sizes
}

async fn round_trips(encoding: Encoding) {
    let cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    for (i, size) in sizes().into_iter().enumerate() {
        let (name, data) = (format!("size-{size}"), content(i as u64, size));
        let object = cluster.put(&name, &data, options(RS, encoding)).await.unwrap();
        assert_eq!((object.size, object.name.as_str()), (size as u64, name.as_str()));
        assert_same(&cluster.get(&name).await.unwrap(), &data);
        if encoding == Encoding::Offline && size > 0 {
            assert!(!object.encoded);
            let report = cluster.finish(client.encode(&name).await.unwrap()).await;
            assert_eq!(report.failed, Vec::<String>::new());
            assert!(client.info(&name).await.unwrap().encoded);
            assert_same(&cluster.get(&name).await.unwrap(), &data);
        } else {
            assert!(object.encoded || size == 0);
        }
    }
    let page = client.list("size-", None, 5).await.unwrap();
    assert!(page.more && page.objects.len() == 5);
    let last = page.objects.last().unwrap().name.clone();
    let rest = client.list("size-", Some(&last), 100).await.unwrap();
    assert_eq!(rest.objects.len() + 5, sizes().len());
    assert!(!rest.more);
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_online() {
    round_trips(Encoding::Online).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sizes_offline_then_encoded() {
    round_trips(Encoding::Offline).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_groups_and_files() {
    let cluster = Cluster::start(12, 6).await;
    let client = cluster.client().await;
    let data = content(9, 1_300_001);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &data).unwrap();
    for encoding in [Encoding::Online, Encoding::Offline] {
        let name = format!("{encoding:?}");
        let source = Arc::new(FileSource::open(file.path()).unwrap());
        let told = std::sync::Mutex::new(Vec::new());
        let tell = |done, total| told.lock().unwrap().push((done, total));
        client.put(source, &name, options(LRC, encoding), tell).await.unwrap();
        let told = told.into_inner().unwrap();
        assert!(told.iter().all(|(done, total)| done <= total && *total == data.len() as u64));
        assert_eq!(told.last(), Some(&(data.len() as u64, data.len() as u64)));
        assert_same(&cluster.get(&name).await.unwrap(), &data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_exist_or_makes_no_sense() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    assert!(matches!(client.info("nothing").await, Err(ClientError::NotFound(_))));
    assert!(matches!(cluster.get("nothing").await, Err(ClientError::NotFound(_))));
    assert!(matches!(client.remove("nothing").await, Err(ClientError::NotFound(_))));
    for code in ["nonsense", "rs:n=3,k=3", "rs:n=300,k=3", "rs:n=5,k=3,x=1"] {
        let refused = cluster.put("a", b"abc", options(code, Encoding::Online)).await;
        assert!(matches!(refused, Err(ClientError::Invalid(_))), "{code}: {refused:?}");
    }
    let crowded = cluster.put("a", b"abc", options("rs:n=9,k=2", Encoding::Online)).await;
    assert!(matches!(crowded, Err(ClientError::Placement(_))), "{crowded:?}");
    cluster.put("a", b"abc", options(RS, Encoding::Online)).await.unwrap();
    let again = cluster.put("a", b"abcd", options(RS, Encoding::Online)).await;
    assert!(matches!(again, Err(ClientError::Exists(_))), "{again:?}");
    assert_same(&cluster.get("a").await.unwrap(), b"abc");
    client.remove("a").await.unwrap();
    assert!(matches!(cluster.get("a").await, Err(ClientError::NotFound(_))));
    cluster.until("the blocks are deleted", || cluster.block_files().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_there() {
    let client = kintsu_client::Client::connect("127.0.0.1:9", Default::default()).await.unwrap();
    match client.info("a").await {
        Err(ClientError::Unreachable(text)) => {
            assert!(text.contains("127.0.0.1:9") && text.contains("kintsu up"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clients_at_once() {
    let cluster = Arc::new(Cluster::start(8, 4).await);
    let tasks: Vec<_> = (0..12)
        .map(|i| {
            let cluster = cluster.clone();
            tokio::spawn(async move {
                let data = content(i, 150_000 + 7919 * i as usize);
                let name = format!("object-{i}");
                cluster.put(&name, &data, options(RS, Encoding::Online)).await.unwrap();
                assert_same(&cluster.get(&name).await.unwrap(), &data);
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(cluster.client().await.status().await.unwrap().objects, 12);
}
