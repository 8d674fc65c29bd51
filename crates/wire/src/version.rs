//! Versions of the protocol, and who understands whom.
//!
//! A program speaks a range of versions: its own, and those of the releases that it may meet during an upgrade. Whoever calls
//! says the version of the call, and the newest one that it speaks; a call of a version outside of the range of the other side
//! is refused in words. Releases before 11 say one version only, and accept exactly that one. So
//!
//! - a coordinator calls agents in the version of the oldest one that is there, and clients do so too: the coordinator
//!   tells them ([`NodeAddress::older`](crate::message::NodeAddress));
//! - an agent calls its coordinator in its own version, and in an older one when that is refused ([`Speaks::adopt`]);
//! - a client calls a coordinator in its own version only: an older one would overlook what it does not know of the call.
//!
//! Slices have the layout of the version of the call that starts a run. What an older peer would overlook is not asked of it:
//! the constants here say since when something is known. Invariant: a version means the same for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Extensions, Request, Status};

use crate::message::NodeAddress;

/// The version of this release.
pub const PROTOCOL_VERSION: u32 = 16;

/// The oldest version that it speaks too.
pub const OLDEST_VERSION: u32 = 8;

/// Since this version an agent verifies a range of its blocks; an older one takes each range for all.
pub const SCRUBS_RANGES: u32 = 10;

/// Since this version each stripe of a volume has epochs of its own; an older agent would fence all stripes.
pub const STRIPE_EPOCHS: u32 = 10;

/// Since this version volumes have snapshots: an older agent would lay what it logged over their blocks, and an older client
/// would write to stripes that belong to them.
pub const SNAPSHOTS: u32 = 12;

/// Since this version small objects share stripes: an older client would read the bytes of others.
pub const PACKS: u32 = 13;

/// Since this version small objects move into packs: an older coordinator would take them for new ones.
pub const MOVES: u32 = 15;

/// Since this version an agent can enclose in its answer what programs send to their caller; an older one would wait for connections.
pub const ENCLOSES: u32 = 13;

/// Since this version replicas of updates may be deltas: an older agent would take them for new bytes, and an older reader overlook
/// them.
pub const DELTAS: u32 = 14;

/// Since this version an agent compares what programs compute with the blocks that it has; an older one refuses the program.
pub const COMPARES: u32 = 14;

/// Since this version causes of health speak of the logs of volumes, and of stripes that contradict themselves or were not compared in
/// time; an older reader refuses an answer with a kind that it does not know.
pub const LOG_CAUSES: u32 = 14;

/// Since this version whoever writes to a volume, or commits it, gives a home the tickets for the nodes that keep replicas, and the
/// home hands them on; older ones give none. Tickets to log are for one epoch of one volume since then.
pub const HANDS_ON_TICKETS: u32 = 16;

/// The gRPC metadata key of the version of the call.
const VERSION_KEY: &str = "kintsu-protocol";

/// The gRPC metadata key of the newest version that the caller speaks; releases before 11 do not say it.
const NEWEST_KEY: &str = "kintsu-protocol-newest";

/// How a refusal begins; releases since 8 say it like this.
const REFUSAL: &str = "the peer speaks another version of the protocol: expected ";

/// What a caller says of itself. Every call that was accepted has it among its extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spoken {
    /// The version of the call.
    pub now: u32,
    /// The newest version that the caller speaks.
    pub newest: u32,
}

impl Spoken {
    /// A call of this release.
    pub const OWN: Self = Self { now: PROTOCOL_VERSION, newest: PROTOCOL_VERSION };

    /// What the caller of an accepted call said; within one process, this release.
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().copied().unwrap_or(Self::OWN)
    }

    /// A request that is called in this version, whatever else is called in.
    pub fn over<T>(message: T, version: u32) -> Request<T> {
        let mut request = Request::new(message);
        request.extensions_mut().insert(Self { now: version, ..Self::OWN });
        request
    }

    pub(crate) fn write(self, metadata: &mut MetadataMap) {
        metadata.insert(VERSION_KEY, MetadataValue::from(self.now));
        metadata.insert(NEWEST_KEY, MetadataValue::from(self.newest));
    }

    /// Reads what a caller says.
    ///
    /// # Errors
    /// `FailedPrecondition` for a call of a version that is not spoken here, with the versions that are.
    pub(crate) fn read(metadata: &MetadataMap) -> Result<Self, Status> {
        let text = |key| metadata.get(key).and_then(|value: &MetadataValue<Ascii>| value.to_str().ok());
        let number = |key| text(key).and_then(|text| text.parse::<u32>().ok());
        match number(VERSION_KEY) {
            Some(now) if (OLDEST_VERSION..=PROTOCOL_VERSION).contains(&now) => {
                Ok(Self { now, newest: number(NEWEST_KEY).unwrap_or(now).max(now) })
            }
            _ => {
                let got = text(VERSION_KEY).unwrap_or("none");
                let refusal = format!("{REFUSAL}{OLDEST_VERSION} to {PROTOCOL_VERSION}, got {got}");
                Err(Status::failed_precondition(refusal))
            }
        }
    }
}

/// The newest version that both this release and the author of a refusal speak.
fn shared(refusal: &Status) -> Option<u32> {
    let (expected, _) = refusal.message().strip_prefix(REFUSAL)?.split_once(", got ")?;
    let (oldest, newest) = expected.split_once(" to ").unwrap_or((expected, expected));
    let (oldest, newest) = (oldest.parse::<u32>().ok()?, newest.parse::<u32>().ok()?);
    let newest = newest.min(PROTOCOL_VERSION);
    (newest >= oldest.max(OLDEST_VERSION)).then_some(newest)
}

