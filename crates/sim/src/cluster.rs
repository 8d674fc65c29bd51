//! A cluster full of stripes, some of which lose blocks.
//!
//! Only stripes that lost a block are kept in memory, so the cost of a million stripes is the cost of placing
//! them. Every choice is a function of the seed.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{DamagedStripe, Layout, LayoutKind, StripeView, Topology, draw, place};

use crate::SimError;

/// How stripes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// On nodes drawn at random. Where there are enough racks, no rack gets more blocks than the stripe may lose.
    Random,
    /// Where [`kintsu_plan::place`] puts them. The time for each stripe is proportional to the number of nodes.
    Placed,
}

/// Stripes on nodes.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The nodes and what their links carry.
    pub topology: Topology,
    /// The code of all stripes.
    pub code: Arc<dyn Code>,
    /// The size of every block.
    pub block_bytes: u64,
    /// How many stripes there are.
    pub stripes: u64,
    /// How they are laid out.
    pub spread: Spread,
    /// The seed of all choices.
    pub seed: u64,
}

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// One node.
    Node(NodeId),
    /// All nodes of a rack.
    Rack(RackId),
}

/// A stripe that lost blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostStripe {
    /// Its number.
    pub id: u64,
    /// For each block the node that holds it; `None` for a lost block.
    pub homes: Vec<Option<NodeId>>,
}

impl LostStripe {
    /// The lost blocks.
    pub fn lost(&self) -> Vec<BlockIndex> {
        let lost = self.homes.iter().enumerate().filter(|(_, home)| home.is_none());
        lost.map(|(i, _)| BlockIndex(i as u8)).collect()
    }
}

impl Cluster {
    /// The nodes that fail.
    ///
    /// # Errors
    /// `Invalid` when there are none.
    pub fn failed(&self, failure: Failure) -> Result<BTreeSet<NodeId>, SimError> {
        let hit = |id: NodeId| match failure {
            Failure::Node(node) => id == node,
            Failure::Rack(rack) => self.topology.rack(id) == Some(rack),
        };
        let failed: BTreeSet<_> = self.topology.nodes.keys().copied().filter(|id| hit(*id)).collect();
        if failed.is_empty() {
            let (what, which) = match failure {
                Failure::Node(node) => ("node", node.0),
                Failure::Rack(rack) => ("rack", rack.0),
            };
            let expected = format!("a {what} of the cluster");
            return Err(SimError::invalid("failure", expected, format!("{what} {which}")));
        }
        Ok(failed)
    }

    /// The stripes that lose blocks when these nodes fail.
    ///
    /// # Errors
    /// `Invalid` for fewer nodes than blocks of a stripe; `Plan` when a stripe cannot be placed.
    pub fn lost(&self, failed: &BTreeSet<NodeId>) -> Result<Vec<LostStripe>, SimError> {
        let dealer = Dealer::new(self)?;
        let mut lost = Vec::new();
        for id in 0..self.stripes {
            let mut homes = dealer.homes(id)?;
            let mut hit = false;
            for home in homes.iter_mut().filter(|home| home.is_some_and(|node| failed.contains(&node))) {
                *home = None;
                hit = true;
            }
            if hit {
                lost.push(LostStripe { id, homes });
            }
        }
        Ok(lost)
    }

    /// The nodes of the blocks of a stripe.
    ///
    /// # Errors
    /// As [`Cluster::lost`].
    pub fn homes(&self, stripe: u64) -> Result<Vec<Option<NodeId>>, SimError> {
        Dealer::new(self)?.homes(stripe)
    }

    /// A stripe as planners see it.
    pub fn view(&self, stripe: &LostStripe) -> StripeView {
        StripeView {
            id: StripeId(stripe.id),
            code: Arc::clone(&self.code),
            layout: self.layout(),
            homes: stripe.homes.clone(),
        }
    }

    /// A stripe as recoveries see it.
    pub fn waiting(&self, stripe: &LostStripe) -> DamagedStripe {
        DamagedStripe { view: self.view(stripe), lost: stripe.lost(), barred: BTreeSet::new() }
    }

    /// Full stripes of whole blocks.
    fn layout(&self) -> Layout {
        let w = self.code.w() as u16;
        Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: self.block_bytes,
            cell_bytes: 4096 * u32::from(w.max(1)),
            w,
            data_bytes: self.block_bytes * self.code.k() as u64,
        }
    }
}

/// Assigns the blocks of stripes to nodes.
struct Dealer<'a> {
    cluster: &'a Cluster,
    nodes: Vec<(NodeId, RackId)>,
    /// The most blocks of a stripe in one rack: the number that may be lost, or more where there are too few
    /// racks.
    most_in_rack: usize,
}

impl<'a> Dealer<'a> {
    fn new(cluster: &'a Cluster) -> Result<Self, SimError> {
        let nodes: Vec<_> = cluster.topology.nodes.iter().map(|(id, node)| (*id, node.rack)).collect();
        let n = cluster.code.n();
        if nodes.len() < n {
            return Err(SimError::invalid("nodes", format_args!("{n} or more"), nodes.len()));
        }
        let racks: BTreeSet<RackId> = nodes.iter().map(|(_, rack)| *rack).collect();
        let most_in_rack = (n - cluster.code.k()).max(n.div_ceil(racks.len())).max(1);
        Ok(Self { cluster, nodes, most_in_rack })
    }

    fn homes(&self, id: u64) -> Result<Vec<Option<NodeId>>, SimError> {
        let Cluster { code, topology, seed, .. } = self.cluster;
        match self.cluster.spread {
            Spread::Random => Ok(self.scattered(id)),
            Spread::Placed => Ok(place(&**code, &self.cluster.layout(), topology, id ^ seed)?.homes),
        }
    }

    /// Draws nodes until each block has one. The rack rule is given up after many draws that break it.
    fn scattered(&self, id: u64) -> Vec<Option<NodeId>> {
        let n = self.cluster.code.n();
        let mut chosen: Vec<(NodeId, RackId)> = Vec::with_capacity(n);
        let patience = 64 * n as u64;
        for turn in 0.. {
            if chosen.len() == n {
                break;
            }
            // After too many draws, takes one node after the other, so that the loop ends.
            let drawn = match turn < 2 * patience {
                true => draw(self.cluster.seed, id, turn),
                false => turn,
            };
            let (node, rack) = self.nodes[(drawn % self.nodes.len() as u64) as usize];
            let crowded = chosen.iter().filter(|(_, other)| *other == rack).count() >= self.most_in_rack;
            if chosen.iter().all(|(other, _)| *other != node) && (!crowded || turn >= patience) {
                chosen.push((node, rack));
            }
        }
        chosen.into_iter().map(|(node, _)| Some(node)).collect()
    }
}
