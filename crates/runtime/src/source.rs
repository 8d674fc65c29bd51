//! Reading ahead: the slices that the `Load` tasks of one block want, in chunks, on blocking threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kintsu_dag::NodeId;
use kintsu_plan::Window;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tokio::time::{Duration, timeout};

use crate::carried;
use crate::fault::fault;
use crate::local::{BlockSource, Local};
use crate::script::{Source, part_bytes};
use crate::slice::{Buffer, Slice, is_zero};
use crate::verdict::{FirstFault, Tracker};

/// A chunk is at least this long, so that each disk read is large.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;

/// One block being read for one lane.
pub(crate) struct Reader {
    pub node: NodeId,
    pub local: Arc<dyn Local>,
    /// Least bytes read at a time.
    pub chunk_bytes: usize,
    pub source: Source,
    pub window: Window,
    pub disk: Duration,
    pub verdict: Arc<FirstFault>,
    pub tracker: Arc<Tracker>,
    /// In a serial lane: one slice is read for each permit, and none ahead.
    pub demand: Option<Arc<Semaphore>>,
}

/// Parts of a block to be read together, in order: where each begins, and its length.
type Parts = Vec<(u64, usize)>;

impl Reader {
    /// Reads all slices of the lane into `queue`, one chunk ahead of the executor, or fails the run.
    pub async fn run(self, queue: mpsc::Sender<Vec<Slice>>) {
        if let Err(fault) = self.read(&queue).await {
            self.verdict.fail(fault);
        }
    }

    async fn read(&self, queue: &mpsc::Sender<Vec<Slice>>) -> Result<(), Fault> {
        let mut source: Option<Box<dyn BlockSource>> = None;
        let mut parts = self.parts();
        let chunk_bytes = if self.demand.is_some() { 1 } else { self.chunk_bytes };
        loop {
            if let Some(demand) = &self.demand {
                tokio::select! {
                    asked = demand.acquire() => asked.into_iter().for_each(SemaphorePermit::forget),
                    () = queue.closed() => return Ok(()),
                }
            }
            let mut chunk = Parts::new();
            let mut bytes = 0;
            while bytes < chunk_bytes {
                let Some(part) = parts.next() else { break };
                bytes += part.1;
                chunk.push(part);
            }
            if chunk.is_empty() {
                return Ok(());
            }
            let Ok(room) = queue.reserve().await else { return Ok(()) };
            let (local, binding) = (self.local.clone(), self.source.binding.clone());
            if let Some(open) = source.as_deref_mut()
                && let Some((slices, read)) = self.named(read_now(open, &chunk, binding.len))?
            {
                self.count(read);
                room.send(slices);
                continue;
            }
            let read = move || {
                let len = binding.len;
                let mut source = source.map_or_else(|| local.open(&binding), Ok)?;
                let before = source.bytes_read();
                let (slices, asked) = read_chunk(&mut *source, &chunk, len)?;
                let read = source.bytes_read().zip(before).map_or(asked, |(after, before)| after - before);
                Ok((source, (slices, read)))
            };
            let busy = self.tracker.carried.busy();
            let (back, (slices, read)) = match self.local.may_block() {
                true => self.blocking("reading", read).await?,
                false => read()?,
            };
            drop(busy);
            source = Some(back);
            self.count(read);
            room.send(slices);
        }
    }

    fn count(&self, read: u64) {
        self.tracker.bytes_read.fetch_add(read, Ordering::Relaxed);
        carried::add(&self.tracker.carried.read, read);
    }

    /// The parts of the block that the lane wants, in the order of its tasks.
    fn parts(&self) -> impl Iterator<Item = (u64, usize)> + Send + use<> {
        let (window, subs) = (self.window, self.source.subs.clone());
        window.steps().flat_map(move |step| {
            let len = part_bytes(&window, step.end - step.start);
            subs.clone().into_iter().map(move |sub| (step.start + u64::from(sub) * len as u64, len))
        })
    }

    async fn blocking<T: Send + 'static>(
        &self,
        doing: &str,
        work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Fault> {
        self.named(blocking(self.node, self.disk, doing, work).await)
    }

    /// A fault names the block.
    fn named<T>(&self, done: Result<T, Fault>) -> Result<T, Fault> {
        done.map_err(|mut fault| {
            fault.block = fault.block.or(Some(self.source.binding.id));
            fault
        })
    }
}

/// Runs `work` on a blocking thread; work that takes longer than `limit` counts as stalled and is left to end by
/// itself.
pub(crate) async fn blocking<T: Send + 'static>(
    node: NodeId,
    limit: Duration,
    doing: &str,
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    match timeout(limit, kintsu_wire::ambient::blocking(work)).await {
        Ok(Ok(result)) => result,
        Ok(Err(error)) => Err(fault(FaultKind::Io, node, format!("{doing} ended early: {error}"))),
        Err(_) => Err(fault(FaultKind::Stalled, node, format!("{doing} took longer than {limit:?}"))),
    }
}

/// Reads parts of a block of `len` bytes, zeros beyond its end: what is in memory already without a copy, and
/// neighbours of the rest in one read. Returns a slice for each part, and the number of bytes requested.
fn read_chunk(source: &mut dyn BlockSource, parts: &Parts, len: u64) -> Result<(Vec<Slice>, u64), Fault> {
    let mut lent = Vec::with_capacity(parts.len());
    for &(at, part) in parts {
        let within = at.checked_add(part as u64).is_some_and(|end| end <= len);
        lent.push(if within { source.lend(at, part)? } else { None });
    }
    let unlent = parts.iter().zip(&lent).filter(|(_, lent)| lent.is_none()).map(|(part, _)| *part).collect();
    let bytes = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
    let asked: u64 = lent.iter().map(bytes).sum();
    let (read, more) = read_parts(source, &unlent, len)?;
    let mut read = read.into_iter();
    let slices = lent.into_iter().filter_map(|lent| lent.map(slice_of).or_else(|| read.next()));
    Ok((slices.collect(), asked + more))
}

