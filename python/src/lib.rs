//! The Python package's native half: graphs, proved codes, buffers, and a cluster's client.
//!
//! The other half (`kintsu/*.py`) is what people see: the class that codes are derived from, reports, tables. All
//! computation is done by the crates below. This crate converts, maps errors, and releases the interpreter's lock
//! while kernels or the cluster work. It has no unsafe code.
//!
//! In order of reading: `graph`, `code`, `buffers`, `analysis`, `cluster` with `wait`, `convert` and `error`.

mod analysis;
mod buffers;
mod cluster;
mod code;
mod convert;
mod error;
mod graph;
mod wait;

/// What `kintsu/*.py` imports.
#[pyo3::pymodule]
mod _kintsu {
    #[pymodule_export]
    use crate::analysis::{advise, families, field_inverse, field_multiply, study};
    #[pymodule_export]
    use crate::cluster::Cluster;
    #[pymodule_export]
    use crate::code::{ProvedCode, define, parse};
    #[pymodule_export]
    use crate::graph::Dag;
}
