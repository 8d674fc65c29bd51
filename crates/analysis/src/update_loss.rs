//! The probability that data is lost while parity has not followed yet: CAU's section 3.5 for any code, racks and
//! number of copies, which the paper leaves as future work.
//!
//! Model, as in the paper: nothing is repaired within the time; nodes and racks fail independently, exponentially;
//! either nodes fail and all racks are up, or racks fail and all nodes of the others are up (anything else counts as
//! loss). All data blocks are dirty. Interim copies are on parity nodes, and any choice of parity nodes that the rule
//! allows holds the copies of some dirty block of each data node, so the worst case counts. Losses of d or more nodes
//! count as loss even where a code that is not MDS could decode some of them.

use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use serde::Serialize;

use crate::loss_probability::{binomial_probability, check_time};
use crate::{AnalysisError, failure_probability};

/// More racks than this in one stripe are refused: all sets of racks are tried.
const MOST_RACKS: usize = 20;

/// What an acknowledged write survives before its parity has followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: no copy (the paper's CAU-0).
    None,
    /// One node: one copy on some parity node.
    Node,
    /// One node or rack: one copy on a parity node in another rack (the paper's CAU-1).
    Rack,
    /// As many losses as the code: a copy on each parity node.
    Parity,
}

impl Durability {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::None, Self::Node, Self::Rack, Self::Parity];
}

/// One stripe of which parity has not followed yet.
#[derive(Debug)]
pub struct AppendPhase<'a> {
    /// Its code.
    pub code: &'a dyn Code,
    /// Its blocks by rack; racks without blocks do not matter.
    pub racks: &'a [Vec<BlockIndex>],
    /// Mean lifetime of a node (theta_1), in hours.
    pub node_mttf_h: f64,
    /// Mean lifetime of a rack (theta_2), in hours.
    pub rack_mttf_h: f64,
}

/// Probabilities of loss within some time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UpdateLoss {
    /// If parity follows each write at once (Pr_ec).
    pub at_once: f64,
    /// If parity follows later, with these interim copies.
    pub later: f64,
}

impl AppendPhase<'_> {
    /// The probabilities of loss within `hours` (tau).
    ///
    /// # Errors
    /// `Invalid` for times that are not positive, blocks that are not each in one rack, or more than 20 racks.
    pub fn loss_within(&self, hours: f64, durability: Durability) -> Result<UpdateLoss, AnalysisError> {
        let racks: Vec<Held> = self.held()?;
        check_time("duration (tau)", hours)?;
        check_time("lifetime of a node", self.node_mttf_h)?;
        check_time("lifetime of a rack", self.rack_mttf_h)?;
        let (k, parities) = (self.code.k(), self.code.n() - self.code.k());
        let node = failure_probability(hours, self.node_mttf_h);
        let rack = failure_probability(hours, self.rack_mttf_h);
        let all_up = (1.0 - rack).powi(racks.len() as i32);
        let (mut at_once, mut later) = (0.0, 0.0);
        // Equation (5), over the events that lose data.
        for (i, j) in (0..=k).flat_map(|i| (0..=parities).map(move |j| (i, j))) {
            let p = all_up * binomial_probability(k, i, node) * binomial_probability(parities, j, node);
            let decodes = i + j < self.code.distance();
            at_once += if decodes { 0.0 } else { p };
            later += if decodes && copies_survive(durability, i, j, parities) { 0.0 } else { p };
        }
        // Equation (6), for each set of racks that fail.
        for set in 1..1usize << racks.len() {
            let (down, up): (Vec<_>, Vec<_>) =
                racks.iter().enumerate().partition(|(at, _)| set >> at & 1 == 1);
            let down: Vec<&Held> = down.into_iter().map(|(_, held)| held).collect();
            let p = rack.powi(down.len() as i32) * (1.0 - rack).powi(up.len() as i32);
            let others: usize = up.iter().map(|(_, held)| held.data + held.parities).sum();
            let some_node_fails = -(-(others as f64) * hours / self.node_mttf_h).exp_m1();
            let decodes =
                self.code.recoverable(&down.iter().flat_map(|held| held.blocks.clone()).collect::<Vec<_>>());
            let kept = decodes && copies_survive_racks(durability, &down, parities);
            at_once += p * if decodes { some_node_fails } else { 1.0 };
            later += p * if kept { some_node_fails } else { 1.0 };
        }
        Ok(UpdateLoss { at_once, later })
    }

    fn held(&self) -> Result<Vec<Held>, AnalysisError> {
        let k = self.code.k();
        let held: Vec<Held> =
            self.racks.iter().filter(|rack| !rack.is_empty()).map(|rack| Held::of(rack, k)).collect();
        let mut all: Vec<BlockIndex> = self.racks.concat();
        all.sort_unstable();
        let whole = all.iter().map(|block| usize::from(block.0)).eq(0..self.code.n());
        if !whole || held.len() > MOST_RACKS {
            let expected = format!("each of {} blocks once, in at most {MOST_RACKS} racks", self.code.n());
            return Err(AnalysisError::invalid("blocks by rack", expected, format!("{:?}", self.racks)));
        }
        Ok(held)
    }
}

/// What one rack holds of the stripe.
struct Held {
    blocks: Vec<BlockIndex>,
    data: usize,
    parities: usize,
}

