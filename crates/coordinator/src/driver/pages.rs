//! Finds the stripes of a repair job page by page, with range scans: never all at once.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};

use crate::cluster::Cluster;
use crate::engine::assign::{Dealt, Due, Scene, assign, hold};
use crate::engine::damage::{bears, unavailable};
use crate::engine::repair::{LinkLoads, Order, Want};
use crate::error::Result;
use crate::meta::{Meta, Snapshot, StripeRecord};

/// Rows per page.
const PAGE: usize = 256;

/// Rows per page if the trees of its stripes are planned together: the larger the page, the more evenly the
/// links are loaded.
const PAGE_TOGETHER: usize = 1024;

/// Most ranges of rows that are read for one page, so that a page does not take long where few stripes are damaged.
const MOST_RANGES: usize = 64;

/// What a repair job is to repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The blocks placed on a node that cannot be read there.
    Node(NodeId),
    /// The blocks of an object that cannot be read.
    Object(String),
    /// All blocks that cannot be read: those flagged lost, and those on the nodes that were down.
    Everything(Vec<NodeId>),
    /// What automatic repair covers: the blocks flagged lost, and those on the overdue nodes.
    Overdue(Vec<NodeId>),
    /// Those of these blocks that are flagged lost.
    Blocks(Vec<BlockId>),
}

impl Source {
    /// What is repaired, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Node(node) => format!("blocks of node {}", node.0),
            Self::Object(name) => format!("object {name:?}"),
            Self::Everything(_) => "everything that is unavailable".into(),
            Self::Overdue(_) => "lost blocks and dead nodes".into(),
            Self::Blocks(blocks) if blocks.len() == 1 => "a bad block".into(),
            Self::Blocks(blocks) => format!("{} bad blocks", blocks.len()),
        }
    }

    /// Whether it is what nodes have lost.
    pub fn is_of_nodes(&self) -> bool {
        matches!(self, Self::Node(_) | Self::Everything(_) | Self::Overdue(_))
    }
}

/// Where the next page of a source begins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PageStart {
    /// For sources of several ranges: whether the stripes that lost several blocks have all been returned.
    rest: bool,
    /// For sources of several ranges: which one.
    part: usize,
    /// The last stripe of the previous page.
    after: Option<StripeId>,
    /// For objects: how many stripes were seen.
    seen: u64,
}

/// A page.
pub struct Page {
    pub wants: Vec<Want>,
    pub next: Option<PageStart>,
}

/// A page before its stripes are assigned to nodes. Each stripe is read once, here.
#[derive(Default)]
struct Found {
    due: Vec<Due>,
    next: Option<PageStart>,
}

/// The next page of a source, with its stripes assigned to nodes, unless they begin `in_phases`, which assign them. `dealt` is
/// what earlier pages of the same job assigned to nodes; it is returned with this page included.
///
/// # Errors
/// The object is gone; the disk fails.
pub async fn page(
    cluster: &Arc<Cluster>,
    source: Source,
    place: PageStart,
    order: Order,
    in_phases: bool,
    mut dealt: Dealt,
) -> Result<(Page, Dealt)> {
    let down = cluster.members().down();
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let first = place == PageStart::default();
        let snapshot = meta.snapshot()?;
        let Found { due, next } = fill(&worker, &snapshot, &down, &source, place, &order)?;
        let (mut topology, readable) = worker.nodes();
        topology.rates = worker.spare_rates();
        let topology = order.narrow(topology);
        let slow = worker.slow_nodes().now(worker.now_ms());
        let whole = first && next.is_none();
        let at_once = (worker.config.repairs, worker.config.repairs_per_link);
        let capacity = worker.capacities();
        let (disks, underway) = (worker.disks(&topology.rates), underway(&worker, &due));
        let scene = Scene {
            topology: &topology,
            disks: &disks,
            underway: &underway,
            capacity: &capacity,
            readable: &readable,
            slow: &slow,
            whole,
            at_once,
            phase_seconds: worker.config.phase.as_secs_f64(),
            in_phase: false,
        };
        if in_phases {
            return Ok((Page { wants: hold(scene, &mut dealt, due), next }, dealt));
        }
        // Planning may take a while, so it works on a copy: other repairs go on meanwhile.
        let mut recovery = worker.recovery().clone();
        let (wants, assigned) = assign(&order, scene, &mut recovery, &mut dealt, due);
        worker.recovery().keep(&assigned);
        Ok((Page { wants, next }, dealt))
    };
    cluster.meta.off(look).await
}

