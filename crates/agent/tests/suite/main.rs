//! Tests of the crate as its users see it. One program, because linking one for each file would take longer than
//! running them.

mod agents;
mod enclosed;
mod support;
mod updates;
