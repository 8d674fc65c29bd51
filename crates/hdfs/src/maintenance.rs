//! DataNodes in maintenance. As long as an operator has a DataNode in maintenance, the NameNode lists none of its blocks, whether it
//! lives or not; it rebuilds none either, and counts on them to come back. So they are missing in what it lists, and not lost: they
//! *rest*.
//!
//! Whoever saw a block listed there knows that it rests ([`Resting`]). Others ask the DataNodes ([`ask`]). One that does not answer may
//! have a block of any group, but only one of each.
//!
//! Source: Apache Hadoop 3.4.3, `BlockManager.createLocatedBlock`, and real daemons.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, StripeId};
use tokio::time::{Instant, timeout};

use crate::handover::mates;
use crate::proto::names::{DatanodeInfo, Token};
use crate::transfer::{Looked, look_for};
use crate::vigil::{Sight, address};
use crate::{Group, HdfsError, Holder, NameNode, transfer_address};

/// How long a DataNode may take to say what it has of a group.
const SAYS_WITHIN: Duration = Duration::from_secs(5);

/// A DataNode that did not answer is not asked again for this long.
const ASKED_AGAIN: Duration = Duration::from_secs(60);

/// The NameNode lists a block no longer for at most this long before the maintenance of its DataNode is seen: what it had stopped to list earlier was
/// lost before, as on a disk that failed.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

/// What is known of blocks that rest, by somebody who looks at the groups again and again.
#[derive(Default)]
pub(crate) struct Resting {
    /// The DataNodes in maintenance, or on their way there, by address, and since when that is known.
    nodes: BTreeMap<String, (Arc<DatanodeInfo>, Instant)>,
    /// Those of them that cannot be asked: they are dead, gone, or did not answer.
    mute: BTreeSet<String>,
    /// When they did not answer.
    silent: BTreeMap<String, Instant>,
    /// Where the blocks were listed last that are not listed any more. Those are there too of which a DataNode says that it has them.
    last: BTreeMap<BlockId, Vec<Claim>>,
}

/// That a DataNode has a block which is not listed.
struct Claim {
    datanode: Arc<DatanodeInfo>,
    /// When the NameNode listed it there no longer, or when the DataNode said that it has it.
    at: Instant,
}

impl Resting {
    /// These DataNodes are in maintenance now, by the last look.
    pub fn now(&mut self, sight: &Sight) {
        let (before, now) = (std::mem::take(&mut self.nodes), Instant::now());
        let since = |node: &DatanodeInfo| {
            let known = before.get(&address(node)).filter(|(known, _)| known.id.uuid == node.id.uuid);
            known.map_or(now, |(_, since)| *since)
        };
        let nodes = sight.maintenance.iter();
        self.nodes = nodes.map(|node| (address(node), (Arc::new(node.clone()), since(node)))).collect();
        self.mute = self.nodes.keys().cloned().collect();
        for node in sight.live.iter().map(address).filter(|node| !sight.gone.contains_key(node)) {
            self.mute.remove(&node);
        }
        self.silent.retain(|node, since| self.nodes.contains_key(node) && since.elapsed() < ASKED_AGAIN);
        self.mute.extend(self.silent.keys().cloned());
    }

    /// One of them did not say what it has.
    pub fn says_nothing(&mut self, datanode: &DatanodeInfo) {
        self.mute.insert(address(datanode));
        self.silent.insert(address(datanode), Instant::now());
    }

    /// A group was listed as in `before`, and is listed as in `now`. A block that is damaged on a DataNode does not rest there.
    pub fn renew(
        &mut self,
        before: Option<&Group>,
        now: &Group,
        is_damaged: impl Fn(BlockIndex, &str) -> bool,
    ) {
        for index in now.expected() {
            let id = block(now, index);
            if now.holders.contains_key(&index) {
                self.last.remove(&id);
            } else if let Some(holders) = before.and_then(|before| before.holders.get(&index)) {
                let nodes = holders.iter().map(|holder| holder.datanode.clone());
                let whole = nodes.filter(|node| !is_damaged(index, &address(node)));
                let at = Instant::now();
                self.last.insert(id, whole.map(|datanode| Claim { datanode, at }).collect());
            }
        }
    }

