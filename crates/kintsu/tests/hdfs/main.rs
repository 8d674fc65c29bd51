//! Beside a real, stock HDFS. One program, because linking one for each file would take longer than needed, and because only two
//! clusters may run at once. Tests that are ignored take minutes: `make test-hdfs` runs them too.

#![allow(clippy::unwrap_used, missing_docs, reason = "what fails here is the test's failure")]

mod beside;
mod blocks;
mod codec;
mod copies;
mod daemons;
mod encoded;
mod few;
mod files;
mod hazards;
mod maintenance;
mod objects;
mod odd;
mod pipelined;
mod racks;
mod reported;
mod staged;
mod unfit;
