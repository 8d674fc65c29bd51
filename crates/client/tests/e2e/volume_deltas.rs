//! Volumes whose replicas are deltas: what a commit sends, and what is read without a home before, during and after it.

use std::time::Duration;

use kintsu_client::{Client, VolumeAccess};
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{CommittedVolume, Durability, NodeState, RepairTarget};

use crate::cluster::{Cluster, RS};
use crate::volumes::{BLOCK, Disk, SIZE, stripe_name};

async fn commit(client: &Client, scheme: &str) -> CommittedVolume {
    client.commit_volume("disk", Some(scheme.into())).await.unwrap()
}

/// Some of each block of each stripe.
async fn write_everywhere(disk: &mut Disk) {
    for block in 0..SIZE / BLOCK {
        disk.write(block * BLOCK + 100 * (block % 7), 3000).await;
        disk.write(block * BLOCK + 1000, 500).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_sends_less_across_racks_if_replicas_are_deltas() {
    let cluster = Cluster::start(9, 3).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let mut sent = Vec::new();
    for scheme in ["optimal", "cau", "optimal"] {
        write_everywhere(&mut disk).await;
        let done = commit(&client, scheme).await;
        assert!(done.left.is_empty() && done.blocks > 0, "{done:?}");
        disk.check().await;
        sent.push(done.across_racks);
    }
    println!("bytes across racks at commits by optimal, cau, optimal: {sent:?}");
    assert!(sent[0] < sent[1] * 3 / 4, "{sent:?}");
    assert!(sent[2] < sent[1] * 3 / 4, "also of the blocks that the commits before have made: {sent:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_is_lost_before_and_after_commits_and_takes_nothing() {
    for durability in [Durability::Rack, Durability::Parity] {
        let mut cluster = Cluster::start(8, 4).await;
        let client = cluster.client().await;
        let mut disk = Disk::create(&cluster, RS, durability).await;
        disk.write(0, SIZE).await;
        let first = stripe_name(disk.volume.info(), 0);
        for turn in 0..3 {
            // Of the version that the last commit made, over and over.
            write_everywhere(&mut disk).await;
            disk.volume.write_zeroes(1200, 100).await.unwrap();
            disk.model[1200..1300].fill(0);
            disk.write(1250, 10).await;
            let home = cluster.home(&first, 0, turn).await;
            cluster.kill(home).await;
            disk.check().await;
            // Now replicas alone log for it.
            disk.write(u64::from(turn) * BLOCK + 200, 1000).await;
            disk.check().await;
            let reader = cluster.client().await.open_volume("disk", VolumeAccess::Read).await.unwrap();
            assert!(reader.read(0, SIZE).await.unwrap()[..] == disk.model[..]);
            cluster.start_node(home).await;
            disk.check().await;
            // It has what others logged meanwhile, deltas and new bytes.
            cluster
                .until_async("a commit of all", || async { commit(&client, "optimal").await.left.is_empty() })
                .await;
            disk.check().await;
            cluster.kill(home).await;
            disk.check().await;
            cluster.start_node(home).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_is_lost_after_a_commit_that_failed_and_takes_nothing() {
    // The commit must come before the coordinator takes a node for dead, however slow the machine is.
    let mut cluster = Cluster::with(8, 4, |config| config.dead_after = Duration::from_secs(10)).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let first = stripe_name(disk.volume.info(), 0);
    disk.write(1000, 5000).await;
    let home = cluster.home(&first, 0, 0).await;
    // A parity (of blocks 3 and 4) whose node does not log for the block.
    let mut away = cluster.home(&first, 0, 4).await;
    cluster.kill(away).await;
    if cluster.logged_by(away).iter().any(|(block, _)| block.index.0 == 0) {
        cluster.start_node(away).await;
        away = cluster.home(&first, 0, 3).await;
        cluster.kill(away).await;
    }
    // It is not known to be dead yet, so the commit waits for it; what comes then is not in what it took.
    let failed = commit(&client, "optimal").await;
    assert!(!failed.left.is_empty(), "{failed:?}");
    disk.write(3000, 5000).await;
    disk.write(10, 100).await;
    // Of other stripes these two may be the only nodes that log a block.
    let check_first = async |disk: &Disk| {
        let read = disk.volume.read(0, 3 * BLOCK).await.unwrap();
        assert!(read[..] == disk.model[..3 * BLOCK as usize]);
    };
    check_first(&disk).await;
    cluster.kill(home).await;
    check_first(&disk).await;
    // The block gets a new home, with what was logged for it.
    cluster.start_node(away).await;
    cluster.until_state(home, NodeState::Dead).await;
    disk.write(4000, 100).await;
    disk.check().await;
    let repair = client.repair(RepairTarget::Node(NodeId(home)), Method::Conventional, None).await.unwrap();
    let report = cluster.finish(repair).await;
    assert!(report.failed.is_empty(), "{report:?}");
    assert_ne!(cluster.home(&first, 0, 0).await, home);
    disk.check().await;
    write_everywhere(&mut disk).await;
    disk.check().await;
    cluster
        .until_async("a commit of all", || async { commit(&client, "optimal").await.left.is_empty() })
        .await;
    disk.check().await;
    // Parity is right: each node is done without.
    cluster.start_node(home).await;
    disk.check_without_each(&mut cluster, 8).await;
}

/// Commits come at any moment while homes go and come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn homes_are_lost_while_commits_are_under_way_and_take_nothing() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let first = stripe_name(disk.volume.info(), 0);
    for turn in 0..6u8 {
        let home = cluster.home(&first, 0, turn % 3).await;
        write_everywhere(&mut disk).await;
        let committing = tokio::spawn({
            let client = client.clone();
            async move { commit(&client, "optimal").await }
        });
        disk.write(u64::from(turn % 3) * BLOCK + 900, 2000).await;
        cluster.kill(home).await;
        disk.write(u64::from(turn % 3) * BLOCK + 2000, 500).await;
        disk.check().await;
        committing.await.unwrap();
        disk.check().await;
        cluster.start_node(home).await;
        disk.check().await;
    }
    cluster
        .until_async("a commit of all", || async { commit(&client, "optimal").await.left.is_empty() })
        .await;
    disk.check_without_each(&mut cluster, 8).await;
}

/// No write hole: a home is gone for good, and the coordinator starts again, while several blocks of each stripe are updated
/// and committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_home_is_lost_for_good_and_the_coordinator_restarts_amid_a_commit() {
    let mut cluster = Cluster::start(8, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let first = stripe_name(disk.volume.info(), 0);
    for turn in 0..12u8 {
        write_everywhere(&mut disk).await;
        let home = cluster.home(&first, 0, turn % 3).await;
        let client = cluster.client().await;
        // Its call may end with the coordinator.
        let committing = tokio::spawn(async move { client.commit_volume("disk", None).await.is_ok() });
        tokio::time::sleep(Duration::from_millis(7 * u64::from(turn))).await;
        match turn % 2 {
            0 => {
                cluster.kill(home).await;
                cluster.restart_coordinator().await;
            }
            _ => {
                cluster.restart_coordinator().await;
                cluster.kill(home).await;
            }
        }
        disk.check().await;
        println!("turn {turn}: the commit was answered: {}", committing.await.unwrap());
        disk.write(u64::from(turn % 3) * BLOCK + 2000, 500).await;
        disk.check().await;
        cluster.until_state(home, NodeState::Dead).await;
        let client = cluster.client().await;
        let repair = client.repair(RepairTarget::Node(NodeId(home)), Method::Pipeline, None).await.unwrap();
        let report = cluster.finish(repair).await;
        assert!(report.failed.is_empty(), "{report:?}");
        cluster.replace_dead_node(home).await;
        disk.check().await;
    }
    let client = cluster.client().await;
    cluster
        .until_async("a commit of all", || async { commit(&client, "optimal").await.left.is_empty() })
        .await;
    disk.check().await;
    // Parity is right: each node is done without.
    disk.check_without_each(&mut cluster, 8).await;
}
