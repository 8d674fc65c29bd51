//! Beside a stock HDFS 3: its erasure-coded block groups as stripes of Kintsu.
//!
//! From the wire up: [`proto`] (messages), `rpc` and [`NameNode`] (calls), [`transfer`] (blocks from and to DataNodes),
//! [`EcPolicy`], [`Codec`] and [`Group`] (a block group as a stripe), [`GroupBlocks`] (its blocks as a run loads them); then what
//! users do: [`status`], [`watch`], [`get()`], [`verify`], [`repair`]; and a coordinator for agents, [`beside`].
//!
//! Other programs read files degraded with it, and have agents decode where that brings less over their link:
//!
//! ```no_run
//! use kintsu_hdfs::{Agents, Coordinator, HdfsError, NameNode, file_bytes, get};
//! use tokio::sync::mpsc;
//!
//! async fn print(path: &str) -> Result<(), HdfsError> {
//!     let namenode = NameNode::at("nn1:8020,nn2:8020", "alice")?;
//!     // Without a coordinator: `None` in place of the agents.
//!     let agents = Agents::of(Coordinator::at("10.77.0.1:7400", Some("token"))?).await?;
//!     let bytes = file_bytes(&namenode, path).await?;
//!     // The pieces come in order; a few may wait.
//!     let (out, mut pieces) = mpsc::channel(2);
//!     let read = async {
//!         let got = get(&namenode, path, 0..bytes, Some(&agents), &out).await;
//!         drop(out);
//!         got
//!     };
//!     let take = async {
//!         while let Some(piece) = pieces.recv().await {
//!             print!("{}", String::from_utf8_lossy(&piece));
//!         }
//!     };
//!     let (got, ()) = tokio::join!(read, take);
//!     for cause in got?.causes {
//!         eprintln!("{cause}");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`get_block`] reads one internal block in the same way. Whoever stops early drops the receiver.
//!
//! What it is not: it changes nothing in Hadoop, and it has no metadata of its own: what is lost and where blocks are
//! is asked from the NameNode each time. It moves and combines bytes only as proved plans in the one runtime.
//!
//! Invariants: no byte of a DataNode is used whose checksum was not compared; no block is handed over unless the NameNode
//! reports its index missing, and never to a DataNode that has another index of the group.
//!
//! Source: Apache Hadoop 3.4.3, observed from outside.

mod agents;
pub mod beside;
mod blocks;
mod changes;
mod codec;
mod credit;
mod digest;
mod error;
#[cfg(test)]
mod fake;
#[cfg(fuzzing)]
pub mod fuzz;
mod get;
mod group;
mod handover;
mod maintenance;
mod namenode;
mod notes;
pub mod objects;
mod parity;
mod policy;
#[allow(missing_docs, reason = "fields mean what HDFS's own messages say")]
pub mod proto;
mod repair;
mod replica;
mod rpc;
mod status;
mod store;
mod token;
pub mod transfer;
mod verify;
mod vigil;
mod walk;
mod watch;
mod window;

pub use agents::{Agents, Coordinator};
pub use beside::cluster_of;
pub use blocks::{GroupBlocks, Source};
pub use codec::{Codec, SERVICES, policies_xml};
pub use credit::By;
pub use error::HdfsError;
pub use get::{Got, file_bytes, get, get_block};
pub use group::{Group, Holder, Stored, block_id, transfer_address};
pub use handover::HandedOver;
pub use namenode::NameNode;
pub use policy::EcPolicy;
pub use repair::{Repaired, RepairedBlock, repair};
pub use replica::{Directories, Replica};
pub use status::{AtRisk, SILENT_MS, Status, status};
pub use store::{DatanodeStore, HandOver};
pub use verify::{BadGroup, Verified, verify};
pub use walk::Walk;
pub use watch::{Seen, watch};
