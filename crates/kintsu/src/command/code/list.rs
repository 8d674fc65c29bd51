//! `kintsu code list`: the families of codes.

use comfy_table::ColumnConstraint::UpperBoundary;
use comfy_table::Width::Fixed;
use kintsu_code::{Family, Key};
use serde_json::json;

use crate::output;

/// Runs `kintsu code list`.
pub fn run(as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let families = kintsu_code::families().iter().map(record).collect::<anyhow::Result<Vec<_>>>()?;
        return output::json(&families);
    }
    let mut table = output::table(["FAMILY", "PARAMETERS", "W", "EXAMPLE", "WHAT FOR"]);
    for family in kintsu_code::families() {
        let keys: Vec<_> = family.keys.iter().map(key).collect();
        let w = kintsu_code::parse(family.example)?.w().to_string();
        table.add_row([family.name, &keys.join(","), &w, family.example, family.about]);
    }
    if let Some(about) = table.column_mut(4) {
        about.set_constraint(UpperBoundary(Fixed(60)));
    }
    output::line(&table.to_string())?;
    output::line("\nW: sub-blocks in a block, here of the example. kintsu code show EXAMPLE shows one.")
}

/// `n`, or `matrix=cauchy` for a key with a default.
fn key(key: &Key) -> String {
    match key.default {
        Some(value) => format!("{}={value}", key.name),
        None => key.name.to_owned(),
    }
}

fn record(family: &Family) -> anyhow::Result<serde_json::Value> {
    let key = |k: &Key| json!({ "name": k.name, "about": k.about, "default": k.default });
    Ok(json!({
        "family": family.name,
        "about": family.about,
        "keys": family.keys.iter().map(key).collect::<Vec<_>>(),
        "example": family.example,
        "w": kintsu_code::parse(family.example)?.w(),
    }))
}
