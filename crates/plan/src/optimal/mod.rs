//! The best repair that links allow: how fast it can be, and the trees that do it.
//!
//! [`bound`] says what no repair can beat.

pub mod bound;
