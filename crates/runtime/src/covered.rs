//! Which bytes of an unfinished block have been written.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges (start to end) that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Covered(BTreeMap<u64, u64>);

impl Covered {
    /// The offset up to which everything is covered.
    pub fn prefix(&self) -> u64 {
        self.0.get(&0).copied().unwrap_or(0)
    }

    /// The parts of `range` that are not covered.
    pub fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = range.start;
        let before = self.0.range(..=range.start).next_back();
        for (&start, &end) in before.into_iter().chain(self.0.range(range.start + 1..)) {
            if start >= range.end {
                break;
            }
            if start > at {
                missing.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Covers `range`, which was not covered.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let end = self.0.remove(&range.end).unwrap_or(range.end);
        match self.0.range_mut(..range.start).next_back() {
            Some((_, last)) if *last == range.start => *last = end,
            _ => {
                self.0.insert(range.start, end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_list_of_bytes(pieces in proptest::collection::vec((0u64..100, 1u64..30), 0..30)) {
            let mut covered = Covered::default();
            let mut bytes = [false; 130];
            for (start, len) in pieces {
                let mut expected = bytes;
                for missing in covered.missing(start..start + len) {
                    for at in missing.clone() {
                        prop_assert!(!bytes[at as usize]);
                        bytes[at as usize] = true;
                    }
                    covered.add(missing);
                }
                expected[start as usize..(start + len) as usize].fill(true);
                prop_assert_eq!(bytes, expected);
                let prefix = bytes.iter().position(|there| !there).unwrap_or(130);
                prop_assert_eq!(covered.prefix(), prefix as u64);
            }
        }
    }
}
