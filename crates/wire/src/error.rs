//! Errors of the protocols, with what was expected and what came.

/// Why something received, or something to be sent, was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes are not a frame of this protocol, or were changed on the way.
    #[error("garbled frame: {what}: expected {expected}, got {got}")]
    Garbled {
        /// Which part.
        what: &'static str,
        /// What it should be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// The bytes end before the frame does.
    #[error("cut frame: expected {expected} bytes, got {got}")]
    Cut {
        /// Bytes of the whole frame.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// A payload larger than any peer may send.
    #[error("oversized frame: expected at most {expected} bytes of payload, got {got}")]
    Oversized {
        /// The limit.
        expected: usize,
        /// What the frame announces.
        got: usize,
    },
    /// The peer sends frames of another layout.
    #[error(
        "the peer speaks another version of the protocol: expected slice frames of version {expected} or just before, got {got}"
    )]
    Version {
        /// Ours.
        expected: u32,
        /// The peer's.
        got: u32,
    },
    /// The peer belongs to another cluster.
    #[error("the peer belongs to another cluster: expected {expected}, got {got}")]
    Foreign {
        /// Ours.
        expected: String,
        /// The peer's.
        got: String,
    },
    /// A listener that others could reach without protection.
    #[error("refusing to listen on {addr}: expected {expected}, got {got}")]
    Exposed {
        /// Where it was to listen.
        addr: std::net::SocketAddr,
        /// What would be right.
        expected: &'static str,
        /// What was configured.
        got: &'static str,
    },
    /// A bad argument.
    #[error("invalid {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
}
