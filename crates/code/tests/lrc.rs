//! The locally repairable families: their distance is what they claim and no more, and every block is
//! repaired from what the family promises.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use kintsu_code::{Code, CodeError, from_generator, parse};
use kintsu_dag::BlockIndex;

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
