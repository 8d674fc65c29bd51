//! Experiments: published figures, benchmarks and studies. Each is a function of its options that tells its progress
//! and returns what it measured; the command line parses and prints.
//!
//! - [`figures`]: published figures as data, repeated on emulated clusters.
//! - [`study`]: codes on a cluster in this process, measured bytes beside theory.
//! - [`give_way`]: repairs that give way to users, by several policies.
//! - [`trace`] and [`replay`]: block-level traces, and what update schemes send across racks for them.
//! - [`workload`]: foreground load: generators of users' operations, and a player that runs them.
//! - [`under_load`]: repairs while users work; the ChameleonEC paper's figures are made of them.
//! - [`mod@bench`]: measurements of this machine, with both sides of each ratio in the same run.

pub mod bench;
mod chameleon;
mod error;
pub mod figures;
pub mod give_way;
mod jobs;
mod machine;
mod page;
mod plain;
pub mod replay;
mod step;
pub mod study;
pub mod trace;
pub mod under_load;
pub mod workload;

pub use error::{ExperimentError, Result};
pub use machine::Machine;
pub use step::Step;
