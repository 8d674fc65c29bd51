//! What a code costs and how safe it is, computed from the code itself: its decode graphs and its
//! generator, never from formulas about its family.
//!
//! [`costs`] are the measures of the LRC study, [`loss_counts`] the losses that a code decodes, [`check`] the
//! report of both, [`compare`] the table over families and parameters.

mod check;
mod compare;
mod cost;
mod error;
mod losses;
mod ratio;

pub use check::{CheckReport, GraphSize, Locality, check};
pub use compare::{Comparison, Request, Row, STUDIED, Work, compare, csv, work};
pub use cost::{Costs, RepairCost, costs, repair_cost};
pub use error::AnalysisError;
pub use losses::{LossCount, MAX_PATTERNS, binomial, loss_counts, patterns_to_count};
pub use ratio::Ratio;