/// Plans stripes of a job that wait, for the links as they are now; if a phase begins, only those
/// for which it has time.
///
/// # Errors
/// The disk fails.
pub async fn plan_again(
    cluster: &Arc<Cluster>,
    order: Order,
    wanted: Vec<(StripeId, Vec<BlockIndex>)>,
    in_phase: bool,
) -> Result<Vec<Want>> {
    let down = cluster.members().down();
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let search = Search { cluster: &worker, snapshot: &snapshot, down: &down, rows: PAGE };
        let mut due = Vec::with_capacity(wanted.len());
        for (id, blocks) in wanted {
            if let Some(stripe) = snapshot.stripe(id)? {
                due.extend(search.due(id, stripe, blocks)?);
            }
        }
        let (mut topology, readable) = worker.nodes();
        topology.rates = worker.spare_rates();
        let topology = order.narrow(topology);
        let slow = worker.slow_nodes().now(worker.now_ms());
        let (disks, underway) = (worker.disks(&topology.rates), underway(&worker, &due));
        let scene = Scene {
            topology: &topology,
            disks: &disks,
            underway: &underway,
            capacity: &topology.rates,
            readable: &readable,
            slow: &slow,
            whole: false,
            at_once: (0, 0),
            phase_seconds: worker.config.phase.as_secs_f64(),
            in_phase,
        };
        let mut recovery = worker.recovery().clone();
        let (wants, assigned) = assign(&order, scene, &mut recovery, &mut Dealt::default(), due);
        worker.recovery().keep(&assigned);
        Ok(wants)
    };
    cluster.meta.off(look).await
}

/// What links and disks have to carry for all repairs but these, which are about to be planned.
fn underway(cluster: &Cluster, due: &[Due]) -> LinkLoads {
    cluster.queue().underway(&due.iter().map(|due| due.want.stripe).collect())
}

/// Ranges of rows until a page has enough stripes to plan together, or there are no more.
fn fill(
    cluster: &Cluster,
    snapshot: &Snapshot,
    down: &BTreeSet<NodeId>,
    source: &Source,
    place: PageStart,
    order: &Order,
) -> Result<Found> {
    let mut page = find(cluster, snapshot, down, source, place, order)?;
    let mut known: BTreeSet<StripeId> = page.due.iter().map(|due| due.want.stripe).collect();
    for _ in 1..MOST_RANGES {
        let Some(next) = page.next.take_if(|_| page.due.len() < PAGE) else { break };
        let more = find(cluster, snapshot, down, source, next, order)?;
        page.due.extend(more.due.into_iter().filter(|due| known.insert(due.want.stripe)));
        page.next = more.next;
    }
    Ok(page)
}

fn find(
    cluster: &Cluster,
    snapshot: &Snapshot,
    down: &BTreeSet<NodeId>,
    source: &Source,
    place: PageStart,
    order: &Order,
) -> Result<Found> {
    let rows = if order.together() { PAGE_TOGETHER } else { PAGE };
    let search = Search { cluster, snapshot, down, rows };
    match source {
        Source::Node(node) => search.node(*node, place, &|_, stripe, index| {
            let block = stripe.block(index);
            block.filter(|b| b.lost || down.contains(&b.node)).map(|_| vec![index]).unwrap_or_default()
        }),
        Source::Object(name) => search.object(name, place),
        Source::Everything(nodes) => search.parts(nodes, down, place),
        Source::Overdue(nodes) => search.parts(nodes, &nodes.iter().copied().collect(), place),
        Source::Blocks(blocks) => search.blocks(blocks),
    }
}

struct Search<'a> {
    cluster: &'a Cluster,
    snapshot: &'a Snapshot,
    down: &'a BTreeSet<NodeId>,
    /// Rows per page.
    rows: usize,
}

