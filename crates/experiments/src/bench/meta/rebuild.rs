//! The coordinator's disk is lost and there is no copy: the metadata are rebuilt from the agents' reports of their
//! blocks. The agents are real and run in this process. Their stores have only the headers of their blocks in
//! memory, so the figures do not include the time in which a disk reads headers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kintsu_agent::{Agent, AgentConfig};
use kintsu_dag::{BlockId, NodeId, RackId};
use kintsu_store::{
    Bad, BlockHead, BlockMeta, BlockRead, BlockStore, BlockWrite, Digest, Generation, Listing,
    QuarantinedFile, Reason, StoreError, UNIT_BYTES, Usage,
};
use kintsu_wire::ClusterId;
use kintsu_wire::message::{CodeLabel, Encoding, Label, Nothing, ObjectLabel};
use serde::Serialize;
use serde_json::json;

use super::{BLOCK_BYTES, CODE, CREATED, Filled, NODES, RACKS, STRIPE_BYTES, digest};
use crate::error::{Context, Result, ensure};

/// A rebuild of the metadata.
#[derive(Debug, Clone, Serialize)]
pub struct RebuildReport {
    /// Blocks that agents reported.
    pub blocks: u64,
    /// Objects that are visible again.
    pub objects: u64,
    /// Time from the start of a coordinator on an empty folder until all objects are visible.
    pub seconds: f64,
    /// Largest resident memory of that coordinator, bytes.
    pub memory_bytes: u64,
}

