//! The audit log: who changed or tried to change what, from where, and whether it was done. One line each, at level `info`
//! with the target `audit`. What has no line: `docs/security.md`.

use std::fmt::Display;

use tonic::Status;

use crate::Peer;

/// Notes down how a change ended: it was done, or refused for this reason.
pub fn note(who: &dyn Display, what: &str, about: Option<String>, refused: Option<&str>) {
    let about = about.unwrap_or_default();
    match refused {
        None => tracing::info!(target: "audit", %who, what, about, "done"),
        Some(why) => tracing::info!(target: "audit", %who, what, about, why, "refused"),
    }
}

/// What a change is about, if anybody wants to know.
pub fn about(say: impl FnOnce() -> String) -> Option<String> {
    tracing::enabled!(target: "audit", tracing::Level::INFO).then(say)
}

/// Notes down how a change ended, and passes that on.
///
/// # Errors
/// Those of the change.
pub fn noted<T>(
    peer: &Peer,
    what: &str,
    about: Option<String>,
    ended: Result<T, Status>,
) -> Result<T, Status> {
    note(peer, what, about, ended.as_ref().err().map(Status::message));
    ended
}

/// Notes down if a check refuses a call, and passes on what it found. A call that it lets pass is noted when it ends, if it
/// changes something.
///
/// # Errors
/// Those of the check.
pub fn checked<T>(peer: &Peer, what: &str, found: Result<T, Status>) -> Result<T, Status> {
    found.inspect_err(|refused| note(peer, what, None, Some(refused.message())))
}
