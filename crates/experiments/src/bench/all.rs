//! `bench all`: the benchmarks of this machine one after the other, and the table of them in the documentation.
//!
//! A page has a place for all lines of the table, named `bench`, or one for a few of them, named `bench-short`
//! (`page`).

use std::fs::File;
use std::path::PathBuf;

use kintsu_kernel::Backend;
use kintsu_plan::Method;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::{ecdag, folder, io, kernel, meta, plan, slices, small};
use crate::Machine;
use crate::error::Result;
use crate::figures::{Aim, Table};
use crate::page::{fill, no_place};

/// The places in a page, and whether each has only a few lines.
const PLACES: [(&str, bool); 2] = [("bench", false), ("bench-short", true)];

/// Slices whose processor time the table has.
const SLICES: [u32; 3] = [32 << 10, 128 << 10, 1 << 20];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Stripes of the measured coordinator.
    pub stripes: u64,
    /// A folder on the disk to be measured. Temporary folders in it are created and removed.
    pub dir: PathBuf,
    /// Makes the executor of a node, as an agent's process has one.
    pub executor: fn() -> Result<Runtime>,
    /// How the command line reads a pipe.
    pub stream: fn(File) -> File,
    /// How the command line writes to a pipe.
    pub sink: fn(File) -> io::Sink,
    /// The version of the program, with the commit that it was built from.
    pub build: &'static str,
}

/// All measurements.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: Machine,
    /// The version of the program, with the commit that it was built from.
    pub build: &'static str,
    /// The coding kernel with the best instructions of this processor.
    pub kernel: kernel::Report,
    /// The same with AVX2, where that is not the best.
    pub avx2: Option<kernel::Report>,
    /// Encoding by graph.
    pub ecdag: ecdag::Report,
    /// Planning.
    pub plan: plan::Report,
    /// A coordinator with many stripes.
    pub meta: meta::Report,
    /// Put and get.
    pub io: io::Report,
    /// Small slices.
    pub slices: slices::Report,
    /// Small objects.
    pub small: small::Report,
}

/// Runs them.
///
/// # Errors
/// The first that one of them has.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let code = "rs:n=9,k=6";
    let kernel = kernel::run(&kernel::Options::default(), progress)?;
    let avx2 = Backend::available().contains(&Backend::Avx2) && Backend::best() != Backend::Avx2;
    let avx2 = avx2.then(|| {
        let of = kernel::Options { backend: Some(Backend::Avx2), ..kernel::Options::default() };
        kernel::run(&of, progress)
    });
    let avx2 = avx2.transpose()?;
    let ecdag = ecdag::run(&ecdag::Options::default(), progress)?;
    let plan = plan::run(&plan::Options::default(), progress)?;
    let meta = {
        let at = folder(&options.dir)?;
        let of = meta::Options { stripes: options.stripes, dir: at.path().to_owned() };
        meta::run(&of, progress).await?
    };
    let io = {
        let at = folder(&options.dir)?;
        let (dir, stream, sink) = (at.path().to_owned(), options.stream, options.sink);
        let of = io::Options { size: 512 << 20, code: code.into(), dir, runs: 3, stream, sink };
        io::run(&of, progress).await?
    };
    let slices = {
        let at = folder(&options.dir)?;
        let of = slices::Options {
            block_bytes: 64 << 20,
            helpers: 10,
            slices: (12..=20).map(|bits| 1 << bits).collect(),
            runs: 3,
            dir: at.path().to_owned(),
            executor: options.executor,
        };
        slices::run(&of, progress).await?
    };
    let small = {
        let at = folder(&options.dir)?;
        let dir = at.path().to_owned();
        let of = small::Options { size: 4 << 10, code: code.into(), clients: 16, objects: 200, dir };
        small::run(&of, progress).await?
    };
    let (machine, build) = (Machine::this(), options.build);
    Ok(Report { machine, build, kernel, avx2, ecdag, plan, meta, io, slices, small })
}

/// Whether a page has a place for these results.
///
/// # Errors
/// `Invalid` where it has none, or one without an end.
pub fn check(page: &str) -> Result<()> {
    filled(page, &|_| String::new()).map(drop)
}

/// The page with what `text` says in its places; it is told whether only a few lines are wanted.
fn filled(page: &str, text: &dyn Fn(bool) -> String) -> Result<String> {
    let mut placed = false;
    let filled = fill(page, &mut |name, _| {
        let (_, short) = PLACES.into_iter().find(|(place, _)| *place == name)?;
        placed = true;
        Some(text(short))
    })?;
    if placed { Ok(filled) } else { Err(no_place(PLACES[0].0)) }
}

