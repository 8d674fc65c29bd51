use super::*;
use kintsu_plan::{Link, Method};
use proptest::prelude::*;
use std::num::NonZeroU64;

const ORDER: Order = Order {
    method: Method::Pipeline,
    slice_bytes: 1,
    in_place: false,
    schedule: kintsu_plan::Schedule::Balanced,
    requestors: None,
    per_node: 0,
};

/// What one link carries of a stripe; the links carry enough with two of them in flight.
const BYTES: u64 = 1000;

/// The order of a user who wants at most this many stripes a node.
fn limited(per_node: u32) -> Order {
    Order { per_node, ..ORDER }
}

fn uplinks(nodes: impl IntoIterator<Item = NodeId>) -> LinkLoads {
    nodes.into_iter().map(|node| (Link::NodeUp(node), BYTES)).collect()
}

/// Three nodes that each stripe shares with others.
fn nodes(stripe: u64) -> BTreeSet<NodeId> {
    [stripe % 2, 2 + stripe % 3, 5 + stripe % 5].map(|node| NodeId(node as u32)).into()
}

fn want(stripe: u64, blocks: &[u8]) -> Want {
    let blocks = blocks.iter().map(|&b| BlockIndex(b)).collect::<Vec<_>>();
    let (bytes, nodes) = (blocks.len() as u64, nodes(stripe));
    let loads = uplinks(nodes.clone());
    Want { stripe: StripeId(stripe), bytes, blocks, bears: 1, loads, nodes, is_later: false }
}

/// A queue of links that carry enough with two stripes in flight.
fn queue(limit: usize) -> Queue {
    let mut queue = Queue::new(limit, 2);
    queue.know(Rates::even((0..10).map(NodeId), NonZeroU64::MIN));
    queue
}

fn repaired(blocks: &[BlockIndex]) -> Outcome {
    Outcome { repaired: blocks.to_vec(), ..Outcome::default() }
}

#[test]
fn jobs_for_one_stripe_share_the_work_unless_it_has_begun() {
    let mut queue = queue(2);
    let (first, commands) = queue.add(ORDER, false);
    assert_eq!(commands, [Command::Fetch(first)]);
    let started = queue.page(first, vec![want(1, &[0])], true);
    assert_eq!(started, [Command::Start(StripeId(1), vec![BlockIndex(0)], ORDER)]);
    let (second, _) = queue.add(ORDER, false);
    assert_eq!(queue.page(second, vec![want(1, &[0])], true), []);
    let (third, _) = queue.add(ORDER, false);
    assert_eq!(queue.page(third, vec![want(1, &[0, 3])], true), []);
    assert_eq!(queue.pending(), 2);
    let commands = queue.ended(StripeId(1), &repaired(&[BlockIndex(0)]));
    let finished: Vec<_> = commands.iter().filter(|c| matches!(c, Command::Finish(..))).collect();
    // What was asked for after the work began may have been flagged after it was repaired: once more.
    assert_eq!(finished.len(), 1);
    assert!(commands.contains(&Command::Start(StripeId(1), vec![BlockIndex(0), BlockIndex(3)], ORDER)));
    let commands = queue.ended(StripeId(1), &repaired(&[BlockIndex(3)]));
    let ends = |command: &Command| match command {
        Command::Finish(id, result) => Some((*id, result.tally.blocks)),
        _ => None,
    };
    assert_eq!(commands.iter().filter_map(ends).collect::<Vec<_>>(), [(second, 0), (third, 1)]);
    assert_eq!((queue.pending(), queue.jobs()), (0, 0));
}

