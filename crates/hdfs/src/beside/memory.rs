//! What a coordinator remembers from tick to tick. All of it may be lost: it is found out again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use tokio::time::Instant;

use super::crowded::Crowd;
use super::members::{AllStaged, Staged};
use crate::group::INDEX_BITS;
use crate::maintenance::Resting;
use crate::proto::names::DatanodeInfo;
use crate::vigil::{Gone, address, there};
use crate::walk::Scan;
use crate::{Group, block_id};

/// A group in which something failed is left alone for this long; one that could not be rebuilt, for twice as long each time. A copy that was found damaged once is looked at again after it: what
/// passes has passed then.
const REST: Duration = Duration::from_secs(5);

/// So is a group in which something is wrong, and nobody can tell what; and this is the longest that one is left alone that cannot be rebuilt. An unreadable block, and a node that did not bring a
/// block into HDFS, are not tried again for this long. A copy that is surely damaged is looked at again so often.
const LONG_REST: Duration = Duration::from_secs(60);

/// A block that holds wrong bytes is not used for this long: its checksums are valid, so nobody else finds out. For as long a
/// copy counts as damaged that is surely so and that nobody looks at again; one that was seen once, for [`LONG_REST`].
const WRONG_FOR: Duration = Duration::from_secs(600);

/// Scans one after the other that met no file with a block, before it counts as nobody's. A file that is renamed while it goes on may be missed by
/// one.
const SCANS: u32 = 2;

/// See the module.
#[derive(Default)]
pub(super) struct Memory {
    /// The DataNodes that are gone, with the reason.
    pub gone: Gone,
    pub live: Vec<DatanodeInfo>,
    /// What rests on DataNodes in maintenance.
    pub maintenance: Resting,
    /// All groups as of the last scan; and those that it did not find, of which blocks are staged.
    pub groups: BTreeMap<u64, Group>,
    /// The groups of blocks whose names on agents do not tell: those of objects.
    by_block: BTreeMap<BlockId, u64>,
    /// Staged blocks, by their ids in HDFS, that no file has: in how many scans of all files, one after the other.
    unmet: BTreeMap<u64, u32>,
    /// Groups that are worked on, and how.
    busy: BTreeMap<u64, Work>,
    /// When staged blocks were last worked on, as a number that grows.
    turns: BTreeMap<(BlockId, NodeId), u64>,
    turn: u64,
    /// Staged blocks that could not be brought into HDFS and may not be dropped.
    held_back: BTreeMap<(BlockId, NodeId), HeldBack>,
    /// How often groups could not be rebuilt, one time after the other.
    failures: BTreeMap<u64, u32>,
    /// The agents that could help when something was last rebuilt.
    helpers: BTreeSet<NodeId>,
    /// Groups that are left alone, and until when.
    resting: BTreeMap<u64, Instant>,
    /// Groups that could not be rebuilt: what else there is to do with them goes on.
    unbuilt: BTreeMap<u64, Instant>,
    /// Nodes that did not bring a block of a group into HDFS, or failed at it.
    barred: BTreeMap<(u64, NodeId), Instant>,
    /// Internal blocks that cannot be read, or are wrong.
    bad: BTreeMap<BlockId, Instant>,
    /// Copies of internal blocks that are damaged or gone, by block and DataNode. They count as lost.
    damaged: BTreeMap<BlockId, BTreeMap<String, Damage>>,
    /// Staged blocks that were compared with their groups.
    compared: BTreeMap<BlockId, Comparison>,
    /// The blocks of groups on DataNodes that have several, by the words of agents; until somebody looks.
    crowds: BTreeMap<(u64, String), BTreeSet<BlockIndex>>,
}

/// What is done with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// It is rebuilt.
    Rebuild,
    /// A staged block is judged, compared or handed over.
    Settle,
    /// A block of it is moved.
    Move,
    /// It is rebuilt without agents.
    Alone,
}

/// What is known of a staged block that is held back.
struct HeldBack {
    /// When it is tried again.
    until: Instant,
    /// Whether it could always be read.
    read: bool,
}

/// What is known of a damaged copy.
struct Damage {
    /// When it was last seen to be damaged, and when somebody last tried to look.
    seen: Instant,
    looked: Instant,
    /// Whether it was seen again, so that it was nothing that passes.
    sure: bool,
    /// Whether the NameNode was told.
    told: bool,
}

