//! What the gateway does, in numbers, for monitoring. Nothing is decided by them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use kintsu_wire::message::Histogram;
use kintsu_wire::net::Places;
use kintsu_wire::prometheus::Text;
use tokio::time::Instant;

use crate::error::Asked;
use crate::gateway::Gateway;
use crate::places::Asking;

/// Upper ends of the ranges of times, in seconds: a small object takes milliseconds, one of some GiB minutes.
const SECONDS: [f64; 15] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0];

/// Classes of statuses by their first digit; the first is of requests whose connection ended before they were answered.
const STATUSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The operation of a request that was refused before it was known what it asks for, such as one with a wrong signature.
const UNKNOWN: &str = "unknown";

/// What has happened since the start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_operation: Mutex<BTreeMap<String, Tally>>,
    in_flight: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
    /// Requests that waited in vain for a turn, and for memory.
    pub without_turn: AtomicU64,
    pub without_memory: AtomicU64,
    /// Connections that were closed because places were out.
    pub without_place: AtomicU64,
}

/// The requests of one operation.
#[derive(Debug)]
struct Tally {
    by_status: [u64; STATUSES.len()],
    seconds: Histogram,
}

impl Counts {
    /// A request has begun.
    pub(crate) fn begin(self: &Arc<Self>, asked: Arc<Asked>) -> UnderWay {
        self.in_flight.fetch_add(1, Relaxed);
        UnderWay { counts: self.clone(), asked, begun: Instant::now(), status: 0 }
    }

    fn ended(&self, operation: &str, status: u16, seconds: f64) {
        let mut known = self.by_operation.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(operation) {
            let tally = Tally { by_status: Default::default(), seconds: Histogram::new(SECONDS.to_vec()) };
            known.insert(operation.to_owned(), tally);
        }
        let Some(tally) = known.get_mut(operation) else { return };
        if let Some(count) = tally.by_status.get_mut(usize::from(status / 100)) {
            *count += 1;
        }
        tally.seconds.add(seconds);
    }
}

/// A request from its head to the last byte of its answer.
#[derive(Debug)]
pub(crate) struct UnderWay {
    counts: Arc<Counts>,
    asked: Arc<Asked>,
    begun: Instant,
    /// Of the answer, once there is one.
    pub status: u16,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.counts.in_flight.fetch_sub(1, Relaxed);
        let operation = self.asked.operation.get().map_or(UNKNOWN, String::as_str);
        self.counts.ended(operation, self.status, self.begun.elapsed().as_secs_f64());
    }
}

/// A body whose bytes are counted while they pass.
pub(crate) struct Counted<B> {
    body: B,
    counts: Arc<Counts>,
    of: fn(&Counts) -> &AtomicU64,
    /// The request that ends with this body.
    _ends: Option<UnderWay>,
    /// That its connection has a request.
    _asking: Option<Asking>,
}

impl<B> Counted<B> {
    /// What a client sends.
    pub(crate) fn received(body: B, counts: Arc<Counts>) -> Self {
        Self { body, counts, of: |counts| &counts.received, _ends: None, _asking: None }
    }

    /// What a client is sent as the answer to a request.
    pub(crate) fn sent(body: B, request: UnderWay) -> Self {
        let counts = request.counts.clone();
        Self { body, counts, of: |counts| &counts.sent, _ends: Some(request), _asking: None }
    }

