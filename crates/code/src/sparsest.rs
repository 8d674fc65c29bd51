//! Finds a way to compute a block from others that reads few of them.
//!
//! The ways are one solution plus any combination of relations (sums of the rows of the others that are zero).
//! With q relations there is a sparsest way that is zero at some q positions which determine the combination, so
//! it is enough to try all such positions: the result is exact while the budget lasts (a stripe of 16 blocks takes
//! a part of it), and otherwise the best way found. Sub-blocks and several blocks at once are not handled here.

use kintsu_algebra::{Matrix, div, mul};

/// The most byte multiply-adds of a search: about a tenth of a millisecond.
const BUDGET: usize = 1 << 16;

/// Coefficients that make `target` (one row) from `rows`, with as few rows as the search found; the first `free`
/// rows do not count. Among equal results, the earliest independent rows are preferred. `None` when the rows do
/// not determine the target.
pub(crate) fn express(rows: &Matrix, target: &[u8], free: usize) -> Option<Vec<u8>> {
    let count = rows.rows();
    let wanted =
        Matrix::from_fn(count + 1, rows.cols(), |i, j| if i < count { rows.row(i)[j] } else { target[j] });
    let ways = rows.express(&wanted).expect("rows and target have one width")?;
    let relation = |i: usize| (0..count).map(|j| if i == j { 1 } else { ways.row(i)[j] }).collect();
    let relations: Vec<Vec<u8>> = (0..count).filter(|&i| ways.row(i)[i] == 0).map(relation).collect();
    let first = ways.row(count).to_vec();
    let mut search = Search { free, weight: usize::MAX, best: Vec::new(), budget: BUDGET };
    search.descend(first, &relations, count);
    Some(search.best)
}

struct Search {
    free: usize,
    weight: usize,
    best: Vec<u8>,
    budget: usize,
}

impl Search {
    /// Records `way`, then makes it zero at each position below `end` where the relations allow it, the last
    /// position first.
    fn descend(&mut self, way: Vec<u8>, relations: &[Vec<u8>], end: usize) {
        let weight = way[self.free..].iter().filter(|&&c| c != 0).count();
        for at in (self.free..end).rev() {
            let Some(pivot) = relations.iter().position(|relation| relation[at] != 0) else { continue };
            let Some(left) = self.budget.checked_sub(way.len() * relations.len()) else { break };
            self.budget = left;
            let without = |row: &[u8]| cleared(row, &relations[pivot], at);
            let others = relations.iter().enumerate().filter(|(i, _)| *i != pivot);
            let others: Vec<_> = others.map(|(_, relation)| without(relation)).collect();
            self.descend(without(&way), &others, at);
        }
        if weight <= self.weight {
            (self.weight, self.best) = (weight, way);
        }
    }
}

/// `row` minus the multiple of `relation` that makes it zero at `at`.
fn cleared(row: &[u8], relation: &[u8], at: usize) -> Vec<u8> {
    let factor = div(row[at], relation[at]).expect("a pivot is not zero");
    row.iter().zip(relation).map(|(&c, &r)| c ^ mul(factor, r)).collect()
}
