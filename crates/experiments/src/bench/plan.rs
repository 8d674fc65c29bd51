//! `bench plan`: the time to plan the repair of one block, from the code's name to the programs of all nodes.
//!
//! One run parses the name (the code itself is cached, as in a coordinator), chooses a requestor,
//! decodes, shapes, proves and places the graph and lowers it to programs. Decoding and proving are also timed
//! separately; the rest of a repair is shaping and placing. The published figure for OpenEC's controller is under
//! 300 microseconds (FAST'19). Paths by the rates of links are measured in `paths`, the repairs
//! of many blocks in `schedulers`.

use std::net::SocketAddr;
use std::time::Instant;

use comfy_table::CellAlignment;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{
    Layout, LayoutKind, Method, Node, ProgramContext, Repair, RunId, StripeView, Topology, place, place_lost,
    repair,
};
use serde::Serialize;

use super::{paths, schedulers};
use crate::error::{Context, Result, ensure};
use crate::plain;

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Name of the code.
    pub code: String,
    /// Racks of the planned cluster.
    pub racks: u32,
    /// Nodes of each rack.
    pub nodes_per_rack: u32,
    /// Length of a block.
    pub block_bytes: u64,
    /// Bytes in a slice.
    pub slice_bytes: u32,
    /// Runs of each method.
    pub runs: usize,
    /// Sets of rates in which paths are searched.
    pub rate_sets: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            code: "rs:n=14,k=10".into(),
            racks: 5,
            nodes_per_rack: 4,
            block_bytes: 64 << 20,
            slice_bytes: 32 << 10,
            runs: 20_000,
            rate_sets: 1000,
        }
    }
}

/// Microseconds over many runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Micros {
    /// The fastest.
    pub best: f64,
    /// The median.
    pub median: f64,
}

/// One method.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// The repair method.
    pub method: Method,
    /// Everything, from the name to the programs.
    pub total: Micros,
    /// Finding the code by its name.
    pub parse: Micros,
    /// Choosing the requestor.
    pub requestor: Micros,
    /// Making the proved and placed graph.
    pub repair: Micros,
    /// Decoding alone (part of `repair`).
    pub decode: Micros,
    /// The proof alone (part of `repair`).
    pub prove: Micros,
    /// Lowering, and programs for all nodes.
    pub programs: Micros,
}

/// All methods.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Name of the code.
    pub code: String,
    /// Runs of each method.
    pub runs: usize,
    /// Published figure for OpenEC's controller, an upper bound, in microseconds.
    pub published_us: f64,
    /// What was measured.
    pub cases: Vec<Case>,
    /// Paths by the rates of links.
    pub paths: Vec<paths::Case>,
    /// Repairs of many blocks.
    pub schedulers: Vec<schedulers::Case>,
}

/// Measures all methods; `progress` is told what is being measured.
///
/// # Errors
/// An unknown code, a cluster too small for it, or no runs.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    ensure!(options.runs > 0, "expected at least one run, got 0");
    let topology = topology(options);
    let mut view = stripe(options, &topology)?;
    let mut cases = Vec::new();
    for method in [Method::Conventional, Method::Ppr, Method::Pipeline] {
        progress(&format!("{}, {method}", options.code));
        let mut samples: [Vec<f64>; 7] = Default::default();
        for i in 0..options.runs {
            let lost = BlockIndex((i % view.code.n()) as u8);
            let home = view.homes[usize::from(lost.0)].take();
            for (sample, time) in samples.iter_mut().zip(once(options, &topology, &view, lost, method)?) {
                sample.push(time);
            }
            view.homes[usize::from(lost.0)] = home;
        }
        let [total, parse, requestor, repair, programs, decode, prove] = samples.map(Micros::of);
        cases.push(Case { method, total, parse, requestor, repair, decode, prove, programs });
    }
    let paths = paths::run(options, progress)?;
    let schedulers = schedulers::run(options, progress)?;
    Ok(Report {
        code: options.code.clone(),
        runs: options.runs,
        published_us: 300.0,
        cases,
        paths,
        schedulers,
    })
}

/// A whole stripe of the code, placed.
pub(super) fn stripe(options: &Options, topology: &Topology) -> Result<StripeView> {
    let code = kintsu_code::parse(&options.code)?;
    let layout = Layout {
        kind: LayoutKind::Contiguous,
        block_bytes: options.block_bytes,
        cell_bytes: 128 << 10,
        w: code.w() as u16,
        data_bytes: options.block_bytes * code.k() as u64,
    };
    let homes = place(code.as_ref(), &layout, topology, 1)?.homes;
    Ok(StripeView { id: StripeId(1), code, layout, homes })
}

