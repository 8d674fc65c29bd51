//! What can go wrong beside an HDFS.

use std::net::SocketAddr;

use kintsu_code::CodeError;
use kintsu_plan::PlanError;
use kintsu_wire::message::Fault;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HdfsError {
    /// No NameNode or DataNode could be reached at an address.
    #[error("{what} at {address}: {error}")]
    Unreachable {
        /// NameNode or DataNode.
        what: &'static str,
        /// Where.
        address: String,
        /// What the operating system says.
        error: std::io::Error,
    },
    /// Something else listens there.
    #[error("{address}: expected {expected}, got {got}; {advice}")]
    Protocol {
        /// Where.
        address: String,
        /// What should have come.
        expected: String,
        /// What came.
        got: String,
        /// What to do.
        advice: &'static str,
    },
    /// All NameNodes are in standby.
    #[error(
        "expected an active NameNode, got only standbys: {0}; give the addresses of all NameNodes, separated by commas"
    )]
    Standby(String),
    /// The user may not do this.
    #[error("user {user} may not {what}: {message}{advice}")]
    Denied {
        /// Who asked.
        user: String,
        /// For what.
        what: String,
        /// The NameNode's words.
        message: String,
        /// What to do; empty, or begins with a semicolon.
        advice: &'static str,
    },
    /// There is no such file.
    #[error("{0}: no such file or folder in HDFS")]
    NotFound(String),
    /// The NameNode refused a call for another reason.
    #[error("NameNode: {call} failed: {exception}: {message}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The class of the exception.
        exception: String,
        /// Its message, the first line.
        message: String,
    },
    /// HDFS can do it, Kintsu cannot.
    #[error("{what}: expected {expected}, got {got}")]
    Unsupported {
        /// Of what.
        what: String,
        /// What Kintsu can work with.
        expected: String,
        /// What there is.
        got: String,
    },
    /// A DataNode refused an operation, or broke it off.
    #[error("DataNode {datanode}, block {block}: {message}")]
    Datanode {
        /// Which DataNode.
        datanode: SocketAddr,
        /// Which block, as HDFS names it.
        block: String,
        /// What it said, or what was missing.
        message: String,
    },
    /// Bytes and checksums do not agree.
    #[error("{what}: wrong bytes at {at}: expected checksum {expected:08x}, got {got:08x}")]
    Corrupt {
        /// Of what.
        what: String,
        /// Offset of the unit.
        at: u64,
        /// The stored checksum.
        expected: u32,
        /// That of the bytes.
        got: u32,
    },
    /// Bytes agree with their checksums, but not with the other blocks of the group.
    #[error("{0}")]
    Parity(String),
    /// The file or its group is not what it was when the work began.
    #[error("{what}: {change}; nothing was handed over")]
    Changed {
        /// Which file and group.
        what: String,
        /// What changed.
        change: String,
    },
    /// The block could not be brought into HDFS.
    #[error("{what}: {message}")]
    NotHandedOver {
        /// Which block.
        what: String,
        /// What was tried.
        message: String,
    },
    /// A code or a plan did not work out.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A code could not be made.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A run failed at a node.
    #[error("{}", .0.detail)]
    Run(Box<Fault>),
    /// A local file or a task.
    #[error("{what}: {error}")]
    Io {
        /// What was done.
        what: String,
        /// What the operating system says.
        error: std::io::Error,
    },
}

impl HdfsError {
    /// A local error.
    pub fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        Self::Io { what: what.into(), error }
    }

    /// Whether no NameNode answers, so that nothing else works out either. A DataNode that does not answer is one of many.
    pub(crate) fn no_namenode(&self) -> bool {
        matches!(self, Self::Unreachable { what: "NameNode", .. } | Self::Standby(_))
    }
}

impl From<Fault> for HdfsError {
    fn from(fault: Fault) -> Self {
        Self::Run(Box::new(fault))
    }
}
