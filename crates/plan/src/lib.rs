//! Plans: pure functions from a stripe, what is lost and the topology to placed graphs, and
//! from placed graphs to the programs that nodes run.
//!
//! Nothing here reads a clock, draws random numbers or does I/O. In the order of reading:
//!
//! 1. what plans are made of: `stripe` (layout, nodes, placement) and [`traffic`] (links, and what passes them);
//! 2. what a plan is, and how it becomes programs: `program`;
//! 3. one repair: `repair`, a file for each [`Method`]; other operations: `operation` (read, write, encode, copy, compare);
//!    parity that follows overwritten data: [`update`];
//! 4. many repairs together: [`many`], schedulers by idle bandwidth;
//! 5. what plans cost: `account`.
//!
//! Every graph is proved before it is returned, and only a proved graph ([`Proved`]) becomes programs.

mod account;
mod error;
pub mod many;
mod operation;
mod program;
mod repair;
mod stripe;
pub mod traffic;
pub mod update;

pub use account::{Account, Comparison, Explanation, MethodTime, NodeLines, PairBytes, explain};
pub use error::PlanError;
pub use many::{Assignment, DamagedStripe, Recovery, Schedule, Shares, choose_requestors};
pub use operation::{
    Binding, Duplicate, PROBE, compare, compare_encoded, copy, duplicate, encode_offline, encode_online,
    probe, read, read_by, settle, write_plain,
};
pub use program::{
    BlockBinding, DIGEST_UNKNOWN, Lane, MOST_STEP_BYTES, Peer, Plan, Program, ProgramContext, Proved, RunId,
    RunMode, Window, predicted, slice_bytes,
};
pub use repair::{Method, MethodRow, Repair, RepairPlan, Stragglers, Widest, optimal, repair, widest};
pub use stripe::{
    Capacity, Division, Extent, Layout, LayoutKind, Node, Placement, StripeView, Topology, blocks_by_rack,
    capacity, draw, even_cluster, place, place_lost, stripe_on_paper,
};
pub use traffic::{Link, Rates, SlowSender};
