//! The mean time to data loss of a stripe, by a Markov chain over what has failed.
//!
//! A state is (racks down, blocks failed). Nodes and racks fail independently at constant rates; a failure leads
//! to the next state or to data loss, in the exact proportion in which the code can decode such combinations
//! ([`counts`]). A rack that is down comes back with its blocks unchanged; failed blocks are rebuilt one after the
//! other. The only approximation: within a state all survived combinations count as equally likely, which is exact
//! when nothing is repaired. `docs/reliability.md` has the model on a page.
//!
//! Placement is not decided here: the caller gives the blocks of each rack.
//!
//! Source: the LRC study (ATC'18), section 3, suggests such a chain for each code; lifetimes are those of CAU
//! (ICPP'18), section 3.5.

use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use serde::Serialize;

use crate::loss_probability::{HOURS_PER_YEAR, PAPER_NODE_MTTF_H, check_positive, paper_rack_mttf_h};
use crate::{AnalysisError, Costs, binomial};

mod chain;
mod counts;

use chain::Chain;
use counts::Survived;

/// A cluster with its failure and repair rates. All values must be positive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Environment {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Mean time to failure of a node, in hours.
    pub node_mttf_h: f64,
    /// Mean time to failure of a rack (its switch), in hours.
    pub rack_mttf_h: f64,
    /// Mean time until a rack that is down is back, in hours.
    pub rack_outage_h: f64,
    /// What a node stores, in bytes.
    pub node_bytes: f64,
    /// What each node may read for repairs, and what each new home of a block may write, in bytes per second.
    pub bandwidth: f64,
    /// From a failure to the start of its repair, in hours.
    pub detection_h: f64,
    /// Bytes of a block.
    pub block_bytes: f64,
}

impl Environment {
    /// A cluster of `nodes` with the defaults: nodes live 10 years and racks 35.47 (CAU, section 3.5), a rack is
    /// back after 12 hours, a node stores 16 TB, 125 MB/s (1 Gb/s) of each node go to repair, which starts
    /// after 15 minutes, and blocks have 64 MiB.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes,
            node_mttf_h: PAPER_NODE_MTTF_H,
            rack_mttf_h: paper_rack_mttf_h(),
            rack_outage_h: 12.0,
            node_bytes: 16e12,
            bandwidth: 125e6,
            detection_h: 0.25,
            block_bytes: f64::from(1 << 26),
        }
    }

    /// # Errors
    /// `Invalid` for fewer nodes than blocks and for quantities that are not positive.
    fn check(&self, code: &dyn Code) -> Result<(), AnalysisError> {
        if self.nodes < code.n() || code.n() < 2 {
            let expected = format!("at least {}, one for each block of {}", code.n().max(2), code.name());
            return Err(AnalysisError::invalid("number of nodes", expected, self.nodes));
        }
        check_positive("mean time to failure of a node", "hours", self.node_mttf_h)?;
        check_positive("mean time to failure of a rack", "hours", self.rack_mttf_h)?;
        check_positive("outage of a rack", "hours", self.rack_outage_h)?;
        check_positive("capacity of a node", "bytes", self.node_bytes)?;
        check_positive("repair bandwidth of a node", "bytes per second", self.bandwidth)?;
        check_positive("time to detect a failure", "hours", self.detection_h)?;
        check_positive("size of a block", "bytes", self.block_bytes)
    }

    /// Hours to rebuild a lost node when each of its blocks costs `blocks_read`, for stripes of n blocks. The
    /// other nodes read in parallel. Where every node holds a block of every stripe, only the replaced node can be
    /// written to, at its own bandwidth.
    fn repair_h(&self, n: usize, blocks_read: f64) -> f64 {
        let reading = blocks_read / (self.nodes - 1) as f64;
        let shares = if self.nodes == n { reading.max(1.0) } else { reading };
        self.detection_h + shares * self.node_bytes / self.bandwidth / 3600.0
    }
}

