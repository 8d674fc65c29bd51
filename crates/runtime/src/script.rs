//! A program checked and prepared: vertices become slots, and everything that is the same for
//! every step is settled before the first.
//!
//! A script from [`Script::new`] needs no further checks: each slot is filled before it is used and emptied after
//! its last use; every block and peer is known; every vertex is sent as soon as it and the earlier ones for the
//! same receiver are computed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use kintsu_dag::{NodeId, Sink, Task, Vertex};
use kintsu_plan::{BlockBinding, Program, Window};
use kintsu_wire::frame::MAX_PAYLOAD_BYTES;
use kintsu_wire::message::Fault;

use crate::combine::Combine;
use crate::fault::invalid;

/// A program ready to run.
#[derive(Debug)]
pub(crate) struct Script {
    pub window: Window,
    pub ops: Vec<Op>,
    /// Number of slots for vertices.
    pub slots: usize,
    pub sources: Vec<Source>,
    pub sinks: Vec<Persisted>,
    pub fetches: Vec<Edge>,
    pub sends: Vec<Edge>,
}

/// One task, and what happens to its outputs.
#[derive(Debug)]
pub(crate) struct Op {
    pub kind: OpKind,
    /// What can be sent once it is done.
    pub sends: Vec<Send>,
    /// Slots that no later task uses.
    pub frees: Vec<usize>,
}

/// What a task does, in slots and positions in the script's lists.
#[derive(Debug)]
pub(crate) enum OpKind {
    Load { slot: usize, source: usize, sub: u16 },
    Fetch { slot: usize, edge: usize },
    Compute(Combine),
    Persist { slot: usize, sink: usize, sub: u16 },
}

/// A vertex for an outgoing edge.
#[derive(Debug)]
pub(crate) struct Send {
    pub slot: usize,
    pub edge: usize,
    pub vertex: Vertex,
}

/// A block that is read, and which of its sub-blocks, in order.
#[derive(Debug)]
pub(crate) struct Source {
    pub binding: BlockBinding,
    pub subs: Vec<u16>,
}

/// A block that is written, and how many of its sub-blocks.
#[derive(Debug)]
pub(crate) struct Persisted {
    pub binding: BlockBinding,
    pub sink: Sink,
    pub subs: usize,
}

/// A peer and the vertices of one step, in order.
#[derive(Debug)]
pub(crate) struct Edge {
    pub peer: NodeId,
    pub vertices: Vec<Vertex>,
    /// Where the peer listens, if it is we who connect.
    pub connect: Option<SocketAddr>,
}

/// Bytes of one vertex in a step of `step_bytes`.
pub(crate) fn part_bytes(window: &Window, step_bytes: u64) -> usize {
    step_bytes.div_ceil(u64::from(window.w.max(1))) as usize
}

impl Script {
    /// How many parts a step sends, receives and reads.
    pub fn moves(&self) -> [u64; 3] {
        let parts = |edges: &[Edge]| edges.iter().map(|edge| edge.vertices.len() as u64).sum();
        let read = self.sources.iter().map(|source| source.subs.len() as u64).sum();
        [parts(&self.sends), parts(&self.fetches), read]
    }

    /// Checks and prepares a program.
    ///
    /// # Errors
    /// An `Invalid` fault that says what is wrong.
    pub fn new(program: &Program) -> Result<Self, Fault> {
        check_window(program)?;
        let mut writer = ScriptBuilder::new(program);
        for task in &kintsu_dag::fuse(&program.tasks) {
            writer.task(task)?;
        }
        writer.schedule_sends()?;
        writer.schedule_frees();
        Ok(writer.script)
    }
}

/// Most steps of a window: those of 1 byte of the longest blocks.
const MOST_STEPS: u64 = 1 << 32;

