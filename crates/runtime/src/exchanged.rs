//! What a run has exchanged with each of its peers: bytes, and how long it waited for them.
//!
//! Time counts as waiting only while there is room for what the peer sends. So the bytes that came in that time say
//! how fast the peer is, even if the run as a whole is held up by another one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::NodeId;
use tokio::time::Instant;

/// What was exchanged with each peer, over all lanes of a run. Runs may share it.
#[derive(Debug, Default)]
pub struct Exchanged(Mutex<BTreeMap<NodeId, Arc<Peer>>>);

/// What has come from one peer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard {
    /// Bytes of slices, with their headers.
    pub bytes: u64,
    /// How long the run has waited for the peer, from the start of connecting.
    pub waited: Duration,
    /// From the start of connecting to the last byte.
    pub took: Duration,
    /// Whether the run waits for it now.
    pub waits: bool,
    /// Whether all its slices have come.
    pub done: bool,
}

/// One peer.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// Bytes that passed, without keep-alives. These are subtracted, so it may be below zero for a moment.
    pub bytes: AtomicU64,
    clock: Mutex<Clock>,
}

#[derive(Debug, Default)]
struct Clock {
    began: Option<Instant>,
    last: Option<Instant>,
    waited: Duration,
    /// Edges that wait for the peer now, and since when there is one.
    waiting: u32,
    since: Option<Instant>,
    /// Edges from the peer that are not complete.
    open: u32,
}

impl Exchanged {
    pub(crate) fn of(&self, peer: NodeId) -> Arc<Peer> {
        self.peers().entry(peer).or_default().clone()
    }

    /// What has come from each peer until now. Peers that only receive have no bytes and are done.
    pub fn heard(&self) -> BTreeMap<NodeId, Heard> {
        self.peers().iter().map(|(node, peer)| (*node, peer.heard())).collect()
    }

    fn peers(&self) -> MutexGuard<'_, BTreeMap<NodeId, Arc<Peer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// An edge from the peer begins.
    pub fn begins(&self) {
        let mut clock = self.clock();
        clock.open += 1;
        clock.began.get_or_insert_with(Instant::now);
    }

    /// An edge from the peer has received everything.
    pub fn ends(&self) {
        let mut clock = self.clock();
        clock.open = clock.open.saturating_sub(1);
    }

    /// An edge begins to wait for the peer.
    pub fn waits(&self) {
        let mut clock = self.clock();
        clock.waiting += 1;
        if clock.waiting == 1 {
            clock.since = Some(Instant::now());
        }
    }

    /// The wait of an edge is over, because bytes have come or the peer is connected.
    pub fn came(&self, bytes: bool) {
        let mut clock = self.clock();
        if bytes {
            clock.last = Some(Instant::now());
        }
        clock.waiting = clock.waiting.saturating_sub(1);
        if clock.waiting == 0
            && let Some(since) = clock.since.take()
        {
            clock.waited += since.elapsed();
        }
    }

    fn heard(&self) -> Heard {
        let clock = self.clock();
        let took = clock.began.zip(clock.last).map(|(began, last)| last.saturating_duration_since(began));
        Heard {
            bytes: (self.bytes.load(Ordering::Relaxed) as i64).max(0) as u64,
            waited: clock.waited + clock.since.map_or(Duration::ZERO, |since| since.elapsed()),
            took: took.unwrap_or_default(),
            waits: clock.since.is_some(),
            done: clock.open == 0,
        }
    }

    fn clock(&self) -> MutexGuard<'_, Clock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_waited_for_while_any_of_its_edges_waits() {
        let second = Duration::from_secs(1);
        let exchanged = Exchanged::default();
        let peer = exchanged.of(NodeId(3));
        let heard = || exchanged.heard()[&NodeId(3)];
        assert!(heard().done);
        peer.begins();
        peer.begins();
        peer.waits();
        tokio::time::advance(second).await;
        peer.waits();
        peer.came(true);
        tokio::time::advance(second).await;
        assert_eq!((heard().waited, heard().took, heard().waits), (2 * second, second, true));
        peer.came(false);
        tokio::time::advance(second).await;
        assert_eq!((heard().waited, heard().took, heard().waits), (2 * second, second, false));
        peer.ends();
        assert!(!heard().done);
        peer.ends();
        assert!(heard().done);
    }
}
