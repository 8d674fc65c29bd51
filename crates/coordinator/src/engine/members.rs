//! Which nodes are alive: a pure state machine over heartbeats and ticks.
//!
//! It reads no clock (the driver passes the time in), does no I/O and starts nothing. It returns what
//! changed, and the driver acts on that.
//!
//! A node is Dead if no heartbeat has come for `dead_after_ms`, or Stopped if it was told to stop. A node
//! that is Dead or Stopped for longer than `grace_ms` is *overdue*: its blocks are repaired automatically.
//! Any heartbeat of the recorded incarnation makes the node Alive again, and no longer overdue. A node known
//! from an earlier run of the coordinator begins as Alive, and has as much time as any other to send a
//! heartbeat.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use kintsu_dag::NodeId;
use kintsu_plan::{Node, Topology};
use kintsu_wire::message::{DiskUsage, NodeAddress, NodeInfo, NodeState};
use kintsu_wire::version::older;

use super::repair::Holder;
use super::space::Reserve;
use crate::meta::record::{Fence, NodeRecord};

mod commands;

pub use commands::{Refusal, Step};

/// The time limits of [`Members`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A node without a heartbeat for this long is dead.
    pub dead_after_ms: u64,
    /// A node that is dead or stopped for this long is overdue.
    pub grace_ms: u64,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What is recorded of it.
    pub record: NodeRecord,
    /// Whether heartbeats arrive.
    pub up: bool,
    /// When it was last heard of.
    pub seen_ms: u64,
    /// When it went down, if it is.
    pub down_ms: u64,
    /// Its disk, as it last said.
    pub usage: DiskUsage,
    /// Somebody could not reach it since it was last heard of.
    pub suspect: bool,
    /// Why its folder cannot be used, as its agent says.
    pub failed: Option<String>,
    /// It has reported what it holds since the coordinator started.
    pub reported: bool,
    /// It has called this start of the coordinator to register.
    pub called: bool,
}

impl Member {
    /// A member that has not reported yet what it holds.
    fn new(record: NodeRecord, up: bool, now_ms: u64) -> Self {
        Self {
            record,
            up,
            seen_ms: now_ms,
            down_ms: now_ms,
            usage: DiskUsage::default(),
            suspect: false,
            failed: None,
            reported: false,
            called: false,
        }
    }

    /// Whether blocks can be read from it: it is alive and is not being wiped.
    pub fn holds(&self) -> bool {
        self.up && !self.record.wiping
    }

    /// Whether no repair of its blocks begins by itself while it is away.
    pub fn is_paused(&self) -> bool {
        self.record.paused_until.is_some()
    }

    /// Its state, for operators.
    pub fn state(&self) -> NodeState {
        if self.failed.is_some() && !self.record.stopped {
            return NodeState::Failed;
        }
        match (self.up, self.record.stopped, self.record.draining) {
            (true, _, true) => NodeState::Draining,
            (true, _, false) => NodeState::Alive,
            (false, true, _) => NodeState::Stopped,
            (false, false, _) => NodeState::Dead,
        }
    }
}

/// Something happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is gone.
    Down(NodeId),
    /// It is there.
    Up(NodeId),
    /// It has been gone for so long that its blocks are to be repaired.
    Overdue(NodeId),
}

/// All nodes.
#[derive(Debug, Clone)]
pub struct Members {
    patience: Patience,
    members: BTreeMap<NodeId, Member>,
    overdue: BTreeSet<NodeId>,
    reserve: Reserve,
}

impl Members {
    /// The recorded nodes. At first all count as alive, except those that were stopped or were never heard
    /// of.
    pub fn new(patience: Patience, records: BTreeMap<NodeId, NodeRecord>, now_ms: u64) -> Self {
        let member = |record: NodeRecord| {
            let up = !record.stopped && !record.is_unheard();
            Member::new(record, up, now_ms)
        };
        let members = records.into_iter().map(|(id, record)| (id, member(record))).collect();
        Self { patience, members, overdue: BTreeSet::new(), reserve: Reserve::default() }
    }

    /// From now on this much is kept free on each disk.
    pub fn keep_free(&mut self, reserve: Reserve) {
        self.reserve = reserve;
    }