    /// There are only these groups.
    pub fn keep(&mut self, groups: &BTreeMap<u64, Group>) {
        self.last.retain(|id, _| groups.contains_key(&id.stripe.0));
    }

    /// A DataNode says that it has the block.
    pub fn found(&mut self, group: &Group, index: BlockIndex, datanode: &Arc<DatanodeInfo>) {
        let claims = self.last.entry(block(group, index)).or_default();
        claims.retain(|claim| claim.datanode.id.uuid != datanode.id.uuid);
        claims.push(Claim { datanode: datanode.clone(), at: Instant::now() });
    }

    /// Whether a DataNode in maintenance has what is claimed; `None` for one that is not in maintenance. One that was formatted anew is another one.
    fn holds(&self, claim: &Claim) -> Option<bool> {
        let (node, since) = self.nodes.get(&address(&claim.datanode))?;
        (node.id.uuid == claim.datanode.id.uuid).then(|| claim.at + SEEN_WITHIN >= *since)
    }

    /// The DataNode in maintenance that has the block, if there is one.
    pub fn at(&self, group: &Group, index: BlockIndex) -> Option<&str> {
        if self.nodes.is_empty() {
            return None;
        }
        let listed = group.holders.get(&index).into_iter().flatten().map(|holder| &holder.datanode);
        let here = |node: &Arc<_>| self.nodes.get_key_value(&address(node)).map(|(node, _)| node.as_str());
        listed.chain(self.held(group, index)).find_map(here)
    }

    /// The DataNodes in maintenance that have a block which is not listed.
    fn held(&self, group: &Group, index: BlockIndex) -> impl Iterator<Item = &Arc<DatanodeInfo>> {
        let claims = self.last.get(&block(group, index)).into_iter().flatten();
        claims.filter(|claim| self.holds(claim) == Some(true)).map(|claim| &claim.datanode)
    }

    /// Of a group's blocks of which no copy can be used now, those that are lost: the others rest, or may rest on DataNodes that
    /// cannot be asked. If more are missing than these can have, all count as lost.
    pub fn lost(
        &self,
        group: &Group,
        mut unusable: Vec<BlockIndex>,
        is_damaged: impl Fn(BlockIndex, &str) -> bool,
    ) -> Vec<BlockIndex> {
        if self.nodes.is_empty() || unusable.is_empty() {
            return unusable;
        }
        unusable.retain(|index| self.at(group, *index).is_none_or(|node| is_damaged(*index, node)));
        let unknown = self.unknown(group, &unusable);
        let mute = self.without(group).filter(|(node, _)| self.mute.contains(*node)).count();
        if unknown.len() <= mute {
            unusable.retain(|index| !unknown.contains(index));
        }
        unusable
    }

    /// Those of these blocks that the NameNode does not list, and of which nobody knows where they were; or that were on a DataNode which is in
    /// maintenance by now, and may have lost them before.
    pub fn unknown(&self, group: &Group, blocks: &[BlockIndex]) -> Vec<BlockIndex> {
        let sure = |claims: &Vec<Claim>| claims.iter().all(|claim| self.holds(claim) != Some(false));
        let seen = |index| {
            group.holders.contains_key(&index) || self.last.get(&block(group, index)).is_some_and(sure)
        };
        blocks.iter().copied().filter(|index| group.named(*index) && !seen(*index)).collect()
    }

    /// The DataNodes in maintenance that can be asked for such a block.
    pub fn to_ask(&self, group: &Group) -> Vec<Arc<DatanodeInfo>> {
        let others = self.without(group).filter(|(node, _)| !self.mute.contains(*node));
        others.map(|(_, info)| info.clone()).collect()
    }