/// What a staged block was compared with.
struct Comparison {
    /// The digest that it had.
    digest: [u8; 16],
    /// The blocks that took part.
    with: BTreeSet<BlockIndex>,
    /// Whether that proved it.
    proved: bool,
}

impl Memory {
    /// A scan found this. A group that it did not find, of which blocks are `staged`, stays: its file may have been renamed meanwhile, into a
    /// folder that the scan had behind it. Whether it is gone is asked by its inode, when the staged blocks are judged. Returns how many staged
    /// blocks are of no group that is known.
    pub fn list(&mut self, Scan { groups, unmet, all }: Scan, staged: &AllStaged) -> usize {
        groups.values().for_each(|group| self.remember_places(group));
        let before = std::mem::take(&mut self.unmet);
        let times = |id: u64| (id, before.get(&id).map_or(1, |times| times.saturating_add(1)));
        self.unmet = unmet.into_iter().filter(|_| all).map(times).collect();
        let by_block = groups.values().flat_map(names).collect();
        let (groups, by_block) =
            (std::mem::replace(&mut self.groups, groups), std::mem::replace(&mut self.by_block, by_block));
        let mut unknown = 0;
        for (id, _) in staged.keys() {
            if self.group_of(*id).is_some() {
                continue;
            }
            match groups.get(by_block.get(id).unwrap_or(&id.stripe.0)) {
                Some(group) if !self.groups.contains_key(&group.id) => {
                    self.by_block.extend(names(group));
                    self.groups.insert(group.id, group.clone());
                }
                _ => unknown += 1,
            }
        }
        self.maintenance.keep(&self.groups);
        self.forget();
        unknown
    }

    /// Whether no file has a staged block, as far as scans tell.
    pub fn no_file_has(&self, block: BlockId) -> bool {
        self.unmet.get(&(block_id(block) as u64)).is_some_and(|scans| *scans >= SCANS)
    }

    /// A group is so now.
    pub fn renew(&mut self, group: Group) {
        self.remember_places(&group);
        self.groups.insert(group.id, group);
        self.forget_damage();
    }

    /// Remembers where blocks were that are not listed any more.
    fn remember_places(&mut self, now: &Group) {
        let Self { groups, damaged, maintenance, .. } = self;
        let is_damaged = |index, node: &str| {
            damaged.get(&block(now.id, index)).is_some_and(|copies| copies.contains_key(node))
        };
        maintenance.renew(groups.get(&now.id), now, is_damaged);
    }

    /// The group of a block on an agent.
    pub fn group_of(&self, block: BlockId) -> Option<&Group> {
        self.groups.get(self.by_block.get(&block).unwrap_or(&block.stripe.0))
    }

    /// Forgets what is no longer so.
    fn forget(&mut self) {
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        self.unbuilt.retain(|_, until| *until > now);
        self.barred.retain(|_, until| *until > now);
        self.bad.retain(|_, until| *until > now);
        let Self { groups, crowds, failures, .. } = self;
        crowds.retain(|(group, _), _| groups.contains_key(group));
        failures.retain(|group, _| groups.contains_key(group));
        self.forget_damage();
    }

    /// Forgets damaged copies that the NameNode lists no longer, and those that nobody looked at for long.
    fn forget_damage(&mut self) {
        let Self { groups, damaged, .. } = self;
        damaged.retain(|id, copies| {
            let holders = groups.get(&id.stripe.0).and_then(|group| group.holders.get(&id.index));
            let listed: Vec<String> =
                holders.into_iter().flatten().map(|holder| address(&holder.datanode)).collect();
            // Nobody looks again where nothing could be staged.
            let kept = |damage: &Damage| if damage.sure { WRONG_FOR } else { LONG_REST };
            copies.retain(|at, damage| listed.contains(at) && damage.seen.elapsed() < kept(damage));
            !copies.is_empty()
        });
    }

    /// From now on a group is worked on in this way, if nobody works on it. Whether that is so.
    pub fn take(&mut self, group: u64, work: Work) -> bool {
        let free = !self.busy.contains_key(&group);
        if free {
            self.busy.insert(group, work);
        }
        free
    }

    /// Whether somebody works on a group.
    pub fn is_busy(&self, group: u64) -> bool {
        self.busy.contains_key(&group)
    }