    /// What is kept free on each disk.
    pub fn reserve(&self) -> Reserve {
        self.reserve
    }

    /// The nodes that hold blocks, and whether each is gone. One whose agent says that its disk failed is not among them, and one
    /// that is paused counts as there: somebody knows why it is away.
    pub fn holders(&self, holds: impl Fn(NodeId) -> bool) -> Vec<Holder> {
        let counts = |(id, member): &(&NodeId, &Member)| member.failed.is_none() && holds(**id);
        let gone = |member: &Member| !member.up && !member.is_paused();
        let holder =
            |(_, member): (&NodeId, &Member)| Holder { rack: member.record.rack, gone: gone(member) };
        self.members.iter().filter(counts).map(holder).collect()
    }

    /// The time limits.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// One node.
    pub fn node(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    /// The nodes that are there and speak only versions of the protocol before this one.
    pub fn before(&self, version: u32) -> Vec<NodeId> {
        let older = |(_, m): &(NodeId, &Member)| m.up && (1..version).contains(&m.record.protocol);
        self.iter().filter(older).map(|(node, _)| node).collect()
    }

    /// Whether all nodes, also those that are away, have said that they speak this version of the protocol or a later one.
    pub fn all_speak(&self, version: u32) -> bool {
        self.members.values().all(|m| m.record.protocol >= version)
    }

    /// The nodes that are there and have not said which versions of the protocol they speak.
    pub fn without_version(&self) -> Vec<NodeId> {
        self.iter().filter(|(_, m)| m.up && m.record.protocol == 0).map(|(node, _)| node).collect()
    }

    /// The version of the protocol that all agents speak which are there or have called, as far as they said it.
    pub fn oldest_version(&self) -> Option<u32> {
        let there = self.members.values().filter(|m| m.up || m.called);
        there.map(|m| m.record.protocol).filter(|version| *version > 0).min()
    }

    /// All nodes by id.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// A member that seems to be alive and that a registration under its id would displace. The caller must
    /// find out whether it really is alive. A registration with the same address is a restart of the same
    /// agent.
    pub fn rival(&self, node: NodeId, control: SocketAddr, incarnation: u64, now_ms: u64) -> Option<&Member> {
        self.members.get(&node).filter(|m| {
            let recent = m.up && now_ms.saturating_sub(m.seen_ms) < self.patience.dead_after_ms;
            recent && m.record.incarnation != incarnation && m.record.control != control
        })
    }

    /// A node has reported all that it holds. `record` is from the beginning of that report.
    pub fn enrolled(&mut self, node: NodeId, record: NodeRecord, now_ms: u64) -> Option<Change> {
        self.overdue.remove(&node);
        let mut member = Member { reported: true, called: true, ..Member::new(record, true, now_ms) };
        let old = self.members.remove(&node);
        if let Some(old) = &old {
            member.usage = old.usage;
            // Orders that came meanwhile stay in force.
            let NodeRecord { draining, wiping, held, paused_until, .. } = old.record;
            (member.record.draining, member.record.wiping, member.record.held) = (draining, wiping, held);
            member.record.paused_until = paused_until;
            if old.record.epoch == member.record.epoch {
                member.record.scrub = old.record.scrub;
            }
        }
        self.members.insert(node, member);
        (!old.is_some_and(|m| m.up)).then_some(Change::Up(node))
    }

    /// A heartbeat has come. `failed` says why the node's folder cannot be used, if so: then its blocks count
    /// as unavailable, like those of a dead node.
    ///
    /// `Err` asks the node to register again: nobody of this incarnation has registered since the coordinator
    /// started (until then its earlier record stays valid), or its folder can be used again and its content
    /// must be reported.
    #[allow(clippy::result_unit_err)]
    pub fn seen(
        &mut self,
        node: NodeId,
        incarnation: u64,
        usage: DiskUsage,
        failed: Option<String>,
        now_ms: u64,
    ) -> Result<Option<Change>, ()> {
        let member = self.members.get_mut(&node).filter(|m| m.record.incarnation == incarnation).ok_or(())?;
        if failed.is_some() {
            member.seen_ms = now_ms;
            member.failed = failed;
            let was_up = std::mem::replace(&mut member.up, false);
            if was_up {
                member.down_ms = now_ms;
            }
            return Ok(was_up.then_some(Change::Down(node)));
        }
        if member.failed.is_some() {
            return Err(());
        }
        (member.seen_ms, member.usage, member.suspect) = (now_ms, usage, false);
        if !member.reported {
            return Err(());
        }
        if member.up || member.record.stopped {
            // A stopped agent may still send a last heartbeat.
            return Ok(None);
        }
        member.up = true;
        self.overdue.remove(&node);
        Ok(Some(Change::Up(node)))
    }

    /// A node has called to register, in this version of the protocol: what it remembers of the metadata was compared.
    pub fn called(&mut self, node: NodeId, protocol: u32) {
        if let Some(member) = self.members.get_mut(&node) {
            (member.called, member.record.protocol) = (true, protocol);
        }
    }

    /// Whether a node that is taken for alive has not called yet.
    pub fn awaits_calls(&self) -> bool {
        self.members.values().any(|m| m.up && !m.called)
    }

    /// Adds a node that has blocks but was not heard of yet.
    pub fn unheard(&mut self, node: NodeId, record: NodeRecord, now_ms: u64) {
        self.members.entry(node).or_insert(Member::new(record, false, now_ms));
    }

    /// Has all nodes register again, with all their blocks.
    pub fn recall(&mut self) {
        for member in self.members.values_mut() {
            member.reported = false;
        }
    }

    /// A node was told to stop.
    pub fn stopped(&mut self, node: NodeId, now_ms: u64) -> Option<Change> {
        let member = self.members.get_mut(&node)?;
        member.record.stopped = true;
        if !std::mem::replace(&mut member.up, false) {
            return None;
        }
        member.down_ms = now_ms;
        Some(Change::Down(node))
    }

    /// The wipe of a node has begun or ended. During a wipe the node gets no new blocks, and nothing is read
    /// from it.
    pub fn set_wiping(&mut self, node: NodeId, wiping: bool) {
        if let Some(member) = self.members.get_mut(&node) {
            member.record.wiping = wiping;
        }
    }

    /// Whether a node is being wiped, or must be wiped as soon as it is back.
    pub fn wiping(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|m| m.record.wiping)
    }

