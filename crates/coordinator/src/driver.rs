//! The driver: does the I/O that the state machines order, and tells them how it ended.
//!
//! - `ticks`: time passes for members, leases and automatic repairs;
//! - `sweep`: agents delete what nobody needs;
//! - `asks`: carries out the commands of the repair queue;
//! - `pages`: finds the stripes that an ask is about, and has them given to nodes;
//! - `commit`: the commit of a put;
//! - `mend`, `encode`, `drain`, `scrub`: one piece of long work each;
//! - `enroll`: agents register, and report their blocks;
//! - `quarantine`: blocks that the metadata do not know;
//! - `rebuild`: metadata from blocks;
//! - `copies`: copies of the metadata on agents;
//! - `run`: programs on agents.

mod asks;
mod commit;
mod copies;
mod damage;
pub mod doubts;
mod drain;
mod encode;
mod enroll;
mod guard;
#[cfg(test)]
mod labels_tests;
mod mend;
mod missing;
mod pacing;
mod pages;
#[cfg(test)]
mod planning_tests;
mod quarantine;
mod rebuild;
mod run;
mod scrub;
mod sweep;
mod ticks;
mod wipe;

pub use asks::{Asks, ask};
pub use commit::commit;
pub use copies::{Copied, Copies, copies, last_copy};
pub use damage::readable;
pub use doubts::report;
pub use drain::drain;
pub use encode::encode;
pub use enroll::{register, report_blocks};
pub use pages::Source;
#[cfg(test)]
pub use planning_tests::may_block;
pub use quarantine::{purge, welcome};
pub use rebuild::rebuild;
pub use scrub::scrub;
pub use sweep::sweep;
pub use ticks::{AUTOMATIC_SLICE, ticks};
pub use wipe::order as order_wipe;

use kintsu_wire::message::JobEvent;
use tokio::sync::mpsc;
use tonic::Status;

/// Where long work reports to.
pub type Listener = mpsc::Sender<Result<JobEvent, Status>>;
