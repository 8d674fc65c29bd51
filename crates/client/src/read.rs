//! Reading an object: whole or a range, from whole blocks or by decoding.
//!
//! The range is cut into portions (one [`Span`](crate::span::Span) each). Every portion is a separate task. It
//! reads, decodes, re-plans around faults, and sends its bytes in order through a bounded queue. The next portion
//! starts while the current one drains, so that the link is not idle between them.
//!
//! Invariants: bytes reach the sink once and in order, even after re-planning; memory is bounded by two queues and
//! the slices in flight, whatever the object's size. What it is not: a snapshot. If the object is replaced during
//! a read, the read ends with `Interrupted`, never with bytes of both versions.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use kintsu_code::Code;
use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::Method;
use kintsu_wire::message::{Lookup, ObjectInfo, ObjectView, StripeInfo};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::avoid::Avoid;
use crate::checksum::Running;
use crate::codes::received_code;
use crate::portion::Portion;
use crate::span::spans;
use crate::{Client, ClientError};

/// Stripes requested in one call.
const PAGE: u64 = 256;

/// Portions read at the same time: the one that drains, and the next.
const AHEAD: usize = 2;

/// Bytes that a portion may be ahead of the sink.
const QUEUE_BYTES: u64 = 8 << 20;

/// What a read did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GetReport {
    /// Bytes delivered.
    pub bytes: u64,
    /// Stripes with at least one wanted block that had to be decoded.
    pub degraded_stripes: u64,
    /// Bytes of blocks that nodes read for it, including failed attempts. A checksum unit of which a part was
    /// needed counts in full.
    pub bytes_read: u64,
    /// Attempts that failed or were held up, and were re-planned from where they stopped.
    pub replanned: u64,
    /// Nodes that were left aside because they were slow or silent.
    pub slow: BTreeSet<NodeId>,
    /// Wanted blocks were found to have newer versions meanwhile: some of the bytes may be of these.
    pub updated: bool,
}

/// How an object is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GetOptions {
    /// How lost blocks are rebuilt on their way; without, as is predicted to be fastest.
    pub method: Option<Method>,
}

/// Counters shared by the portions of one read.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub bytes_read: AtomicU64,
    pub replanned: AtomicU64,
    /// Bytes that came in attempts that were given up, and were not delivered.
    pub wasted: AtomicU64,
    /// Bytes delivered.
    pub delivered: AtomicU64,
    /// Bytes to deliver.
    pub total: u64,
    /// Whether wanted blocks had newer versions when they were looked up again.
    pub updated: AtomicBool,
    degraded: Mutex<BTreeSet<StripeId>>,
}

impl Counters {
    pub(crate) fn note_degraded(&self, stripe: StripeId) {
        self.degraded.lock().unwrap_or_else(PoisonError::into_inner).insert(stripe);
    }

    fn report(&self, bytes: u64, slow: BTreeSet<NodeId>) -> GetReport {
        GetReport {
            slow,
            bytes,
            degraded_stripes: self.degraded.lock().unwrap_or_else(PoisonError::into_inner).len() as u64,
            bytes_read: self.bytes_read.load(Relaxed),
            replanned: self.replanned.load(Relaxed),
            updated: self.updated.load(Relaxed),
        }
    }
}

impl Client {
    /// Writes an object, or the bytes `range` of it, to `sink` in order. `progress` gets the bytes done and the
    /// total.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` for a range past the end; `Unrecoverable` when too few blocks are
    /// left; `Interrupted` when the object is replaced meanwhile; `Io` of the sink. Some bytes may have
    /// reached the sink by then; these are right. `Corrupt` when a whole object does not have its checksum.
    pub async fn get(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: impl Fn(u64, u64),
    ) -> Result<GetReport, ClientError> {
        self.get_with(name, range, GetOptions::default(), sink, progress).await
    }

    /// As [`Client::get`], with options.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn get_with(
        &self,
        name: &str,
        range: Option<Range<u64>>,
        options: GetOptions,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: impl Fn(u64, u64),
    ) -> Result<GetReport, ClientError> {
        let at = range.as_ref().map_or(0, |range| range.start);
        self.find(name, at).await?.read(range, options, sink, progress).await
    }

    /// Looks up an object that is to be read from the byte `at` on. What is read of it later is of this object, not of
    /// another one that has its name by then.
    ///
    /// # Errors
    /// `NotFound`, or whatever keeps the coordinator from answering.
    pub async fn find(&self, name: &str, at: u64) -> Result<Found, ClientError> {
        let asked = Instant::now();
        let view = self
            .look(Lookup { name: name.to_owned(), first: 0, limit: PAGE, at: Some(at), id: None })
            .await?;
        Ok(Found { client: self.clone(), view, asked, answered: asked.elapsed() })
    }

    /// An object that was looked up before, for one more read: of its blocks as they were then, as long as these are
    /// there, and as they are by now if not.
    pub(crate) fn found_before(&self, view: ObjectView, answered: Duration) -> Found {
        Found { client: self.clone(), view, asked: Instant::now(), answered }
    }
}

