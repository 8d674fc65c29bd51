//! `bench kernel`: our region kernel compared with those of ISA-L and of klauspost/reedsolomon, on the same buffers, in
//! interleaved bursts.
//!
//! Cases: RS (9,6), (14,10), (16,12) with ISA-L's Cauchy matrix; encoding all parities, or
//! decoding one lost data block; blocks of 64 KiB, 128 KiB, 1 MiB; hot (one stripe over and over) or
//! from DRAM (rotating over a set of stripes far larger than the last cache). Aims are judged only where the other sides are
//! at their best, as `scripts/rivals.sh` builds them. Before a case is timed, the sides'
//! outputs are compared byte for byte. The memory limit of a case moves the same bytes without multiplying: it
//! XORs the inputs into one output and fills the other outputs.

use comfy_table::CellAlignment;
use kintsu_algebra::{Matrix, inv};
use kintsu_kernel::{Backend, Kernel, Mode};
use serde::Serialize;

use super::arena::Arena;
use super::burst::{Rate, interleave};
use super::isal::IsaL;
use super::klauspost::Klauspost;
use super::rivals::Rival;
use super::verdict;
use crate::Machine;
use crate::error::{ExperimentError, Result, ensure};
use crate::plain;

const CODES: [(usize, usize); 3] = [(9, 6), (14, 10), (16, 12)];
const BLOCK_BYTES: [usize; 3] = [64 << 10, 128 << 10, 1 << 20];

/// What our rate should be at least, over that of the better other side; `None` for instructions without an aim.
fn aim(backend: Backend) -> Option<f64> {
    match backend {
        Backend::Avx512Gfni => Some(1.05),
        Backend::Avx2 => Some(1.0),
        _ => None,
    }
}

/// How to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Time for each contender of each of the 36 cases.
    pub seconds_per_case: f64,
    /// Size of the buffer set that stands for DRAM; well beyond the last cache.
    pub dram_bytes: usize,
    /// The backend; the best one when `None`.
    pub backend: Option<Backend>,
}

impl Default for Options {
    fn default() -> Self {
        Self { seconds_per_case: 0.25, dram_bytes: 512 << 20, backend: None }
    }
}

/// The backend of this name, if this processor has it.
///
/// # Errors
/// `Invalid` otherwise.
pub fn backend(name: &str) -> Result<Backend> {
    let available = Backend::available();
    let found = available.iter().find(|backend| backend.to_string() == name).copied();
    found.ok_or_else(|| {
        let known: Vec<String> = available.iter().map(ToString::to_string).collect();
        ExperimentError::invalid("backend", format!("one of this processor: {}", known.join(", ")), name)
    })
}

/// All cases.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The processor's name.
    pub processor: String,
    /// Our instruction set.
    pub backend: String,
    /// ISA-L's file, or why it is missing.
    pub isal: String,
    /// The file of klauspost/reedsolomon, or why it is missing.
    pub klauspost: String,
    /// Nanoseconds of a call into Go, which its rates are without.
    pub klauspost_call_ns: Option<f64>,
    /// The lower limit of every ratio; `None` where nothing is judged.
    pub aim: Option<f64>,
    /// Why nothing is judged; empty where something is.
    pub unjudged: &'static str,
    /// What was measured.
    pub cases: Vec<Case>,
}

/// One case; rates are in 10^9 bytes of input a second, on one core.
#[derive(Debug, Clone, Serialize)]
pub struct Case {
    /// Blocks of a stripe.
    pub n: usize,
    /// Blocks that are read.
    pub k: usize,
    /// `encode` (n - k outputs) or `decode` (one).
    pub operation: &'static str,
    /// Length of a block.
    pub block_bytes: usize,
    /// `hot` or `dram`.
    pub memory: &'static str,
    /// Our kernel.
    pub kintsu: Rate,
    /// ISA-L, if it is there.
    pub isal: Option<Rate>,
    /// klauspost/reedsolomon, if it is there.
    pub klauspost: Option<Rate>,
    /// As many bytes read and written without multiplying.
    pub limit: Rate,
    /// Our best burst / the best burst of the better other side.
    pub ratio_best: Option<f64>,
    /// Our median burst / the median burst of the better other side.
    pub ratio_median: Option<f64>,
}

