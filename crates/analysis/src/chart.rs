//! The figures of the LRC study, drawn from a comparison table as one SVG of five panels.
//!
//! Figs. 7 (costs), 8 (distance), 9 (with a local code added for the globals), 11 (rd-ratio) and 12 (NRC where the
//! distance is at least 4). The study prints them for 12 <= n <= 18 and n/k <= 1.6; a larger table is drawn in
//! more bands. The figures show codes with locality, r < k. A table without such codes is drawn completely.

mod bars;
mod panel;
mod svg;
mod timeline;

pub use bars::{BarChart, BarGroup, ChartBar};
pub use timeline::{Timeline, TimelineGroup, TimelineRow};

use crate::Row;
use panel::{Bar, Column, Panel, WIDTH};
use svg::Svg;

/// Colours that stay apart for all kinds of colour vision (Okabe and Ito), the first ones for the codes of
/// the study.
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#d55e00", "#f0e442", "#555555"];

/// The distance that Fig. 12 requires.
const TARGET_DISTANCE: usize = 4;

/// Draws the five panels for the rows of a comparison.
pub fn figures(rows: &[Row]) -> String {
    let local: Vec<&Row> = rows.iter().filter(|row| row.r < row.k).collect();
    let rows = if local.is_empty() { rows.iter().collect() } else { local };
    let chart = Chart { series: series(&rows), rows };
    let mut svg = Svg::new(WIDTH);
    let mut y = 8.0;
    for panel in
        [chart.costs(), chart.distance(), chart.one_more_block(), chart.rd_ratio(), chart.safe_costs()]
    {
        y = panel.draw(&mut svg, y) + 10.0;
    }
    svg.finish(y)
}

/// The families in order of appearance, with their colours.
fn series(rows: &[&Row]) -> Vec<(String, &'static str)> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.family.as_str()) {
            names.push(&row.family);
        }
    }
    names.sort_by_key(|name| crate::STUDIED.iter().position(|s| s == name).unwrap_or(crate::STUDIED.len()));
    let colours = COLOURS.into_iter().cycle();
    names.into_iter().map(str::to_owned).zip(colours).collect()
}

struct Chart<'a> {
    series: Vec<(String, &'static str)>,
    rows: Vec<&'a Row>,
}

impl Chart<'_> {
    fn panel(&self, title: &str, axis: &'static str, columns: Vec<Column>) -> Panel {
        Panel { title: title.to_owned(), axis, series: self.series.clone(), mark: None, columns }
    }

    /// A column for each (n, k, r) of the rows, in their order.
    fn columns<'r>(
        &self,
        rows: impl IntoIterator<Item = &'r &'r Row>,
        bar: impl Fn(&Row) -> (f64, Option<f64>),
    ) -> Vec<Column> {
        let mut columns: Vec<Column> = Vec::new();
        for row in rows {
            let Some(series) = self.series.iter().position(|(name, _)| *name == row.family) else { continue };
            let (value, mark) = bar(row);
            let bar = Bar { series, value, mark };
            match columns.last_mut() {
                Some(column) if (column.n, column.k, column.r) == (row.n, row.k, row.r) => {
                    column.bars.push(bar)
                }
                _ => columns.push(Column { n: row.n, k: row.k, r: row.r, bars: vec![bar] }),
            }
        }
        columns
    }

    fn costs(&self) -> Panel {
        let columns = self.columns(&self.rows, |row| (row.nrc.as_f64(), Some(row.degraded.as_f64())));
        let title = "Fig. 7: normalised repair cost (NRC), and the average cost of a degraded read";
        Panel { mark: Some("degraded cost"), ..self.panel(title, "blocks read", columns) }
    }

    fn distance(&self) -> Panel {
        let columns = self.columns(&self.rows, |row| (row.d as f64, None));
        self.panel("Fig. 8: distance d, the fewest lost blocks that can lose data", "d, in blocks", columns)
    }

    fn rd_ratio(&self) -> Panel {
        let columns = self.columns(&self.rows, |row| (row.rd_ratio.as_f64(), None));
        self.panel("Fig. 11: rd-ratio, NRC / d", "NRC / d", columns)
    }

    fn safe_costs(&self) -> Panel {
        let safe = self.rows.iter().filter(|row| row.d >= TARGET_DISTANCE);
        let columns = self.columns(safe, |row| (row.nrc.as_f64(), None));
        let title = format!("Fig. 12: NRC of the codes with d >= {TARGET_DISTANCE}");
        self.panel(&title, "blocks read", columns)
    }

    /// Azure-LRC beside the full LRCs with one block more and the same distance, at Azure's (n, k, r).
    fn one_more_block(&self) -> Panel {
        let mut columns = Vec::new();
        for azure in self.rows.iter().filter(|row| row.family == AZURE) {
            let mut side = vec![*azure];
            side.extend(full_lrcs_with_one_more(&self.rows, azure));
            let mut bars = self.columns(&side, |row| (row.nrc.as_f64(), None)).into_iter();
            if let (Some(mut column), Some(more)) = (bars.next(), bars.next()) {
                column.bars.extend(more.bars);
                columns.push(column);
            }
        }
        let title = "Fig. 9: NRC of (n, k, r) azure-lrc beside the (n + 1, k, r) full LRCs of the same d";
        self.panel(title, "blocks read", columns)
    }
}

