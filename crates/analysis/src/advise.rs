//! Chooses a code for a cluster: searches all codes of all families that meet the requirements, and returns the
//! best of each family in order, with the reasons.
//!
//! Every considered code is constructed, proved and measured; nothing is taken from formulas. The answer is a function
//! of the requirements: there is no sampling, and ties are broken by name. The caller supplies the placement
//! ([`Placer`]), so that the advice matches what the cluster will do.

use std::cmp::{Ordering, Reverse};

use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use serde::Serialize;

use crate::reliability::survives;
use crate::{AnalysisError, Environment, LossCount, Ratio, Reliability, loss_counts, reliability};

mod candidates;
mod reasons;
mod relax;

use candidates::{Fit, Found, Search, search};

/// Places the blocks of a full stripe as the cluster would, and returns those of each rack; `None` if that is not
/// possible.
pub type Placer<'a> = &'a dyn Fn(&dyn Code) -> Option<Vec<Vec<BlockIndex>>>;

/// Stripes wider than this are not searched: proofs of distance would take too long.
pub const MAX_WIDTH: usize = 32;

/// Losses tried for the reliability of one answer.
const ANSWER_PATTERNS: u64 = 1_000_000;

/// What to optimise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The cheapest reads of lost blocks: least degraded cost, then NRC, then overhead.
    Degraded,
    /// The cheapest rebuild of a node: least NRC, then degraded cost, then overhead.
    Recovery,
    /// The smallest product of degraded cost, NRC and overhead.
    Balanced,
}

/// The requirements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Requirements {
    /// The cluster; each stripe has at most one block on each node.
    pub environment: Environment,
    /// Racks, with the nodes spread evenly.
    pub racks: usize,
    /// Any this many nodes may be lost.
    pub tolerate: usize,
    /// The largest n / k.
    pub max_overhead: f64,
    /// What to prefer.
    pub objective: Objective,
    /// Whether data must also survive the loss of any one rack.
    pub survive_rack: bool,
    /// The largest n, at most [`MAX_WIDTH`].
    pub widest: usize,
}

/// One code that meets the requirements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// Its name.
    pub code: String,
    /// Its family.
    pub family: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// The proved distance.
    pub d: usize,
    /// n / k.
    pub overhead: Ratio,
    /// Blocks read for a degraded read, on average.
    pub degraded: Ratio,
    /// Blocks read to rebuild a node, for each data block it held.
    pub nrc: Ratio,
    /// Blocks read for the repair of the block that costs most.
    pub worst_repair: Ratio,
    /// MTTDL and related values.
    pub reliability: Reliability,
    /// The fraction of losses of d blocks that can still be decoded; none where they were not counted.
    pub beyond_distance: Option<f64>,
    /// The smallest cell: a page for each sub-block.
    pub min_cell_bytes: u64,
    /// Data bytes of a stripe with one row of cells, in cells of 128 KiB or of the smallest size if that is
    /// larger. Objects below this size cost more than `overhead`.
    pub min_object_bytes: u64,
    /// For the first answer, why it is the first; for others, where it is worse and where it is better than the
    /// first.
    pub reasons: Vec<String>,
    /// What to know before using it.
    pub caveats: Vec<String>,
}

/// A family without a code that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The family.
    pub family: String,
    /// Why.
    pub reason: String,
}

/// The smallest change of one requirement that lets a code fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Relaxation {
    /// The change.
    pub change: String,
    /// A code that fits then.
    pub code: String,
}

/// The answer to [`Requirements`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// The best code of each family, the best first. Empty when nothing fits.
    pub answers: Vec<Answer>,
    /// Families without an answer.
    pub refused: Vec<Refused>,
    /// Codes that were made and measured.
    pub considered: usize,
    /// When nothing fits: each single change that would be enough.
    pub relaxations: Vec<Relaxation>,
}

/// Searches all families. `progress(done, total)` is called as the search goes on.
///
/// # Errors
/// `Invalid` for impossible requirements; `Graph` or `Distance` when a claim of a code is false.
pub fn advise(
    requirements: &Requirements,
    placer: Placer<'_>,
    progress: impl FnMut(usize, usize),
) -> Result<Advice, AnalysisError> {
    requirements.check()?;
    let shapes = requirements.shapes();
    if shapes.is_empty() {
        let relaxations = relax::relaxations(requirements);
        return Ok(Advice { answers: vec![], refused: vec![], considered: 0, relaxations });
    }
    let Search { mut found, considered } = search(requirements, &shapes, placer, progress)?;
    let refusal =
        |family: &Found| family.refusal().map(|reason| Refused { family: family.family.to_owned(), reason });
    let refused = found.iter().filter_map(refusal).collect();
    let mut fits: Vec<Fit> = found.iter_mut().filter_map(|family| family.best.take()).collect();
    fits.sort_by(|a, b| requirements.objective.order(a, b));
    let mut answers = Vec::with_capacity(fits.len());
    for fit in &fits {
        answers.push(answer(requirements, fit)?);
    }
    reasons::explain(requirements, &mut answers, considered);
    Ok(Advice { answers, refused, considered, relaxations: vec![] })
}