/// As [`read_chunk`] if the parts are neighbours that can be read without waiting, which wakes no other thread.
fn read_now(
    source: &mut dyn BlockSource,
    parts: &Parts,
    len: u64,
) -> Result<Option<(Vec<Slice>, u64)>, Fault> {
    let ends = |parts: &[(u64, usize)]| parts[0].0 + parts[0].1 as u64 == parts[1].0;
    let total: usize = parts.iter().map(|part| part.1).sum();
    let Some(&(begin, _)) = parts.first().filter(|_| parts.windows(2).all(ends)) else { return Ok(None) };
    let there = len.saturating_sub(begin).min(total as u64) as usize;
    let mut buffer = Buffer::take(total);
    if there == 0 || !source.read_now(begin, &mut buffer[..there])? {
        return Ok(None);
    }
    buffer[there..].fill(0);
    Ok(Some((cut(buffer, parts), there as u64)))
}

fn read_parts(source: &mut dyn BlockSource, parts: &Parts, len: u64) -> Result<(Vec<Slice>, u64), Fault> {
    let within = |(at, part): (u64, usize)| len.saturating_sub(at).min(part as u64) as usize;
    let total: usize = parts.iter().map(|part| part.1).sum();
    if total == 0 {
        return Ok((parts.iter().map(|_| Slice::Zero(0)).collect(), 0));
    }
    let mut buffer = Buffer::take(total);
    let (mut begin, mut read) = (0, 0);
    while begin < parts.len() {
        let mut end = begin + 1;
        while end < parts.len() && parts[end - 1].0 + parts[end - 1].1 as u64 == parts[end].0 {
            end += 1;
        }
        let at: usize = parts[..begin].iter().map(|part| part.1).sum();
        let run = &parts[begin..end];
        let there: usize = run.iter().map(|part| within(*part)).sum();
        let whole: usize = run.iter().map(|part| part.1).sum();
        if there > 0 {
            source.read_at(run[0].0, &mut buffer[at..at + there])?;
        }
        buffer[at + there..at + whole].fill(0);
        read += there as u64;
        begin = end;
    }
    Ok((cut(buffer, parts), read))
}

/// Bytes of zeros do not hold the memory that they are in.
fn slice_of(bytes: Bytes) -> Slice {
    if is_zero(&bytes) { Slice::Zero(bytes.len()) } else { Slice::Data(bytes) }
}

/// Views of the buffer, one for each part; a part of zeros does not hold the buffer.
fn cut(buffer: Buffer, parts: &Parts) -> Vec<Slice> {
    let mut rest = Bytes::from_owner(buffer);
    parts.iter().map(|(_, len)| slice_of(rest.split_to(*len))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>, usize);

    impl BlockSource for Bytes {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
            self.1 += 1;
            let from = offset as usize;
            buf.copy_from_slice(&self.0[from..from + buf.len()]);
            Ok(())
        }
    }

    /// Knows its first bytes without waiting.
    struct Known(Vec<u8>, usize);

    impl BlockSource for Known {
        fn read_at(&mut self, _: u64, _: &mut [u8]) -> Result<(), Fault> {
            panic!("a read that may wait")
        }

        fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> Result<bool, Fault> {
            let range = offset as usize..offset as usize + buf.len();
            let known = range.end <= self.1;
            if known {
                buf.copy_from_slice(&self.0[range]);
            }
            Ok(known)
        }
    }

    #[test]
    fn neighbours_that_are_known_are_read_without_waiting() {
        let mut source = Known((1..=100).collect(), 100);
        let (slices, read) =
            read_now(&mut source, &vec![(80, 10), (90, 20), (110, 20)], 100).unwrap().unwrap();
        let bytes = |i: usize| slices[i].data().unwrap().to_vec();
        assert_eq!((read, bytes(0)), (20, (81..=90).collect::<Vec<u8>>()));
        assert_eq!(bytes(1), [(91..=100).collect::<Vec<u8>>(), vec![0; 10]].concat());
        assert!(matches!(slices[2], Slice::Zero(20)));
        let mut read = |parts: Parts| read_now(&mut source, &parts, 100).unwrap().is_some();
        assert!(read(vec![(0, 10)]));
        assert!(!read(vec![(0, 10), (20, 10)]), "not neighbours");
        assert!(!read(vec![(100, 10)]) && !read(vec![(110, 10)]) && !read(vec![]), "no byte of the block");
        source.1 = 99;
        assert!(read_now(&mut source, &vec![(90, 10)], 100).unwrap().is_none(), "unknown");
    }

    #[test]
    fn a_chunk_reads_neighbours_together_and_zeros_past_the_end() {
        let mut source = Bytes((1..=100).collect(), 0);
        let parts = vec![(0, 10), (10, 10), (40, 10), (90, 20), (110, 20)];
        let (slices, read) = read_chunk(&mut source, &parts, 100).unwrap();
        assert_eq!((read, source.1), (40, 3));
        let bytes = |i: usize| slices[i].data().unwrap().to_vec();
        assert_eq!([bytes(0), bytes(1)].concat(), (1..=20).collect::<Vec<u8>>());
        assert_eq!(bytes(2), (41..=50).collect::<Vec<u8>>());
        assert_eq!(bytes(3), [(91..=100).collect::<Vec<u8>>(), vec![0; 10]].concat());
        assert!(matches!(slices[4], Slice::Zero(20)));
    }
}
