//! One stripe as it was read once. All decisions about a stripe start from this, and only here does a record
//! become a view.

use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, StripeId};
use kintsu_plan::StripeView;
use kintsu_wire::message::DigestBytes;

use crate::meta::change::Landing;
use crate::meta::record::{BlockRecord, StripeRecord};

/// One stripe as it was read.
#[derive(Debug, Clone)]
pub struct Stripe {
    /// Its id.
    pub id: StripeId,
    /// Its code.
    pub code: Arc<dyn Code>,
    /// What is recorded of it.
    pub record: StripeRecord,
}

impl Stripe {
    /// The stripe as a planner sees it. A block, made or not, has a home in the view if `counts` returns true
    /// for it.
    pub fn view(&self, counts: impl Fn(BlockIndex, &BlockRecord) -> bool) -> StripeView {
        let home = |(i, block): (usize, &Option<BlockRecord>)| {
            block.as_ref().filter(|block| counts(BlockIndex(i as u8), block)).map(|block| block.node)
        };
        let homes = self.record.blocks.iter().enumerate().map(home).collect();
        StripeView { id: self.id, code: self.code.clone(), layout: self.record.layout, homes }
    }

    /// The recorded digests, by block index.
    pub fn expect(&self) -> Vec<Option<DigestBytes>> {
        self.record.blocks.iter().map(|b| b.and_then(|b| b.digest)).collect()
    }

    /// The generations of the blocks, by block index.
    pub fn generations(&self) -> Vec<u32> {
        self.record.generations()
    }

    /// The length of a block.
    pub fn block_len(&self, index: BlockIndex) -> u64 {
        self.record.layout.block_len(self.code.k(), index)
    }

    /// The length of the longest block.
    pub fn longest(&self) -> u64 {
        self.record.layout.longest(self.code.k())
    }

    /// Notes that these blocks were recorded at their new homes, so that the stripe need not be read again.
    pub fn landed(&mut self, landings: &[Landing]) {
        for landing in landings {
            let slot = self.record.blocks.get_mut(usize::from(landing.index.0)).and_then(Option::as_mut);
            if let Some(block) = slot {
                (block.node, block.digest, block.lost) = (landing.to, Some(landing.digest), false);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kintsu_dag::NodeId;
    use kintsu_plan::{Layout, LayoutKind};

    /// An encoded stripe whose block i is on node i.
    pub(crate) fn stripe(code: &str, lost: &[u8]) -> Stripe {
        let code = kintsu_code::parse(code).unwrap();
        let block = |i: usize| {
            let lost = lost.contains(&(i as u8));
            Some(BlockRecord { node: NodeId(i as u32), digest: Some([i as u8; 16]), lost, generation: 1 })
        };
        let blocks = (0..code.n()).map(block).collect();
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: 1000,
            cell_bytes: 100,
            w: 1,
            data_bytes: 1000 * code.k() as u64,
        };
        let record =
            StripeRecord { owner: 1, offset: 0, code: 0, generation: 1, layout, encoded: true, blocks };
        Stripe { id: StripeId(5), code, record }
    }

    #[test]
    fn a_view_has_the_homes_that_count_and_what_landed_is_at_home_there() {
        let mut stripe = stripe("rs:n=4,k=2", &[3]);
        stripe.record.blocks[1] = None;
        let nodes = |homes: &[Option<u32>]| homes.iter().map(|n| n.map(NodeId)).collect::<Vec<_>>();
        assert_eq!(stripe.view(|_, _| true).homes, nodes(&[Some(0), None, Some(2), Some(3)]));
        let sound = |index: BlockIndex, block: &BlockRecord| index.0 != 0 && !block.lost;
        assert_eq!(stripe.view(sound).homes, nodes(&[None, None, Some(2), None]));
        let (index, from, to) = (BlockIndex(3), NodeId(3), NodeId(9));
        let landing = Landing { index, from, to, generation: 1, digest: [7; 16] };
        stripe.landed(&[landing]);
        assert_eq!(stripe.view(sound).homes, nodes(&[None, None, Some(2), Some(9)]));
        assert_eq!(stripe.expect()[3], Some([7; 16]));
    }
}
