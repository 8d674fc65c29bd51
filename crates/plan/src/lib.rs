//! Plans: pure functions from a stripe, what is lost and the topology to placed graphs, and
//! from placed graphs to the programs that nodes run.
//!
//! Nothing here reads a clock, draws random numbers or does I/O.
//!
//! Every graph is proved before it is returned, and only a proved graph ([`Proved`]) becomes programs.

mod account;
mod apart;
mod assemble;
mod capacity;
mod compare;
mod copy;
mod deal;
mod draw;
mod error;
mod explain;
mod layout;
mod method;
mod on_paper;
pub mod optimal;
mod own_graph;
mod place;
mod predict;
mod program;
mod proved;
mod rate_limit;
mod rates;
mod read;
mod rebuild;
mod recovery;
mod repair;
mod slice_size;
mod timeslots;
mod topology;
mod weighted;
mod widest;
mod write;

pub use account::{Account, PairBytes};
pub use assemble::ProgramContext;
pub use capacity::{Capacity, capacity};
pub use compare::{Comparison, MethodTime};
pub use copy::copy;
pub use draw::draw;
pub use error::PlanError;
pub use explain::{Explanation, NodeLines, explain};
pub use layout::{Division, Extent, Layout, LayoutKind};
pub use method::Method;
pub use on_paper::{dealt, even_cluster};
pub use place::{Placement, place, place_lost};
pub use predict::predicted;
pub use program::{
    BlockBinding, DIGEST_UNKNOWN, Lane, MOST_STEP_BYTES, Peer, Plan, Program, RunId, RunMode, Window,
};
pub use proved::Proved;
pub use rates::Rates;
pub use read::{read, read_by};
pub use recovery::{Assignment, DamagedStripe, Recovery, Schedule, Shares, choose_requestors};
pub use repair::{Repair, RepairPlan, repair};
pub use slice_size::slice_bytes;
pub use topology::{Node, StripeView, Topology};
pub use widest::{Widest, widest};
pub use write::{encode_offline, encode_online, write_plain};
