//! The stripes of a recovery, recorded as far as a lower bound of its time needs them.
//!
//! The bound is valid only for codes without sub-blocks. With a stripe of another code, or with too many stripes, there
//! is no bound.

use kintsu_dag::NodeId;
use kintsu_plan::many::{Loss, bound, losses};
use kintsu_plan::{DamagedStripe, Topology};

/// Most stripes that are remembered; a recovery of more stripes has no bound.
const MOST: usize = 16 << 10;

/// The stripes of a recovery.
#[derive(Debug, Clone, Default)]
pub struct Losses {
    losses: Vec<Loss>,
    incomplete: bool,
}

impl Losses {
    /// Adds stripes, whose blocks may go to the nodes that `topology` calls usable.
    pub fn add(&mut self, topology: &Topology, waiting: &[DamagedStripe]) {
        if self.incomplete || topology.rates.is_empty() {
            // Without rates there is no bound.
            self.incomplete = true;
            return;
        }
        let all: Option<Vec<_>> = losses(topology, waiting).into_iter().collect();
        match all.filter(|all| self.losses.len() + all.len() <= MOST) {
            Some(all) => self.losses.extend(all.concat()),
            None => (self.incomplete, self.losses) = (true, Vec::new()),
        }
    }

    /// The least time in seconds in which these stripes can be repaired to the usable nodes, by any method;
    /// `None` if it is not known. Computing it may take long.
    pub fn bound(&self, topology: &Topology) -> Option<f64> {
        if self.incomplete || self.losses.is_empty() || topology.rates.is_empty() {
            return None;
        }
        let usable = topology.nodes.iter().filter(|(_, node)| node.usable);
        let common: Vec<NodeId> = usable.map(|(id, _)| *id).collect();
        Some(bound(&self.losses, &common, topology)).filter(|seconds| seconds.is_finite() && *seconds > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::num::NonZeroU64;

    use kintsu_dag::{BlockIndex, RackId, StripeId};
    use kintsu_plan::{Layout, LayoutKind, Node, Rates, StripeView};

    use super::*;

    fn waiting(code: &str, lost: &[u8]) -> DamagedStripe {
        let code = kintsu_code::parse(code).unwrap();
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: 1 << 20,
            cell_bytes: 4096 * code.w() as u32,
            w: code.w() as u16,
            data_bytes: (code.k() as u64) << 20,
        };
        let home = |i: usize| (!lost.contains(&(i as u8))).then_some(NodeId(i as u32));
        let homes = (0..code.n()).map(home).collect();
        let view = StripeView { id: StripeId(1), code, layout, homes };
        DamagedStripe { view, lost: lost.iter().map(|b| BlockIndex(*b)).collect(), barred: BTreeSet::new() }
    }

    fn topology(rated: bool) -> Topology {
        let node =
            |i| (NodeId(i), Node { rack: RackId(0), usable: i == 20, used_bytes: 0, room_bytes: None });
        let mut topology = Topology { nodes: (0..21).map(node).collect(), ..Topology::default() };
        if rated {
            topology.rates = Rates::even((0..21).map(NodeId), NonZeroU64::new(1 << 20).unwrap());
        }
        topology
    }

    #[test]
    fn one_requestor_takes_no_less_than_its_link_needs() {
        let (rated, unrated) = (topology(true), topology(false));
        let stripes = |code: &str, lost: &[u8], count: usize| vec![waiting(code, lost); count];
        let mut losses = Losses::default();
        assert_eq!(losses.bound(&rated), None);
        losses.add(&rated, &stripes("rs:n=9,k=6", &[0], 8));
        let seconds = losses.bound(&rated).unwrap();
        assert!((7.9..8.01).contains(&seconds), "{seconds}");
        assert_eq!(losses.bound(&unrated), None);
        let mut more = losses.clone();
        more.add(&rated, &stripes("azure-lrc:n=8,k=4,r=2", &[0], 2));
        let seconds = more.bound(&rated).unwrap();
        assert!((9.8..10.01).contains(&seconds), "{seconds}");
        for (topology, code) in [(&rated, "butterfly:n=6,k=4"), (&unrated, "rs:n=9,k=6")] {
            let mut others = losses.clone();
            others.add(topology, &stripes(code, &[0], 1));
            assert_eq!(others.bound(&rated), None, "{code}");
        }
    }
}
