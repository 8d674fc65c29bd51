//! Two blocks of a group on one DataNode. When several blocks of a group are missing, HDFS rebuilds them too, on DataNodes that it has chosen
//! before it heard of a block that was handed over, or before it read what a DataNode has that came back. So one of them may come to a DataNode
//! that has another one by then. Of two the
//! NameNode counts the one of which it heard first, and ignores the other: it stays on the disk, beside the copy that is made of
//! it elsewhere, and HDFS never finds out.
//!
//! So for some minutes after a hand-over or a return a DataNode is asked what else it has of the group, by its own word. If it has two, the one
//! that the NameNode lists is moved to another DataNode, as HDFS's balancer moves blocks. The NameNode counts the other one with the
//! DataNode's next report of all blocks, and has one deleted if there are two copies then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::memory::block;
use super::{Event, Shared};
use crate::handover::{Now, found, free_of, refresh, target};
use crate::objects::carry;
use crate::proto::names::DatanodeInfo;
use crate::vigil::address;
use crate::{Group, HdfsError};

/// What HDFS began to rebuild has ended after this time, or never will: by default the NameNode gives it five minutes.
const HDFS_ENDS: Duration = Duration::from_secs(600);

/// A DataNode that got a block, or came back with it, is asked for the first time after this.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// What is known of such DataNodes.
#[derive(Default)]
pub(super) struct Crowds {
    /// When the NameNode last listed no DataNode for a block of a group of HDFS's own: HDFS rebuilds it then, for some time also after
    /// somebody else did.
    missing: BTreeMap<BlockId, Instant>,
    /// The DataNodes that came back, and when: until HDFS has read what they have, it may bring them another block of a group.
    returned: BTreeMap<String, Instant>,
    /// Blocks that were written to DataNodes or came back with them, as long as HDFS may bring another one of the group to the same.
    watched: BTreeMap<(BlockId, String), Watched>,
}

/// How a DataNode with a block is asked what else it has of the group.
struct Watched {
    /// When the block came there.
    since: Instant,
    /// When the DataNode was last asked, and how long it is left alone after that.
    asked: Instant,
    pause: Duration,
}

/// A DataNode that is to be asked whether HDFS has brought it another block of a group beside this one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    group: u64,
    index: BlockIndex,
    datanode: String,
    /// The blocks that were missing lately.
    mates: Vec<BlockIndex>,
}

impl Crowds {
    /// A block of a group of HDFS's own was written to a DataNode.
    pub fn handed_over(&mut self, group: u64, index: BlockIndex, datanode: &str) {
        self.watched.insert((block(group, index), datanode.to_owned()), Watched::since(Instant::now()));
    }

    /// A DataNode that was gone is there again.
    pub fn returned(&mut self, datanode: &str) {
        self.returned.insert(datanode.to_owned(), Instant::now());
        self.watched.retain(|(_, at), _| at != datanode);
    }

    /// Notes which blocks of the group have no DataNode, and which came back while others had none. Blocks of objects are files of
    /// their own, which HDFS does not rebuild.
    pub fn note(&mut self, group: &Group) {
        let held = |index: &BlockIndex| group.holders.get(index).is_some_and(|holders| !holders.is_empty());
        let lost = group.expected().filter(|index| group.stored.is_none() && !held(index));
        self.missing.extend(lost.map(|index| (block(group.id, index), Instant::now())));
        if self.returned.is_empty() || missing_of(&self.missing, group.id).next().is_none() {
            return;
        }
        for (index, holders) in &group.holders {
            if missing_of(&self.missing, group.id).all(|other| other == *index) {
                continue;
            }
            for at in holders.iter().map(|holder| address(&holder.datanode)) {
                if let Some(when) = self.returned.get(&at) {
                    self.watched.entry((block(group.id, *index), at)).or_insert(Watched::since(*when));
                }
            }
        }
    }

