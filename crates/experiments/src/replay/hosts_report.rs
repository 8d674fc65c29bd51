//! What a replay on emulated hosts found, for people.

use std::collections::BTreeSet;

use kintsu_plan::update::Scheme;

use super::on_hosts::OnHosts;
use crate::figures::Table;
use crate::plain;

/// Traces on hosts as text.
pub fn hosts_table(traces: &[OnHosts]) -> String {
    let mut text = String::new();
    for trace in traces {
        let mut table = plain::table([
            "SCHEME",
            "AT ONCE",
            "APPEND",
            "COMMIT",
            "ANALYSIS",
            "KERNEL",
            "RATIO",
            "WITHOUT HEADERS",
            "COMMITS",
            "UPDATES/S",
        ]);
        for row in &trace.rows {
            table.add_row([
                row.scheme.to_string(),
                row.at_once.to_string(),
                mib(row.analysis.append),
                mib(row.analysis.commit),
                mib(row.analysis.total()),
                mib(row.kernel_bytes),
                format!("{:.3}", row.ratio()),
                format!("{:.3}", row.ratio_of_payload()),
                row.analysis.commits.to_string(),
                format!("{:.1}", trace.rate(row)),
            ]);
        }
        text += &format!(
            "{}: {} block updates in {} stripes, {} MiB written; links: {}\n\
             {} on {} racks, blocks of {} KiB, u_s = {}; MiB between racks\n{table}\n\n",
            trace.trace,
            trace.updates,
            trace.stripes,
            mib(trace.bytes),
            trace.links,
            trace.code,
            trace.racks,
            trace.block_bytes >> 10,
            trace.dirty_stripes,
        );
        if trace.rows.iter().any(|row| row.at_once != trace.rows[0].at_once) {
            text += &format!("each scheme at its best\n{}\n\n", best_table(trace));
        }
    }
    text.trim_end().to_owned()
}

/// The same as a Markdown table, for `docs/updates.md`.
pub fn hosts_markdown(traces: &[OnHosts]) -> String {
    let mut text =
        "| trace | code, racks | scheme | analysis | kernel | ratio | without headers of segments |\n"
            .to_owned()
            + "|---|---|---|---|---|---|---|\n";
    for trace in traces {
        for row in &trace.rows {
            text += &format!(
                "| {} | {}, {} | {} | {} | {} | {:.3} | {:.3} |\n",
                trace.trace,
                trace.code,
                trace.racks,
                row.scheme,
                mib(row.analysis.total()),
                mib(row.kernel_bytes),
                row.ratio(),
                row.ratio_of_payload(),
            );
        }
    }
    text + "\n" + &rates(traces).markdown()
}

/// Updates a second of each scheme at its best (CAU, Figs. 11 to 14): a row for each trace, u_s and links.
pub fn rates(traces: &[OnHosts]) -> Table {
    let schemes: BTreeSet<Scheme> =
        traces.iter().flat_map(|trace| &trace.rows).map(|row| row.scheme).collect();
    let over = [Scheme::Baseline, Scheme::Parix];
    let mut headings: Vec<String> = ["trace, updates/s", "links", "u_s"].map(String::from).into();
    headings.extend(schemes.iter().map(ToString::to_string));
    headings.extend(over.map(|other| format!("cau over {other}")));
    let line = |trace: &OnHosts| {
        let best = trace.best();
        let rate = |scheme| best.iter().find(|row| row.scheme == scheme).map(|row| trace.rate(row));
        let gain = |other| Some(format!("{:+.1}%", (rate(Scheme::Cau)? / rate(other)? - 1.0) * 100.0));
        let mut cells = vec![trace.trace.clone(), trace.links.to_string(), trace.dirty_stripes.to_string()];
        let shown = schemes.iter().map(|scheme| rate(*scheme).map(|rate| format!("{rate:.1}")));
        cells.extend(shown.chain(over.map(gain)).map(|cell| cell.unwrap_or_else(|| "-".into())));
        cells
    };
    let rows = traces.iter().map(line).collect();
    Table { headings, rows }
}

/// The schemes with the numbers of updates at once that suited them best.
fn best_table(trace: &OnHosts) -> String {
    let mut table = plain::table(["SCHEME", "AT ONCE", "UPDATES/S", "OVER BASELINE", "OVER PARIX"]);
    let best = trace.best();
    for row in &best {
        let over = |scheme: Scheme| {
            let other = best.iter().find(|row| row.scheme == scheme).map(|row| trace.rate(row));
            let over = |other| format!("{:+.1}%", (trace.rate(row) / other - 1.0) * 100.0);
            other.filter(|_| row.scheme != scheme).map_or_else(|| "-".to_owned(), over)
        };
        let rate = format!("{:.1}", trace.rate(row));
        let (baseline, parix) = (over(Scheme::Baseline), over(Scheme::Parix));
        table.add_row([row.scheme.to_string(), row.at_once.to_string(), rate, baseline, parix]);
    }
    table.to_string()
}

fn mib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::super::account::Traffic;
    use super::super::on_hosts::{HostsRow, Links};
    use super::*;

    #[test]
    fn each_scheme_is_compared_at_its_best() {
        let row = |scheme, at_once, seconds| HostsRow {
            scheme,
            at_once,
            analysis: Traffic::default(),
            kernel_bytes: 0,
            segments: 0,
            seconds,
        };
        let rows = vec![
            row(Scheme::Baseline, 1, 8.0),
            row(Scheme::Baseline, 4, 4.0),
            row(Scheme::Cau, 1, 2.0),
            row(Scheme::Cau, 4, 3.0),
        ];
        let (trace, code) = ("t".to_owned(), "rs:n=9,k=6".to_owned());
        let mut played = OnHosts {
            trace,
            code,
            racks: 3,
            block_bytes: 1 << 20,
            dirty_stripes: 100,
            updates: 40,
            bytes: 0,
            stripes: 1,
            links: Links::default(),
            rows,
        };
        let best: Vec<_> = played.best().iter().map(|row| (row.scheme, row.at_once)).collect();
        assert_eq!(best, [(Scheme::Baseline, 4), (Scheme::Cau, 1)]);
        let table = hosts_table(std::slice::from_ref(&played));
        assert!(table.contains("each scheme at its best") && table.contains("+100.0%"), "{table}");
        played.links.rack = Some("500Mb/s".parse().unwrap());
        let rates = rates(std::slice::from_ref(&played));
        assert_eq!(rates.headings[3..], ["baseline", "cau", "cau over baseline", "cau over parix"]);
        assert_eq!(rates.rows, [["t", "racks 500Mb/s", "100", "10.0", "20.0", "+100.0%", "-"]]);
        played.rows.retain(|row| row.at_once == 1);
        assert!(!hosts_table(&[played]).contains("at its best"));
    }
}