/// The version of a peer, if it is known and older than ours.
pub fn older(version: u32) -> Option<u32> {
    Some(version).filter(|version| (1..PROTOCOL_VERSION).contains(version))
}

/// The version in which a process calls the others; clones share it. At first it is that of this release.
#[derive(Debug, Clone)]
pub struct Speaks(Arc<AtomicU32>);

impl Default for Speaks {
    fn default() -> Self {
        Self(Arc::new(PROTOCOL_VERSION.into()))
    }
}

impl PartialEq for Speaks {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for Speaks {}

impl Speaks {
    /// The version of calls from now on, or the nearest that this release speaks.
    pub fn set(&self, version: u32) {
        self.0.store(version.clamp(OLDEST_VERSION, PROTOCOL_VERSION), Ordering::Relaxed);
    }

    /// From now on calls are in the version of the oldest of these nodes that live.
    pub fn follow(&self, nodes: &[NodeAddress]) {
        let oldest = nodes.iter().filter(|node| node.alive).filter_map(|node| node.older).min();
        self.set(oldest.unwrap_or(PROTOCOL_VERSION));
    }

    /// The version of calls now.
    pub fn now(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// If a peer has refused our version and names another one that we speak, we call in that from now on. Returns whether
    /// anything is different now.
    pub fn adopt(&self, refusal: &Status) -> bool {
        let Some(version) = shared(refusal) else { return false };
        self.0.swap(version, Ordering::Relaxed) != version
    }
}

/// Refuses calls of versions before this one to a service, which is named in the refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Since(pub u32, pub &'static str);

impl Interceptor for Since {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        let Spoken { now, .. } = Spoken::of(request.extensions());
        if now < self.0 {
            let Self(since, what) = self;
            return Err(Status::failed_precondition(format!(
                "{what}: expected a caller of version {since} of the protocol or later, got {now}: replace this program by one of the coordinator's release"
            )));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(pairs: &[(&'static str, &str)]) -> MetadataMap {
        let mut metadata = MetadataMap::new();
        for (key, value) in pairs {
            metadata.insert(*key, value.parse().unwrap());
        }
        metadata
    }

    #[test]
    fn a_call_says_two_versions_and_an_older_caller_one() {
        let mut metadata = MetadataMap::new();
        Spoken { now: OLDEST_VERSION, newest: PROTOCOL_VERSION }.write(&mut metadata);
        let both = Spoken { now: OLDEST_VERSION, newest: PROTOCOL_VERSION };
        assert_eq!(Spoken::read(&metadata).unwrap(), both);
        for version in OLDEST_VERSION..=PROTOCOL_VERSION {
            let metadata = said(&[(VERSION_KEY, &version.to_string())]);
            assert_eq!(Spoken::read(&metadata).unwrap(), Spoken { now: version, newest: version });
        }
        let newer = said(&[(VERSION_KEY, &PROTOCOL_VERSION.to_string()), (NEWEST_KEY, "99")]);
        assert_eq!(Spoken::read(&newer).unwrap(), Spoken { newest: 99, ..Spoken::OWN });
    }

    #[test]
    fn a_call_of_a_version_outside_of_the_range_is_refused_with_the_range() {
        let (before, after) = ((OLDEST_VERSION - 1).to_string(), (PROTOCOL_VERSION + 1).to_string());
        for got in [before.as_str(), &after, "x", ""] {
            let refusal = Spoken::read(&said(&[(VERSION_KEY, got)])).unwrap_err();
            let words = format!("expected {OLDEST_VERSION} to {PROTOCOL_VERSION}, got {got}");
            assert!(refusal.message().contains(&words), "{refusal:?}");
        }
        let refusal = Spoken::read(&MetadataMap::new()).unwrap_err();
        assert!(refusal.message().ends_with("got none"), "{refusal:?}");
        assert_eq!(refusal.code(), tonic::Code::FailedPrecondition);
    }

    #[test]
    fn whoever_is_refused_calls_in_the_newest_version_that_both_speak() {
        let refused = |expected: &str| {
            let speaks = Speaks::default();
            let words =
                format!("the peer speaks another version of the protocol: expected {expected}, got 11");
            (speaks.adopt(&Status::failed_precondition(words)), speaks.now())
        };
        assert_eq!(refused("8"), (true, 8));
        assert_eq!(refused("10"), (true, 10));
        assert_eq!(refused("9 to 10"), (true, 10));
        assert_eq!(refused("10 to 12"), (true, 12));
        let (own, later) = (PROTOCOL_VERSION, PROTOCOL_VERSION + 1);
        let same = [format!("10 to {own}"), own.to_string(), format!("{own} to {later}")];
        let none = ["7", "5 to 7", "x", "8 to"].map(str::to_owned);
        for words in same.iter().chain(&none) {
            assert_eq!(refused(words), (false, own), "{words}: nothing is different");
        }
        assert!(!Speaks::default().adopt(&Status::failed_precondition("expected 8, got 11")));
    }

    #[test]
    fn what_an_older_caller_would_overlook_is_not_for_it() {
        let call = |now| {
            let mut request = Request::new(());
            request.extensions_mut().insert(Spoken { now, newest: now });
            Since(STRIPE_EPOCHS, "volumes").call(request)
        };
        call(STRIPE_EPOCHS).unwrap();
        let refusal = call(STRIPE_EPOCHS - 1).unwrap_err();
        assert!(refusal.message().starts_with("volumes: expected a caller of version 10"), "{refusal:?}");
    }
}
