//! Connections whose peers are not known yet: how many there may be, and how long they may stay so.
//!
//! Invariant: at any time at most [`MOST`] connections are unknown, and at most [`MOST_OF_ONE`] of one address. One more
//! closes the oldest (of that address); a well-behaved peer introduces itself within milliseconds.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;

/// How long a connection may take to introduce itself.
const INTRODUCTION: Duration = Duration::from_secs(3);

/// Most connections that have not introduced themselves yet.
const MOST: usize = 1024;

/// Most of them that come from one address. A client opens at most a connection for each node and lane of a stripe at once.
const MOST_OF_ONE: usize = 512;

/// The connections of a listener whose peers are not known yet.
#[derive(Debug, Clone, Default)]
pub struct Strangers(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// The oldest first.
    waiting: BTreeMap<u64, (Option<IpAddr>, AbortHandle)>,
    count: u64,
}

/// A connection that introduces itself; it is known, or gone, once this is dropped.
#[derive(Debug)]
pub struct Introducing {
    strangers: Strangers,
    number: u64,
}

impl Strangers {
    /// Starts a task that lets a connection from `addr` introduce itself. The task must drop what it is given as soon as
    /// the peer is known. It is ended if that takes too long, or if too many others come.
    pub fn introduce<F>(&self, addr: Option<IpAddr>, task: impl FnOnce(Introducing) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut table = self.table();
        let crowded = table.waiting.len() >= MOST;
        let of_one = |(from, _): &(Option<IpAddr>, AbortHandle)| *from == addr;
        let crowd = || table.waiting.iter().filter(|(_, waiting)| of_one(waiting));
        let pushy = crowd().nth(MOST_OF_ONE - 1).is_some();
        let oldest = if pushy { crowd().next() } else { table.waiting.iter().next().filter(|_| crowded) };
        if let Some(number) = oldest.map(|(number, _)| *number)
            && let Some((from, oldest)) = table.waiting.remove(&number)
        {
            tracing::debug!(?from, most = MOST, "closed a connection that did not introduce itself in time");
            oldest.abort();
        }
        let number = table.count;
        table.count += 1;
        let task = task(Introducing { strangers: self.clone(), number });
        let strangers = self.clone();
        let watch = tokio::spawn(async move {
            tokio::pin!(task);
            let late = async {
                tokio::time::sleep(INTRODUCTION).await;
                // Whoever is known by now may take all its time.
                if !strangers.table().waiting.contains_key(&number) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                biased;
                () = &mut task => {}
                () = late => tracing::debug!(from = ?addr, "closed a connection that did not introduce itself"),
            }
        });
        // The task cannot have removed itself yet: for that it needs this lock.
        table.waiting.insert(number, (addr, watch.abort_handle()));
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Introducing {
    fn drop(&mut self) {
        self.strangers.table().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::sync::mpsc;

    use super::*;

    /// Connections that never say anything; tells which of them were closed.
    fn silent(strangers: &Strangers, from: u8, closed: &mpsc::UnboundedSender<u8>) {
        struct Closed(u8, mpsc::UnboundedSender<u8>);
        impl Drop for Closed {
            fn drop(&mut self) {
                let _ = self.1.send(self.0);
            }
        }
        let guard = Closed(from, closed.clone());
        let addr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, from));
        strangers.introduce(Some(addr), |introducing| async move {
            let _held = (guard, introducing);
            std::future::pending::<()>().await;
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_from_one_address_closes_its_own_oldest_and_all_are_closed_in_time() {
        let strangers = Strangers::default();
        let (closed, mut gone) = mpsc::unbounded_channel();
        silent(&strangers, 1, &closed);
        for _ in 0..MOST_OF_ONE + 3 {
            silent(&strangers, 2, &closed);
        }
        tokio::task::yield_now().await;
        let mut first = Vec::new();
        while let Ok(from) = gone.try_recv() {
            first.push(from);
        }
        assert_eq!(first, [2, 2, 2], "the quiet address keeps its connection");
        tokio::time::sleep(INTRODUCTION + Duration::from_millis(1)).await;
        assert!(strangers.table().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn many_addresses_together_close_the_oldest() {
        let strangers = Strangers::default();
        let (closed, mut gone) = mpsc::unbounded_channel();
        for from in 0..3 {
            for _ in 0..MOST / 2 - 1 {
                silent(&strangers, from, &closed);
            }
        }
        assert_eq!(strangers.table().waiting.len(), MOST);
        assert_eq!(gone.recv().await, Some(0));
    }
}
