//! Groups that are worked on: one kind of work at a time, and however that ends, the group is free afterwards.

use std::fmt::Display;

use super::Shared;
use crate::HdfsError;

/// A group that counts as busy. It is free when this is dropped, also when the work on it panics.
struct Busy<'a> {
    shared: &'a Shared,
    group: u64,
    what: &'a (dyn Display + Sync),
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.shared.memory().free(self.group);
        if std::thread::panicking() {
            self.shared.memory().rest(self.group);
            self.shared
                .failed(self.what, "the work on it ended in the middle, by a bug; standard error says where");
        }
    }
}

impl Shared {
    /// Does this with a group that counts as busy, until the coordinator ends; then the group is free. If it fails, that is told, and the
    /// group rests.
    pub(super) async fn work_on(
        &self,
        group: u64,
        what: &(dyn Display + Sync),
        doing: impl Future<Output = Result<(), HdfsError>>,
    ) {
        let busy = Busy { shared: self, group, what };
        let done = self.end.run_until_cancelled(doing).await;
        drop(busy);
        if let Some(Err(error)) = done {
            self.memory().rest(group);
            self.failed(what, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use crate::beside::Event;
    use crate::beside::memory::Work;
    use crate::beside::tests::shared;

    #[tokio::test]
    async fn a_group_is_free_after_a_panic_and_that_is_told() {
        let (shared, mut happens) = shared(crate::fake::namenode(&[]));
        assert!(shared.memory().take(16, Work::Rebuild));
        let (of_work, mut work) = (shared.clone(), JoinSet::new());
        work.spawn(async move {
            of_work.work_on(16, &"/f, group 16", async { panic!("a bug, as this test wants it") }).await;
        });
        assert!(work.join_next().await.unwrap().unwrap_err().is_panic());
        assert!(!shared.memory().is_busy(16) && shared.memory().rests(16, Work::Settle));
        let Event::Failed { what, why } = happens.try_recv().unwrap() else { panic!("it was not told") };
        assert!(what == "/f, group 16" && why.contains("by a bug"), "{what}: {why}");
    }
}
