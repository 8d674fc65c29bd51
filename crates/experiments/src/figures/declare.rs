//! The data that declare an experiment: scenes (a lab each), their cases (a point of a figure each), and claims
//! (the paper's statement about the points, and our aim).
//!
//! Rates are those of the paper; here they are multiplied by [`Experiment::scale`].

use std::ops::RangeInclusive;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_lab::Spec;
use kintsu_plan::{Binding, Method, RunMode, Schedule};
use kintsu_wire::message::Requestors;

use super::sweep::Sweep;
use crate::give_way::Race;
use crate::under_load::UnderLoad;

/// The source of an experiment that repeats none of a paper's.
pub(crate) const NO_PAPER: &str = "none";

/// An experiment, named after the figure that it reproduces.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is shown.
    pub title: &'static str,
    /// Paper and figure, or `NO_PAPER`.
    pub source: &'static str,
    /// The differences from the paper's setting besides the rates, in words; without a paper, the setting.
    pub differs: &'static str,
    /// What is measured.
    pub measure: Measure,
    /// What the x axis is.
    pub axis: &'static str,
    /// The row that the others are divided by.
    pub baseline: Option<Baseline>,
    /// Rates here divided by rates in the paper.
    pub scale: f64,
    /// The labs, one after the other.
    pub scenes: Vec<Scene>,
    /// The claims about the results.
    pub claims: Vec<Claim>,
    /// Whether an aim that is missed means that something is broken.
    pub strict: bool,
}

/// What a case measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Seconds from the start until the last byte is durable (or delivered, for reads).
    Seconds,
    /// MiB of the object or of the lost blocks, divided by these seconds.
    Rate,
}

/// Cases that share a lab. Their repetitions are interleaved, so that drift affects all cases equally.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// The lab, at the paper's rates.
    pub spec: Spec,
    /// These nodes are kept free of blocks, to be requestors and clients.
    pub free: Vec<NodeId>,
    /// What is measured in it.
    pub cases: Vec<Case>,
}

/// One point of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Its place on the x axis.
    pub x: String,
    /// Its curve.
    pub series: String,
    /// Name of the code.
    pub code: String,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Bytes in a cell; by default what fits the code.
    pub cell_bytes: Option<u32>,
    /// Bytes in a slice.
    pub slice: Slice,
    /// The settings that are tried before the repetitions; `None`: those found for the next case of its series in this
    /// scene that has a sweep, else for the last one, and if there is none only those above.
    pub sweep: Option<Sweep>,
    /// The requestor or the client's host; by default a node that has no block of the stripe.
    pub requestor: Option<NodeId>,
    /// How many clients write or read at once, each a stripe of its own.
    pub clients: usize,
    /// It is repeated as often as is asked for, but within these limits.
    pub runs: RangeInclusive<usize>,
    /// What is done.
    pub work: Work,
}

/// What is done for one sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// One block is copied to the requestor.
    Direct,
    /// Lost blocks of a stripe are repaired.
    Repair {
        /// How.
        method: Method,
        /// How many.
        lost: usize,
        /// The run mode of the plan, which replaces the method's own. PPR in whole blocks is PPR in rounds, as
        /// published.
        run_mode: RunMode,
    },
    /// A node loses all its blocks, and the coordinator repairs them.
    Recover(Recover),
    /// A client on the requestor's host writes one stripe.
    Write,
    /// A client on the requestor's host reads a stripe that has lost data blocks (their agents are killed). Where
    /// several clients read, a stripe may have lost more than `lost`.
    Read {
        /// How many.
        lost: usize,
    },
    /// A client on the requestor's host reads one block of an offline-encoded stripe that has lost data blocks,
    /// this block first.
    ReadBlock {
        /// How many.
        lost: usize,
    },
    /// A client whose own link has no limit reads a stripe that has lost data blocks, while another one of its nodes
    /// has a fault that nobody knows of yet.
    ReadBeside {
        /// How many blocks.
        lost: usize,
        /// What is wrong with the other node.
        fault: Fault,
    },
    /// The coordinator makes the parity of an object that was written plain.
    Encode {
        /// Stripes in the object.
        stripes: u64,
        /// Where the parities are computed.
        binding: Binding,
    },
    /// A repair by pipelining, during which a helper fails.
    Disturbed(Fault),
    /// Something is repaired while users work.
    UnderLoad(UnderLoad),
    /// A node is repaired and gives way to users.
    GiveWay(Race),
}

/// Recovery of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recover {
    /// How.
    pub method: Method,
    /// How helpers and requestors are chosen.
    pub schedule: Schedule,
    /// Most stripes in whose repair one node takes part at once; 0: as the coordinator decides.
    pub per_node: u32,
    /// Stripes in the cluster.
    pub stripes: u64,
    /// Who gets the blocks. Where the number is given, the first is the node that lost them; it is empty now.
    pub requestors: Requestors,
    /// Whether the coordinator is told the rates of the links. Otherwise it measures them, as it does by itself.
    pub told: bool,
}

/// What goes wrong with one node, such as a helper in the middle of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Its process is killed.
    Killed,
    /// Its cable is pulled.
    Cut,
    /// Its link slows to a tenth.
    Slowed,
}

/// How large slices are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slice {
    /// This many bytes.
    Bytes(u32),
    /// As the system chooses.
    Auto,
}

