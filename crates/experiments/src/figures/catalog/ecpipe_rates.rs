//! ECPipe (TOS'21) on links of different rates: Figs. 8(g)-(i) of section 6.1, and 9 of section 6.2 with its
//! Table 1.

use kintsu_dag::NodeId;
use kintsu_lab::{Rate, Spec};
use kintsu_plan::{Method, RunMode};

use super::super::declare::{Aim, Baseline, Claim, Experiment, Measure, Point, Scene, Value, Work};
use super::build::*;
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    Entry {
        name: "ecpipe-8g",
        groups: &["ecpipe", "headline", "page"],
        about: "slow links to the requestor: one path and cyclic paths",
        kind: Kind::Measured(edge),
    },
    Entry {
        name: "ecpipe-8h",
        groups: &["ecpipe", "headline", "page"],
        about: "rack-aware and rack-unaware paths",
        kind: Kind::Measured(racks),
    },
    Entry {
        name: "ecpipe-8i",
        groups: &["ecpipe", "page"],
        about: "one block by the rate of links",
        kind: Kind::Measured(rates),
    },
    Entry {
        name: "ecpipe-9a",
        groups: &["ecpipe", "regions", "page"],
        about: "regions of North America: paths chosen by rates",
        kind: Kind::Measured(north_america),
    },
    Entry {
        name: "ecpipe-9b",
        groups: &["ecpipe", "regions", "page"],
        about: "regions of Asia: paths chosen by rates",
        kind: Kind::Measured(asia),
    },
];

/// ECPipe's cluster with one requestor. Every node's stream to the requestor is limited.
pub(super) fn limited_edge(megabits: f64, edge: f64) -> Result<(Spec, NodeId)> {
    let (mut spec, requestor) = cluster(1, megabits)?;
    let edge = Rate::mbps(edge)?;
    let helpers = spec.node_ids().filter(|node| *node != requestor);
    spec.pairs = helpers.map(|node| ((node, requestor), edge)).collect();
    Ok((spec, requestor))
}

fn edge(size: Size) -> Result<Experiment> {
    let block = size.mib(32);
    let mut scenes = Vec::new();
    for megabits in size.some(&[100.0, 200.0, 500.0, 1000.0]) {
        let x = format!("{megabits} Mb/s");
        let (spec, requestor) = limited_edge(1000.0, megabits)?;
        let cases =
            [(RP, Method::Pipeline), (CYCLIC, Method::Cyclic)].map(|(name, m)| case(name, &x, block, one(m)));
        scenes.push(Scene { spec, free: vec![requestor], cases: cases.into() });
    }
    let claims = vec![
        Claim::new("cyclic below basic, edge of 100 Mb/s (88.9% at most)", reduction(CYCLIC, RP, "100 Mb/s"))
            .published(82.8)
            .aim(Aim::AtLeast(82.8)),
        Claim::new("cyclic over basic, edge as fast as the others", ratio(CYCLIC, RP, "1000 Mb/s")),
    ];
    Ok(Experiment {
        name: "ecpipe-8g",
        title: "Limited edge: single-block repair time by the rate of links to the requestor, RS(14,10)",
        source: "ECPipe, Fig. 8(g)",
        differs: IN_MEMORY,
        measure: Measure::Seconds,
        axis: "link from each helper to the requestor (paper's rate)",
        baseline: Some(Baseline::Series(RP.into())),
        scale: size.scale_or(0.5),
        scenes,
        claims,
        strict: false,
    })
}

/// Why a random path gains less here than in the paper.
const RANDOM_IN_RACKS: &str = "conventional repair needs a rack's link for four blocks; a random path takes half of its time if it needs no rack's \
    link for more than two, and three quarters if it needs one for three; in each run it is another path; why the paper's take less is \
    not known: its conventional repair loses something besides, and it does not say which links the limit between racks is on";

