//! The method by which a read decodes lost blocks: the one with the least predicted time, or the one that the
//! caller demands.
//!
//! A star sends k blocks to the client, however many are lost; this costs nothing extra if the read wants most of
//! them anyway. A chain or a tree sends one block for each lost one, and is faster only with enough slices. For
//! codes with many sub-blocks only their own graphs are tried: chains and trees use the flat map, which takes
//! whole blocks and whose size grows with the square of the number of sub-blocks.
//!
//! If rates of links are known, the path with the fastest bottleneck is tried too, and the measure is predicted
//! time: the time in which the busiest link carries its part, but at least the time that the plan would take if
//! all links were as fast as the fastest. The client's own links have no known rate and count as that fast.

use kintsu_dag::BlockIndex;
use kintsu_plan::{LayoutKind, Method, Plan, PlanError, StripeView, Topology, predicted, read_by};

use crate::span::Span;

/// The largest slice of a read.
const MAX_SLICE_BYTES: u64 = 1 << 20;

/// Most sub-blocks for which the flat map is tried.
const FLAT_SUB_BLOCKS: usize = 16;

/// Assumed rate of the fastest link, in bytes a second, if no node's rate is known: 1 Gb/s.
const USUAL_RATE: u64 = 125_000_000;

/// Another method than a star is chosen only if its predicted time is below this fraction of the star's.
const ADVANTAGE: f64 = 0.95;

/// If a star is expected to take less than this many seconds, no other method is tried: hops and connections would take longer
/// than what they save, while the little that a star sends is enclosed in the nodes' answers.
const NEGLIGIBLE_S: f64 = 1e-3;

/// A plan for one span, and the size of its slices.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub plan: Plan,
    pub slice_bytes: u32,
    /// Whether every node sends straight to the client, and waits for no other one.
    pub direct: bool,
}

/// The inputs of the choice.
pub(crate) struct Choice<'a> {
    pub view: &'a StripeView,
    pub topology: &'a Topology,
    /// Blocks that do not exist yet.
    pub unavailable: &'a [BlockIndex],
    /// The method that the caller demands.
    pub method: Option<Method>,
    /// The slice size that the caller demands.
    pub slice_bytes: Option<u32>,
}

