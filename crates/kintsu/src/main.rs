//! The `kintsu` binary.

#[allow(dead_code)] // until the commands call it
mod bench;

fn main() {}
