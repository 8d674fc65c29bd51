//! A cluster in this process is started, disturbed, ended and continued.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::sync::Arc;

use bytes::Bytes;
use kintsu_agent::{Agent, AgentConfig};
use kintsu_client::{Client, ClientError, PutOptions};
use kintsu_cluster::{Cluster, Options};
use kintsu_dag::NodeId;
use kintsu_wire::message::NodeAction;

async fn get(cluster: &Cluster) -> Vec<u8> {
    let client = Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await.unwrap();
    let mut bytes = Vec::new();
    client.get("a", None, &mut bytes, |_, _| {}).await.unwrap();
    client.close().await;
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_there_after_every_end() {
    let dir = tempfile::tempdir().unwrap();
    let stored: Vec<u8> = (0..100_000_u32).map(|i| (i % 251) as u8).collect();
    let mut cluster = Cluster::start(Options::new(dir.path(), 4, 2)).await.unwrap();
    let client = Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await.unwrap();
    let source = Arc::new(Bytes::from(stored.clone()));
    client.put(source, "a", PutOptions::new("rs:n=4,k=2"), |_, _| {}).await.unwrap();
    client.close().await;
    assert!(cluster.kill_node(1).await && !cluster.kill_node(1).await);
    assert_eq!(cluster.running().await, [0, 2, 3]);
    assert_eq!(get(&cluster).await, stored, "without a node");
    let before = cluster.addr();
    cluster.restart_coordinator().await.unwrap();
    assert_eq!(cluster.addr(), before);
    cluster.start_node(1).await.unwrap();
    assert_eq!(get(&cluster).await, stored, "after a restart of the coordinator");
    cluster.shutdown().await.unwrap();
    let cluster = Cluster::start(Options::new(dir.path(), 4, 2)).await.unwrap();
    assert_eq!(get(&cluster).await, stored, "after a restart of everything");
    // A drop ends the agents too: their folders can be used again.
    drop(cluster);
    let again = async {
        loop {
            match Cluster::start(Options::new(dir.path(), 4, 2)).await {
                Ok(cluster) => return cluster,
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    };
    let cluster = tokio::time::timeout(std::time::Duration::from_secs(60), again).await.unwrap();
    assert_eq!(get(&cluster).await, stored, "after a drop");
    cluster.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_runs_apart_is_not_started_here() {
    let (dir, apart) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cluster = Cluster::start(Options::new(dir.path(), 3, 3)).await.unwrap();
    let config = AgentConfig { node: Some(NodeId(7)), ..AgentConfig::new(apart.path(), cluster.endpoint()) };
    let agent = Agent::start(config).await.unwrap();
    let client = Client::connect(&cluster.endpoint(), kintsu_client::Options::default()).await.unwrap();
    let command = async |id, action| {
        let mut events = client.command_node(NodeId(id), action).await?;
        while events.next().await?.is_some() {}
        Ok::<(), ClientError>(())
    };
    for id in [1, 7] {
        command(id, NodeAction::Stop).await.unwrap();
    }
    agent.wait().await;
    command(1, NodeAction::Start).await.unwrap();
    let refused = command(7, NodeAction::Start).await.unwrap_err().to_string();
    let says = format!("run `kintsu agent --dir {}", apart.path().display());
    assert!(refused.contains(&says), "{refused}");
    assert!(!cluster.node_dir(7).exists(), "a folder was made for it");
    client.close().await;
    cluster.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_folder_of_a_node_is_replaced_once() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(Options::new(dir.path(), 3, 3)).await.unwrap();
    let folder = cluster.node_dir(1);
    cluster.shutdown().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let replace = vec![1];
    let cluster = Cluster::start(Options { replace, ..Options::new(dir.path(), 3, 3) }).await.unwrap();
    for starts in [true, false] {
        assert!(cluster.kill_node(1).await);
        if !starts {
            // As if its disk were not mounted.
            std::fs::remove_dir_all(&folder).unwrap();
        }
        assert_eq!(cluster.start_node(1).await.is_ok(), starts);
    }
    cluster.shutdown().await.unwrap();
}
