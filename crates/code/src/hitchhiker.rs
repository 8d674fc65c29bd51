//! Hitchhiker-XOR: Reed-Solomon twice, on sub-blocks a and b, with XORs of a-parts added to the b-parts of the
//! parities. Storage and distance are those of RS; the repair of a data block reads fewer bytes.
//!
//! Parity p of RS, p = 0..m, computes `f_p`. Blocks hold `(a_i, b_i)` for data, `(f_0(a), f_0(b))` for parity 0
//! and `(f_p(a), f_p(b) + sum of a_i, i in group p)` for p >= 1, the groups dividing the data among the m - 1
//! later parities. Data block i of group p is repaired from the b-parts of the other data and of parity 0 (which
//! give b_i), the b-part of parity p minus f_p(b), and the a-parts of the rest of its group: k + |group|
//! sub-blocks of half a block each. With one group (m = 2) this saves nothing, and k blocks are read, as for
//! parities.
//!
//! The parts of any k blocks decode a as RS does, then b: the distance is that of RS.
//!
//! The bytes equal those of HDFS (`org.apache.hadoop.io.erasurecode.coder.HHXORErasureEncoder`) for all shapes
//! that HDFS can encode: its RS is our Cauchy matrix, its sub-stripe 0 is a, and its groups are those of
//! [`groups`].
//!
//! Source: Rashmi, Shah, Gu, Kuang, Borthakur, Ramchandran, "A Hitchhiker's Guide to Fast and Efficient Data
//! Reconstruction in Erasure-coded Data Centers", SIGCOMM'14.

use std::ops::Range;
use std::sync::Arc;

use kintsu_algebra::{Matrix, add, div, mul};
use kintsu_dag::Ecdag;

use crate::decode::join_row;
use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::rs::{cauchy, cauchy_theorem};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "hitchhiker-xor",
    keys: &[
        Key::required("n", "blocks in a stripe, at least k + 2"),
        Key::required("k", "data blocks in a stripe"),
    ],
    about: "Hitchhiker-XOR: Reed-Solomon with parities that help each other; a data block is repaired from about two thirds",
    example: "hitchhiker-xor:n=14,k=10",
    make,
};

const W: usize = 2;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    if n < k + 2 {
        let expected = "n - k >= 2, a parity to decode with and others to carry XORs";
        return Err(CodeError::invalid("shape of hitchhiker-xor", expected, format!("n={n}, k={k}")));
    }
    let code = Hitchhiker { n, k, rs: cauchy(n, k), groups: groups(k, n - k) };
    let claim = UncheckedCode {
        name: format!("hitchhiker-xor:n={n},k={k}"),
        n,
        k,
        w: W,
        generator: code.generator(),
        groups: Vec::new(),
        distance: n - k + 1,
        own: Own { repairs: code.repairs(), ..Own::default() },
    };
    let base = Box::new(Certificate { theorem: cauchy_theorem(n, k), split: 1 });
    claim.make(Some(&Certificate { theorem: Theorem::Piggybacks { w: W, base }, split: 1 }))
}

/// The data blocks whose XORs are added to parities 1 to m - 1.
///
/// HDFS gives each `floor(k / (m - 1))` and the rest to the last; where the last would get more than twice as many
/// (HDFS fails there), group sizes differ by one at most.
fn groups(k: usize, m: usize) -> Vec<Range<usize>> {
    let count = m - 1;
    let size = k / count;
    let start = |group: usize| match k <= m * size {
        true if group == count => k,
        true => group * size,
        false => group * k / count,
    };
    (0..count).map(|group| start(group)..start(group + 1)).collect()
}

struct Hitchhiker {
    n: usize,
    k: usize,
    rs: Matrix,
    /// Of parity `index + 1`.
    groups: Vec<Range<usize>>,
}

