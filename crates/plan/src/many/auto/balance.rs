//! Trees for many blocks: one block after the other, then in further passes, until no link is much busier than it
//! must be. The best pass is kept.

use kintsu_dag::BlockIndex;

use super::super::desk::{Case, Desk, Places, Tree};
use super::super::dispatch::{Tasks, dispatch};
use super::super::scene::Planned;
use super::search::{Open, Prices, search};
use super::{Draft, nobody, several};
use crate::PlanError;

/// Tree searches of one try, besides the first for each block: more blocks, fewer passes.
const SEARCHES: usize = 1500;

/// Upper limit on passes after the first.
const MAX_PASSES: usize = 24;

/// How the trees of a try are chosen.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// At prices; a node gets this many children at a time. With two, trees are about as deep as binary ones, so they
    /// fill soon; with one, equal loads make chains, which are deeper but load links more evenly.
    Prices(usize),
    /// Every task to the node that would be done first.
    Tasks,
}

/// In the order in which they are tried.
const WAYS: [Way; 4] = [Way::Prices(2), Way::Prices(1), Way::Prices(3), Way::Tasks];

/// How often some blocks get twice as many trees, so that links carry parts of blocks.
const ROUNDS: usize = 6;

/// The most trees for one block.
const MAX_PARTS: usize = 16;

/// More blocks than this load links evenly enough with one tree each.
const FEW: usize = 256;

/// What each step of depth of each tree costs, as a part of the block's time: a tree has to fill with slices before its
/// last node can work. A slice is about this part of a block.
const FILL: f64 = 1.0 / 64.0;

/// What each further tree of a block costs, as a part of the block's time: streams share links fairly, so the undivided
/// repairs of other blocks fall behind.
const SPLIT: f64 = 0.08;

/// This part of the busiest uplink and downlink counts although others are busier: users may leave these more than is known, and then what was put on few
/// links because it made no difference is what all wait for.
const UNSURE: f64 = 0.1;

/// Nothing more is tried when the busiest link needs at most this much longer than it must.
pub(super) const ENOUGH: f64 = 1.01;

/// Links that are overlooked count as this many times as busy as all others, or more.
const BUSIER: f64 = 1.1;

/// The exponent of the norm: in the first pass, and at last.
const POWERS: (i32, i32) = (16, 96);

/// The planned repair of each draft.
pub(super) fn balance(desk: &mut Desk<'_>, drafts: &[Draft<'_>]) -> Vec<Result<Planned, PlanError>> {
    let prescribed = prescribed(desk, drafts);
    let floor = floor(desk, drafts, &prescribed);
    desk.overlook(floor.links, &prescribed);
    let places = places(desk, drafts);
    let mut parts = vec![1; drafts.len()];
    let mut best = assigned(desk, drafts, &places, (&parts[..], WAYS[0]), floor);
    let mut way = WAYS[0];
    let done = |best: &(f64, Vec<Laid>)| best.0 <= ENOUGH * floor.all || drafts.len() > FEW;
    for other in WAYS.into_iter().skip(1) {
        if done(&best) {
            break;
        }
        let next = assigned(desk, drafts, &places, (&parts[..], other), floor);
        if score(desk, drafts, &next) < score(desk, drafts, &best) {
            (best, way) = (next, other);
        }
    }
    let mut latest = best.1.clone();
    for _ in 0..ROUNDS {
        if done(&best) || !divide(desk, drafts, &latest, &mut parts, floor) {
            break;
        }
        let next = assigned(desk, drafts, &places, (&parts[..], way), floor);
        latest.clone_from(&next.1);
        if score(desk, drafts, &next) < score(desk, drafts, &best) {
            best = next;
        }
    }
    let made = drafts.iter().zip(best.1).map(|(draft, laid)| {
        let laid = laid?;
        let planned = desk.planned(&draft.lost, &laid.trees).ok_or_else(|| nobody(&draft.lost))?;
        let also = draft.also.iter().zip(&laid.also).map(|(lost, node)| (lost.block, desk.ids[*node]));
        Ok(Planned { also: also.collect(), ..planned })
    });
    made.collect()
}

