//! Writing one stripe; if a node fails, on other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{BlockBinding, Layout, StripeView};
use kintsu_runtime::{BlockSource, ClientLocal, Observed};
use kintsu_wire::ClusterId;
use kintsu_wire::message::{
    Checksum, DigestBytes, Encoding, Fault, FaultKind, HeldBlock, Label, MoreStripes, MoveStripe,
    NodeAddress, ObjectLabel, StripeGrant, StripeGrants, WrittenStripe,
};
use tokio::sync::watch;

use crate::attempt::Attempt;
use crate::checksum::Sum;
use crate::lease::RunningWrites;
use crate::stripe::{Nodes, granted};
use crate::{Client, ClientError, ReadAt};

/// How often one stripe is moved to other nodes before the put fails.
const MAX_MOVES: usize = 8;

/// The largest slice of a write.
const MAX_SLICE_BYTES: u32 = 1 << 20;

/// What the stripes of one put share.
pub(crate) struct Put {
    client: Client,
    put: u64,
    code: Arc<dyn Code>,
    encoding: Encoding,
    label: (ClusterId, ObjectLabel),
    nodes: Mutex<Nodes>,
    /// Nodes that failed in any of the stripes.
    failed: Mutex<BTreeSet<NodeId>>,
    /// Object bytes of the stripes that were written.
    done: AtomicU64,
    /// The stripes that are being written, by their first byte in the object.
    under_way: Mutex<BTreeMap<u64, UnderWay>>,
    /// Of the stripes that were written.
    sum: Sum,
    /// The stripes that are being written.
    pub(crate) writes: RunningWrites,
}

/// How far a stripe is that is being written.
struct UnderWay {
    seen: watch::Receiver<Observed>,
    layout: Layout,
    k: usize,
}

impl UnderWay {
    /// Object bytes that all nodes have.
    fn done(&self) -> u64 {
        let longest = self.layout.longest(self.k).max(1);
        let upto = self.seen.borrow().upto.min(longest);
        (u128::from(self.layout.data_bytes) * u128::from(upto) / u128::from(longest)) as u64
    }
}

impl Put {
    pub(crate) fn new(
        client: Client,
        put: u64,
        code: Arc<dyn Code>,
        encoding: Encoding,
        label: (ClusterId, ObjectLabel),
        nodes: Nodes,
        writes: RunningWrites,
    ) -> Self {
        let (nodes, failed) = (Mutex::new(nodes), Mutex::default());
        let (done, under_way, sum) = Default::default();
        Self { client, put, code, encoding, label, nodes, failed, done, under_way, sum, writes }
    }

    /// Its number, which the coordinator gave.
    pub(crate) fn number(&self) -> u64 {
        self.put
    }

    /// Bytes of the object that the nodes have.
    pub(crate) fn done(&self) -> u64 {
        let under_way: u64 = lock(&self.under_way).values().map(UnderWay::done).sum();
        self.done.load(Relaxed).saturating_add(under_way)
    }

    /// The checksum of an object of `size` bytes, if all of them were written.
    pub(crate) fn checksum(&self, size: u64) -> Option<Checksum> {
        self.sum.of(size)
    }

    /// The label of a stripe's blocks.
    fn label(&self, grant: &StripeGrant, offset: u64, size: Option<u64>) -> Vec<u8> {
        let (cluster, mut object) = self.label.clone();
        object.size = object.size.or(size);
        let homes = grant.homes.clone();
        Label { cluster, object, offset, layout: grant.layout, homes }.pack()
    }

    /// The next stripes, from this position on; also reports the stripes written meanwhile to the coordinator, and the
    /// `size` of a stream that has ended.
    pub(crate) async fn more_stripes(
        &self,
        from: u64,
        size: Option<u64>,
        untold: &mut Vec<WrittenStripe>,
    ) -> Result<Vec<StripeGrant>, ClientError> {
        let request = MoreStripes { put: self.put, from, written: std::mem::take(untold), size };
        let reply = self.client.call_patiently(|mut c| {
            let request = request.clone();
            async move { c.objects.more_stripes(request).await }
        });
        let StripeGrants { stripes, nodes } = reply.await?;
        if stripes.is_empty() {
            return Err(ClientError::Corrupt(format!("expected stripes from position {from} on, got none")));
        }
        *lock(&self.nodes) = self.client.told(nodes);
        Ok(stripes)
    }

    fn address(&self, node: NodeId) -> Option<NodeAddress> {
        lock(&self.nodes).get(&node).cloned()
    }

    /// Blocks of a stripe that a put writes: those with bytes; parity only if encoded online.
    fn written(&self, view: &StripeView) -> Vec<BlockIndex> {
        let count = match self.encoding {
            Encoding::Online => self.code.n(),
            Encoding::Offline => self.code.k(),
        };
        (0..count).map(|i| BlockIndex(i as u8)).filter(|b| view.block_len(*b) > 0).collect()
    }
}

/// Digests by block index; `None` for blocks that were not written.
type Digests = Vec<Option<DigestBytes>>;

