//! The executor of one lane. It runs step by step, and within a step task by task, in the order of the program.
//!
//! Why lanes and nodes never deadlock: all task lists are parts of one total order (`kintsu_dag::Placed::lower`).
//! A lane waits for room in its queues only between steps, and then takes the room for the whole next step. So
//! within a step it waits only for tasks that come earlier in the order. Among the nodes at the earliest step, the
//! first one in the order can always continue.
//!
//! Small slices cost little because the overhead is shared by many steps: slices come and go in batches, and room
//! is taken and given back for several steps at once. Before a lane waits it flushes everything, so batches grow
//! only while the processor is the bottleneck. A serial lane ([`Flow::Serial`]) requests each slice when it needs
//! it and waits until each has left. A lane with a rate starts no step before its scheduled time; the schedule
//! counts from the lane's start, so a late lane catches up. A lane of a background run gives way to users before each step
//! (`give_way.rs`).

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use crate::fault::fault;
use crate::flow::{Flow, Inlet, Outlet};
use crate::script::{OpKind, Script, part_bytes};
use crate::send::Parcel;
use crate::sink::Piece;
use crate::slice::Slice;
use crate::verdict::{FirstFault, Tracker, WaitState};

/// After this many bytes of a vertex, finished slices are flushed even if the next step could start at once.
const BATCH_BYTES: usize = 64 << 10;

/// Slices read ahead of one block.
pub(crate) struct Loads {
    pub queue: mpsc::Receiver<Vec<Slice>>,
    pub chunk: std::vec::IntoIter<Slice>,
    /// In a serial lane: requests a chunk.
    pub demand: Option<Arc<Semaphore>>,
}

/// One lane of a run.
pub(crate) struct Lane {
    pub node: NodeId,
    /// Its position in the run.
    pub position: usize,
    pub script: Script,
    pub flow: Flow,
    pub loads: Vec<Loads>,
    pub fetches: Vec<Inlet>,
    pub sends: Vec<Outlet<Parcel>>,
    pub sinks: Vec<Outlet<Piece>>,
    pub verdict: Arc<FirstFault>,
    pub waiting: Arc<WaitState>,
    pub tracker: Arc<Tracker>,
    /// Least time between the starts of two steps.
    pub interval: Duration,
    /// How many parts a step sends, receives and reads.
    pub moves: [u64; 3],
    /// Steps done.
    pub done: u64,
}

impl Lane {
    /// Runs all steps, unless the run fails.
    pub async fn run(mut self) {
        let verdict = self.verdict.clone();
        tokio::select! {
            biased;
            _ = verdict.failed() => {}
            done = self.steps() => if let Err(fault) = done {
                verdict.fail(fault);
            },
        }
    }

    async fn steps(&mut self) -> Result<(), Fault> {
        let mut slots: Vec<Option<Slice>> = (0..self.script.slots).map(|_| None).collect();
        let window = self.script.window;
        let whole = part_bytes(&window, u64::from(window.step_bytes));
        let batch = (BATCH_BYTES / whole.max(1)).max(1) as u64;
        let begun = Instant::now();
        for step in window.steps() {
            // A step that waits for nothing still lets others run, and the run end.
            consume_budget().await;
            self.turn(begun).await?;
            let len = part_bytes(&window, step.end - step.start);
            self.give_way(len as u64).await?;
            self.room().await?;
            for op in 0..self.script.ops.len() {
                self.op(op, &mut slots, step.start, len).await?;
            }
            self.done += 1;
            if self.flow == Flow::Serial {
                self.flush()?;
                self.drained().await?;
            } else if self.done.is_multiple_of(batch) {
                self.flush()?;
            }
        }
        self.flush()
    }

    /// Waits until the scheduled start of the next step.
    async fn turn(&mut self, begun: Instant) -> Result<(), Fault> {
        if !self.interval.is_zero() {
            let due = begun + self.interval.mul_f64(self.done as f64);
            if due > Instant::now() {
                self.flush()?;
                sleep_until(due).await;
            }
        }
        Ok(())
    }

    /// In a background run, lets users go first and keeps the node's limit.
    async fn give_way(&mut self, part_bytes: u64) -> Result<(), Fault> {
        let carried = self.tracker.carried.clone();
        let Some(way) = carried.gives_way() else { return Ok(()) };
        if way.users_wait() {
            self.flush()?;
            way.let_users_go().await;
        }
        if way.is_limited() {
            self.flush()?;
            self.waiting.on(self.waiting.held());
            way.keep_limit(self.moves.map(|parts| parts * part_bytes)).await;
            self.waiting.on(WaitState::SELF);
        }
        Ok(())
    }

