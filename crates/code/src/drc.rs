//! Double regenerating codes for three racks, (6, 4) and (9, 6): the blocks are divided equally among the racks,
//! and a repair moves two blocks across racks.
//!
//! A DRC is a code that is MDS and whose repairs move the least possible across racks: with r racks,
//! `(r - 1) / (r - floor(k r / n))` blocks, here 2 / (3 - 2) = 2. In these two shapes a rack holds as many blocks
//! as there are parities. So one whole other rack and the rest of the lost block's rack are k - 1 blocks, which
//! contain no information about the lost block. Therefore each of the two other racks must send as much as one
//! block. **Plain RS with partial sums inside each rack reaches the same** (helpers of a rack are bound to one of
//! them), so the code here is RS with the Cauchy matrix, w = 1; what this family adds are the racks
//! ([`crate::Code::place`]) and the repairs. The published DRC splits blocks and uses all n - 1 other blocks; it
//! moves the same amount across racks.
//!
//! Any k of the other blocks may help. Blocks in the lost block's rack are preferred, then equal numbers from the
//! other racks.
//!
//! Source: Hu, Li, Zhang, Lee, Zhang, Zhou, Feng, "Optimal Repair Layering for Erasure-Coded Data Centers",
//! ACM TOS 2017.

use std::cmp::Reverse;
use std::sync::Arc;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

use crate::distance::Certificate;
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::rs::{cauchy, cauchy_theorem};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "drc",
    keys: &[
        Key::required("n", "blocks in a stripe, 6 or 9, a third in each rack"),
        Key::required("k", "data blocks in a stripe, 4 or 6"),
    ],
    about: "DRC: RS in three racks; helpers of a rack add up before they send, so a repair moves two blocks across racks",
    example: "drc:n=9,k=6",
    make,
};

const RACKS: usize = 3;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    if !matches!((n, k), (6, 4) | (9, 6)) {
        let expected = "n=6, k=4 or n=9, k=6, those of which it is shown that two blocks cross racks";
        return Err(CodeError::invalid("shape of drc", expected, format!("n={n}, k={k}")));
    }
    let code = Drc { n, k, rs: cauchy(n, k) };
    let own = Own { repairs: code.repairs()?, place: Some(code.racks()), ..Own::default() };
    let claim = UncheckedCode {
        name: format!("drc:n={n},k={k}"),
        n,
        k,
        w: 1,
        generator: code.rs,
        groups: Vec::new(),
        distance: n - k + 1,
        own,
    };
    claim.make(Some(&Certificate { theorem: cauchy_theorem(n, k), split: 1 }))
}

struct Drc {
    n: usize,
    k: usize,
    rs: Matrix,
}

impl Drc {
    fn rack(&self, block: usize) -> usize {
        block / (self.n / RACKS)
    }

    fn racks(&self) -> Vec<Vec<BlockIndex>> {
        let rack = |rack| (0..self.n).filter(move |&b| self.rack(b) == rack);
        (0..RACKS).map(|r| rack(r).map(|b| BlockIndex(b as u8)).collect()).collect()
    }

    /// The best repair of every block, then the next best, down to all sets of k helpers.
    fn repairs(&self) -> Result<Vec<Ecdag>, CodeError> {
        let by_block: Vec<_> = (0..self.n).map(|lost| self.helpers(lost)).collect();
        let ranks = 0..by_block[0].len();
        let ranked = ranks.flat_map(|rank| by_block.iter().enumerate().map(move |(b, of)| (b, &of[rank])));
        ranked.map(|(lost, helpers)| self.repair(lost, helpers)).collect()
    }

    /// All sets of k blocks without `lost`, the best first: most blocks from its rack, then the most even
    /// distribution.
    fn helpers(&self, lost: usize) -> Vec<Vec<usize>> {
        let of = |set: u32| (0..self.n).filter(move |b| set >> b & 1 == 1);
        let sets = (0..1u32 << self.n).filter(|set| set >> lost & 1 == 0);
        let mut sets: Vec<Vec<usize>> =
            sets.filter(|set| set.count_ones() as usize == self.k).map(|set| of(set).collect()).collect();
        sets.sort_by_key(|set| {
            let share = |rack| set.iter().filter(|&&b| self.rack(b) == rack).count();
            let home = self.rack(lost);
            (Reverse(share(home)), (0..RACKS).filter(|&r| r != home).map(share).max())
        });
        sets
    }

    /// The sum over `helpers`. The helpers of each rack, except the rack of `lost`, are added up at the first of
    /// them.
    fn repair(&self, lost: usize, helpers: &[usize]) -> Result<Ecdag, CodeError> {
        let wanted = self.rs.select_rows([lost]);
        let combination = self.rs.select_rows(helpers.iter().copied()).express(&wanted);
        let Some(coefs) = combination.expect("rows of one matrix") else {
            let expected = format!("{} blocks that determine b{lost}", self.k);
            return Err(CodeError::invalid("repair of drc", expected, format!("{helpers:?}")));
        };
        let terms = || helpers.iter().zip(coefs.row(0));
        let mut graph = Ecdag::new(self.n, 1);
        let (mut children, mut scales) = (Vec::new(), Vec::new());
        for rack in 0..RACKS {
            let share = terms().filter(|&(&b, _)| self.rack(b) == rack);
            let (mut vertices, mut shares): (Vec<_>, Vec<_>) =
                share.map(|(&b, &coef)| (Vertex(b as u32), coef)).unzip();
            if rack != self.rack(lost) && vertices.len() > 1 {
                let sum = graph.fresh();
                graph.join(sum, &vertices, &shares).expect("distinct blocks");
                graph.bind_y(sum, vertices[0]).expect("the first block is a child of the new sum");
                (vertices, shares) = (vec![sum], vec![1]);
            }
            children.append(&mut vertices);
            scales.append(&mut shares);
        }
        graph.join(Vertex(lost as u32), &children, &scales).expect("distinct blocks and sums");
        Ok(graph)
    }
}
