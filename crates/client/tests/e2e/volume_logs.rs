//! What nodes keep of the logs of volumes, and repairs while these are written and brought into blocks.

use std::time::Duration;

use kintsu_client::VolumeAccess;
use kintsu_dag::NodeId;
use kintsu_plan::Method;
use kintsu_wire::message::{CauseKind, Durability, NodeState, RepairTarget, StripeInfo, VolumeInfo};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Cluster, RS};
use crate::volumes::{BLOCK, Disk, SIZE, stripe_name};

/// Files of a log go oldest first. One that holds what its node logged before it was away would keep all that come after it: the log
/// stays large, and all stripes are committed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_forgets_what_others_log_now_though_logs_are_large() {
    // Each look finds a large log.
    let mut cluster = Cluster::with(6, 3, |config| config.largest_log_bytes = 1).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    // A node that has logged for another one and is down. A commit may come before it is.
    let mut nodes = (0..6).cycle();
    let away = loop {
        let node = nodes.next().unwrap();
        disk.write(100, 500).await;
        cluster.kill(node).await;
        if cluster.logged_by(node).iter().any(|(_, replica)| *replica) {
            break node;
        }
        cluster.start_node(node).await;
    };
    cluster.until_state(away, NodeState::Dead).await;
    disk.write(100, 500).await;
    // What it logs is only seen while it is down, and the coordinator looks at logs while it is up.
    for seconds in [5, 5, 10, 20, 40] {
        cluster.start_node(away).await;
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        cluster.kill(away).await;
        if cluster.logged_by(away).is_empty() {
            cluster.start_node(away).await;
            return disk.check().await;
        }
        cluster.until_state(away, NodeState::Dead).await;
    }
    panic!("node {away} keeps what it logged");
}

/// A commit gives the blocks of a stripe a next generation between the moment when a repair reads its record and its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_repaired_while_its_volume_is_written_and_committed() {
    let mut cluster = Cluster::start(8, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    for node in 0..2 {
        cluster.kill(node).await;
        cluster.until_state(node, NodeState::Dead).await;
        let ended = CancellationToken::new();
        let (repaired, committed, committer) = (ended.clone(), ended.clone(), client.clone());
        let writing = tokio::spawn(async move {
            while !repaired.is_cancelled() {
                for stripe in (0..SIZE).step_by(4 * BLOCK as usize) {
                    disk.write(stripe + BLOCK, 100).await;
                }
            }
            disk
        });
        let committing = tokio::spawn(async move {
            while !committed.is_cancelled() {
                // What it cannot do now it leaves.
                committer.commit_volume("disk", None).await.unwrap();
            }
        });
        let repair =
            client.repair(RepairTarget::Node(NodeId(node)), Method::Conventional, 4096).await.unwrap();
        let report = cluster.finish(repair).await;
        ended.cancel();
        disk = writing.await.unwrap();
        committing.await.unwrap();
        assert!(report.failed.is_empty(), "{report:?}");
        disk.check().await;
        cluster.replace_dead_node(node).await;
    }
    disk.check().await;
}