/// An object that was looked up.
#[derive(Debug)]
pub struct Found {
    client: Client,
    view: ObjectView,
    asked: Instant,
    answered: Duration,
}

/// Where the bytes of a read go, in order.
enum Outlet<'s> {
    Writer(&'s mut (dyn AsyncWrite + Unpin + Send)),
    Queue(mpsc::Sender<Bytes>),
}

impl Outlet<'_> {
    async fn give(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        match self {
            Self::Writer(sink) => sink.write_all(&bytes).await.map_err(|e| ClientError::of_sink(&e)),
            Self::Queue(queue) => {
                let gone = |_| ClientError::Io("what was read is wanted no longer".into());
                queue.send(bytes).await.map_err(gone)
            }
        }
    }

    async fn end(&mut self) -> Result<(), ClientError> {
        match self {
            Self::Writer(sink) => sink.flush().await.map_err(|e| ClientError::of_sink(&e)),
            Self::Queue(_) => Ok(()),
        }
    }
}

impl Found {
    /// What the coordinator said.
    pub(crate) fn view(&self) -> &ObjectView {
        &self.view
    }

    /// How long the coordinator took to say it.
    pub(crate) fn answered(&self) -> Duration {
        self.answered
    }

    /// The object.
    pub fn info(&self) -> &ObjectInfo {
        &self.view.object
    }

    /// As [`Client::get_with`]. A range begins at or behind the byte for which the object was looked up.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub async fn read(
        self,
        range: Option<Range<u64>>,
        options: GetOptions,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: impl Fn(u64, u64),
    ) -> Result<GetReport, ClientError> {
        self.deliver(range, options, Outlet::Writer(sink), progress).await
    }

    /// Sends the bytes to a queue instead, without copying them. The pieces are of any length.
    ///
    /// # Errors
    /// As [`Client::get`]; `Io` if the queue is closed.
    pub async fn send(
        self,
        range: Option<Range<u64>>,
        options: GetOptions,
        queue: mpsc::Sender<Bytes>,
    ) -> Result<GetReport, ClientError> {
        self.deliver(range, options, Outlet::Queue(queue), |_, _| {}).await
    }

    async fn deliver(
        self,
        range: Option<Range<u64>>,
        options: GetOptions,
        mut outlet: Outlet<'_>,
        progress: impl Fn(u64, u64),
    ) -> Result<GetReport, ClientError> {
        let Self { client, view: first, asked, answered } = self;
        let (timed, name) = (first.timed, first.object.name.clone());
        let mut in_sink = Duration::ZERO;
        let range = checked_range(&first.object, range)?;
        let total = range.end - range.start;
        let whole = total == first.object.size;
        let mut checked = first.object.checksum.filter(|_| whole).map(|sum| (sum, Running::new()));
        let counters = Arc::new(Counters { total, ..Counters::default() });
        let avoid = Arc::new(Avoid::new(client.told(first.nodes), first.rates, answered));
        let homes =
            first.stripes.iter().flat_map(|stripe| stripe.blocks.iter().flatten()).map(|block| block.node);
        avoid.known_to_be_slow(&homes.collect());
        let mut reader = Reader {
            code: received_code(&first.object.code, first.definition).await?,
            avoid: avoid.clone(),
            object: first.object,
            at: range.start,
            end: range.end,
            stripes: first.stripes.into(),
            position: first.first,
            queued: VecDeque::new(),
            method: options.method,
            counters: counters.clone(),
            client: client.clone(),
        };
        let mut flows = VecDeque::new();
        let mut done = 0;
        progress(0, total);
        loop {
            while flows.len() < AHEAD {
                let Some(portion) = reader.next().await? else { break };
                flows.push_back(Flow::start(portion));
            }
            let Some(mut flow) = flows.pop_front() else { break };
            while let Some(bytes) = flow.bytes.recv().await {
                if let Some((_, running)) = &mut checked {
                    running.update(&bytes);
                }
                let begun = Instant::now();
                let len = bytes.len() as u64;
                outlet.give(bytes).await?;
                in_sink += begun.elapsed();
                done += len;
                progress(done, total);
            }
            flow.end().await.map_err(|error| error.without(&avoid.left_aside()))?;
        }
        outlet.end().await?;
        if done != total {
            return Err(ClientError::Corrupt(format!("expected {total} bytes, got {}", done)));
        }
        if let Some((expected, got)) = checked.map(|(sum, running)| (sum, running.end()))
            && got != expected
        {
            return Err(ClientError::Corrupt(format!("{name}: expected the checksum {expected}, got {got}")));
        }
        client.felt(timed, asked.elapsed().saturating_sub(in_sink));
        Ok(counters.report(done, avoid.left_aside()))
    }
}

