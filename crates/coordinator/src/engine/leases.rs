//! How long puts may still take: a pure table of deadlines.
//!
//! Leases are not durable: after a restart of the coordinator every put gets a full new lease.

use std::collections::{BTreeMap, BTreeSet};

/// The deadlines of the puts under way.
#[derive(Debug, Clone, Default)]
pub struct Leases {
    deadlines: BTreeMap<u64, u64>,
    lease_ms: u64,
    /// The expired puts that could not be undone.
    hanging: BTreeSet<u64>,
}

impl Leases {
    /// Leases for these puts, each with the full time from now.
    pub fn new(lease_ms: u64, puts: impl IntoIterator<Item = u64>, now_ms: u64) -> Self {
        let deadlines = puts.into_iter().map(|put| (put, now_ms + lease_ms)).collect();
        Self { deadlines, lease_ms, hanging: BTreeSet::new() }
    }

    /// A put begins.
    pub fn grant(&mut self, put: u64, now_ms: u64) {
        self.deadlines.insert(put, now_ms + self.lease_ms);
    }

    /// A put goes on. Returns false if it has no lease any more.
    pub fn renew(&mut self, put: u64, now_ms: u64) -> bool {
        match self.deadlines.get_mut(&put) {
            Some(deadline) => {
                *deadline = now_ms + self.lease_ms;
                self.hanging.remove(&put);
                true
            }
            None => false,
        }
    }

    /// The coordinator could not run for so many milliseconds and heard nobody: no lease ends for that.
    pub fn excuse(&mut self, stalled_ms: u64) {
        self.deadlines.values_mut().for_each(|deadline| *deadline = deadline.saturating_add(stalled_ms));
    }

    /// An expired put could not be undone: its lease ends again at once, unless it is renewed.
    pub fn put_back(&mut self, put: u64, now_ms: u64) {
        self.deadlines.entry(put).or_insert(now_ms);
        self.hanging.insert(put);
    }

    /// A put has ended.
    pub fn end(&mut self, put: u64) {
        self.deadlines.remove(&put);
        self.hanging.remove(&put);
    }

    /// Number of expired puts that could not be undone.
    pub fn hanging(&self) -> u64 {
        self.hanging.len() as u64
    }

    /// Removes and returns the puts whose lease has run out.
    pub fn expired(&mut self, now_ms: u64) -> Vec<u64> {
        let late = self.deadlines.iter().filter(|(_, deadline)| **deadline <= now_ms);
        let late: Vec<u64> = late.map(|(put, _)| *put).collect();
        for put in &late {
            self.deadlines.remove(put);
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_out_once_unless_it_is_renewed() {
        let mut leases = Leases::new(10, [1], 100);
        leases.grant(2, 105);
        assert_eq!(leases.expired(109), [0u64; 0]);
        assert!(leases.renew(1, 109));
        assert_eq!(leases.expired(115), [2]);
        assert!(!leases.renew(2, 115));
        leases.excuse(7);
        assert_eq!(leases.expired(125), [0u64; 0]);
        assert_eq!(leases.expired(126), [1]);
        leases.put_back(1, 120);
        assert_eq!((leases.expired(120), leases.hanging()), (vec![1], 1));
        leases.end(1);
        assert_eq!(leases.hanging(), 0);
        leases.grant(3, 0);
        leases.end(3);
        assert_eq!(leases.expired(u64::MAX), [0u64; 0]);
    }
}
