//! OpenEC (FAST'19), section 5, the experiments on the system itself and not on HDFS: Figs. 7, 9, 10 and 11. Fig.
//! 8 is about processors, not links; see `kintsu bench kernel`.
//!
//! The paper's links carry 10 Gb/s (1 Gb/s where it says so); here 500 Mb/s by default.

use kintsu_lab::Spec;
use kintsu_plan::{Binding, Method, RunMode, Schedule};
use kintsu_wire::message::Requestors;

use super::super::declare::{Baseline, Case, Claim, Experiment, Measure, Point, Scene, Value, Work};
use super::super::sweep::Sweep;
use super::build::*;
use super::{Entry, Kind, Size};
use crate::error::Result;

pub const ENTRIES: &[Entry] = &[
    entry("openec-7a", "a client writes, reads, and reads with a block lost", clients),
    entry("openec-7b", "five clients write, read, and read with a block lost", many_clients),
    entry("openec-7c", "offline encoding, and recovery of a whole node", afterwards),
    entry("openec-7d", "reads of striped files and of files of one block", layouts),
    entry("openec-9a", "writes and degraded reads by block size", client_by_block),
    entry("openec-9b", "writes and degraded reads by cell size", client_by_cell),
    entry("openec-10a", "repair of LRC beside RS", lrc),
    entry("openec-10b", "repair of Butterfly and MISER codes beside RS", msr),
    entry("openec-10c", "repair by PPR and by pipelining", methods),
    entry("openec-10d", "repair of DRC beside RS, in three racks", drc),
    entry("openec-11a", "offline encoding by (n, k), in three racks", encoding),
    entry("openec-11b", "recovery of a whole node in three racks, pipelined rack by rack", racks),
];

const fn entry(name: &'static str, about: &'static str, make: fn(Size) -> Result<Experiment>) -> Entry {
    Entry { name, groups: &["openec", "page"], about, kind: Kind::Measured(make) }
}

const TEN_GIGABIT: f64 = 10_000.0;
const GIGABIT: f64 = 1000.0;
/// 500 Mb/s instead of 10 Gb/s.
const SCALE_OF_TEN: f64 = 0.05;
const SCALE_OF_ONE: f64 = 0.5;

const WRITE: &str = "write";
const READ: &str = "normal read";
const DEGRADED: &str = "degraded read";

const START: &str = "the time includes the start of the client's process";

fn plain(name: &'static str, title: &'static str, source: &'static str, axis: &'static str) -> Experiment {
    Experiment {
        measure: Measure::Seconds,
        axis,
        ..Experiment { source, ..Experiment::computed(name, title) }
    }
}

const WORKS: [(&str, Work); 3] =
    [(WRITE, Work::Write), (READ, Work::Read { lost: 0 }), (DEGRADED, Work::Read { lost: 1 })];

fn clients(size: Size) -> Result<Experiment> {
    let cases = WORKS.map(|(series, work)| case(series, "RS(9,6)", size.mib(64), work).code(rs(9, 6)));
    let rate =
        |of: &str, over: &str| Value::RateRatio(Point::new(of, "RS(9,6)"), Point::new(over, "RS(9,6)"));
    Ok(Experiment {
        measure: Measure::Rate,
        differs: START,
        scale: size.scale_or(SCALE_OF_TEN),
        scenes: vec![scene(TEN_GIGABIT, cases.into())?],
        claims: vec![Claim::new("degraded read over normal read", rate(DEGRADED, READ))],
        ..plain("openec-7a", "Throughput of one client, RS(9,6)", "OpenEC, Fig. 7(a)", "code")
    })
}