/// One run: microseconds of total, parse, requestor, repair, programs, and separately decode and prove.
pub(super) fn once(
    options: &Options,
    topology: &Topology,
    view: &StripeView,
    lost: BlockIndex,
    method: Method,
) -> Result<[f64; 7]> {
    let address = |node: NodeId| Some(SocketAddr::from(([127, 0, 0, 1], 10_000 + node.0 as u16)));
    let clock = Instant::now();
    let code = kintsu_code::parse(&options.code)?;
    let parsed = clock.elapsed();
    let requestors = place_lost(view, topology, &[lost], &mut |_| 0)?;
    let chosen = clock.elapsed();
    let wanted = Repair { lost: vec![lost], requestors, method };
    let planned = repair(view, topology, &wanted, &|_| 0, &[])?;
    let repaired = clock.elapsed();
    let context = ProgramContext {
        generations: &[],
        job: RunId(1),
        view,
        generation: 1,
        window: (0, u64::MAX),
        slice_bytes: options.slice_bytes,
        expect: &[],
        label: &[],
        peers: &address,
        resume_key: 1,
    };
    let programs = planned.plan.programs(&context)?;
    let total = clock.elapsed();
    ensure!(programs.len() == planned.helpers.len() + 1, "a node is missing");

    let available = view.available();
    let clock = Instant::now();
    let graph = code.decode(&available, &[lost])?;
    let decoded = clock.elapsed();
    drop(graph);
    let placed = &planned.plan.lanes.first().context("a repair has a lane")?.placed;
    let clock = Instant::now();
    placed.graph.prove(code.generator())?;
    let proved = clock.elapsed();
    let spans = [total, parsed, chosen - parsed, repaired - chosen, total - repaired, decoded, proved];
    Ok(spans.map(|span| span.as_secs_f64() * 1e6))
}

pub(super) fn topology(options: &Options) -> Topology {
    let nodes = (0..options.racks * options.nodes_per_rack).map(|i| {
        let rack = RackId(i / options.nodes_per_rack.max(1));
        (NodeId(i), Node { rack, usable: true, used_bytes: 0, room_bytes: None })
    });
    Topology { nodes: nodes.collect(), ..Topology::default() }
}

impl Micros {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { best: times[0], median: times[times.len() / 2] }
    }
}

impl Report {
    /// The methods as a table for people.
    pub fn table(&self) -> String {
        let mut table = plain::table([
            "method",
            "total",
            "median",
            "parse",
            "requestor",
            "repair",
            "(decode)",
            "(prove)",
            "programs",
        ]);
        for c in &self.cases {
            let medians = [c.parse, c.requestor, c.repair, c.decode, c.prove, c.programs].map(|m| m.median);
            let numbers = [c.total.best, c.total.median].into_iter().chain(medians);
            table.add_row([c.method.to_string()].into_iter().chain(numbers.map(|x| format!("{x:.2}"))));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{}: microseconds to plan the repair of one block, best and median of {} runs; phases: medians \
             (published for OpenEC: under {})\n{table}\n\n{}\n\n{}",
            self.code,
            self.runs,
            self.published_us,
            paths::table(&self.paths),
            schedulers::table(&self.schedulers)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_methods_are_measured() {
        let report = run(&Options { runs: 30, rate_sets: 20, ..Options::default() }, &mut |_| {}).unwrap();
        assert_eq!(report.cases.len(), 3);
        assert!(report.cases.iter().all(|c| c.total.best > 0.0 && c.total.best <= c.total.median));
        assert!(report.table().contains("pipeline"));
        assert_eq!(report.paths.len(), 2);
        for case in &report.paths {
            assert!(case.exact > 0 && case.exact <= 20, "{case:?}");
            assert!(case.search.best > 0.0 && case.search.best <= case.search.median, "{case:?}");
        }
        assert!(report.table().contains(" of 20"));
        assert_eq!(report.schedulers.len(), 2);
        assert!(report.schedulers.iter().all(|c| c.schedule[0] > 0.0 && c.schedule[0] <= c.schedule[1]));
        assert!(report.table().contains("1000 blocks over 500 nodes"));
        assert!(run(&Options { runs: 1, rate_sets: 0, ..Options::default() }, &mut |_| {}).is_err());
        assert!(run(&Options { code: "rs:n=1,k=10".into(), ..Options::default() }, &mut |_| {}).is_err());
        assert!(run(&Options { racks: 1, ..Options::default() }, &mut |_| {}).is_err());
    }
}
