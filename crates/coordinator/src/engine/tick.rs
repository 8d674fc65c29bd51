//! Decides what is due when time has passed: which nodes are dead, which puts are undone, which wipes and drains
//! continue, and whether repairs may be due.
//!
//! Invariant: while the gate is closed, nothing is wiped or drained and no repair starts automatically, because older
//! metadata may order a wipe that was completed long ago.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;
use kintsu_plan::Rates;

use super::bandwidth::Bandwidth;
use super::gate::Gate;
use super::leases::Leases;
use super::members::{Change, Members};
use super::repair::Auto;
use super::wipe::Wipes;

/// Links are measured when no node has come for this long,
const SETTLED_MS: u64 = 2500;
/// and when users and repairs leave them alone, or did not for this long,
const BUSY_MS: u64 = 60_000;
/// and if not all of them answered, again after this time; then after twice that time, and so on,
const MEASURED_AGAIN_MS: u64 = 10_000;
/// up to this.
const MEASURED_EVERY_MS: u64 = 120_000;

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Have this node read its flagged blocks again: it has started since the last tick.
    Reread(NodeId),
    /// Report this change.
    Tell(Change),
    /// Undo this put: its lease has run out.
    Undo(u64),
    /// Report that the gate is open although not all blocks were reported.
    Opened,
    /// Complete the wipe of this node.
    Wipe(NodeId),
    /// Go on draining this node: it or the coordinator has started since the drain was ordered.
    Drain(NodeId),
    /// Go on with a rebalance, if one was ordered before the start: the gate has opened.
    Rebalance,
    /// Measure the links: there are nodes whose links nobody has set or measured.
    Measure,
    /// Check whether repairs are due, including those of the blocks on these nodes.
    Repairs(Vec<NodeId>),
}

/// The machines that are told the time.
pub struct Machines<'a> {
    /// The nodes.
    pub members: &'a mut Members,
    /// The puts under way.
    pub leases: &'a mut Leases,
    /// What may be deleted and repaired.
    pub gate: &'a mut Gate,
    /// When repairs start automatically.
    pub auto: &'a mut Auto,
    /// The wipes under way.
    pub wipes: &'a Wipes,
    /// The links, and the rates that were set; `None` if links are not to be measured.
    pub links: Option<(&'a Bandwidth, &'a Rates)>,
    /// Whether repairs are under way.
    pub repairing: bool,
}

/// The starts of agents that were seen by ticks so far.
#[derive(Debug, Default)]
pub struct Ticks {
    /// Of all agents.
    seen: BTreeMap<NodeId, u64>,
    /// Whether the gate was open at a tick.
    opened: bool,
    /// Of those whose nodes are drained.
    draining: BTreeMap<NodeId, u64>,
    /// The nodes whose links are to be measured, and since when they are the same.
    open: (BTreeSet<NodeId>, u64),
    /// Not before this time, and how long the pause after the next measurement is.
    measure: (u64, u64),
}

impl Ticks {
    /// Time has passed: what is due now, in this order.
    pub fn tick(&mut self, now_ms: u64, machines: Machines<'_>) -> Vec<Due> {
        let Machines { members, leases, gate, auto, wipes, links, repairing } = machines;
        let mut due = Vec::new();
        for (node, member) in members.iter().filter(|(_, m)| m.holds()) {
            let start = member.record.incarnation;
            if self.seen.insert(node, start) != Some(start) {
                due.push(Due::Reread(node));
            }
        }
        for change in members.tick(now_ms) {
            if matches!(change, Change::Down(_)) {
                auto.nodes_changed();
            }
            due.push(Due::Tell(change));
        }
        // In older metadata such a put may have been committed since.
        if gate.is_trusted() {
            due.extend(leases.expired(now_ms).into_iter().map(Due::Undo));
        }
        if gate.tick(now_ms) {
            due.push(Due::Opened);
        }
        if gate.is_open() {
            if !std::mem::replace(&mut self.opened, true) {
                due.push(Due::Rebalance);
            }
            due.extend(wipes.due(members).into_iter().map(Due::Wipe));
            self.draining.retain(|node, _| members.node(*node).is_some_and(|m| m.record.draining));
            for (node, member) in members.iter().filter(|(_, m)| m.holds() && m.record.draining) {
                let start = member.record.incarnation;
                if self.draining.insert(node, start) != Some(start) {
                    due.push(Due::Drain(node));
                }
            }
            if links.is_some_and(|links| self.measures(now_ms, members, links, repairing)) {
                due.push(Due::Measure);
            }
            due.push(Due::Repairs(members.overdue().iter().copied().collect()));
        }
        due
    }

