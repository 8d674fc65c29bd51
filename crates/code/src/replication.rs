//! Replication: n copies of one block; any one copy is enough.
//!
//! As a code: k = 1, every parity row is the data row. A repair reads one block, and so does a degraded read.

use std::sync::Arc;

use kintsu_algebra::Matrix;

use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params, check_shape};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "replication",
    keys: &[Key::required("n", "copies")],
    about: "n copies: any one is enough; a repair reads one block",
    example: "replication:n=3",
    make,
};

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let n = params.number("n")?;
    check_shape(n, 1)?;
    let generator = Matrix::from_fn(n, 1, |_, _| 1);
    let name = format!("replication:n={n}");
    let claim = UncheckedCode {
        name,
        n,
        k: 1,
        w: 1,
        generator,
        groups: Vec::new(),
        distance: n,
        own: Own::default(),
    };
    // Any single column without zeros is a Cauchy matrix with scaled rows.
    let theorem = Theorem::Cauchy { x: (1..n).map(|i| i as u8).collect(), y: vec![0] };
    claim.make(Some(&Certificate { theorem, split: 1 }))
}
