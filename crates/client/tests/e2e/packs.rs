//! Small objects that come at the same time share stripes, and are objects like all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kintsu_client::{Client, ClientError, PutOptions};
use kintsu_plan::Method;
use kintsu_wire::message::{Attributes, Encoding, NodeAction, ObjectInfo, RepairTarget};

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, RS, options};

type Objects = BTreeMap<String, Vec<u8>>;

/// As many objects, of 1 to 4000 bytes.
fn objects(count: u64) -> Objects {
    (0..count).map(|i| (format!("small/{i:02}"), content(i, 1 + (i * 977 % 4000) as usize))).collect()
}

async fn put(
    client: &Client,
    name: &str,
    data: &[u8],
    options: PutOptions,
) -> Result<ObjectInfo, ClientError> {
    client.put(Arc::new(Bytes::copy_from_slice(data)), name, options, |_, _| {}).await
}

/// Puts all at the same time by one client.
async fn put_all(
    client: &Client,
    objects: &Objects,
    options: &PutOptions,
) -> Vec<Result<ObjectInfo, ClientError>> {
    let puts = objects.iter().map(|(name, data)| put(client, name, data, options.clone()));
    futures::future::join_all(puts).await
}

async fn all_are_readable(cluster: &Cluster, objects: &Objects) {
    for (name, data) in objects {
        assert_same(&cluster.get(name).await.unwrap(), data);
    }
}

