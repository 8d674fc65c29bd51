//! Tells the coordinator how long operations took, if it wants to know: it holds repairs back by that.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kintsu_wire::message::Felt;
use tokio::time::Instant;

use crate::Client;

/// How often a client tells at most, unless it has done [`MOST`] operations.
const EVERY: Duration = Duration::from_millis(500);
/// Operations in one message.
const MOST: usize = 256;

/// What was not told yet.
#[derive(Debug, Default)]
pub(crate) struct Untold {
    pending: Mutex<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    micros: Vec<u32>,
    told: Option<Instant>,
}

impl Untold {
    /// Adds an operation; returns all that are to be told now.
    fn add(&self, took: Duration, now: Instant) -> Option<Vec<u32>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.micros.push(u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        let due = pending.told.is_none_or(|told| now - told >= EVERY) || pending.micros.len() >= MOST;
        due.then(|| {
            pending.told = Some(now);
            std::mem::take(&mut pending.micros)
        })
    }

    /// All that was not told yet.
    fn rest(&self) -> Vec<u32> {
        std::mem::take(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner).micros)
    }
}

impl Client {
    /// An operation took this long, about which the coordinator said whether it wants to know.
    pub(crate) fn felt(&self, wanted: bool, took: Duration) {
        if wanted && let Some(micros) = self.untold().add(took, Instant::now()) {
            self.tell(micros);
        }
    }

    /// Tells the rest.
    pub(crate) fn tell_rest(&self) {
        let micros = self.untold().rest();
        if !micros.is_empty() {
            self.tell(micros);
        }
    }

    /// In the background; if it fails, these operations are not counted.
    fn tell(&self, micros: Vec<u32>) {
        let mut coordinator = self.coordinator();
        self.farewell(async move {
            if let Err(status) = coordinator.objects.felt(Felt { micros }).await {
                tracing::debug!(
                    "the coordinator was not told how long operations took: {}",
                    status.message()
                );
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_now_and_then_and_none_twice() {
        let (untold, begun, ms) = (Untold::default(), Instant::now(), Duration::from_millis);
        assert_eq!(untold.add(ms(3), begun), Some(vec![3000]));
        assert_eq!(untold.add(ms(4), begun + ms(1)), None);
        assert_eq!(untold.add(ms(5), begun + EVERY), Some(vec![4000, 5000]));
        assert_eq!(untold.add(ms(6), begun + EVERY), None);
        assert_eq!((untold.rest(), untold.rest()), (vec![6000], Vec::new()));
        let many = (0..MOST).filter_map(|_| untold.add(Duration::MAX, begun + EVERY)).next().unwrap();
        assert_eq!((many.len(), many[0]), (MOST, u32::MAX));
    }
}
