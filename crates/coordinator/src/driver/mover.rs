//! Moves one block from a node to another, as it is: reads, plans, copies and commits, as [`crate::engine::drain::Move`] decides.

use std::sync::{Arc, Mutex};

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{StripeView, copy};
use kintsu_store::file_bytes;
use kintsu_wire::message::BlockRef;

use super::doubts::doubt;
use super::run::{ReadyPlan, run};
use super::ticks::repair_now;
use super::volumes::carry;
use crate::cluster::{Cluster, lock};
use crate::engine::drain::{Found, Move, Ran, Takers};
use crate::engine::repair::Tally;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, Snapshot};

/// Moves a block from one node to another that `takers` choose, or leaves it where it is if they choose that.
///
/// # Errors
/// Nobody takes it; it cannot be read; the disk fails.
pub async fn move_block<T: Takers>(
    cluster: &Arc<Cluster>,
    id: BlockId,
    from: NodeId,
    takers: &Arc<Mutex<T>>,
    tally: &mut Tally,
) -> Result<()> {
    let slot = cluster.slots.clone().acquire_owned().await;
    let _slot = slot.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let mut block = Move::new(id, from);
    while block.begins() {
        let Some((stripe, mut label)) = cluster.load(id.stripe).await? else { return Ok(()) };
        let view = match block.read(Some(&stripe)) {
            Found::Settled => return Ok(()),
            Found::Lost => {
                repair_now(cluster, vec![id], None);
                return Err(conflict(from, "a block that is lost; it is being repaired".into()));
            }
            Found::Copy(view) => view,
        };
        // As its node counts it.
        let bytes = file_bytes(view.block_len(id.index), view.layout.unit_bytes(), label.pack().len())
            .map_err(|e| CoordinatorError::Storage(e.to_string()))?;
        let (worker, machine, given) = (cluster.clone(), block.clone(), takers.clone());
        let planning = move |meta: &Meta| {
            let to = target(&worker, &meta.snapshot()?, &machine, (&view, bytes), &*given)?;
            if to == from {
                return Ok(None);
            }
            let plan = copy(&view, id.index, to)?;
            Ok(Some((view, to, plan)))
        };
        let Some((view, to, plan)) = cluster.meta.off(planning).await? else { return Ok(()) };
        // The claim is held until the block has its new home, or what was written is recorded as garbage.
        let Ok(writing) = cluster.claim(vec![(to, id)]).await? else {
            block.refused(to);
            lock(takers).took_back(from, to, bytes);
            tokio::time::sleep(cluster.config.heartbeat / 2).await;
            continue;
        };
        if let Some(home) = label.homes.get_mut(usize::from(id.index.0)) {
            *home = Some(to);
        }
        let (label, expect, generation) = (label.pack(), stripe.expect(), stripe.record.generation);
        let generations = stripe.generations();
        let job = ReadyPlan {
            generations: &generations,
            expect: &expect,
            label: &label,
            ..ReadyPlan::of(&plan, &view)
        };
        let (programs, conducted) = run(cluster, job).await?;
        tally.attempt(&programs, &conducted.outcomes);
        match block.ran(&stripe, to, &conducted.outcomes, conducted.fault.as_ref()) {
            Ran::Landed(landing) => {
                let changed = carry(cluster, id.stripe, &[landing]).await?;
                let carried = changed.as_ref().map(|changed| changed.relogged.clone());
                let land = move |meta: &Meta| {
                    let (landings, check) = ([landing], || writing.check());
                    let moved =
                        meta.rehome_logged(id.stripe, generation, &landings, carried.as_ref(), check)?;
                    Ok((moved, writing))
                };
                let (moved, _writing) = cluster.meta.off(land).await?;
                cluster.sweep.notify_one();
                if !moved.is_empty() {
                    tally.blocks += moved.len() as u64;
                    return Ok(());
                }
                // The copy is of another version than the block has by now, or the block is elsewhere.
                block.changed();
                lock(takers).took_back(from, to, bytes);
            }
            Ran::Again { doubt: bad, wait } => {
                lock(takers).took_back(from, to, bytes);
                let rubble = (to, BlockRef { id, generation: stripe.record.generation_of(id.index) });
                cluster.meta.off(move |meta| meta.trash(&[rubble])).await?;
                if let Some(bad) = bad {
                    doubt(cluster, bad).await?;
                }
                if wait {
                    tokio::time::sleep(cluster.config.heartbeat / 2).await;
                }
            }
        }
    }
    Err(conflict(from, block.gave_up()))
}

