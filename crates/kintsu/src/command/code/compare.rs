//! `kintsu code compare`: the table of the LRC study, and its figures.

use anyhow::Context as _;
use comfy_table::CellAlignment;
use kintsu_analysis::{Comparison, Ratio, Request, Row};

use crate::cli::Compare;
use crate::{output, progress};

/// Most left-out codes that are listed one by one.
const REASONS: usize = 5;

/// Runs `kintsu code compare`.
pub fn run(args: Compare, json: bool) -> anyhow::Result<()> {
    let Compare { n, max_overhead, families, min_distance, csv, svg } = args;
    let request = Request { n, max_overhead, families, min_distance };
    let bar = progress::count("comparing");
    let table = kintsu_analysis::compare(&request, |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let Comparison { rows, left_out } = table?;
    for (_, why) in left_out.iter().take(REASONS) {
        eprintln!("kintsu: left out: {why}");
    }
    if left_out.len() > REASONS {
        eprintln!("kintsu: {} more codes are left out", left_out.len() - REASONS);
    }
    if let Some(path) = &svg {
        std::fs::write(path, kintsu_analysis::figures(&rows))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if json {
        return output::json(&rows);
    }
    if csv {
        return output::line(kintsu_analysis::csv(&rows).trim_end());
    }
    match svg {
        Some(path) => output::line(&format!("{} codes, drawn into {}", rows.len(), path.display())),
        None => for_people(&rows),
    }
}

fn for_people(rows: &[Row]) -> anyhow::Result<()> {
    let mut table =
        output::table(["N", "K", "R", "FAMILY", "ARC", "NRC", "DEGRADED", "OVERHEAD", "D", "NRC/D"]);
    for row in rows {
        let [arc, nrc, degraded, overhead, ratio] =
            [row.arc, row.nrc, row.degraded, row.overhead, row.rd_ratio].map(Ratio::decimal);
        let [n, k, r, d] = [row.n, row.k, row.r, row.d].map(|number| number.to_string());
        table.add_row([n, k, r, row.family.clone(), arc, nrc, degraded, overhead, d, ratio]);
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        if at != 3 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    output::line(&table.to_string())?;
    output::line(
        "\nBlocks read: ARC by an average repair, NRC for each data block of a lost node, DEGRADED by a degraded read",
    )
}
