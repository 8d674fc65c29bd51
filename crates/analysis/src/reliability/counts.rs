//! How many combinations of racks that are down and blocks that have failed leave a stripe decodable.
//!
//! A combination is c of the racks and f of the n blocks; blocks of racks that are down may be among the f. The
//! stripe survives a combination if the loss of the f blocks and all blocks of those racks is decodable. The
//! counts are exact; they come from the code's decodable losses, not from products of probabilities.

use kintsu_code::Code;
use kintsu_dag::BlockIndex;

use crate::AnalysisError;
use crate::losses::{countable, visit_decodable};

/// Survived combinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Survived {
    /// Blocks of a stripe.
    pub(crate) n: usize,
    /// Racks that hold any block.
    pub(crate) racks: usize,
    /// Losses of more blocks than this were not counted and count as data loss.
    pub(crate) counted: usize,
    /// By racks down, then by blocks failed; each side up to `counted`, or to the number of racks.
    counts: Vec<Vec<u128>>,
}

impl Survived {
    /// Counts for `code`. `by_rack` lists the blocks in each rack; without racks only nodes fail. At most
    /// `max_patterns` losses are tried. Loss sizes at which every loss is decodable need no trial. Where
    /// counts would exceed 2^120, fewer losses are counted.
    ///
    /// # Errors
    /// `Distance` when counting disproves the code's claim.
    pub(crate) fn count(
        code: &dyn Code,
        by_rack: &[Vec<BlockIndex>],
        max_patterns: u64,
    ) -> Result<Self, AnalysisError> {
        let n = code.n();
        let racks: Vec<&Vec<BlockIndex>> = by_rack.iter().filter(|blocks| !blocks.is_empty()).collect();
        let sizes: Vec<usize> = racks.iter().map(|blocks| blocks.len()).collect();
        let sure = code.distance() - 1;
        let tried = if sure == n - code.k() { 0 } else { countable(code, max_patterns) };
        let counted = representable(n, racks.len(), tried.max(sure));
        let ways = if counted > sure {
            let mut ways = Ways::new(racks.len(), counted);
            let rack_of = rack_of(n, &racks);
            visit_decodable(code, counted, &mut |lost| ways.add(lost, &rack_of, &sizes))?;
            ways
        } else {
            Ways::all(n, &sizes, counted)
        };
        Ok(Self { n, racks: racks.len(), counted, counts: ways.combinations() })
    }

    /// Combinations of `down` racks and `failed` blocks that are survived.
    pub(crate) fn get(&self, down: usize, failed: usize) -> u128 {
        self.counts.get(down).and_then(|row| row.get(failed)).copied().unwrap_or(0)
    }
}

/// The number of the rack of each block; a block in no rack gets a number that no rack has.
fn rack_of(n: usize, racks: &[&Vec<BlockIndex>]) -> Vec<usize> {
    let mut rack_of = vec![usize::MAX; n];
    for (rack, blocks) in racks.iter().enumerate() {
        blocks.iter().for_each(|block| rack_of[usize::from(block.0)] = rack);
    }
    rack_of
}

/// The largest number of losses, up to `most`, for which all counts and their products with n stay below 2^120.
fn representable(n: usize, racks: usize, most: usize) -> usize {
    let log = |of: usize, t: usize| {
        (0..t.min(of / 2)).map(|i| ((of - i) as f64 / (i + 1) as f64).log2()).sum::<f64>()
    };
    let fits = |t: &usize| log(n, *t) + log(racks, *t) + ((n + racks) as f64).log2() < 120.0;
    (0..=most).rev().find(fits).unwrap_or(0)
}

/// Counts pairs of a decodable loss and a set of racks that lie wholly in it, by the number of racks, the number
/// of blocks in those racks, and the number of lost blocks.
struct Ways {
    racks: usize,
    counted: usize,
    pairs: Vec<u128>,
    /// Scratch: lost blocks by rack.
    hit: Vec<usize>,
}

impl Ways {
    fn new(racks: usize, counted: usize) -> Self {
        let side = counted + 1;
        Self { racks, counted, pairs: vec![0; side * side * side], hit: vec![0; racks] }
    }

    fn slot(&mut self, down: usize, blocks: usize, lost: usize) -> &mut u128 {
        let side = self.counted + 1;
        &mut self.pairs[(down * side + blocks) * side + lost]
    }

    /// Adds one decodable loss.
    fn add(&mut self, lost: &[usize], rack_of: &[usize], sizes: &[usize]) {
        self.hit.fill(0);
        lost.iter().filter_map(|&block| rack_of.get(block)).for_each(|&rack| {
            if let Some(hit) = self.hit.get_mut(rack) {
                *hit += 1;
            }
        });
        let whole: Vec<usize> =
            sizes.iter().zip(&self.hit).filter(|(size, hit)| size == hit).map(|(s, _)| *s).collect();
        if whole.is_empty() {
            *self.slot(0, 0, lost.len()) += 1;
            return;
        }
        for (down, blocks, ways) in choices(&whole, self.counted) {
            *self.slot(down, blocks, lost.len()) += ways;
        }
    }