    /// The DataNodes in maintenance of which nobody knows that they have a block of the group.
    fn without(&self, group: &Group) -> impl Iterator<Item = (&String, &Arc<DatanodeInfo>)> {
        let listed = group.holders.values().flatten().map(|holder| &holder.datanode);
        let last = group.expected().flat_map(|index| self.held(group, index));
        let held: BTreeSet<String> = listed.chain(last).map(|node| address(node)).collect();
        let others = self.nodes.iter().filter(move |(node, _)| !held.contains(*node));
        others.map(|(address, (node, _))| (address, node))
    }

    /// As if what is known were older by so much.
    #[cfg(test)]
    pub fn age(&mut self, by: Duration) {
        self.last.values_mut().flatten().for_each(|claim| claim.at -= by);
    }
}

fn block(group: &Group, index: BlockIndex) -> BlockId {
    BlockId { stripe: StripeId(group.id), index }
}

/// Which of these blocks of a group the DataNode has by its own word, each with what permits reading it; `None` if it does not say
/// that of all.
///
/// # Errors
/// Those of calls to the NameNode; `Denied` for all but superusers.
pub(crate) async fn ask(
    namenode: &NameNode,
    group: &Group,
    datanode: &DatanodeInfo,
    blocks: &[BlockIndex],
) -> Result<Option<Vec<(BlockIndex, Option<Token>)>>, HdfsError> {
    let keys = namenode.block_keys().await?;
    let asked = mates(namenode, keys.as_ref().map(|keys| &keys.current), group, blocks.iter().copied())?;
    let Ok(at) = transfer_address(datanode) else { return Ok(None) };
    let asking = tokio::task::spawn_blocking(move || {
        let mut found = Vec::new();
        for (index, block, token) in asked {
            match look_for(at, &block, token.clone()) {
                Ok(Looked::There) => found.push((index, token)),
                Ok(Looked::Absent | Looked::FileGone) => {}
                Err(error) => {
                    tracing::info!("asking a DataNode in maintenance: {error}");
                    return None;
                }
            }
        }
        Some(found)
    });
    match timeout(SAYS_WITHIN, asking).await {
        Ok(said) => said.map_err(|e| HdfsError::io("asking a DataNode", e.into())),
        Err(_) => Ok(None),
    }
}

/// DataNodes in maintenance, for a command that has seen nothing before.
#[derive(Default)]
pub(crate) struct Resters {
    nodes: Vec<DatanodeInfo>,
    /// Those that did not say what they have; they are not asked again.
    mute: BTreeSet<String>,
}

/// What DataNodes in maintenance say of a group's missing blocks.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// The blocks that rest, and where.
    pub resting: Vec<(BlockIndex, String)>,
    /// Those that may have a block, and do not say so.
    pub mute: Vec<String>,
}

impl Resters {
    /// All that are in maintenance now.
    ///
    /// # Errors
    /// `Denied` for all but superusers; those of every call.
    pub async fn of(namenode: &NameNode) -> Result<Self, HdfsError> {
        Ok(Self { nodes: namenode.in_maintenance().await?, mute: BTreeSet::new() })
    }

    /// Asks for the missing blocks of a group. What is found counts as there: the holders are added to the group.
    ///
    /// # Errors
    /// As [`ask`].
    pub async fn find(&mut self, namenode: &NameNode, group: &mut Group) -> Result<Said, HdfsError> {
        let (mut said, missing) = (Said::default(), named(group));
        if missing.is_empty() {
            return Ok(said);
        }
        let listed = group.holders.values().flatten().map(|holder| address(&holder.datanode));
        let listed: BTreeSet<String> = listed.collect();
        for (at, node) in self.nodes.iter().map(|node| (address(node), node)) {
            if listed.contains(&at) {
                continue;
            }
            let answer = match self.mute.contains(&at) {
                true => None,
                false => ask(namenode, group, node, &missing).await?,
            };
            let Some(found) = answer else {
                self.mute.insert(at.clone());
                said.mute.push(at);
                continue;
            };
            for (index, token) in found {
                let holder = Holder { datanode: Arc::new(node.clone()), token };
                group.holders.entry(index).or_default().push(holder);
                said.resting.push((index, at.clone()));
            }
        }
        Ok(said)
    }
}

