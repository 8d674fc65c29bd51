//! Repair, drain and scrub, with the bytes compared on disk.

use std::collections::BTreeMap;
use std::time::Duration;

use kintsu_client::PutOptions;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, NodeAction, NodeState, RepairTarget};

use crate::bytes::{assert_same, content};
use crate::cluster::{CELL, Cluster, LRC, RS, options};
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
        // Reads may have caused the repair of some of them before.
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

/// The cost of a repair of one block is known in advance.
#[tokio::test(flavor = "multi_thread")]
async fn costs_are_those_of_the_method() {
    let mut cluster = Cluster::start(12, 12).await;
    let client = cluster.client().await;
    for (code, helpers) in [(RS, 3), (LRC, 3)] {
        // Whole blocks: every helper and the repaired one are equally long.
        let k = kintsu_code::parse(code).unwrap().k();
        let data = content(8, k * 4 * CELL as usize);
        for method in METHODS {
            let name = format!("{code}-{method}");
            cluster.put(&name, &data, options(code, Encoding::Online)).await.unwrap();
            let before = cluster.all_blocks().await;
            let (node, len) = (cluster.home(&name, 0, 1).await, 4 * u64::from(CELL));
            cluster.kill(node).await;
            cluster.until_state(node, NodeState::Dead).await;
            let target = RepairTarget::Object(name.clone());
            let report = cluster.finish(client.repair(target, method, CELL).await.unwrap()).await;
            assert_eq!(report.failed, Vec::<String>::new());
            assert_eq!((report.blocks, report.blocks_read), (1, helpers), "{name}");
            assert_eq!(report.bytes_read, helpers * len, "{name}");
            assert_eq!(report.bytes_moved, helpers * len, "{name}");
            // Every node has a rack of its own.
            assert_eq!(report.bytes_across_racks, helpers * len, "{name}");
            let most = if method == Method::Pipeline { len } else { (helpers - 1) * len };
            assert!(report.max_link_bytes >= len, "{name}: {report:?}");
            match method {
                Method::Conventional => assert_eq!(report.max_link_bytes, helpers * len, "{name}"),
                _ => assert!(report.max_link_bytes <= most, "{name}: {report:?}"),
            }
            let now = cluster.all_blocks().await;
            assert!(before.iter().all(|(id, (_, bytes))| now[id].1 == *bytes));
            cluster.start_node(node).await;
            client.remove(&name).await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stays_away_is_repaired_unasked() {
    let mut cluster = Cluster::with_grace(8, 4, Duration::from_secs(1)).await;
    let client = cluster.client().await;
    let data = content(9, 600_001);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let (before, node) = (cluster.all_blocks().await, cluster.home("o", 0, 2).await);
    cluster.kill(node).await;
    cluster
        .until_async("everything is repaired", || async {
            let now = cluster.all_blocks().await;
            now.values().all(|(home, _)| *home != node)
        })
        .await;
    assert_eq!(client.status().await.unwrap().degraded_stripes, 0);
    let now = cluster.all_blocks().await;
    assert!(before.iter().all(|(id, (_, bytes))| now[id].1 == *bytes));
    // The blocks that it still had are obsolete and are deleted.
    cluster.start_node(node).await;
    cluster.until("the old blocks are gone", || cluster.block_files_of(node).is_empty()).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

/// Blocks so long and slices so small that a test can act during the repair.
async fn long_repair(cluster: &mut Cluster) -> (Vec<u8>, u32) {
    let data = content(10, 3 * (16 << 20));
    let long = PutOptions { block_bytes: Some(16 << 20), ..options(RS, Encoding::Online) };
    cluster.put("o", &data, long).await.unwrap();
    let node = cluster.home("o", 0, 1).await;
    cluster.kill(node).await;
    cluster.until_state(node, NodeState::Dead).await;
    (data, node)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_dies_in_the_middle_of_a_repair() {
    for method in METHODS {
        let mut cluster = Cluster::start(9, 9).await;
        let client = cluster.client().await;
        let (data, _) = long_repair(&mut cluster).await;
        let before = cluster.all_blocks().await;
        let helper = cluster.home("o", 0, 2).await;
        let target = RepairTarget::Object("o".into());
        let jobs = client.repair(target, method, 4 << 10).await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        cluster.kill(helper).await;
        let report = cluster.finish(jobs).await;
        assert_eq!(report.failed, Vec::<String>::new(), "{method}");
        assert!(report.blocks >= 1, "{method}: {report:?}");
        let now = cluster.all_blocks().await;
        assert!(now.iter().all(|(id, (_, bytes))| before.get(id).is_none_or(|b| b.1 == *bytes)));
        assert_same(&cluster.get("o").await.unwrap(), &data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_restarts_in_the_middle_of_a_repair() {
    let mut cluster = Cluster::start(9, 9).await;
    let client = cluster.client().await;
    let (data, _) = long_repair(&mut cluster).await;
    let jobs = client.repair(RepairTarget::All, Method::Pipeline, 4 << 10).await.unwrap();
    tokio::time::sleep(Duration::from_millis(60)).await;
    cluster.restart_coordinator().await;
    let report = cluster.finish(jobs).await;
    assert_eq!(report.failed, Vec::<String>::new());
    cluster
        .until_async("the object is whole", || async {
            client.status().await.is_ok_and(|status| status.degraded_stripes == 0)
        })
        .await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn rot_in_a_helper_does_not_spread() {
    let mut cluster = Cluster::start(9, 9).await;
    let client = cluster.client().await;
    let data = content(11, 3 * 4 * CELL as usize);
    for method in METHODS {
        let name = method.to_string();
        cluster.put(&name, &data, options(RS, Encoding::Online)).await.unwrap();
        let before = cluster.all_blocks().await;
        let node = cluster.home(&name, 0, 0).await;
        cluster.kill(node).await;
        cluster.until_state(node, NodeState::Dead).await;
        Damage::Flip.apply(&cluster.block_path(&name, 0, 2).await);
        let target = RepairTarget::Object(name.clone());
        cluster.finish(client.repair(target, method, CELL).await.unwrap()).await;
        // The bad block is found by the repair or by this read, whichever comes first.
        assert_same(&cluster.get(&name).await.unwrap(), &data);
        cluster
            .until_async("both blocks are as they were", || async {
                let now = cluster.all_blocks().await;
                before.iter().all(|(id, (_, bytes))| now.get(id).is_some_and(|b| b.1 == *bytes))
                    && now.values().all(|(home, _)| *home != node)
            })
            .await;
        assert_same(&cluster.get(&name).await.unwrap(), &data);
        cluster.start_node(node).await;
        client.remove(&name).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_losses_than_the_code_bears_are_said_and_harm_nothing() {
    let mut cluster = Cluster::start(8, 8).await;
    let client = cluster.client().await;
    let data = content(12, 200_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let mut killed = Vec::new();
    for index in 0..3 {
        let node = cluster.home("o", 0, index).await;
        cluster.kill(node).await;
        cluster.until_state(node, NodeState::Dead).await;
        killed.push(node);
    }
    let target = RepairTarget::Object("o".into());
    let report = cluster.finish(client.repair(target, Method::Pipeline, CELL).await.unwrap()).await;
    assert!(report.failed.iter().any(|why| why.contains("left")), "{report:?}");
    assert!(client.status().await.unwrap().unreadable_stripes > 0);
    cluster.start_node(killed[0]).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    let target = RepairTarget::Object("o".into());
    let report = cluster.finish(client.repair(target, Method::Pipeline, CELL).await.unwrap()).await;
    assert_eq!(report.failed, Vec::<String>::new());
    assert_eq!(client.status().await.unwrap().degraded_stripes, 0);
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
async fn scrub_finds_and_repairs() {
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
        .until_async("both are repaired", || async {
            let now = cluster.all_blocks().await;
            now.len() == before.len() && now.iter().all(|(id, (_, bytes))| *bytes == before[id].1)
        })
        .await;
    let report = cluster.finish(client.scrub(None).await.unwrap()).await;
    assert_eq!(report.bad.len(), 0, "{report:?}");
}
