//! The control messages, by who speaks to whom.

mod cluster;
mod job;
mod object;
mod run;

pub use cluster::*;
pub use job::*;
pub use object::*;
pub use run::*;

use serde::{Deserialize, Serialize};

/// A request without content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// A reply that only says that it was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {}

/// A block digest as the store makes it.
pub type DigestBytes = [u8; 16];
