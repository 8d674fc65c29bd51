//! A coordinator with a million stripes: its start time, its memory, and the latencies of its calls.
//!
//! The metadata are written through the coordinator's own operations (begin and commit of puts, one transaction
//! each). Then a coordinator is started on them in a separate process, as `kintsu coordinator` does. Idle agents
//! register with it, and each reports every block that it is supposed to hold. The measured calls are real calls
//! over gRPC. Then a backup is taken, and another coordinator is started from it. At last the metadata are rebuilt
//! from the agents' reports of their blocks.

mod calls;
mod rebuild;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kintsu_coordinator::engine::identity::Applicant;
use kintsu_coordinator::meta::{CodeRecord, Meta, NewPut, NodeRecord};
use kintsu_dag::{BlockId, BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{Division, Layout, LayoutKind, Node, Topology, place};
use kintsu_wire::message::{
    Backup, BlockPage, Encoding, Heartbeat, HeldBlock, Nothing, Register, WrittenStripe,
};
use kintsu_wire::{CoordinatorChannel, FolderId};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader};

use self::calls::{Latency, latencies};
use self::rebuild::RebuildReport;
use crate::error::{Context, Result};
use crate::plain;

const CODE: &str = "rs:n=14,k=10";
const N: usize = 14;
/// Data bytes of a stripe.
const STRIPE_BYTES: u64 = 10 * BLOCK_BYTES;
/// When all objects were written, in seconds since 1970.
const CREATED: u64 = 1;
const NODES: u32 = 20;
const RACKS: u32 = 5;
/// Stripes of a large object; a tenth of all stripes are small objects of one stripe, up to
/// [`MOST_SMALL`].
const LARGE: u64 = 1000;
const MOST_SMALL: u64 = 5000;
const BLOCK_BYTES: u64 = 64 << 20;
const CELL_BYTES: u32 = 128 << 10;
/// Blocks of a page of a registration.
const PAGE: usize = 4096;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// How many stripes.
    pub stripes: u64,
    /// An empty folder for the metadata.
    pub dir: PathBuf,
}

/// The measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Stripes in the metadata.
    pub stripes: u64,
    /// Objects in the metadata.
    pub objects: u64,
    /// Size of the metadata on disk, bytes a stripe.
    pub file_bytes_per_stripe: f64,
    /// How long writing them took.
    pub fill_seconds: f64,
    /// Time from the start of the process to its first answer.
    pub start_seconds: f64,
    /// Resident memory after the start, bytes.
    pub start_memory_bytes: u64,
    /// Time of one agent's registration (median), in which all its blocks are compared.
    pub register_seconds: f64,
    /// Largest resident memory up to the end, bytes.
    pub peak_memory_bytes: u64,
    /// Calls afterwards.
    pub latencies: Vec<Latency>,
    /// A copy of the metadata.
    pub copy: CopyReport,
    /// The rebuild of the metadata without a copy.
    pub rebuild: RebuildReport,
}

/// The cost of a copy of the metadata.
#[derive(Debug, Clone, Serialize)]
pub struct CopyReport {
    /// Its size.
    pub bytes: u64,
    /// Time of writing it into a file.
    pub backup_seconds: f64,
    /// Resident memory of the coordinator: the largest during the backup, and that before it, bytes.
    pub backup_memory_bytes: (u64, u64),
    /// Time from the start of a coordinator that restores it to its first answer.
    pub restore_seconds: f64,
    /// Largest resident memory of that coordinator, bytes.
    pub restore_memory_bytes: u64,
    /// Time from the next start on the restored metadata to the first answer.
    pub start_seconds: f64,
}

