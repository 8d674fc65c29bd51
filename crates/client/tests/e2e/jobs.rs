//! Repair, drain and scrub, with the bytes compared on disk.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, NodeAction, NodeState, RepairTarget};

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, LRC, RS, options};
use crate::degraded::Damage;

const METHODS: [Method; 3] = [Method::Conventional, Method::Ppr, Method::Pipeline];

#[tokio::test(flavor = "multi_thread")]
async fn wiped_nodes_are_rebuilt_by_every_method() {
    let cluster = Cluster::start(12, 6).await;
    let client = cluster.client().await;
    let mut contents = BTreeMap::new();
    for (i, code) in [RS, LRC].into_iter().enumerate() {
        let data = content(i as u64, 700_001);
        cluster.put(code, &data, options(code, Encoding::Online)).await.unwrap();
        contents.insert(code, data);
    }
    for (i, method) in METHODS.into_iter().enumerate() {
        let before = cluster.all_blocks().await;
        let node = cluster.home(RS, 0, i as u8).await;
        cluster.finish(client.command_node(NodeId(node), NodeAction::Wipe).await.unwrap()).await;
        let held = before.values().filter(|(home, _)| *home == node).count() as u64;
        assert!(held > 0);
        for (code, data) in &contents {
            assert_same(&cluster.get(code).await.unwrap(), data);
        }
        let target = RepairTarget::Node(NodeId(node));
        let report = cluster.finish(client.repair(target, method, 16 << 10).await.unwrap()).await;
        assert_eq!(report.failed, Vec::<String>::new());
        assert_eq!(report.method, Some(method));
        // Reads may have had some of them mended before.
        assert!(report.blocks <= held, "{report:?}");
        assert!(report.blocks == 0 || (report.bytes_read > 0 && report.bytes_moved > 0), "{report:?}");
        cluster
            .until_async("every block is there again as it was", || async {
                let now = cluster.all_blocks().await;
                now.len() == before.len() && now.iter().all(|(id, (_, bytes))| *bytes == before[id].1)
            })
            .await;
        for (code, data) in &contents {
            assert_same(&cluster.get(code).await.unwrap(), data);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_repaired_on_others() {
    let mut cluster = Cluster::start(9, 9).await;
    let client = cluster.client().await;
    let data = content(3, 900_001);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    for method in METHODS {
        let before = cluster.all_blocks().await;
        let node = cluster.home("o", 0, 1).await;
        cluster.kill(node).await;
        cluster.until_state(node, NodeState::Dead).await;
        let target = RepairTarget::Node(NodeId(node));
        let report = cluster.finish(client.repair(target, method, 32 << 10).await.unwrap()).await;
        assert_eq!(report.failed, Vec::<String>::new());
        let now = cluster.all_blocks().await;
        assert_eq!(now.len(), before.len());
        for (id, (home, bytes)) in &now {
            assert_ne!(*home, node);
            assert_same(bytes, &before[id].1);
        }
        assert_same(&cluster.get("o").await.unwrap(), &data);
        cluster.start_node(node).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_blocks_of_a_stripe_at_once() {
    let mut cluster = Cluster::start(9, 9).await;
    let client = cluster.client().await;
    let data = content(4, 400_001);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    for method in METHODS {
        let (a, b) = (cluster.home("o", 0, 0).await, cluster.home("o", 0, 4).await);
        for node in [a, b] {
            cluster.kill(node).await;
            cluster.until_state(node, NodeState::Dead).await;
        }
        let target = RepairTarget::Object("o".into());
        let report = cluster.finish(client.repair(target, method, 32 << 10).await.unwrap()).await;
        assert_eq!(report.failed, Vec::<String>::new());
        assert!(report.blocks >= 2, "{report:?}");
        assert_same(&cluster.get("o").await.unwrap(), &data);
        assert_eq!(client.status().await.unwrap().degraded_stripes, 0);
        for node in [a, b] {
            cluster.start_node(node).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_moves_everything() {
    let cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let data = content(5, 900_001);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let node = cluster.home("o", 0, 0).await;
    let report = cluster.finish(client.command_node(NodeId(node), NodeAction::Drain).await.unwrap()).await;
    assert_eq!(report.failed, Vec::<String>::new());
    assert!(report.blocks > 0);
    assert!(cluster.all_blocks().await.values().all(|(home, _)| *home != node));
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster.until("the drained node is empty", || cluster.block_files_of(node).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scrub_finds_and_mends() {
    let cluster = Cluster::start(7, 4).await;
    let client = cluster.client().await;
    let data = content(6, 300_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let before = cluster.all_blocks().await;
    let report = cluster.finish(client.scrub(None).await.unwrap()).await;
    assert_eq!((report.bad.len(), report.blocks_checked), (0, before.len() as u64));
    for (index, damage) in [(0, Damage::Flip), (3, Damage::Truncate)] {
        damage.apply(&cluster.block_path("o", 0, index).await);
    }
    let report = cluster.finish(client.scrub(None).await.unwrap()).await;
    assert_eq!(report.bad.len(), 2, "{report:?}");
    cluster
        .until_async("both are mended", || async {
            let now = cluster.all_blocks().await;
            now.len() == before.len() && now.iter().all(|(id, (_, bytes))| *bytes == before[id].1)
        })
        .await;
    let report = cluster.finish(client.scrub(None).await.unwrap()).await;
    assert_eq!(report.bad.len(), 0, "{report:?}");
}
