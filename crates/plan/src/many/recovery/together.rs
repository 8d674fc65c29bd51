//! The stripes of a window, planned together by the scheduler that the method names ([`crate::MethodRow::scheduler`]),
//! for a schedule that leaves the choice of helpers open. Stripes that the scheduler does not plan are assigned by
//! [`super::window`] afterwards.
//!
//! Schedulers ignore rates of pairs of nodes: where there are any, the best trees are searched for each repair
//! separately. Where no rates are known, links are taken to be alike, or each repair is planned by itself if the
//! method then is another one ([`crate::MethodRow::without_rates`]).

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{RackId, StripeId};

use super::window::Rules;
use super::{Assignment, DamagedStripe};
use crate::many::scene::{self, History, LostBlock, Planned, Scene};
use crate::many::{Expected, Phase, phase, scheduler};
use crate::{Rates, Topology};

/// What a node's link carries, where nobody knows: 1 Gb/s. Only its ratio to the links of racks matters.
const ASSUMED: NonZeroU64 = NonZeroU64::new(125_000_000).unwrap();
/// The nodes of a rack can send this many times as much as its link to the core carries, where nobody knows.
const OVERSUBSCRIBED: u64 = 4;

/// The stripes of the window that are planned together, each with its assignment; `None` for the others. Where
/// only a phase is planned, those of later ones get none ([`Assignment::later`]).
pub(super) fn together(rules: &Rules<'_>, window: &[DamagedStripe]) -> Vec<Option<Assignment>> {
    let mut assigned = vec![None; window.len()];
    let (rates, row) = (&rules.scene.topology.rates, rules.method.row());
    let alone = !rates.pairs.is_empty() || (rates.is_empty() && row.without_rates.is_some());
    let scheduler = row.scheduler.and_then(|name| scheduler(name).ok());
    let Some(scheduler) = scheduler.filter(|_| rules.schedule.together(rules.method) && !alone) else {
        return assigned;
    };
    let fits = |stripe: &DamagedStripe| stripe.lost.len() == 1 || stripe.view.code.w() == 1;
    let at = || (0..window.len()).filter(|number| fits(&window[*number]));
    let of = |number: usize| {
        window[number].lost.iter().map(move |&block| LostBlock { stripe: &window[number], block })
    };
    let blocks: Vec<LostBlock<'_>> = at().flat_map(of).collect();
    let assumed = rates.is_empty().then(|| assumed(rules.scene.topology));
    let scene = Scene { topology: assumed.as_ref().unwrap_or(rules.scene.topology), ..rules.scene };
    if rules.in_phase && scheduler.in_phases {
        return in_phase(&scene, window, &blocks);
    }
    let planned = scheduler.plan(&scene, &mut History::default(), &blocks);
    let known = scheduler.ends_together && !rates.is_empty();
    let seconds = if known { scene::seconds(rules.scene.topology, planned.iter().flatten()) } else { 0.0 };
    let mut planned = planned.into_iter();
    for number in at() {
        let made = planned.by_ref().take(window[number].lost.len());
        let made: Result<Vec<Planned>, _> = made.collect::<Vec<_>>().into_iter().collect();
        assigned[number] = made.ok().and_then(|made| Assignment::of(&made, seconds));
    }
    assigned
}

/// The stripes of the phase that begins now, and those of later ones.
fn in_phase(
    scene: &Scene<'_>,
    window: &[DamagedStripe],
    blocks: &[LostBlock<'_>],
) -> Vec<Option<Assignment>> {
    let Phase { repairs, left, .. } = phase(scene, blocks, scene.phase_seconds);
    let later: BTreeSet<StripeId> = left.iter().map(|lost| lost.stripe.view.id).collect();
    let mut made: BTreeMap<StripeId, Vec<Planned>> = BTreeMap::new();
    for Expected { planned, .. } in repairs {
        made.entry(planned.stripe).or_default().push(planned);
    }
    let of = |stripe: &DamagedStripe| {
        let (id, made) = (stripe.view.id, made.get(&stripe.view.id).map_or(&[][..], Vec::as_slice));
        match later.contains(&id) {
            true => Some(Assignment::later(id)),
            false => Assignment::of(made, 0.0).filter(|_| made.len() == stripe.lost.len()),
        }
    };
    window.iter().map(of).collect()
}

/// The nodes with links as they usually are, where none is known: all nodes alike, and the link of a rack to the core a
/// part of what its nodes can send together.
fn assumed(topology: &Topology) -> Topology {
    let mut rates = Rates::even(topology.nodes.keys().copied(), ASSUMED);
    let mut racks: BTreeMap<RackId, u64> = BTreeMap::new();
    topology.nodes.values().for_each(|node| *racks.entry(node.rack).or_default() += 1);
    if racks.len() > 1 {
        for (rack, nodes) in racks {
            let rate = ASSUMED.saturating_mul(NonZeroU64::new(nodes).unwrap_or(NonZeroU64::MIN));
            let rate = NonZeroU64::new(rate.get() / OVERSUBSCRIBED).unwrap_or(NonZeroU64::MIN);
            rates.rack_up.insert(rack, rate);
            rates.rack_down.insert(rack, rate);
        }
    }
    Topology { rates, ..topology.clone() }
}
