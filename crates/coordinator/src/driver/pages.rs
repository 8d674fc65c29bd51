//! Finds the stripes that an ask is about, page by page, by range scans: never all at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};

use super::assign::{Dealt, assign};
use crate::cluster::Cluster;
use crate::engine::damage::unavailable;
use crate::engine::repair::{Order, Want};
use crate::error::Result;
use crate::meta::{Meta, Snapshot, StripeRecord};

/// Rows of a page.
const PAGE: usize = 256;

/// Rows of a page whose stripes' trees are planned together: the more there are, the more evenly links are loaded.
const PAGE_TOGETHER: usize = 1024;

/// What an ask is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The blocks placed on a node that cannot be read there.
    Node(NodeId),
    /// The blocks of an object that cannot be read.
    Object(String),
    /// All blocks that cannot be read: those flagged lost, and those on the nodes that were down.
    Everything(Vec<NodeId>),
    /// The same without being asked: only those flagged lost and those on overdue nodes.
    Overdue(Vec<NodeId>),
    /// These, as far as they are flagged lost.
    Blocks(Vec<BlockId>),
}

/// Where the next page of a source begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// For sources of several ranges: which one.
    part: usize,
    /// The last stripe of the page before.
    after: Option<StripeId>,
    /// For objects: how many stripes were seen.
    seen: u64,
}

/// A page.
pub struct Page {
    pub wants: Vec<Want>,
    pub next: Option<Place>,
}

/// The next page of a source, its stripes assigned to nodes. `dealt` is what earlier pages of the same ask gave
/// to nodes, and comes back with this page counted too.
///
/// # Errors
/// The object is gone; the disk fails.
pub async fn page(
    cluster: &Arc<Cluster>,
    source: Source,
    place: Place,
    order: Order,
    mut dealt: Dealt,
) -> Result<(Page, Dealt)> {
    let down = cluster.members().down();
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut page = find(&worker, &snapshot, &down, source, place, &order)?;
        assign(&worker, &snapshot, &order, &mut dealt, &mut page.wants)?;
        Ok((page, dealt))
    };
    cluster.meta.off(look).await
}

fn find(
    cluster: &Cluster,
    snapshot: &Snapshot,
    down: &BTreeSet<NodeId>,
    source: Source,
    place: Place,
    order: &Order,
) -> Result<Page> {
    let rows = if order.together() { PAGE_TOGETHER } else { PAGE };
    let search = Search { cluster, snapshot, down, rows };
    match source {
        Source::Node(node) => search.node(node, place, &|stripe, index| {
            let block = stripe.block(index);
            block.filter(|b| b.lost || down.contains(&b.node)).map(|_| vec![index]).unwrap_or_default()
        }),
        Source::Object(name) => search.object(&name, place),
        Source::Everything(nodes) => search.parts(&nodes, down, place),
        Source::Overdue(nodes) => search.parts(&nodes, &nodes.iter().copied().collect(), place),
        Source::Blocks(blocks) => search.blocks(&blocks),
    }
}

struct Search<'a> {
    cluster: &'a Cluster,
    snapshot: &'a Snapshot,
    down: &'a BTreeSet<NodeId>,
    /// Of a page.
    rows: usize,
}

impl Search<'_> {
    fn node(
        &self,
        node: NodeId,
        place: Place,
        choose: &dyn Fn(&StripeRecord, BlockIndex) -> Vec<BlockIndex>,
    ) -> Result<Page> {
        let rows = self.snapshot.placed(node, place.after, self.rows)?;
        let mut wants = Vec::new();
        for id in &rows {
            if let Some(stripe) = self.snapshot.stripe(id.stripe)? {
                wants.push(self.want(id.stripe, &stripe, choose(&stripe, id.index))?);
            }
        }
        let next = rows.last().filter(|_| rows.len() == self.rows);
        let next = next.map(|last| Place { after: Some(last.stripe), ..place });
        Ok(Page { wants, next })
    }

    fn object(&self, name: &str, place: Place) -> Result<Page> {
        let object = self.snapshot.object(name)?;
        let ids = object.ids(place.seen, self.rows as u64);
        let mut wants = Vec::new();
        for (_, id) in &ids {
            if let Some(stripe) = self.snapshot.stripe(*id)? {
                wants.push(self.want(*id, &stripe, unavailable(&stripe, self.down))?);
            }
        }
        let next = (ids.len() == self.rows).then(|| Place { seen: place.seen + self.rows as u64, ..place });
        Ok(Page { wants, next })
    }

    /// The flagged blocks first, then node after node. A stripe that an earlier part has named is
    /// not named again.
    fn parts(&self, nodes: &[NodeId], gone: &BTreeSet<NodeId>, mut place: Place) -> Result<Page> {
        let mut page = match place.part.checked_sub(1) {
            None => self.flagged(gone, place.clone())?,
            Some(i) if i < nodes.len() => {
                let before = &nodes[..i];
                self.node(nodes[i], place.clone(), &|stripe, _| {
                    let seen = stripe.made().any(|(_, b)| b.lost || before.contains(&b.node));
                    if seen { Vec::new() } else { unavailable(stripe, gone) }
                })?
            }
            Some(_) => Page { wants: Vec::new(), next: None },
        };
        if page.next.is_none() && place.part < nodes.len() {
            place = Place { part: place.part + 1, after: None, seen: 0 };
            page.next = Some(place);
        }
        Ok(page)
    }

    fn flagged(&self, gone: &BTreeSet<NodeId>, place: Place) -> Result<Page> {
        let rows = self.snapshot.lost(place.after, self.rows)?;
        let mut wants = Vec::new();
        let stripes: BTreeSet<StripeId> = rows.iter().map(|(id, _)| id.stripe).collect();
        for id in stripes {
            if let Some(stripe) = self.snapshot.stripe(id)? {
                wants.push(self.want(id, &stripe, unavailable(&stripe, gone))?);
            }
        }
        let next = rows.last().filter(|_| rows.len() >= self.rows);
        let next = next.map(|(last, _)| Place { after: Some(last.stripe), ..place });
        Ok(Page { wants, next })
    }

    fn blocks(&self, blocks: &[BlockId]) -> Result<Page> {
        let mut wants = Vec::new();
        for id in blocks {
            if let Some(stripe) = self.snapshot.stripe(id.stripe)?
                && stripe.block(id.index).is_some_and(|b| b.lost)
            {
                wants.push(self.want(id.stripe, &stripe, vec![id.index])?);
            }
        }
        Ok(Page { wants, next: None })
    }

    fn want(&self, id: StripeId, stripe: &StripeRecord, blocks: Vec<BlockIndex>) -> Result<Want> {
        let k = self.cluster.code(stripe.code)?.k();
        let bytes = blocks.iter().map(|b| stripe.layout.block_len(k, *b)).sum();
        Ok(Want { stripe: id, blocks, bytes, nodes: BTreeSet::new() })
    }
}