fn check_window(program: &Program) -> Result<(), Fault> {
    let w = &program.window;
    let wrong = |expected: &str| Err(invalid(program.node, "window", expected, format!("{w:?}")));
    if w.start > w.end || w.end > u64::MAX / 4 {
        return wrong("start <= end < 2^62");
    }
    if w.w == 0 || w.step_bytes == 0 || !w.step_bytes.is_multiple_of(u32::from(w.w)) {
        return wrong("a step that is a multiple of w, both above 0");
    }
    if (w.end - w.start).div_ceil(u64::from(w.step_bytes)) > MOST_STEPS {
        return wrong("at most 2^32 steps");
    }
    if part_bytes(w, u64::from(w.step_bytes)) > MAX_PAYLOAD_BYTES {
        return wrong("slices of at most 64 MiB");
    }
    if w.share == 0 || u64::from(w.phase) + u64::from(w.share) > u64::from(w.period) {
        return wrong("a share above 0, and phase + share within the period");
    }
    Ok(())
}

/// A script under construction.
struct ScriptBuilder<'a> {
    program: &'a Program,
    script: Script,
    slot_of: BTreeMap<Vertex, usize>,
    /// The op that fills each slot.
    filled_by: Vec<usize>,
    persisted: BTreeSet<Vertex>,
}

impl<'a> ScriptBuilder<'a> {
    fn new(program: &'a Program) -> Self {
        let script = Script {
            window: program.window,
            ops: Vec::with_capacity(program.tasks.len()),
            slots: 0,
            sources: Vec::new(),
            sinks: Vec::new(),
            fetches: Vec::new(),
            sends: Vec::new(),
        };
        Self { program, script, slot_of: BTreeMap::new(), filled_by: Vec::new(), persisted: BTreeSet::new() }
    }

    fn task(&mut self, task: &Task) -> Result<(), Fault> {
        let kind = match task {
            Task::Load { vertex } => {
                let (binding, sub) = self.binding(*vertex)?;
                let index = binding.index;
                let source = position(
                    &mut self.script.sources,
                    |s| s.binding.index == index,
                    || Source { binding, subs: Vec::new() },
                );
                self.script.sources[source].subs.push(sub);
                OpKind::Load { slot: self.fill(*vertex)?, source, sub }
            }
            Task::Fetch { vertex, from } => {
                let connect = self.peer(*from)?.filter(|_| self.program.node.is_client());
                let edge = position(
                    &mut self.script.fetches,
                    |e| e.peer == *from,
                    || Edge { peer: *from, vertices: Vec::new(), connect },
                );
                self.script.fetches[edge].vertices.push(*vertex);
                OpKind::Fetch { slot: self.fill(*vertex)?, edge }
            }
            Task::Compute { outputs, inputs, coefs } => {
                let inputs = inputs.iter().map(|v| self.slot(*v)).collect::<Result<Vec<_>, _>>()?;
                let outputs = outputs.iter().map(|v| self.fill(*v)).collect::<Result<Vec<_>, _>>()?;
                let wrong = |error| {
                    invalid(self.program.node, "compute", "a coefficient for each output and input", error)
                };
                OpKind::Compute(Combine::new(inputs, outputs, coefs).map_err(wrong)?)
            }
            Task::Persist { vertex, sink } => {
                let (binding, sub) = self.binding(*vertex)?;
                if !self.persisted.insert(*vertex) {
                    return Err(self.wrong("persist", "each vertex once", vertex));
                }
                let slot = self.slot(*vertex)?;
                let index = binding.index;
                let at = position(
                    &mut self.script.sinks,
                    |s| s.binding.index == index,
                    || Persisted { binding, sink: *sink, subs: 0 },
                );
                if self.script.sinks[at].sink != *sink {
                    return Err(self.wrong("persist", "one sink for a block", format!("{sink:?}, too")));
                }
                self.script.sinks[at].subs += 1;
                OpKind::Persist { slot, sink: at, sub }
            }
        };
        self.script.ops.push(Op { kind, sends: Vec::new(), frees: Vec::new() });
        Ok(())
    }

