use std::collections::BTreeMap;

use kintsu_dag::RackId;
use kintsu_plan::many::Scene;
use kintsu_plan::{Method, Node};
use kintsu_wire::message::HeldBlock;
use proptest::prelude::*;

use super::*;
use crate::engine::stripe::tests::stripe;

const ID: StripeId = StripeId(5);
const LEN: u64 = 1000;

fn digest(index: BlockIndex) -> DigestBytes {
    [index.0; 16]
}

fn topology(nodes: u32, racks: u32) -> Topology {
    let node =
        |i| (NodeId(i), Node { rack: RackId(i % racks), usable: true, used_bytes: 0, room_bytes: None });
    Topology { nodes: (0..nodes).map(node).collect(), ..Topology::default() }
}

fn repair(name: &str, lost: &[u8], in_place: bool) -> StripeRepair {
    let order = Order { method: Method::Pipeline, slice_bytes: 10, in_place, ..Order::default() };
    StripeRepair::new(stripe(name, lost), lost.iter().map(|&i| BlockIndex(i)).collect(), order)
}

fn plan(repair: &mut StripeRepair, topology: &Topology, key: u64) -> Result<Attempt, PlanError> {
    let sweeping = BTreeSet::new();
    let circumstances =
        Circumstances { topology, sweeping: &sweeping, readable: &|_| true, slow: &[], fresh_key: key };
    repair.plan(circumstances, &mut Recovery::new())
}

fn outcome(node: NodeId, upto: u64, written: &[BlockIndex]) -> RunOutcome {
    let held = |&index: &BlockIndex| HeldBlock {
        id: BlockId { stripe: ID, index },
        generation: 1,
        len: LEN,
        digest: digest(index),
    };
    let written = written.iter().map(held).collect();
    RunOutcome { node, fault: None, upto, bytes_read: 0, sent: Vec::new(), written }
}

fn fault(kind: FaultKind, node: NodeId, index: Option<u8>) -> Fault {
    let block = index.map(|i| BlockId { stripe: ID, index: BlockIndex(i) });
    Fault { kind, node, block, detail: String::new() }
}

#[test]
fn a_helper_that_dies_is_replaced_and_the_rest_of_the_slices_follows() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    let first = plan(&mut repair, &topology, 71).unwrap();
    assert_eq!((first.start, first.resume_key), (0, 71));
    let culprit = first.view.homes[usize::from(first.plan.helpers[3].0)].unwrap();
    let requestor = first.plan.requestors[0];
    let verdict =
        repair.ended(&[outcome(requestor, 400, &[])], 400, Some(&fault(FaultKind::Lost, culprit, None)));
    assert_eq!(verdict, Verdict::Again);
    let second = plan(&mut repair, &topology, 72).unwrap();
    assert_eq!((second.start, second.resume_key), (400, 71));
    assert_eq!(second.plan.requestors, [requestor]);
    assert!(!second.plan.helpers.contains(&first.plan.helpers[3]));
    let done = repair.ended(&[outcome(requestor, LEN, &[BlockIndex(2)])], LEN, None);
    let landing = Landing {
        index: BlockIndex(2),
        from: NodeId(2),
        to: requestor,
        generation: 1,
        digest: digest(BlockIndex(2)),
    };
    assert_eq!(done, Verdict::Done(vec![landing]));
    assert_eq!(repair.bad(), []);
}

#[test]
fn rot_on_a_helper_is_reported_and_only_that_block_is_shunned() {
    let topology = topology(9, 3);
    let mut repair = repair("rs:n=9,k=6", &[0], false);
    let first = plan(&mut repair, &topology, 1).unwrap();
    let rotten = first.plan.helpers[0];
    let node = first.view.homes[usize::from(rotten.0)].unwrap();
    repair.ended(&[], 0, Some(&fault(FaultKind::Corrupt, node, Some(rotten.0))));
    let id = BlockId { stripe: ID, index: rotten };
    assert_eq!(repair.bad(), [LostBlock { id, node, why: FaultKind::Corrupt }]);
    let second = plan(&mut repair, &topology, 2).unwrap();
    assert!(!second.plan.helpers.contains(&rotten));
    assert_eq!((second.start, second.resume_key), (0, 1));
}

