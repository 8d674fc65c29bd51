//! The pieces that experiments are made of.

use std::ops::RangeInclusive;

use kintsu_dag::NodeId;
use kintsu_lab::{Rate, Spec};
use kintsu_plan::{Method, RunMode, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{Case, Point, Recover, Scene, Slice, Value, Work};
use super::super::sweep::Sweep;
use super::Size;
use crate::error::Result;

/// ECPipe's slice size.
pub const PAPER_SLICE_BYTES: u32 = 32 << 10;

/// Slices that baselines of whole nodes try beside automatic ones.
pub const LARGE_SLICE: Slice = Slice::Bytes(256 << 10);

/// The code of most of the experiments.
pub const RS_14_10: &str = "rs:n=14,k=10";

/// Where a figure differs from ECPipe's, if nowhere else.
pub const IN_MEMORY: &str = "blocks are in memory and not on disks; all hosts share the processors of one machine; slices are automatic \
    where none are given; in each run another block is lost";

pub const DIRECT: &str = "direct send";
pub const CONVENTIONAL: &str = "conventional";
pub const PPR: &str = "PPR";
/// As it was published: every round sends whole blocks.
pub const PPR_ROUNDS: &str = "PPR in rounds";
pub const RP: &str = "repair pipelining";
/// Through random helpers in random order: without regard to racks or rates.
pub const RANDOM: &str = "pipelining, random path";
pub const CYCLIC: &str = "cyclic pipelining";
pub const OPTIMAL: &str = "best trees by rates";
pub const WEIGHTED: &str = "pipelining, path by rates";

/// 50 Mb/s for 1 Gb/s, because in the recovery of a whole node all nodes send at once.
pub const SCALE_OF_NODES: f64 = 0.05;

/// The three methods that papers compare, the slowest first.
pub const THREE: [(&str, Method); 3] =
    [(CONVENTIONAL, Method::Conventional), (PPR, Method::Ppr), (RP, Method::Pipeline)];

impl Size {
    /// A block of this many MiB, or less if `quick` limits it.
    pub fn mib(self, mib: u64) -> u64 {
        (if self.quick { mib.min(16) } else { mib }) << 20
    }

    /// The scale that the user chose, or this one.
    pub fn scale_or(self, scale: f64) -> f64 {
        self.scale.unwrap_or(scale)
    }

    /// All values, or with `quick` only the first, the middle and the last.
    pub fn some<T: Copy>(self, all: &[T]) -> Vec<T> {
        if !self.quick || all.len() <= 3 {
            return all.to_vec();
        }
        vec![all[0], all[all.len() / 2], all[all.len() - 1]]
    }
}

/// `RS(n,k)`.
pub fn rs(n: usize, k: usize) -> String {
    format!("rs:n={n},k={k}")
}

/// A rate in Mb/s.
pub fn mbps(megabits: f64) -> Result<Option<Rate>> {
    Ok(Some(Rate::mbps(megabits)?))
}

/// ECPipe's cluster on one switch: 16 nodes for blocks and `more` nodes without blocks, the last of which is the
/// requestor.
pub fn cluster(more: u32, megabits: f64) -> Result<(Spec, NodeId)> {
    let nodes = 16 + more;
    Ok((Spec::even(nodes, 1, mbps(megabits)?), NodeId(nodes - 1)))
}

/// A scene in [`cluster`] with one requestor.
pub fn scene(megabits: f64, cases: Vec<Case>) -> Result<Scene> {
    let (spec, requestor) = cluster(1, megabits)?;
    Ok(Scene { spec, free: vec![requestor], cases })
}

/// A case of (14,10) RS, with slices that the system chooses.
pub fn case(series: impl Into<String>, x: impl Into<String>, block_bytes: u64, work: Work) -> Case {
    let (series, x) = (series.into(), x.into());
    Case {
        x,
        series,
        code: RS_14_10.into(),
        block_bytes,
        cell_bytes: None,
        slice: Slice::Auto,
        sweep: None,
        requestor: None,
        clients: 1,
        runs: 0..=usize::MAX,
        work,
    }
}

impl Case {
    /// With another code.
    pub fn code(self, code: impl Into<String>) -> Self {
        Self { code: code.into(), ..self }
    }

    /// With cells of this size.
    pub fn cell(self, cell_bytes: u32) -> Self {
        Self { cell_bytes: Some(cell_bytes), ..self }
    }

    /// With this node as the requestor or the client's host.
    pub fn at(self, requestor: NodeId) -> Self {
        Self { requestor: Some(requestor), ..self }
    }

    /// With this many clients at once.
    pub fn clients(self, clients: usize) -> Self {
        Self { clients, ..self }
    }

    /// At its best settings, which are searched for first.
    pub fn swept(self, sweep: Sweep) -> Self {
        Self { sweep: Some(sweep), ..self }
    }

    /// Repeated as often as is asked for, but within these limits.
    pub fn runs(self, runs: RangeInclusive<usize>) -> Self {
        Self { runs, ..self }
    }

    /// With other slices.
    pub fn slice(self, slice: Slice) -> Self {
        Self { slice, ..self }
    }
}

/// A lab for each code: a node that is wiped loses the blocks of all objects in its lab.
pub fn lab_each(spec: &Spec, cases: Vec<Case>) -> Vec<Scene> {
    let labs = cases.chunk_by(|a, b| a.code == b.code);
    labs.map(|cases| Scene { spec: spec.clone(), free: Vec::new(), cases: cases.to_vec() }).collect()
}

/// The repair of one block.
pub fn one(method: Method) -> Work {
    in_mode(method, method.run_mode())
}

/// The repair of one block by a method, in a run mode.
pub fn in_mode(method: Method, run_mode: RunMode) -> Work {
    Work::Repair { method, lost: 1, run_mode }
}

/// The recovery of a node.
pub fn recover(method: Method, schedule: Schedule, stripes: u64, requestors: Requestors) -> Work {
    Work::Recover(Recover { method, schedule, per_node: 0, stripes, requestors, told: true })
}

/// By how much the first series is below the second one at an x.
pub fn reduction(of: &str, against: &str, x: &str) -> Value {
    Value::Reduction(Point::new(of, x), Point::new(against, x))
}

/// The first series' time over the second's at an x.
pub fn ratio(of: &str, over: &str, x: &str) -> Value {
    Value::TimeRatio(Point::new(of, x), Point::new(over, x))
}

/// Bytes in readable form: `32 KiB`, `64 MiB`.
pub fn bytes(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b >= 1 << 10 && b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}
