//! The messages of HDFS that Kintsu speaks, as far as it needs them: field numbers and types are those of
//! Hadoop 3.4.3, read from the descriptors in its jars. A field that is not listed here is skipped when it comes.
//!
//! - `rpc`: calls to a NameNode; - `names`: files and block groups; - `changes`: new files, renames, removals; - `transfer`: blocks to
//!   and from DataNodes.

pub mod changes;
pub mod names;
pub mod rpc;
pub mod transfer;

/// A message without fields.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Empty {}