impl Hitchhiker {
    fn generator(&self) -> Matrix {
        Matrix::from_fn(self.n * W, self.k * W, |row, col| {
            let ((block, part), (data, of)) = ((row / W, row % W), (col / W, col % W));
            let rides = || block > self.k && self.groups[block - self.k - 1].contains(&data);
            match (part, of) {
                (1, 0) => u8::from(rides()),
                _ if part == of => self.rs.row(block)[data],
                _ => 0,
            }
        })
    }

    /// The repair of each data block whose group allows a saving.
    fn repairs(&self) -> Vec<Ecdag> {
        let groups = self.groups.iter().enumerate().filter(|(_, group)| group.len() < self.k);
        groups.flat_map(|(index, group)| group.clone().map(move |f| self.repair(f, index))).collect()
    }

    /// b_f from parity 0, then a_f from the rest of the carrying parity, both expressed by the symbols read.
    fn repair(&self, f: usize, group: usize) -> Ecdag {
        let (zero, carrier) = (self.k, self.k + 1 + group);
        let (first, second) = (self.rs.row(zero), self.rs.row(carrier));
        let scale = |p: u8| div(p, first[f]).expect("a Cauchy matrix has no zeros");
        let others = || (0..self.k).filter(|&i| i != f);
        let b = |block: usize| block * W + 1;

        let read: Vec<usize> = others().map(b).chain([b(zero)]).collect();
        let solve: Vec<u8> = others().map(|i| scale(first[i])).chain([scale(1)]).collect();
        let less = |i: usize, coef: u8| add(mul(second[f], coef), if i < self.k { second[i] } else { 0 });
        let mut rest: Vec<u8> = others().chain([zero]).zip(&solve).map(|(i, &coef)| less(i, coef)).collect();
        let mates = self.groups[group].clone().filter(|&i| i != f).map(|i| i * W);
        let also: Vec<usize> = read.iter().copied().chain([b(carrier)]).chain(mates).collect();
        rest.resize(also.len(), 1);

        let mut graph = Ecdag::new(self.n, W);
        join_row(&mut graph, f * W, &also, &rest);
        join_row(&mut graph, b(f), &read, &solve);
        graph
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rs::tests::parity_hex;

    #[test]
    fn groups_are_those_of_hdfs_and_even_where_hdfs_has_none() {
        assert_eq!(groups(10, 4), [0..3, 3..6, 6..10]);
        assert_eq!(groups(6, 3), [0..3, 3..6]);
        assert_eq!(groups(11, 4), [0..3, 3..6, 6..11]);
        assert_eq!(groups(4, 2), [0..4; 1]);
        assert_eq!(groups(7, 5), [0..1, 1..3, 3..5, 5..7]);
        assert_eq!(groups(1, 3), [0..0, 0..1]);
    }

    #[test]
    fn parities_are_cauchy_rows_and_the_second_halves_carry_xors() {
        // 1 / (4 + p xor i), interleaved a0 b0 a1 b1 ...
        let expected = [
            "47 00 a7 00 7a 00 ba 00",
            "00 47 00 a7 00 7a 00 ba",
            "a7 00 47 00 ba 00 7a 00",
            "01 a7 01 47 00 ba 00 7a",
            "7a 00 ba 00 47 00 a7 00",
            "00 7a 00 ba 01 47 01 a7",
        ];
        let code = crate::parse("hitchhiker-xor:n=7,k=4").unwrap();
        let hex = |row: &[u8]| row.iter().map(|c| format!("{c:02x}")).collect::<Vec<_>>().join(" ");
        let rows: Vec<_> = (8..14).map(|row| hex(code.generator().row(row))).collect();
        assert_eq!(rows, expected);
        assert_eq!(parity_hex("rs:n=7,k=4")[0], "47 a7 7a ba");
    }

    #[test]
    fn large_shapes_are_proved_by_theorem() {
        assert_eq!(crate::parse("hitchhiker-xor:n=60,k=40").unwrap().distance(), 21);
    }
}
