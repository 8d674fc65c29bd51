//! Update locality (CAU, section 5.1): how many stripes a thousand writes touch on average.

use std::collections::BTreeSet;

use super::dirty::StripeKey;

/// Writes of one window.
const WINDOW: u64 = 1000;

#[derive(Default)]
pub(super) struct Locality {
    now: BTreeSet<StripeKey>,
    writes: u64,
    windows: u64,
    touched: u64,
}

impl Locality {
    pub fn write(&mut self, stripes: impl Iterator<Item = StripeKey>) {
        self.now.extend(stripes);
        self.writes += 1;
        if self.writes.is_multiple_of(WINDOW) {
            self.windows += 1;
            self.touched += self.now.len() as u64;
            self.now.clear();
        }
    }

    /// Stripes in a window; a trace of fewer writes is one window.
    pub fn average(&self) -> f64 {
        match self.windows {
            0 => self.now.len() as f64,
            windows => self.touched as f64 / windows as f64,
        }
    }
}
