//! Decides when repairs start automatically: a pure state machine.
//!
//! One automatic job at a time repairs everything that is due: blocks on overdue nodes at once (these nodes
//! have had their grace time), and blocks flagged lost once the first of them has been flagged for the grace
//! time. After a job with failures the next one waits, unless a node came or went.

use super::Held;

/// Wait after an automatic job that could not repair everything, in milliseconds.
const RETRY_MS: u64 = 30_000;

/// Decides when the next automatic job starts.
#[derive(Debug, Clone)]
pub struct Auto {
    grace_ms: u64,
    running: bool,
    not_before_ms: u64,
    lost_since_ms: Option<u64>,
    cancelled: bool,
    held: Option<Held>,
}

impl Auto {
    /// Nothing is due yet.
    pub fn new(grace_ms: u64) -> Self {
        Self { grace_ms, running: false, not_before_ms: 0, lost_since_ms: None, cancelled: false, held: None }
    }

    /// Time has passed. `lost` blocks are flagged lost, and `overdue` blocks are on overdue nodes. Returns
    /// whether a job is to start now; it counts as running from then on.
    pub fn tick(&mut self, now_ms: u64, lost: u64, overdue: u64) -> bool {
        if lost == 0 {
            self.lost_since_ms = None;
        } else {
            self.lost_since_ms.get_or_insert(now_ms);
        }
        let waited = self.lost_since_ms.is_some_and(|t| now_ms.saturating_sub(t) >= self.grace_ms);
        let due = (overdue > 0 || waited) && !self.running && !self.cancelled && now_ms >= self.not_before_ms;
        self.running |= due;
        due
    }

    /// The job has ended.
    pub fn ended(&mut self, now_ms: u64, failures: bool) {
        self.running = false;
        self.not_before_ms = if failures { now_ms + RETRY_MS } else { now_ms };
    }

    /// An operator cancelled the job: no other one starts until a node comes or goes, or somebody asks for repairs.
    pub fn cancelled(&mut self) {
        (self.running, self.cancelled) = (false, true);
    }

    /// From now on repairs of nodes that are gone are held, or not. Returns whether that is new.
    pub fn hold(&mut self, held: Option<Held>) -> bool {
        std::mem::replace(&mut self.held, held).is_some() != held.is_some()
    }

    /// Why repairs of nodes that are gone are held.
    pub fn held(&self) -> Option<Held> {
        self.held
    }

    /// Whether no job starts because one was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// A node came or went: repairs that failed may succeed now. Or somebody asked for repairs.
    pub fn nodes_changed(&mut self) {
        (self.not_before_ms, self.cancelled) = (0, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_nodes_are_repaired_at_once_and_once_at_a_time() {
        let mut auto = Auto::new(60);
        assert!(!auto.tick(0, 0, 0));
        assert!(auto.tick(1, 0, 5));
        assert!(!auto.tick(2, 0, 5));
        auto.ended(3, false);
        assert!(auto.tick(3, 0, 5));
        auto.ended(4, true);
        assert!(!auto.tick(4 + RETRY_MS - 1, 0, 5));
        assert!(auto.tick(4 + RETRY_MS, 0, 5));
        auto.ended(RETRY_MS * 2, true);
        auto.nodes_changed();
        assert!(auto.tick(RETRY_MS * 2, 0, 5));
    }

    #[test]
    fn lost_blocks_have_their_grace_from_when_the_first_was_lost() {
        let mut auto = Auto::new(60);
        assert!(!auto.tick(10, 1, 0) && !auto.tick(69, 2, 0));
        assert!(auto.tick(70, 2, 0));
        auto.ended(71, false);
        assert!(!auto.tick(72, 0, 0) && !auto.tick(200, 1, 0) && !auto.tick(259, 1, 0));
        assert!(auto.tick(260, 1, 0));
    }

    #[test]
    fn after_a_cancelled_job_the_next_waits_for_a_change() {
        let mut auto = Auto::new(60);
        assert!(auto.tick(1, 0, 5));
        auto.cancelled();
        assert!(!auto.tick(1_000_000, 0, 5) && auto.is_cancelled());
        auto.nodes_changed();
        assert!(auto.tick(1_000_001, 0, 5) && !auto.is_cancelled());
    }
}
