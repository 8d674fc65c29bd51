//! `bench kernel`: encoding by graph compared with bare kernel calls, on the same blocks.
//!
//! The graph's side uses the runtime: the code's graph, binds, proof, placement, lowering, checking and preparing
//! the program, and then its steps, cell by cell, through slots and pooled buffers as in agents and clients. Only
//! their queues are missing. The other side applies one kernel, prepared before, to the same cells. Both sides'
//! bytes are compared before either is timed. The preparation counts once for all blocks. OpenEC's ratio is
//! 0.62-0.71 (FAST'19, Fig. 8a).

use std::ops::Range;

use comfy_table::CellAlignment;
use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use kintsu_kernel::{Kernel, Mode};
use kintsu_runtime::{InMemory, MemoryBlock};
use kintsu_wire::message::Fault;
use serde::Serialize;

use super::arena::Arena;
use super::burst::{Rate, interleave, pair};
use crate::Machine;
use crate::error::{ExperimentError, Result, ensure};
use crate::plain;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time for each side of each code.
    pub seconds_per_case: f64,
    /// Names of the codes; those with w = 1.
    pub codes: Vec<String>,
    /// Length of a block.
    pub block_bytes: usize,
    /// The unit coded together.
    pub cell_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seconds_per_case: 3.5,
            codes: ["rs:n=9,k=6", "rs:n=14,k=10", "rs:n=16,k=12", "azure-lrc:n=16,k=12,r=6"]
                .map(String::from)
                .to_vec(),
            block_bytes: 64 << 20,
            cell_bytes: 128 << 10,
        }
    }
}

/// All codes.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The processor's name.
    pub processor: String,
    /// Length of a block.
    pub block_bytes: usize,
    /// The unit coded together.
    pub cell_bytes: usize,
    /// What was measured.
    pub cases: Vec<Case>,
}

/// One code; rates are in 10^9 bytes of data in a second, on one core.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Its name.
    pub code: String,
    /// Driven by the graph.
    pub graph: Rate,
    /// Bare kernel calls.
    pub bare: Rate,
    /// Best of the graph / best of the bare calls.
    pub ratio_best: f64,
    /// Median of the graph / median of the bare calls.
    pub ratio_median: f64,
    /// The preparation before the first byte, in microseconds; included in the graph's rates.
    pub prepare_us: f64,
    /// Extra time of the graph's side for each cell, independent of its length, in nanoseconds.
    pub cell_ns: f64,
}

/// Measures all codes; `progress` gets what is being measured.
///
/// # Errors
/// For a code that is unknown or has w > 1, or when the two sides' bytes differ.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut cases = Vec::new();
    for name in &options.codes {
        progress(&format!("{name}, blocks of {} MiB", options.block_bytes >> 20));
        cases.push(case(&*kintsu_code::parse(name)?, options)?);
    }
    let (block_bytes, cell_bytes) = (options.block_bytes, options.cell_bytes);
    Ok(Report { processor: Machine::this().processor, block_bytes, cell_bytes, cases })
}

fn case(code: &dyn Code, options: &Options) -> Result<Case> {
    ensure!(code.w() == 1, "expected a code with w = 1, got w = {} for {}", code.w(), code.name());
    let (n, k) = (code.n(), code.k());
    let blocks: Vec<MemoryBlock> =
        (0..k).map(|block| MemoryBlock::new(options.block_bytes, |bytes| noise(block, bytes))).collect();
    let mut arena = Arena::one_stripe(0, n - k, options.cell_bytes);
    let mut sides = Sides {
        driven: prepare(code)?,
        bare: Kernel::new(n - k, k, code.generator().select_rows(k..n).as_slice())?,
        blocks,
        outputs: arena.next().1,
    };
    sides.compare(code, options)?;

    let mut failure = None;
    let chunk_bytes = CHUNK_BYTES.next_multiple_of(options.cell_bytes);
    let chunks = options.block_bytes.div_ceil(chunk_bytes);
    let pair = pair(options.seconds_per_case, chunks, |side, chunk| {
        let start = chunk * chunk_bytes;
        let end = options.block_bytes.min(start + chunk_bytes);
        let done = cells(start..end, options.cell_bytes).try_for_each(|cell| sides.run(side, cell));
        failure = failure.take().or(done.err());
    });
    let tiny = TINY_BYTES.min(options.block_bytes);
    let small = interleave(2, options.seconds_per_case / 10.0, tiny, |side| {
        failure = failure.take().or(sides.run(side, 0..tiny).err());
    });
    let prepared = interleave(1, options.seconds_per_case / 10.0, 1, |_| {
        failure = failure.take().or(prepare(code).err());
    });
    if let Some(error) = failure {
        return Err(error);
    }
    // Rates are 10^9 bytes in a second, which is bytes in a nanosecond.
    let cell_ns = tiny as f64 / small[DRIVEN].best - tiny as f64 / small[BARE].best;
    let prepare_us = 1e-3 / prepared[0].median;
    let rate = |seconds: [f64; 2], side: usize| {
        let whole = seconds[side] * options.block_bytes as f64 / chunk_bytes.min(options.block_bytes) as f64;
        let before = if side == DRIVEN { prepare_us * 1e-6 } else { 0.0 };
        (k * options.block_bytes) as f64 / (whole + before) / 1e9
    };
    let rate = |side| Rate { best: rate(pair.best, side), median: rate(pair.median, side) };
    let (graph, bare) = (rate(DRIVEN), rate(BARE));
    let (ratio_best, ratio_median) = (graph.best / bare.best, graph.median / bare.median);
    Ok(Case { code: code.name().to_string(), graph, bare, ratio_best, ratio_median, prepare_us, cell_ns })
}

