//! Experiments that are not from a paper: one for continuous integration, repairs during which a helper fails, the
//! simulator compared with measurements, and the recovery of a whole node compared with its bound.

use kintsu_dag::NodeId;
use kintsu_lab::{Rate, Spec};
use kintsu_plan::{Binding, Method, RunMode, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{
    Aim, Baseline, Case, Claim, Experiment, Fault, Measure, NO_PAPER, Point, Recover, Scene, Value, Work,
};
use super::super::sweep::Sweep;
use super::build::*;
use super::ecpipe_rates::{NORTH_AMERICA, limited_edge, region_spec};
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "smoke",
        groups: &[],
        about: "every kind of work once, with small blocks: for continuous integration",
        kind: Kind::Measured(smoke),
    },
    Entry {
        name: "survive",
        groups: &["headline", "page"],
        about: "a helper killed, cut off or slowed in the middle of a repair",
        kind: Kind::Measured(survive),
    },
    Entry {
        name: "slow-read",
        groups: &["headline", "page"],
        about: "plain and degraded reads beside a node that was slowed to a tenth or cut off, which nobody knows yet",
        kind: Kind::Measured(slow_read),
    },
    Entry {
        name: "agreement",
        groups: &["headline", "page"],
        about: "simulated times compared with measured ones: equal links, racks, regions, a limited edge",
        kind: Kind::Measured(agreement),
    },
    Entry {
        name: "whole-node",
        groups: &["headline", "page"],
        about: "recovery of a whole node by the best trees, compared with its lower bound",
        kind: Kind::Measured(whole_node),
    },
    Entry {
        name: "by-default",
        groups: &["headline", "page"],
        about: "recovery of a whole node with no option and no rate given, compared with its lower bound",
        kind: Kind::Measured(by_default),
    },
];

/// All work of `smoke` must succeed; its times mean nothing.
fn smoke(_: Size) -> Result<Experiment> {
    let block = 1 << 20;
    let code = rs(6, 4);
    let of = |name: &str, work| case(name, "RS(6,4)", block, work).code(&code);
    let mut cases = vec![of(DIRECT, Work::Direct)];
    cases.extend(THREE.map(|(name, method)| of(name, one(method))));
    cases.push(of(
        "two blocks",
        Work::Repair { method: Method::Pipeline, lost: 2, run_mode: RunMode::Streamed },
    ));
    cases.push(of("slices one by one", in_mode(Method::Pipeline, RunMode::Serial)));
    cases.push(of("whole blocks", in_mode(Method::Pipeline, RunMode::WholeBlocks)));
    cases.push(of("write", Work::Write));
    cases.push(of("read", Work::Read { lost: 0 }));
    cases.push(of("encode", Work::Encode { stripes: 2, binding: Binding::Bound }));
    let planned: Vec<_> =
        cases.iter().filter(|c| matches!(c.work, Work::Direct | Work::Repair { .. })).cloned().collect();
    let spec = Spec::in_racks(&[0, 0, 0, 1, 1, 1, 2, 2, 2], mbps(200.0)?);
    let free = vec![NodeId(8)];
    let recover = recover(Method::Pipeline, Schedule::Balanced, 8, Requestors::Any);
    let node = vec![of("whole node", recover)];
    Ok(Experiment {
        name: "smoke",
        title: "Every kind of work, once",
        source: NO_PAPER,
        differs: "nine hosts in three racks, links of 200 Mb/s; all work must succeed, its times mean nothing",
        measure: Measure::Seconds,
        axis: "code",
        baseline: None,
        scale: 1.0,
        scenes: vec![
            Scene { spec: spec.clone(), free, cases },
            Scene { spec, free: Vec::new(), cases: node },
        ],
        claims: planned.iter().flat_map(traffic).collect(),
        strict: true,
    })
}

/// The kernel must count at least the bytes of the plan, and only a little more for headers and control messages.
fn traffic(case: &Case) -> [Claim; 2] {
    let value = Value::Traffic(Point::new(case.series.clone(), case.x.clone()));
    let claim = Claim::new(format!("bytes sent over bytes planned, {}", case.series), value);
    [claim.clone().aim(Aim::AtLeast(1.0)), claim.aim(Aim::AtMost(1.1))]
}