/// The missing blocks of a group that a DataNode can have.
pub(crate) fn named(group: &Group) -> Vec<BlockIndex> {
    group.missing().into_iter().filter(|index| group.named(*index)).collect()
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::fake;
    use crate::group::tests::{datanode, held};
    use crate::proto::names::BlockKeys;
    use crate::transfer;

    fn at(port: u16) -> DatanodeInfo {
        datanode(([10, 0, 0, 1], port).into())
    }

    /// A group whose index i is on the DataNode with port i, but for these.
    fn without(missing: &[u8]) -> Group {
        held((0..5).filter(|index| !missing.contains(index)).map(|index| (index, at(index.into()))))
    }

    /// DataNodes with ports 0 to 6 live except some, and some are in maintenance.
    fn sight(maintenance: &[u16], dead: &[u16]) -> Sight {
        Sight {
            live: (0..7).filter(|port| !dead.contains(port)).map(at).collect(),
            maintenance: maintenance.iter().copied().map(at).collect(),
            ..Sight::default()
        }
    }

    fn lost(resting: &Resting, group: &Group) -> Vec<u8> {
        let lost = resting.lost(group, group.missing(), |_, _| false);
        lost.into_iter().map(|index| index.0).collect()
    }

    #[test]
    fn what_was_listed_on_a_datanode_in_maintenance_rests_until_that_ends() {
        let (mut resting, group) = (Resting::default(), without(&[0, 1]));
        resting.now(&sight(&[0], &[]));
        resting.renew(Some(&without(&[])), &group, |_, _| false);
        assert_eq!(
            (lost(&resting, &group), resting.at(&group, BlockIndex(0))),
            (vec![1], Some("10.0.0.1:0"))
        );
        resting.now(&sight(&[0], &[0]));
        assert_eq!(lost(&resting, &group), [1], "it is down");
        resting.renew(Some(&group), &group, |_, _| false);
        resting.now(&sight(&[], &[0]));
        assert_eq!(lost(&resting, &group), [0, 1], "it is over, and it did not come back");
        // Maintenance that is seen only after the block was listed no longer.
        resting.now(&sight(&[1], &[0, 1]));
        assert_eq!(lost(&resting, &group), [0]);
        // It was listed again, and then lost elsewhere.
        resting.renew(Some(&group), &without(&[0]), |_, _| false);
        let moved = held((1..5).map(|index| (index, at(if index == 1 { 6 } else { index.into() }))));
        resting.renew(Some(&moved), &group, |_, _| false);
        assert_eq!(lost(&resting, &group), [0, 1]);
        resting.keep(&BTreeMap::new());
        assert!(resting.last.is_empty(), "its file was deleted");
    }

    #[test]
    fn what_was_lost_before_the_maintenance_does_not_rest_unless_its_datanode_says_so_or_cannot_be_asked() {
        let (mut resting, group) = (Resting::default(), without(&[0]));
        let old = |resting: &mut Resting| {
            resting.renew(Some(&without(&[])), &group, |_, _| false);
            resting.age(2 * SEEN_WITHIN);
        };
        old(&mut resting);
        assert!(resting.unknown(&group, &group.missing()).is_empty(), "no DataNode is in maintenance");
        resting.now(&sight(&[0], &[]));
        assert_eq!((lost(&resting, &group), resting.at(&group, BlockIndex(0))), (vec![0], None));
        assert_eq!((resting.unknown(&group, &group.missing()).len(), resting.to_ask(&group).len()), (1, 1));
        resting.now(&sight(&[0], &[0]));
        assert_eq!(lost(&resting, &group), [0; 0], "it cannot be asked");
        resting.now(&sight(&[0], &[]));
        resting.found(&group, BlockIndex(0), &Arc::new(at(0)));
        assert_eq!(
            (lost(&resting, &group), resting.to_ask(&group).len()),
            (vec![], 0),
            "it says that it has it"
        );
        resting.age(2 * SEEN_WITHIN);
        resting.now(&sight(&[0], &[0]));
        resting.now(&sight(&[], &[0]));
        resting.now(&sight(&[0], &[]));
        assert_eq!(lost(&resting, &group), [0], "it said that in an earlier maintenance");
        // Another DataNode has that address by now.
        resting.renew(Some(&without(&[])), &group, |_, _| false);
        assert_eq!(lost(&resting, &group), [0; 0]);
        let mut anew = sight(&[0], &[]);
        anew.maintenance[0].id.uuid = "formatted anew".into();
        resting.now(&anew);
        assert_eq!((lost(&resting, &group), resting.at(&group, BlockIndex(0))), (vec![0], None));
    }

    #[test]
    fn a_copy_that_is_listed_on_the_way_into_maintenance_rests_though_its_datanode_is_gone() {
        let (mut resting, group) = (Resting::default(), without(&[]));
        resting.now(&sight(&[3], &[3]));
        let unusable = vec![BlockIndex(2), BlockIndex(3)];
        assert_eq!(resting.lost(&group, unusable.clone(), |_, _| false), [BlockIndex(2)]);
        assert_eq!(
            resting.lost(&group, unusable.clone(), |index, _| index.0 == 3),
            unusable,
            "it is damaged"
        );
        // The NameNode was told of the damage, and does not list it any more.
        let now = without(&[3]);
        resting.renew(Some(&group), &now, |index, node| index.0 == 3 && node == "10.0.0.1:3");
        assert_eq!(lost(&resting, &now), [3]);
    }

    #[test]
    fn as_many_blocks_may_rest_as_datanodes_that_cannot_be_asked() {
        let (mut resting, one, two) = (Resting::default(), without(&[0]), without(&[0, 1]));
        resting.now(&sight(&[0], &[]));
        assert_eq!((lost(&resting, &one), resting.to_ask(&one).len()), (vec![0], 1), "it lives: it is asked");
        resting.now(&sight(&[0], &[0]));
        assert_eq!((lost(&resting, &one), resting.to_ask(&one).len()), (vec![], 0));
        assert_eq!(lost(&resting, &two), [0, 1], "one of them is lost, and nobody knows which");
        resting.now(&sight(&[0, 1], &[0, 1]));
        assert_eq!(lost(&resting, &two), [0; 0]);
        resting.now(&sight(&[0, 4], &[0]));
        assert_eq!(lost(&resting, &two), [0, 1], "the other one has a block already");
        // It is known where one of them was.
        resting.renew(Some(&without(&[0])), &two, |_, _| false);
        resting.now(&sight(&[0], &[0]));
        assert_eq!(lost(&resting, &two), [1]);
        // The DataNode is up, and says that it has the other one.
        resting.now(&sight(&[0], &[]));
        assert_eq!(resting.unknown(&two, &two.missing()), [BlockIndex(0)]);
        resting.found(&two, BlockIndex(0), &Arc::new(at(0)));
        assert_eq!((lost(&resting, &two), resting.to_ask(&two).len()), (vec![1], 0));
    }

    #[tokio::test]
    async fn a_command_asks_those_that_answer_and_counts_what_they_have_as_there() {
        let namenode = fake::namenode(&[("getBlockKeys", BlockKeys { keys: None }.encode_to_vec())]);
        // It has index 0 of a group.
        let has = transfer::tests::datanode(|block| match block.id as i64 {
            -16 => Ok(vec![7; 700]),
            id => Err(format!("org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException: for {id}")),
        });
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let nodes = vec![datanode(has), datanode(nobody), at(4)];
        let mut resters = Resters { nodes, mute: BTreeSet::new() };
        let (mut whole, mut group) = (without(&[]), without(&[0, 1]));
        assert_eq!(resters.find(&namenode, &mut whole).await.unwrap(), Said::default());
        let said = resters.find(&namenode, &mut group).await.unwrap();
        assert_eq!(said.resting, [(BlockIndex(0), has.to_string())]);
        assert_eq!(said.mute, [nobody.to_string()], "the third has a block that is listed");
        assert_eq!(group.missing(), [BlockIndex(1)]);
    }
}
