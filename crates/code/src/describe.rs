//! A code as data, for people and programs (`kintsu code show C --json`).

use kintsu_algebra::POLYNOMIAL;
use kintsu_dag::BlockIndex;
use serde::{Deserialize, Serialize};

use crate::{Code, CodeError, Family, Key, families, parse};

/// All that is needed to use a code elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeReport {
    /// The canonical name.
    pub name: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// The field and its polynomial: `GF(2^8)/0x11D`.
    pub field: String,
    /// The generator: `n * w` rows of `k * w` bytes, each row in hex.
    pub generator: Vec<String>,
    /// The block indices of each local repair group.
    pub groups: Vec<Vec<BlockIndex>>,
    /// The proved distance.
    pub distance: usize,
}

/// Describes a code.
pub fn report(code: &dyn Code) -> CodeReport {
    let generator = code.generator();
    let hex = |i| generator.row(i).iter().map(|c| format!("{c:02x}")).collect();
    CodeReport {
        name: code.name().to_owned(),
        n: code.n(),
        k: code.k(),
        w: code.w(),
        field: format!("GF(2^8)/{POLYNOMIAL:#X}"),
        generator: (0..generator.rows()).map(hex).collect(),
        groups: code.groups(),
        distance: code.distance(),
    }
}

/// A family of codes as data (`kintsu code list --json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FamilyReport {
    /// The part of a name before the colon.
    pub family: &'static str,
    /// One line that describes it.
    pub about: &'static str,
    /// Its parameters, in canonical order.
    pub keys: Vec<KeyReport>,
    /// An example of a valid name.
    pub example: &'static str,
    /// Sub-blocks in a block of the example.
    pub w: usize,
}

/// A parameter of a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyReport {
    /// The part before the equals sign.
    pub name: &'static str,
    /// What it sets.
    pub about: &'static str,
    /// The default value; `None` when it must be given.
    pub default: Option<&'static str>,
}

/// Describes all families.
///
/// # Errors
/// An example cannot be made; a test makes all of them.
pub fn family_reports() -> Result<Vec<FamilyReport>, CodeError> {
    let key = |key: &Key| KeyReport { name: key.name, about: key.about, default: key.default };
    let report = |family: &Family| {
        Ok(FamilyReport {
            family: family.name,
            about: family.about,
            keys: family.keys.iter().map(key).collect(),
            example: family.example,
            w: parse(family.example)?.w(),
        })
    };
    families().iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_report_has_the_promised_keys_and_shapes() {
        let code = crate::parse("azure-lrc:n=8,k=4,r=2").unwrap();
        let json = serde_json::to_value(super::report(code.as_ref())).unwrap();
        let mut keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["distance", "field", "generator", "groups", "k", "n", "name", "w"]);
        assert_eq!(json["name"], "azure-lrc:n=8,k=4,r=2");
        assert_eq!(json["field"], "GF(2^8)/0x11D");
        assert_eq!(json["generator"][0], "01000000");
        assert_eq!(json["generator"][4], "01010000");
        assert_eq!(json["generator"].as_array().unwrap().len(), 8);
        assert_eq!(json["groups"], serde_json::json!([[0, 1, 4], [2, 3, 5]]));
        assert_eq!(json["distance"], 4);
    }
}
