//! Figures: experiments declared as data, run on labs, reported beside the papers' published results.
//!
//! An [`Experiment`] has scenes (a lab each) with cases (a point of a figure each), and claims about the points.
//! [`run`] brings each lab up, fills it through the client, and takes samples with interleaved repetitions. The
//! normal planners make the plans. They run as the coordinator runs them, on agents that know nothing of
//! experiments. A [`Report`] holds every sample with the kernel's counters. Tables, charts and the page of the
//! documentation are made from it.
//!
//! In order of reading: `declare` (what an experiment consists of), `catalog` (the experiments), `engine`, `site`
//! (a lab with objects), `sweep` (the best settings of baselines), `single`, `recovery`, `client_work`, `disturbed` (the kinds of work), `simulated` (the
//! simulator's results for `single` and `recovery`), `report`, `verdict`, `table`, `summary`, `page`.
//!
//! Invariants: a sample counts only if it ended with the right bytes; no sample is dropped; the report contains
//! the scale and the load of the processors.

pub(crate) mod catalog;
mod chart;
pub(crate) mod client_work;
mod declare;
mod disturbed;
mod engine;
pub(crate) mod meter;
mod page;
pub(crate) mod recovery;
mod report;
mod simulated;
pub(crate) mod single;
pub(crate) mod site;
mod spread;
mod summary;
mod sweep;
mod table;
mod verdict;

pub use catalog::{Entry as Listed, Kind, Size, catalog, find};
pub use chart::{bar_chart, chart};
pub(crate) use declare::NO_PAPER;
pub use declare::{
    Aim, Baseline, Case, Claim, Experiment, Fault, Measure, Point, Recover, Scene, Slice, Value, Work,
};
pub use engine::{Settings, run};
pub use page::{check_places, splice};
pub use report::{Judged, Report, Row, Sample};
pub use simulated::{Trial, overheads};
pub use spread::Spread;
pub use summary::summary;
pub use sweep::{Found, Sweep, Swept, Tried};
pub use table::{Table, claims, differences, measured_by, points, reasons, sweeps};
