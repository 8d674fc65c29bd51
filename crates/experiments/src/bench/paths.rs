//! Part of `bench plan`: the time to find the best path by the rates of links (ECPipe, section 4.3), over many
//! clusters with random rates.
//!
//! Each run is one set of rates, drawn from the seed for every pair of nodes, and one lost block. The search is timed
//! alone, over the rates in an array, and as part of a whole plan, from the code's name to the programs; this
//! includes looking the rates up. ECPipe reports 0.9 ms for its Algorithm 2 and 27 s for trying all paths,
//! (14,10), 1000 runs.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::time::Instant;

use comfy_table::CellAlignment;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{Method, StripeView, Topology, Widest, draw, place_lost, widest};
use serde::Serialize;

use super::plan::{Options, once, stripe, topology};
use super::verdict;
use crate::error::{Context, Result, ensure};
use crate::plain;

/// Codes whose repairs are planned.
const CODES: [&str; 2] = ["rs:n=14,k=10", "rs:n=16,k=12"];

/// Aim for the median search time of the first code, in microseconds.
const AIM_US: f64 = 100.0;

/// The time that ECPipe reports for the first code, in microseconds.
const PUBLISHED_US: f64 = 900.0;

/// Microseconds over many runs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Spread {
    /// The fastest.
    pub best: f64,
    /// The median.
    pub median: f64,
    /// The 90th percentile.
    pub ninth_decile: f64,
    /// The slowest.
    pub worst: f64,
}

/// One code.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Name of the code.
    pub code: String,
    /// Sets of rates.
    pub runs: usize,
    /// Number of runs in which the path is proved to be the best.
    pub exact: usize,
    /// The search alone.
    pub search: Spread,
    /// Everything, from the name to the programs.
    pub total: Spread,
    /// The upper limit that `search.median` should stay below, if there is an aim for this code.
    pub aim_us: Option<f64>,
    /// The published time, if there is one for this code.
    pub published_us: Option<f64>,
}

/// Measures the codes with `options.rate_sets` sets of rates each; `progress` is told what is being measured.
///
/// # Errors
/// The cluster is too small for the codes, or there are no sets of rates.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Vec<Case>> {
    ensure!(options.rate_sets > 0, "expected at least one set of rates, got 0");
    let mut cases = Vec::new();
    for (number, code) in CODES.into_iter().enumerate() {
        progress(&format!("{code}, {}", Method::Weighted));
        let options = Options { code: code.into(), ..options.clone() };
        let mut topology = topology(&options);
        let mut view = stripe(&options, &topology)?;
        let (mut search, mut total, mut exact) = (Vec::new(), Vec::new(), 0);
        for run in 0..options.rate_sets {
            set_rates(&mut topology, run as u64);
            let lost = BlockIndex((run % view.code.n()) as u8);
            let home = view.homes[usize::from(lost.0)].take();
            let (micros, found) = search_once(&view, &topology, lost)?;
            search.push(micros);
            exact += usize::from(found.exact);
            total.push(once(&options, &topology, &view, lost, Method::Weighted)?[0]);
            view.homes[usize::from(lost.0)] = home;
        }
        let (search, total) = (Spread::of(search), Spread::of(total));
        let [aim_us, published_us] = [AIM_US, PUBLISHED_US].map(|us| (number == 0).then_some(us));
        let runs = options.rate_sets;
        cases.push(Case { code: code.into(), runs, exact, search, total, aim_us, published_us });
    }
    Ok(cases)
}

/// Draws a random rate for every pair of nodes: 1 KiB to 1 GiB a second.
fn set_rates(topology: &mut Topology, run: u64) {
    let nodes: Vec<NodeId> = topology.nodes.keys().copied().collect();
    let pairs = nodes.iter().flat_map(|from| nodes.iter().map(move |to| (*from, *to)));
    let rate = |pair| NonZeroU64::MIN.saturating_add(draw(run, 0, pair) % (1 << 20)).saturating_mul(KIB);
    topology.rates.pairs = pairs.zip(0..).map(|(pair, number)| (pair, rate(number))).collect();
}

const KIB: NonZeroU64 = NonZeroU64::new(1 << 10).expect("not zero");

/// One search for the path to the requestor, and its time in microseconds.
fn search_once(view: &StripeView, topology: &Topology, lost: BlockIndex) -> Result<(f64, Widest)> {
    let requestor = place_lost(view, topology, &[lost], &mut |_| 0)?[0];
    let homes: Vec<NodeId> = view.homes.iter().flatten().copied().collect();
    let to = homes.iter().copied().chain([requestor]);
    let row = |to| homes.iter().map(|from| topology.rate(*from, to)).collect::<Vec<_>>();
    let rates: Vec<_> = to.map(row).collect();
    let rate = |from: usize, to: Option<usize>| rates[to.unwrap_or(homes.len())][from];
    let clock = Instant::now();
    let found = black_box(widest(homes.len(), view.code.k(), &rate));
    let micros = clock.elapsed().as_secs_f64() * 1e6;
    Ok((micros, found.context("a path needs k helpers")?))
}

impl Spread {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let last = times.len() - 1;
        let at = |tenths: usize| times[last * tenths / 10];
        Self { best: at(0), median: at(5), ninth_decile: at(9), worst: at(10) }
    }
}

/// The cases as a table for people.
pub fn table(cases: &[Case]) -> String {
    let mut table = plain::table(["code", "", "best", "median", "9 of 10", "worst", "exact", "aim"]);
    for case in cases {
        let aim = case
            .aim_us
            .map_or(String::new(), |aim| format!("median < {aim}: {}", verdict(case.search.median < aim)));
        let exact = format!("{} of {}", case.exact, case.runs);
        for (what, spread, exact, aim) in
            [("search", case.search, exact, aim), ("plan", case.total, String::new(), String::new())]
        {
            let numbers = [spread.best, spread.median, spread.ninth_decile, spread.worst];
            let row = [case.code.clone(), what.into()].into_iter();
            table.add_row(row.chain(numbers.map(|x| format!("{x:.2}"))).chain([exact, aim]));
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}: microseconds to find the path, and to plan the whole repair\n{table}", Method::Weighted)
}
