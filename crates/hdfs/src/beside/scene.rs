//! What is lost, and who can help: pure functions of what NameNode and agents say.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_plan::{DamagedStripe, Node, Topology};

use super::members::Member;
use crate::Group;
use crate::proto::names::DatanodeInfo;
use crate::status::SILENT_MS;

/// Connections that a DataNode refused one after the other before it counts as gone.
pub(crate) const REFUSALS: u32 = 2;

/// The address of a DataNode's transfers as agents and reports name it.
pub(crate) fn address(datanode: &DatanodeInfo) -> String {
    format!("{}:{}", datanode.id.ip, datanode.id.transfer_port)
}

/// The DataNodes that are gone, by address, with the reason: not heard by the NameNode for ten seconds while others were,
/// or refusing connections.
pub(crate) fn gone(live: &[DatanodeInfo], refused: &BTreeMap<String, u32>) -> BTreeMap<String, String> {
    let heard = |node: &DatanodeInfo| node.last_update.unwrap_or(0);
    let newest = live.iter().map(heard).max().unwrap_or(0);
    let why = |node: &DatanodeInfo| match newest - heard(node) {
        age if age >= SILENT_MS => Some(format!("no heartbeat for {} s", age / 1000)),
        _ if refused.get(&address(node)).is_some_and(|times| *times >= REFUSALS) => {
            Some("it refuses connections".to_owned())
        }
        _ => None,
    };
    live.iter().filter_map(|node| Some((address(node), why(node)?))).collect()
}

/// The indices of a group that no DataNode has which is not gone.
pub(crate) fn lost(group: &Group, gone: &BTreeMap<String, String>) -> Vec<BlockIndex> {
    let there = |index: &BlockIndex| {
        let holders = group.holders.get(index).map(Vec::as_slice).unwrap_or_default();
        holders.iter().any(|holder| !gone.contains_key(&address(&holder.datanode)))
    };
    group.expected().filter(|index| !there(index)).collect()
}

/// The agents' nodes, with racks by the NameNode's map. Usable for new blocks are those in service with room for two.
pub(crate) fn topology(
    members: &BTreeMap<NodeId, Member>,
    live: &[DatanodeInfo],
    gone: &BTreeMap<String, String>,
) -> Topology {
    let by_address: BTreeMap<String, &DatanodeInfo> = live.iter().map(|node| (address(node), node)).collect();
    let places: BTreeSet<&str> = live.iter().map(rack).collect();
    let number = |name: &str| places.iter().position(|place| *place == name).unwrap_or(0) as u32;
    let known = members.iter().filter(|(_, member)| !gone.contains_key(&member.datanode));
    let nodes = known.filter_map(|(id, member)| {
        let datanode = by_address.get(&member.datanode)?;
        let node = Node {
            rack: RackId(number(rack(datanode))),
            usable: datanode.admin_state.unwrap_or(0) == 0,
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

/// A group with lost indices as planners take it. Barred are the nodes of DataNodes with any index of the group, and
/// those in `barred`.
pub(crate) fn damaged(
    group: &Group,
    lost: &[BlockIndex],
    members: &BTreeMap<NodeId, Member>,
    topology: &Topology,
    barred: &BTreeSet<NodeId>,
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
        let home = nodes.next().copied().filter(|_| !lost.contains(index));
        if let Some(place) = view.homes.get_mut(usize::from(index.0)) {
            *place = home;
        }
    }
    // A node whose block is of the stripe is no requestor anyway.
    barred.retain(|node| !view.homes.contains(&Some(*node)));
    DamagedStripe { view, lost: lost.to_vec(), barred }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::names::DatanodeId;

    fn datanode(port: u32, age_ms: u64) -> DatanodeInfo {
        let id = DatanodeId { ip: "10.0.0.1".into(), transfer_port: port, ..DatanodeId::default() };
        DatanodeInfo { id, last_update: Some(1_000_000 - age_ms), ..DatanodeInfo::default() }
    }

    #[test]
    fn silence_and_refusals_make_a_datanode_gone() {
        let live = [datanode(1, 0), datanode(2, 9_999), datanode(3, 10_000), datanode(4, 0), datanode(5, 0)];
        let refused = [("10.0.0.1:4".to_owned(), 2), ("10.0.0.1:5".to_owned(), 1)].into();
        let gone: Vec<String> = gone(&live, &refused).into_keys().collect();
        assert_eq!(gone, ["10.0.0.1:3", "10.0.0.1:4"]);
    }
}
