//! Every code on a live cluster: a file is stored; then every single block and every tolerable set of blocks is
//! lost in turn, read back degraded and repaired. The bytes that repairs read and moved are compared with theory.

use std::path::PathBuf;

use kintsu_analysis::repair_cost;
use kintsu_client::PutOptions;
use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use kintsu_plan::Method;
use kintsu_wire::message::{Encoding, RepairTarget};
use serde::Serialize;

use super::site::{Site, real_bytes};
use crate::Step;
use crate::error::{Context, Result, ensure};
use crate::plain;

/// The methods that are tried, and where the blocks that a repair read and moved are recorded.
const METHODS: [(Method, Record); 3] = [
    (Method::Conventional, |cost, read, moved| (cost.read, cost.moved) = (read, moved)),
    (Method::Ppr, |cost, _, moved| cost.tree = moved),
    (Method::Pipeline, |cost, _, moved| cost.chain = moved),
];
type Record = fn(&mut Cost, f64, f64);

/// How often a repair is measured until it costs what theory says. A loaded machine makes a node late, and a repair
/// that is planned around it reads other blocks.
const ATTEMPTS: u32 = 3;

const SLICE_BYTES: u32 = 32 << 10;
const PAGE_BYTES: u64 = 4096;

/// Least length of the blocks whose repairs are measured.
const BLOCK_BYTES: u64 = 128 << 10;

/// What to try.
#[derive(Debug, Clone)]
pub struct Options {
    /// Codes; without any, the example of every family.
    pub codes: Vec<String>,
    /// A file with the bytes to store; by default this program's own file.
    pub file: Option<PathBuf>,
    /// Racks of the cluster.
    pub racks: u32,
    /// Limit on the number of sets of lost blocks tried with a code, times the symbols of its stripe.
    pub budget: usize,
    /// Where to create the cluster's folder, which is removed at the end; by default in the system's folder for
    /// temporary files.
    pub dir: Option<PathBuf>,
}

/// One code's results. Costs are in blocks.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Name of the code.
    pub code: String,
    /// Blocks of a stripe.
    pub n: usize,
    /// Data blocks of a stripe.
    pub k: usize,
    /// Sub-blocks of a block.
    pub w: usize,
    /// The code's distance.
    pub d: usize,
    /// For each block.
    pub repairs: Vec<Cost>,
    /// Sets of two or more blocks that were lost together.
    pub losses_tried: usize,
    /// Sets of two or more blocks within the code's distance.
    pub losses: usize,
    /// Whether all bytes were right and all costs were as in theory.
    pub ok: bool,
}

/// What the repair of one block reads and moves.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Blocks that the code's own graph reads, in theory.
    pub read_theory: f64,
    /// Blocks that a star read.
    pub read: f64,
    /// Blocks that the code's own graph moves, in theory.
    pub moved_theory: f64,
    /// Blocks that a star moved.
    pub moved: f64,
    /// Blocks that are read at least in part. In a tree or a chain each of them sends at most one block of partial
    /// sums: less only if the first blocks on the path do not contribute to some sub-blocks.
    pub hops: f64,
    /// Blocks that a tree moved.
    pub tree: f64,
    /// Blocks that a chain moved.
    pub chain: f64,
}