const AZURE: &str = "azure-lrc";

/// The studied codes in which every block has a local group.
const FULL: [&str; 3] = ["azure-lrc-plus1", "xorbas", "optimal-lrc"];

fn full_lrcs_with_one_more<'a>(rows: &'a [&'a Row], azure: &Row) -> impl Iterator<Item = &'a Row> {
    let (n, k, r, d) = (azure.n + 1, azure.k, azure.r, azure.d);
    let fits = move |row: &&&Row| {
        FULL.contains(&row.family.as_str()) && (row.n, row.k, row.r, row.d) == (n, k, r, d)
    };
    rows.iter().filter(fits).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ratio;

    fn row(family: &str, shape: (usize, usize, usize), total: usize, d: usize) -> Row {
        let (n, k, r) = shape;
        let nrc = Ratio::new(total, k);
        let degraded = Ratio::new(r, 1);
        let (arc, overhead) = (Ratio::new(total, n), Ratio::new(n, k));
        Row { family: family.into(), n, k, r, arc, nrc, degraded, overhead, d, rd_ratio: nrc / d }
    }

    fn table() -> Vec<Row> {
        vec![
            row("azure-lrc", (10, 6, 3), 36, 4),
            row("azure-lrc-plus1", (10, 6, 3), 28, 3),
            row("rs", (10, 6, 6), 60, 5),
            row("azure-lrc-plus1", (11, 6, 3), 30, 4),
        ]
    }

    fn count(text: &str, piece: &str) -> usize {
        text.matches(piece).count()
    }

    #[test]
    fn every_code_with_locality_has_its_bars_and_nothing_else() {
        let svg = figures(&table());
        // Three codes in Figs. 7, 8 and 11; two of d >= 4; and Azure's pair.
        assert_eq!(count(&svg, "<title>"), 3 * 3 + 2 + 2);
        assert_eq!(count(&svg, "(10, 6, 3): 6.000</title>"), 3);
        assert_eq!(count(&svg, "(11, 6, 3): 5.000</title>"), 2);
        assert_eq!(count(&svg, ">rs<"), 0);
        for figure in ["Fig. 7", "Fig. 8", "Fig. 9", "Fig. 11", "Fig. 12"] {
            assert_eq!(count(&svg, figure), 1);
        }
        assert_eq!(count(&svg, "<text"), count(&svg, "</text>"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_table_without_locality_is_drawn_whole() {
        let svg = figures(&[row("rs", (14, 10, 10), 140, 5)]);
        assert_eq!(count(&svg, "rs (14, 10, 10): 14.000</title>"), 2);
        assert_eq!(count(&svg, "None of these codes belongs here."), 1);
    }

    #[test]
    fn the_pair_of_fig_9_has_the_same_distance() {
        let table = table();
        let rows: Vec<&Row> = table.iter().collect();
        let found: Vec<_> = full_lrcs_with_one_more(&rows, rows[0]).map(|row| row.n).collect();
        assert_eq!(found, [11]);
        assert_eq!(full_lrcs_with_one_more(&rows, &row(AZURE, (10, 6, 3), 36, 5)).count(), 0);
    }
}
