//! Everything that decides, as pure state machines: events in, commands or answers out.
//!
//! - [`identity`]: which node an agent's folder is; `enroll`: how agents register; [`members`]: which nodes are alive; `gate`: when the coordinator may
//!   delete and repair automatically;
//! - `put`: what a put may be called and where its stripes go; `leases`: which puts are still under way; `commit`: whether a put can become visible; `places`: which
//!   job may write or delete where;
//! - `tick`: what is due when time has passed;
//! - [`repair`]: which blocks are repaired, how, and for whom; `assign`: which nodes take part in the
//!   repairs;
//! - `bandwidth`: what links can carry, and what users leave of it; `probe`: how links are measured;
//! - `give_way`: how fast repairs may be so that users hardly notice them; `settings`: which settings a cluster may have;
//! - `slow`: how slow nodes are avoided; `stripe`: one stripe as it was read;
//! - `drain`: how a node is emptied; `rebalance`: what moves from fuller to emptier nodes; `encode`: how stripes get their parity;
//! - `census`: how the blocks that a node holds compare with the metadata;
//! - `sweep`: when garbage is deleted; `snapshots`: which stripes snapshots of volumes have.
//! - `quarantine`: what happens to blocks that the metadata do not know; `scrub`: what a scrub finds; `patrol`:
//!   which blocks are verified next by the scrub that runs by itself; `agreement`: which stripes are compared with their codes;
//! - `doubt`: whether a block that was reported as bad is lost; `wipe`: when a node is wiped;
//! - `damage`: which stripes can be read while nodes are gone;
//! - `health`: the verdict about the cluster; `space`: what is kept free, and what still fits; `jobs`: the table of
//!   long work; `counts`: what has happened, for monitoring;
//! - `rebuild`: which metadata can be rebuilt from blocks.
//!
//! The engine has no clock (times are arguments, in milliseconds), no randomness (not even the order of a hash map), no
//! I/O, no locks and no store: of the metadata it sees only values, records (`meta/record.rs`) and changes
//! (`meta/change.rs`). The layering task (`xtask/src/layers.rs`) checks this. The driver carries out the decisions and
//! reports their results.

pub(crate) mod agreement;
pub(crate) mod assign;
pub(crate) mod bandwidth;
pub(crate) mod census;
pub(crate) mod commit;
pub(crate) mod counts;
pub(crate) mod damage;
pub(crate) mod doubt;
pub(crate) mod drain;
pub(crate) mod encode;
pub(crate) mod enroll;
pub(crate) mod gate;
pub(crate) mod give_way;
pub(crate) mod health;
pub mod identity;
pub(crate) mod jobs;
pub(crate) mod leases;
pub mod members;
pub(crate) mod patrol;
pub(crate) mod places;
pub(crate) mod probe;
pub(crate) mod put;
pub(crate) mod quarantine;
pub(crate) mod rebalance;
pub(crate) mod rebuild;
pub mod repair;
pub(crate) mod scrub;
pub(crate) mod settings;
pub(crate) mod slow;
pub(crate) mod snapshots;
pub(crate) mod space;
pub(crate) mod stripe;
pub(crate) mod sweep;
pub(crate) mod tick;
pub(crate) mod volumes;
pub(crate) mod wipe;

/// The median; the upper one of an even count.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
