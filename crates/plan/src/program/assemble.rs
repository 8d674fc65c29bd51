//! From a plan to the programs that nodes run. Everything that runs comes through here.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use kintsu_dag::{BlockId, BlockIndex, NodeId, NodeTasks, Sink, Task};

use super::apart::apart;
use crate::{
    BlockBinding, DIGEST_UNKNOWN, Layout, MOST_STEP_BYTES, Peer, Plan, PlanError, Program, RunId, RunMode,
    StripeView, Window,
};

/// What turns a plan into programs: names, sizes and addresses.
#[derive(Clone, Copy)]
pub struct ProgramContext<'a> {
    /// The attempt.
    pub job: RunId,
    /// The stripe that was planned for.
    pub view: &'a StripeView,
    /// Generation of the blocks that are read and written.
    pub generation: u32,
    /// The generation of each block by index, where blocks were updated in place; may be shorter than n, and then
    /// `generation` holds for the rest.
    pub generations: &'a [u32],
    /// The range of bytes of every block to process, as first byte and one past the last; `end` is cut to the
    /// longest block. `0..u64::MAX` means the whole block.
    pub window: (u64, u64),
    /// Bytes in a slice where blocks are not divided into sub-blocks; otherwise a step is a cell of the layout. 0:
    /// the size that suits the plan ([`Plan::slice_bytes`]).
    pub slice_bytes: u32,
    /// For each block index the digest recorded when the block was first written. Applies to blocks that are read
    /// and blocks that are written ([`BlockBinding::expect`]); may be shorter than n.
    pub expect: &'a [Option<[u8; 16]>],
    /// The label for the headers of persisted blocks ([`BlockBinding::label`]); may be empty.
    pub label: &'a [u8],
    /// The data address of a node.
    pub peers: &'a dyn Fn(NodeId) -> Option<SocketAddr>,
    /// See [`Program::resume_key`].
    pub resume_key: u64,
}

impl Plan {
    /// The programs of all lanes and nodes. Slices are dealt to the lanes by share. Where a node takes part in two
    /// independent parts of a lane, each part runs as a lane of its own over the same slices. A plan without tasks
    /// or an empty window gives no programs.
    ///
    /// # Errors
    /// `Invalid` for a window, slice or cell that does not fit, a share of zero, or a node without
    /// an address; `Graph` when a lane does not lower.
    pub fn programs(&self, context: &ProgramContext<'_>) -> Result<Vec<Program>, PlanError> {
        let window = self.window(context)?;
        let mut programs = Vec::new();
        if window.start >= window.end {
            return Ok(programs);
        }
        let (mut phase, mut number) = (0, 0u16);
        for lane in &self.lanes {
            let window = Window { phase, share: lane.share, ..window };
            phase += lane.share;
            for tasks in apart(lane.placed.lower()?) {
                for tasks in tasks {
                    let rate = self.rate_of(lane.share).filter(|_| waits_for_nobody(&tasks));
                    let program = program(context, number, window, tasks)?;
                    programs.push(Program { serial: self.run_mode == RunMode::Serial, rate, ..program });
                }
                number = number.wrapping_add(1);
            }
        }
        Ok(programs)
    }

    /// The window with the period of all lanes.
    fn window(&self, context: &ProgramContext<'_>) -> Result<Window, PlanError> {
        let invalid = |what: &str, expected: String, got: String| {
            Err(PlanError::Invalid { what: what.into(), expected, got })
        };
        let layout = &context.view.layout;
        let w = self.sub_blocks(layout)?;
        let end = context.window.1.min(layout.longest(context.view.code.k()));
        let start = context.window.0.min(end);
        let step_bytes = self.step_bytes(layout, end - start, context.slice_bytes)?;
        let (step, rows) = (u64::from(step_bytes), u64::from(w));
        if step == 0 {
            return invalid("cell size", "at least one byte".into(), format!("{step} bytes"));
        }
        let whole = start.is_multiple_of(step)
            && step.is_multiple_of(rows)
            && ((end - start) % step).is_multiple_of(rows);
        if w > 1 && !whole {
            let expected = format!("a start at a cell of {step} bytes, cells divided by {w}");
            return invalid("window of a code with sub-blocks", expected, format!("{start}..{end}"));
        }
        let shares = self.lanes.iter().try_fold(0u32, |sum, lane| sum.checked_add(lane.share));
        let fits = self.lanes.len() <= usize::from(u16::MAX) && self.lanes.iter().all(|lane| lane.share > 0);
        let Some(period) = shares.filter(|_| fits) else {
            let got = format!("{:?}", self.lanes.iter().map(|lane| lane.share).collect::<Vec<_>>());
            return invalid("shares of the lanes", "each above zero, together below 2^32".into(), got);
        };
        Ok(Window { start, end, step_bytes, w, period: period.max(1), phase: 0, share: period.max(1) })
    }

