//! Who can help: pure functions of what NameNode and agents say.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_plan::{DamagedStripe, Node, Topology};

use super::members::Member;
use crate::Group;
use crate::proto::names::DatanodeInfo;
use crate::vigil::{Gone, address};

/// The agents' nodes, with racks by the NameNode's map. Usable for new blocks are those in service with room for two: on the DataNode, and in
/// the agent's own folder, which may be on a smaller disk.
pub(crate) fn topology(members: &BTreeMap<NodeId, Member>, live: &[DatanodeInfo], gone: &Gone) -> Topology {
    let by_address: BTreeMap<String, &DatanodeInfo> = live.iter().map(|node| (address(node), node)).collect();
    let places: BTreeSet<&str> = live.iter().map(rack).collect();
    let number = |name: &str| places.iter().position(|place| *place == name).unwrap_or(0) as u32;
    let known = members.iter().filter(|(_, member)| !gone.contains_key(&member.datanode));
    let nodes = known.filter_map(|(id, member)| {
        let datanode = by_address.get(&member.datanode)?;
        let node = Node {
            rack: RackId(number(rack(datanode))),
            usable: datanode.in_service(),
            used_bytes: 0,
            room_bytes: Some(room(datanode, member) / 2),
        };
        Some((*id, node))
    });
    Topology { nodes: nodes.collect(), ..Topology::default() }
}

/// Bytes that are free on the DataNode and on the disk of its agent's folder, as far as that is known.
fn room(datanode: &DatanodeInfo, member: &Member) -> u64 {
    let folder = member.usage.map_or(u64::MAX, |usage| usage.free_bytes);
    datanode.remaining.unwrap_or(0).min(folder)
}

fn rack(node: &DatanodeInfo) -> &str {
    node.location.as_deref().unwrap_or_default()
}

/// A group with lost indices as planners take it. Staged blocks in `staged` are read like stored ones. Barred are the nodes of
/// DataNodes with any index of the group, and those in `barred`.
pub(crate) fn damaged(
    group: &Group,
    lost: &[BlockIndex],
    members: &BTreeMap<NodeId, Member>,
    topology: &Topology,
    barred: &BTreeSet<NodeId>,
    staged: &[(BlockIndex, NodeId)],
) -> DamagedStripe {
    let by_address: BTreeMap<&str, NodeId> = members
        .iter()
        .filter(|(id, _)| topology.nodes.contains_key(id))
        .map(|(id, member)| (member.datanode.as_str(), *id))
        .collect();
    let mut view = group.view(NodeId::CLIENT, |_| false);
    let mut barred = barred.clone();
    for (index, holders) in &group.holders {
        let mut nodes =
            holders.iter().filter_map(|holder| by_address.get(address(&holder.datanode).as_str()));
        barred.extend(nodes.clone());
        // Of two blocks on one DataNode, as HDFS's balancer may put those of an object, planners take one.
        let free = |node: &NodeId| !lost.contains(index) && !view.homes.contains(&Some(*node));
        let home = nodes.next().copied().filter(free);
        if let Some(place) = view.homes.get_mut(usize::from(index.0)) {
            *place = home;
        }
    }
    for (index, node) in staged {
        let free = topology.nodes.contains_key(node) && !view.homes.contains(&Some(*node));
        if let Some(place) = view.homes.get_mut(usize::from(index.0)).filter(|place| place.is_none() && free)
        {
            *place = Some(*node);
        }
    }
    // A node whose block is of the stripe is no requestor anyway.
    barred.retain(|node| !view.homes.contains(&Some(*node)));
    DamagedStripe { view, lost: lost.to_vec(), barred }
}

#[cfg(test)]
mod tests {
    use kintsu_wire::message::DiskUsage;
    use kintsu_wire::version::Speaks;

    use super::*;
    use crate::beside::members::Members;
    use crate::beside::members::tests::register;
    use crate::group::tests::datanode;

    #[tokio::test]
    async fn there_is_as_much_room_as_on_the_fuller_of_both_disks() {
        let members = Members::of("BP", Speaks::default());
        let node = register(&members, "10.0.0.1:1", 11).await;
        let live = [DatanodeInfo { remaining: Some(1000), ..datanode("10.0.0.1:1".parse().unwrap()) }];
        let mut members = members.alive();
        let mut room = |usage| {
            members.values_mut().for_each(|member| member.usage = usage);
            topology(&members, &live, &Gone::new()).nodes[&node].room_bytes
        };
        assert_eq!(room(None), Some(500));
        assert_eq!(room(Some(DiskUsage { free_bytes: 100, ..DiskUsage::default() })), Some(50));
        assert_eq!(room(Some(DiskUsage { free_bytes: 5000, ..DiskUsage::default() })), Some(500));
    }
}
