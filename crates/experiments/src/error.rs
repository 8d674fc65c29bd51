//! Why an experiment does not run, or does not count.

/// Why an experiment does not run, or does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// An invalid description, or a wrong result.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which part.
        what: String,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// A measurement that does not count: what was expected, and what came.
    #[error("{0}")]
    Failed(String),
    /// Something failed in the course of this.
    #[error("{what}: {source}")]
    While {
        /// What was done.
        what: String,
        /// Why it failed.
        source: Box<ExperimentError>,
    },
    /// A command of an experiment failed.
    #[error("{command}: expected success, got {got}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        got: String,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A client of the cluster failed.
    #[error("{0}")]
    Client(#[from] kintsu_client::ClientError),
    /// The emulated cluster failed.
    #[error(transparent)]
    Lab(#[from] kintsu_lab::LabError),
    /// The cluster of this process failed.
    #[error(transparent)]
    Cluster(#[from] kintsu_cluster::ClusterError),
    /// A coordinator failed.
    #[error(transparent)]
    Coordinator(#[from] kintsu_coordinator::CoordinatorError),
    /// An agent failed.
    #[error(transparent)]
    Agent(#[from] kintsu_agent::AgentError),
    /// A coordinator refused a call.
    #[error(transparent)]
    Refused(#[from] tonic::Status),
    /// A peer cannot be reached, or its credentials are wrong.
    #[error(transparent)]
    Wire(#[from] kintsu_wire::WireError),
    /// A node of a benchmark cannot listen.
    #[error(transparent)]
    Plane(#[from] kintsu_runtime::PlaneError),
    /// A code cannot be made or used.
    #[error(transparent)]
    Code(#[from] kintsu_code::CodeError),
    /// A graph is wrong.
    #[error(transparent)]
    Dag(#[from] kintsu_dag::DagError),
    /// A matrix cannot be inverted.
    #[error(transparent)]
    Algebra(#[from] kintsu_algebra::MatrixError),
    /// A kernel cannot be made or used.
    #[error(transparent)]
    Kernel(#[from] kintsu_kernel::KernelError),
    /// A cost cannot be computed.
    #[error(transparent)]
    Analysis(#[from] kintsu_analysis::AnalysisError),
    /// A repair could not be planned.
    #[error(transparent)]
    Plan(#[from] kintsu_plan::PlanError),
    /// A plan could not be played by the simulator.
    #[error(transparent)]
    Sim(#[from] kintsu_sim::SimError),
    /// A block cannot be stored or read.
    #[error(transparent)]
    Store(#[from] kintsu_store::StoreError),
    /// The disk or a socket failed.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// A task of this process ended early.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// JSON that cannot be read.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// What functions of this crate return.
pub type Result<T, E = ExperimentError> = std::result::Result<T, E>;

impl ExperimentError {
    pub(crate) fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into(), got: got.to_string() }
    }

    /// For `map_err`: an I/O error while doing `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// Says in the course of what something failed, or is missing.
pub(crate) trait Context<T>: Sized {
    /// Adds the text to an error.
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T>;

    /// The same with a constant text.
    fn context(self, what: &str) -> Result<T> {
        self.with_context(|| what.to_owned())
    }
}

impl<T, E: Into<ExperimentError>> Context<T> for Result<T, E> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| ExperimentError::While { what: what(), source: Box::new(source.into()) })
    }
}

impl<T> Context<T> for Option<T> {
    fn with_context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| ExperimentError::invalid(what(), "one", "none"))
    }
}

/// Fails with a text if something does not hold.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err($crate::ExperimentError::Failed(format!($($text)+)));
        }
    };
}
pub(crate) use ensure;
