//! Which rack gets which blocks of a stripe.
//!
//! [`quotas`] decides how many blocks each rack gets, then [`deal`] decides which. The code's groups are kept
//! together as long as the stripe survives the loss of any one rack, and are scattered where only that makes it
//! survive. This module knows no nodes.

use kintsu_code::Code;
use kintsu_dag::BlockIndex;

use super::draw::draw;

/// Sets of blocks tried before the search for a safe dealing is given up.
const MAX_TRIALS: usize = 4096;

/// A rack in the eyes of the dealer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Blocks that it can take.
    pub capacity: usize,
    /// Its weight: blocks are given in proportion.
    pub weight: u64,
}

/// Divides `blocks` over the rooms in proportion to their weights, and gives no room more than its capacity.
/// `seed` decides who gets the remainders. `None` when the capacities do not suffice.
pub(crate) fn quotas(rooms: &[Room], blocks: usize, seed: u64) -> Option<Vec<usize>> {
    let offset: Vec<u64> = (0..rooms.len()).map(|i| draw(seed, 1, i as u64) >> 32).collect();
    let mut counts = vec![0; rooms.len()];
    for _ in 0..blocks {
        let open = (0..rooms.len()).filter(|&i| counts[i] < rooms[i].capacity);
        // The next block goes where (count + offset) / weight is smallest, offset in [0, 1).
        let next = open.min_by_key(|&i| (((counts[i] as u64) << 32) + offset[i]) / rooms[i].weight.max(1))?;
        counts[next] += 1;
    }
    Some(counts)
}

/// Gives the `stored` blocks to racks with these `quotas` (which add up to the number of blocks); returns the
/// blocks of each rack. The loss of any one rack is recoverable. `None` when no such dealing is found.
pub(crate) fn deal(
    code: &dyn Code,
    stored: &[BlockIndex],
    quotas: &[usize],
    seed: u64,
) -> Option<Vec<Vec<BlockIndex>>> {
    let dealer = Dealer::new(code, stored, quotas, seed);
    let turns = || 0..dealer.racks.len().max(1);
    let mut plain =
        turns().map(|turn| dealer.together(turn)).chain(turns().map(|turn| dealer.scattered(turn)));
    plain.find(|dealt| dealt.iter().all(|set| dealer.safe(set))).or_else(|| dealer.search())
}

/// As [`deal`], but ignores which losses the stripe survives: the groups are scattered.
pub(crate) fn deal_unsafely(
    code: &dyn Code,
    stored: &[BlockIndex],
    quotas: &[usize],
    seed: u64,
) -> Vec<Vec<BlockIndex>> {
    Dealer::new(code, stored, quotas, seed).scattered(0)
}

/// Whether the stripe survives the loss of these blocks together.
pub(crate) fn survives(code: &dyn Code, lost: &[BlockIndex]) -> bool {
    lost.len() < code.distance() || (lost.len() <= code.n() - code.k() && code.recoverable(lost))
}

struct Dealer<'a> {
    code: &'a dyn Code,
    quotas: &'a [usize],
    /// The racks that get any, shuffled by the seed.
    racks: Vec<usize>,
    /// The stored blocks, group after group, with the number of the group.
    blocks: Vec<(usize, BlockIndex)>,
}

impl<'a> Dealer<'a> {
    fn new(code: &'a dyn Code, stored: &[BlockIndex], quotas: &'a [usize], seed: u64) -> Self {
        let mut racks: Vec<usize> = (0..quotas.len()).filter(|&rack| quotas[rack] > 0).collect();
        racks.sort_by_key(|&rack| draw(seed, 2, rack as u64));
        let groups = code.place().into_iter().enumerate();
        let blocks = groups.flat_map(|(i, group)| group.into_iter().map(move |block| (i, block)));
        Self { code, quotas, racks, blocks: blocks.filter(|(_, block)| stored.contains(block)).collect() }
    }

    /// Rack after rack is filled with the blocks group after group; the racks begin at `turn`.
    fn together(&self, turn: usize) -> Vec<Vec<BlockIndex>> {
        let mut dealt = vec![Vec::new(); self.quotas.len()];
        let mut blocks = self.blocks.iter();
        for at in 0..self.racks.len() {
            let rack = self.racks[(at + turn) % self.racks.len()];
            dealt[rack].extend(blocks.by_ref().take(self.quotas[rack]).map(|(_, block)| *block));
        }
        dealt
    }

    /// Each rack in turn takes one block.
    fn scattered(&self, turn: usize) -> Vec<Vec<BlockIndex>> {
        let mut dealt = vec![Vec::new(); self.quotas.len()];
        for (at, (_, block)) in (turn..).zip(&self.blocks) {
            let open = (at..at + self.racks.len()).map(|i| self.racks[i % self.racks.len()]);
            if let Some(rack) = open.into_iter().find(|&rack| dealt[rack].len() < self.quotas[rack]) {
                dealt[rack].push(*block);
            }
        }
        dealt
    }

    fn safe(&self, set: &[BlockIndex]) -> bool {
        survives(self.code, set)
    }

    /// Depth-first search over all dealings, groups scattered first, cut short after [`MAX_TRIALS`].
    fn search(&self) -> Option<Vec<Vec<BlockIndex>>> {
        let mut dealt = vec![Vec::new(); self.quotas.len()];
        let mut trials = 0;
        self.search_from(0, &mut dealt, &mut trials).then_some(dealt)
    }

    fn search_from(&self, at: usize, dealt: &mut Vec<Vec<BlockIndex>>, trials: &mut usize) -> bool {
        let Some(&(group, block)) = self.blocks.get(at) else { return true };
        let mates = |set: &[BlockIndex]| {
            self.blocks.iter().filter(|(other, mate)| *other == group && set.contains(mate)).count()
        };
        let mut racks: Vec<usize> =
            self.racks.iter().copied().filter(|&rack| dealt[rack].len() < self.quotas[rack]).collect();
        racks.sort_by_key(|&rack| (mates(&dealt[rack]), dealt[rack].len()));
        for rack in racks {
            *trials += 1;
            if *trials > MAX_TRIALS {
                return false;
            }
            dealt[rack].push(block);
            if self.safe(&dealt[rack]) && self.search_from(at + 1, dealt, trials) {
                return true;
            }
            dealt[rack].pop();
        }
        false
    }
}
