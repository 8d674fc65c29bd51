//! What a coordinator has counted since its start, for monitoring.

use serde::{Deserialize, Serialize};

/// What has happened since the start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Seconds since the start.
    pub up_seconds: f64,
    /// Stripes whose repair ended well.
    pub repaired_stripes: u64,
    /// Stripes that could not be repaired.
    pub failed_stripes: u64,
    /// Blocks that were rebuilt.
    pub repaired_blocks: u64,
    /// Their bytes.
    pub repaired_bytes: u64,
    /// Bytes that were read from disks for it.
    pub read_bytes: u64,
    /// Bytes that nodes sent one another for it.
    pub moved_bytes: u64,
    /// Nodes that repairs were planned around.
    pub went_around: u64,
    /// How long the repair of one stripe took.
    pub repairs: Histogram,
    /// How long users' operations took, while clients tell it: there is a target (`repair.target`).
    pub operations: Histogram,
}

/// How often something took how long.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper ends of the ranges in seconds, in order; the last range has no end.
    pub ends: Vec<f64>,
    /// How many were in each range: one more number than there are ends.
    pub counts: Vec<u64>,
    /// All together, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// One of ranges with these upper ends in seconds, in order, which has counted nothing.
    pub fn new(ends: Vec<f64>) -> Self {
        let counts = vec![0; ends.len() + 1];
        Self { ends, counts, sum: 0.0 }
    }

    /// Something took this long: it counts in the first range whose end it does not pass.
    pub fn add(&mut self, seconds: f64) {
        let range = self.ends.partition_point(|end| *end < seconds);
        if let Some(count) = self.counts.get_mut(range) {
            *count += 1;
            self.sum += seconds;
        }
    }
}