impl Held {
    fn of(blocks: &[BlockIndex], k: usize) -> Self {
        let data = blocks.iter().filter(|block| usize::from(block.0) < k).count();
        Self { blocks: blocks.to_vec(), data, parities: blocks.len() - data }
    }
}

/// Whether every write has a copy left when i data nodes and j parity nodes fail.
fn copies_survive(durability: Durability, i: usize, j: usize, parities: usize) -> bool {
    let fatal = match durability {
        Durability::None => 0,
        Durability::Node | Durability::Rack => 1,
        Durability::Parity => parities,
    };
    i == 0 || j < fatal
}

/// The same when these racks fail.
fn copies_survive_racks(durability: Durability, down: &[&Held], parities: usize) -> bool {
    let data = down.iter().any(|held| held.data > 0);
    let lost: usize = down.iter().map(|held| held.parities).sum();
    match durability {
        Durability::None => !data,
        Durability::Node => !data || lost == 0,
        Durability::Rack => {
            let pairs = down
                .iter()
                .enumerate()
                .flat_map(|(i, a)| down.iter().enumerate().map(move |(j, b)| (i, a, j, b)));
            !pairs.into_iter().any(|(i, a, j, b)| i != j && a.data > 0 && b.parities > 0)
        }
        Durability::Parity => !data || lost < parities,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cau, PAPER_NODE_MTTF_H, paper_rack_mttf_h};

    fn loss(code: &str, racks: &[&[u8]], durability: Durability) -> UpdateLoss {
        let code = kintsu_code::parse(code).unwrap();
        let racks: Vec<Vec<BlockIndex>> =
            racks.iter().map(|rack| rack.iter().copied().map(BlockIndex).collect()).collect();
        let (node_mttf_h, rack_mttf_h) = (PAPER_NODE_MTTF_H, paper_rack_mttf_h());
        AppendPhase { code: &*code, racks: &racks, node_mttf_h, rack_mttf_h }
            .loss_within(18.0, durability)
            .unwrap()
    }

    const NINE: [&[u8]; 3] = [&[0, 1, 2], &[3, 4, 5], &[6, 7, 8]];

    #[test]
    fn the_papers_setting_gives_the_papers_values() {
        let printed = |value: f64| format!("{value:.2e}");
        let rack = loss("rs:n=9,k=6", &NINE, Durability::Rack);
        assert_eq!((printed(rack.later), printed(rack.at_once)), ("9.83e-7".into(), "2.24e-7".into()));
        let known = Cau::paper().loss_within(18.0).unwrap();
        for (durability, expected) in [
            (Durability::None, known.no_replica),
            (Durability::Rack, known.one_replica),
            (Durability::Parity, known.baseline),
        ] {
            let got = loss("rs:n=9,k=6", &NINE, durability);
            assert!((got.later - expected).abs() <= 1e-12 * expected, "{durability:?}: {got:?}, {expected}");
            assert!((got.at_once - known.baseline).abs() <= 1e-12 * known.baseline);
        }
    }

    #[test]
    fn more_copies_lose_less_and_other_placements_count() {
        let codes: [(&str, &[&[u8]]); 3] = [
            ("rs:n=9,k=6", &NINE),
            ("rs:n=9,k=6", &[&[0, 1, 6], &[2, 3, 7], &[4, 5, 8]]),
            ("azure-lrc:n=10,k=6,r=3", &[&[0, 1], &[2, 3], &[4, 5], &[6, 7], &[8, 9]]),
        ];
        for (code, racks) in codes {
            let of = Durability::ALL.map(|durability| loss(code, racks, durability));
            let later = of.map(|of| of.later);
            assert!(later.windows(2).all(|pair| pair[0] >= pair[1]), "{code}: {later:?}");
            assert!(of.windows(2).all(|pair| pair[0].at_once == pair[1].at_once));
            assert!(later[3] >= of[3].at_once);
        }
        // A copy on a parity node of the same rack is lost with it.
        let mixed = codes[1].1;
        let (node, rack) =
            (loss("rs:n=9,k=6", mixed, Durability::Node), loss("rs:n=9,k=6", mixed, Durability::Rack));
        assert!(node.later > 10.0 * rack.later, "{node:?} {rack:?}");
        // Where all parities are in a rack of their own, there is no such copy.
        assert_eq!(loss("rs:n=9,k=6", &NINE, Durability::Node), loss("rs:n=9,k=6", &NINE, Durability::Rack));
    }

    #[test]
    fn senseless_settings_are_refused() {
        let code = kintsu_code::parse("rs:n=9,k=6").unwrap();
        let racks: Vec<Vec<BlockIndex>> = vec![(0..8).map(BlockIndex).collect()];
        let phase = AppendPhase { code: &*code, racks: &racks, node_mttf_h: 1.0, rack_mttf_h: 1.0 };
        assert!(
            phase.loss_within(1.0, Durability::Rack).unwrap_err().to_string().contains("each of 9 blocks")
        );
        let racks: Vec<Vec<BlockIndex>> = vec![(0..9).map(BlockIndex).collect()];
        let phase = AppendPhase { racks: &racks, ..phase };
        assert!(phase.loss_within(f64::NAN, Durability::Rack).is_err());
    }
}
