//! What a replay on emulated hosts found, for people.

use std::collections::BTreeSet;

use kintsu_plan::update::Scheme;

use super::on_hosts::{HostsRow, Links, OnHosts};
use crate::figures::{Spread, Table};
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

/// The same in Markdown, for `docs/updates.md`: without limits of links what the kernel counted, with limits updates a second.
pub fn hosts_markdown(traces: &[OnHosts]) -> String {
    match traces.first() {
        Some(first) if first.links != Links::default() => format!(
            "{} on {} racks, blocks of {} KiB; updates a second of each scheme at its best (updates at once):\n\n{}\n{}\n",
            first.code,
            first.racks,
            first.block_bytes >> 10,
            rates(traces).markdown(),
            counted(traces),
        ),
        _ => witness(traces).markdown(),
    }
}

/// What the kernel counted beside the analysis, MiB between racks.
fn witness(traces: &[OnHosts]) -> Table {
    let headings =
        ["trace", "code, racks", "scheme", "analysis", "kernel", "ratio", "without headers of segments"];
    let mut rows = Vec::new();
    for trace in traces {
        for row in &trace.rows {
            rows.push(vec![
                trace.trace.clone(),
                format!("{}, {}", trace.code, trace.racks),
                row.scheme.to_string(),
                mib(row.analysis.total()),
                mib(row.kernel_bytes),
                format!("{:.3}", row.ratio()),
                format!("{:.3}", row.ratio_of_payload()),
            ]);
        }
    }
    Table { headings: headings.map(String::from).into(), rows }
}

/// The same of all rows in a sentence.
fn counted(traces: &[OnHosts]) -> String {
    let range = |of: fn(&HostsRow) -> f64| {
        let ratios = traces.iter().flat_map(|trace| &trace.rows).map(of);
        Spread::of(ratios).map_or_else(String::new, |ratio| format!("{:.3} to {:.3}", ratio.min, ratio.max))
    };
    format!(
        "The kernel counted {} of what the analysis says, {} without headers of segments.",
        range(HostsRow::ratio),
        range(HostsRow::ratio_of_payload),
    )
}

/// Updates a second of each scheme at its best (CAU, Figs. 11 to 14): a row for each trace, u_s and links, and how far `cau` is above
/// those of CAU's baselines that are there, also as the mean of several traces.
pub fn rates(traces: &[OnHosts]) -> Table {
    let schemes: BTreeSet<Scheme> =
        traces.iter().flat_map(|trace| &trace.rows).map(|row| row.scheme).collect();
    let mut over = vec![Scheme::Baseline, Scheme::Parix];
    over.retain(|other| schemes.contains(other) && schemes.contains(&Scheme::Cau));
    let mut headings: Vec<String> = ["trace, updates/s (at once)", "links", "u_s"].map(String::from).into();
    headings.extend(schemes.iter().map(ToString::to_string));
    headings.extend(over.iter().map(|other| format!("cau over {other}")));
    let line = |name: &str, of: &OnHosts, rates: Vec<String>, gains: &dyn Fn(Scheme) -> Option<f64>| {
        let mut cells = vec![name.to_owned(), of.links.to_string(), of.dirty_stripes.to_string()];
        cells.extend(rates);
        cells.extend(over.iter().map(|other| gains(*other).map_or_else(|| "-".to_owned(), percent)));
        cells
    };
    let mut rows = Vec::new();
    for trace in traces {
        let best = trace.best();
        let rate = |scheme: &Scheme| {
            let row = best.iter().find(|row| row.scheme == *scheme);
            row.map_or_else(|| "-".to_owned(), |row| format!("{:.1} ({})", trace.rate(row), row.at_once))
        };
        let rates = schemes.iter().map(rate).collect();
        rows.push(line(&trace.trace, trace, rates, &|other| gain(trace, other)));
    }
    // The first trace has each setting once.
    for first in traces.iter().filter(|trace| trace.trace == traces[0].trace) {
        let same =
            |trace: &&OnHosts| (trace.links, trace.dirty_stripes) == (first.links, first.dirty_stripes);
        let alike: Vec<&OnHosts> = traces.iter().filter(same).collect();
        let mean = |other: Scheme| {
            let gains: Vec<f64> = alike.iter().map(|trace| gain(trace, other)).collect::<Option<_>>()?;
            Some(gains.iter().sum::<f64>() / gains.len() as f64)
        };
        if alike.len() > 1 && !over.is_empty() {
            rows.push(line("mean", first, vec![String::new(); schemes.len()], &mean));
        }
    }
    Table { headings, rows }
}

