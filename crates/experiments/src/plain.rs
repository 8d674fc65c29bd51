//! Tables for people.

use comfy_table::{Table, presets};

/// An empty table with these headings.
pub fn table<const N: usize>(headings: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(headings);
    table
}