/// Measures all cases; `progress` is told what is being measured.
///
/// # Errors
/// A backend is not available here, or the two sides' bytes differ.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let backend = options.backend.unwrap_or_else(Backend::best);
    let isal = IsaL::load(backend);
    // Go's library chooses the instructions itself: it is the other side of the best backend only.
    let klauspost = if backend == Backend::best() { Some(Klauspost::load()) } else { None };
    let mut rivals: Vec<&dyn Rival> = Vec::new();
    rivals.extend(isal.as_ref().ok().map(|rival| rival as &dyn Rival));
    rivals.extend(klauspost.as_ref().and_then(|loaded| Some(loaded.as_ref().ok()? as &dyn Rival)));
    if rivals.is_empty() {
        progress("nothing to compare with: scripts/rivals.sh builds it");
    }
    let told =
        |name: &str| rivals.iter().find(|rival| rival.name() == name).map(|rival| rival.file().to_owned());
    let absent = |error: Option<String>| {
        format!("absent: {}", error.unwrap_or("not compared with this backend".into()))
    };
    let isal_file = told("ISA-L").unwrap_or_else(|| absent(isal.as_ref().err().map(ToString::to_string)));
    let klauspost_file = told("klauspost").unwrap_or_else(|| {
        absent(klauspost.as_ref().and_then(|loaded| loaded.as_ref().err()).map(ToString::to_string))
    });
    let lacks_klauspost = klauspost.as_ref().is_some_and(Result::is_err);
    let unjudged = match (&isal, aim(backend)) {
        (_, None) => "there is no aim for these instructions",
        (Err(_), _) => "ISA-L is missing",
        (Ok(isal), _) if !isal.is_at_its_best(backend) => {
            "this ISA-L is older than 2.31, the first that uses GFNI"
        }
        _ if lacks_klauspost => "klauspost/reedsolomon is missing",
        _ => "",
    };
    let mut bench = Bench {
        backend,
        isal: isal.as_ref().ok(),
        rivals: &rivals,
        arena: Arena::new(options.dram_bytes),
        seconds: options.seconds_per_case,
    };
    let mut cases = Vec::new();
    for (n, k) in CODES {
        for operation in ["encode", "decode"] {
            for block_bytes in BLOCK_BYTES {
                for memory in ["hot", "dram"] {
                    progress(&format!("({n},{k}) {operation}, {} KiB, {memory}", block_bytes >> 10));
                    cases.push(bench.case(n, k, operation, block_bytes, memory)?);
                }
            }
        }
    }
    Ok(Report {
        processor: Machine::this().processor,
        backend: bench.backend.to_string(),
        isal: isal_file,
        klauspost: klauspost_file,
        klauspost_call_ns: klauspost
            .as_ref()
            .and_then(|loaded| loaded.as_ref().ok())
            .map(|klauspost| klauspost.crossing() * 1e9),
        aim: aim(backend).filter(|_| unjudged.is_empty()),
        unjudged,
        cases,
    })
}

struct Bench<'a> {
    backend: Backend,
    isal: Option<&'a IsaL>,
    rivals: &'a [&'a dyn Rival],
    arena: Arena,
    seconds: f64,
}

