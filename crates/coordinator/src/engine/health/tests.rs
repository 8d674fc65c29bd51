use super::*;
use kintsu_dag::{BlockIndex, StripeId};
use kintsu_wire::message::AbsentBlock;

fn node(id: u32) -> NodeFacts {
    NodeFacts {
        id: NodeId(id),
        state: NodeState::Alive,
        down_ms: 0,
        placed: 5,
        held: 0,
        aside: 0,
        fullness: Fullness::Roomy,
        open: true,
        suspect: false,
        wiping: false,
        draining: false,
        drain_runs: false,
        unheard: false,
        failed: None,
        unverified_s: 0,
        paused_s: None,
    }
}

fn code(name: &str, n: usize, k: usize) -> CodeFacts {
    CodeFacts { name: name.into(), n, k }
}

/// Four living nodes, one object in rs:n=4,k=2, a fresh copy of the metadata.
fn well() -> Facts {
    Facts {
        nodes: (0..4).map(node).collect(),
        stored: 1,
        copies: CopyFacts {
            wanted: 3,
            age_s: Some(60),
            holders: vec![NodeId(0), NodeId(1)],
            unchanged: false,
            every_s: 600,
            uptime_s: 100_000,
        },
        repairs: RepairFacts { grace_ms: 60_000, ..RepairFacts::default() },
        codes: vec![code("rs:n=4,k=2", 4, 2)],
        ..Facts::default()
    }
}

/// The facts when all is well but for this.
fn but(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = well();
    change(&mut facts);
    facts
}

fn damaged(stripe: u64, readable: bool, bears: u64) -> DamagedStripe {
    let absent = vec![AbsentBlock { index: BlockIndex(1), node: NodeId(3), lost: false }];
    DamagedStripe {
        others: 0,
        stripe: StripeId(stripe),
        object: "a".into(),
        volume: false,
        code: "rs:n=4,k=2".into(),
        readable,
        bears,
        absent,
    }
}

/// The verdict, in texts without a break.
fn judged(facts: &Facts) -> Health {
    let health = judge(facts);
    let texts = |cause: &Cause| [&[cause.title.clone(), cause.advice.clone()][..], &cause.details].concat();
    for text in health.causes.iter().flat_map(texts) {
        assert!(!text.contains("  "), "{text:?}");
    }
    health
}

/// The single cause of a verdict.
fn only(facts: &Facts, level: Level, kind: CauseKind) -> Cause {
    let health = judged(facts);
    let [cause] = health.causes.as_slice() else { panic!("{health:?}") };
    assert_eq!((health.verdict, cause.level, cause.kind), (level, level, kind), "{cause:?}");
    assert!(!cause.advice.is_empty() && !cause.title.is_empty());
    match level {
        Level::Healthy => assert_eq!(health.headline, "healthy"),
        _ => assert_eq!(health.headline, format!("{level}: {}", cause.title)),
    }
    cause.clone()
}

/// The cause of this kind, among others.
fn one_of(facts: &Facts, kind: CauseKind) -> Cause {
    let health = judged(facts);
    health.causes.iter().find(|cause| cause.kind == kind).cloned().unwrap_or_else(|| panic!("{health:?}"))
}

#[test]
fn a_cluster_without_causes_is_healthy() {
    let health = judge(&well());
    assert_eq!(
        (health.verdict, health.headline.as_str(), health.causes.len()),
        (Level::Healthy, "healthy", 0)
    );
    assert_eq!(judge(&Facts::default()).verdict, Level::Healthy, "an empty cluster");
}

#[test]
fn unreadable_stripes_are_an_error_with_their_names() {
    let lost = but(|facts| {
        facts.damage.unreadable = 30;
        facts.damage.owners.objects = 2;
        facts.damage.worst = vec![damaged(7, false, 0)];
    });
    let cause = only(&lost, Level::Error, CauseKind::UnreadableStripes);
    assert_eq!((cause.title.as_str(), cause.count), ("30 stripes of 2 objects cannot be read", 30));
    assert!(cause.stripes.len() == 1 && cause.advice.contains("quarantine ls"), "{}", cause.advice);
    let away = but(|facts| {
        facts.damage = lost.damage.clone();
        facts.nodes[3].state = NodeState::Dead;
    });
    let cause = one_of(&away, CauseKind::UnreadableStripes);
    assert!(cause.advice.starts_with("bring node 3 back"), "{}", cause.advice);
}

