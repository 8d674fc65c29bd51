//! Azure-LRC+1: an Azure-LRC with one more block, the XOR of its global parities. A lost global parity is repaired
//! from this block and the other global parities, so every block is repaired locally.
//!
//! Block order: data, local parities, global parities, their parity. With a single global parity the last block is
//! a copy of it. The distance is that of the (n - 1, k, r) Azure-LRC, g + 2, or one more for some coefficients.
//! Where it is feasible, trying every loss decides which.
//!
//! Source: Kolosov et al., "On Fault Tolerance, Locality, and Optimality in Locally Repairable Codes",
//! ATC'18, section 3.

use std::sync::Arc;

use kintsu_algebra::{Matrix, add};
use kintsu_dag::BlockIndex;

use crate::azure_lrc::Shape;
use crate::distance::Certificate;
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "azure-lrc-plus1",
    keys: &[
        Key::required("n", "blocks in a stripe"),
        Key::required("k", "data blocks in a stripe"),
        Key::required("r", "data blocks in a local group; the last group may be smaller"),
    ],
    about: "Azure's LRC and an XOR parity of its global parities, so that these are repaired locally too",
    example: "azure-lrc-plus1:n=11,k=6,r=3",
    make,
};

/// For stripes of up to this many blocks the exact distance is computed, not only a bound.
const SMALL: usize = 20;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let r = params.number("r")?;
    let locals = k.div_ceil(r.max(1));
    if n < k + locals + 2 {
        let expected = format!(
            "n - k - l >= 2: with l = ceil(k/r) = {locals} local parities, one global one and theirs"
        );
        return Err(CodeError::invalid("shape of azure-lrc-plus1", expected, format!("n={n}, k={k}, r={r}")));
    }
    let shape = Shape::new(n - 1, k, r)?;
    let (generator, theorem) = shape.coefficients();
    let globals = k + locals..n - 1;
    let sum = |j: usize| globals.clone().fold(0, |sum, i| add(sum, generator.row(i)[j]));
    let generator = Matrix::from_fn(n, k, |i, j| if i < n - 1 { generator.row(i)[j] } else { sum(j) });
    let mut groups = shape.groups();
    groups.push((k + locals..n).map(|b| BlockIndex(b as u8)).collect());
    let claim = |distance| UncheckedCode {
        name: format!("azure-lrc-plus1:n={n},k={k},r={r}"),
        n,
        k,
        w: 1,
        generator: generator.clone(),
        groups: groups.clone(),
        distance,
        own: Own::default(),
    };
    let certain = shape.distance();
    let better = if n <= SMALL { claim(certain + 1).make(None).ok() } else { None };
    // Without its last block the code is the Azure-LRC, and one more block cannot reduce the distance.
    better.map_or_else(|| claim(certain).make(Some(&Certificate { theorem, split: locals })), Ok)
}