/// The part by which CAU's updates a second are above another scheme's, each at its best.
fn gain(trace: &OnHosts, other: Scheme) -> Option<f64> {
    let best = trace.best();
    let rate = |scheme: Scheme| best.iter().find(|row| row.scheme == scheme).map(|row| trace.rate(row));
    Some(rate(Scheme::Cau)? / rate(other)? - 1.0)
}

fn percent(gain: f64) -> String {
    format!("{:+.1}%", 100.0 * gain)
}

/// The schemes with the numbers of updates at once that suited them best.
fn best_table(trace: &OnHosts) -> String {
    let mut table = plain::table(["SCHEME", "AT ONCE", "UPDATES/S", "OVER BASELINE", "OVER PARIX"]);
    let best = trace.best();
    for row in &best {
        let over = |scheme: Scheme| {
            let other = best.iter().find(|row| row.scheme == scheme).map(|row| trace.rate(row));
            let over = |other| percent(trace.rate(row) / other - 1.0);
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
    use super::*;

    fn row(scheme: Scheme, at_once: usize, seconds: f64) -> HostsRow {
        let analysis = Traffic::default();
        HostsRow { scheme, at_once, analysis, kernel_bytes: 0, segments: 0, seconds }
    }

    fn played(rows: Vec<HostsRow>) -> OnHosts {
        OnHosts {
            trace: "t".into(),
            code: "rs:n=9,k=6".into(),
            racks: 3,
            block_bytes: 1 << 20,
            dirty_stripes: 100,
            updates: 40,
            bytes: 0,
            stripes: 1,
            links: Links::default(),
            rows,
        }
    }

    #[test]
    fn each_scheme_is_compared_at_its_best() {
        let mut played = played(vec![
            row(Scheme::Baseline, 1, 8.0),
            row(Scheme::Baseline, 4, 4.0),
            row(Scheme::Cau, 1, 2.0),
            row(Scheme::Cau, 4, 3.0),
        ]);
        let best: Vec<_> = played.best().iter().map(|row| (row.scheme, row.at_once)).collect();
        assert_eq!(best, [(Scheme::Baseline, 4), (Scheme::Cau, 1)]);
        let table = hosts_table(std::slice::from_ref(&played));
        assert!(table.contains("each scheme at its best") && table.contains("+100.0%"), "{table}");
        played.links.rack = Some("500Mb/s".parse().unwrap());
        let rates = rates(std::slice::from_ref(&played));
        assert_eq!(rates.headings[3..], ["baseline", "cau", "cau over baseline"]);
        let line = ["t", "racks 500Mb/s", "100", "10.0 (4)", "20.0 (1)", "+100.0%"];
        assert_eq!(rates.rows, [line]);
        let text = hosts_markdown(std::slice::from_ref(&played));
        assert!(
            text.contains(&line.join(" | ")) && text.contains("The kernel counted 0.000 to 0.000"),
            "{text}"
        );
        played.rows.retain(|row| row.at_once == 1);
        assert!(!hosts_table(std::slice::from_ref(&played)).contains("at its best"));
        played.links = Links::default();
        assert!(hosts_markdown(&[played]).contains("| t | rs:n=9,k=6, 3 | cau | 0.00 | 0.00 |"));
    }

    #[test]
    fn gains_of_several_traces_have_a_mean_for_each_setting() {
        let of = |trace: &str, dirty_stripes, cau_seconds| {
            let mut played = played(vec![row(Scheme::Baseline, 1, 6.0), row(Scheme::Cau, 1, cau_seconds)]);
            played.trace = trace.into();
            played.dirty_stripes = dirty_stripes;
            played
        };
        let table = rates(&[of("a", 2, 6.0), of("a", 9, 3.0), of("b", 2, 4.0), of("b", 9, 2.0)]);
        let means: Vec<_> = table.rows[4..].iter().map(|row| [&row[0][..], &row[2], &row[5]]).collect();
        assert_eq!(means, [["mean", "2", "+25.0%"], ["mean", "9", "+150.0%"]]);
        assert!(table.rows.iter().all(|row| row.len() == table.headings.len()), "{table:?}");
        let alone = |trace: &str| {
            let mut played = of(trace, 2, 4.0);
            played.rows.retain(|row| row.scheme == Scheme::Cau);
            played
        };
        let table = rates(&[alone("a"), alone("b")]);
        assert_eq!(
            (table.headings.len(), table.rows.len()),
            (4, 2),
            "with nothing to compare there is no mean"
        );
    }
}
