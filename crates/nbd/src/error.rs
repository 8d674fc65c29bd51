//! Why a server does not start, or a connection ends.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use kintsu_wire::WireError;

/// Why a server does not start, or a connection ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The address may not be listened on.
    #[error("{0}")]
    Exposed(#[from] WireError),
    /// The address cannot be listened on.
    #[error("cannot listen on {on}: {source}")]
    Listen {
        /// The address or the path.
        on: String,
        /// The reason.
        source: io::Error,
    },
    /// Another server answers on this Unix socket.
    #[error("{}: expected a free path, got a socket on which another server answers; choose another path", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The path for a Unix socket belongs to something else.
    #[error("{}: expected a free path or a socket, got {got}; it was not touched, choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
        /// What is there.
        got: &'static str,
    },
    /// The name or the device cannot be exported.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        got: String,
    },
    /// A client broke the rules of the protocol in a way that allows no answer.
    #[error("{what}: expected {expected}, got {got}")]
    Protocol {
        /// Which field.
        what: &'static str,
        /// What the protocol wants.
        expected: String,
        /// What came.
        got: String,
    },
    /// A client did not get into TLS, or is nobody who may.
    #[error("expected a client or an operator of the cluster with a certificate, got: {0}")]
    Stranger(io::Error),
    /// A client did not end its handshake.
    #[error("expected the end of the handshake within {0:?}")]
    Slow(Duration),
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}
