//! Brings what is logged for a stripe of a volume into its blocks and parities.
//!
//! The order is that of `docs/adr/0008-updates-in-place.md`: fix what is taken, make next versions of all touched blocks by a
//! plan of [`kintsu_plan::update`], decide in one transaction, put the versions in their places, release the logs.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::update::{Dirty, Scheme, UpdatePlan, update};
use kintsu_plan::{Program, ProgramContext, StripeView, Topology};
use kintsu_wire::message::{
    BlockRef, DigestBytes, FaultKind, FreezeUpdates, FrozenUpdate, LoggedBlocks, PromoteBlocks,
    ReleaseUpdates, RunOutcome, UpdatesOf,
};

use super::upgrade::check_volumes;
use super::volume_relog::{How, relog};
use super::volumes::{failed, is_due, record, within};
use crate::claims::{Barred, Writing};
use crate::cluster::{Cluster, unknown_node};
use crate::engine::stripe::Stripe;
use crate::error::{CoordinatorError, Result};
use crate::meta::volumes::Decision;
use crate::meta::{Meta, StripeLogs};

/// What a commit of one stripe did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Committed {
    /// Data blocks that were updated.
    pub blocks: u64,
    /// Parity blocks that were updated.
    pub parities: u64,
    /// Bytes that crossed racks.
    pub across_racks: u64,
    /// Why some of the stripe is still dirty, or may be.
    pub left: Option<String>,
}

/// Commits one stripe. `only`: what was logged for these blocks, under this epoch.
///
/// # Errors
/// The epoch of `only` is over: what was logged under it may be lost. A node did not do its part, or the stripe was changed meanwhile; then nothing has changed, and the logs have what they
/// had.
pub async fn commit_stripe(
    cluster: &Arc<Cluster>,
    volume: u64,
    index: u64,
    scheme: Scheme,
    only: Option<&LoggedBlocks>,
) -> Result<Committed> {
    check_volumes(cluster)?;
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, logs)) = cluster.meta.off(row).await? else { return Ok(Committed::default()) };
    let _turn = cluster.turns.of(StripeId(logs.stripe)).await;
    commit_held(cluster, volume, index, scheme, only).await
}

/// As [`commit_stripe`]; the caller has the turn.
///
/// # Errors
/// As [`commit_stripe`].
pub async fn commit_held(
    cluster: &Arc<Cluster>,
    volume: u64,
    index: u64,
    scheme: Scheme,
    only: Option<&LoggedBlocks>,
) -> Result<Committed> {
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, mut logs)) = cluster.meta.off(row).await? else { return Ok(Committed::default()) };
    let Some((stripe, _)) = cluster.load(StripeId(logs.stripe)).await? else {
        return Ok(Committed::default());
    };
    if logs.logs.is_empty() {
        return Ok(Committed::default());
    }
    let (topology, usable) = cluster.nodes();
    let can = |block: BlockIndex| {
        stripe.record.block(block).filter(|b| !b.lost && usable.contains(&b.node)).map(|b| b.node)
    };
    let wanted = |block: &BlockIndex| only.is_none_or(|only| only.blocks.contains(block));
    let data = || (0..stripe.code.k()).map(|i| BlockIndex(i as u8)).filter(wanted);
    // A home that was away has missed writes.
    let away = |logs: &StripeLogs| {
        data().any(|block| {
            can(block).is_some_and(|home| logs.logs[usize::from(block.0)].first() != Some(&home))
        })
    };
    if away(&logs) || is_due(cluster, volume, &logs, None).await? {
        let relogged = relog(cluster, volume, index, &[], How::Move).await?;
        logs = relogged.to.clone();
        record(cluster, relogged).await?;
    }
    if let Some(only) = only.filter(|only| only.epoch != logs.epoch) {
        return Err(CoordinatorError::Conflict {
            what: format!("commit of {}", stripe.id),
            expected: format!("updates that were logged under epoch {}", logs.epoch),
            got: format!("some of epoch {}", only.epoch),
        });
    }
    let at_home = |block: &BlockIndex| {
        let members = &logs.logs[usize::from(block.0)];
        members.first().copied().filter(|first| can(*block) == Some(*first))
    };
    let there: Vec<(BlockIndex, NodeId)> = data().filter_map(|b| Some((b, at_home(&b)?))).collect();
    let waits: Vec<String> = data().filter(|b| at_home(b).is_none()).map(|b| b.to_string()).collect();
    let left =
        (!waits.is_empty()).then(|| format!("{}: {} cannot be read at home", stripe.id, waits.join(", ")));
    let (frozen, leftovers) = freeze(cluster, &stripe, &logs, &there, scheme.row().reads_replicas()).await?;
    tracing::debug!("{}: commit of {frozen:?}; what is left over: {leftovers:?}", stripe.id);
    release(cluster, stripe.id, &logs, &leftovers).await;
    if frozen.is_empty() {
        return Ok(Committed { left, ..Committed::default() });
    }
    let commit = Commit { cluster, stripe: &stripe, topology: &topology, frozen: &frozen, logs: &logs };
    let done = commit.run(volume, index, scheme, &usable).await?;
    Ok(Committed { left, ..done })
}

