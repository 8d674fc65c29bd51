//! The proof report of a code: all its claims, recomputed from its generator and its graphs.

use kintsu_code::Code;
use serde::Serialize;

use crate::{AnalysisError, Costs, LossCount, costs, loss_counts, patterns_to_count};

/// What was proved about a code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckReport {
    /// The canonical name.
    pub name: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// Sub-blocks in a block.
    pub w: usize,
    /// The proved distance: any loss of fewer blocks can be decoded.
    pub distance: usize,
    /// Whether some loss of `distance` blocks cannot be decoded, so that the true distance is no larger;
    /// `None` when that was not counted.
    pub exact: Option<bool>,
    /// Decodable patterns for each number of losses up to n - k.
    pub losses: Vec<LossCount>,
    /// Why some counts are missing, and what they would cost.
    pub not_counted: Option<String>,
    /// How many blocks a repair reads from.
    pub locality: Locality,
    /// Repair traffic of each block, and the measures that follow from it.
    pub costs: Costs,
    /// Size of the graph that encodes.
    pub encode: GraphSize,
    /// The number of proved graphs: the encode graph and one repair graph for each block.
    pub proved_graphs: usize,
}

/// The most blocks that the repair of one block reads from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Locality {
    /// For a data block.
    pub data: usize,
    /// For any block.
    pub all: usize,
}

/// The size of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GraphSize {
    /// Vertices that are computed.
    pub joins: usize,
    /// Multiply-adds for each byte of a sub-block: children of all joins.
    pub edges: usize,
}

/// Checks a code, trying at most about `max_patterns` loss patterns.
///
/// # Errors
/// `Graph`, `Distance` or `Code` when something that the code claims is false.
pub fn check(code: &dyn Code, max_patterns: u64) -> Result<CheckReport, AnalysisError> {
    let encode = code.encode();
    encode.prove(code.generator()).map_err(|error| AnalysisError::Graph {
        name: code.name().to_owned(),
        graph: "encode graph".into(),
        error,
    })?;
    let costs = costs(code)?;
    let losses = loss_counts(code, max_patterns)?;
    let most = |of: &[crate::RepairCost]| of.iter().map(|cost| cost.helpers).max().unwrap_or(0);
    let locality = Locality { data: most(&costs.per_block[..code.k()]), all: most(&costs.per_block) };
    Ok(CheckReport {
        name: code.name().to_owned(),
        n: code.n(),
        k: code.k(),
        w: code.w(),
        distance: code.distance(),
        exact: exact(code, &losses),
        not_counted: not_counted(code, &losses, max_patterns),
        losses,
        locality,
        costs,
        encode: GraphSize {
            joins: encode.joins().len(),
            edges: encode.joins().values().map(|join| join.children.len()).sum(),
        },
        proved_graphs: 1 + code.n(),
    })
}

fn exact(code: &dyn Code, losses: &[LossCount]) -> Option<bool> {
    // More than n - k losses are never decodable.
    let Some(count) = losses.get(code.distance()) else { return Some(true) };
    count.fraction.map(|fraction| fraction < 1.0)
}

fn not_counted(code: &dyn Code, losses: &[LossCount], max_patterns: u64) -> Option<String> {
    let first = losses.iter().find(|count| count.fraction.is_none())?.losses;
    let all = patterns_to_count(code).map_or("2^64 or more".into(), |patterns| patterns.to_string());
    let blocks = match code.w() {
        1 => String::new(),
        w => format!(", each the work of {} for {w} sub-blocks", w * w),
    };
    Some(format!(
        "losses of {first} to {} blocks are not counted: expected at most {max_patterns} patterns, got {all}{blocks}",
        code.n() - code.k()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_PATTERNS;

    fn of(name: &str, max_patterns: u64) -> CheckReport {
        check(&*kintsu_code::parse(name).unwrap(), max_patterns).unwrap()
    }

    #[test]
    fn a_local_code_is_checked_to_the_last_pattern() {
        let report = of("azure-lrc:n=10,k=6,r=3", MAX_PATTERNS);
        assert_eq!((report.distance, report.exact, report.not_counted), (4, Some(true), None));
        assert_eq!(report.locality, Locality { data: 3, all: 6 });
        // Two XORs of three blocks and two globals of six.
        assert_eq!(report.encode, GraphSize { joins: 4, edges: 18 });
        assert_eq!(report.proved_graphs, 11);
        assert_eq!(report.losses.len(), 5);
        assert!(report.losses[4].recoverable < report.losses[4].patterns);
    }

    #[test]
    fn every_family_proves_by_its_example() {
        for family in kintsu_code::families() {
            let report = of(family.example, 100_000);
            assert_ne!(report.exact, Some(false), "{}", family.example);
            assert_eq!(report.costs.per_block.len(), report.n);
            assert!(report.locality.data < report.n);
        }
    }

    #[test]
    fn what_is_not_counted_says_what_it_would_cost() {
        let report = of("azure-lrc:n=40,k=30,r=6", 1_000);
        assert_eq!(report.exact, None);
        assert_eq!(
            report.not_counted.as_deref(),
            Some("losses of 7 to 10 blocks are not counted: expected at most 1000 patterns, got 1221246132")
        );
    }
}
