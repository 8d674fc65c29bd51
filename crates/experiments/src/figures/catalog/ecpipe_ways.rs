//! ECPipe (TOS'21), sections 6.3 and 6.4: ways to pipeline (Fig. 11(a)), and recovery of a node by (n, k)
//! (Fig. 10(b)).

use kintsu_plan::{Method, RunMode, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{Baseline, Claim, Experiment, Measure, Point, Scene, Slice, Value, Work};
use super::super::sweep::Sweep;
use super::build::*;
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "ecpipe-10b",
        groups: &["ecpipe", "page"],
        about: "recovery of a whole node by (n, k), beside our own conventional repair",
        kind: Kind::Measured(whole_node_by_code),
    },
    Entry {
        name: "ecpipe-11b",
        groups: &["ecpipe", "page"],
        about: "recovery of a whole node by block size, beside PUSH",
        kind: Kind::Measured(push),
    },
    Entry {
        name: "ecpipe-11a",
        groups: &["ecpipe", "headline", "page"],
        about: "one block: in overlapped slices, in slices one by one, and in whole blocks",
        kind: Kind::Measured(ways_to_pipeline),
    },
];

const PIPE_B: &str = "Pipe-B";
const PIPE_S: &str = "Pipe-S";

/// Why Pipe-B is slower in the paper.
const WHOLE_BLOCKS: &str = "ten transfers of a block, one after the other, take ten times a direct send, and little is added to that here, where \
    blocks are in memory; the paper's take more, and it does not say why: disks that are read between receiving and sending would \
    explain it";
/// Why Pipe-S is slower in the paper.
const ONE_BY_ONE: &str = "a helper that does one task after the other still keeps its link busy here: blocks are in memory, computing takes a small \
    part of a slice's time, and the socket buffers continue to send meanwhile";

fn ways_to_pipeline(size: Size) -> Result<Experiment> {
    let all: &[u64] = if size.quick { &[4, 16] } else { &[4, 16, 64] };
    let mut cases = Vec::new();
    for mib in all {
        let (x, block) = (bytes(mib << 20), mib << 20);
        let of = |name: &str, method, run_mode| case(name, &x, block, in_mode(method, run_mode));
        cases.push(case(DIRECT, &x, block, Work::Direct));
        cases.push(of(PIPE_B, Method::Pipeline, RunMode::WholeBlocks));
        cases.push(of(PIPE_S, Method::Pipeline, RunMode::Serial));
        cases.push(of(RP, Method::Pipeline, RunMode::Streamed));
    }
    let largest = bytes(all[all.len() - 1] << 20);
    let claims = vec![
        Claim::new("Pipe-B over repair pipelining", ratio(PIPE_B, RP, &largest))
            .published(9.0 / 0.61)
            .because(WHOLE_BLOCKS),
        Claim::new("repair pipelining below Pipe-S", reduction(RP, PIPE_S, &largest))
            .published(43.0)
            .because(ONE_BY_ONE),
    ];
    Ok(Experiment {
        name: "ecpipe-11a",
        title: "Ways to pipeline: single-block repair time by block size, RS(14,10)",
        source: "ECPipe, Fig. 11(a): Pipe-B 9.0 s, Pipe-S 1.1 s, pipelining 0.61 s for 64 MiB at 1 Gb/s; 41.1 to 43.0% \
                 below Pipe-S",
        differs: IN_MEMORY,
        measure: Measure::Seconds,
        axis: "block",
        baseline: Some(Baseline::Series(DIRECT.into())),
        scale: size.scale_or(0.5),
        scenes: vec![scene(1000.0, cases)?],
        claims,
        strict: false,
    })
}

