//! Who can repair a block.

use kintsu_dag::BlockIndex;

use super::Desk;
use crate::PlanError;
use crate::many::scene::LostBlock;
use crate::optimal::candidates;
use crate::repair::any_will_do;

/// The nodes that can repair a block: any `k` of `helpers`.
#[derive(Debug, Clone, Default)]
pub(in crate::many) struct Case {
    pub bytes: f64,
    pub k: usize,
    /// By number.
    pub helpers: Vec<usize>,
}

impl Desk<'_> {
    /// The nodes that can repair the block. Where the code does not leave the choice of helpers open, those with the
    /// smallest `rank` are taken first.
    ///
    /// # Errors
    /// `Unrecoverable` when the blocks left do not determine the lost one, `Invalid` for a block that the stripe
    /// does not have.
    pub fn case(&self, lost: &LostBlock<'_>, rank: &dyn Fn(usize) -> f64) -> Result<Case, PlanError> {
        Ok(self.case_of(lost, &[lost.block], rank)?.unwrap_or_default())
    }

    /// The nodes that can repair these blocks of the stripe together; `None` for blocks that have no helper in common.
    ///
    /// # Errors
    /// As [`Desk::case`].
    pub fn case_of(
        &self,
        lost: &LostBlock<'_>,
        blocks: &[BlockIndex],
        rank: &dyn Fn(usize) -> f64,
    ) -> Result<Option<Case>, PlanError> {
        let view = &lost.stripe.view;
        view.check("lost blocks", blocks)?;
        let bytes = lost.bytes() as f64;
        let mut known = self.left(lost);
        if any_will_do(view) {
            let k = view.code.k().saturating_sub(view.absent().len()).max(1);
            let mut helpers: Vec<usize> = known.iter().map(|(node, _)| *node).collect();
            if distinct(&mut helpers) >= k {
                return Ok(Some(Case { bytes, k, helpers }));
            }
        }
        known.sort_by(|a, b| rank(a.0).total_cmp(&rank(b.0)).then(a.1.cmp(&b.1)));
        let preference: Vec<BlockIndex> = known.into_iter().map(|(_, block)| block).collect();
        let Some((nodes, k)) = candidates(view, &preference, blocks)? else { return Ok(None) };
        let mut helpers: Vec<usize> = nodes.iter().filter_map(|id| self.number(*id)).collect();
        if distinct(&mut helpers) < k {
            return Err(PlanError::Placement {
                expected: format!("the blocks of {} on distinct nodes", view.id),
                got: "several on one".into(),
            });
        }
        Ok(Some(Case { bytes, k, helpers }))
    }

    /// The nodes that can repair these blocks if all others are preferred to those of the case, which are the same only where the
    /// code leaves no choice; `None` as in [`Desk::case_of`].
    ///
    /// # Errors
    /// As [`Desk::case`].
    pub fn other_case(
        &self,
        lost: &LostBlock<'_>,
        blocks: &[BlockIndex],
        case: &Case,
    ) -> Result<Option<Case>, PlanError> {
        self.case_of(lost, blocks, &|node| f64::from(u8::from(case.helpers.contains(&node))))
    }

    /// The blocks that can be read, each with its node.
    pub fn left(&self, lost: &LostBlock<'_>) -> Vec<(usize, BlockIndex)> {
        let view = &lost.stripe.view;
        let left = |block: &BlockIndex| view.has(*block, &[]) && !lost.stripe.lost.contains(block);
        let home = |block: BlockIndex| view.homes[usize::from(block.0)].and_then(|id| self.number(id));
        view.indices().filter(left).filter_map(|block| Some((home(block)?, block))).collect()
    }
}

/// Removes repeated nodes; returns how many are left.
fn distinct(nodes: &mut Vec<usize>) -> usize {
    nodes.sort_unstable();
    nodes.dedup();
    nodes.len()
}