/// What rows are divided by.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Baseline {
    /// The row of this series at the same x.
    Series(String),
    /// This one row.
    Point(Point),
}

/// The series and x of a point.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    /// Its curve.
    pub series: String,
    /// Its place on the x axis.
    pub x: String,
}

/// A statement about the results, here and in the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// How its value is computed from the rows, repetition by repetition.
    pub value: Value,
    /// The paper's value in the same unit, if it gives one.
    pub published: Option<f64>,
    /// What we aim at.
    pub aim: Option<Aim>,
    /// Why our value differs from the paper's, or why an aim may be missed; empty where that needs no words.
    pub because: &'static str,
}

/// A number computed from measured points.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The first point's time divided by the second's.
    TimeRatio(Point, Point),
    /// The time at a point in seconds, multiplied by our rates over the paper's.
    AtPaperRate(Point),
    /// The first point's rate divided by the second's.
    RateRatio(Point, Point),
    /// By how many percent the first point's time is below the second one's.
    Reduction(Point, Point),
    /// By how many percent the largest median time of a series is above the smallest.
    Spread(String),
    /// By how many percent the median time at one point is above the least of its series.
    AboveBest(Point),
    /// The largest absolute difference, in percent, of the simulator's median time from the measured one, over a
    /// series or, if none is given, over all points.
    OffSimulated(Option<String>),
    /// Blocks that crossed racks at a point, as the kernel counted.
    CrossRackBlocks(Point),
    /// Bytes that nodes sent at a point, as the kernel counted, divided by the bytes of the plan.
    Traffic(Point),
    /// The least time that the links allow for any trees, divided by the time at a point.
    OfBound(Point),
    /// The least time in which what users left of the links allows any trees, divided by the time at a point.
    OfIdle(Point),
    /// By how many percent the first point's rate is above the second one's.
    Gain(Point, Point),
    /// By how many percent the users' 99th percentile at the first point is below that at the second one.
    CalmerTail(Point, Point),
    /// The interference degree: by how many percent the users' trace takes longer at the first point than at the second
    /// one, where nothing is repaired.
    Interference(Point, Point),
    /// By how many percent the interference degree of the first point is below that of the second one, both over the
    /// third one.
    CalmerTrace(Point, Point, Point),
    /// In how many percent of the windows users' 99th percentile was above the target.
    Over(Point),
    /// A point's rate over the greatest median rate of the points of a series in whose median less than one percent of the windows
    /// was above the target; 0 unless that is so at the point itself.
    RateOverHolding(Point, String),
    /// Users' 99th percentile while the repair went on, over the target.
    TailOverTarget(Point),
    /// Bytes a second that nodes sent for the repair at a point, divided by this many.
    SentOver(Point, f64),
    /// The time of the slowest repetition at a point.
    Worst(Point),
    /// The mean of the medians of some values of one unit.
    Mean(Vec<Value>),
    /// The least of the medians of some values of one unit.
    Least(Vec<Value>),
    /// The greatest of the medians of some values of one unit.
    Most(Vec<Value>),
}

/// A limit for a value.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// No more than.
    AtMost(f64),
    /// No less than.
    AtLeast(f64),
    /// No less than, also where it is least: missed only if it is less everywhere, and else undecided.
    AlwaysAtLeast(f64),
}

impl Experiment {
    /// An experiment in which nothing is measured.
    pub fn computed(name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            title,
            source: "computed",
            differs: "",
            measure: Measure::Seconds,
            axis: "",
            baseline: None,
            scale: 1.0,
            scenes: Vec::new(),
            claims: Vec::new(),
            strict: false,
        }
    }
}

impl Work {
    /// Whether nodes lose all their blocks, of whichever objects.
    pub(crate) fn loses_nodes(&self) -> bool {
        matches!(self, Self::Recover(_) | Self::GiveWay(_) | Self::UnderLoad(UnderLoad::Recover(_)))
    }

    /// The coordinator's phases, if they are to be other than usual.
    pub(crate) fn phase(&self) -> Option<Duration> {
        match self {
            Self::UnderLoad(work) => work.phase(),
            _ => None,
        }
    }

    /// Whether the coordinator need not measure the links.
    pub(crate) fn is_told(&self) -> bool {
        match self {
            Self::Recover(recover) => recover.told,
            Self::UnderLoad(work) => work.told(),
            Self::GiveWay(_) => false,
            _ => true,
        }
    }
}

impl Aim {
    /// Whether a value is within the limit.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) | Self::AlwaysAtLeast(limit) => value >= limit,
        }
    }
}

impl Point {
    /// A point of a series.
    pub fn new(series: impl Into<String>, x: impl Into<String>) -> Self {
        Self { series: series.into(), x: x.into() }
    }
}

impl Claim {
    /// A claim without a published value or an aim.
    pub fn new(text: impl Into<String>, value: Value) -> Self {
        Self { text: text.into(), value, published: None, aim: None, because: "" }
    }

    /// What the paper gives.
    #[must_use]
    pub fn published(mut self, value: f64) -> Self {
        self.published = Some(value);
        self
    }

    /// Why our value differs from the paper's, or an aim may be missed.
    #[must_use]
    pub fn because(mut self, reason: &'static str) -> Self {
        self.because = reason;
        self
    }

    /// What we aim at.
    #[must_use]
    pub fn aim(mut self, aim: Aim) -> Self {
        self.aim = Some(aim);
        self
    }
}
