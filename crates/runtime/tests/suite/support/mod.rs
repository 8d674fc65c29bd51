//! A cluster without a coordinator: real stores in a temporary directory, real sockets on loopback.
#![allow(dead_code, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kintsu_algebra::mul;
use kintsu_code::Code;
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::update::UpdatePlan;
use kintsu_plan::{
    Layout, LayoutKind, Node as PlanNode, Plan, Program, ProgramContext, RunId, StripeView, Topology, place,
};
use kintsu_runtime::{
    BlockSource, Carried, ClientLocal, Context, DataPlane, Delivery, Limits, Local, StoreLocal, run,
};
use kintsu_store::{AppendLog, BlockStore, Digest, FileStore, Generation, UNIT_BYTES};
use kintsu_wire::Credentials;
use kintsu_wire::frame::{FrameVersion, Header, Kind};
use kintsu_wire::message::{Fault, RunOutcome};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub const GENERATION: u32 = 3;
/// The label in the headers of blocks that programs write.
pub const LABEL: &[u8] = b"what the block is part of";

/// A guard against hangs only; no test depends on how long this takes.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it hangs")
}

/// Limits that find faults soon enough for a test.
pub fn quick() -> Limits {
    Limits {
        stall: Duration::from_millis(3000),
        peer_silence: Duration::from_millis(1500),
        keep_alive: Duration::from_millis(200),
        arrival: Duration::from_millis(1500),
        ..Limits::default()
    }
}

/// Bytes of every slice in [`slices`].
pub const SLICE: u32 = 4096;

/// The first slices of what a program sends, as frames.
pub fn slices(program: &Program, count: u64) -> Vec<u8> {
    let (vertex, _) = program.sends[0];
    let mut bytes = Vec::new();
    for step in 0..count {
        let kind = Kind::Slice { vertex, offset: step * u64::from(SLICE), zero: false };
        let payload = vec![step as u8 + 1; SLICE as usize];
        bytes.extend_from_slice(&Header::new(kind, program.lane, &payload).encode(FrameVersion::NEWEST));
        bytes.extend_from_slice(&payload);
    }
    bytes
}

/// One of these blocks.
struct ObjectBlock(Arc<Vec<Vec<u8>>>, usize);

impl BlockSource for ObjectBlock {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        buf.copy_from_slice(&self.0[self.1][offset as usize..][..buf.len()]);
        Ok(())
    }
}

pub struct Node {
    pub store: Arc<FileStore>,
    pub log: Arc<AppendLog>,
    pub local: Arc<StoreLocal>,
    pub plane: Arc<DataPlane>,
    pub dir: PathBuf,
}

/// Nodes, and one stripe placed on them.
pub struct Site {
    _dir: tempfile::TempDir,
    pub nodes: BTreeMap<NodeId, Node>,
    pub topology: Topology,
    pub view: StripeView,
    pub object: Vec<u8>,
    /// All n blocks at their true lengths.
    pub blocks: Vec<Vec<u8>>,
    pub limits: Limits,
    pub resume_key: u64,
    /// Shared by the runs of all nodes.
    pub carried: Arc<Carried>,
    jobs: AtomicU64,
}

/// Bytes without a pattern, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

impl Site {
    /// A site for a stripe of `code` with blocks of `block_bytes` (the last data block shorter by
    /// `missing` bytes), stored on its nodes except for what `store` leaves out.
    pub async fn new(code: &str, kind: LayoutKind, block_bytes: usize, missing: usize) -> Self {
        let code = kintsu_code::parse(code).unwrap();
        let data_bytes = (code.k() * block_bytes - missing) as u64;
        let layout = Layout { kind, block_bytes: block_bytes as u64, cell_bytes: 4096, w: 1, data_bytes };
        let racks = code.n();
        let node = |i: usize| PlanNode {
            rack: RackId((i / 2) as u32),
            usable: true,
            used_bytes: 0,
            room_bytes: None,
        };
        let topology = Topology {
            nodes: (0..2 * racks).map(|i| (NodeId(i as u32), node(i))).collect(),
            ..Topology::default()
        };
        let homes = place(code.as_ref(), &layout, &topology, 1).unwrap().homes;
        let view = StripeView { id: StripeId(1), code: code.clone(), layout, homes };
        let object = noise(data_bytes as usize, 11);
        let blocks = blocks(&view, &object);
        let dir = tempfile::tempdir().unwrap();
        let mut nodes = BTreeMap::new();
        for &id in topology.nodes.keys() {
            nodes.insert(id, Node::new(id, dir.path()).await);
        }
        let (limits, jobs) = (Limits::default(), AtomicU64::new(1));
        let (resume_key, carried) = (0, Arc::default());
        Self { _dir: dir, nodes, topology, view, object, blocks, limits, resume_key, carried, jobs }
    }

