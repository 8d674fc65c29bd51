//! The cost of small slices: one block is repaired along a chain of helpers, and one is copied directly, for a
//! range of slice sizes, compared with bare relays that do the same with blocking sockets. All in one run on one
//! machine.
//!
//! Every node has its own store, listener and executor, as an agent's process has. The links are loopback and not
//! shaped, so the processors are the limit, and a rate measures processor work.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_kernel::{Kernel, Mode};
use kintsu_plan::{
    Layout, LayoutKind, Method, Node as PlanNode, Plan, Program, ProgramContext, Repair, RunId, StripeView,
    Topology, copy, repair,
};
use kintsu_runtime::{Context, DataPlane, StoreLocal, run as run_programs};
use kintsu_store::{BlockStore, FileStore, Generation, UNIT_BYTES, block_path};
use kintsu_wire::Credentials;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::io::cpu_seconds;
use super::{relay, verdict};
use crate::Machine;
use crate::error::{Context as _, Result, ensure};
use crate::plain;

const GENERATION: u32 = 1;

/// The chain's processor time for each gigabyte and hop should be at most this many times that of the bare relays, in
/// slices of [`LEAST_JUDGED`] or more.
const AIM: f64 = 1.25;

/// Smaller slices cost more than their bytes, whoever moves them.
const LEAST_JUDGED: u32 = 32 << 10;

/// The block that is lost, and copied.
const LOST: BlockIndex = BlockIndex(0);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Size of the block.
    pub block_bytes: u64,
    /// Helpers of the chain.
    pub helpers: usize,
    /// Slice sizes.
    pub slices: Vec<u32>,
    /// Repetitions; the best is reported.
    pub runs: u32,
    /// An empty folder.
    pub dir: PathBuf,
    /// Makes the executor of a node, as an agent's process has one.
    pub executor: fn() -> Result<Runtime>,
}

/// One way of moving the block, at its best.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Side {
    /// Megabytes (10^6) of the block a second.
    pub mb_s: f64,
    /// Processor seconds for each gigabyte (10^9) over one hop.
    pub cpu_s_per_gb_hop: f64,
}

/// One slice size.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The slice.
    pub slice_bytes: u32,
    /// The chain of helpers.
    pub chain: Side,
    /// A copy from node to node.
    pub direct: Side,
    /// Bare relays as long as the chain.
    pub relay: Side,
    /// Time of the chain over that of the copy.
    pub chain_over_direct: f64,
    /// Rate of the chain over that of the bare relays.
    pub chain_over_relay: f64,
    /// Processor time of the chain, for each gigabyte and hop, over that of the bare relays.
    pub cpu_over_relay: f64,
    /// The upper limit that `cpu_over_relay` should not exceed, if there is an aim for this slice.
    pub aim: Option<f64>,
}

/// The measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the processor.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Size of the block.
    pub block_bytes: u64,
    /// Helpers of the chain.
    pub helpers: usize,
    /// All slice sizes.
    pub rows: Vec<Row>,
}

/// Runs the measurement.
///
/// # Errors
/// Errors of the disk or a socket, or a repaired block that differs from the lost one.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let dir = options.dir.as_path();
    progress("filling the nodes");
    let mut site = Site::new(options, dir).await?;
    let mut rows = Vec::new();
    for &slice_bytes in &options.slices {
        let mut sides: [Vec<Sample>; 3] = Default::default();
        for turn in 0..options.runs.max(1) {
            progress(&format!("slices of {slice_bytes} bytes, run {}", turn + 1));
            sides[0].push(site.chain(slice_bytes).await?);
            sides[1].push(site.direct(slice_bytes).await?);
            sides[2].push(site.bare(options, dir, slice_bytes)?);
        }
        let hops = [options.helpers, 1, options.helpers];
        let side = |i: usize| Side::of(&sides[i], options.block_bytes, hops[i]);
        let (chain, direct, relay) = (side(0), side(1), side(2));
        rows.push(Row {
            slice_bytes,
            chain_over_direct: direct.mb_s / chain.mb_s,
            chain_over_relay: chain.mb_s / relay.mb_s,
            cpu_over_relay: chain.cpu_s_per_gb_hop / relay.cpu_s_per_gb_hop,
            aim: (slice_bytes >= LEAST_JUDGED).then_some(AIM),
            chain,
            direct,
            relay,
        });
    }
    Ok(Report {
        processor: Machine::this().processor,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        block_bytes: options.block_bytes,
        helpers: options.helpers,
        rows,
    })
}

struct Sample {
    seconds: f64,
    cpu: f64,
}

impl Sample {
    fn since(started: Instant, cpu: f64) -> Self {
        Self { seconds: started.elapsed().as_secs_f64().max(1e-9), cpu: cpu_seconds() - cpu }
    }
}

