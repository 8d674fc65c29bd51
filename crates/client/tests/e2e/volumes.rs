//! Volumes: what is read is what was written last, whatever happens in between.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kintsu_client::{ClientError, Options, Volume, VolumeAccess};
use kintsu_code::Definition;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{
    CauseKind, ChangeSetting, CreateVolume, Durability, LostLog, NodeAction, NodeState, RepairTarget,
    VolumeInfo,
};

use crate::cluster::{Cluster, RS};

pub const BLOCK: u64 = 64 << 10;
pub const SIZE: u64 = 4 << 20;

/// A volume and what should be in it.
pub struct Disk {
    pub volume: Volume,
    pub model: Vec<u8>,
    seed: u64,
}

impl Disk {
    async fn open(cluster: &Cluster, access: VolumeAccess) -> Self {
        let volume = cluster.client().await.open_volume("disk", access).await.unwrap();
        Self { volume, model: vec![0; SIZE as usize], seed: 1 }
    }

    pub async fn create(cluster: &Cluster, code: &str, durability: Durability) -> Self {
        cluster.client().await.create_volume(&wanted(code, durability)).await.unwrap();
        Self::open(cluster, VolumeAccess::Write).await
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    pub async fn write(&mut self, offset: u64, len: u64) {
        let bytes: Vec<u8> = (0..len).map(|_| self.random(256) as u8).collect();
        self.model[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
        self.volume.write(offset, bytes.into()).await.unwrap();
    }

    /// Writes `count` times somewhere.
    async fn scatter(&mut self, count: u64) {
        for _ in 0..count {
            let len = 1 + self.random(100_000);
            let offset = self.random(SIZE - len);
            self.write(offset, len).await;
        }
    }

    pub async fn check(&self) {
        self.check_as(&self.volume).await;
    }

    /// Each of the nodes is done without.
    pub async fn check_without_each(&self, cluster: &mut Cluster, nodes: u32) {
        for node in 0..nodes {
            cluster.kill(node).await;
            self.check().await;
            cluster.start_node(node).await;
        }
    }

    async fn check_as(&self, volume: &Volume) {
        let got = volume.read(0, SIZE).await.unwrap();
        let wrong = got.iter().zip(&self.model).position(|(got, right)| got != right);
        assert_eq!(wrong, None, "first wrong byte");
    }
}

fn wanted(code: &str, durability: Durability) -> CreateVolume {
    CreateVolume {
        name: "disk".into(),
        size: SIZE,
        code: code.into(),
        block_bytes: BLOCK,
        durability,
        scheme: None,
    }
}

async fn commit(cluster: &Cluster) -> u64 {
    let done = cluster.client().await.commit_volume("disk", None).await.unwrap();
    assert!(done.left.is_empty(), "{:?}", done.left);
    done.blocks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_written_last_is_read_before_and_after_commits() {
    let mut cluster = Cluster::start(7, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.check().await;
    disk.scatter(20).await;
    disk.check().await;
    let reader = cluster.client().await.open_volume("disk", VolumeAccess::Read).await.unwrap();
    disk.check_as(&reader).await;
    assert!(commit(&cluster).await > 0);
    disk.check().await;
    disk.check_as(&reader).await;
    assert_eq!(commit(&cluster).await, 0, "nothing is dirty");
    disk.scatter(10).await;
    disk.check_as(&reader).await;
    // Zeros.
    disk.volume.write_zeroes(100_000, 300_000).await.unwrap();
    disk.model[100_000..400_000].fill(0);
    disk.check().await;
    assert!(commit(&cluster).await > 0);
    disk.check().await;
    // Parity is right: each node is done without.
    disk.check_without_each(&mut cluster, 7).await;
    disk.volume.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_with_groups_and_sub_blocks_are_updated_too() {
    for code in ["azure-lrc:n=10,k=6,r=3", "clay:n=6,k=4,d=5"] {
        let mut cluster = Cluster::start(11, 6).await;
        let mut disk = Disk::create(&cluster, code, Durability::Node).await;
        disk.write(100, 70_000).await;
        disk.scatter(6).await;
        commit(&cluster).await;
        disk.scatter(6).await;
        assert!(commit(&cluster).await > 0, "{code}");
        disk.check().await;
        let home = cluster.home(&stripe_name(disk.volume.info(), 0), 0, 0).await;
        cluster.kill(home).await;
        disk.check().await;
    }
}

pub fn stripe_name(info: &VolumeInfo, index: u64) -> String {
    format!(".volume/{:016x}/{index:016x}", info.id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_die_take_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(8, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.scatter(20).await;
    let first = stripe_name(disk.volume.info(), 0);
    // The home of a block with updates that are only logged.
    disk.write(1000, 5000).await;
    let home = cluster.home(&first, 0, 0).await;
    cluster.kill(home).await;
    disk.check().await;
    disk.write(2000, 5000).await;
    disk.check().await;
    disk.scatter(10).await;
    disk.check().await;
    // It comes back, with a log that lacks what was written meanwhile.
    cluster.start_node(home).await;
    disk.check().await;
    commit(&cluster).await;
    disk.check().await;
    disk.scatter(5).await;
    // Another one dies, and its blocks are repaired elsewhere, with their logs.
    let other = cluster.home(&first, 0, 1).await;
    disk.write(BLOCK + 1, 300).await;
    cluster.kill(other).await;
    cluster.until_state(other, NodeState::Dead).await;
    let client = cluster.client().await;
    let report = cluster
        .finish(client.repair(RepairTarget::Node(NodeId(other)), Method::Conventional, None).await.unwrap())
        .await;
    assert!(report.failed.is_empty(), "{report:?}");
    assert_ne!(cluster.home(&first, 0, 1).await, other);
    disk.check().await;
    disk.scatter(5).await;
    commit(&cluster).await;
    disk.check().await;
    let reader = cluster.client().await.open_volume("disk", VolumeAccess::Read).await.unwrap();
    disk.check_as(&reader).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parities_follow_with_each_write_if_that_is_the_scheme() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let scheme = |name: &str| CreateVolume { scheme: Some(name.into()), ..wanted(RS, Durability::Rack) };
    let refused = client.create_volume(&scheme("raid")).await.unwrap_err();
    assert!(
        matches!(&refused, ClientError::Invalid(said) if said.contains("baseline, parix, data-delta")),
        "{refused}"
    );
    assert_eq!(client.create_volume(&scheme("baseline")).await.unwrap().scheme, "baseline");
    let mut disk = Disk::open(&cluster, VolumeAccess::Write).await;
    disk.scatter(12).await;
    let burst = (0..16u64).map(|i| disk.volume.write(i * 5000, vec![i as u8 + 1; 5000].into()));
    futures::future::join_all(burst).await.into_iter().collect::<Result<Vec<()>, _>>().unwrap();
    (0..16).for_each(|i| disk.model[i * 5000..(i + 1) * 5000].fill(i as u8 + 1));
    assert_eq!(commit(&cluster).await, 0, "nothing is dirty");
    disk.check().await;
    // The only node with a log of the block is gone, and nothing that was acknowledged with it.
    let first = stripe_name(disk.volume.info(), 0);
    let home = cluster.home(&first, 0, 0).await;
    cluster.kill(home).await;
    disk.check().await;
    // The other blocks of the stripe can be written to.
    disk.write(BLOCK + 10, 300).await;
    disk.check().await;
    cluster.start_node(home).await;
    disk.write(10, 5000).await;
    disk.scatter(5).await;
    disk.check().await;
    assert_eq!(commit(&cluster).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parity_nodes_know_deltas_if_that_is_the_scheme() {
    let mut cluster = Cluster::start(9, 4).await;
    let client = cluster.client().await;
    let scheme = Some("parix".into());
    client.create_volume(&CreateVolume { scheme, ..wanted(RS, Durability::Rack) }).await.unwrap();
    let mut disk = Disk::open(&cluster, VolumeAccess::Write).await;
    let commit = async || client.commit_volume("disk", None).await.unwrap();
    // All stripes whole, so that what follows is logged; then some of it twice.
    disk.write(0, SIZE).await;
    for _ in 0..2 {
        disk.scatter(12).await;
        disk.write(1000, 5000).await;
        disk.write(3000, 500).await;
        disk.check().await;
        let done = commit().await;
        assert!(done.left.is_empty() && done.blocks > 0, "{done:?}");
        assert_eq!(done.across_racks, 0, "parity nodes had all that they needed");
        disk.check().await;
    }
    // A home is gone: its log is at the parities. Other nodes have logs then that lack what was replaced.
    disk.write(2000, 5000).await;
    let first = stripe_name(disk.volume.info(), 0);
    let home = cluster.home(&first, 0, 0).await;
    cluster.kill(home).await;
    disk.check().await;
    disk.write(4000, 5000).await;
    disk.scatter(6).await;
    cluster.start_node(home).await;
    disk.check().await;
    settle(&cluster).await;
    disk.check().await;
    // A parity's node loses its log.
    disk.write(100, 9000).await;
    let parity = cluster.home(&first, 0, 4).await;
    cluster.replace_node(parity).await;
    disk.write(8000, 2000).await;
    settle(&cluster).await;
    disk.check().await;
    // Parity is right: each node is done without.
    disk.check_without_each(&mut cluster, 9).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_write_to_a_stripe_waits_for_the_coordinator() {
    let mut cluster = Cluster::start(7, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    // Now this handle knows that no stripe exists, and need not ask.
    disk.volume.trim(0, SIZE).await.unwrap();
    cluster.stop_coordinator().await;
    let volume = disk.volume.clone();
    let mut write = tokio::spawn(async move { volume.write(1000, vec![7; 5000].into()).await });
    let early = tokio::time::timeout(Duration::from_secs(1), &mut write).await;
    assert!(early.is_err(), "{early:?}");
    cluster.restart_coordinator().await;
    write.await.unwrap().unwrap();
    disk.model[1000..6000].fill(7);
    disk.check().await;
    disk.write(2000, 100).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zeros_are_stored_where_a_write_that_failed_may_still_appear() {
    let mut cluster = Cluster::start(7, 4).await;
    cluster.client().await.create_volume(&wanted(RS, Durability::Rack)).await.unwrap();
    let volume = cluster.impatient_client().await.open_volume("disk", VolumeAccess::Write).await.unwrap();
    let stripe = volume.info().stripe_bytes();
    volume.allocated(0, SIZE).await.unwrap();
    cluster.stop_coordinator().await;
    volume.write(1000, vec![7; 5000].into()).await.unwrap_err();
    cluster.restart_coordinator().await;
    let zeroed = || async { volume.write_zeroes(1000, 5000).await.is_ok() };
    cluster.until_async("the coordinator is back", zeroed).await;
    // Elsewhere nothing is on its way.
    volume.write_zeroes(stripe, stripe).await.unwrap();
    let stored: Vec<_> = volume.allocated(0, SIZE).await.unwrap();
    let stored: Vec<_> = stored.into_iter().map(|extent| (extent.len, extent.allocated)).collect();
    assert_eq!(stored, [(stripe, true), (SIZE - stripe, false)]);
    assert!(volume.read(0, stripe).await.unwrap().iter().all(|byte| *byte == 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_without_a_home_do_not_ask_the_coordinator_again() {
    let mut cluster = Cluster::start(8, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    disk.scatter(5).await;
    let home = cluster.home(&stripe_name(disk.volume.info(), 0), 0, 0).await;
    cluster.kill(home).await;
    // Its logs move to other nodes, and this handle learns where they are; then it knows all that it needs.
    cluster.until_state(home, NodeState::Dead).await;
    for block in 0..SIZE / BLOCK {
        disk.write(block * BLOCK, 100).await;
    }
    disk.check().await;
    disk.check().await;
    let first = stripe_name(disk.volume.info(), 0);
    let helpers = [1, 2, 3, 4].map(async |block| cluster.home(&first, 0, block).await);
    let helpers = futures::future::join_all(helpers).await;
    cluster.stop_coordinator().await;
    disk.check().await;
    cluster.restart_coordinator().await;
    // A read that has to go around a helper does not forget the others. (Two of the four may have the logs too.)
    let mut around = 0;
    for helper in helpers {
        // One that has not missed any node.
        let volume = cluster.client().await.open_volume("disk", VolumeAccess::Read).await.unwrap();
        disk.check_as(&volume).await;
        disk.check_as(&volume).await;
        cluster.stop_coordinator().await;
        cluster.kill(helper).await;
        let read = || tokio::time::timeout(Duration::from_secs(5), volume.read(0, BLOCK));
        if let Ok(read_once) = read().await {
            around += 1;
            for got in [read_once, read().await.unwrap()] {
                assert!(got.unwrap() == disk.model[..BLOCK as usize]);
            }
        }
        cluster.restart_coordinator().await;
        cluster.start_node(helper).await;
    }
    assert!(around > 0);
    // What it knows ends with the epoch: the home comes back, its block is changed, and it goes again.
    for _ in 0..2 {
        cluster.start_node(home).await;
        disk.scatter(5).await;
        disk.write(0, 5000).await;
        settle(&cluster).await;
        disk.check().await;
        cluster.kill(home).await;
        disk.check().await;
        cluster.until_state(home, NodeState::Dead).await;
        disk.write(100, 100).await;
        // Other blocks of the stripes change meanwhile.
        disk.check().await;
        disk.write(BLOCK + 9, 5000).await;
        disk.write(2 * BLOCK + 9, 5000).await;
        cluster.client().await.commit_volume("disk", None).await.unwrap();
        disk.check().await;
        disk.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_repair_of_a_node_leaves_nothing_though_commits_give_up_its_parities_meanwhile() {
    let mut cluster = Cluster::start(8, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    commit(&cluster).await;
    for block in 0..SIZE / BLOCK {
        disk.write(block * BLOCK, 100).await;
    }
    let name = stripe_name(disk.volume.info(), 0);
    let lost = cluster.home(&name, 0, 4).await;
    cluster.kill(lost).await;
    cluster.until_state(lost, NodeState::Dead).await;
    let client = cluster.client().await;
    // A dozen blocks of 64 KiB take a while.
    let slowly = NonZeroU64::new(200_000).unwrap();
    client.change_setting(ChangeSetting::RepairMinRate(slowly)).await.unwrap();
    client.change_setting(ChangeSetting::RepairMaxRate(Some(slowly))).await.unwrap();
    // Nodes hear of it with a heartbeat.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let repair = client.repair(RepairTarget::Node(NodeId(lost)), Method::Conventional, None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let done = client.commit_volume("disk", None).await.unwrap();
    assert!(done.blocks > 0, "{done:?}");
    client.change_setting(ChangeSetting::RepairMaxRate(None)).await.unwrap();
    let report = cluster.finish(repair).await;
    assert!(report.failed.is_empty(), "{report:?}");
    for index in 0..(SIZE / BLOCK).div_ceil(3) {
        let stripe = cluster.stripe(&stripe_name(disk.volume.info(), index), 0).await;
        let left: Vec<_> = stripe.blocks.iter().flatten().filter(|block| block.lost).collect();
        assert!(left.is_empty(), "{left:?}");
    }
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_outlive_drains_wipes_and_lost_folders() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.scatter(10).await;
    disk.write(0, 3 * BLOCK).await;
    let first = stripe_name(disk.volume.info(), 0);
    // Each block of the first stripe has updates that are only logged, while its node is emptied in one way or another.
    for (block, action) in [(0, Some(NodeAction::Drain)), (1, Some(NodeAction::Wipe)), (2, None)] {
        disk.write(u64::from(block) * BLOCK + 7, 1000).await;
        let node = cluster.home(&first, 0, block).await;
        match action {
            Some(action) => {
                let report = cluster.finish(client.command_node(NodeId(node), action).await.unwrap()).await;
                assert!(report.failed.is_empty(), "{report:?}");
            }
            None => cluster.replace_node(node).await,
        }
        disk.check().await;
        disk.write(u64::from(block) * BLOCK + 500, 1000).await;
        disk.check().await;
        let repair = client.repair(RepairTarget::All, Method::Conventional, None).await.unwrap();
        let report = cluster.finish(repair).await;
        assert!(report.failed.is_empty(), "{report:?}");
        disk.check().await;
    }
    disk.scatter(5).await;
    commit(&cluster).await;
    disk.check().await;
    let node = cluster.home(&first, 0, 1).await;
    cluster.kill(node).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_a_node_is_repaired_another_one_may_be_lost() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    disk.scatter(5).await;
    // Each time another node is gone for good, with what it logged, and nobody writes until it is repaired.
    for node in 0..8 {
        cluster.kill(node).await;
        cluster.until_state(node, NodeState::Dead).await;
        disk.check().await;
        let repair =
            client.repair(RepairTarget::Node(NodeId(node)), Method::Conventional, None).await.unwrap();
        let report = cluster.finish(repair).await;
        assert!(report.failed.is_empty(), "{report:?}");
        cluster.replace_dead_node(node).await;
        let reader = client.open_volume("disk", VolumeAccess::Read).await.unwrap();
        disk.check_as(&reader).await;
    }
    disk.scatter(5).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn racks_that_fail_as_a_whole_take_nothing_that_was_acknowledged() {
    const RACKS: u32 = 4;
    let mut cluster = Cluster::start(2 * RACKS, RACKS).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    commit(&cluster).await;
    // One after another, and of every second one the disks are gone for good.
    for rack in 0..RACKS {
        let nodes = [rack, rack + RACKS];
        // The coordinator commits what is dirty for 30 s: not between these writes and the loss.
        settle(&cluster).await;
        for block in 0..SIZE / BLOCK {
            let offset = block * BLOCK + 5000 * u64::from(rack);
            disk.write(offset, 3000).await;
        }
        for node in nodes {
            cluster.kill(node).await;
        }
        for node in nodes {
            let roles: BTreeSet<bool> =
                cluster.logged_by(node).into_iter().map(|(_, replica)| replica).collect();
            assert_eq!(roles.len(), 2, "node {node} logged for its own blocks and for those of others");
        }
        disk.check().await;
        let reader = client.open_volume("disk", VolumeAccess::Read).await.unwrap();
        disk.check_as(&reader).await;
        disk.scatter(5).await;
        disk.check().await;
        if rack % 2 == 0 {
            for node in nodes {
                cluster.start_node(node).await;
            }
        } else {
            for node in nodes {
                cluster.until_state(node, NodeState::Dead).await;
            }
            for node in nodes {
                let target = RepairTarget::Node(NodeId(node));
                let repair = client.repair(target, Method::Conventional, None).await.unwrap();
                let report = cluster.finish(repair).await;
                assert!(report.failed.is_empty(), "{report:?}");
            }
            for node in nodes {
                cluster.replace_dead_node(node).await;
            }
        }
        disk.check().await;
        disk.check_as(&reader).await;
    }
    settle(&cluster).await;
    disk.check().await;
    // Parity is right: each rack is done without.
    for rack in 0..RACKS {
        for node in [rack, rack + RACKS] {
            cluster.kill(node).await;
        }
        disk.check().await;
        for node in [rack, rack + RACKS] {
            cluster.start_node(node).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_nobody_has_any_more_can_be_abandoned() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    commit(&cluster).await;
    let committed = disk.model.clone();
    disk.write(7, 1000).await;
    disk.volume.close().await.unwrap();
    assert_eq!(client.lost_logs("disk").await.unwrap(), []);
    cluster.lose(0..8).await;
    let nodes = client.lost_logs("disk").await.unwrap()[0].nodes.clone();
    assert_eq!(nodes.len(), 2);
    // The two that logged for the first block come back with empty disks.
    for node in 0..8 {
        match nodes.contains(&NodeId(node)) {
            true => cluster.replace_dead_node(node).await,
            false => cluster.start_node(node).await,
        }
    }
    let impatient = cluster.impatient_client().await;
    let reader = impatient.open_volume("disk", VolumeAccess::Read).await.unwrap();
    // While the epoch changes, an impatient reader is refused for that.
    let end = Instant::now() + Duration::from_secs(60);
    let refused = loop {
        let refused = reader.read(0, 10).await.unwrap_err().to_string();
        if !refused.starts_with("epoch of ") || Instant::now() > end {
            break refused;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert!(refused.starts_with("log of "), "{refused}");
    let says_so =
        async || client.health(0).await.unwrap().causes.iter().any(|cause| cause.kind == CauseKind::LostLogs);
    assert!(says_so().await);
    let lost = client.abandon_logs("disk", nodes.into_iter().collect()).await.unwrap();
    assert!(lost.iter().any(|log| (log.offset, log.len) == (0, BLOCK)), "{lost:?}");
    assert_eq!(client.lost_logs("disk").await.unwrap(), []);
    assert!(!says_so().await);
    disk.volume = client.open_volume("disk", VolumeAccess::Write).await.unwrap();
    disk.model = committed;
    disk.check().await;
    disk.write(7, 1000).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_logs_that_were_confirmed_are_abandoned() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    commit(&cluster).await;
    let committed = disk.model.clone();
    // One write for each block of the first stripe.
    for block in 0..3 {
        disk.write(block * BLOCK, 1000).await;
    }
    disk.volume.close().await.unwrap();
    cluster.lose(0..8).await;
    let lost = client.lost_logs("disk").await.unwrap();
    let nodes = |log: &LostLog| -> BTreeSet<NodeId> { log.nodes.iter().copied().collect() };
    let gone = nodes(&lost[0]);
    let (kept, away) = lost[1..3]
        .iter()
        .map(|log| (log.offset / BLOCK, &nodes(log) - &gone))
        .find(|(_, away)| !away.is_empty())
        .expect("blocks of one stripe with other nodes");
    // The two that logged for the first block come back with empty disks, and others are away for a moment.
    for node in 0..8 {
        match (gone.contains(&NodeId(node)), away.contains(&NodeId(node))) {
            (true, _) => cluster.replace_dead_node(node).await,
            (_, true) => {}
            (false, false) => cluster.start_node(node).await,
        }
    }
    let refused = client.abandon_logs("disk", gone.clone()).await.unwrap_err().to_string();
    assert!(refused.starts_with("log of "), "{refused}");
    for node in &away {
        cluster.start_node(node.0).await;
    }
    let abandoned = client.abandon_logs("disk", gone.clone()).await.unwrap();
    assert!(abandoned.iter().all(|log| nodes(log).is_subset(&gone)), "{abandoned:?}");
    assert_eq!(abandoned[0].offset, 0);
    disk.volume = client.open_volume("disk", VolumeAccess::Write).await.unwrap();
    let (at, stripe) = ((kept * BLOCK) as usize, 3 * BLOCK as usize);
    let read = disk.volume.read(0, SIZE).await.unwrap();
    assert!(read[at..at + 1000] == disk.model[at..at + 1000], "what was acknowledged");
    assert!(read[..BLOCK as usize] == committed[..BLOCK as usize] && read[stripe..] == committed[stripe..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_waits_or_takes_over() {
    let cluster = Cluster::start(6, 3).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Parity).await;
    disk.write(0, 10_000).await;
    let client = cluster.client().await;
    let refused = client.open_volume("disk", VolumeAccess::Write).await.unwrap_err();
    assert!(refused.to_string().contains("expected no other writer"), "{refused}");
    let removed = client.remove_volume("disk").await.unwrap_err();
    assert!(removed.to_string().contains("expected no writer"), "{removed}");
    let mut taken = Disk { model: disk.model.clone(), ..Disk::open(&cluster, VolumeAccess::TakeOver).await };
    taken.check().await;
    taken.write(5000, 10_000).await;
    // The former writer knows of nothing, and is refused by the nodes and by the coordinator.
    for offset in [0, BLOCK * 9] {
        let stale = disk.volume.write(offset, Bytes::from_static(&[1; 100])).await.unwrap_err();
        assert!(matches!(stale, ClientError::Interrupted(_)), "{stale:?}");
    }
    taken.check().await;
    taken.volume.close().await.unwrap();
    let again = Disk { model: taken.model.clone(), ..Disk::open(&cluster, VolumeAccess::Write).await };
    again.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_coordinator_may_restart_under_a_writer() {
    let mut cluster = Cluster::start(6, 3).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.scatter(5).await;
    cluster.restart_coordinator().await;
    disk.scatter(5).await;
    disk.check().await;
    commit(&cluster).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_log_waits_for_the_coordinator_and_fails_no_write() {
    let mut cluster = Cluster::start(6, 3).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.scatter(20).await;
    commit(&cluster).await;
    // Every write finds the log large: it is emptied at once.
    let options = Options { patience: Duration::from_secs(1), large_log_bytes: 1, ..Options::default() };
    let client = cluster.client_with(options).await;
    disk.volume = client.open_volume("disk", VolumeAccess::TakeOver).await.unwrap();
    disk.write(5_000, 3_000).await;
    assert_eq!(commit(&cluster).await, 0);
    cluster.stop_coordinator().await;
    disk.write(6_000, 3_000).await;
    cluster.restart_coordinator().await;
    assert_ne!(commit(&cluster).await, 0, "nobody was there to commit");
    disk.write(9_000, 10).await;
    assert_eq!(commit(&cluster).await, 0);
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_at_once_are_all_kept() {
    let cluster = Cluster::start(6, 3).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    let volume = Arc::new(disk.volume.clone());
    let writes = (0..200u64).map(|i| {
        let volume = volume.clone();
        tokio::spawn(async move { volume.write(i * 4096, Bytes::from(vec![i as u8; 4096])).await })
    });
    let all: Vec<_> = writes.collect();
    commit(&cluster).await;
    for write in all {
        write.await.unwrap().unwrap();
    }
    (0..200usize).for_each(|i| disk.model[i * 4096..][..4096].fill(i as u8));
    disk.check().await;
    commit(&cluster).await;
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_changes_nothing() {
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let refused = async |change: &dyn Fn(&mut CreateVolume)| {
        let mut volume = wanted(RS, Durability::Rack);
        change(&mut volume);
        client.create_volume(&volume).await.unwrap_err().to_string()
    };
    // A code whose first data block is a sum of two is no code for anything. One that bears no loss is none for volumes.
    let plain = kintsu_code::parse("rs:n=3,k=2").unwrap();
    let mut mixed = Definition::of(plain.as_ref(), "user:mixed").unwrap();
    mixed.generator[0].0[1] = 1;
    let said = client.register_code(&mixed).await.unwrap_err().to_string();
    assert!(said.contains("expected the identity on top"), "{said}");
    let bare = Definition { distance: 1, ..Definition::of(plain.as_ref(), "user:bare").unwrap() };
    assert!(client.register_code(&bare).await.unwrap());
    for (message, expected) in [
        (refused(&|v| v.code = "user:bare".into()).await, "one that bears the loss of a block"),
        (refused(&|v| v.size = 0).await, "multiple of 512"),
        (refused(&|v| v.size = 1000).await, "multiple of 512"),
        (refused(&|v| v.block_bytes = 1000).await, "multiple of 4096"),
        (refused(&|v| v.code = "rs:n=4,k=4".into()).await, "expected"),
        (refused(&|v| v.name = "a/b".into()).await, "without /"),
    ] {
        assert!(message.contains(expected), "{message}");
    }
    let disk = Disk::create(&cluster, RS, Durability::Rack).await;
    assert!(matches!(client.create_volume(&wanted(RS, Durability::Rack)).await, Err(ClientError::Exists(_))));
    for (offset, len) in [(0, 0), (SIZE, 1), (SIZE - 1, 2), (u64::MAX, 2)] {
        let refused = [
            disk.volume.read(offset, len).await.map(drop),
            disk.volume.write(offset, vec![1u8; len as usize].into()).await,
            disk.volume.write_zeroes(offset, len).await,
        ];
        for error in refused.map(Result::unwrap_err) {
            assert!(error.to_string().contains("expected at least 1 byte within"), "{error}");
        }
    }
    let reader = client.open_volume("disk", VolumeAccess::Read).await.unwrap();
    let error = reader.write(0, Bytes::from_static(b"x")).await.unwrap_err();
    assert!(error.to_string().contains("opened to write"), "{error}");
    disk.volume.write(SIZE - 512, Bytes::from_static(b"end")).await.unwrap();
    let smaller = client.resize_volume("disk", SIZE / 2).await.unwrap_err();
    assert!(smaller.to_string().contains(&format!("at least {SIZE} bytes")), "{smaller}");
    assert_eq!(client.resize_volume("disk", SIZE * 2).await.unwrap().size, SIZE * 2);
    assert!(client.list("", None, 10).await.unwrap().objects.is_empty(), "stripes are no objects of users");
    let name = stripe_name(disk.volume.info(), 0);
    assert!(client.remove(&name).await.unwrap_err().to_string().contains("go with the volume"));
    disk.volume.close().await.unwrap();
    client.remove_volume("disk").await.unwrap();
    assert!(matches!(client.volume_info("disk").await, Err(ClientError::NotFound(_))));
    cluster.until("all blocks are deleted", || cluster.block_files().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_does_not_shrink_into_what_is_stored() {
    // RS(5,3): the size is no multiple of a stripe.
    const STRIPE: u64 = 3 * BLOCK;
    let cluster = Cluster::start(6, 3).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    let refused = async |size: u64| client.resize_volume("disk", size).await.unwrap_err().to_string();
    let allowed = async |size: u64| assert_eq!(client.resize_volume("disk", size).await.unwrap().size, size);
    disk.write(5 * BLOCK + 100, 1000).await;
    // Behind the stripe, inside it, and before it.
    for size in [6 * BLOCK - 512, 5 * BLOCK, 4 * BLOCK, 512] {
        let said = refused(size).await;
        assert!(said.contains(&format!("at least {} bytes", 2 * STRIPE)), "{said}");
    }
    allowed(2 * STRIPE).await;
    allowed(2 * STRIPE).await;
    allowed(2 * STRIPE + 512).await;
    allowed(SIZE).await;
    disk.check().await;
    // The last stripe, of which the volume has a part.
    disk.write(SIZE - BLOCK, 1000).await;
    for size in [SIZE - 512, SIZE - BLOCK, 2 * STRIPE] {
        let said = refused(size).await;
        assert!(said.contains(&format!("at least {SIZE} bytes")), "{said}");
    }
    allowed(SIZE).await;
    allowed(SIZE + 512).await;
    assert!(refused(SIZE).await.contains(&format!("at least {} bytes", SIZE + 512)));
    disk.check().await;
}

/// Repairs and commits until nothing is left. A commit leaves a stripe with a lost data block, and one that is being repaired.
async fn settle(cluster: &Cluster) {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let client = cluster.client().await;
        let repair = client.repair(RepairTarget::All, Method::Conventional, None).await.unwrap();
        let report = cluster.finish(repair).await;
        let left = client.commit_volume("disk", None).await.unwrap().left;
        if report.failed.is_empty() && left.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "{report:?}, {left:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_may_die_at_any_moment_of_writes_and_commits() {
    let mut cluster = Cluster::start(7, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.scatter(20).await;
    for round in 0..8 {
        let (node, pause) = (disk.random(7) as u32, disk.random(40));
        let client = cluster.client().await;
        // What it cannot do now it leaves.
        let committing = tokio::spawn(async move { client.commit_volume("disk", None).await });
        let writing = tokio::spawn(async move {
            disk.scatter(6).await;
            disk
        });
        tokio::time::sleep(Duration::from_millis(pause)).await;
        cluster.kill(node).await;
        disk = writing.await.unwrap();
        committing.await.unwrap().unwrap();
        disk.check().await;
        cluster.start_node(node).await;
        disk.check().await;
        // Each round may cost a stripe a block that its commit leaves out, and the code bears two.
        if round % 2 == 1 {
            settle(&cluster).await;
        }
    }
    disk.check().await;
    let scrub = cluster.client().await.scrub(None).await.unwrap();
    let report = cluster.finish(scrub).await;
    assert!(report.bad.is_empty() && report.failed.is_empty(), "{report:?}");
    // Parity is right: each node is done without. Two at once could be all that log a block.
    disk.check_without_each(&mut cluster, 7).await;
}
