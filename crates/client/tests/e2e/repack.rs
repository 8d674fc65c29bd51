//! Small objects that lie alone, or in packs that are mostly dead, are gathered into packs, and stay what they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use kintsu_client::{Client, ClientError, PutOptions, RepackOptions, RepackReport};
use kintsu_wire::message::{Attributes, Encoding, ObjectInfo};

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, RS, options};

type Objects = BTreeMap<String, Vec<u8>>;

/// As many objects of `len` bytes.
fn objects(count: u64, len: usize) -> Objects {
    (0..count).map(|i| (format!("small/{i:04}"), content(i, len))).collect()
}

/// Stripes of their own, as if no other object was written at the time.
fn alone() -> PutOptions {
    let attributes = Attributes { content_type: Some("text/x".into()), ..Attributes::default() };
    PutOptions { alone: true, replace: true, attributes, ..PutOptions::new(RS) }
}

async fn put_all(client: &Client, objects: &Objects, options: &PutOptions) {
    let puts = objects.iter().map(|(name, data)| {
        let source = Arc::new(Bytes::copy_from_slice(data));
        client.put(source, name, options.clone(), |_, _| {})
    });
    let puts: Vec<_> = futures::stream::iter(puts).buffer_unordered(32).collect().await;
    puts.into_iter().for_each(|put| drop(put.unwrap()));
}

async fn all_are_readable(client: &Client, objects: &Objects) {
    let reads = objects.iter().map(|(name, data)| async move {
        let mut out = Vec::new();
        client.get(name, None, &mut out, |_, _| {}).await.unwrap();
        assert_same(&out, data);
    });
    futures::stream::iter(reads).buffer_unordered(8).collect::<Vec<()>>().await;
}

async fn listed(client: &Client) -> Vec<ObjectInfo> {
    client.list("", None, 10_000).await.unwrap().objects
}

/// Gathers what was just written, too.
async fn repack(client: &Client, least: usize) -> RepackReport {
    let options = RepackOptions { older_than: Duration::ZERO, least };
    client.repack(options, |_| {}).await.unwrap()
}

async fn until_swept(cluster: &Cluster, client: &Client) {
    let swept = || async { client.status().await.unwrap().garbage == 0 };
    cluster.until_async("what nobody needs is deleted", swept).await;
}

async fn nothing_is_left(cluster: &Cluster, client: &Client) {
    for object in listed(client).await {
        client.remove(&object.name).await.unwrap();
    }
    cluster.until("nothing is left of them", || cluster.block_files().is_empty()).await;
}