    /// Nobody works on it any more.
    pub fn free(&mut self, group: u64) {
        self.busy.remove(&group);
    }

    /// How many further groups may be worked on in this way, if so many may be at once.
    pub fn room(&self, work: Work, at_once: usize) -> usize {
        at_once.saturating_sub(self.busy.values().filter(|other| **other == work).count())
    }

    /// The staged blocks in the order in which it is their turn: first those on which nobody worked for longest.
    pub fn in_turn(&mut self, all: AllStaged) -> Vec<Staged> {
        self.turns.retain(|key, _| all.contains_key(key));
        self.held_back.retain(|key, _| all.contains_key(key));
        let mut ordered: Vec<_> = all.into_iter().collect();
        ordered.sort_by_key(|(key, _)| self.turns.get(key).copied().unwrap_or(0));
        ordered.into_iter().map(|(_, staged)| staged).collect()
    }

    /// Somebody works on this one now.
    pub fn had_turn(&mut self, staged: &Staged) {
        self.turn += 1;
        self.turns.insert((staged.held.id, staged.node), self.turn);
    }

    /// A group could not be rebuilt. It is tried again after a longer time each time.
    pub fn not_rebuilt(&mut self, group: u64) {
        let failures = self.failures.entry(group).or_default();
        *failures = failures.saturating_add(1);
        let rest = REST.saturating_mul(1 << (*failures - 1).min(8)).min(LONG_REST);
        leave(&mut self.unbuilt, group, rest);
    }

    /// It was.
    pub fn rebuilt(&mut self, group: u64) {
        self.failures.remove(&group);
    }

    /// How often it could not be rebuilt, one time after the other.
    pub fn failures(&self, group: u64) -> usize {
        self.failures.get(&group).map_or(0, |failures| *failures as usize)
    }

    /// These agents can help now. With a new one what could not be rebuilt is tried again.
    pub fn help(&mut self, nodes: BTreeSet<NodeId>) {
        if !nodes.is_subset(&self.helpers) {
            for group in std::mem::take(&mut self.failures).into_keys() {
                self.resting.remove(&group);
                self.unbuilt.remove(&group);
            }
        }
        self.helpers = nodes;
    }

    /// The group is left alone for a while.
    pub fn rest(&mut self, group: u64) {
        leave(&mut self.resting, group, REST);
    }

    /// The group is left alone for longer, because nobody can tell which of its blocks is wrong.
    pub fn give_up(&mut self, group: u64) {
        leave(&mut self.resting, group, LONG_REST);
    }

    /// Whether such work on a group has to wait.
    pub fn rests(&self, group: u64, work: Work) -> bool {
        let unbuilt = self.unbuilt.get(&group).filter(|_| work == Work::Rebuild);
        self.resting.get(&group).into_iter().chain(unbuilt).any(|until| *until > Instant::now())
    }

    /// The node gets no block of the group for a while.
    pub fn bar(&mut self, group: u64, node: NodeId) {
        self.barred.insert((group, node), Instant::now() + LONG_REST);
    }

    /// The nodes that get no block of the group.
    pub fn barred(&self, group: u64) -> BTreeSet<NodeId> {
        let of_group = self.barred.range((group, NodeId(0))..=(group, NodeId(u32::MAX)));
        of_group.filter(|(_, until)| **until > Instant::now()).map(|((_, node), _)| *node).collect()
    }

    /// The block cannot be read.
    pub fn unreadable(&mut self, group: u64, index: BlockIndex) {
        let until = self.bad.entry(block(group, index)).or_insert_with(Instant::now);
        *until = (*until).max(Instant::now() + LONG_REST);
    }

    /// The block can be read, and is not what the others of its group say.
    pub fn wrong(&mut self, group: u64, index: BlockIndex) {
        self.bad.insert(block(group, index), Instant::now() + WRONG_FOR);
    }

    /// The blocks of a group that are not to be used.
    pub fn bad(&self, group: u64) -> BTreeSet<BlockIndex> {
        let all = block(group, BlockIndex(0))..=block(group, BlockIndex(u8::MAX));
        let bad = self.bad.range(all.clone()).filter(|(_, until)| **until > Instant::now());
        let damaged = self.damaged.range(all).map(|(id, _)| id.index);
        bad.map(|(id, _)| id.index).chain(damaged).collect()
    }