    pub fn id(&self, index: u8) -> BlockId {
        BlockId { stripe: self.view.id, index: BlockIndex(index) }
    }

    /// Stores the blocks with these indices at their homes.
    pub fn store(&self, indices: impl IntoIterator<Item = u8>) {
        for index in indices {
            let Some(home) = self.view.homes[index as usize] else { continue };
            let block = &self.blocks[index as usize];
            let mut write = self.nodes[&home]
                .store
                .create(self.id(index), Generation(GENERATION), block.len() as u64, UNIT_BYTES as u32, &[])
                .unwrap();
            write.write_at(0, block).unwrap();
            write.finish(None).unwrap();
        }
    }

    pub fn read(&self, node: NodeId, index: u8) -> Vec<u8> {
        let mut read = self.nodes[&node].store.open(self.id(index), Generation(GENERATION)).unwrap();
        let mut bytes = vec![0; read.meta().len as usize];
        read.read_at(0, &mut bytes).unwrap();
        bytes
    }

    /// The label in the header of a block.
    pub fn label(&self, node: NodeId, index: u8) -> Vec<u8> {
        self.nodes[&node].store.look(self.id(index)).unwrap().label
    }

    pub fn has(&self, node: NodeId, index: u8) -> bool {
        self.nodes[&node].store.ids().unwrap().contains(&self.id(index))
    }

    /// A node that holds no block of the stripe.
    pub fn spare(&self, nth: usize) -> NodeId {
        let free = |node: &&NodeId| !self.view.homes.contains(&Some(**node));
        *self.nodes.keys().filter(free).nth(nth).unwrap()
    }

    /// Programs of a plan, with the digests that are right.
    pub fn programs(&self, plan: &Plan, window: (u64, u64), slice_bytes: u32) -> Vec<Program> {
        let expect: Vec<_> = self.blocks.iter().map(|block| Some(Digest::of_bytes(block).0)).collect();
        let peers = |node: NodeId| -> Option<SocketAddr> { self.nodes.get(&node)?.plane.addr() };
        let context = ProgramContext {
            generations: &[],
            job: RunId(self.jobs.fetch_add(1, Ordering::Relaxed)),
            view: &self.view,
            generation: GENERATION,
            window,
            slice_bytes,
            expect: &expect,
            label: LABEL,
            peers: &peers,
            resume_key: self.resume_key,
        };
        plan.programs(&context).unwrap()
    }

    /// Programs of an update over these bytes of the blocks, run by run. All blocks are of [`GENERATION`] now.
    pub fn update_programs(&self, plan: &UpdatePlan, window: (u64, u64), next: u32) -> Vec<Vec<Program>> {
        let expect: Vec<_> = self.blocks.iter().map(|block| Some(Digest::of_bytes(block).0)).collect();
        let peers = |node: NodeId| -> Option<SocketAddr> { self.nodes.get(&node)?.plane.addr() };
        let context = ProgramContext {
            generations: &[],
            job: RunId(0),
            view: &self.view,
            generation: GENERATION,
            window,
            slice_bytes: 0,
            expect: &expect,
            label: &[],
            peers: &peers,
            resume_key: 0,
        };
        let generations = vec![GENERATION; self.view.code.n()];
        let job = || RunId(self.jobs.fetch_add(1, Ordering::Relaxed));
        plan.programs(&context, &generations, next, &mut { job }).unwrap()
    }

    pub fn context(&self, node: NodeId) -> Context {
        let node = &self.nodes[&node];
        self.context_with(node.plane.clone(), node.local.clone())
    }

    pub fn context_with(&self, plane: Arc<DataPlane>, local: Arc<dyn Local>) -> Context {
        Context { limits: self.limits, carried: self.carried.clone(), ..Context::new(plane, local) }
    }

    /// The blocks as loaded by a client that writes the site's object.
    pub fn client(&self) -> ClientLocal {
        let blocks = Arc::new(self.blocks.clone());
        ClientLocal::reading(move |binding| {
            Ok(Box::new(ObjectBlock(blocks.clone(), usize::from(binding.index.0))))
        })
    }

