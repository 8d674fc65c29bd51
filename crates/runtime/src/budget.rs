//! How many slices may wait in queues: always one step for each edge, more while memory is left.
//!
//! A run takes its share once, at its start, and never waits for memory, so runs cannot block each other.

use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that the queues of all runs of a process may hold beyond one step for each edge.
const BUDGET_BYTES: usize = 12 << 20;

/// A queue may hold at least this many bytes, whatever the size of a slice.
const LEAST_QUEUE_BYTES: usize = 512 << 10;

/// A queue holds at most this many bytes, unless one step has more.
const MOST_QUEUE_BYTES: usize = 2 << 20;

/// The bytes left.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    left: Arc<Mutex<usize>>,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: Arc::new(Mutex::new(BUDGET_BYTES)) }
    }
}

/// What a run was granted; returned to the budget when dropped.
#[derive(Debug)]
pub(crate) struct Grant {
    left: Arc<Mutex<usize>>,
    bytes: usize,
    /// Steps that each queue may hold.
    pub depth: usize,
}

impl Budget {
    /// Grants queues for `edges` edges that carry `step_bytes` a step on average: `depth` steps deep if that is
    /// useful and memory is left.
    pub fn grant(&self, edges: usize, step_bytes: usize, depth: usize) -> Grant {
        let step = step_bytes.max(1);
        let wanted = depth.max(LEAST_QUEUE_BYTES / step).min(MOST_QUEUE_BYTES / step).clamp(1, 256);
        let beyond_one = edges.max(1).saturating_mul(step);
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let more = (wanted - 1).min(*left / beyond_one);
        *left -= more * beyond_one;
        Grant { left: self.left.clone(), bytes: more * beyond_one, depth: more + 1 }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_one_step_and_nobody_more_than_is_left() {
        let budget = Budget::default();
        let mut grants = Vec::new();
        for _ in 0..50 {
            grants.push(budget.grant(11, 1 << 20, 8));
        }
        assert!(grants.iter().all(|grant| grant.depth >= 1));
        assert!(grants.iter().map(|grant| grant.bytes).sum::<usize>() <= BUDGET_BYTES);
        drop(grants);
        assert_eq!(*budget.left.lock().unwrap(), BUDGET_BYTES);
        assert_eq!(budget.grant(2, 32 << 10, 8).depth, 16);
        assert_eq!(budget.grant(2, 1 << 20, 8).depth, 2);
        assert_eq!(budget.grant(2, 4 << 10, 8).depth, 128);
        assert_eq!(budget.grant(1, 16 << 20, 8).depth, 1);
        assert_eq!(budget.grant(0, 0, 8).depth, 256);
    }
}
