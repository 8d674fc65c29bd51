//! `bench ecdag`: encoding driven by a graph against bare kernel calls, on the same blocks.
//!
//! The graph's side does all that an encoding does before data moves (the code's graph, binds,
//! proof, places, lowering, preparing a kernel for each `Compute` task) and then runs the tasks cell
//! by cell; the other side applies one kernel, prepared before, to the same cells. Both sides'
//! bytes are compared before either is timed. OpenEC's ratio is 0.62-0.71 (FAST'19, Fig. 8a).

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, bail, ensure};
use comfy_table::{CellAlignment, Table, presets};
use kintsu_code::Code;
use kintsu_dag::{NodeId, Placed, Sink, Task, Vertex, fuse};
use kintsu_kernel::{Kernel, Mode};
use serde::Serialize;

use super::arena::Arena;
use super::burst::{Rate, interleave};

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
            seconds_per_case: 5.0,
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
}

/// Measures all codes; `progress` is told what is being measured.
///
/// # Errors
/// For a code that is unknown or has w > 1, or when the two sides' bytes differ.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let mut cases = Vec::new();
    for name in &options.codes {
        progress(&format!("{name}, blocks of {} MiB", options.block_bytes >> 20));
        cases.push(case(&*kintsu_code::parse(name)?, options)?);
    }
    let (block_bytes, cell_bytes) = (options.block_bytes, options.cell_bytes);
    Ok(Report { processor: super::processor(), block_bytes, cell_bytes, cases })
}

fn case(code: &dyn Code, options: &Options) -> anyhow::Result<Case> {
    ensure!(code.w() == 1, "expected a code with w = 1, got w = {} for {}", code.w(), code.name());
    let (n, k) = (code.n(), code.k());
    let mut arena = Arena::one_stripe(k, n - k, options.block_bytes);
    let cells: Vec<Range<usize>> = (0..options.block_bytes)
        .step_by(options.cell_bytes.max(1))
        .map(|start| start..options.block_bytes.min(start + options.cell_bytes))
        .collect();
    let parity = code.generator().select_rows(k..n);
    let kernel = Kernel::new(n - k, k, parity.as_slice())?;
    let bare = |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
        for cell in &cells {
            let inputs: Vec<&[u8]> = inputs.iter().map(|i| &i[cell.clone()]).collect();
            let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|o| &mut o[cell.clone()]).collect();
            kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
        }
        anyhow::Ok(())
    };
    let driven = |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
        let encoder = Encoder::new(code)?;
        let mut scratch = encoder.scratch(options.cell_bytes);
        cells.iter().try_for_each(|cell| encoder.encode(inputs, outputs, &mut scratch, cell))
    };

    let (inputs, mut outputs) = arena.next();
    bare(&inputs, &mut outputs)?;
    let expected: Vec<Vec<u8>> = outputs.iter().map(|o| o.to_vec()).collect();
    outputs.iter_mut().for_each(|o| o.fill(0));
    driven(&inputs, &mut outputs)?;
    ensure!(expected.iter().zip(&outputs).all(|(e, o)| e[..] == o[..]), "{}: the bytes differ", code.name());
    drop(expected);

    let mut failure = None;
    let rates = interleave(2, options.seconds_per_case, k * options.block_bytes, |side| {
        let (inputs, mut outputs) = arena.next();
        let done = if side == 0 { driven(&inputs, &mut outputs) } else { bare(&inputs, &mut outputs) };
        failure = failure.take().or(done.err());
    });
    if let Some(error) = failure {
        return Err(error);
    }
    let (graph, bare) = (rates[0], rates[1]);
    let (ratio_best, ratio_median) = (graph.best / bare.best, graph.median / bare.median);
    Ok(Case { code: code.name().to_string(), graph, bare, ratio_best, ratio_median })
}

/// Bytes of a cell that go through all computations before the next ones: small enough that a
/// second computation over the same inputs finds them in the cache.
const PIECE_BYTES: usize = 16 << 10;

/// Where a vertex's bytes are.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Data block.
    Input(usize),
    /// Computed: parity blocks first, then scratch.
    Computed(usize),
}

/// One `Compute` task, prepared.
struct Step {
    kernel: Kernel,
    inputs: Vec<Place>,
    outputs: Vec<usize>,
}

/// The tasks of the one node that encodes, prepared.
struct Encoder {
    steps: Vec<Step>,
    scratch: usize,
}

