//! Schedulers: how the repairs of many blocks share the bandwidth that is idle.
//!
//! A scheduler is a row of [`SCHEDULERS`]: a pure function from a [`Scene`] and lost blocks to [`Planned`] repairs.
//! Each planned repair becomes a placed graph that is proved like all others ([`Planned::plan`]).
//!
//! - `scene`: what schedulers see and return; `desk`: nodes by number, loads, estimated times;
//! - `dispatch`, `tunable`, [`phase`], [`reschedule`]: ChameleonEC, sections III-A to III-D;
//! - `baselines`, `boost`: schedulers to compare with;
//! - `auto`: the default; [`bound()`]: a lower bound on the time; [`losses()`]: blocks in the form that it takes;
//! - [`Recovery`]: what was assigned to which node, page after page, for callers that plan stripe by stripe.
//!
//! Not here: when repairs start and stop, which the caller decides, and one repair by itself, which is
//! [`crate::repair`]. Invariants: a planned repair uses each helper once; its requestor holds no other block of the
//! stripe, also none that another planned repair of the same call gives it.

mod auto;
mod baselines;
mod boost;
mod bound;
mod chameleon;
mod desk;
mod dispatch;
mod losses;
mod recovery;
mod scene;
mod stragglers;
mod table;
mod tunable;

pub use auto::{place_alone, requestors};
pub use bound::{Loss, bound};
pub use chameleon::{Expected, FailedNodes, PHASE_SECONDS, Phase, in_order, phase};
pub use losses::losses;
pub use recovery::{Assignment, DamagedStripe, Recovery, Schedule, Shares, choose_requestors};
pub use scene::{Disks, History, LostBlock, Planned, REPAIRS_ON_A_LINK, Route, Scene, seconds};
pub use stragglers::{Step, Underway, reschedule, shared_expectations};
pub use table::{SCHEDULERS, Scheduler, scheduler};
