//! Puts results into a page of the documentation, so that no number in it is typed by hand.
//!
//! Two comments, `<!-- results NAME -->` and `<!-- end -->`, mark a place for results; the text between them is
//! replaced.

use crate::error::{ExperimentError, Result};

const OPEN: &str = "<!-- results ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// The page with what `text` says in each place: it is told the place's name and what stands there now. Where it says nothing, the
/// place stays as it is.
///
/// # Errors
/// `Invalid` for a place without an end.
pub(crate) fn fill(page: &str, text: &mut dyn FnMut(&str, &str) -> Option<String>) -> Result<String> {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find(OPEN) {
        let (before, from) = rest.split_at(at);
        let (name, after) = from[OPEN.len()..].split_once(CLOSE).unwrap_or_default();
        let (now, left) = after
            .split_once(END)
            .ok_or_else(|| ExperimentError::invalid(format!("results {name:?}"), END, "none"))?;
        out += &match text(name, now) {
            Some(text) => format!("{before}{OPEN}{name}{CLOSE}\n{text}{END}"),
            None => format!("{before}{OPEN}{name}{CLOSE}{now}{END}"),
        };
        rest = left;
    }
    Ok(out + rest)
}

/// A page has no place for results of this name.
pub(crate) fn no_place(name: &str) -> ExperimentError {
    ExperimentError::invalid(name, format!("{OPEN}{name}{CLOSE} in the page"), "none")
}