async fn stripes(client: &Client) -> u64 {
    client.status().await.unwrap().stripes
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_come_together_share_stripes_and_are_read_alone() {
    let mut cluster = Cluster::start(9, 3).await;
    let client = cluster.client().await;
    let (all, mut options) = (objects(32), options(RS, Encoding::Online));
    options.attributes = Attributes { content_type: Some("text/x".into()), ..Attributes::default() };
    for put in put_all(&client, &all, &options).await {
        let object = put.unwrap();
        assert_eq!((object.stripes, object.encoded, object.code.as_str()), (1, true, RS));
        assert!(object.checksum.is_some());
        assert_eq!(client.info(&object.name).await.unwrap(), object);
    }
    assert!(stripes(&client).await <= 12, "{} stripes of 32 objects", stripes(&client).await);
    all_are_readable(&cluster, &all).await;
    for (name, data) in &all {
        let len = data.len();
        for range in [0..1.min(len), len / 3..len / 2, len - 1..len, len / 4..len, len..len] {
            let got = cluster.get_range(name, range.start as u64..range.end as u64).await.unwrap();
            assert_same(&got, &data[range]);
        }
        let beyond = cluster.get_range(name, 0..len as u64 + 1).await;
        assert!(matches!(beyond, Err(ClientError::Invalid(_))), "{beyond:?}");
    }

    // Without two nodes each is decoded; after a repair all is as before.
    let victims = [cluster.home("small/07", 0, 0).await, cluster.home("small/07", 0, 3).await];
    for victim in victims {
        cluster.kill(victim).await;
        cluster.until_state(victim, kintsu_wire::message::NodeState::Dead).await;
    }
    all_are_readable(&cluster, &all).await;
    for victim in victims {
        let target = RepairTarget::Node(kintsu_dag::NodeId(victim));
        let report = cluster.finish(client.repair(target, Method::Auto, None).await.unwrap()).await;
        assert!(report.failed.is_empty(), "{report:?}");
    }
    assert_eq!(client.status().await.unwrap().degraded_stripes, 0);
    let drained = cluster.home("small/07", 0, 0).await;
    let drain = client.command_node(kintsu_dag::NodeId(drained), NodeAction::Drain).await.unwrap();
    let report = cluster.finish(drain).await;
    assert!(report.failed.is_empty(), "{report:?}");
    assert_ne!(cluster.home("small/07", 0, 0).await, drained);
    all_are_readable(&cluster, &all).await;

    // One after the other goes; the others stay.
    for victim in victims {
        cluster.start_node(victim).await;
    }
    let mut left = all.clone();
    for name in all.keys() {
        client.remove(name).await.unwrap();
        left.remove(name);
        if left.len() % 8 == 0 {
            all_are_readable(&cluster, &left).await;
        }
    }
    assert_eq!(stripes(&client).await, 0);
    cluster.until("nothing is left of them", || cluster.block_files().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_becomes_of_one_object_does_not_depend_on_the_others() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let (all, new) = (objects(24), options(RS, Encoding::Online));
    let old: Objects = all.iter().step_by(3).map(|(name, _)| (name.clone(), b"old".to_vec())).collect();
    for put in put_all(&client, &old, &new).await {
        put.unwrap();
    }
    for (name, put) in all.keys().zip(put_all(&client, &all, &new).await) {
        match put {
            Ok(_) => assert!(!old.contains_key(name)),
            Err(ClientError::Exists(why)) => assert!(old.contains_key(name) && why.contains(name), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    for (name, data) in &all {
        assert_same(&cluster.get(name).await.unwrap(), old.get(name).unwrap_or(data));
    }
    // A bad name is an error of its own put alone.
    let replace = PutOptions { replace: true, ..new };
    let mut with_bad = all.clone();
    with_bad.insert("small/03\n".into(), b"bad".to_vec());
    for (name, put) in with_bad.keys().zip(put_all(&client, &with_bad, &replace).await) {
        match put {
            Ok(_) => assert!(all.contains_key(name)),
            Err(ClientError::Invalid(_)) => assert_eq!(name, "small/03\n"),
            other => panic!("{other:?}"),
        }
    }
    all_are_readable(&cluster, &all).await;
    // Those that were given up before they were written never appear; nobody waits for them.
    let gone = objects(40).into_iter().map(|(name, data)| (format!("gone/{name}"), data)).collect();
    assert!(
        tokio::time::timeout(std::time::Duration::ZERO, put_all(&client, &gone, &replace)).await.is_err()
    );
    put(&client, "last", b"last", replace).await.unwrap();
    cluster
        .until_async("no put is under way", || async { client.status().await.unwrap().puts_pending == 0 })
        .await;
    assert!(client.list("gone/", None, 100).await.unwrap().objects.is_empty());
    all_are_readable(&cluster, &all).await;
    for name in all.keys() {
        client.remove(name).await.unwrap();
    }
    client.remove("last").await.unwrap();
    cluster.until("nothing is left of them", || cluster.block_files().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_dies_and_the_coordinator_restarts_amid_small_puts() {
    let mut cluster = Cluster::start(9, 3).await;
    let client = cluster.client().await;
    let options = PutOptions { replace: true, ..options(RS, Encoding::Online) };
    let all = objects(300);
    let puts = {
        let (client, all) = (client.clone(), all.clone());
        tokio::spawn(async move {
            let puts = all.iter().map(|(name, data)| put(&client, name, data, options.clone()));
            let put: Vec<_> = futures::StreamExt::collect(futures::StreamExt::buffered(
                futures::stream::iter(puts.collect::<Vec<_>>()),
                16,
            ))
            .await;
            put
        })
    };
    let visible = || async { client.status().await.unwrap().objects };
    cluster.until_async("some are there", || async { visible().await >= 50 }).await;
    cluster.kill(4).await;
    cluster.until_async("more than a hundred are there", || async { visible().await >= 120 }).await;
    cluster.restart_coordinator().await;
    let (mut there, mut failed) = (Objects::new(), 0);
    for ((name, data), put) in all.into_iter().zip(puts.await.unwrap()) {
        match put {
            Ok(_) => drop(there.insert(name, data)),
            Err(_) => failed += 1,
        }
    }
    // A put that has not begun fails at once while the coordinator is away.
    assert!(there.len() > 100, "{failed} failed");
    all_are_readable(&cluster, &there).await;
    cluster.restart_coordinator().await;
    all_are_readable(&cluster, &there).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_metadata_are_rebuilt_from_the_labels_of_packs() {
    let mut cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let (mut all, mut options) = (objects(40), options(RS, Encoding::Online));
    options.attributes =
        Attributes { user: [("k".to_owned(), "v".to_owned())].into(), ..Attributes::default() };
    let mut ids = BTreeMap::new();
    for put in put_all(&client, &all, &options).await {
        let put = put.unwrap();
        ids.insert(put.name, put.id);
    }
    // Some are removed, some replaced, by themselves and with others.
    let replace = PutOptions { replace: true, ..options.clone() };
    let again: Objects =
        all.keys().step_by(5).map(|name| (name.clone(), name.clone().into_bytes())).collect();
    for put in put_all(&client, &again, &replace).await {
        put.unwrap();
    }
    let mut gone: Vec<u64> = again.keys().map(|name| ids[name]).collect();
    all.extend(again);
    let removed: Vec<_> = all.keys().skip(1).step_by(4).cloned().collect();
    for name in &removed {
        gone.push(client.remove(name).await.unwrap().id);
        all.remove(name);
    }
    let before = client.list("", None, 100).await.unwrap().objects;
    // Agents are told of what is gone though they have nothing to delete.
    let remembered = || {
        let removed = cluster.removed_objects();
        gone.iter().all(|id| removed.iter().any(|range| range.contains(id)))
    };
    cluster.until("agents remember what is gone", remembered).await;
    let deleted = || async { client.status().await.unwrap().garbage == 0 };
    cluster.until_async("what nobody needs is deleted", deleted).await;
    let blocks = cluster.block_files().len();

    let coordinator = cluster.lose_metadata().await;
    let client = cluster.client().await;
    let rebuilt = || async {
        let status = client.rebuild().await;
        status.is_ok_and(|status| status.agents == 6 && status.waiting.is_none())
    };
    cluster.until_async("all agents have told", rebuilt).await;
    let mut after = client.list("", None, 100).await.unwrap().objects;
    // Labels are older than the commit, and have no checksum.
    for (object, old) in after.iter_mut().zip(&before) {
        assert!(object.created <= old.created && object.created + 60 > old.created);
        (object.checksum, object.created) = (old.checksum, old.created);
    }
    assert_eq!(after, before);
    all_are_readable(&cluster, &all).await;
    assert_eq!(cluster.block_files().len(), blocks);
    client.finish_rebuild().await.unwrap();
    all_are_readable(&cluster, &all).await;
    for name in all.keys() {
        client.remove(name).await.unwrap();
    }
    cluster.until("nothing is left of them", || cluster.block_files().is_empty()).await;
    coordinator.shutdown();
    coordinator.wait().await.unwrap();
}
