//! Studies: every code, or the codes of a paper, on a whole cluster in this process, with what agents read and send
//! beside theory.

pub mod codes;
pub mod lrc;
mod site;