/// As in the paper, 15 machines have blocks, and five of them also run clients.
fn many_clients(size: Size) -> Result<Experiment> {
    let of = |clients: usize| {
        WORKS.map(|(series, work)| {
            case(series, clients.to_string(), size.mib(8), work).code(rs(9, 6)).clients(clients)
        })
    };
    let rate = |of: &str, over: &str, x: &str| Value::RateRatio(Point::new(of, "5"), Point::new(over, x));
    let scales = |of| Claim::new(format!("{of}, five clients over one"), rate(of, of, "1"));
    let slower = Claim::new("degraded read over normal read, five clients", rate(DEGRADED, READ, "5"));
    Ok(Experiment {
        measure: Measure::Rate,
        differs: "files of 48 MiB; links of 50 Mb/s: all clients send at once; the rate is of all bytes until the last client ends, \
                  with the start of the clients' processes; some files lose two blocks and not one",
        scale: size.scale_or(SCALE_OF_NODES / 10.0),
        scenes: vec![Scene {
            spec: Spec::even(15, 1, mbps(TEN_GIGABIT)?),
            free: Vec::new(),
            cases: [of(1), of(5)].concat(),
        }],
        claims: vec![scales(WRITE), scales(READ), scales(DEGRADED), slower],
        ..plain("openec-7b", "Throughput of five clients, RS(9,6)", "OpenEC, Fig. 7(b)", "clients")
    })
}

fn afterwards(size: Size) -> Result<Experiment> {
    let (block, stripes) = if size.quick { (1 << 20, 6) } else { (4 << 20, 20) };
    let recover = |method| recover(method, Schedule::Balanced, stripes, Requestors::Any);
    let of = |series: &str, work| case(series, "RS(9,6)", block, work).code(rs(9, 6));
    let sweep = Sweep::few().or_slice(LARGE_SLICE);
    let node = vec![
        of("node, conventional", recover(Method::Conventional)).swept(sweep.clone()),
        of("node, pipelined", recover(Method::Pipeline)).swept(sweep),
        of("node, auto (default)", recover(Method::Auto)),
    ];
    let (spec, _) = cluster(0, TEN_GIGABIT)?;
    let encode = vec![of("encode", Work::Encode { stripes, binding: Binding::Bound })];
    Ok(Experiment {
        measure: Measure::Rate,
        differs: "blocks of 4 MiB, links of 50 Mb/s: all nodes send at once, and no processor may be the limit",
        scale: size.scale_or(SCALE_OF_NODES / 10.0),
        scenes: vec![
            Scene { spec: spec.clone(), free: Vec::new(), cases: encode },
            Scene { spec, free: Vec::new(), cases: node },
        ],
        ..plain("openec-7c", "Offline encoding and full-node recovery, RS(9,6)", "OpenEC, Fig. 7(c)", "code")
    })
}

/// Files that are each striped over the data blocks of one stripe, and files that are one block each.
fn layouts(size: Size) -> Result<Experiment> {
    let all: &[u64] = if size.quick { &[1, 16] } else { &[1, 16, 64] };
    let cases = all.iter().flat_map(|mib| {
        let file = mib << 20;
        let of = |series: &str, block, work| case(series, bytes(file), block, work).code(rs(12, 8));
        [
            of("striped, normal read", file / 8, Work::Read { lost: 0 }),
            of("striped, degraded read", file / 8, Work::Read { lost: 1 }),
            of("contiguous, normal read", file, Work::ReadBlock { lost: 0 }),
            of("contiguous, degraded read", file, Work::ReadBlock { lost: 1 }),
        ]
    });
    let x = bytes(all[all.len() - 1] << 20);
    let rate = |of: &str, over: &str| Value::RateRatio(Point::new(of, &x), Point::new(over, &x));
    let claim = |text: &str, of: &str, over: &str| Claim::new(format!("{text}, {x}"), rate(of, over));
    let claims = vec![
        claim("contiguous over striped, normal read", "contiguous, normal read", "striped, normal read"),
        claim(
            "contiguous, degraded over normal read",
            "contiguous, degraded read",
            "contiguous, normal read",
        ),
        claim("striped, degraded over normal read", "striped, degraded read", "striped, normal read"),
    ];
    Ok(Experiment {
        measure: Measure::Rate,
        differs: "the time includes the start of the client's process; a contiguous file is the first block of a larger object",
        scale: size.scale_or(SCALE_OF_TEN),
        scenes: vec![scene(TEN_GIGABIT, cases.collect())?],
        claims,
        ..plain(
            "openec-7d",
            "Reads of striped and of contiguous files, RS(12,8)",
            "OpenEC, Fig. 7(d)",
            "file",
        )
    })
}

