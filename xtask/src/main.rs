//! Checks of the workspace itself, run by CI: `cargo run -p xtask -- layers`, `-- links`.

mod layers;
mod links;

use anyhow::{Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => layers::check_workspace(),
        Some("links") => links::check_workspace(),
        other => bail!("expected `layers` or `links`, got {other:?}"),
    }
}
