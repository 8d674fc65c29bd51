//! Reading a range of one stripe: plan, run, and around whatever fails plan again from the
//! position that has been delivered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use kintsu_code::Code;
use kintsu_dag::{BlockId, BlockIndex};
use kintsu_plan::{LayoutKind, Method, Plan, StripeView};
use kintsu_runtime::{ClientLocal, Delivery};
use kintsu_wire::message::{BadBlock, Fault, FaultKind, StripeInfo};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::assemble::Assembler;
use crate::attempt::Attempt;
use crate::avoid::Avoid;
use crate::read::Counters;
use crate::span::{Span, spans};
use crate::stripe::{by_id, readable};
use crate::{Client, ClientError};

/// Attempts in a row that bring neither a byte nor something new about a node or block.
const MAX_FRUITLESS: usize = 4;

/// How long the reader may hold a run up before its nodes are not to blame for what follows.
const HELD_UP: Duration = Duration::from_secs(2);

/// Deliveries that wait for the assembler.
const DELIVERIES: usize = 8;

/// From how many slices on a chain of helpers is as fast as a star.
const CHAIN_SLICES: u64 = 16;

/// The largest slice of a read.
const MAX_SLICE_BYTES: u32 = 1 << 20;

/// A range of one stripe that is to be read.
pub(crate) struct Portion {
    pub client: Client,
    pub name: String,
    pub code: Arc<dyn Code>,
    pub stripe: StripeInfo,
    /// Of the stripe in the object.
    pub position: u64,
    /// Stripe offsets.
    pub range: Range<u64>,
    pub avoid: Arc<Avoid>,
    pub counters: Arc<Counters>,
}

enum Failure {
    /// To be planned around.
    Fault {
        fault: Fault,
        /// The reader held everything up, which looks like a stalled peer to the others.
        held_up: bool,
    },
    /// The end of it.
    Error(ClientError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Error(error)
    }
}

impl Portion {
    /// Sends the bytes of the range, in order.
    pub(crate) async fn read(mut self, queue: mpsc::Sender<Bytes>) -> Result<(), ClientError> {
        let k = self.code.k();
        let mut assembler = Assembler::new(self.stripe.layout, k, self.range.clone());
        let mut fruitless = 0;
        loop {
            let from = assembler.next();
            let view = self.view()?;
            let Some(span) = self.span(&view, from) else { return Ok(()) };
            let desperate = self.avoid.is_desperate();
            match self.attempt(&view, &span, &mut assembler, &queue).await {
                Ok(()) if assembler.next() > from => fruitless = 0,
                Ok(()) => return Err(self.nothing_came(&span)),
                Err(Failure::Fault { fault, held_up }) => {
                    self.counters.replanned.fetch_add(1, Relaxed);
                    let learnt = self.learn(&fault, held_up).await?;
                    fruitless = if learnt || assembler.next() > from { 0 } else { fruitless + 1 };
                    if fruitless > MAX_FRUITLESS {
                        return Err(fault.into());
                    }
                }
                Err(Failure::Error(ClientError::Unrecoverable(_))) if self.avoid.forgive(desperate) => {
                    self.refresh(true).await?;
                }
                Err(Failure::Error(error)) => return Err(error),
            }
        }
    }

    /// What to read next, from this stripe offset on: in whole cells if any of it is to be decoded from sub-blocks.
    fn span(&self, view: &StripeView, from: u64) -> Option<Span> {
        let next = |decoded| {
            let rest = spans(&self.stripe.layout, self.code.k(), decoded, from..self.range.end);
            rest.into_iter().next()
        };
        let span = next(false)?;
        if span.indices().iter().all(|b| view.homes[usize::from(b.0)].is_some()) {
            Some(span)
        } else {
            next(true)
        }
    }

