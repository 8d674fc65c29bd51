//! The nodes that repairs have lately avoided because they were slow. Other repairs avoid them too for a
//! while, where they can. A node counts as slow only if two repairs have found it slow, since one repair
//! alone may be wrong. A slow node does not count as dead, and it is used where it is needed.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

/// How long a node is avoided after it was found slow, in milliseconds; this doubles each time in a row.
const FIRST_MS: u64 = 30_000;
/// The longest time that a node is avoided, in milliseconds.
const LONGEST_MS: u64 = 240_000;
/// The second repair must find a node slow within this time after the first one, in milliseconds.
const DOUBT_MS: u64 = 30_000;

/// Slow nodes, and nodes that only one repair has found slow.
#[derive(Debug, Clone, Default)]
pub struct SlowNodes {
    /// When each node was last found slow, and until when it is avoided.
    slow: BTreeMap<NodeId, (u64, u64)>,
    /// The repair that found each node slow, and when.
    doubted: BTreeMap<NodeId, (u64, u64)>,
}

impl SlowNodes {
    /// A repair found a node slow.
    pub fn found(&mut self, node: NodeId, repair: u64, now_ms: u64) {
        let term = match self.slow.get(&node).copied() {
            // Several repairs find the same node slow at once: that counts only once.
            Some((_, until)) if now_ms < until => return,
            Some((since, until)) if now_ms <= until + LONGEST_MS => (until - since) * 2,
            _ if self.is_first(node, repair, now_ms) => return,
            _ => FIRST_MS,
        };
        self.slow.insert(node, (now_ms, now_ms + term.min(LONGEST_MS)));
    }

    /// Whether no other repair has lately found this node slow.
    fn is_first(&mut self, node: NodeId, repair: u64, now_ms: u64) -> bool {
        let before = self.doubted.insert(node, (repair, now_ms));
        before.is_none_or(|(by, at)| by == repair || now_ms > at + DOUBT_MS)
    }

    /// The nodes to avoid now, the most recently found first.
    pub fn now(&self, now_ms: u64) -> Vec<NodeId> {
        let mut slow: Vec<_> = self.slow.iter().filter(|(_, (_, until))| now_ms < *until).collect();
        slow.sort_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        slow.into_iter().map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_node_is_used_again_after_a_while_and_a_longer_one_when_it_is_slow_again() {
        let mut slow_nodes = SlowNodes::default();
        let (a, b) = (NodeId(1), NodeId(2));
        for repair in [1, 2] {
            slow_nodes.found(a, repair, 0);
            slow_nodes.found(b, repair, 10);
        }
        slow_nodes.found(a, 3, 20);
        assert_eq!(slow_nodes.now(30), [b, a]);
        assert_eq!(slow_nodes.now(FIRST_MS), [b]);
        slow_nodes.found(a, 4, FIRST_MS + 100);
        assert_eq!(slow_nodes.now(3 * FIRST_MS), [a]);
        assert_eq!(slow_nodes.now(3 * FIRST_MS + 100), []);
        // Long after, the node is avoided for the shortest time again.
        let late = 3 * FIRST_MS + 2 * LONGEST_MS;
        slow_nodes.found(a, 5, late);
        assert_eq!(slow_nodes.now(late), []);
        slow_nodes.found(a, 6, late);
        assert_eq!(slow_nodes.now(late), [a]);
        assert_eq!(slow_nodes.now(late + FIRST_MS), []);
    }

    #[test]
    fn what_one_repair_alone_finds_is_not_believed() {
        let mut slow_nodes = SlowNodes::default();
        let node = NodeId(1);
        slow_nodes.found(node, 1, 0);
        slow_nodes.found(node, 1, 10);
        assert_eq!(slow_nodes.now(10), []);
        // Another repair finds it too, but too late.
        slow_nodes.found(node, 2, 11 + DOUBT_MS);
        assert_eq!(slow_nodes.now(11 + DOUBT_MS), []);
        slow_nodes.found(node, 3, 12 + DOUBT_MS);
        assert_eq!(slow_nodes.now(12 + DOUBT_MS), [node]);
    }
}
