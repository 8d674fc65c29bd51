//! Reading a range of one stripe: plan and run; after a fault, re-plan without what failed, from the position up
//! to which bytes were delivered.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use kintsu_code::Code;
use kintsu_dag::{BlockId, BlockIndex};
use kintsu_plan::{Method, StripeView};
use kintsu_runtime::{ClientLocal, Delivery};
use kintsu_wire::message::{BadBlock, Fault, FaultKind, StripeInfo};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::assemble::Assembler;
use crate::attempt::Attempt;
use crate::avoid::Avoid;
use crate::choice::{Choice, Chosen};
use crate::read::Counters;
use crate::span::{Span, spans};
use crate::stripe::{by_id, readable};
use crate::{Client, ClientError};

/// Most attempts in a row that deliver no byte and tell nothing new about a node or block.
const MAX_FRUITLESS: usize = 4;

/// A reader that blocks a run for longer than this excuses its nodes: a later stall is not blamed on them.
const HELD_UP: Duration = Duration::from_secs(2);

/// Most deliveries that wait for the assembler.
const DELIVERIES: usize = 8;

/// A range of one stripe to read.
pub(crate) struct Portion {
    pub client: Client,
    pub name: String,
    pub code: Arc<dyn Code>,
    pub stripe: StripeInfo,
    /// Position of the stripe in the object.
    pub position: u64,
    /// The range, as offsets in the stripe.
    pub range: Range<u64>,
    /// How to decode lost blocks; `None` for the method with the least predicted time.
    pub method: Option<Method>,
    pub avoid: Arc<Avoid>,
    pub counters: Arc<Counters>,
}

enum Failure {
    /// The next attempt avoids the node or block at fault.
    Fault {
        fault: Fault,
        /// Whether the reader blocked the run, which looks like a stalled peer to the nodes.
        held_up: bool,
    },
    /// The read fails.
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

    /// What to read next, from this stripe offset on: in whole cells if any of it must be decoded from sub-blocks.
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

    /// One run over one span, until its end or the first fault.
    async fn attempt(
        &self,
        view: &StripeView,
        span: &Span,
        assembler: &mut Assembler,
        queue: &mpsc::Sender<Bytes>,
    ) -> Result<(), Failure> {
        if span.indices().iter().any(|b| view.homes[usize::from(b.0)].is_none()) {
            self.counters.note_degraded(self.stripe.id);
            self.avoid.learn_rates(self.client.rates()).await;
        }
        let Chosen { plan, slice_bytes } = self.plan(view, span)?;
        let (deliver, mut deliveries) = mpsc::channel::<Delivery>(DELIVERIES);
        let expect: Vec<_> =
            self.stripe.blocks.iter().map(|block| block.as_ref().and_then(|block| block.digest)).collect();
        let attempt = Attempt {
            label: &[],
            client: &self.client,
            view,
            generation: self.stripe.generation,
            window: (span.start, span.end),
            slice_bytes,
            compared: false,
            watcher: None,
            expect: &expect,
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
        let (ran, fault) = outcome?;
        self.counters.bytes_read.fetch_add(ran.bytes_read, Relaxed);
        match fault {
            None => Ok(()),
            Some(fault) => Err(Failure::Fault { fault, held_up }),
        }
    }

    fn plan(&self, view: &StripeView, span: &Span) -> Result<Chosen, ClientError> {
        let parity = self.code.k()..self.code.n();
        let unavailable: Vec<BlockIndex> = match self.stripe.encoded {
            true => Vec::new(),
            false => parity.map(|i| BlockIndex(i as u8)).collect(),
        };
        let topology = self.avoid.topology();
        let (method, slice_bytes) = (self.method, self.client.slice_bytes);
        let choice = Choice { view, topology: &topology, unavailable: &unavailable, method, slice_bytes };
        choice.of(span).map_err(|e| ClientError::from(e).about(&self.name, &self.stripe))
    }

    fn view(&self) -> Result<StripeView, ClientError> {
        let stripe = self.stripe.id;
        readable(&self.stripe, &self.code, |index, node| self.avoid.usable(BlockId { stripe, index }, node))
    }

    /// Learns from a fault: avoids its node or block, reports a bad block for repair, and fetches the present
    /// places of the stripe's blocks. Returns whether the fault names something new to avoid.
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
            async move { c.objects.report_bad(bad).await }
        });
        if let Err(error) = told.await {
            tracing::warn!("{id} on {} is bad and could not be reported: {error}", bad.node);
        }
    }

    /// Fetches the present places of the stripe's blocks: it may have been repaired or replaced. Unless
    /// `patiently`, a coordinator that is away is no error, because the nodes may be enough.
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
        ClientError::Interrupted(format!("the reader of {} is gone", self.name))
    }

    fn nothing_came(&self, span: &Span) -> ClientError {
        ClientError::Corrupt(format!(
            "{} of {}: expected bytes {}..{} of its blocks, got none",
            self.stripe.id, self.name, span.start, span.end
        ))
    }
}
