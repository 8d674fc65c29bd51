//! The progress of an experiment.

/// What is being done, and how much of it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The current step in words.
    pub what: String,
    /// Samples, losses or bytes so far.
    pub done: u64,
    /// All of them.
    pub total: u64,
}