/// What is fixed of each block, at all nodes that log it.
type Frozen = BTreeMap<BlockIndex, FrozenUpdate>;

/// Fixes what is taken of these blocks. `deltas`: also asks which replicas have the delta.
async fn freeze(
    cluster: &Arc<Cluster>,
    stripe: &Stripe,
    logs: &StripeLogs,
    blocks: &[(BlockIndex, NodeId)],
    deltas: bool,
) -> Result<(Frozen, Frozen)> {
    let generations = stripe.generations();
    let ask = blocks.iter().map(async |&(block, home)| {
        let others = || logs.logs[usize::from(block.0)].iter().skip(1);
        let replicas = addresses(others(), |node| cluster.control(node))?;
        let deltas = generations.get(usize::from(block.0)).filter(|_| deltas).copied().into_iter().collect();
        let id = BlockId { stripe: stripe.id, index: block };
        let folder = logs.folders.get(&home).copied();
        let freeze = FreezeUpdates {
            blocks: vec![id],
            replica: false,
            replicas: vec![replicas],
            folder,
            deltas,
            tickets: Vec::new(),
            replica_tickets: cluster.tickets.iter().map(|tickets| tickets.freeze(id, others())).collect(),
        };
        let frozen = within(cluster.agent(home)?.freeze_updates(freeze)).await.map_err(failed(home))?;
        Ok::<_, CoordinatorError>((block, frozen.blocks.into_iter().next().flatten()))
    });
    let asked = futures::future::try_join_all(ask).await?;
    let dirty = |(block, frozen): (BlockIndex, Option<FrozenUpdate>)| Some((block, frozen?));
    // What replicas alone have was never acknowledged, or is in its block already and its release was lost.
    Ok(asked.into_iter().filter_map(dirty).partition(|(_, frozen)| !frozen.ranges.is_empty()))
}

/// Where nodes listen, one address for each: what they answer is told apart by its place among the answers.
fn addresses<'a>(
    nodes: impl Iterator<Item = &'a NodeId>,
    control: impl Fn(NodeId) -> Option<SocketAddr>,
) -> Result<Vec<SocketAddr>> {
    nodes.map(|node| control(*node).ok_or_else(|| unknown_node(*node))).collect()
}

/// Has all nodes forget what was fixed. What fails here is made good by the next commit.
async fn release(cluster: &Arc<Cluster>, id: StripeId, logs: &StripeLogs, frozen: &Frozen) {
    let updates = frozen.iter().flat_map(|(&index, frozen)| {
        let nodes = &logs.logs[usize::from(index.0)];
        let numbers = std::iter::once(Some(frozen.upto)).chain(frozen.replicas.iter().copied());
        let block = BlockId { stripe: id, index };
        nodes.iter().copied().zip(numbers).enumerate().filter_map(move |(at, (node, upto))| {
            Some((node, UpdatesOf { block, replica: at > 0, upto: upto.filter(|upto| *upto > 0)? }))
        })
    });
    let mut by_node: BTreeMap<NodeId, Vec<UpdatesOf>> = BTreeMap::new();
    updates.for_each(|(node, of)| by_node.entry(node).or_default().push(of));
    let release = by_node.into_iter().map(async |(node, updates)| {
        let Ok(mut agent) = cluster.agent(node) else { return };
        if let Err(error) = within(agent.release_updates(ReleaseUpdates { updates })).await {
            tracing::warn!("{id}: {node} keeps its log: {error}");
        }
    });
    futures::future::join_all(release).await;
}

/// One commit that has something to do.
struct Commit<'a> {
    cluster: &'a Arc<Cluster>,
    stripe: &'a Stripe,
    topology: &'a Topology,
    frozen: &'a Frozen,
    logs: &'a StripeLogs,
}

