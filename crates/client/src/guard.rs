//! Watches one attempt to read, and gives it up if a late source holds it up and can be done without.
//!
//! `late.rs` judges; here it is applied to an attempt: what it reads, what a new one would need, and what giving it
//! up wastes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::Relaxed;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::StripeView;
use kintsu_runtime::{Exchanged, Heard};

use crate::attempt::Ran;
use crate::choice::Chosen;
use crate::late::{Late, ON_THE_WAY, Watch};
use crate::portion::Portion;
use crate::span::Span;

/// Most bytes that may come in vain because attempts are given up: the range divided by this, and at least
/// [`LEAST_WASTE`].
const WASTE: u64 = 4;
const LEAST_WASTE: u64 = 4 << 20;

/// Why an attempt is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// It goes on without the nodes that were left aside.
    Without,
    /// Slices are combined on their way, and which node is late cannot be seen from here. It goes on with blocks that
    /// come straight from their nodes, which shows that.
    OnTheWay,
}

/// Takes the home of a node's blocks away if the stripe can be read without them; false if not.
pub(crate) fn leave_out(view: &mut StripeView, node: NodeId) -> bool {
    let gone = |block: &BlockIndex| {
        let home = view.homes[usize::from(block.0)];
        view.block_len(*block) > 0 && home.is_none_or(|home| home == node)
    };
    let lost: Vec<_> = (0..view.code.n()).map(|i| BlockIndex(i as u8)).filter(gone).collect();
    let possible = view.code.recoverable(&lost);
    if possible {
        view.homes.iter_mut().filter(|home| **home == Some(node)).for_each(|home| *home = None);
    }
    possible
}

/// Watches one attempt.
pub(crate) struct Guard<'a> {
    portion: &'a Portion,
    /// The stripe without what was left out until now.
    view: StripeView,
    watch: Watch,
    /// Whether all blocks come straight from their nodes.
    direct: bool,
    /// The nodes whose blocks are read, and those of them that cannot be done without.
    nodes: BTreeSet<NodeId>,
    needed: BTreeSet<NodeId>,
    /// Bytes that are read of each block.
    span_bytes: u64,
    /// The offset in the stripe up to which everything had been delivered when the attempt began.
    from: u64,
}

impl<'a> Guard<'a> {
    /// For an attempt that begins now. The nodes `needed` were slow, and cannot be done without.
    pub fn new(
        portion: &'a Portion,
        view: StripeView,
        span: &Span,
        chosen: &Chosen,
        needed: &BTreeSet<NodeId>,
        from: u64,
    ) -> Self {
        let lanes = chosen.plan.lanes.iter();
        let nodes: BTreeSet<NodeId> = lanes.flat_map(|lane| lane.placed.load_at.values().copied()).collect();
        let mut excused = needed.clone();
        if !chosen.direct && !excused.is_disjoint(&nodes) {
            excused.insert(ON_THE_WAY);
        }
        let now = portion.avoid.now();
        let watch = Watch::new(now, nodes.clone(), &excused, &mut portion.avoid.learnt());
        let (direct, needed, span_bytes) = (chosen.direct, excused, span.end - span.start);
        Self { portion, view, watch, direct, nodes, needed, span_bytes, from }
    }

    /// Judges the sources, when everything up to the offset `delivered` has been delivered. Says whether the attempt
    /// is better given up.
    pub fn look(&mut self, received: &Exchanged, delivered: u64) -> Option<GivenUp> {
        let heard = received.heard();
        let came: u64 = heard.values().map(|heard| heard.bytes).sum();
        let heard = self.sources(heard);
        let mut end = None;
        for late in self.late(&heard) {
            if late.node == ON_THE_WAY {
                let choice = self.portion.method.is_none() && self.is_worth(&late, &heard);
                end = choice.then_some((GivenUp::OnTheWay, late));
                self.watch.excuse(ON_THE_WAY);
            } else if leave_out(&mut self.view, late.node) {
                tracing::info!("reading {}: {late}; going on without it", self.portion.name);
                self.portion.avoid.leave_aside(late);
            } else {
                self.watch.excuse(late.node);
                self.needed.insert(late.node);
            }
        }
        // Another portion may have found out about a node.
        for late in self.portion.avoid.slow() {
            let part = self.nodes.contains(&late.node) && !self.needed.contains(&late.node);
            if part && !leave_out(&mut self.view, late.node) {
                self.needed.insert(late.node);
            } else if part && self.is_worth(&late, &heard) {
                end = Some((GivenUp::Without, late));
            }
        }
        end.filter(|(_, late)| self.give_up(late, came, delivered)).map(|(how, _)| how)
    }