    /// The copy of a block on a DataNode is damaged, or gone. Whether that is news.
    pub fn damaged(&mut self, group: u64, index: BlockIndex, datanode: &str) -> bool {
        let now = Instant::now();
        let copies = self.damaged.entry(block(group, index)).or_default();
        let news = !copies.contains_key(datanode);
        let first = Damage { seen: now, looked: now, sure: false, told: false };
        let damage = copies.entry(datanode.to_owned()).or_insert(first);
        (damage.seen, damage.looked, damage.sure) = (now, now, !news);
        news
    }

    /// The copy is whole after all.
    pub fn whole(&mut self, group: u64, index: BlockIndex, datanode: &str) {
        if let Some(copies) = self.damaged.get_mut(&block(group, index)) {
            copies.remove(datanode);
        }
        self.damaged.retain(|_, copies| !copies.is_empty());
    }

    /// The DataNodes whose copies of a block count as damaged, and are to be looked at again now.
    pub fn looks_due(&mut self, group: u64, index: BlockIndex) -> Vec<String> {
        let copies = self.damaged.get_mut(&block(group, index)).into_iter().flatten();
        let due = copies.filter_map(|(datanode, damage)| {
            let pause = if damage.sure { LONG_REST } else { REST };
            (damage.looked.elapsed() >= pause).then(|| {
                damage.looked = Instant::now();
                datanode.clone()
            })
        });
        due.collect()
    }

    /// Whether the NameNode is to be told of this copy.
    pub fn to_tell(&self, group: u64, index: BlockIndex, datanode: &str) -> bool {
        self.damage(group, index, datanode).is_some_and(|damage| damage.sure && !damage.told)
    }

    /// It was told of it.
    pub fn told(&mut self, group: u64, index: BlockIndex, datanode: &str) {
        let copies = self.damaged.get_mut(&block(group, index));
        if let Some(damage) = copies.and_then(|copies| copies.get_mut(datanode)) {
            damage.told = true;
        }
    }

    fn damage(&self, group: u64, index: BlockIndex, datanode: &str) -> Option<&Damage> {
        self.damaged.get(&block(group, index))?.get(datanode)
    }

    /// A DataNode that is not gone, and has the index undamaged.
    pub fn holder(&self, group: &Group, index: BlockIndex) -> Option<String> {
        let mut there = there(group, index, &self.gone);
        there.find(|datanode| self.damage(group.id, index, datanode).is_none())
    }

    /// The indices of a group that no DataNode has like that.
    pub fn absent(&self, group: &Group) -> Vec<BlockIndex> {
        group.expected().filter(|index| self.holder(group, *index).is_none()).collect()
    }

    /// Those of them that do not rest on DataNodes in maintenance either.
    pub fn lost(&self, group: &Group) -> Vec<BlockIndex> {
        let is_damaged = |index, node: &str| self.damage(group.id, index, node).is_some();
        self.maintenance.lost(group, self.absent(group), is_damaged)
    }

    /// Whether that proved this staged block, if it was compared with all of these blocks of its group.
    pub fn compared(&self, staged: &Staged, with: &[BlockIndex]) -> Option<bool> {
        let known = self.compared.get(&staged.held.id)?;
        let all = with.iter().all(|index| known.with.contains(index));
        (known.digest == staged.held.digest && all).then_some(known.proved)
    }

    /// It was compared with these. That it was with others before stays so.
    pub fn keep_compared(&mut self, staged: &Staged, with: &[BlockIndex], proved: bool) {
        let digest = staged.held.digest;
        let new = || Comparison { digest, with: BTreeSet::new(), proved: false };
        let known = self.compared.entry(staged.held.id).or_insert_with(new);
        if known.digest != digest {
            *known = new();
        }
        known.with.extend(with);
        known.proved |= proved;
    }

    /// These internal blocks are on a DataNode that has others of their groups, by the word of its agent.
    pub fn crowded(&mut self, pool: &str, datanode: &str, blocks: &[u64]) {
        for id in blocks {
            let (id, index) = (id & !INDEX_BITS, BlockIndex((id & INDEX_BITS) as u8));
            if self.groups.get(&id).is_some_and(|group| group.stored.is_none() && group.pool == pool) {
                self.crowds.entry((id, datanode.to_owned())).or_default().insert(index);
            }
        }
    }