/// A lifetime, and the resulting probability of loss within a year.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Lifetime {
    /// Mean time to loss, in hours.
    pub mttdl_h: f64,
    /// The same in years of 365 days.
    pub mttdl_years: f64,
    /// The probability of loss within a year.
    pub annual_loss: f64,
    /// That probability as nines of durability: 11.3 means slightly more than 99.999999999 %.
    pub nines: f64,
}

impl Lifetime {
    fn of(mttdl_h: f64) -> Self {
        let annual_loss = -(-HOURS_PER_YEAR / mttdl_h).exp_m1();
        Self { mttdl_h, mttdl_years: mttdl_h / HOURS_PER_YEAR, annual_loss, nines: -annual_loss.log10() }
    }
}

/// How a stripe is spread over racks, and its reliability then.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RackReliability {
    /// The blocks that each rack holds.
    pub by_rack: Vec<Vec<BlockIndex>>,
    /// Blocks in the fullest rack.
    pub blocks_per_rack: usize,
    /// Whether the stripe is decodable without any one rack.
    pub survives_any_rack: bool,
    /// The time until the stripe cannot be decoded from the blocks that are up, with node and rack failures.
    pub stripe: Lifetime,
}

/// How reliable a code is in an environment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// Losses of up to this many blocks were counted exactly; larger ones count as data loss.
    pub counted: usize,
    /// Hours to rebuild one lost node, detection included.
    pub single_repair_h: f64,
    /// The same while more is lost: k blocks are read for each.
    pub multiple_repair_h: f64,
    /// For a stripe, with node failures alone.
    pub stripe: Lifetime,
    /// Stripes in the full cluster.
    pub stripes: f64,
    /// For the first loss of any stripe in the full cluster, with node failures alone: a lower bound.
    pub cluster: Lifetime,
    /// The values with rack failures, where racks were given.
    pub racks: Option<RackReliability>,
}

/// The reliability of a code of known `costs`. `by_rack` are the blocks of a stripe by rack (each block in one
/// rack), or none to ignore racks. Tries at most `max_patterns` losses of a code that is not MDS
/// ([`crate::MAX_PATTERNS`] take some seconds). Losses that were not tried count as data loss.
///
/// # Errors
/// `Invalid` for an invalid environment or dealing; `Distance` when counting disproves the code's claim.
pub fn reliability(
    code: &dyn Code,
    costs: &Costs,
    environment: &Environment,
    by_rack: Option<&[Vec<BlockIndex>]>,
    max_patterns: u64,
) -> Result<Reliability, AnalysisError> {
    environment.check(code)?;
    let n = code.n();
    let rates = Rates::new(code, costs, environment);
    let alone = Survived::count(code, &[], max_patterns)?;
    let stripe = Lifetime::of(rates.chain(&alone).time_to_loss());
    let stripes =
        (environment.nodes as f64 * environment.node_bytes / (n as f64 * environment.block_bytes)).ceil();
    let lost_apart = sets_lost_apart(code, environment.nodes, stripes);
    let racks = by_rack.map(|by_rack| {
        check_by_rack(code, by_rack)?;
        let survived = Survived::count(code, by_rack, max_patterns)?;
        Ok::<_, AnalysisError>(RackReliability {
            by_rack: by_rack.to_vec(),
            blocks_per_rack: by_rack.iter().map(Vec::len).max().unwrap_or(0),
            survives_any_rack: by_rack.iter().all(|blocks| survives(code, blocks)),
            stripe: Lifetime::of(rates.chain(&survived).time_to_loss()),
        })
    });
    Ok(Reliability {
        counted: alone.counted,
        single_repair_h: 1.0 / rates.single,
        multiple_repair_h: 1.0 / rates.multiple,
        stripe,
        stripes,
        cluster: Lifetime::of(stripe.mttdl_h / lost_apart),
        racks: racks.transpose()?,
    })
}

