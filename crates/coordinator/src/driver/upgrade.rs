//! While agents of an earlier release are there: agents are called in a version that all of them understand, and volumes
//! wait, because an older agent would fence all stripes of a volume with one. When all agents and writers hand on tickets, agents
//! demand them of each other, and nobody older may come back: whoever has an agent's key could else say that it is older.

use kintsu_dag::NodeId;
use kintsu_wire::PROTOCOL_VERSION;
use kintsu_wire::message::Register;
use kintsu_wire::version::{HANDS_ON_TICKETS, SNAPSHOTS, STRIPE_EPOCHS};

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

/// Whether agents may demand tickets of each other: there are tickets, all nodes that are known hand them on, also those that are
/// away, and so do all that write to volumes now.
pub fn everybody_hands_on(cluster: &Cluster) -> bool {
    let (version, now_ms) = (HANDS_ON_TICKETS, cluster.now_ms());
    cluster.tickets.is_some()
        && cluster.members().all_speak(version)
        && cluster.volume_leases().all_speak(version, now_ms)
}

/// Whether a node's agent knows of tickets that are handed on, and for one epoch.
pub fn hands_on(cluster: &Cluster, node: NodeId) -> bool {
    cluster.members().node(node).is_some_and(|member| member.record.protocol >= HANDS_ON_TICKETS)
}

/// Refuses an agent that hands on no tickets where all others do.
///
/// # Errors
/// `Conflict` with the version that it speaks.
pub fn check_agent(cluster: &Cluster, request: &Register) -> Result<()> {
    let all = {
        let members = cluster.members();
        members.iter().next().is_some() && members.all_speak(HANDS_ON_TICKETS)
    };
    if cluster.tickets.is_none() || !all || request.protocol >= HANDS_ON_TICKETS {
        return Ok(());
    }
    Err(CoordinatorError::Conflict {
        what: format!("agent of {}", request.dir),
        expected: format!("one of version {HANDS_ON_TICKETS} of the protocol or later, as all others are"),
        got: format!("one of version {}: replace its program", request.protocol),
    })
}

/// Refuses a writer that gives no tickets to hand on, where agents demand them of each other.
///
/// # Errors
/// `Conflict` with the version that it speaks.
pub fn check_writer_hands_on(cluster: &Cluster, version: u32) -> Result<()> {
    if version >= HANDS_ON_TICKETS || !everybody_hands_on(cluster) {
        return Ok(());
    }
    Err(CoordinatorError::Conflict {
        what: "writing to a volume".into(),
        expected: format!(
            "a client of version {HANDS_ON_TICKETS} of the protocol or later, because agents demand tickets of each other"
        ),
        got: format!("one of version {version}: replace this program by one of the coordinator's release"),
    })
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
    use crate::handlers::tests::config;
    use crate::handlers::tests::{cluster, enlist, registration, reopen, silence};
    use crate::handlers::{create_volume, open_volume, register};
    use crate::tickets::Tickets;
    use kintsu_wire::Credentials;
    use kintsu_wire::message::{CreateVolume, NodeAddress, OpenVolume};
    use std::sync::Arc;

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

    /// Starts the coordinator as with TLS.
    fn with_tickets(dir: &tempfile::TempDir) -> Arc<Cluster> {
        let mut cluster = Cluster::open(config(dir), Credentials::none()).unwrap();
        cluster.tickets = Some(Tickets::open(dir.path(), cluster.id).unwrap());
        Arc::new(cluster)
    }

    #[tokio::test]
    async fn agents_need_tickets_as_soon_as_all_hand_some_on_and_then_nobody_older_comes_back() {
        let before = HANDS_ON_TICKETS - 1;
        let (dir, cluster) = cluster(2, 2).await;
        assert!(!everybody_hands_on(&cluster), "without TLS there are no tickets");
        cluster.close().await.unwrap();
        let cluster = with_tickets(&dir);
        assert!(everybody_hands_on(&cluster));
        let told =
            register::handle(&cluster, Register { incarnation: 2, ..registration(1, 1) }).await.unwrap();
        assert!(told.agents_too && told.tickets.is_some());
        // Whoever has an agent's key cannot say that it is older, neither for its node nor for a new one.
        for node in [1, 9] {
            let back = Register { incarnation: 3, ..older(node, before) };
            let refused = register::handle(&cluster, back).await.unwrap_err().to_string();
            assert!(refused.contains("as all others are, got one of version 15"), "{refused}");
        }
        // In an upgrade older ones are there, perhaps away for a while.
        cluster.members().recorded(NodeId(0), |record| record.protocol = before);
        enlist(&cluster, older(1, before)).await.unwrap();
        enlist(&cluster, Register { incarnation: 3, ..registration(1, 1) }).await.unwrap();
        silence(&cluster, &[0]);
        assert!(!everybody_hands_on(&cluster));
        enlist(&cluster, Register { incarnation: 2, ..registration(0, 0) }).await.unwrap();
        assert!(everybody_hands_on(&cluster));
    }

    #[tokio::test]
    async fn a_writer_that_hands_on_no_tickets_goes_on_and_is_not_let_in_again() {
        let before = HANDS_ON_TICKETS - 1;
        let (dir, cluster) = cluster(2, 2).await;
        cluster.close().await.unwrap();
        let cluster = with_tickets(&dir);
        let speaks = |version| cluster.volume_leases().speaks(7, 1, version);
        cluster.volume_leases().grant(7, 1, cluster.now_ms());
        assert!(everybody_hands_on(&cluster));
        speaks(before);
        assert!(!everybody_hands_on(&cluster));
        check_writer_hands_on(&cluster, before).unwrap();
        speaks(HANDS_ON_TICKETS);
        check_writer_hands_on(&cluster, HANDS_ON_TICKETS).unwrap();
        let refused = check_writer_hands_on(&cluster, before).unwrap_err().to_string();
        assert!(
            refused.contains("because agents demand tickets of each other, got one of version 15"),
            "{refused}"
        );
        // What a writer speaks that was there before the coordinator started is not known, until its lease ends.
        let leases = crate::engine::volumes::VolumeLeases::new(100, [(7, 1)], 50);
        assert_eq!([149, 150].map(|now_ms| leases.all_speak(HANDS_ON_TICKETS, now_ms)), [false, true]);
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
