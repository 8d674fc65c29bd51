//! A chart of grouped bars with ranges, for measured values: a group for each x, a bar for each series.

use serde::Serialize;

use super::COLOURS;
use super::panel::Scale;
use super::svg::{Anchor, Svg};

const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const HEIGHT: f64 = 280.0;
const TOP: f64 = 60.0;
const BAR: f64 = 18.0;
const GAP: f64 = 22.0;
/// Width of a letter of a label.
const LETTER: f64 = 6.6;
const LEAST_WIDTH: f64 = 560.0;

/// A chart of measured values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BarChart {
    /// Above the chart.
    pub title: String,
    /// Label of the y axis, with its unit.
    pub axis: String,
    /// Label of the x axis.
    pub groups_are: String,
    /// Names of the bars.
    pub series: Vec<String>,
    /// From left to right.
    pub groups: Vec<BarGroup>,
}

/// The bars of one x.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BarGroup {
    /// Below them.
    pub label: String,
    /// From left to right.
    pub bars: Vec<ChartBar>,
}

/// One bar.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChartBar {
    /// The number of its series; a bar of an unknown series is not drawn.
    pub series: usize,
    /// Its height.
    pub value: f64,
    /// The smallest and the largest measured value.
    pub range: (f64, f64),
}

impl BarGroup {
    fn width(&self) -> f64 {
        (self.bars.len() as f64 * BAR).max(self.label.chars().count() as f64 * LETTER) + GAP
    }
}

impl BarChart {
    /// The drawing.
    pub fn svg(&self) -> String {
        let groups: f64 = self.groups.iter().map(BarGroup::width).sum();
        let title = self.title.chars().count() as f64 * 1.35 * LETTER;
        let width = (LEFT + groups + RIGHT).max(LEFT + title + RIGHT).max(LEAST_WIDTH);
        let mut svg = Svg::new(width);
        svg.heading(LEFT, 20.0, &self.title);
        let top = self.legend(&mut svg, width);
        let floor = top + HEIGHT;
        let most = self.groups.iter().flat_map(|group| &group.bars).map(|bar| bar.range.1.max(bar.value));
        let scale = Scale::up_to(most.fold(0.0, f64::max));
        for value in scale.ticks() {
            let y = floor - scale.part(value) * HEIGHT;
            svg.line((LEFT, y), (width - RIGHT, y), "#dddddd", 0.7);
            svg.text(LEFT - 6.0, y + 3.5, 10.0, Anchor::End, &scale.label(value));
        }
        svg.upwards(18.0, top + HEIGHT / 2.0, 11.0, &self.axis);
        let mut x = LEFT + GAP / 2.0;
        for group in &self.groups {
            self.group(&mut svg, (x, floor), group, &scale);
            x += group.width();
        }
        svg.line((LEFT, floor), (width - RIGHT, floor), "#555555", 1.0);
        svg.text((LEFT + width - RIGHT) / 2.0, floor + 36.0, 11.0, Anchor::Middle, &self.groups_are);
        svg.finish(floor + 48.0)
    }

    /// Writes the names of the series, in as many lines as needed; returns the y below them.
    fn legend(&self, svg: &mut Svg, width: f64) -> f64 {
        let (mut x, mut y) = (LEFT, 42.0);
        for (name, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let needed = 34.0 + LETTER * name.chars().count() as f64;
            if x > LEFT && x + needed > width - RIGHT {
                (x, y) = (LEFT, y + 16.0);
            }
            svg.rect(x, y - 9.0, 10.0, 10.0, colour);
            svg.text(x + 14.0, y, 11.0, Anchor::Start, name);
            x += needed;
        }
        y + TOP - 42.0
    }

    fn group(&self, svg: &mut Svg, at: (f64, f64), group: &BarGroup, scale: &Scale) {
        let (left, floor) = at;
        let inner = group.width() - GAP;
        svg.text(left + inner / 2.0, floor + 15.0, 11.0, Anchor::Middle, &group.label);
        let mut x = left + (inner - group.bars.len() as f64 * BAR) / 2.0;
        for bar in &group.bars {
            if let Some(name) = self.series.get(bar.series) {
                let height = scale.part(bar.value) * HEIGHT;
                let (least, most) = bar.range;
                let says = format!("{name}, {}: {:.4} ({least:.4} to {most:.4})", group.label, bar.value);
                let colour = COLOURS[bar.series % COLOURS.len()];
                svg.bar(x, floor - height, (BAR - 2.0, height), colour, &says);
                let (middle, y) = (x + BAR / 2.0 - 1.0, |value| floor - scale.part(value) * HEIGHT);
                svg.line((middle, y(least)), (middle, y(most)), "#111111", 1.2);
            }
            x += BAR;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_within_the_chart() {
        let bar = |series, value: f64| ChartBar { series, value, range: (value * 0.9, value * 1.1) };
        let group = |label: &str| BarGroup { label: label.into(), bars: vec![bar(0, 1.0), bar(1, 5.0)] };
        let chart = BarChart {
            title: "Time & place".into(),
            axis: "seconds".into(),
            groups_are: "block".into(),
            series: vec!["a".into(), "b <c>".into()],
            groups: vec![
                group("1 MiB"),
                group("64 MiB"),
                BarGroup { label: "none".into(), bars: vec![bar(7, 1.0)] },
            ],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<title>").count(), 4, "a bar of an unknown series is left out");
        assert!(svg.contains("b &lt;c&gt;, 64 MiB: 5.0000 (4.5000 to 5.5000)"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        let heights =
            svg.split("height=\"").skip(2).filter_map(|piece| piece.split('"').next()?.parse::<f64>().ok());
        assert!(heights.into_iter().all(|height| (0.0..=HEIGHT).contains(&height)));
        assert!(BarChart { groups: Vec::new(), ..chart }.svg().ends_with("</svg>\n"));
    }
}