impl Side {
    /// The fastest run, and the least work.
    fn of(samples: &[Sample], bytes: u64, hops: usize) -> Self {
        let least = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(f64::INFINITY, f64::min);
        let gb_hops = bytes as f64 * hops as f64 / 1e9;
        Self { mb_s: bytes as f64 / 1e6 / least(|s| s.seconds), cpu_s_per_gb_hop: least(|s| s.cpu) / gb_hops }
    }
}

/// A node, like an agent's process.
struct Node {
    runtime: Option<Runtime>,
    plane: Arc<DataPlane>,
    store: Arc<FileStore>,
    local: Arc<StoreLocal>,
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// All nodes, and a stripe on all of them but the last, which is the requestor.
struct Site {
    nodes: Vec<Node>,
    topology: Topology,
    view: StripeView,
    digest: [u8; 16],
    jobs: u64,
}

impl Site {
    async fn new(options: &Options, dir: &Path) -> Result<Self> {
        let k = options.helpers;
        let code = kintsu_code::parse(&format!("rs:n={},k={k}", k + 1))?;
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: options.block_bytes,
            cell_bytes: 128 << 10,
            w: 1,
            data_bytes: options.block_bytes * k as u64,
        };
        let ids = || (0..k as u32 + 2).map(NodeId);
        let node =
            |id: NodeId| (id, PlanNode { rack: RackId(id.0), usable: true, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: ids().map(node).collect(), ..Topology::default() };
        let homes = ids().take(k + 1).map(Some).collect();
        let view = StripeView { id: StripeId(1), code, layout, homes };
        let mut nodes = Vec::new();
        for id in ids() {
            nodes.push(Node::start(id, dir, options.executor).await?);
        }
        let mut site = Self { nodes, topology, view, digest: [0; 16], jobs: 0 };
        site.fill(options.block_bytes)?;
        Ok(site)
    }

    /// Stores the blocks piece by piece, all blocks at the same time.
    fn fill(&mut self, block_bytes: u64) -> Result<()> {
        let k = self.view.code.k();
        let parity = self.view.code.generator().select_rows(k..k + 1);
        let kernel = Kernel::new(1, k, parity.as_slice())?;
        let create = |i: usize| {
            let id = BlockId { stripe: self.view.id, index: BlockIndex(i as u8) };
            self.nodes[i].store.create(id, Generation(GENERATION), block_bytes, UNIT_BYTES as u32, &[])
        };
        let mut writes = (0..=k).map(create).collect::<Result<Vec<_>, _>>()?;
        let mut pieces = vec![vec![0; UNIT_BYTES]; k + 1];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for at in (0..block_bytes).step_by(UNIT_BYTES) {
            let len = (block_bytes - at).min(UNIT_BYTES as u64) as usize;
            let (data, sum) = pieces.split_at_mut(k);
            for word in data.iter_mut().flat_map(|piece| piece.chunks_exact_mut(8)) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes());
            }
            let inputs: Vec<&[u8]> = data.iter().map(|piece| &piece[..len]).collect();
            kernel.apply(&inputs, &mut [&mut sum[0][..len]], Mode::Overwrite)?;
            for (write, piece) in writes.iter_mut().zip(&pieces) {
                write.write_at(at, &piece[..len])?;
            }
        }
        for (i, write) in writes.into_iter().enumerate() {
            let meta = write.finish(None)?;
            if i == usize::from(LOST.0) {
                self.digest = meta.digest.0;
            }
        }
        Ok(())
    }

    fn requestor(&self) -> NodeId {
        NodeId(self.nodes.len() as u32 - 1)
    }

    async fn chain(&mut self, slice_bytes: u32) -> Result<Sample> {
        let home = self.view.homes[usize::from(LOST.0)].take();
        let wanted =
            Repair { lost: vec![LOST], requestors: vec![self.requestor()], method: Method::Pipeline };
        let plan = repair(&self.view, &self.topology, &wanted, &|_| 0, &[])?.plan;
        let sample = self.play(&plan, slice_bytes).await;
        self.view.homes[usize::from(LOST.0)] = home;
        sample
    }

    async fn direct(&mut self, slice_bytes: u32) -> Result<Sample> {
        let plan = copy(&self.view, LOST, self.requestor())?;
        self.play(&plan, slice_bytes).await
    }

    /// Bare relays that read the files of the helpers' blocks.
    fn bare(&self, options: &Options, dir: &Path, slice_bytes: u32) -> Result<Sample> {
        let file = |index: usize| {
            let id = BlockId { stripe: self.view.id, index: BlockIndex(index as u8) };
            block_path(&dir.join(NodeId(index as u32).to_string()), id)
        };
        let files = (1..=options.helpers).map(file).collect();
        let (started, cpu) = (Instant::now(), cpu_seconds());
        relay::run(options.block_bytes, slice_bytes as usize, files)?;
        Ok(Sample::since(started, cpu))
    }

    /// Runs a plan that rebuilds the lost block on the requestor, and then removes the block.
    async fn play(&mut self, plan: &Plan, slice_bytes: u32) -> Result<Sample> {
        self.jobs += 1;
        let peers = |node: NodeId| -> Option<SocketAddr> { self.nodes.get(node.0 as usize)?.plane.addr() };
        let programs = plan.programs(&ProgramContext {
            generations: &[],
            job: RunId(self.jobs),
            view: &self.view,
            generation: GENERATION,
            window: (0, u64::MAX),
            slice_bytes,
            expect: &[Some(self.digest)],
            label: &[],
            peers: &peers,
            resume_key: 0,
        })?;
        let mut by_node: BTreeMap<NodeId, Vec<Program>> = BTreeMap::new();
        for program in programs {
            by_node.entry(program.node).or_default().push(program);
        }
        let (started, cpu) = (Instant::now(), cpu_seconds());
        let runs: Vec<_> =
            by_node.into_iter().map(|(id, programs)| self.nodes[id.0 as usize].spawn(programs)).collect();
        for run in runs {
            let outcome = run.await?;
            ensure!(outcome.fault.is_none(), "{:?}", outcome.fault);
        }
        let sample = Sample::since(started, cpu);
        let id = BlockId { stripe: self.view.id, index: LOST };
        let requestor = &self.nodes[self.requestor().0 as usize];
        ensure!(requestor.store.delete(id, None)?, "the block is not there");
        Ok(sample)
    }
}