impl Choice<'_> {
    /// The plan with the least predicted time for a span.
    ///
    /// # Errors
    /// `Unrecoverable` when too few blocks are left.
    pub fn of(&self, span: &Span) -> Result<Chosen, PlanError> {
        let wanted = span.indices();
        let lost = wanted.iter().any(|b| self.view.homes[usize::from(b.0)].is_none());
        let plan = |method| read_by(self.view, self.topology, &wanted, self.unavailable, method);
        let star =
            || plan(Method::Conventional).map(|plan| self.cut(plan, span, MAX_SLICE_BYTES as u32, true));
        let cut = |method| {
            let plan = plan(method)?;
            let best = plan.slice_bytes(span.end - span.start)?;
            Ok::<_, PlanError>(self.cut(plan, span, best, false))
        };
        match self.method {
            _ if !lost => return star(),
            Some(Method::Conventional) => return star(),
            Some(method) => return cut(method),
            None => {}
        }
        let mut best = star()?;
        if self.view.code.w() > FLAT_SUB_BLOCKS {
            return Ok(best);
        }
        // No link carries more than all blocks of the stripe.
        let most = (self.view.code.n() as u64 * (span.end - span.start)) as f64;
        if most < NEGLIGIBLE_S * self.slowest() {
            return Ok(best);
        }
        let star_takes = self.time(&best, span)?;
        if star_takes < NEGLIGIBLE_S {
            return Ok(best);
        }
        let mut least = star_takes * ADVANTAGE;
        let rated = !self.topology.rates.is_empty();
        for method in [Method::Pipeline, Method::Ppr].into_iter().chain(rated.then_some(Method::Weighted)) {
            let other = cut(method)?;
            let takes = self.time(&other, span)?;
            if takes < least {
                (best, least) = (other, takes);
            }
        }
        Ok(best)
    }

    /// Adds the slice size: the best for the plan, or the demanded one. A step is at most one cell, or the whole
    /// range if that is smaller; cells with sub-blocks are not cut.
    fn cut(&self, plan: Plan, span: &Span, best: u32, direct: bool) -> Chosen {
        let (layout, len) = (&self.view.layout, span.end - span.start);
        let cell = u64::from(layout.cell_bytes);
        let most = match (layout.kind, self.slice_bytes) {
            _ if layout.w > 1 => cell,
            (_, Some(asked)) => u64::from(asked).min(MAX_SLICE_BYTES),
            (LayoutKind::Striped, None) => cell.min(MAX_SLICE_BYTES).min(best.into()),
            (LayoutKind::Contiguous, None) => cell.clamp(64 << 10, MAX_SLICE_BYTES).min(best.into()),
        };
        Chosen { plan, slice_bytes: most.min(len).max(1) as u32, direct }
    }

    /// The rate of the slowest link, in bytes a second.
    fn slowest(&self) -> f64 {
        let rates = self.topology.rates.known().map(|(_, rate)| rate.get()).min();
        rates.unwrap_or(USUAL_RATE) as f64
    }

    /// The predicted time in seconds.
    fn time(&self, chosen: &Chosen, span: &Span) -> Result<f64, PlanError> {
        let bytes = span.end - span.start;
        let slices = bytes.div_ceil(u64::from(chosen.slice_bytes));
        let timeslots = chosen.plan.timeslots(slices as usize)?;
        let rates = &self.topology.rates;
        let fastest = rates.up.values().chain(rates.down.values()).map(|rate| rate.get()).max();
        let filled = timeslots * bytes as f64 / fastest.unwrap_or(USUAL_RATE) as f64;
        if rates.is_empty() {
            return Ok(filled);
        }
        Ok(predicted(&chosen.plan, self.topology, bytes)?.max(filled))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use kintsu_dag::{NodeId, StripeId};
    use kintsu_plan::{Layout, Rates};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn view(code: &str, kind: LayoutKind, lost: &[usize]) -> StripeView {
        let code = kintsu_code::parse(code).unwrap();
        let (k, w) = (code.k() as u64, code.w() as u16);
        let cell_bytes = (128 << 10) / u32::from(w) / 4096 * 4096 * u32::from(w);
        let cell_bytes = cell_bytes.max(4096 * u32::from(w));
        let block_bytes = u64::from(cell_bytes) * 64;
        let layout = Layout { kind, block_bytes, cell_bytes, w, data_bytes: k * block_bytes };
        let home = |i: usize| (!lost.contains(&i)).then_some(NodeId(i as u32));
        let homes = (0..code.n()).map(home).collect();
        StripeView { id: StripeId(1), code, layout, homes }
    }

    /// The choice: the bytes that reach the client for each byte of the span, and the slice.
    fn chosen(view: &StripeView, span: Span, method: Option<Method>) -> (usize, u32) {
        let topology = Topology::default();
        let choice = Choice { view, topology: &topology, unavailable: &[], method, slice_bytes: None };
        let chosen = choice.of(&span).unwrap();
        let tasks = chosen.plan.lanes[0].placed.lower().unwrap();
        let client = tasks.iter().filter(|tasks| !tasks.node.is_client());
        let sends = client.flat_map(|tasks| &tasks.sends).filter(|(_, to)| to.is_client()).count();
        (sends, chosen.slice_bytes)
    }

    fn span(blocks: std::ops::Range<u8>, len: u64) -> Span {
        Span { blocks, start: 0, end: len }
    }

    #[test]
    fn a_long_lost_block_comes_by_a_chain_and_a_whole_stripe_by_a_star() {
        let view = view("rs:n=14,k=10", LayoutKind::Contiguous, &[3]);
        assert_eq!(chosen(&view, span(3..4, 8 * MIB), None).0, 1);
        assert_eq!(chosen(&view, span(0..1, 8 * MIB), None).0, 1, "it is there");
        assert_eq!(chosen(&view, span(0..10, 8 * MIB), None).0, 10);
        assert_eq!(chosen(&view, span(3..4, 8 * MIB), Some(Method::Conventional)).0, 10);
    }

    #[test]
    fn a_short_one_is_cut_finer_as_far_as_it_helps() {
        let view = view("rs:n=14,k=10", LayoutKind::Contiguous, &[3]);
        let (sends, slice) = chosen(&view, span(3..4, MIB), None);
        assert!(sends == 1 && slice <= 64 << 10, "{sends} {slice}");
        let (sends, _) = chosen(&view, span(3..4, 64 << 10), None);
        assert!(sends < 10, "{sends}");
        assert_eq!(chosen(&view, span(3..4, 4096), None), (10, 4096), "a star has ended before a hop would");
        assert_eq!(chosen(&view, span(3..4, 4096), Some(Method::Pipeline)), (1, 4096));
    }

    #[test]
    fn several_lost_blocks_come_together_by_a_chain() {
        let view = view("rs:n=14,k=10", LayoutKind::Striped, &[3, 4]);
        assert_eq!(chosen(&view, span(3..5, 8 * MIB), None).0, 2);
        assert_eq!(chosen(&view, span(2..6, 8 * MIB), None).0, 4);
    }

    #[test]
    fn few_sub_blocks_are_compared_and_many_are_left_to_the_codes_own_graph() {
        let few = view("hitchhiker-xor:n=5,k=3", LayoutKind::Contiguous, &[0]);
        let (sends, slice) = chosen(&few, span(0..1, few.layout.block_bytes), None);
        assert_eq!((sends, slice), (2, few.layout.cell_bytes), "both of its sub-blocks");
        let many = view("clay:n=6,k=4,d=5", LayoutKind::Contiguous, &[0]);
        assert_eq!(many.code.w(), 8);
        let many = view("clay:n=14,k=10,d=13", LayoutKind::Contiguous, &[0]);
        let (sends, _) = chosen(&many, span(0..1, many.layout.block_bytes), None);
        assert_eq!(sends, 13 * 256 / 4);
    }

    /// Rates of 14 nodes, all equal except one.
    fn one_slow(slow: u32) -> Topology {
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        let mut rates = Rates::even((0..14).map(NodeId), rate(100_000_000));
        rates.up.insert(NodeId(slow), rate(1_000_000));
        Topology { rates, ..Topology::default() }
    }

    /// Whether a node takes part in the chosen plan.
    fn takes_part(
        view: &StripeView,
        topology: &Topology,
        span: &Span,
        method: Option<Method>,
        node: u32,
    ) -> bool {
        let choice = Choice { view, topology, unavailable: &[], method, slice_bytes: None };
        let lowered = choice.of(span).unwrap().plan.lanes[0].placed.lower().unwrap();
        lowered.iter().any(|tasks| tasks.node == NodeId(node))
    }

    #[test]
    fn a_slow_link_is_gone_around_where_rates_are_known() {
        let view = view("rs:n=14,k=10", LayoutKind::Contiguous, &[3]);
        let unknown = Topology::default();
        for slow in [0, 5, 9, 12] {
            let topology = one_slow(slow);
            for (blocks, method) in [
                (3..4, None),
                (3..4, Some(Method::Weighted)),
                (3..4, Some(Method::Optimal)),
                (3..4, Some(Method::Conventional)),
            ] {
                let span = span(blocks, 8 * MIB);
                assert!(!takes_part(&view, &topology, &span, method, slow), "{slow} {method:?}");
                assert_eq!(takes_part(&view, &unknown, &span, method, slow), slow < 12, "{slow} {method:?}");
            }
            // A whole stripe needs one block of the four that hold parity.
            assert_eq!(takes_part(&view, &topology, &span(0..10, 8 * MIB), None, slow), slow < 10);
        }
        // The same for a small range.
        assert!(!takes_part(&view, &one_slow(0), &span(3..4, 4096), None, 0));
    }

    #[test]
    fn links_alike_are_chosen_as_if_nothing_were_known() {
        let view = view("rs:n=14,k=10", LayoutKind::Contiguous, &[3]);
        let rates = Rates::even((0..14).map(NodeId), NonZeroU64::new(100_000_000).unwrap());
        let known = Topology { rates, ..Topology::default() };
        for (blocks, len) in [(3..4, 8 * MIB), (0..10, 8 * MIB), (3..4, 4096), (2..6, MIB)] {
            let sends = |topology: &Topology| {
                let choice =
                    Choice { view: &view, topology, unavailable: &[], method: None, slice_bytes: None };
                let chosen = choice.of(&span(blocks.clone(), len)).unwrap();
                let lowered = chosen.plan.lanes[0].placed.lower().unwrap();
                lowered.iter().flat_map(|t| &t.sends).filter(|(_, to)| to.is_client()).count()
            };
            assert_eq!(sends(&known), sends(&Topology::default()), "{blocks:?} {len}");
        }
    }
}
