//! Makes a failing history shorter, as long as it fails in the same way.

use std::collections::BTreeSet;

use crate::child::{Options, play};
use crate::history::History;

/// The steps and faults that can be left out of a failing history, and how the rest of it fails; `tries`
/// limits the search.
pub fn shrink(seed: u64, failure: &str, options: Options, mut tries: usize) -> (BTreeSet<usize>, String) {
    let all = History::of(seed).len();
    let (mut left_out, mut why) = (BTreeSet::new(), failure.to_owned());
    let mut part = all.div_ceil(2);
    while part > 0 {
        let kept: Vec<usize> = (0..all).filter(|n| !left_out.contains(n)).collect();
        for numbers in kept.chunks(part) {
            if tries == 0 {
                return (left_out, why);
            }
            tries -= 1;
            let more: BTreeSet<usize> = left_out.iter().chain(numbers).copied().collect();
            if let Some(failure) = play(seed, &more, options).failure
                && kind(&failure) == kind(&why)
            {
                (left_out, why) = (more, failure);
            }
        }
        part /= 2;
    }
    (left_out, why)
}

/// The first words of a failure, without the names and numbers after them.
fn kind(failure: &str) -> String {
    failure.chars().take_while(|c| !c.is_ascii_digit()).take(24).collect()
}