    /// The counts if all losses of up to `counted` of n blocks are decodable.
    fn all(n: usize, sizes: &[usize], counted: usize) -> Self {
        let mut all = Self::new(sizes.len(), counted);
        for (down, blocks, ways) in choices(sizes, counted) {
            for lost in blocks..=counted {
                *all.slot(down, blocks, lost) += ways * choose(n - blocks, lost - blocks);
            }
        }
        all
    }

    /// From losses to combinations: all lost blocks outside the racks that are down have failed; of the blocks
    /// inside, any may have failed.
    fn combinations(mut self) -> Vec<Vec<u128>> {
        let counted = self.counted;
        let mut counts = vec![vec![0; counted + 1]; self.racks.min(counted) + 1];
        for (down, row) in counts.iter_mut().enumerate() {
            for blocks in down..=counted {
                for lost in blocks..=counted {
                    let pairs = *self.slot(down, blocks, lost);
                    for inside in 0..=blocks {
                        row[lost - blocks + inside] += pairs * choose(blocks, inside);
                    }
                }
            }
        }
        counts
    }
}

/// Ways to choose racks of these sizes with at most `most` blocks: (racks chosen, their blocks, number of ways).
fn choices(sizes: &[usize], most: usize) -> Vec<(usize, usize, u128)> {
    let mut ways = vec![(0, 0, 1u128)];
    for &size in sizes {
        let with = ways.iter().map(|&(down, blocks, ways)| (down + 1, blocks + size, ways));
        let with: Vec<_> = with.filter(|&(_, blocks, _)| blocks <= most).collect();
        for (down, blocks, more) in with {
            match ways.iter_mut().find(|(d, b, _)| (*d, *b) == (down, blocks)) {
                Some((_, _, ways)) => *ways += more,
                None => ways.push((down, blocks, more)),
            }
        }
    }
    ways
}

fn choose(of: usize, some: usize) -> u128 {
    if some > of {
        return 0;
    }
    (0..some.min(of - some)).fold(1, |ways, i| ways * (of - i) as u128 / (i + 1) as u128)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PATTERNS;
    use kintsu_code::parse;

    fn by_rack(racks: &[&[u8]]) -> Vec<Vec<BlockIndex>> {
        racks.iter().map(|blocks| blocks.iter().map(|&b| BlockIndex(b)).collect()).collect()
    }

    /// Counts by checking the rank of the generator for every combination.
    fn by_rank(code: &dyn Code, by_rack: &[Vec<BlockIndex>], down: usize, failed: usize) -> u128 {
        let sets = |of: usize, size: usize| {
            (0u32..1 << of).filter(move |set: &u32| set.count_ones() as usize == size)
        };
        let mut survived = 0;
        for racks in sets(by_rack.len(), down) {
            for blocks in sets(code.n(), failed) {
                let gone =
                    (0..by_rack.len()).filter(|r| racks >> r & 1 == 1).flat_map(|r| by_rack[r].clone());
                let failed = (0..code.n()).filter(|b| blocks >> b & 1 == 1).map(|b| BlockIndex(b as u8));
                survived += u128::from(code.recoverable(&gone.chain(failed).collect::<Vec<_>>()));
            }
        }
        survived
    }

    #[test]
    fn counts_agree_with_the_rank_of_every_combination() {
        let lrc = "azure-lrc:n=8,k=4,r=2";
        for (name, racks) in [
            (lrc, by_rack(&[&[0, 1, 4], &[2, 3, 5], &[6, 7]])),
            (lrc, by_rack(&[&[0, 2], &[1, 3], &[4, 5], &[6, 7]])),
            ("rs:n=7,k=4", by_rack(&[&[0, 1, 2], &[3, 4], &[], &[5, 6]])),
            ("rs:n=5,k=2", by_rack(&[&[0], &[1], &[2], &[3], &[4]])),
            (lrc, vec![]),
        ] {
            let code = parse(name).unwrap();
            let survived = Survived::count(&*code, &racks, MAX_PATTERNS).unwrap();
            let racks = occupied(&racks);
            assert_eq!(survived.racks, racks.len());
            for down in 0..=racks.len() {
                for failed in 0..=code.n() {
                    let expected = by_rank(&*code, &racks, down, failed);
                    assert_eq!(survived.get(down, failed), expected, "{name} {down} {failed}");
                }
            }
        }
    }

    fn occupied(racks: &[Vec<BlockIndex>]) -> Vec<Vec<BlockIndex>> {
        racks.iter().filter(|r| !r.is_empty()).cloned().collect()
    }

    #[test]
    fn what_is_not_counted_is_not_survived() {
        let code = parse("azure-lrc:n=8,k=4,r=2").unwrap();
        let few = Survived::count(&*code, &[], 100).unwrap();
        assert_eq!((few.counted, few.get(0, 3), few.get(0, 4)), (3, 56, 0));
        let wide = Survived::count(&*parse("rs:n=255,k=200").unwrap(), &[], 0).unwrap();
        assert!((15..55).contains(&wide.counted), "{}", wide.counted);
    }
}
