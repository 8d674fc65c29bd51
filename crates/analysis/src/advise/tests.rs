//! Advice: what fits, in the right order, with reasons; and what to change when nothing does.

use super::*;
use kintsu_code::{families, parse};
use proptest::prelude::*;

fn requirements(nodes: usize, racks: usize, tolerate: usize, max_overhead: f64) -> Requirements {
    Requirements {
        environment: Environment::new(nodes),
        racks,
        tolerate,
        max_overhead,
        objective: Objective::Degraded,
        survive_rack: false,
        widest: 16,
    }
}

/// Places block after block, each in the next rack.
fn in_turn(racks: usize) -> impl Fn(&dyn Code) -> Option<Vec<Vec<BlockIndex>>> {
    move |code| {
        let mut by_rack = vec![Vec::new(); racks];
        (0..code.n()).for_each(|b| by_rack[b % racks].push(BlockIndex(b as u8)));
        Some(by_rack)
    }
}

fn advice(requirements: &Requirements) -> Advice {
    advise(requirements, &in_turn(requirements.racks), |_, _| {}).unwrap()
}

#[test]
fn small_degraded_reads_ask_for_local_groups() {
    let found = advice(&requirements(20, 4, 3, 1.6));
    let best = &found.answers[0];
    // Groups of three blocks, the last one smaller, are the smallest that leave room for two global parities within an
    // overhead of 1.6.
    let least = best.degraded.decimal();
    assert!(best.degraded <= Ratio::new(28, 10), "{} {least}", best.code);
    assert!(best.d >= 4 && best.overhead <= Ratio::new(16, 10));
    assert!(best.reasons[0].contains(&format!("costs {least} blocks, the least of")), "{:?}", best.reasons);
    assert!(best.reasons.iter().any(|r| r.contains("any 3 lost nodes")), "{:?}", best.reasons);
    let rs = found.answers.iter().find(|a| a.family == "rs").unwrap();
    assert_eq!(rs.code, "rs:n=8,k=5");
    assert!(
        rs.reasons.iter().any(|r| r.contains(&format!("worse: degraded read 5 against {least}"))),
        "{:?}",
        rs.reasons
    );
    assert_eq!((rs.min_cell_bytes, rs.min_object_bytes), (4096, 5 << 17));
    assert!(found.relaxations.is_empty() && found.considered > found.answers.len());
}

#[test]
fn every_family_answers_or_says_why_not() {
    for asked in [requirements(20, 4, 3, 1.6), requirements(12, 3, 2, 1.3), requirements(9, 3, 3, 3.0)] {
        let found = advice(&asked);
        let mut named: Vec<_> = found.answers.iter().map(|a| a.family.as_str()).collect();
        named.extend(found.refused.iter().map(|r| r.family.as_str()));
        named.sort_unstable();
        let mut all: Vec<_> = families().iter().map(|f| f.name).collect();
        all.sort_unstable();
        assert_eq!(named, all);
        assert!(found.refused.iter().all(|r| !r.reason.is_empty()));
    }
}

#[test]
fn the_objective_decides() {
    let order = |objective| {
        let asked = Requirements { objective, ..requirements(16, 4, 2, 2.0) };
        let answers = advice(&asked).answers;
        let keys: Vec<f64> = answers
            .iter()
            .map(|a| match objective {
                Objective::Degraded => a.degraded.as_f64(),
                Objective::Recovery => a.nrc.as_f64(),
                Objective::Balanced => a.degraded.as_f64() * a.nrc.as_f64() * a.overhead.as_f64(),
            })
            .collect();
        assert!(keys.is_sorted(), "{keys:?}");
        keys[0]
    };
    order(Objective::Degraded);
    order(Objective::Recovery);
    order(Objective::Balanced);
}

#[test]
fn a_rack_that_must_be_survived_narrows_the_choice() {
    let free = requirements(16, 3, 2, 1.5);
    let bound = Requirements { survive_rack: true, ..free.clone() };
    let safe = |answers: &[Answer]| {
        answers.iter().map(|a| a.reliability.racks.as_ref().unwrap().survives_any_rack).collect::<Vec<_>>()
    };
    let (free, bound) = (advice(&free), advice(&bound));
    assert!(safe(&free.answers).contains(&false));
    for answer in free.answers.iter().filter(|a| !a.reliability.racks.as_ref().unwrap().survives_any_rack) {
        assert!(answer.caveats[0].contains("the loss of a rack can lose data"), "{:?}", answer.caveats);
    }
    assert!(!bound.answers.is_empty() && safe(&bound.answers).iter().all(|&safe| safe));
    assert!(bound.answers[0].reasons[0].contains("that survive the loss of a rack"));
}