    /// Takes such DataNodes of groups that nobody works on, as long as no more than so many are worked on; their groups are busy then.
    pub fn crowds_due(&mut self, at_once: usize) -> Vec<(Group, Crowd)> {
        let (most, mut due) = (self.room(Work::Move, at_once), Vec::new());
        let all: Vec<(u64, String)> = self.crowds.keys().cloned().collect();
        for (id, datanode) in all {
            if due.len() == most {
                break;
            }
            let Some(group) = self.groups.get(&id).cloned() else { continue };
            if !self.rests(id, Work::Move)
                && self.take(id, Work::Move)
                && let Some(blocks) = self.crowds.remove(&(id, datanode.clone()))
            {
                due.push((group, Crowd { datanode, blocks }));
            }
        }
        due
    }

    /// A staged block could not be brought into HDFS, and may not be dropped. It rests. `read`: whether it could be read. Returns whether that
    /// is news.
    pub fn hold_back(&mut self, staged: &Staged, read: bool) -> bool {
        let until = Instant::now() + REST;
        match self.held_back.entry((staged.held.id, staged.node)) {
            Entry::Occupied(mut known) => {
                let read = known.get().read && read;
                known.insert(HeldBack { until, read });
                false
            }
            Entry::Vacant(new) => {
                new.insert(HeldBack { until, read });
                true
            }
        }
    }

    /// Whether a staged block rests.
    pub fn is_held_back(&self, staged: &Staged) -> bool {
        let held = self.held_back.get(&(staged.held.id, staged.node));
        held.is_some_and(|held| held.until > Instant::now())
    }

    /// Whether a staged block could always be read, as far as is known.
    pub fn could_be_read(&self, staged: &Staged) -> bool {
        self.held_back.get(&(staged.held.id, staged.node)).is_none_or(|held| held.read)
    }

    /// It is no longer there.
    pub fn dropped(&mut self, staged: &Staged) {
        self.compared.remove(&staged.held.id);
        self.held_back.remove(&(staged.held.id, staged.node));
    }
}

/// The blocks of a stripe of an object as agents know them, with its id; none of a group, whose id they tell.
fn names(group: &Group) -> Vec<(BlockId, u64)> {
    let blocks = group.expected().filter(|index| group.stored.is_some() && group.named(*index));
    blocks.map(|index| (group.on_agents(index), group.id)).collect()
}

fn leave(resting: &mut BTreeMap<u64, Instant>, group: u64, long: Duration) {
    let until = resting.entry(group).or_insert_with(Instant::now);
    *until = (*until).max(Instant::now() + long);
}

fn block(group: u64, index: BlockIndex) -> BlockId {
    BlockId { stripe: StripeId(group), index }
}

#[cfg(test)]
pub(super) mod tests {
    use kintsu_wire::message::HeldBlock;

    use super::*;
    use crate::group::tests::{datanode, held};
    use crate::vigil::Sight;

    /// As if so much time had passed.
    pub(crate) fn later(memory: &mut Memory, by: Duration) {
        let Memory { resting, unbuilt, barred, bad, damaged, held_back, .. } = memory;
        let all = resting.values_mut().chain(unbuilt.values_mut()).chain(barred.values_mut());
        let all = all.chain(bad.values_mut()).chain(held_back.values_mut().map(|held| &mut held.until));
        let damages = damaged.values_mut().flat_map(BTreeMap::values_mut);
        let times = damages.flat_map(|damage| [&mut damage.seen, &mut damage.looked]);
        all.chain(times).for_each(|time| *time -= by);
    }

    /// A scan of all files that found these groups.
    pub(crate) fn found<const N: usize>(groups: [Group; N]) -> Scan {
        let groups = groups.into_iter().map(|group| (group.id, group)).collect();
        Scan { groups, all: true, ..Scan::default() }
    }

    /// A group whose index 2 is on the DataNode with port 3, and on further ones.
    fn group_of(also: &[u16]) -> Group {
        let at = |port: u16| datanode(([10, 0, 0, 1], port).into());
        let all = (0..5).map(|index| (index, at(u16::from(index) + 1)));
        held(all.chain(also.iter().map(|port| (2, at(*port)))))
    }

    const DAMAGED: (BlockIndex, &str) = (BlockIndex(2), "10.0.0.1:3");

