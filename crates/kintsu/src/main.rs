//! The `kintsu` binary.
fn main() {}