#[test]
fn reduced_redundancy_says_by_how_much_and_what_becomes_of_it() {
    let reduced = |change: &dyn Fn(&mut Facts)| {
        but(|facts| {
            facts.damage.reduced = BTreeMap::from([(0, 2), (1, 39), (2, 1)]);
            facts.damage.worst = vec![damaged(7, true, 0), damaged(8, true, 1)];
            change(facts);
        })
    };
    let title = |facts: &Facts| one_of(facts, CauseKind::ReducedRedundancy).title;
    let cause = only(&reduced(&|_| {}), Level::Warning, CauseKind::ReducedRedundancy);
    let details =
        ["2 stripes may not survive another loss", "39 stripes survive 1 more", "1 stripe survives 2 more"];
    assert_eq!(cause.details, details);
    assert_eq!((cause.count, cause.stripes.len()), (42, 2));
    assert_eq!(cause.title, "42 stripes at reduced redundancy (repairs begin soon)");
    let running = reduced(&|facts| facts.repairs.pending = 9);
    assert!(title(&running).ends_with("(being repaired, 9 blocks to go)"));
    let dead = reduced(&|facts| (facts.nodes[3].state, facts.nodes[3].down_ms) = (NodeState::Dead, 20_000));
    assert!(title(&dead).ends_with("(repairs begin in 40 s)"), "{}", title(&dead));
    let held = reduced(&|facts| facts.gate.unreported = Some((1, 5, vec![NodeId(3)])));
    assert!(title(&held).ends_with("(repairs are held back)"));
}

/// The logs of four blocks of a volume while nodes 3 and 4 are gone: one whole, one empty, one on fewer nodes, one lost.
fn short() -> LogFacts {
    let logs = [&[0, 1][..], &[], &[1, 3], &[4, 3]];
    let logs: [Vec<NodeId>; 4] = logs.map(|log| log.iter().copied().map(NodeId).collect());
    let mut facts = LogFacts::default();
    facts.look("disk", &logs, |node| node.0 < 3);
    facts
}

#[test]
fn a_log_of_a_volume_that_no_living_node_has_is_an_error() {
    let lost = but(|facts| facts.logs.lost = short().lost);
    let cause = only(&lost, Level::Error, CauseKind::LostLogs);
    assert_eq!(cause.title, "1 block of volume \"disk\" cannot be read: no living node has its log");
    assert_eq!((cause.count, cause.nodes.as_slice()), (1, &[NodeId(3), NodeId(4)][..]));
    assert!(cause.advice.starts_with("bring nodes 3 and 4 back"), "{}", cause.advice);
    assert_eq!(cause.details, ["volume \"disk\": 1 log of nodes 3 and 4"]);
    let more = but(|facts| {
        facts.logs.lost = short().lost;
        facts.logs.lost.insert("other".into(), ShortLogs { logs: 2, nodes: BTreeSet::from([NodeId(3)]) });
    });
    let title = only(&more, Level::Error, CauseKind::LostLogs).title;
    assert_eq!(title, "3 blocks of 2 volumes cannot be read: no living node has their logs");
}

#[test]
fn stripes_that_contradict_themselves_are_an_error_with_whose_they_are() {
    let one = vec![(StripeId(7), "\"a\"".to_owned())];
    let cause = only(&but(|facts| facts.contradicting = one), Level::Error, CauseKind::ContradictingStripes);
    assert_eq!(cause.title, "the blocks of 1 stripe contradict each other");
    assert_eq!((cause.count, cause.details), (1, vec![format!("stripe {} of \"a\"", StripeId(7))]));
}

#[test]
fn stripes_that_are_compared_too_late_are_a_warning() {
    let late = but(|facts| facts.late_stripes = Some(70));
    let cause = only(&late, Level::Warning, CauseKind::UncomparedStripes);
    assert_eq!(cause.title, "stripes were not compared with their codes in time: 70 to go");
}