/// The bytes of one stripe.
#[derive(Clone)]
pub(crate) struct StripeSource {
    /// Where they are read, as often as the stripe is written.
    pub bytes: Arc<dyn ReadAt>,
    /// Where they begin there.
    pub from: u64,
    /// Offset of the first one in the object.
    pub offset: u64,
    /// Bytes of the object; `None` in a stream whose end was not seen yet.
    pub size: Option<u64>,
}

/// One stripe of a put.
pub(crate) struct StripeWrite {
    put: Arc<Put>,
    grant: StripeGrant,
    source: StripeSource,
    /// Nodes that failed in this stripe.
    failed: BTreeSet<NodeId>,
}

impl StripeWrite {
    pub(crate) fn new(put: Arc<Put>, grant: StripeGrant, source: StripeSource) -> Self {
        Self { put, grant, source, failed: BTreeSet::new() }
    }

    /// Writes the stripe, on other nodes if need be, adds it to the checksum, and returns the digests of what was
    /// written.
    pub(crate) async fn write(mut self) -> Result<WrittenStripe, ClientError> {
        let (written, sum) = self.written().await?;
        self.put.sum.merge(&sum);
        self.put.done.fetch_add(self.grant.layout.data_bytes, Relaxed);
        Ok(written)
    }

    /// Writes the stripe; returns also the sum of what was read for it.
    async fn written(&mut self) -> Result<(WrittenStripe, Arc<Sum>), ClientError> {
        let mut moves = 0;
        if self.doomed() {
            let avoid = lock(&self.put.failed).clone();
            // If there is no other place, the same node is tried again: it may be back.
            match self.move_stripe(&avoid).await {
                Err(ClientError::Placement(_)) => {}
                moved => self.grant = moved?,
            }
        }
        loop {
            let sum = Arc::new(Sum::default());
            let attempted = self.attempt(&sum).await;
            lock(&self.put.under_way).remove(&self.source.offset);
            let fault = match attempted? {
                Ok(digests) => return Ok((WrittenStripe { id: self.grant.id, digests }, sum)),
                Err(fault) => fault,
            };
            if fault.node.is_client() && matches!(fault.kind, FaultKind::Io | FaultKind::Invalid) {
                return Err(ClientError::Io(fault.detail));
            }
            if moves == MAX_MOVES {
                return Err(fault.into());
            }
            moves += 1;
            self.place_anew(fault).await?;
        }
    }

    /// Rewrites the stripe because `node` lost its block after the write; avoids that node if possible.
    pub(crate) async fn write_anew(
        mut self,
        node: NodeId,
        detail: String,
    ) -> Result<WrittenStripe, ClientError> {
        tracing::info!("rewriting {}: {detail}", self.grant.id);
        let failed = lock(&self.put.failed).clone();
        let mut others = failed.clone();
        others.insert(node);
        let mut refused = String::new();
        for avoid in [others, failed, BTreeSet::new()] {
            match self.move_stripe(&avoid).await {
                Ok(grant) => {
                    self.grant = grant;
                    // The checksum has its bytes already.
                    return self.written().await.map(|(written, _)| written);
                }
                Err(ClientError::Placement(why)) => refused = why,
                Err(other) => return Err(other),
            }
        }
        Err(ClientError::Placement(format!("{refused}, after {detail}")))
    }

    async fn attempt(&self, sum: &Arc<Sum>) -> Result<Result<Digests, Fault>, ClientError> {
        let put = &self.put;
        let view = granted(&self.grant, &put.code)?;
        let plan = match put.encoding {
            Encoding::Online => kintsu_plan::encode_online(&view)?,
            Encoding::Offline => kintsu_plan::write_plain(&view)?,
        };
        let (watcher, seen) = watch::channel(Observed::default());
        let under_way = UnderWay { seen, layout: self.grant.layout, k: put.code.k() };
        lock(&put.under_way).insert(self.source.offset, under_way);
        let label = put.label(&self.grant, self.source.offset, self.source.size);
        let attempt = Attempt {
            label: &label,
            client: &put.client,
            view: &view,
            generation: self.grant.generation,
            generations: &[],
            window: (0, u64::MAX),
            slice_bytes: self.grant.layout.cell_bytes.min(MAX_SLICE_BYTES),
            compared: true,
            watcher: Some(watcher),
            expect: &[],
            tickets: &self.grant.tickets,
            received: &Arc::default(),
            address: &|node| put.address(node),
        };
        let local = self.local(sum.clone());
        Ok(match attempt.run(&plan, local).await? {
            (ran, None) => self.digests(&view, &ran.written),
            (_, Some(fault)) => Err(fault),
        })
    }

    /// The blocks that the client's programs load.
    fn local(&self, sum: Arc<Sum>) -> ClientLocal {
        let (put, source, layout) = (self.put.clone(), self.source.clone(), self.grant.layout);
        let in_memory = source.bytes.in_memory();
        let local = ClientLocal::reading(move |binding| {
            let (put, sum, binding) = (put.clone(), sum.clone(), binding.clone());
            let source = source.clone();
            Ok(Box::new(ObjectBlock { put, source, sum, layout, binding }) as Box<dyn BlockSource>)
        });
        local.in_memory(in_memory)
    }

