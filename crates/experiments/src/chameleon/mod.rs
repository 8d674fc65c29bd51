//! The figures of the ChameleonEC paper ("ChameleonEC: Exploiting Tunability of Erasure Coding for Low-Interference
//! Repair", section V-B, Exp#1 to #13), and the LRC study's benchmark during a repair.
//!
//! The paper has 20 hosts with links of 10 Gb/s, repairs 200 blocks of 64 MiB, and repeats everything five times. Here
//! 17 hosts have links of 35 Mb/s, and one lost node has about 20 blocks of 1 MiB; what else is scaled is said in each
//! experiment. Every method but ours has the number of repairs at once, the size of slices and the way to choose helpers
//! that suit it best: they are tried under YCSB-A, and once more without users, in the first experiment of a run that has the method, and used in all
//! others. What suits a method best with other codes or links is not tried.

/// What differs from the paper, with what does in all experiments in which ChameleonEC is compared with others.
macro_rules! differs {
    ($differs:literal) => {
        concat!(
            $differs,
            "; CR, PPR and ECPipe choose helpers by what links have idle and go around slow nodes, where the paper's choose at random and \
             wait, which is in their favour; phases last 1.5 s and not 20, so that a repair takes some, as in the paper, and end earlier if all their repairs have ended"
        )
    };
}

mod breakdown;
mod codes;
mod fluid;
mod idle;
mod interference;
mod lrc;
mod network;
mod orders;
mod planning;

use std::collections::BTreeMap;
use std::time::Duration;

use kintsu_plan::{Method, Schedule};
use kintsu_wire::message::Requestors;

use crate::error::Result;
use crate::figures::catalog::build::{LARGE_SLICE, case, mbps};
use crate::figures::catalog::{Entry, Size};
use crate::figures::{Aim, Case, Claim, Experiment, Measure, Point, Scene, Sweep, Value, Work};
use crate::under_load::{Load, Recovery, UnderLoad};
use crate::workload::Scale;

/// All of them, but for one in the paper's order.
pub const ENTRIES: &[Entry] = &[
    // First, because most sweeps are made in it, and its samples take least.
    breakdown::BOOSTED,
    interference::TRACES,
    planning::PHASES,
    interference::CHANGES,
    planning::PLANNING,
    network::QUIET,
    network::NODES,
    orders::ORDERS,
    codes::CODES,
    codes::READS,
    breakdown::STRAGGLERS,
    planning::STORAGE,
    network::BUSY,
    idle::NETWORKS,
    lrc::BENCHMARK,
];

const GROUP: &str = "chameleon";

/// With few runs of each point, noise may decide on which side of 0 their median is.
const NOT_SLOWER: Aim = Aim::AlwaysAtLeast(0.0);

/// Points are repeated at most this often, so that all of them take an hour: claims are averages over three or four kinds of users, links, codes or
/// nodes.
const RUNS: usize = 1;
/// The same where a claim is about one point.
const RUNS_ALONE: usize = 3;
/// The coordinator's own choice, and caps on the repairs of a node.
const PER_NODE: [u32; 3] = [0, 16, 64];

const HOSTS: u32 = 17;
/// With faster ones repairs and users together would keep the processors of one machine busy, and not its links.
const MEGABITS: f64 = 35.0;
const BLOCK: u64 = 1 << 20;
/// In the paper 200 blocks of 64 MiB take about 70 s under YCSB-A, so three or four phases. Here a node's blocks take about 5 s.
const PHASE: Duration = Duration::from_millis(1500);
const RS_10_4: &str = "rs:n=14,k=10";

const CR: &str = "CR";
const PPR: &str = "PPR";
const ECPIPE: &str = "ECPipe";
const CHAMELEON: &str = "ChameleonEC";
const OURS: &str = "auto";
/// Users alone, beside nodes that are lost.
const ALONE: &str = "no repair";

/// A method of a race.
#[derive(Debug, Clone, Copy)]
struct Racer {
    series: &'static str,
    method: Method,
    /// The most repairs in which a node takes part at once, 0: as the coordinator decides; what is tried first.
    per_node: u32,
}

/// The paper's baselines.
const BASELINES: [Racer; 3] = [
    Racer { series: CR, method: Method::Conventional, per_node: 64 },
    Racer { series: PPR, method: Method::Ppr, per_node: 64 },
    Racer { series: ECPIPE, method: Method::Pipeline, per_node: 64 },
];
const THE_PAPERS: Racer = Racer { series: CHAMELEON, method: Method::Chameleon, per_node: 0 };
const THIS: Racer = Racer { series: OURS, method: Method::Auto, per_node: 0 };

/// The baselines, ChameleonEC, and ours.
fn all() -> impl Iterator<Item = Racer> + Clone {
    BASELINES.into_iter().chain([THE_PAPERS, THIS])
}

