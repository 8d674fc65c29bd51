//! Checks of the workspace itself, run by CI: `cargo run -p xtask -- layers`.

mod layers;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check_workspace(),
        other => bail!("expected `layers`, got {other:?}"),
    }
}
