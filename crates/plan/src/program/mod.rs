//! Plans (placed graphs with shares of the slices) and programs (what one node runs of a plan).
//!
//! - `proved`: the only way to a [`Plan`]; `assemble`: the only way from there to programs; `apart`: separates the parts of
//!   a plan that are independent of each other;
//! - `predict`: what a plan moves, and how long its busiest link takes;
//! - `slice_size` and `rate_limit`: the size of a slice, and how fast slices may start.

mod apart;
mod assemble;
mod predict;
mod proved;
mod rate_limit;
mod slice_size;

use std::net::SocketAddr;
use std::num::NonZeroU64;

use kintsu_dag::{BlockId, BlockIndex, NodeId, Task, Vertex};
use serde::{Deserialize, Serialize};

pub use assemble::ProgramContext;
pub use predict::predicted;
pub use proved::Proved;
pub(crate) use proved::{carried, proved, proved_update};
pub(crate) use rate_limit::PAYLOAD;
pub use slice_size::slice_bytes;

/// The id of one attempt at one operation, at random. It names the streams between the nodes and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub u64);

impl std::fmt::Display for RunId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One proved graph with its places, and its share of the slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// The graph and its places.
    pub placed: Proved,
    /// Weight of this lane among the plan's lanes: slices are divided in proportion.
    pub share: u32,
}

/// How a plan is run. All but the default exist only as baselines for comparison (ECPipe, section 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RunMode {
    /// In slices; a node overlaps all its tasks.
    #[default]
    Streamed,
    /// In slices; a node does one task after the other: receive, read, compute, send (Pipe-S).
    Serial,
    /// One slice for the whole block, or the largest that fits into a frame, [`MOST_STEP_BYTES`] (Pipe-B).
    WholeBlocks,
}

/// The longest step. Each step of a block without sub-blocks is sent as one frame, and this is the most that a
/// frame may carry (`kintsu_wire::frame::MAX_PAYLOAD_BYTES`; a test there checks that the two are equal).
pub const MOST_STEP_BYTES: u32 = 64 << 20;

/// One or more lanes over the same stripe: star, tree, chain, or several of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The lanes; the slices are divided among them by share.
    pub lanes: Vec<Lane>,
    /// How the plan is run.
    pub run_mode: RunMode,
    /// The rate that the plan's busiest link can carry, in bytes of each block a second; `None` where no rates are
    /// known.
    pub rate: Option<NonZeroU64>,
    /// The lower rate at which plans that share links, and run all at once, end together; `None` for a plan alone.
    pub paced: Option<NonZeroU64>,
    /// Whether nodes that wait for no other node are limited to the rate of the links ([`Plan::rate_limit`]);
    /// otherwise they start slices as fast as these leave. Only for streamed plans.
    pub rate_limited: bool,
}

impl Plan {
    /// A plan of these lanes, streamed.
    pub fn new(lanes: Vec<Lane>) -> Self {
        Self { lanes, run_mode: RunMode::default(), rate: None, paced: None, rate_limited: false }
    }
}

/// Which bytes of the blocks a program processes, and in what steps.
///
/// Step t covers bytes `[start + t * step_bytes, min(.., end))` of every block; a vertex (sub-block
/// s of w) covers the s-th w-th part of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First byte of every block.
    pub start: u64,
    /// One past the last byte; at most the length of the longest block.
    pub end: u64,
    /// Bytes of a block in one step: the slice for w = 1, the cell for w > 1. A multiple of w.
    pub step_bytes: u32,
    /// Sub-blocks in a block.
    pub w: u16,
    /// This lane runs the steps t with `t % period` in `[phase, phase + share)`.
    pub period: u32,
    /// See `period`.
    pub phase: u32,
    /// See `period`.
    pub share: u32,
}

impl Window {
    /// A window of a single lane.
    pub fn whole(start: u64, end: u64, step_bytes: u32, w: u16) -> Self {
        Self { start, end, step_bytes, w, period: 1, phase: 0, share: 1 }
    }

    /// The block that a symbol is part of.
    pub fn block_of(&self, symbol: Vertex) -> BlockIndex {
        BlockIndex((symbol.0 / u32::from(self.w.max(1))) as u8)
    }

    /// The steps of this lane, as byte ranges of a block, in order. Finding the next one costs the same for every window.
    pub fn steps(&self) -> impl Iterator<Item = std::ops::Range<u64>> + use<> {
        let w = *self;
        let step = u64::from(w.step_bytes.max(1));
        let count = w.end.saturating_sub(w.start).div_ceil(step);
        let (period, phase, share) = (u64::from(w.period.max(1)), u64::from(w.phase), u64::from(w.share));
        let periods = if share == 0 { 0 } else { count.div_ceil(period) };
        let ours = (0..periods).flat_map(move |nth| (phase..phase + share).map(move |at| nth * period + at));
        ours.take_while(move |t| *t < count).map(move |t| {
            let from = w.start + t * step;
            from..from.saturating_add(step).min(w.end)
        })
    }
}

/// A digest that means "unknown": no comparison is made.
pub const DIGEST_UNKNOWN: [u8; 16] = [0; 16];

/// Binds the symbols of one block of the graph to a stored block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockBinding {
    /// Position in the stripe: symbols `index * w ..` are this block's.
    pub index: BlockIndex,
    /// Which block.
    pub id: BlockId,
    /// The generation that must be read, or that is written.
    pub generation: u32,
    /// Its true length: reads beyond give zeros, writes beyond are dropped.
    pub len: u64,
    /// Bytes under one checksum when the block is written. A block that is read states its own.
    pub unit_bytes: u32,
    /// The digest recorded when the block was first written. A persisted block with another digest is never made
    /// visible, and a loaded block with another recorded digest is not read. `None` where no digest is known, as
    /// for a first write.
    pub expect: Option<[u8; 16]>,
    /// A label for the header of a persisted block, besides its identity. Opaque here and to the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<u8>,
    /// The block takes part in an update to this generation: what is loaded is its delta, and what is persisted
    /// ([`kintsu_dag::Sink::BlockXor`]) is added to `generation` and becomes a version of the block beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// The block is not on this node: its delta is made of replicas of its updates, and of what they replace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replica: bool,
}

/// The address of a node's data listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The node.
    pub node: NodeId,
    /// Its data address.
    pub data: SocketAddr,
}

/// The part of one lane that one node runs, as one stream, step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The attempt.
    pub job: RunId,
    /// The lane of the plan.
    pub lane: u16,
    /// The node that runs it.
    pub node: NodeId,
    /// The bytes and steps.
    pub window: Window,
    /// The tasks, ordered so that the inputs of each are ready before it.
    pub tasks: Vec<Task>,
    /// The vertices that other nodes fetch from this node, in task order.
    pub sends: Vec<(Vertex, NodeId)>,
    /// The blocks that its `Load` and `Persist` tasks touch.
    pub blocks: Vec<BlockBinding>,
    /// The data addresses of the nodes it sends to or fetches from (not of the client).
    pub peers: Vec<Peer>,
    /// Identifies attempts of the same repair: an unfinished block that an earlier attempt left under this key is
    /// continued from `window.start`. Zero: nothing is continued.
    pub resume_key: u64,
    /// Handles one slice at a time, and for each slice one task at a time: receive, read, compute, send. No
    /// queues, no read-ahead. For comparison only (ECPipe, section 6.4, Pipe-S).
    #[serde(default)]
    pub serial: bool,
    /// Upper limit on the rate at which the steps of this lane start, in bytes of a block a second. `None`: no
    /// limit.
    #[serde(default)]
    pub rate: Option<NonZeroU64>,
}
