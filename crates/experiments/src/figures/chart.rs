//! A report as a drawing: a group of bars for each x, a bar for each series, and a line from the least to the
//! largest value.

use kintsu_analysis::{BarChart, BarGroup, ChartBar};

use super::declare::Measure;
use super::report::Report;

/// The drawing, as SVG.
pub fn chart(report: &Report) -> String {
    bar_chart(report).svg()
}

/// The drawing, as data.
pub fn bar_chart(report: &Report) -> BarChart {
    let series = report.series();
    let groups = report.xs().into_iter().map(|x| {
        let rows = report.rows.iter().filter(|row| row.point.x == x);
        let bar = |row: &super::report::Row| {
            let series = series.iter().position(|name| *name == row.point.series)?;
            let spread = row.spread(report.measure)?;
            Some(ChartBar { series, value: spread.median, range: (spread.min, spread.max) })
        };
        BarGroup { label: x.to_owned(), bars: rows.filter_map(bar).collect() }
    });
    BarChart {
        title: format!("{}: {}", report.experiment, report.title),
        axis: match report.measure {
            Measure::Seconds => "seconds".into(),
            Measure::Rate => "MiB/s".into(),
        },
        groups_are: report.axis.clone(),
        series: series.iter().map(|&name| name.to_owned()).collect(),
        groups: groups.collect(),
    }
}