#[test]
fn caveats_name_spare_nodes_and_costly_parities() {
    let found = advice(&requirements(10, 5, 3, 1.7));
    let lrc = found.answers.iter().find(|a| a.family == "azure-lrc").unwrap();
    assert_eq!(lrc.code, "azure-lrc:n=10,k=6,r=3");
    assert_eq!(lrc.worst_repair, Ratio::new(6, 1));
    assert!(
        lrc.caveats.iter().any(|c| c.contains("2 parity blocks of 10 cost up to 6")),
        "{:?}",
        lrc.caveats
    );
    assert!(lrc.caveats.iter().any(|c| c.contains("use all 10 nodes")), "{:?}", lrc.caveats);
    assert!(lrc.beyond_distance.is_some_and(|f| f > 0.8 && f < 1.0));
}

#[test]
fn when_nothing_fits_each_change_that_would_do_is_told() {
    let asked = Requirements { survive_rack: true, ..requirements(10, 2, 3, 1.4) };
    let found = advice(&asked);
    assert!(found.answers.is_empty());
    let told: Vec<_> = found.relaxations.iter().map(|r| (r.change.as_str(), r.code.as_str())).collect();
    // Over two racks half of the blocks must be parity.
    assert_eq!(told, [("allow an overhead of 2 (now 1.4)", "rs:n=6,k=3")]);
    let asked = requirements(10, 5, 4, 1.6);
    let told: Vec<_> = advice(&asked).relaxations.into_iter().map(|r| (r.change, r.code)).collect();
    let expected = [
        ("allow an overhead of 1.667 (now 1.6)", "rs:n=10,k=6"),
        ("tolerate 3 lost nodes (now 4)", "rs:n=10,k=7"),
        ("use 11 nodes (now 10)", "rs:n=11,k=7"),
    ];
    assert!(told.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(expected), "{told:?}");
    let narrow = Requirements { widest: 8, ..requirements(20, 5, 4, 1.5) };
    assert!(advice(&narrow).relaxations.iter().any(|r| r.change == "allow stripes of 12 blocks (now 8)"));
    let racks = Requirements { survive_rack: true, ..requirements(20, 2, 3, 1.5) };
    let told = advice(&racks).relaxations;
    assert!(told.iter().any(|r| r.change == "spread the nodes over 3 racks (now 2)"), "{told:?}");
    assert!(told.iter().any(|r| r.change.contains("drop the requirement")), "{told:?}");
}

#[test]
fn senseless_requirements_are_refused() {
    let said = |asked: Requirements| advise(&asked, &in_turn(1), |_, _| {}).unwrap_err().to_string();
    assert!(said(requirements(1, 1, 1, 2.0)).contains("number of nodes"));
    assert!(said(requirements(9, 10, 1, 2.0)).contains("expected 1 to 9, the number of nodes, got 10"));
    assert!(said(requirements(9, 3, 0, 2.0)).contains("to tolerate"));
    assert!(
        said(requirements(9, 3, 1, 1.0))
            .ends_with("expected more than 1 byte stored for each byte of data, got 1")
    );
    assert!(said(requirements(9, 3, 1, f64::NAN)).contains("largest overhead"));
    assert!(said(Requirements { widest: 99, ..requirements(99, 3, 1, 1.5) }).contains("2 to 32, got 99"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn answers_meet_what_was_asked_and_come_out_the_same(
        nodes in 4usize..13, racks in 2usize..5, tolerate in 1usize..4, overhead in 1.2f64..2.5, survive in proptest::bool::ANY,
    ) {
        let asked = Requirements { survive_rack: survive, ..requirements(nodes, racks, tolerate, overhead) };
        let found = advice(&asked);
        prop_assert_eq!(&found, &advice(&asked));
        prop_assert_eq!(found.answers.is_empty(), asked.shapes().is_empty());
        for answer in &found.answers {
            prop_assert!(answer.n <= nodes && answer.d > tolerate);
            prop_assert!(answer.overhead.as_f64() <= overhead + 1e-9);
            prop_assert!(!survive || answer.reliability.racks.as_ref().unwrap().survives_any_rack);
            prop_assert!(!answer.reasons.is_empty());
        }
        // Every suggested change lets a code fit.
        for change in &found.relaxations {
            prop_assert!(parse(&change.code).is_ok());
        }
    }
}
