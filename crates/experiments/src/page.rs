//! Puts results into a page of the documentation, so that no number in it is typed by hand.
//!
//! Two comments, `<!-- results NAME -->` and `<!-- end -->`, mark a place for results; the text between them is
//! replaced.

use crate::error::{ExperimentError, Result};

const OPEN: &str = "<!-- results ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end -->";

/// The page with `text` of each place's name in that place; where there is none, the place stays as it is.
///
/// # Errors
/// `Invalid` for a place without an end.
pub(crate) fn fill(page: &str, text: &mut dyn FnMut(&str) -> Option<String>) -> Result<String> {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some(at) = rest.find(OPEN) {
        let (before, from) = rest.split_at(at);
        let (name, after) = from[OPEN.len()..].split_once(CLOSE).unwrap_or_default();
        let end = after
            .find(END)
            .ok_or_else(|| ExperimentError::invalid(format!("results {name:?}"), END, "none"))?;
        out += before;
        match text(name) {
            Some(text) => out += &format!("{OPEN}{name}{CLOSE}\n{text}{END}"),
            None => out += &from[..from.len() - after.len() + end + END.len()],
        }
        rest = &after[end + END.len()..];
    }
    Ok(out + rest)
}

/// A page has no place for results of this name.
pub(crate) fn no_place(name: &str) -> ExperimentError {
    ExperimentError::invalid(name, format!("{OPEN}NAME{CLOSE} in the page"), "none")
}
