//! The internal blocks of one group as a run finds them: loaded from DataNodes, handed on to a channel.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::{BlockId, BlockIndex, NodeId, Sink, StripeId};
use kintsu_plan::{BlockBinding, Plan, ProgramContext, RunId, StripeView};
use kintsu_runtime::{BlockSource, Context, DataPlane, Delivery, Local, Output, run as run_programs};
use kintsu_store::Digest;
use kintsu_wire::Credentials;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::mpsc;

use crate::digest::Running;
use crate::objects::drawn;
use crate::transfer::BlockReader;
use crate::{Group, HdfsError, transfer_address};

/// Bytes of a block that are read at a time where it is only compared with its digest.
const PIECE_BYTES: usize = 256 << 10;

/// Pieces of blocks that may wait to be taken.
const WAITING: usize = 16;

/// The internal blocks of a group on their DataNodes. Readers are kept between runs, so that runs over one range after
/// the other share connections.
pub struct GroupBlocks {
    group: Group,
    idle: Mutex<BTreeMap<BlockIndex, Idle>>,
    /// The digests of blocks that were read from their first byte to the last in order.
    digests: Mutex<BTreeMap<BlockIndex, Digest>>,
    /// Bytes under one checksum of the blocks of which something was read.
    units: Mutex<BTreeMap<BlockIndex, usize>>,
}

/// What goes on where the last reader of a block ended.
struct Idle {
    reader: BlockReader,
    digest: Option<Running>,
}

impl GroupBlocks {
    /// The blocks where `group` says they are.
    pub fn of(group: Group) -> Arc<Self> {
        let (idle, digests, units) = Default::default();
        Arc::new(Self { group, idle, digests, units })
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// A source for one internal block. It connects when it is read.
    ///
    /// # Errors
    /// `Missing` for a block that nobody has.
    pub fn source(self: &Arc<Self>, index: BlockIndex) -> Result<Source, Fault> {
        let (blocks, digest) = (self.clone(), Some(Running::new()));
        let mut source = Source { blocks, index, reader: None, tried: 0, received: 0, noted: None, digest };
        match self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(&index) {
            Some(Idle { reader, digest }) => (source.reader, source.digest) = (Some(reader), digest),
            None => source.connect()?,
        }
        Ok(source)
    }

    /// The digest of a block, if a source of it was read from its first byte to the last in order.
    pub(crate) fn digest(&self, index: BlockIndex) -> Option<Digest> {
        self.digests.lock().unwrap_or_else(PoisonError::into_inner).get(&index).copied()
    }

    /// Bytes under one checksum of the first block of which something was read.
    pub(crate) fn unit_bytes(&self) -> Option<usize> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner).values().next().copied()
    }

    /// Reads a whole block in order, and compares its checksums and its recorded digest. This call blocks.
    ///
    /// # Errors
    /// `Corrupt` for wrong bytes; what else fails.
    pub(crate) fn read_through(self: &Arc<Self>, index: BlockIndex) -> Result<(), Fault> {
        let (mut source, mut piece) = (self.source(index)?, vec![0; PIECE_BYTES]);
        let (mut at, len) = (0, self.group.block_bytes(index));
        while at < len {
            let some = (len - at).min(PIECE_BYTES as u64) as usize;
            source.read_at(at, &mut piece[..some])?;
            at += some as u64;
        }
        Ok(())
    }

    /// Whether a whole block was read that has not the digest which was recorded.
    pub(crate) fn rotten(&self, index: BlockIndex) -> bool {
        self.digest(index).zip(self.group.digest(index)).is_some_and(|(got, recorded)| got != recorded)
    }

    fn fault(&self, kind: FaultKind, index: BlockIndex, detail: String) -> Fault {
        let block = Some(BlockId { stripe: StripeId(self.group.id), index });
        Fault { kind, node: NodeId::CLIENT, block, detail }
    }
}

/// One internal block. If a DataNode fails and another one has the block too, reading goes on there.
pub struct Source {
    blocks: Arc<GroupBlocks>,
    index: BlockIndex,
    reader: Option<BlockReader>,
    /// Holders that were tried.
    tried: usize,
    /// Bytes that came from earlier readers.
    received: u64,
    /// Bytes under one checksum, as they were noted last.
    noted: Option<usize>,
    /// Of the bytes so far, if they came in order from the first one.
    digest: Option<Running>,
}

impl Source {
    /// Takes the next holder.
    fn connect(&mut self) -> Result<(), Fault> {
        let (group, index) = (&self.blocks.group, self.index);
        let holders = group.holders.get(&index).map(Vec::as_slice).unwrap_or_default();
        let Some(holder) = holders.get(self.tried) else {
            let detail = format!("{group}: no DataNode has internal block {}", index.0);
            return Err(self.blocks.fault(FaultKind::Missing, index, detail));
        };
        self.tried += 1;
        let address = transfer_address(&holder.datanode)
            .map_err(|e| self.blocks.fault(FaultKind::Invalid, index, e.to_string()))?;
        self.reader = Some(BlockReader::new(address, group.block(index), holder.token.clone()));
        Ok(())
    }

