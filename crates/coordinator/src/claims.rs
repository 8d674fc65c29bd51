//! Claims on places ([`crate::engine::places`]) as guards for the driver: a claim ends when its guard is dropped.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::BlockRef;

use crate::cluster::Cluster;
use crate::engine::places::Place;
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// Places that are being written to, until this is dropped.
pub struct Writing {
    cluster: Arc<Cluster>,
    places: Vec<Place>,
    wipes: BTreeMap<NodeId, u64>,
}

/// Places whose files are being deleted or set aside, until this is dropped.
pub struct Sweeping {
    cluster: Arc<Cluster>,
    places: Vec<Place>,
}

/// A place where nobody may write now: a file of that block is still to be deleted or set aside, the node is being
/// wiped, or it is to be emptied and is not the home of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barred(pub Place);

impl Cluster {
    /// Claims places for writing. Blocks that agents report there do not become garbage and are not swept.
    ///
    /// # Errors
    /// The disk fails. `Ok(Err(place))`: this place cannot be written to now, and no place is claimed.
    pub async fn claim(self: &Arc<Self>, places: Vec<Place>) -> Result<Result<Writing, Barred>> {
        let (writing, emptied) = {
            let members = self.members();
            if let Some(barred) = places.iter().find(|(node, _)| members.wiping(*node)) {
                return Ok(Err(Barred(*barred)));
            }
            let mut claims = self.places();
            if let Err(place) = claims.write(&places)
                && !is_back(FixedFault::DeletesUnfenced)
            {
                return Ok(Err(Barred(place)));
            }
            let wipes = places.iter().map(|(node, _)| (*node, claims.wipes(*node))).collect();
            drop(claims);
            // From the order of a drain on, nobody who had chosen the node before brings it a block. A drain waits for the
            // claims of before.
            let emptied = |node: &NodeId| members.node(*node).is_some_and(|m| m.record.draining);
            let emptied: Vec<NodeId> = places.iter().map(|(node, _)| *node).filter(emptied).collect();
            (Writing { cluster: self.clone(), places: places.clone(), wipes }, emptied)
        };
        // An earlier sweep may have been abandoned while its node went on deleting: then the garbage row still
        // exists.
        let row = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            for place in places {
                let garbage =
                    !is_back(FixedFault::DeletesUnfenced) && snapshot.is_garbage(place.0, place.1)?;
                if garbage || (emptied.contains(&place.0) && !snapshot.is_placed(place.0, place.1)?) {
                    return Ok(Some(place));
                }
            }
            Ok(None)
        };
        Ok(match self.meta.off(row).await? {
            Some(place) => Err(Barred(place)),
            None => Ok(writing),
        })
    }

    /// Claims at most `limit` garbage files of a node for sweeping, and returns them. Files in `without` and files
    /// at places that are being written to are left out.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn claim_garbage(
        self: &Arc<Self>,
        node: NodeId,
        limit: usize,
        without: HashSet<BlockId>,
    ) -> Result<(Vec<BlockRef>, Sweeping)> {
        let cluster = self.clone();
        self.meta
            .off(move |meta| {
                let mut without = without;
                if is_back(FixedFault::DeletesUnfenced) {
                    let files = meta.snapshot()?.garbage_but(node, limit, &without)?;
                    return Ok((files, Sweeping { cluster: cluster.clone(), places: Vec::new() }));
                }
                without.extend(cluster.written_to(node));
                let files = meta.snapshot()?.garbage_but(node, limit, &without)?;
                let (files, sweeping) = cluster.claim_files(node, files);
                // Between the first look and the claim, somebody may have written and committed there.
                let files = meta.snapshot()?.still_garbage(node, &files)?;
                Ok((files, sweeping))
            })
            .await
    }

    /// Claims those of these files of a node that are unknown, so that they can be set aside, and returns them.
    /// Files at places that are being written to are left out.
    ///
    /// # Errors
    /// The disk fails.
    pub async fn claim_unknown(
        self: &Arc<Self>,
        node: NodeId,
        files: Vec<BlockRef>,
    ) -> Result<(Vec<BlockRef>, Sweeping)> {
        let cluster = self.clone();
        self.meta
            .off(move |meta| {
                let (files, sweeping) = cluster.claim_files(node, files);
                Ok((meta.snapshot()?.unknown(node, &files)?, sweeping))
            })
            .await
    }

    /// Claims for sweeping those of these files that are not claimed yet.
    fn claim_files(self: &Arc<Self>, node: NodeId, mut files: Vec<BlockRef>) -> (Vec<BlockRef>, Sweeping) {
        let places = self.places().sweep(files.iter().map(|file| (node, file.id)));
        let claimed: HashSet<Place> = places.iter().copied().collect();
        files.retain(|file| claimed.contains(&(node, file.id)));
        (files, Sweeping { cluster: self.clone(), places })
    }

    /// The blocks that are being written to a node.
    pub fn written_to(&self, node: NodeId) -> HashSet<BlockId> {
        self.places().written_to(node).into_iter().collect()
    }
}

impl Writing {
    /// Fails if a node was wiped or forgotten, or got another folder, since the claim was taken: what was written there may
    /// be gone.
    ///
    /// # Errors
    /// `Conflict`, which names the node.
    pub fn check(&self) -> Result<()> {
        let claims = self.cluster.places();
        match self.wipes.iter().find(|(node, count)| claims.wipes(**node) != **count) {
            None => Ok(()),
            Some((node, _)) => Err(CoordinatorError::Conflict {
                what: format!("new blocks on {node}"),
                expected: "a node that keeps what is written to it".into(),
                got: "one that was wiped, replaced or forgotten meanwhile".into(),
            }),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.cluster.places().written(&self.places);
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        self.cluster.places().swept(&self.places);
    }
}
