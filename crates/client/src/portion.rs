//! Reading a range of one stripe: plan and run; after a fault, or when a source is late, re-plan without it, from
//! the position up to which bytes were delivered.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use kintsu_code::Code;
use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_plan::{LayoutKind, Method, StripeView};
use kintsu_runtime::{ClientLocal, Delivery, Exchanged};
use kintsu_wire::message::{BadBlock, Fault, FaultKind, StripeInfo};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, timeout};

use crate::assemble::Assembler;
use crate::attempt::Attempt;
use crate::avoid::Avoid;
use crate::choice::{Choice, Chosen};
use crate::guard::{GivenUp, Guard, leave_out};
use crate::late::{Late, TICK};
use crate::read::Counters;
use crate::span::{Span, spans};
use crate::stripe::readable;
use crate::{Client, ClientError};

/// Most attempts in a row that deliver no byte and show nothing new about a node or block.
const MAX_FRUITLESS: usize = 4;

/// A reader that blocks a run for longer than this excuses its nodes: a later stall is not blamed on them.
const HELD_UP: Duration = Duration::from_secs(2);

/// How long the nodes may take to report their end after everything has come.
const GOODBYE: Duration = Duration::from_millis(250);

/// Most deliveries that wait for the assembler.
const DELIVERIES: usize = 8;

/// A range of one stripe to read.
pub(crate) struct Portion {
    pub client: Client,
    pub name: String,
    /// The id of the object.
    pub object: u64,
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
    /// Whether all blocks go straight to the client, which then sees which source is late.
    pub direct: bool,
}

