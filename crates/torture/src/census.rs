//! Inspects the blocks on the disks themselves; no process notices it.

use std::collections::BTreeMap;
use std::path::Path;

use kintsu_client::{Client, ClientError};
use kintsu_dag::NodeId;
use kintsu_store::{BlockStore, FileStore, Generation};

use kintsu_wire::message::ObjectInfo;

use crate::history::Host;
use crate::stage::{STORE, Stage};

/// Names of the objects that are stripes of volumes begin like this.
const STRIPES: &str = ".volume/";

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
    for object in objects(client).await? {
        for stripe in client.stripes(&object.name, 0, 1000).await?.stripes {
            // A block without a digest was not made yet: it is parity of an object that is encoded later.
            for place in stripe.blocks.iter().flatten().filter(|place| place.digest.is_some()) {
                let store = stores.entry(place.node).or_insert_with(|| store(stage, place.node));
                let generation = Generation(place.generation.unwrap_or(stripe.generation));
                // A version that a commit has decided takes its place when somebody asks for it.
                let look =
                    |store: &FileStore| store.open(place.id, generation).and_then(|_| store.verify(place.id));
                let found = store.as_ref().map(look);
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

/// All objects, those that are stripes of volumes too.
async fn objects(client: &Client) -> Result<Vec<ObjectInfo>, ClientError> {
    let mut all = client.list("", None, 1000).await?.objects;
    all.extend(client.list(STRIPES, None, 1000).await?.objects);
    Ok(all)
}

/// What is logged on the disks of all nodes for blocks of volumes.
pub fn logged(stage: &Stage) -> Vec<String> {
    let mut all = Vec::new();
    for machine in &stage.machines {
        let Host::Node(node) = machine.host else { continue };
        let Some(store) = store(stage, NodeId(node)) else { continue };
        match store.log() {
            Ok(log) => all.extend(log.pending().iter().map(|pending| format!("node{node}: {pending:?}"))),
            Err(error) => all.push(format!("node{node}: {error}")),
        }
    }
    all
}

/// Stripes of volumes whose parity does not follow from their data, as they are on the disks.
///
/// # Errors
/// A block cannot be read.
pub async fn unequal(stage: &Stage, client: &Client) -> Result<Vec<String>, String> {
    let mut wrong = Vec::new();
    for object in client.list(STRIPES, None, 1000).await.map_err(|e| e.to_string())?.objects {
        let view = client.stripes(&object.name, 0, 1).await.map_err(|e| e.to_string())?;
        for stripe in view.stripes {
            let code = kintsu_code::parse(&stripe.code).map_err(|e| e.to_string())?;
            let mut blocks = Vec::new();
            for (place, generation) in stripe.blocks.iter().flatten().zip(stripe.generations()) {
                let store = store(stage, place.node).ok_or("a node has no store")?;
                let mut bytes = vec![0; stripe.layout.block_bytes as usize];
                let open = store.open(place.id, Generation(generation));
                let read = open.and_then(|mut block| block.read_at(0, &mut bytes));
                read.map_err(|error| format!("{} of {}: {error}", place.id, object.name))?;
                blocks.push(bytes);
            }
            for (index, parity) in blocks.iter().enumerate().skip(code.k()) {
                let mut expected = vec![0; parity.len()];
                for (data, coef) in blocks.iter().zip(code.generator().row(index)) {
                    kintsu_algebra::add_scaled(&mut expected, data, *coef);
                }
                if expected != *parity {
                    wrong.push(format!("{}.{index} of {}", stripe.id, object.name));
                }
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
