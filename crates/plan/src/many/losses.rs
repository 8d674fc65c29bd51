//! Lost blocks in the form that the lower bound on the time of a recovery takes ([`super::bound()`]).

use kintsu_dag::BlockIndex;

use super::bound::Loss;
use super::desk::Desk;
use super::recovery::DamagedStripe;
use super::scene::{LostBlock, Scene};
use crate::Topology;
use crate::repair::any_will_do;

/// The losses of each stripe: of its lost blocks the possible helpers, or those that the code prescribes, and as barred
/// nodes those that placement would not give a block. The blocks of a stripe are one loss, if not two that have no
/// helper in common. `None` for codes with sub-blocks, and for blocks that cannot be repaired or placed.
pub fn losses(topology: &Topology, stripes: &[DamagedStripe]) -> Vec<Option<Vec<Loss>>> {
    let mut desk = Desk::new(&Scene::of(topology), &LostBlock::all(stripes));
    let of = |stripe: &DamagedStripe| {
        let mates = LostBlock::all(std::slice::from_ref(stripe));
        match &mates[..] {
            [one, other] if apart(&desk, one, other) => {
                mates.iter().map(|lost| loss(&mut desk, std::slice::from_ref(lost))).collect()
            }
            _ => loss(&mut desk, &mates).map(|all| vec![all]),
        }
    };
    stripes.iter().map(of).collect()
}

/// Whether two blocks of a stripe have no helper in common.
fn apart(desk: &Desk<'_>, one: &LostBlock<'_>, other: &LostBlock<'_>) -> bool {
    one.stripe.view.code.w() == 1
        && matches!(desk.case_of(one, &[one.block, other.block], &|_| 0.0), Ok(None))
}

fn loss(desk: &mut Desk<'_>, mates: &[LostBlock<'_>]) -> Option<Loss> {
    let lost = mates.first()?;
    let view = &lost.stripe.view;
    let indices: Vec<BlockIndex> = mates.iter().map(|lost| lost.block).collect();
    let mut all = (view.code.w() == 1).then(|| desk.case_of(lost, &indices, &|_| 0.0).ok()?)??;
    if desk.other_case(lost, &indices, &all).ok()??.helpers != all.helpers {
        // Which helpers the code reads depends on the choice. A bound lets it read any that are left.
        all.helpers = desk.left(lost).into_iter().map(|(node, _)| node).collect();
    }
    let mut open = vec![false; desk.ids.len()];
    let mut homes = Vec::new();
    for lost in mates {
        let places = desk.places(lost).ok()?;
        // One of the others may have to go where this one could, and then this one elsewhere.
        let may: Vec<usize> = desk.at(&places).collect();
        let first = *may.first()?;
        may.into_iter().for_each(|node| open[node] = true);
        desk.give(lost, first);
        homes.push(first);
    }
    mates.iter().zip(homes).for_each(|(lost, node)| {
        open[node] = true;
        desk.take_back(lost, node);
    });
    let any = any_will_do(view) && all.helpers.len() == desk.left(lost).len();
    Some(Loss {
        any,
        bytes: lost.bytes(),
        blocks: mates.len(),
        k: all.k,
        helpers: all.helpers.iter().map(|node| desk.ids[*node]).collect(),
        barred: (0..open.len()).filter(|node| !open[*node]).map(|node| desk.ids[node]).collect(),
    })
}
