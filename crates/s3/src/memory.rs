//! The memory for bytes of objects and for documents: how much may be taken, how much of it by one of many, and whether others wait
//! for what somebody has.
//!
//! An eighth is for bodies that are read before it is known who sends them. Of the rest one user has at most half, and so have all
//! callers without a key together; of these one network has at most a quarter (loopback is excepted: a proxy may stand there).
//! But what one request may need is never too much.
//!
//! Invariant: whoever holds much while others wait for it is known as such ([`Line::is_wanted`]). Such a client must send and take faster
//! (`patience`), so that memory comes back however many clients are slow.

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::places::network;

/// Memory is counted in pieces of this many bytes.
const UNIT: usize = 4 << 10;

/// This part of the memory is for bodies that are read before it is known who sends them.
const UNKNOWN: usize = 8;

/// What one request may take at least, even if it is more than a share: a copy reads and writes.
const MOST_AT_ONCE: usize = 96 << 20;

/// Whoever holds less than this is not asked to make haste: nobody waits for so little.
const MUCH: usize = 1 << 20;

/// Whose share of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    User(String),
    /// Of all callers without a key.
    Nobody,
    Network(IpAddr),
}

/// A part of the memory, in units of [`UNIT`].
#[derive(Debug)]
struct Share {
    units: usize,
    free: Arc<Semaphore>,
    /// Who waits for some of it.
    waiting: AtomicUsize,
}

impl Share {
    fn new(units: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(units));
        Arc::new(Self { units, free, waiting: AtomicUsize::new(0) })
    }

    async fn take(&self, units: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(units.clamp(1, self.units)).ok()?;
        let mut taking = pin!(self.free.clone().acquire_many_owned(units));
        // Whoever gets it at once has not waited.
        if let Poll::Ready(taken) = poll_fn(|cx| Poll::Ready(taking.as_mut().poll(cx))).await {
            return taken.ok();
        }
        let _waiting = Waiting::on(&self.waiting);
        taking.await.ok()
    }

    fn told(&self, name: &'static str) -> Told {
        let taken = self.units.saturating_sub(self.free.available_permits());
        Told { name, taken: taken * UNIT, limit: self.units * UNIT }
    }
}

struct Waiting<'c>(&'c AtomicUsize);

impl<'c> Waiting<'c> {
    fn on(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A part of the memory, in bytes, for monitoring.
pub(crate) struct Told {
    pub name: &'static str,
    pub taken: usize,
    pub limit: usize,
}

/// A connection, as far as others may wait for what it holds.
#[derive(Debug)]
pub(crate) struct Line {
    peer: IpAddr,
    holds: Mutex<Vec<Arc<Share>>>,
}

impl Line {
    pub(crate) fn new(peer: IpAddr) -> Arc<Self> {
        Arc::new(Self { peer, holds: Mutex::default() })
    }

    /// Whether others wait for memory of which it holds much.
    pub(crate) fn is_wanted(&self) -> bool {
        let holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.iter().any(|share| share.waiting.load(Relaxed) > 0)
    }
}

/// Who takes memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Taker {
    /// Its connection.
    pub line: Option<Arc<Line>>,
    /// The user of its key; `Some(None)`: it has none; `None`: that is not known yet.
    pub user: Option<Option<String>>,
}

impl Taker {
    fn shares(&self) -> Vec<Whose> {
        let address = self.line.as_ref().map(|line| line.peer).filter(|peer| !peer.is_loopback());
        let of_network = address.map(|peer| Whose::Network(network(peer)));
        match &self.user {
            Some(Some(user)) => vec![Whose::User(user.clone())],
            Some(None) => of_network.into_iter().chain([Whose::Nobody]).collect(),
            None => of_network.into_iter().collect(),
        }
    }
}

/// See the head of this file.
#[derive(Debug)]
pub(crate) struct Memory {
    all: Arc<Share>,
    of_unknown: Arc<Share>,
    shares: Mutex<HashMap<Whose, Arc<Share>>>,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Arc<Self> {
        let units = bytes / UNIT;
        let (all, of_unknown) = (Share::new(units - units / UNKNOWN), Share::new(units / UNKNOWN));
        Arc::new(Self { all, of_unknown, shares: Mutex::default() })
    }

    /// Waits until somebody may hold this many bytes, in the order of asking. Dropping the future ends that.
    pub(crate) async fn take(self: &Arc<Self>, taker: &Taker, bytes: usize) -> Option<Held> {
        let mut held = Held { line: None, permits: Vec::new(), of: None };
        let whose = taker.shares();
        // From here on the shares are put away with what is held, also if this future is dropped.
        let mut shares: Vec<_> = whose.iter().map(|whose| self.share(whose)).collect();
        held.of = Some((self.clone(), whose));
        shares.push(self.all.clone());
        for share in &shares {
            held.permits.push(share.take(bytes.div_ceil(UNIT)).await?);
        }
        if let Some(line) = taker.line.as_ref().filter(|_| bytes >= MUCH) {
            line.holds.lock().unwrap_or_else(PoisonError::into_inner).extend(shares.iter().cloned());
            held.line = Some((line.clone(), shares));
        }
        Some(held)
    }