/// Where a draft's blocks go, and along which trees; all of them have the same requestor.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub also: Vec<usize>,
    pub trees: Vec<Tree>,
}

type Laid = Result<Placed, PlanError>;

/// The nodes that may get each block, where that cannot change between passes: every stripe lost one block, and all
/// blocks would fit on each node. Otherwise nothing.
fn places(desk: &Desk<'_>, drafts: &[Draft<'_>]) -> Vec<Result<Places, PlanError>> {
    let bytes = drafts.iter().map(|draft| draft.lost.bytes()).sum();
    let single = drafts.iter().all(|draft| draft.lost.stripe.lost.len() == 1);
    match single && desk.fits_everywhere(bytes) {
        true => drafts.iter().map(|draft| desk.places(&draft.lost)).collect(),
        false => Vec::new(),
    }
}

/// How long the repairs are expected to take: the time of the busiest link, a part of that of the busiest uplink and downlink, and what depth and
/// division cost.
fn score(desk: &mut Desk<'_>, drafts: &[Draft<'_>], (seconds, laid): &(f64, Vec<Laid>)) -> f64 {
    drafts.iter().zip(laid).for_each(|(draft, laid)| carry(desk, draft, laid, 1.0));
    let busiest = |link: &dyn Fn(usize) -> usize| {
        let links = (0..desk.ids.len()).map(link).filter(|link| !desk.is_overlooked(*link));
        links.map(|link| desk.time(link, 0.0)).fold(0.0, f64::max)
    };
    let other = UNSURE * (busiest(&|node| desk.up(node)) + busiest(&|node| desk.down(node)));
    drafts.iter().zip(laid).for_each(|(draft, laid)| carry(desk, draft, laid, -1.0));
    let steps: usize = laid.iter().flatten().flat_map(|laid| &laid.trees).map(depth).sum();
    let more: usize = laid.iter().flatten().map(|laid| laid.trees.len().saturating_sub(1)).sum();
    (seconds + other) * (1.0 + (FILL * steps as f64 + SPLIT * more as f64) / laid.len().max(1) as f64)
}

/// Transmissions on the longest way of a tree, less one.
fn depth(tree: &Tree) -> usize {
    let parent = |node: usize| tree.edges.iter().find(|(from, _)| *from == node).map(|(_, to)| *to);
    let steps = |node: usize| {
        let way = std::iter::successors(parent(node), |node| parent(*node));
        way.take(tree.edges.len()).count()
    };
    tree.edges.iter().map(|(from, _)| steps(*from)).max().unwrap_or(1).saturating_sub(1)
}

