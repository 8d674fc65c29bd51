//! The executor of one lane: step by step, and within a step task by task, in the order of the
//! program.
//!
//! Why lanes and nodes never wait for each other in a circle: all task lists are parts of one
//! order (`kintsu_dag::Placed::lower`). A lane waits for room in its queues only between steps, for all
//! that the step will put there, so within a step it waits only for what comes earlier in that
//! order; and among the nodes that are at the earliest step, the one earliest in the order can go on.

use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::{Semaphore, mpsc};

use crate::fault::fault;
use crate::script::{OpKind, Script, part_bytes};
use crate::send::Parcel;
use crate::sink::Piece;
use crate::slice::Slice;
use crate::verdict::{Tracker, Verdict, Waiting};

/// Slices read ahead of one block.
pub(crate) struct Loads {
    pub queue: mpsc::Receiver<Vec<Slice>>,
    pub chunk: std::vec::IntoIter<Slice>,
}

/// A queue whose room is taken a step at a time.
pub(crate) struct Outlet<T> {
    pub queue: mpsc::UnboundedSender<T>,
    pub room: Arc<Semaphore>,
    /// What one step puts into it.
    pub items: u32,
}

/// One lane of a run.
pub(crate) struct Lane {
    pub node: NodeId,
    /// Its position in the run.
    pub position: usize,
    pub script: Script,
    pub loads: Vec<Loads>,
    pub fetches: Vec<mpsc::Receiver<Slice>>,
    pub sends: Vec<Outlet<Parcel>>,
    pub sinks: Vec<Outlet<Piece>>,
    pub verdict: Arc<Verdict>,
    pub waiting: Arc<Waiting>,
    pub tracker: Arc<Tracker>,
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
        let mut slots: Vec<Option<Slice>> = vec![None; self.script.slots];
        let window = self.script.window;
        for (done, step) in window.steps().enumerate() {
            self.room().await?;
            let len = part_bytes(&window, step.end - step.start);
            for op in 0..self.script.ops.len() {
                self.op(op, &mut slots, step.start, len).await?;
            }
            if self.sinks.is_empty() {
                self.tracker.advance(self.position, 0, done as u64 + 1);
            }
        }
        Ok(())
    }

    /// Takes room for all that one step puts into the queues.
    async fn room(&self) -> Result<(), Fault> {
        for (i, outlet) in self.sends.iter().enumerate() {
            self.waiting.on(1 + self.fetches.len() + i);
            outlet.take_step().await.ok_or_else(|| self.gone("an outgoing queue"))?;
        }
        self.waiting.on(Waiting::SELF);
        for outlet in &self.sinks {
            outlet.take_step().await.ok_or_else(|| self.gone("a sink's queue"))?;
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
                self.waiting.on(1 + edge);
                let slice = self.fetches[edge].recv().await;
                self.waiting.on(Waiting::SELF);
                slots[slot] = Some(slice.ok_or_else(|| self.gone("an incoming queue"))?);
            }
            OpKind::Compute(combine) => {
                let node = self.node;
                combine
                    .run(slots, len)
                    .map_err(|error| fault(FaultKind::Invalid, node, error.to_string()))?;
            }
            OpKind::Persist { slot, sink, sub } => {
                let at = offset + u64::from(*sub) * len as u64;
                if let Some(slice) = slots[*slot].clone() {
                    let piece = Piece { lane: self.position, offset: at, slice };
                    let sent = self.sinks[*sink].queue.send(piece);
                    sent.map_err(|_| self.gone("a sink's queue"))?;
                }
            }
        }
        let op = &self.script.ops[op];
        for send in &op.sends {
            if let Some(slice) = slots[send.slot].clone() {
                let sent = self.sends[send.edge].queue.send(Parcel { vertex: send.vertex, offset, slice });
                sent.map_err(|_| self.gone("an outgoing queue"))?;
            }
        }
        op.frees.iter().for_each(|slot| slots[*slot] = None);
        Ok(())
    }

    async fn load(&mut self, source: usize) -> Result<Slice, Fault> {
        loop {
            if let Some(slice) = self.loads[source].chunk.next() {
                return Ok(slice);
            }
            match self.loads[source].queue.recv().await {
                Some(chunk) => self.loads[source].chunk = chunk.into_iter(),
                None => return Err(self.gone("a block's queue")),
            }
        }
    }

    /// A queue's other end fails the run before it goes, so this is never the first fault.
    fn gone(&self, what: &str) -> Fault {
        fault(FaultKind::Io, self.node, format!("{what} ended before the lane did"))
    }
}

impl<T> Outlet<T> {
    async fn take_step(&self) -> Option<()> {
        self.room.acquire_many(self.items).await.ok()?.forget();
        Some(())
    }
}
