//! The overheads of moving a slice.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::NodeId;
use kintsu_plan::traffic::Disks;
use kintsu_plan::{Topology, many};
use serde::{Deserialize, Serialize};

use crate::SimError;

/// The overheads of moving slices, in addition to the time of their bytes on links. The default is the papers'
/// model: none.
///
/// A slice is handled by the sending end of a stream ([`Overheads::slice_seconds`], one slice after the other,
/// while the one before is on its way), passes the links at the rate that the stream gets, and the receiver can
/// use it [`Overheads::hop_seconds`] after its last byte. So a chain of h hops fills in
/// `(h - 1) * (slice / rate + slice_seconds + hop_seconds)`, and no stream moves more than one slice per
/// `slice_seconds`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Overheads {
    /// Bytes on a link for each byte of a stream: 1514/1448 for TCP in Ethernet frames where rates are those of
    /// the link, 9014/8948 in jumbo frames (see `WIRE` in `kintsu-lab`).
    pub wire: f64,
    /// Bytes of a stream before each slice: the head of its frame.
    pub frame_bytes: f64,
    /// Seconds for which each slice keeps the sending end of a stream busy. This bounds a stream's rate and
    /// delays each hop.
    pub slice_seconds: f64,
    /// Seconds from the last byte of a slice on its links to its use by the receiver: network latency and wake-up.
    /// This delays each hop and limits no rate.
    pub hop_seconds: f64,
    /// Seconds before the first slice is sent: planning the repair, sending out programs, opening blocks.
    pub start_seconds: f64,
    /// The read rate of a node's disk, in bytes a second; `None` where reading is not a limit. Reading runs ahead
    /// of sending.
    pub disk_read: Option<f64>,
    /// The write rate of a node's disk, in bytes a second; `None` where writing is not a limit.
    pub disk_write: Option<f64>,
}

impl Default for Overheads {
    fn default() -> Self {
        Self {
            wire: 1.0,
            frame_bytes: 0.0,
            slice_seconds: 0.0,
            hop_seconds: 0.0,
            start_seconds: 0.0,
            disk_read: None,
            disk_write: None,
        }
    }
}

impl Overheads {
    /// Bytes on a link for this many bytes of one slice.
    pub fn on_wire(&self, bytes: f64) -> f64 {
        (bytes + self.frame_bytes) * self.wire
    }

    /// Seconds by which a hop delays a slice, apart from its bytes.
    pub fn hop(&self) -> f64 {
        self.slice_seconds + self.hop_seconds
    }

    /// The disks whose transfers take time.
    pub(crate) fn disks(&self) -> Disks {
        Disks { reads: self.disk_read.is_some(), writes: self.disk_write.is_some() }
    }

    /// The same for schedulers: what the disk of each node reads and writes.
    pub(crate) fn disk_rates(&self, topology: &Topology) -> many::Disks {
        let all = |rate: Option<f64>| -> BTreeMap<NodeId, NonZeroU64> {
            let rate = rate.and_then(|rate| NonZeroU64::new(rate as u64));
            let nodes = topology.nodes.keys();
            rate.map(|rate| nodes.map(|node| (*node, rate)).collect()).unwrap_or_default()
        };
        many::Disks { read: all(self.disk_read), write: all(self.disk_write) }
    }

    /// Accepts finite values that are not negative, `wire` of 1 or more, and disk rates above zero.
    ///
    /// # Errors
    /// `Invalid` otherwise.
    pub fn check(&self) -> Result<(), SimError> {
        let parts = [
            ("wire", self.wire, 1.0),
            ("frame_bytes", self.frame_bytes, 0.0),
            ("slice_seconds", self.slice_seconds, 0.0),
            ("hop_seconds", self.hop_seconds, 0.0),
            ("start_seconds", self.start_seconds, 0.0),
        ];
        let disks = [("disk_read", self.disk_read), ("disk_write", self.disk_write)];
        let disks = disks.into_iter().filter_map(|(name, rate)| Some((name, rate?, 1.0)));
        for (name, value, least) in parts.into_iter().chain(disks) {
            if !(value.is_finite() && value >= least) {
                return Err(SimError::invalid(name, format_args!("{least} or more"), value));
            }
        }
        Ok(())
    }
}
