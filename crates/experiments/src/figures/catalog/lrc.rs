//! The LRC study (Kolosov et al., TOS'20), section 6: Fig. 14 and Table 3, with times on shaped links. The bytes that
//! each code reads are counted by `kintsu lab lrc`.

use kintsu_analysis::costs;
use kintsu_lab::Spec;
use kintsu_plan::{Method, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{Aim, Baseline, Case, Claim, Experiment, Measure, Point, Value};
use super::super::site::parse;
use super::super::sweep::Sweep;
use super::build::*;
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "lrc-14",
        groups: &["lrc", "page"],
        about: "the LRC study: recovery of a whole node with LRCs, over RS",
        kind: Kind::Measured(recovery_time),
    },
    Entry {
        name: "lrc-table3",
        groups: &["lrc", "page"],
        about: "the LRC study: recovery of a whole node in three zones",
        kind: Kind::Measured(zones),
    },
];

const RS: &str = "RS";

/// A configuration of the study: its name, and the codes by their series.
type Configuration = (&'static str, &'static [(&'static str, &'static str)]);

/// The configurations that the study's text names; it does not say which others Fig. 14 has.
const CONFIGURATIONS: [Configuration; 3] = [
    (
        "(14,10)",
        &[
            (RS, "rs:n=14,k=10"),
            ("Azure-LRC", "azure-lrc:n=14,k=10,r=5"),
            ("Azure-LRC+1", "azure-lrc-plus1:n=14,k=10,r=6"),
            ("Optimal-LRC", "optimal-lrc:n=14,k=10,r=5"),
        ],
    ),
    (
        "(15,10)",
        &[
            (RS, "rs:n=15,k=10"),
            ("Azure-LRC", "azure-lrc:n=15,k=10,r=4"),
            ("Azure-LRC+1", "azure-lrc-plus1:n=15,k=10,r=4"),
            ("Optimal-LRC", "optimal-lrc:n=15,k=10,r=4"),
        ],
    ),
    (
        "(16,10)",
        &[
            (RS, "rs:n=16,k=10"),
            ("Azure-LRC", "azure-lrc:n=16,k=10,r=5"),
            ("Azure-LRC+1", "azure-lrc-plus1:n=16,k=10,r=5"),
            ("Xorbas", "xorbas:n=16,k=10,r=5"),
        ],
    ),
];

/// The configuration of Table 3, in which all groups have five blocks.
const IN_ZONES: [(&str, &str); 3] = [
    (RS, "rs:n=15,k=8"),
    ("Azure-LRC", "azure-lrc:n=15,k=8,r=4"),
    ("Azure-LRC+1", "azure-lrc-plus1:n=15,k=8,r=4"),
];

/// A node recovered as Ceph does it: one node fetches what a block needs.
fn of(size: Size, series: &str, x: &str, code: &str, sweep: Sweep) -> Case {
    let (block, stripes) = if size.quick { (256 << 10, 20) } else { (1 << 20, 64) };
    let work = recover(Method::Conventional, Schedule::Balanced, stripes, Requestors::Any);
    case(series, x, block, work).code(code).swept(sweep)
}

/// How much longer a lost byte takes at the first point than at the second.
fn times(of: Point, over: Point) -> Value {
    Value::RateRatio(over, of)
}

fn recovery_time(size: Size) -> Result<Experiment> {
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    let sweep = Sweep { once: Some("lrc-14"), ..Sweep::few().or_slice(LARGE_SLICE) };
    for (x, codes) in size.some(&CONFIGURATIONS) {
        let cases = codes.iter().map(|(series, code)| of(size, series, x, code, sweep.clone())).collect();
        scenes.extend(lab_each(&Spec::even(20, 1, mbps(1000.0)?), cases));
        let nrc = |code: &str| Ok::<_, crate::ExperimentError>(costs(&*parse(code)?)?.nrc.as_f64());
        for (series, code) in &codes[1..] {
            let said = nrc(code)? / nrc(codes[0].1)?;
            let text = format!("{series}, {x}: time for a lost byte over RS (NRC over NRC of RS: {said:.3})");
            let value = times(Point::new(*series, x), Point::new(RS, x));
            claims.push(Claim::new(text, value).aim(Aim::AtMost(1.0)));
        }
    }
    Ok(Experiment {
        name: "lrc-14",
        title: "Recovery of a whole node by conventional repair, LRCs beside RS of the same n and k",
        source: "LRC study, Fig. 14: LRCs save time, full LRCs most, and less than NRC says",
        differs: "blocks of 1 MiB in 64 stripes on 20 nodes, where the paper has 40 OSDs of 5 GB in Ceph; links of 50 Mb/s are the \
                  limit here, and disks and queues in the paper; every family of codes with the number of repairs at once and the slices that suit it best, tried in its first configuration; a lab for each code",
        measure: Measure::Rate,
        axis: "(n,k)",
        baseline: Some(Baseline::Series(RS.into())),
        scale: size.scale_or(SCALE_OF_NODES),
        scenes,
        claims,
        strict: false,
    })
}

fn zones(size: Size) -> Result<Experiment> {
    let racks: Vec<u32> = (0..18).map(|node| node / 6).collect();
    let link = mbps(1000.0)?;
    let settings = [
        ("any nodes", Spec::even(18, 1, link)),
        ("groups in one zone", Spec::in_racks(&racks, link)),
        ("and slow links between zones", Spec::in_racks(&racks, link).with_rack_links(mbps(2000.0)?)),
    ];
    let names = settings.clone().map(|(x, _)| x);
    let sweep = Sweep { once: Some("lrc-table3"), ..Sweep::few().or_slice(LARGE_SLICE) };
    let scenes = settings.iter().flat_map(|(x, spec)| {
        let cases = IN_ZONES.iter().map(|(series, code)| of(size, series, x, code, sweep.clone())).collect();
        lab_each(spec, cases)
    });
    let mut claims = Vec::new();
    for (series, _) in IN_ZONES {
        let [any, apart, slow] = names.map(|x| Point::new(series, x));
        let restricted =
            format!("{series}: time with groups in one zone over any nodes (1.48 to 1.85 in the paper)");
        claims.push(Claim::new(restricted, times(apart.clone(), any)));
        let said = match series {
            RS => "6% apart",
            "Azure-LRC" => "2.5% apart",
            _ => "the same",
        };
        let text = format!(
            "{series}: time with slow links between zones over fast ones ({said} in the paper, whose links are faster)"
        );
        claims.push(Claim::new(text, times(slow, apart)));
    }
    Ok(Experiment {
        name: "lrc-table3",
        title: "Recovery of a whole node in three zones, (15,8) with groups of five",
        source: "LRC study, Table 3",
        differs: "18 nodes, where the paper has 36 OSDs on 18 instances; blocks of 1 MiB in 64 stripes; the links of a zone carry a third \
                  of what its nodes do, where the paper's are those between the zones of a region; the spare node of a zone \
                  gets its blocks, and the rest as the scheduler decides; every code with the number of repairs at once and the slices that suit it best, tried with \
                  any nodes and the same in all three placements; a lab for each code",
        measure: Measure::Rate,
        axis: "placement",
        baseline: Some(Baseline::Series(RS.into())),
        scale: size.scale_or(SCALE_OF_NODES),
        scenes: scenes.collect(),
        claims,
        strict: false,
    })
}
