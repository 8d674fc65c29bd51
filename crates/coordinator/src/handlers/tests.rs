//! A coordinator without a network, for the tests of the handlers.

use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_wire::message::{
    BeginPut, BlockPage, CommitPut, CommitReply, CreateVolume, DiskUsage, Durability, Encoding, HeldBlock,
    ObjectInfo, PutTicket, Register, StripeOfVolume, WrittenStripe,
};
use kintsu_wire::{Credentials, FolderId};

use super::{begin_put, commit_put, create_volume, register, report_blocks};
use crate::cluster::Cluster;
use crate::config::Config;
use crate::driver::holders;
use crate::error::Result;
use crate::meta::volumes::{Relogged, stripe_name};
use crate::meta::{Landing, StripeLogs, StripeRecord};

/// A registration of a node on whose addresses nobody listens.
pub(crate) fn registration(node: u32, rack: u32) -> Register {
    Register {
        node: Some(NodeId(node)),
        rack: RackId(rack),
        control: "127.0.0.1:9".parse().unwrap(),
        data: "127.0.0.1:9".parse().unwrap(),
        dir: format!("/node{node}"),
        incarnation: 1,
        name: None,
        rack_name: None,
        cluster: None,
        folder: FolderId([node as u8 + 1; 16]),
        log: None,
        seen: None,
        blocks: 0,
        next_stripe: 0,
        replace: false,
        moved: false,
        protocol: kintsu_wire::PROTOCOL_VERSION,
    }
}

/// Registers a node that holds no blocks, to the last page.
pub(crate) async fn enlist(cluster: &Arc<Cluster>, request: Register) -> Result<NodeId> {
    enlist_with(cluster, request, Vec::new()).await
}

/// Registers a node that holds these blocks.
pub(crate) async fn enlist_with(
    cluster: &Arc<Cluster>,
    request: Register,
    blocks: Vec<HeldBlock>,
) -> Result<NodeId> {
    let incarnation = request.incarnation;
    let node = register::handle(cluster, Register { blocks: blocks.len() as u64, ..request }).await?.node;
    report_blocks::handle(cluster, page(node, incarnation, blocks)).await?;
    Ok(node)
}

/// A list of a node's blocks that fits one page.
pub(crate) fn page(node: NodeId, incarnation: u64, blocks: Vec<HeldBlock>) -> BlockPage {
    let (damaged, aside) = (Vec::new(), Vec::new());
    BlockPage { node, incarnation, number: 0, upto: None, blocks, damaged, aside, labels: Vec::new() }
}

/// A cluster of nodes that are registered but have no agents.
pub(crate) async fn cluster(nodes: u32, racks: u32) -> (tempfile::TempDir, Arc<Cluster>) {
    let dir = tempfile::tempdir().unwrap();
    let cluster = reopen(&dir);
    for node in 0..nodes {
        enlist(&cluster, registration(node, node % racks)).await.unwrap();
    }
    (dir, cluster)
}

pub(crate) fn config(dir: &tempfile::TempDir) -> Config {
    let mut config = Config::new(dir.path(), "127.0.0.1:0".parse().unwrap());
    config.cache_bytes = 1 << 20;
    config
}

pub(crate) fn reopen(dir: &tempfile::TempDir) -> Arc<Cluster> {
    reopen_with(dir, |_| {})
}

/// Starts the coordinator again with some settings changed.
pub(crate) fn reopen_with(dir: &tempfile::TempDir, change: impl FnOnce(&mut Config)) -> Arc<Cluster> {
    let mut config = config(dir);
    change(&mut config);
    Arc::new(Cluster::open(config, Credentials::none()).unwrap())
}

pub(crate) fn begin(name: &str, size: u64) -> BeginPut {
    BeginPut {
        volume: None,
        name: name.into(),
        size: Some(size),
        code: "rs:n=4,k=2".into(),
        encoding: Encoding::Online,
        block_bytes: Some(16),
        cell_bytes: Some(8),
        replace: false,
        attributes: Default::default(),
    }
}

pub(crate) fn written(ticket: &PutTicket, encoding: Encoding, k: usize) -> Vec<WrittenStripe> {
    let made = |i: usize| i < k || encoding == Encoding::Online;
    let digest =
        |(i, home): (usize, &Option<NodeId>)| home.filter(|_| made(i)).map(|_| [BlockIndex(i as u8).0; 16]);
    let one = |s: &kintsu_wire::message::StripeGrant| WrittenStripe {
        id: s.id,
        digests: s.homes.iter().enumerate().map(digest).collect(),
    };
    ticket.stripes.iter().map(one).collect()
}