    #[test]
    fn a_damaged_copy_counts_as_lost_until_it_is_whole_or_elsewhere() {
        let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
        memory.list(found([group.clone()]), &AllStaged::new());
        assert!(memory.lost(&group).is_empty());
        assert!(memory.damaged(group.id, index, on), "it is news");
        assert!(!memory.damaged(group.id, index, on));
        assert_eq!((memory.lost(&group), memory.bad(group.id)), (vec![index], [index].into()));
        // Another copy: the index is not lost, and while it is listed in both places the damage is remembered.
        let twice = group_of(&[9]);
        memory.renew(twice.clone());
        assert_eq!(memory.holder(&twice, index).as_deref(), Some("10.0.0.1:9"));
        assert!(memory.lost(&twice).is_empty());
        memory.gone.insert("10.0.0.1:9".into(), "silent".into());
        assert_eq!(memory.lost(&twice), [index]);
        memory.whole(group.id, index, on);
        assert!(memory.lost(&twice).is_empty() && memory.bad(group.id).is_empty());
        // Only there, and then elsewhere alone; a scan finds the same.
        memory.gone.clear();
        let mut moved = group_of(&[9]);
        moved.holders.get_mut(&index).unwrap().remove(0);
        for by_scan in [false, true] {
            memory.renew(group.clone());
            memory.damaged(group.id, index, on);
            match by_scan {
                true => _ = memory.list(found([moved.clone()]), &AllStaged::new()),
                false => memory.renew(moved.clone()),
            }
            memory.renew(group.clone());
            assert!(memory.lost(&group).is_empty(), "it may be another copy that is there again");
        }
        memory.damaged(group.id, index, on);
        memory.list(found([]), &AllStaged::new());
        assert!(memory.lost(&group).is_empty(), "its file was deleted");
    }

    #[test]
    fn what_rests_on_a_datanode_in_maintenance_is_absent_and_not_lost() {
        let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
        let mut unlisted = group.clone();
        unlisted.holders.remove(&index);
        let maintenance = vec![datanode(([10, 0, 0, 1], 3).into())];
        memory.maintenance.now(&Sight { maintenance, ..Sight::default() });
        for by_scan in [false, true] {
            memory.list(found([group.clone()]), &AllStaged::new());
            match by_scan {
                true => _ = memory.list(found([unlisted.clone()]), &AllStaged::new()),
                false => memory.renew(unlisted.clone()),
            }
            assert_eq!((memory.absent(&unlisted), memory.lost(&unlisted)), (vec![index], vec![]));
        }
        // Its copy is damaged, and the NameNode knows.
        memory.renew(group.clone());
        memory.damaged(group.id, index, on);
        assert_eq!(memory.lost(&group), [index]);
        memory.renew(unlisted.clone());
        assert_eq!(memory.lost(&unlisted), [index]);
    }

    #[test]
    fn the_namenode_is_told_once_and_only_of_a_copy_that_was_looked_at_again() {
        let (mut memory, group, (index, on)) = (Memory::default(), group_of(&[]), DAMAGED);
        memory.renew(group.clone());
        memory.damaged(group.id, index, on);
        later(&mut memory, LONG_REST);
        memory.renew(group.clone());
        assert!(memory.lost(&group).is_empty(), "it was seen once, and nobody looked again");
        memory.damaged(group.id, index, on);
        assert!(memory.looks_due(group.id, index).is_empty(), "a moment ago");
        assert!(!memory.to_tell(group.id, index, on));
        later(&mut memory, REST);
        assert_eq!(memory.looks_due(group.id, index), [on]);
        assert!(memory.looks_due(group.id, index).is_empty(), "somebody looks");
        memory.damaged(group.id, index, on);
        assert!(memory.to_tell(group.id, index, on));
        later(&mut memory, REST);
        assert!(memory.looks_due(group.id, index).is_empty(), "it is sure");
        memory.told(group.id, index, on);
        assert!(!memory.to_tell(group.id, index, on));
        later(&mut memory, LONG_REST);
        assert_eq!(memory.looks_due(group.id, index), [on]);
        assert_eq!(memory.lost(&group), [index]);
        later(&mut memory, WRONG_FOR);
        memory.renew(group.clone());
        assert!(memory.lost(&group).is_empty(), "nobody could look for long");
        memory.damaged(group.id, index, on);
        assert!(!memory.to_tell(group.id, index, on), "what was forgotten is not sure");
    }