fn client_by_block(size: Size) -> Result<Experiment> {
    let all: &[u64] = if size.quick { &[1, 16] } else { &[1, 4, 16, 64] };
    let cases = all.iter().flat_map(|mib| client_pair(&bytes(mib << 20), mib << 20, 128 << 10));
    Ok(Experiment {
        measure: Measure::Rate,
        differs: START,
        scale: size.scale_or(SCALE_OF_TEN),
        scenes: vec![scene(TEN_GIGABIT, cases.collect())?],
        ..plain("openec-9a", "Throughput of a client by block size, RS(9,6)", "OpenEC, Fig. 9(a)", "block")
    })
}

fn client_by_cell(size: Size) -> Result<Experiment> {
    let all = size.some(&[4u32 << 10, 16 << 10, 128 << 10, 1 << 20, 8 << 20]);
    let cases = all.into_iter().flat_map(|cell| client_pair(&bytes(cell.into()), size.mib(32), cell));
    Ok(Experiment {
        measure: Measure::Rate,
        differs: START,
        scale: size.scale_or(SCALE_OF_TEN),
        scenes: vec![scene(TEN_GIGABIT, cases.collect())?],
        ..plain("openec-9b", "Throughput of a client by cell size, RS(9,6)", "OpenEC, Fig. 9(b)", "cell")
    })
}

fn client_pair(x: &str, block: u64, cell: u32) -> [Case; 2] {
    [(WRITE, Work::Write), (DEGRADED, Work::Read { lost: 1 })]
        .map(|(series, work)| case(series, x, block, work).code(rs(9, 6)).cell(cell))
}

/// The paper's two rates of links: 500 Mb/s stand for 10 Gb/s, and so 50 Mb/s for 1 Gb/s.
const RATES: [(&str, f64); 2] = [("10 Gb/s", TEN_GIGABIT), ("1 Gb/s", GIGABIT)];

/// A code or a method whose gain is compared with the paper's.
struct Gain {
    series: &'static str,
    code: &'static str,
    work: Work,
    /// As Table 2 has it.
    published: f64,
    /// Why it is another one here, where that is known.
    because: &'static str,
}

impl Gain {
    fn new(series: &'static str, code: &'static str, work: Work, published: f64) -> Self {
        Self { series, code, work, published, because: "" }
    }

    fn because(self, because: &'static str) -> Self {
        Self { because, ..self }
    }
}

/// Single-block repairs of codes or by methods on equal links of both rates, and the gain of each over the first one.
fn gains(size: Size, about: Experiment, codes: &[Gain], base: (&str, &str)) -> Result<Experiment> {
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (x, megabits) in RATES {
        // Ten times slower links carry blocks an eighth as large.
        let block = size.mib(if megabits == GIGABIT { 4 } else { 32 });
        let mut cases = vec![case(base.0, x, block, one(Method::Conventional)).code(base.1)];
        for Gain { series, code, work, published, because } in codes {
            cases.push(case(*series, x, block, work.clone()).code(*code));
            let value = Value::TimeRatio(Point::new(base.0, x), Point::new(*series, x));
            let text = format!("gain of {series} over {} at {x} (Table 2)", base.0);
            claims.push(Claim::new(text, value).published(*published).because(because));
        }
        scenes.push(scene(megabits, cases)?);
    }
    Ok(Experiment {
        claims,
        baseline: Some(Baseline::Series(base.0.into())),
        differs: "500 Mb/s stand for 10 Gb/s, and 50 Mb/s for 1 Gb/s; blocks of 32 and 4 MiB; the disks that are the limit at the paper's \
                  10 Gb/s are memory here",
        scale: size.scale_or(SCALE_OF_TEN),
        scenes,
        ..about
    })
}

