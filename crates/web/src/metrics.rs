//! The cluster in numbers, for Prometheus (its text format, version 0.0.4).

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use kintsu_wire::message::{Counts, Histogram, Level, LinkEnd, NodeInfo, NodeState};

use crate::api::{Overview, overview};
use crate::page::Shared;

/// See the head of this file. A cluster that does not answer is told as `kintsu_up 0`.
pub async fn handle(State(shared): State<Arc<Shared>>) -> Response {
    let text = match overview(&shared.client).await {
        Ok(overview) => written(&overview),
        Err(error) => {
            let mut text = Text::default();
            text.gauge("kintsu_up", "Whether the coordinator answers.", 0.0);
            tracing::warn!("metrics: {}", error.message());
            text.0
        }
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// Lines of metrics.
#[derive(Default)]
struct Text(String);

impl Text {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample: `labels` are pairs of name and value.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", quoted(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "counter");
        self.sample(name, &[], value);
    }

    /// A histogram: each sample counts all that took at most so long.
    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let ends = histogram.ends.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        let mut all = 0;
        for (end, count) in ends.zip(&histogram.counts) {
            all += count;
            self.sample(&format!("{name}_bucket"), &[("le", &end)], all as f64);
        }
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
        self.sample(&format!("{name}_count"), &[], all as f64);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        self.sample(name, &[], value);
    }
}

/// The value of a label.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn written(now: &Overview) -> String {
    let mut text = Text::default();
    text.gauge("kintsu_up", "Whether the coordinator answers.", 1.0);
    health(&mut text, now);
    nodes(&mut text, &now.nodes);
    repairs(&mut text, now);
    counts(&mut text, &now.counts);
    text.0
}

fn health(text: &mut Text, now: &Overview) {
    let verdict = match now.health.verdict {
        Level::Healthy => 0.0,
        Level::Warning => 1.0,
        Level::Error => 2.0,
    };
    text.gauge("kintsu_health", "The verdict: 0 healthy, 1 warning, 2 error.", verdict);
    let name = "kintsu_health_cause";
    text.head(name, "How many things each cause is about.", "gauge");
    for cause in &now.health.causes {
        let kind = serde_json::to_value(cause.kind).unwrap_or_default();
        let labels = [("cause", kind.as_str().unwrap_or_default()), ("level", &cause.level.to_string())];
        text.sample(name, &labels, cause.count as f64);
    }
    let status = &now.status;
    for (name, help, value) in [
        ("kintsu_objects", "Visible objects.", status.objects),
        ("kintsu_object_bytes", "Bytes of objects.", status.object_bytes),
        ("kintsu_stripes", "Stripes.", status.stripes),
        ("kintsu_degraded_stripes", "Stripes with a block that cannot be read now.", status.degraded_stripes),
        ("kintsu_unreadable_stripes", "Stripes that cannot be read now.", status.unreadable_stripes),
        ("kintsu_repair_pending_blocks", "Blocks waiting for or under repair.", status.repairs_pending),
        ("kintsu_pending_puts", "Puts under way.", status.puts_pending),
        ("kintsu_garbage_blocks", "Blocks waiting to be deleted.", status.garbage),
    ] {
        text.gauge(name, help, value as f64);
    }
    if let Some(copy) = &status.metadata_copy {
        text.gauge(
            "kintsu_metadata_copy_age_seconds",
            "Age of the newest copy of the metadata.",
            copy.age_seconds as f64,
        );
    }
}

fn nodes(text: &mut Text, nodes: &[NodeInfo]) {
    let up = |node: &NodeInfo| matches!(node.state, NodeState::Alive | NodeState::Draining);
    let usage = |of: fn(&kintsu_wire::message::DiskUsage) -> u64| {
        move |node: &NodeInfo| node.usage.as_ref().map(|usage| of(usage) as f64)
    };
    type Value<'a> = Box<dyn Fn(&NodeInfo) -> Option<f64> + 'a>;
    let all: [(&str, &str, Value); 8] = [
        (
            "kintsu_node_up",
            "Whether the node sends heartbeats and can be used.",
            Box::new(|node| Some(f64::from(up(node)))),
        ),
        (
            "kintsu_node_silent_seconds",
            "Time since its last heartbeat.",
            Box::new(|node| Some(node.silent_ms as f64 / 1000.0)),
        ),
        (
            "kintsu_node_blocks",
            "Blocks that the metadata place on the node.",
            Box::new(|node| Some(node.placed_blocks as f64)),
        ),
        (
            "kintsu_node_lost_blocks",
            "Those of them that are known to be lost.",
            Box::new(|node| Some(node.lost_blocks as f64)),
        ),
        ("kintsu_node_stored_bytes", "Bytes of block files.", Box::new(usage(|usage| usage.bytes))),
        ("kintsu_node_free_bytes", "Bytes free on its disk.", Box::new(usage(|usage| usage.free_bytes))),
        (
            "kintsu_node_capacity_bytes",
            "Size of its file system.",
            Box::new(usage(|usage| usage.capacity_bytes)),
        ),
        (
            "kintsu_node_quarantine_bytes",
            "Bytes of blocks in quarantine.",
            Box::new(usage(|usage| usage.aside_bytes)),
        ),
    ];
    for (name, help, value) in all {
        text.head(name, help, "gauge");
        for node in nodes {
            let (id, rack) =
                (node.id.0.to_string(), node.rack_name.clone().unwrap_or_else(|| node.rack.0.to_string()));
            if let Some(value) = value(node) {
                text.sample(name, &[("node", &id), ("rack", &rack)], value);
            }
        }
    }
}

