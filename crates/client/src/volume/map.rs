//! Where the stripes of a volume are, as far as it was asked for.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::message::{
    LoggedBlocks, MapVolume, ObjectView, VolumeEpochs, VolumeInfo, VolumeMap, VolumeStripe,
};
use kintsu_wire::ticket::Ticket;
use tokio::time::Instant;

use crate::stripe::Nodes;
use crate::{Client, ClientError};

/// A node that did not answer is not asked to read for this long, if others can.
const AVOID: Duration = Duration::from_secs(5);

/// A map with tickets is asked for again after this long: they are good for a day.
const TICKETS_LAST: Duration = Duration::from_secs(12 * 3600);

/// How long to ask again, with growing pauses.
pub(super) struct Patience {
    end: Instant,
    pause: Duration,
}

impl Patience {
    /// As patient as this client is.
    pub fn of(client: &Client) -> Self {
        Self { end: Instant::now() + client.patience(), pause: Duration::from_millis(5) }
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Whether to ask for a map again after this error: nodes that are missed may come back.
    pub fn bears(&self, error: &ClientError) -> bool {
        matches!(error, ClientError::Placement(_) | ClientError::Io(_)) && !self.is_over()
    }

    /// Whether to put a stripe again after this error: the coordinator may be away, and one that was killed does not know of a put
    /// that it had begun.
    pub fn bears_of_put(&self, error: &ClientError) -> bool {
        let passes = matches!(error, ClientError::Unreachable(_) | ClientError::NotFound(_));
        (passes && !self.is_over()) || self.bears(error)
    }

    pub async fn wait(&mut self) {
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(500));
    }
}

/// What was asked for.
pub(super) struct Map {
    client: Client,
    volume: u64,
    writer: Option<u64>,
    size: AtomicU64,
    known: Mutex<Known>,
    /// One task at a time makes a stripe, or asks for one.
    asking: [tokio::sync::Mutex<()>; 16],
}

#[derive(Default)]
struct Known {
    /// A stripe that does not exist is known to the writer alone, because nobody else makes it.
    stripes: HashMap<u64, Option<Arc<Mapped>>>,
    silent: HashMap<NodeId, Instant>,
    /// Stripes of which a write failed under this epoch, and may still arrive at a node that accepts it.
    failed: HashMap<u64, u64>,
    /// Stripes of which a first write failed, and may still make them.
    doubtful: HashSet<u64>,
}

/// One stripe, and the nodes as they were then.
pub(super) struct Mapped {
    pub stripe: VolumeStripe,
    pub nodes: Arc<Nodes>,
    volume: u64,
    /// The epoch at which its writer took the volume then.
    taken: u64,
    /// When it was asked for.
    since: Instant,
    /// Once a block had to be decoded.
    looked_up: Mutex<Option<LookedUp>>,
}

/// A stripe as an object.
#[derive(Clone)]
pub(super) struct LookedUp {
    /// What the coordinator said, and how long it took to answer.
    pub said: Arc<(ObjectView, Duration)>,
    /// Whether a read since then had to go around a block or node, which may have gone elsewhere.
    pub doubted: bool,
}

impl Mapped {
    /// The home of a block, if it is not lost there.
    pub fn home(&self, block: BlockIndex) -> Option<NodeId> {
        let place = self.stripe.stripe.blocks.get(usize::from(block.0))?.as_ref()?;
        (!place.lost).then_some(place.node)
    }

    /// The volume by whose name the stripe goes.
    pub fn owner(&self) -> u64 {
        self.stripe.owner.unwrap_or(self.volume)
    }

    /// The nodes that log the updates of a block.
    pub fn log(&self, block: BlockIndex) -> &[NodeId] {
        self.stripe.logs.get(usize::from(block.0)).map_or(&[], Vec::as_slice)
    }

    /// All that is logged under this map's epoch.
    pub fn all_logged(&self) -> LoggedBlocks {
        let VolumeStripe { index, epoch, ref logs, .. } = self.stripe;
        LoggedBlocks { index, epoch, blocks: (0..logs.len()).map(|i| BlockIndex(i as u8)).collect() }
    }

    /// The stripe as it was looked up under this map's epoch, if what was looked up of a block is true as long as that
    /// lasts: where the home of a block does not log for it, a commit leaves the block as it is.
    pub fn looked_up(&self, block: BlockIndex) -> Option<LookedUp> {
        let first = self.log(block).first()?;
        if !self.is_replica(block, *first) {
            return None;
        }
        self.lock_looked_up().clone()
    }

    pub fn keep_looked_up(&self, said: (ObjectView, Duration)) {
        *self.lock_looked_up() = Some(LookedUp { said: Arc::new(said), doubted: false });
    }

