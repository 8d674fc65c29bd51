//! The cluster in numbers, for Prometheus; and the listener of a process that has numbers of its own.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Uri, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kintsu_wire::message::{ComparedStripes, Counts, Level, LinkEnd, NodeInfo, NodeState};
use kintsu_wire::prometheus::{self, Text};
use tokio_util::sync::CancellationToken;

use crate::api::{Overview, overview};
use crate::error::PageError;
use crate::guard;
use crate::listener::{Bound, Listener};
use crate::page::Shared;

/// See the head of this file. A cluster that does not answer is told as `kintsu_up 0`.
pub async fn handle(State(shared): State<Arc<Shared>>) -> Response {
    let text = match overview(&shared.client).await {
        Ok(overview) => written(&overview),
        Err(error) => {
            let mut text = Text::default();
            text.program();
            text.gauge("kintsu_up", "Whether the coordinator answers.", 0.0);
            tracing::warn!("metrics: {}", error.message());
            text.into_string()
        }
    };
    answer(text)
}

fn answer(text: String) -> Response {
    ([(header::CONTENT_TYPE, prometheus::CONTENT_TYPE)], text).into_response()
}

/// Numbers of a process that are being served, at `/metrics`. A drop ends it without waiting.
#[derive(Debug)]
pub struct Metrics(Listener);

impl Metrics {
    /// Serves what `read` tells of `what`, whenever somebody asks, on `addr` (port 0: any free port).
    ///
    /// # Errors
    /// `Exposed` for an address that is not on loopback; `Listen`.
    pub async fn start(
        what: &'static str,
        addr: SocketAddr,
        read: impl Fn() -> String + Clone + Send + Sync + 'static,
    ) -> Result<Self, PageError> {
        let bound = Bound::new(what, addr).await?;
        let router = Router::new()
            .route("/metrics", get(move || async move { answer(read()) }))
            .fallback(|uri: Uri| async move { guard::nothing_here(&uri, "metrics are at /metrics") })
            .layer(from_fn(guard::guard));
        Ok(Self(bound.serve(router, CancellationToken::new())))
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.0.addr()
    }

    /// What Prometheus asks.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.addr())
    }

    /// Ends it.
    pub async fn shutdown(self) {
        self.0.shutdown().await;
    }
}

fn written(now: &Overview) -> String {
    let mut text = Text::default();
    text.program();
    text.gauge("kintsu_up", "Whether the coordinator answers.", 1.0);
    health(&mut text, now);
    nodes(&mut text, &now.nodes);
    compared(&mut text, now.status.compared.as_ref());
    repairs(&mut text, now);
    counts(&mut text, &now.counts);
    text.into_string()
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
    let all: [(&str, &str, Value); 11] = [
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
        (
            "kintsu_node_scrubbed_blocks",
            "Blocks that the last pass of the scrub has verified.",
            Box::new(|node| node.scrub.map(|scrub| scrub.done as f64)),
        ),
        (
            "kintsu_node_scrubbed_timestamp_seconds",
            "When a pass of the scrub last came to the end.",
            Box::new(|node| node.scrub.and_then(|scrub| scrub.verified).map(|verified| verified as f64)),
        ),
        (
            "kintsu_node_protocol",
            "The newest version of the protocol that its agent speaks.",
            Box::new(|node| (node.protocol > 0).then_some(f64::from(node.protocol))),
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

/// How far stripes are compared with their codes; nothing where the scrub is switched off.
fn compared(text: &mut Text, compared: Option<&ComparedStripes>) {
    let Some(ComparedStripes { pass, waiting, not_compared, .. }) = compared else { return };
    for (name, help, value) in [
        (
            "kintsu_compared_stripes",
            "Stripes that the last pass of comparing has come to.",
            pass.map_or(0, |pass| pass.done),
        ),
        (
            "kintsu_compare_waiting_stripes",
            "Stripes that could not be compared and are tried again.",
            *waiting,
        ),
        ("kintsu_compare_left_out_stripes", "Stripes that the last pass has left out.", *not_compared),
    ] {
        text.gauge(name, help, value as f64);
    }
    let name = "kintsu_compared_timestamp_seconds";
    text.head(name, "When a pass of comparing last came to the end.", "gauge");
    if let Some(ended) = pass.and_then(|pass| pass.verified) {
        text.sample(name, &[], ended as f64);
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
        text.gauge(
            "kintsu_repair_limit_bytes_per_second",
            "What repairs may send, receive and read on each node.",
            limit.rate.map_or(f64::INFINITY, |rate| rate.get() as f64),
        );
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