    /// Assigns each send to the op after which it can go.
    fn schedule_sends(&mut self) -> Result<(), Fault> {
        let (mut ready, mut seen) = (BTreeMap::new(), BTreeSet::new());
        for (vertex, to) in &self.program.sends {
            let slot = self.slot(*vertex)?;
            let connect = self.peer(*to)?;
            let edge = position(
                &mut self.script.sends,
                |e| e.peer == *to,
                || Edge { peer: *to, vertices: Vec::new(), connect },
            );
            if !seen.insert((*vertex, *to)) {
                return Err(self.wrong("send", format!("{vertex} once to {to}"), "twice"));
            }
            self.script.sends[edge].vertices.push(*vertex);
            // Not before the previous send on the same edge.
            let after = ready.entry(edge).or_insert(0);
            *after = self.filled_by[slot].max(*after);
            self.script.ops[*after].sends.push(Send { slot, edge, vertex: *vertex });
        }
        Ok(())
    }

    /// For every slot, makes the last op that uses it empty the slot, or write its output there.
    fn schedule_frees(&mut self) {
        let mut last = self.filled_by.clone();
        for (at, op) in self.script.ops.iter().enumerate() {
            let uses: &[usize] = match &op.kind {
                OpKind::Compute(combine) => combine.inputs(),
                OpKind::Persist { slot, .. } => std::slice::from_ref(slot),
                _ => &[],
            };
            let sent = op.sends.iter().map(|send| &send.slot);
            uses.iter().chain(sent).for_each(|slot| last[*slot] = at);
        }
        for (slot, at) in last.iter().enumerate() {
            self.script.ops[*at].frees.push(slot);
        }
        for (at, op) in self.script.ops.iter_mut().enumerate() {
            if let OpKind::Compute(combine) = &mut op.kind {
                let sent = |slot| op.sends.iter().any(|send| send.slot == slot);
                combine.may_overwrite(|slot| last[slot] == at && !sent(slot));
            }
        }
    }

    fn fill(&mut self, vertex: Vertex) -> Result<usize, Fault> {
        let slot = self.script.slots;
        if self.slot_of.insert(vertex, slot).is_some() {
            return Err(self.wrong("tasks", format!("{vertex} made once"), "twice"));
        }
        self.script.slots += 1;
        self.filled_by.push(self.script.ops.len());
        Ok(slot)
    }

    fn slot(&self, vertex: Vertex) -> Result<usize, Fault> {
        let slot = self.slot_of.get(&vertex).copied();
        slot.ok_or_else(|| self.wrong("tasks", format!("{vertex} made before it is used"), "nothing"))
    }

    fn binding(&self, vertex: Vertex) -> Result<(BlockBinding, u16), Fault> {
        let w = u32::from(self.program.window.w);
        let (block, sub) = (vertex.0 / w, (vertex.0 % w) as u16);
        let found = self.program.blocks.iter().find(|b| u32::from(b.index.0) == block);
        let binding =
            found.ok_or_else(|| self.wrong("blocks", format!("one for symbol {vertex}"), "none"))?;
        Ok((binding.clone(), sub))
    }

    /// Where a peer listens; `None` for a client.
    fn peer(&self, peer: NodeId) -> Result<Option<SocketAddr>, Fault> {
        if peer == self.program.node {
            return Err(self.wrong("peer", "another node", peer));
        }
        let listens = self.program.peers.iter().find(|p| p.node == peer).map(|p| p.data);
        if listens.is_none() && !peer.is_client() {
            return Err(self.wrong("peers", format!("an address of {peer}"), "none"));
        }
        Ok(listens.filter(|_| !peer.is_client()))
    }