    /// Something was read, with so many bytes under one checksum.
    fn note(&mut self, unit_bytes: Option<usize>) {
        if let Some(unit) = unit_bytes.filter(|unit| self.noted != Some(*unit)) {
            self.noted = Some(unit);
            self.blocks.units.lock().unwrap_or_else(PoisonError::into_inner).insert(self.index, unit);
        }
    }

    /// These bytes were read. At the end of the block its digest is compared with the one that was recorded.
    fn count(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (group, index) = (&self.blocks.group, self.index);
        let whole = Running::follow(&mut self.digest, offset, bytes, group.block_bytes(index));
        let Some(got) = whole else { return Ok(()) };
        self.blocks.digests.lock().unwrap_or_else(PoisonError::into_inner).insert(index, got);
        match group.digest(index) {
            Some(expected) if expected != got => {
                let detail = format!(
                    "{group}, block {}: expected the recorded digest {expected}, got {got}: wrong bytes under valid checksums",
                    index.0
                );
                Err(self.blocks.fault(FaultKind::Corrupt, index, detail))
            }
            _ => Ok(()),
        }
    }
}

impl BlockSource for Source {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        loop {
            let Some(mut reader) = self.reader.take() else {
                self.connect()?;
                continue;
            };
            let error = match reader.read_at(offset, buf) {
                Ok(()) => {
                    self.note(reader.unit_bytes());
                    self.reader = Some(reader);
                    return self.count(offset, buf);
                }
                Err(error) => error,
            };
            self.received += reader.received();
            if self.connect().is_err() {
                let kind = match &error {
                    HdfsError::Corrupt { .. } => FaultKind::Corrupt,
                    HdfsError::Unsupported { .. } => FaultKind::Invalid,
                    _ => FaultKind::Io,
                };
                let detail = format!("{}: {error}", self.blocks.group.path);
                return Err(self.blocks.fault(kind, self.index, detail));
            }
        }
    }

    fn bytes_read(&self) -> Option<u64> {
        Some(self.received + self.reader.as_ref().map_or(0, BlockReader::received))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            let idle = Idle { reader, digest: self.digest.take() };
            self.blocks.idle.lock().unwrap_or_else(PoisonError::into_inner).insert(self.index, idle);
        }
    }
}

/// The blocks of one run.
struct Here {
    blocks: Arc<GroupBlocks>,
    deliver: mpsc::Sender<Delivery>,
}

impl Local for Here {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        Ok(Box::new(self.blocks.source(binding.index)?))
    }

    fn create(&self, binding: &BlockBinding, sink: Sink, _: u64, _: u64) -> Result<Output, Fault> {
        match sink {
            Sink::Client => Ok(Output::Channel(self.deliver.clone())),
            other => {
                let detail = format!("persist: expected the client as sink beside an HDFS, got {other:?}");
                Err(self.blocks.fault(FaultKind::Invalid, binding.index, detail))
            }
        }
    }
}

/// Runs a plan whose nodes are all this process. `take` gets what it persists, on a thread that may block; its
/// result is returned. `window` is the range of bytes of every block.
///
/// # Errors
/// `Run` for what failed, with the internal block at fault; those of `take`; `Plan`.
pub(crate) async fn run<T: Send + 'static>(
    plan: &Plan,
    view: &StripeView,
    blocks: &Arc<GroupBlocks>,
    window: (u64, u64),
    take: impl FnOnce(mpsc::Receiver<Delivery>) -> Result<T, HdfsError> + Send + 'static,
) -> Result<T, HdfsError> {
    let (deliver, deliveries) = mpsc::channel(WAITING);
    let taking = tokio::task::spawn_blocking(move || take(deliveries));
    // The run owns the channel's sender, so the taker ends with the run.
    let ran = run_on(plan, view, Arc::new(Here { blocks: blocks.clone(), deliver }), window).await;
    let taken = taking.await.map_err(|e| HdfsError::io("taking the bytes of a run", e.into()))?;
    // A taker that failed has closed the channel, which then ended the run.
    let taken = taken?;
    ran.map(|()| taken)
}

/// The same with the blocks that `local` has.
///
/// # Errors
/// `Run` for what failed; `Plan`.
pub(crate) async fn run_on(
    plan: &Plan,
    view: &StripeView,
    local: Arc<dyn Local>,
    window: (u64, u64),
) -> Result<(), HdfsError> {
    let programs = plan.programs(&ProgramContext {
        generations: &[],
        job: RunId(drawn()?),
        view,
        generation: 0,
        window,
        slice_bytes: 0,
        expect: &[],
        label: &[],
        peers: &|_| None,
        resume_key: 0,
    })?;
    let context = Context::new(DataPlane::client(Credentials::default()), local);
    match run_programs(&programs, context).await.fault {
        Some(fault) => Err(fault.into()),
        None => Ok(()),
    }
}
