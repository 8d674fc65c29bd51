//! Streams: objects whose size nobody knows until the last byte has come, checksums, and attributes.

use std::collections::BTreeMap;
use std::io::{PipeReader, Write as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use bytes::Bytes;
use kintsu_client::{ClientError, PutOptions};
use kintsu_dag::NodeId;
use kintsu_wire::message::{Attributes, Encoding, NodeAction, ObjectInfo, RepairTarget};
use tokio::io::{AsyncRead, AsyncWriteExt as _, ReadBuf};

use crate::bytes::{assert_same, content};
use crate::cluster::{CELL, Cluster, LRC, RS, options};

/// Bytes of a full stripe of `RS` with the blocks of [`options`].
const FULL: usize = 3 * 4 * CELL as usize;

/// A stream that fails after its bytes.
struct Broken<'b>(&'b [u8]);

impl AsyncRead for Broken<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.0.is_empty() {
            return Poll::Ready(Err(std::io::Error::other("the stream broke")));
        }
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

async fn put_stream(
    cluster: &Cluster,
    name: &str,
    mut stream: impl AsyncRead + Send + Unpin,
    options: PutOptions,
) -> Result<ObjectInfo, ClientError> {
    cluster.client().await.put_stream(&mut stream, name, options, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_has_the_bytes_and_the_checksum_of_a_file() {
    let cluster = Cluster::start(6, 3).await;
    for encoding in [Encoding::Online, Encoding::Offline] {
        for len in [0, 1, CELL as usize + 1, FULL - 1, FULL, FULL + 1, 2 * FULL, 5 * FULL + 777, 9 * FULL] {
            let (data, put) = (content(len as u64, len), options(RS, encoding));
            let (file, stream) = (format!("{encoding:?}-{len}-file"), format!("{encoding:?}-{len}-stream"));
            let from_file = cluster.put(&file, &data, put.clone()).await.unwrap();
            let streamed = put_stream(&cluster, &stream, &data[..], put).await.unwrap();
            assert!(from_file.checksum.is_some());
            let same =
                ObjectInfo { name: file.clone(), created: from_file.created, id: from_file.id, ..streamed };
            assert_eq!(same, from_file);
            assert_same(&cluster.get(&stream).await.unwrap(), &data);
            let client = cluster.client().await;
            let layouts = |view: kintsu_wire::message::ObjectView| {
                view.stripes.iter().map(|stripe| (stripe.offset, stripe.layout)).collect::<Vec<_>>()
            };
            let (a, b) =
                (client.stripes(&file, 0, 99).await.unwrap(), client.stripes(&stream, 0, 99).await.unwrap());
            assert_eq!(layouts(a), layouts(b), "{encoding:?} {len}");
        }
    }
    assert_eq!(cluster.client().await.status().await.unwrap().puts_pending, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_stream_is_laid_out_like_a_file_though_nobody_chose_a_block() {
    let cluster = Cluster::start(6, 3).await;
    let data = content(1, 3_000_000);
    cluster.put("file", &data, PutOptions::new(RS)).await.unwrap();
    put_stream(&cluster, "stream", &data[..], PutOptions::new(RS)).await.unwrap();
    assert_eq!(cluster.stripe("stream", 0).await.layout, cluster.stripe("file", 0).await.layout);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_family_has_the_same_checksum() {
    let cluster = Cluster::start(10, 5).await;
    let data = content(2, 1_234_567);
    let mut sums = std::collections::BTreeSet::new();
    for code in
        [RS, LRC, "replication:n=3", "hitchhiker-xor:n=5,k=3", "clay:n=4,k=2,d=3", "butterfly:n=6,k=4"]
    {
        for encoding in [Encoding::Online, Encoding::Offline] {
            let put = PutOptions { encoding, replace: true, ..PutOptions::new(code) };
            for streamed in [false, true] {
                let object = match streamed {
                    true => put_stream(&cluster, "o", &data[..], put.clone()).await.unwrap(),
                    false => cluster.put("o", &data, put.clone()).await.unwrap(),
                };
                sums.insert(object.checksum.map(|sum| sum.to_string()));
                assert_same(&cluster.get("o").await.unwrap(), &data);
            }
        }
    }
    assert!(sums.len() == 1 && sums.first() != Some(&None), "{sums:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_or_is_dropped_leaves_nothing() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    for len in [0, 1000, FULL, 4 * FULL + 1] {
        let data = content(3, len);
        let put = options(RS, Encoding::Online);
        let failed = client.put_stream(&mut Broken(&data), "o", put, |_| {}).await;
        match failed {
            Err(ClientError::Io(text)) => assert!(text.contains("the stream broke"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    client.close().await;
    cluster.until("nothing is left of them", || cluster.block_files().is_empty()).await;
    let data = content(4, 3 * FULL);
    let (mut writer, mut reader) = tokio::io::duplex(1 << 20);
    let put = client.put_stream(&mut reader, "o", options(RS, Encoding::Online), |_| {});
    let writing = async {
        writer.write_all(&data).await.unwrap();
        cluster
            .until_async("the put has begun", || async { client.status().await.unwrap().puts_pending == 1 })
            .await;
        cluster.until("some of it is written", || !cluster.block_files().is_empty()).await;
    };
    tokio::select! {
        ended = put => panic!("{ended:?}"),
        () = writing => {}
    }
    cluster.close(&client).await;
    assert!(matches!(client.info("o").await, Err(ClientError::NotFound(_))));
    cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
}

/// A pipe, and a thread that writes bytes to it and then keeps it open until it may go.
fn fed(bytes: Vec<u8>) -> (PipeReader, std::sync::mpsc::Sender<()>, JoinHandle<std::io::Result<()>>) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (go, gone) = std::sync::mpsc::channel();
    let writing = std::thread::spawn(move || {
        writer.write_all(&bytes)?;
        let _ = gone.recv();
        Ok(())
    });
    (reader, go, writing)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_that_a_thread_reads_gives_the_object_of_a_file() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let put = options(RS, Encoding::Online);
    for len in [0, 1, FULL - 1, FULL, FULL + 1, 15 * FULL + 3] {
        let data = content(9, len);
        let (file, stream) = (format!("{len}-file"), format!("{len}-stream"));
        let (reader, go, writing) = fed(data.clone());
        drop(go);
        let streamed = client.put_reader(reader, &stream, put.clone(), |_| {}).await.unwrap();
        writing.join().unwrap().unwrap();
        let from_file = cluster.put(&file, &data, put.clone()).await.unwrap();
        assert_eq!(streamed.checksum, from_file.checksum, "{len}");
        assert_same(&cluster.get(&stream).await.unwrap(), &data);
    }
    assert_eq!(client.status().await.unwrap().puts_pending, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_while_its_pipe_is_silent_leaves_nothing() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let (reader, go, writing) = fed(content(10, 4 * FULL + 1));
    let put = client.put_reader(reader, "o", options(RS, Encoding::Online), |_| {});
    tokio::select! {
        ended = put => panic!("{ended:?}"),
        () = cluster.until("some of it is written", || !cluster.block_files().is_empty()) => {}
    }
    cluster.close(&client).await;
    assert!(matches!(client.info("o").await, Err(ClientError::NotFound(_))));
    cluster.until("nothing is left of it", || cluster.block_files().is_empty()).await;
    drop(go);
    let _ = writing.join().unwrap();
}

/// Streams an object, and does something to the cluster when the first part of it was written.
async fn disturbed<D: Future<Output = ()>>(
    cluster: &Cluster,
    data: &[u8],
    disturb: impl FnOnce() -> D,
) -> Result<ObjectInfo, ClientError> {
    let client = cluster.client().await;
    let (mut writer, mut reader) = tokio::io::duplex(1 << 16);
    let put = client.put_stream(&mut reader, "o", options(RS, Encoding::Online), |_| {});
    let writing = async {
        let (first, rest) = data.split_at(data.len() / 2);
        writer.write_all(first).await.unwrap();
        cluster.until("some of it is written", || cluster.block_files().len() > 5).await;
        disturb().await;
        // A put that has failed reads no more.
        let _ = writer.write_all(rest).await;
        drop(writer);
    };
    tokio::join!(put, writing).0
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_die_in_the_middle_of_a_stream() {
    let cluster = Cluster::start(9, 3).await;
    let data = content(5, 8 * FULL + 5);
    let agents = tokio::sync::Mutex::new(cluster);
    let client = agents.lock().await.client().await;
    let (mut writer, mut reader) = tokio::io::duplex(1 << 16);
    let put = client.put_stream(&mut reader, "o", options(RS, Encoding::Online), |_| {});
    let writing = async {
        let (first, rest) = data.split_at(3 * FULL);
        writer.write_all(first).await.unwrap();
        let mut cluster = agents.lock().await;
        cluster.kill(2).await;
        cluster.kill(5).await;
        writer.write_all(rest).await.unwrap();
        drop(writer);
    };
    let (stored, ()) = tokio::join!(put, writing);
    let object = stored.unwrap();
    let cluster = agents.into_inner();
    assert_same(&cluster.get("o").await.unwrap(), &data);
    let like = cluster.put("like", &data, options(RS, Encoding::Online)).await.unwrap();
    assert_eq!(object.checksum, like.checksum, "rewritten stripes count once");
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_a_node_loses_before_the_commit_are_borne_and_repaired() {
    let cluster = Cluster::start(6, 3).await;
    let data = content(6, 6 * FULL + 5);
    let client = cluster.client().await;
    let stored = disturbed(&cluster, &data, || async {
        let wipe = client.command_node(NodeId(1), NodeAction::Wipe).await.unwrap();
        cluster.finish(wipe).await;
    });
    stored.await.unwrap();
    assert_same(&cluster.get("o").await.unwrap(), &data);
    let jobs = client.repair(RepairTarget::All, kintsu_plan::Method::Conventional, CELL).await.unwrap();
    assert_eq!(cluster.finish(jobs).await.failed, Vec::<String>::new());
    assert_eq!(client.status().await.unwrap().degraded_stripes, 0);
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_restarts_in_the_middle_of_a_stream_and_attributes_stay() {
    let cluster = tokio::sync::Mutex::new(Cluster::start(6, 3).await);
    let client = cluster.lock().await.client().await;
    let data = content(7, 7 * FULL + 1);
    let user = BTreeMap::from([("camera".to_owned(), "x100".to_owned()), ("日".to_owned(), String::new())]);
    let attributes = Attributes { content_type: Some("image/raw".into()), user, ..Attributes::default() };
    let put = PutOptions { attributes: attributes.clone(), ..options(RS, Encoding::Online) };
    let (mut writer, mut reader) = tokio::io::duplex(1 << 16);
    let put = client.put_stream(&mut reader, "o", put, |_| {});
    let writing = async {
        let (first, rest) = data.split_at(3 * FULL + 9);
        writer.write_all(first).await.unwrap();
        cluster.lock().await.restart_coordinator().await;
        writer.write_all(rest).await.unwrap();
        drop(writer);
    };
    let (stored, ()) = tokio::join!(put, writing);
    let stored = stored.unwrap();
    assert_eq!(stored.attributes, attributes);
    let mut cluster = cluster.into_inner();
    cluster.restart_coordinator().await;
    assert_eq!(cluster.client().await.info("o").await.unwrap(), stored);
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_that_are_too_long_are_refused() {
    let cluster = Cluster::start(6, 3).await;
    let user = BTreeMap::from([("k".to_owned(), "v".repeat(3000))]);
    let put = PutOptions {
        attributes: Attributes { user, ..Attributes::default() },
        ..options(RS, Encoding::Online)
    };
    let refused = cluster.client().await.put(Arc::new(Bytes::from_static(b"x")), "o", put, |_, _| {}).await;
    match refused {
        Err(ClientError::Invalid(text)) => assert!(text.contains("2048") && text.contains("3001"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_stored_with_a_registered_code() {
    let cluster = Cluster::start(6, 6).await;
    let example = include_str!("../../../../docs/examples/miser-4-2.json");
    cluster.client().await.register_code(&serde_json::from_str(example).unwrap()).await.unwrap();
    let data = content(8, 30 * CELL as usize + 7);
    let object =
        put_stream(&cluster, "o", &data[..], options("user:miser-4-2", Encoding::Online)).await.unwrap();
    assert!(object.stripes > 2, "{object:?}");
    assert_same(&cluster.get("o").await.unwrap(), &data);
    assert!(cluster.client().await.info("o").await.unwrap().checksum.is_some());
}
