//! `Load` and `Persist` on an agent: blocks of its store, and blocks that attempts left unfinished.
//!
//! An attempt with a resume key that ends early leaves its unfinished block here, invisible; the next
//! attempt with that key continues it. An unfinished block that no attempt continues is thrown away.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId, Sink};
use kintsu_plan::{BlockBinding, DIGEST_UNKNOWN, PROBE};
use kintsu_store::{BlockRead, BlockStore, BlockWrite, Digest, FrozenDelta, Generation, StoreError};
use kintsu_wire::ambient::simulated;
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};
use tokio::time::Instant;

use crate::compared::Compared;
use crate::covered::Covered;
use crate::delta::{DeltaSource, XorSink};
use crate::fault::from_store;
use crate::local::{BlockSink, BlockSource, Local, Output};

/// How long an unfinished block is kept.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Most unfinished blocks that are kept; each takes its full space on disk.
const MOST_KEPT: usize = 64;

/// How long an attempt waits for the previous one to release the block.
const LETTING_GO: Duration = Duration::from_secs(5);

/// The blocks of one agent.
pub struct StoreLocal {
    node: NodeId,
    store: Arc<dyn BlockStore>,
    unfinished: Arc<Unfinished>,
}

/// Blocks being written under a resume key, and blocks left unfinished.
#[derive(Default)]
struct Unfinished {
    table: Mutex<HashMap<(u64, BlockId), State>>,
    changed: Condvar,
}

enum State {
    InUse,
    Kept(Partial, Instant),
}

/// A block that is not whole yet.
struct Partial {
    write: Box<dyn BlockWrite>,
    covered: Covered,
    generation: u32,
    len: u64,
}

impl StoreLocal {
    /// The blocks of `store`, on `node`.
    pub fn new(node: NodeId, store: Arc<dyn BlockStore>) -> Self {
        Self { node, store, unfinished: Arc::default() }
    }

    /// Throws away the unfinished blocks that no attempt has continued for a minute. This call blocks; call it
    /// regularly.
    pub fn expire(&self) {
        self.unfinished.drop_where(|_, since| since.elapsed() > KEPT_FOR);
    }

    /// Throws away all unfinished blocks that nobody is writing; returns how many. This call blocks.
    pub fn discard_unfinished(&self) -> usize {
        self.unfinished.drop_where(|_, _| true)
    }

    fn fault(&self, kind: FaultKind, id: BlockId, detail: String) -> Fault {
        Fault { kind, node: self.node, block: Some(id), detail }
    }

    /// Begins a block, once the previous writer has released it.
    fn begin(&self, binding: &BlockBinding) -> Result<Partial, Fault> {
        // In a simulation nobody else does anything while this waits.
        let patience = if simulated() { Duration::ZERO } else { LETTING_GO };
        let deadline = Instant::now() + patience;
        loop {
            let generation = Generation(binding.generation);
            let BlockBinding { id, len, unit_bytes, ref label, .. } = *binding;
            match self.store.create(id, generation, len, unit_bytes, label) {
                Ok(write) => {
                    let covered = Covered::default();
                    let BlockBinding { generation, len, .. } = *binding;
                    return Ok(Partial { write, covered, generation, len });
                }
                Err(StoreError::Busy { .. }) if self.unfinished.drop_where(|id, _| id == binding.id) > 0 => {}
                Err(StoreError::Busy { .. }) if Instant::now() < deadline => {
                    #[allow(clippy::disallowed_methods, reason = "not reached in a simulation")]
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(error) => return Err(from_store(self.node, binding.id, &error)),
            }
        }
    }

    /// Takes what the previous attempt left, which must reach at least to `start`.
    fn go_on(&self, binding: &BlockBinding, key: (u64, BlockId), start: u64) -> Result<Partial, Fault> {
        let there = self.unfinished.take(key);
        let fits = |p: &Partial| (p.generation, p.len) == (binding.generation, binding.len);
        let got = match there {
            Some(partial) if fits(&partial) && partial.covered.prefix() >= start.min(partial.len) => {
                return Ok(partial);
            }
            Some(partial) => {
                let (prefix, Partial { generation, len, .. }) = (partial.covered.prefix(), &partial);
                format!("{prefix} of {len} bytes of generation {generation}")
            }
            None => "none".into(),
        };
        let expected =
            format!("at least {start} of {} bytes of generation {}", binding.len, binding.generation);
        let detail = format!("unfinished block to continue: expected {expected}, got {got}");
        Err(self.fault(FaultKind::Invalid, binding.id, detail))
    }
}

/// The digest that a block must have, if known.
fn expected(binding: &BlockBinding) -> Option<Digest> {
    binding.expect.filter(|digest| *digest != DIGEST_UNKNOWN).map(Digest)
}

/// The bytes of a probe: cheap to make, and not zero, because zeros are not sent.
struct Noise;

impl BlockSource for Noise {
    fn read_at(&mut self, _: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.fill(0xA5);
        Ok(())
    }