#[test]
fn a_helper_whose_disk_cannot_read_a_block_spoils_that_block_and_not_its_node() {
    let topology = topology(9, 3);
    let mut repair = repair("rs:n=9,k=6", &[0], false);
    let first = plan(&mut repair, &topology, 1).unwrap();
    let unread = first.plan.helpers[0];
    let node = first.view.homes[usize::from(unread.0)].unwrap();
    repair.ended(&[], 0, Some(&fault(FaultKind::Io, node, Some(unread.0))));
    let id = BlockId { stripe: ID, index: unread };
    assert_eq!(repair.bad(), [LostBlock { id, node, why: FaultKind::Io }]);
    let second = plan(&mut repair, &topology, 2).unwrap();
    assert!(!second.plan.helpers.contains(&unread));
    assert_eq!(repair.absent(&|_| true).iter().map(|a| a.index).collect::<Vec<_>>(), [BlockIndex(0), unread]);
    // A requestor's disk error does not mean that a helper's block is bad.
    let requestor = second.plan.requestors[0];
    repair.ended(&[], 0, Some(&fault(FaultKind::Io, requestor, Some(0))));
    assert_eq!(repair.bad().len(), 1);
}

#[test]
fn a_slow_helper_is_gone_around_and_needed_ones_are_not() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    let first = plan(&mut repair, &topology, 1).unwrap();
    let node = |block: &BlockIndex| first.view.homes[usize::from(block.0)].unwrap();
    let helpers: Vec<_> = first.plan.helpers.iter().map(node).collect();
    // Two of eight helpers can be spared; a suspect that is no helper does not count.
    let suspects = [NodeId(11), helpers[4], helpers[1], helpers[0]];
    let slow = repair.could_spare(&first, &suspects, &topology);
    assert_eq!(slow, [helpers[4], helpers[1]]);
    repair.turn(&slow, 300, "slow");
    let aborted = fault(FaultKind::Aborted, helpers[0], None);
    assert_eq!(repair.ended(&[], 300, Some(&aborted)), Verdict::Again);
    let second = plan(&mut repair, &topology, 2).unwrap();
    assert_eq!((second.start, second.resume_key), (300, 1));
    assert!(!second.plan.helpers.iter().any(|block| slow.contains(&node(block))));
    // Another helper is slow now, but the first two stay avoided, and no third one can be spared.
    let slow = repair.could_spare(&second, &[helpers[0]], &topology);
    assert_eq!(slow, []);
    let names: Vec<_> = repair.around().iter().map(|a| (a.node, a.upto, a.why.as_str())).collect();
    assert_eq!(names, [(helpers[4], 300, "slow"), (helpers[1], 300, "slow")]);
}

#[test]
fn it_does_not_turn_for_ever_and_what_others_found_slow_is_a_wish() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    let sweeping = BTreeSet::new();
    let slow: Vec<_> = (0..9).map(NodeId).collect();
    let at = Circumstances {
        topology: &topology,
        sweeping: &sweeping,
        readable: &|_| true,
        slow: &slow,
        fresh_key: 1,
    };
    let attempt = repair.plan(at, &mut Recovery::new()).unwrap();
    // The first two of the slow nodes are spared; block 2 has no home.
    assert_eq!(attempt.plan.helpers.iter().map(|b| b.0).collect::<BTreeSet<_>>(), (3..9).collect());
    for _ in 0..TURNS {
        assert_eq!(repair.could_spare(&attempt, &[NodeId(8)], &topology), [NodeId(8)]);
        repair.turn(&[NodeId(8)], 0, "slow");
    }
    assert_eq!(repair.could_spare(&attempt, &[NodeId(8)], &topology), []);
}

#[test]
fn who_was_cut_off_gets_another_chance_when_nothing_else_is_left() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    let mut lost = Vec::new();
    for turn in 0..3 {
        let attempt = plan(&mut repair, &topology, turn).unwrap();
        let node = attempt.view.homes[usize::from(attempt.plan.helpers[0].0)].unwrap();
        repair.ended(&[], 100 * turn, Some(&fault(FaultKind::Lost, node, None)));
        lost.push(node);
    }
    // Five helpers are left and six are needed: so all are tried again, and the repair continues where it
    // was.
    let attempt = plan(&mut repair, &topology, 9).unwrap();
    assert_eq!((attempt.start, attempt.resume_key), (200, 0));
    for turn in 0..3 * u64::from(super::CHANCES) {
        let attempt = plan(&mut repair, &topology, 10 + turn).unwrap();
        let node = attempt.view.homes[usize::from(attempt.plan.helpers[0].0)].unwrap();
        repair.ended(&[], 200, Some(&fault(FaultKind::Lost, node, None)));
    }
    // But not for ever.
    assert!(plan(&mut repair, &topology, 20).is_err());
    assert_eq!((lost.len(), repair.around().len()), (3, 12));
}