    /// Takes room in the queues for the whole next step.
    async fn room(&mut self) -> Result<(), Fault> {
        for i in 0..self.sends.len() {
            if !self.sends[i].has_room() {
                self.flush()?;
                self.waiting.on(1 + self.fetches.len() + i);
                let taken = self.sends[i].take_room().await;
                self.waiting.on(WaitState::SELF);
                taken.ok_or_else(|| self.gone("an outgoing queue"))?;
            }
        }
        for i in 0..self.sinks.len() {
            if !self.sinks[i].has_room() {
                self.flush()?;
                self.sinks[i].take_room().await.ok_or_else(|| self.gone("a sink's queue"))?;
            }
        }
        Ok(())
    }

    /// Waits until all queues are empty.
    async fn drained(&mut self) -> Result<(), Fault> {
        for i in 0..self.sends.len() {
            self.waiting.on(1 + self.fetches.len() + i);
            let left = self.sends[i].drained().await;
            self.waiting.on(WaitState::SELF);
            left.ok_or_else(|| self.gone("an outgoing queue"))?;
        }
        for sink in &mut self.sinks {
            if sink.drained().await.is_none() {
                return Err(self.gone("a sink's queue"));
            }
        }
        Ok(())
    }

    /// Hands on finished work: slices to their queues, free room to the peers, progress to the tracker.
    fn flush(&mut self) -> Result<(), Fault> {
        let sent = self.sends.iter_mut().all(Outlet::flush);
        let kept = self.sinks.iter_mut().all(Outlet::flush);
        if !sent || !kept {
            return Err(self.gone("a queue"));
        }
        self.fetches.iter_mut().for_each(Inlet::give_back);
        if self.sinks.is_empty() {
            self.tracker.advance(self.position, 0, self.done);
        }
        Ok(())
    }

    async fn op(
        &mut self,
        op: usize,
        slots: &mut [Option<Slice>],
        offset: u64,
        len: usize,
    ) -> Result<(), Fault> {
        match &mut self.script.ops[op].kind {
            OpKind::Load { slot, source, .. } => {
                let (slot, source) = (*slot, *source);
                slots[slot] = Some(self.load(source).await?);
            }
            OpKind::Fetch { slot, edge } => {
                let (slot, edge) = (*slot, *edge);
                slots[slot] = Some(self.fetch(edge).await?);
            }
            OpKind::Compute(combine) => {
                let node = self.node;
                combine.run(slots, len).map_err(|error| error.fault(node))?;
            }
            OpKind::Persist { slot, sink, sub } => {
                let at = offset + u64::from(*sub) * len as u64;
                if let Some(slice) = slots[*slot].as_mut().map(Slice::share) {
                    self.sinks[*sink].put(Piece { lane: self.position, offset: at, slice });
                }
            }
        }
        let op = &self.script.ops[op];
        for send in &op.sends {
            if let Some(slice) = slots[send.slot].as_mut().map(Slice::share) {
                self.sends[send.edge].put(Parcel { vertex: send.vertex, offset, slice });
            }
        }
        op.frees.iter().for_each(|slot| slots[*slot] = None);
        Ok(())
    }

    async fn load(&mut self, source: usize) -> Result<Slice, Fault> {
        loop {
            let loads = &mut self.loads[source];
            if let Some(slice) = loads.chunk.next() {
                return Ok(slice);
            }
            if let Some(demand) = &loads.demand {
                demand.add_permits(1);
            }
            let chunk = match loads.queue.try_recv() {
                Ok(chunk) => Some(chunk),
                Err(_) => {
                    self.flush()?;
                    self.loads[source].queue.recv().await
                }
            };
            let Some(chunk) = chunk else { return Err(self.gone("a block's queue")) };
            self.loads[source].chunk = chunk.into_iter();
        }
    }

    async fn fetch(&mut self, edge: usize) -> Result<Slice, Fault> {
        if self.flow == Flow::Serial {
            self.fetches[edge].demand();
        }
        loop {
            if let Some(slice) = self.fetches[edge].next() {
                return Ok(slice);
            }
            self.flush()?;
            self.waiting.on(1 + edge);
            let more = self.fetches[edge].more().await;
            self.waiting.on(WaitState::SELF);
            more.ok_or_else(|| self.gone("an incoming queue"))?;
        }
    }

    /// The other end of a queue fails the run before it closes the queue, so this is never the first fault.
    fn gone(&self, what: &str) -> Fault {
        fault(FaultKind::Io, self.node, format!("{what} ended before the lane did"))
    }
}
