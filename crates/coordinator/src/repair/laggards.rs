//! The nodes that repairs lately had to go around because they were slow: others do without them for a while, where they
//! can. Nobody is taken for dead here, and nobody is refused who is needed.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

/// How long a node is gone around after it was found slow, in milliseconds; twice as long each time in a row.
const FIRST_MS: u64 = 30_000;
/// The longest time.
const LONGEST_MS: u64 = 240_000;

/// Slow nodes, each with when it was last found so and until when it is gone around.
#[derive(Debug, Clone, Default)]
pub struct Laggards(BTreeMap<NodeId, (u64, u64)>);

impl Laggards {
    /// A node was found slow.
    pub fn found(&mut self, node: NodeId, now_ms: u64) {
        let term = match self.0.get(&node) {
            Some((since, until)) if now_ms <= *until + LONGEST_MS => (until - since) * 2,
            _ => FIRST_MS,
        };
        // Several repairs find the same thing at once: that is no relapse.
        if self.0.get(&node).is_none_or(|(_, until)| *until <= now_ms) {
            self.0.insert(node, (now_ms, now_ms + term.min(LONGEST_MS)));
        }
    }

    /// The nodes to go around now, those found last first.
    pub fn now(&self, now_ms: u64) -> Vec<NodeId> {
        let mut slow: Vec<_> = self.0.iter().filter(|(_, (_, until))| now_ms < *until).collect();
        slow.sort_by_key(|(_, (since, _))| std::cmp::Reverse(*since));
        slow.into_iter().map(|(node, _)| *node).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_node_is_used_again_after_a_while_and_a_longer_one_when_it_is_slow_again() {
        let mut laggards = Laggards::default();
        let (a, b) = (NodeId(1), NodeId(2));
        laggards.found(a, 0);
        laggards.found(b, 10);
        laggards.found(a, 20);
        assert_eq!(laggards.now(30), [b, a]);
        assert_eq!(laggards.now(FIRST_MS), [b]);
        laggards.found(a, FIRST_MS + 100);
        assert_eq!(laggards.now(3 * FIRST_MS), [a]);
        assert_eq!(laggards.now(3 * FIRST_MS + 100), []);
        // Long after, it begins anew.
        let late = 3 * FIRST_MS + 2 * LONGEST_MS;
        laggards.found(a, late);
        assert_eq!(laggards.now(late + FIRST_MS), []);
    }
}
