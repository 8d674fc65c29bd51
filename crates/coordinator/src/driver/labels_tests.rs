//! Every block that is written has a label that says what it is part of, no matter what wrote it: a put, an
//! encoding, a repair or a drain.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kintsu_client::PutOptions;
use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_store::{BlockStore, FileStore};
use kintsu_wire::message::{Encoding, FaultKind, Label, NodeAction, RepairTarget};

use crate::live::Live;
use crate::meta::LostBlock;

/// The labels of all blocks in a folder.
fn labels(dir: &Path) -> Vec<(BlockId, Label)> {
    let store = FileStore::open(dir).unwrap();
    let label = |id| (id, Label::unpack(&store.look(id).unwrap().label).unwrap());
    store.ids().unwrap().into_iter().map(label).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_block_says_what_it_is_part_of_whoever_wrote_it() {
    let live = Live::start(7).await;
    let (stripe, record) = live.put("online").await;
    let mut options = PutOptions::new("rs:n=4,k=2");
    (options.block_bytes, options.cell_bytes) = (Some(16 << 10), Some(4 << 10));
    options.encoding = Encoding::Offline;
    let data = bytes::Bytes::from(vec![7; 100_000]);
    live.client.put(Arc::new(data), "offline", options, |_, _| {}).await.unwrap();
    live.follow(live.client.encode("offline").await.unwrap()).await;

    // A repair of a lost block, and a drain of the node of another one.
    let (lost, drained) = (record.blocks[1].unwrap().node, record.blocks[0].unwrap().node);
    let id = BlockId { stripe, index: BlockIndex(1) };
    live.cluster.meta.mark_lost(&[LostBlock { id, node: lost, why: FaultKind::Missing }]).unwrap();
    std::fs::remove_file(live.file(lost, stripe, 1)).unwrap();
    live.follow(
        live.client.repair(RepairTarget::All, kintsu_plan::Method::Conventional, None).await.unwrap(),
    )
    .await;
    live.follow(live.client.command_node(drained, NodeAction::Drain).await.unwrap()).await;

    let snapshot = live.cluster.meta.snapshot().unwrap();
    let (cluster, mut homes) = (live.cluster.id, BTreeSet::new());
    let mut expected = Vec::new();
    for name in ["online", "offline"] {
        let object = snapshot.object(name).unwrap();
        for (_, id) in object.ids(0, u64::MAX) {
            let record = snapshot.stripe(id).unwrap().unwrap();
            homes.extend(record.made().map(|(index, block)| (block.node, BlockId { stripe: id, index })));
            expected.push((id, name, object.id, object.size, record));
        }
    }
    drop(snapshot);
    let dir = live.end().await;
    let mut seen = BTreeSet::new();
    for node in (0..7).map(NodeId) {
        for (id, label) in labels(&dir.path().join(node.0.to_string())) {
            if !homes.contains(&(node, id)) {
                continue;
            }
            seen.insert((node, id));
            let (_, name, object, size, record) = expected.iter().find(|e| e.0 == id.stripe).unwrap();
            assert_eq!((label.cluster, label.object.id, label.object.size), (cluster, *object, Some(*size)));
            assert_eq!((label.object.name.as_str(), label.object.code.name.as_str()), (*name, "rs:n=4,k=2"));
            assert_eq!((label.offset, label.layout), (record.offset, record.layout));
            assert_eq!(label.homes[usize::from(id.index.0)], Some(node), "{id}");
        }
    }
    assert_eq!(seen, homes);
}
