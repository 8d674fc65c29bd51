//! Connections by address. One address has at most half of all, so that it cannot keep out the others. Loopback is
//! excepted: a proxy may stand there for all clients.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// See the head of this file.
pub(crate) struct Places {
    most: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

impl Places {
    pub(crate) fn new(connections: usize) -> Self {
        Self { most: connections.div_ceil(2), taken: Mutex::default() }
    }

    /// A place for a connection from an address, if there is one.
    pub(crate) fn take(&self, addr: IpAddr) -> Option<Place<'_>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(addr).or_insert(0);
        if *count >= self.most && !addr.is_loopback() {
            return None;
        }
        *count += 1;
        Some(Place { of: self, addr })
    }
}

/// The place of one connection, until it is dropped.
pub(crate) struct Place<'p> {
    of: &'p Places,
    addr: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.addr) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.addr);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_at_most_half_of_all_connections() {
        let places = Places::new(5);
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut taken: Vec<_> = (0..3).map(|_| places.take(a).unwrap()).collect();
        assert!(places.take(a).is_none() && places.take(b).is_some());
        taken.pop();
        taken.extend(places.take(a));
        assert_eq!(taken.len(), 3);
        let local: Vec<_> = (0..5).filter_map(|_| places.take([127, 0, 0, 1].into())).collect();
        assert_eq!(local.len(), 5);
        drop((taken, local));
        assert!(places.taken.lock().unwrap().is_empty());
    }
}
