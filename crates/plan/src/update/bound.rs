//! A lower bound on the symbols that cross racks, whatever graph is used.
//!
//! Take any set S of racks. The parities in S need the deltas that are known nowhere in S. What these contribute comes
//! from outside, in no fewer symbols than the rank of their coefficients in these parities. With x(i, j) symbols
//! from rack i to rack j, the least sum of x under these conditions for all S bounds the traffic from below. It is a
//! linear program; its value is rounded up, because symbols are whole.

use microlp::{ComparisonOp, OptimizationDirection, Problem};

use super::Dirty;
use super::scene::Scene;
use crate::{PlanError, StripeView, Topology};

/// With more racks than this only sets of one rack, and of all but one, are tried.
const MOST_RACKS: usize = 8;

/// The fewest symbols that cross racks in any update of these dirty blocks, whatever linear graph it uses, if deltas
/// are where `dirty` says.
///
/// # Errors
/// As [`super::update`], except for graphs.
pub fn least_crossings(view: &StripeView, topology: &Topology, dirty: &Dirty) -> Result<u64, PlanError> {
    Ok(of(&Scene::new(view, topology, dirty)?, true) as u64)
}

/// The bound. `replicas`: whether deltas at replicas count as known in their racks.
pub(super) fn of(scene: &Scene<'_>, replicas: bool) -> usize {
    let racks = scene.racks.len();
    let known: Vec<_> = scene.racks.iter().map(|rack| rack.known(replicas)).collect();
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let arcs: Vec<Vec<_>> = (0..racks)
        .map(|_| (0..racks).map(|_| problem.add_var(1.0, (0.0, f64::INFINITY))).collect())
        .collect();
    let mut single: usize = 0;
    for set in sets(racks) {
        let rows: Vec<usize> = set.iter().flat_map(|rack| scene.rows_of(*rack)).collect();
        let unknown = |column: &usize| !set.iter().any(|rack| known[*rack].contains_key(column));
        let columns: Vec<usize> = (0..scene.symbols.len()).filter(unknown).collect();
        let need = scene.rank(&rows, &columns);
        if set.len() == 1 {
            single += need;
        }
        if need > 0 {
            let outside = (0..racks).filter(|rack| !set.contains(rack));
            let cut: Vec<_> = outside
                .flat_map(|from| set.iter().map(move |to| (from, *to)))
                .map(|(i, j)| (arcs[i][j], 1.0))
                .collect();
            problem.add_constraint(&cut[..], ComparisonOp::Ge, need as f64);
        }
    }
    // The sum of what must enter each rack is a bound even if the linear program has no solution.
    let solved = problem.solve().ok().and_then(|outcome| outcome.into_solution().ok());
    let least: f64 = solved.map_or(0.0, |solution| solution.objective());
    single.max((least - 1e-6).ceil().max(0.0) as usize)
}

/// The sets of racks that are tried: neither the empty set nor all racks.
fn sets(racks: usize) -> Vec<Vec<usize>> {
    let all: Vec<usize> = (0..racks).collect();
    if racks > MOST_RACKS {
        let one = all.iter().map(|&rack| vec![rack]);
        let others = all.iter().map(|rack| all.iter().copied().filter(|other| other != rack).collect());
        return one.chain(others).collect();
    }
    let proper = 1..(1usize << racks).saturating_sub(1);
    proper.map(|mask| all.iter().copied().filter(|rack| mask >> rack & 1 == 1).collect()).collect()
}