fn gain_of(x: &str, base: &str, theory: f64) -> Claim {
    let value = Value::TimeRatio(Point::new("repair", base), Point::new("repair", x));
    Claim::new(format!("gain of {x} over {base} (Table 2)"), value).published(theory)
}

fn lrc(size: Size) -> Result<Experiment> {
    let about = plain(
        "openec-10a",
        "LRC beside RS, conventional repair",
        "OpenEC, Fig. 10(a)",
        "links (paper's rate)",
    );
    let lrc = Gain::new("LRC(10,6)", "azure-lrc:n=10,k=6,r=3", one(Method::Conventional), 2.0);
    gains(size, about, &[lrc], ("RS(9,6)", "rs:n=9,k=6"))
}

fn msr(size: Size) -> Result<Experiment> {
    let about = plain("openec-10b", "MSR codes beside RS", "OpenEC, Fig. 10(b)", "links (paper's rate)");
    let butterfly = Gain::new("Butterfly(6,4)", "butterfly:n=6,k=4", one(Method::Conventional), 1.6);
    let miser = Gain::new("MISER(8,4)", "miser:n=8,k=4", one(Method::Conventional), 2.28);
    gains(size, about, &[butterfly, miser], ("RS(6,4)", "rs:n=6,k=4"))
}

/// Why PPR in rounds gains less than Table 2 says.
const BETWEEN_ROUNDS: &str = "Table 2 counts what links carry alone; between two rounds a helper checks, combines and copies a whole block while its \
    links are idle, which takes as long for fast links as for slow ones, so a larger part of the time with fast ones";
/// Why PPR in slices gains more than Table 2 says.
const SLICED: &str = "Table 2 counts three rounds; in slices only the busiest link of the tree counts, which carries two blocks";

fn methods(size: Size) -> Result<Experiment> {
    let about =
        plain("openec-10c", "Repair methods for RS(9,6)", "OpenEC, Fig. 10(c)", "links (paper's rate)");
    let of = |series, work, published| Gain::new(series, "rs:n=9,k=6", work, published);
    let rounds = of(PPR_ROUNDS, in_mode(Method::Ppr, RunMode::WholeBlocks), 2.0).because(BETWEEN_ROUNDS);
    let ppr = of(PPR, one(Method::Ppr), 2.0).because(SLICED);
    let pipelined = of(RP, one(Method::Pipeline), 6.0);
    gains(size, about, &[rounds, ppr, pipelined], (CONVENTIONAL, "rs:n=9,k=6"))
}

/// Three racks of `each` nodes. The racks' links to the core carry 1 Gb/s; inside a rack there is no limit.
fn three_racks(each: u32) -> Result<Spec> {
    let racks: Vec<u32> = (0..3 * each).map(|node| node / each).collect();
    Ok(Spec::in_racks(&racks, None).with_rack_links(mbps(GIGABIT)?))
}

const IN_RACKS: &str =
    "the limit is that of a rack's link; links inside racks have none, where the paper's carry 10 Gb/s";

/// Why DRC(6,4) gains less than Table 2 says.
const FIRST_SENDERS: &str = "of the two racks that send to the requestor's one has two helpers and the other one alone; so the link of the \
    requestor's rack carries a stream of a first sender, and that keeps 0.95 of the rate (see First senders above)";

fn drc(size: Size) -> Result<Experiment> {
    let block = size.mib(64);
    let mut scenes = Vec::new();
    let mut claims = Vec::new();
    for (n, k, gain, because) in [(6, 4, 1.5, FIRST_SENDERS), (9, 6, 2.0, "")] {
        let (base, x) = (format!("RS({n},{k})"), format!("DRC({n},{k})"));
        let of = |x: &str, code: String| case("repair", x, block, one(Method::Conventional)).code(code);
        let cases = vec![of(&base, rs(n, k)), of(&x, format!("drc:n={n},k={k}"))];
        scenes.push(Scene { spec: three_racks(n as u32 / 3 + 1)?, free: Vec::new(), cases });
        claims.push(gain_of(&x, &base, gain).because(because));
        let across = |x: &str| Value::CrossRackBlocks(Point::new("repair", x));
        claims.push(Claim::new(format!("blocks across racks, {base}"), across(&base)));
        claims.push(Claim::new(format!("blocks across racks, {x}"), across(&x)));
    }
    Ok(Experiment {
        differs: IN_RACKS,
        scale: size.scale_or(SCALE_OF_ONE),
        scenes,
        claims,
        ..plain("openec-10d", "DRC beside RS in three racks", "OpenEC, Fig. 10(d)", "code")
    })
}