/// Tries the codes one after the other.
///
/// # Errors
/// For a code that is unknown, for wrong bytes, and when the cluster fails.
pub async fn run(options: &Options, progress: &mut dyn FnMut(&Step)) -> Result<Vec<Row>> {
    let names: Vec<String> = match options.codes.is_empty() {
        true => kintsu_code::families().iter().map(|family| family.example.to_owned()).collect(),
        false => options.codes.clone(),
    };
    let codes = names.iter().map(|name| kintsu_code::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let nodes = codes.iter().map(|code| code.n() + code.n() - code.k()).max().unwrap_or(1);
    let site = Site::start(nodes as u32, options.racks, options.dir.as_deref()).await?;
    let tried = async {
        let mut rows = Vec::new();
        for code in &codes {
            let row = try_code(&site, &**code, options, progress).await;
            rows.push(row.with_context(|| format!("with {}", code.name()))?);
        }
        Ok(rows)
    };
    let rows = tried.await;
    site.end(rows).await
}

async fn try_code(
    site: &Site,
    code: &dyn Code,
    options: &Options,
    progress: &mut dyn FnMut(&Step),
) -> Result<Row> {
    let sets = loss_sets(code, options.budget);
    let losses = (2..code.distance()).map(|f| choose(code.n(), f)).sum();
    let total = (METHODS.len() * code.n() + sets.len()) as u64;
    let mut step = Step { what: code.name().to_owned(), done: 0, total };
    let mut tried = || {
        step.done += 1;
        progress(&step);
    };
    let mut ok = true;
    let name = "measured";
    let len = store(site, code, name, false, options).await?;
    let mut repairs = Vec::new();
    for block in 0..code.n() {
        let block = BlockIndex(block as u8);
        let mut cost = theory(code, block)?;
        for (method, record) in METHODS {
            for _ in 0..ATTEMPTS {
                let (read, moved) = lose(site, name, &[block], method).await?;
                record(&mut cost, read as f64 / len as f64, moved as f64 / len as f64);
                if cost.may_agree() {
                    break;
                }
            }
            tried();
        }
        ok &= cost.agrees();
        repairs.push(cost);
    }
    site.client.remove(name).await?;
    let name = "odd";
    store(site, code, name, true, options).await?;
    for (set, (method, _)) in sets.iter().zip(METHODS.iter().cycle()) {
        lose(site, name, set, *method).await?;
        tried();
    }
    site.client.remove(name).await?;
    let (n, k, w, d) = (code.n(), code.k(), code.w(), code.distance());
    let code = code.name().to_owned();
    Ok(Row { code, n, k, w, d, repairs, losses_tried: sets.len(), losses, ok })
}

impl Cost {
    fn agrees(&self) -> bool {
        let all = [self.read, self.moved, self.tree, self.chain];
        all.iter().all(|figure| !figure.is_nan()) && self.may_agree()
    }

    /// Whether what was measured so far is as in theory.
    fn may_agree(&self) -> bool {
        let equal = |figure: f64, theory: f64| figure.is_nan() || figure == theory;
        equal(self.read, self.read_theory)
            && equal(self.moved, self.moved_theory)
            && [self.tree, self.chain].iter().all(|figure| figure.is_nan() || *figure <= self.hops)
    }
}

/// Stores one stripe, of whole cells or (`odd`) with cut last cells. Returns the length of a block.
async fn store(site: &Site, code: &dyn Code, name: &str, odd: bool, options: &Options) -> Result<u64> {
    let cell = code.w() as u64 * PAGE_BYTES;
    let block = if odd { cell } else { BLOCK_BYTES.next_multiple_of(cell) };
    let len = code.k() as u64 * block - if odd { cell / 3 + 7 } else { 0 };
    let bytes = real_bytes(options.file.as_deref(), len as usize)?;
    let put = PutOptions {
        encoding: Encoding::Online,
        block_bytes: Some(block),
        cell_bytes: Some(cell as u32),
        ..PutOptions::new(code.name())
    };
    site.put(name, bytes, put).await?;
    Ok(block)
}

/// Loses blocks, reads the object, repairs it, reads it again. Returns the bytes that the repair read and moved.
async fn lose(site: &Site, name: &str, lost: &[BlockIndex], method: Method) -> Result<(u64, u64)> {
    let (expected, _) = site.get(name, None).await?;
    let homes = site.homes(name).await?;
    for block in lost {
        if let Some(home) = homes.get(block) {
            site.wipe(*home).await?;
        }
    }
    let (degraded, _) = site.get(name, None).await?;
    let target = RepairTarget::Object(name.into());
    let report = site.repair(target, method, SLICE_BYTES, |_, _| {}).await?;
    let (repaired, _) = site.get(name, None).await?;
    ensure!(
        degraded == expected && repaired == expected,
        "without {lost:?}: expected SHA-256 {expected}, got {degraded} degraded and {repaired} repaired"
    );
    Ok((report.bytes_read, report.bytes_moved))
}

/// The cost of the repair of `block` by the code's own graph; the measured fields are filled later.
fn theory(code: &dyn Code, block: BlockIndex) -> Result<Cost> {
    let cost = repair_cost(code, block)?;
    let unknown = f64::NAN;
    Ok(Cost {
        read_theory: cost.read.as_f64(),
        read: unknown,
        moved_theory: cost.moved.as_f64(),
        moved: unknown,
        hops: cost.helpers as f64,
        tree: unknown,
        chain: unknown,
    })
}

/// The sets of 2 to d - 1 blocks. If their number times the symbols of a stripe is more than `budget`, only as
/// many as fit, evenly spaced.
fn loss_sets(code: &dyn Code, budget: usize) -> Vec<Vec<BlockIndex>> {
    let mut sets = Vec::new();
    for size in 2..code.distance() {
        subsets(code.n(), size, &mut |set| sets.push(set.to_vec()));
    }
    let most = (budget / (code.n() * code.w())).max(1);
    let step = sets.len().div_ceil(most).max(1);
    sets.into_iter().step_by(step).collect()
}

/// Calls `each` with every set of `size` of `n` blocks, in order.
fn subsets(n: usize, size: usize, each: &mut dyn FnMut(&[BlockIndex])) {
    fn grow(set: &mut Vec<BlockIndex>, n: usize, left: usize, each: &mut dyn FnMut(&[BlockIndex])) {
        if left == 0 {
            return each(set);
        }
        let from = set.last().map_or(0, |b| usize::from(b.0) + 1);
        for block in from..=n - left {
            set.push(BlockIndex(block as u8));
            grow(set, n, left - 1, each);
            set.pop();
        }
    }
    if size <= n {
        grow(&mut Vec::new(), n, size, each);
    }
}

fn choose(n: usize, f: usize) -> usize {
    (0..f).fold(1, |count, i| count * (n - i) / (i + 1))
}

/// The rows as a table for people.
pub fn table(rows: &[Row]) -> String {
    let mut table = plain::table([
        "code",
        "d",
        "w",
        "read (theory)",
        "read",
        "moved, star (theory)",
        "moved, star",
        "helpers",
        "tree",
        "chain",
        "losses of 2 to d-1",
        "",
    ]);
    for row in rows {
        let column = |of: &dyn Fn(&Cost) -> f64| range(row.repairs.iter().map(of));
        table.add_row([
            row.code.clone(),
            row.d.to_string(),
            row.w.to_string(),
            column(&|c| c.read_theory),
            column(&|c| c.read),
            column(&|c| c.moved_theory),
            column(&|c| c.moved),
            column(&|c| c.hops),
            column(&|c| c.tree),
            column(&|c| c.chain),
            format!("{} of {}", row.losses_tried, row.losses),
            if row.ok { "equal".into() } else { "DIFFERENT".to_owned() },
        ]);
    }
    format!(
        "{table}\n\
         (Blocks read and moved to repair one block, least to most over the blocks of a stripe. All reads, degraded and after\n \
         repair, gave the same bytes. Measured by the agents, block by block.)",
    )
}

/// "2.5" or "6.5 to 10".
fn range(values: impl Iterator<Item = f64>) -> String {
    let text = |v: f64| format!("{v:.4}").trim_end_matches('0').trim_end_matches('.').to_owned();
    let (least, most) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
    if least == most { text(least) } else { format!("{} to {}", text(least), text(most)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_all_there_and_spread_when_there_are_too_many() {
        let code = kintsu_code::parse("rs:n=9,k=6").unwrap();
        assert_eq!(loss_sets(&*code, usize::MAX).len(), choose(9, 2) + choose(9, 3));
        let some = loss_sets(&*code, 9 * 10);
        assert!((9..=10).contains(&some.len()) && some.iter().any(|set| set.len() == 3), "{some:?}");
    }
}
