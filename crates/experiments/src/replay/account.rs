//! What crosses racks under one scheme.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::update::{Dirty, Scheme, group, interim_home, least_crossings, parity_homes, update};
use kintsu_plan::{StripeView, Topology};
use serde::Serialize;

use super::Ground;
use super::as_nodes::Commit;
use super::dirty::{DirtyStripe, Part, StripeKey};
use crate::error::Result;

/// Bytes across racks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Traffic {
    /// With each update: deltas, new data, or interim replicas.
    pub append: u64,
    /// In commits.
    pub commit: u64,
    /// For moves of data grouping.
    pub grouping: u64,
    /// The least that any graphs could send in these commits.
    pub commit_bound: u64,
    /// How many commits there were.
    pub commits: u64,
}

impl Traffic {
    /// All bytes.
    pub fn total(&self) -> u64 {
        self.append + self.commit + self.grouping
    }
}

/// What is sent of a block that was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it, as in the paper.
    Blocks,
    /// The ranges that were written.
    Ranges,
    /// What nodes send: replicas of the range that was written, and at a commit what [`Commit`] counts. Nothing is moved.
    AsNodes,
}

/// Symbols that cross for some dirty blocks, and the least possible.
#[derive(Debug, Clone, Copy)]
struct Cost {
    symbols: u64,
    bound: u64,
}

/// The racks of a stripe's blocks, and which of them are dirty: all that costs depend on.
type Pattern = (Vec<Option<RackId>>, Vec<BlockIndex>);

/// One scheme's account.
pub(super) struct Account<'a> {
    pub scheme: Scheme,
    pub traffic: Traffic,
    ground: &'a Ground,
    sent: Sent,
    dirty: BTreeMap<StripeKey, DirtyStripe>,
    /// The homes of the stripes that were touched.
    homes: HashMap<StripeKey, Vec<Option<NodeId>>>,
    costs: HashMap<Pattern, Cost>,
    commits: HashMap<Pattern, Commit>,
}

fn pattern(view: &StripeView, topology: &Topology, blocks: &[BlockIndex]) -> Pattern {
    let racks = view.homes.iter().map(|home| home.and_then(|node| topology.rack(node))).collect();
    (racks, blocks.to_vec())
}

/// These blocks are dirty, and their replicas are deltas where the scheme has them.
fn with_replicas(
    view: &StripeView,
    topology: &Topology,
    blocks: &[BlockIndex],
    scheme: Scheme,
) -> Result<Dirty> {
    let mut dirty = Dirty::at_home(blocks.iter().copied());
    if scheme.row().replicates_deltas() {
        for &block in blocks {
            let interim = interim_home(view, topology, block, scheme)?;
            dirty.replicas.extend(interim.map(|interim| (block, vec![interim.node])));
        }
    }
    Ok(dirty)
}

impl<'a> Account<'a> {
    /// Nothing is dirty, and stripes are where a cluster would place them.
    pub fn new(ground: &'a Ground, scheme: Scheme, sent: Sent) -> Self {
        let (traffic, dirty) = (Traffic::default(), BTreeMap::new());
        Self {
            scheme,
            traffic,
            ground,
            sent,
            dirty,
            homes: HashMap::new(),
            costs: HashMap::new(),
            commits: HashMap::new(),
        }
    }

    /// The same for stripes whose blocks have these homes.
    pub fn at(
        ground: &'a Ground,
        scheme: Scheme,
        sent: Sent,
        homes: HashMap<StripeKey, Vec<Option<NodeId>>>,
    ) -> Self {
        Self { homes, ..Self::new(ground, scheme, sent) }
    }

    /// One write to one block.
    pub fn update(&mut self, part: &Part) -> Result<()> {
        let row = self.scheme.row();
        let view = self.view(part.stripe)?;
        let sent = match self.sent {
            Sent::Ranges | Sent::AsNodes => part.range.end - part.range.start,
            Sent::Blocks => self.ground.block_bytes,
        };
        // Nodes keep replicas where the default scheme has them, by whatever scheme they commit.
        let replicas = if self.sent == Sent::AsNodes { Scheme::default() } else { self.scheme };
        if row.at_once && self.sent == Sent::AsNodes {
            let mut alone = DirtyStripe::default();
            alone.add(part.block, part.range.clone());
            self.traffic.append += self.by_nodes(&view, &alone)?;
        } else if row.at_once || row.old_first {
            self.traffic.append += self.count_parities(&view, part.block, sent)?;
        } else if let Some(interim) = interim_home(&view, &self.ground.topology, part.block, replicas)? {
            self.traffic.append += if interim.other_rack { sent } else { 0 };
        }
        let dirty = self.dirty.entry(part.stripe).or_default();
        let known = dirty.has(part.block);
        let clean = dirty.add(part.block, part.range.clone());
        if row.old_first {
            // The old data of what was clean.
            let old = match (self.sent, known) {
                (Sent::Ranges | Sent::AsNodes, _) => clean,
                (Sent::Blocks, false) => self.ground.block_bytes,
                (Sent::Blocks, true) => 0,
            };
            self.traffic.append += self.count_parities(&view, part.block, old)?;
        }
        if self.dirty.len() > self.ground.dirty_stripes {
            self.commit()?;
        }
        Ok(())
    }

