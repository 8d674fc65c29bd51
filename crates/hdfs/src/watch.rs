//! Watching an HDFS from outside: which DataNodes are gone, what is lost with them, and when each lost block is back, whoever
//! rebuilt it; who it was is known if a coordinator beside HDFS can be asked. It changes nothing; a coordinator with agents,
//! `repair`, or HDFS itself repairs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, StripeId};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::agents::Coordinator;
use crate::credit::{Back, By, Credit};
use crate::handover::{Now, refresh};
use crate::maintenance::Resting;
use crate::objects::Records;
use crate::vigil::{Gone, TICK, Vigil, lost, there};
use crate::walk::{LeftAlone, groups};
use crate::{Group, HdfsError, NameNode, notes};

/// Damaged groups that are asked for in a tick; the others have their turn in later ones.
const MOST_ASKED: usize = 256;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Seen {
    /// All groups were listed.
    Scanned {
        /// Complete block groups.
        groups: usize,
    },
    /// A DataNode is gone.
    Gone {
        /// Its address.
        datanode: String,
        /// How that is known.
        why: String,
    },
    /// A DataNode that was gone is there again.
    Back {
        /// Its address.
        datanode: String,
    },
    /// How much is lost; told when it changes.
    AtRisk {
        /// Groups with lost internal blocks.
        groups: usize,
        /// Those of them that cannot be read any more.
        unreadable: usize,
        /// The lost internal blocks.
        blocks: usize,
        /// Their bytes.
        bytes: u64,
        /// Those of them that the NameNode reports missing.
        missing: usize,
    },
    /// A lost block is there again.
    Repaired {
        /// Its file.
        path: String,
        /// Its group.
        group: i64,
        /// Its index.
        index: u8,
        /// Its length.
        bytes: u64,
        /// The DataNode that has it.
        datanode: String,
        /// Milliseconds since it was seen to be lost.
        lost_ms: u64,
        /// Who brought it back, if a coordinator was asked and knows.
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<By>,
    },
    /// Nothing is lost any more.
    Whole {
        /// Blocks that are back since something was lost.
        blocks: usize,
        /// Their bytes.
        bytes: u64,
        /// Milliseconds since something was lost.
        lost_ms: u64,
    },
    /// Something did not work out; it is tried again.
    Failed {
        /// Why.
        why: String,
    },
    /// What an operator should know of this HDFS, with which everything works.
    Note {
        /// In words.
        text: String,
    },
}

/// What is known between two looks.
#[derive(Default)]
struct Picture {
    groups: BTreeMap<u64, Group>,
    lost: BTreeMap<BlockId, Instant>,
    resting: Resting,
    /// Since when something is lost, and what came back since: blocks and bytes.
    since: Option<(Instant, usize, u64)>,
    told: Option<Seen>,
}

/// Watches until nobody takes events any more. Groups are listed every `scan`; those with losses and the DataNodes are asked
/// for every second. A `coordinator` is asked who brought lost blocks back.
///
/// # Errors
/// `NotFound`, `Denied`, and `Protocol` for the coordinator, at the beginning; later errors are events.
pub async fn watch(
    namenode: &NameNode,
    root: &str,
    scan: Duration,
    coordinator: Option<&Coordinator>,
    events: &mpsc::Sender<Seen>,
) -> Result<(), HdfsError> {
    if let Some(coordinator) = coordinator {
        coordinator.ask().await?;
    }
    let (mut vigil, mut picture, mut records) = (Vigil::default(), Picture::default(), Records::default());
    let (mut left_alone, mut credit) = (LeftAlone::default(), Credit::of(coordinator));
    let asked = BTreeSet::new();
    picture.groups = groups(namenode, root, &mut records, &mut left_alone, asked).await?.groups;
    let sight = vigil.look(namenode).await?;
    picture.resting.now(&sight);
    let mut seen = vec![Seen::Scanned { groups: picture.groups.len() }];
    // Where HDFS has lists of who may call what, this call may be refused to a superuser. Then the release is not known.
    let release = namenode.namespace().await.ok().and_then(|namespace| notes::release(&namespace.release));
    let said = release.into_iter().chain(notes::racks(&sight.live)).chain(sight.notes);
    seen.extend(said.map(|text| Seen::Note { text }));
    let mut scanned = Instant::now();
    loop {
        let began = Instant::now();
        if scanned.elapsed() >= scan {
            match groups(namenode, root, &mut records, &mut left_alone, BTreeSet::new()).await {
                Ok(found) => picture.list(found.groups),
                Err(error) => seen.push(Seen::Failed { why: error.to_string() }),
            }
            scanned = Instant::now();
        }
        seen.extend(left_alone.untold().into_iter().map(|why| Seen::Failed { why }));
        match vigil.look(namenode).await {
            Ok(sight) => {
                seen.extend(
                    sight
                        .left
                        .iter()
                        .map(|(datanode, why)| Seen::Gone { datanode: datanode.clone(), why: why.clone() }),
                );
                picture.resting.now(&sight);
                seen.extend(sight.notes.iter().map(|text| Seen::Note { text: text.clone() }));
                seen.extend(sight.back.iter().map(|datanode| Seen::Back { datanode: datanode.clone() }));
                if let Err(error) = picture.renew(namenode, &sight.gone).await {
                    seen.push(Seen::Failed { why: error.to_string() });
                }
                seen.extend(credit.pass(picture.compare(&sight.gone)).await);
            }
            Err(error) => seen.push(Seen::Failed { why: error.to_string() }),
        }
        for event in seen.drain(..) {
            if events.send(event).await.is_err() {
                return Ok(());
            }
        }
        sleep(TICK.saturating_sub(began.elapsed())).await;
    }
}