    /// Learns from an attempt that has ended.
    pub fn learn(&mut self, received: &Exchanged) {
        let heard = self.sources(received.heard());
        for late in self.late(&heard).into_iter().filter(|late| late.node != ON_THE_WAY) {
            if leave_out(&mut self.view, late.node) {
                self.portion.avoid.leave_aside(late);
            }
        }
    }

    /// What is known of a run whose nodes have not reported: they read at least what came.
    pub fn ran(&self, received: &Exchanged) -> Ran {
        let bytes_read = received.heard().values().map(|heard| heard.bytes).sum();
        Ran { bytes_read, ..Ran::default() }
    }

    /// What has come, by source.
    fn sources(&self, heard: BTreeMap<NodeId, Heard>) -> BTreeMap<NodeId, Heard> {
        if self.direct {
            return heard;
        }
        let all = heard.into_values().reduce(|a, b| Heard {
            bytes: a.bytes + b.bytes,
            waited: a.waited.max(b.waited),
            took: a.took.max(b.took),
            waits: a.waits || b.waits,
            done: a.done && b.done,
        });
        all.into_iter().map(|all| (ON_THE_WAY, all)).collect()
    }

    fn late(&mut self, heard: &BTreeMap<NodeId, Heard>) -> Vec<Late> {
        let Portion { avoid, counters, code, .. } = self.portion;
        let left = counters.total.saturating_sub(counters.delivered.load(Relaxed));
        let rest = self.span_bytes.max(left / code.k().max(1) as u64);
        let now = avoid.now();
        self.watch.look(now, heard, rest, &mut avoid.learnt())
    }

    /// Whether the rest of this attempt comes much sooner without this source.
    fn is_worth(&self, late: &Late, heard: &BTreeMap<NodeId, Heard>) -> bool {
        let of_it = heard.get(&late.node).or_else(|| heard.get(&ON_THE_WAY)).copied().unwrap_or_default();
        let rest = self.span_bytes.saturating_sub(of_it.bytes);
        !of_it.done && self.portion.avoid.learnt().is_worth(late, rest)
    }

    /// Whether what came in vain until now allows it, or nothing comes from the source; counts what comes in vain now.
    fn give_up(&self, late: &Late, came: u64, delivered: u64) -> bool {
        let counters = &self.portion.counters;
        let vain = came.saturating_sub(delivered.saturating_sub(self.from));
        let most = LEAST_WASTE.max(counters.total / WASTE);
        let allowed = late.rate == 0.0 || counters.wasted.load(Relaxed) + vain <= most;
        if allowed {
            counters.wasted.fetch_add(vain, Relaxed);
            counters.bytes_read.fetch_add(came, Relaxed);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::StripeId;
    use kintsu_plan::{Layout, LayoutKind};

    use super::*;

    fn view(data_bytes: u64) -> StripeView {
        let code = kintsu_code::parse("rs:n=6,k=4").unwrap();
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: 1 << 16,
            cell_bytes: 1 << 16,
            w: 1,
            data_bytes,
        };
        let exists = |i: usize| layout.block_len(4, BlockIndex(i as u8)) > 0;
        let homes = (0..6).map(|i| exists(i).then_some(NodeId(i as u32))).collect();
        StripeView { id: StripeId(1), code, layout, homes }
    }

    #[test]
    fn nodes_are_left_out_while_the_rest_can_be_decoded() {
        for data_bytes in [4 << 16, 9] {
            let mut view = view(data_bytes);
            assert!(leave_out(&mut view, NodeId(77)), "it has no block");
            let whole = view.homes.clone();
            assert!(leave_out(&mut view, NodeId(0)) && leave_out(&mut view, NodeId(5)));
            assert!(!leave_out(&mut view, NodeId(4)));
            let left: Vec<_> = [None].into_iter().chain(whole[1..5].iter().copied()).chain([None]).collect();
            assert_eq!(view.homes, left);
        }
    }
}
