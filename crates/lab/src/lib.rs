//! The emulated cluster: hosts that are network namespaces of one machine, joined by links that the kernel shapes,
//! each with a real agent, so that times of repairs can be measured and bytes on every link counted.
//!
//! A [`Spec`] describes the lab; [`enter`] moves the running command into namespaces of its own; [`Lab::up`]
//! builds the network there and starts the processes; [`Lab::counters`] and [`Lab::cpu`] give the traffic and
//! processor time of an experiment. [`registry`] lets other commands find labs. Experiments are in the crate
//! `kintsu-experiments`. No privilege is needed, and however a lab ends, nothing is left on the machine: see
//! [`inside`].
//!
//! ```no_run
//! use kintsu_lab::{Entry, Lab, Options, Place, Spec};
//!
//! # async fn experiment() -> Result<std::process::ExitCode, Box<dyn std::error::Error>> {
//! if let Place::Left(code) = kintsu_lab::enter(&Entry::default()).await? {
//!     return Ok(code);
//! }
//! // From here on inside; the same program runs as agent and coordinator.
//! let spec = Spec::even(16, 4, Some("500Mb/s".parse()?)).with_rack_links(Some("1Gb/s".parse()?));
//! let lab = Lab::up(&spec, Options::default()).await?;
//! let (before, busy) = (lab.counters().await?, lab.cpu().await);
//! lab.set_rate("node 3 up".parse()?, Some("50Mb/s".parse()?)).await?;
//! // ... work with lab.client() ...
//! let moved = lab.counters().await?.since(&before);
//! println!("{} bytes crossed racks, load {}", moved.cross_rack_bytes(), lab.cpu().await.since(&busy).load());
//! lab.down().await;
//! # Ok(std::process::ExitCode::SUCCESS)
//! # }
//! ```
//!
//! What this is not: a model of a network (that is the simulator), or of a disk (data is kept in memory by
//! default). All hosts share the processors, so every measurement reports their load.

mod address;
mod changes;
mod command;
mod counters;
mod cpu;
mod daemon;
mod error;
mod file;
pub mod inside;
mod lab;
mod net;
mod outside;
mod quantity;
pub mod registry;
mod shape;
mod spec;

pub use changes::Changes;
pub use counters::{Counters, Traffic};
pub use cpu::Cpu;
pub use error::{LabError, Result};
pub use inside::{Entry, Place, enter, room};
pub use kintsu_plan::Link;
pub use lab::{Host, Lab, Options};
pub use outside::available;
pub use quantity::{MTU, Rate, WIRE};
pub use spec::{Change, NodeSpec, Rated, Shape, Spec};
