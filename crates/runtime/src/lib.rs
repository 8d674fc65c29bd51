//! Runs programs: reads, receives, combines, sends and stores slices, all overlapped, with bounded memory and
//! backpressure.
//!
//! [`run`] is the path of the data through one node: the lanes' executors (`executor.rs`) take slices from blocks
//! read ahead (`source.rs`) and from peers (`receive.rs`), combine them (`combine.rs`), and put them into queues
//! that are emptied to peers (`send.rs`) and to disk (`sink.rs`). The [`DataPlane`] accepts the streams of a
//! process. [`Conductor`] starts the programs of a plan on all its agents and reports what failed and where.
//! [`InMemory`] only computes a graph.
//!
//! What it is not: it knows no codes and no methods, and decides nothing about them.
//!
//! Invariants: memory does not depend on the size of blocks; nothing waits for ever; a block becomes
//! visible only whole, and with the digest that was expected; a fault names the node at its root as far
//! as it can be known.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod budget;
mod carried;
mod combine;
mod compared;
mod conduct;
mod covered;
mod culprit;
mod delta;
mod enclosed;
mod exchanged;
mod executor;
mod fault;
mod flow;
mod frames;
mod gathered;
mod give_way;
mod in_memory;
mod limits;
mod local;
mod observed;
mod parts;
mod plane;
mod pulse;
mod receive;
mod reporting;
mod run;
mod sample;
mod script;
mod send;
mod sent_blocks;
mod shared_block;
mod sink;
mod slice;
mod source;
mod store_local;
mod verdict;

pub use carried::Carried;
pub use conduct::{Conducted, Conductor};
pub use enclosed::Enclosed;
pub use exchanged::{Exchanged, Heard};
pub use fault::from_store;
pub use give_way::{Busy, GiveWay};
pub use in_memory::{InMemory, MemoryBlock};
pub use limits::Limits;
pub use local::{BlockSink, BlockSource, ClientLocal, Delivery, Local, Output};
pub use observed::Observed;
pub use plane::{DataPlane, PlaneError};
pub use run::{Context, run};
pub use sent_blocks::SentBlocks;
pub use store_local::StoreLocal;
pub use verdict::SAMPLED_EVERY;