    #[test]
    fn a_block_is_compared_again_when_another_can_be_read() {
        let (mut memory, [a, b, c]) = (Memory::default(), [0, 1, 2].map(BlockIndex));
        let staged = |digest| {
            let held = HeldBlock { id: block(16, c), generation: 1001, len: 7, digest: [digest; 16] };
            Staged { node: NodeId(1), held }
        };
        memory.keep_compared(&staged(1), &[a, c], false);
        assert_eq!(memory.compared(&staged(1), &[c]), Some(false));
        assert_eq!(memory.compared(&staged(1), &[a, b, c]), None, "another block is there");
        assert_eq!(memory.compared(&staged(2), &[a, c]), None, "it was rebuilt with other bytes");
        memory.keep_compared(&staged(1), &[b, c], true);
        assert_eq!(memory.compared(&staged(1), &[a, b, c]), Some(true), "each with some");
        memory.keep_compared(&staged(2), &[c], false);
        assert_eq!(memory.compared(&staged(2), &[c]), Some(false));
        assert_eq!(memory.compared(&staged(2), &[b, c]), None);
        memory.dropped(&staged(2));
        assert_eq!(memory.compared(&staged(2), &[c]), None);
    }

    #[test]
    fn a_group_that_a_scan_missed_stays_as_long_as_blocks_of_it_are_staged() {
        let (mut memory, group) = (Memory::default(), group_of(&[]));
        let id = group.on_agents(BlockIndex(2));
        let held = HeldBlock { id, generation: 1001, len: 7, digest: [0; 16] };
        let staged: AllStaged = [((id, NodeId(1)), Staged { node: NodeId(1), held })].into();
        let missed = |all| Scan { unmet: [block_id(id) as u64].into(), all, ..Scan::default() };
        memory.list(found([group.clone()]), &staged);
        // It was renamed into a folder that the scan had behind it.
        assert_eq!(memory.list(missed(true), &staged), 0);
        assert!(memory.group_of(id).is_some() && !memory.no_file_has(id));
        memory.list(found([group.clone()]), &staged);
        assert_eq!(memory.list(missed(true), &staged), 0);
        assert!(memory.group_of(id).is_some() && !memory.no_file_has(id), "it was met in between");
        // Files elsewhere were not looked at.
        for _ in 0..SCANS {
            assert_eq!(memory.list(missed(false), &staged), 0);
        }
        assert!(memory.group_of(id).is_some() && !memory.no_file_has(id));
        for _ in 0..SCANS {
            memory.list(missed(true), &staged);
        }
        assert!(memory.group_of(id).is_some() && memory.no_file_has(id), "the NameNode is asked for it");
        memory.list(missed(true), &AllStaged::new());
        assert!(memory.groups.is_empty(), "nothing is staged of it any more");
        assert_eq!(memory.list(missed(true), &staged), 1);
    }

    #[test]
    fn a_group_with_several_blocks_on_a_datanode_is_taken_once_and_when_nobody_works_on_it() {
        let (mut memory, group) = (Memory::default(), group_of(&[]));
        memory.list(found([group.clone()]), &AllStaged::new());
        let two = [group.id, group.id + 3];
        memory.crowded("another", "10.0.0.1:1", &two);
        memory.crowded(&group.pool, "10.0.0.1:1", &[group.id - 16, group.id - 15]);
        assert!(memory.crowds_due(9).is_empty(), "no groups of files here");
        memory.crowded(&group.pool, "10.0.0.1:1", &two);
        memory.take(group.id, Work::Rebuild);
        assert!(memory.crowds_due(9).is_empty() && memory.crowds_due(0).is_empty());
        memory.free(group.id);
        let due = memory.crowds_due(9).remove(0).1;
        assert_eq!(due, Crowd { datanode: "10.0.0.1:1".into(), blocks: [0, 3].map(BlockIndex).into() });
        assert!(memory.is_busy(group.id) && memory.crowds_due(9).is_empty());
        memory.crowded(&group.pool, "10.0.0.1:1", &two);
        memory.list(found([]), &AllStaged::new());
        assert!(memory.crowds.is_empty(), "its file was deleted");
    }

