//! A test of the whole cluster under faults: the real coordinator, agents and clients run in one thread, on a
//! simulated network, simulated disks and a simulated clock, everything from one seed.
//!
//! Seeds from [`FIRST_SEED`] on have volumes too (`volumes/`).
//!
//! A seed makes a [`History`]: what clients do, and what goes wrong meanwhile (`history.rs`). It is played
//! ([`play()`]) in a process of its own, on a stage of hosts (`stage.rs`). A model knows which versions every
//! name may stand for (`model.rs`). At the end all faults end, and the cluster must keep its promises
//! (`finale.rs`). A failing history is made shorter (`shrink.rs`). The same seed gives the same trace, byte
//! for byte.
//!
//! Not simulated: `node.json` and the list of removed objects of an agent are in a real directory (in memory,
//! if the system has such a file system). A crash loses nothing of them.

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
mod volumes;
mod writer;

pub use child::{FAULTS, Options, child, fault, play};
pub use history::{Fault, History, Op};
pub use play::Outcome;
pub use shrink::shrink;
pub use volumes::{
    Act, FIRST_SEED, FIRST_SEED_WITH_RACKS, FIRST_SEED_WITH_ROTTEN_LOGS, FIRST_SEED_WITH_SCHEMES,
    FIRST_SEED_WITH_SNAPSHOTS, Shape,
};
