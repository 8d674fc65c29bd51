//! The locally repairable families: their distance is exactly what they claim, and every block is repaired from
//! the blocks that the family promises.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use kintsu_code::{Code, CodeError, from_generator, parse};
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

/// The proved graph that decodes `lost` when the `busy` blocks are not available either; `None` where this is
/// impossible.
fn decoded(code: &dyn Code, lost: &[usize], busy: &[usize]) -> Option<Ecdag> {
    let blocks = |all: &mut dyn Iterator<Item = usize>| all.map(|b| BlockIndex(b as u8)).collect::<Vec<_>>();
    let left = blocks(&mut (0..code.n()).filter(|b| !lost.contains(b) && !busy.contains(b)));
    let lost = blocks(&mut lost.iter().copied());
    let rank =
        |blocks: &[BlockIndex]| code.generator().select_rows(blocks.iter().map(|b| usize::from(b.0))).rank();
    match code.decode(&left, &lost) {
        Ok(graph) => {
            graph.prove(code.generator()).unwrap();
            Some(graph)
        }
        Err(error) => {
            assert!(matches!(error, CodeError::Unrecoverable { .. }), "{}: {error}", code.name());
            assert!(rank(&[&left[..], &lost].concat()) > rank(&left), "{}: {error}", code.name());
            None
        }
    }
}

/// The fewest blocks not in `absent` that determine `block`, by trying all sets.
fn fewest(code: &dyn Code, block: usize, absent: &[usize]) -> Option<usize> {
    let left: Vec<usize> = (0..code.n()).filter(|b| *b != block && !absent.contains(b)).collect();
    let rows = |set: u32| {
        code.generator().select_rows((0..left.len()).filter(|i| set >> i & 1 == 1).map(|i| left[i]))
    };
    let target = code.generator().select_rows([block]);
    let mut sets: Vec<u32> =
        (1..1 << left.len()).filter(|set: &u32| set.count_ones() as usize <= code.k()).collect();
    sets.sort_by_key(|set| set.count_ones());
    let found = sets.into_iter().find(|&set| rows(set).express(&target).unwrap().is_some());
    found.map(|set| set.count_ones() as usize)
}

/// Blocks that the repair of `block` reads, all others available; the graph proves.
fn cost(code: &dyn Code, block: usize) -> usize {
    let others: Vec<_> = (0..code.n()).filter(|&b| b != block).map(|b| BlockIndex(b as u8)).collect();
    let graph = code.decode(&others, &[BlockIndex(block as u8)]).unwrap();
    graph.prove(code.generator()).unwrap();
    graph.leaves().len()
}

/// All shapes of a family up to n blocks that it covers.
fn shapes(family: &str, most: usize) -> Vec<std::sync::Arc<dyn Code>> {
    let names = (2..=most).flat_map(|n| (1..n).flat_map(move |k| (1..=k).map(move |r| (n, k, r))));
    names.filter_map(|(n, k, r)| parse(&format!("{family}:n={n},k={k},r={r}")).ok()).collect()
}

/// The claimed distance was proved; one more is refuted.
fn distance_is_exact(code: &dyn Code) {
    let more = code.distance() + 1;
    if more > code.n() - code.k() + 1 {
        return;
    }
    let claim =
        from_generator(code.name(), code.n(), code.k(), 1, code.generator().clone(), code.groups(), more);
    assert!(matches!(claim, Err(CodeError::Distance { .. })), "{}: {claim:?}", code.name());
}

#[test]
fn optimal_lrc_covers_every_length_at_the_largest_distance() {
    for (n, k, r) in (4..=16usize).flat_map(|n| (2..n).flat_map(move |k| (1..=k).map(move |r| (n, k, r)))) {
        let made = parse(&format!("optimal-lrc:n={n},k={k},r={r}"));
        let groups = n.div_ceil(r + 1);
        let covered = n % (r + 1) != 1 && n > k + groups;
        assert!(made.is_ok() == covered || r >= 5 && n - k - groups >= r, "{n},{k},{r}: {made:?}");
        let Ok(code) = made else { continue };
        let missing = groups * (r + 1) - n;
        assert_eq!(code.distance(), n - k + 2 - (k + missing).div_ceil(r), "{}", code.name());
        distance_is_exact(&*code);
        for (block, cost) in (0..n).map(|b| (b, cost(&*code, b))) {
            assert!(cost <= r, "{} reads {cost} for b{block}", code.name());
        }
    }
}