    /// Runs all programs except those of the nodes `without`; those of the client use `client`.
    pub async fn run(
        &self,
        programs: &[Program],
        client: Option<ClientLocal>,
        without: &[NodeId],
    ) -> BTreeMap<NodeId, RunOutcome> {
        let contexts = |node: NodeId| match node.is_client() {
            true => self.context_with(
                DataPlane::client(Credentials::none()),
                Arc::new(client.clone().expect("the client has programs")),
            ),
            false => self.context(node),
        };
        within(run_all(programs, contexts, without)).await
    }

    /// As [`Site::run`], which must succeed.
    pub async fn succeed(
        &self,
        programs: &[Program],
        client: Option<ClientLocal>,
    ) -> BTreeMap<NodeId, RunOutcome> {
        let outcomes = self.run(programs, client, &[]).await;
        for outcome in outcomes.values() {
            assert_eq!(outcome.fault, None, "{outcome:?}");
        }
        outcomes
    }

    /// Files that are being written or were left over.
    pub fn left_over(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        self.nodes.values().for_each(|node| files(&node.dir, &mut found));
        found.retain(|path| path.extension().is_some_and(|ext| ext == "tmp"));
        found
    }
}

impl Node {
    async fn new(id: NodeId, dir: &Path) -> Self {
        let dir = dir.join(id.to_string());
        let store = Arc::new(FileStore::open(&dir).unwrap());
        let log = store.log().unwrap();
        let local = Arc::new(StoreLocal::new(id, store.clone()));
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plane = DataPlane::listen(any, Credentials::none(), None).await.unwrap();
        Self { store, log, local, plane, dir }
    }
}

/// Runs the programs of each node in its context.
pub async fn run_all(
    programs: &[Program],
    context: impl Fn(NodeId) -> Context,
    without: &[NodeId],
) -> BTreeMap<NodeId, RunOutcome> {
    let mut by_node: BTreeMap<NodeId, Vec<Program>> = BTreeMap::new();
    for program in programs {
        by_node.entry(program.node).or_default().push(program.clone());
    }
    let mut runs = JoinSet::new();
    for (node, programs) in by_node.into_iter().filter(|(node, _)| !without.contains(node)) {
        let context = context(node);
        runs.spawn(async move { (node, run(&programs, context).await) });
    }
    let mut outcomes = BTreeMap::new();
    while let Some(outcome) = runs.join_next().await {
        let (node, outcome) = outcome.unwrap();
        outcomes.insert(node, outcome);
    }
    outcomes
}

/// A client that gets blocks, and the bytes it gets, by block; complete when the client is dropped.
pub fn getting(view: &StripeView) -> (ClientLocal, tokio::task::JoinHandle<BTreeMap<u8, Vec<u8>>>) {
    let (sender, mut deliveries) = mpsc::channel::<Delivery>(4);
    let lens: Vec<_> = (0..view.code.n()).map(|i| view.block_len(BlockIndex(i as u8)) as usize).collect();
    let taking = tokio::spawn(async move {
        let mut got: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        while let Some(delivery) = deliveries.recv().await {
            let block =
                got.entry(delivery.index.0).or_insert_with(|| vec![0; lens[delivery.index.0 as usize]]);
            let at = delivery.offset as usize;
            block[at..at + delivery.bytes.len()].copy_from_slice(&delivery.bytes);
        }
        got
    });
    (ClientLocal::delivering(sender), taking)
}

pub fn files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

/// All n blocks at their true lengths, straight from the object and the generator matrix.
pub fn blocks(view: &StripeView, object: &[u8]) -> Vec<Vec<u8>> {
    let code: &Arc<dyn Code> = &view.code;
    let (k, n) = (code.k(), code.n());
    let mut blocks = vec![vec![0; view.layout.longest(k) as usize]; n];
    for extent in view.layout.locate(k, 0..object.len() as u64) {
        let (from, to) = (extent.object_range, extent.block_range);
        blocks[extent.block.0 as usize][to.start as usize..to.end as usize]
            .copy_from_slice(&object[from.start as usize..from.end as usize]);
    }
    for parity in k..n {
        for data in 0..k {
            let coef = code.generator().row(parity)[data];
            let (left, right) = blocks.split_at_mut(parity);
            right[0].iter_mut().zip(&left[data]).for_each(|(p, d)| *p ^= mul(coef, *d));
        }
    }
    for (i, block) in blocks.iter_mut().enumerate() {
        block.truncate(view.block_len(BlockIndex(i as u8)) as usize);
    }
    blocks
}