/// Whether all blocks can be decoded when exactly these are lost.
pub(crate) fn survives(code: &dyn Code, lost: &[BlockIndex]) -> bool {
    lost.len() < code.distance() || (lost.len() <= code.n() - code.k() && code.recoverable(lost))
}

/// The number of stripes that can be lost independently: stripes of an MDS code on the same nodes are lost
/// together.
fn sets_lost_apart(code: &dyn Code, nodes: usize, stripes: f64) -> f64 {
    if code.distance() <= code.n() - code.k() {
        return stripes;
    }
    binomial(nodes, code.n()).map_or(stripes, |sets| stripes.min(sets as f64)).max(1.0)
}

fn check_by_rack(code: &dyn Code, by_rack: &[Vec<BlockIndex>]) -> Result<(), AnalysisError> {
    let mut blocks: Vec<usize> = by_rack.iter().flatten().map(|b| usize::from(b.0)).collect();
    blocks.sort_unstable();
    if blocks.iter().copied().eq(0..code.n()) {
        return Ok(());
    }
    let expected = format!("each of the {} blocks of {} once", code.n(), code.name());
    Err(AnalysisError::invalid("blocks by rack", expected, format!("{blocks:?}")))
}

/// Rates per hour.
struct Rates {
    node: f64,
    rack: f64,
    back: f64,
    /// Rate of repair when a single block is lost.
    single: f64,
    /// Rate of repair when several blocks are lost.
    multiple: f64,
}

impl Rates {
    fn new(code: &dyn Code, costs: &Costs, environment: &Environment) -> Self {
        let k = code.k() as f64;
        // Repairing one of several lost blocks never costs less than repairing a single lost block.
        let multiple = k.max(costs.arc.as_f64());
        Self {
            node: 1.0 / environment.node_mttf_h,
            rack: 1.0 / environment.rack_mttf_h,
            back: 1.0 / environment.rack_outage_h,
            single: 1.0 / environment.repair_h(code.n(), costs.arc.as_f64()),
            multiple: 1.0 / environment.repair_h(code.n(), multiple),
        }
    }

    /// The chain over all survived (racks down, blocks failed).
    ///
    /// The survived combinations of a state are equally likely, and each arises from any smaller one that it
    /// contains. So of the `N(c,f) (n-f)` ways in which another node fails, `N(c,f+1) (f+1)` are survived; and
    /// of the `N(c,f) (R-c)` ways in which another rack does, `N(c+1,f) (c+1)`.
    fn chain(&self, survived: &Survived) -> Chain {
        let side = survived.counted + 1;
        let all = (0..=survived.racks.min(survived.counted)).flat_map(|c| (0..side).map(move |f| (c, f)));
        let states: Vec<(usize, usize)> = all.filter(|&(c, f)| survived.get(c, f) > 0).collect();
        let index = |state: (usize, usize)| states.iter().position(|&s| s == state);
        let mut chain = Chain::new(states.len());
        for (from, &(down, failed)) in states.iter().enumerate() {
            let here = survived.get(down, failed);
            let mut fail = |rate: f64, at_risk: usize, to: (usize, usize), members: usize| {
                let ways = here * at_risk as u128;
                let good = survived.get(to.0, to.1) * members as u128;
                if let Some(to) = index(to) {
                    chain.add(from, to, rate * good as f64 / here as f64);
                }
                chain.add_loss(from, rate * (ways - good) as f64 / here as f64);
            };
            fail(self.node, survived.n - failed, (down, failed + 1), failed + 1);
            fail(self.rack, survived.racks - down, (down + 1, failed), down + 1);
            let mut repair =
                |rate: f64, to| chain.add(from, index(to).expect("fewer losses are survived"), rate);
            if failed > 0 {
                let rate = if (down, failed) == (0, 1) { self.single } else { self.multiple };
                repair(rate, (down, failed - 1));
            }
            if down > 0 {
                repair(self.back * down as f64, (down - 1, failed));
            }
        }
        chain
    }
}

#[cfg(test)]
mod tests;