#[test]
fn every_shape_of_the_study_is_covered() {
    for n in 9..=19usize {
        for (k, r) in (n.div_ceil(2)..n).flat_map(|k| (1..=k).map(move |r| (k, r))) {
            let groups = n.div_ceil(r + 1);
            if n % (r + 1) != 1 && n > k + groups {
                parse(&format!("optimal-lrc:n={n},k={k},r={r}")).unwrap();
            }
        }
    }
}

#[test]
fn azure_lrc_plus1_repairs_globals_from_globals() {
    for code in shapes("azure-lrc-plus1", 13) {
        let (n, k) = (code.n(), code.k());
        let globals = code.groups().last().unwrap().len() - 1;
        assert!(code.distance() >= globals + 2, "{}", code.name());
        distance_is_exact(&*code);
        for block in n - 1 - globals..n {
            assert!(cost(&*code, block) <= globals, "{} b{block}", code.name());
        }
        assert!((0..k).all(|b| cost(&*code, b) < n - globals), "{}", code.name());
    }
    // The paper's Fig. 6.
    let code = parse("azure-lrc-plus1:n=11,k=6,r=3").unwrap();
    let costs: Vec<_> = (0..11).map(|b| cost(&*code, b)).collect();
    assert_eq!(costs, [3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2]);
    assert_eq!(code.distance(), 4);
}

#[test]
fn xorbas_repairs_every_block_from_r() {
    for (name, distance) in [("n=16,k=10,r=5", 5), ("n=13,k=8,r=4", 4), ("n=12,k=8,r=4", 3)] {
        let code = parse(&format!("xorbas:{name}")).unwrap();
        assert_eq!(code.distance(), distance, "{name}");
        let r = code.k() / 2;
        let globals = code.n() - code.k() - 2;
        for block in 0..code.n() {
            let expected = if block < code.k() + 2 {
                r.min(if block < code.k() { r } else { globals + 1 })
            } else {
                globals + 1
            };
            assert_eq!(cost(&*code, block), expected, "{name} b{block}");
        }
        distance_is_exact(&*code);
    }
}

#[test]
fn replication_reads_one_block() {
    for n in [2, 3, 5, 255] {
        let code = parse(&format!("replication:n={n}")).unwrap();
        assert_eq!((code.k(), code.distance(), cost(&*code, n - 1), cost(&*code, 0)), (1, n, 1, 1));
    }
}

/// Sum of the repair costs of all blocks, by k: the paper's NRC.
fn normalised(name: &str) -> usize {
    let code = parse(name).unwrap();
    let sum: usize = (0..code.n()).map(|b| cost(&*code, b)).sum();
    assert_eq!(sum % code.k(), 0, "{name}");
    sum / code.k()
}

#[test]
fn repair_costs_of_the_paper_come_out() {
    assert_eq!(normalised("azure-lrc:n=10,k=6,r=3"), 6);
    assert_eq!(normalised("azure-lrc:n=11,k=6,r=2"), 5);
    assert_eq!(normalised("optimal-lrc:n=12,k=6,r=3"), 6);
    for code in shapes("azure-lrc", 12) {
        let locals = code.groups().len();
        assert!(
            (code.k() + locals..code.n()).all(|global| cost(&*code, global) == code.k()),
            "{}",
            code.name()
        );
    }
}

/// Every code of the families up to this many blocks, and all its losses of up to three blocks.
const SMALL: usize = 10;