fn survive(size: Size) -> Result<Experiment> {
    let undisturbed = "undisturbed";
    let faults = [
        ("killed", Fault::Killed, 1.1),
        ("cut off", Fault::Cut, 1.5),
        ("slowed to a tenth", Fault::Slowed, 1.3),
    ];
    let block = size.mib(64);
    let of = |(x, fault): (&str, Fault)| case(RP, x, block, Work::Disturbed(fault));
    let disturbed = faults.iter().map(|(x, fault, _)| (*x, *fault));
    let cases = [(undisturbed, Fault::None)].into_iter().chain(disturbed).map(of).collect();
    let base = Point::new(RP, undisturbed);
    let over = faults.iter().map(|(x, _, most)| {
        let value = Value::TimeRatio(Point::new(RP, *x), base.clone());
        let text = format!("a helper {x} half way through, over the undisturbed repair");
        Claim::new(text, value).aim(Aim::AtMost(*most))
    });
    let claims = over.collect();
    let (spec, _) = cluster(1, 1000.0)?;
    Ok(Experiment {
        name: "survive",
        title: "Repairs that outlive their helpers, RS(14,10)",
        source: NO_PAPER,
        differs: "17 hosts, links of 250 Mb/s; the helper fails when half of the block has passed through it",
        measure: Measure::Seconds,
        axis: "one helper is",
        baseline: Some(Baseline::Point(base)),
        scale: size.scale_or(0.25),
        scenes: vec![Scene { spec, free: Vec::new(), cases }],
        claims,
        strict: false,
    })
}

/// Reads in which the worst is looked for, those beside a node that was cut off and undisturbed ones, are repeated this often.
const CUTS: usize = 20;
/// How many seconds a read may take at worst if a node was cut off.
const CUT_SECONDS: f64 = 1.0;

/// The client's link has no limit, so the nodes' links are what limits it.
fn slow_read(size: Size) -> Result<Experiment> {
    let faults =
        [("undisturbed", Fault::None), ("slowed to a tenth", Fault::Slowed), ("cut off", Fault::Cut)];
    let reads = [("plain", 0), ("degraded", 1)];
    let block = size.mib(11);
    let of = |(series, lost): (&str, usize), (x, fault)| {
        let case = case(series, x, block, Work::ReadBeside { lost, fault }).code(rs(9, 6));
        match fault {
            Fault::None | Fault::Cut if !size.quick => case.runs(CUTS..=usize::MAX),
            _ => case,
        }
    };
    let cases = reads.iter().flat_map(|read| faults.map(|fault| of(*read, fault))).collect();
    let over = |(series, _): (&str, usize), (x, _): (&str, Fault)| {
        let value = Value::TimeRatio(Point::new(series, x), Point::new(series, faults[0].0));
        Claim::new(format!("a {series} read with a node {x}, over the undisturbed one"), value)
    };
    let mut claims: Vec<_> = reads.iter().map(|read| over(*read, faults[1]).aim(Aim::AtMost(1.5))).collect();
    claims.extend(reads.iter().map(|read| over(*read, faults[2])));
    claims.extend(reads.iter().map(|(series, _)| {
        let value = Value::Worst(Point::new(*series, faults[2].0));
        Claim::new(format!("the slowest {series} read with a node {}", faults[2].0), value)
            .aim(Aim::AtMost(CUT_SECONDS))
    }));
    let spec = Spec::in_racks(&[0; 12], mbps(200.0)?);
    Ok(Experiment {
        name: "slow-read",
        title: "Reads beside a node that became slow or silent, RS(9,6), 12 hosts of 200 Mb/s",
        source: NO_PAPER,
        differs: "12 hosts, links of 200 Mb/s, none for the client; in each repetition another node is slow or cut off; undisturbed reads \
                  and those beside a node that is cut off, in which the worst is looked for, are repeated 20 times",
        measure: Measure::Seconds,
        axis: "another node is",
        baseline: None,
        scale: size.scale_or(1.0),
        scenes: vec![Scene { spec, free: Vec::new(), cases }],
        claims,
        strict: false,
    })
}

