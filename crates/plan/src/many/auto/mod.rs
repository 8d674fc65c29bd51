//! The default scheduler: for the blocks at hand and the idle bandwidth, trees that load no link much longer than
//! the others.
//!
//! A link's price is what one more block adds to a steep sum over all links (the p-norm of their times, which is
//! close to the time of the busiest one). Each block in turn gets the requestor, the helpers and the tree that cost
//! least, so stars, chains and all trees between them come out as the loads demand. Later passes take each tree away
//! and choose it again. Links of racks and disks have prices like all others; work under way counts as load. Where
//! there are few blocks, each gets several trees. Blocks of one stripe that have helpers in common share their trees
//! (`several`). A single block gets the trees of [`crate::optimal::forest`], at the requestor that allows the best rate, if
//! no other is done sooner because it spares slow disks and what is under way.
//!
//! A link that needs longer for what is under way than all others for what is planned is overlooked, and so is a slow disk with
//! work that no choice can spare it: what can go elsewhere does, and the others are balanced as if it were not there.
//!
//! Where no rates are known all links count as equal, so loads are even in blocks.

mod balance;
mod order;
mod search;
mod several;
mod single;
#[cfg(test)]
mod tests;

use kintsu_dag::BlockIndex;

use super::desk::{Case, Desk};
use super::scene::{History, LostBlock, Planned, Route, Scene, by_method};
use crate::{Method, PlanError};

use balance::{ENOUGH, balance};
use order::order;

pub use single::{place_alone, requestors};

/// Blocks of a stripe that are repaired along the same trees.
pub(super) struct Draft<'a> {
    /// The place of the first among the blocks of the call; the others follow it.
    number: usize,
    /// The one with the smallest index.
    lost: LostBlock<'a>,
    /// The others.
    also: Vec<LostBlock<'a>>,
    case: Case,
    /// Whether the code leaves no choice of helpers.
    fixed: bool,
    /// Whether the helpers of the case depend on which are preferred.
    varies: bool,
}

impl<'a> Draft<'a> {
    fn blocks(&self) -> impl Iterator<Item = &LostBlock<'a>> {
        [&self.lost].into_iter().chain(&self.also)
    }

    /// Whether other lost blocks of the stripe go along trees of their own. Then each has one tree: an assignment has
    /// no place for more.
    fn apart(&self) -> bool {
        self.also.is_empty() && self.lost.stripe.lost.len() > 1
    }

    /// Blocks that are sent in its repair, at least.
    fn sent(&self) -> usize {
        self.case.k + self.also.len()
    }
}

