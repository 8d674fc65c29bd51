//! Azure-LRC+1: an Azure-LRC with one more block, the XOR of its global parities. A lost global parity is repaired
//! from this block and the other global parities, so every block is repaired locally.
//!
//! Block order: data, local parities, global parities, their parity. With a single global parity the last block is
//! a copy of it. The distance is that of the (n - 1, k, r) Azure-LRC, g + 2, or one more for some coefficients.
//! Where it is feasible, trying every loss decides which. For 15 shapes of up to 19 blocks the coefficients of the Azure-LRC
//! do not reach the larger distance; for these, a search has found others (`matrix=searched`).
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
        Key {
            name: "matrix",
            about: "azure, or searched: coefficients for a distance larger by one, for some shapes",
            default: Some("azure"),
            better: Some("searched"),
        },
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
    let searched = match params.word("matrix") {
        "azure" => None,
        "searched" => Some(shape.summed().ok_or_else(|| {
            let expected = "azure, or searched for a shape that is in the table";
            CodeError::invalid(
                "matrix of azure-lrc-plus1",
                expected,
                format!("searched for n={n}, k={k}, r={r}"),
            )
        })?),
        other => {
            let expected = "azure or searched";
            return Err(CodeError::invalid("matrix of azure-lrc-plus1", expected, format!("{other:?}")));
        }
    };
    let (azure, theorem) = shape.coefficients();
    let generator = searched.as_ref().unwrap_or(&azure);
    let globals = k + locals..n - 1;
    let sum = |j: usize| globals.clone().fold(0, |sum, i| add(sum, generator.row(i)[j]));
    let generator = Matrix::from_fn(n, k, |i, j| if i < n - 1 { generator.row(i)[j] } else { sum(j) });
    let mut groups = shape.groups();
    groups.push((k + locals..n).map(|b| BlockIndex(b as u8)).collect());
    let claim = |distance| UncheckedCode {
        name: format!(
            "azure-lrc-plus1:n={n},k={k},r={r}{}",
            if searched.is_some() { ",matrix=searched" } else { "" }
        ),
        n,
        k,
        w: 1,
        generator: generator.clone(),
        groups: groups.clone(),
        distance,
        own: Own::default(),
    };
    let certain = shape.distance();
    if searched.is_some() {
        return claim(certain + 1).make(None);
    }
    let better = if n <= SMALL { claim(certain + 1).make(None).ok() } else { None };
    // Without its last block the code is the Azure-LRC, and one more block cannot reduce the distance.
    better.map_or_else(|| claim(certain).make(Some(&Certificate { theorem, split: locals })), Ok)
}

#[cfg(test)]
mod tests {
    #[test]
    fn searched_coefficients_have_the_larger_distance_where_the_others_do_not() {
        for (n, k, r) in [
            (12, 6, 2),
            (14, 7, 2),
            (15, 8, 2),
            (17, 9, 2),
            (18, 10, 2),
            (16, 8, 4),
            (16, 8, 5),
            (17, 9, 5),
            (18, 10, 5),
            (18, 9, 4),
            (19, 10, 4),
            (18, 9, 5),
            (18, 9, 6),
            (19, 10, 5),
            (19, 10, 6),
        ] {
            let name = format!("azure-lrc-plus1:n={n},k={k},r={r}");
            let [old, new] =
                ["", ",matrix=searched"].map(|key| crate::parse(&format!("{name}{key}")).unwrap());
            assert_eq!((old.distance() + 1, old.name()), (new.distance(), name.as_str()));
        }
        let refusal = crate::parse("azure-lrc-plus1:n=11,k=6,r=3,matrix=searched").unwrap_err().to_string();
        assert!(refusal.contains("a shape that is in the table"), "{refusal}");
    }
}
