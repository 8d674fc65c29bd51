//! The audit log: who changed or tried to change what, from where, and whether it was done. One line each, at level `info`
//! with the target `audit`. What has no line: `docs/security.md`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::Status;

use crate::Peer;

/// Callers that do not belong to the cluster have one line for each address and reason in this time.
const STRANGERS_EVERY: Duration = Duration::from_secs(60);

/// Addresses and reasons that are remembered for this.
const MOST_STRANGERS: usize = 1024;

static STRANGERS: Mutex<Strangers> = Mutex::new(Strangers(BTreeMap::new()));

/// When strangers had their last lines, and the calls without one since, by address and reason.
struct Strangers(BTreeMap<(Option<IpAddr>, String), (Instant, u64)>);

impl Strangers {
    /// A call is refused. If it has a line, the calls before it that had none.
    fn refused(&mut self, from: Option<IpAddr>, why: &str, now: Instant) -> Option<u64> {
        let old = |since: &Instant| now.saturating_duration_since(*since) >= STRANGERS_EVERY;
        let key = (from, why.to_owned());
        if let Some((since, without)) = self.0.get_mut(&key) {
            if !old(since) {
                *without += 1;
                return None;
            }
            *since = now;
            return Some(std::mem::take(without));
        }
        if self.0.len() >= MOST_STRANGERS {
            self.0.retain(|_, (since, _)| !old(since));
        }
        (self.0.len() < MOST_STRANGERS).then(|| {
            self.0.insert(key, (now, 0));
            0
        })
    }
}

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

/// The same for callers that need not belong to the cluster: there is a line for each address and reason in a minute, which tells how
/// many had none before it. So nobody without a right to call can fill the log.
///
/// # Errors
/// Those of the check.
pub fn checked_stranger<T>(peer: &Peer, what: &str, found: Result<T, Status>) -> Result<T, Status> {
    found.inspect_err(|refused| {
        let (from, why) = (peer.addr.map(|addr| addr.ip()), refused.message());
        let lines =
            STRANGERS.lock().unwrap_or_else(PoisonError::into_inner).refused(from, why, Instant::now());
        if let Some(without) = lines {
            let about = (without > 0).then(|| format!("{without} more such calls since the last line"));
            note(peer, what, about, Some(why));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_a_line_a_minute_for_each_address_and_reason() {
        let (mut strangers, began) = (Strangers(BTreeMap::new()), Instant::now());
        let from = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
        let mut refused =
            |from, why: &str, secs| strangers.refused(from, why, began + Duration::from_secs(secs));
        assert_eq!(refused(from(1), "none", 0), Some(0));
        assert_eq!(refused(from(1), "another", 0), Some(0));
        assert_eq!(refused(from(2), "none", 1), Some(0));
        assert_eq!([refused(from(1), "none", 30), refused(from(1), "none", 59)], [None, None]);
        assert_eq!(refused(from(1), "none", 60), Some(2));
        assert_eq!(refused(from(1), "none", 61), None);
        let new = (0..MOST_STRANGERS).filter(|i| refused(None, &i.to_string(), 62).is_some()).count();
        assert_eq!(new, MOST_STRANGERS - 1, "two were old, and those beyond have no line");
        assert_eq!(refused(from(3), "none", 200), Some(0), "those that are old are forgotten");
    }
}
