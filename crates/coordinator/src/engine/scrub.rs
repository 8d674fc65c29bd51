//! Decides about a scrub: what a node's verification of all its blocks shows, and what is reported of it. The
//! driver does the work.
//!
//! Invariant: a block counts as missing only after its node has come to the end, and only if it was placed there before the
//! scrub began.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{BadBlock, BlockRef, FaultKind, HeldBlock, JobReport, ScrubEvent};

use super::census::Read;
use super::quarantine::Unknown;
use crate::meta::change::LostBlock;

/// Blocks compared with the metadata at once.
const BATCH: usize = 256;

/// The progress of the scrub of one node.
#[derive(Debug)]
pub struct Scrub {
    node: NodeId,
    unseen: BTreeSet<BlockId>,
    batch: Vec<HeldBlock>,
    checked: u64,
    bytes: u64,
    bad: Vec<BadBlock>,
    unknown: Vec<BlockRef>,
}

impl Scrub {
    /// The scrub of a node, which has not begun.
    pub fn new(node: NodeId) -> Self {
        let (unseen, batch, bad, unknown) = Default::default();
        Self { node, unseen, batch, checked: 0, bytes: 0, bad, unknown }
    }

    /// It begins. The metadata place these blocks on the node.
    pub fn begin(&mut self, placed: Vec<BlockId>) {
        self.unseen = placed.into_iter().collect();
    }

    /// The node has verified one more block. Returns blocks to compare with the metadata, if there are enough
    /// of them.
    pub fn verified(&mut self, event: ScrubEvent) -> Option<Vec<HeldBlock>> {
        (self.checked, self.bytes) = (event.checked, event.bytes);
        match event.result {
            Ok(held) => {
                self.unseen.remove(&held.id);
                self.batch.push(held);
            }
            Err(fault) => {
                if let Some(id) = fault.block {
                    self.unseen.remove(&id);
                    self.bad.push(BadBlock { id, node: self.node, kind: fault.kind, detail: fault.detail });
                }
            }
        }
        (self.batch.len() >= BATCH).then(|| self.rest())
    }

    /// Blocks that the node has verified.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// The blocks that are still to be compared.
    pub fn rest(&mut self) -> Vec<HeldBlock> {
        std::mem::take(&mut self.batch)
    }

    /// Blocks were compared.
    pub fn compared(&mut self, read: Vec<Read>) {
        for read in read {
            match read {
                Read::Sound | Read::Found => {}
                Read::Bad(bad) => self.bad.push(bad),
                Read::Unknown(file) => self.unknown.push(file),
            }
        }
    }

    /// The node has verified all blocks that it holds: placed blocks that it did not report are missing.
    pub fn complete(&mut self) {
        let (node, kind) = (self.node, FaultKind::Missing);
        let detail = || "expected a block, got no file of it".into();
        let missing = std::mem::take(&mut self.unseen).into_iter();
        self.bad.extend(missing.map(|id| BadBlock { id, node, kind, detail: detail() }));
    }
}

/// The sum of the scrubs of all nodes.
#[derive(Debug)]
pub struct Scrubbed {
    report: JobReport,
}

impl Default for Scrubbed {
    fn default() -> Self {
        Self { report: JobReport { kind: "scrub".into(), ..JobReport::default() } }
    }
}

impl Scrubbed {
    /// The scrub of a node has ended, with an error or without. Returns the blocks of the node that the
    /// metadata do not know.
    pub fn add(&mut self, scrub: Scrub, error: Option<String>) -> Unknown {
        let Scrub { node, checked, bytes, bad, unknown, .. } = scrub;
        self.report.blocks_checked += checked;
        self.report.bytes_read += bytes;
        self.report.bad.extend(bad);
        self.report.failed.extend(error.map(|error| format!("{node}: {error}")));
        Unknown { node, count: unknown.len() as u64, blocks: unknown, of: checked }
    }

    /// Something could not be done.
    pub fn failed(&mut self, what: String) {
        self.report.failed.push(what);
    }

    /// The scrub was cancelled before its end.
    pub fn cancelled(&mut self) {
        let checked = self.report.blocks_checked;
        self.report.failed.insert(0, format!("cancelled: only {checked} blocks were checked"));
    }

    /// The blocks to flag.
    pub fn lost(&self) -> Vec<LostBlock> {
        self.report.bad.iter().map(|b| LostBlock { id: b.id, node: b.node, why: b.kind }).collect()
    }

