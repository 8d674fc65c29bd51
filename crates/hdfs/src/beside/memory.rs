//! What a coordinator remembers from tick to tick. All of it may be lost: it is found out again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use tokio::time::Instant;

use super::members::Staged;
use crate::Group;
use crate::proto::names::DatanodeInfo;
use crate::vigil::Gone;

/// A group whose repair failed is left alone for this long.
const REST: Duration = Duration::from_secs(5);

/// So is a group in which something is wrong, and nobody can tell what. An unreadable block, and a node that did not bring a
/// block into HDFS, are not tried again for this long.
const LONG_REST: Duration = Duration::from_secs(60);

/// A block that holds wrong bytes is not used for this long: its checksums are valid, so nobody else finds out.
const WRONG_FOR: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Default)]
pub(super) struct Memory {
    /// The DataNodes that are gone, with the reason.
    pub gone: Gone,
    pub live: Vec<DatanodeInfo>,
    /// All groups as of the last scan.
    pub groups: BTreeMap<u64, Group>,
    /// The groups of blocks whose names on agents do not tell: those of objects.
    by_block: BTreeMap<BlockId, u64>,
    /// Whether there was a scan.
    pub scanned: bool,
    /// Groups that are worked on.
    pub busy: BTreeSet<u64>,
    /// Groups that are left alone, and until when.
    resting: BTreeMap<u64, Instant>,
    /// Nodes that did not bring a block of a group into HDFS, or failed at it.
    barred: BTreeMap<(u64, NodeId), Instant>,
    /// Internal blocks that cannot be read, or are wrong.
    bad: BTreeMap<BlockId, Instant>,
    /// Staged blocks that were compared with their groups.
    compared: BTreeMap<BlockId, Comparison>,
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
    /// There are these groups.
    pub fn list(&mut self, groups: BTreeMap<u64, Group>) {
        let of_objects = groups.values().filter(|group| group.stored.is_some());
        let names = |group: &Group| {
            let blocks = group.expected().filter(|index| group.named(*index));
            blocks.map(|index| (group.on_agents(index), group.id)).collect::<Vec<_>>()
        };
        self.by_block = of_objects.flat_map(names).collect();
        (self.groups, self.scanned) = (groups, true);
        self.forget();
    }

    /// The group of a block on an agent.
    pub fn group_of(&self, block: BlockId) -> Option<&Group> {
        self.groups.get(self.by_block.get(&block).unwrap_or(&block.stripe.0))
    }

    /// Forgets what is no longer so.
    fn forget(&mut self) {
        let now = Instant::now();
        self.resting.retain(|_, until| *until > now);
        self.barred.retain(|_, until| *until > now);
        self.bad.retain(|_, until| *until > now);
    }

    /// The group is left alone for a while.
    pub fn rest(&mut self, group: u64) {
        self.leave(group, REST);
    }

    /// The group is left alone for longer, because nobody can tell which of its blocks is wrong.
    pub fn give_up(&mut self, group: u64) {
        self.leave(group, LONG_REST);
    }

    fn leave(&mut self, group: u64, long: Duration) {
        let until = self.resting.entry(group).or_insert_with(Instant::now);
        *until = (*until).max(Instant::now() + long);
    }

    /// Whether a group is left alone.
    pub fn rests(&self, group: u64) -> bool {
        self.resting.get(&group).is_some_and(|until| *until > Instant::now())
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
        let of_group = self.bad.range(block(group, BlockIndex(0))..=block(group, BlockIndex(u8::MAX)));
        of_group.filter(|(_, until)| **until > Instant::now()).map(|(id, _)| id.index).collect()
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

    /// It is no longer there.
    pub fn dropped(&mut self, staged: &Staged) {
        self.compared.remove(&staged.held.id);
    }
}

fn block(group: u64, index: BlockIndex) -> BlockId {
    BlockId { stripe: StripeId(group), index }
}

#[cfg(test)]
mod tests {
    use kintsu_wire::message::HeldBlock;

    use super::*;

    /// As if so much time had passed.
    fn later(memory: &mut Memory, by: Duration) {
        let Memory { resting, barred, bad, .. } = memory;
        let all = resting.values_mut().chain(barred.values_mut()).chain(bad.values_mut());
        all.for_each(|until| *until -= by);
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
    fn what_was_bad_is_tried_again_in_time() {
        let (mut memory, group) = (Memory::default(), 1 << 63);
        memory.rest(group);
        memory.bar(group, NodeId(7));
        memory.unreadable(group, BlockIndex(2));
        memory.wrong(group, BlockIndex(3));
        memory.unreadable(group, BlockIndex(3));
        memory.wrong(group + 16, BlockIndex(0));
        assert!(memory.rests(group) && !memory.rests(group + 16));
        assert_eq!(memory.barred(group), [NodeId(7)].into());
        assert_eq!(memory.bad(group), [BlockIndex(2), BlockIndex(3)].into());
        later(&mut memory, REST);
        assert!(!memory.rests(group));
        memory.give_up(group);
        memory.rest(group);
        later(&mut memory, REST);
        assert!(memory.rests(group), "the longer rest counts");
        later(&mut memory, LONG_REST);
        memory.forget();
        assert_eq!((memory.barred(group).len(), memory.rests(group)), (0, false));
        assert_eq!(memory.bad(group), [BlockIndex(3)].into());
        later(&mut memory, WRONG_FOR);
        memory.forget();
        assert!(memory.bad.is_empty());
    }
}