    /// Whether the links are measured now: when all nodes of a start have come, and later not often.
    fn measures(
        &mut self,
        now_ms: u64,
        members: &Members,
        (links, told): (&Bandwidth, &Rates),
        repairing: bool,
    ) -> bool {
        let all = members.iter().filter(|(_, m)| m.holds()).map(|(node, _)| node);
        let open: BTreeSet<NodeId> = all.filter(|node| links.is_open(told, *node)).collect();
        if open != self.open.0 {
            self.open = (open, now_ms);
        }
        let (from_ms, pause_ms) = self.measure;
        if self.open.0.is_empty() {
            self.measure.1 = MEASURED_AGAIN_MS;
            return false;
        }
        let settled_ms = self.open.1 + SETTLED_MS;
        let busy = repairing || self.open.0.iter().any(|node| links.is_busy(*node));
        // What was measured beside users is good enough until they leave the links alone.
        let waits = now_ms < settled_ms + BUSY_MS || self.open.0.iter().all(|node| links.was_measured(*node));
        let busy = busy && waits;
        let due = now_ms >= from_ms.max(settled_ms) && !busy;
        if due {
            let pause_ms = pause_ms.clamp(MEASURED_AGAIN_MS, MEASURED_EVERY_MS);
            self.measure = (now_ms + pause_ms, 2 * pause_ms);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU64;

    use super::*;
    use crate::engine::bandwidth::Measured;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;

    const NODE: NodeId = NodeId(1);

    struct All(Ticks, Members, Leases, Gate, Auto, Wipes);

    impl All {
        fn new(behind: Option<String>) -> Self {
            let mut members = Members::new(Patience { dead_after_ms: 50, grace_ms: 600 }, BTreeMap::new(), 0);
            members.enrolled(NODE, record(7), 0);
            let gate = Gate::new(BTreeMap::from([(NodeId(2), 10)]), 0, behind);
            Self(Ticks::default(), members, Leases::new(30, [5], 0), gate, Auto::new(600), Wipes::default())
        }

        fn tick(&mut self, now_ms: u64) -> Vec<Due> {
            let (members, leases, gate) = (&mut self.1, &mut self.2, &mut self.3);
            self.0.tick(
                now_ms,
                Machines {
                    members,
                    leases,
                    gate,
                    auto: &mut self.4,
                    wipes: &self.5,
                    links: None,
                    repairing: false,
                },
            )
        }
    }

    #[test]
    fn each_start_is_seen_once_and_time_does_the_rest() {
        let mut all = All::new(None);
        assert_eq!(all.tick(1), [Due::Reread(NODE)]);
        assert_eq!(all.tick(2), []);
        all.1.enrolled(NODE, record(8), 2);
        assert_eq!(all.tick(30), [Due::Reread(NODE), Due::Undo(5)]);
        assert_eq!(all.tick(52), [Due::Tell(Change::Down(NODE))]);
        assert_eq!(all.tick(652), [Due::Tell(Change::Overdue(NODE))]);
        assert_eq!(all.tick(30_000), [Due::Opened, Due::Rebalance, Due::Repairs(vec![NODE])]);
        assert_eq!(all.tick(30_001), [Due::Repairs(vec![NODE])]);
    }

    #[test]
    fn a_drain_goes_on_once_after_each_start() {
        let mut all = All::new(None);
        all.1.set_draining(NODE, true);
        assert_eq!(all.tick(1), [Due::Reread(NODE)], "the gate is closed");
        all.1.seen(NODE, 7, Default::default(), None, 30_000).unwrap();
        assert!(all.tick(30_001).contains(&Due::Drain(NODE)));
        assert!(!all.tick(30_002).contains(&Due::Drain(NODE)));
        all.1.enrolled(NODE, record(8), 30_002);
        all.1.set_draining(NODE, true);
        assert!(all.tick(30_003).contains(&Due::Drain(NODE)), "its agent has started again");
        all.1.set_draining(NODE, false);
        assert!(!all.tick(30_004).contains(&Due::Drain(NODE)));
        all.1.set_draining(NODE, true);
        assert!(all.tick(30_005).contains(&Due::Drain(NODE)), "it was ordered anew");
    }

    #[test]
    fn nothing_is_wiped_or_repaired_while_the_gate_is_closed() {
        for behind in [None, Some("older".to_owned())] {
            let mut all = All::new(behind.clone());
            all.1.set_wiping(NODE, true);
            assert_eq!(all.tick(1), []);
            all.1.seen(NODE, 7, Default::default(), None, 30_000).unwrap();
            let open = [Due::Undo(5), Due::Opened, Due::Rebalance, Due::Wipe(NODE), Due::Repairs(Vec::new())];
            assert_eq!(all.tick(30_001), if behind.is_none() { &open[..] } else { &open[1..2] });
        }
    }

    #[test]
    fn links_that_did_not_answer_are_measured_again_soon_and_then_ever_more_seldom() {
        let mut all = All::new(None);
        let (mut links, told) = (Bandwidth::default(), Rates::default());
        let link = Some(kintsu_wire::message::LinkCounters { sent: 0, received: 0, speed: None });
        links.heard(NODE, kintsu_wire::message::Counters { link, ..Default::default() }, 0);
        let mut measured = Vec::new();
        for s in 1..400 {
            all.1.seen(NODE, 7, Default::default(), None, s * 1000).unwrap();
            let links = Some((&links, &told));
            let All(ticks, members, leases, gate, auto, wipes) = &mut all;
            let due = ticks
                .tick(s * 1000, Machines { members, leases, gate, auto, wipes, links, repairing: false });
            measured.extend(due.contains(&Due::Measure).then_some(s));
        }
        // The gate opens after 30 seconds.
        assert_eq!(measured, [33, 43, 63, 103, 183, 303]);
    }

    #[test]
    fn links_are_measured_after_repairs_or_when_these_last_long() {
        for (repaired_at, first) in [(0, 33), (50, 51), (500, 93)] {
            let mut all = All::new(None);
            let (mut links, told) = (Bandwidth::default(), Rates::default());
            let link = Some(kintsu_wire::message::LinkCounters { sent: 0, received: 0, speed: None });
            links.heard(NODE, kintsu_wire::message::Counters { link, ..Default::default() }, 0);
            let measured = (1..100).find(|s| {
                all.1.seen(NODE, 7, Default::default(), None, s * 1000).unwrap();
                let (links, repairing) = (Some((&links, &told)), *s <= repaired_at);
                let All(ticks, members, leases, gate, auto, wipes) = &mut all;
                let machines = Machines { members, leases, gate, auto, wipes, links, repairing };
                ticks.tick(s * 1000, machines).contains(&Due::Measure)
            });
            assert_eq!(measured, Some(first), "repairs until second {repaired_at}");
        }
    }

    #[test]
    fn links_that_were_measured_beside_users_are_not_measured_again_beside_repairs() {
        let mut all = All::new(None);
        let (mut links, told) = (Bandwidth::default(), Rates::default());
        for s in 0..10_u64 {
            let link =
                Some(kintsu_wire::message::LinkCounters { sent: s * (5 << 20), received: 0, speed: None });
            links.heard(
                NODE,
                kintsu_wire::message::Counters { link, at_ms: s * 1000, ..Default::default() },
                s * 1000,
            );
        }
        let rate = NonZeroU64::new(8 << 20);
        links.measured([(NODE, Measured { up: rate, down: rate })].into(), BTreeMap::new());
        assert!(links.is_open(&told, NODE) && links.was_measured(NODE));
        let first = (1..200).find(|s| {
            all.1.seen(NODE, 7, Default::default(), None, s * 1000).unwrap();
            let (links, repairing) = (Some((&links, &told)), *s <= 150);
            let All(ticks, members, leases, gate, auto, wipes) = &mut all;
            let machines = Machines { members, leases, gate, auto, wipes, links, repairing };
            ticks.tick(s * 1000, machines).contains(&Due::Measure)
        });
        assert_eq!(first, None, "users are still there");
    }

    #[test]
    fn links_that_users_keep_busy_are_measured_later() {
        let mut all = All::new(None);
        let (mut links, told) = (Bandwidth::default(), Rates::default());
        let mut measured = Vec::new();
        for s in 1..200_u64 {
            // Users send 5 MiB a second from the start until second 50, and again from 60 on.
            let sent = (s.min(50) + s.saturating_sub(60)) * (5 << 20);
            let link = Some(kintsu_wire::message::LinkCounters { sent, received: 0, speed: None });
            let counters = kintsu_wire::message::Counters { link, at_ms: s * 1000, ..Default::default() };
            links.heard(NODE, counters, s * 1000);
            all.1.seen(NODE, 7, Default::default(), None, s * 1000).unwrap();
            let seen = Some((&links, &told));
            let All(ticks, members, leases, gate, auto, wipes) = &mut all;
            let due = ticks.tick(
                s * 1000,
                Machines { members, leases, gate, auto, wipes, links: seen, repairing: false },
            );
            measured.extend(due.contains(&Due::Measure).then_some(s));
        }
        // Some seconds after they had ended; then nothing answered, and a minute after the gate it is tried though they are back.
        assert_eq!(measured, [59, 93, 113, 153]);
    }
}
