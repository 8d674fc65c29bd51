//! Which ranges of a block are in the log, and where: later ones cover earlier ones.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Generation;

/// Where the record of a range is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the record.
    pub number: u64,
    /// Its file.
    pub segment: u64,
    /// Where it begins in the file.
    pub at: u64,
    /// First byte of the block that the record covers.
    pub offset: u64,
    /// Bytes of its payload.
    pub len: u32,
    /// Whether it says zeros, without a payload.
    pub zeros: bool,
    /// The version of the block that its bytes are to be added to; `None`: they replace it.
    pub delta_of: Option<Generation>,
}

/// Ranges that do not overlap, by their first byte.
#[derive(Debug, Clone, Default)]
pub(super) struct Extents(BTreeMap<u64, (u64, Place)>);

impl Extents {
    /// Lays a range over what is there.
    pub fn add(&mut self, range: Range<u64>, place: Place) {
        self.remove(&range);
        self.0.insert(range.start, (range.end, place));
    }

    /// Takes a range out.
    fn remove(&mut self, range: &Range<u64>) {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let overlapping: Vec<(u64, u64, Place)> = self
            .0
            .range(first..range.end)
            .filter(|(_, (end, _))| *end > range.start)
            .map(|(start, (end, place))| (*start, *end, *place))
            .collect();
        for (start, end, place) in overlapping {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, (range.start, place));
            }
            if end > range.end {
                self.0.insert(range.end, (end, place));
            }
        }
    }

    /// Lays these over others.
    pub fn lay_on(&self, others: &mut Self) {
        self.0.iter().for_each(|(start, (end, place))| others.add(*start..*end, *place));
    }

    /// Forgets records up to this number.
    pub fn forget(&mut self, upto: u64) {
        self.0.retain(|_, (_, place)| place.number > upto);
    }

    /// The numbers of the records that are needed.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.values().map(|(_, place)| place.number)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts within a range, ascending.
    pub fn within(&self, range: &Range<u64>) -> Vec<(Range<u64>, Place)> {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let parts = self.0.range(first..range.end.max(first));
        parts
            .filter(|(_, (end, _))| *end > range.start)
            .map(|(start, (end, place))| ((*start).max(range.start)..(*end).min(range.end), *place))
            .filter(|(part, _)| part.start < part.end)
            .collect()
    }

    /// All ranges; those that touch are one.
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (&start, &(end, _)) in &self.0 {
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(number: u64) -> Place {
        Place { number, segment: 0, at: 0, offset: 0, len: 0, zeros: false, delta_of: None }
    }

    proptest! {
        #[test]
        fn the_newest_range_is_on_top_as_byte_by_byte(
            adds in proptest::collection::vec((0u64..60, 1u64..20), 1..20), upto in 0u64..20, from in 0u64..70, len in 0u64..30,
        ) {
            let (mut extents, mut model) = (Extents::default(), vec![None; 100]);
            for (number, (start, bytes)) in adds.iter().enumerate() {
                extents.add(*start..start + bytes, place(number as u64));
                model[*start as usize..(start + bytes) as usize].fill(Some(number as u64));
            }
            let check = |extents: &Extents, model: &[Option<u64>]| {
                let mut got = vec![None; 100];
                for (part, place) in extents.within(&(from..from + len)) {
                    got[part.start as usize..part.end as usize].fill(Some(place.number));
                }
                let expected: Vec<_> = (0..100u64)
                    .map(|at| model[at as usize].filter(|_| (from..from + len).contains(&at)))
                    .collect();
                assert_eq!(got, expected);
                let covered = extents.ranges();
                assert!((0..100).all(|at| model[at as usize].is_some() == covered.iter().any(|r| r.contains(&at))));
            };
            check(&extents, &model);
            extents.forget(upto);
            model.iter_mut().filter(|at| at.is_some_and(|number| number <= upto)).for_each(|at| *at = None);
            check(&extents, &model);
        }
    }
}