#[test]
fn what_is_through_is_not_forgotten_while_there_is_no_plan() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    plan(&mut repair, &topology, 1).unwrap();
    repair.ended(&[], 400, Some(&fault(FaultKind::Aborted, NodeId(0), None)));
    let sweeping = BTreeSet::new();
    let nobody = |_| false;
    let at = Circumstances {
        topology: &topology,
        sweeping: &sweeping,
        readable: &nobody,
        slow: &[],
        fresh_key: 2,
    };
    repair.plan(at, &mut Recovery::new()).unwrap_err();
    let later = plan(&mut repair, &topology, 3).unwrap();
    assert_eq!((later.start, later.resume_key), (400, 1));
}

#[test]
fn a_requestor_that_is_full_is_left_and_the_repair_starts_over() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    let requestor = plan(&mut repair, &topology, 1).unwrap().plan.requestors[0];
    repair.ended(&[outcome(requestor, 400, &[])], 400, Some(&fault(FaultKind::Full, requestor, None)));
    let second = plan(&mut repair, &topology, 2).unwrap();
    assert_eq!((second.start, second.resume_key), (0, 2));
    assert_ne!(second.plan.requestors, [requestor]);
    let touched: Vec<_> = repair.touched().map(|(node, _)| node).collect();
    assert!(touched.contains(&requestor) && touched.contains(&second.plan.requestors[0]));
}

#[test]
fn a_rotten_block_is_repaired_where_it_is() {
    let mut repair = repair("rs:n=9,k=6", &[2], true);
    assert_eq!(plan(&mut repair, &topology(12, 3), 1).unwrap().plan.requestors, [NodeId(2)]);
}

#[test]
fn too_many_losses_say_what_is_left_and_needed() {
    let mut repair = repair("rs:n=9,k=6", &[0, 1, 2, 3], false);
    let error = plan(&mut repair, &topology(20, 5), 1).unwrap_err();
    assert!(matches!(error, PlanError::Unrecoverable { .. }), "{error}");
}

#[test]
fn a_wrong_result_is_never_believed() {
    let topology = topology(12, 3);
    let mut repair = repair("rs:n=9,k=6", &[2], false);
    for attempt in 1..=MISMATCHES {
        let requestor = plan(&mut repair, &topology, attempt.into()).unwrap().plan.requestors[0];
        let mut wrong = outcome(requestor, LEN, &[BlockIndex(2)]);
        wrong.written[0].digest = [99; 16];
        let verdict = repair.ended(&[wrong], LEN, None);
        assert_eq!(matches!(verdict, Verdict::Failed(_)), attempt == MISMATCHES, "{verdict:?}");
    }
}

#[derive(Debug, Clone)]
struct Blow {
    kind: FaultKind,
    who: usize,
    upto: u64,
    requestor: bool,
}

fn blow() -> impl Strategy<Value = Blow> {
    use FaultKind::*;
    let kinds = vec![Lost, Stalled, Corrupt, Missing, Stale, Full, Mismatch, Invalid, Aborted, Io];
    let kind = prop::sample::select(kinds);
    (kind, 0usize..20, 0..=LEN, prop::bool::weighted(0.2)).prop_map(|(kind, who, upto, requestor)| Blow {
        kind,
        who,
        upto,
        requestor,
    })
}

