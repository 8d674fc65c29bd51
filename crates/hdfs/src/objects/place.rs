//! Which DataNode gets which block: the rules of [`kintsu_plan::place`] on the DataNodes and racks that the NameNode tells.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId};
use kintsu_plan::{Layout, Node, StripeView, Topology, place, place_lost};

use crate::proto::names::DatanodeInfo;
use crate::status::{Heard, SILENT_MS};
use crate::{Group, HdfsError};

/// The DataNodes as nodes.
pub(crate) struct Datanodes {
    nodes: BTreeMap<NodeId, DatanodeInfo>,
    topology: Topology,
}

impl Datanodes {
    /// These DataNodes without those in `bad` (by UUID). Usable are those in service that were heard lately, with room for two blocks.
    pub(crate) fn of(live: Vec<DatanodeInfo>, bad: &BTreeSet<String>) -> Self {
        let heard = Heard::of(live.iter());
        let racks: BTreeSet<String> = live.iter().map(rack).collect();
        let number = |node: &DatanodeInfo| racks.iter().position(|name| *name == rack(node)).unwrap_or(0);
        let one = |node: &DatanodeInfo| Node {
            rack: RackId(number(node) as u32),
            usable: node.in_service() && heard.silence_ms(node) < SILENT_MS && !bad.contains(&node.id.uuid),
            used_bytes: 0,
            room_bytes: Some(node.remaining.unwrap_or(0) / 2),
        };
        let nodes = live.iter().enumerate().map(|(i, node)| (NodeId(i as u32), one(node))).collect();
        let topology = Topology { nodes, ..Topology::default() };
        Self { nodes: (0..).map(NodeId).zip(live).collect(), topology }
    }

    /// DataNodes for the blocks of a new stripe.
    ///
    /// # Errors
    /// `Plan` when there are too few.
    pub(crate) fn place(
        &self,
        code: &dyn Code,
        layout: &Layout,
        seed: u64,
    ) -> Result<BTreeMap<BlockIndex, DatanodeInfo>, HdfsError> {
        let homes = place(code, layout, &self.topology, seed)?.homes;
        Ok(self.named(homes.into_iter().enumerate().filter_map(|(i, home)| Some((i, home?)))))
    }

    /// DataNodes for further blocks of a stripe, none of which has a block of it yet.
    ///
    /// # Errors
    /// `Plan` when there are too few.
    pub(crate) fn place_more(
        &self,
        group: &Group,
        more: &[BlockIndex],
    ) -> Result<BTreeMap<BlockIndex, DatanodeInfo>, HdfsError> {
        let view = self.view(group);
        // What has a further copy of a block is taken last: that copy may be the one that stays.
        let held: BTreeSet<&str> =
            group.holders.values().flatten().map(|holder| holder.datanode.id.uuid.as_str()).collect();
        let mut rank = |node: NodeId| u64::from(held.contains(self.nodes[&node].id.uuid.as_str()));
        let homes = place_lost(&view, &self.topology, more, &mut rank)?;
        Ok(self.named(more.iter().map(|index| usize::from(index.0)).zip(homes)))
    }

    /// The stripe with one DataNode for each block: of its copies one that has no other block of the stripe, if that can be.
    fn view(&self, group: &Group) -> StripeView {
        let mut view = group.view(NodeId::CLIENT, |_| false);
        let by_uuid: BTreeMap<&str, NodeId> =
            self.nodes.iter().map(|(id, node)| (node.id.uuid.as_str(), *id)).collect();
        let mut copies: Vec<(usize, Vec<NodeId>)> = group
            .holders
            .iter()
            .map(|(index, holders)| {
                let known = holders.iter().filter_map(|h| by_uuid.get(h.datanode.id.uuid.as_str()).copied());
                (usize::from(index.0), known.collect())
            })
            .collect();
        copies.sort_by_key(|(_, copies)| copies.len());
        for (index, copies) in copies {
            let free = copies.iter().find(|node| !view.homes.contains(&Some(**node)));
            view.homes[index] = free.or(copies.first()).copied();
        }
        view
    }

    fn named(&self, homes: impl Iterator<Item = (usize, NodeId)>) -> BTreeMap<BlockIndex, DatanodeInfo> {
        let named = |(i, home)| Some((BlockIndex(i as u8), self.nodes.get(&home)?.clone()));
        homes.filter_map(named).collect()
    }

    /// `count` DataNodes for the replicas of a small file, in different racks as far as there are enough.
    pub(crate) fn some(&self, count: usize) -> Vec<DatanodeInfo> {
        let mut usable: Vec<(usize, &NodeId)> = Vec::new();
        let mut met: BTreeMap<RackId, usize> = BTreeMap::new();
        for (id, node) in self.topology.nodes.iter().filter(|(_, node)| node.usable && node.has_room(1)) {
            let turn = met.entry(node.rack).or_default();
            usable.push((*turn, id));
            *turn += 1;
        }
        usable.sort();
        usable.into_iter().take(count).filter_map(|(_, id)| self.nodes.get(id).cloned()).collect()
    }
}

fn rack(node: &DatanodeInfo) -> String {
    node.location.clone().unwrap_or_default()
}