/// Chooses a node for the block, whose file has so many bytes. Blocking.
fn target<T: Takers>(
    cluster: &Cluster,
    snapshot: &Snapshot,
    block: &Move,
    (view, bytes): (&StripeView, u64),
    takers: &Mutex<T>,
) -> Result<NodeId> {
    let sweeping = cluster.sweeping(snapshot, view.id)?;
    let (topology, _) = cluster.nodes();
    Ok(block.target(view, bytes, topology, &sweeping, &mut *lock(takers))?)
}

fn conflict(node: NodeId, got: String) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: format!("moving a block from {node}"),
        expected: "a block that can be read and a node that takes it".into(),
        got,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::volume_commit::commit_held;
    use crate::live::Live;
    use crate::meta::volumes::stripe_name;
    use kintsu_client::VolumeAccess;
    use kintsu_dag::BlockIndex;
    use kintsu_plan::Topology;
    use kintsu_plan::update::Scheme;
    use kintsu_wire::message::{CreateVolume, Durability};

    /// What was given, with its bytes.
    #[derive(Default)]
    struct Given(Vec<(NodeId, NodeId, u64)>);

    impl Takers for Given {
        fn offer(&self, topology: &mut Topology, from: NodeId, _: u64) {
            topology.nodes.entry(from).and_modify(|node| node.usable = false);
        }

        fn rank(&self, _: NodeId) -> u64 {
            0
        }

        fn gave(&mut self, from: NodeId, to: NodeId, bytes: u64) {
            self.0.push((from, to, bytes));
        }

        fn took_back(&mut self, _: NodeId, _: NodeId, _: u64) {}
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_counts_with_the_bytes_of_its_file_as_nodes_count_it() {
        // Nothing is deleted here, so each move needs one more node.
        let live = Live::start(7).await;
        let (stripe, record) = live.put("a").await;
        for index in [0, 1, 3] {
            let id = BlockId { stripe, index: BlockIndex(index) };
            let from = record.block(id.index).unwrap().node;
            let before = std::fs::metadata(live.file(from, stripe, index)).unwrap().len();
            let given = Arc::new(Mutex::new(Given::default()));
            move_block(&live.cluster, id, from, &given, &mut Tally::default()).await.unwrap();
            let to = live.stripe("a").1.block(id.index).unwrap().node;
            assert_eq!(lock(&given).0, [(from, to, before)]);
            assert_eq!(std::fs::metadata(live.file(to, stripe, index)).unwrap().len(), before);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_parity_that_a_commit_changes_while_it_is_copied_is_copied_again() {
        let live = Live::start(7).await;
        let wanted = CreateVolume {
            name: "disk".into(),
            size: 1 << 20,
            code: "rs:n=4,k=2".into(),
            block_bytes: 64 << 10,
            durability: Durability::Rack,
            scheme: None,
        };
        let volume = live.client.create_volume(&wanted).await.unwrap().id;
        let disk = live.client.open_volume("disk", VolumeAccess::Write).await.unwrap();
        disk.write(0, vec![1; 128 << 10].into()).await.unwrap();
        disk.write(5, vec![2; 1000].into()).await.unwrap();
        let name = stripe_name(volume, 0);
        let (stripe, record) = live.stripe(&name);
        let id = BlockId { stripe, index: BlockIndex(3) };
        let before = *record.block(id.index).unwrap();
        let (worker, given) = (live.cluster.clone(), Arc::new(Mutex::new(Given::default())));
        let turn = live.cluster.turns.of(stripe).await;
        let takers = given.clone();
        let moving = tokio::spawn(async move {
            move_block(&worker, id, before.node, &takers, &mut Tally::default()).await
        });
        let copied =
            |_: &Cluster| lock(&given).0.first().is_some_and(|(_, to, _)| live.file(*to, stripe, 3).exists());
        live.until("the parity is copied, and waits for its turn", copied).await;
        commit_held(&live.cluster, volume, 0, Scheme::default(), None).await.unwrap();
        drop(turn);
        moving.await.unwrap().unwrap();
        let after = *live.stripe(&name).1.block(id.index).unwrap();
        assert!(after.generation > before.generation && after.node != before.node, "{after:?}");
        assert_eq!(lock(&given).0.len(), 2);
        disk.close().await.unwrap();
    }
}