fn whole_node_by_code(size: Size) -> Result<Experiment> {
    let all = size.some(&[(5, 3), (9, 6), (12, 8), (14, 10)]);
    let stripes = if size.quick { 16 } else { 32 };
    let block = if size.quick { 256 << 10 } else { 512 << 10 };
    let mut scenes = Vec::new();
    let mut claims = Vec::new();
    for (n, k) in all {
        let x = format!("({n},{k})");
        let of = |name: &str, method| {
            let work = recover(method, Schedule::Greedy, stripes, Requestors::Count(1));
            // One requestor's link is the limit, so few settings can differ.
            case(name, &x, block, work).code(rs(n, k)).swept(Sweep::few().for_one_requestor())
        };
        let (spec, _) = cluster(0, 1000.0)?;
        let cases = vec![of(CONVENTIONAL, Method::Conventional), of(RP, Method::Pipeline)];
        scenes.push(Scene { spec, free: Vec::new(), cases });
        let rates = Value::RateRatio(Point::new(RP, &x), Point::new(CONVENTIONAL, &x));
        claims.push(Claim::new(format!("pipelined over conventional, {x}"), rates));
    }
    Ok(Experiment {
        name: "ecpipe-10b",
        title: "Full-node recovery rate by (n, k)",
        source: "ECPipe, Fig. 10(b): 5.1 to 16.0 x the recovery rate of HDFS-3",
        differs: "beside our own conventional repair, and not HDFS; blocks of 512 KiB in 32 stripes; links of 50 Mb/s; the node that lost its blocks gets them back; both with the number \
                  of repairs at once that suits them best",
        measure: Measure::Rate,
        axis: "(n,k)",
        baseline: Some(Baseline::Series(CONVENTIONAL.into())),
        scale: size.scale_or(SCALE_OF_NODES),
        scenes,
        claims,
        strict: false,
    })
}

/// Why PUSH is not ahead with small blocks.
const SMALL_PUSH: &str = "the paper's pipelining pays for every slice; here slices come in batches where the processor is busy, so small \
    slices cost little";

fn push(size: Size) -> Result<Experiment> {
    // The lost bytes are always the same; only the number of blocks that they are divided into changes.
    let all: &[u64] = if size.quick { &[1, 4] } else { &[1, 16] };
    let lost_mib = if size.quick { 16 } else { 64 };
    let series = [
        ("PUSH-Rep", Schedule::PushRep, Requestors::Count(1)),
        ("PUSH-Sur", Schedule::PushSur, Requestors::Any),
        ("RP-single", Schedule::Greedy, Requestors::Count(1)),
        ("RP-all", Schedule::Greedy, Requestors::Any),
    ];
    let mut scenes = Vec::new();
    for mib in all {
        let (x, block) = (bytes(mib << 20), mib << 20);
        let cases = series.iter().map(|(name, schedule, requestors)| {
            let work = recover(Method::Pipeline, *schedule, lost_mib / mib, requestors.clone());
            // PUSH sends whole blocks, as many at once as suit it best: with few, most of a path would be idle.
            let sweep = Sweep { per_node: vec![64], ..Sweep::default() };
            match name.starts_with("PUSH") {
                true => case(*name, &x, block, work).slice(Slice::Bytes(block as u32)).swept(sweep),
                false => case(*name, &x, block, work),
            }
        });
        let (spec, _) = cluster(0, 1000.0)?;
        scenes.push(Scene { spec, free: Vec::new(), cases: cases.collect() });
    }
    let x = bytes(all[all.len() - 1] << 20);
    let rate = |a: &str, b: &str| Value::RateRatio(Point::new(a, &x), Point::new(b, &x));
    let small = |a: &str, b: &str| Value::RateRatio(Point::new(a, "1 MiB"), Point::new(b, "1 MiB"));
    // PUSH depends on the size of blocks, so the paper's value for another one is no value to compare with.
    let of = |what: &str, paper: &str| {
        format!("{what}, blocks of {x} (not comparable: {paper} x with 64 MiB in the paper)")
    };
    let claims = vec![
        Claim::new(of("RP-single over PUSH-Rep", "1.802"), rate("RP-single", "PUSH-Rep")),
        Claim::new(of("RP-all over PUSH-Sur", "3.681"), rate("RP-all", "PUSH-Sur")),
        Claim::new(of("RP-all over RP-single", "1.581"), rate("RP-all", "RP-single")),
        Claim::new("PUSH-Rep over RP-single, 1 MiB", small("PUSH-Rep", "RP-single"))
            .published(1.09)
            .because(SMALL_PUSH),
        Claim::new("PUSH-Sur over RP-all, 1 MiB", small("PUSH-Sur", "RP-all"))
            .published(1.097)
            .because(SMALL_PUSH),
    ];
    Ok(Experiment {
        name: "ecpipe-11b",
        title: "Full-node recovery rate by block size, beside PUSH, RS(14,10)",
        source: "ECPipe, Fig. 11(b)",
        differs: "links of 50 Mb/s; about 56 MiB are lost whatever the block, where it is 4 TiB in the paper; blocks up to 16 MiB \
                  instead of 64; PUSH with the number of repairs at once that suits it best",
        measure: Measure::Rate,
        axis: "block",
        baseline: Some(Baseline::Series("PUSH-Rep".into())),
        scale: size.scale_or(SCALE_OF_NODES),
        scenes,
        claims,
        strict: false,
    })
}