/// Starts a coordinator on an empty folder and waits until all objects are back.
pub(super) async fn measure(
    dir: &Path,
    cluster: ClusterId,
    filled: Arc<Filled>,
    progress: &mut dyn FnMut(&str),
) -> Result<RebuildReport> {
    progress("rebuilding the metadata from blocks");
    // It answers only after its first agent has registered, so its port is chosen here.
    let listen = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string();
    let started = Instant::now();
    let mut command = super::command(&dir.join("rebuilt"), &listen)?;
    let mut child = command.arg("--rebuild").stdout(std::process::Stdio::null()).spawn()?;
    let pid = child.id().context("the coordinator's process")?;
    let code = kintsu_code::parse(CODE)?;
    let code = CodeLabel::of(code.as_ref(), None);
    let agents = (0..NODES).map(|node| {
        let own = Inventory { node, cluster, code: code.clone(), filled: filled.clone() };
        agent(dir.join(format!("node-{node}")), listen.clone(), own)
    });
    let agents = futures::future::try_join_all(agents).await?;
    let mut coordinator = kintsu_wire::connect_coordinator(&listen, &kintsu_wire::Credentials::none())?;
    let (all, status) = loop {
        let status = coordinator.operation.rebuild(Nothing {}).await?.into_inner();
        progress(&format!("objects back: {} of {}", status.shown, filled.objects.len()));
        ensure!(
            status.incomplete == 0,
            "{} objects are incomplete: {:?}",
            status.incomplete,
            status.first_incomplete
        );
        if status.shown == filled.objects.len() as u64 {
            break (started.elapsed(), status);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let memory_bytes = super::memory(pid, "VmHWM")?;
    let totals = coordinator.operation.status(Nothing {}).await?.into_inner();
    let (stripes, degraded) = (totals.stripes, totals.degraded_stripes);
    let expected = filled.stripes.len() as u64;
    ensure!(
        (stripes, degraded) == (expected, 0),
        "expected {expected} whole stripes, got {stripes}, {degraded} degraded"
    );
    child.kill().await?;
    for agent in &agents {
        agent.shutdown().await;
    }
    Ok(RebuildReport {
        blocks: status.blocks,
        objects: status.shown,
        seconds: all.as_secs_f64(),
        memory_bytes,
    })
}

async fn agent(dir: PathBuf, coordinator: String, own: Inventory) -> Result<kintsu_agent::AgentHandle> {
    std::fs::create_dir_all(&dir)?;
    let identity = json!({
        "folder": kintsu_wire::FolderId([own.node as u8; 16]),
        "node": own.node,
        "cluster": own.cluster,
        "seen": null,
    });
    std::fs::write(dir.join("node.json"), identity.to_string())?;
    let rack = RackId(own.node % RACKS);
    let config = AgentConfig { node: Some(NodeId(own.node)), rack, ..AgentConfig::new(dir, coordinator) };
    Ok(Agent::start_on(config, move |_| Ok(Arc::new(own))).await?)
}

/// The blocks of a node as headers without bytes. It refuses every change.
struct Inventory {
    node: u32,
    cluster: ClusterId,
    code: CodeLabel,
    filled: Arc<Filled>,
}

impl Inventory {
    fn label(&self, stripe: &super::Stripe) -> Vec<u8> {
        let object = &self.filled.objects[stripe.object as usize];
        let label = Label {
            cluster: self.cluster,
            object: ObjectLabel {
                id: object.id,
                name: object.name.clone(),
                size: Some(object.stripes * STRIPE_BYTES),
                created: CREATED,
                encoding: Encoding::Online,
                code: self.code.clone(),
                attributes: Default::default(),
                members: Vec::new(),
            },
            offset: u64::from(stripe.number) * STRIPE_BYTES,
            layout: stripe.layout,
            homes: stripe.homes.iter().map(|home| Some(NodeId(u32::from(*home)))).collect(),
        };
        label.pack()
    }
}

fn meta(id: BlockId) -> BlockMeta {
    let (generation, digest) = (Generation(1), Digest(digest(id)));
    BlockMeta { id, generation, len: BLOCK_BYTES, unit_bytes: UNIT_BYTES as u32, digest }
}

fn refused<T>() -> Result<T, StoreError> {
    let source = std::io::Error::other("a store of headers has no bytes and is never written");
    Err(StoreError::Io { path: PathBuf::new(), source })
}

impl BlockStore for Inventory {
    fn open(&self, _: BlockId, _: Generation) -> Result<Box<dyn BlockRead>, StoreError> {
        refused()
    }

    fn create(
        &self,
        _: BlockId,
        _: Generation,
        _: u64,
        _: u32,
        _: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        refused()
    }

    fn create_next(
        &self,
        _: BlockId,
        _: Generation,
        _: u64,
        _: u32,
        _: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        refused()
    }

    fn log(&self) -> Result<std::sync::Arc<kintsu_store::AppendLog>, StoreError> {
        refused()
    }

    fn promote(&self, _: BlockId, _: Generation) -> Result<BlockMeta, StoreError> {
        refused()
    }

    fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError> {
        Ok(Vec::new())
    }

    fn discard_next(&self, _: BlockId, _: Generation) -> Result<bool, StoreError> {
        refused()
    }

    fn delete(&self, _: BlockId, _: Option<Generation>) -> Result<bool, StoreError> {
        refused()
    }

    fn look(&self, id: BlockId) -> Result<BlockHead, StoreError> {
        let stripes = &self.filled.stripes;
        let at = stripes.binary_search_by_key(&id.stripe, |stripe| stripe.id);
        let stripe = at.ok().map(|at| &stripes[at]).filter(|stripe| stripe.on(self.node) == Some(id));
        let stripe = stripe.ok_or(StoreError::NotFound { id })?;
        Ok(BlockHead { meta: meta(id), label: self.label(stripe) })
    }

    fn ids(&self) -> Result<Vec<BlockId>, StoreError> {
        Ok(self.filled.on(self.node).collect())
    }

    fn list(&self) -> Result<Listing, StoreError> {
        Ok(Listing { blocks: self.filled.on(self.node).map(meta).collect(), damaged: Vec::new() })
    }

    fn verify(&self, _: BlockId) -> Result<BlockMeta, StoreError> {
        refused()
    }

    fn check(&self, _: BlockId, _: u64) -> Result<BlockMeta, Bad> {
        Ok(refused()?)
    }

    fn set_aside(&self, _: BlockId, _: Reason, _: u64) -> Result<String, StoreError> {
        refused()
    }

    fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError> {
        Ok(Vec::new())
    }

    fn take_back(&self, _: &str) -> Result<BlockMeta, StoreError> {
        refused()
    }

    fn purge(&self, _: u64) -> Result<u64, StoreError> {
        refused()
    }

    fn purge_one(&self, _: &str) -> Result<(), StoreError> {
        refused()
    }

    fn wipe(&self) -> Result<u64, StoreError> {
        refused()
    }

    fn check_root(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn path(&self, _: BlockId) -> PathBuf {
        PathBuf::new()
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        refused()
    }
}
