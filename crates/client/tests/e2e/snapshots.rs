//! Snapshots: a volume and its snapshots part where the volume is written to, for all who read.

use kintsu_client::VolumeAccess;
use kintsu_wire::message::{Durability, NodeState};

use crate::cluster::{Cluster, RS};
use crate::volumes::{BLOCK, Disk, SIZE, stripe_name};

/// Readers look up once where a stripe is. Those who did so while it was shared would find the snapshot's bytes there for ever,
/// if its nodes did not refuse them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_knew_the_shared_stripe_sees_what_is_written_to_the_copy() {
    let len = 3 * BLOCK;
    for home_is_lost in [false, true] {
        let mut cluster = Cluster::start(7, 4).await;
        let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
        disk.write(0, SIZE).await;
        // From now on nodes log for this stripe, and a map of it lasts.
        disk.write(100, 5000).await;
        let client = cluster.client().await;
        client.commit_volume("disk", None).await.unwrap();
        if home_is_lost {
            let home = cluster.home(&stripe_name(disk.volume.info(), 0), 0, 0).await;
            cluster.kill(home).await;
            cluster.until_state(home, NodeState::Dead).await;
            // Its logs go to another node, and no commit changes its block any more.
            disk.write(BLOCK, 5000).await;
            client.commit_volume("disk", None).await.unwrap();
        }
        let before = disk.model.clone();
        client.snapshot_volume("disk", "snapshot").await.unwrap();
        let [reader, of_snapshot] =
            ["disk", "snapshot"].map(|name| client.open_volume(name, VolumeAccess::Read));
        let (reader, of_snapshot) = (reader.await.unwrap(), of_snapshot.await.unwrap());
        // Twice: what was looked up for a lost block is kept when nothing had to be planned again.
        for reader in [&reader, &of_snapshot, &reader] {
            assert!(reader.read(0, len).await.unwrap() == before[..len as usize]);
        }
        disk.write(50, 6000).await;
        for _ in 0..2 {
            let got = reader.read(0, len).await.unwrap();
            assert!(got == disk.model[..len as usize], "home lost: {home_is_lost}");
            assert!(of_snapshot.read(0, len).await.unwrap() == before[..len as usize]);
        }
    }
}

/// A stripe that a snapshot shares is committed before it is copied. Where the home of a dirty block is gone, that waits for the
/// block's repair, and the repair does not wait: nodes may be away for an hour here before their blocks are repaired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_a_shared_stripe_has_its_dirty_block_repaired_if_the_home_is_gone() {
    let mut cluster = Cluster::start(7, 4).await;
    let mut disk = Disk::create(&cluster, RS, Durability::Rack).await;
    disk.write(0, SIZE).await;
    let home = cluster.home(&stripe_name(disk.volume.info(), 0), 0, 0).await;
    disk.write(100, 5000).await;
    cluster.kill(home).await;
    cluster.until_state(home, NodeState::Dead).await;
    let client = cluster.client().await;
    let taken = client.snapshot_volume("disk", "snapshot").await.unwrap();
    assert!(taken.left.iter().any(|left| left.contains("cannot be read at home")), "{:?}", taken.left);
    let before = disk.model.clone();
    disk.write(50, 6000).await;
    disk.check().await;
    let snapshot = client.open_volume("snapshot", VolumeAccess::Read).await.unwrap();
    assert!(snapshot.read(0, SIZE).await.unwrap() == before);
    assert_ne!(cluster.home(&stripe_name(disk.volume.info(), 0), 0, 0).await, home);
}
