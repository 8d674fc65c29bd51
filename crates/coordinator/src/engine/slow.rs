//! Avoids slow nodes as far as possible. A slow node that is needed is used.

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::StripeView;

/// The result of `attempt` without the blocks on as many of these slow nodes as possible, counted from the
/// first. `attempt` gets the number of these nodes and the blocks on them, and returns `None` if it cannot do
/// without them. The result is `None` if it cannot even do without the first node.
pub fn without<T>(
    view: &StripeView,
    slow: &[NodeId],
    mut attempt: impl FnMut(usize, &[BlockIndex]) -> Option<T>,
) -> Option<T> {
    (1..=slow.len()).rev().find_map(|count| attempt(count, &held(view, &slow[..count])))
}

/// The blocks that these nodes hold.
pub fn held(view: &StripeView, nodes: &[NodeId]) -> Vec<BlockIndex> {
    let held = |home: &Option<NodeId>| home.is_some_and(|node| nodes.contains(&node));
    let homes = view.homes.iter().enumerate().filter(|(_, home)| held(home));
    homes.map(|(i, _)| BlockIndex(i as u8)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;

    #[test]
    fn as_many_as_possible_are_gone_around_the_first_ones_first() {
        let view = stripe("rs:n=4,k=2", &[]).view(|_, _| true);
        let slow = [2, 7, 0, 1].map(NodeId);
        let spare = |most: usize| {
            without(&view, &slow, |count, blocks| (blocks.len() <= most).then(|| (count, blocks.to_vec())))
        };
        // Node 7 holds no block of the stripe.
        assert_eq!(spare(4), Some((4, [0, 1, 2].map(BlockIndex).to_vec())));
        assert_eq!(spare(2), Some((3, [0, 2].map(BlockIndex).to_vec())));
        assert_eq!(spare(1), Some((2, vec![BlockIndex(2)])));
        assert_eq!(spare(0), None);
        assert_eq!(without(&view, &[], |_, _| Some(())), None);
    }
}
