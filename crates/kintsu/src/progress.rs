//! Progress bars on a terminal; nothing when standard error is not one.

use std::io::IsTerminal;
use std::sync::Mutex;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

static CURRENT: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// A bar over bytes.
pub fn bytes(what: &str) -> ProgressBar {
    bar(what, "{msg} [{wide_bar}] {bytes} of {total_bytes} {bytes_per_sec} {eta}")
}

/// A line that counts bytes, of which nobody knows how many come.
pub fn stream(what: &str) -> ProgressBar {
    bar(what, "{spinner} {msg} {bytes} {bytes_per_sec} {elapsed}")
}

/// A bar over a count.
pub fn count(what: &str) -> ProgressBar {
    bar(what, "{msg} [{wide_bar}] {pos} of {len} {eta}")
}

/// A line that says what is being done.
pub fn steps(what: &str) -> ProgressBar {
    let bar = bar(what, "{spinner} {wide_msg}");
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    bar
}

fn bar(what: &str, template: &str) -> ProgressBar {
    let bar = ProgressBar::new(0);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(what.to_owned());
    if let Ok(mut current) = CURRENT.lock() {
        *current = Some(bar.clone());
    }
    bar
}

/// Removes the current bar from the terminal, so that a message gets its own line.
pub fn clear() {
    if let Ok(Some(bar)) = CURRENT.lock().map(|mut current| current.take()) {
        bar.finish_and_clear();
    }
}
