//! The same on emulated hosts: real agents log the writes and run the commits, and the kernel counts what leaves the
//! racks.
//!
//! The stripes of the trace that the first writes touch become stripes of an object, numbered in order of appearance. A
//! write is logged at the home of its block and forwarded to the node of its interim replica; a commit runs the
//! planned graphs, and the next versions are promoted. This experiment decides commits itself, as the experiments with
//! repairs do: the coordinator knows only the first version of the object. Whole blocks are sent, as in the paper. Each
//! write gives its block new random bytes, and in the end all blocks must be what was written, and all parities what
//! follows from that.
//!
//! PARIX is not here: its parity nodes keep logs of data, which agents do not do. Nor are data grouping and the replicas
//! of `optimal`, which are deltas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use bytes::Bytes;
use kintsu_algebra::add_scaled;
use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_lab::Spec;
use kintsu_plan::update::{Dirty, Scheme, interim_home, update};
use kintsu_plan::{ProgramContext, RunId};
use kintsu_store::Digest;
use kintsu_wire::AgentChannel;
use kintsu_wire::message::{
    AppendUpdates, BlockRef, Encoding, FreezeUpdates, LoggedUpdate, PromoteBlocks, ReleaseUpdates, UpdatesOf,
};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Options;
use super::dirty::{Part, StripeKey, parts};
use crate::error::{ExperimentError, Result, ensure};
use crate::figures::Scene;
use crate::figures::site::{Site, Stored, Wanted};
use crate::trace::Request;

/// The schemes that agents can run.
pub const LIVE: [Scheme; 4] = [Scheme::Baseline, Scheme::DataDelta, Scheme::ParityDelta, Scheme::CauNogroup];

/// The name of the object.
const NAME: &str = "replayed";

/// What one scheme sent on emulated hosts.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The trace.
    pub trace: String,
    /// The scheme.
    pub scheme: Scheme,
    /// Block updates that were replayed.
    pub updates: u64,
    /// Stripes that they touched.
    pub stripes: u64,
    /// Bytes across racks by the plans.
    pub planned: u64,
    /// What the kernel counted on the racks' uplinks.
    pub counted: u64,
    /// From the first write to the end of the last commit.
    pub seconds: f64,
}

impl Measured {
    /// How much more was counted than planned, as a share.
    pub fn framing(&self) -> f64 {
        self.counted as f64 / self.planned.max(1) as f64 - 1.0
    }
}

/// Replays the first `most` block updates of a trace with one scheme on a lab of its own.
///
/// # Errors
/// For options out of their ranges, when the lab fails, and when a block or parity is wrong in the end.
pub async fn measure(
    trace: &str,
    requests: impl Iterator<Item = Result<Request>>,
    options: &Options,
    scheme: Scheme,
    most: usize,
) -> Result<Measured> {
    options.ground()?;
    let (code, block) = (&options.code, options.block_bytes);
    ensure!(LIVE.contains(&scheme), "expected a scheme that agents run ({LIVE:?}), got {scheme}");
    ensure!(code.w() == 1, "expected a code without sub-blocks, got {}", code.name());
    ensure!(block <= 1 << 20, "expected --block up to 1 MiB, got {block} bytes");
    let (mut writes, mut numbers) = (Vec::new(), BTreeMap::new());
    for request in requests {
        let request = request?;
        if request.write {
            writes.extend(parts(&request, block, code.k() as u64));
        }
        if writes.len() >= most {
            break;
        }
    }
    writes.truncate(most);
    ensure!(!writes.is_empty(), "expected a trace with writes, got none in {trace}");
    for part in &writes {
        let next = numbers.len() as u64;
        numbers.entry(part.stripe).or_insert(next);
    }
    let spec = Spec::even(code.n() as u32, options.racks as u32, None);
    let scene = Scene { spec: spec.clone(), free: Vec::new(), cases: Vec::new() };
    let site = Site::up(&scene, &spec).await?;
    let outcome = async {
        let mut run = Run::new(&site, options, scheme, &numbers).await?;
        let (before, started) = (site.lab.counters().await?, Instant::now());
        for (turn, part) in writes.iter().enumerate() {
            run.write(part, turn as u64).await?;
        }
        run.commit().await?;
        let seconds = started.elapsed().as_secs_f64();
        let counted = site.lab.counters().await?.since(&before).cross_rack_bytes();
        run.check()?;
        let (updates, stripes) = (writes.len() as u64, numbers.len() as u64);
        let planned = run.planned;
        Ok(Measured { trace: trace.to_owned(), scheme, updates, stripes, planned, counted, seconds })
    };
    let outcome = outcome.await;
    site.down().await;
    outcome
}

