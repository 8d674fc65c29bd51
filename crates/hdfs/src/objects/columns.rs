//! The files of an object while they are written: block after block, each on a DataNode that was chosen.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, NodeId, Sink, StripeId};
use kintsu_plan::{BlockBinding, Layout, Plan, StripeView};
use kintsu_runtime::{BlockSink, BlockSource, Local, Output};
use kintsu_store::Digest;
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};
use tokio_util::sync::CancellationToken;

use super::object::column;
use crate::blocks::run_on;
use crate::changes::Open;
use crate::digest::Running;
use crate::proto::changes::Mode;
use crate::proto::names::{DatanodeInfo, ExtendedBlock, LocatedBlock};
use crate::status::name;
use crate::transfer::{BlockWriter, UNIT_BYTES};
use crate::vigil::address;
use crate::{HdfsError, NameNode, transfer_address};

/// Pause between two calls that keep leases. HDFS lets others have a file after a minute without.
const RENEWED: Duration = Duration::from_secs(15);

/// How often a stripe is written to other DataNodes before the write fails.
const MOST_TRIES: usize = 5;

/// Files of one index each that are being written, of one version of an object.
pub(crate) struct Columns {
    pub folder: String,
    pub version: String,
    client: String,
    mode: Mode,
    block_bytes: u64,
    files: BTreeMap<BlockIndex, (Open, Option<ExtendedBlock>)>,
    /// DataNodes by UUID that did not take blocks.
    pub bad: BTreeSet<String>,
    _lease: Lease,
}

/// Keeps the leases of a client until it is dropped.
struct Lease(CancellationToken);

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A new number for a version, and for what else must be new.
///
/// # Errors
/// `Io` without random numbers.
pub(crate) fn drawn() -> Result<u64, HdfsError> {
    getrandom::u64().map_err(|e| HdfsError::io("random numbers", std::io::Error::other(e.to_string())))
}

impl Columns {
    /// Nothing is written yet.
    ///
    /// # Errors
    /// `Io` without random numbers.
    pub(crate) fn new(
        namenode: &Arc<NameNode>,
        folder: &str,
        mode: Mode,
        block_bytes: u64,
    ) -> Result<Self, HdfsError> {
        let version = format!("{:016x}", drawn()?);
        let client = format!("kintsu-{version}");
        let (ended, calls, holder) = (CancellationToken::new(), namenode.clone(), client.clone());
        let lease = Lease(ended.clone());
        tokio::spawn(async move {
            while ended.run_until_cancelled(tokio::time::sleep(RENEWED)).await.is_some() {
                if let Err(error) = calls.renew_lease(&holder).await {
                    tracing::warn!("keeping leases: {error}");
                }
            }
        });
        let (files, bad) = (BTreeMap::new(), BTreeSet::new());
        let folder = folder.to_owned();
        Ok(Self { folder, version, client, mode, block_bytes, files, bad, _lease: lease })
    }

    /// Writes what `plan` persists of a stripe, one block after the last one of each file. `choose` gives the DataNodes, without those
    /// that failed before; `open` what is loaded. Returns the digests of the written blocks.
    ///
    /// # Errors
    /// `Run` for what cannot be read; the last failure when DataNodes do not take the blocks; those of calls and of `choose`.
    pub(crate) async fn write(
        &mut self,
        namenode: &NameNode,
        (plan, view): (&Plan, &StripeView),
        choose: &Choice<'_>,
        open: &Arc<Opens>,
    ) -> Result<BTreeMap<BlockIndex, Digest>, HdfsError> {
        let mut tries = 0;
        loop {
            let homes = choose(namenode.live_datanodes().await?, &self.bad)?;
            let begun = self.begin(namenode, &homes, &view.layout, view.code.k()).await?;
            let failed = match begun {
                Ok(added) => {
                    let targets: BTreeMap<_, _> = added.into_iter().collect();
                    let (stripe, open, digests) = (view.id, open.clone(), Arc::default());
                    let written = Arc::new(Writing { stripe, open, targets, digests });
                    match run_on(plan, view, written.clone(), (0, u64::MAX)).await {
                        Ok(()) => {
                            for (index, block) in &written.targets {
                                if let Some((_, last)) = self.files.get_mut(index) {
                                    *last = Some(block.block.clone());
                                }
                            }
                            let digests = written.digests.lock().unwrap_or_else(PoisonError::into_inner);
                            return Ok(digests.clone());
                        }
                        Err(error) => {
                            for (index, block) in &written.targets {
                                self.abandon(namenode, *index, &block.block).await;
                            }
                            let at = match &error {
                                HdfsError::Run(fault) => fault.block.map(|block| block.index),
                                _ => None,
                            };
                            (at.filter(|index| written.targets.contains_key(index)), error)
                        }
                    }
                }
                Err(refused) => refused,
            };
            tries += 1;
            let (at, error) = failed;
            match at.and_then(|index| homes.get(&index)).filter(|_| tries < MOST_TRIES) {
                Some(datanode) => {
                    tracing::info!("without DataNode {}: {error}", name(datanode));
                    self.bad.insert(datanode.id.uuid.clone());
                }
                None => return Err(error),
            }
        }
    }