    /// The DataNodes to ask now of groups that are free, at most so many, each as if it was asked. Pauses double.
    pub fn due(&mut self, most: usize, free: impl Fn(u64) -> bool) -> Vec<Due> {
        let Self { watched, missing, .. } = self;
        let due = watched
            .iter_mut()
            .filter(|((id, _), watched)| watched.asked.elapsed() >= watched.pause && free(id.stripe.0));
        let due = due.filter_map(|((id, datanode), watched)| {
            let (group, index) = (id.stripe.0, id.index);
            let mates: Vec<_> = missing_of(missing, group).filter(|mate| *mate != index).collect();
            (!mates.is_empty()).then(|| {
                (watched.asked, watched.pause) = (Instant::now(), watched.pause * 2);
                Due { group, index, datanode: datanode.clone(), mates }
            })
        });
        due.take(most).collect()
    }

    /// Forgets what HDFS has ended.
    pub fn forget(&mut self) {
        self.missing.retain(|_, last| last.elapsed() < HDFS_ENDS);
        self.returned.retain(|_, when| when.elapsed() < HDFS_ENDS);
        self.watched.retain(|_, watched| watched.since.elapsed() < HDFS_ENDS);
    }
}

impl Watched {
    fn since(since: Instant) -> Self {
        Self { since, asked: since, pause: FIRST_PAUSE }
    }
}

/// The blocks of a group that were missing lately.
fn missing_of(missing: &BTreeMap<BlockId, Instant>, group: u64) -> impl Iterator<Item = BlockIndex> {
    let all = block(group, BlockIndex(0))..=block(group, BlockIndex(u8::MAX));
    missing.range(all).map(|(id, _)| id.index)
}

/// Starts on DataNodes that are to be asked now, as many as groups may be worked on at once.
pub(super) fn begin(shared: &Arc<Shared>, work: &mut JoinSet<()>) {
    let all = shared.memory().crowds_due(shared.config.at_once);
    for due in all {
        let group = {
            let mut memory = shared.memory();
            let group = memory.groups.get(&due.group).cloned();
            let Some(group) = group.filter(|group| memory.busy.insert(group.id)) else { continue };
            group
        };
        let shared = shared.clone();
        work.spawn(async move { shared.work_on(&group, one(&shared, &group, &due)).await });
    }
}

async fn one(shared: &Shared, group: &Group, due: &Due) -> Result<(), HdfsError> {
    let now = match refresh(&shared.namenode, group).await? {
        Now::Same(now) => *now,
        Now::Changed(_) => return Ok(()),
    };
    shared.memory().renew(now.clone());
    let Some((listed, from)) = listed(&now, &due.datanode) else { return Ok(()) };
    let others: BTreeSet<BlockIndex> = due.mates.iter().copied().chain([due.index]).collect();
    let others = others.into_iter().filter(|other| *other != listed).collect();
    if shared.namenode.safe_mode().await? || found(&shared.namenode, &now, &from, others).await?.is_none() {
        return Ok(());
    }
    let to = free(shared, &now, listed).await?;
    carry(&shared.namenode, &now, listed, &from, &to).await?;
    let (block, to) = (now.name(listed), address(&to));
    shared.members.keep_counted(now.block(listed).id, &to);
    shared.memory().crowds.handed_over(now.id, listed, &to);
    shared.tell(Event::Moved { block, from: due.datanode.clone(), to }).await;
    Ok(())
}

/// The block of the group that the NameNode lists on this DataNode, if it lists it nowhere else: else it will have one deleted.
fn listed(group: &Group, datanode: &str) -> Option<(BlockIndex, DatanodeInfo)> {
    group.holders.iter().find_map(|(index, holders)| match &holders[..] {
        [holder] if address(&holder.datanode) == datanode => Some((*index, holder.datanode.clone())),
        _ => None,
    })
}