proptest! {
    #[test]
    fn whatever_goes_wrong_it_ends_and_no_node_gets_two_blocks(
        lost in prop::collection::btree_set(0u8..9, 1..4),
        nodes in 9u32..16,
        in_place: bool,
        blows in prop::collection::vec(blow(), 0..40),
    ) {
        let topology = topology(nodes, 4);
        let lost: Vec<u8> = lost.into_iter().collect();
        let mut repair = repair("rs:n=9,k=6", &lost, in_place);
        let mut blows = blows.into_iter();
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        for turn in 0.. {
            prop_assert!(turn < 40, "it does not end");
            let Ok(attempt) = plan(&mut repair, &topology, 100 + turn) else { break };
            let requestors = &attempt.plan.requestors;
            // No node gets two blocks of the stripe, counting the blocks that stay.
            let mut homes: Vec<NodeId> = (0..9u8).filter(|i| !lost.contains(i)).map(|i| NodeId(i.into())).collect();
            homes.extend(requestors);
            let count = homes.len();
            homes.sort_unstable();
            homes.dedup();
            prop_assert_eq!(homes.len(), count);
            // Slices that are finished under a resume key are neither repaired again nor skipped.
            let before = starts.insert(attempt.resume_key, attempt.start);
            prop_assert!(attempt.start >= before.unwrap_or(0));
            prop_assert!(attempt.start == 0 || before.is_some());
            let Some(blow) = blows.next() else {
                let all: Vec<_> = requestors.iter().zip(&lost)
                    .map(|(node, index)| outcome(*node, LEN, &[BlockIndex(*index)])).collect();
                let Verdict::Done(landings) = repair.ended(&all, LEN, None) else { panic!("not done") };
                prop_assert_eq!(landings.len(), lost.len());
                break;
            };
            let outcomes: Vec<_> = requestors.iter().map(|node| outcome(*node, blow.upto, &[])).collect();
            let helper = attempt.plan.helpers[blow.who % attempt.plan.helpers.len()];
            let (node, index) = if blow.requestor {
                (requestors[blow.who % requestors.len()], lost[blow.who % lost.len()])
            } else {
                (attempt.view.homes[usize::from(helper.0)].unwrap(), helper.0)
            };
            let index = matches!(blow.kind, FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale).then_some(index);
            match repair.ended(&outcomes, blow.upto, Some(&fault(blow.kind, node, index))) {
                Verdict::Done(_) => prop_assert!(false, "nothing was written"),
                Verdict::Failed(_) => break,
                Verdict::Again => {}
            }
        }
        // Only blocks that were read as helpers can be bad.
        prop_assert!(repair.bad().iter().all(|b| !lost.contains(&b.id.index.0)));
    }
}

#[test]
fn a_repair_of_a_whole_node_goes_along_the_trees_that_were_planned_together() {
    let mut topology = topology(12, 1);
    let rate = |node: &NodeId| std::num::NonZeroU64::new(1000 + 100 * u64::from(node.0)).unwrap();
    topology.rates.up = topology.nodes.keys().map(|node| (*node, rate(node))).collect();
    topology.rates.down = topology.rates.up.clone();
    let order = Order { method: Method::Optimal, slice_bytes: 10, ..Order::default() };
    assert!(order.together());
    let stripe = stripe("rs:n=6,k=4", &[1]);
    let view = stripe.view(|_, block| !block.lost);
    let waiting = kintsu_plan::DamagedStripe { view, lost: vec![BlockIndex(1)], barred: BTreeSet::new() };
    let (mut recovery, mut shares) = (Recovery::new(), kintsu_plan::Shares::default());
    let all = recovery.window(order.schedule, order.method, &mut shares, &Scene::of(&topology), &[waiting]);
    let assigned = all.into_iter().next().unwrap().unwrap();
    let mut repair = StripeRepair::new(stripe, vec![BlockIndex(1)], order);
    let sweeping = BTreeSet::new();
    let at = Circumstances {
        topology: &topology,
        sweeping: &sweeping,
        readable: &|_| true,
        slow: &[],
        fresh_key: 1,
    };
    let attempt = repair.plan(at, &mut recovery).unwrap();
    let requestor = assigned.requestors[&BlockIndex(1)];
    assert_eq!(attempt.plan.requestors, [requestor]);
    let mut sends: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
    for tree in &assigned.trees {
        for (from, to) in &tree.parents {
            *sends.entry((*from, to.unwrap_or(requestor))).or_default() += u64::from(tree.share);
        }
    }
    let period = assigned.trees.iter().map(|tree| u64::from(tree.share)).sum();
    let account = kintsu_plan::Account::of(&attempt.plan.plan, &topology, period).unwrap();
    assert_eq!(
        account.links.iter().map(|link| ((link.from, link.to), link.bytes)).collect::<BTreeMap<_, _>>(),
        sends
    );
    // A slow helper is avoided.
    let slow = *assigned.helpers.first().unwrap();
    let around = repair.plan(Circumstances { slow: &[slow], ..at }, &mut recovery).unwrap();
    assert!(around.plan.helpers.iter().all(|block| around.view.homes[usize::from(block.0)] != Some(slow)));
}
