//! A panel of grouped bars: a column for each (n, k, r), a bar for each family, in as many bands as the
//! width needs.

use super::svg::{Anchor, Svg};

/// Width of a drawing.
pub(super) const WIDTH: f64 = 1240.0;

const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
const BAND: f64 = 150.0;
const BELOW_BAND: f64 = 62.0;
const BAR: f64 = 6.0;
const COLUMN_GAP: f64 = 7.0;
const GROUP_GAP: f64 = 8.0;
/// A column is at least as wide as its label, of two digits.
const COLUMN_MIN: f64 = 15.0;
/// A group is at least as wide as its label, `k=10`.
const GROUP_MIN: f64 = 36.0;

const GRID: &str = "#dddddd";
const AXIS: &str = "#555555";
const MARK: &str = "#111111";

/// What a figure shows.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    /// Label of the y axis, with its unit.
    pub(super) axis: &'static str,
    /// Names and colours of the bars.
    pub(super) series: Vec<(String, &'static str)>,
    /// The meaning of a short line across a bar; none: there are no such lines.
    pub(super) mark: Option<&'static str>,
    pub(super) columns: Vec<Column>,
}

/// The bars of one (n, k, r).
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) r: usize,
    pub(super) bars: Vec<Bar>,
}

/// One bar.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bar {
    pub(super) series: usize,
    pub(super) value: f64,
    pub(super) mark: Option<f64>,
}

impl Column {
    fn width(&self) -> f64 {
        (self.bars.len() as f64 * BAR + COLUMN_GAP).max(COLUMN_MIN)
    }
}

impl Panel {
    /// Draws the panel from `top` down; returns the y below it.
    pub(super) fn draw(&self, svg: &mut Svg, top: f64) -> f64 {
        svg.heading(LEFT, top + 18.0, &self.title);
        self.legend(svg, top + 36.0);
        let mut y = top + 52.0;
        if self.columns.is_empty() {
            svg.text(LEFT, y + 10.0, 12.0, Anchor::Start, "None of these codes belongs here.");
            return y + 30.0;
        }
        let scale =
            Scale::up_to(self.columns.iter().flat_map(|c| &c.bars).map(|b| b.value).fold(0.0, f64::max));
        for band in self.bands() {
            self.band(svg, y, &band, &scale);
            y += BAND + BELOW_BAND;
        }
        y
    }

    fn legend(&self, svg: &mut Svg, y: f64) {
        let mut x = LEFT;
        for (name, colour) in &self.series {
            svg.rect(x, y - 9.0, 10.0, 10.0, colour);
            svg.text(x + 14.0, y, 11.0, Anchor::Start, name);
            x += 34.0 + 7.0 * name.len() as f64;
        }
        if let Some(mark) = self.mark {
            svg.line((x, y - 4.0), (x + 12.0, y - 4.0), MARK, 2.0);
            svg.text(x + 16.0, y, 11.0, Anchor::Start, mark);
        }
    }

    /// Groups of equal (n, k), filled into bands of the drawing's width.
    fn bands(&self) -> Vec<Vec<&[Column]>> {
        let mut bands: Vec<Vec<&[Column]>> = Vec::new();
        let mut room = 0.0;
        for group in self.columns.chunk_by(|a, b| (a.n, a.k) == (b.n, b.k)) {
            let width = group_width(group);
            match bands.last_mut() {
                Some(band) if width <= room => band.push(group),
                _ => {
                    room = WIDTH - LEFT - RIGHT;
                    bands.push(vec![group]);
                }
            }
            room -= width;
        }
        bands
    }

    fn band(&self, svg: &mut Svg, top: f64, groups: &[&[Column]], scale: &Scale) {
        let floor = top + BAND;
        let right = LEFT + groups.iter().map(|group| group_width(group)).sum::<f64>();
        for value in scale.ticks() {
            let y = scale.y(value, floor);
            svg.line((LEFT, y), (right, y), GRID, 0.7);
            svg.text(LEFT - 5.0, y + 3.5, 10.0, Anchor::End, &scale.label(value));
        }
        svg.upwards(16.0, top + BAND / 2.0, 11.0, self.axis);
        svg.text(LEFT - 5.0, floor + 13.0, 9.0, Anchor::End, "r");
        let mut x = LEFT;
        for group in groups {
            svg.line((x, top), (x, floor + 44.0), GRID, 0.7);
            self.group(svg, (x, floor), group, scale);
            x += group_width(group);
        }
        svg.line((LEFT, floor), (right, floor), AXIS, 1.0);
    }