#[test]
fn a_log_of_a_volume_on_fewer_nodes_than_needed_is_a_warning() {
    let few = but(|facts| facts.logs.few = short().few);
    let cause = only(&few, Level::Warning, CauseKind::FewLogs);
    assert_eq!(cause.title, "1 log of volumes is on fewer nodes than needed");
    assert!(cause.advice.contains("bring node 3 back"), "{}", cause.advice);
}

#[test]
fn a_node_that_should_have_logs_of_volumes_is_not_called_empty() {
    for state in [NodeState::Dead, NodeState::Stopped] {
        let logs = but(|facts| {
            facts.logs = short();
            facts.nodes.push(NodeFacts { state, placed: 0, ..node(4) });
        });
        let kind = if state == NodeState::Dead { CauseKind::DeadNodes } else { CauseKind::StoppedNodes };
        let cause = one_of(&logs, kind);
        assert_eq!((cause.level, cause.title.contains("has logs of volumes")), (Level::Warning, true));
        assert!(!cause.advice.contains("forget"), "{}", cause.advice);
        let mut drained = logs;
        drained.nodes[4].draining = true;
        assert!(!judge(&drained).causes.iter().any(|cause| cause.kind == CauseKind::DrainingNodes));
    }
}

#[test]
fn failed_and_cancelled_repairs_count_while_something_is_to_be_repaired() {
    let failed = |facts: &mut Facts| facts.repairs.failed = Some((10_007, "no node has room".into()));
    assert_eq!(judge(&but(failed)).verdict, Level::Healthy, "all is repaired by now");
    let left = but(|facts| {
        failed(facts);
        facts.damage.reduced = BTreeMap::from([(1, 3)]);
    });
    let cause = one_of(&left, CauseKind::FailedRepairs);
    assert!(cause.level == Level::Warning && cause.details == ["no node has room"]);
    assert!(cause.advice.contains("kintsu jobs follow 10007"), "{}", cause.advice);
    assert!(one_of(&left, CauseKind::ReducedRedundancy).title.contains("the last repair failed"));
    let cancelled = but(|facts| {
        facts.repairs.cancelled = true;
        facts.damage.reduced = BTreeMap::from([(1, 3)]);
    });
    assert_eq!(one_of(&cancelled, CauseKind::CancelledRepairs).level, Level::Warning);
    let held = but(|facts| {
        facts.repairs.held = Some(crate::engine::repair::Held::Rack(kintsu_dag::RackId(7)));
        facts.damage.reduced = BTreeMap::from([(1, 3)]);
    });
    let cause = one_of(&held, CauseKind::HeldRepairs);
    assert!(
        cause.level == Level::Warning
            && cause.title.contains("rack 7")
            && cause.advice.contains("repair.hold")
    );
    assert!(one_of(&held, CauseKind::ReducedRedundancy).title.contains("repairs are held"), "{held:?}");
}

#[test]
fn nodes_that_are_not_there_are_warnings_unless_nobody_misses_them() {
    let with = |state, placed| {
        but(|facts| {
            (facts.nodes[3].state, facts.nodes[3].placed) = (state, placed);
            facts.nodes.push(node(4));
        })
    };
    let cause = only(&with(NodeState::Dead, 5), Level::Warning, CauseKind::DeadNodes);
    assert!(cause.title == "node 3 is dead" && cause.advice.contains("kintsu repair --node ID"));
    let cause = only(&with(NodeState::Dead, 0), Level::Warning, CauseKind::DeadNodes);
    assert!(cause.advice.contains("kintsu node forget ID"), "{}", cause.advice);
    only(&with(NodeState::Stopped, 5), Level::Warning, CauseKind::StoppedNodes);
    only(&with(NodeState::Stopped, 0), Level::Healthy, CauseKind::StoppedNodes);
    let mut failed = with(NodeState::Failed, 5);
    failed.nodes[3].failed = Some("unmounted".into());
    let cause = only(&failed, Level::Warning, CauseKind::FailedDisks);
    assert_eq!(cause.details, ["node 3: unmounted"]);
    let mut unheard = with(NodeState::Dead, 5);
    unheard.nodes[3].unheard = true;
    only(&unheard, Level::Warning, CauseKind::UnheardNodes);
}

