//! Inspects the blocks on the disks themselves; no process notices it.

use std::collections::BTreeMap;
use std::path::Path;

use kintsu_client::{Client, ClientError};
use kintsu_dag::NodeId;
use kintsu_store::{BlockStore, FileStore};

use crate::history::Host;
use crate::stage::{STORE, Stage};

/// Blocks that are not where the metadata say. Except for rot, everything that removes a block is recorded,
/// so there should be none, even before anything reads the blocks.
pub async fn vanished(stage: &Stage, client: &Client) -> Result<Vec<String>, ClientError> {
    let wrong = missing(stage, client).await?;
    Ok(wrong.into_iter().filter(|why| why.ends_with("is not in this store")).collect())
}

/// What is wrong with the blocks of all objects: each must be where the metadata say, complete, and the right
/// one.
pub async fn missing(stage: &Stage, client: &Client) -> Result<Vec<String>, ClientError> {
    let mut wrong = Vec::new();
    let mut stores = BTreeMap::new();
    for object in client.list("", None, 1000).await?.objects {
        for stripe in client.stripes(&object.name, 0, 1000).await?.stripes {
            // A block without a digest was not made yet: it is parity of an object that is encoded later.
            for place in stripe.blocks.iter().flatten().filter(|place| place.digest.is_some()) {
                let store = stores.entry(place.node).or_insert_with(|| store(stage, place.node));
                let found = store.as_ref().map(|store| store.verify(place.id));
                let why = match found {
                    Some(Err(_)) if place.lost => Some("is lost".to_owned()),
                    Some(Ok(meta)) if place.digest.is_none_or(|digest| digest == meta.digest.0) => {
                        place.lost.then(|| "is there, but counts as lost".to_owned())
                    }
                    Some(Ok(_)) => Some("is another block".to_owned()),
                    Some(Err(error)) => Some(error.to_string()),
                    None => Some("its node has no store".to_owned()),
                };
                wrong.extend(
                    why.map(|why| format!("{} of {} on {}: {why}", place.id, object.name, place.node)),
                );
            }
        }
    }
    Ok(wrong)
}

/// The block files on all disks.
pub fn left_over(stage: &Stage) -> Vec<String> {
    let mut left = Vec::new();
    for machine in stage.machines.iter().filter(|machine| machine.host != Host::Coordinator) {
        let files = machine.disk.disk().files();
        let blocks = files.iter().filter(|path| path.starts_with(Path::new(STORE).join("blocks")));
        left.extend(blocks.map(|path| format!("{}:{}", machine.host, path.display())));
    }
    left
}

fn store(stage: &Stage, node: NodeId) -> Option<FileStore> {
    let machine = stage.machine(Host::Node(node.0))?;
    FileStore::open_simulated(&machine.disk.disk().copied(), Path::new(STORE)).ok()
}
