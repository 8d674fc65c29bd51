//! Reed-Solomon codes: n blocks, any k of which determine the rest.
//!
//! Three generator matrices. `cauchy` gives the same bytes as ISA-L's `gf_gen_cauchy1_matrix` and HDFS;
//! `vandermonde` is the systematised Vandermonde matrix; `isal` gives the same bytes as ISA-L's
//! `gf_gen_rs_matrix`, which is MDS only at small sizes and is refused at others.

use std::sync::Arc;

use kintsu_algebra::{Matrix, exp, inv, pow};

use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "rs",
    keys: &[
        Key::required("n", "blocks in a stripe"),
        Key::required("k", "data blocks in a stripe"),
        Key { name: "matrix", about: "cauchy, vandermonde or isal", default: Some("cauchy"), better: None },
    ],
    about: "Reed-Solomon: any k of the n blocks determine the others; a repair reads k blocks",
    example: "rs:n=14,k=10",
    make,
};

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let (suffix, generator, theorem) = match params.word("matrix") {
        "cauchy" => ("", cauchy(n, k), Some(cauchy_theorem(n, k))),
        "vandermonde" => (",matrix=vandermonde", vandermonde(n, k), Some(cauchy_theorem(n, k))),
        "isal" => (",matrix=isal", isal(n, k), (n - k <= 3).then(|| isal_theorem(k))),
        other => {
            let expected = "cauchy, vandermonde or isal";
            return Err(CodeError::invalid("matrix of rs", expected, format!("{other:?}")));
        }
    };
    let name = format!("rs:n={n},k={k}{suffix}");
    let claim = UncheckedCode {
        name,
        n,
        k,
        w: 1,
        generator,
        groups: Vec::new(),
        distance: n - k + 1,
        own: Own::default(),
    };
    claim.make(theorem.map(|theorem| Certificate { theorem, split: 1 }).as_ref())
}

/// Row i >= k, column j: 1 / (i xor j).
pub(crate) fn cauchy(n: usize, k: usize) -> Matrix {
    systematic(n, k, |i, j| inv((i ^ j) as u8).expect("i >= k > j"))
}

/// For both the Cauchy and the systematised Vandermonde matrix: points k..n against points 0..k.
pub(crate) fn cauchy_theorem(n: usize, k: usize) -> Theorem {
    Theorem::Cauchy { x: (k..n).map(|i| i as u8).collect(), y: (0..k).map(|j| j as u8).collect() }
}

/// V_ij = i^j, times the inverse of its top k x k.
fn vandermonde(n: usize, k: usize) -> Matrix {
    let v = Matrix::from_fn(n, k, |i, j| pow(i as u8, j));
    let top = v.select_rows(0..k).inverse().expect("a Vandermonde matrix of distinct points");
    v.product(&top).expect("shapes fit")
}

/// Parity p, column j: (2^p)^j.
fn isal(n: usize, k: usize) -> Matrix {
    systematic(n, k, |i, j| exp((i - k) * j))
}

fn isal_theorem(k: usize) -> Theorem {
    Theorem::Powers { points: (0..k).map(exp).collect() }
}

/// The identity, and parity rows `i >= k` with entry `f(i, j)`.
pub(crate) fn systematic(n: usize, k: usize, mut f: impl FnMut(usize, usize) -> u8) -> Matrix {
    Matrix::from_fn(n, k, |i, j| if i < k { u8::from(i == j) } else { f(i, j) })
}

#[cfg(test)]
pub(crate) mod tests {
    use kintsu_algebra::Matrix;

    /// The parity rows of a code, in hex.
    pub(crate) fn parity_hex(name: &str) -> Vec<String> {
        let code = crate::parse(name).unwrap();
        let row =
            |i| code.generator().row(i).iter().map(|c| format!("{c:02x}")).collect::<Vec<_>>().join(" ");
        (code.k()..code.n()).map(row).collect()
    }

    #[test]
    fn cauchy_has_the_bytes_of_hdfs_and_isal() {
        let expected = ["7a ba 47 a7 8e f4", "ba 7a a7 47 f4 8e", "ad 9d dd 98 3d aa"];
        assert_eq!(parity_hex("rs:n=9,k=6"), expected);
    }

    #[test]
    fn isal_and_vandermonde_have_their_published_small_matrices() {
        let powers = ["01 01 01 01", "01 02 04 08", "01 04 10 40"];
        assert_eq!(parity_hex("rs:n=7,k=4,matrix=isal"), powers);
        // Lagrange through 0, 1 at 2 and 3: (1 + p, p).
        assert_eq!(parity_hex("rs:n=4,k=2,matrix=vandermonde"), ["03 02", "02 03"]);
    }

    #[test]
    fn every_matrix_is_systematic_and_largest_shapes_are_proved_by_theorem() {
        for name in ["rs:n=255,k=1", "rs:n=255,k=254", "rs:n=255,k=128", "rs:n=100,k=80,matrix=vandermonde"] {
            let code = crate::parse(name).unwrap();
            let top = code.generator().select_rows(0..code.k());
            assert_eq!(top, Matrix::identity(code.k()), "{name}");
            assert_eq!(code.distance(), code.n() - code.k() + 1);
        }
        assert_eq!(crate::parse("rs:n=255,k=252,matrix=isal").unwrap().distance(), 4);
    }

    #[test]
    fn isal_is_refused_exactly_where_it_is_not_mds() {
        for k in 1..=20 {
            for m in 1..=6 {
                let made = crate::parse(&format!("rs:n={},k={k},matrix=isal", k + m));
                let mds = m <= 4 || m == 5 && k <= 5 || m == 6 && k <= 4;
                assert_eq!(made.is_ok(), mds, "k={k}, m={m}: {made:?}");
            }
        }
    }
}