    /// A node gets no new blocks from now on, or gets them again. Returns whether it was draining before.
    pub fn set_draining(&mut self, node: NodeId, draining: bool) -> bool {
        let member = self.members.get_mut(&node);
        member.is_some_and(|m| std::mem::replace(&mut m.record.draining, draining))
    }

    /// A node is paused until this time (in seconds since 1970), or its pause ends. Returns whether its blocks were to be
    /// repaired and now are not.
    pub fn set_paused(&mut self, node: NodeId, until: Option<u64>) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        member.record.paused_until = until;
        until.is_some() && self.overdue.remove(&node)
    }

    /// It is so late (in seconds since 1970): pauses end. Returns whose.
    pub fn end_pauses(&mut self, unix: u64) -> Vec<NodeId> {
        let mut ended = Vec::new();
        for (id, member) in &mut self.members {
            if member.record.paused_until.take_if(|until| *until <= unix).is_some() {
                ended.push(*id);
            }
        }
        ended
    }

    /// The record of a node has changed.
    pub fn recorded(&mut self, node: NodeId, change: impl FnOnce(&mut NodeRecord)) {
        if let Some(member) = self.members.get_mut(&node) {
            change(&mut member.record);
        }
    }

    /// A node is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.members.remove(&node);
        self.overdue.remove(&node);
    }

    /// Somebody could not reach a node: it is not used until it is heard of again.
    pub fn suspect(&mut self, node: NodeId) {
        if let Some(member) = self.members.get_mut(&node) {
            member.suspect = true;
        }
    }

    /// Whether some node counts as alive but is suspected to be dead.
    pub fn doubts(&self) -> bool {
        self.members.values().any(|m| m.up && m.suspect)
    }

    /// The nodes from which blocks can be read, as far as is known.
    pub fn usable(&self) -> BTreeSet<NodeId> {
        self.members.iter().filter(|(_, m)| m.holds() && !m.suspect).map(|(id, _)| *id).collect()
    }

    /// The coordinator could not run for so many milliseconds and heard nobody: this time counts against no node.
    pub fn excuse(&mut self, stalled_ms: u64, now_ms: u64) {
        for member in self.members.values_mut() {
            let since = if member.up { &mut member.seen_ms } else { &mut member.down_ms };
            *since = since.saturating_add(stalled_ms).min(now_ms);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        for (&id, member) in &mut self.members {
            if member.up && now_ms.saturating_sub(member.seen_ms) >= self.patience.dead_after_ms {
                (member.up, member.down_ms) = (false, now_ms);
                changes.push(Change::Down(id));
            }
            let due = !member.up
                && !member.is_paused()
                && now_ms.saturating_sub(member.down_ms) >= self.patience.grace_ms;
            if due && self.overdue.insert(id) {
                changes.push(Change::Overdue(id));
            }
        }
        changes
    }

    /// Whether a node is alive.
    pub fn readable(&self, node: NodeId) -> bool {
        self.members.get(&node).is_some_and(|m| m.up)
    }

    /// Whether a node with this fence is as it will be: it has reported its blocks since that start, or it is not there.
    pub fn has_come(&self, node: NodeId, fence: Option<Fence>) -> bool {
        let member = self.members.get(&node).filter(|m| m.up);
        member.is_none_or(|m| fence.is_none_or(|fence| fence.incarnation == m.record.incarnation))
    }

    /// The nodes from which nothing can be read.
    pub fn down(&self) -> BTreeSet<NodeId> {
        self.members.iter().filter(|(_, m)| !m.holds()).map(|(id, _)| *id).collect()
    }

    /// The nodes whose blocks are to be repaired automatically.
    pub fn overdue(&self) -> &BTreeSet<NodeId> {
        &self.overdue
    }

    /// The nodes as planners see them: usable for new blocks are those that are alive, not suspected, and
    /// neither draining nor being wiped; their room is what is free without the reserve.
    pub fn topology(&self) -> Topology {
        let node = |m: &Member| Node {
            rack: m.record.rack,
            usable: m.holds() && !m.suspect && !m.record.draining,
            used_bytes: m.usage.bytes,
            room_bytes: self.reserve.room(m.usage),
        };
        Topology { nodes: self.members.iter().map(|(id, m)| (*id, node(m))).collect(), ..Topology::default() }
    }

    /// Where the nodes listen.
    pub fn addresses(&self) -> Vec<NodeAddress> {
        let address = |(id, m): (&NodeId, &Member)| NodeAddress {
            id: *id,
            rack: m.record.rack,
            control: m.record.control,
            data: m.record.data,
            alive: m.holds(),
            older: older(m.record.protocol),
        };
        self.members.iter().map(address).collect()
    }

    /// The data address of a node.
    pub fn data(&self, node: NodeId) -> Option<SocketAddr> {
        self.members.get(&node).map(|m| m.record.data)
    }

    /// The nodes, for operators; `tallies` are the blocks placed and lost on each.
    pub fn infos(&self, tallies: &BTreeMap<NodeId, (u64, u64)>, now_ms: u64) -> Vec<NodeInfo> {
        let info = |(id, m): (&NodeId, &Member)| {
            let (placed_blocks, lost_blocks) = tallies.get(id).copied().unwrap_or_default();
            NodeInfo {
                id: *id,
                rack: m.record.rack,
                state: m.state(),
                control: m.record.control,
                data: m.record.data,
                dir: m.record.dir.clone(),
                silent_ms: now_ms.saturating_sub(m.seen_ms),
                usage: m.usage.known(),
                reserve_bytes: self.reserve.of(m.usage.capacity_bytes),
                fullness: self.reserve.fullness(m.usage),
                placed_blocks,
                lost_blocks,
                name: m.record.name.clone(),
                rack_name: m.record.rack_name.clone(),
                failed: m.failed.clone(),
                folder: m.record.folder,
                held: m.record.held,
                scrub: m.record.scrub,
                paused_until: m.record.paused_until,
                protocol: m.record.protocol,
            }
        };
        self.members.iter().map(info).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kintsu_dag::RackId;
    use kintsu_wire::PROTOCOL_VERSION;
    use proptest::prelude::*;

    const PATIENCE: Patience = Patience { dead_after_ms: 50, grace_ms: 600 };
    const NODE: NodeId = NodeId(3);

    pub(crate) fn record(incarnation: u64) -> NodeRecord {
        let (control, data) = ("127.0.0.1:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap());
        let record = NodeRecord::new(RackId(0), control, data, "/d".into(), incarnation);
        NodeRecord { protocol: PROTOCOL_VERSION, ..record }
    }

    fn members() -> Members {
        let mut members = Members::new(PATIENCE, BTreeMap::new(), 0);
        assert_eq!(members.enrolled(NODE, record(7), 0), Some(Change::Up(NODE)));
        members
    }

    #[test]
    fn a_silent_node_is_dead_then_overdue_and_alive_again_when_it_speaks() {
        let mut m = members();
        assert_eq!(m.tick(49), []);
        assert_eq!(m.tick(50), [Change::Down(NODE)]);
        assert_eq!(m.node(NODE).unwrap().state(), NodeState::Dead);
        assert!(!m.topology().nodes[&NODE].usable && !m.readable(NODE));
        assert_eq!(m.tick(649), []);
        assert_eq!(m.tick(650), [Change::Overdue(NODE)]);
        assert_eq!(m.tick(900), []);
        assert_eq!(m.seen(NODE, 7, DiskUsage::default(), None, 901), Ok(Some(Change::Up(NODE))));
        assert!(m.overdue().is_empty() && m.readable(NODE));
    }

    #[test]
    fn time_in_which_the_coordinator_could_not_run_counts_against_nobody() {
        let mut m = members();
        m.excuse(1000, 1030);
        assert_eq!(m.tick(1030), [], "silent for 30");
        assert_eq!(m.tick(1050), [Change::Down(NODE)]);
        m.excuse(5000, 6100);
        assert_eq!(m.tick(6649), [], "away for 50 then");
        assert_eq!(m.tick(6650), [Change::Overdue(NODE)]);
        m.excuse(5000, 6700);
        assert_eq!(m.tick(6700), [], "never before now");
    }

    #[test]
    fn only_the_registered_incarnation_counts() {
        let mut m = members();
        assert!(m.seen(NODE, 8, DiskUsage::default(), None, 1).is_err());
        assert!(m.seen(NodeId(9), 7, DiskUsage::default(), None, 1).is_err());
        assert_eq!(m.tick(50), [Change::Down(NODE)]);
    }

    #[test]
    fn a_second_agent_at_another_address_may_be_a_rival_but_one_at_the_same_is_a_restart() {
        let m = members();
        let (same, other) = (record(8).control, "127.0.0.1:9".parse().unwrap());
        assert!(m.rival(NODE, other, 8, 10).is_some());
        assert!(m.rival(NODE, same, 8, 10).is_none());
        assert!(m.rival(NODE, other, 8, 60).is_none(), "silent for too long");
    }

    #[test]
    fn a_node_whose_disk_failed_is_down_and_overdue_and_must_tell_what_it_holds_when_it_is_back() {
        let mut m = members();
        let failed = || Some("unmounted".to_owned());
        assert_eq!(m.seen(NODE, 7, DiskUsage::default(), failed(), 10), Ok(Some(Change::Down(NODE))));
        assert_eq!(m.seen(NODE, 7, DiskUsage::default(), failed(), 300), Ok(None));
        assert_eq!(m.node(NODE).unwrap().state(), NodeState::Failed);
        assert!(!m.readable(NODE) && !m.topology().nodes[&NODE].usable);
        assert_eq!(m.tick(609), []);
        assert_eq!(m.tick(610), [Change::Overdue(NODE)]);
        assert!(m.seen(NODE, 7, DiskUsage::default(), None, 620).is_err());
        assert_eq!(m.enrolled(NODE, record(7), 630), Some(Change::Up(NODE)));
        assert_eq!(m.node(NODE).unwrap().state(), NodeState::Alive);
    }

    #[test]
    fn a_stopped_node_stays_stopped_until_it_registers() {
        let mut m = members();
        assert_eq!(m.stopped(NODE, 10), Some(Change::Down(NODE)));
        assert_eq!(m.seen(NODE, 7, DiskUsage::default(), None, 11), Ok(None));
        assert_eq!(m.node(NODE).unwrap().state(), NodeState::Stopped);
        assert_eq!(m.tick(610), [Change::Overdue(NODE)]);
        assert_eq!(m.enrolled(NODE, record(8), 700), Some(Change::Up(NODE)));
        assert_eq!(m.node(NODE).unwrap().state(), NodeState::Alive);
        assert!(m.overdue().is_empty());
    }

    #[test]
    fn what_a_node_is_ordered_while_it_tells_what_it_holds_stays() {
        let mut m = members();
        let at_the_begin = record(7);
        m.set_draining(NODE, true);
        m.set_wiping(NODE, true);
        m.recorded(NODE, |record| record.held = 20);
        m.enrolled(NODE, at_the_begin, 10);
        let ordered = &m.node(NODE).unwrap().record;
        assert_eq!((ordered.draining, ordered.wiping, ordered.held), (true, true, 20));
        assert!(m.usable().is_empty() && !m.topology().nodes[&NODE].usable);
    }

    #[test]
    fn a_node_that_is_paused_is_not_overdue_until_its_pause_ends() {
        let mut m = members();
        assert!(!m.set_paused(NODE, Some(5000)));
        assert_eq!(m.tick(50), [Change::Down(NODE)]);
        assert_eq!(m.tick(700), []);
        let gone = |m: &Members| m.holders(|_| true)[0].gone;
        assert!(!gone(&m), "somebody knows why");
        assert_eq!((m.end_pauses(4999), m.tick(800)), (Vec::new(), Vec::new()));
        assert_eq!((m.end_pauses(5000), m.tick(900)), (vec![NODE], vec![Change::Overdue(NODE)]));
        assert!(gone(&m));
        // It is known what follows if its repair was due already.
        assert!(m.set_paused(NODE, Some(6000)) && m.overdue().is_empty());
        assert!(!m.set_paused(NODE, None));
        assert_eq!(m.tick(901), [Change::Overdue(NODE)]);
        // A node keeps its pause when it registers again.
        m.set_paused(NODE, Some(6000));
        m.enrolled(NODE, record(8), 1000);
        assert!(m.node(NODE).unwrap().is_paused());
    }

    #[test]
    fn a_restarted_coordinator_trusts_what_it_knew_for_a_while() {
        let mut m = Members::new(PATIENCE, BTreeMap::from([(NODE, record(7))]), 1000);
        assert!(m.readable(NODE));
        assert!(
            m.seen(NODE, 7, DiskUsage::default(), None, 1010).is_err(),
            "it must report again what it holds"
        );
        assert!(m.readable(NODE) && m.tick(1059).is_empty());
        assert_eq!(m.tick(1060), [Change::Down(NODE)]);
    }

    proptest! {
        #[test]
        fn overdue_nodes_are_down_and_ups_and_downs_alternate(
            steps in prop::collection::vec((0u8..4, 0u32..3, 1u64..400), 1..80),
        ) {
            let mut m = Members::new(PATIENCE, BTreeMap::new(), 0);
            let (mut now, mut up) = (0, BTreeMap::new());
            for (what, node, wait) in steps {
                now += wait;
                let node = NodeId(node);
                let changes: Vec<Change> = match what {
                    0 => m.enrolled(node, record(1), now).into_iter().collect(),
                    1 => m.seen(node, 1, DiskUsage::default(), None, now).ok().flatten().into_iter().collect(),
                    2 => m.stopped(node, now).into_iter().collect(),
                    _ => m.tick(now),
                };
                for change in changes {
                    match change {
                        Change::Up(n) => prop_assert_ne!(up.insert(n, true), Some(true)),
                        Change::Down(n) => prop_assert_eq!(up.insert(n, false), Some(true)),
                        Change::Overdue(n) => prop_assert_eq!(up.get(&n), Some(&false)),
                    }
                }
                prop_assert!(m.overdue().iter().all(|n| !m.readable(*n)));
                prop_assert!(m.iter().all(|(n, member)| Some(&member.up) == up.get(&n)));
            }
        }
    }
}
