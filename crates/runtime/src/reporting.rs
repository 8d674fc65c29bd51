//! Whether a node of a run has fallen silent while the others report: it is cut off.
//!
//! How long is too long is learnt from the run itself: a few times the longest gap between two reports of any node so
//! far. On a loaded machine all gaps get longer, so nobody is blamed for the load. Most other nodes must have reported
//! well after the silent one, so nobody is blamed for a pause of the conductor either.

use std::collections::BTreeMap;
use std::time::Duration;

use kintsu_dag::NodeId;
use tokio::time::Instant;

/// A node counts as cut off after this many times the longest gap so far, but not before [`LEAST`].
const GAPS: u32 = 4;
/// The shortest silence for which a node counts as cut off.
const LEAST: Duration = Duration::from_millis(250);
/// A node is judged, and others are compared with it, only after this many reports.
const REPORTS: u32 = 3;

/// When the nodes of a run were last heard of.
#[derive(Debug, Default)]
pub(crate) struct Reporting(BTreeMap<NodeId, Reports>);

#[derive(Debug)]
struct Reports {
    last: Instant,
    longest: Duration,
    count: u32,
}

impl Reporting {
    /// A node has reported.
    pub fn note(&mut self, node: NodeId, now: Instant) {
        let known = self.0.entry(node).or_insert(Reports { last: now, longest: Duration::ZERO, count: 0 });
        known.longest = known.longest.max(now.saturating_duration_since(known.last));
        (known.last, known.count) = (now, known.count + 1);
    }

    /// A node has ended, so its silence says nothing.
    pub fn ended(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// How long a node has been silent, if it is cut off.
    pub fn cut_off(&self, node: NodeId, now: Instant) -> Option<Duration> {
        let own = self.0.get(&node).filter(|own| own.count >= REPORTS)?;
        let others = || self.0.iter().filter(|(other, known)| **other != node && known.count >= REPORTS);
        let longest = self.0.values().map(|known| known.longest).max()?;
        let limit = (longest * GAPS).max(LEAST);
        let later = others().filter(|(_, known)| known.last.saturating_duration_since(own.last) * 2 >= limit);
        let silent = now.saturating_duration_since(own.last);
        let most = others().count() >= 2 && later.count() * 2 > others().count();
        (most && silent >= limit).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: NodeId = NodeId(0);

    /// Four nodes report every `every_ms`; those in `stop` stop half way. When node 0 counts as cut off, in milliseconds after
    /// its last report.
    fn found(every_ms: u64, stop: &[u32]) -> Option<u64> {
        let (begun, mut reporting) = (Instant::now(), Reporting::default());
        let at = |ms: u64| begun + Duration::from_millis(ms);
        let half = 20 * every_ms;
        for ms in 0..3 * half {
            for node in (0..4).filter(|_| ms % every_ms == 0) {
                if ms <= half || !stop.contains(&node) {
                    reporting.note(NodeId(node), at(ms));
                }
            }
            if reporting.cut_off(X, at(ms)).is_some() {
                return Some(ms - half);
            }
        }
        None
    }

    #[tokio::test]
    async fn a_node_is_cut_off_if_it_alone_falls_silent_for_several_gaps() {
        assert_eq!(found(50, &[]), None);
        assert_eq!(found(50, &[0]), Some(250));
        assert_eq!(found(300, &[0]), Some(1200));
        assert_eq!(found(50, &[0, 1]), Some(250), "two of four");
        assert_eq!(found(50, &[0, 1, 2]), None, "who of them is cut off?");
    }

    #[tokio::test]
    async fn nothing_is_concluded_from_few_reports_or_about_nodes_that_have_ended() {
        let (begun, mut reporting) = (Instant::now(), Reporting::default());
        reporting.note(X, begun);
        for i in 0..100 {
            (1..4).for_each(|node| reporting.note(NodeId(node), begun + i * LEAST / 5));
        }
        let late = begun + 20 * LEAST;
        assert_eq!(reporting.cut_off(X, late), None);
        reporting.ended(X);
        assert_eq!(reporting.cut_off(X, late), None);
    }
}
