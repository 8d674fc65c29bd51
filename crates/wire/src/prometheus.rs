//! Numbers as Prometheus reads them: its text format, version 0.0.4.

mod process;

use std::fmt::Write;

use crate::message::Histogram;
use crate::version::PROTOCOL_VERSION;

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of labels.
pub type Labels<'l> = &'l [(&'l str, &'l str)];

/// Lines of metrics. All samples of one metric stand together, behind its head.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// The lines.
    pub fn into_string(self) -> String {
        self.0
    }

    /// What a metric is; `kind` is `counter`, `gauge` or `histogram`.
    pub fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", quoted(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        // The format writes infinity in its own way.
        let value = if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// Which program tells these metrics, and what its process takes.
    pub fn program(&mut self) {
        let name = "kintsu_build_info";
        self.head(name, "The version of the program that tells this, and of its protocol.", "gauge");
        let protocol = PROTOCOL_VERSION.to_string();
        self.sample(name, &[("version", env!("CARGO_PKG_VERSION")), ("protocol", &protocol)], 1.0);
        process::tell(self);
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "counter");
        self.sample(name, &[], value);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.sample(name, &[], value);
    }

    /// A histogram without labels.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        self.buckets(name, &[], histogram);
    }

    /// The samples of one histogram: each bucket counts all that took at most so long.
    pub fn buckets(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let ends = histogram.ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut all = 0;
        for (end, count) in ends.zip(&histogram.counts) {
            all += count;
            self.sample(&format!("{name}_bucket"), &[labels, &[("le", end.as_str())]].concat(), all as f64);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, all as f64);
    }
}

/// The value of a label.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_says_its_version() {
        let mut text = Text::default();
        text.program();
        let labels = format!("version=\"{}\",protocol=\"{PROTOCOL_VERSION}\"", env!("CARGO_PKG_VERSION"));
        assert!(text.0.contains(&format!("\nkintsu_build_info{{{labels}}} 1\n")), "{}", text.0);
    }

    #[test]
    fn lines_are_as_the_format_wants() {
        let mut text = Text::default();
        text.sample("kintsu_x", &[("rack", "a\"b\\c\nd")], 1.5);
        text.sample("kintsu_x", &[], f64::INFINITY);
        assert_eq!(text.0, "kintsu_x{rack=\"a\\\"b\\\\c\\nd\"} 1.5\nkintsu_x +Inf\n");
        let histogram = Histogram { ends: vec![0.5, 2.0], counts: vec![1, 0, 3], sum: 9.5 };
        let mut plain = Text::default();
        plain.histogram("kintsu_t", "Time.", &histogram);
        let buckets =
            "kintsu_t_bucket{le=\"0.5\"} 1\nkintsu_t_bucket{le=\"2\"} 1\nkintsu_t_bucket{le=\"+Inf\"} 4\n";
        assert!(plain.0.ends_with(&format!("{buckets}kintsu_t_sum 9.5\nkintsu_t_count 4\n")), "{}", plain.0);
        let mut labelled = Text::default();
        labelled.buckets("kintsu_t", &[("of", "x")], &histogram);
        assert!(labelled.0.starts_with("kintsu_t_bucket{of=\"x\",le=\"0.5\"} 1\n"), "{}", labelled.0);
        assert!(labelled.0.ends_with("kintsu_t_count{of=\"x\"} 4\n"), "{}", labelled.0);
    }
}
