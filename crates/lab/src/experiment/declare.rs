//! What an experiment is: data. Scenes (a lab each), their cases (a point of a figure each), and claims (what the
//! paper says of the points, and what we aim at).
//!
//! Rates are those of the paper; [`Experiment::scale`] says by what they are multiplied here.

use kintsu_dag::NodeId;
use kintsu_plan::{Method, Pace, Schedule};
use kintsu_wire::message::Requestors;

use crate::Spec;

/// An experiment, named after the figure that it reproduces.
#[derive(Debug, Clone, PartialEq)]
pub struct Experiment {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What is shown.
    pub title: &'static str,
    /// Paper and figure.
    pub source: &'static str,
    /// What differs from the paper's setting, for people; empty when nothing does but the rates.
    pub differs: &'static str,
    /// What is measured.
    pub measure: Measure,
    /// What the x axis is.
    pub axis: &'static str,
    /// What the others are divided by.
    pub baseline: Option<Baseline>,
    /// Rates here over rates in the paper.
    pub scale: f64,
    /// The labs, one after the other.
    pub scenes: Vec<Scene>,
    /// What is said of the results.
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
    /// MiB of the object or of lost blocks for each of these seconds.
    Rate,
}

/// Cases that share a lab; their repetitions are interleaved, so that drift hits all alike.
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
    /// Where on the x axis.
    pub x: String,
    /// Which of the curves.
    pub series: String,
    /// Name of the code.
    pub code: String,
    /// Bytes in a block.
    pub block_bytes: u64,
    /// Bytes in a cell; by default what fits the code.
    pub cell_bytes: Option<u32>,
    /// Bytes in a slice.
    pub slice: Slice,
    /// The requestor or the client's host; by default a node that has no block of the stripe.
    pub requestor: Option<NodeId>,
    /// How many clients write or read at once, each a stripe of its own.
    pub clients: usize,
    /// What is done.
    pub work: Work,
}

/// What is done for one sample.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// One block is copied to the requestor.
    Direct,
    /// So many lost blocks of a stripe are repaired.
    Repair {
        /// How.
        method: Method,
        /// How many.
        lost: usize,
        /// How its plan is run, whatever the method's own pace: PPR in whole blocks is PPR in rounds, as published.
        pace: Pace,
    },
    /// A node loses all its blocks, which are repaired by the coordinator.
    Recover(Recover),
    /// A client on the requestor's host writes one stripe.
    Write,
    /// A client on the requestor's host reads a stripe with so many of its data blocks lost (their agents killed; where
    /// several clients read, a stripe may have lost more).
    Read {
        /// How many.
        lost: usize,
    },
    /// A client on the requestor's host reads one block of a stripe whose parity was made afterwards, with so many of its
    /// data blocks lost, this one first.
    ReadBlock {
        /// How many.
        lost: usize,
    },
    /// The parity of an object that was written plain is made.
    Encode {
        /// Stripes in the object.
        stripes: u64,
    },
    /// A repair by pipelining in which something goes wrong after a part of its undisturbed time.
    Disturbed(Fault),
}

/// Recovery of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recover {
    /// How.
    pub method: Method,
    /// Which helpers and requestors are taken.
    pub schedule: Schedule,
    /// Stripes in the cluster.
    pub stripes: u64,
    /// Who gets the blocks; the first of so many is the node that lost them, empty now.
    pub requestors: Requestors,
}

/// What goes wrong with one helper in the middle of a repair.
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
    /// So many bytes.
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

/// A point: series and x.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Point {
    /// Which of the curves.
    pub series: String,
    /// Where on the x axis.
    pub x: String,
}

/// Something that is said of the results, here and in the paper.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// How it is computed from the rows, repetition by repetition.
    pub value: Value,
    /// What the paper gives, where it does; in the value's unit.
    pub published: Option<f64>,
    /// What we aim at.
    pub aim: Option<Aim>,
}

/// A number made of measured points.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The first point's time over the second one's.
    TimeRatio(Point, Point),
    /// The first point's rate over the second one's.
    RateRatio(Point, Point),
    /// By how many percent the first point's time is below the second one's.
    Reduction(Point, Point),
    /// By how many percent the largest median time of a series is above the smallest.
    Spread(String),
    /// By how many percent the median time at one point is above the least of its series.
    AboveBest(Point),
    /// By how many percent, whatever the sign, the simulator's median time differs most from the measured one, over a
    /// series or, without one, over all points.
    OffSimulated(Option<String>),
    /// Blocks that crossed racks at a point, as the kernel counted.
    CrossRackBlocks(Point),
    /// Bytes that nodes sent at a point, as the kernel counted, over those of the plan.
    Traffic(Point),
    /// The least time that the links allow, by whatever trees, over the time at a point.
    OfBound(Point),
}

/// A limit for a value.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aim {
    /// No more than.
    AtMost(f64),
    /// No less than.
    AtLeast(f64),
}

impl Experiment {
    /// One in which nothing is measured.
    pub fn computed(name: &'static str, title: &'static str) -> Self {
        Self {
            name,
            title,
            source: "computed from the codes",
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

impl Aim {
    /// Whether a value keeps to it.
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
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
    /// Something to be computed, without a published value or an aim yet.
    pub fn new(text: impl Into<String>, value: Value) -> Self {
        Self { text: text.into(), value, published: None, aim: None }
    }

    /// What the paper gives.
    #[must_use]
    pub fn published(mut self, value: f64) -> Self {
        self.published = Some(value);
        self
    }

    /// What we aim at.
    #[must_use]
    pub fn aim(mut self, aim: Aim) -> Self {
        self.aim = Some(aim);
        self
    }
}