impl Bench<'_> {
    fn case(
        &mut self,
        n: usize,
        k: usize,
        operation: &'static str,
        block_bytes: usize,
        memory: &'static str,
    ) -> Result<Case> {
        let generator = cauchy(n, k);
        if let Some(isal) = self.isal {
            ensure!(isal.cauchy(n, k) == generator.as_slice(), "the Cauchy matrices differ for ({n},{k})");
        }
        let coefs = match operation {
            "encode" => generator.select_rows(k..n),
            _ => generator.select_rows(1..=k).inverse()?.select_rows([0]),
        };
        let rows = coefs.rows();
        let kernel = Kernel::with_backend(self.backend, rows, k, coefs.as_slice())?;
        let prepared =
            self.rivals.iter().filter_map(|rival| Some((*rival, rival.prepare(rows, k, coefs.as_slice())?)));
        let mut others: Vec<_> = prepared.collect();

        self.arena.carve(k, rows, block_bytes, if memory == "hot" { 1 } else { usize::MAX });
        let (inputs, mut outputs) = self.arena.next();
        kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
        let ours: Vec<Vec<u8>> = outputs.iter().map(|o| o.to_vec()).collect();
        for (rival, apply) in &mut others {
            outputs.iter_mut().for_each(|o| o.fill(0));
            apply(&inputs, &mut outputs);
            let same = ours.iter().zip(&outputs).all(|(ours, theirs)| ours[..] == theirs[..]);
            ensure!(same, "({n},{k}) {operation}: our bytes differ from those of {}", rival.name());
        }

        // Contenders: the memory limit, our kernel, the others.
        let xor = Kernel::with_backend(self.backend, 1, k, &vec![1; k])?;
        let arena = &mut self.arena;
        let mut rates = interleave(2 + others.len(), self.seconds, k * block_bytes, |who| {
            let (inputs, mut outputs) = arena.next();
            match who {
                0 => {
                    xor.apply(&inputs, &mut outputs[..1], Mode::Overwrite).expect("lengths are equal");
                    outputs[1..].iter_mut().for_each(|o| o.fill(0));
                }
                1 => kernel.apply(&inputs, &mut outputs, Mode::Overwrite).expect("lengths are equal"),
                other => others[other - 2].1(&inputs, &mut outputs),
            }
        });
        for (rate, (rival, _)) in rates[2..].iter_mut().zip(&others) {
            *rate = rate.without(rival.crossing(), k * block_bytes);
        }
        let (limit, kintsu) = (rates[0], rates[1]);
        let of =
            |name: &str| others.iter().position(|(other, _)| other.name() == name).map(|at| rates[at + 2]);
        let ratio = |of: fn(&Rate) -> f64| {
            let best = rates[2..].iter().map(of).max_by(f64::total_cmp);
            best.map(|best| of(&kintsu) / best)
        };
        let (ratio_best, ratio_median) = (ratio(|r| r.best), ratio(|r| r.median));
        let (isal, klauspost) = (of("ISA-L"), of("klauspost"));
        Ok(Case {
            n,
            k,
            operation,
            block_bytes,
            memory,
            kintsu,
            isal,
            klauspost,
            limit,
            ratio_best,
            ratio_median,
        })
    }
}

/// The generator of ISA-L's `gf_gen_cauchy1_matrix`: parity row `i` has `1 / (i ^ j)`, `i` from k on.
fn cauchy(n: usize, k: usize) -> Matrix {
    Matrix::from_fn(n, k, |i, j| match inv((i ^ j) as u8) {
        Some(c) if i >= k => c,
        _ => u8::from(i == j),
    })
}

impl Report {
    /// The cases as a table for people.
    pub fn table(&self) -> String {
        let mut table = plain::table([
            "(n,k)",
            "operation",
            "block KiB",
            "memory",
            "kintsu",
            "median",
            "ISA-L",
            "median",
            "klauspost",
            "median",
            "ratio",
            "median",
            "limit",
            "aim, best",
            "median",
        ]);
        let number = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.2}"));
        let judged = |ratio: Option<f64>| {
            self.aim.zip(ratio).map_or(String::new(), |(aim, ratio)| verdict(ratio >= aim).into())
        };
        for c in &self.cases {
            table.add_row([
                format!("({},{})", c.n, c.k),
                c.operation.to_string(),
                (c.block_bytes >> 10).to_string(),
                c.memory.to_string(),
                number(Some(c.kintsu.best)),
                number(Some(c.kintsu.median)),
                number(c.isal.map(|r| r.best)),
                number(c.isal.map(|r| r.median)),
                number(c.klauspost.map(|r| r.best)),
                number(c.klauspost.map(|r| r.median)),
                number(c.ratio_best),
                number(c.ratio_median),
                number(Some(c.limit.best)),
                judged(c.ratio_best),
                judged(c.ratio_median),
            ]);
        }
        for column in table.column_iter_mut().skip(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let call = self
            .klauspost_call_ns
            .map_or(String::new(), |ns| format!(", without the {ns:.0} ns of a call into Go"));
        format!(
            "{}, one core; kintsu ({}), ISA-L ({}), klauspost/reedsolomon ({}{call}); GB/s of data in, best and median burst; ratios to the better other side\n{table}\n{}",
            self.processor,
            self.backend,
            self.isal,
            self.klauspost,
            self.judged()
        )
    }

