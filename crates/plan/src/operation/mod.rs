//! The plans of operations other than repair: `read` (normal and degraded), `write` (a put, and encoding where the
//! data is), `copy` (a block to another node), `duplicate` (blocks into another stripe), `compare` (blocks with each other), `probe` (measuring a link).

mod compare;
mod copy;
mod duplicate;
mod probe;
mod read;
mod write;

pub use compare::{compare, compare_encoded};
pub use copy::{copy, settle};
pub use duplicate::{Duplicate, duplicate};
pub use probe::{PROBE, probe};
pub use read::{read, read_by};
pub use write::{Binding, encode_offline, encode_online, write_plain};
