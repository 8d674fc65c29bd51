//! A coordinator, real agents and a real client in one process: objects survive all losses that their code
//! tolerates, and after every kind of job every block is where the metadata say.

#[allow(dead_code)] // other suites use the rest of it
use crate::lab;

use std::collections::BTreeSet;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, FaultKind, NodeAction, NodeState, RepairTarget};
use lab::Lab;

const SIZE: usize = 1_000_003;

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_died_are_recovered_by_every_method() {
    let mut lab = Lab::start(9, 3, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    lab.put("empty", 0, "rs:n=6,k=3", Encoding::Online).await;
    lab.put("one", 1, "azure-lrc:n=8,k=4,r=2", Encoding::Online).await;
    lab.put("lrc", SIZE, "azure-lrc:n=8,k=4,r=2", Encoding::Online).await;
    for (node, method) in [(0, Method::Conventional), (4, Method::Ppr), (8, Method::Pipeline)] {
        lab.kill(node).await;
        lab.check_all().await;
        let placed = lab.node(node).await.placed_blocks;
        let report = lab.repair(RepairTarget::Node(NodeId(node)), method).await;
        assert_eq!(report.failed, [""; 0]);
        assert_eq!((report.blocks, report.method), (placed, Some(method)));
        assert!(report.blocks_read >= report.blocks && report.bytes_moved >= report.max_link_bytes);
        assert_eq!(lab.node(node).await.placed_blocks, 0);
        lab.check_all().await;
        lab.check_places().await;
        // The node comes back with blocks that have become garbage, and deletes them.
        lab.revive(node).await;
        lab.until("the garbage is gone", async |lab| lab.client.status().await.unwrap().garbage == 0).await;
    }
    let again = lab.repair(RepairTarget::All, Method::Pipeline).await;
    assert_eq!((again.blocks, again.failed.len()), (0, 0));
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_is_repaired_without_being_asked_after_the_grace_time() {
    let mut lab = Lab::start(8, 4, Duration::from_millis(300)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    lab.kill(2).await;
    lab.until("it is repaired", async |lab| lab.node(2).await.placed_blocks == 0).await;
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rot_and_missing_files_are_found_by_a_scrub_and_repaired_in_place() {
    let mut lab = Lab::start(7, 3, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    let clean = lab.scrub().await;
    assert_eq!((clean.bad.len(), clean.failed.len()), (0, 0));
    let stripes = lab.client.stripes("a", 0, 10).await.unwrap().stripes;
    let block = |stripe: usize, index: usize| stripes[stripe].blocks[index].clone().unwrap();
    let (flipped, cut, gone) = (block(0, 1), block(0, 4), block(1, 0));
    lab.damage(&flipped, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    lab.damage(&cut, |bytes| bytes.truncate(bytes.len() / 3));
    lab.remove(&gone);
    let report = lab.scrub().await;
    assert_eq!(report.failed, [""; 0]);
    assert_eq!(report.blocks, 3);
    let found: BTreeSet<_> = report.bad.iter().map(|b| b.id).collect();
    assert_eq!(found, BTreeSet::from([flipped.id, cut.id, gone.id]));
    assert!(report.bad.iter().any(|b| b.id == gone.id && b.kind == FaultKind::Missing));
    assert_eq!(lab.scrub().await.bad, []);
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rot_on_a_helper_is_repaired_besides_what_was_repaired() {
    let mut lab = Lab::start(8, 4, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    let stripe = lab.client.stripes("a", 0, 1).await.unwrap().stripes.remove(0);
    let blocks: Vec<_> = stripe.blocks.into_iter().flatten().collect();
    lab.kill(blocks[0].node.0).await;
    for block in &blocks[1..3] {
        lab.damage(block, |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x80;
        });
    }
    let report = lab.repair(RepairTarget::Node(blocks[0].node), Method::Pipeline).await;
    assert_eq!(report.failed, [""; 0]);
    lab.check_all().await;
    // What a reader has found and reported meanwhile is repaired beside the scrub.
    lab.scrub().await;
    lab.check_places().await;
    assert_eq!(lab.scrub().await.bad, []);
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_losses_are_told_and_change_nothing() {
    let mut lab = Lab::start(6, 3, Duration::from_secs(600)).await;
    lab.put("a", 60_000, "rs:n=6,k=3", Encoding::Online).await;
    for node in 0..4 {
        lab.kill(node).await;
    }
    let report = lab.repair(RepairTarget::Object("a".into()), Method::Pipeline).await;
    assert_eq!(report.blocks, 0);
    assert!(report.failed[0].contains("left") && report.failed[0].contains("\"a\""), "{:?}", report.failed);
    let status = lab.client.status().await.unwrap();
    assert_eq!((status.degraded_stripes, status.unreadable_stripes, status.dead), (1, 1, 4));
    for node in 0..4 {
        lab.revive(node).await;
    }
    lab.check_all().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nodes_are_few_as_many_blocks_are_repaired_as_have_a_place() {
    let mut lab = Lab::start(7, 7, Duration::from_secs(600)).await;
    lab.put("a", 60_000, "rs:n=6,k=3", Encoding::Online).await;
    let homes: Vec<_> = lab.client.stripes("a", 0, 1).await.unwrap().stripes.remove(0).blocks;
    for block in homes.iter().flatten().take(2) {
        lab.kill(block.node.0).await;
    }
    let report = lab.repair(RepairTarget::All, Method::Pipeline).await;
    assert_eq!((report.blocks, report.failed.len()), (1, 1));
    assert!(report.failed[0].contains("usable nodes"), "{:?}", report.failed);
    lab.check_all().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_encoded_where_its_data_are() {
    let mut lab = Lab::start(8, 4, Duration::from_secs(600)).await;
    lab.put("off", SIZE, "rs:n=6,k=3", Encoding::Offline).await;
    assert!(!lab.client.info("off").await.unwrap().encoded);
    let report = lab.encode("off").await;
    assert_eq!(report.failed, [""; 0]);
    assert!(report.blocks > 0 && report.bytes_moved > 0);
    assert!(lab.client.info("off").await.unwrap().encoded);
    assert_eq!(lab.encode("off").await.blocks, 0);
    lab.kill(1).await;
    lab.kill(6).await;
    lab.check_all().await;
    let report = lab.repair(RepairTarget::All, Method::Ppr).await;
    assert_eq!(report.failed, [""; 0]);
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_is_empty_and_stays_so() {
    let mut lab = Lab::start(8, 4, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    let placed = lab.node(3).await.placed_blocks;
    let report = lab.command(3, NodeAction::Drain).await;
    assert_eq!((report.blocks, report.failed.len()), (placed, 0));
    assert_eq!((lab.node(3).await.placed_blocks, lab.node(3).await.state), (0, NodeState::Draining));
    lab.put("b", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    assert_eq!(lab.node(3).await.placed_blocks, 0);
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_node_is_filled_again() {
    let mut lab = Lab::start(6, 3, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    let placed = lab.node(5).await.placed_blocks;
    lab.command(5, NodeAction::Wipe).await;
    assert_eq!(lab.node(5).await.lost_blocks, placed);
    lab.check_all().await;
    let report = lab.repair(RepairTarget::Node(NodeId(5)), Method::Pipeline).await;
    assert_eq!((report.blocks, report.failed.len()), (placed, 0));
    assert_eq!(lab.node(5).await.lost_blocks, 0);
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_that_restarts_knows_everything_and_its_agents_stay() {
    let mut lab = Lab::start(7, 3, Duration::from_secs(600)).await;
    lab.put("a", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    lab.restart_coordinator().await;
    lab.check_all().await;
    lab.put("b", SIZE, "rs:n=6,k=3", Encoding::Online).await;
    lab.kill(0).await;
    let report = lab.repair(RepairTarget::All, Method::Pipeline).await;
    assert_eq!(report.failed, [""; 0]);
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}
