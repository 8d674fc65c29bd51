//! Tests of the crate as its users see it. One program, because linking one for each file would take longer than
//! running them.

mod bytes;
mod chains;
mod chameleon;
mod compare;
mod many;
mod own_graphs;
mod paths;
mod placement;
mod recovery;
mod repair_cost;
mod support;
mod together;
mod update;
