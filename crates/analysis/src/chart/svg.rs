//! Writes SVG: rectangles, lines and text. Coordinates have one decimal.

use std::fmt::Write;

/// How a text is aligned to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that grows downwards.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    body: String,
}

impl Svg {
    pub(super) fn new(width: f64) -> Self {
        Self { width, body: String::new() }
    }

    pub(super) fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, fill: &str) {
        self.push(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(format_args!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{stroke}" stroke-width="{width:.1}"/>"#
        ));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, anchor: Anchor, text: &str) {
        let anchor = anchor.name();
        let text = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// Bold text at the start of a line.
    pub(super) fn heading(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="14" font-weight="bold">{text}</text>"#
        ));
    }

    /// Text that reads upwards, centred at its point.
    pub(super) fn upwards(&mut self, x: f64, y: f64, size: f64, text: &str) {
        let text = escape(text);
        self.push(format_args!(
            r#"<text transform="translate({x:.1} {y:.1}) rotate(-90)" font-size="{size:.1}" text-anchor="middle">{text}</text>"#
        ));
    }

    /// A rectangle with a text that is shown when the pointer is over it.
    pub(super) fn bar(&mut self, x: f64, y: f64, size: (f64, f64), fill: &str, says: &str) {
        let (width, height) = size;
        let says = escape(says);
        self.push(format_args!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"><title>{says}</title></rect>"#
        ));
    }

    /// The complete file, with a white background, so that it looks the same on light and dark pages.
    pub(super) fn finish(self, height: f64) -> String {
        let width = self.width;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\" \
             fill=\"#222222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn push(&mut self, element: std::fmt::Arguments<'_>) {
        writeln!(self.body, "{element}").expect("writing to a string cannot fail");
    }
}

impl Anchor {
    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
