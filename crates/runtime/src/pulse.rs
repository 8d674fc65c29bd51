//! Peers that live and move bytes, but so few that nothing ever ends.
//!
//! Silence and stalls (`receive.rs`) are told by the time since the last byte or slice, which a peer that sends a byte now
//! and then never reaches. A [`Pulse`] counts the time that one edge waited for its peer, and the bytes that went
//! between the two meanwhile, over all lanes of the run: below the least rate over a window, the peer has stalled. Time in
//! which the peer waited for another node is not held against the peer; that node answers for it, after longer.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::frame::HEADER_BYTES;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::time::{Instant, timeout};

use crate::fault::fault;
use crate::limits::Limits;

/// So many windows must pass before a node is held responsible for what others wait for: whoever waits for it
/// itself finds it first.
const OF_OTHERS: u32 = 4;

/// A pause of this process counts as one of these at most.
const TICK: Duration = Duration::from_secs(1);

/// Bytes between a run's node and its peers, over all lanes.
#[derive(Debug, Default)]
pub(crate) struct Totals(Mutex<BTreeMap<NodeId, Arc<AtomicU64>>>);

impl Totals {
    fn of(&self, peer: NodeId) -> Arc<AtomicU64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(peer).or_default().clone()
    }
}

/// What passes one edge, and for how long it was waited for.
#[derive(Debug)]
pub(crate) struct Pulse {
    peer: NodeId,
    least_rate: u64,
    window: Duration,
    total: Arc<AtomicU64>,
    /// Since the peer last said that it waits for another node.
    own: Span,
    /// Whoever is to blame.
    all: Span,
    /// The node that the peer last said it waits for.
    named: NodeId,
}

#[derive(Debug)]
struct Span {
    waited: Duration,
    /// The total when it began.
    before: u64,
}

impl Pulse {
    /// Of a peer that sends slices of up to `slice_bytes`.
    pub fn incoming(limits: &Limits, totals: &Totals, peer: NodeId, slice_bytes: usize) -> Self {
        // A large slice may be long in coming.
        Self::new(limits, totals, peer, limits.trickle.max(limits.stall_of(slice_bytes)))
    }

    /// Of a peer that takes slices. It gets longer: it may be held up by whoever it waits for, and finds that node first.
    pub fn outgoing(limits: &Limits, totals: &Totals, peer: NodeId) -> Self {
        Self::new(limits, totals, peer, OF_OTHERS * limits.trickle.max(limits.stall))
    }

    fn new(limits: &Limits, totals: &Totals, peer: NodeId, window: Duration) -> Self {
        let total = totals.of(peer);
        let span = || Span { waited: Duration::ZERO, before: total.load(Ordering::Relaxed) };
        let (own, all, least_rate) = (span(), span(), limits.least_rate);
        Self { peer, least_rate, window, total, own, all, named: peer }
    }

    /// So many bytes passed after the edge had waited for so long.
    ///
    /// # Errors
    /// `Stalled`, when they were too few for too long.
    pub fn passed(&mut self, bytes: usize, waited: Duration) -> Result<(), Fault> {
        let total = self.total.fetch_add(bytes as u64, Ordering::Relaxed).wrapping_add(bytes as u64);
        self.own.judge(self.peer, waited, total, self.window, self.least_rate)?;
        self.all.judge(self.named, waited, total, OF_OTHERS * self.window, self.least_rate)
    }

    /// The peer had nothing to send but a sign of life, because of a node.
    pub fn sign_of_life(&mut self, waiting_on: NodeId) {
        let header = HEADER_BYTES as u64;
        let total = self.total.fetch_sub(header, Ordering::Relaxed).wrapping_sub(header);
        self.named = waiting_on;
        if waiting_on != self.peer {
            self.own = Span { waited: Duration::ZERO, before: total };
        }
    }
}

impl Span {
    fn judge(
        &mut self,
        node: NodeId,
        waited: Duration,
        total: u64,
        window: Duration,
        least_rate: u64,
    ) -> Result<(), Fault> {
        self.waited += waited;
        if self.waited < window {
            return Ok(());
        }
        // Signs of life of other lanes may be taken off at any time.
        let passed = (total.wrapping_sub(self.before) as i64).max(0);
        let rate = passed as f64 / self.waited.as_secs_f64();
        if rate < least_rate as f64 {
            let detail = format!(
                "too slow for {window:?}: expected {least_rate} bytes a second at least, got {rate:.0}"
            );
            return Err(fault(FaultKind::Stalled, node, detail));
        }
        *self = Self { waited: Duration::ZERO, before: total };
        Ok(())
    }
}

/// Does `work`, and tells how long it took, where a pause of this process itself counts for little.
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut work = pin!(work);
    let mut waited = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let done = timeout(TICK, &mut work).await;
        waited += begun.elapsed().min(TICK);
        if let Ok(done) = done {
            return (done, waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(3);
    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        let (trickle, stall) = (10 * SECOND, SECOND);
        Limits { trickle, stall, least_rate: 1000, ..Limits::default() }
    }

    /// After how many seconds of so many bytes each the edge gives up, and on whom.
    fn ends(pulse: &mut Pulse, bytes: usize, seconds: usize) -> Option<(usize, NodeId)> {
        (1..=seconds).find_map(|second| Some((second, pulse.passed(bytes, SECOND).err()?.node)))
    }

    #[test]
    fn crumbs_end_an_edge_and_a_slow_link_does_not() {
        let totals = Totals::default();
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 4096), 999, 100), Some((10, PEER)));
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 4096), 1000, 100), None);
        assert_eq!(ends(&mut Pulse::outgoing(&limits(), &totals, PEER), 999, 100), Some((40, PEER)));
        // A burst makes up for the time before it in the same window only.
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        assert_eq!(ends(&mut pulse, 0, 9), None);
        pulse.passed(1 << 20, SECOND).unwrap();
        assert_eq!(ends(&mut pulse, 999, 100), Some((10, PEER)));
        // Large slices are waited for for longer.
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 32 << 20), 0, 100), Some((33, PEER)));
    }

    #[test]
    fn what_other_lanes_get_from_the_peer_counts_and_what_other_peers_send_does_not() {
        let totals = Totals::default();
        let mut one = Pulse::incoming(&limits(), &totals, PEER, 4096);
        let mut other = Pulse::incoming(&limits(), &totals, PEER, 4096);
        let mut elsewhere = Pulse::incoming(&limits(), &totals, NodeId(4), 4096);
        for _ in 0..100 {
            other.passed(1500, SECOND).unwrap();
            elsewhere.passed(5000, SECOND).unwrap();
            one.passed(100, SECOND).unwrap();
        }
        assert_eq!(ends(&mut one, 100, 20).map(|end| end.1), Some(PEER));
    }

    #[test]
    fn a_peer_that_waits_for_another_is_excused_and_the_other_answers_for_it_later() {
        let totals = Totals::default();
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        let mut second = 0;
        let fault = loop {
            second += 1;
            if let Err(fault) = pulse.passed(HEADER_BYTES + 100, SECOND) {
                break fault;
            }
            pulse.sign_of_life(NodeId(9));
        };
        assert_eq!((second, fault.node), (40, NodeId(9)));
        // Signs of life are not taken for slices, however many they are.
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        let mut shouted = 0;
        while pulse.passed(HEADER_BYTES, SECOND / 100).is_ok() {
            pulse.sign_of_life(PEER);
            shouted += 1;
        }
        assert_eq!(shouted, 999);
    }
}
