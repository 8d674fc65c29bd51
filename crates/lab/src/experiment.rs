//! Experiments: declared as data, run on labs, reported beside what papers publish.
//!
//! An [`Experiment`] is scenes (a lab each) with cases (a point of a figure each), and claims about them. [`run`]
//! brings each lab up, fills it through the client, and takes samples, repetitions interleaved: the plans are the
//! planners', conducted as the coordinator conducts them, against agents that know nothing of experiments. A
//! [`Report`] holds every sample, with what the kernel counted meanwhile; tables, charts and the page of the
//! documentation are made from it.
//!
//! In order of reading: `declare` (what there is to declare), `catalog` (the experiments), `engine`, `site` (a lab with
//! objects), `single`, `recovery`, `client_work`, `disturbed` (the kinds of work), `simulated` (what the simulator says
//! of the first), `report`, `table`, `page`.
//!
//! Invariants: nothing is measured that did not end with the right bytes; no sample is dropped; what the scale was
//! and how busy the processors were is part of the report.

mod catalog;
mod chart;
mod client_work;
mod declare;
mod disturbed;
mod engine;
mod machine;
mod meter;
mod page;
mod recovery;
mod report;
mod simulated;
mod single;
mod site;
mod spread;
mod table;

pub use catalog::{Entry as Listed, Kind, Size, catalog, find};
pub use chart::chart;
pub use declare::{
    Aim, Baseline, Case, Claim, Experiment, Fault, Measure, Point, Recover, Scene, Slice, Value, Work,
};
pub use engine::{Settings, Step, run};
pub use machine::Machine;
pub use page::{splice, summary};
pub use report::{Judged, Report, Row, Sample};
pub use simulated::{Trial, overheads};
pub use spread::Spread;
pub use table::{Table, claims, points};