    /// The case with the lowest ratio, of best bursts or of medians; none without another side.
    pub fn lowest(&self) -> Option<(&Case, f64)> {
        let ratios =
            self.cases.iter().filter_map(|case| Some((case, case.ratio_best?.min(case.ratio_median?))));
        ratios.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// In how many cases the aim is met, in a sentence.
    fn judged(&self) -> String {
        let (Some(aim), Some((least, ratio))) = (self.aim, self.lowest()) else {
            return format!("aims are not judged: {}", self.unjudged);
        };
        let met = |ratio: fn(&Case) -> Option<f64>| {
            self.cases.iter().filter_map(ratio).filter(|ratio| *ratio >= aim).count()
        };
        let (best, median) = (met(|case| case.ratio_best), met(|case| case.ratio_median));
        format!(
            "aim: at least {aim} x the better other side in all cases, by best bursts and by medians: {}; {best} of {} by best bursts, {median} by medians; the lowest \
             ratio is {ratio:.2} (({},{}) {}, {} KiB, {})",
            verdict(best.min(median) == self.cases.len()),
            self.cases.len(),
            least.n,
            least.k,
            least.operation,
            least.block_bytes >> 10,
            least.memory
        )
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn all_cases_run_on_every_backend_and_agree_with_isal_where_it_is() {
        for backend in Backend::available() {
            let options = Options { seconds_per_case: 0.0, dram_bytes: 64 << 20, backend: Some(backend) };
            let report = run(&options, &mut |line| eprintln!("{line}")).unwrap();
            assert_eq!(report.cases.len(), 36);
            assert!(report.cases.iter().all(|c| c.kintsu.best > 0.0
                && (c.isal.is_some() || c.klauspost.is_some()) == c.ratio_best.is_some()));
            assert!(report.table().contains("(14,10)"));
            for (name, file) in [("ISA-L", &report.isal), ("klauspost/reedsolomon", &report.klauspost)] {
                if !file.starts_with("absent") {
                    let _ = writeln!(
                        std::io::stderr(),
                        "COMPARED: kernels ({backend}) with those of {name} ({file})"
                    );
                }
            }
            assert_eq!(report.aim.is_some(), report.unjudged.is_empty());
            assert!(report.aim.is_none() || report.cases.iter().all(|c| c.ratio_best.is_some()));
        }
    }

    #[test]
    fn one_case_below_the_aim_misses_it_and_rivals_that_are_not_at_their_best_are_not_judged() {
        let rate = |best| Rate { best, median: best };
        let case = |block_bytes, kintsu: f64, median: f64| Case {
            n: 9,
            k: 6,
            operation: "encode",
            block_bytes,
            memory: "hot",
            kintsu: rate(kintsu),
            isal: Some(rate(1.0)),
            klauspost: None,
            limit: rate(9.0),
            ratio_best: Some(kintsu),
            ratio_median: Some(median),
        };
        let mut report = Report {
            processor: "p".into(),
            backend: "b".into(),
            isal: "i".into(),
            klauspost: "k".into(),
            klauspost_call_ns: Some(50.0),
            aim: Some(1.05),
            unjudged: "",
            cases: vec![case(64 << 10, 1.05, 1.06), case(1 << 20, 1.04, 1.03)],
        };
        let ends = |report: &Report| report.table().lines().last().map(str::to_owned).unwrap();
        let missed = "aim: at least 1.05 x the better other side in all cases, by best bursts and by medians: missed; 1 of 2 by \
                      best bursts, 1 by medians; the lowest ratio is 1.03 ((9,6) encode, 1024 KiB, hot)";
        assert_eq!(ends(&report), missed);
        report.cases.pop();
        assert!(ends(&report).contains("by medians: met; 1 of 1"));
        // The best bursts alone do not meet it.
        report.cases[0].ratio_median = Some(1.0);
        assert!(ends(&report).contains("by medians: missed; 1 of 1 by best bursts, 0 by medians"));
        (report.aim, report.unjudged) = (None, "ISA-L is missing");
        assert_eq!(ends(&report), "aims are not judged: ISA-L is missing");
    }
}
