//! The code of HDFS-Xorbas and its shortened forms: two groups of r data blocks with an XOR parity each, and
//! g global parities that form a third group with those two. Every block is repaired locally.
//!
//! The data and the globals are a Reed-Solomon code with checks `sum a_b^i c_b = 0`, i < g. The check i = 0
//! is a plain sum, so the two local parities and the globals sum to zero: a global parity is the sum of the
//! other globals and the two local parities, and each local parity that of the rest. Distance g + 1.
//!
//! Block order: data, the two local parities, global parities. Source: Sathiamoorthy et al., "XORing
//! Elephants", PVLDB 2013, for (16,10,5); the shortened (13,8,4) and (12,8,4) as in "On Fault Tolerance,
//! Locality, and Optimality in Locally Repairable Codes", ATC'18, section 3.

use std::sync::Arc;

use kintsu_algebra::{Matrix, exp, pow};
use kintsu_dag::BlockIndex;

use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::rs::systematic;
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "xorbas",
    keys: &[
        Key::required("n", "blocks in a stripe: 2r data, 2 local and n - 2r - 2 global parities"),
        Key::required("k", "data blocks in a stripe, 2r"),
        Key::required("r", "data blocks in each of the two groups"),
    ],
    about: "HDFS-Xorbas: two groups of r data blocks, the global parities repaired from each other and the local ones",
    example: "xorbas:n=16,k=10,r=5",
    make,
};

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let r = params.number("r")?;
    let shape = || format!("n={n}, k={k}, r={r}");
    if r == 0 || k != 2 * r {
        return Err(CodeError::invalid("shape of xorbas", "two groups of data: k = 2r", shape()));
    }
    // The third group has the two local parities and the globals: a repair in it reads g + 1 blocks, at most r.
    if n < k + 3 || n > k + 2 + r.max(2) - 1 {
        let expected = format!(
            "1 to {} global parities, n - k - 2, so that they are repaired from r blocks",
            r.max(2) - 1
        );
        return Err(CodeError::invalid("shape of xorbas", expected, shape()));
    }
    let globals = n - k - 2;
    // Rows of the checks: the data and the globals have points, the local parities do not.
    let point = |b: usize| exp(if b < k { b } else { b - 2 });
    let parity = Matrix::from_fn(globals, globals, |i, j| pow(point(k + 2 + j), i));
    let data = Matrix::from_fn(globals, k, |i, j| pow(point(j), i));
    let solved = parity.inverse().and_then(|inverse| inverse.product(&data));
    let solved = solved.map_err(|e| CodeError::invalid("points of xorbas", "distinct ones", e))?;
    let generator = systematic(n, k, |i, j| match i - k {
        local @ 0..2 => u8::from(j / r == local),
        global => solved.row(global - 2)[j],
    });
    let counted = |b: usize| u8::from(!(k..k + 2).contains(&b));
    let theorem = Theorem::Checks {
        points: (0..n).map(|b| if counted(b) == 1 { point(b) } else { 0 }).collect(),
        multipliers: (0..n).map(counted).collect(),
        checks: globals,
    };
    let group = |blocks: &mut dyn Iterator<Item = usize>| blocks.map(|b| BlockIndex(b as u8)).collect();
    let groups = vec![group(&mut (0..r).chain([k])), group(&mut (r..k).chain([k + 1])), group(&mut (k..n))];
    let name = format!("xorbas:n={n},k={k},r={r}");
    let claim =
        UncheckedCode { name, n, k, w: 1, generator, groups, distance: globals + 1, own: Own::default() };
    claim.make(Some(&Certificate { theorem, split: 1 }))
}