    /// Until this body has passed, its connection has a request.
    pub(crate) fn with(self, asking: Asking) -> Self {
        Self { _asking: Some(asking), ..self }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            (self.of)(&self.counts).fetch_add(bytes as u64, Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The numbers of a running gateway, to be told whenever somebody asks.
#[derive(Clone)]
pub struct Numbers {
    gateway: Arc<Gateway>,
    places: Places,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

impl Numbers {
    pub(crate) fn new(gateway: Arc<Gateway>, places: Places) -> Self {
        Self { gateway, places }
    }

    /// As Prometheus reads them.
    pub fn text(&self) -> String {
        let counts = &self.gateway.counts;
        let mut text = Text::default();
        text.program();
        {
            let known = counts.by_operation.lock().unwrap_or_else(PoisonError::into_inner);
            requests(&mut text, &known);
        }
        let value = |count: &AtomicU64| count.load(Relaxed) as f64;
        let name = "kintsu_s3_requests_in_flight";
        text.gauge(name, "Requests under way, to the last byte of their answer.", value(&counts.in_flight));
        for (name, help, count) in [
            ("kintsu_s3_received_bytes_total", "Bytes of the bodies of requests.", &counts.received),
            ("kintsu_s3_sent_bytes_total", "Bytes of the bodies of answers.", &counts.sent),
        ] {
            text.counter(name, help, value(count));
        }
        let name = "kintsu_s3_refused_total";
        text.head(name, "Requests and connections that were refused because a limit was reached.", "counter");
        let connections = self.places.refused() as f64 + value(&counts.without_place);
        for (limit, count) in [
            ("requests", value(&counts.without_turn)),
            ("memory", value(&counts.without_memory)),
            ("connections", connections),
        ] {
            text.sample(name, &[("limit", limit)], count);
        }
        text.gauge("kintsu_s3_connections", "Open connections.", self.places.taken() as f64);
        let shares = self.gateway.shares_of_memory();
        let name = "kintsu_s3_memory_bytes";
        text.head(name, "Memory that is taken for bytes of objects and for documents.", "gauge");
        shares.iter().for_each(|share| text.sample(name, &[("share", share.name)], share.taken as f64));
        let name = "kintsu_s3_memory_limit_bytes";
        text.head(name, "The most that may be taken.", "gauge");
        shares.iter().for_each(|share| text.sample(name, &[("share", share.name)], share.limit as f64));
        text.into_string()
    }
}

fn requests(text: &mut Text, known: &BTreeMap<String, Tally>) {
    let name = "kintsu_s3_requests_total";
    text.head(name, "Requests that ended, by what they asked for and the class of their status.", "counter");
    for (operation, tally) in known {
        for (status, count) in STATUSES.iter().zip(tally.by_status).filter(|(_, count)| *count > 0) {
            text.sample(name, &[("operation", operation), ("status", status)], count as f64);
        }
    }
    let name = "kintsu_s3_request_seconds";
    text.head(name, "How long requests took, from their head to the last byte of their answer.", "histogram");
    for (operation, tally) in known {
        text.buckets(name, &[("operation", operation)], &tally.seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_counts_when_its_answer_has_passed() {
        let counts: Arc<Counts> = Arc::default();
        let asked = Arc::new(Asked::default());
        asked.operation.set("GetObject".to_owned()).unwrap();
        let mut answered = counts.begin(asked.clone());
        let cut = counts.begin(asked);
        let unknown = counts.begin(Arc::default());
        assert_eq!(counts.in_flight.load(Relaxed), 3);
        answered.status = 206;
        let mut body = Counted::sent(s3s::Body::from("bytes".to_owned()), answered);
        assert_eq!((body.is_end_stream(), body.size_hint().exact()), (false, Some(5)));
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "bytes");
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        assert!(counts.by_operation.lock().unwrap().is_empty());
        drop((body, cut, unknown));
        assert_eq!((counts.in_flight.load(Relaxed), counts.sent.load(Relaxed)), (0, 5));
        let mut text = Text::default();
        requests(&mut text, &counts.by_operation.lock().unwrap());
        let text = text.into_string();
        for line in [
            "kintsu_s3_requests_total{operation=\"GetObject\",status=\"none\"} 1\n",
            "kintsu_s3_requests_total{operation=\"GetObject\",status=\"2xx\"} 1\n",
            "kintsu_s3_requests_total{operation=\"unknown\",status=\"none\"} 1\n",
            "kintsu_s3_request_seconds_bucket{operation=\"GetObject\",le=\"1\"} 0\n",
            "kintsu_s3_request_seconds_bucket{operation=\"GetObject\",le=\"2.5\"} 2\n",
            "kintsu_s3_request_seconds_count{operation=\"unknown\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}