impl Picture {
    /// There are these groups.
    fn list(&mut self, groups: BTreeMap<u64, Group>) {
        for group in groups.values() {
            self.resting.renew(self.groups.get(&group.id), group, |_, _| false);
        }
        self.resting.keep(&groups);
        self.groups = groups;
    }

    /// Asks once more for groups with losses. What fails of one does not keep the others from being asked for; the first failure is returned.
    async fn renew(&mut self, namenode: &NameNode, gone: &Gone) -> Result<(), HdfsError> {
        let damaged = |group: &&Group| !lost(group, gone, &self.resting).is_empty();
        let mut damaged: Vec<Group> = self.groups.values().filter(damaged).cloned().collect();
        if damaged.len() > MOST_ASKED {
            // Those that were lost last wait.
            damaged.sort_by_key(|group| self.first_lost(group.id));
            damaged.truncate(MOST_ASKED);
        }
        let mut done = Ok(());
        for group in damaged {
            match refresh(namenode, &group).await {
                Ok(Now::Same(now)) => {
                    self.resting.renew(self.groups.get(&now.id), &now, |_, _| false);
                    self.groups.insert(now.id, *now);
                }
                Ok(Now::Changed(_)) => _ = self.groups.remove(&group.id),
                Err(error) if error.no_namenode() => return Err(error),
                Err(error) => done = done.and(Err(error)),
            }
        }
        done
    }

    fn first_lost(&self, group: u64) -> Option<Instant> {
        let block = |index| BlockId { stripe: StripeId(group), index: BlockIndex(index) };
        self.lost.range(block(0)..=block(u8::MAX)).map(|(_, since)| *since).min()
    }

    /// What is lost now, against what was lost before.
    fn compare(&mut self, gone: &Gone) -> Vec<(Seen, Option<Back>)> {
        let (mut seen, mut now) = (Vec::new(), BTreeSet::new());
        let (mut damaged, mut unreadable, mut bytes, mut missing) = (0, 0, 0, 0);
        for group in self.groups.values() {
            let lost = lost(group, gone, &self.resting);
            if lost.is_empty() && !group.is_unreadable() {
                continue;
            }
            damaged += 1;
            unreadable += usize::from(group.is_unreadable() || !group.policy.code.recoverable(&lost));
            missing += lost.iter().filter(|index| !group.holders.contains_key(index)).count();
            bytes += lost.iter().map(|index| group.block_bytes(*index)).sum::<u64>();
            now.extend(lost.into_iter().map(|index| BlockId { stripe: StripeId(group.id), index }));
        }
        let (before, instant) = (std::mem::take(&mut self.lost), Instant::now());
        self.lost = now.iter().map(|id| (*id, before.get(id).copied().unwrap_or(instant))).collect();
        if !self.lost.is_empty() && self.since.is_none() {
            self.since = Some((instant, 0, 0));
        }
        for (id, since) in before.into_iter().filter(|(id, _)| !now.contains(id)) {
            let Some(group) = self.groups.get(&id.stripe.0) else { continue };
            let Some(datanode) = there(group, id.index, gone).next() else { continue };
            let (bytes, block) = (group.block_bytes(id.index), group.block(id.index).id);
            if let Some((_, blocks, sum)) = &mut self.since {
                (*blocks, *sum) = (*blocks + 1, *sum + bytes);
            }
            let (path, group, index) = (group.path.clone(), group.number(), id.index.0);
            let lost_ms = since.elapsed().as_millis() as u64;
            let event = Seen::Repaired { path, group, index, bytes, datanode, lost_ms, by: None };
            seen.push((event, Some(Back { block, lost: since })));
        }
        let blocks = self.lost.len();
        if let Some((since, blocks, bytes)) = self.since.take_if(|_| blocks == 0) {
            seen.push((Seen::Whole { blocks, bytes, lost_ms: since.elapsed().as_millis() as u64 }, None));
        }
        let risk = Seen::AtRisk { groups: damaged, unreadable, blocks, bytes, missing };
        if self.told.as_ref() != Some(&risk) {
            seen.push((risk.clone(), None));
            self.told = Some(risk);
        }
        seen
    }
}
