//! The time limits and depths of a run.
//!
//! A node that is cut off is found by its silence: it sends nothing, not even signs of life, to whoever waits for it
//! and to the conductor. A slow disk is no silence, since signs of life do not wait for it.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

/// Into how many parts a wait is cut, each of which has to pass.
const PARTS: u32 = 6;

/// How deep queues are, and after how long a peer or a disk is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps that wait on each edge, as far as memory allows: more for small slices, fewer for
    /// large ones.
    pub depth: usize,
    /// After how long without a slice, but with signs of life, a peer counts as stalled; large slices get longer.
    pub stall: Duration,
    /// After how long without any sign of life a peer counts as lost.
    pub peer_silence: Duration,
    /// How long a peer may take to accept a connection.
    pub connect: Duration,
    /// How long a peer may take to make a connection: its program may start later than ours. Shorter
    /// than `stall`, so that the peer that does not come is found before those that wait for it.
    pub arrival: Duration,
    /// How long a sender with nothing to send keeps silent.
    pub keep_alive: Duration,
    /// How long a receiver may take to accept a byte: it may be held up by others.
    pub write: Duration,
    /// How long the disk may take for one read or write.
    pub disk: Duration,
    /// How long the disk may take to make a block durable.
    pub finish: Duration,
    /// Over how long a peer that is waited for must come to [`least_rate`](Self::least_rate).
    pub trickle: Duration,
    /// Bytes a second that a peer which is waited for must send, in all lanes of the run together; else it counts as
    /// stalled. Far below what a slow link leaves to one repair of many.
    pub least_rate: u64,
}

/// What a slice is waited for at least, as bytes a second: a slice is large where whole blocks go from node to node, and
/// comes late where many nodes must have had it before.
const LEAST_RATE: f64 = (1 << 20) as f64;

impl Limits {
    /// How long a slice of so many bytes may be waited for.
    pub(crate) fn stall_of(&self, bytes: usize) -> Duration {
        self.stall + Duration::from_secs_f64(bytes as f64 / LEAST_RATE)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 8,
            stall: Duration::from_secs(10),
            peer_silence: Duration::from_millis(1500),
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

/// Waits for `work` at most so long, `None` when that has passed. A pause of this process itself (stopped, or
/// starved of the processor) counts as one part of the wait at most: it says nothing about others.
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
