//! Decides about agents that register: whether a page of blocks is the next one, which missing blocks count
//! as lost although the agent kept running, and what follows if an agent remembers more than the metadata
//! contain. The driver does the work.
//!
//! Invariants: pages count only in their order, and only those of the agent's start that registered last; a
//! block that a running agent may have written after it made its list is not lost.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_wire::message::{BlockRef, HeldBlock};

use super::census::Comparison;
use super::quarantine::Unknown;
use crate::meta::record::{Fence, NodeRecord};

/// Most unknown blocks of one node that are remembered until they are set aside; the others wait for the next
/// report or scrub.
const MOST_UNKNOWN: usize = 100_000;

/// The stripes that a page of a node's blocks covers: those after `after`, up to and including `upto`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Range {
    /// The last stripe of the previous page; `None` for the first page.
    pub after: Option<StripeId>,
    /// The last stripe of the page; `None` for the last page.
    pub upto: Option<StripeId>,
}

impl Range {
    /// The first and last stripe id of the range; `None` if it is empty.
    pub fn ids(self) -> Option<(u64, u64)> {
        let first = self.after.map_or(Some(0), |after| after.0.checked_add(1))?;
        let last = self.upto.map_or(u64::MAX, |upto| upto.0);
        (first <= last).then_some((first, last))
    }
}

/// A page of a node's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// The node.
    pub node: NodeId,
    /// The start of its agent.
    pub incarnation: u64,
    /// Its number in the list.
    pub number: u64,
    /// Its last stripe; `None` for the last page.
    pub upto: Option<StripeId>,
}

/// A page that is not the next one of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfTurn;

/// The registrations under way.
#[derive(Debug, Default)]
pub struct Reports(BTreeMap<NodeId, Report>);

#[derive(Debug)]
struct Report {
    record: NodeRecord,
    ran: bool,
    blocks: u64,
    next: u64,
    after: Option<StripeId>,
    lost: u64,
    unknown: Vec<BlockRef>,
    unknown_count: u64,
}

/// All blocks of a node are reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// What was recorded of the node when it registered.
    pub record: NodeRecord,
    /// How many of its blocks are lost.
    pub lost: u64,
    /// Its blocks that the metadata do not know.
    pub unknown: Unknown,
}

impl Reports {
    /// A node has registered. An earlier registration of it that is under way becomes void. `ran`: its agent
    /// is not new. `blocks`: how many the agent says it holds.
    pub fn begin(&mut self, node: NodeId, record: NodeRecord, ran: bool, blocks: u64) {
        let (next, after, lost, unknown, unknown_count) = Default::default();
        self.0.insert(node, Report { record, ran, blocks, next, after, lost, unknown, unknown_count });
    }

    /// The registration of a node is void: it must begin again.
    pub fn forget(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// Whether no registration is under way.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A page has come: the stripes that it covers, whether blocks that it lacks may have been written after the list was
    /// made, and the fence of the node when it registered.
    ///
    /// # Errors
    /// It is not the page that must come next.
    pub fn turn(&self, page: Page) -> Result<(Range, bool, Fence), OutOfTurn> {
        let report = self.0.get(&page.node).filter(|report| report.awaits(page)).ok_or(OutOfTurn)?;
        Ok((Range { after: report.after, upto: page.upto }, report.ran, report.record.fence()))
    }

    /// A page was compared: this many of its blocks are lost, and these are unknown. After the last page,
    /// returns all that the node has reported.
    ///
    /// # Errors
    /// It is not the page that must come next any more.
    pub fn compared(
        &mut self,
        page: Page,
        lost: u64,
        unknown: Vec<BlockRef>,
    ) -> Result<Option<Reported>, OutOfTurn> {
        let report = self.0.get_mut(&page.node).filter(|report| report.awaits(page)).ok_or(OutOfTurn)?;
        (report.next, report.after) = (page.number + 1, page.upto);
        report.lost += lost;
        report.unknown_count += unknown.len() as u64;
        let room = MOST_UNKNOWN.saturating_sub(report.unknown.len());
        report.unknown.extend(unknown.into_iter().take(room));
        if page.upto.is_some() {
            return Ok(None);
        }
        Ok(self.0.remove(&page.node).map(|report| {
            let Report { record, blocks, lost, unknown, unknown_count, .. } = report;
            let unknown = Unknown { node: page.node, blocks: unknown, count: unknown_count, of: blocks };
            Reported { record, lost, unknown }
        }))
    }
}

impl Report {
    fn awaits(&self, page: Page) -> bool {
        self.record.incarnation == page.incarnation && self.next == page.number
    }
}

/// The blocks that a running agent was asked about once more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Late {
    /// The blocks that seemed to be missing or not as recorded.
    pub asked: BTreeSet<BlockId>,
    /// Those that are there now although the list lacked them.
    pub found: Vec<HeldBlock>,
}

impl Late {
    /// A block that was placed there after the agent was asked was also written after the list was made: it is not lost.
    pub fn spare(&self, comparison: &mut Comparison) {
        comparison.lost.retain(|lost| self.asked.contains(&lost.id));
    }
}

/// Those of the blocks of a page that are unknown, in order, for the rebuild.
pub fn unknown_of(held: &[HeldBlock], unknown: &[BlockRef]) -> Vec<HeldBlock> {
    let unknown: BTreeSet<(BlockId, u32)> = unknown.iter().map(|b| (b.id, b.generation)).collect();
    let mut blocks: Vec<HeldBlock> =
        held.iter().filter(|b| unknown.contains(&(b.id, b.generation))).cloned().collect();
    blocks.sort_unstable_by_key(|b| b.id);
    blocks
}

