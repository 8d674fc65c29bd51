//! The driver: does the I/O that the state machines order, and tells them how it ended.
//!
//! - `ticks`: tells members, leases and automatic repairs that time has passed;
//! - `sweep`: has agents delete garbage;
//! - `repair_jobs`: carries out the commands of the repair queue and reports to listeners;
//! - `pages`: finds the stripes of a repair job, and has the engine assign them to nodes;
//! - `commit`: commits a put;
//! - `repair` (of one stripe), `encode`, `drain`, `scrub`, `wipe`: one kind of long work each;
//! - `speed_watch`: runs the attempts of a repair, and ends one that slow nodes delay;
//! - `steering`: tells the repairs that were planned together when to stop, to go on, or to take other trees;
//! - `shown`: what of all this an operator who looks is shown;
//! - `missing`: says which blocks a repair lacks;
//! - `doubts`: has blocks that were reported as bad read again;
//! - `damage`: finds which stripes cannot be read while nodes are gone; `used_codes`: which codes are in use;
//! - `rebalance`: moves blocks from fuller to emptier nodes; `mover`: moves one block, for drains too;
//! - `patrol`: the scrub that runs by itself; `agreement`: compares the blocks of stripes with each other;
//! - `enroll`: registers agents, and compares their blocks with the metadata;
//! - `quarantine`: sets aside, takes back and purges blocks that the metadata do not know;
//! - `rebuild`: rebuilds metadata from blocks;
//! - `copies`: stores copies of the metadata on agents;
//! - `volumes`: keeps the logs of volumes where they are complete; `volume_commit`: brings them into blocks;
//!   `volume_ticks`: does so when it is time; `volume_logs`: moves logs from nodes that are gone;
//!   `turns`: whose turn it is to change the logs of a stripe;
//! - `snapshots`: takes snapshots of volumes, and copies the stripes that they share when these are written to;
//! - `run`: runs programs on agents; `guard`: turns a panic into an error.

mod agreement;
mod commit;
mod copies;
mod damage;
pub mod doubts;
mod drain;
mod encode;
mod enroll;
mod guard;
pub mod jobs;
#[cfg(test)]
mod labels_tests;
mod measure;
mod missing;
mod mover;
mod pages;
mod patrol;
#[cfg(test)]
mod planning_tests;
mod quarantine;
mod rebalance;
mod rebuild;
mod repair;
mod repair_jobs;
mod run;
mod scrub;
mod shown;
mod snapshots;
mod speed_watch;
mod steering;
mod sweep;
mod ticks;
mod turns;
mod upgrade;
mod used_codes;
mod volume_commit;
mod volume_logs;
mod volume_relog;
mod volume_ticks;
mod volumes;
mod wipe;

pub use agreement::agreement;
pub use commit::{Committed, With, commit};
pub use copies::{Copied, Copies, copies, last_copy};
pub use damage::{Scanned, damage, damage_but_of_logs, describe};
pub use doubts::report;
pub use drain::order as order_drain;
pub use encode::encode;
pub use enroll::{register, report_blocks};
pub use jobs::{Job, JobTable};
pub use measure::measure;
pub use pages::Source;
pub use patrol::patrol;
#[cfg(test)]
pub use planning_tests::may_block;
pub use quarantine::{purge, restore};
pub use rebalance::order as order_rebalance;
pub use rebuild::rebuild;
pub use repair_jobs::{RepairJobs, hold as hold_repairs, start_repairs};
pub use scrub::scrub;
pub use shown::{Shown, running};
pub use snapshots::{check_stays, give_all, take as take_snapshot};
pub use steering::Steering;
pub use sweep::sweep;
#[cfg(test)]
pub use ticks::tick_once;
pub use ticks::{AUTOMATIC_SLICE, held_now, ticks};
pub use turns::Turns;
pub use upgrade::{check_volumes, check_writer_hands_on, everybody_hands_on};
pub use used_codes::{UsedCodes, used_codes};
pub use volume_logs::{holders, keep_logs, lost_logs, short_logs};
pub use volume_relog::GivenUp;
pub use volume_ticks::{commit_blocks, commit_volume, release_volume, volumes};
pub use volumes::{Wanted, fence_everywhere, map};
pub use wipe::order as order_wipe;

use kintsu_wire::message::JobEvent;
use tokio::sync::mpsc;
use tonic::Status;

/// Where long work reports to.
pub type Listener = mpsc::Sender<Result<JobEvent, Status>>;