    /// The digests by block index, if all blocks were written correctly.
    fn digests(&self, view: &StripeView, held: &[HeldBlock]) -> Result<Digests, Fault> {
        let mut digests = vec![None; self.put.code.n()];
        for index in self.put.written(view) {
            let len = view.block_len(index);
            let fits = |h: &&HeldBlock| {
                h.id.stripe == view.id
                    && h.id.index == index
                    && h.generation == self.grant.generation
                    && h.len == len
            };
            let Some(held) = held.iter().find(fits) else {
                let node = view.homes[usize::from(index.0)].unwrap_or(NodeId::CLIENT);
                let detail = format!("expected {} with {len} bytes, got no report of it", index);
                return Err(Fault { kind: FaultKind::Lost, node, block: None, detail });
            };
            digests[usize::from(index.0)] = Some(held.digest);
        }
        Ok(digests)
    }

    /// Gets other nodes for the stripe. It first tries to avoid all nodes that failed in any stripe, then those
    /// that failed in this one, then only the one that failed now: a long put meets many failures, and nodes come
    /// back.
    async fn place_anew(&mut self, fault: Fault) -> Result<(), ClientError> {
        tracing::info!("writing {}: {fault}; the stripe gets new places", self.grant.id);
        let mut last = BTreeSet::new();
        if !fault.node.is_client() && fault.kind != FaultKind::Aborted {
            last.insert(fault.node);
        }
        self.failed.extend(&last);
        lock(&self.put.failed).extend(&last);
        let all = lock(&self.put.failed).clone();
        let mut refused = None;
        for avoid in [&all, &self.failed, &last] {
            match self.move_stripe(avoid).await {
                Ok(grant) => {
                    self.grant = grant;
                    return Ok(());
                }
                Err(ClientError::Placement(why)) => refused = Some(why),
                Err(other) => return Err(other),
            }
        }
        // The fault that made the stripe move tells more than the refusal to move it.
        let why = refused.unwrap_or_default();
        Err(match fault.into() {
            ClientError::Full(full) => ClientError::Full(format!("{full}; {why}")),
            other => ClientError::Placement(format!("{why}, after {other}")),
        })
    }

    async fn move_stripe(&self, avoid: &BTreeSet<NodeId>) -> Result<StripeGrant, ClientError> {
        let avoid = avoid.iter().copied().collect();
        let request = MoveStripe { put: self.put.put, stripe: self.grant.id, avoid };
        let reply = self.put.client.call_patiently(|mut c| {
            let request = request.clone();
            async move { c.objects.move_stripe(request).await }
        });
        let StripeGrants { stripes, nodes } = reply.await?;
        // A node may be new, or may have restarted at another address.
        *lock(&self.put.nodes) = self.put.client.told(nodes);
        let moved = stripes.into_iter().next();
        moved.ok_or_else(|| ClientError::Corrupt("expected a stripe in another place, got none".into()))
    }

    /// Whether a node of this stripe has failed in another stripe.
    fn doomed(&self) -> bool {
        let failed = lock(&self.put.failed);
        self.grant.homes.iter().flatten().any(|node| failed.contains(node))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A data block of the object being written.
struct ObjectBlock {
    put: Arc<Put>,
    source: StripeSource,
    /// Of what one attempt has read.
    sum: Arc<Sum>,
    layout: Layout,
    binding: BlockBinding,
}

impl BlockSource for ObjectBlock {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let mut at = 0;
        while at < buf.len() {
            let (from, real) = self.place(offset + at as u64);
            let upto = buf.len().min(at + usize::try_from(real).unwrap_or(usize::MAX - at));
            if upto == at {
                buf[at..].fill(0);
                break;
            }
            let StripeSource { bytes, from: begin, offset, .. } = &self.source;
            bytes.read_at(begin + from, &mut buf[at..upto]).map_err(|e| Fault {
                kind: FaultKind::Io,
                node: NodeId::CLIENT,
                block: Some(self.binding.id),
                detail: format!("reading the source at {}: {e}", offset + from),
            })?;
            self.sum.add(offset + from, &buf[at..upto]);
            at = upto;
        }
        Ok(())
    }

    fn lend(&mut self, offset: u64, len: usize) -> Result<Option<Bytes>, Fault> {
        let (from, real) = self.place(offset);
        let StripeSource { bytes, from: begin, offset, .. } = &self.source;
        let lent = if real >= len as u64 { bytes.lend(begin + from, len) } else { None };
        if let Some(lent) = &lent {
            self.sum.add(offset + from, lent);
        }
        Ok(lent)
    }
}

impl ObjectBlock {
    /// Where in the stripe's object bytes an offset in the block is, and how many bytes are there in a row.
    fn place(&self, offset: u64) -> (u64, u64) {
        let (from, run) = self.layout.position(self.put.code.k(), self.binding.index, offset);
        (from, run.min(self.layout.data_bytes.saturating_sub(from)))
    }
}