    fn bytes_read(&self) -> Option<u64> {
        Some(0)
    }
}

/// Where the bytes of a probe end.
struct Drain;

impl BlockSink for Drain {
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), Fault> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        Ok(None)
    }
}

impl Local for StoreLocal {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        if binding.id.stripe == PROBE {
            return Ok(Box::new(Noise));
        }
        let (node, id) = (self.node, binding.id);
        if binding.next.is_none() {
            return Ok(Box::new(StoreSource { node, id, read: self.version(binding)? }));
        }
        let log = || self.store.log().map_err(|error| from_store(node, id, &error));
        let delta = match binding.replica {
            false => FrozenDelta::at_home(log()?, id, self.version(binding)?),
            true => FrozenDelta::of_replica(log()?, id, Generation(binding.generation)),
        };
        // After a restart nobody knows what was fixed.
        let delta = delta.ok_or_else(|| {
            let detail = "delta of a block: expected updates fixed for a commit, got none".into();
            self.fault(FaultKind::Missing, id, detail)
        })?;
        Ok(Box::new(DeltaSource::new(node, id, delta)))
    }

    fn create(
        &self,
        binding: &BlockBinding,
        sink: Sink,
        resume_key: u64,
        start: u64,
    ) -> Result<Output, Fault> {
        match sink {
            Sink::Nothing => Ok(Output::Block(Box::new(Drain))),
            Sink::Block => self.create_block(binding, resume_key, start),
            Sink::BlockXor => self.create_next(binding).map(|sink| Output::Block(Box::new(sink))),
            Sink::Compare => {
                let stored = *self.version(binding)?.meta();
                Ok(Output::Block(Box::new(Compared::new(self.node, stored))))
            }
            Sink::Client => {
                let detail = format!("persist: expected a block as sink on an agent, got {sink:?}");
                Err(self.fault(FaultKind::Invalid, binding.id, detail))
            }
        }
    }
}

impl StoreLocal {
    /// Opens the version of a block that a binding names.
    fn version(&self, binding: &BlockBinding) -> Result<Box<dyn BlockRead>, Fault> {
        let opened = self.store.open(binding.id, Generation(binding.generation));
        let read = opened.map_err(|error| from_store(self.node, binding.id, &error))?;
        if read.meta().len != binding.len {
            let detail = format!("wrong length: expected {} bytes, got {}", binding.len, read.meta().len);
            return Err(self.fault(FaultKind::Stale, binding.id, detail));
        }
        // The digest in the block's header. It agrees with the unit checksums, else the store would not have
        // opened the block.
        let (expected, got) = (expected(binding), read.meta().digest);
        if let Some(expected) = expected.filter(|expected| *expected != got) {
            let detail = format!(
                "the block is sound, but is not the recorded one: expected digest {expected}, got {got}"
            );
            return Err(self.fault(FaultKind::Corrupt, binding.id, detail));
        }
        Ok(read)
    }

    /// Begins the next version of a block, which is added to.
    fn create_next(&self, binding: &BlockBinding) -> Result<XorSink, Fault> {
        let Some(next) = binding.next else {
            let detail = "adding to a block: expected the generation of its next version, got none".into();
            return Err(self.fault(FaultKind::Invalid, binding.id, detail));
        };
        let old = self.version(binding)?;
        let BlockBinding { id, len, .. } = *binding;
        let (unit, label) = (old.meta().unit_bytes, old.label().to_vec());
        let begun = self.store.create_next(id, Generation(next), len, unit, &label);
        let write = begun.map_err(|error| from_store(self.node, id, &error))?;
        Ok(XorSink::new(self.node, id, old, write))
    }