impl Encoder {
    /// From a code to tasks: everything that precedes the first byte.
    fn new(code: &dyn Code) -> anyhow::Result<Self> {
        let mut graph = code.encode();
        graph.auto_bind()?;
        graph.prove(code.generator())?;
        let place = |blocks: Range<usize>| blocks.map(|block| Vertex(block as u32));
        let placed = Placed {
            load_at: place(0..code.k()).map(|v| (v, NodeId::CLIENT)).collect(),
            compute_at: graph.joins().keys().map(|v| (*v, NodeId::CLIENT)).collect(),
            persist_at: place(code.k()..code.n()).map(|v| (v, (NodeId::CLIENT, Sink::Client))).collect(),
            graph,
        };
        let mut nodes = placed.lower()?;
        let (Some(node), true) = (nodes.pop(), nodes.is_empty()) else {
            bail!("expected the tasks of one node, got {}", nodes.len() + 1);
        };
        Self::prepare(code, &fuse(&node.tasks))
    }

    fn prepare(code: &dyn Code, tasks: &[Task]) -> anyhow::Result<Self> {
        let mut places = BTreeMap::new();
        let parities = code.n() - code.k();
        let mut encoder = Self { steps: Vec::new(), scratch: 0 };
        for task in tasks {
            match task {
                Task::Load { vertex } => {
                    places.insert(*vertex, Place::Input(vertex.0 as usize));
                }
                Task::Compute { outputs, inputs, coefs } => {
                    let at = |vertex: &Vertex| places.get(vertex).copied();
                    let inputs: Option<Vec<Place>> = inputs.iter().map(at).collect();
                    let inputs = inputs.context("a task finds its inputs")?;
                    let slots: Vec<usize> =
                        outputs.iter().map(|v| encoder.slot(*v, code, parities)).collect();
                    places.extend(outputs.iter().zip(&slots).map(|(v, slot)| (*v, Place::Computed(*slot))));
                    let kernel = Kernel::new(slots.len(), inputs.len(), coefs)?;
                    encoder.steps.push(Step { kernel, inputs, outputs: slots });
                }
                Task::Persist { .. } => {} // computed where it stays
                Task::Fetch { vertex, .. } => bail!("expected all of {vertex} at the encoder"),
            }
        }
        Ok(encoder)
    }

    /// The parity block of a vertex, or a new scratch buffer.
    fn slot(&mut self, vertex: Vertex, code: &dyn Code, parities: usize) -> usize {
        let block = vertex.0 as usize;
        if (code.k()..code.n()).contains(&block) {
            return block - code.k();
        }
        self.scratch += 1;
        parities + self.scratch - 1
    }

    /// Scratch buffers for [`Encoder::encode`].
    fn scratch(&self, cell_bytes: usize) -> Vec<Vec<u8>> {
        vec![vec![0; self.piece_bytes(cell_bytes)]; self.scratch]
    }

    fn piece_bytes(&self, cell_bytes: usize) -> usize {
        if self.steps.len() == 1 { cell_bytes } else { PIECE_BYTES.min(cell_bytes) }
    }

    /// Runs all tasks over one cell of all blocks.
    fn encode(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        scratch: &mut [Vec<u8>],
        cell: &Range<usize>,
    ) -> anyhow::Result<()> {
        let piece_bytes = self.piece_bytes(cell.len());
        for start in cell.clone().step_by(piece_bytes) {
            let piece = start..cell.end.min(start + piece_bytes);
            let parity = outputs.iter_mut().map(|o| &mut o[piece.clone()]);
            let scratch = scratch.iter_mut().map(|s| &mut s[..piece.len()]);
            let mut computed: Vec<&mut [u8]> = parity.chain(scratch).collect();
            for step in &self.steps {
                let mut to: Vec<&mut [u8]> =
                    step.outputs.iter().map(|&slot| std::mem::take(&mut computed[slot])).collect();
                let from: Vec<&[u8]> = step
                    .inputs
                    .iter()
                    .map(|place| match *place {
                        Place::Input(block) => &inputs[block][piece.clone()],
                        Place::Computed(slot) => &*computed[slot],
                    })
                    .collect();
                step.kernel.apply(&from, &mut to, Mode::Overwrite)?;
                step.outputs.iter().zip(to).for_each(|(&slot, buffer)| computed[slot] = buffer);
            }
        }
        Ok(())
    }
}

impl Report {
    /// The codes as a table for people.
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(["code", "graph", "median", "bare", "median", "ratio", "median"]);
        for c in &self.cases {
            let numbers =
                [c.graph.best, c.graph.median, c.bare.best, c.bare.median, c.ratio_best, c.ratio_median];
            table.add_row([c.code.clone()].into_iter().chain(numbers.map(|x| format!("{x:.2}"))));
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
