//! Reads around lost, rotten and stale blocks.

use std::time::Duration;

use kintsu_client::{ClientError, PutOptions};
use kintsu_dag::NodeId;
use kintsu_plan::Rates;
use kintsu_store::{BlockStore, FileStore, Generation};
use kintsu_wire::message::{Encoding, NodeState};
use tokio::io::AsyncReadExt;

use crate::bytes::{assert_same, content};
use crate::cluster::{Cluster, LRC, RS, options};

#[tokio::test(flavor = "multi_thread")]
async fn as_many_nodes_as_the_code_bears() {
    let mut cluster = Cluster::start(5, 5).await;
    let data = content(1, 500_003);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    cluster.kill(1).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster.kill(3).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster.kill(4).await;
    match cluster.get("o").await {
        Err(ClientError::Unrecoverable(text)) => assert!(text.contains("left"), "{text}"),
        other => panic!("expected Unrecoverable, got {:?}", other.map(|b| b.len())),
    }
    // A node that came back is used again.
    cluster.start_node(4).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_without_parity_cannot_lose_data() {
    let mut cluster = Cluster::start(6, 3).await;
    let data = content(2, 300_000);
    cluster.put("o", &data, options(RS, Encoding::Offline)).await.unwrap();
    let home = cluster.home("o", 0, 0).await;
    cluster.kill(home).await;
    match cluster.get("o").await {
        Err(ClientError::Unrecoverable(text)) => assert!(text.contains("encode"), "{text}"),
        other => panic!("expected Unrecoverable, got {:?}", other.map(|b| b.len())),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_lost_block_comes_through_a_chain_of_helpers() {
    let mut cluster = Cluster::start(6, 6).await;
    let client = cluster.client().await;
    let (data, block) = (content(8, 8_000_000), 2 << 20);
    let long = PutOptions { block_bytes: Some(block), ..options(RS, Encoding::Offline) };
    cluster.put("o", &data, long).await.unwrap();
    cluster.finish(client.encode("o").await.unwrap()).await;
    let (first, second) = (cluster.home("o", 0, 1).await, cluster.home("o", 0, 2).await);
    cluster.kill(first).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    // A helper of the chain dies while it runs.
    let (mut write, mut read) = tokio::io::duplex(16 << 10);
    let getting = tokio::spawn(async move {
        let report = client.get("o", Some(block..2 * block), &mut write, |_, _| {}).await;
        drop(write);
        report
    });
    let mut got = vec![0; 10_000];
    read.read_exact(&mut got).await.unwrap();
    cluster.kill(second).await;
    read.read_to_end(&mut got).await.unwrap();
    assert_eq!(getting.await.unwrap().unwrap().bytes, block);
    assert_same(&got, &data[block as usize..2 * block as usize]);
}

/// A rotten block shows whether it was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_known_to_be_slow_is_not_read_through() {
    let mut cluster = Cluster::start(6, 6).await;
    let client = cluster.client().await;
    let (data, block) = (content(9, 800_000), 256 << 10);
    let long = PutOptions { block_bytes: Some(block), ..options(RS, Encoding::Offline) };
    cluster.put("o", &data, long).await.unwrap();
    cluster.finish(client.encode("o").await.unwrap()).await;
    let (lost, slow) = (cluster.home("o", 0, 1).await, cluster.home("o", 0, 0).await);
    let rate = |rate| std::num::NonZeroU64::new(rate).unwrap();
    let mut rates = Rates::even((0..6).map(NodeId), rate(1_000_000_000));
    rates.up.insert(NodeId(slow), rate(1_000));
    client.set_rates(&rates).await.unwrap();
    cluster.kill(lost).await;
    cluster.until_state(lost, NodeState::Dead).await;
    Damage::Flip.apply(&cluster.block_path("o", 0, 0).await);
    let mut got = Vec::new();
    let report = client.get("o", Some(block..2 * block), &mut got, |_, _| {}).await.unwrap();
    assert_same(&got, &data[block as usize..2 * block as usize]);
    assert_eq!((report.replanned, report.degraded_stripes), (0, 1), "the rotten block was not read");
}

#[tokio::test(flavor = "multi_thread")]
async fn local_groups_lose_blocks_of_several_groups() {
    let mut cluster = Cluster::start(10, 10).await;
    let data = content(3, 800_001);
    cluster.put("o", &data, options(LRC, Encoding::Online)).await.unwrap();
    for index in [0, 4, 1] {
        let node = cluster.home("o", 0, index).await;
        cluster.kill(node).await;
        assert_same(&cluster.get("o").await.unwrap(), &data);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rot_is_found_read_around_and_repaired() {
    let cluster = Cluster::start(7, 4).await;
    let data = content(4, 300_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    for (index, damage) in [(0, Damage::Flip), (1, Damage::Truncate), (2, Damage::Remove)] {
        let path = cluster.block_path("o", 0, index).await;
        let before = std::fs::read(&path).unwrap();
        damage.apply(&path);
        assert_same(&cluster.get("o").await.unwrap(), &data);
        let repaired = format!("block {index} is repaired after {damage:?}");
        cluster
            .until_async(&repaired, || async {
                let path = cluster.block_path("o", 0, index).await;
                std::fs::read(&path).is_ok_and(|now| now.get(4096..) == before.get(4096..))
            })
            .await;
        assert_same(&cluster.get("o").await.unwrap(), &data);
    }
}

/// A block with right checksums but wrong content, for example one of another stripe under this block's name.
#[tokio::test(flavor = "multi_thread")]
async fn a_sound_block_of_other_bytes_is_avoided_and_repaired() {
    let cluster = Cluster::start(7, 4).await;
    let data = content(14, 196_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    let path = cluster.block_path("o", 0, 1).await;
    let before = std::fs::read(&path).unwrap();
    write_other_bytes(&cluster, &path, "o", 1).await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster
        .until_async("the block is repaired", || async {
            let path = cluster.block_path("o", 0, 1).await;
            std::fs::read(&path).is_ok_and(|now| now.get(4096..) == before.get(4096..))
        })
        .await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
}

/// Replaces a block by another sound one of the same name and generation.
async fn write_other_bytes(cluster: &Cluster, path: &std::path::Path, name: &str, index: u8) {
    let stripe = cluster.stripe(name, 0).await;
    let block = stripe.blocks[usize::from(index)].clone().unwrap();
    let aside = tempfile::tempdir().unwrap();
    let store = FileStore::open(aside.path()).unwrap();
    let unit = stripe.layout.unit_bytes();
    let mut write = store.create(block.id, Generation(stripe.generation), block.len, unit, &[]).unwrap();
    write.write_at(0, &content(99, block.len as usize)).unwrap();
    write.finish(None).unwrap();
    std::fs::copy(kintsu_store::block_path(aside.path(), block.id), path).unwrap();
}

/// What can happen to a block file.
#[derive(Debug, Clone, Copy)]
pub enum Damage {
    Flip,
    Truncate,
    Remove,
}

impl Damage {
    /// Damages the file.
    pub fn apply(self, path: &std::path::Path) {
        let mut bytes = std::fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        match self {
            Self::Flip => bytes[middle] ^= 0x10,
            Self::Truncate => bytes.truncate(middle),
            Self::Remove => return std::fs::remove_file(path).unwrap(),
        }
        std::fs::write(path, bytes).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_dies_in_the_middle_of_a_read() {
    let mut cluster = Cluster::start(7, 4).await;
    let data = content(5, 36_000_000);
    let big = PutOptions { block_bytes: Some(2 << 20), ..options(RS, Encoding::Online) };
    cluster.put("o", &data, big).await.unwrap();
    let victim = cluster.home("o", 4, 0).await;
    let client = cluster.client().await;
    let (mut write, mut read) = tokio::io::duplex(64 << 10);
    let getting = tokio::spawn(async move {
        let report = client.get("o", None, &mut write, |_, _| {}).await;
        drop(write);
        report
    });
    let mut got = vec![0; 1_000_000];
    read.read_exact(&mut got).await.unwrap();
    cluster.kill(victim).await;
    read.read_to_end(&mut got).await.unwrap();
    let report = getting.await.unwrap().unwrap();
    assert!(report.replanned > 0 && report.degraded_stripes > 0, "{report:?}");
    assert_same(&got, &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_gets_everything() {
    let cluster = Cluster::start(6, 3).await;
    // More than all queues and socket buffers on the way hold.
    let data = content(6, 50_000_000);
    let big = PutOptions { block_bytes: Some(2 << 20), ..options(RS, Encoding::Online) };
    cluster.put("o", &data, big).await.unwrap();
    let client = cluster.client().await;
    let (mut write, mut read) = tokio::io::duplex(16 << 10);
    let getting = tokio::spawn(async move { client.get("o", None, &mut write, |_, _| {}).await });
    let mut got = vec![0; 100_000];
    read.read_exact(&mut got).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    read.read_to_end(&mut got).await.unwrap();
    assert_eq!(getting.await.unwrap().unwrap().bytes, data.len() as u64);
    assert_same(&got, &data);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_restarts_and_objects_are_still_there() {
    let mut cluster = Cluster::start(6, 3).await;
    let data = content(7, 300_000);
    cluster.put("o", &data, options(RS, Encoding::Online)).await.unwrap();
    cluster.restart_coordinator().await;
    assert_same(&cluster.get("o").await.unwrap(), &data);
    cluster.put("p", &data, options(RS, Encoding::Online)).await.unwrap();
    assert_same(&cluster.get("p").await.unwrap(), &data);
}