/// The generation of a stripe's first block.
async fn generation(cluster: &Cluster, info: &VolumeInfo, stripe: u64) -> u32 {
    cluster.stripe(&stripe_name(info, stripe), 0).await.generations()[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_dirty_stripes_stay_dirty_and_one_more_has_all_committed() {
    let cluster = Cluster::with(6, 3, |config| {
        config.most_dirty = 3;
        config.longest_dirty = Duration::from_secs(3600);
    })
    .await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let info = disk.volume.info().clone();
    let first = generation(&cluster, &info, 0).await;
    for stripe in 0..2 {
        disk.write(stripe * 3 * BLOCK, 100).await;
    }
    // Time for some looks.
    tokio::time::sleep(Duration::from_secs(6)).await;
    for stripe in 0..2 {
        assert_eq!(generation(&cluster, &info, stripe).await, first, "stripe {stripe}");
    }
    disk.write(2 * 3 * BLOCK, 100).await;
    for stripe in 0..3 {
        let is_committed = || async { generation(&cluster, &info, stripe).await > first };
        cluster.until_async("all three are committed", is_committed).await;
    }
    let done = cluster.client().await.commit_volume("disk", None).await.unwrap();
    assert_eq!((done.blocks, done.left), (0, Vec::new()), "nothing is dirty");
    disk.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_been_dirty_for_long_is_committed() {
    let cluster = Cluster::with(6, 3, |config| config.longest_dirty = Duration::from_secs(1)).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let info = disk.volume.info().clone();
    let first = generation(&cluster, &info, 0).await;
    disk.write(0, 100).await;
    let is_committed = || async { generation(&cluster, &info, 0).await > first };
    cluster.until_async("the stripe is committed", is_committed).await;
    disk.check().await;
}

/// Changes the bytes of a file.
type Damage = fn(&mut Vec<u8>);

/// Two writes to the first block, which are the last records of its home's log, with 5120 and 2112 bytes.
async fn write_last(disk: &mut Disk) {
    disk.write(1000, 5000).await;
    disk.write(3000, 2000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_log_of_a_home_takes_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(7, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let first = stripe_name(disk.volume.info(), 0);
    let damages: [(&str, Damage); 6] = [
        ("a byte of the last record", |log| {
            let at = log.len() - 100;
            log[at] ^= 1;
        }),
        ("cut within the last record", |log| log.truncate(log.len() - 300)),
        ("cut before the last record", |log| log.truncate(log.len() - 2112)),
        ("cut within the record before", |log| log.truncate(log.len() - 2112 - 300)),
        ("a byte of the record before", |log| {
            let at = log.len() - 2112 - 200;
            log[at] ^= 1;
        }),
        ("the head of the file", |log| log[9] ^= 1),
    ];
    for (what, damage) in damages {
        write_last(&mut disk).await;
        let home = cluster.home(&first, 0, 0).await;
        cluster.kill(home).await;
        cluster.tamper_log(home, damage);
        cluster.start_node(home).await;
        println!("{what}: node {home}");
        disk.check().await;
        let reader = client.open_volume("disk", VolumeAccess::Read).await.unwrap();
        assert!(reader.read(0, SIZE).await.unwrap()[..] == disk.model[..], "{what}");
        // The next writes go there again.
        disk.write(4000, 10).await;
        disk.check().await;
        let all = || async { client.commit_volume("disk", None).await.unwrap().left.is_empty() };
        cluster.until_async("a commit of all", all).await;
        disk.check().await;
        // It has got what it may lack of other blocks too.
        let causes = || async { client.health(0).await.unwrap().causes };
        let whole = || async { causes().await.iter().all(|cause| cause.kind != CauseKind::FewLogs) };
        cluster.until_async("each log is on all of its nodes", whole).await;
        // Block and parity are right: each node is done without.
        disk.check_without_each(&mut cluster, 7).await;
    }
}

/// Kills the node that has the replica of what is logged for the first block of a stripe.
async fn kill_replica(cluster: &mut Cluster, stripe: &StripeInfo, home: u32) -> u32 {
    for node in (0..7).filter(|node| *node != home) {
        cluster.kill(node).await;
        let logged = cluster.logged_by(node);
        if logged.iter().any(|(block, _)| (block.stripe, block.index.0) == (stripe.id, 0)) {
            return node;
        }
        cluster.start_node(node).await;
    }
    panic!("nobody logs the first block of {} besides node {home}", stripe.id);
}

/// It is not taken for all that was acknowledged while another node that logs may come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_may_lack_something_waits_for_another_one() {
    let mut cluster = Cluster::start(7, 4).await;
    let client = cluster.client().await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let all = || async { client.commit_volume("disk", None).await.unwrap().left.is_empty() };
    cluster.until_async("a commit of all", all).await;
    write_last(&mut disk).await;
    let first = cluster.stripe(&stripe_name(disk.volume.info(), 0), 0).await;
    let home = first.blocks[0].as_ref().unwrap().node.0;
    let replica = kill_replica(&mut cluster, &first, home).await;
    // Its end is cut off, and its home is away.
    cluster.tamper_log(replica, |log| log.truncate(log.len() - 300));
    cluster.kill(home).await;
    for node in [home, replica] {
        cluster.until_state(node, NodeState::Dead).await;
    }
    cluster.start_node(replica).await;
    let impatient = cluster.impatient_client().await;
    let reader = impatient.open_volume("disk", VolumeAccess::Read).await.unwrap();
    let refused = reader.read(0, 5000).await.unwrap_err();
    println!("{refused}");
    cluster.start_node(home).await;
    disk.check().await;
    // The replica has it again.
    cluster.kill(home).await;
    disk.check().await;
    cluster.start_node(home).await;
    disk.check().await;
    // A write that a crash cut off was not acknowledged. All others are there, though the other log is lost for good.
    cluster.until_async("a commit of all", all).await;
    write_last(&mut disk).await;
    let replica = kill_replica(&mut cluster, &first, home).await;
    cluster.tamper_log(replica, |log| log.extend([0x4b; 100]));
    cluster.kill(home).await;
    cluster.replace_dead_node(home).await;
    cluster.start_node(replica).await;
    disk.check().await;
}
