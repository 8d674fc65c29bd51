//! LESS (FAST'26) in the setting of its published artifact: (14,10), blocks of 64 MiB, links of 1 Gb/s.

use kintsu_plan::{Method, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{Aim, Baseline, Claim, Experiment, Measure, Point, Value, Work};
use super::super::sweep::Sweep;
use super::build::*;
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "less",
        groups: &["less-fast26", "page"],
        about: "LESS beside RS, one block, conventional and pipelined",
        kind: Kind::Measured(one_block),
    },
    Entry {
        name: "less-node",
        groups: &["less-fast26", "page"],
        about: "LESS beside RS, a whole node, conventional and pipelined",
        kind: Kind::Measured(node),
    },
];

const CODES: [(&str, &str); 2] = [("RS(14,10)", RS_14_10), ("LESS(14,10,4)", "less:n=14,k=10,alpha=4")];
const RS: &str = CODES[0].0;
const LESS: &str = CODES[1].0;
const WAYS: [(&str, Method); 2] = [(CONVENTIONAL, Method::Conventional), (RP, Method::Pipeline)];

fn one_block(size: Size) -> Result<Experiment> {
    let block = size.mib(64);
    let mut cases = vec![case(RS, DIRECT, block, Work::Direct)];
    for (series, code) in CODES {
        cases.extend(WAYS.map(|(x, method)| case(series, x, block, one(method)).code(code)));
    }
    let over =
        |a: (&str, &str), b: (&str, &str)| Value::TimeRatio(Point::new(a.0, a.1), Point::new(b.0, b.1));
    let (star, chain) = (CONVENTIONAL, RP);
    let claims = vec![
        Claim::new(
            "LESS, conventional: seconds at the paper's rate",
            Value::AtPaperRate(Point::new(LESS, star)),
        )
        .published(2.73)
        .because("the time is that of the links; the paper's includes disks"),
        Claim::new("RS, conventional: seconds at the paper's rate", Value::AtPaperRate(Point::new(RS, star))),
        Claim::new(
            "LESS, pipelined: seconds at the paper's rate",
            Value::AtPaperRate(Point::new(LESS, chain)),
        ),
        Claim::new("RS, pipelined: seconds at the paper's rate", Value::AtPaperRate(Point::new(RS, chain))),
        Claim::new("LESS over RS, both conventional", over((LESS, star), (RS, star))),
        Claim::new("LESS over RS, both pipelined", over((LESS, chain), (RS, chain))),
        Claim::new("LESS pipelined over LESS conventional", over((LESS, chain), (LESS, star)))
            .aim(Aim::AtMost(0.5)),
    ];
    Ok(Experiment {
        name: "less",
        title: "LESS beside RS: one block",
        source: "LESS (FAST'26), artifact: 2.73 s for one block, 61.5 s for a node",
        differs: "other data blocks are lost in other runs, and LESS reads a little more for some than for others",
        measure: Measure::Seconds,
        axis: "method",
        baseline: Some(Baseline::Point(Point::new(RS, CONVENTIONAL))),
        scale: size.scale_or(0.25),
        scenes: vec![scene(1000.0, cases)?],
        claims,
        strict: false,
    })
}

fn node(size: Size) -> Result<Experiment> {
    let (block, stripes) = if size.quick { (256 << 10, 16) } else { (1 << 20, 48) };
    let ways = [WAYS[0], WAYS[1], ("auto (default)", Method::Auto)];
    let mut cases = Vec::new();
    for (series, code) in CODES {
        for (x, method) in ways {
            let work = recover(method, Schedule::Balanced, stripes, Requestors::Any);
            let case = case(series, x, block, work).code(code);
            cases.push(match method {
                Method::Auto => case,
                _ => case.swept(Sweep::few().or_slice(LARGE_SLICE)),
            });
        }
    }
    let rate =
        |a: (&str, &str), b: (&str, &str)| Value::RateRatio(Point::new(a.0, a.1), Point::new(b.0, b.1));
    let (star, chain, auto) = (CONVENTIONAL, RP, ways[2].0);
    let claims = vec![
        Claim::new("LESS over RS, both conventional", rate((LESS, star), (RS, star))),
        Claim::new("LESS over RS, both pipelined", rate((LESS, chain), (RS, chain))),
        Claim::new("LESS by the default method over LESS conventional", rate((LESS, auto), (LESS, star)))
            .aim(Aim::AtLeast(0.95)),
    ];
    let (spec, _) = cluster(1, 1000.0)?;
    Ok(Experiment {
        name: "less-node",
        title: "LESS beside RS: recovery of a whole node",
        source: "LESS (FAST'26), artifact: 61.5 s for a node",
        differs: "blocks of 1 MiB in 48 stripes on 17 nodes, links of 50 Mb/s; how many blocks the artifact's node has is not \
                  known here, so only ratios are compared; all nodes get blocks; a lab for each code",
        measure: Measure::Rate,
        axis: "method",
        baseline: Some(Baseline::Point(Point::new(RS, CONVENTIONAL))),
        scale: size.scale_or(SCALE_OF_NODES),
        scenes: lab_each(&spec, cases),
        claims,
        strict: false,
    })
}