    fn wrong(&self, what: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Fault {
        let what = format!("{what} of job {} lane {}", self.program.job, self.program.lane);
        invalid(self.program.node, what, expected, got)
    }
}

/// The position of the first item that fits; adds one if none does.
fn position<T>(list: &mut Vec<T>, fits: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    list.iter().position(fits).unwrap_or_else(|| {
        list.push(new());
        list.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, BlockIndex, StripeId};
    use kintsu_plan::{Peer, RunId};

    /// Fetches v0 from 1, loads v1, computes v2 = v0 + 3 v1 and v9 = v2 + v0, persists v2, sends v9
    /// and v1 to 7.
    fn program() -> Program {
        let block = |index: u8| BlockBinding {
            index: BlockIndex(index),
            id: BlockId { stripe: StripeId(1), index: BlockIndex(index) },
            generation: 1,
            len: 100,
            unit_bytes: 65536,
            expect: None,
            label: Vec::new(),
            next: None,
            replica: false,
        };
        let peer = |node: u32| Peer { node: NodeId(node), data: ([127, 0, 0, 1], 9).into() };
        let v = Vertex;
        Program {
            job: RunId(1),
            lane: 0,
            node: NodeId(5),
            window: Window::whole(0, 100, 10, 1),
            tasks: vec![
                Task::Fetch { vertex: v(0), from: NodeId(1) },
                Task::Load { vertex: v(1) },
                Task::Compute { outputs: vec![v(2)], inputs: vec![v(0), v(1)], coefs: vec![1, 3] },
                Task::Compute { outputs: vec![v(9)], inputs: vec![v(2), v(0)], coefs: vec![1, 1] },
                Task::Persist { vertex: v(2), sink: Sink::Block },
            ],
            sends: vec![(v(9), NodeId(7)), (v(1), NodeId(7))],
            blocks: vec![block(1), block(2)],
            peers: vec![peer(1), peer(7)],
            resume_key: 0,
            serial: false,
            rate: None,
        }
    }

    fn refused(change: impl Fn(&mut Program), reason: &str) {
        let mut changed = program();
        change(&mut changed);
        let fault = Script::new(&changed).unwrap_err();
        assert_eq!(fault.node, NodeId(5));
        assert!(fault.detail.contains(reason), "{reason}: {}", fault.detail);
    }

    #[test]
    fn slots_are_freed_after_their_last_use_and_sends_keep_their_order() {
        let script = Script::new(&program()).unwrap();
        // Slots in order of filling: v0, v1, v2, v9.
        let frees: Vec<_> = script.ops.iter().map(|op| op.frees.clone()).collect();
        assert_eq!(frees, [vec![], vec![], vec![], vec![0, 1, 3], vec![2]]);
        let sends: Vec<Vec<_>> =
            script.ops.iter().map(|op| op.sends.iter().map(|send| send.vertex.0).collect()).collect();
        assert_eq!(sends, [vec![], vec![], vec![], vec![9, 1], vec![]]);
    }

    #[test]
    fn programs_that_make_no_sense_are_refused() {
        Script::new(&program()).unwrap();
        refused(|p| p.window.step_bytes = 0, "window");
        refused(|p| p.window.w = 0, "window");
        refused(|p| p.window.w = 3, "a multiple of w");
        refused(|p| p.window.start = 101, "start <= end");
        refused(|p| p.window.step_bytes = u32::MAX, "64 MiB");
        refused(|p| p.window.period = 0, "period");
        refused(|p| p.window.share = 0, "period");
        refused(|p| (p.window.end, p.window.step_bytes) = ((1 << 32) + 1, 1), "2^32 steps");
        refused(|p| p.window.phase = 1, "period");
        refused(|p| p.tasks.push(p.tasks[1].clone()), "made once");
        refused(|p| p.tasks.swap(0, 2), "made before it is used");
        refused(|p| p.tasks.push(p.tasks[4].clone()), "each vertex once");
        refused(|p| p.blocks.truncate(1), "one for symbol v2");
        refused(|p| p.peers.truncate(1), "an address of N7");
        refused(|p| p.sends.push((Vertex(44), NodeId(7))), "made before it is used");
        refused(|p| p.sends.push((Vertex(9), NodeId(7))), "twice");
        refused(|p| p.sends.push((Vertex(9), NodeId(5))), "another node");
        let wrong = Task::Compute { outputs: vec![Vertex(3)], inputs: vec![Vertex(0)], coefs: vec![1, 2] };
        refused(|p| p.tasks.push(wrong.clone()), "coefficient");
    }

    #[test]
    fn it_is_the_client_who_connects() {
        let mut client = program();
        client.node = NodeId::CLIENT;
        let script = Script::new(&client).unwrap();
        assert!(script.fetches[0].connect.is_some() && script.sends[0].connect.is_some());
        let mut agent = program();
        agent.sends = vec![(Vertex(9), NodeId::CLIENT)];
        let script = Script::new(&agent).unwrap();
        assert!(script.fetches[0].connect.is_none() && script.sends[0].connect.is_none());
    }
}