#[test]
fn losses_are_decoded_when_and_only_when_rank_allows() {
    let families = ["azure-lrc", "azure-lrc-plus1", "xorbas", "optimal-lrc"];
    let mut codes: Vec<_> = families.iter().flat_map(|family| shapes(family, SMALL)).collect();
    codes.extend(["xorbas:n=16,k=10,r=5", "optimal-lrc:n=15,k=8,r=4"].map(|name| parse(name).unwrap()));
    for code in codes {
        let (n, k) = (code.n(), code.k());
        for (a, b, c) in (0..n).flat_map(|a| (a..n).flat_map(move |b| (b..n).map(move |c| (a, b, c)))) {
            let mut lost = vec![a, b, c];
            lost.dedup();
            let Some(graph) = decoded(&*code, &lost, &[]) else {
                assert!(lost.len() >= code.distance(), "{} {lost:?}", code.name());
                continue;
            };
            let local = |b: usize| {
                code.groups().iter().filter(|g| g.contains(&BlockIndex(b as u8))).map(Vec::len).max()
            };
            let locals: usize = lost.iter().filter_map(|&b| local(b)).sum();
            assert!(graph.leaves().len() <= locals + k, "{} {lost:?}", code.name());
        }
    }
}

#[test]
fn a_single_block_is_repaired_from_as_few_as_can_be() {
    let mut codes: Vec<_> =
        ["azure-lrc", "azure-lrc-plus1"].iter().flat_map(|family| shapes(family, 9)).collect();
    codes.extend(
        ["xorbas:n=12,k=8,r=4", "optimal-lrc:n=10,k=6,r=4", "optimal-lrc:n=9,k=4,r=2"]
            .map(|n| parse(n).unwrap()),
    );
    let mut chosen = 0;
    for code in codes {
        // Even if the definition omits groups, the same cheap repairs are found.
        let bare =
            from_generator("bare", code.n(), code.k(), 1, code.generator().clone(), Vec::new(), 2).unwrap();
        for (block, busy) in (0..code.n()).flat_map(|b| [(b, (b + 1) % code.n()), (b, (b + 4) % code.n())]) {
            let reads = decoded(&*bare, &[block], &[busy]).map(|graph| graph.leaves().len());
            assert_eq!(reads, fewest(&*code, block, &[busy]), "{} b{block} without b{busy}", code.name());
            chosen += usize::from(reads.is_some_and(|reads| reads < code.k()));
        }
    }
    assert!(chosen > 100, "{chosen}");
}

#[test]
fn a_repaired_block_helps_another_group_where_that_reads_less() {
    let code = parse("xorbas:n=16,k=10,r=5").unwrap();
    // b10 is the parity of b0..b4, and of a group with b11 and the global parities b12..b15.
    let graph = decoded(&*code, &[0, 10], &[]).unwrap();
    assert_eq!(graph.joins()[&Vertex(10)].children, [11, 12, 13, 14, 15].map(Vertex));
    assert_eq!(graph.joins()[&Vertex(0)].children, [1, 2, 3, 4, 10].map(Vertex));
    assert_eq!(graph.leaves().len(), 9);
    // Repairing b0, b5 and b12 from their groups would cost as much as from any ten blocks.
    let graph = decoded(&*code, &[0, 10, 12, 5], &[]).unwrap();
    assert_eq!(graph.leaves().len(), 10);
    // Of its two groups b10 takes the smaller one.
    let code = parse("xorbas:n=12,k=8,r=4").unwrap();
    assert_eq!(decoded(&*code, &[8], &[]).unwrap().leaves(), [9, 10, 11].map(Vertex));
}

#[test]
fn shapes_that_are_not_covered_are_refused_with_the_reason() {
    for (name, expected) in [
        ("optimal-lrc:n=13,k=6,r=3", "n mod (r + 1) other than 1"),
        ("optimal-lrc:n=8,k=6,r=3", "global parity"),
        ("optimal-lrc:n=12,k=6,r=7", "r from 1 to k"),
        ("azure-lrc-plus1:n=9,k=6,r=3", "n - k - l >= 2"),
        ("xorbas:n=16,k=10,r=4", "k = 2r"),
        ("xorbas:n=18,k=10,r=5", "global parities"),
        ("replication:n=1", "n > k"),
    ] {
        let error = parse(name).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}
