//! Detects peers that are alive and move bytes, but so few that the run would never end.
//!
//! The timeouts for silence and stalls (`receive.rs`) count from the last byte or slice, so a peer that sends a
//! byte now and then never reaches them. A [`Pulse`] adds up the time that one edge waited for its peer, and the
//! bytes that went between the two meanwhile, over all lanes of the run. If their rate over a window is below the
//! least rate, the peer has stalled. Time in which the peer itself waited for another node does not count against
//! the peer. It counts against that other node, over a longer window.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::frame::HEADER_BYTES;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::time::{Instant, timeout};

use crate::exchanged::{Exchanged, Peer};
use crate::fault::fault;
use crate::limits::Limits;
use crate::verdict::NOBODY;

/// A node that our peer waits for is blamed only after this many windows: the node that waits for it directly
/// notices first.
const OF_OTHERS: u32 = 4;

/// A pause of this process counts as at most one tick.
const TICK: Duration = Duration::from_secs(1);

/// The bytes that pass one edge, and how long the edge waited for them.
#[derive(Debug)]
pub(crate) struct Pulse {
    peer: NodeId,
    least_rate: u64,
    window: Duration,
    /// What passed between the two, over all lanes.
    exchanged: Arc<Peer>,
    /// Judges the peer: counts since it last said that it waits for another node.
    own: Span,
    /// Judges the node that the peer last named: counts all waiting, whatever its cause.
    all: Span,
    /// The node that the peer last said it waits for.
    named: NodeId,
}

#[derive(Debug)]
struct Span {
    waited: Duration,
    /// The total when the span began.
    before: u64,
}

impl Pulse {
    /// For a peer that sends slices of up to `slice_bytes`.
    pub fn incoming(limits: &Limits, exchanged: &Exchanged, peer: NodeId, slice_bytes: usize) -> Self {
        // A large slice may take long to come.
        Self::new(limits, exchanged, peer, limits.trickle.max(limits.stall_of(slice_bytes)))
    }

    /// For a peer that takes slices. Its window is longer: it may itself wait for another node, and must notice
    /// that node first.
    pub fn outgoing(limits: &Limits, exchanged: &Exchanged, peer: NodeId) -> Self {
        Self::new(limits, exchanged, peer, OF_OTHERS * limits.trickle.max(limits.stall))
    }

    fn new(limits: &Limits, exchanged: &Exchanged, peer: NodeId, window: Duration) -> Self {
        let exchanged = exchanged.of(peer);
        let span = || Span { waited: Duration::ZERO, before: exchanged.bytes.load(Ordering::Relaxed) };
        let (own, all, least_rate) = (span(), span(), limits.least_rate);
        Self { peer, least_rate, window, exchanged, own, all, named: peer }
    }

    /// The edge begins to wait for its peer's bytes.
    pub fn waits(&self) {
        self.exchanged.waits();
    }

    /// Bytes have come, or will never come.
    pub fn came(&self, bytes: usize) {
        self.exchanged.came(bytes > 0);
    }

    /// Takes into account that `bytes` passed after the edge had waited for `waited`.
    ///
    /// # Errors
    /// `Stalled`, when the rate was too low over a whole window.
    pub fn passed(&mut self, bytes: usize, waited: Duration) -> Result<(), Fault> {
        let total =
            self.exchanged.bytes.fetch_add(bytes as u64, Ordering::Relaxed).wrapping_add(bytes as u64);
        self.own.judge(self.peer, waited, total, self.window, self.least_rate)?;
        self.all.judge(self.named, waited, total, OF_OTHERS * self.window, self.least_rate)
    }

    /// The peer sent only a keep-alive, because it waits for the node `waiting_on`.
    pub fn sign_of_life(&mut self, waiting_on: NodeId) {
        let header = HEADER_BYTES as u64;
        let total = self.exchanged.bytes.fetch_sub(header, Ordering::Relaxed).wrapping_sub(header);
        self.named = waiting_on;
        if waiting_on != self.peer {
            self.own = Span { waited: Duration::ZERO, before: total };
        }
        if waiting_on == NOBODY {
            self.all = Span { waited: Duration::ZERO, before: total };
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
        // Keep-alives of other lanes may be subtracted at any time, so the difference can be below zero.
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

/// Does `work`, and returns how long it took; a pause of this process counts as at most one tick.
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

    /// After how many seconds, with `bytes` in each, the edge gives up, and on which node.
    fn ends(pulse: &mut Pulse, bytes: usize, seconds: usize) -> Option<(usize, NodeId)> {
        (1..=seconds).find_map(|second| Some((second, pulse.passed(bytes, SECOND).err()?.node)))
    }

    #[test]
    fn crumbs_end_an_edge_and_a_slow_link_does_not() {
        let totals = Exchanged::default();
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 4096), 999, 100), Some((10, PEER)));
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 4096), 1000, 100), None);
        assert_eq!(ends(&mut Pulse::outgoing(&limits(), &totals, PEER), 999, 100), Some((40, PEER)));
        // A burst makes up for earlier slowness in the same window only.
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        assert_eq!(ends(&mut pulse, 0, 9), None);
        pulse.passed(1 << 20, SECOND).unwrap();
        assert_eq!(ends(&mut pulse, 999, 100), Some((10, PEER)));
        // For large slices the window is longer.
        assert_eq!(ends(&mut Pulse::incoming(&limits(), &totals, PEER, 32 << 20), 0, 100), Some((33, PEER)));
    }

    #[test]
    fn what_other_lanes_get_from_the_peer_counts_and_what_other_peers_send_does_not() {
        let totals = Exchanged::default();
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
        let totals = Exchanged::default();
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
        // A peer that keeps the limit of repairs is not to blame, and nobody else is.
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        for _ in 0..100 {
            assert_eq!(pulse.passed(HEADER_BYTES + 100, SECOND), Ok(()));
            pulse.sign_of_life(NOBODY);
        }
        // Keep-alives do not count as slices, however many they are.
        let mut pulse = Pulse::incoming(&limits(), &totals, PEER, 4096);
        let mut shouted = 0;
        while pulse.passed(HEADER_BYTES, SECOND / 100).is_ok() {
            pulse.sign_of_life(PEER);
            shouted += 1;
        }
        assert_eq!(shouted, 999);
    }
}
