//! Which of the faults that nodes report is the root cause.
//!
//! When a node fails, its fault travels down the streams (and up, as far as connections allow), so most
//! nodes report the same one. When a connection just breaks, the nodes at its two ends blame each other. An
//! observed fault counts more than a deduced one, and a node upstream more than a node downstream.

use std::collections::BTreeSet;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Fault, FaultKind};

/// A fault, and the node that reports it.
#[derive(Debug, Clone)]
pub(crate) struct Report {
    /// The node whose run ended with it.
    pub node: NodeId,
    /// The fault.
    pub fault: Fault,
    /// Whether the conductor itself found the fault: it could not reach that node, or the node refused its call.
    pub direct: bool,
    /// Whether that node persists.
    pub persists: bool,
    /// The nodes that it sends to.
    pub downstream: BTreeSet<NodeId>,
}

/// The fault at the root of the others.
pub(crate) fn culprit(reports: Vec<Report>) -> Option<Fault> {
    let complaining: BTreeSet<NodeId> =
        reports.iter().filter(|r| r.fault.kind != FaultKind::Aborted).map(|r| r.node).collect();
    let doubt = |report: &Report| {
        let blamed = report.fault.node;
        match report.fault.kind {
            FaultKind::Aborted => 6,
            kind if kind.is_silence() && (report.direct || blamed == report.node) => 1,
            kind if kind.is_silence() => match report.downstream.contains(&blamed) {
                false if !complaining.contains(&blamed) => 2,
                false => 3,
                true if !complaining.contains(&blamed) => 4,
                true => 5,
            },
            _ => 0,
        }
    };
    let least = reports.iter().min_by_key(|report| (doubt(report), !report.persists));
    least.map(|report| report.fault.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::fault;

    fn report(node: u32, kind: FaultKind, blamed: u32, downstream: &[u32]) -> Report {
        let fault = fault(kind, NodeId(blamed), "");
        let persists = downstream.is_empty();
        let downstream = downstream.iter().map(|node| NodeId(*node)).collect();
        Report { node: NodeId(node), fault, direct: false, persists, downstream }
    }

    fn found(reports: Vec<Report>) -> (FaultKind, u32) {
        let fault = culprit(reports).unwrap();
        (fault.kind, fault.node.0)
    }

    #[test]
    fn what_a_disk_says_is_certain() {
        let reports = vec![
            report(1, FaultKind::Lost, 2, &[2]),
            report(2, FaultKind::Corrupt, 2, &[3]),
            report(3, FaultKind::Lost, 2, &[]),
        ];
        assert_eq!(found(reports), (FaultKind::Corrupt, 2));
    }

    #[test]
    fn in_a_chain_that_breaks_the_node_that_is_gone_is_found() {
        // 1 -> 2 -> 3 -> 4, and 2 disappears without a report.
        let reports = vec![
            report(1, FaultKind::Lost, 2, &[2]),
            report(3, FaultKind::Lost, 2, &[4]),
            report(4, FaultKind::Lost, 3, &[]),
        ];
        assert_eq!(found(reports), (FaultKind::Lost, 2));
        // The same, and 3 passed its fault on to 4.
        let reports = vec![report(1, FaultKind::Lost, 2, &[2]), report(4, FaultKind::Lost, 2, &[])];
        assert_eq!(found(reports), (FaultKind::Lost, 2));
    }

    #[test]
    fn a_receiver_that_is_gone_is_found_by_its_senders() {
        let reports = vec![report(1, FaultKind::Lost, 3, &[3]), report(2, FaultKind::Aborted, 2, &[3])];
        assert_eq!(found(reports), (FaultKind::Lost, 3));
        let mut direct = report(3, FaultKind::Lost, 3, &[]);
        direct.direct = true;
        let reports = vec![report(1, FaultKind::Lost, 2, &[2]), direct];
        assert_eq!(found(reports), (FaultKind::Lost, 3));
    }

    #[test]
    fn a_receiver_that_gave_up_on_another_is_not_to_blame() {
        // 3 gave up on 2, which stalls; 1 only sees that 3 is gone.
        let reports = vec![report(1, FaultKind::Lost, 3, &[3]), report(3, FaultKind::Stalled, 2, &[])];
        assert_eq!(found(reports), (FaultKind::Stalled, 2));
    }

    #[test]
    fn no_reports_no_fault() {
        assert!(culprit(Vec::new()).is_none());
    }
}