impl Requirements {
    fn check(&self) -> Result<(), AnalysisError> {
        let nodes = self.environment.nodes;
        let range = |what: &str, value: usize, least: usize, most: usize, why: &str| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(AnalysisError::invalid(what, format!("{least} to {most}{why}"), value))
        };
        range("number of nodes", nodes, 2, 1_000_000, "")?;
        range("number of racks", self.racks, 1, nodes, ", the number of nodes")?;
        range("node losses to tolerate", self.tolerate, 1, 254, "")?;
        range("widest stripe", self.widest, 2, MAX_WIDTH, "")?;
        if !(self.max_overhead.is_finite() && self.max_overhead > 1.0) {
            let expected = "more than 1 byte stored for each byte of data";
            return Err(AnalysisError::invalid("largest overhead", expected, self.max_overhead));
        }
        Ok(())
    }

    /// All (n, k) with which an MDS code would meet the requirements; no code meets them with another (n, k).
    fn shapes(&self) -> Vec<(usize, usize)> {
        let widest = self.environment.nodes.min(self.widest);
        let pairs = (2..=widest).flat_map(|n| (1..n).map(move |k| (n, k)));
        pairs.filter(|&(n, k)| self.allows(n, k)).collect()
    }

    fn allows(&self, n: usize, k: usize) -> bool {
        // The tolerance is for decimal fractions: 16/10 is within 1.6.
        let within = n as f64 <= self.max_overhead * k as f64 * (1.0 + 1e-12);
        within && n - k >= self.tolerate && (!self.survive_rack || n.div_ceil(self.racks) <= n - k)
    }
}

impl Objective {
    /// Orders the better one first. Equal only for the same code.
    fn order(self, a: &Fit, b: &Fit) -> Ordering {
        let degraded = a.costs.degraded.cmp(&b.costs.degraded);
        let nrc = a.costs.nrc.cmp(&b.costs.nrc);
        let product = |fit: &Fit| {
            [fit.costs.degraded, fit.costs.nrc, fit.costs.overhead].map(Ratio::as_f64).iter().product::<f64>()
        };
        let first = match self {
            Self::Degraded => degraded.then(nrc),
            Self::Recovery => nrc.then(degraded),
            Self::Balanced => product(a).total_cmp(&product(b)).then(degraded).then(nrc),
        };
        let rest = |fit: &Fit| (fit.costs.overhead, Reverse(fit.costs.d), fit.code.w(), fit.code.n());
        first.then_with(|| rest(a).cmp(&rest(b))).then_with(|| a.code.name().cmp(b.code.name()))
    }
}

/// The least that a helper reads of a sub-block.
const PAGE_BYTES: u64 = 4096;

/// The default cell.
const CELL_BYTES: u64 = 128 << 10;

fn answer(requirements: &Requirements, fit: &Fit) -> Result<Answer, AnalysisError> {
    let (code, costs) = (&*fit.code, &fit.costs);
    let environment = &requirements.environment;
    let reliability = reliability(code, costs, environment, fit.placed.as_deref(), ANSWER_PATTERNS)?;
    let losses = loss_counts(code, ANSWER_PATTERNS)?;
    let min_cell_bytes = code.w() as u64 * PAGE_BYTES;
    let beyond_distance = losses.get(costs.d).map_or(Some(0.0), |count: &LossCount| count.fraction);
    Ok(Answer {
        code: code.name().to_owned(),
        family: code.family().to_owned(),
        n: code.n(),
        k: code.k(),
        w: code.w(),
        d: costs.d,
        overhead: costs.overhead,
        degraded: costs.degraded,
        nrc: costs.nrc,
        worst_repair: costs.per_block.iter().map(|cost| cost.read).max().unwrap_or(costs.arc),
        caveats: reasons::caveats(requirements, code, costs, reliability.racks.as_ref()),
        reliability,
        beyond_distance,
        min_cell_bytes,
        min_object_bytes: code.k() as u64 * min_cell_bytes.max(CELL_BYTES),
        reasons: vec![],
    })
}

/// Whether the stripe survives the loss of any one rack.
fn survives_any_rack(code: &dyn Code, by_rack: &[Vec<BlockIndex>]) -> bool {
    by_rack.iter().all(|blocks| survives(code, blocks))
}

#[cfg(test)]
mod tests;