/// Why the metadata count as older than what an agent holds, if they do. `unknown`: the agent remembers a point that their
/// history lacks. `beyond`: it holds blocks of stripes that were never given.
pub fn older(who: &str, unknown: bool, beyond: bool) -> Option<String> {
    let what = match (unknown, beyond) {
        (true, _) => "remembers later metadata",
        (false, true) => "holds blocks of later stripes",
        (false, false) => return None,
    };
    Some(format!("the metadata are older than what agents hold: {who} {what}; was an older copy restored?"))
}

/// What is done about metadata that are older than what an agent holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Older {
    /// An operator wants them accepted as they are.
    Accepted,
    /// The gate is closed. `tell`: this is news. `complete`: rebuild from blocks what is missing.
    Closed { tell: bool, complete: bool },
}

/// What is done about older metadata. `accept`: an operator accepts them; `restored`: they come from a copy; `rebuilding`:
/// they are being rebuilt already; `news`: it was not known before.
pub fn on_older(accept: bool, restored: bool, rebuilding: bool, news: bool) -> Older {
    match accept {
        true => Older::Accepted,
        false => Older::Closed { tell: news && !rebuilding, complete: restored && !rebuilding },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::tests::record;
    use crate::meta::change::LostBlock;
    use kintsu_dag::BlockIndex;
    use kintsu_wire::message::FaultKind;

    const NODE: NodeId = NodeId(3);

    fn page(number: u64, upto: Option<u64>) -> Page {
        Page { node: NODE, incarnation: 7, number, upto: upto.map(StripeId) }
    }

    fn file(stripe: u64) -> BlockRef {
        BlockRef { id: BlockId { stripe: StripeId(stripe), index: BlockIndex(0) }, generation: 1 }
    }

    #[test]
    fn pages_count_in_their_order_and_the_last_one_ends_the_registration() {
        let mut reports = Reports::default();
        assert_eq!(reports.turn(page(0, None)), Err(OutOfTurn));
        reports.begin(NODE, record(7), true, 900);
        assert_eq!(reports.turn(page(1, None)), Err(OutOfTurn));
        assert_eq!(reports.turn(Page { incarnation: 6, ..page(0, None) }), Err(OutOfTurn));
        let first = Range { after: None, upto: Some(StripeId(50)) };
        assert_eq!(reports.turn(page(0, Some(50))), Ok((first, true, record(7).fence())));
        assert_eq!(reports.compared(page(0, Some(50)), 2, vec![file(1)]), Ok(None));
        assert_eq!(reports.compared(page(0, Some(50)), 2, vec![file(1)]), Err(OutOfTurn), "it came twice");
        let (last, ..) = reports.turn(page(1, None)).unwrap();
        assert_eq!((last.ids(), first.ids()), (Some((51, u64::MAX)), Some((0, 50))));
        let reported = reports.compared(page(1, None), 1, vec![file(60)]).unwrap().unwrap();
        assert_eq!((reported.lost, reported.record), (3, record(7)));
        let Unknown { node, blocks, count, of } = reported.unknown;
        assert_eq!((node, blocks, count, of), (NODE, vec![file(1), file(60)], 2, 900));
        assert!(reports.is_empty());
    }

    #[test]
    fn a_node_that_registers_again_or_is_forgotten_begins_anew() {
        let mut reports = Reports::default();
        reports.begin(NODE, record(7), false, 9);
        assert_eq!(reports.compared(page(0, Some(50)), 0, Vec::new()), Ok(None));
        reports.begin(NODE, record(7), false, 9);
        assert_eq!(reports.turn(page(1, None)), Err(OutOfTurn));
        assert!(reports.turn(page(0, None)).is_ok());
        reports.forget(NODE);
        assert_eq!(reports.compared(page(0, None), 0, Vec::new()), Err(OutOfTurn));
    }

    #[test]
    fn what_was_placed_after_the_agent_was_asked_is_not_lost() {
        let lost = |stripe| LostBlock { id: file(stripe).id, node: NODE, why: FaultKind::Missing };
        let mut comparison = Comparison { lost: vec![lost(1), lost(2)], ..Comparison::default() };
        Late { asked: BTreeSet::from([file(1).id]), found: Vec::new() }.spare(&mut comparison);
        assert_eq!(comparison.lost, [lost(1)]);
        let held =
            |stripe, generation| HeldBlock { id: file(stripe).id, generation, len: 8, digest: [0; 16] };
        let page = [held(9, 1), held(2, 2), held(1, 1)];
        assert_eq!(unknown_of(&page, &[file(1), file(2), file(9)]), [held(1, 1), held(9, 1)]);
    }

    #[test]
    fn older_metadata_close_the_gate_unless_an_operator_accepts_them() {
        assert_eq!(older("N1", false, false), None);
        assert!(older("N1", true, true).unwrap().contains("N1 remembers later metadata"));
        assert!(older("N1", false, true).unwrap().contains("N1 holds blocks of later stripes"));
        assert_eq!(on_older(true, true, false, true), Older::Accepted);
        assert_eq!(on_older(false, false, false, true), Older::Closed { tell: true, complete: false });
        assert_eq!(on_older(false, true, false, false), Older::Closed { tell: false, complete: true });
        assert_eq!(on_older(false, true, true, true), Older::Closed { tell: false, complete: false });
    }
}