    /// Adds a block to each file; the inner error says which one did not get the DataNode that it should have.
    #[allow(clippy::type_complexity, reason = "it is taken apart at once")]
    async fn begin(
        &mut self,
        namenode: &NameNode,
        homes: &BTreeMap<BlockIndex, DatanodeInfo>,
        layout: &Layout,
        k: usize,
    ) -> Result<Result<Vec<(BlockIndex, LocatedBlock)>, (Option<BlockIndex>, HdfsError)>, HdfsError> {
        let mut added: Vec<(BlockIndex, LocatedBlock)> = Vec::new();
        for (&index, home) in homes {
            match self.add(namenode, index, home).await {
                Ok(mut block) => {
                    block.block.bytes = Some(layout.block_len(k, index));
                    let there = block.locations.first().map(|node| node.id.uuid.clone());
                    let right = there.as_ref() == Some(&home.id.uuid);
                    added.push((index, block));
                    if right {
                        continue;
                    }
                    let error = HdfsError::NotHandedOver {
                        what: column(&self.folder, &self.version, usize::from(index.0)),
                        message: format!("the NameNode gave no block on {}", name(home)),
                    };
                    self.abandon_all(namenode, &added).await;
                    return Ok(Err((Some(index), error)));
                }
                Err(error) => {
                    self.abandon_all(namenode, &added).await;
                    return Err(error);
                }
            }
        }
        Ok(Ok(added))
    }

    async fn add(
        &mut self,
        namenode: &NameNode,
        index: BlockIndex,
        home: &DatanodeInfo,
    ) -> Result<LocatedBlock, HdfsError> {
        if !self.files.contains_key(&index) {
            let path = column(&self.folder, &self.version, usize::from(index.0));
            let file = namenode.create(&path, &self.client, self.mode, 1, self.block_bytes).await?;
            self.files.insert(index, (file, None));
        }
        let Some((file, last)) = self.files.get(&index) else {
            return Err(HdfsError::NotFound(column(&self.folder, &self.version, usize::from(index.0))));
        };
        namenode.add_block(file, last.as_ref(), vec![address(home)], Vec::new()).await
    }

    async fn abandon_all(&self, namenode: &NameNode, added: &[(BlockIndex, LocatedBlock)]) {
        for (index, block) in added {
            self.abandon(namenode, *index, &block.block).await;
        }
    }

    async fn abandon(&self, namenode: &NameNode, index: BlockIndex, block: &ExtendedBlock) {
        let Some((file, _)) = self.files.get(&index) else { return };
        if let Err(error) = namenode.abandon_block(file, block.clone()).await {
            tracing::info!("giving up a block: {error}");
        }
    }

    /// Ends all files.
    ///
    /// # Errors
    /// Those of calls.
    pub(crate) async fn complete(&self, namenode: &NameNode) -> Result<(), HdfsError> {
        for (file, last) in self.files.values() {
            namenode.complete(file, last.clone()).await?;
        }
        Ok(())
    }

