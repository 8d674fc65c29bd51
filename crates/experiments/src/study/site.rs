//! A whole cluster in this process for one experiment, in a folder that is removed after it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use kintsu_client::{Client, GetReport, Options, PutOptions};
use kintsu_cluster::Cluster;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::Method;
use kintsu_wire::message::{JobReport, NodeAction, ObjectView, RepairTarget};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::error::{Context, Result, ensure};
use crate::jobs::finish;

/// The cluster repairs nothing automatically during an experiment.
const GRACE: Duration = Duration::from_secs(1 << 30);

/// Bytes of a page, the unit of disk reads.
const PAGE_BYTES: usize = 4096;

/// Stripes fetched in one call.
const PAGE: u64 = 1000;

/// A running cluster and a client of it.
pub struct Site {
    cluster: Cluster,
    /// The client.
    pub client: Client,
    _dir: TempDir,
}

impl Site {
    /// Starts `nodes` nodes in `racks` racks, in a new folder inside `dir` (by default the system's folder for
    /// temporary files).
    pub async fn start(nodes: u32, racks: u32, dir: Option<&Path>) -> Result<Self> {
        let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let dir = tempfile::Builder::new()
            .prefix("kintsu-lab-")
            .tempdir_in(&parent)
            .with_context(|| format!("expected a folder that can be written, got {}", parent.display()))?;
        let mut options = kintsu_cluster::Options::new(dir.path(), nodes, racks);
        options.coordinator.grace = GRACE;
        let cluster = Cluster::start(options).await?;
        let client = Client::connect(&cluster.endpoint(), Options::default()).await?;
        Ok(Self { cluster, client, _dir: dir })
    }

    /// Ends the cluster and removes its data. If its coordinator had ended by itself, the result is that error.
    pub async fn end<T>(self, outcome: Result<T>) -> Result<T> {
        self.client.close().await;
        let ended = self.cluster.shutdown().await;
        match (outcome, ended) {
            (Err(failed), Err(why)) => Err(why).with_context(|| failed.to_string()),
            (outcome, ended) => outcome.and_then(|done| Ok(ended.map(|()| done)?)),
        }
    }

    /// Stores bytes under a name.
    pub async fn put(&self, name: &str, bytes: Bytes, options: PutOptions) -> Result<()> {
        let code = options.code.clone();
        let put = self.client.put(std::sync::Arc::new(bytes), name, options, |_, _| {});
        put.await.with_context(|| format!("storing with {code}"))?;
        Ok(())
    }

    /// Reads an object, or a range of it; returns the SHA-256 of the bytes, and the report.
    pub async fn get(&self, name: &str, range: Option<std::ops::Range<u64>>) -> Result<(String, GetReport)> {
        let mut bytes = Vec::new();
        let report = self.client.get(name, range, &mut bytes, |_, _| {}).await?;
        Ok((sha256(&bytes), report))
    }

    /// All stripes of an object.
    pub async fn stripes(&self, name: &str) -> Result<ObjectView> {
        let mut view = self.client.stripes(name, 0, PAGE).await?;
        while (view.stripes.len() as u64) < view.object.stripes {
            let more = self.client.stripes(name, view.stripes.len() as u64, PAGE).await?;
            ensure!(!more.stripes.is_empty(), "expected {} stripes, got fewer", view.object.stripes);
            view.stripes.extend(more.stripes);
        }
        Ok(view)
    }

    /// Where the blocks of an object's first stripe are.
    pub async fn homes(&self, name: &str) -> Result<BTreeMap<BlockIndex, NodeId>> {
        let view = self.client.stripes(name, 0, 1).await?;
        let places = view.stripes.first().map(|stripe| &stripe.blocks[..]).unwrap_or_default();
        Ok(places.iter().flatten().map(|place| (place.id.index, place.node)).collect())
    }

    /// Deletes all blocks of a node; the blocks are lost, the node is not.
    pub async fn wipe(&self, node: NodeId) -> Result<()> {
        finish(self.client.command_node(node, NodeAction::Wipe).await?, |_, _| {}).await.map(drop)
    }

    /// Ends a node, or starts it again.
    pub async fn command(&self, node: NodeId, action: NodeAction) -> Result<()> {
        finish(self.client.command_node(node, action).await?, |_, _| {}).await.map(drop)
    }

    /// Repairs all lost blocks of an object or a node; `progress` gets the blocks or bytes done and the total.
    pub async fn repair(
        &self,
        target: RepairTarget,
        method: Method,
        slice_bytes: u32,
        progress: impl FnMut(u64, u64),
    ) -> Result<JobReport> {
        finish(self.client.repair(target, method, slice_bytes).await?, progress).await
    }
}

/// The digest of bytes, in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// `len` bytes of a file without its pages of zeros, which would not be sent and so not be counted. A shorter file
/// is repeated. `None`: this program's own file.
pub fn real_bytes(file: Option<&Path>, len: usize) -> Result<Bytes> {
    let own = std::env::current_exe()?;
    let path = file.unwrap_or(&own);
    let mut opened = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::with_capacity(len);
    let mut page = [0; PAGE_BYTES];
    while bytes.len() < len {
        let read = std::io::Read::read(&mut opened, &mut page)?;
        if read == 0 {
            break;
        }
        if page[..read].iter().any(|&byte| byte != 0) {
            bytes.extend_from_slice(&page[..read]);
        }
    }
    ensure!(
        !bytes.is_empty(),
        "expected a file with bytes other than zero, got only zeros in {}",
        path.display()
    );
    while bytes.len() < len {
        let again = bytes.len().min(len - bytes.len());
        bytes.extend_from_within(..again);
    }
    bytes.truncate(len);
    Ok(bytes.into())
}