#[test]
fn full_disks_are_warnings_and_unknown_ones_are_not() {
    let with = |fullness| but(|facts| facts.nodes[2].fullness = fullness);
    assert_eq!(only(&with(Fullness::Full), Level::Warning, CauseKind::FullNodes).title, "node 2 is full");
    only(&with(Fullness::NearlyFull), Level::Warning, CauseKind::NearlyFullNodes);
    only(&with(Fullness::Unknown), Level::Healthy, CauseKind::UnknownSpace);
}

#[test]
fn paused_nodes_are_named() {
    let cause =
        only(&but(|facts| facts.nodes[2].paused_s = Some(7200)), Level::Healthy, CauseKind::PausedNodes);
    assert_eq!(cause.details, ["node 2: for 120 more minutes"]);
}

#[test]
fn blocks_that_are_verified_too_late_are_a_warning() {
    let with = |every, late| but(|facts| (facts.scrub_every_s, facts.nodes[2].unverified_s) = (every, late));
    only(&with(100, 201), Level::Warning, CauseKind::UnverifiedNodes);
    assert_eq!(judge(&with(100, 200)).causes, []);
    assert_eq!(judge(&with(0, 201)).causes, [], "only on request");
}

#[test]
fn a_cluster_that_takes_no_put_is_an_error_and_one_that_takes_small_ones_a_warning() {
    let shut = |count: usize| {
        move |facts: &mut Facts| facts.nodes.iter_mut().take(count).for_each(|node| node.open = false)
    };
    let cause = only(&but(shut(1)), Level::Warning, CauseKind::NoPlace);
    let title = "puts of all but small objects with rs:n=4,k=2 are refused: 3 of the 4 nodes that they need take blocks";
    assert_eq!(cause.title, title);
    assert_eq!(cause.details, ["rs:n=4,k=2 needs 4 nodes, 3 for a small object"]);
    let cause = only(&but(shut(2)), Level::Error, CauseKind::NoPlace);
    assert!(cause.title.starts_with("puts with rs:n=4,k=2 are refused: 2 of the 4 nodes"), "{}", cause.title);
    let partly = but(|facts| {
        shut(2)(facts);
        facts.codes.insert(0, code("rs:n=3,k=2", 3, 2));
        facts.codes.push(code("replication:n=3", 3, 1));
        facts.codes.push(code("replication:n=2", 2, 1));
    });
    let cause = only(&partly, Level::Warning, CauseKind::NoPlace);
    assert!(cause.title.starts_with("puts with rs:n=4,k=2 (and 2 other codes) are"), "{}", cause.title);
}

#[test]
fn a_drain_is_a_warning_only_if_it_stands_still() {
    let with = |drain_runs, placed| {
        but(|facts| {
            let node = &mut facts.nodes[1];
            (node.state, node.draining, node.drain_runs, node.placed) =
                (NodeState::Draining, true, drain_runs, placed);
        })
    };
    only(&with(true, 5), Level::Healthy, CauseKind::DrainingNodes);
    let cause = only(&with(false, 5), Level::Warning, CauseKind::DrainingNodes);
    assert!(cause.title.contains("no job moves its blocks"), "{}", cause.title);
    let cause = only(&with(false, 0), Level::Healthy, CauseKind::DrainingNodes);
    assert!(cause.advice.contains("kintsu node undrain ID"), "{}", cause.advice);
}

#[test]
fn blocks_in_quarantine_wait_for_an_operator_only_if_they_were_many() {
    only(&but(|facts| facts.nodes[1].aside = 3), Level::Healthy, CauseKind::Quarantine);
    let cause = only(&but(|facts| facts.nodes[1].held = 30), Level::Warning, CauseKind::HeldBlocks);
    assert_eq!((cause.count, cause.title.as_str()), (30, "30 blocks on node 1 looked unknown at once"));
}