/// Bytes of every block in one burst: long compared with the cost of reading the clock, short compared with a time
/// slice.
const CHUNK_BYTES: usize = 4 << 20;

/// A cell so short that the overhead of each cell shows.
const TINY_BYTES: usize = 64;

const DRIVEN: usize = 0;
const BARE: usize = 1;

/// Both sides, with the blocks that they share. Each writes parity to buffers of one cell that it reuses, as the
/// runtime does.
struct Sides<'a> {
    driven: InMemory,
    bare: Kernel,
    blocks: Vec<MemoryBlock>,
    outputs: Vec<&'a mut [u8]>,
}

impl Sides<'_> {
    /// Encodes one cell.
    fn run(&mut self, side: usize, cell: Range<usize>) -> Result<()> {
        if side == DRIVEN {
            let persist = |_, _, bytes: Option<&[u8]>| {
                std::hint::black_box(bytes);
            };
            return driven(&mut self.driven, &self.blocks, cell, persist);
        }
        let inputs: Vec<&[u8]> = self.blocks.iter().map(|block| &block.bytes()[cell.clone()]).collect();
        let mut outputs: Vec<&mut [u8]> = self.outputs.iter_mut().map(|o| &mut o[..cell.len()]).collect();
        Ok(self.bare.apply(&inputs, &mut outputs, Mode::Overwrite)?)
    }

    /// Compares what both sides write, for every cell.
    fn compare(&mut self, code: &dyn Code, options: &Options) -> Result<()> {
        for cell in cells(0..options.block_bytes, options.cell_bytes) {
            self.run(BARE, cell.clone())?;
            let mut same = 0;
            let compare = |index: BlockIndex, _, bytes: Option<&[u8]>| {
                let bare = &self.outputs[usize::from(index.0) - code.k()][..cell.len()];
                same += usize::from(bytes == Some(bare));
            };
            driven(&mut self.driven, &self.blocks, cell.clone(), compare)?;
            let parities = code.n() - code.k();
            ensure!(same == parities, "{}: expected {parities} equal blocks, got {same}", code.name());
        }
        Ok(())
    }
}

/// Encodes one cell by graph.
fn driven(
    memory: &mut InMemory,
    blocks: &[MemoryBlock],
    cell: Range<usize>,
    persist: impl FnMut(BlockIndex, u16, Option<&[u8]>),
) -> Result<()> {
    let load =
        |index: BlockIndex, _| blocks.get(usize::from(index.0)).map(|block| &block.bytes()[cell.clone()]);
    memory.step(cell.len(), load, persist).map_err(refused)
}

/// From a code to a program that the runtime has checked and prepared: everything before the first byte.
fn prepare(code: &dyn Code) -> Result<InMemory> {
    let graph = code.encode();
    graph.prove(code.generator())?;
    InMemory::new(graph).map_err(refused)
}

fn refused(fault: Fault) -> ExperimentError {
    ExperimentError::Failed(fault.detail)
}

fn cells(range: Range<usize>, cell_bytes: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(cell_bytes.max(1)).map(move |start| start..end.min(start + cell_bytes))
}

fn noise(seed: usize, bytes: &mut [u8]) {
    let mut state = seed as u64 + 1;
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        chunk.copy_from_slice(&(state ^ (state >> 33)).to_le_bytes()[..chunk.len()]);
    }
}

impl Report {
    /// The codes as a table for people.
    pub fn table(&self) -> String {
        let mut table = plain::table([
            "code",
            "graph",
            "median",
            "bare",
            "median",
            "ratio",
            "median",
            "prepare us",
            "ns/cell",
        ]);
        for c in &self.cases {
            let numbers =
                [c.graph.best, c.graph.median, c.bare.best, c.bare.median, c.ratio_best, c.ratio_median];
            let numbers = numbers.map(|x| format!("{x:.2}"));
            let costs = [c.prepare_us, c.cell_ns].map(|x| format!("{x:.0}"));
            table.add_row([c.code.clone()].into_iter().chain(numbers).chain(costs));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{}, one core; encoding by graph against bare kernel calls, blocks of {} MiB in cells of {} KiB; \
             GB/s of data in, best and median\n{table}",
            self.processor,
            self.block_bytes >> 20,
            self.cell_bytes >> 10
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graph_and_bare_calls_write_the_same_bytes_for_every_kind_of_code() {
        let options =
            Options { seconds_per_case: 0.0, block_bytes: 300_001, cell_bytes: 70_000, ..Options::default() };
        let report = run(&options, &mut |_| ()).unwrap();
        assert_eq!(report.cases.len(), options.codes.len());
        assert!(report.table().contains("azure-lrc"));
    }
}