/// The first stripe of an object as it is recorded.
pub(crate) fn stripe(cluster: &Cluster, name: &str) -> (StripeId, StripeRecord) {
    let snapshot = cluster.meta.snapshot().unwrap();
    let id = snapshot.object(name).unwrap().ids(0, 1)[0].1;
    (id, snapshot.stripe(id).unwrap().unwrap())
}

/// A block of a stripe, copied from its home to another node.
pub(crate) fn landing(record: &StripeRecord, index: BlockIndex, to: NodeId) -> Landing {
    let block = record.block(index).unwrap();
    let (from, digest) = (block.node, block.digest.unwrap());
    Landing { index, from, to, generation: block.generation, digest }
}

/// An object that is visible, though no byte of it exists.
pub(crate) async fn put(cluster: &Arc<Cluster>, name: &str, size: u64) -> ObjectInfo {
    let ticket = begin_put::handle(cluster, begin(name, size)).await.unwrap();
    let stripes = written(&ticket, Encoding::Online, 2);
    visible(
        commit_put::handle(cluster, CommitPut { put: ticket.put, stripes, checksum: None, ending: None })
            .await
            .unwrap(),
    )
}

/// A volume "disk" with one stripe, on a cluster of six nodes or more. Returns the nodes that log its two blocks: the home of each, and
/// one that has nothing else.
pub(crate) async fn volume(cluster: &Arc<Cluster>) -> Vec<Vec<NodeId>> {
    let create = CreateVolume {
        name: "disk".into(),
        size: 1 << 20,
        code: "rs:n=4,k=2".into(),
        block_bytes: 4096,
        durability: Durability::Rack,
        scheme: None,
    };
    let volume = create_volume::handle(cluster, create).await.unwrap().id;
    let stripe = BeginPut {
        volume: Some(StripeOfVolume { volume, index: 0, epoch: 0 }),
        block_bytes: Some(4096),
        cell_bytes: Some(4096),
        ..begin(&stripe_name(volume, 0), 8192)
    };
    let ticket = begin_put::handle(cluster, stripe).await.unwrap();
    let stripes = written(&ticket, Encoding::Online, 2);
    let commit = CommitPut { put: ticket.put, stripes, checksum: None, ending: None };
    visible(commit_put::handle(cluster, commit).await.unwrap());
    let homes: Vec<NodeId> = ticket.stripes[0].homes.iter().copied().flatten().collect();
    let folders = holders(cluster).folders;
    let spare: Vec<NodeId> = folders.keys().copied().filter(|node| !homes.contains(node)).collect();
    let logs = vec![vec![homes[0], spare[0]], vec![homes[1], spare[1]]];
    let from = cluster.meta.snapshot().unwrap().volume_logs(volume, 0, 1).unwrap().remove(0).1;
    let to = StripeLogs { epoch: 1, logs: logs.clone(), folders, ..from.clone() };
    cluster.meta.set_logs(&Relogged { volume, index: 0, from, to, taken: 0 }).unwrap();
    logs
}

/// Waits until another task has made this true.
pub(crate) async fn until(holds: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("waited in vain");
}

/// The object that a commit made visible.
pub(crate) fn visible(reply: CommitReply) -> ObjectInfo {
    match reply {
        CommitReply::Visible(object) => object,
        other => panic!("{other:?}"),
    }
}

/// Lets enough time pass that these nodes count as dead; all others send a heartbeat.
pub(crate) fn silence(cluster: &Arc<Cluster>, dead: &[u32]) {
    let mut members = cluster.members();
    let last = members.iter().map(|(_, m)| m.seen_ms).max().unwrap_or(0);
    let late = last + cluster.config.dead_after.as_millis() as u64;
    let living: Vec<(NodeId, u64)> = members
        .iter()
        .filter(|(id, _)| !dead.contains(&id.0))
        .map(|(id, m)| (id, m.record.incarnation))
        .collect();
    for (node, incarnation) in living {
        members.seen(node, incarnation, DiskUsage::default(), None, late).unwrap();
    }
    members.tick(late);
}
