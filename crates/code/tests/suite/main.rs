//! Tests of the crate as its users see it. One program, because linking one for each file would take longer than
//! running them.

mod clay;
mod distance;
mod golden;
mod isal;
mod losses;
mod lrc;
mod msr;
mod peers;
mod refusals;
mod support;
