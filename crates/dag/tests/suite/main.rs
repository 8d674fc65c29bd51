//! Tests of the crate as its users see it. One program, because linking one for each file would take longer than
//! running them.

mod drawing;
mod interpreter;
mod proof;
mod shapes;
mod table1;