/// One stripe, and what its data blocks should be.
struct Stripe {
    stored: Stored,
    data: Vec<Vec<u8>>,
    generations: Vec<u32>,
    dirty: BTreeSet<BlockIndex>,
}

struct Run<'a> {
    site: &'a Site,
    options: &'a Options,
    scheme: Scheme,
    numbers: &'a BTreeMap<StripeKey, u64>,
    stripes: Vec<Stripe>,
    dirty: BTreeSet<u64>,
    planned: u64,
}

impl<'a> Run<'a> {
    async fn new(
        site: &'a Site,
        options: &'a Options,
        scheme: Scheme,
        numbers: &'a BTreeMap<StripeKey, u64>,
    ) -> Result<Self> {
        let (block, k) = (options.block_bytes, options.code.k());
        let wanted = Wanted {
            code: options.code.name().to_owned(),
            block_bytes: block,
            cell_bytes: Some(block as u32),
            stripes: numbers.len() as u64,
            encoded_later: false,
        };
        site.put(&wanted, NAME, Encoding::Online).await?;
        let mut stripes = Vec::new();
        for number in 0..numbers.len() as u64 {
            let stored = site.stripe(NAME, number).await?;
            let data =
                (0..k as u64).map(|index| initial((number * k as u64 + index) * block, block)).collect();
            let generations = vec![stored.generation; options.code.n()];
            stripes.push(Stripe { stored, data, generations, dirty: BTreeSet::new() });
        }
        Ok(Self { site, options, scheme, numbers, stripes, dirty: BTreeSet::new(), planned: 0 })
    }

    /// Gives a block new bytes.
    async fn write(&mut self, part: &Part, turn: u64) -> Result<()> {
        let number = self.numbers[&part.stripe];
        let stripe = &mut self.stripes[number as usize];
        let view = &stripe.stored.view;
        let bytes = noise(turn, self.options.block_bytes);
        let home = home(&stripe.stored, part.block)?;
        let interim = interim_home(view, &stripe.stored.topology, part.block, self.scheme)?;
        let forward = interim.and_then(|interim| self.site.host(interim.node)).map(|host| host.control);
        let block = BlockId { stripe: view.id, index: part.block };
        let data = Bytes::from(bytes.clone());
        let update = LoggedUpdate { volume: 1, epoch: 1, block, offset: 0, data, zeros: 0 };
        let request = AppendUpdates { updates: vec![update], replica: false, forward };
        agent(self.site, home)?.append_updates(request).await?;
        self.planned +=
            if interim.is_some_and(|interim| interim.other_rack) { bytes.len() as u64 } else { 0 };
        stripe.data[usize::from(part.block.0)] = bytes;
        stripe.dirty.insert(part.block);
        self.dirty.insert(number);
        if self.scheme.row().at_once || self.dirty.len() > self.options.dirty_stripes {
            self.commit().await?;
        }
        Ok(())
    }

    /// Brings all dirty stripes up to date.
    async fn commit(&mut self) -> Result<()> {
        for number in std::mem::take(&mut self.dirty) {
            let stripe = &mut self.stripes[number as usize];
            self.planned += stripe.commit(self.site, self.scheme, self.options.block_bytes).await?;
        }
        Ok(())
    }

    /// Compares the recorded digests with those of what was written.
    fn check(&self) -> Result<()> {
        for stripe in &self.stripes {
            let (view, k) = (&stripe.stored.view, stripe.data.len());
            let unit = view.layout.unit_bytes() as usize;
            for index in 0..view.code.n() {
                let bytes = match stripe.data.get(index) {
                    Some(data) => data.clone(),
                    None => {
                        let mut parity = vec![0; self.options.block_bytes as usize];
                        let row = &view.code.generator().row(index)[..k];
                        row.iter()
                            .zip(&stripe.data)
                            .for_each(|(coef, data)| add_scaled(&mut parity, data, *coef));
                        parity
                    }
                };
                let right = Some(Digest::in_units(&bytes, unit).0);
                let got = stripe.stored.digests[index];
                ensure!(
                    got == right,
                    "b{index} of {}: expected what follows from all writes, got other bytes",
                    view.id
                );
            }
        }
        Ok(())
    }
}