/// Why an attempt ended early.
enum Failure {
    /// A source is late.
    Late(GivenUp),
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
            let (from, begun, stripe) = (assembler.next(), self.range.start, self.stripe.id);
            let (view, excused) = self.view()?;
            let Some(span) = self.span(&view, from) else { return Ok(()) };
            let desperate = self.avoid.is_desperate();
            match self.attempt(&view, &span, &excused, &mut assembler, &queue).await {
                Ok(()) if assembler.next() > from => fruitless = 0,
                Ok(()) => return Err(self.nothing_came(&span)),
                Err(Failure::Fault { fault, held_up }) => {
                    self.counters.replanned.fetch_add(1, Relaxed);
                    let learnt = self.learn(&fault, held_up).await? || self.stripe.id != stripe;
                    fruitless = if learnt || assembler.next() > from { 0 } else { fruitless + 1 };
                    if fruitless > MAX_FRUITLESS {
                        return Err(fault.into());
                    }
                }
                Err(Failure::Late(how)) => {
                    self.counters.replanned.fetch_add(1, Relaxed);
                    self.direct = how == GivenUp::OnTheWay;
                }
                Err(Failure::Error(ClientError::Unrecoverable(_))) if self.avoid.forgive(desperate) => {
                    self.refresh(true).await?;
                }
                Err(Failure::Error(error)) => return Err(error),
            }
            if self.stripe.id != stripe {
                // The object has moved; what was delivered is not read again.
                let next = self.range.start + (assembler.next() - begun);
                assembler = Assembler::new(self.stripe.layout, k, next..self.range.end);
            }
        }
    }

    /// What to read next, from this stripe offset on: in whole cells if any of it must be decoded from sub-blocks. A
    /// row of cells of which a part was delivered is read once more, so that the rest is one span.
    fn span(&self, view: &StripeView, from: u64) -> Option<Span> {
        let (layout, k) = (&self.stripe.layout, self.code.k() as u64);
        let row = u64::from(layout.cell_bytes) * k;
        let from = match layout.kind {
            LayoutKind::Striped if from < self.range.end => (from - from % row).max(self.range.start),
            _ => from,
        };
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

    /// One run over one span, until its end, the first fault, or the verdict that a source is late.
    async fn attempt(
        &self,
        view: &StripeView,
        span: &Span,
        excused: &BTreeSet<NodeId>,
        assembler: &mut Assembler,
        queue: &mpsc::Sender<Bytes>,
    ) -> Result<(), Failure> {
        if span.indices().iter().any(|b| view.homes[usize::from(b.0)].is_none()) {
            self.counters.note_degraded(self.stripe.id);
            if self.avoid.slow().is_empty() {
                self.avoid.learn_rates(self.client.rates()).await;
            }
        }
        let chosen = self.plan(view, span)?;
        let (deliver, mut deliveries) = mpsc::channel::<Delivery>(DELIVERIES);
        let expect: Vec<_> =
            self.stripe.blocks.iter().map(|block| block.as_ref().and_then(|block| block.digest)).collect();
        let generations = self.stripe.generations();
        let received = Arc::new(Exchanged::default());
        let attempt = Attempt {
            label: &[],
            client: &self.client,
            view,
            generation: self.stripe.generation,
            generations: &generations,
            window: (span.start, span.end),
            slice_bytes: chosen.slice_bytes,
            compared: false,
            watcher: None,
            expect: &expect,
            tickets: &self.stripe.tickets,
            received: &received,
            address: &|node| self.avoid.address(node),
        };
        let mut guard = Guard::new(self, view.clone(), span, &chosen, excused, assembler.next());
        let run = attempt.run(&chosen.plan, ClientLocal::delivering(deliver));
        tokio::pin!(run);
        let (mut outcome, mut held_up, mut complete) = (None, false, None);
        let end = span.stripe_end(&self.stripe.layout, self.code.k()).min(self.range.end);
        let mut ticks = tokio::time::interval_at(Instant::now() + TICK, TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick(), if outcome.is_none() => {
                    if let Some(how) = guard.look(&received, assembler.next()) {
                        return Err(Failure::Late(how));
                    }
                    if assembler.next() >= end && complete.get_or_insert_with(Instant::now).elapsed() > GOODBYE {
                        break;
                    }
                }
                delivery = deliveries.recv() => {
                    let Some(delivery) = delivery else { break };
                    held_up |= self.pass_on(delivery, assembler, queue).await?;
                }
                ended = &mut run, if outcome.is_none() => outcome = Some(ended),
            }
        }
        guard.learn(&received);
        let outcome = match outcome {
            Some(outcome) => Some(outcome),
            None if assembler.next() < end => Some(run.await),
            None => {
                let since = complete.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                timeout(GOODBYE.saturating_sub(since), run).await.ok()
            }
        };
        let (ran, fault) = outcome.unwrap_or_else(|| Ok((guard.ran(&received), None)))?;
        self.counters.bytes_read.fetch_add(ran.bytes_read, Relaxed);
        match fault {
            None => Ok(()),
            Some(fault) => Err(Failure::Fault { fault, held_up }),
        }
    }

    /// Sends on what is complete up to some offset; true if the reader took too long for it.
    async fn pass_on(
        &self,
        delivery: Delivery,
        assembler: &mut Assembler,
        queue: &mpsc::Sender<Bytes>,
    ) -> Result<bool, Failure> {
        let mut held_up = false;
        assembler.push(delivery.index, delivery.offset, delivery.bytes);
        while let Some(bytes) = assembler.pop() {
            let (since, len) = (Instant::now(), bytes.len() as u64);
            queue.send(bytes).await.map_err(|_| self.abandoned())?;
            held_up |= since.elapsed() > HELD_UP;
            self.counters.delivered.fetch_add(len, Relaxed);
        }
        Ok(held_up)
    }

    fn plan(&self, view: &StripeView, span: &Span) -> Result<Chosen, ClientError> {
        let parity = self.code.k()..self.code.n();
        let unavailable: Vec<BlockIndex> = match self.stripe.encoded {
            true => Vec::new(),
            false => parity.map(|i| BlockIndex(i as u8)).collect(),
        };
        let topology = self.avoid.topology();
        let method = self.method.or(self.direct.then_some(Method::Conventional));
        let slice_bytes = self.client.slice_bytes;
        let choice = Choice { view, topology: &topology, unavailable: &unavailable, method, slice_bytes };
        let why_not = |block, node| self.avoid.why_not(block, node);
        choice.of(span).map_err(|e| ClientError::from(e).about(&self.name, &self.stripe, why_not))
    }

    /// The stripe without what cannot be read, and without slow nodes as far as it can be read without them; and the
    /// slow nodes that it needs.
    fn view(&self) -> Result<(StripeView, BTreeSet<NodeId>), ClientError> {
        let stripe = self.stripe.id;
        let usable = |index, node| self.avoid.usable(BlockId { stripe, index }, node);
        let mut view = readable(&self.stripe, &self.code, usable)?;
        let mut needed = BTreeSet::new();
        for Late { node, .. } in self.avoid.slow() {
            if !view.homes.contains(&Some(node)) {
                continue;
            }
            match leave_out(&mut view, node) {
                true => self.avoid.note_left_aside(node),
                false => _ = needed.insert(node),
            }
        }
        Ok((view, needed))
    }

    /// Learns from a fault: avoids its node or block, reports a bad block for repair, and fetches the present
    /// places of the stripe's blocks. Returns whether the fault names something new to avoid.
    async fn learn(&mut self, fault: &Fault, held_up: bool) -> Result<bool, ClientError> {
        tracing::info!("reading {}: {fault}; planning around it", self.name);
        if held_up && (fault.kind.is_silence() || fault.kind == FaultKind::Aborted) {
            return Ok(false);
        }
        if fault.kind == FaultKind::Stale {
            // An update may have made new versions of its blocks since they were looked up.
            let asked = self.generation(fault.block);
            self.refresh(false).await?;
            if self.generation(fault.block) != asked {
                return Ok(true);
            }
        }
        let learnt = self.avoid.blame(fault);
        if learnt && matches!(fault.kind, FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale) {
            self.report(fault).await;
        }
        self.refresh(false).await?;
        Ok(learnt)
    }

    /// The version of a block that is read.
    fn generation(&self, block: Option<BlockId>) -> Option<u32> {
        self.stripe.generations().get(usize::from(block?.index.0)).copied()
    }

    /// The versions of the blocks that have the range.
    fn wanted_generations(&self) -> Vec<u32> {
        let spans = spans(&self.stripe.layout, self.code.k(), false, self.range.clone());
        let wanted = spans.iter().flat_map(Span::indices);
        let generations = self.stripe.generations();
        wanted.filter_map(|block| generations.get(usize::from(block.0)).copied()).collect()
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
                let before = self.wanted_generations();
                self.stripe = stripe;
                if self.wanted_generations() != before {
                    self.counters.updated.store(true, Relaxed);
                }
                self.avoid.refresh(self.client.told(view.nodes));
                Ok(())
            }
            // A small object that has moved into another stripe has the same bytes there.
            Some(stripe) if view.object.id == self.object && view.object.stripes == 1 => {
                let shifted = |at: u64| at.checked_sub(self.stripe.before)?.checked_add(stripe.before);
                let range = shifted(self.range.start).zip(shifted(self.range.end));
                let within = range.filter(|(_, end)| *end <= stripe.layout.data_bytes);
                let (start, end) = within.ok_or_else(|| self.interrupted())?;
                (self.range, self.stripe) = (start..end, stripe);
                self.avoid.refresh(self.client.told(view.nodes));
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
