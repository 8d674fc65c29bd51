//! ECPipe (TOS'21) on links of different rates: Figs. 8(g)-(i) of section 6.1, and 9 of section 6.2 with its Table 1.

use super::super::declare::{Aim, Baseline, Claim, Experiment, Measure, Point, Scene, Value, Work};
use super::build::*;
use super::{Entry, Kind, Size};
use crate::Spec;
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "ecpipe-8h",
        groups: &["ecpipe", "headline"],
        about: "racks: with and without regard to them",
        kind: Kind::Measured(racks),
    },
    Entry {
        name: "ecpipe-8i",
        groups: &["ecpipe"],
        about: "one block by the rate of links",
        kind: Kind::Measured(rates),
    },
];

fn racks(size: Size) -> Result<Experiment> {
    let block = size.mib(64);
    let mut scenes = Vec::new();
    for across in [400.0, 800.0] {
        let spec = Spec::in_racks(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], None).with_rack_links(mbps(across)?);
        let x = format!("{across} Mb/s");
        let cases = THREE.map(|(name, method)| case(name, &x, block, one(method)).code(rs(9, 6)));
        scenes.push(Scene { spec, free: Vec::new(), cases: cases.into() });
    }
    let x = "800 Mb/s";
    let claims = vec![
        Claim::new("rack-aware below conventional", reduction(RP, CONVENTIONAL, x)).published(77.6),
        Claim::new("blocks across racks, rack-aware, as the kernel counted (minimum: 2)", {
            Value::CrossRackBlocks(Point::new(RP, x))
        })
        .aim(Aim::AtMost(2.05)),
        Claim::new("blocks across racks, conventional", Value::CrossRackBlocks(Point::new(CONVENTIONAL, x))),
    ];
    Ok(Experiment {
        name: "ecpipe-8h",
        title: "Rack awareness, RS(9,6) in three racks of four",
        source: "ECPipe, Fig. 8(h)",
        differs: "the limit is that of a rack's link; links inside racks have none, where the paper's carry 10 Gb/s",
        measure: Measure::Seconds,
        axis: "link of a rack (paper's rate)",
        baseline: Some(Baseline::Series(CONVENTIONAL.into())),
        scale: size.scale_or(0.5),
        scenes,
        claims,
        strict: false,
    })
}

fn rates(size: Size) -> Result<Experiment> {
    let block = size.mib(64);
    let mut scenes = Vec::new();
    let all = size.some(&[100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0]);
    for megabits in &all {
        let x =
            if *megabits < 1000.0 { format!("{megabits} Mb/s") } else { format!("{} Gb/s", megabits / 1e3) };
        let mut cases = vec![case(DIRECT, &x, block, Work::Direct)];
        cases.extend(THREE.map(|(name, method)| case(name, &x, block, one(method))));
        scenes.push(scene(*megabits, cases)?);
    }
    let x = "10 Gb/s";
    let claims = vec![
        Claim::new("pipelined below conventional, 10 Gb/s", reduction(RP, CONVENTIONAL, x)).published(81.4),
        Claim::new("pipelined below PPR, 10 Gb/s", reduction(RP, PPR, x)).published(50.0),
    ];
    Ok(Experiment {
        name: "ecpipe-8i",
        title: "Single-block repair time by the rate of links, RS(14,10)",
        source: "ECPipe, Fig. 8(i)",
        differs: "above about 500 Mb/s all hosts together need more processor than this machine has: the load says so",
        measure: Measure::Seconds,
        axis: "links",
        baseline: Some(Baseline::Series(DIRECT.into())),
        scale: size.scale_or(1.0),
        scenes,
        claims,
        strict: false,
    })
}
