//! Pipe-S, a baseline (ECPipe, section 6.4): a chain whose helpers do one thing after the other.

use super::flat;
use super::method::MethodRow;
use crate::RunMode;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "pipe-s",
    about: "As flat, but each helper does one operation after the other; for comparison",
    run_mode: RunMode::Serial,
    ..flat::METHOD
};