    fn group(&self, svg: &mut Svg, at: (f64, f64), group: &[Column], scale: &Scale) {
        let (left, floor) = at;
        let width = group_width(group);
        let bars: f64 = group.iter().map(Column::width).sum();
        let mut x = left + (width - bars) / 2.0;
        for column in group {
            let margin = (column.width() - column.bars.len() as f64 * BAR) / 2.0;
            self.column(svg, (x + margin, floor), column, scale);
            x += column.width();
        }
        let middle = left + width / 2.0;
        svg.text(middle, floor + 27.0, 10.0, Anchor::Middle, &format!("n={}", group[0].n));
        svg.text(middle, floor + 39.0, 10.0, Anchor::Middle, &format!("k={}", group[0].k));
    }

    fn column(&self, svg: &mut Svg, at: (f64, f64), column: &Column, scale: &Scale) {
        let (mut x, floor) = at;
        let middle = x + column.bars.len() as f64 * BAR / 2.0;
        svg.text(middle, floor + 13.0, 9.0, Anchor::Middle, &column.r.to_string());
        for bar in &column.bars {
            let (name, colour) = &self.series[bar.series];
            let y = scale.y(bar.value, floor);
            let says = format!("{name} ({}, {}, {}): {:.3}", column.n, column.k, column.r, bar.value);
            svg.bar(x, y, (BAR - 0.8, floor - y), colour, &says);
            if let Some(mark) = bar.mark {
                let y = scale.y(mark, floor);
                svg.line((x - 0.6, y), (x + BAR - 0.2, y), "#ffffff", 3.0);
                svg.line((x - 0.6, y), (x + BAR - 0.2, y), MARK, 1.6);
            }
            x += BAR;
        }
    }
}

fn group_width(group: &[Column]) -> f64 {
    (group.iter().map(Column::width).sum::<f64>() + GROUP_GAP).max(GROUP_MIN)
}

/// The y axis: from 0 to a whole number of steps.
pub(super) struct Scale {
    step: f64,
    steps: usize,
}

impl Scale {
    /// The smallest step of 1, 2 or 5 times a power of ten that needs no more than eight.
    pub(super) fn up_to(largest: f64) -> Self {
        let largest = largest.max(1e-3);
        let mut power = 1e-3;
        loop {
            for step in [1.0, 2.0, 5.0].map(|s| s * power) {
                let steps = (largest / step).ceil();
                if steps <= 8.0 {
                    return Self { step, steps: steps as usize };
                }
            }
            power *= 10.0;
        }
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> + use<> {
        let step = self.step;
        (0..=self.steps).map(move |i| i as f64 * step)
    }

    pub(super) fn label(&self, value: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 3.0) as usize;
        format!("{value:.decimals$}")
    }

    /// The part of the axis that a value covers.
    pub(super) fn part(&self, value: f64) -> f64 {
        value / (self.step * self.steps as f64)
    }

    fn y(&self, value: f64, floor: f64) -> f64 {
        floor - self.part(value) * BAND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_reaches_what_it_shows_in_few_round_steps() {
        for (largest, last, label) in
            [(13.2, 14.0, "2"), (0.42, 0.5, "0.1"), (6.0, 6.0, "1"), (0.0, 0.001, "0.001")]
        {
            let scale = Scale::up_to(largest);
            let ticks: Vec<_> = scale.ticks().collect();
            assert!((ticks[ticks.len() - 1] - last).abs() < 1e-9, "{largest}: {ticks:?}");
            assert_eq!(scale.label(ticks[1]), label);
            assert!(ticks.len() <= 9);
        }
    }

    #[test]
    fn bands_hold_every_column_once_and_no_more_than_the_width() {
        let bar = Bar { series: 0, value: 1.0, mark: None };
        let column = |i: usize| Column { n: 10 + i / 5, k: 8, r: 1 + i % 5, bars: vec![bar; 1 + i % 4] };
        let columns: Vec<_> = (0..250).map(column).collect();
        let series = vec![("rs".to_owned(), "#000000")];
        let panel = Panel { title: String::new(), axis: "", series, mark: None, columns };
        let bands = panel.bands();
        assert!(bands.len() > 1);
        assert_eq!(bands.iter().flatten().map(|group| group.len()).sum::<usize>(), 250);
        for band in bands {
            assert!(band.iter().map(|group| group_width(group)).sum::<f64>() <= WIDTH - LEFT - RIGHT);
        }
    }
}
