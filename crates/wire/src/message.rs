//! The control messages, grouped by sender and receiver.

mod attributes;
mod beside;
mod change;
mod cluster;
mod code;
mod copy;
mod counts;
mod health;
mod job;
mod label;
mod object;
mod pack;
mod rates;
mod rebuild;
mod repairs;
mod run;
mod settings;
mod space;
mod update;
mod volume;

pub use attributes::*;
pub use beside::*;
pub use change::*;
pub use cluster::*;
pub use code::*;
pub use copy::*;
pub use counts::*;
pub use health::*;
pub use job::*;
pub use label::*;
pub use object::*;
pub use pack::*;
pub use rates::*;
pub use rebuild::*;
pub use repairs::*;
pub use run::*;
pub use settings::*;
pub use space::*;
pub use update::*;
pub use volume::*;

pub use kintsu_code::Definition;
pub use kintsu_plan::Rates;
use serde::{Deserialize, Serialize};

/// A request without content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// A reply that only says that the request was done.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {}

/// A block digest as the store computes it.
pub type DigestBytes = [u8; 16];