fn racks(size: Size) -> Result<Experiment> {
    let block = size.mib(32);
    let mut scenes = Vec::new();
    for across in [400.0, 800.0] {
        let spec = Spec::in_racks(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], None).with_rack_links(mbps(across)?);
        let x = format!("{across} Mb/s");
        let methods =
            [(CONVENTIONAL, Method::Conventional), (RANDOM, Method::Random), (RP, Method::Pipeline)];
        let cases = methods.map(|(name, method)| case(name, &x, block, one(method)).code(rs(9, 6)));
        scenes.push(Scene { spec, free: Vec::new(), cases: cases.into() });
    }
    let x = "800 Mb/s";
    let claims = vec![
        Claim::new("a random path below conventional", reduction(RANDOM, CONVENTIONAL, x))
            .published(60.9)
            .because(RANDOM_IN_RACKS),
        Claim::new("rack-aware below conventional (75% at most: one block over a rack's link for four)", {
            reduction(RP, CONVENTIONAL, x)
        })
        .published(77.6)
        .because(
            "the rack of the requestor receives four blocks conventionally and one along a path, whatever the rest of the path; the \
             paper's conventional repair loses something besides",
        ),
        Claim::new("blocks across racks, rack-aware, as the kernel counted (minimum: 2)", {
            Value::CrossRackBlocks(Point::new(RP, x))
        })
        .aim(Aim::AtMost(2.05)),
        Claim::new(
            "blocks across racks, a random path",
            Value::CrossRackBlocks(Point::new(RANDOM, x)),
        ),
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

/// Why fast links show little here.
const PROCESSORS: &str = "all hosts share two processors, which are the limit at these rates (see the load), so processor time is \
    compared and not links";

fn rates(size: Size) -> Result<Experiment> {
    let block = size.mib(16);
    let mut scenes = Vec::new();
    let all = size.some(&[200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0]);
    let named = |megabits: f64| match megabits < 1000.0 {
        true => format!("{megabits} Mb/s"),
        false => format!("{} Gb/s", megabits / 1e3),
    };
    for megabits in &all {
        let x = named(*megabits);
        let mut cases = vec![case(DIRECT, &x, block, Work::Direct)];
        cases.extend(THREE.map(|(name, method)| case(name, &x, block, one(method))));
        cases.push(case(PPR_ROUNDS, &x, block, in_mode(Method::Ppr, RunMode::WholeBlocks)));
        scenes.push(scene(*megabits, cases)?);
    }
    let mut claims = Vec::new();
    for megabits in &all {
        let x = named(*megabits);
        let below = |other: &str, what: &str| {
            Claim::new(format!("pipelined below {other}, {x}"), reduction(RP, what, &x))
        };
        let all = [("conventional", CONVENTIONAL), ("PPR in slices", PPR), ("PPR in rounds", PPR_ROUNDS)];
        let [star, tree, rounds] = all.map(|(other, what)| below(other, what));
        claims.extend(match *megabits == 10_000.0 {
            true => [star.published(81.4), tree.published(50.0), rounds.published(50.0)]
                .map(|c| c.because(PROCESSORS)),
            false => [star, tree, rounds],
        });
    }
    Ok(Experiment {
        name: "ecpipe-8i",
        title: "Single-block repair time by the rate of links, RS(14,10)",
        source: "ECPipe, Fig. 8(i)",
        differs: "blocks of 16 MiB; above about 500 Mb/s all hosts together need more processor than this machine has: the load says so",
        measure: Measure::Seconds,
        axis: "links",
        baseline: Some(Baseline::Series(DIRECT.into())),
        scale: size.scale_or(1.0),
        scenes,
        claims,
        strict: false,
    })
}

/// Four regions and the rates from each to all.
type Regions = [(&'static str, [f64; 4]); 4];

/// ECPipe, Table 1: Mb/s from the region of the row to that of the column.
pub(super) const NORTH_AMERICA: Regions = [
    ("California", [501.3, 57.2, 44.1, 299.9]),
    ("Canada", [55.3, 732.0, 63.3, 48.0]),
    ("Ohio", [46.3, 65.7, 332.5, 95.6]),
    ("Oregon", [297.8, 50.2, 93.6, 250.1]),
];

/// See [`NORTH_AMERICA`].
const ASIA: Regions = [
    ("Mumbai", [624.8, 62.3, 39.5, 37.7]),
    ("Seoul", [63.8, 265.7, 86.1, 183.2]),
    ("Singapore", [41.5, 88.1, 493.0, 49.1]),
    ("Tokyo", [39.7, 181.0, 46.9, 489.1]),
];

fn north_america(size: Size) -> Result<Experiment> {
    let title = "Regions of North America: single-block repair time by the requestor's, RS(16,12)";
    let source = "ECPipe, Fig. 9(a)";
    let published = Published { below_ppr: (62.7, 78.0), by_rates: (7.3, 45.4) };
    regions(
        size,
        &NORTH_AMERICA,
        &published,
        Experiment { source, ..Experiment::computed("ecpipe-9a", title) },
    )
}

fn asia(size: Size) -> Result<Experiment> {
    let title = "Regions of Asia: single-block repair time by the requestor's, RS(16,12)";
    let source = "ECPipe, Fig. 9(b)";
    let published = Published { below_ppr: (66.6, 87.1), by_rates: (14.5, 45.0) };
    regions(size, &ASIA, &published, Experiment { source, ..Experiment::computed("ecpipe-9b", title) })
}

/// Four helpers in each region, and one requestor; the requestors are the last nodes.
pub(super) fn region_spec(table: &Regions) -> Result<(Spec, Vec<NodeId>)> {
    let groups: Vec<usize> = (0..16).map(|node| node / 4).chain(0..4).collect();
    let rates = table.iter().map(|(_, row)| row.iter().map(|&megabits| mbps(megabits)).collect());
    let rates = rates.collect::<Result<Vec<Vec<_>>>>()?;
    let racks: Vec<u32> = groups.iter().map(|&group| group as u32).collect();
    let spec = Spec::in_racks(&racks, None).with_pair_rates(&groups, &rates)?;
    Ok((spec, (16..20).map(NodeId).collect()))
}

/// By how many percent the paper's times are lower, at least and at most over the regions of the requestor.
struct Published {
    /// Those of random paths than those of PPR.
    below_ppr: (f64, f64),
    /// Those of paths by rates than those of random ones.
    by_rates: (f64, f64),
}

/// Why PPR in rounds is nearer here.
const ROUNDS_BY_REGION: &str = "a round of PPR lasts as long as its slowest block; PPR takes its helpers region by region here, as it does racks, so \
    some rounds stay inside regions or between near ones, while a random path nearly always crosses one of the slowest pairs; the paper \
    says that its PPR does not regard racks: if each of its four rounds is as slow as a random path, that path is 75% below; why it is more \
    than that in some of its regions is not known";
/// Why PPR in slices is much nearer.
const SLICES_BY_REGION: &str = "as in rounds, PPR takes its helpers region by region here; in slices all links of its tree work at once, and \
    only pairs of nodes have a limit, so a node that receives from several others does so at once, and the slowest pair alone counts; the \
    paper's PPR has no times like these";
/// Why paths by rates gain another part here.
const FIXED_RATES: &str = "rates are those of Table 1 all the time here, so the slowest pair on a random path and on the best one decide; in the \
    paper they changed from run to run, and were probed before each";

/// What is claimed of all requestors together: the least and the most, beside the paper's.
fn over_regions(size: Size, table: &Regions, published: &Published) -> Vec<Claim> {
    let compared = [
        ("a random path below PPR in rounds", (RANDOM, PPR_ROUNDS), published.below_ppr, ROUNDS_BY_REGION),
        ("a random path below PPR in slices", (RANDOM, PPR), published.below_ppr, SLICES_BY_REGION),
        ("a path by rates below a random one", (WEIGHTED, RANDOM), published.by_rates, FIXED_RATES),
    ];
    let claims = compared.into_iter().flat_map(|(text, (of, against), (least, most), because)| {
        let here = size.some(&[0, 1, 2, 3]);
        let each: Vec<Value> =
            here.into_iter().map(|region| reduction(of, against, table[region].0)).collect();
        [
            Claim::new(format!("{text}, where it is least"), Value::Least(each.clone())).published(least),
            Claim::new(format!("{text}, where it is most"), Value::Most(each)).published(most),
        ]
        .map(|claim| claim.because(because))
    });
    claims.collect()
}

fn regions(size: Size, table: &Regions, published: &Published, about: Experiment) -> Result<Experiment> {
    let (spec, requestors) = region_spec(table)?;
    let works = [
        (PPR_ROUNDS, in_mode(Method::Ppr, RunMode::WholeBlocks)),
        (PPR, one(Method::Ppr)),
        (RANDOM, one(Method::Random)),
        (WEIGHTED, one(Method::Weighted)),
        (OPTIMAL, one(Method::Optimal)),
    ];
    let here = size.some(&[0, 1, 2, 3]);
    let cases = here.iter().flat_map(|&region| {
        works.clone().map(|(name, work)| {
            case(name, table[region].0, size.mib(8), work).code("rs:n=16,k=12").at(requestors[region])
        })
    });
    let claims = here.iter().flat_map(|&region| {
        let x = table[region].0;
        [
            Claim::new(format!("a random path below PPR in rounds, {x}"), reduction(RANDOM, PPR_ROUNDS, x)),
            Claim::new(format!("a random path below PPR in slices, {x}"), reduction(RANDOM, PPR, x)),
            Claim::new(format!("a path by rates below a random one, {x}"), reduction(WEIGHTED, RANDOM, x)),
            Claim::new(format!("the best trees below a path by rates, {x}"), reduction(OPTIMAL, WEIGHTED, x)),
        ]
    });
    Ok(Experiment {
        measure: Measure::Seconds,
        axis: "requestor in",
        differs: "blocks of 8 MiB; rates are those of Table 1 all the time; every pair of nodes has the rate of its regions",
        baseline: Some(Baseline::Series(PPR_ROUNDS.into())),
        scale: size.scale_or(1.0),
        claims: over_regions(size, table, published).into_iter().chain(claims).collect(),
        scenes: vec![Scene { spec, free: requestors.clone(), cases: cases.collect() }],
        ..about
    })
}