fn encoding(size: Size) -> Result<Experiment> {
    let (block, stripes) = if size.quick { (1 << 20, 6) } else { (4 << 20, 15) };
    let ways = [
        ("no binding", Binding::Apart),
        ("bind_x", Binding::Together),
        ("bind_x and bind_y (always used)", Binding::Bound),
    ];
    let codes = [(8, 6), (10, 8), (12, 10)].map(|(n, k)| (format!("({n},{k})"), rs(n, k)));
    let (mut cases, mut claims) = (Vec::new(), Vec::new());
    for (x, code) in &codes {
        cases.extend(
            ways.map(|(series, binding)| {
                case(series, x, block, Work::Encode { stripes, binding }).code(code)
            }),
        );
        for (series, published) in [(ways[1].0, "37 to 42%"), (ways[2].0, "38 to 44%")] {
            let gain = Value::Gain(Point::new(series, x), Point::new(ways[0].0, x));
            claims.push(Claim::new(format!("gain of {series}, {x} ({published} in the paper)"), gain));
        }
    }
    Ok(Experiment {
        measure: Measure::Rate,
        baseline: Some(Baseline::Series(ways[0].0.into())),
        differs: "blocks of 4 MiB; the links of racks have the limit; without binding each parity is computed at its home; with \
                  bind_x alone all are computed at the home of the first parity",
        scale: size.scale_or(SCALE_OF_ONE),
        scenes: vec![Scene { spec: three_racks(5)?, free: Vec::new(), cases }],
        claims,
        ..plain("openec-11a", "Offline encoding by (n, k) in three racks", "OpenEC, Fig. 11(a)", "(n,k)")
    })
}

fn racks(size: Size) -> Result<Experiment> {
    let (block, stripes) = if size.quick { (1 << 20, 9) } else { (4 << 20, 15) };
    let codes = [(8, 6), (10, 8), (12, 10)];
    let (mut scenes, mut claims) = (Vec::new(), Vec::new());
    for (n, k) in codes {
        let x = format!("({n},{k})");
        let of = |series: &str, method| {
            let work = recover(method, Schedule::Greedy, stripes, Requestors::Count(1));
            let sweep = Sweep::few().for_one_requestor().or_schedule(Schedule::Balanced);
            case(series, &x, block, work).code(rs(n, k)).swept(sweep)
        };
        let cases = vec![of(CONVENTIONAL, Method::Conventional), of(RP, Method::Pipeline)];
        scenes.push(Scene { spec: three_racks(5)?, free: Vec::new(), cases });
        let rates = Value::RateRatio(Point::new(RP, &x), Point::new(CONVENTIONAL, &x));
        let text = format!("pipelined over conventional, {x} (1.82 to 2.28 in the paper)");
        claims.push(Claim::new(text, rates).because(
            "the link of one requestor's rack is the limit here: all blocks from other racks cross it conventionally, one block along a \
             path",
        ));
    }
    Ok(Experiment {
        measure: Measure::Rate,
        baseline: Some(Baseline::Series(CONVENTIONAL.into())),
        differs: "blocks of 4 MiB; the links of racks have the limit, links inside racks none, where the paper's carry 10 Gb/s; one node \
                  gets all blocks; both with the settings that suit them best",
        scale: size.scale_or(SCALE_OF_ONE),
        scenes,
        claims,
        ..plain(
            "openec-11b",
            "Full-node recovery in three racks",
            "OpenEC, Fig. 11(b): 82 to 128% more",
            "(n,k)",
        )
    })
}
