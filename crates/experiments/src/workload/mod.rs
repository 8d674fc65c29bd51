//! Foreground load: what users do while repairs run.
//!
//! - `zipf`: which keys are popular, as YCSB draws them; `sizes`: how long values are;
//! - `ycsb`, `traces`: the workloads, each a row of [`WORKLOADS`]; `file`: operations recorded in a file;
//! - [`Player`]: runs operations on a cluster and measures their latencies ([`Score`]).
//!
//! Invariants: a workload is a function of its scale and its seed alone; it knows no clock and no cluster. Every key
//! has one length for good, so what an operation moves does not depend on what ran before it.

mod file;
mod player;
mod score;
mod sizes;
mod traces;
mod ycsb;
mod zipf;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::error::{ExperimentError, Result};

pub use file::from_csv;
pub use player::{Arrivals, Leg, Player};
pub use score::{Ended, Latency, Played, Score, Window};

/// The generator of random numbers of all workloads; its sequence for a seed never changes.
pub(crate) type Random = Xoshiro256PlusPlus;

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Reads a value.
    Read,
    /// Replaces a value.
    Update,
    /// Writes a value under a new key.
    Insert,
    /// Reads the values of this key and of the next ones.
    Scan,
    /// Reads a value, then replaces it.
    ReadModifyWrite,
}

/// One operation of a user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operation {
    /// When it is due, in seconds from the first one, where operations come at their own times.
    pub at: f64,
    /// What it does.
    pub verb: Verb,
    /// The number of its key: an index of [`Work::records`], or of one that an insert has added.
    pub key: u64,
    /// Length of the value.
    pub bytes: u64,
    /// How many values a scan reads; 1 for all others.
    pub values: u32,
}

/// A value that a workload works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Length of its key.
    pub key_bytes: u16,
    /// Length of the value.
    pub bytes: u64,
}

/// A workload at a scale: the values that must be there first, and the operations.
pub struct Work {
    /// Its name, with which all its keys begin.
    pub name: String,
    /// The values by number of their keys.
    pub records: Vec<Record>,
    /// The length of keys that inserts add.
    pub key_bytes: u16,
    /// The operations, as many as were published.
    pub operations: Box<dyn Iterator<Item = Operation> + Send>,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work").field("name", &self.name).finish_non_exhaustive()
    }
}

/// How much smaller than published a workload is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// Lengths of values divided by the published ones.
    pub sizes: f64,
    /// Operations and values divided by the published numbers.
    pub count: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self { sizes: 1.0, count: 1.0 }
    }
}

impl Scale {
    /// A length at this scale, at least a byte.
    fn size(self, bytes: f64) -> u64 {
        (bytes * self.sizes).round().max(1.0) as u64
    }

    /// A number at this scale, at least one.
    fn number(self, published: u64) -> u64 {
        (published as f64 * self.count).round().max(1.0) as u64
    }
}

/// A workload.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// One line of description.
    pub about: &'static str,
    make: fn(Scale, &mut Random) -> Made,
}

/// What a row of the table makes.
struct Made {
    records: Vec<Record>,
    key_bytes: u16,
    operations: Box<dyn Iterator<Item = Operation> + Send>,
}

impl Workload {
    /// The workload at a scale. The same seed gives the same values and operations.
    pub fn start(&self, scale: Scale, seed: u64) -> Work {
        let Made { records, key_bytes, operations } = (self.make)(scale, &mut Random::seed_from_u64(seed));
        Work { name: self.name.to_owned(), records, key_bytes, operations }
    }
}

impl std::fmt::Debug for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// All workloads.
pub const WORKLOADS: [Workload; 10] = [
    Workload { name: "ycsb-a", about: "half reads, half updates, Zipf", make: ycsb::a },
    Workload { name: "ycsb-b", about: "95% reads, 5% updates, Zipf", make: ycsb::b },
    Workload { name: "ycsb-c", about: "reads alone, Zipf", make: ycsb::c },
    Workload { name: "ycsb-d", about: "95% reads of the latest values, 5% inserts", make: ycsb::d },
    Workload { name: "ycsb-e", about: "95% short scans, 5% inserts, Zipf", make: ycsb::e },
    Workload { name: "ycsb-f", about: "half reads, half read-modify-writes, Zipf", make: ycsb::f },
    Workload { name: "ibm", about: "like IBM's object store trace 000: 16 B to 2.4 GB", make: traces::ibm },
    Workload {
        name: "twitter",
        about: "like Twitter's cache cluster 37: 63% GET, 20,134 B on average",
        make: traces::twitter,
    },
    Workload {
        name: "etc",
        about: "like Facebook's ETC: 30 GETs for each SET, small values",
        make: traces::etc,
    },
    Workload {
        name: "rados",
        about: "like the reads of RADOS Bench: objects of 4 MiB, one after the other",
        make: traces::rados,
    },
];

/// The workload of this name.
///
/// # Errors
/// `Invalid` for an unknown one.
pub fn workload(name: &str) -> Result<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name).ok_or_else(|| {
        let names: Vec<_> = WORKLOADS.iter().map(|workload| workload.name).collect();
        ExperimentError::invalid("workload", names.join(", "), name)
    })
}

/// The key with this number, of this length or longer without the folders before the workload's name; keys of one length sort by number.
pub fn key(work: &str, number: u64, key_bytes: u16) -> String {
    let name = work.rsplit('/').next().unwrap_or(work);
    let digits = usize::from(key_bytes).saturating_sub(name.len() + 1);
    format!("{work}/{number:0digits$}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_workload_is_the_same_for_the_same_seed_and_reads_only_what_is_there() {
        let scale = Scale { sizes: 0.25, count: 0.01 };
        for workload in WORKLOADS {
            let work = |seed| workload.start(scale, seed);
            let (one, again, other) = (work(1), work(1), work(2));
            assert_eq!(one.records, again.records, "{workload:?}");
            let mut there = one.records.clone();
            let key_bytes = one.key_bytes;
            let operations: Vec<Operation> = one.operations.collect();
            assert_eq!(operations, again.operations.collect::<Vec<_>>(), "{workload:?}");
            if workload.name != "rados" {
                assert_ne!(operations, other.operations.collect::<Vec<_>>(), "{workload:?}");
            }
            let mut last = 0.0;
            for operation in operations {
                assert!(operation.at >= last && operation.bytes > 0, "{workload:?}");
                last = operation.at;
                if operation.verb == Verb::Insert {
                    assert_eq!(operation.key, there.len() as u64, "{workload:?}");
                    there.push(Record { key_bytes, bytes: operation.bytes });
                }
                assert_eq!(there[operation.key as usize].bytes, operation.bytes, "{workload:?}");
                assert!(operation.verb == Verb::Scan || operation.values == 1);
            }
        }
        assert!(workload("ycsb-z").unwrap_err().to_string().contains("ycsb-a, ycsb-b"));
    }

    #[test]
    fn keys_are_as_long_as_wanted_different_and_in_order() {
        assert_eq!(key("etc", 42, 10), "etc/000042");
        assert_eq!(key("etc", 1_234_567, 10), "etc/1234567");
        let keys: BTreeSet<String> = (0..200).map(|number| key("w", number, 5)).collect();
        assert_eq!(keys.into_iter().nth(150).unwrap(), key("w", 150, 5));
    }
}
