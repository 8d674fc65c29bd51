//! Writes to the same bytes go one after the other.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// The ranges that are being written.
#[derive(Default)]
pub(super) struct Ranges {
    held: Mutex<Vec<(u64, Range<u64>)>>,
    freed: Notify,
}

/// A range that is being written; free again when dropped.
pub(super) struct Held<'a> {
    ranges: &'a Ranges,
    number: u64,
}

impl Ranges {
    /// Waits until nobody writes to a byte of the range.
    pub async fn hold(&self, range: Range<u64>) -> Held<'_> {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that no news is missed.
            freed.as_mut().enable();
            if let Some(number) = self.take(&range) {
                return Held { ranges: self, number };
            }
            freed.await;
        }
    }

    fn take(&self, range: &Range<u64>) -> Option<u64> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.iter().any(|(_, other)| other.start < range.end && range.start < other.end) {
            return None;
        }
        let number = held.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        held.push((number, range.clone()));
        Some(number)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.ranges.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|(number, _)| *number != self.number);
        drop(held);
        self.ranges.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn only_ranges_apart_are_held_at_once() {
        let ranges = Ranges::default();
        let first = ranges.hold(0..10).await;
        let _apart = ranges.hold(10..20).await;
        let mut across = Box::pin(ranges.hold(9..11));
        assert!(across.as_mut().now_or_never().is_none());
        drop(first);
        let mut across = Box::pin(ranges.hold(5..11));
        assert!(across.as_mut().now_or_never().is_none());
        drop(_apart);
        across.await;
    }
}