/// Gives more trees to some blocks: for each link that is busier than it must be, the one that loads it with the largest parts. Whether
/// there is any.
pub(super) fn divide(
    desk: &mut Desk<'_>,
    drafts: &[Draft<'_>],
    laid: &[Laid],
    parts: &mut [usize],
    floor: Floor,
) -> bool {
    drafts.iter().zip(laid).for_each(|(draft, laid)| carry(desk, draft, laid, 1.0));
    let links = (0..desk.load.len()).filter(|link| !desk.is_overlooked(*link));
    let busy = links.map(|link| (desk.time(link, 0.0), link));
    let mut busy: Vec<(f64, usize)> = busy.filter(|(seconds, _)| *seconds > ENOUGH * floor.all).collect();
    busy.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    drafts.iter().zip(laid).for_each(|(draft, laid)| carry(desk, draft, laid, -1.0));
    // By link: which drafts load it.
    let mut on: Vec<Vec<usize>> = vec![Vec::new(); desk.load.len()];
    for (number, laid) in laid.iter().enumerate() {
        if let Ok(Placed { also, trees }) = laid {
            let links = trees.iter().flat_map(|tree| desk.links_of(tree, also, 1.0));
            links.for_each(|(link, _)| on[link].push(number));
        }
    }
    on.iter_mut().for_each(|drafts| drafts.dedup());
    let mut divided = vec![false; drafts.len()];
    for (_, link) in busy {
        if on[link].iter().any(|number| divided[*number]) {
            continue;
        }
        let more = |number: &usize| parts[*number] < MAX_PARTS && !drafts[*number].apart();
        let open = on[link].iter().copied().filter(more);
        let part = |number: &usize| drafts[*number].case.bytes / parts[*number] as f64;
        if let Some(number) = open.min_by(|a, b| part(b).total_cmp(&part(a))) {
            parts[number] *= 2;
            divided[number] = true;
        }
    }
    divided.contains(&true)
}

/// Trees for each draft, and when the busiest link is done. Leaves the desk as it was.
fn assigned(
    desk: &mut Desk<'_>,
    drafts: &[Draft<'_>],
    places: &[Result<Places, PlanError>],
    (parts, way): (&[usize], Way),
    floor: Floor,
) -> (f64, Vec<Laid>) {
    let children = if let Way::Prices(children) = way { children } else { 0 };
    let unit = 1.0 / floor.links;
    let mut prices = Prices { unit, power: POWERS.0, children, overlooked: BUSIER, given: false };
    let mut laid: Vec<Laid> = Vec::with_capacity(drafts.len());
    for (number, draft) in drafts.iter().enumerate() {
        laid.push(add(desk, draft, places.get(number), parts[number], &prices));
    }
    let mut best = (desk.seconds(), Vec::new());
    let mut latest = best.0;
    let passes = (SEARCHES / parts.iter().sum::<usize>().max(1)).clamp(1, MAX_PASSES);
    for _ in 0..passes {
        if latest <= ENOUGH * floor.all {
            break;
        }
        prices.power = (prices.power * 3 / 2).min(POWERS.1);
        prices.overlooked = BUSIER * (latest * unit).max(1.0);
        let mut next = Vec::with_capacity(drafts.len());
        for (number, (draft, laid)) in drafts.iter().zip(&laid).enumerate() {
            remove(desk, draft, laid);
            next.push(add(desk, draft, places.get(number), parts[number], &prices));
        }
        let before = std::mem::replace(&mut laid, next);
        let seconds = desk.seconds();
        // `best` has the trees only of a pass that later ones were worse than.
        if latest <= best.0 && seconds >= latest {
            best = (latest, before);
        }
        latest = seconds;
    }
    drafts.iter().zip(&laid).for_each(|(draft, laid)| remove(desk, draft, laid));
    if latest < best.0 || best.1.is_empty() { (latest, laid) } else { best }
}

fn add(
    desk: &mut Desk<'_>,
    draft: &Draft<'_>,
    places: Option<&Result<Places, PlanError>>,
    parts: usize,
    prices: &Prices,
) -> Laid {
    let again = match draft.varies {
        true => Some(chosen(desk, draft)?),
        false => None,
    };
    let case = again.as_ref().unwrap_or(&draft.case);
    let prices = &Prices { given: case.helpers.len() == case.k, ..*prices };
    let bytes = case.bytes / parts as f64;
    if !draft.also.is_empty() {
        return several::add(desk, draft, case, parts, prices);
    }
    let now;
    let places = match places {
        Some(known) => known.as_ref().map_err(Clone::clone)?,
        None => {
            now = desk.places(&draft.lost)?;
            &now
        }
    };
    let mut open = Open::Any(places);
    let mut laid = Placed { also: Vec::new(), trees: Vec::with_capacity(parts) };
    for _ in 0..parts {
        let tree = match prices.children {
            0 => by_tasks(desk, &Case { bytes, ..case.clone() }, open),
            _ => search(desk, case, bytes, open, prices),
        };
        let Some(tree) = tree else {
            remove(desk, draft, &Ok(laid));
            return Err(nobody(&draft.lost));
        };
        desk.carry_tree(&tree, &[], bytes);
        if laid.trees.is_empty() {
            desk.give(&draft.lost, tree.requestor);
        }
        open = Open::Given(tree.requestor);
        laid.trees.push(tree);
    }
    Ok(laid)
}

/// The helpers that a draft takes at the loads of now: those whose own link, disk and rack are done first. The rack's link counts
/// for the requestor's rack, too, because the requestor is chosen later.
pub(super) fn chosen(desk: &Desk<'_>, draft: &Draft<'_>) -> Result<Case, PlanError> {
    let bytes = draft.case.bytes;
    let indices: Vec<BlockIndex> = draft.blocks().map(|lost| lost.block).collect();
    let done = |node: usize| desk.sending(node, bytes).max(desk.time(desk.rack_up(desk.rack[node]), bytes));
    let case = desk.case_of(&draft.lost, &indices, &done)?;
    Ok(case.unwrap_or_else(|| draft.case.clone()))
}

/// The flattest tree for the tasks of a repair.
fn by_tasks(desk: &Desk<'_>, case: &Case, open: Open<'_>) -> Option<Tree> {
    let requestor = open.first(desk, case.bytes)?;
    let Tasks { helpers, .. } = dispatch(desk, case, &[requestor])?;
    Some(Tree { requestor, edges: crate::optimal::network::Tree::with_children(helpers, requestor).0 })
}

/// Takes back what a draft was given.
pub(super) fn remove(desk: &mut Desk<'_>, draft: &Draft<'_>, laid: &Laid) {
    carry(desk, draft, laid, -1.0);
    let Ok(laid) = laid else { return };
    laid.trees.first().into_iter().for_each(|tree| desk.take_back(&draft.lost, tree.requestor));
    draft.also.iter().zip(&laid.also).for_each(|(lost, node)| desk.take_back(lost, *node));
}

/// Adds the loads of a draft's trees, or takes them away where `times` is negative.
fn carry(desk: &mut Desk<'_>, draft: &Draft<'_>, laid: &Laid, times: f64) {
    let Ok(laid) = laid else { return };
    let bytes = times * draft.case.bytes / laid.trees.len().max(1) as f64;
    laid.trees.iter().for_each(|tree| desk.carry_tree(tree, &laid.also, bytes));
}

/// Times that the busiest link needs at least.
#[derive(Debug, Clone, Copy)]
pub(super) struct Floor {
    /// For links, in seconds: the blocks' uploads over all uplinks of their helpers together, the same for downlinks, and what has to
    /// leave and enter racks over the links of racks, beside what is under way; and what one link got before from this call or what
    /// the code prescribes. Positive.
    pub links: f64,
    /// The same, and for all disks together.
    pub all: f64,
}

/// The floor for these drafts, of which links get the `prescribed` bytes in any case. That one link has much under way, or one
/// disk is slow, does not matter: the others need not wait for it.
pub(super) fn floor(desk: &Desk<'_>, drafts: &[Draft<'_>], prescribed: &[f64]) -> Floor {
    let n = desk.ids.len();
    let mut helps = vec![false; n];
    drafts.iter().flat_map(|draft| &draft.case.helpers).for_each(|node| helps[*node] = true);
    let gets: Vec<bool> = (0..n).map(|node| desk.usable(node)).collect();
    let sent: f64 = drafts.iter().map(|draft| draft.sent() as f64 * draft.case.bytes).sum();
    let read: f64 = drafts.iter().map(|draft| draft.case.k as f64 * draft.case.bytes).sum();
    let got: f64 = drafts.iter().map(|draft| draft.blocks().count() as f64 * draft.case.bytes).sum();
    let mut usable = vec![0; desk.racks];
    (0..n).filter(|node| gets[*node]).for_each(|node| usable[desk.rack[node]] += 1);
    let across: Vec<(usize, f64)> =
        drafts.iter().map(|draft| (racks_left(desk, &usable, draft), draft.case.bytes)).collect();
    let left: f64 = across.iter().map(|(racks, bytes)| *racks as f64 * bytes).sum();
    // What comes from other racks enters the requestor's at least once.
    let entered: f64 = across.iter().filter(|(racks, _)| *racks > 0).map(|(_, bytes)| bytes).sum();
    let together = |bytes: f64, link: &dyn Fn(usize) -> usize, counts: &dyn Fn(usize) -> bool| {
        let mut links: Vec<usize> = (0..n).filter(|node| counts(*node)).map(link).collect();
        links.sort_unstable();
        links.dedup();
        match bytes == 0.0 || links.iter().any(|link| desk.pace[*link] == 0.0) {
            true => 0.0,
            false => level(desk, links, bytes, prescribed),
        }
    };
    let several = gets.iter().filter(|gets| **gets).count() > 1;
    let own = (0..desk.load.len()).filter(|link| !desk.is_disk(*link));
    let links = [
        together(read, &|node| desk.up(node), &|node| helps[node]),
        together(sent, &|node| desk.down(node), &|node| helps[node] || gets[node]),
        together(got, &|node| desk.down(node), &|node| gets[node]),
        together(left, &|node| desk.rack_up(desk.rack[node]), &|node| helps[node]),
        together(left, &|node| desk.rack_down(desk.rack[node]), &|node| helps[node] || gets[node]),
        together(entered, &|node| desk.rack_down(desk.rack[node]), &|node| gets[node]),
        own.map(|link| desk.own_time(link, prescribed[link])).fold(0.0, f64::max),
    ];
    let disks = [
        together(read, &|node| desk.read(node), &|node| helps[node]),
        together(got, &|node| desk.write(node), &|node| gets[node] && several),
    ];
    let links = links.into_iter().fold(f64::MIN_POSITIVE, f64::max);
    Floor { links, all: disks.into_iter().fold(links, f64::max) }
}

/// How many racks the repair of a draft leaves at least, wherever its blocks go: beside a requestor in the rack that has most of its
/// helpers, those that have most of the others (ECPipe, Algorithm 1). None where links of racks do not count, or where its helpers
/// may be others. `usable` says how many nodes of each rack may get blocks.
fn racks_left(desk: &Desk<'_>, usable: &[usize], draft: &Draft<'_>) -> usize {
    if !desk.racked || draft.varies {
        return 0;
    }
    let Case { k, helpers, .. } = &draft.case;
    let mut counts = vec![0; desk.racks];
    helpers.iter().for_each(|node| counts[desk.rack[*node]] += 1);
    let mut gets = usable.to_vec();
    helpers.iter().filter(|node| desk.usable(**node)).for_each(|node| gets[desk.rack[*node]] -= 1);
    let near = (0..desk.racks).filter(|rack| gets[*rack] > 0).max_by_key(|rack| counts[*rack]);
    let mut found: usize = near.map_or(0, |rack| std::mem::take(&mut counts[rack]));
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let others = counts.into_iter().take_while(|count| {
        let more = found < *k;
        found += count;
        more
    });
    others.count()
}

/// When these links together have carried `bytes` more, in seconds. Those that are busy for longer anyway get no more of them than
/// is prescribed.
fn level(desk: &Desk<'_>, mut links: Vec<usize>, mut bytes: f64, prescribed: &[f64]) -> f64 {
    loop {
        let rate: f64 = links.iter().map(|link| 1.0 / desk.pace[*link]).sum();
        let load: f64 = links.iter().map(|link| desk.load[*link]).sum();
        let seconds = if rate > 0.0 { (load + bytes) / rate } else { 0.0 };
        let (less, longer): (Vec<usize>, Vec<usize>) =
            links.into_iter().partition(|link| desk.time(*link, 0.0) <= seconds);
        if longer.is_empty() {
            return seconds;
        }
        bytes -= longer.iter().map(|link| prescribed[*link]).sum::<f64>();
        links = less;
    }
}

/// By link the bytes that it gets in any case: because codes prescribe the helpers, or because one node gets all blocks.
pub(super) fn prescribed(desk: &Desk<'_>, drafts: &[Draft<'_>]) -> Vec<f64> {
    let mut bytes = vec![0.0; desk.load.len()];
    let mut getters = (0..desk.ids.len()).filter(|node| desk.usable(*node));
    if let (Some(only), None) = (getters.next(), getters.next()) {
        let got = drafts.iter().map(|draft| draft.blocks().count() as f64 * draft.case.bytes);
        bytes[desk.write(only)] = got.sum();
    }
    for draft in drafts.iter().filter(|draft| draft.fixed) {
        for node in &draft.case.helpers {
            bytes[desk.up(*node)] += draft.case.bytes;
            bytes[desk.read(*node)] += draft.case.bytes;
        }
    }
    bytes
}
