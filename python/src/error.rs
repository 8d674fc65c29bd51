//! From the errors of the crates below to the exceptions of `kintsu/errors.py`.

use kintsu_analysis::AnalysisError;
use kintsu_client::ClientError;
use kintsu_code::CodeError;
use kintsu_dag::DagError;
use kintsu_wire::message::Fault;
use pyo3::PyErr;

/// The exceptions, as Python defines them.
mod python {
    pyo3::import_exception!(kintsu.errors, InvalidError);
    pyo3::import_exception!(kintsu.errors, UnrecoverableError);
    pyo3::import_exception!(kintsu.errors, ClusterError);
    pyo3::import_exception!(kintsu.errors, NotFoundError);
    pyo3::import_exception!(kintsu.errors, ExistsError);
    pyo3::import_exception!(kintsu.errors, UnreachableError);
}

/// The error for a bad argument.
pub(crate) fn invalid(
    what: impl std::fmt::Display,
    expected: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> PyErr {
    python::InvalidError::new_err(format!("invalid {what}: expected {expected}, got {got}"))
}

pub(crate) fn of_graph(error: DagError) -> PyErr {
    python::InvalidError::new_err(error.to_string())
}

pub(crate) fn of_code(error: CodeError) -> PyErr {
    match error {
        CodeError::Unrecoverable { .. } => python::UnrecoverableError::new_err(error.to_string()),
        _ => python::InvalidError::new_err(error.to_string()),
    }
}

pub(crate) fn of_analysis(error: AnalysisError) -> PyErr {
    match error {
        AnalysisError::Code(error) => of_code(error),
        other => python::InvalidError::new_err(other.to_string()),
    }
}

pub(crate) fn of_fault(fault: Fault) -> PyErr {
    python::InvalidError::new_err(fault.detail)
}

pub(crate) fn of_cluster(error: ClientError) -> PyErr {
    let text = error.to_string();
    match error {
        ClientError::NotFound(_) => python::NotFoundError::new_err(text),
        ClientError::Exists(_) => python::ExistsError::new_err(text),
        ClientError::Invalid(_) => python::InvalidError::new_err(text),
        ClientError::Unrecoverable(_) => python::UnrecoverableError::new_err(text),
        ClientError::Unreachable(_) => python::UnreachableError::new_err(text),
        _ => python::ClusterError::new_err(text),
    }
}

/// The error for unexpected behaviour of the cluster.
pub(crate) fn cluster(text: impl Into<String>) -> PyErr {
    python::ClusterError::new_err(text.into())
}
