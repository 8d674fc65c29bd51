//! While agents of an earlier release are there: agents are called in a version that all of them understand, and volumes
//! wait, because an older agent would fence all stripes of a volume with one.

use kintsu_dag::NodeId;
use kintsu_wire::PROTOCOL_VERSION;
use kintsu_wire::version::{SNAPSHOTS, STRIPE_EPOCHS};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// From now on agents are called in the version of the oldest one.
pub fn settle_version(cluster: &Cluster) {
    let oldest = cluster.members().oldest_version();
    cluster.speaks.set(oldest.unwrap_or(PROTOCOL_VERSION));
}

/// Refuses to work on volumes while an agent is there that does not know of epochs of stripes, or may not.
///
/// # Errors
/// `Conflict` with these nodes; `Unavailable` if one has not said its version yet.
pub fn check_volumes(cluster: &Cluster) -> Result<()> {
    check_agents(cluster, "volumes", STRIPE_EPOCHS)
}

/// Refuses to work on snapshots while an agent is there that does not know of them, or may not.
///
/// # Errors
/// As [`check_volumes`].
pub fn check_snapshots(cluster: &Cluster) -> Result<()> {
    check_agents(cluster, "snapshots of volumes", SNAPSHOTS)
}

fn check_agents(cluster: &Cluster, what: &str, since: u32) -> Result<()> {
    let (older, silent) = {
        let members = cluster.members();
        (members.before(since), members.without_version())
    };
    if !older.is_empty() {
        let names: Vec<String> = older.iter().map(NodeId::to_string).collect();
        return Err(CoordinatorError::Conflict {
            what: what.into(),
            expected: format!("agents of version {since} of the protocol or later on all nodes"),
            got: format!(
                "older ones on {}: replace their programs (`kintsu nodes --json` shows `protocol`)",
                names.join(", ")
            ),
        });
    }
    match silent.first() {
        Some(&node) => {
            let reason =
                "its agent has not said yet which version of the protocol it speaks; try again".into();
            Err(CoordinatorError::Unavailable { node, reason })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, enlist, registration, reopen, silence};
    use crate::handlers::{create_volume, open_volume};
    use kintsu_wire::message::{CreateVolume, NodeAddress, OpenVolume, Register};

    fn open() -> OpenVolume {
        OpenVolume { name: "v".into(), writer: Some(1), take: false }
    }

    fn older(node: u32, protocol: u32) -> Register {
        Register { protocol, incarnation: 2, ..registration(node, node % 2) }
    }

    #[tokio::test]
    async fn volumes_wait_until_no_older_agent_is_there() {
        let (dir, cluster) = cluster(4, 2).await;
        let create = CreateVolume {
            name: "v".into(),
            size: 1 << 20,
            code: "rs:n=4,k=2".into(),
            block_bytes: 4096,
            durability: Default::default(),
            scheme: None,
        };
        create_volume::handle(&cluster, create).await.unwrap();
        enlist(&cluster, older(1, STRIPE_EPOCHS - 1)).await.unwrap();
        let refused = open_volume::handle(&cluster, open()).await.unwrap_err().to_string();
        assert!(refused.contains("older ones on N1:"), "{refused}");
        cluster.close().await.unwrap();
        let cluster = reopen(&dir);
        for node in [0, 2, 3] {
            enlist(&cluster, registration(node, node % 2)).await.unwrap();
        }
        assert!(check_volumes(&cluster).is_err(), "a restart does not forget it");
        enlist(&cluster, older(1, STRIPE_EPOCHS - 1)).await.unwrap();
        assert!(check_volumes(&cluster).is_err());
        silence(&cluster, &[1]);
        assert_eq!(open_volume::handle(&cluster, open()).await.unwrap().taken, 1);
        enlist(&cluster, Register { incarnation: 3, ..registration(1, 1) }).await.unwrap();
        check_volumes(&cluster).unwrap();
    }

    #[tokio::test]
    async fn snapshots_wait_until_all_agents_know_of_them_and_volumes_do_not() {
        let (_dir, cluster) = cluster(4, 2).await;
        check_snapshots(&cluster).unwrap();
        enlist(&cluster, older(1, SNAPSHOTS - 1)).await.unwrap();
        check_volumes(&cluster).unwrap();
        let refused = check_snapshots(&cluster).unwrap_err().to_string();
        assert!(refused.contains("snapshots of volumes: expected agents of version 12"), "{refused}");
    }

    #[tokio::test]
    async fn a_node_that_has_not_said_its_version_is_waited_for() {
        let (_dir, cluster) = cluster(2, 1).await;
        cluster.members().recorded(NodeId(1), |record| record.protocol = 0);
        let waits = check_volumes(&cluster).unwrap_err();
        assert!(matches!(waits, CoordinatorError::Unavailable { node: NodeId(1), .. }), "{waits}");
        silence(&cluster, &[1]);
        check_volumes(&cluster).unwrap();
    }

    #[tokio::test]
    async fn agents_are_called_in_the_version_of_the_oldest_and_clients_learn_it() {
        let (_dir, cluster) = cluster(3, 1).await;
        let told = || -> Vec<Option<u32>> {
            cluster.members().addresses().iter().map(|node: &NodeAddress| node.older).collect()
        };
        settle_version(&cluster);
        assert_eq!((cluster.speaks.now(), told()), (PROTOCOL_VERSION, vec![None; 3]));
        enlist(&cluster, older(1, 10)).await.unwrap();
        assert_eq!((cluster.speaks.now(), told()), (10, vec![None, Some(10), None]));
        cluster.members().recorded(NodeId(2), |record| record.protocol = 0);
        settle_version(&cluster);
        assert_eq!(cluster.speaks.now(), 10, "what is not known changes nothing");
        enlist(&cluster, Register { incarnation: 3, ..registration(1, 1) }).await.unwrap();
        assert_eq!(cluster.speaks.now(), PROTOCOL_VERSION);
    }
}