fn repairs(text: &mut Text, now: &Overview) {
    text.gauge("kintsu_repair_running_stripes", "Stripes under repair.", now.repairs.count as f64);
    text.gauge(
        "kintsu_repair_waiting_stripes",
        "Stripes that wait for their repair.",
        now.repairs.waiting_count as f64,
    );
    if let Some(limit) = &now.repair_limit {
        let rate = limit.rate.map_or(f64::INFINITY, |rate| rate.get() as f64);
        // Prometheus writes infinity in its own way.
        let rate = if rate.is_finite() { rate.to_string() } else { "+Inf".into() };
        text.head(
            "kintsu_repair_limit_bytes_per_second",
            "What repairs may send, receive and read on each node.",
            "gauge",
        );
        let _ = writeln!(text.0, "kintsu_repair_limit_bytes_per_second {rate}");
        text.gauge(
            "kintsu_repair_sent_bytes_per_second",
            "What repairs sent lately, at the busiest node.",
            limit.sent as f64,
        );
        let name = "kintsu_client_operation_p99_seconds";
        text.head(
            name,
            "99th percentile of the time of users' operations: now, without repairs, and the target.",
            "gauge",
        );
        for (when, micros) in [("now", limit.p99_us), ("usual", limit.usual_us), ("target", limit.target_us)]
        {
            if let Some(micros) = micros {
                text.sample(name, &[("when", when)], micros as f64 / 1e6);
            }
        }
    }
    let name = "kintsu_link_foreground_bytes_per_second";
    text.head(name, "What users take of links and disks.", "gauge");
    for link in &now.rates.links {
        if let (LinkEnd::Node(node), Some(bytes)) = (link.end, link.foreground) {
            text.sample(name, &[("node", &node.0.to_string()), ("way", link.way.word())], bytes as f64);
        }
    }
}

fn counts(text: &mut Text, counts: &Counts) {
    text.gauge("kintsu_coordinator_uptime_seconds", "Time since the coordinator's start.", counts.up_seconds);
    for (name, help, value) in [
        ("kintsu_repaired_stripes_total", "Stripes whose repair ended well.", counts.repaired_stripes),
        ("kintsu_repair_failures_total", "Stripes that could not be repaired.", counts.failed_stripes),
        ("kintsu_repaired_blocks_total", "Blocks that were rebuilt.", counts.repaired_blocks),
        ("kintsu_repaired_bytes_total", "Bytes of rebuilt blocks.", counts.repaired_bytes),
        ("kintsu_repair_read_bytes_total", "Bytes read from disks for repairs.", counts.read_bytes),
        (
            "kintsu_repair_moved_bytes_total",
            "Bytes that nodes sent one another for repairs.",
            counts.moved_bytes,
        ),
        (
            "kintsu_repair_detours_total",
            "Nodes that running repairs were planned around.",
            counts.went_around,
        ),
    ] {
        text.counter(name, help, value as f64);
    }
    text.histogram("kintsu_repair_seconds", "How long the repair of one stripe took.", &counts.repairs);
    let help = "How long users' operations took.";
    text.histogram("kintsu_client_operation_seconds", help, &counts.operations);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted_as_the_format_wants() {
        let mut text = Text::default();
        text.sample("kintsu_x", &[("rack", "a\"b\\c\nd")], 1.5);
        let histogram = Histogram { ends: vec![0.5, 2.0], counts: vec![1, 0, 3], sum: 9.5 };
        let mut both = Text::default();
        both.histogram("kintsu_t", "Time.", &histogram);
        let buckets =
            "kintsu_t_bucket{le=\"0.5\"} 1\nkintsu_t_bucket{le=\"2\"} 1\nkintsu_t_bucket{le=\"+Inf\"} 4\n";
        assert!(both.0.ends_with(&format!("{buckets}kintsu_t_sum 9.5\nkintsu_t_count 4\n")), "{}", both.0);
        assert_eq!(text.0, "kintsu_x{rack=\"a\\\"b\\\\c\\nd\"} 1.5\n");
    }
}
