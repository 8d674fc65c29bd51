//! The blocks of one stripe: repaired together, or one by one if none of them can be repaired together.

use std::collections::VecDeque;

use kintsu_dag::BlockIndex;

use super::Outcome;

/// The progress of repairing some blocks of a stripe.
#[derive(Debug)]
pub struct Rounds {
    wanted: Vec<BlockIndex>,
    left: VecDeque<Vec<BlockIndex>>,
    sum: Option<Outcome>,
    apart: bool,
}

impl Rounds {
    /// Begins the repair of these blocks.
    pub fn new(wanted: Vec<BlockIndex>) -> Self {
        Self { left: VecDeque::from([wanted.clone()]), wanted, sum: None, apart: false }
    }

    /// The blocks to repair next; [`Rounds::ended`] follows.
    pub fn begin(&mut self) -> Option<Vec<BlockIndex>> {
        self.left.pop_front()
    }

    /// The repair of these blocks has ended.
    pub fn ended(&mut self, outcome: Outcome) {
        let Some(sum) = &mut self.sum else {
            // There are too few nodes, or too few blocks to read: as many blocks as possible are repaired,
            // one by one.
            self.apart = self.wanted.len() > 1 && outcome.failed.is_some() && outcome.repaired.is_empty();
            if self.apart {
                self.left = self.wanted.iter().map(|index| vec![*index]).collect();
            }
            self.sum = Some(outcome);
            return;
        };
        sum.add(outcome);
    }

    /// The outcome. If blocks are left over, its reason says why they could not be repaired together.
    pub fn end(self) -> Outcome {
        let mut sum = self.sum.unwrap_or_default();
        if self.apart && sum.repaired.len() >= self.wanted.len() {
            sum.failed = None;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(repaired: &[u8], failed: Option<&str>) -> Outcome {
        let repaired = repaired.iter().map(|index| BlockIndex(*index)).collect();
        Outcome { repaired, failed: failed.map(str::to_owned), ..Outcome::default() }
    }

    /// Repairs blocks 1 and 2 with these outcomes; the blocks of each round, and the end.
    fn rounds(outcomes: &[Outcome]) -> (Vec<Vec<u8>>, Outcome) {
        let mut rounds = Rounds::new([1, 2].map(BlockIndex).to_vec());
        let (mut seen, mut outcomes) = (Vec::new(), outcomes.iter());
        while let Some(blocks) = rounds.begin() {
            seen.push(blocks.iter().map(|block| block.0).collect());
            rounds.ended(outcomes.next().unwrap().clone());
        }
        (seen, rounds.end())
    }

    #[test]
    fn blocks_are_repaired_one_by_one_only_if_none_can_be_repaired_together() {
        let all = outcome(&[1, 2], None);
        assert_eq!(rounds(std::slice::from_ref(&all)), (vec![vec![1, 2]], all.clone()));
        let part = outcome(&[1], Some("b2 has moved"));
        assert_eq!(rounds(std::slice::from_ref(&part)), (vec![vec![1, 2]], part));
        let none = outcome(&[], Some("too few nodes"));
        let apart = vec![vec![1, 2], vec![1], vec![2]];
        let (one, two, failed) = (outcome(&[1], None), outcome(&[2], None), outcome(&[], Some("no node")));
        assert_eq!(rounds(&[none.clone(), one.clone(), two]), (apart.clone(), all));
        assert_eq!(rounds(&[none, one, failed]), (apart, outcome(&[1], Some("too few nodes"))));
    }
}
