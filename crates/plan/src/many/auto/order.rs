//! The order in which repairs start: any stretch of it should load every link in proportion to all that the link will
//! carry. Otherwise a link is idle while all repairs that use it are held by other links.
//!
//! Of the repairs that are first in line, the next is the one whose links are most behind (Steinitz' rearrangement of
//! vectors, greedily, with exponential weights).

use super::super::desk::Desk;
use super::super::scene::Planned;
use crate::PlanError;

/// From how many repairs the next one is chosen.
const IN_LINE: usize = 512;

/// How steeply the weight of a link grows while it gets ahead, over the whole order: about once for each repair, in these
/// limits.
const STEEPNESS: (f64, f64) = (60.0, 300.0);

/// Sets the turns.
pub(super) fn order(desk: &Desk<'_>, results: &mut [Result<Planned, PlanError>]) {
    let loads: Vec<Vec<(usize, f64)>> = results
        .iter()
        .map(|result| result.as_ref().map_or(Vec::new(), |planned| loads(desk, planned)))
        .collect();
    let mut links = vec![Link::default(); desk.load.len()];
    for (link, seconds) in loads.iter().flatten() {
        links[*link].total += seconds;
    }
    let used = links.iter().filter(|link| link.total > 0.0).count().max(1);
    let each = loads.iter().map(Vec::len).sum::<usize>() as f64 / used as f64;
    let steepness = each.clamp(STEEPNESS.0, STEEPNESS.1);
    // Those in line, with what they cost: the mean weight of their links.
    let mut line: Vec<(f64, usize)> = Vec::with_capacity(IN_LINE.min(results.len()));
    let mut place = vec![usize::MAX; results.len()];
    let mut waiting = 0..results.len();
    for turn in 0..results.len() {
        while line.len() < IN_LINE {
            let Some(number) = waiting.next() else { break };
            let all: f64 = loads[number].iter().map(|(_, seconds)| seconds).sum();
            let mut cost = 0.0;
            for (link, seconds) in &loads[number] {
                cost += seconds / all * links[*link].weight;
                links[*link].line.push((number, seconds / all));
            }
            place[number] = line.len();
            line.push((cost, number));
        }
        let costs = line.iter().enumerate();
        let Some((at, _)) = costs.min_by(|a, b| a.1.0.total_cmp(&b.1.0).then(a.1.1.cmp(&b.1.1))) else {
            break;
        };
        let (_, number) = line.swap_remove(at);
        place[number] = usize::MAX;
        if let Some((_, moved)) = line.get(at) {
            place[*moved] = at;
        }
        for &(link, seconds) in &loads[number] {
            let link = &mut links[link];
            link.carried += seconds;
            let weight = (steepness * link.carried / link.total).exp();
            let more = weight - std::mem::replace(&mut link.weight, weight);
            link.line.retain(|(number, part)| {
                let cost = line.get_mut(place[*number]);
                cost.map(|(cost, _)| *cost += part * more).is_some()
            });
        }
        results[number].iter_mut().for_each(|planned| planned.turn = turn);
    }
}

/// What a link carries.
#[derive(Clone)]
struct Link {
    /// Seconds in all repairs, and in those that come before.
    total: f64,
    carried: f64,
    /// What the next second on it costs, up to a factor that grows for all links alike.
    weight: f64,
    /// The repairs in line that load it, each with the part of its seconds.
    line: Vec<(usize, f64)>,
}

impl Default for Link {
    fn default() -> Self {
        Self { total: 0.0, carried: 0.0, weight: 1.0, line: Vec::new() }
    }
}

/// Seconds for which a repair keeps each of its links busy; links that are never the bottleneck are left out.
fn loads(desk: &Desk<'_>, planned: &Planned) -> Vec<(usize, f64)> {
    let bytes = planned.bytes as f64;
    let seconds = |(link, part): (usize, f64)| (link, part * bytes * desk.pace[link]);
    desk.parts(planned).into_iter().map(seconds).filter(|(_, seconds)| *seconds > 0.0).collect()
}
