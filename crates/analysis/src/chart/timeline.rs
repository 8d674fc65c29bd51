//! Transfers over time: a group of rows for each way to do the same work, a row for each connection, a bar for each
//! slice, all on one time axis.

use super::COLOURS;
use super::panel::Scale;
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 116.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 58.0;
const ROW: f64 = 15.0;
const BAR: f64 = 11.0;
const HEADING: f64 = 24.0;
const GAP: f64 = 14.0;

/// A chart of transfers.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Above the chart.
    pub title: String,
    /// Below the title.
    pub subtitle: String,
    /// Label of the time axis, with its unit.
    pub axis: String,
    /// From top to bottom.
    pub groups: Vec<TimelineGroup>,
}

/// The rows of one way to do the work.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineGroup {
    /// Above them.
    pub label: String,
    /// From top to bottom.
    pub rows: Vec<TimelineRow>,
}

/// One connection.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineRow {
    /// Left of it.
    pub label: String,
    /// When each of its transfers starts and ends, in their order.
    pub bars: Vec<(f64, f64)>,
}

impl Timeline {
    /// The drawing.
    pub fn svg(&self) -> String {
        let mut svg = Svg::new(WIDTH);
        svg.heading(16.0, 22.0, &self.title);
        svg.text(16.0, 40.0, 11.0, Anchor::Start, &self.subtitle);
        let bars = self.groups.iter().flat_map(|group| &group.rows).flat_map(|row| &row.bars);
        let scale = Scale::up_to(bars.map(|bar| bar.1).fold(0.0, f64::max));
        let x = |value| LEFT + scale.part(value) * (WIDTH - LEFT - RIGHT);
        let rows: usize = self.groups.iter().map(|group| group.rows.len()).sum();
        let floor = TOP + rows as f64 * ROW + self.groups.len() as f64 * (HEADING + GAP);
        for value in scale.ticks() {
            svg.line((x(value), TOP), (x(value), floor), "#dddddd", 0.7);
            svg.text(x(value), floor + 14.0, 10.0, Anchor::Middle, &scale.label(value));
        }
        let mut y = TOP;
        for (group, colour) in self.groups.iter().zip(COLOURS.iter().cycle()) {
            svg.heading(16.0, y + 16.0, &group.label);
            y += HEADING;
            for row in &group.rows {
                svg.text(LEFT - 8.0, y + BAR - 1.5, 10.0, Anchor::End, &row.label);
                for &(starts, ends) in &row.bars {
                    // A line of background between neighbours shows the slices.
                    let width = (x(ends) - x(starts) - 0.6).max(0.4);
                    svg.rect(x(starts), y, width, BAR, colour);
                }
                y += ROW;
            }
            y += GAP;
        }
        svg.line((LEFT, floor), (WIDTH - RIGHT, floor), "#555555", 1.0);
        svg.text((LEFT + WIDTH - RIGHT) / 2.0, floor + 32.0, 11.0, Anchor::Middle, &self.axis);
        svg.finish(floor + 44.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_where_it_belongs() {
        let row = |label: &str, bars| TimelineRow { label: label.into(), bars };
        let chart = Timeline {
            title: "One & two".into(),
            subtitle: "slices".into(),
            axis: "seconds".into(),
            groups: vec![
                TimelineGroup {
                    label: "a".into(),
                    rows: vec![row("N1 -> N2", vec![(0.0, 1.0), (1.0, 4.0)])],
                },
                TimelineGroup {
                    label: "b".into(),
                    rows: vec![row("N3", vec![(3.0, 4.0)]), row("N4", vec![])],
                },
            ],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<rect").count(), 1 + 3, "the background and the bars");
        assert!(svg.contains("One &amp; two") && svg.contains("N1 -&gt; N2"));
        let lefts = |svg: &str| -> Vec<String> {
            svg.split("<rect x=\"")
                .skip(1)
                .map(|part| part[..part.find('"').unwrap_or(0)].to_owned())
                .collect()
        };
        assert_eq!(lefts(&svg), ["116.0", "306.0", "686.0"]);
        assert!(Timeline { groups: Vec::new(), ..chart }.svg().ends_with("</svg>\n"));
    }
}