#[test]
fn what_fails_because_nodes_are_silent_is_repaired_again_behind_the_others() {
    let mut queue = queue(1);
    let (job, _) = queue.add(ORDER, false);
    let start = |stripe| Command::Start(StripeId(stripe), vec![BlockIndex(0)], ORDER);
    assert_eq!(queue.page(job, vec![want(1, &[0]), want(2, &[0])], true), [start(1)]);
    let failed = |cut_off| Outcome { failed: Some("silent".into()), cut_off, ..Outcome::default() };
    assert_eq!(queue.ended(StripeId(1), &failed(true)), [start(2)]);
    let commands = queue.ended(StripeId(2), &repaired(&[BlockIndex(0)]));
    assert_eq!(commands, [Command::Progress(job, 1, 2), start(1)], "the other one is not done");
    for _ in 1..AGAIN {
        assert_eq!(queue.ended(StripeId(1), &failed(true)), [start(1)]);
    }
    let commands = queue.ended(StripeId(1), &failed(true));
    let [Command::Progress(..), Command::Finish(_, result)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!((result.tally.blocks, &result.failed[..]), (1, &["silent".to_owned()][..]));
    // Not for other reasons, nor for a job that is to end.
    let (job, _) = queue.add(ORDER, false);
    queue.page(job, vec![want(3, &[0]), want(4, &[0])], true);
    assert_eq!(queue.ended(StripeId(3), &failed(false)), [Command::Progress(job, 1, 2), start(4)]);
    queue.cancel(job);
    let commands = queue.ended(StripeId(4), &failed(true));
    assert!(matches!(commands[..], [Command::Progress(..), Command::Finish(..)]), "{commands:?}");
}

#[test]
fn an_urgent_job_goes_first_and_an_empty_one_ends_at_once() {
    let mut queue = queue(1);
    let (slow, _) = queue.add(ORDER, false);
    queue.page(slow, vec![want(1, &[0]), want(2, &[0])], true);
    let (fast, _) = queue.add(ORDER, true);
    queue.page(fast, vec![want(9, &[0])], true);
    let commands = queue.ended(StripeId(1), &repaired(&[]));
    assert!(commands.contains(&Command::Start(StripeId(9), vec![BlockIndex(0)], ORDER)));
    let (none, _) = queue.add(ORDER, false);
    assert!(matches!(&queue.page(none, vec![], true)[..], [Command::Finish(id, _)] if *id == none));
}

fn started(commands: &[Command]) -> Vec<u64> {
    let stripe = |command: &Command| match command {
        Command::Start(stripe, ..) => Some(stripe.0),
        _ => None,
    };
    commands.iter().filter_map(stripe).collect()
}

#[test]
fn a_stripe_whose_nodes_are_busy_is_overtaken_but_not_for_ever() {
    let mut queue = queue(100);
    let (id, _) = queue.add(limited(1), false);
    let busy = |stripe, node: u32| Want { bears: 0, nodes: [NodeId(node)].into(), ..want(stripe, &[0]) };
    let both = Want { bears: 0, nodes: [NodeId(0), NodeId(1)].into(), ..want(1000, &[0]) };
    let mut page = vec![busy(0, 0), busy(1, 1), both];
    page.extend((2..200).map(|stripe| busy(stripe, stripe as u32 % 2)));
    assert_eq!(started(&queue.page(id, page, true)), [0, 1]);
    // The two nodes are never free at the same time, until the first in line has waited long enough.
    let (mut last, mut ends) = ([0, 1], 0);
    let turn = loop {
        let next = started(&queue.ended(StripeId(last[ends % 2]), &repaired(&[BlockIndex(0)])));
        ends += 1;
        match next[..] {
            [1000] => break ends,
            [stripe] => last[(ends - 1) % 2] = stripe,
            _ => assert!(next.is_empty() && ends > PATIENCE as usize, "{next:?}"),
        }
    };
    assert_eq!(turn, PATIENCE as usize + 2);
    assert_eq!(started(&queue.ended(StripeId(1000), &repaired(&[BlockIndex(0)]))).len(), 2);
}

#[test]
fn what_is_under_way_runs_or_waits_and_is_neither_planned_now_nor_paused() {
    let mut queue = queue(1);
    let (id, _) = queue.add(ORDER, false);
    let one = |stripe, node| Want { loads: uplinks([NodeId(node)]), ..want(stripe, &[0]) };
    queue.page(id, vec![one(1, 1), one(2, 2), one(3, 3)], false);
    let up = |node, bytes| (Link::NodeUp(NodeId(node)), bytes);
    let underway = |queue: &Queue, these: &[u64]| {
        queue.underway(&these.iter().copied().map(StripeId).collect::<BTreeSet<_>>())
    };
    assert_eq!(underway(&queue, &[]), [up(1, BYTES), up(2, BYTES), up(3, BYTES)]);
    assert_eq!(underway(&queue, &[1, 2]), [up(1, BYTES), up(3, BYTES)], "stripe 1 runs");
    queue.reached(StripeId(1), 500, 1000);
    assert_eq!(underway(&queue, &[2, 3]), [up(1, 500)]);
    queue.pause(id, true);
    assert_eq!(underway(&queue, &[]), [up(1, 500)]);
}

#[test]
fn stripes_run_as_long_as_their_links_have_room() {
    let one = |stripe| Want { nodes: [NodeId(0)].into(), loads: uplinks([NodeId(0)]), ..want(stripe, &[0]) };
    let page = || (0..30).map(one).collect::<Vec<_>>();
    for (order, running) in [(ORDER, 2), (limited(5), 5)] {
        let mut queue = queue(50);
        let (id, _) = queue.add(order.clone(), false);
        assert_eq!(started(&queue.page(id, page(), false)).len(), running, "{order:?}");
    }
    let mut queue = queue(3);
    let (id, _) = queue.add(ORDER, false);
    assert_eq!(started(&queue.page(id, page(), true)), [0, 1]);
    // Another link has room.
    let (other, _) = queue.add(ORDER, false);
    let elsewhere = |stripe| Want { loads: uplinks([NodeId(9)]), ..one(stripe) };
    assert_eq!(started(&queue.page(other, vec![one(1000), elsewhere(1001), elsewhere(1002)], true)), [1001]);
    queue.ended(StripeId(1001), &repaired(&[BlockIndex(0)]));
    // Stripe 1002 runs. What the first one has done is no longer in flight, but there are three stripes.
    assert_eq!(started(&queue.reached(StripeId(0), 500, 1000)), [0u64; 0]);
    assert_eq!(started(&queue.ended(StripeId(1002), &repaired(&[BlockIndex(0)]))), [2]);
    assert_eq!(started(&queue.reached(StripeId(0), 510, 1000)), [0u64; 0], "no step further");
}

#[test]
fn the_stripe_that_bears_the_fewest_losses_goes_first_whichever_job_wants_it() {
    let bears = |stripe, bears| Want { bears, ..want(stripe, &[0]) };
    let mut queue = queue(1);
    let (first, _) = queue.add(ORDER, false);
    queue.page(first, vec![bears(0, 3), bears(1, 3), bears(2, 1), bears(3, 3)], true);
    let (second, _) = queue.add(ORDER, true);
    queue.page(second, vec![bears(4, 3), bears(5, 0)], true);
    // Another node has failed: stripe 3 bears less now.
    let (third, _) = queue.add(ORDER, false);
    queue.page(third, vec![bears(3, 2)], true);
    let mut order = vec![2];
    while let [stripe] = started(&queue.ended(StripeId(order[order.len() - 1]), &repaired(&[])))[..] {
        order.push(stripe);
    }
    assert_eq!(order, [2, 5, 3, 4, 0, 1]);
    assert_eq!((queue.pending(), queue.jobs()), (0, 0));
}

#[test]
fn stripes_that_wait_take_new_plans_and_those_that_run_do_not() {
    let mut queue = queue(1);
    let (id, _) = queue.add(ORDER, false);
    queue.page(id, (0..4).map(|stripe| want(stripe, &[0])).collect(), true);
    assert_eq!(queue.waiting(id), [1, 2, 3].map(|stripe| (StripeId(stripe), vec![BlockIndex(0)])));
    let again = |stripe| Want { loads: uplinks([NodeId(9)]), ..want(stripe, &[0]) };
    assert_eq!(queue.planned_again([3, 0, 2, 7].map(again).into()), []);
    let mut order = vec![0];
    while let [stripe] = started(&queue.ended(StripeId(order[order.len() - 1]), &repaired(&[])))[..] {
        order.push(stripe);
    }
    // Stripe 1 keeps its place; the others change theirs.
    assert_eq!(order, [0, 1, 3, 2]);
    assert!(queue.flight.is_empty() && queue.parts.is_empty() && queue.due.is_empty());
}

#[test]
fn no_stripe_waits_for_ever_while_endangered_ones_keep_coming() {
    let mut queue = queue(1);
    let (id, _) = queue.add(ORDER, false);
    queue.page(id, vec![Want { bears: 0, ..want(0, &[0]) }, want(1, &[0])], true);
    let (endangered, _) = queue.add(ORDER, true);
    let mut running = 0;
    let turn = (2..).find(|next| {
        queue.page(endangered, vec![Want { bears: 0, ..want(*next, &[0]) }], false);
        running = started(&queue.ended(StripeId(running), &repaired(&[])))[0];
        running == 1
    });
    assert_eq!(turn.unwrap(), PATIENCE * (PATIENCE + 1) + 2);
}

/// Plays the driver: pages and ends come in the order that `choices` gives.
fn play(limit: usize, jobs: Vec<Vec<Vec<Want>>>, choices: Vec<usize>) {
    let mut queue = queue(limit);
    let (mut todo, mut pages, mut running) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
    let (mut finished, mut wanted) = (BTreeMap::new(), BTreeMap::new());
    for job in jobs {
        let (id, commands) = queue.add(ORDER, job.len() % 2 == 1);
        let stripes: BTreeSet<StripeId> = job.iter().flatten().map(|w| w.stripe).collect();
        wanted.insert(id, stripes.len());
        pages.insert(id, job.into_iter());
        todo.extend(commands);
    }
    let (mut turn, mut told) = (0, BTreeMap::<RepairJobId, usize>::new());
    loop {
        let mut ready = Vec::new();
        for command in std::mem::take(&mut todo) {
            match command {
                Command::Start(stripe, blocks, _) => {
                    assert!(!blocks.is_empty());
                    assert!(running.insert(stripe, blocks).is_none(), "{stripe} runs twice");
                    assert!(running.len() <= limit);
                    let mut load = BTreeMap::<NodeId, u32>::new();
                    for node in running.keys().flat_map(|stripe: &StripeId| nodes(stripe.0)) {
                        *load.entry(node).or_default() += 1;
                    }
                    assert!(load.values().all(|load| *load <= 2), "{load:?}");
                }
                Command::Progress(id, done, total) => {
                    assert!(done <= total);
                    *told.entry(id).or_default() += 1;
                }
                Command::Finish(id, _) => assert!(finished.insert(id, ()).is_none()),
                fetch => ready.push(fetch),
            }
        }
        let choice = choices[turn % choices.len()];
        turn += 1;
        if !running.is_empty() && (choice.is_multiple_of(2) || ready.is_empty()) {
            let stripe = *running.keys().nth(choice % running.len()).unwrap();
            let blocks = running.remove(&stripe).unwrap();
            todo = ready;
            todo.extend(queue.ended(stripe, &repaired(&blocks)));
        } else if let Some(Command::Fetch(id)) = ready.pop() {
            todo = ready;
            let rest = pages.get_mut(&id).unwrap();
            let page = rest.next().unwrap_or_default();
            todo.extend(queue.page(id, page, rest.len() == 0));
        } else {
            break;
        }
    }
    assert_eq!((queue.pending(), queue.jobs(), queue.running), (0, 0, 0));
    assert!(queue.parts.is_empty() && queue.flight.is_empty());
    assert!(queue.waiting.is_empty() && queue.due.is_empty());
    assert_eq!(finished.len(), wanted.len());
    for (id, count) in wanted {
        // A stripe that two pages of one job name is reported once or twice, but never less.
        assert!(told.get(&id).copied().unwrap_or(0) >= count);
    }
}

proptest! {
    #[test]
    fn the_queue_drains_whatever_happens(
        limit in 1usize..5,
        jobs in prop::collection::vec(prop::collection::vec(
            prop::collection::vec((0u64..12, prop::collection::btree_set(0u8..5, 0..4)), 0..90), 0..4), 1..5),
        choices in prop::collection::vec(0usize..1000, 1..40),
    ) {
        let jobs = jobs.into_iter().map(|pages| pages.into_iter().map(|page| {
            let mut seen = BTreeSet::new();
            page.into_iter().filter(|(s, b)| !b.is_empty() && seen.insert(*s))
                .map(|(s, b)| want(s, &b.into_iter().collect::<Vec<_>>())).collect()
        }).collect()).collect();
        play(limit, jobs, choices);
    }
}

#[test]
fn a_cancelled_job_finishes_what_it_began_and_leaves_the_rest_to_others() {
    let mut queue = queue(1);
    let (first, _) = queue.add(ORDER, false);
    let started = queue.page(first, vec![want(1, &[0]), want(2, &[0]), want(3, &[0])], false);
    assert!(started.contains(&Command::Fetch(first)), "{started:?}");
    let (second, _) = queue.add(ORDER, false);
    queue.page(second, vec![want(3, &[0])], true);
    let (unwanted, commands) = queue.cancel(first);
    assert_eq!((unwanted, commands), (vec![StripeId(2)], Vec::new()), "stripe 1 is under repair");
    assert_eq!(queue.cancel(first), Default::default(), "twice is once");
    assert_eq!(queue.page(first, vec![want(4, &[0])], false), [], "a page that was on its way");
    let commands = queue.ended(StripeId(1), &repaired(&[BlockIndex(0)]));
    let ended = commands.iter().find_map(|command| match command {
        Command::Finish(id, result) if *id == first => Some(result.clone()),
        _ => None,
    });
    let result = ended.unwrap();
    assert_eq!((result.tally.blocks, result.cancelled), (1, true));
    assert_eq!(result.failed, ["cancelled: 2 stripes and all later ones were not repaired"]);
    assert!(commands.contains(&Command::Start(StripeId(3), vec![BlockIndex(0)], ORDER)));
    queue.ended(StripeId(3), &repaired(&[BlockIndex(0)]));
    assert_eq!((queue.pending(), queue.jobs()), (0, 0));
}

#[test]
fn a_paused_job_begins_nothing_that_no_other_wants_and_keeps_nobody_waiting() {
    let mut queue = queue(1);
    let (paused, _) = queue.add(ORDER, false);
    assert_eq!(started(&queue.page(paused, vec![want(1, &[0]), want(2, &[0])], false)), [1]);
    assert_eq!(queue.pause(paused, true), []);
    let (other, _) = queue.add(ORDER, false);
    queue.page(other, (3..200).map(|stripe| want(stripe, &[0])).collect(), true);
    // Its page was on the way.
    queue.page(paused, vec![want(500, &[0]), want(150, &[0])], false);
    let mut ran = Vec::new();
    let mut commands = queue.ended(StripeId(1), &repaired(&[BlockIndex(0)]));
    while let [stripe] = started(&commands)[..] {
        ran.push(stripe);
        assert!(!commands.contains(&Command::Fetch(paused)));
        commands = queue.ended(StripeId(stripe), &repaired(&[BlockIndex(0)]));
    }
    assert_eq!(ran, (3..200).collect::<Vec<_>>(), "150 is wanted by both");
    assert_eq!(queue.jobs(), 1);
    let commands = queue.pause(paused, false);
    assert_eq!(started(&commands), [2]);
    assert!(commands.contains(&Command::Fetch(paused)), "{commands:?}");
    assert_eq!(started(&queue.ended(StripeId(2), &repaired(&[BlockIndex(0)]))), [500]);
    // One that is cancelled while it pauses ends.
    queue.pause(paused, true);
    let (_, commands) = queue.cancel(paused);
    assert!(started(&commands).is_empty());
    let commands = queue.ended(StripeId(500), &repaired(&[BlockIndex(0)]));
    queue.page(paused, Vec::new(), true);
    assert!(commands.iter().any(|command| matches!(command, Command::Finish(..))) || queue.jobs() == 0);
}

/// The order of a user whose method works in phases.
fn phased() -> Order {
    Order { method: Method::Chameleon, ..ORDER }
}

/// A job of the order above, with these stripes in its first page.
fn phased_job(queue: &mut Queue, stripes: std::ops::Range<u64>) -> RepairJobId {
    let (id, _) = queue.add(phased(), false);
    let commands = queue.page(id, stripes.map(|stripe| want(stripe, &[0])).collect(), true);
    assert_eq!(commands, [Command::Plan(id)], "nothing begins before its phase");
    id
}

/// A phase takes these of the stripes that have not begun. Returns which start, and whether the next phase is to be planned.
fn take(queue: &mut Queue, id: RepairJobId, taken: &[u64], now_ms: u64) -> (Vec<u64>, bool) {
    let asked: Vec<StripeId> = queue.not_begun(id).into_iter().map(|(stripe, _)| stripe).collect();
    let planned =
        |id: &StripeId| Want { is_later: !taken.contains(&id.0), loads: Vec::new(), ..want(id.0, &[0]) };
    let wants: Vec<Want> = asked.iter().map(planned).collect();
    let commands = queue.phase(id, &asked, wants, now_ms);
    (started(&commands), commands.contains(&Command::Plan(id)))
}

fn end(queue: &mut Queue, stripe: u64) -> Vec<Command> {
    let mut commands = queue.ended(StripeId(stripe), &repaired(&[BlockIndex(0)]));
    commands.retain(|command| !matches!(command, Command::Progress(..)));
    commands
}

#[test]
fn only_the_stripes_of_a_phase_begin_and_the_next_begins_after_its_span_or_when_all_of_them_have_ended() {
    let mut queue = queue(9);
    let id = phased_job(&mut queue, 0..7);
    assert_eq!(queue.tick(5000, 1000), [], "it is being planned");
    assert_eq!(take(&mut queue, id, &[0, 1, 2], 5000), (vec![0, 1, 2], false));
    assert_eq!((queue.waiting(id), queue.shown(9).1), (vec![], 4));
    assert_eq!(queue.tick(5999, 1000), []);
    assert_eq!(end(&mut queue, 0), []);
    assert_eq!(queue.tick(6000, 1000), [Command::Plan(id)], "the span is over");
    assert_eq!(queue.tick(9000, 1000), []);
    assert_eq!(take(&mut queue, id, &[3, 4], 9000), (vec![3, 4], false), "1 and 2 are late");
    assert_eq!((end(&mut queue, 1), end(&mut queue, 3)), (vec![], vec![]));
    assert_eq!(end(&mut queue, 4), [Command::Plan(id)], "only what is late is left");
    assert_eq!(take(&mut queue, id, &[5, 6], 9100), (vec![5, 6], false));
    assert_eq!(queue.tick(99_000, 1000), [], "nothing is left for a phase");
    for stripe in [5, 6] {
        assert_eq!(end(&mut queue, stripe), []);
    }
    assert!(matches!(&end(&mut queue, 2)[..], [Command::Finish(_, result)] if result.failed.is_empty()));
    assert!(queue.flight.is_empty() && queue.due.is_empty() && queue.waiting.is_empty());
}

#[test]
fn a_phase_that_has_room_takes_more_from_the_next_page_and_a_full_one_does_not() {
    let mut queue = queue(9);
    let (id, _) = queue.add(phased(), false);
    let page = |queue: &mut Queue, stripe, last| {
        let commands = queue.page(id, vec![want(stripe, &[0]), want(stripe + 1, &[0])], last);
        commands.contains(&Command::Plan(id))
    };
    assert!(page(&mut queue, 0, false));
    // A page that comes while a phase is planned is planned after it.
    assert!(!page(&mut queue, 2, false));
    let asked = [0, 1].map(StripeId);
    let commands = queue.phase(id, &asked, vec![want(1, &[0]), want(0, &[0])], 0);
    assert_eq!((started(&commands), commands.contains(&Command::Plan(id))), (vec![1, 0], true));
    assert_eq!(take(&mut queue, id, &[2], 0), (vec![2], false));
    assert!(!page(&mut queue, 4, true), "it is full");
    assert_eq!(queue.tick(1000, 1000), [Command::Plan(id)]);
}

#[test]
fn a_job_to_which_others_leave_no_time_in_a_phase_goes_on_with_one_stripe() {
    let mut queue = queue(9);
    let id = phased_job(&mut queue, 0..3);
    assert_eq!(take(&mut queue, id, &[], 0), (vec![0], false));
    assert_eq!(queue.tick(1000, 1000), [Command::Plan(id)]);
    assert_eq!(take(&mut queue, id, &[], 1000), (vec![], false), "one is under repair");
    assert_eq!(end(&mut queue, 0), [Command::Plan(id)]);
    assert_eq!(take(&mut queue, id, &[], 1100), (vec![1], false));
}

#[test]
fn what_is_urgent_or_wanted_by_other_methods_too_or_has_no_plan_waits_for_no_phase() {
    let mut queue = queue(9);
    let (urgent, _) = queue.add(phased(), true);
    assert!(!queue.in_phases(urgent));
    assert_eq!(started(&queue.page(urgent, vec![want(9, &[0])], false)), [9]);
    let id = phased_job(&mut queue, 0..5);
    let (other, _) = queue.add(ORDER, false);
    assert_eq!(started(&queue.page(other, vec![want(1, &[0])], true)), [1]);
    let asked: Vec<StripeId> = queue.not_begun(id).into_iter().map(|(stripe, _)| stripe).collect();
    assert_eq!(asked, [0, 2, 3, 4].map(StripeId));
    // Two have no plan.
    let wants = [0, 3].map(|stripe| Want { is_later: true, ..want(stripe, &[0]) });
    assert_eq!(started(&queue.phase(id, &asked, wants.into(), 0)), [2, 4]);
    // A job that is paused begins no phase.
    queue.pause(id, true);
    assert_eq!(queue.tick(9000, 1000), []);
    assert_eq!([end(&mut queue, 2), end(&mut queue, 4)], [[], []]);
    assert_eq!(queue.pause(id, false), [Command::Plan(id)]);
    let (unwanted, _) = queue.cancel(id);
    assert_eq!(unwanted, [0, 3].map(StripeId));
}
