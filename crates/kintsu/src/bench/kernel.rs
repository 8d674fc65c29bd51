//! `bench kernel`: our region kernel compared with ISA-L's, on the same buffers, in interleaved bursts.
//!
//! Cases: RS (9,6), (14,10), (16,12) with ISA-L's Cauchy matrix; encoding all parities, or
//! decoding one lost data block; blocks of 64 KiB, 128 KiB, 1 MiB; hot (one stripe over and over) or
//! from DRAM (rotating over a set of stripes far larger than the last cache). Before a case is timed, both sides'
//! outputs are compared byte for byte. The memory limit of a case moves the same bytes without multiplying: it
//! XORs the inputs into one output and fills the other outputs.

use anyhow::ensure;
use comfy_table::{CellAlignment, Table, presets};
use kintsu_algebra::{Matrix, inv};
use kintsu_kernel::{Backend, Kernel, Mode};
use serde::Serialize;

use super::arena::Arena;
use super::burst::{Rate, interleave};
use super::isal::{FILE, IsaL};

const CODES: [(usize, usize); 3] = [(9, 6), (14, 10), (16, 12)];
const BLOCK_BYTES: [usize; 3] = [64 << 10, 128 << 10, 1 << 20];

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

/// All cases.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The processor's name.
    pub processor: String,
    /// Our instruction set.
    pub backend: String,
    /// The version of ISA-L, or why it is missing.
    pub isal: String,
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
    /// As many bytes read and written without multiplying.
    pub limit: Rate,
    /// Our best burst / ISA-L's best burst.
    pub ratio_best: Option<f64>,
    /// Our median burst / ISA-L's median burst.
    pub ratio_median: Option<f64>,
}

/// Measures all cases; `progress` is told what is being measured.
///
/// # Errors
/// A backend is not available here, or the two sides' bytes differ.
pub fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> anyhow::Result<Report> {
    let isal = IsaL::load();
    if let Err(error) = &isal {
        progress(&format!(
            "{FILE} is not installed ({error}): measuring only our side; apt-get install libisal2"
        ));
    }
    let mut bench = Bench {
        backend: options.backend.unwrap_or_else(Backend::best),
        isal: isal.as_ref().ok(),
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
        processor: super::processor(),
        backend: bench.backend.to_string(),
        isal: isal.map_or_else(|error| format!("absent: {error}"), |_| FILE.to_string()),
        cases,
    })
}

struct Bench<'a> {
    backend: Backend,
    isal: Option<&'a IsaL>,
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
    ) -> anyhow::Result<Case> {
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
        let mut tables = self.isal.map(|isal| (isal, isal.prepare(rows, k, coefs.as_slice())));

        self.arena.carve(k, rows, block_bytes, if memory == "hot" { 1 } else { usize::MAX });
        let stripe = self.arena.next();
        let (inputs, mut outputs) = stripe;
        kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
        if let Some((isal, tables)) = &mut tables {
            let ours: Vec<Vec<u8>> = outputs.iter().map(|o| o.to_vec()).collect();
            outputs.iter_mut().for_each(|o| o.fill(0));
            isal.apply(tables, &inputs, &mut outputs);
            let same = ours.iter().zip(&outputs).all(|(ours, theirs)| ours[..] == theirs[..]);
            ensure!(same, "({n},{k}) {operation}: our bytes differ from ISA-L's");
        }

        // Contenders: the memory limit, our kernel, ISA-L.
        let xor = Kernel::with_backend(self.backend, 1, k, &vec![1; k])?;
        let arena = &mut self.arena;
        let rates = interleave(if tables.is_some() { 3 } else { 2 }, self.seconds, k * block_bytes, |who| {
            let (inputs, mut outputs) = arena.next();
            match (who, &mut tables) {
                (0, _) => {
                    xor.apply(&inputs, &mut outputs[..1], Mode::Overwrite).expect("lengths are equal");
                    outputs[1..].iter_mut().for_each(|o| o.fill(0));
                }
                (2, Some((isal, tables))) => isal.apply(tables, &inputs, &mut outputs),
                _ => kernel.apply(&inputs, &mut outputs, Mode::Overwrite).expect("lengths are equal"),
            }
        });
        let (limit, kintsu, isal) = (rates[0], rates[1], rates.get(2).copied());
        let ratio = |of: fn(&Rate) -> f64| isal.map(|isal| of(&kintsu) / of(&isal));
        let (ratio_best, ratio_median) = (ratio(|r| r.best), ratio(|r| r.median));
        Ok(Case { n, k, operation, block_bytes, memory, kintsu, isal, limit, ratio_best, ratio_median })
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
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "(n,k)",
            "operation",
            "block KiB",
            "memory",
            "kintsu",
            "median",
            "ISA-L",
            "median",
            "ratio",
            "median",
            "limit",
        ]);
        let number = |x: Option<f64>| x.map_or("-".to_string(), |x| format!("{x:.2}"));
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
                number(c.ratio_best),
                number(c.ratio_median),
                number(Some(c.limit.best)),
            ]);
        }
        for column in table.column_iter_mut().skip(4) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        format!(
            "{}, one core; kintsu ({}) against ISA-L ({}); GB/s of data in, best and median burst\n{table}",
            self.processor, self.backend, self.isal
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_run_on_every_backend_and_agree_with_isal_where_it_is() {
        for backend in Backend::available() {
            let options = Options { seconds_per_case: 0.0, dram_bytes: 64 << 20, backend: Some(backend) };
            let report = run(&options, &mut |line| eprintln!("{line}")).unwrap();
            assert_eq!(report.cases.len(), 36);
            assert!(
                report
                    .cases
                    .iter()
                    .all(|c| c.kintsu.best > 0.0 && c.isal.is_some() == c.ratio_best.is_some())
            );
            assert!(report.table().contains("(14,10)"));
        }
    }
}
