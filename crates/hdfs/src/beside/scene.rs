//! Who can help: pure functions of what NameNode and agents say.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_plan::{DamagedStripe, Node, Topology};

use super::members::Member;
use crate::Group;
use crate::proto::names::DatanodeInfo;
use crate::vigil::{Gone, address};

/// The agents' nodes, with racks by the NameNode's map. Usable for new blocks are those in service with room for two.
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
            room_bytes: Some(datanode.remaining.unwrap_or(0) / 2),
        };
        Some((*id, node))
    });
    Topology { nodes: nodes.collect(), ..Topology::default() }
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
