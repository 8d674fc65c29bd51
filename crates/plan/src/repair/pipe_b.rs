//! Pipe-B, a baseline (ECPipe, section 6.4): a chain whose helpers send on only whole blocks.

use super::flat;
use super::method::MethodRow;
use crate::RunMode;

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "pipe-b",
    about: "As flat, but only whole blocks are sent on; for comparison",
    run_mode: RunMode::WholeBlocks,
    ..flat::METHOD
};