/// A line of the table.
struct Line {
    what: String,
    ours: String,
    other: String,
    ratio: Option<f64>,
    /// The ratio of the medians, where both are judged.
    median: Option<f64>,
    /// The aim and whether it is met.
    aim: String,
    /// Whether it is among the few.
    short: bool,
}

impl Line {
    fn new(what: impl Into<String>, ours: String) -> Self {
        Self {
            what: what.into(),
            ours,
            other: String::new(),
            ratio: None,
            median: None,
            aim: String::new(),
            short: false,
        }
    }

    fn beside(self, other: impl Into<String>, ratio: Option<f64>) -> Self {
        Self { other: other.into(), ratio, ..self }
    }

    fn median(self, median: Option<f64>) -> Self {
        Self { median, ..self }
    }

    /// An aim for the ratio, and for that of the medians.
    fn aim(self, aim: Option<Aim>) -> Self {
        let ratios = self.ratio.into_iter().chain(self.median);
        match aim {
            Some(aim) => Self { aim: judged(aim, "", ratios.collect()), ..self },
            None => self,
        }
    }

    /// An aim for the value itself.
    fn goal(self, aim: Aim, unit: &str, value: f64) -> Self {
        Self { aim: judged(aim, unit, vec![value]), ..self }
    }

    fn short(self) -> Self {
        Self { short: true, ..self }
    }

    fn cells(&self) -> Vec<String> {
        let ratio = match (self.ratio, self.median) {
            (Some(ratio), Some(median)) => format!("{ratio:.2}, medians {median:.2}"),
            (Some(ratio), None) => format!("{ratio:.2}"),
            _ => String::new(),
        };
        vec![self.what.clone(), self.ours.clone(), self.other.clone(), ratio, self.aim.clone()]
    }
}

/// An aim, and whether all of these values meet it.
fn judged(aim: Aim, unit: &str, values: Vec<f64>) -> String {
    let limit = match aim {
        Aim::AtMost(limit) => format!("<= {limit}{unit}"),
        Aim::AtLeast(limit) | Aim::AlwaysAtLeast(limit) => format!(">= {limit}{unit}"),
    };
    match values[..] {
        [] => limit,
        _ => format!("{limit}: {}", super::verdict(values.iter().all(|value| aim.holds(*value)))),
    }
}

fn table(lines: &[Line], short: bool) -> String {
    let headings = ["what", "Kintsu", "other side", "ratio", "aim"].map(String::from).into();
    let rows = lines.iter().filter(|line| line.short || !short).map(Line::cells).collect();
    Table { headings, rows }.markdown()
}

/// What stands in a place of a page.
fn written(machine: &Machine, build: &str, lines: &[Line], short: bool) -> String {
    format!("{machine}; kintsu {build}.\n\n{}\n", table(lines, short))
}

/// Two usual shapes, and the one with the lowest ratio.
fn kernels(report: &kernel::Report) -> Vec<Line> {
    let line = |case: &kernel::Case, note: &str| {
        let kernel::Case { n, k, operation, block_bytes, memory, .. } = case;
        let from = if *memory == "hot" { "hot" } else { "from DRAM" };
        let what = format!(
            "{operation} ({n},{k}), blocks of {} KiB, {from}, {}{note}",
            block_bytes >> 10,
            report.backend
        );
        let sides = [("ISA-L", case.isal), ("klauspost", case.klauspost)].into_iter();
        let mut others: Vec<String> =
            sides.filter_map(|(name, rate)| Some(format!("{name}: {:.1}", rate?.best))).collect();
        if report.aim.is_none() {
            others.push(format!("not judged: {}", report.unjudged));
        }
        Line::new(what + ", GB/s of data in, one core", format!("{:.1}", case.kintsu.best))
            .beside(others.join(", "), case.ratio_best)
            .median(case.ratio_median)
            .aim(report.aim.map(Aim::AtLeast))
            .short()
    };
    let usual = |case: &&kernel::Case| {
        (case.n, case.operation) == (14, "encode")
            && [(128 << 10, "hot"), (1 << 20, "dram")].contains(&(case.block_bytes, case.memory))
    };
    let lowest = report.lowest().map(|(case, _)| line(case, ": the lowest ratio of all cases"));
    report.cases.iter().filter(usual).map(|case| line(case, "")).chain(lowest).collect()
}

impl Report {
    /// For people: the table of each benchmark.
    pub fn table(&self) -> String {
        let avx2 = self.avx2.as_ref().map(kernel::Report::table);
        let tables = [
            self.ecdag.table(),
            self.plan.table(),
            self.meta.table(),
            self.io.table(),
            self.slices.table(),
            self.small.table(),
        ];
        let tables: Vec<String> = [self.kernel.table()].into_iter().chain(avx2).chain(tables).collect();
        tables.join("\n\n")
    }