/// Runs the measurement.
///
/// # Errors
/// Errors of the disk or the coordinator.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let dir = options.dir.as_path();
    let started = Instant::now();
    let filled = fill(dir, options.stripes, progress)?;
    let fill_seconds = started.elapsed().as_secs_f64();
    let file = std::fs::metadata(dir.join(kintsu_coordinator::meta::FILE))?.len();

    progress("starting a coordinator on them");
    let (mut child, mut coordinator, start_seconds) = start(dir, None).await?;
    let pid = child.id().context("the coordinator's process")?;
    let start_memory_bytes = memory(pid, "VmRSS")?;

    // Heartbeats from the start: while one agent registers, those before it must not count as dead.
    let beats = tokio::spawn(beat(coordinator.clone()));
    let mut registers = Vec::new();
    for node in 0..NODES {
        progress(&format!("registering agent {} of {NODES}", node + 1));
        let blocks = filled.held(node);
        let started = Instant::now();
        coordinator.membership.register(registration(node, &blocks)).await?;
        report(&mut coordinator, node, &blocks).await?;
        registers.push(started.elapsed().as_secs_f64());
    }
    let latencies = latencies(&mut coordinator, &filled.objects, progress).await?;
    beats.abort();
    let peak_memory_bytes = memory(pid, "VmHWM")?;
    let copy = copy(dir, &mut coordinator, pid, progress).await?;
    let cluster = coordinator.operation.status(Nothing {}).await?.into_inner().cluster;
    let cluster = cluster.context("the id of the cluster")?;
    child.kill().await?;
    let objects = filled.objects.len() as u64;
    let rebuild = rebuild::measure(dir, cluster, Arc::new(filled), progress).await?;
    registers.sort_by(f64::total_cmp);
    Ok(Report {
        stripes: options.stripes,
        objects,
        file_bytes_per_stripe: file as f64 / options.stripes.max(1) as f64,
        fill_seconds,
        start_seconds,
        start_memory_bytes,
        register_seconds: registers[registers.len() / 2],
        peak_memory_bytes,
        latencies,
        copy,
        rebuild,
    })
}

/// Takes a backup and starts from it.
async fn copy(
    dir: &Path,
    coordinator: &mut CoordinatorChannel,
    pid: u32,
    progress: &mut dyn FnMut(&str),
) -> Result<CopyReport> {
    progress("taking a backup");
    let path = dir.join("copy.kintsu");
    let before = memory(pid, "VmRSS")?;
    // Resets the counter of the largest resident memory.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
    let started = Instant::now();
    let mut pieces = coordinator.operation.backup(Backup::default()).await?.into_inner();
    let mut file = std::fs::File::create(&path)?;
    while let Some(piece) = pieces.message().await? {
        file.write_all(&piece.bytes)?;
    }
    file.sync_all()?;
    let backup_seconds = started.elapsed().as_secs_f64();
    let backup_memory_bytes = (memory(pid, "VmHWM")?, before);

    progress("restoring it");
    let restored = dir.join("restored");
    let (mut child, _, restore_seconds) = start(&restored, Some(&path)).await?;
    let restore_memory_bytes = memory(child.id().context("the coordinator's process")?, "VmHWM")?;
    child.kill().await?;
    let (mut child, _, start_seconds) = start(&restored, None).await?;
    child.kill().await?;
    let bytes = file.metadata()?.len();
    Ok(CopyReport {
        bytes,
        backup_seconds,
        backup_memory_bytes,
        restore_seconds,
        restore_memory_bytes,
        start_seconds,
    })
}

/// What was written.
struct Filled {
    objects: Vec<Object>,
    /// In order of their ids.
    stripes: Vec<Stripe>,
}

struct Object {
    id: u64,
    name: String,
    stripes: u64,
}

/// A stripe: its position in its object, and where its blocks are.
struct Stripe {
    id: StripeId,
    object: u32,
    number: u32,
    layout: Layout,
    homes: [u8; N],
}

impl Stripe {
    /// The block of it that a node holds.
    fn on(&self, node: u32) -> Option<BlockId> {
        let index = self.homes.iter().position(|home| u32::from(*home) == node)?;
        Some(BlockId { stripe: self.id, index: BlockIndex(index as u8) })
    }
}

impl Filled {
    /// The blocks of a node, in order of their ids.
    fn on(&self, node: u32) -> impl Iterator<Item = BlockId> {
        self.stripes.iter().filter_map(move |stripe| stripe.on(node))
    }

    fn held(&self, node: u32) -> Vec<HeldBlock> {
        let held = |id: BlockId| HeldBlock { id, generation: 1, len: BLOCK_BYTES, digest: digest(id) };
        self.on(node).map(held).collect()
    }
}

