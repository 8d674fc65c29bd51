//! Part of `bench plan`: the time to schedule the repairs of many blocks, and to make proved plans of them.
//!
//! ChameleonEC reports 0.55 s for the plans of 1,000 blocks over 500 nodes (section V-B, Exp#5).

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Instant;

use comfy_table::CellAlignment;
use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::many::{Disks, History, LostBlock, Scene, scheduler};
use kintsu_plan::{DamagedStripe, Rates, StripeView, Topology, draw, even_cluster, place};
use serde::Serialize;

use super::plan::{Options, stripe};
use super::verdict;
use crate::error::{Result, ensure};
use crate::plain;

/// The schedulers that are timed.
const NAMES: [&str; 2] = ["auto", "chameleon"];

/// Blocks and nodes as in the paper, and its time. The racks are ours.
const BLOCKS: usize = 1000;
const NODES: usize = 500;
const RACKS: usize = 20;
const PUBLISHED_MS: f64 = 550.0;

/// The median time of scheduling should be below this, in milliseconds.
const AIM_MS: f64 = 20.0;

/// One scheduler.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Its name.
    pub scheduler: &'static str,
    /// Blocks that are planned together.
    pub blocks: usize,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Milliseconds to choose requestors, helpers and trees: the fastest run and the median.
    pub schedule: [f64; 2],
    /// Milliseconds to make placed and proved graphs of them, one thread.
    pub prove: [f64; 2],
    /// The upper limit that the median of `schedule` should stay below.
    pub aim_ms: f64,
    /// The published time.
    pub published_ms: f64,
}

/// Measures the schedulers, with links of two speeds; `progress` is told what is being measured.
///
/// # Errors
/// A block that cannot be planned.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Vec<Case>> {
    let mut topology = even_cluster(NODES, RACKS);
    let rate = |node: NodeId| NonZeroU64::MIN.saturating_add(125_000_000 / (1 + u64::from(node.0 % 2)));
    topology.rates =
        Rates { up: topology.nodes.keys().map(|node| (*node, rate(*node))).collect(), ..Rates::default() };
    topology.rates.down = topology.rates.up.clone();
    let stripes = damaged(options, &topology)?;
    let (disks, blocks) = (Disks::default(), LostBlock::all(&stripes));
    let scene = Scene { disks: &disks, ..Scene::of(&topology) };
    // A run plans a thousand repairs, and `runs` is meant for single ones.
    let runs = (options.runs / BLOCKS).max(1);
    let mut cases = Vec::new();
    for name in NAMES {
        progress(&format!("{name}, {BLOCKS} blocks over {NODES} nodes"));
        let scheduler = scheduler(name)?;
        let (mut schedule, mut prove) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let clock = Instant::now();
            let made = scheduler.plan(&scene, &mut History::default(), &blocks);
            schedule.push(clock.elapsed().as_secs_f64() * 1e3);
            let clock = Instant::now();
            for (made, stripe) in made.into_iter().zip(&stripes) {
                let planned = made?.plan(&stripe.view, &topology)?;
                ensure!(planned.helpers.len() == stripe.view.code.k(), "a helper is missing");
            }
            prove.push(clock.elapsed().as_secs_f64() * 1e3);
        }
        let [schedule, prove] = [schedule, prove].map(best_and_median);
        cases.push(Case {
            scheduler: scheduler.name,
            blocks: BLOCKS,
            nodes: NODES,
            schedule,
            prove,
            aim_ms: AIM_MS,
            published_ms: PUBLISHED_MS,
        });
    }
    Ok(cases)
}

/// Stripes that lost one block each.
fn damaged(options: &Options, topology: &Topology) -> Result<Vec<DamagedStripe>> {
    let first = stripe(options, topology)?;
    let stripes = (0..BLOCKS as u64).map(|id| {
        let mut homes = place(first.code.as_ref(), &first.layout, topology, id)?.homes;
        let block = draw(id, 0, 0) % homes.len() as u64;
        homes[block as usize] = None;
        let view = StripeView { id: StripeId(id), homes, ..first.clone() };
        Ok(DamagedStripe { view, lost: vec![BlockIndex(block as u8)], barred: BTreeSet::new() })
    });
    stripes.collect()
}

fn best_and_median(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [times[0], times[times.len() / 2]]
}

/// The cases as a table for people.
pub fn table(cases: &[Case]) -> String {
    let mut table = plain::table(["scheduler", "schedule", "median", "prove", "median", "aim"]);
    for case in cases {
        let numbers = [case.schedule, case.prove].concat().into_iter().map(|ms| format!("{ms:.2}"));
        let aim = format!("median < {}: {}", case.aim_ms, verdict(case.schedule[1] < case.aim_ms));
        table.add_row([case.scheduler.to_string()].into_iter().chain(numbers).chain([aim]));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "milliseconds to schedule the repairs of {BLOCKS} blocks over {NODES} nodes, and to prove their graphs \
         (published for ChameleonEC: {PUBLISHED_MS})\n{table}"
    )
}