    /// The page with these results.
    ///
    /// # Errors
    /// As [`check`].
    pub fn fill(&self, page: &str) -> Result<String> {
        let lines = self.lines();
        filled(page, &|short| written(&self.machine, self.build, &lines, short))
    }

    fn lines(&self) -> Vec<Line> {
        let all = [
            kernels(&self.kernel),
            self.avx2.as_ref().map(kernels).unwrap_or_default(),
            self.ecdag(),
            self.plan(),
        ]
        .into_iter()
        .chain([self.meta(), self.io(), self.slices(), self.small()]);
        all.flatten().collect()
    }

    fn ecdag(&self) -> Vec<Line> {
        let line = |case: &ecdag::Case| {
            let what = format!(
                "encode by graph, {}, blocks of {} MiB (OpenEC: 0.62-0.71)",
                case.code,
                self.ecdag.block_bytes >> 20
            );
            Line::new(what, format!("{:.1}", case.graph.best))
                .beside(format!("bare kernel calls: {:.1}", case.bare.best), Some(case.ratio_best))
        };
        self.ecdag.cases.iter().map(line).collect()
    }

    fn plan(&self) -> Vec<Line> {
        let report = &self.plan;
        let one = report.cases.iter().filter(|case| case.method == Method::Pipeline).map(|case| {
            let what = format!("plan one repair of {}: decode, shape, prove, place, lower", report.code);
            Line::new(what, format!("{:.0} us", case.total.median))
                .beside(
                    format!("OpenEC, published: < {} us", report.published_us),
                    Some(report.published_us / case.total.median),
                )
                .short()
        });
        let paths =
            report.paths.iter().filter_map(|case| {
                let published = case.published_us?;
                let what = format!("find the best path by rates, {}, median of {}", case.code, case.runs);
                let line = Line::new(what, format!("{:.0} us", case.search.median));
                Some(line.beside(
                    format!("ECPipe, published: {published} us"),
                    Some(published / case.search.median),
                ))
            });
        let many = report.schedulers.iter().map(|case| {
            let what = format!(
                "schedule the repairs of {} blocks over {} nodes, `{}`",
                case.blocks, case.nodes, case.scheduler
            );
            Line::new(what, format!("{:.1} ms", case.schedule[1]))
                .beside(
                    format!("ChameleonEC, published: {} ms", case.published_ms),
                    Some(case.published_ms / case.schedule[1]),
                )
                .goal(Aim::AtMost(case.aim_ms), " ms", case.schedule[1])
                .short()
        });
        one.chain(paths).chain(many).collect()
    }

    fn meta(&self) -> Vec<Line> {
        let report = &self.meta;
        let mib = |bytes: u64| format!("{} MiB at its peak", bytes >> 20);
        let calls: Vec<String> =
            report.latencies.iter().map(|of| format!("{} {:.2}", of.call, of.median_ms)).collect();
        vec![
            Line::new(
                format!("a coordinator with {} stripes: start to its first answer", report.stripes),
                format!("{:.2} s", report.start_seconds),
            )
            .beside(mib(report.peak_memory_bytes), None),
            Line::new("the same: calls, ms", calls.join("; ")),
            Line::new(
                format!(
                    "the same, its disk lost and no copy: from {} blocks (headers in memory)",
                    report.rebuild.blocks
                ),
                format!("{:.0} s, {}", report.rebuild.seconds, mib(report.rebuild.memory_bytes)),
            )
            .beside(format!("its copy restored: {:.1} s", report.copy.restore_seconds), None),
        ]
    }

    fn io(&self) -> Vec<Line> {
        let report = &self.io;
        let best = |what: &str| {
            report.rows.iter().find(|row| row.what == what).map_or(f64::NAN, |row| row.best_mb_s)
        };
        let what = |what: &str| {
            let (mib, nodes) = (report.size >> 20, report.nodes);
            format!("{what}, {}, {mib} MiB, {nodes} nodes in one process, MB/s", report.code)
        };
        let rate = |what: &str| format!("{:.0}", best(what));
        vec![
            Line::new(what("put"), rate("put"))
                .beside(
                    format!("the stored bytes written with sync: {}", rate("write with sync")),
                    Some(report.put_over_write_sync),
                )
                .short(),
            Line::new(what("get"), rate("get"))
                .beside(
                    format!("reading the file from the page cache: {}", rate("read")),
                    Some(report.get_over_read),
                )
                .short(),
        ]
    }