#[test]
fn doubts_about_nodes_are_told_and_do_not_count() {
    only(&but(|facts| facts.nodes[1].suspect = true), Level::Healthy, CauseKind::SuspectedNodes);
    only(&but(|facts| facts.nodes[1].wiping = true), Level::Healthy, CauseKind::WipingNodes);
}

#[test]
fn metadata_that_are_not_trusted_come_first() {
    let behind = but(|facts| {
        facts.gate.behind = Some("N1 remembers later metadata".into());
        facts.nodes[1].state = NodeState::Dead;
    });
    let health = judge(&behind);
    assert_eq!((health.verdict, health.causes[0].kind), (Level::Error, CauseKind::OlderMetadata));
    assert!(health.headline.contains("; node 1 is dead"), "{}", health.headline);
    let rebuild = but(|facts| (facts.gate.rebuilding, facts.gate.behind) = (true, Some("older".into())));
    let cause = only(&rebuild, Level::Warning, CauseKind::Rebuild);
    assert!(cause.title.starts_with("not known yet: "), "{}", cause.title);
    let start = but(|facts| facts.gate.unreported = Some((5, 20, vec![NodeId(1), NodeId(2)])));
    let cause = only(&start, Level::Warning, CauseKind::Unreported);
    let title =
        "not known yet: nodes 1 and 2 have not reported their blocks since the start (5 of 20 blocks)";
    assert_eq!(cause.title, title);
}

#[test]
fn copies_of_the_metadata_are_missed_when_they_are_late() {
    let with = |change: &dyn Fn(&mut CopyFacts)| but(|facts| change(&mut facts.copies));
    let kind = CauseKind::MetadataCopies;
    only(&with(&|copies| copies.wanted = 0), Level::Healthy, kind);
    only(&with(&|copies| copies.age_s = None), Level::Warning, kind);
    only(&with(&|copies| (copies.age_s, copies.uptime_s) = (None, 20)), Level::Healthy, kind);
    let old = |copies: &mut CopyFacts| copies.age_s = Some(7200);
    assert!(only(&with(&old), Level::Warning, kind).title.ends_with("2 h old"));
    let unchanged = |copies: &mut CopyFacts| (copies.age_s, copies.unchanged) = (Some(7200), true);
    assert_eq!(judge(&with(&unchanged)).causes.len(), 0, "nothing was committed since");
    let gone = but(|facts| {
        facts.nodes.extend([node(4), node(5)]);
        facts.nodes[0].state = NodeState::Stopped;
        facts.nodes[1].state = NodeState::Stopped;
    });
    assert!(one_of(&gone, kind).title.starts_with("no living node keeps"));
    let empty = but(|facts| (facts.stored, facts.copies.age_s) = (0, None));
    assert_eq!(judge(&empty).causes.len(), 0);
}

#[test]
fn puts_that_hang_and_a_clock_that_went_back_are_warnings() {
    only(&but(|facts| facts.hanging_puts = 2), Level::Warning, CauseKind::HangingPuts);
    only(&but(|facts| facts.clock_back_s = 4000), Level::Warning, CauseKind::Clock);
}

#[test]
fn the_headline_names_a_few_causes_and_counts_the_rest() {
    let many = but(|facts| {
        facts.hanging_puts = 2;
        facts.clock_back_s = 4000;
        facts.nodes.push(node(4));
        facts.nodes[1].state = NodeState::Dead;
        facts.nodes[2].fullness = Fullness::NearlyFull;
        facts.nodes[3].aside = 9;
    });
    let headline = judge(&many).headline;
    assert_eq!(headline.matches("; ").count(), 3, "{headline}");
    assert!(
        headline.starts_with("warning: node 1 is dead; ") && headline.ends_with("; and 1 more"),
        "{headline}"
    );
    assert_eq!(named(&[1, 2, 3, 4].map(NodeId)), "nodes 1, 2, 3 and 4");
    assert_eq!(named(&[1, 2, 3, 4, 5].map(NodeId)), "nodes 1, 2, 3 and 2 others");
}