impl Search<'_> {
    fn node(
        &self,
        node: NodeId,
        place: PageStart,
        choose: &dyn Fn(StripeId, &StripeRecord, BlockIndex) -> Vec<BlockIndex>,
    ) -> Result<Found> {
        let rows = self.snapshot.placed(node, place.after, self.rows)?;
        let mut due = Vec::new();
        for id in &rows {
            if let Some(stripe) = self.snapshot.stripe(id.stripe)? {
                let blocks = choose(id.stripe, &stripe, id.index);
                due.extend(self.due(id.stripe, stripe, blocks)?);
            }
        }
        let next = rows.last().filter(|_| rows.len() == self.rows);
        let next = next.map(|last| PageStart { after: Some(last.stripe), ..place });
        Ok(Found { due, next })
    }

    fn object(&self, name: &str, place: PageStart) -> Result<Found> {
        let object = self.snapshot.object(name)?;
        let ids = object.ids(place.seen, self.rows as u64);
        let mut due = Vec::new();
        for (_, id) in &ids {
            if let Some(stripe) = self.snapshot.stripe(*id)? {
                let blocks = unavailable(&stripe, self.down);
                due.extend(self.due(*id, stripe, blocks)?);
            }
        }
        let next =
            (ids.len() == self.rows).then(|| PageStart { seen: place.seen + self.rows as u64, ..place });
        Ok(Found { due, next })
    }

    /// The flagged blocks first, then node after node: once for the stripes that lost several blocks, and once for the
    /// others. A stripe that an earlier part has returned is not returned again.
    fn parts(&self, nodes: &[NodeId], gone: &BTreeSet<NodeId>, mut place: PageStart) -> Result<Found> {
        let rest = place.rest;
        let choose = |id: StripeId, blocks: Vec<BlockIndex>| {
            // A stripe that lost more since the first round is not waiting yet.
            let now =
                if rest { blocks.len() == 1 || !self.cluster.queue().has(id) } else { blocks.len() > 1 };
            if now { blocks } else { Vec::new() }
        };
        let mut page = match place.part.checked_sub(1) {
            None => self.flagged(gone, place.clone(), &choose)?,
            Some(i) if i < nodes.len() => {
                let before = &nodes[..i];
                self.node(nodes[i], place.clone(), &|id, stripe, _| {
                    let seen = stripe.made().any(|(_, b)| b.lost || before.contains(&b.node));
                    if seen { Vec::new() } else { choose(id, unavailable(stripe, gone)) }
                })?
            }
            Some(_) => Found::default(),
        };
        if page.next.is_none() && place.part < nodes.len() {
            place = PageStart { part: place.part + 1, after: None, ..place };
            page.next = Some(place);
        } else if page.next.is_none() && !rest {
            page.next = Some(PageStart { rest: true, ..PageStart::default() });
        }
        Ok(page)
    }

    fn flagged(
        &self,
        gone: &BTreeSet<NodeId>,
        place: PageStart,
        choose: &dyn Fn(StripeId, Vec<BlockIndex>) -> Vec<BlockIndex>,
    ) -> Result<Found> {
        let rows = self.snapshot.lost(place.after, self.rows)?;
        let mut due = Vec::new();
        let stripes: BTreeSet<StripeId> = rows.iter().map(|(id, _)| id.stripe).collect();
        for id in stripes {
            if let Some(stripe) = self.snapshot.stripe(id)? {
                let blocks = choose(id, unavailable(&stripe, gone));
                due.extend(self.due(id, stripe, blocks)?);
            }
        }
        let next = rows.last().filter(|_| rows.len() >= self.rows);
        let next = next.map(|(last, _)| PageStart { after: Some(last.stripe), ..place });
        Ok(Found { due, next })
    }

    fn blocks(&self, blocks: &[BlockId]) -> Result<Found> {
        let mut due = Vec::new();
        for id in blocks {
            if let Some(stripe) = self.snapshot.stripe(id.stripe)?
                && stripe.block(id.index).is_some_and(|b| b.lost)
            {
                due.extend(self.due(id.stripe, stripe, vec![id.index])?);
            }
        }
        Ok(Found { due, next: None })
    }

    /// A stripe and its blocks that are to be repaired; `None` if there are no such blocks.
    fn due(&self, id: StripeId, record: StripeRecord, blocks: Vec<BlockIndex>) -> Result<Option<Due>> {
        if blocks.is_empty() {
            return Ok(None);
        }
        let stripe = self.cluster.known(id, record)?;
        let bytes = blocks.iter().map(|b| stripe.block_len(*b)).sum();
        // What cannot be read now may wait for news of nodes, so it goes last.
        let bears = bears(&stripe.record, stripe.code.as_ref(), self.down).unwrap_or(u64::MAX);
        let want = Want {
            stripe: id,
            blocks,
            bytes,
            bears,
            nodes: BTreeSet::new(),
            loads: Vec::new(),
            is_later: false,
        };
        let sweeping = self.cluster.sweeping(self.snapshot, id)?;
        Ok(Some(Due { want, stripe, sweeping }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put, silence};

    #[tokio::test]
    async fn stripes_are_planned_together_without_slow_nodes_as_far_as_they_can_spare_them() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 320).await;
        silence(&cluster, &[0]);
        let order = Order { method: kintsu_plan::Method::Optimal, ..Order::default() };
        let wants = async || {
            let dealt = Dealt::default();
            let source = Source::Node(NodeId(0));
            page(&cluster, source, PageStart::default(), order.clone(), false, dealt).await.unwrap().0.wants
        };
        let stripes = |wants: &[Want], node: NodeId| {
            let snapshot = cluster.meta.snapshot().unwrap();
            let helps = |want: &&Want| {
                let stripe = snapshot.stripe(want.stripe).unwrap().unwrap();
                stripe.made().any(|(_, block)| block.node == node) && want.nodes.contains(&node)
            };
            wants.iter().filter(helps).count()
        };
        let before = wants().await;
        assert!(stripes(&before, NodeId(2)) > 0, "{before:?}");
        for repair in [1, 2] {
            cluster.slow_nodes().found(NodeId(2), repair, cluster.now_ms());
        }
        let after = wants().await;
        assert_eq!((after.len(), stripes(&after, NodeId(2))), (before.len(), 0), "{after:?}");
        // A repair needs two helpers, and only one node is left that is not slow: so slow nodes take part
        // again.
        for repair in [3, 4] {
            cluster.slow_nodes().found(NodeId(1), repair, cluster.now_ms());
            cluster.slow_nodes().found(NodeId(3), repair, cluster.now_ms());
        }
        let most = wants().await;
        assert_eq!(most.len(), before.len());
        assert!(most.iter().all(|want| !want.nodes.is_empty()), "{most:?}");
    }
}