    /// The coordinator is to be asked again, if it can be.
    pub fn doubt_looked_up(&self) {
        if let Some(known) = self.lock_looked_up().as_mut() {
            known.doubted = true;
        }
    }

    fn lock_looked_up(&self) -> MutexGuard<'_, Option<LookedUp>> {
        self.looked_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its tickets, if it has any, are good for a while.
    fn tickets_last(&self) -> bool {
        self.stripe.log_tickets.is_empty() || self.since.elapsed() < TICKETS_LAST
    }

    /// What we may do with what a node logs for a block.
    pub fn ticket(&self, block: BlockIndex, node: NodeId) -> Option<Ticket> {
        let tickets = self.stripe.log_tickets.get(usize::from(block.0))?;
        let at = self.log(block).iter().position(|log| *log == node);
        at.map_or(tickets.last(), |at| tickets.get(at)).copied()
    }

    pub fn block(&self, index: BlockIndex) -> BlockId {
        BlockId { stripe: self.stripe.stripe.id, index }
    }

    /// Whether a node logs for a block as a replica.
    pub fn is_replica(&self, block: BlockIndex, node: NodeId) -> bool {
        let place = self.stripe.stripe.blocks.get(usize::from(block.0)).and_then(Option::as_ref);
        place.is_none_or(|place| place.node != node)
    }

    /// The generation of a block.
    pub fn generation(&self, block: BlockIndex) -> u32 {
        self.stripe.stripe.generations().get(usize::from(block.0)).copied().unwrap_or_default()
    }

    pub fn control(&self, node: NodeId) -> Option<SocketAddr> {
        self.nodes.get(&node).map(|known| known.control)
    }

    /// The epochs that a node which logs for the stripe may know, if this map is not too old.
    pub fn epochs(&self) -> VolumeEpochs {
        VolumeEpochs { volume: self.owner(), from: self.stripe.epoch, to: self.taken.max(self.stripe.epoch) }
    }
}

impl Map {
    pub fn new(client: Client, volume: &VolumeInfo, writer: Option<u64>) -> Self {
        Self {
            client,
            volume: volume.id,
            writer,
            size: AtomicU64::new(volume.size),
            known: Mutex::default(),
            asking: Default::default(),
        }
    }

    pub fn size(&self) -> u64 {
        self.size.load(Relaxed)
    }

