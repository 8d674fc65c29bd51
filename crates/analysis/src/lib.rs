//! What a code costs and how safe it is, computed from the code itself: its decode graphs and its
//! generator, never from formulas about its family.
//!
//! [`costs`] gives the measures of the LRC study, [`loss_counts`] the losses that a code decodes, [`check`] the
//! report of both, [`compare`] the table over families and parameters, [`figures`] its drawing, [`reliability`]
//! the mean time to data loss, and [`advise`] the best code for a cluster.

mod advise;
mod chart;
mod check;
mod compare;
mod cost;
mod error;
mod loss_probability;
mod losses;
mod ratio;
mod reliability;
mod update_loss;

pub use advise::{Advice, Answer, MAX_WIDTH, Objective, Placer, Refused, Relaxation, Requirements, advise};
pub use chart::{BarChart, BarGroup, ChartBar, Timeline, TimelineGroup, TimelineRow, figures};
pub use check::{CheckReport, GraphSize, Locality, check};
pub use compare::{Comparison, Request, Row, STUDIED, Work, compare, csv, work};
pub use cost::{Costs, RepairCost, costs, design_costs, repair_cost, sent_along_a_path};
pub use error::AnalysisError;
pub use loss_probability::{
    Cau, CauLoss, Chameleon, HOURS_PER_YEAR, PAPER_NODE_MTTF_H, failure_probability, mttf_of_afr_h,
    paper_rack_mttf_h,
};
pub use losses::{LossCount, MAX_PATTERNS, binomial, loss_counts, patterns_to_count};
pub use ratio::Ratio;
pub use reliability::{Environment, Lifetime, RackReliability, Reliability, reliability};
pub use update_loss::{AppendPhase, Durability, UpdateLoss};