    #[test]
    fn a_group_that_cannot_be_rebuilt_rests_longer_each_time_until_another_agent_can_help() {
        let (mut memory, group) = (Memory::default(), group_of(&[]));
        memory.list(found([group.clone()]), &AllStaged::new());
        let rests = |memory: &mut Memory| {
            memory.not_rebuilt(group.id);
            let second = Duration::from_secs(1);
            (1..=99).find(|_| {
                later(memory, second);
                !memory.rests(group.id, Work::Rebuild)
            })
        };
        memory.help([NodeId(1), NodeId(2)].into());
        for seconds in [5, 10, 20, 40, 60, 60] {
            assert_eq!(rests(&mut memory), Some(seconds));
        }
        memory.not_rebuilt(group.id);
        memory.help([NodeId(1)].into());
        assert!(memory.rests(group.id, Work::Rebuild) && memory.failures(group.id) == 7);
        assert!(!memory.rests(group.id, Work::Settle), "what is staged of it does not wait for that");
        memory.help([NodeId(1), NodeId(3)].into());
        assert!(!memory.rests(group.id, Work::Rebuild), "what lacked may be there now");
        assert_eq!(rests(&mut memory), Some(5));
        memory.rebuilt(group.id);
        assert_eq!(rests(&mut memory), Some(5));
        memory.list(found([]), &AllStaged::new());
        assert_eq!(memory.failures(group.id), 0, "its file was deleted");
    }

    #[test]
    fn staged_blocks_have_their_turns_also_if_their_groups_are_busy_at_times() {
        let staged = |group: u64, index: u8| {
            let held =
                HeldBlock { id: block(group, BlockIndex(index)), generation: 1001, len: 7, digest: [0; 16] };
            Staged { node: NodeId(1), held }
        };
        let all: AllStaged = [staged(16, 0), staged(16, 2), staged(32, 1)]
            .map(|staged| ((staged.held.id, staged.node), staged))
            .into();
        let mut memory = Memory::default();
        let mut met = BTreeSet::new();
        for _ in 0..2 {
            for staged in memory.in_turn(all.clone()) {
                if memory.take(staged.held.id.stripe.0, Work::Settle) {
                    memory.had_turn(&staged);
                    met.insert(staged.held.id);
                }
            }
            memory.free(16);
            memory.free(32);
        }
        assert_eq!(met.len(), 3, "the second one of a group had its turn too");
        assert!(memory.in_turn(AllStaged::new()).is_empty() && memory.turns.is_empty());
    }

    #[test]
    fn one_kind_of_work_leaves_its_room_to_the_others() {
        let mut memory = Memory::default();
        assert!(memory.take(16, Work::Settle) && !memory.take(16, Work::Rebuild));
        assert!(memory.take(32, Work::Move));
        let rooms = [Work::Rebuild, Work::Settle, Work::Move].map(|work| memory.room(work, 1));
        assert_eq!(rooms, [1, 0, 0]);
        memory.free(16);
        assert!(memory.take(16, Work::Rebuild) && memory.room(Work::Rebuild, 1) == 0);
    }

    #[test]
    fn what_was_bad_is_tried_again_in_time() {
        let (mut memory, group) = (Memory::default(), 1 << 63);
        memory.rest(group);
        memory.bar(group, NodeId(7));
        memory.unreadable(group, BlockIndex(2));
        memory.wrong(group, BlockIndex(3));
        memory.unreadable(group, BlockIndex(3));
        memory.wrong(group + 16, BlockIndex(0));
        assert!(memory.rests(group, Work::Settle) && !memory.rests(group + 16, Work::Settle));
        assert_eq!(memory.barred(group), [NodeId(7)].into());
        assert_eq!(memory.bad(group), [BlockIndex(2), BlockIndex(3)].into());
        later(&mut memory, REST);
        assert!(!memory.rests(group, Work::Settle));
        memory.give_up(group);
        memory.rest(group);
        later(&mut memory, REST);
        assert!(memory.rests(group, Work::Settle), "the longer rest counts");
        later(&mut memory, LONG_REST);
        memory.forget();
        assert_eq!((memory.barred(group).len(), memory.rests(group, Work::Settle)), (0, false));
        assert_eq!(memory.bad(group), [BlockIndex(3)].into());
        later(&mut memory, WRONG_FOR);
        memory.forget();
        assert!(memory.bad.is_empty());
    }
}
