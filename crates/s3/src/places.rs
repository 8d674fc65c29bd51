//! Places of connections. One network has at most half of all, so that it cannot keep out the others; loopback is excepted,
//! where a proxy may stand for all clients. When there is no place, a connection of which no request is under way makes room: the oldest
//! that has not asked for anything yet, or else the one that has asked for nothing for the longest time.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The network of one subscriber: of IPv6 whoever has one address has 2^64 of them.
pub(crate) fn network(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V4(_) => addr,
        IpAddr::V6(addr) => Ipv6Addr::from_bits(addr.to_bits() >> 64 << 64).into(),
    }
}

/// See the head of this file.
pub(crate) struct Places {
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    count: u64,
    /// The oldest first.
    taken: BTreeMap<u64, Taken>,
}

struct Taken {
    network: IpAddr,
    state: State,
    gone: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has asked for nothing yet.
    Silent,
    /// A request is under way.
    Asking,
    /// None is, since then.
    Idle(Instant),
}

impl Places {
    pub(crate) fn new(connections: usize) -> Arc<Self> {
        Arc::new(Self { most: connections, table: Mutex::default() })
    }

    /// A place for a connection from an address, if there is one or another connection makes room.
    pub(crate) fn take(self: &Arc<Self>, addr: IpAddr) -> Option<Place> {
        let (network, mut table) = (network(addr), self.table());
        let of_network = table.taken.values().filter(|taken| taken.network == network).count();
        let is_crowd = of_network >= self.most.div_ceil(2) && !addr.is_loopback();
        if is_crowd || table.taken.len() >= self.most {
            let among = table.taken.iter().filter(|(_, taken)| !is_crowd || taken.network == network);
            let idle = among.filter_map(|(number, taken)| match taken.state {
                State::Silent => Some((None, *number)),
                State::Idle(since) => Some((Some(since), *number)),
                State::Asking => None,
            });
            let (_, number) = idle.min()?;
            table.taken.remove(&number)?.gone.cancel();
        }
        let (number, gone) = (table.count, CancellationToken::new());
        table.count += 1;
        table.taken.insert(number, Taken { network, state: State::Silent, gone: gone.clone() });
        Some(Place { of: self.clone(), number, gone })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_now(&self, number: u64, state: State) {
        if let Some(taken) = self.table().taken.get_mut(&number) {
            taken.state = state;
        }
    }
}

/// The place of one connection, until it is dropped.
pub(crate) struct Place {
    of: Arc<Places>,
    number: u64,
    gone: CancellationToken,
}

impl Place {
    /// A request is under way until what this returns is dropped.
    pub(crate) fn asks(&self) -> Asking {
        self.of.is_now(self.number, State::Asking);
        Asking { of: self.of.clone(), number: self.number }
    }

    /// Whether there was a request.
    pub(crate) fn has_asked(&self) -> bool {
        self.of.table().taken.get(&self.number).is_some_and(|taken| taken.state != State::Silent)
    }

    /// Waits until another connection has this place.
    pub(crate) async fn gone(&self) {
        self.gone.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.table().taken.remove(&self.number);
    }
}

/// A request on a connection.
pub(crate) struct Asking {
    of: Arc<Places>,
    number: u64,
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.of.is_now(self.number, State::Idle(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_network_has_at_most_half_of_all_connections() {
        for [crowd, same, other] in
            [["10.0.0.1"; 2].map(ip).to_vec(), ["2001:db8::1", "2001:db8::ffff:0:0:2"].map(ip).to_vec()]
                .map(|pair| [pair[0], pair[1], ip("2001:db8:0:1::1")])
        {
            let places = Places::new(5);
            let taken: Vec<_> = (0..3).map(|_| places.take(crowd).unwrap()).collect();
            let asking: Vec<_> = taken.iter().map(Place::asks).collect();
            assert!(places.take(same).is_none() && places.take(other).is_some(), "{same}");
            drop(asking);
            // Now there is one that makes room.
            assert!(places.take(same).is_some());
        }
        let places = Places::new(5);
        let local: Vec<_> = (0..5).filter_map(|_| places.take(ip("127.0.0.1"))).collect();
        assert_eq!(local.len(), 5);
        drop(local);
        assert!(places.table().taken.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connections_make_room_and_then_idle_ones_but_none_that_asks() {
        let places = Places::new(4);
        let mut next = 0;
        let mut take = || {
            next += 1;
            places.take(IpAddr::from([10, 0, 0, next]))
        };
        let [asking, idle, first, second] = [(); 4].map(|()| take().unwrap());
        let request = asking.asks();
        drop(idle.asks());
        assert!(idle.has_asked() && !first.has_asked());
        let is_gone = |place: &Place| place.gone.is_cancelled();
        let third = take().unwrap();
        assert_eq!([&asking, &idle, &first, &second].map(is_gone), [false, false, true, false]);
        // What is gone changes nothing.
        drop((first.asks(), first));
        let fourth = take().unwrap();
        assert!(is_gone(&second) && !is_gone(&third));
        let requests = [third.asks(), fourth.asks()];
        let fifth = take().unwrap();
        assert!(is_gone(&idle) && !is_gone(&asking));
        let last = fifth.asks();
        assert!(take().is_none());
        drop((request, requests, last));
        assert!(take().is_some() && is_gone(&asking));
    }
}
