//! The time limits and depths of a run.

use std::time::Duration;

/// How deep queues are, and after how long a peer or a disk is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Steps that wait on each edge, as far as memory allows: more for small slices, fewer for
    /// large ones.
    pub depth: usize,
    /// After how long without a slice, but with signs of life, a peer counts as stalled.
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            depth: 8,
            stall: Duration::from_secs(10),
            peer_silence: Duration::from_secs(5),
            connect: Duration::from_secs(3),
            arrival: Duration::from_secs(8),
            keep_alive: Duration::from_secs(1),
            write: Duration::from_secs(60),
            disk: Duration::from_secs(30),
            finish: Duration::from_secs(120),
        }
    }
}
