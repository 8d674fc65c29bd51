//! From the tasks of a repair to a tree (ChameleonEC, section III-B, Algorithm 1).
//!
//! A helper whose downloads are all paired, or that has none, is ready to send. The helper with the fewest downloads
//! that are not paired receives from the one that has been ready for longest. Helpers that are ready at the end send
//! to the requestor.

use std::collections::VecDeque;

use super::desk::Tree;
use super::dispatch::Tasks;

/// The tree that gives every node as many downloads as its tasks say.
pub(super) fn tree(tasks: &Tasks) -> Tree {
    let mut open: Vec<(usize, usize)> =
        tasks.helpers.iter().copied().filter(|(_, count)| *count > 0).collect();
    let mut ready: VecDeque<usize> =
        tasks.helpers.iter().filter(|(_, count)| *count == 0).map(|(node, _)| *node).collect();
    let mut edges = Vec::with_capacity(tasks.helpers.len());
    while let Some(at) = (0..open.len()).min_by_key(|at| open[*at].1) {
        let Some(from) = ready.pop_front() else { break };
        let (to, left) = &mut open[at];
        edges.push((from, *to));
        *left -= 1;
        if *left == 0 {
            ready.push_back(*to);
            open.remove(at);
        }
    }
    edges.extend(ready.into_iter().map(|from| (from, tasks.requestor)));
    edges.sort_unstable();
    Tree { requestor: tasks.requestor, edges }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_figure_9() {
        // N1 and N7 only upload, N4 has one download, N3 two; N6 gets the block.
        let tasks = Tasks { requestor: 6, helpers: vec![(1, 0), (3, 2), (4, 1), (7, 0)], seconds: 0.0 };
        let expected = vec![(1, 4), (3, 6), (4, 3), (7, 3)];
        assert_eq!(tree(&tasks), Tree { requestor: 6, edges: expected });
    }

    #[test]
    fn stars_and_chains_are_special_cases() {
        let star = Tasks { requestor: 9, helpers: vec![(1, 0), (2, 0), (3, 0)], seconds: 0.0 };
        assert_eq!(tree(&star).edges, [(1, 9), (2, 9), (3, 9)]);
        let chain = Tasks { requestor: 9, helpers: vec![(1, 1), (2, 1), (3, 0)], seconds: 0.0 };
        assert_eq!(tree(&chain).edges, [(1, 2), (2, 9), (3, 1)]);
    }

    proptest::proptest! {
        #[test]
        fn every_task_is_paired_once_and_all_lead_to_the_requestor(
            draws in proptest::collection::vec(0usize..20, 0..12),
        ) {
            let k = draws.len() + 1;
            let mut helpers: Vec<(usize, usize)> = (0..k).map(|node| (node, 0)).collect();
            let mut at_requestor = 1;
            for draw in draws {
                match helpers.get_mut(draw) {
                    Some((_, downloads)) => *downloads += 1,
                    None => at_requestor += 1,
                }
            }
            let made = tree(&Tasks { requestor: k, helpers: helpers.clone(), seconds: 0.0 });
            proptest::prop_assert!(made.edges.iter().map(|(from, _)| *from).eq(0..k));
            let received = |node: usize| made.edges.iter().filter(|(_, to)| *to == node).count();
            proptest::prop_assert_eq!(received(k), at_requestor);
            proptest::prop_assert!(helpers.iter().all(|(node, downloads)| received(*node) == *downloads));
            for start in 0..k {
                let mut at = start;
                for _ in 0..=k {
                    at = if at == k { k } else { made.edges[at].1 };
                }
                proptest::prop_assert_eq!(at, k);
            }
        }
    }
}
