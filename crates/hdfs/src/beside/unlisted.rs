//! Agents that help nobody, because the NameNode lists no DataNode of the address that they were given: they stay out of all
//! plans, so it is told, once for each start of an agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use tokio::time::Instant;

use super::Shared;
use super::members::Member;
use crate::HdfsError;
use crate::proto::names::DatanodeInfo;
use crate::vigil::address;

/// A DataNode gets this long to come to the NameNode: it may have been started together with its agent.
const COMES_WITHIN: Duration = Duration::from_secs(30);

/// DataNodes that are named to whoever gave an agent a wrong address.
const MOST_NAMED: usize = 8;

/// What is known of agents and their DataNodes.
#[derive(Default)]
pub(super) struct Unlisted {
    /// DataNodes that the NameNode listed at some time. After its restart it lists them one by one.
    listed: BTreeSet<String>,
    /// The agents whose DataNodes it never listed, and since when.
    since: BTreeMap<NodeId, Instant>,
    /// The starts of agents that were told.
    told: BTreeMap<NodeId, u64>,
}

impl Unlisted {
    /// The agents to tell of now, if the NameNode does not list their DataNodes as dead either.
    fn due(&mut self, members: &BTreeMap<NodeId, Member>, live: &[DatanodeInfo]) -> Vec<NodeId> {
        self.listed.extend(live.iter().map(address));
        let Self { listed, since, told } = self;
        let unlisted = members.iter().filter(|(node, member)| {
            !listed.contains(&member.datanode) && told.get(node) != Some(&member.incarnation)
        });
        let now = Instant::now();
        *since = unlisted.map(|(node, _)| (*node, since.get(node).copied().unwrap_or(now))).collect();
        since.iter().filter(|(_, since)| now - **since >= COMES_WITHIN).map(|(node, _)| *node).collect()
    }

    /// Of those agents the ones to tell of, with why.
    fn tell(
        &mut self,
        due: &[NodeId],
        members: &BTreeMap<NodeId, Member>,
        live: &[DatanodeInfo],
        dead: &[DatanodeInfo],
    ) -> Vec<(String, String)> {
        self.listed.extend(dead.iter().map(address));
        let mut all = Vec::new();
        for (node, member) in due.iter().filter_map(|node| members.get_key_value(node)) {
            if !self.listed.contains(&member.datanode) {
                self.told.insert(*node, member.incarnation);
                all.push((format!("agent at {}", member.control), why(&member.datanode, members, live)));
            }
        }
        all
    }
}

/// What was expected of the agent beside this DataNode, and what to do.
fn why(datanode: &str, members: &BTreeMap<NodeId, Member>, live: &[DatanodeInfo]) -> String {
    let taken: BTreeSet<&str> = members.values().map(|member| member.datanode.as_str()).collect();
    let mut free: Vec<String> =
        live.iter().map(address).filter(|address| !taken.contains(address.as_str())).collect();
    if free.len() > MOST_NAMED {
        free.truncate(MOST_NAMED);
        free.push("...".into());
    }
    let free = if free.is_empty() { "none".into() } else { free.join(", ") };
    format!(
        "expected a DataNode that the NameNode lists (live and without an agent: {free}), got {datanode}, which it lists neither \
         live nor dead. It takes no part in repairs: start its DataNode, or give the agent the right --datanode (the address of \
         transfers, dfs.datanode.address)"
    )
}

/// Looks for such agents, and tells of them.
///
/// # Errors
/// Those of calls.
pub(super) async fn look(shared: &Arc<Shared>, unlisted: &mut Unlisted) -> Result<(), HdfsError> {
    let (members, live) = (shared.members.alive(), shared.memory().live.clone());
    let due = unlisted.due(&members, &live);
    if due.is_empty() {
        return Ok(());
    }
    let dead = shared.namenode.dead_datanodes().await?;
    for (what, why) in unlisted.tell(&due, &members, &live, &dead) {
        shared.failed(what, why);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kintsu_wire::version::Speaks;

    use super::super::members::Members;
    use super::super::members::tests::register;
    use super::*;
    use crate::proto::names::DatanodeId;

    fn datanode(port: u32) -> DatanodeInfo {
        let id = DatanodeId { ip: "10.0.0.1".into(), transfer_port: port, ..DatanodeId::default() };
        DatanodeInfo { id, ..DatanodeInfo::default() }
    }

    #[tokio::test]
    async fn an_agent_is_told_of_once_if_the_namenode_never_listed_its_datanode() {
        let members = Members::of("BP", Speaks::default());
        for (port, incarnation) in [(1, 11), (2, 12), (3, 13), (9866, 14)] {
            register(&members, &format!("10.0.0.1:{port}"), incarnation).await;
        }
        let agents = members.alive();
        let (live, dead) = ([datanode(1), datanode(4)], [datanode(3)]);
        let mut unlisted = Unlisted::default();
        // 2 was there before the NameNode was started again.
        assert!(unlisted.due(&agents, &[datanode(2)]).is_empty());
        assert!(unlisted.due(&agents, &live).is_empty(), "their DataNodes may be starting");
        let later = |unlisted: &mut Unlisted| {
            unlisted.since.values_mut().for_each(|since| *since -= COMES_WITHIN);
        };
        later(&mut unlisted);
        let due = unlisted.due(&agents, &live);
        assert_eq!(due.len(), 2, "3 may be dead");
        let told = unlisted.tell(&due, &agents, &live, &dead);
        assert_eq!(told.len(), 1, "{told:?}");
        for part in ["without an agent: 10.0.0.1:4)", "got 10.0.0.1:9866", "--datanode"] {
            assert!(told[0].1.contains(part), "{told:?}");
        }
        later(&mut unlisted);
        assert!(unlisted.due(&agents, &live).is_empty(), "it was told");
        // Started again with the same address, it is another one.
        let mut agents = agents;
        agents.values_mut().filter(|agent| agent.incarnation == 14).for_each(|agent| agent.incarnation = 15);
        assert!(unlisted.due(&agents, &live).is_empty());
        later(&mut unlisted);
        assert_eq!(unlisted.due(&agents, &live).len(), 1);
    }
}
