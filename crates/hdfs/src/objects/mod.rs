//! HDFS as a store: objects of any code, each block of which is a block of a file of replication 1 on a DataNode that was chosen.
//!
//! An object is a folder with a small record (`.kintsu`), which is written last and by renaming. The blocks with index i of all stripes
//! are one file. A file of HDFS can also be encoded where it is: then its own blocks are the data, and its parity and
//! record are in `/.kintsu/INODE`. From the record and what the NameNode says about blocks each stripe becomes a [`Group`](crate::Group):
//! it is read, compared and repaired like a block group of HDFS's own erasure coding, by the same plans and the same safe hand-over.
//!
//! What it is not: it has no coordinator and keeps nothing elsewhere; it takes no part in how HDFS keeps files (`docs/hdfs.md`,
//! `docs/adr/0015-hdfs-as-a-store.md`).
//!
//! Invariants: no record names a block that is not finished on its DataNode; no replica of an encoded file is given up before its
//! parity was read back and compared; nothing is removed that no record named, unless the user asks for leftovers.

mod columns;
mod encode;
mod list;
mod met;
mod object;
mod place;
mod put;
mod record;
mod repair;
mod spread;

pub(crate) use columns::drawn;
pub use encode::{Encoded, encode};
pub use list::{Listed, Listing, ObjectStatus, Removed, leftovers, list, object_status, remove};
pub(crate) use met::{Met, Records};
#[cfg(test)]
pub(crate) use object::tests;
pub(crate) use object::{ENCODED, is_gone, refresh};
pub use put::{PutOptions, Written, put};
pub(crate) use record::Known;
#[cfg(fuzzing)]
pub(crate) use record::record_of_json;
pub(crate) use repair::bad_blocks;
pub use repair::{RepairedObjects, get_object, object_bytes, repair_objects, verify_objects};
pub use spread::Moved;
pub(crate) use spread::carry;