    /// These blocks were flagged; returns those that are to be repaired. Blocks that are gone or have moved
    /// by now do not count.
    pub fn flagged(&mut self, flagged: Vec<BlockId>) -> Vec<BlockId> {
        let flagged: BTreeSet<BlockId> = flagged.into_iter().collect();
        self.report.bad.retain(|bad| flagged.contains(&bad.id));
        flagged.into_iter().collect()
    }

    /// The bad blocks were repaired, as far as that was possible.
    pub fn repaired(&mut self, repair: JobReport) {
        let report = &mut self.report;
        report.method = repair.method;
        report.blocks = repair.blocks;
        report.blocks_read = repair.blocks_read;
        report.bytes_read += repair.bytes_read;
        report.bytes_moved = repair.bytes_moved;
        report.bytes_across_racks = repair.bytes_across_racks;
        report.max_link_bytes = repair.max_link_bytes;
        report.failed.extend(repair.failed);
        report.around = repair.around;
    }

    /// The report.
    pub fn end(self, seconds: f64) -> JobReport {
        JobReport { seconds, ..self.report }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockIndex, StripeId};
    use kintsu_wire::message::Fault;

    fn id(stripe: u64) -> BlockId {
        BlockId { stripe: StripeId(stripe), index: BlockIndex(0) }
    }

    fn event(checked: u64, result: Result<HeldBlock, Fault>) -> ScrubEvent {
        ScrubEvent { total: 9, checked, bytes: 10 * checked, result }
    }

    fn held(stripe: u64) -> HeldBlock {
        HeldBlock { id: id(stripe), generation: 1, len: 8, digest: [0; 16] }
    }

    #[test]
    fn what_is_not_shown_by_the_end_is_missing_and_not_before() {
        let rot =
            Fault { kind: FaultKind::Corrupt, node: NodeId(1), block: Some(id(2)), detail: "rot".into() };
        for complete in [false, true] {
            let mut scrub = Scrub::new(NodeId(1));
            scrub.begin(vec![id(1), id(2), id(3)]);
            assert_eq!(scrub.verified(event(1, Ok(held(1)))), None);
            assert_eq!(scrub.verified(event(2, Err(rot.clone()))), None);
            assert_eq!(scrub.rest(), [held(1)]);
            if complete {
                scrub.complete();
            }
            let mut sum = Scrubbed::default();
            sum.add(scrub, (!complete).then(|| "it went away".into()));
            let lost: Vec<_> = sum.lost().iter().map(|lost| (lost.id, lost.why)).collect();
            let expected = [(id(2), FaultKind::Corrupt), (id(3), FaultKind::Missing)];
            assert_eq!(lost, expected[..if complete { 2 } else { 1 }]);
            let report = sum.end(1.0);
            assert_eq!((report.blocks_checked, report.bytes_read), (2, 20));
            assert_eq!(report.failed.first().map(String::as_str), (!complete).then_some("N1: it went away"));
        }
    }

    #[test]
    fn blocks_are_compared_in_batches_and_what_they_are_is_remembered() {
        let mut scrub = Scrub::new(NodeId(1));
        let full: Vec<_> =
            (0..BATCH as u64).filter_map(|i| scrub.verified(event(i + 1, Ok(held(i))))).collect();
        assert!(full.len() == 1 && full[0].len() == BATCH && scrub.rest().is_empty());
        let file = BlockRef { id: id(1), generation: 1 };
        let bad = BadBlock { id: id(2), node: NodeId(1), kind: FaultKind::Stale, detail: String::new() };
        scrub.compared(vec![Read::Sound, Read::Found, Read::Unknown(file), Read::Bad(bad)]);
        let mut sum = Scrubbed::default();
        let unknown = sum.add(scrub, None);
        assert_eq!((unknown.blocks, unknown.count, unknown.of), (vec![file], 1, BATCH as u64));
        assert_eq!(sum.lost().len(), 1);
        // It has moved meanwhile: it is no loss, and is not repaired.
        assert!(sum.flagged(Vec::new()).is_empty() && sum.end(1.0).bad.is_empty());
    }

    #[test]
    fn the_repair_of_what_was_found_is_part_of_the_report() {
        let mut sum = Scrubbed::default();
        sum.report.bytes_read = 5;
        let failed = vec!["stripe 1".into()];
        sum.repaired(JobReport {
            kind: "repair".into(),
            blocks: 2,
            bytes_read: 7,
            failed,
            ..JobReport::default()
        });
        let report = sum.end(2.5);
        assert_eq!(
            (report.kind.as_str(), report.blocks, report.bytes_read, report.seconds),
            ("scrub", 2, 12, 2.5)
        );
        assert_eq!(report.failed, ["stripe 1"]);
    }
}
