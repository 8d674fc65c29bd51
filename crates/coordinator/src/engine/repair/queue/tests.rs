use super::*;
use kintsu_plan::Method;
use proptest::prelude::*;

const ORDER: Order = Order {
    method: Method::Pipeline,
    slice_bytes: 1,
    in_place: false,
    schedule: kintsu_plan::Schedule::Balanced,
    requestors: None,
    per_node: 0,
};

const PER_NODE: u32 = 2;

/// Three nodes that each stripe shares with others.
fn nodes(stripe: u64) -> BTreeSet<NodeId> {
    [stripe % 2, 2 + stripe % 3, 5 + stripe % 5].map(|node| NodeId(node as u32)).into()
}

fn want(stripe: u64, blocks: &[u8]) -> Want {
    let blocks = blocks.iter().map(|&b| BlockIndex(b)).collect::<Vec<_>>();
    Want { stripe: StripeId(stripe), bytes: blocks.len() as u64, blocks, nodes: nodes(stripe) }
}

fn repaired(blocks: &[BlockIndex]) -> Outcome {
    Outcome { repaired: blocks.to_vec(), ..Outcome::default() }
}

#[test]
fn jobs_for_one_stripe_share_the_work_unless_it_has_begun() {
    let mut queue = Queue::new(2, 2);
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
fn an_urgent_job_goes_first_and_an_empty_one_ends_at_once() {
    let mut queue = Queue::new(1, 1);
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
    let mut queue = Queue::new(100, 1);
    let (id, _) = queue.add(ORDER, false);
    let busy = |stripe, node: u32| Want { nodes: [NodeId(node)].into(), ..want(stripe, &[0]) };
    let both = Want { nodes: [NodeId(0), NodeId(1)].into(), ..want(1000, &[0]) };
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
fn more_stripes_run_where_their_trees_were_planned_together() {
    let together = Order { method: Method::Optimal, ..ORDER };
    for (order, running) in [
        (ORDER, 2),
        (Order { schedule: kintsu_plan::Schedule::Greedy, ..together.clone() }, 2),
        (together.clone(), 2 * TOGETHER),
        (Order { per_node: 5, ..together.clone() }, 5),
    ] {
        let mut queue = Queue::new(2, PER_NODE);
        let (id, _) = queue.add(order.clone(), false);
        let one = |stripe| Want { nodes: [NodeId(0)].into(), ..want(stripe, &[0]) };
        assert_eq!(started(&queue.page(id, (0..100).map(one).collect(), false)).len(), running, "{order:?}");
        // Stripes of another job wait until fewer run than their own limit.
        let (other, _) = queue.add(ORDER, true);
        let page = vec![Want { nodes: [NodeId(9)].into(), ..want(1000, &[0]) }];
        assert_eq!(started(&queue.page(other, page, true)), [0u64; 0]);
    }
}

/// Plays the driver: pages and ends come in the order that `choices` gives.
fn play(limit: usize, jobs: Vec<Vec<Vec<Want>>>, choices: Vec<usize>) {
    let mut queue = Queue::new(limit, PER_NODE);
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
                    assert!(load.values().all(|load| *load <= PER_NODE), "{load:?}");
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
    assert!(queue.load.is_empty() && queue.parts == 0);
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
    let mut queue = Queue::new(1, 9);
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