    fn create_block(&self, binding: &BlockBinding, resume_key: u64, start: u64) -> Result<Output, Fault> {
        let key = (resume_key, binding.id);
        let claim = (resume_key != 0).then(|| self.unfinished.clone());
        let partial = match start {
            0 => {
                drop(self.unfinished.take(key));
                self.begin(binding)
            }
            _ => self.go_on(binding, key, start),
        };
        let partial = match partial {
            Ok(partial) => partial,
            Err(fault) => {
                self.unfinished.release(key);
                return Err(fault);
            }
        };
        let expect = expected(binding);
        Ok(Output::Block(Box::new(StoreSink { node: self.node, key, claim, partial: Some(partial), expect })))
    }
}

impl Unfinished {
    fn table(&self) -> MutexGuard<'_, HashMap<(u64, BlockId), State>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the key, once nobody else uses it, and returns what is kept under it.
    fn take(&self, key: (u64, BlockId)) -> Option<Partial> {
        if key.0 == 0 {
            return None;
        }
        let in_use = |table: &mut HashMap<_, _>| matches!(table.get(&key), Some(State::InUse));
        let mut table = self.table();
        if !simulated() {
            let waited = self.changed.wait_timeout_while(table, LETTING_GO, in_use);
            table = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        match table.insert(key, State::InUse) {
            Some(State::Kept(partial, _)) => Some(partial),
            _ => None,
        }
    }

    fn release(&self, key: (u64, BlockId)) {
        self.table().remove(&key);
        self.changed.notify_all();
    }

    fn keep(&self, key: (u64, BlockId), partial: Partial) {
        let oldest = {
            let mut table = self.table();
            table.insert(key, State::Kept(partial, Instant::now()));
            let kept = table.iter().filter_map(|(key, state)| match state {
                State::Kept(_, since) => Some((*since, *key)),
                State::InUse => None,
            });
            let oldest = kept.clone().min().filter(|_| kept.count() > MOST_KEPT);
            oldest.and_then(|(_, key)| table.remove(&key))
        };
        self.changed.notify_all();
        drop(oldest);
    }

    /// Throws away the kept blocks that match; returns how many.
    fn drop_where(&self, matches: impl Fn(BlockId, &Instant) -> bool) -> usize {
        let mut table = self.table();
        let dropped: Vec<_> = table
            .extract_if(|(_, id), state| match state {
                State::Kept(_, since) => matches(*id, since),
                State::InUse => false,
            })
            .collect();
        drop(table);
        dropped.len()
    }
}

struct StoreSource {
    node: NodeId,
    id: BlockId,
    read: Box<dyn BlockRead>,
}

impl BlockSource for StoreSource {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.read.read_at(offset, buf).map_err(|error| from_store(self.node, self.id, &error))
    }

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> Result<bool, Fault> {
        self.read.read_now(offset, buf).map_err(|error| from_store(self.node, self.id, &error))
    }

    fn bytes_read(&self) -> Option<u64> {
        Some(self.read.bytes_read())
    }

    fn unit_bytes(&self) -> u32 {
        self.read.meta().unit_bytes
    }
}

struct StoreSink {
    node: NodeId,
    key: (u64, BlockId),
    /// Where the block is kept if the run ends early; only with a resume key.
    claim: Option<Arc<Unfinished>>,
    partial: Option<Partial>,
    expect: Option<Digest>,
}

impl BlockSink for StoreSink {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(partial) = &mut self.partial else { return Ok(()) };
        // An earlier attempt may have written more in some lanes.
        for range in partial.covered.missing(offset..offset + data.len() as u64) {
            let piece = &data[(range.start - offset) as usize..(range.end - offset) as usize];
            let written = partial.write.write_at(range.start, piece);
            written.map_err(|error| from_store(self.node, self.key.1, &error))?;
            partial.covered.add(range);
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        let Some(partial) = self.partial.take() else { return Ok(None) };
        let finished = partial.write.finish(self.expect);
        let meta = finished.map_err(|error| from_store(self.node, self.key.1, &error))?;
        Ok(Some(HeldBlock {
            id: meta.id,
            generation: meta.generation.0,
            len: meta.len,
            digest: meta.digest.0,
        }))
    }

    fn suspend(mut self: Box<Self>) {
        if let (Some(unfinished), Some(partial)) = (self.claim.take(), self.partial.take()) {
            unfinished.keep(self.key, partial);
        }
    }
}

impl Drop for StoreSink {
    fn drop(&mut self) {
        // Drop the writer first, so that the block is free for a run that waits for the key.
        drop(self.partial.take());
        if let Some(unfinished) = &self.claim {
            unfinished.release(self.key);
        }
    }
}