    /// One run over one span, or over as much of it as comes before a fault.
    async fn attempt(
        &self,
        view: &StripeView,
        span: &Span,
        assembler: &mut Assembler,
        queue: &mpsc::Sender<Bytes>,
    ) -> Result<(), Failure> {
        let (plan, chained) = self.plan(view, span)?;
        let (deliver, mut deliveries) = mpsc::channel::<Delivery>(DELIVERIES);
        let attempt = Attempt {
            client: &self.client,
            view,
            generation: self.stripe.generation,
            window: (span.start, span.end),
            slice_bytes: if chained { self.client.slice_bytes.unwrap_or(0) } else { self.slice_bytes(span) },
            address: &|node| self.avoid.address(node),
        };
        let run = attempt.run(&plan, ClientLocal::delivering(deliver));
        tokio::pin!(run);
        let (mut outcome, mut held_up) = (None, false);
        loop {
            tokio::select! {
                biased;
                delivery = deliveries.recv() => {
                    let Some(delivery) = delivery else { break };
                    assembler.push(delivery.index, delivery.offset, delivery.bytes);
                    while let Some(bytes) = assembler.pop() {
                        let since = Instant::now();
                        queue.send(bytes).await.map_err(|_| self.abandoned())?;
                        held_up |= since.elapsed() > HELD_UP;
                    }
                }
                ended = &mut run, if outcome.is_none() => outcome = Some(ended),
            }
        }
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => run.await,
        };
        match outcome? {
            Ok(report) => {
                self.counters.bytes_read.fetch_add(report.bytes_read, Relaxed);
                Ok(())
            }
            Err(fault) => Err(Failure::Fault { fault, held_up }),
        }
    }

    /// Much of a stripe is decoded here, since most of what that takes is fetched anyway. One
    /// block that is lost, and is long, is rebuilt on its way by a chain of helpers, unless it has sub-blocks: then
    /// the code's own graph needs less of each helper than a chain, which takes whole blocks. Tells whether it is a chain.
    fn plan(&self, view: &StripeView, span: &Span) -> Result<(Plan, bool), ClientError> {
        let wanted = span.indices();
        let lost = wanted.iter().filter(|b| view.homes[usize::from(b.0)].is_none()).count();
        let parity = self.code.k()..self.code.n();
        let unavailable: Vec<BlockIndex> = match self.stripe.encoded {
            true => Vec::new(),
            false => parity.map(|i| BlockIndex(i as u8)).collect(),
        };
        let long = (span.end - span.start) / u64::from(self.slice_bytes(span)) >= CHAIN_SLICES;
        let chained = lost == 1 && wanted.len() == 1 && long && self.code.w() == 1;
        let method = match chained {
            true => Method::Pipeline,
            false => Method::Conventional,
        };
        if lost > 0 {
            self.counters.note_degraded(self.stripe.id);
        }
        kintsu_plan::read_by(view, &self.avoid.topology(), &wanted, &unavailable, method)
            .map(|plan| (plan, chained))
            .map_err(|e| ClientError::from(e).about(&self.name, &self.stripe))
    }

    fn view(&self) -> Result<StripeView, ClientError> {
        let stripe = self.stripe.id;
        readable(&self.stripe, &self.code, |index, node| self.avoid.usable(BlockId { stripe, index }, node))
    }

    /// A step is a cell, or for a small range the range itself, or what was asked for.
    fn slice_bytes(&self, span: &Span) -> u32 {
        let cell = self.stripe.layout.cell_bytes;
        let most = match self.stripe.layout.kind {
            LayoutKind::Striped => cell.min(MAX_SLICE_BYTES),
            LayoutKind::Contiguous => cell.clamp(64 << 10, MAX_SLICE_BYTES),
        };
        let most = self.client.slice_bytes.map_or(most, |asked| asked.min(MAX_SLICE_BYTES));
        u32::try_from(span.end - span.start).map_or(most, |len| len.min(most)).max(1)
    }

    /// Takes in what went wrong: a node or block to go around, a bad block to be mended, and where
    /// the coordinator sees the stripe now. Whether any of it is new.
    async fn learn(&mut self, fault: &Fault, held_up: bool) -> Result<bool, ClientError> {
        tracing::info!("reading {}: {fault}; planning around it", self.name);
        if held_up && matches!(fault.kind, FaultKind::Lost | FaultKind::Stalled | FaultKind::Aborted) {
            return Ok(false);
        }
        let learnt = self.avoid.blame(fault);
        if learnt && matches!(fault.kind, FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale) {
            self.report(fault).await;
        }
        self.refresh(false).await?;
        Ok(learnt)
    }

    async fn report(&self, fault: &Fault) {
        let Some(id) = fault.block else { return };
        let bad = BadBlock { id, node: fault.node, kind: fault.kind, detail: fault.detail.clone() };
        let told = self.client.call(|mut c| {
            let bad = bad.clone();
            async move { c.report_bad(bad).await }
        });
        if let Err(error) = told.await {
            tracing::warn!("{id} on {} is bad and could not be reported: {error}", bad.node);
        }
    }

    /// Asks where the stripe's blocks are now: it may have been repaired, or replaced.
    /// Without patience a coordinator that is away is no error: the nodes may well go on alone.
    async fn refresh(&mut self, patiently: bool) -> Result<(), ClientError> {
        let asked = match patiently {
            true => self.client.stripes_patiently(&self.name, self.position, 1).await,
            false => self.client.stripes(&self.name, self.position, 1).await,
        };
        let view = match asked {
            Ok(view) => view,
            Err(ClientError::NotFound(_)) => return Err(self.interrupted()),
            Err(error) if error.is_unreachable() && !patiently => return Ok(()),
            Err(error) => return Err(error),
        };
        match view.stripes.into_iter().next() {
            Some(stripe) if stripe.id == self.stripe.id && stripe.layout == self.stripe.layout => {
                self.stripe = stripe;
                self.avoid.refresh(by_id(view.nodes));
                Ok(())
            }
            _ => Err(self.interrupted()),
        }
    }

    fn interrupted(&self) -> ClientError {
        ClientError::Interrupted(format!("{} was replaced or removed while it was read", self.name))
    }

    fn abandoned(&self) -> ClientError {
        ClientError::Interrupted(format!("nobody waits for {} any more", self.name))
    }

    fn nothing_came(&self, span: &Span) -> ClientError {
        ClientError::Corrupt(format!(
            "{} of {}: expected bytes {}..{} of its blocks, got none",
            self.stripe.id, self.name, span.start, span.end
        ))
    }
}