fn bytes_on_disk(cluster: &Cluster) -> u64 {
    cluster.block_files().iter().map(|file| std::fs::metadata(file).map_or(0, |about| about.len())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_objects_that_lie_alone_become_four_packs() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let all = objects(1000, 1024);
    put_all(&client, &all, &alone()).await;
    let before = listed(&client).await;
    let (files, bytes) = (cluster.block_files().len(), bytes_on_disk(&cluster));
    assert_eq!((files, client.status().await.unwrap().stripes), (3000, 1000));
    // What was written a moment ago is left alone.
    let idle = client.repack(RepackOptions::default(), |_| {}).await.unwrap();
    assert_eq!(idle, RepackReport::default());
    // Looked up before they move, read when their old blocks are gone.
    let found: Vec<_> = [("small/0000", None), ("small/0500", Some(100..900))].into();
    let mut early = Vec::new();
    for (name, range) in found {
        early.push((client.find(name, 0).await.unwrap(), name, range));
    }

    let report = repack(&client, 16).await;
    assert_eq!((report.loose, report.packs, report.objects, report.left), (1000, 4, 1000, 0), "{report:?}");
    assert_eq!((report.stripes_freed, report.bytes), (1000, 1000 << 10));
    until_swept(&cluster, &client).await;
    assert_eq!(client.status().await.unwrap().stripes, 4);
    assert_eq!(listed(&client).await, before, "nothing that a user sees is different");
    let (packed, left) = (cluster.block_files().len(), bytes_on_disk(&cluster));
    eprintln!("1000 objects of 1 KiB: {files} files, {bytes} bytes; repacked: {packed} files, {left} bytes");
    assert!(packed <= 4 * 5 && left < bytes / 5, "{packed} files, {left} of {bytes} bytes");
    for (found, name, range) in early {
        let mut out = Vec::new();
        found.read(range.clone(), Default::default(), &mut out, |_, _| {}).await.unwrap();
        assert_same(&out, &all[name][range.map_or(0..1024, |r| r.start as usize..r.end as usize)]);
    }
    all_are_readable(&client, &all).await;
    assert_eq!(repack(&client, 16).await.packs, 0, "packs are left as they are");
    nothing_is_left(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packs_that_are_mostly_dead_give_their_bytes_back() {
    let mut cluster = Cluster::start(7, 3).await;
    let client = cluster.client().await;
    let mut all = objects(120, 2000);
    let together = PutOptions { alone: false, ..alone() };
    put_all(&client, &all, &together).await;
    let names: Vec<_> = all.keys().cloned().collect();
    for (i, name) in names.iter().enumerate() {
        if i % 4 > 0 {
            client.remove(name).await.unwrap();
            all.remove(name);
        }
    }
    // A node is gone: objects are decoded, and what it has is deleted when it is back.
    cluster.kill(2).await;
    cluster.until_state(2, kintsu_wire::message::NodeState::Dead).await;
    let before = listed(&client).await;
    let report = repack(&client, 2).await;
    assert!(report.packs >= 1 && report.left == 0 && report.bytes_freed > 100_000, "{report:?}");
    assert_eq!(report.objects, 30, "{report:?}");
    assert_eq!(listed(&client).await, before);
    assert_eq!(client.status().await.unwrap().stripes, report.packs);
    all_are_readable(&client, &all).await;
    cluster.start_node(2).await;
    all_are_readable(&client, &all).await;
    nothing_is_left(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_go_on_while_objects_move() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let all = objects(48, 900);
    put_all(&client, &all, &alone()).await;
    let repacking = {
        let clients = [cluster.client().await, cluster.client().await];
        let rounds = clients.map(|client| async move {
            for _ in 0..6 {
                repack(&client, 2).await;
            }
        });
        tokio::spawn(futures::future::join_all(rounds))
    };
    // One half is only read, the other is replaced and removed meanwhile.
    let (mut model, mut round) = (all.clone(), 0);
    while !repacking.is_finished() || round < 2 {
        round += 1;
        for (i, name) in all.keys().enumerate() {
            match (i % 4, model.contains_key(name)) {
                (0 | 1, _) => {}
                (3, true) => {
                    client.remove(name).await.unwrap();
                    model.remove(name);
                }
                _ => {
                    let data = content(1000 * round + i as u64, 700);
                    let source = Arc::new(Bytes::copy_from_slice(&data));
                    client.put(source, name, alone(), |_, _| {}).await.unwrap();
                    model.insert(name.clone(), data);
                }
            }
            let mut out = Vec::new();
            match (client.get(name, None, &mut out, |_, _| {}).await, model.get(name)) {
                (Ok(_), Some(data)) => assert_same(&out, data),
                (Err(ClientError::NotFound(_)), None) => {}
                (got, expected) => panic!("{name}: {got:?}, expected {:?} bytes", expected.map(Vec::len)),
            }
        }
    }
    repacking.await.unwrap();
    all_are_readable(&client, &model).await;
    assert_eq!(listed(&client).await.len(), model.len());
    nothing_is_left(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_restarts_amid_moves_loses_nothing() {
    let mut cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let all = objects(200, 600);
    put_all(
        &client,
        &all,
        &PutOptions { block_bytes: Some(64 << 10), cell_bytes: Some(16 << 10), ..alone() },
    )
    .await;
    let before = listed(&client).await;
    for _ in 0..2 {
        let repacking = {
            let client = client.clone();
            tokio::spawn(async move {
                let options = RepackOptions { older_than: Duration::ZERO, least: 2 };
                client.repack(options, |_| {}).await
            })
        };
        let begun = || async { client.status().await.is_ok_and(|status| status.stripes < 200) };
        cluster.until_async("some have moved", begun).await;
        cluster.restart_coordinator().await;
        let _ = repacking.await.unwrap();
        all_are_readable(&client, &all).await;
        assert_eq!(listed(&client).await, before);
    }
    // One that is given up half way leaves nothing.
    let given_up = client.repack(RepackOptions { older_than: Duration::ZERO, least: 2 }, |_| {});
    let _ = tokio::time::timeout(Duration::from_millis(30), given_up).await;
    repack(&client, 2).await;
    assert_eq!(listed(&client).await, before);
    all_are_readable(&client, &all).await;
    cluster
        .until_async("no put is under way", || async { client.status().await.unwrap().puts_pending == 0 })
        .await;
    nothing_is_left(&cluster, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_metadata_are_rebuilt_with_each_object_once() {
    let mut cluster = Cluster::start(7, 3).await;
    let client = cluster.client().await;
    let (mut all, put) = (
        objects(40, 1500),
        PutOptions { attributes: Attributes::default(), ..options(RS, Encoding::Online) },
    );
    put_all(&client, &all, &PutOptions { alone: true, ..put.clone() }).await;
    // It keeps blocks of the old places, which nobody can delete.
    cluster.kill(3).await;
    cluster.until_state(3, kintsu_wire::message::NodeState::Dead).await;
    let report = repack(&client, 2).await;
    assert!(report.objects == 40 && report.packs >= 1, "{report:?}");
    let names: Vec<_> = all.keys().cloned().collect();
    let mut gone = Vec::new();
    for name in names.iter().step_by(5) {
        gone.push(client.remove(name).await.unwrap().id);
        all.remove(name);
    }
    let before = listed(&client).await;
    let remembered = || {
        let removed = cluster.removed_objects();
        gone.iter().all(|id| removed.iter().any(|range| range.contains(id)))
    };
    cluster.until("agents remember what is gone", remembered).await;

    let coordinator = cluster.lose_metadata().await;
    let client = cluster.client().await;
    cluster.start_node(3).await;
    let rebuilt = || async {
        let status = client.rebuild().await;
        status.is_ok_and(|status| status.agents == 7 && status.waiting.is_none())
    };
    cluster.until_async("all agents have told", rebuilt).await;
    let mut after = listed(&client).await;
    for (object, old) in after.iter_mut().zip(&before) {
        // Labels are older than the commit, and have no checksum.
        assert!(object.created <= old.created && object.created + 60 > old.created);
        (object.checksum, object.created) = (old.checksum, old.created);
    }
    assert_eq!(after, before);
    all_are_readable(&client, &all).await;
    client.finish_rebuild().await.unwrap();
    all_are_readable(&client, &all).await;
    coordinator.shutdown();
    coordinator.wait().await.unwrap();
}
