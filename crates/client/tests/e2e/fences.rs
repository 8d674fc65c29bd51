//! What happens to nodes between the writing of a put and its commit.

use std::sync::{Arc, Mutex, mpsc};

use kintsu_client::ClientError;
use kintsu_dag::NodeId;
use kintsu_wire::message::{Encoding, NodeAction, ObjectInfo};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bytes::{Waiting, assert_same, content};
use crate::cluster::{Cluster, RS, options};

/// A put whose blocks are all durable, and that is not committed yet.
struct Written {
    go_on: mpsc::Sender<()>,
    putting: JoinHandle<Result<ObjectInfo, ClientError>>,
}

impl Written {
    async fn start(cluster: &Cluster, data: &[u8]) -> Self {
        let ((waits, waiting), (go_on, gone_on)) = (oneshot::channel(), mpsc::channel());
        let source = Waiting { bytes: data.to_vec(), pause: Mutex::new(Some((waits, gone_on))) };
        let client = cluster.client().await;
        let putting = tokio::spawn(async move {
            client.put(Arc::new(source), "o", options(RS, Encoding::Online), |_, _| {}).await
        });
        waiting.await.unwrap();
        Self { go_on, putting }
    }

    async fn finish(self) -> Result<ObjectInfo, ClientError> {
        self.go_on.send(()).unwrap();
        self.putting.await.unwrap()
    }
}

/// Ids of the stripes of the only object: 1, 2, .. if none was written twice.
async fn ids(cluster: &Cluster) -> Vec<u64> {
    let view = cluster.client().await.stripes("o", 0, 1000).await.unwrap();
    view.stripes.iter().map(|s| s.id.0).collect()
}

/// Every block is where the metadata place it, and the object has the bytes that were put.
async fn assert_whole(cluster: &Cluster, data: &[u8]) {
    assert_eq!(cluster.all_blocks().await.len(), cluster.blocks_of("o").await);
    let nodes = cluster.client().await.nodes().await.unwrap().nodes;
    assert!(nodes.iter().all(|n| n.lost_blocks == 0), "{nodes:?}");
    assert_same(&cluster.get("o").await.unwrap(), data);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_is_wiped_before_the_commit_is_written_to_anew() {
    let cluster = Cluster::start(6, 3).await;
    let data = content(1, 900_000);
    let written = Written::start(&cluster, &data).await;
    assert!(!cluster.block_files_of(2).is_empty());
    let wipe = cluster.client().await.command_node(NodeId(2), NodeAction::Wipe).await.unwrap();
    cluster.finish(wipe).await;
    written.finish().await.unwrap();
    assert_whole(&cluster, &data).await;
    assert_ne!(ids(&cluster).await, [1, 2, 3, 4, 5], "some stripes were written twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn with_no_other_node_it_is_written_to_the_one_that_was_wiped() {
    let cluster = Cluster::start(5, 3).await;
    let data = content(2, 500_000);
    let written = Written::start(&cluster, &data).await;
    let wipe = cluster.client().await.command_node(NodeId(4), NodeAction::Wipe).await.unwrap();
    cluster.finish(wipe).await;
    written.finish().await.unwrap();
    assert_whole(&cluster, &data).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_comes_back_with_its_blocks_is_believed() {
    let mut cluster = Cluster::start(6, 3).await;
    let data = content(3, 900_000);
    let written = Written::start(&cluster, &data).await;
    for node in [0, 1, 2, 3] {
        cluster.kill(node).await;
        cluster.start_node(node).await;
    }
    written.finish().await.unwrap();
    assert_whole(&cluster, &data).await;
    assert_eq!(ids(&cluster).await, [1, 2, 3, 4, 5], "no stripe was written twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_agent_that_comes_back_empty_is_written_to_anew() {
    let mut cluster = Cluster::start(6, 3).await;
    let data = content(4, 900_000);
    let written = Written::start(&cluster, &data).await;
    for node in [1, 2, 3] {
        cluster.kill(node).await;
        cluster.empty(node);
        cluster.start_node(node).await;
    }
    written.finish().await.unwrap();
    assert_whole(&cluster, &data).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_coordinator_that_is_started_again_still_knows_whom_to_ask() {
    let mut cluster = Cluster::start(6, 3).await;
    let data = content(5, 900_000);
    let written = Written::start(&cluster, &data).await;
    cluster.kill(1).await;
    cluster.empty(1);
    cluster.restart_coordinator().await;
    cluster.start_node(1).await;
    cluster.restart_coordinator().await;
    written.finish().await.unwrap();
    assert_whole(&cluster, &data).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn stripes_that_cannot_be_read_without_dead_nodes_are_written_anew() {
    let mut cluster = Cluster::start(9, 9).await;
    let data = content(6, 2_000_000);
    let written = Written::start(&cluster, &data).await;
    cluster.lose(0..4).await;
    written.finish().await.unwrap();
    // Four nodes are away, and a stripe tolerates two losses.
    assert_same(&cluster.get("o").await.unwrap(), &data);
}