    /// The same for a body that is read before it is known who sends it.
    pub(crate) async fn take_unknown(&self, bytes: usize) -> Option<Held> {
        let permit = self.of_unknown.take(bytes.div_ceil(UNIT)).await?;
        Some(Held { line: None, permits: vec![permit], of: None })
    }

    /// The parts of the memory at this moment.
    pub(crate) fn told(&self) -> [Told; 2] {
        [self.all.told("objects"), self.of_unknown.told("strangers")]
    }

    fn share(&self, whose: &Whose) -> Arc<Share> {
        let part = match whose {
            Whose::User(_) | Whose::Nobody => self.all.units / 2,
            Whose::Network(_) => self.all.units / 4,
        };
        let most = part.max(MOST_AT_ONCE / UNIT).min(self.all.units);
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.entry(whose.clone()).or_insert_with(|| Share::new(most)).clone()
    }

    /// Puts away shares of which nobody has anything.
    fn put_away(&self, whose: &[Whose]) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        for whose in whose {
            let unused = |share: &Arc<Share>| {
                Arc::strong_count(share) == 1 && share.free.available_permits() == share.units
            };
            if shares.get(whose).is_some_and(unused) {
                shares.remove(whose);
            }
        }
    }
}

/// Memory that somebody holds, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    /// Who holds much, and of which shares.
    line: Option<(Arc<Line>, Vec<Arc<Share>>)>,
    permits: Vec<OwnedSemaphorePermit>,
    of: Option<(Arc<Memory>, Vec<Whose>)>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some((line, shares)) = self.line.take() {
            let mut holds = line.holds.lock().unwrap_or_else(PoisonError::into_inner);
            for share in &shares {
                if let Some(at) = holds.iter().position(|held| Arc::ptr_eq(held, share)) {
                    holds.swap_remove(at);
                }
            }
        }
        self.permits.clear();
        if let Some((memory, whose)) = self.of.take() {
            memory.put_away(&whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    const MIB: usize = 1 << 20;

    fn taker(peer: [u8; 4], user: Option<&str>) -> Taker {
        Taker { line: Some(Line::new(peer.into())), user: Some(user.map(str::to_owned)) }
    }

    /// What somebody gets without waiting, in pieces of this size.
    fn taken(memory: &Arc<Memory>, taker: &Taker, bytes: usize) -> Vec<Held> {
        std::iter::from_fn(|| memory.take(taker, bytes).now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn nobody_takes_all() {
        let memory = Memory::new(1024 * MIB);
        // 896 MiB are for objects; of strangers a network has a quarter of them, and all have half.
        let (a, b, c) = (taker([10, 0, 0, 1], None), taker([10, 0, 0, 2], None), taker([10, 0, 0, 3], None));
        let mut held = taken(&memory, &a, 28 * MIB);
        assert_eq!(held.len(), 8);
        held.extend(taken(&memory, &b, 28 * MIB));
        assert_eq!((held.len(), taken(&memory, &c, 28 * MIB).len()), (16, 0));
        let (bob, alice) = (taker([10, 0, 0, 1], Some("bob")), taker([10, 0, 0, 1], Some("alice")));
        let of_bob = taken(&memory, &bob, 28 * MIB);
        assert_eq!((of_bob.len(), taken(&memory, &alice, 28 * MIB).len()), (16, 0));
        drop(held);
        assert_eq!(taken(&memory, &alice, 28 * MIB).len(), 16);
        drop(of_bob);
        assert!(memory.shares.lock().unwrap().is_empty());
        assert_eq!(memory.told().map(|told| told.taken), [0, 0]);
    }

    #[tokio::test]
    async fn what_one_request_may_need_is_not_too_much() {
        let memory = Memory::new(128 * MIB);
        for who in [taker([10, 0, 0, 1], None), taker([127, 0, 0, 1], None), taker([10, 0, 0, 1], Some("a"))]
        {
            let held = memory.take(&who, MOST_AT_ONCE).now_or_never().flatten();
            assert!(held.is_some() && taken(&memory, &who, MIB).is_empty(), "{who:?}");
        }
    }

    #[tokio::test]
    async fn it_is_known_who_holds_what_others_wait_for() {
        let memory = Memory::new(1024 * MIB);
        let (much, little, other) = (
            taker([10, 0, 0, 1], Some("a")),
            taker([10, 0, 0, 1], Some("a")),
            taker([10, 0, 0, 1], Some("b")),
        );
        let wanted = |who: &Taker| who.line.as_ref().unwrap().is_wanted();
        let _little = memory.take(&little, MUCH - 1).await.unwrap();
        let _other = memory.take(&other, MUCH).await.unwrap();
        let held = memory.take(&much, 440 * MIB).await.unwrap();
        assert!(![&much, &little, &other].map(wanted).contains(&true));
        let mut waits = pin!(memory.take(&little, 8 * MIB));
        assert!(waits.as_mut().now_or_never().is_none());
        // Of the share of its user, of which the other one has nothing.
        assert_eq!([&much, &little, &other].map(wanted), [true, false, false]);
        drop(held);
        assert!(waits.await.is_some() && !wanted(&much));
    }
}