/// Plans all repairs together.
pub(super) fn auto(
    scene: &Scene<'_>,
    _: &mut History,
    blocks: &[LostBlock<'_>],
) -> Vec<Result<Planned, PlanError>> {
    let share = blocks.chunk_by(same).any(|mates| mates.len() > 1);
    let own = by_own_graphs(scene, blocks);
    let (mut best, desk) = planned(own.clone(), blocks, share);
    // Trees that are shared send least, but more across racks. Both plans are judged on one desk: each made by itself overlooks other
    // links. What codes with their own graphs load is on it already.
    if share && desk.racked {
        let (apart, _) = planned(own, blocks, false);
        let seconds = |made: &[Result<Planned, PlanError>]| {
            let mut loaded = desk.clone();
            let trees = made.iter().flatten().filter(|planned| !matches!(planned.route, Route::ByMethod(..)));
            trees.for_each(|planned| loaded.carry(planned, planned.bytes as f64));
            loaded.seconds()
        };
        if seconds(&apart) < seconds(&best) {
            best = apart;
        }
    }
    order(&desk, &mut best);
    best
}

fn same(a: &LostBlock<'_>, b: &LostBlock<'_>) -> bool {
    a.stripe.view.id == b.stripe.view.id
}

/// The repairs, and the desk with them, after those by codes' own graphs. `share` says whether blocks of one stripe may share their trees.
fn planned<'a>(
    own: (Desk<'a>, Results),
    blocks: &[LostBlock<'_>],
    share: bool,
) -> (Vec<Result<Planned, PlanError>>, Desk<'a>) {
    let (mut desk, mut results, drafts) = drafted(own, blocks, share);
    let made = match &drafts[..] {
        [only] if blocks.len() == 1 => alone(&mut desk, only),
        _ => balance(&mut desk, &drafts),
    };
    for (draft, planned) in drafts.iter().zip(made) {
        let mates = &blocks[draft.number..][..=draft.also.len()];
        let mut first = draft.number;
        for (number, lost) in (draft.number..).zip(mates) {
            match lost.block == draft.lost.block {
                true => first = number,
                false => {
                    let with = planned.as_ref().map(|planned| along(planned, lost));
                    results[number] = Some(with.map_err(Clone::clone));
                }
            }
        }
        results[first] = Some(planned);
    }
    let results =
        results.into_iter().zip(blocks).map(|(made, lost)| made.unwrap_or_else(|| Err(nobody(lost))));
    (results.collect(), desk)
}

/// The only repair: the best trees for the links alone, if others are not done sooner.
fn alone(desk: &mut Desk<'_>, draft: &Draft<'_>) -> Vec<Result<Planned, PlanError>> {
    let draft_alone = std::slice::from_ref(draft);
    let made = match single::plan(desk, draft) {
        Some(Ok(planned)) if desk.meets_others(&planned) => planned,
        Some(made) => return vec![made],
        None => return balance(desk, draft_alone),
    };
    let known = desk.clone();
    let done = |planned: &Planned| known.done(known.parts(planned), planned.bytes as f64);
    let others = balance(desk, draft_alone);
    match others.iter().flatten().any(|other| ENOUGH * done(other) < done(&made)) {
        true => others,
        false => vec![Ok(made)],
    }
}

/// By block the result, where it is made already.
type Results = Vec<Option<Result<Planned, PlanError>>>;

/// The repairs of blocks with sub-blocks, and the desk with them. Of one by itself as `auto` plans it. Of many, a star by the code's own graph
/// sends least, and a path spares the link of a requestor that gets many of them: whichever loads the busiest link less.
fn by_own_graphs<'a>(scene: &Scene<'a>, blocks: &[LostBlock<'_>]) -> (Desk<'a>, Results) {
    let all = |method: Method| {
        let mut desk = Desk::new(scene, blocks);
        let made =
            blocks.iter().map(|lost| has_sub_blocks(lost).then(|| sub_blocks(&mut desk, lost, method)));
        let made: Results = made.collect();
        (desk, made)
    };
    if blocks.iter().filter(|lost| has_sub_blocks(lost)).count() < 2 {
        return all(Method::Auto);
    }
    let (paths, stars) = (all(Method::Pipeline), all(Method::Conventional));
    // What is not planned loads no link.
    let refused = |made: &Results| made.iter().flatten().filter(|made| made.is_err()).count();
    let cost = |of: &(Desk<'_>, Results)| (refused(&of.1), of.0.seconds());
    if cost(&paths) < cost(&stars) { paths } else { stars }
}

fn has_sub_blocks(lost: &LostBlock<'_>) -> bool {
    lost.stripe.view.code.w() > 1
}

/// What else is to be planned, in drafts. What cannot be has its error in the results.
fn drafted<'a, 'b>(
    (mut desk, mut results): (Desk<'a>, Results),
    blocks: &[LostBlock<'b>],
    share: bool,
) -> (Desk<'a>, Results, Vec<Draft<'b>>) {
    let mut drafts: Vec<Draft<'b>> = Vec::new();
    let mut number = 0;
    for mates in blocks.chunk_by(same) {
        let first = number;
        number += mates.len();
        if let Some(draft) = share.then(|| shared(&desk, first, mates)).flatten() {
            note(&mut desk, &draft, 1.0);
            drafts.push(draft);
            continue;
        }
        for (number, lost) in (first..).zip(mates).filter(|(_, lost)| !has_sub_blocks(lost)) {
            match draft(&desk, number, lost) {
                Ok(draft) => {
                    note(&mut desk, &draft, 1.0);
                    drafts.push(draft);
                }
                Err(error) => results[number] = Some(Err(error)),
            }
        }
    }
    // From now on they are counted with their trees.
    drafts.iter().for_each(|draft| note(&mut desk, draft, -1.0));
    (desk, results, drafts)
}

/// A block that is repaired along with the first one.
fn along(first: &Planned, lost: &LostBlock<'_>) -> Planned {
    let requestor = first.also.iter().find(|(block, _)| *block == lost.block).map(|(_, node)| *node);
    Planned {
        stripe: first.stripe,
        block: lost.block,
        bytes: lost.bytes(),
        requestor: requestor.unwrap_or(first.requestor),
        route: Route::With(first.block),
        also: Vec::new(),
        turn: 0,
    }
}

/// Several blocks of one stripe, if the same helpers can repair all of them, and each has a node that may get it.
fn shared<'a>(desk: &Desk<'_>, number: usize, mates: &[LostBlock<'a>]) -> Option<Draft<'a>> {
    let view = &mates.first()?.stripe.view;
    if mates.len() < 2 || view.code.w() > 1 || mates.iter().any(|lost| desk.places(lost).is_err()) {
        return None;
    }
    let indices: Vec<BlockIndex> = mates.iter().map(|lost| lost.block).collect();
    let mut sorted = mates.to_vec();
    sorted.sort_by_key(|lost| lost.block);
    let case = desk.case_of(&sorted[0], &indices, &|_| 0.0).ok()??;
    let varies = desk.other_case(&sorted[0], &indices, &case).ok()??.helpers != case.helpers;
    let also = sorted.split_off(1);
    let fixed = case.helpers.len() == case.k && !varies;
    Some(Draft { number, lost: sorted[0], also, fixed, varies, case })
}

/// What is planned for a block without sub-blocks.
fn draft<'a>(desk: &Desk<'_>, number: usize, lost: &LostBlock<'a>) -> Result<Draft<'a>, PlanError> {
    let case = desk.case(lost, &|node| desk.sending(node, lost.bytes() as f64))?;
    // What nobody may get is no work for links: counted, it would let other blocks take as long as all of them together.
    desk.places(lost)?;
    let exact = case.helpers.len() == case.k && case.k < desk.left(lost).len();
    let other = if exact { desk.other_case(lost, &[lost.block], &case)? } else { None };
    let varies = other.is_some_and(|other| other.helpers != case.helpers);
    let fixed = case.helpers.len() == case.k && !varies;
    Ok(Draft { number, lost: *lost, also: Vec::new(), case, fixed, varies })
}

/// The repair of a block with sub-blocks, as this method plans it by itself, at the idlest requestor.
fn sub_blocks(desk: &mut Desk<'_>, lost: &LostBlock<'_>, method: Method) -> Result<Planned, PlanError> {
    lost.stripe.view.check("lost blocks", &[lost.block])?;
    let open = desk.places(lost)?;
    let chosen = desk.idlest(&open, lost.bytes() as f64).ok_or_else(|| nobody(lost))?;
    let planned = by_method(method, lost, desk.scene.topology, desk.ids[chosen])?;
    desk.settle(&planned, planned.bytes as f64);
    Ok(planned)
}

/// Where the code decides who helps, the next choice should know it. A negative `times` takes that back.
fn note(desk: &mut Desk<'_>, draft: &Draft<'_>, times: f64) {
    if draft.case.helpers.len() == draft.case.k {
        for node in &draft.case.helpers {
            let up = desk.up(*node);
            desk.load[up] += times * draft.case.bytes;
        }
    }
}

fn nobody(lost: &LostBlock<'_>) -> PlanError {
    PlanError::Placement {
        expected: format!("helpers and a requestor for {} of {}", lost.block, lost.stripe.view.id),
        got: "none".into(),
    }
}
