//! Codes registered as data: objects are stored with them, read degraded by clients that never saw them, and
//! repaired.

use kintsu_client::ClientError;
use kintsu_code::Definition;
use kintsu_dag::BlockIndex;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, NodeState, RepairTarget};

use crate::bytes::{assert_same, content};
use crate::cluster::{CELL, Cluster, options};

const MISER: &str = "user:miser-4-2";

/// A data block is repaired from half of each of the three others (OpenEC's Fig. 2).
fn miser() -> Definition {
    let example = include_str!("../../../../docs/examples/miser-4-2.json");
    serde_json::from_str(example).unwrap()
}

fn data() -> Vec<u8> {
    content(7, 21 * CELL as usize + 777)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registered_code_is_stored_with_and_read_by_clients_that_never_saw_it() {
    let mut cluster = Cluster::start(6, 6).await;
    assert!(cluster.client().await.register_code(&miser()).await.unwrap());
    cluster.put("a", &data(), options(MISER, Encoding::Online)).await.unwrap();
    cluster.put("empty", &[], options(MISER, Encoding::Online)).await.unwrap();
    cluster.restart_coordinator().await;
    for id in [0, 1] {
        assert_same(&cluster.get("a").await.unwrap(), &data());
        cluster.kill(id).await;
    }
    assert_same(&cluster.get("a").await.unwrap(), &data());
    assert_same(&cluster.get_range("a", 1000..70_000).await.unwrap(), &data()[1000..70_000]);
    assert!(cluster.get("empty").await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_blocks_of_a_registered_code_are_repaired_after_a_restart() {
    let mut cluster = Cluster::start(6, 6).await;
    cluster.client().await.register_code(&miser()).await.unwrap();
    cluster.put("a", &data(), options(MISER, Encoding::Online)).await.unwrap();
    let before = cluster.all_blocks().await;
    cluster.kill(0).await;
    cluster.restart_coordinator().await;
    cluster.until_state(0, NodeState::Dead).await;
    let jobs = cluster.client().await.repair(RepairTarget::All, Method::Conventional, CELL).await.unwrap();
    let report = cluster.finish(jobs).await;
    assert_eq!(report.failed, Vec::<String>::new());
    for (id, (node, bytes)) in cluster.all_blocks().await {
        assert_ne!(node, 0, "{id}");
        assert_same(&bytes, &before[&id].1);
    }
    cluster.kill(1).await;
    assert_same(&cluster.get("a").await.unwrap(), &data());
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_encoding_uses_the_registered_graphs() {
    let mut cluster = Cluster::start(6, 6).await;
    let from = kintsu_code::parse("azure-lrc:n=6,k=3,r=2").unwrap();
    let definition = Definition::of(from.as_ref(), "user:lrc").unwrap();
    cluster.client().await.register_code(&definition).await.unwrap();
    cluster.put("a", &data(), options("user:lrc", Encoding::Offline)).await.unwrap();
    let report = cluster.finish(cluster.client().await.encode("a").await.unwrap()).await;
    assert_eq!(report.failed, Vec::<String>::new());
    cluster.kill(2).await;
    assert_same(&cluster.get("a").await.unwrap(), &data());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_code_is_refused_and_what_is_used_stays() {
    let cluster = Cluster::start(4, 4).await;
    let client = cluster.client().await;
    let mut wrong = miser();
    wrong.repairs[0].joins[0].coefs.0[0] ^= 1;
    let refused = client.register_code(&wrong).await.unwrap_err();
    assert!(matches!(&refused, ClientError::Invalid(why) if why.contains("fails its proof")), "{refused}");
    let missing = cluster.put("a", &data(), options(MISER, Encoding::Online)).await.unwrap_err();
    assert!(matches!(missing, ClientError::NotFound(_)), "{missing}");

    assert!(client.register_code(&miser()).await.unwrap());
    assert!(!client.register_code(&miser()).await.unwrap());
    let other = Definition { place: Some(vec![(0..4).map(BlockIndex).collect()]), ..miser() };
    let taken = client.register_code(&other).await.unwrap_err();
    assert!(matches!(&taken, ClientError::Exists(why) if why.contains("another placement")), "{taken}");
    assert_eq!(client.find_code(MISER).await.unwrap(), miser());

    cluster.put("a", &data(), options(MISER, Encoding::Online)).await.unwrap();
    let used = client.remove_code(MISER).await.unwrap_err();
    assert!(used.to_string().contains("object \"a\""), "{used}");
    client.remove("a").await.unwrap();
    client.remove_code(MISER).await.unwrap();
    assert!(client.codes().await.unwrap().is_empty());
}