    /// Commits all dirty stripes.
    pub fn commit(&mut self) -> Result<()> {
        let row = self.scheme.row();
        let dirty = std::mem::take(&mut self.dirty);
        self.traffic.commits += u64::from(!dirty.is_empty() && !row.at_once);
        if row.at_once || row.old_first {
            return Ok(());
        }
        for (key, stripe) in dirty {
            let view = self.view(key)?;
            let parts = match self.sent {
                Sent::Ranges => stripe.alike(),
                Sent::Blocks => BTreeMap::from([(stripe.blocks(), self.ground.block_bytes)]),
                Sent::AsNodes => {
                    self.traffic.commit += self.by_nodes(&view, &stripe)?;
                    continue;
                }
            };
            for (blocks, bytes) in parts {
                let cost = self.cost(&view, &blocks)?;
                self.traffic.commit += self.bytes(cost.symbols, bytes);
                self.traffic.commit_bound += self.bytes(cost.bound, bytes);
            }
            if row.groups
                && let Some(grouping) = group(&view, &self.ground.topology, &stripe.blocks())?
            {
                self.traffic.grouping += grouping.crossings() as u64 * self.ground.block_bytes;
                self.homes.insert(key, grouping.homes);
            }
        }
        Ok(())
    }

    /// Bytes of a block, or of its delta, that go to each parity node in another rack.
    fn count_parities(&mut self, view: &StripeView, block: BlockIndex, bytes: u64) -> Result<u64> {
        if self.sent != Sent::AsNodes {
            let symbols = self.cost(view, &[block])?.symbols;
            return Ok(self.bytes(symbols, bytes));
        }
        let home = view.homes.get(usize::from(block.0)).copied().flatten();
        let far = |node: &NodeId| home.is_some_and(|home| self.ground.topology.across_racks(home, *node));
        // Where no parity is in another rack, one more node there has a replica.
        Ok(parity_homes(view, block).iter().filter(|node| far(node)).count().max(1) as u64 * bytes)
    }

    /// What nodes send to commit this.
    fn by_nodes(&mut self, view: &StripeView, dirty: &DirtyStripe) -> Result<u64> {
        let topology = &self.ground.topology;
        let pattern = pattern(view, topology, &dirty.blocks());
        let commit = match self.commits.entry(pattern) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let blocks = with_replicas(view, topology, &dirty.blocks(), self.scheme)?;
                new.insert(Commit::new(view, topology, blocks, self.scheme)?)
            }
        };
        commit.bytes(view, dirty)
    }

    fn bytes(&self, symbols: u64, block_bytes: u64) -> u64 {
        symbols * block_bytes / self.ground.code.w() as u64
    }

    fn view(&mut self, (volume, stripe): StripeKey) -> Result<StripeView> {
        let Ground { code, layout, .. } = self.ground;
        let id = (u64::from(volume) << 40) + stripe;
        let homes = match self.homes.entry((volume, stripe)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(new) => new.insert(self.ground.homes(id)?).clone(),
        };
        Ok(StripeView { id: StripeId(id), code: code.clone(), layout: *layout, homes })
    }

    fn cost(&mut self, view: &StripeView, blocks: &[BlockIndex]) -> Result<Cost> {
        let topology = &self.ground.topology;
        let pattern = pattern(view, topology, blocks);
        if let Some(known) = self.costs.get(&pattern) {
            return Ok(*known);
        }
        let dirty = with_replicas(view, topology, blocks, self.scheme)?;
        let symbols = update(view, topology, &dirty, self.scheme)?.crossings;
        let bound = least_crossings(view, topology, &dirty)?;
        self.costs.insert(pattern, Cost { symbols, bound });
        Ok(Cost { symbols, bound })
    }
}