/// A DataNode for a block that has none of the group, by its own word.
async fn free(shared: &Shared, group: &Group, index: BlockIndex) -> Result<DatanodeInfo, HdfsError> {
    let (live, mut tried) = (shared.memory().live.clone(), BTreeSet::new());
    while let Some(to) = target(group, &live, &tried) {
        match free_of(&shared.namenode, group, index, &to).await {
            Ok(()) => return Ok(to),
            Err(error) => tracing::debug!("{group}, block {}: not to {}: {error}", index.0, address(&to)),
        }
        tried.insert(to.id.uuid);
    }
    Err(HdfsError::NotHandedOver {
        what: format!("{group}, block {}", index.0),
        message: "its DataNode has another block of the group, which HDFS ignores; no DataNode in service has room and none of \
                  the group, so it stays there"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::tests::{datanode, held};

    /// A group with index i on the DataNode with port i + 1, but for these.
    fn without(lost: &[u8]) -> Group {
        let there = (0..5).filter(|index| !lost.contains(index));
        held(there.map(|index| (index, datanode(([10, 0, 0, 1], u16::from(index) + 1).into()))))
    }

    /// The blocks that a DataNode is to be asked for now, each time one is.
    fn due(crowds: &mut Crowds) -> Vec<Vec<u8>> {
        let all = crowds.due(9, |_| true);
        all.iter().map(|due| due.mates.iter().map(|mate| mate.0).collect()).collect()
    }

    /// As if so much time had passed.
    fn later(crowds: &mut Crowds, by: Duration) {
        let Crowds { missing, returned, watched } = crowds;
        let watched = watched.values_mut().flat_map(|watched| [&mut watched.since, &mut watched.asked]);
        missing.values_mut().chain(returned.values_mut()).chain(watched).for_each(|time| *time -= by);
    }

    #[test]
    fn a_datanode_is_asked_for_what_was_missing_when_it_got_a_block() {
        let (mut crowds, group) = (Crowds::default(), without(&[]).id);
        crowds.note(&without(&[]));
        crowds.handed_over(group, BlockIndex(0), "10.0.0.1:1");
        later(&mut crowds, FIRST_PAUSE);
        assert!(due(&mut crowds).is_empty(), "no other was missing, so HDFS rebuilt no other");
        crowds.note(&without(&[0, 3]));
        crowds.note(&without(&[]));
        assert!(crowds.due(9, |other| other != group).is_empty(), "somebody works on it");
        assert_eq!(due(&mut crowds), [[3]]);
        later(&mut crowds, FIRST_PAUSE);
        assert!(due(&mut crowds).is_empty(), "pauses double");
        later(&mut crowds, FIRST_PAUSE);
        assert!(crowds.due(0, |_| true).is_empty());
        assert_eq!(due(&mut crowds), [[3]]);
        later(&mut crowds, HDFS_ENDS);
        crowds.forget();
        assert!(crowds.watched.is_empty() && crowds.missing.is_empty());
    }

    #[test]
    fn a_datanode_that_came_back_is_asked_for_what_was_missing_meanwhile() {
        let mut crowds = Crowds::default();
        crowds.note(&without(&[0]));
        crowds.returned("10.0.0.1:1");
        crowds.note(&without(&[]));
        later(&mut crowds, FIRST_PAUSE);
        assert!(due(&mut crowds).is_empty(), "only what it brought back itself was missing");
        crowds.note(&without(&[0, 3]));
        assert!(due(&mut crowds).is_empty(), "HDFS has not read what it has");
        crowds.note(&without(&[3]));
        let first = Due {
            group: without(&[]).id,
            index: BlockIndex(0),
            datanode: "10.0.0.1:1".into(),
            mates: vec![BlockIndex(3)],
        };
        assert_eq!(crowds.due(9, |_| true), [first], "and none of those that were there all the time");
        crowds.note(&without(&[]));
        later(&mut crowds, FIRST_PAUSE);
        assert!(due(&mut crowds).is_empty(), "pauses double");
        crowds.returned("10.0.0.1:1");
        crowds.note(&without(&[]));
        later(&mut crowds, FIRST_PAUSE);
        assert_eq!(due(&mut crowds), [[3]], "it came back once more");
        later(&mut crowds, HDFS_ENDS);
        crowds.forget();
        crowds.note(&without(&[0, 3]));
        assert!(crowds.watched.is_empty() && crowds.returned.is_empty());
    }

    #[test]
    fn what_is_listed_there_and_nowhere_else_can_be_moved() {
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let group = held([(0, at(1)), (1, at(2)), (1, at(3))]);
        let index = |datanode| listed(&group, datanode).map(|(index, _)| index.0);
        assert_eq!(index("10.0.0.1:1"), Some(0));
        assert_eq!(index("10.0.0.1:2"), None, "HDFS has one of both copies deleted");
        assert_eq!(index("10.0.0.1:4"), None);
    }
}