impl Node {
    async fn start(id: NodeId, dir: &Path, executor: fn() -> Result<Runtime>) -> Result<Self> {
        let runtime = executor()?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let plane = runtime.spawn(DataPlane::listen(any, Credentials::none(), None)).await??;
        let store = Arc::new(FileStore::open(&dir.join(id.to_string()))?);
        let local = Arc::new(StoreLocal::new(id, store.clone()));
        Ok(Self { runtime: Some(runtime), plane, store, local })
    }

    fn spawn(
        &self,
        programs: Vec<Program>,
    ) -> impl Future<Output = Result<kintsu_wire::message::RunOutcome>> + use<> {
        let context = Context::new(self.plane.clone(), self.local.clone());
        let handle = self.runtime.as_ref().map(Runtime::handle).cloned();
        let run = handle.map(|h| h.spawn(async move { run_programs(&programs, context).await }));
        async move { Ok(run.context("a node without an executor")?.await?) }
    }
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let mut table = plain::table([
            "slice KiB",
            "chain MB/s",
            "direct MB/s",
            "relay MB/s",
            "chain s/GB/hop",
            "direct s/GB/hop",
            "relay s/GB/hop",
            "time chain/direct",
            "rate chain/relay",
            "s chain/relay",
            "aim",
        ]);
        for row in &self.rows {
            table.add_row([
                (row.slice_bytes >> 10).to_string(),
                format!("{:.0}", row.chain.mb_s),
                format!("{:.0}", row.direct.mb_s),
                format!("{:.0}", row.relay.mb_s),
                format!("{:.2}", row.chain.cpu_s_per_gb_hop),
                format!("{:.2}", row.direct.cpu_s_per_gb_hop),
                format!("{:.2}", row.relay.cpu_s_per_gb_hop),
                format!("{:.2}", row.chain_over_direct),
                format!("{:.2}", row.chain_over_relay),
                format!("{:.2}", row.cpu_over_relay),
                row.aim
                    .map_or(String::new(), |aim| format!("<= {aim}: {}", verdict(row.cpu_over_relay <= aim))),
            ]);
        }
        format!(
            "a block of {} bytes along {} helpers, on loopback, {} x {}; MB of the block a second, processor seconds for each GB and \
             hop, best runs\n{table}",
            self.block_bytes, self.helpers, self.processors, self.processor
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_that_costs_too_much_misses_the_aim_unless_it_is_small() {
        let side = |cpu_s_per_gb_hop| Side { mb_s: 1.0, cpu_s_per_gb_hop };
        let row = |slice_bytes, cpu: f64, aim| Row {
            slice_bytes,
            chain: side(cpu),
            direct: side(1.0),
            relay: side(1.0),
            chain_over_direct: 1.0,
            chain_over_relay: 1.0,
            cpu_over_relay: cpu,
            aim,
        };
        let rows = vec![row(4096, 9.0, None), row(32 << 10, 1.25, Some(AIM)), row(1 << 20, 1.5, Some(AIM))];
        let report = Report { processor: "p".into(), processors: 2, block_bytes: 1, helpers: 3, rows };
        let table = report.table();
        let ends: Vec<&str> = table.lines().rev().take(3).map(str::trim_end).collect();
        assert!(ends[0].ends_with("<= 1.25: missed") && ends[1].ends_with("<= 1.25: met"), "{table}");
        assert!(ends[2].ends_with("9.00"), "{table}");
    }
}
