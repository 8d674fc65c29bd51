//! Who brought lost blocks back. A coordinator beside HDFS tells which blocks its agents handed over; all others are of HDFS, of
//! a DataNode that came back, or of `kintsu hdfs repair`.
//!
//! A coordinator hears from the NameNode a moment later than a watch may that a block is there. So what comes back waits a little
//! while, and what is seen after it waits behind it.

use std::collections::VecDeque;
use std::time::Duration;

use kintsu_wire::message::CountedBeside;
use tokio::time::Instant;

use crate::agents::Coordinator;
use crate::watch::Seen;

/// A coordinator knows what its agents did within this time.
const KNOWN_WITHIN: Duration = Duration::from_secs(3);

/// Who brought a lost block back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The agents of the coordinator that was asked.
    Agents,
    /// Somebody else: HDFS itself, a DataNode that came back, `kintsu hdfs repair`.
    Others,
}

/// A lost block that is there again.
pub(crate) struct Back {
    /// Its id in HDFS.
    pub block: u64,
    /// Since when it was lost.
    pub lost: Instant,
}

/// Asks a coordinator who it was; without one nothing waits.
pub(crate) struct Credit<'a> {
    coordinator: Option<&'a Coordinator>,
    /// What is seen, and until when it waits.
    waiting: VecDeque<(Seen, Option<Back>, Instant)>,
    /// Whether the coordinator did not answer, and that was told.
    silent: bool,
}

impl<'a> Credit<'a> {
    pub(crate) fn of(coordinator: Option<&'a Coordinator>) -> Self {
        Self { coordinator, waiting: VecDeque::new(), silent: false }
    }

    /// Takes what is seen now; returns what waits no longer.
    pub(crate) async fn pass(&mut self, seen: Vec<(Seen, Option<Back>)>) -> Vec<Seen> {
        let until = Instant::now() + KNOWN_WITHIN;
        self.waiting.extend(seen.into_iter().map(|(seen, back)| (seen, back, until)));
        let asked = self.coordinator.filter(|_| self.waiting.iter().any(|(_, back, _)| back.is_some()));
        let (mut told, mut counted) = (Vec::new(), None);
        if let Some(coordinator) = asked {
            match coordinator.ask().await {
                Ok(answer) => (counted, self.silent) = (answer.counted, false),
                Err(error) => {
                    let first = !std::mem::replace(&mut self.silent, true);
                    told.extend(first.then(|| Seen::Failed { why: error.to_string() }));
                }
            }
        }
        told.extend(self.known(counted.as_deref()));
        told
    }

    /// What waits no longer, when the coordinator names these blocks; `None` if it does not tell.
    fn known(&mut self, counted: Option<&[CountedBeside]>) -> Vec<Seen> {
        let (mut known, asking) = (Vec::new(), self.coordinator.is_some());
        while let Some((seen, back, until)) = self.waiting.front_mut() {
            if let (Seen::Repaired { datanode, by, .. }, Some(back)) = (seen, back) {
                let since = back.lost.elapsed().as_millis() as u64;
                let this = |one: &CountedBeside| {
                    one.block == back.block && one.beside == *datanode && one.age_ms <= since
                };
                match counted.map(|all| all.iter().any(this)) {
                    Some(true) => *by = Some(By::Agents),
                    _ if asking && Instant::now() < *until => break,
                    Some(false) => *by = Some(By::Others),
                    None => {}
                }
            }
            known.extend(self.waiting.pop_front().map(|(seen, ..)| seen));
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(group: i64, datanode: &str) -> Seen {
        let datanode = datanode.into();
        Seen::Repaired { path: "/f".into(), group, index: 0, bytes: 1, datanode, lost_ms: 9_000, by: None }
    }

    fn by(seen: &[Seen]) -> Vec<Option<By>> {
        let by = |seen: &Seen| match seen {
            Seen::Repaired { by, .. } => *by,
            _ => None,
        };
        seen.iter().map(by).collect()
    }

    #[tokio::test]
    async fn what_came_back_waits_for_what_the_coordinator_knows() {
        let coordinator = Coordinator::at("127.0.0.1:1", None).unwrap();
        let mut credit = Credit::of(Some(&coordinator));
        let (now, lost) = (Instant::now(), Instant::now() - Duration::from_secs(9));
        let whole = Seen::Whole { blocks: 3, bytes: 3, lost_ms: 9_000 };
        let counted = |block, beside: &str, age_ms| CountedBeside { block, beside: beside.into(), age_ms };
        let all = [
            (back(1, "a"), Some(Back { block: 1, lost })),
            (back(2, "b"), Some(Back { block: 2, lost })),
            (back(3, "c"), Some(Back { block: 3, lost })),
            (whole.clone(), None),
        ];
        credit.waiting.extend(all.map(|(seen, back)| (seen, back, now + KNOWN_WITHIN)));
        assert!(credit.known(None).is_empty(), "it did not answer");
        // Of 2 it tells that it came to another DataNode; of 3 that it came there before it was lost again.
        let told = [counted(1, "a", 500), counted(2, "c", 500), counted(3, "c", 60_000)];
        assert_eq!(by(&credit.known(Some(&told))), [Some(By::Agents)], "it may not know of the others yet");
        assert!(credit.known(Some(&told)).is_empty());
        credit.waiting.iter_mut().for_each(|(.., until)| *until -= KNOWN_WITHIN);
        let known = credit.known(Some(&told));
        assert_eq!(by(&known), [Some(By::Others), Some(By::Others), None]);
        assert_eq!(known.last(), Some(&whole), "in the order in which it was seen");
        // A coordinator that tells nothing: then nobody knows.
        credit.waiting.push_back((back(4, "a"), Some(Back { block: 4, lost }), now));
        assert_eq!(by(&credit.known(None)), [None]);
    }

    #[tokio::test]
    async fn without_a_coordinator_nothing_waits() {
        let seen = back(1, "a");
        let new = vec![(seen.clone(), Some(Back { block: 1, lost: Instant::now() }))];
        assert_eq!(Credit::of(None).pass(new).await, [seen]);
    }
}
