//! The time limits and depths of a run.
//!
//! A node that is cut off is detected by its silence: neither the nodes that wait for it nor the conductor get
//! anything from it, not even keep-alives. A slow disk does not cause silence, because keep-alives do not wait for
//! the disk.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

/// A wait is split into this many parts, so that a pause of this process counts as one part at most.
const PARTS: u32 = 6;

/// How deep queues are, and the timeouts for peers and disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps that may wait on each edge, if memory allows: more for small slices, fewer for large ones.
    pub depth: usize,
    /// A peer that sends keep-alives but no slice for this long counts as stalled; large slices get longer.
    pub stall: Duration,
    /// A peer without any sign of life for this long counts as lost. On a full link a segment may be lost several times in
    /// a row, and TCP doubles its wait each time. A peer that nobody reaches is found sooner, by its reports.
    pub peer_silence: Duration,
    /// How long a peer may take to accept a connection.
    pub connect: Duration,
    /// How long a peer may take to connect to us: its program may start later than ours. Shorter than `stall`, so
    /// that a peer that does not connect is blamed before those that wait for it.
    pub arrival: Duration,
    /// A sender with nothing to send sends a keep-alive after this long.
    pub keep_alive: Duration,
    /// How long a receiver may take to accept a byte. It may itself wait for others.
    pub write: Duration,
    /// Timeout of one read or write on disk.
    pub disk: Duration,
    /// Timeout for making a block durable.
    pub finish: Duration,
    /// The window over which a peer that we wait for must reach [`least_rate`](Self::least_rate).
    pub trickle: Duration,
    /// Bytes a second that a peer must send while we wait for it, in all lanes of the run together; else it counts
    /// as stalled. Far below the share that one of many repairs gets of a slow link.
    pub least_rate: u64,
}

/// Bytes a second from which the timeout of a large slice is computed. Slices are as large as blocks where whole
/// blocks go from node to node, and the last of many nodes gets such a slice late.
const LEAST_RATE: f64 = (1 << 20) as f64;

impl Limits {
    /// Timeout for a slice of `bytes` bytes.
    pub(crate) fn stall_of(&self, bytes: usize) -> Duration {
        self.stall + Duration::from_secs_f64(bytes as f64 / LEAST_RATE)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 8,
            stall: Duration::from_secs(10),
            peer_silence: Duration::from_secs(5),
            connect: Duration::from_secs(2),
            arrival: Duration::from_secs(8),
            keep_alive: Duration::from_millis(250),
            write: Duration::from_secs(60),
            disk: Duration::from_secs(30),
            finish: Duration::from_secs(120),
            trickle: Duration::from_secs(30),
            least_rate: 1 << 10,
        }
    }
}

/// Waits for `work` at most `limit`, then returns `None`. A pause of this process itself (stopped, or without
/// processor time) counts as at most one part of the wait, because it says nothing about others.
pub(crate) async fn patiently<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    for _ in 0..PARTS {
        if let Ok(done) = timeout(limit / PARTS, &mut work).await {
            return Some(done);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_never_comes_is_waited_for_in_vain() {
        let limit = Duration::from_millis(30);
        assert!(patiently(limit, std::future::pending::<()>()).await.is_none());
        assert_eq!(patiently(limit, std::future::ready(7)).await, Some(7));
    }

    #[tokio::test]
    async fn a_pause_of_our_own_is_not_held_against_a_peer() {
        let limit = Duration::from_millis(300);
        let late = async {
            std::thread::sleep(2 * limit);
            tokio::time::sleep(limit / 30).await;
        };
        assert!(patiently(limit, late).await.is_some());
    }
}
