//! Erasure codes: from a name and its parameters to a generator matrix, encode and decode graphs,
//! and groups.
//!
//! A code is made by name ([`parse`], `rs:n=14,k=10`) or from data ([`Definition::prove`], [`from_generator`]). In
//! both cases its claimed distance is proved before the code is returned, by exhaustion or by a theorem whose
//! conditions are checked on the actual matrix (see the `distance` module). A code is a value: it moves no bytes,
//! knows no nodes and does no I/O. Block order is data `0..k`, then local parities, then global parities.
//!
//! Source: OpenEC (FAST'19), section 3.3, for the interface; each family names its own.

mod azure_lrc;
mod azure_lrc_plus1;
mod butterfly;
mod clay;
mod code;
mod decode;
mod definition;
mod describe;
mod distance;
mod drc;
mod error;
mod hitchhiker;
mod less;
mod linear;
mod miser;
mod name;
mod optimal_lrc;
mod recoverable;
mod replication;
mod rotated_rs;
mod rs;
mod sparsest;
mod xorbas;

pub use code::Code;
pub use decode::decode_linear;
pub use definition::{Definition, USER, check_name as check_user_name};
pub use describe::{CodeReport, FamilyReport, KeyReport, family_reports, report};
pub use error::CodeError;
pub use linear::from_generator;
pub use name::{Family, Key, families, parse};
