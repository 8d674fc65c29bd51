//! The one model of traffic: which links there are, which of them a transfer passes, what each of them carries, and
//! which transfers wait for which.
//!
//! - [`Link`]: anything with a rate that transfers share; [`Rates`]: the rates that are known;
//! - [`Way`] and [`path`]: the links that a transfer passes, in order;
//! - [`Transfers`]: what a lowered graph moves for each slice, and what each transfer waits for;
//! - [`Moved`] and [`Loads`]: bytes from node to node, and the bytes that they put on each link.
//!
//! Planners, the simulator, accounts and the lab all use these. A client is in no rack: its link ends at the core.
//! So every transfer between a client and a node in a rack passes a link of that rack, and counts as a transfer
//! across racks.

mod link;
mod loads;
mod path;
mod rates;
mod transfers;

pub use link::Link;
pub use loads::{Loads, Moved, SentReceived};
pub use path::{Way, path};
pub use rates::{Rates, SlowSender};
pub use transfers::{Disks, Transfer, Transfers};