    /// The right to make a stripe, or to ask for it.
    pub async fn turn(&self, index: u64) -> tokio::sync::MutexGuard<'_, ()> {
        self.asking[index as usize % self.asking.len()].lock().await
    }

    /// A stripe, if it exists. As long as a node with a log of it does not answer, it is asked for again, until the
    /// client's patience ends.
    pub async fn stripe(&self, index: u64) -> Result<Option<Arc<Mapped>>, ClientError> {
        let mut patience = Patience::of(&self.client);
        loop {
            match self.first_asked(index).await {
                Err(error) if patience.bears(&error) => patience.wait().await,
                asked => return asked,
            }
        }
    }

    async fn first_asked(&self, index: u64) -> Result<Option<Arc<Mapped>>, ClientError> {
        if let Some(known) = self.known(index) {
            return Ok(known);
        }
        let _turn = self.turn(index).await;
        match self.known(index) {
            Some(known) => Ok(known),
            None => self.ask(index, None, false).await,
        }
    }

    /// A stripe that exists at some moment of this call, if there is one: another writer may have made it.
    pub async fn existing(&self, index: u64) -> Result<Option<Arc<Mapped>>, ClientError> {
        let mut patience = Patience::of(&self.client);
        loop {
            if let Some(Some(known)) = self.known(index) {
                return Ok(Some(known));
            }
            let _turn = self.turn(index).await;
            match self.ask(index, None, false).await {
                Err(error) if patience.bears(&error) => patience.wait().await,
                asked => return asked,
            }
        }
    }

    /// Whether a stripe exists is not known any more.
    pub fn forget(&self, index: u64) {
        self.lock().stripes.remove(&index);
    }

    /// The first write to a stripe failed, but what it stored may still appear.
    pub fn doubt(&self, index: u64) {
        let mut known = self.lock();
        known.stripes.remove(&index);
        known.doubtful.insert(index);
    }

    /// Whether a stripe may be made by a write that failed. It is not enough then that it does not exist now.
    pub fn may_appear(&self, index: u64) -> bool {
        self.lock().doubtful.contains(&index)
    }

    /// A write under this epoch has failed: before the next one, nodes must refuse what is still on its way.
    pub fn fail(&self, index: u64, epoch: u64) {
        let mut known = self.lock();
        known.stripes.remove(&index);
        let newest = known.failed.entry(index).or_default();
        *newest = epoch.max(*newest);
    }

    /// What is known of a stripe.
    pub fn known(&self, index: u64) -> Option<Option<Arc<Mapped>>> {
        let known = self.lock().stripes.get(&index).cloned();
        known.filter(|known| known.as_ref().is_none_or(|mapped| mapped.tickets_last()))
    }

    /// A node refused this map, or did not answer: asks for another one, unless there is one by now. `failed`: under which
    /// epoch a write failed; a map of that epoch is none.
    pub async fn renew(
        &self,
        index: u64,
        old: &Arc<Mapped>,
        failed: Option<u64>,
    ) -> Result<Option<Arc<Mapped>>, ClientError> {
        let _turn = self.turn(index).await;
        match self.known(index) {
            Some(Some(now))
                if !Arc::ptr_eq(&now, old) && failed.is_none_or(|failed| now.stripe.epoch > failed) =>
            {
                Ok(Some(now))
            }
            _ => self.ask(index, failed, false).await,
        }
    }

    /// The stripe as the writer's own, where a snapshot shares it.
    pub async fn own(&self, index: u64, shared: &Arc<Mapped>) -> Result<Option<Arc<Mapped>>, ClientError> {
        let mut patience = Patience::of(&self.client);
        loop {
            let _turn = self.turn(index).await;
            match self.known(index) {
                Some(Some(now)) if !Arc::ptr_eq(&now, shared) && !now.stripe.shared => return Ok(Some(now)),
                _ => {}
            }
            match self.ask(index, None, true).await {
                Err(error) if patience.bears(&error) => patience.wait().await,
                asked => return asked,
            }
        }
    }

    /// Asks the coordinator; the caller has the turn. `own`: the writer is about to write.
    pub async fn ask(
        &self,
        index: u64,
        failed: Option<u64>,
        own: bool,
    ) -> Result<Option<Arc<Mapped>>, ClientError> {
        let (volume, writer) = (self.volume, self.writer);
        let before = self.lock().failed.get(&index).copied();
        let failed = failed.max(before);
        let ask = MapVolume { volume, first: index, count: 1, writer, failed, own: Some(own) };
        let VolumeMap { taken, size, stripes, nodes } = self.told(ask).await?;
        self.size.store(size, Relaxed);
        let nodes = Arc::new(self.client.told(nodes));
        let found = stripes.into_iter().find(|stripe| stripe.index == index);
        let since = Instant::now();
        let looked_up = Mutex::default();
        let mapped = found.map(|stripe| Arc::new(Mapped { stripe, nodes, volume, taken, since, looked_up }));
        let mut known = self.lock();
        // A write may have failed meanwhile, of which the coordinator does not know yet: whoever writes next asks again.
        let is_told = known.failed.get(&index).is_none_or(|newest| Some(*newest) <= failed);
        if is_told {
            known.failed.remove(&index);
        }
        if mapped.is_some() {
            known.doubtful.remove(&index);
        }
        // Where nothing was logged when a reader asked, nothing tells it later that it is logged elsewhere by then. The writer alone
        // has it logged, unless it is shared: then another writer may have got a copy by then.
        let lasts = mapped.as_ref().map_or(writer.is_some(), |mapped| {
            let VolumeStripe { logs, shared, frozen, .. } = &mapped.stripe;
            !logs.is_empty() || *frozen || (writer.is_some() && !*shared)
        });
        if is_told && lasts {
            known.stripes.insert(index, mapped.clone());
        } else {
            known.stripes.remove(&index);
        }
        drop(known);
        Ok(mapped)
    }

    /// The stripe as the coordinator has it now. Nothing is kept of that, and no logs are moved for the writer.
    pub async fn now(&self, index: u64) -> Result<Option<VolumeStripe>, ClientError> {
        let (volume, count) = (self.volume, 1);
        let ask = MapVolume { volume, first: index, count, writer: None, failed: None, own: None };
        let told = self.told(ask).await?;
        Ok(told.stripes.into_iter().find(|stripe| stripe.index == index))
    }

    async fn told(&self, ask: MapVolume) -> Result<VolumeMap, ClientError> {
        let told = self.client.call_patiently(|mut c| {
            let ask = ask.clone();
            async move { c.volumes.map_volume(ask).await }
        });
        told.await
    }

    /// A node did not answer.
    pub fn avoid(&self, node: NodeId) {
        self.lock().silent.insert(node, Instant::now());
    }

    /// Whether a node did not answer just now.
    pub fn is_silent(&self, node: NodeId) -> bool {
        self.lock().silent.get(&node).is_some_and(|since| since.elapsed() < AVOID)
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