fn checked_range(object: &ObjectInfo, range: Option<Range<u64>>) -> Result<Range<u64>, ClientError> {
    let range = range.unwrap_or(0..object.size);
    if range.start <= range.end && range.end <= object.size {
        return Ok(range);
    }
    Err(ClientError::Invalid(format!(
        "range of {}: expected within its {} bytes, got {}..{}",
        object.name, object.size, range.start, range.end
    )))
}

/// Cuts the rest of the range into portions, fetching pages of stripes as they are needed.
struct Reader {
    client: Client,
    code: Arc<dyn Code>,
    object: ObjectInfo,
    at: u64,
    end: u64,
    /// Stripes from `position` on.
    stripes: VecDeque<StripeInfo>,
    position: u64,
    /// Portions of the stripe before `at`.
    queued: VecDeque<Range<u64>>,
    method: Option<Method>,
    avoid: Arc<Avoid>,
    counters: Arc<Counters>,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Portion>, ClientError> {
        if self.queued.is_empty() {
            if self.at >= self.end {
                return Ok(None);
            }
            self.next_stripe().await?;
        }
        let stripe = self.stripes.front().ok_or_else(|| self.changed())?;
        let Some(range) = self.queued.pop_front() else { return Ok(None) };
        Ok(Some(Portion {
            client: self.client.clone(),
            name: self.object.name.clone(),
            object: self.object.id,
            code: self.code.clone(),
            stripe: stripe.clone(),
            position: self.position,
            range,
            method: self.method,
            avoid: self.avoid.clone(),
            counters: self.counters.clone(),
            direct: false,
        }))
    }

    /// Moves the stripe that holds `at` to the front and queues the portions wanted of it.
    async fn next_stripe(&mut self) -> Result<(), ClientError> {
        loop {
            let (from, before, upto) = match self.stripes.front() {
                Some(stripe) => {
                    let bytes = stripe.layout.data_bytes.saturating_sub(stripe.before);
                    (stripe.offset, stripe.before, stripe.offset.saturating_add(bytes))
                }
                None => return Err(self.changed()),
            };
            if self.at < from {
                return Err(self.changed());
            }
            if self.at < upto {
                let end = self.end.min(upto);
                let wanted = before + (self.at - from)..before + (end - from);
                self.at = end;
                self.queue(wanted);
                return Ok(());
            }
            if self.stripes.len() == 1 {
                self.next_page().await?;
            } else {
                self.stripes.pop_front();
                self.position += 1;
            }
        }
    }

    fn queue(&mut self, wanted: Range<u64>) {
        let Some(stripe) = self.stripes.front() else { return };
        let (k, layout) = (self.code.k(), stripe.layout);
        let mut from = wanted.start;
        let pieces = spans(&layout, k, false, wanted.clone());
        let last = pieces.len().saturating_sub(1);
        for (i, span) in pieces.into_iter().enumerate() {
            let upto = if i == last { wanted.end } else { span.stripe_end(&layout, k).min(wanted.end) };
            self.queued.push_back(from..upto);
            from = upto;
        }
    }

    /// Fetches the next page. It begins with the last known stripe, so that a replaced object is noticed.
    async fn next_page(&mut self) -> Result<(), ClientError> {
        let known = self.stripes.front().map(|stripe| stripe.id);
        let view = self.client.stripes_patiently(&self.object.name, self.position, PAGE).await?;
        let same = view.stripes.first().map(|stripe| stripe.id) == known;
        if view.object.id != self.object.id || !same || view.stripes.len() < 2 {
            return Err(self.changed());
        }
        self.stripes = view.stripes.into();
        Ok(())
    }

    fn changed(&self) -> ClientError {
        ClientError::Interrupted(format!("{} was replaced or removed while it was read", self.object.name))
    }
}

/// A running portion; dropping it ends it.
struct Flow {
    bytes: mpsc::Receiver<Bytes>,
    task: JoinHandle<Result<(), ClientError>>,
}

impl Flow {
    fn start(portion: Portion) -> Self {
        let pieces = QUEUE_BYTES / u64::from(portion.stripe.layout.cell_bytes.max(1));
        let (queue, bytes) = mpsc::channel(pieces.clamp(2, 1024) as usize);
        Self { bytes, task: tokio::spawn(portion.read(queue)) }
    }

    async fn end(mut self) -> Result<(), ClientError> {
        match (&mut self.task).await {
            Ok(ended) => ended,
            Err(e) => Err(ClientError::Io(format!("a read task ended early: {e}"))),
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.task.abort();
    }
}
