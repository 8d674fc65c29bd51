//! Claims on places ([`crate::places`]) that end by themselves: guards for the driver.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::ambient::{Mended, is_back};
use kintsu_wire::message::BlockRef;

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;
use crate::places::Place;

/// Places that are being written to, until this is dropped.
pub struct Writing {
    cluster: Arc<Cluster>,
    places: Vec<Place>,
    wipes: BTreeMap<NodeId, u64>,
}

/// Places whose files are being deleted, until this is dropped.
pub struct Sweeping {
    cluster: Arc<Cluster>,
    places: Vec<Place>,
}

/// Nobody may write there now: a file of that block is still to be deleted, or the node is being wiped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barred(pub Place);

impl Cluster {
    /// Claims places for writing. What agents report to hold there is not garbage, and is not swept.
    ///
    /// # Errors
    /// The disk fails. `Ok(Err(place))`: that one cannot be written to now, and none is claimed.
    pub async fn claim(self: &Arc<Self>, places: Vec<Place>) -> Result<Result<Writing, Barred>> {
        let writing = {
            let members = self.members();
            if let Some(barred) = places.iter().find(|(node, _)| members.wiping(*node)) {
                return Ok(Err(Barred(*barred)));
            }
            let mut claims = self.places();
            if let Err(place) = claims.write(&places)
                && !is_back(Mended::DeletesUnfenced)
            {
                return Ok(Err(Barred(place)));
            }
            let wipes = places.iter().map(|(node, _)| (*node, claims.wipes(*node))).collect();
            drop(claims);
            Writing { cluster: self.clone(), places: places.clone(), wipes }
        };
        // A sweep that came before may have been given up while its node went on deleting: then the row is still there.
        let row = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            for place in places.into_iter().filter(|_| !is_back(Mended::DeletesUnfenced)) {
                if snapshot.is_garbage(place.0, place.1)? {
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

    /// At most `limit` files of a node that nobody needs, claimed for sweeping. Files at places that are being
    /// written to are left out, and those in `without`.
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
                if is_back(Mended::DeletesUnfenced) {
                    let files = meta.snapshot()?.garbage_but(node, limit, &without)?;
                    return Ok((files, Sweeping { cluster: cluster.clone(), places: Vec::new() }));
                }
                without.extend(cluster.written_to(node));
                let mut files = meta.snapshot()?.garbage_but(node, limit, &without)?;
                let places = cluster.places().sweep(files.iter().map(|file| (node, file.id)));
                let claimed: HashSet<Place> = places.iter().copied().collect();
                let sweeping = Sweeping { cluster: cluster.clone(), places };
                files.retain(|file| claimed.contains(&(node, file.id)));
                // Between the look and the claim somebody may have written and committed there.
                let files = meta.snapshot()?.still_garbage(node, &files)?;
                Ok((files, sweeping))
            })
            .await
    }

    /// The blocks that are being written to a node.
    pub fn written_to(&self, node: NodeId) -> HashSet<BlockId> {
        self.places().written_to(node)
    }
}

impl Writing {
    /// Fails when a node was wiped since the claim was taken: what was written there may be gone.
    ///
    /// # Errors
    /// Such a node.
    pub fn check(&self) -> Result<()> {
        let claims = self.cluster.places();
        match self.wipes.iter().find(|(node, count)| claims.wipes(**node) != **count) {
            None => Ok(()),
            Some((node, _)) => Err(CoordinatorError::Conflict {
                what: format!("new blocks on {node}"),
                expected: "a node that keeps what is written to it".into(),
                got: "one that was wiped meanwhile".into(),
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