impl Stripe {
    /// Runs one commit; returns the bytes across racks that were planned.
    async fn commit(&mut self, site: &Site, scheme: Scheme, block_bytes: u64) -> Result<u64> {
        let dirty = std::mem::take(&mut self.dirty);
        let Stored { view, topology, digests, .. } = &mut self.stored;
        let id = |index| BlockId { stripe: view.id, index };
        let mut cuts = Vec::new();
        for &block in &dirty {
            let home = view.homes[usize::from(block.0)].unwrap_or(NodeId::CLIENT);
            let request = FreezeUpdates { blocks: vec![id(block)] };
            let frozen = agent(site, home)?.freeze_updates(request).await?.into_inner().blocks;
            let upto = frozen.into_iter().flatten().map(|frozen| frozen.upto).next();
            let upto =
                upto.ok_or_else(|| ExperimentError::invalid("log", format!("updates of {block}"), "none"))?;
            cuts.push((home, UpdatesOf { block: id(block), replica: false, upto }));
            if let Some(interim) = interim_home(view, topology, block, scheme)? {
                cuts.push((interim.node, UpdatesOf { block: id(block), replica: true, upto: u64::MAX }));
            }
        }
        let plan = update(view, topology, &Dirty::at_home(dirty), scheme)?;
        let next = self.generations.iter().max().copied().unwrap_or_default() + 1;
        let context = ProgramContext {
            job: RunId(0),
            view,
            generation: 0,
            window: (0, u64::MAX),
            slice_bytes: 0,
            expect: digests,
            label: &[],
            peers: &|node| site.host(node).map(|host| host.data),
            resume_key: 0,
        };
        let mut jobs = Vec::with_capacity(plan.plans.len());
        for _ in &plan.plans {
            jobs.push(RunId(
                getrandom::u64().map_err(|e| ExperimentError::invalid("random numbers", "some", e))?,
            ));
        }
        let mut job = || jobs.pop().unwrap_or(RunId(0));
        let mut written = Vec::new();
        for programs in plan.programs(&context, &self.generations, next, &mut job)? {
            let control = |node: NodeId| site.host(node).map(|host| host.control);
            let ended =
                site.conductor.conduct(programs, &control, None, None, &CancellationToken::new()).await;
            if let Some(fault) = ended.fault {
                return Err(ExperimentError::invalid("commit", "no fault", fault));
            }
            written.extend(ended.outcomes.into_iter().flat_map(|outcome| outcome.written));
        }
        for held in written {
            let index = usize::from(held.id.index.0);
            (digests[index], self.generations[index]) = (Some(held.digest), held.generation);
            let home = view.homes[index].unwrap_or(NodeId::CLIENT);
            let blocks = vec![BlockRef { id: held.id, generation: next }];
            agent(site, home)?.promote_blocks(PromoteBlocks { blocks }).await?;
        }
        for (node, of) in cuts {
            agent(site, node)?.release_updates(ReleaseUpdates { updates: vec![of] }).await?;
        }
        Ok(plan.crossings * block_bytes)
    }
}

fn home(stored: &Stored, block: BlockIndex) -> Result<NodeId> {
    let home = stored.view.homes[usize::from(block.0)];
    home.ok_or_else(|| ExperimentError::invalid("stripe", format!("a home for {block}"), "none"))
}

fn agent(site: &Site, node: NodeId) -> Result<AgentChannel> {
    let host = site.host(node).ok_or_else(|| ExperimentError::invalid("node", "one of the lab", node))?;
    Ok(site.conductor.agent(host.control)?)
}

/// Bytes of the object from an offset, as [`Site::put`] writes them.
fn initial(offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    // Reading from memory within the length cannot fail.
    let _ =
        kintsu_client::ReadAt::read_at(&crate::figures::site::Noise::new(offset + len), offset, &mut bytes);
    bytes
}

/// Random bytes of one write.
fn noise(turn: u64, len: u64) -> Vec<u8> {
    let words = (0..len.div_ceil(8)).flat_map(|at| kintsu_plan::draw(turn, 5, at).to_le_bytes());
    words.take(len as usize).collect()
}

/// The measurements as text.
pub fn measured_table(measured: &[Measured]) -> String {
    let mut table = crate::plain::table([
        "TRACE", "SCHEME", "UPDATES", "STRIPES", "PLANNED", "COUNTED", "FRAMING", "SECONDS",
    ]);
    for one in measured {
        let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
        table.add_row([
            one.trace.clone(),
            one.scheme.to_string(),
            one.updates.to_string(),
            one.stripes.to_string(),
            mib(one.planned),
            mib(one.counted),
            format!("{:+.1}%", 100.0 * one.framing()),
            format!("{:.1}", one.seconds),
        ]);
    }
    format!(
        "{table}\n\nPLANNED: bytes across racks by the plans. COUNTED: by the kernel, on the racks' uplinks."
    )
}