impl Commit<'_> {
    async fn run(
        &self,
        volume: u64,
        index: u64,
        scheme: Scheme,
        usable: &BTreeSet<NodeId>,
    ) -> Result<Committed> {
        let view = self.stripe.view(|_, block| !block.lost && usable.contains(&block.node));
        let dirty = Dirty { blocks: self.frozen.keys().copied().collect(), replicas: self.with_deltas() };
        let plan = update(&view, self.topology, &dirty, scheme)?;
        self.check_left_out(&view, &plan)?;
        let writing = self.claim(&plan).await?;
        let next = self.cluster.meta.off(move |meta| meta.next_generation(volume, index)).await?;
        let outcomes = self.conduct(self.programs(&view, &plan, next)?).await?;
        let decision = self.decision(&plan, next, &outcomes)?;
        let (id, blocks) = (self.stripe.id, decision.blocks.clone());
        if !self.cluster.meta.off(move |meta| meta.decide(id, &decision, || writing.check())).await? {
            return Err(CoordinatorError::Conflict {
                what: format!("commit of {id}"),
                expected: "the stripe as it was".into(),
                got: "one with other blocks; it is tried again".into(),
            });
        }
        self.settle(next, &blocks).await;
        let across = outcomes.iter().flat_map(|outcome| {
            outcome.sent.iter().filter(|(to, _)| self.topology.across_racks(outcome.node, *to))
        });
        Ok(Committed {
            blocks: self.frozen.len() as u64,
            parities: plan.parities.len() as u64,
            across_racks: across.map(|(_, bytes)| bytes).sum(),
            left: None,
        })
    }

    /// The nodes besides the homes that know what is added to a block.
    fn with_deltas(&self) -> BTreeMap<BlockIndex, Vec<NodeId>> {
        let nodes = |(&index, frozen): (&BlockIndex, &FrozenUpdate)| {
            let logs = self.logs.logs[usize::from(index.0)].iter().skip(1);
            (index, logs.zip(&frozen.same).filter(|(_, same)| **same).map(|(node, _)| *node).collect())
        };
        self.frozen.iter().map(nodes).collect()
    }

    /// Claims the places of all blocks that get new versions: nobody repairs, deletes or replaces them meanwhile unnoticed.
    async fn claim(&self, plan: &UpdatePlan) -> Result<Arc<Writing>> {
        let place = |&index: &BlockIndex| {
            let id = BlockId { stripe: self.stripe.id, index };
            Some((self.stripe.record.block(index)?.node, id))
        };
        let places = self.frozen.keys().chain(&plan.parities).filter_map(place).collect();
        let claimed = self.cluster.claim(places).await?;
        claimed.map(Arc::new).map_err(|Barred((node, id))| CoordinatorError::Conflict {
            what: format!("commit of {}", self.stripe.id),
            expected: "blocks that nobody else writes or deletes".into(),
            got: format!("{id} on {node}, where somebody does; it is tried again"),
        })
    }

    /// A parity that cannot be updated is given up, and repaired later. That must be bearable, and its node must not be one
    /// that is only silent for a moment.
    fn check_left_out(&self, view: &StripeView, plan: &UpdatePlan) -> Result<()> {
        let down = self.cluster.members().down();
        for index in &plan.left_out {
            let block = self.stripe.record.block(*index);
            if let Some(block) = block.filter(|block| !block.lost && !down.contains(&block.node)) {
                return Err(CoordinatorError::Unavailable {
                    node: block.node,
                    reason: format!("it has parity {index} of {}", self.stripe.id),
                });
            }
        }
        let gone = view.homes.iter().enumerate().filter(|(_, home)| home.is_none());
        let lost: Vec<BlockIndex> = gone.map(|(i, _)| BlockIndex(i as u8)).collect();
        if plan.left_out.is_empty() || self.stripe.code.recoverable(&lost) {
            return Ok(());
        }
        Err(CoordinatorError::Conflict {
            what: format!("commit of {}", self.stripe.id),
            expected: "a stripe that can be read".into(),
            got: format!("one without {} of its blocks", lost.len()),
        })
    }

    /// The programs of each graph of the plan.
    fn programs(&self, view: &StripeView, plan: &UpdatePlan, next: u32) -> Result<Vec<Vec<Program>>> {
        let (cluster, expect) = (self.cluster, self.stripe.expect());
        let peers = |node| cluster.data(node);
        let context = ProgramContext {
            job: cluster.new_run(),
            view,
            generation: self.stripe.record.generation,
            generations: &[],
            window: self.window(),
            slice_bytes: 0,
            expect: &expect,
            label: &[],
            peers: &peers,
            resume_key: 0,
        };
        Ok(plan.programs(&context, &self.stripe.generations(), next, &mut || cluster.new_run())?)
    }

    async fn conduct(&self, runs: Vec<Vec<Program>>) -> Result<Vec<RunOutcome>> {
        let cluster = self.cluster;
        let conducted = runs.into_iter().map(async |programs| {
            let control = |node| cluster.control(node);
            cluster.conductor.conduct(programs, &control, None, None, &cluster.stop).await
        });
        let mut outcomes = Vec::new();
        for ended in futures::future::join_all(conducted).await {
            if let Some(fault) = ended.fault {
                if fault.kind == FaultKind::Lost {
                    cluster.members().suspect(fault.node);
                }
                return Err(CoordinatorError::Unavailable { node: fault.node, reason: fault.to_string() });
            }
            outcomes.extend(ended.outcomes);
        }
        Ok(outcomes)
    }

    /// The part of every block that holds all that is dirty. The sub-blocks of a block lie apart: for them all of it.
    fn window(&self) -> (u64, u64) {
        if self.stripe.code.w() > 1 {
            return (0, u64::MAX);
        }
        let ranges = || self.frozen.values().flat_map(|frozen| &frozen.ranges);
        let (from, to) = (ranges().map(|range| range.0).min(), ranges().map(|range| range.1).max());
        (from.unwrap_or(0), to.unwrap_or(u64::MAX))
    }

    /// The new versions, all of which must be durable.
    fn decision(&self, plan: &UpdatePlan, next: u32, outcomes: &[RunOutcome]) -> Result<Decision> {
        let mut blocks: BTreeMap<BlockIndex, Option<DigestBytes>> =
            plan.left_out.iter().map(|index| (*index, None)).collect();
        let written: BTreeMap<BlockId, DigestBytes> = outcomes
            .iter()
            .flat_map(|outcome| &outcome.written)
            .filter(|held| held.generation == next)
            .map(|held| (held.id, held.digest))
            .collect();
        for &index in self.frozen.keys().chain(&plan.parities) {
            let id = BlockId { stripe: self.stripe.id, index };
            let digest = written.get(&id).copied().ok_or_else(|| CoordinatorError::Conflict {
                what: format!("commit of {}", self.stripe.id),
                expected: format!("a durable version {next} of {index}"),
                got: "none".into(),
            })?;
            blocks.insert(index, Some(digest));
        }
        Ok(Decision { from: self.stripe.record.clone(), generation: next, blocks })
    }

    /// Puts the new versions in their places and releases the logs. What fails here is made good later: a block takes its
    /// place when it is asked for, and what is logged is committed once more, which changes nothing.
    async fn settle(&self, next: u32, blocks: &BTreeMap<BlockIndex, Option<DigestBytes>>) {
        let promote = blocks.iter().filter(|(_, digest)| digest.is_some()).map(async |(&index, _)| {
            let node = self.stripe.record.block(index).map(|block| block.node)?;
            let id = BlockId { stripe: self.stripe.id, index };
            let blocks = vec![BlockRef { id, generation: next }];
            let promoted =
                within(self.cluster.agent(node).ok()?.promote_blocks(PromoteBlocks { blocks })).await;
            promoted.inspect_err(|error| tracing::warn!("{id} on {node} waits for its place: {error}")).ok()
        });
        let promoted = futures::future::join_all(promote).await;
        if promoted.iter().any(Option::is_none) {
            // A reader with an older map could find an old version and no log.
            return;
        }
        release(self.cluster, self.stripe.id, self.logs, self.frozen).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_an_address_is_an_error_and_not_left_out() {
        let listens = |node: NodeId| (node.0 != 2).then(|| SocketAddr::from(([127, 0, 0, 1], node.0 as u16)));
        let all = addresses([NodeId(3), NodeId(1)].iter(), listens).unwrap();
        assert_eq!(all.iter().map(SocketAddr::port).collect::<Vec<_>>(), [3, 1]);
        let error = addresses([NodeId(3), NodeId(2), NodeId(1)].iter(), listens).unwrap_err();
        assert!(
            matches!(&error, CoordinatorError::NotFound { what: "node", name } if name == "2"),
            "{error}"
        );
    }
}