/// Largest allowed difference of the simulator, in percent.
const AGREEMENT_PERCENT: f64 = 5.0;

/// Links are slow enough that the machine's processors are not the limit, and blocks are large enough that the
/// start of a repair is a small part of its time.
fn agreement(size: Size) -> Result<Experiment> {
    let methods = [
        (CONVENTIONAL, Method::Conventional),
        (PPR, Method::Ppr),
        (RP, Method::Pipeline),
        (WEIGHTED, Method::Weighted),
        (OPTIMAL, Method::Optimal),
        (CYCLIC, Method::Cyclic),
    ];
    let scene = |x: &str, (n, k), spec: Spec, free: Vec<NodeId>| {
        let works = methods.map(|(series, method)| (series, one(method)));
        let works = [(DIRECT, Work::Direct)].into_iter().chain(works);
        let cases = works.map(|(series, work)| case(series, x, size.mib(16), work).code(rs(n, k))).collect();
        Scene { spec, free, cases }
    };
    let (even, requestor) = cluster(1, 100.0)?;
    let racks = Spec::in_racks(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], mbps(200.0)?);
    let (regions, requestors) = region_spec(&NORTH_AMERICA)?;
    let mut regions = regions.scaled(0.25)?;
    let link = mbps(50.0)?.into();
    regions.nodes.iter_mut().for_each(|node| node.link = link);
    let (edge, client) = limited_edge(100.0, 20.0)?;
    let scenes = vec![
        scene("links alike", (14, 10), even, vec![requestor]),
        scene("racks", (9, 6), racks.with_rack_links(mbps(100.0)?), Vec::new()),
        scene("regions", (16, 12), regions, requestors),
        scene("limited edge", (14, 10), edge, vec![client]),
    ];
    let off = |of: &str, series: Option<&str>| {
        let value = Value::OffSimulated(series.map(Into::into));
        Claim::new(format!("simulated from measured, largest difference: {of}"), value)
            .aim(Aim::AtMost(AGREEMENT_PERCENT))
    };
    let each = methods.iter().map(|(series, _)| *series);
    let each = [DIRECT].into_iter().chain(each).map(|series| off(series, Some(series)));
    Ok(Experiment {
        name: "agreement",
        title: "What the simulator says, beside what is measured",
        source: NO_PAPER,
        differs: "16 equal hosts of 100 Mb/s; three racks of four hosts of 200 Mb/s, with 100 Mb/s between racks; the regions of ECPipe's Table 1 \
                  at a quarter of its rates; 16 hosts of 100 Mb/s that reach the requestor at 20",
        measure: Measure::Seconds,
        axis: "network",
        baseline: None,
        scale: size.scale_or(1.0),
        scenes,
        claims: [off("all", None)].into_iter().chain(each).collect(),
        strict: false,
    })
}

/// Sixteen equal nodes, and sixteen nodes of which every other one has links half as fast. There are so many
/// stripes that the first and the last repairs, which leave some links idle, are a small part of all.
fn whole_node(size: Size) -> Result<Experiment> {
    let (block, stripes) = if size.quick { (256 << 10, 16) } else { (512 << 10, 64) };
    let series = [(CONVENTIONAL, Method::Conventional), (RP, Method::Pipeline), (OPTIMAL, Method::Optimal)];
    let (alike, _) = cluster(0, 1000.0)?;
    let mut mixed = alike.clone();
    for node in (0..16).step_by(2) {
        mixed.nodes[node].link = mbps(500.0)?.into();
    }
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (x, spec) in [("alike", alike), ("half of them at half the rate", mixed)] {
        let cases = series.map(|(name, method)| {
            let case = case(name, x, block, recover(method, Schedule::Balanced, stripes, Requestors::Any));
            match method {
                Method::Optimal => case,
                _ => case.swept(Sweep::few().or_slice(LARGE_SLICE)),
            }
        });
        scenes.push(Scene { spec, free: Vec::new(), cases: cases.into() });
        let of_bound = |name: &str| Value::OfBound(Point::new(name, x));
        claims.push(
            Claim::new(format!("best trees, nodes {x}: part of the bound"), of_bound(OPTIMAL))
                .aim(Aim::AtLeast(0.85)),
        );
        claims.push(Claim::new(format!("a path each, nodes {x}: part of the bound"), of_bound(RP)));
        let rates = Value::RateRatio(Point::new(OPTIMAL, x), Point::new(RP, x));
        claims.push(Claim::new(format!("best trees over a path each, nodes {x}"), rates));
        let rates = Value::RateRatio(Point::new(OPTIMAL, x), Point::new(CONVENTIONAL, x));
        claims.push(Claim::new(format!("best trees over conventional, nodes {x}"), rates));
    }
    Ok(Experiment {
        name: "whole-node",
        title: "Recovery of a whole node, RS(14,10) on 16 nodes, beside the least time that the links allow",
        source: NO_PAPER,
        differs: "64 stripes; links of 25 Mb/s, and 12.5: where many repairs share a link each of their streams is slow, which costs the \
                  emulation more processor for a byte; stars and paths run with as many repairs at once as suit them best",
        measure: Measure::Rate,
        axis: "nodes",
        baseline: Some(Baseline::Series(RP.into())),
        scale: size.scale_or(0.025),
        scenes,
        claims,
        strict: false,
    })
}

