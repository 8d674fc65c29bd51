//! The whole cluster tortured: the real coordinator, agents and clients in one thread, on a simulated network, simulated
//! disks and a simulated clock, everything from one seed.
//!
//! A seed makes a [`History`]: what clients ask for, and what goes wrong meanwhile (`history.rs`, `kinds.rs`). It is played
//! ([`play()`]) in a process of its own, on a stage of hosts (`stage.rs`), where a model knows what every name may stand for (`model.rs`). At the end
//! all faults are mended and the cluster is held to its promises (`finale.rs`). A history that fails is made shorter
//! (`shrink.rs`). The same seed gives the same trace, byte for byte.
//!
//! What is not simulated: `node.json` and the list of removed objects of an agent lie in a real directory, in memory
//! where there is such a file system; a crash loses nothing of them.

mod adversary;
mod census;
mod child;
mod dice;
mod finale;
mod history;
mod kinds;
mod medium;
mod model;
mod play;
mod shrink;
mod stage;
mod trace;
mod writer;

pub use child::{Options, child, play};
pub use history::{Fault, History, Op};
pub use play::Outcome;
pub use shrink::shrink;
