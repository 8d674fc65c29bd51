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
    /// Those of them that may lack an index somewhere, so that nobody has to go over all of them in each tick.
    suspects: BTreeSet<u64>,
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
    /// Internal blocks whose agents were silent in a run.
    silent: BTreeMap<BlockId, Instant>,
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
            match group_id(&by_block, *id).and_then(|group| groups.get(&group)) {
                Some(group) if !self.groups.contains_key(&group.id) => {
                    self.by_block.extend(names(group));
                    self.groups.insert(group.id, group.clone());
                }
                _ => unknown += 1,
            }
        }
        self.maintenance.keep(&self.groups);
        self.forget();
        self.suspect();
        unknown
    }

    /// These DataNodes live, and these are gone, by the last look.
    pub fn look(&mut self, live: Vec<DatanodeInfo>, gone: Gone) {
        let same = gone.keys().eq(self.gone.keys());
        (self.live, self.gone) = (live, gone);
        if !same {
            self.suspect();
        }
    }

    /// Looks for groups that lack an index among all of them. After this only what is renewed or damaged can come to lack one.
    fn suspect(&mut self) {
        let lacks = |group: &&Group| !self.absent(group).is_empty();
        self.suspects = self.groups.values().filter(lacks).map(|group| group.id).collect();
    }

    /// The groups that may lack an index.
    pub fn suspects(&self) -> impl Iterator<Item = &Group> {
        self.suspects.iter().filter_map(|id| self.groups.get(id))
    }

    /// Whether no file has a staged block, as far as scans tell.
    pub fn no_file_has(&self, block: BlockId) -> bool {
        self.unmet.get(&(block_id(block) as u64)).is_some_and(|scans| *scans >= SCANS)
    }

    /// A group is so now.
    pub fn renew(&mut self, group: Group) {
        self.remember_places(&group);
        self.suspects.insert(group.id);
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
        self.groups.get(&group_id(&self.by_block, block)?)
    }

    /// Forgets what is no longer so.
    fn forget(&mut self) {
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        self.unbuilt.retain(|_, until| *until > now);
        self.barred.retain(|_, until| *until > now);
        self.bad.retain(|_, until| *until > now);
        self.silent.retain(|_, until| *until > now);
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

    /// Its agent was silent: nothing is known of the block itself.
    pub fn silent(&mut self, group: u64, index: BlockIndex) {
        self.silent.insert(block(group, index), Instant::now() + LONG_REST);
    }

    /// The block can be read, and is not what the others of its group say.
    pub fn wrong(&mut self, group: u64, index: BlockIndex) {
        self.bad.insert(block(group, index), Instant::now() + WRONG_FOR);
    }

    /// The blocks of a group that are not to be used.
    pub fn bad(&self, group: u64) -> BTreeSet<BlockIndex> {
        let all = block(group, BlockIndex(0))..=block(group, BlockIndex(u8::MAX));
        let silent = self.silent.range(all).filter(|(_, until)| **until > Instant::now());
        silent.map(|(id, _)| id.index).chain(self.of_no_use(group)).collect()
    }

    /// Those of them that could not be used by an agent that answered.
    pub fn of_no_use(&self, group: u64) -> BTreeSet<BlockIndex> {
        let all = block(group, BlockIndex(0))..=block(group, BlockIndex(u8::MAX));
        let bad = self.bad.range(all.clone()).filter(|(_, until)| **until > Instant::now());
        let damaged = self.damaged.range(all).map(|(id, _)| id.index);
        bad.map(|(id, _)| id.index).chain(damaged).collect()
    }

    /// The copy of a block on a DataNode is damaged, or gone. Whether that is news.
    pub fn damaged(&mut self, group: u64, index: BlockIndex, datanode: &str) -> bool {
        let now = Instant::now();
        self.suspects.insert(group);
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

/// The id of the group of a block on an agent. That of a block of HDFS's own groups, whose ids are negative, is in its name; the name of a block of an object says
/// nothing of its stripe, whose id may be that of any object's block.
fn group_id(by_block: &BTreeMap<BlockId, u64>, block: BlockId) -> Option<u64> {
    let own = || ((block.stripe.0 as i64) < 0).then_some(block.stripe.0);
    by_block.get(&block).copied().or_else(own)
}

fn leave(resting: &mut BTreeMap<u64, Instant>, group: u64, long: Duration) {
    let until = resting.entry(group).or_insert_with(Instant::now);
    *until = (*until).max(Instant::now() + long);
}

fn block(group: u64, index: BlockIndex) -> BlockId {
    BlockId { stripe: StripeId(group), index }
}

#[cfg(test)]
pub(super) mod tests;