/// The part of the bound that a recovery with no option should reach.
const OF_BOUND: f64 = 0.9;

/// With this rate at every other node.
pub(crate) fn two_speeds(mut spec: Spec, slow: Option<Rate>) -> Spec {
    spec.nodes.iter_mut().step_by(2).for_each(|node| node.link = slow.into());
    spec
}

/// Flat and in racks, links alike and of two speeds; a lab for each code, because a wiped node loses the blocks of all
/// objects.
fn by_default(size: Size) -> Result<Experiment> {
    let fast = mbps(25.0)?;
    let flat = Spec::in_racks(&[0; 17], fast);
    let racks = Spec::in_racks(&[0, 0, 0, 1, 1, 1, 2, 2, 2], fast).with_rack_links(mbps(50.0)?);
    let slow = mbps(12.5)?;
    let wide = [rs(14, 10), rs(9, 6), "azure-lrc:n=16,k=12,r=6".into()];
    let narrow = [rs(9, 6), rs(6, 4), "azure-lrc:n=8,k=4,r=2".into()];
    let networks = [
        ("17 hosts", flat.clone(), &wide),
        ("17 hosts of two speeds", two_speeds(flat, slow), &wide),
        ("9 hosts in 3 racks", racks.clone(), &narrow),
        ("9 hosts of two speeds in 3 racks", two_speeds(racks, slow), &narrow),
    ];
    let requestors =
        [("1", Requestors::Count(1)), ("4", Requestors::Count(4)), ("every node", Requestors::Any)];
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (network, spec, codes) in networks {
        for code in codes {
            let series = format!("{network}, {code}");
            let case = |(x, requestors): (&str, Requestors)| {
                let stripes = if size.quick { 8 } else { 48 };
                let recover = Recover {
                    method: Method::default(),
                    schedule: Schedule::default(),
                    per_node: 0,
                    stripes,
                    requestors,
                    told: false,
                };
                case(series.as_str(), x, 1 << 20, Work::Recover(recover)).code(code).runs(1..=1)
            };
            scenes.push(Scene {
                spec: spec.clone(),
                free: Vec::new(),
                cases: requestors.clone().map(case).into(),
            });
            claims.extend(requestors.iter().map(|(x, _)| {
                let value = Value::OfBound(Point::new(series.as_str(), *x));
                Claim::new(format!("{series}, requestors: {x}: part of the bound"), value)
                    .aim(Aim::AtLeast(OF_BOUND))
            }));
        }
    }
    Ok(Experiment {
        name: "by-default",
        title: "Recovery of a whole node with no option, links measured by the cluster, beside the least time that they allow",
        source: NO_PAPER,
        differs: "48 stripes; links of 25 Mb/s, of two speeds: every other one of 12.5; 50 Mb/s between racks; the cluster measures its links; a \
                  lab for each code; each once, because there are 36 of them",
        measure: Measure::Rate,
        axis: "requestors",
        baseline: None,
        scale: size.scale_or(1.0),
        scenes,
        claims,
        strict: false,
    })
}
