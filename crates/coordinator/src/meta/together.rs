//! Operations of many callers in one transaction (group commit).
//!
//! The disk makes one transaction durable at a time. Callers that come meanwhile stand in line. When it is done,
//! each runs its operation in the next transaction, and the last in line makes that one durable for all, if one of
//! them needs that. A caller alone waits for nobody. If an operation fails, the whole transaction is rolled back, and the other callers run
//! theirs once more; so an operation must be able to run several times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use redb::WriteTransaction;

use super::write::Tables;
use super::{Meta, operate};
use crate::error::{CoordinatorError, Result};

/// Most operations in one transaction.
const MOST_TOGETHER: u64 = 64;

/// The line, and the transaction that is being filled.
#[derive(Default)]
pub(super) struct Line {
    /// Callers that wait for their turn.
    waiting: AtomicUsize,
    open: Mutex<Option<Filling>>,
}

/// A transaction with the operations that are in it already. Dropped before it is committed, it is rolled back, and
/// its callers learn that.
#[derive(Default)]
struct Filling {
    txn: Option<WriteTransaction>,
    operations: u64,
    /// Whether one of the operations must be durable before its caller goes on.
    durable: bool,
    end: Ending,
}

impl Drop for Filling {
    fn drop(&mut self) {
        self.end.tell(End::RolledBack);
    }
}

/// How the transaction ends, as the callers in it learn.
#[derive(Clone, Default)]
struct Ending(Arc<(Mutex<Option<End>>, Condvar)>);

#[derive(Clone)]
enum End {
    Committed,
    RolledBack,
    /// The commit failed, for this reason.
    Failed(String),
}

impl Ending {
    /// Only the first call counts.
    fn tell(&self, end: End) {
        let (told, news) = &*self.0;
        told.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(end);
        news.notify_all();
    }

    fn wait(&self) -> End {
        let (told, news) = &*self.0;
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &*told {
                Some(end) => return end.clone(),
                None => told = news.wait(told).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Meta {
    /// One operation, all or nothing, durable when this returns; it may share its transaction with others. `f` may
    /// run several times, each time on the present state. Blocks on the disk and on other callers.
    pub(super) fn together<T>(&self, f: impl Fn(&mut Tables<'_>) -> Result<T>) -> Result<T> {
        self.shared(&f, |_| true)
    }

    /// The same, but an operation for whose value `durable` is false need not be durable when this returns: see
    /// [`Meta::soon`].
    pub(super) fn shared<T>(
        &self,
        f: &impl Fn(&mut Tables<'_>) -> Result<T>,
        durable: impl Fn(&T) -> bool,
    ) -> Result<T> {
        loop {
            self.failure.check()?;
            let (value, end) = self.in_line(f, &durable).map_err(|e| self.failure.explain(e))?;
            match end {
                End::Committed => return Ok(value),
                End::RolledBack => {}
                End::Failed(reason) => return Err(self.failure.explain(CoordinatorError::Storage(reason))),
            }
        }
    }

    /// Runs the operation when its turn comes, and waits for the end of its transaction.
    fn in_line<T>(
        &self,
        f: impl Fn(&mut Tables<'_>) -> Result<T>,
        durable: impl Fn(&T) -> bool,
    ) -> Result<(T, End)> {
        self.line.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.line.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.line.waiting.fetch_sub(1, Ordering::SeqCst);
        let mut filling = open.take().unwrap_or_default();
        let txn = match filling.txn.take() {
            Some(txn) => txn,
            // Waits for the transaction before this one.
            None => self.db.begin_write()?,
        };
        let (txn, value, history) = operate(txn, 1, f)?;
        filling.operations += 1;
        filling.durable |= durable(&value);
        let end = filling.end.clone();
        let others = self.line.waiting.load(Ordering::SeqCst) > 0;
        if others && filling.operations < MOST_TOGETHER {
            filling.txn = Some(txn);
            *open = Some(filling);
            drop(open);
            return Ok((value, end.wait()));
        }
        // The next in line waits for this commit, and others gather behind it.
        drop(open);
        match self.commit(txn, (filling.operations, filling.durable), history) {
            Ok(()) => end.tell(End::Committed),
            Err(error) => {
                end.tell(End::Failed(error.to_string()));
                return Err(error);
            }
        }
        Ok((value, End::Committed))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::meta::tables;
    use crate::meta::tests::open;

    /// Gives `count` callers, all in line before the first may begin, a number each; `fail` may end a call after that.
    fn all_at_once(
        meta: &Meta,
        count: usize,
        fail: impl Fn(usize) -> Result<()> + Sync,
    ) -> Vec<Result<u64, String>> {
        let before = meta.db.begin_write().unwrap();
        let call = |i| {
            let number = meta.together(|t| {
                let number = t.next(tables::COUNT_PUT, 1)?;
                fail(i).map(|()| number)
            });
            number.map_err(|e| e.to_string())
        };
        thread::scope(|scope| {
            let (call, waiting) = (&call, || meta.line.waiting.load(Ordering::SeqCst) == count - 1);
            let calls: Vec<_> =
                (0..count).map(|i| scope.spawn(move || catch_unwind(AssertUnwindSafe(|| call(i))))).collect();
            // One caller is out of the line: it waits for the transaction before.
            while !(waiting() && {
                thread::sleep(Duration::from_millis(20));
                waiting()
            }) {
                thread::yield_now();
            }
            drop(before);
            let ended = |call: thread::ScopedJoinHandle<'_, _>| call.join().unwrap();
            calls.into_iter().map(|call| ended(call).unwrap_or_else(|_| Err("panic".into()))).collect()
        })
    }

    #[test]
    fn callers_in_line_share_one_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let base = meta.history();
        let shared = |_| {
            assert_eq!(meta.history(), base, "another transaction was committed before");
            Ok(())
        };
        let mut numbers: Vec<_> = all_at_once(&meta, 8, shared).into_iter().map(Result::unwrap).collect();
        numbers.sort();
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert_eq!(meta.history(), base + 8);
        let next = meta.together(|t| t.next(tables::COUNT_PUT, 1)).unwrap();
        assert_eq!((next, meta.history()), (numbers[7] + 1, base + 9));
    }

    #[test]
    fn operations_that_fail_or_panic_take_nothing_from_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let base = meta.history();
        let fail = |i| match i {
            2 => Err(CoordinatorError::Storage("not this one".into())),
            5 => panic!("not this one either"),
            _ => Ok(()),
        };
        let results = all_at_once(&meta, 8, fail);
        let mut numbers: Vec<_> = results.iter().flatten().copied().collect();
        numbers.sort();
        assert_eq!(numbers.len(), 6, "{results:?}");
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert!(results[2].as_ref().is_err_and(|e| e.contains("not this one")), "{results:?}");
        assert_eq!(meta.history(), base + 6);
        drop(meta);
        let again = open(dir.path()).together(|t| t.next(tables::COUNT_PUT, 1)).unwrap();
        assert_eq!(again, numbers[5] + 1, "what was rolled back is gone");
    }
}