    /// The files that were begun.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.files.values().map(|(file, _)| file.path.clone()).collect()
    }

    /// Removes all files: they are of this version, which nobody else knows.
    pub(crate) async fn remove(&self, namenode: &NameNode) {
        for (file, _) in self.files.values() {
            if let Err(error) = namenode.delete(&file.path).await {
                tracing::warn!("{} stays: {error}", file.path);
            }
        }
    }

    /// Writes a small file with these replicas.
    ///
    /// # Errors
    /// `Datanode` when a DataNode fails; those of calls.
    pub(crate) async fn write_small(
        &self,
        namenode: &NameNode,
        path: &str,
        bytes: Vec<u8>,
        replicas: Vec<DatanodeInfo>,
    ) -> Result<(), HdfsError> {
        let block_bytes = (bytes.len() as u64).next_multiple_of(1 << 20);
        let count = replicas.len() as u32;
        let file = namenode.create(path, &self.client, self.mode, count, block_bytes).await?;
        let favored = replicas.iter().map(address).collect();
        let added = namenode.add_block(&file, None, favored, Vec::new()).await?;
        let mut block = added.block.clone();
        block.bytes = Some(bytes.len() as u64);
        let last = block.clone();
        let writing = tokio::task::spawn_blocking(move || {
            let nobody = || HdfsError::NotFound("a DataNode for a record".into());
            let (first, behind) = added.locations.split_first().ok_or_else(nobody)?;
            let token = added.token.given();
            let at = transfer_address(first)?;
            let mut writer = BlockWriter::begin(at, behind, &block, UNIT_BYTES, token, false)?;
            writer.write(&bytes)?;
            writer.finish()
        });
        writing.await.map_err(|e| HdfsError::io("writing a record", e.into()))??;
        namenode.complete(&file, Some(last)).await
    }
}

/// Gives the DataNode of each block that is written, of those that live and did not fail before.
pub(crate) type Choice<'c> = dyn Fn(Vec<DatanodeInfo>, &BTreeSet<String>) -> Result<BTreeMap<BlockIndex, DatanodeInfo>, HdfsError>
    + 'c;

/// Opens the blocks that a write loads.
pub(crate) type Opens = dyn Fn(&BlockBinding) -> Result<Box<dyn BlockSource>, Fault> + Send + Sync;

/// The blocks of one run that writes.
struct Writing {
    stripe: StripeId,
    open: Arc<Opens>,
    targets: BTreeMap<BlockIndex, LocatedBlock>,
    digests: Arc<Mutex<BTreeMap<BlockIndex, Digest>>>,
}

impl Local for Writing {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        (self.open)(binding)
    }

    fn create(&self, binding: &BlockBinding, _: Sink, _: u64, _: u64) -> Result<Output, Fault> {
        let id = BlockId { stripe: self.stripe, index: binding.index };
        let Some(target) = self.targets.get(&binding.index) else {
            let detail = format!("persist: expected a block that has a file, got {}", binding.index);
            return Err(Fault { kind: FaultKind::Invalid, node: NodeId::CLIENT, block: None, detail });
        };
        let token = target.token.given();
        let nobody = || HdfsError::NotFound("a DataNode for a block".into());
        let begun = target.locations.first().ok_or_else(nobody).and_then(transfer_address);
        let begun = begun.and_then(|at| BlockWriter::begin(at, &[], &target.block, UNIT_BYTES, token, true));
        let writer = Some(begun.map_err(|error| failed(id, &error))?);
        let (digest, digests) = (Running::new(), self.digests.clone());
        Ok(Output::Block(Box::new(ColumnSink { id, writer, digest, digests })))
    }
}

/// The writing end of one block.
struct ColumnSink {
    id: BlockId,
    /// Until it is finished.
    writer: Option<BlockWriter>,
    digest: Running,
    digests: Arc<Mutex<BTreeMap<BlockIndex, Digest>>>,
}

impl BlockSink for ColumnSink {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        // One lane brings the bytes of a block in order.
        let Some(writer) = self.writer.as_mut().filter(|_| offset == self.digest.len()) else {
            let detail = format!("expected byte {} of {}, got byte {offset}", self.digest.len(), self.id);
            return Err(Fault { kind: FaultKind::Invalid, node: NodeId::CLIENT, block: None, detail });
        };
        writer.write(data).map_err(|error| failed(self.id, &error))?;
        self.digest.update(data);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        let Self { id, writer, digest, digests } = *self;
        writer.map_or(Ok(()), BlockWriter::finish).map_err(|error| failed(id, &error))?;
        digests.lock().unwrap_or_else(PoisonError::into_inner).insert(id.index, digest.finish());
        Ok(None)
    }
}

/// A DataNode did not take a block.
fn failed(id: BlockId, error: &HdfsError) -> Fault {
    Fault { kind: FaultKind::Io, node: NodeId::CLIENT, block: Some(id), detail: error.to_string() }
}
