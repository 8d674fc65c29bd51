//! `kintsu code list`: the families of codes.

use comfy_table::ColumnConstraint::UpperBoundary;
use comfy_table::Width::Fixed;
use kintsu_code::Key;

use crate::output;

/// Runs `kintsu code list`.
pub fn run(as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::json(&kintsu_code::family_reports()?);
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