    fn slices(&self) -> Vec<Line> {
        let report = &self.slices;
        let line = |row: &slices::Row| {
            let what = format!(
                "processor time of a path over {} helpers, slices of {} KiB, s for a GB and a hop",
                report.helpers,
                row.slice_bytes >> 10
            );
            Line::new(what, format!("{:.2}", row.chain.cpu_s_per_gb_hop))
                .beside(format!("a bare relay: {:.2}", row.relay.cpu_s_per_gb_hop), Some(row.cpu_over_relay))
                .aim(row.aim.map(Aim::AtMost))
        };
        let shown = report.rows.iter().filter(|row| SLICES.contains(&row.slice_bytes)).map(line);
        shown.enumerate().map(|(at, line)| if at == 0 { line.short() } else { line }).collect()
    }

    fn small(&self) -> Vec<Line> {
        let report = &self.small;
        let most = report.rows.iter().map(|row| row.at_once).max().unwrap_or(0);
        let files = report.rate("synced files").unwrap_or(f64::NAN);
        let line = |by: String, what: &str| {
            let rate = report.rate(what).unwrap_or(f64::NAN);
            let (size, code, nodes) = (report.size, &report.code, report.nodes);
            let what = format!("puts of {size} bytes by {by}, {code}, {nodes} nodes, synced, a second");
            let line = Line::new(what, format!("{rate:.0}"))
                .beside(format!("a plain file each, synced: {files:.0}"), Some(rate / files));
            match report.aim {
                Some(aim) => line.goal(Aim::AtLeast(aim), "", rate),
                None => line,
            }
        };
        vec![
            line(format!("{most} clients that share nothing"), small::PUTS).short(),
            line(format!("{most} tasks of one client"), small::SHARED).short(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_judged_with_their_medians_and_values_by_themselves() {
        let line = |best, median| {
            let line = Line::new("a", "1".into()).beside("b", Some(best)).median(Some(median));
            line.aim(Some(Aim::AtLeast(1.05))).cells()
        };
        assert_eq!(line(1.06, 1.05)[3..], ["1.06, medians 1.05", ">= 1.05: met"]);
        assert_eq!(line(1.06, 1.04)[3..], ["1.06, medians 1.04", ">= 1.05: missed"]);
        assert_eq!(line(1.0, 1.1)[4], ">= 1.05: missed");
        let of = |ms: f64| Line::new("a", format!("{ms} ms")).goal(Aim::AtMost(20.0), " ms", ms).cells();
        assert_eq!(
            (&of(19.0)[4], &of(21.0)[4]),
            (&"<= 20 ms: met".to_owned(), &"<= 20 ms: missed".to_owned())
        );
    }

    #[test]
    fn a_place_says_which_machine_and_which_build_measured() {
        let machine = Machine { processor: "P".into(), cores: 2, ..Machine::default() };
        let text = written(&machine, "1.2 (abc)", &[Line::new("a", "1".into())], false);
        let (first, rest) = text.split_once('\n').unwrap();
        assert_eq!(first, format!("{machine}; kintsu 1.2 (abc)."));
        assert!(
            rest.starts_with("\n| what | Kintsu |") && rest.ends_with("| a | 1 |  |  |  |\n\n"),
            "{rest}"
        );
    }

    #[test]
    fn a_page_gets_the_lines_that_its_places_are_for_and_a_page_without_a_place_is_refused() {
        let lines = [
            Line::new("a", "1".into()).beside("b: 2", Some(0.5)).aim(Some(Aim::AtMost(1.25))).short(),
            Line::new("c", "3".into()).beside("d: 4", Some(0.75)).aim(Some(Aim::AtLeast(1.05))),
        ];
        let text = |short: bool| table(&lines, short);
        let page = "<!-- results bench-short -->stale<!-- end -->\ntext\n<!-- results bench -->\n<!-- end -->\n\
                    <!-- results other -->kept<!-- end -->";
        let now = filled(page, &text).unwrap();
        let head = "| what | Kintsu | other side | ratio | aim |\n| --- | --- | --- | --- | --- |\n";
        let (a, c) =
            ("| a | 1 | b: 2 | 0.50 | <= 1.25: met |\n", "| c | 3 | d: 4 | 0.75 | >= 1.05: missed |\n");
        assert_eq!(
            now,
            format!(
                "<!-- results bench-short -->\n{head}{a}<!-- end -->\ntext\n<!-- results bench -->\n{head}{a}{c}<!-- end -->\n\
                 <!-- results other -->kept<!-- end -->"
            )
        );
        assert_eq!(filled(&now, &text).unwrap(), now);
        assert!(check(page).is_ok());
        assert!(check("<!-- results other --><!-- end -->").unwrap_err().to_string().contains("bench"));
        assert!(check("<!-- results bench -->").is_err());
    }
}