impl Racer {
    /// The recovery of a node while users work.
    fn recovery(self, size: Size, load: Option<Load>) -> Recovery {
        Recovery {
            method: Some(self.method),
            schedule: Schedule::Balanced,
            per_node: self.per_node,
            nodes: 1,
            stripes: if size.quick { 12 } else { 24 },
            requestors: Requestors::Any,
            told: true,
            phase: Some(PHASE),
            load,
            straggler: None,
        }
    }

    /// The same as a point.
    fn case(self, x: impl Into<String>, recovery: Recovery) -> Case {
        let sweep = self.sweep(&recovery);
        let case = case(self.series, x, BLOCK, Work::UnderLoad(UnderLoad::Recover(recovery)));
        Case { sweep, ..case.code(RS_10_4).runs(0..=RUNS) }
    }

    /// What else is tried of a method; nothing of ours.
    fn sweep(self, recovery: &Recovery) -> Option<Sweep> {
        if recovery.method.is_none() || self.method == Method::Auto {
            return None;
        }
        let per_node = PER_NODE.into_iter().filter(|most| *most != self.per_node).collect();
        if recovery.load.is_none() {
            return Some(Sweep { once: Some("chameleon, no users"), per_node, ..Sweep::default() });
        }
        // A scheduler chooses helpers itself.
        let schedules = self.method.row().scheduler.map_or(vec![Schedule::Greedy], |_| Vec::new());
        let slices = vec![LARGE_SLICE];
        Some(Sweep { once: Some("chameleon, YCSB-A"), per_node, schedules, slices })
    }
}

/// The paper's default load, YCSB-A.
fn ycsb_a() -> Load {
    load(&["ycsb-a"])
}

/// Workloads at the scales at which each makes the links about equally busy. Smaller values would make the processors of one
/// machine busier than its links.
fn load(parts: &[&'static str]) -> Load {
    let scale = |part: &'static str| {
        let (sizes, count) = match part {
            // 100 values of 512 KB, as in the paper.
            "ycsb-a" => (1.0, 0.1),
            // 200 KB, the median, become 25 KB.
            "ibm" => (1.0 / 8.0, 0.01),
            // 20 KB become 320 KB.
            "twitter" => (16.0, 0.005),
            // 250 B become 256 KB.
            "etc" => (1024.0, 0.01),
            _ => (1.0 / 16.0, 0.1),
        };
        (part, Scale { sizes, count })
    };
    Load {
        parts: parts.to_vec(),
        span: None,
        scales: parts.iter().map(|part| scale(part)).collect::<BTreeMap<_, _>>(),
        tasks: 8,
        trace: None,
        copies: 3,
        coded: false,
    }
}

/// The cluster, at links of this many Mb/s.
fn scene(megabits: f64, cases: Vec<Case>) -> Result<Scene> {
    Ok(Scene { spec: kintsu_lab::Spec::even(HOSTS, 1, mbps(megabits)?), free: Vec::new(), cases })
}

/// An experiment of the paper.
fn experiment(name: &'static str, title: &'static str, source: &'static str) -> Experiment {
    Experiment {
        name,
        title,
        source,
        differs: "",
        measure: Measure::Rate,
        axis: "",
        baseline: None,
        scale: 1.0,
        scenes: Vec::new(),
        claims: Vec::new(),
        strict: false,
    }
}

/// By how many percent one series is faster than another one on average over these x.
fn gain(of: &str, over: &str, xs: &[impl AsRef<str>]) -> Value {
    mean(xs, |x| Value::Gain(Point::new(of, x), Point::new(over, x)))
}

fn mean(xs: &[impl AsRef<str>], of: impl Fn(&str) -> Value) -> Value {
    Value::Mean(xs.iter().map(|x| of(x.as_ref())).collect())
}

/// Why ChameleonEC's lead is smaller than published.
const STRONGER: &str = "CR, PPR and ECPipe choose helpers and requestors here by what links have idle, or evenly, as none of the paper's do; chameleon-6 also \
                        has them as the paper has them";

/// ChameleonEC over each baseline beside the published values, and ours over ChameleonEC.
fn gains(xs: &[impl AsRef<str>], published: [Option<f64>; 3]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (baseline, published) in BASELINES.iter().zip(published) {
        let text = format!("ChameleonEC's repair rate over {}", baseline.series);
        let claim = Claim::new(text, gain(CHAMELEON, baseline.series, xs)).aim(NOT_SLOWER).because(STRONGER);
        claims.push(Claim { published, ..claim });
    }
    claims.push(ours(xs));
    claims
}

/// Ours over ChameleonEC.
fn ours(xs: &[impl AsRef<str>]) -> Claim {
    Claim::new("auto's repair rate over ChameleonEC", gain(OURS, CHAMELEON, xs)).aim(NOT_SLOWER)
}

const fn seconds(seconds: f64) -> Option<Duration> {
    Some(Duration::from_millis((seconds * 1000.0) as u64))
}