    /// Bytes of a block in one step of a window of `window_bytes`. This is `slice_bytes`, or the size that suits
    /// the plan if `slice_bytes` is 0. Where blocks are divided into sub-blocks it is a cell. For a plan that
    /// moves whole blocks it is the window, or as much of the window as fits into a frame.
    ///
    /// # Errors
    /// `Invalid` for graphs that do not fit the layout; `Graph` when a lane does not lower.
    pub fn step_bytes(&self, layout: &Layout, window_bytes: u64, slice_bytes: u32) -> Result<u32, PlanError> {
        match (self.sub_blocks(layout)?, self.run_mode, slice_bytes) {
            (1, RunMode::WholeBlocks, _) => Ok(window_bytes.clamp(1, MOST_STEP_BYTES.into()) as u32),
            (1, _, 0) => self.slice_bytes(window_bytes),
            (1, _, given) => Ok(given),
            _ => Ok(layout.cell_bytes),
        }
    }

    /// Into how many parts the vertices divide a block: the sub-blocks of the layout, or 1 where whole blocks are
    /// moved.
    fn sub_blocks(&self, layout: &Layout) -> Result<u16, PlanError> {
        let w = self.lanes.first().map_or(1, |lane| lane.placed.graph.w());
        let other = self.lanes.iter().map(|lane| lane.placed.graph.w()).find(|other| *other != w);
        if other.is_some() || (w != 1 && w != usize::from(layout.w)) {
            return Err(PlanError::Invalid {
                what: "sub-blocks of the graphs".into(),
                expected: format!("1 or {} in all lanes", layout.w),
                got: other.unwrap_or(w).to_string(),
            });
        }
        Ok(w as u16)
    }
}

fn program(
    context: &ProgramContext<'_>,
    lane: u16,
    window: Window,
    tasks: NodeTasks,
) -> Result<Program, PlanError> {
    let NodeTasks { node, tasks, sends } = tasks;
    let mut others: BTreeSet<NodeId> = sends.iter().map(|(_, to)| *to).collect();
    let mut touched: Vec<(BlockIndex, bool)> = Vec::new();
    for task in &tasks {
        match task {
            Task::Fetch { from, .. } => {
                others.insert(*from);
            }
            Task::Load { vertex } => touched.push((window.block_of(*vertex), false)),
            Task::Persist { vertex, sink } => {
                touched.push((window.block_of(*vertex), *sink == Sink::Block));
            }
            Task::Compute { .. } => {}
        }
    }
    // Written blocks first: a block that is loaded and written here is bound as written.
    touched.sort_by_key(|(block, written)| (*block, !*written));
    touched.dedup_by_key(|(block, _)| *block);
    others.remove(&NodeId::CLIENT);
    others.remove(&node);
    let peer = |node: NodeId| match (context.peers)(node) {
        Some(data) => Ok(Peer { node, data }),
        None => Err(PlanError::Invalid {
            what: format!("data address of {node}"),
            expected: "a known one".into(),
            got: "none".into(),
        }),
    };
    Ok(Program {
        job: context.job,
        lane,
        node,
        window,
        tasks,
        sends,
        blocks: touched.into_iter().map(|(block, written)| binding(context, block, written)).collect(),
        peers: others.into_iter().map(peer).collect::<Result<_, _>>()?,
        resume_key: context.resume_key,
        serial: false,
        rate: None,
    })
}

fn waits_for_nobody(tasks: &NodeTasks) -> bool {
    !tasks.tasks.iter().any(|task| matches!(task, Task::Fetch { .. }))
}

fn binding(context: &ProgramContext<'_>, index: BlockIndex, written: bool) -> BlockBinding {
    let recorded = context.expect.get(usize::from(index.0)).copied().flatten();
    let expect = recorded.filter(|digest| *digest != DIGEST_UNKNOWN);
    BlockBinding {
        index,
        id: BlockId { stripe: context.view.id, index },
        generation: context.generations.get(usize::from(index.0)).copied().unwrap_or(context.generation),
        len: context.view.block_len(index),
        unit_bytes: context.view.layout.unit_bytes(),
        expect,
        label: if written { context.label.to_vec() } else { Vec::new() },
        next: None,
        replica: false,
    }
}