/// A digest that follows from stripe and index.
fn digest(id: BlockId) -> [u8; 16] {
    let mixed = (id.stripe.0 << 8 | u64::from(id.index.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut bytes = [id.index.0; 16];
    bytes[..8].copy_from_slice(&mixed.to_le_bytes());
    bytes
}

fn block(stripe: StripeId, index: u8) -> BlockId {
    BlockId { stripe, index: BlockIndex(index) }
}

fn address(port: u16) -> std::net::SocketAddr {
    std::net::SocketAddr::from(([127, 0, 0, 1], port))
}

fn topology() -> Topology {
    let node = |id| Node { rack: RackId(id % RACKS), usable: true, used_bytes: 0, room_bytes: None };
    Topology { nodes: (0..NODES).map(|id| (NodeId(id), node(id))).collect(), ..Topology::default() }
}

fn fill(dir: &Path, stripes: u64, progress: &mut dyn FnMut(&str)) -> Result<Filled> {
    let meta = Meta::open(dir, 512 << 20)?;
    let code = kintsu_code::parse(CODE)?;
    let record = CodeRecord {
        name: code.name().to_owned(),
        n: code.n() as u16,
        k: code.k() as u16,
        w: code.w() as u16,
        generator: code.generator().as_slice().to_vec(),
    };
    for id in 0..NODES {
        let record =
            NodeRecord::new(RackId(id % RACKS), address(1), address(1), format!("/bench/node-{id}"), 0);
        let (node, folder) = (Some(NodeId(id)), FolderId([id as u8; 16]));
        meta.enroll(Applicant { node, folder, replace: false, moved: false, record })?;
    }
    let topology = topology();
    let mut filled = Filled { objects: Vec::new(), stripes: Vec::new() };
    let mut done = 0;
    while done < stripes {
        let small = (filled.objects.len() as u64) < MOST_SMALL.min(stripes / 10);
        let count = if small { 1 } else { LARGE.min(stripes - done) };
        let name = format!("bench/object-{:08}", filled.objects.len());
        let new = NewPut {
            volume: None,
            name: name.clone(),
            size: Some(count * STRIPE_BYTES),
            code: record.clone(),
            encoding: Encoding::Online,
            replace: false,
            attributes: Default::default(),
            members: Vec::new(),
            division: Division::new(
                count * STRIPE_BYTES,
                code.k(),
                1,
                LayoutKind::Striped,
                BLOCK_BYTES,
                CELL_BYTES,
            )?,
            batch: count,
        };
        let homes = |id: StripeId, layout: &Layout| Ok(place(&*code, layout, &topology, id.0)?.homes);
        let (put, pending) = meta.begin_put(new, homes)?;
        let written: Vec<WrittenStripe> = pending
            .stripes
            .iter()
            .map(|s| WrittenStripe {
                id: s.id,
                digests: (0..N as u8).map(|i| Some(digest(block(s.id, i)))).collect(),
            })
            .collect();
        meta.commit_put(put, &written, CREATED)?;
        let object = filled.objects.len() as u32;
        for (number, stripe) in (0..).zip(pending.stripes) {
            let mut homes = [0; N];
            for (own, home) in homes.iter_mut().zip(stripe.homes) {
                *own = home.context("every block of a full stripe has a home")?.0 as u8;
            }
            filled.stripes.push(Stripe { id: stripe.id, object, number, layout: stripe.layout, homes });
        }
        filled.objects.push(Object { id: put, name, stripes: count });
        done += count;
        if done.is_multiple_of(LARGE) {
            progress(&format!("writing metadata: {done} of {stripes} stripes"));
        }
    }
    Ok(filled)
}

/// Starts a coordinator, from a copy if there is one; returns how long its first answer took.
async fn start(dir: &Path, copy: Option<&Path>) -> Result<(tokio::process::Child, CoordinatorChannel, f64)> {
    let started = Instant::now();
    let mut command = command(dir, "127.0.0.1:0")?;
    if let Some(copy) = copy {
        command.arg("--restore").arg(copy);
    }
    let mut child = command.stdout(std::process::Stdio::piped()).spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().context("the coordinator's output")?;
    BufReader::new(out).read_line(&mut line).await?;
    let ready: serde_json::Value = serde_json::from_str(&line).context("the coordinator did not start")?;
    let endpoint = ready["listen"].as_str().unwrap_or_default();
    let mut coordinator = kintsu_wire::connect_coordinator(endpoint, &kintsu_wire::Credentials::none())?;
    coordinator.operation.status(Nothing {}).await?;
    Ok((child, coordinator, started.elapsed().as_secs_f64()))
}

/// The command of a coordinator in a separate process, not yet started.
fn command(dir: &Path, listen: &str) -> Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.args(["coordinator", "--json", "--grace", "10h", "--listen", listen, "--dir"]).arg(dir);
    command.kill_on_drop(true);
    Ok(command)
}

fn registration(node: u32, blocks: &[HeldBlock]) -> Register {
    Register {
        node: Some(NodeId(node)),
        name: None,
        rack: RackId(node % RACKS),
        rack_name: None,
        control: address(1),
        data: address(1),
        dir: format!("/bench/node-{node}"),
        incarnation: 1,
        cluster: None,
        folder: FolderId([node as u8; 16]),
        log: None,
        seen: None,
        blocks: blocks.len() as u64,
        next_stripe: blocks.last().map_or(0, |last| last.id.stripe.0 + 1),
        replace: false,
        moved: false,
        protocol: kintsu_wire::PROTOCOL_VERSION,
    }
}

/// Reports all blocks of a node, in pages as agents do.
async fn report(coordinator: &mut CoordinatorChannel, node: u32, blocks: &[HeldBlock]) -> Result<()> {
    let pages: Vec<_> = blocks.chunks(PAGE).collect();
    for (number, blocks) in pages.iter().enumerate() {
        let last = number + 1 == pages.len();
        let upto = blocks.last().filter(|_| !last).map(|held| held.id.stripe);
        let page = BlockPage {
            node: NodeId(node),
            incarnation: 1,
            number: number as u64,
            upto,
            blocks: blocks.to_vec(),
            damaged: Vec::new(),
            aside: Vec::new(),
            labels: Vec::new(),
        };
        coordinator.membership.report_blocks(page).await?;
    }
    Ok(())
}

/// Keeps the idle agents alive.
async fn beat(mut coordinator: CoordinatorChannel) {
    loop {
        for node in 0..NODES {
            let beat = Heartbeat {
                node: NodeId(node),
                incarnation: 1,
                usage: Default::default(),
                running: 0,
                failed: None,
                counters: Default::default(),
            };
            // The next heartbeat makes up for a late one.
            let _ = coordinator.membership.heartbeat(beat).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A line of `/proc/PID/status`, in bytes.
fn memory(pid: u32, key: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|l| l.starts_with(key)).context("a line of /proc/PID/status")?;
    let number = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    let kib = number.context("a number of KiB")?;
    Ok(kib << 10)
}

impl Report {
    /// For people.
    pub fn table(&self) -> String {
        let mut table = plain::table(["call", "median ms", "p99 ms"]);
        for latency in &self.latencies {
            table.add_row([
                latency.call.to_owned(),
                format!("{:.2}", latency.median_ms),
                format!("{:.2}", latency.p99_ms),
            ]);
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{} stripes of {CODE} in {} objects on {NODES} nodes: {:.0} bytes of metadata a stripe, written in {:.0} s\n\
             start to first answer: {:.2} s, {:.0} MiB resident\n\
             registration of an agent with {} blocks: {:.2} s; peak memory {:.0} MiB\n{table}\n\
             backup: {:.2} s, {:.0} MiB; memory at most {:.0} MiB, {:.0} MiB before\n\
             restoring it: {:.2} s to the first answer, memory at most {:.0} MiB; next start {:.2} s\n\
             rebuild without a copy, from {} blocks that {NODES} agents report: {:.1} s until all {} objects are back; \
             memory at most {:.0} MiB",
            self.stripes,
            self.objects,
            self.file_bytes_per_stripe,
            self.fill_seconds,
            self.start_seconds,
            mib(self.start_memory_bytes),
            self.stripes * 14 / u64::from(NODES),
            self.register_seconds,
            mib(self.peak_memory_bytes),
            self.copy.backup_seconds,
            mib(self.copy.bytes),
            mib(self.copy.backup_memory_bytes.0),
            mib(self.copy.backup_memory_bytes.1),
            self.copy.restore_seconds,
            mib(self.copy.restore_memory_bytes),
            self.copy.start_seconds,
            self.rebuild.blocks,
            self.rebuild.seconds,
            self.rebuild.objects,
            mib(self.rebuild.memory_bytes)
        )
    }
}
