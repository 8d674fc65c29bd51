//! Plans (placed graphs with shares of the slices) and programs (what one node runs of a plan).

use std::net::SocketAddr;
use std::num::NonZeroU64;

use kintsu_dag::{BlockId, BlockIndex, NodeId, Task, Vertex};
use serde::{Deserialize, Serialize};

use crate::Proved;

/// One attempt at one operation: names the streams between its nodes. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u64);

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// One proved graph with its places, and its share of the slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// The graph and its places.
    pub placed: Proved,
    /// Weight of this lane among the plan's lanes: slices are dealt in proportion.
    pub share: u32,
}

/// How a plan is run. All but the default are there to be compared with (ECPipe, section 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// In slices, with everything that a node does overlapped.
    #[default]
    Streamed,
    /// In slices, and on each node one thing after the other: receive, read, compute, send (Pipe-S).
    Serial,
    /// A whole block is a slice, as far as one goes into a frame: [`MOST_STEP_BYTES`] (Pipe-B).
    WholeBlocks,
}

/// A step cannot be longer: a block that is not divided goes step by step into one frame of the wire each, and this is
/// the most that a frame may carry (`kintsu_wire::frame::MAX_PAYLOAD_BYTES`, where a test holds the two together).
pub const MOST_STEP_BYTES: u32 = 64 << 20;

/// One or more lanes over the same stripe: star, tree, chain, or several of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The lanes; slices are divided among them by share.
    pub lanes: Vec<Lane>,
    /// How it is run.
    pub pace: Pace,
    /// Bytes of each block a second that its busiest link can carry, as far as rates are known.
    pub rate: Option<NonZeroU64>,
    /// Whether nodes that wait for no other begin their slices no faster than the links carry them on
    /// ([`Plan::held_rate`]); else as fast as their slices leave. For plans that are streamed.
    pub held: bool,
}

impl Plan {
    /// A plan of these lanes, streamed.
    pub fn new(lanes: Vec<Lane>) -> Self {
        Self { lanes, pace: Pace::default(), rate: None, held: false }
    }
}

/// Which bytes of the blocks a program goes through, and in what steps.
///
/// Step t covers bytes `[start + t * step_bytes, min(.., end))` of every block; a vertex (sub-block
/// s of w) covers the s-th w-th part of each step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// First byte of every block.
    pub start: u64,
    /// One past the last byte; the longest block's length at most.
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

    /// The steps of this lane, as byte ranges of a block, in order.
    pub fn steps(&self) -> impl Iterator<Item = std::ops::Range<u64>> + use<> {
        let w = *self;
        let step = u64::from(w.step_bytes.max(1));
        let count = w.end.saturating_sub(w.start).div_ceil(step);
        let ours = move |t: &u64| {
            let at = (*t % u64::from(w.period.max(1))) as u32;
            at >= w.phase && at - w.phase < w.share
        };
        (0..count).filter(ours).map(move |t| {
            let from = w.start + t * step;
            from..(from + step).min(w.end)
        })
    }
}

/// A digest that stands for none: what it is recorded for is not compared.
pub const DIGEST_UNKNOWN: [u8; 16] = [0; 16];

/// Ties the symbols of one block to a real block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockBinding {
    /// Position in the stripe: symbols `index * w ..` are this block's.
    pub index: BlockIndex,
    /// Which block.
    pub id: BlockId,
    /// Which generation of it must be read, or is written.
    pub generation: u32,
    /// Its true length: reads beyond give zeros, writes beyond are dropped.
    pub len: u64,
    /// Bytes under one checksum, when it is written; a block that is read says so itself.
    pub unit_bytes: u32,
    /// The digest recorded when the block was first written. A persisted block that differs is never made visible; one
    /// that is loaded and differs is not read. None where it is not known, as for a first write.
    pub expect: Option<[u8; 16]>,
    /// When persisted: what the block's header is to say besides its identity. Opaque here and for the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub label: Vec<u8>,
}

/// Where the data listener of a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The node.
    pub node: NodeId,
    /// Its data address.
    pub data: SocketAddr,
}

/// What one node runs of one lane of a plan, as one stream, step by step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The attempt.
    pub job: JobId,
    /// The lane of the plan.
    pub lane: u16,
    /// Who runs it.
    pub node: NodeId,
    /// Which bytes, in what steps.
    pub window: Window,
    /// The tasks, in an order in which each finds its inputs.
    pub tasks: Vec<Task>,
    /// What others fetch from this node, in task order.
    pub sends: Vec<(Vertex, NodeId)>,
    /// The blocks that its `Load` and `Persist` tasks touch.
    pub blocks: Vec<BlockBinding>,
    /// The data addresses of the nodes it sends to or fetches from (not of the client).
    pub peers: Vec<Peer>,
    /// Joins the attempts of one repair: a block left unfinished under this key by an
    /// earlier attempt is continued from `window.start`. Zero: none.
    pub resume_key: u64,
    /// One slice after the other, and for each one thing after the other: receive, read, compute, send, with
    /// no queue and nothing read ahead. For comparison only (ECPipe, section 6.4, Pipe-S).
    #[serde(default)]
    pub serial: bool,
    /// Bytes of a block a second, in the steps of this lane, no faster than which the steps begin; none: as fast as
    /// they can.
    #[serde(default)]
    pub rate: Option<NonZeroU64>,
}
