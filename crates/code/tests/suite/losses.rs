//! Every code over all losses up to its claim and beyond: decoding agrees with rank, every graph is proved, and no
//! graph reads more than it should.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use kintsu_code::{Code, CodeError, parse};
use kintsu_dag::{BlockIndex, Ecdag, Vertex};
use proptest::prelude::*;

/// All shapes up to n = 12 and chosen ones up to n = 16, of every family and matrix.
static CODES: LazyLock<Vec<Arc<dyn Code>>> = LazyLock::new(|| {
    let mut names = vec!["rs:n=16,k=12".to_owned(), "rs:n=14,k=10,matrix=vandermonde".into()];
    names
        .extend(["rs:n=16,k=8", "rs:n=14,k=10", "rs:n=14,k=10,matrix=isal", "rs:n=15,k=2"].map(String::from));
    for n in 2..=9 {
        for k in 1..n {
            for matrix in ["cauchy", "vandermonde", "isal"] {
                names.push(format!("rs:n={n},k={k},matrix={matrix}"));
            }
        }
    }
    for n in 3..=12usize {
        for k in 1..n - 1 {
            let fits = |r: &usize| k.div_ceil(*r) < n - k;
            names.extend((1..=k).filter(fits).map(|r| format!("azure-lrc:n={n},k={k},r={r}")));
        }
    }
    names.extend(
        ["16,k=12,r=6", "16,k=10,r=5", "15,k=10,r=4", "16,k=9,r=3"].map(|s| format!("azure-lrc:n={s}")),
    );
    let made = names.iter().map(|name| parse(name).unwrap_or_else(|e| panic!("{name}: {e}")));
    made.collect()
});

fn blocks(mask: u32) -> Vec<BlockIndex> {
    (0..32u8).filter(|b| mask >> b & 1 == 1).map(BlockIndex).collect()
}

/// All masks of n bits with exactly `ones` ones.
fn masks(n: usize, ones: usize) -> impl Iterator<Item = u32> {
    (0..1u32 << n).filter(move |m| m.count_ones() as usize == ones)
}

fn read(code: &dyn Code, graph: &Ecdag) -> BTreeSet<BlockIndex> {
    graph.leaves().iter().map(|v| BlockIndex((v.0 as usize / code.w()) as u8)).collect()
}

/// Checks a decode graph against everything its contract says of any graph.
fn check(code: &dyn Code, graph: &Ecdag, available: &[BlockIndex], lost: &[BlockIndex]) {
    let shown = || format!("{} loses {lost:?} with {available:?}: {graph:?}", code.name());
    graph.prove(code.generator()).unwrap_or_else(|e| panic!("{e}: {}", shown()));
    let w = code.w() as u32;
    let wanted: BTreeSet<_> =
        lost.iter().flat_map(|b| u32::from(b.0) * w..(u32::from(b.0) + 1) * w).collect();
    assert_eq!(graph.targets().iter().map(|v| v.0).collect::<BTreeSet<_>>(), wanted, "{}", shown());
    assert!(read(code, graph).iter().all(|b| available.contains(b)), "{}", shown());
    assert!(graph.joins().values().all(|j| j.coefs.iter().all(|&c| c != 0)), "{}", shown());
    assert!(graph.binds_x().is_empty() && graph.binds_y().is_empty(), "{}", shown());
    if code.family() == "rs" && !lost.is_empty() {
        let first: BTreeSet<_> = available[..code.k()].iter().copied().collect();
        assert_eq!(read(code, graph), first, "{}", shown());
    }
}

#[test]
fn every_loss_up_to_the_claim_is_decoded_and_proved() {
    for code in CODES.iter() {
        let all = (1u32 << code.n()) - 1;
        for losses in 0..code.distance() {
            for mask in masks(code.n(), losses) {
                let (lost, left) = (blocks(mask), blocks(all & !mask));
                let graph = code.decode(&left, &lost).unwrap_or_else(|e| panic!("{}: {e}", code.name()));
                check(code.as_ref(), &graph, &left, &lost);
            }
        }
    }
}

#[test]
fn the_claim_is_the_true_distance() {
    for code in CODES.iter().filter(|c| c.n() <= 12) {
        let fatal = masks(code.n(), code.distance()).any(|mask| !code.recoverable(&blocks(mask)));
        assert!(fatal, "{} bears more than it claims", code.name());
    }
}

/// Losses that no coefficients could decode: beyond one loss for each group, each further loss needs a global
/// parity.
fn hopeless(code: &dyn Code, mask: u32) -> bool {
    let groups = code.groups();
    let locals: usize = groups.iter().map(|g| g.iter().filter(|b| mask >> b.0 & 1 == 1).count().min(1)).sum();
    mask.count_ones() as usize - locals > code.n() - code.k() - groups.len()
}

#[test]
fn azure_lrc_with_up_to_two_globals_or_more_data_than_parity_decodes_all_that_can_be_decoded() {
    let lrcs = CODES.iter().filter(|c| c.family() == "azure-lrc");
    for code in lrcs.filter(|c| c.n() - c.k() - c.groups().len() <= 2 || c.n() <= 2 * c.k()) {
        let most = if code.n() <= 10 { code.n() } else { 4 };
        for mask in (0..=most).flat_map(|losses| masks(code.n(), losses)) {
            let lost = blocks(mask);
            assert_eq!(code.recoverable(&lost), !hopeless(code.as_ref(), mask), "{} {lost:?}", code.name());
        }
    }
}

#[test]
fn azure_lrc_16_12_6_decodes_every_decodable_loss_of_four() {
    let code = parse("azure-lrc:n=16,k=12,r=6").unwrap();
    assert_eq!(code.distance(), 4);
    let mut decoded = 0;
    for mask in masks(16, 4) {
        let (lost, left) = (blocks(mask), blocks(0xffff & !mask));
        let result = code.decode(&left, &lost);
        assert_eq!(result.is_ok(), !hopeless(code.as_ref(), mask), "{lost:?}");
        if let Ok(graph) = result {
            check(code.as_ref(), &graph, &left, &lost);
            assert!(read(code.as_ref(), &graph).len() <= 12);
            decoded += 1;
        }
    }
    // Of C(16,4) = 1820: less 2 C(7,4), 2 C(7,3) with a global, 2 C(7,2) with both.
    assert_eq!(decoded, 1820 - 70 - 140 - 42);
}

#[test]
fn a_loss_inside_one_group_reads_that_group_only_whatever_the_preference() {
    let code = parse("azure-lrc:n=16,k=12,r=6").unwrap();
    let groups = code.groups();
    for group in &groups {
        for &lost in group {
            let mut left: Vec<_> = (0..16).map(BlockIndex).filter(|&b| b != lost).collect();
            left.sort_by_key(|b| group.contains(b));
            let graph = code.decode(&left, &[lost]).unwrap();
            let others: BTreeSet<_> = group.iter().copied().filter(|&b| b != lost).collect();
            assert_eq!(read(code.as_ref(), &graph), others);
            assert!(graph.joins().values().all(|j| j.coefs.iter().all(|&c| c == 1)), "local repair is XOR");
        }
    }
    // One loss in each group, and a global: both groups locally, the global from the same twelve blocks.
    let lost = [0, 6, 15].map(BlockIndex);
    let left: Vec<_> = (0..16).rev().map(BlockIndex).filter(|b| !lost.contains(b)).collect();
    let graph = code.decode(&left, &lost).unwrap();
    check(code.as_ref(), &graph, &left, &lost);
    assert_eq!(graph.joins()[&Vertex(0)].children.len(), 6);
    assert_eq!(graph.joins()[&Vertex(6)].children.len(), 6);
    assert!(!read(code.as_ref(), &graph).contains(&BlockIndex(14)));
    assert_eq!(read(code.as_ref(), &graph).len(), 12);
}

#[test]
fn groups_are_uneven_at_the_end_and_places_are_a_partition() {
    let code = parse("azure-lrc:n=13,k=8,r=3").unwrap();
    let sizes: Vec<_> = code.groups().iter().map(Vec::len).collect();
    assert_eq!(sizes, [4, 4, 3]);
    assert_eq!(code.place().last().unwrap(), &[11, 12].map(BlockIndex));
    for code in CODES.iter() {
        let mut placed: Vec<_> = code.place().concat().iter().map(|b| usize::from(b.0)).collect();
        placed.sort_unstable();
        assert_eq!(placed, (0..code.n()).collect::<Vec<_>>(), "{}", code.name());
    }
    assert_eq!(parse("rs:n=9,k=6").unwrap().place().len(), 1);
    assert!(parse("rs:n=9,k=6").unwrap().groups().is_empty());
}

#[test]
fn encode_graphs_prove_and_bind_parities_of_equal_children() {
    for code in CODES.iter() {
        let graph = code.encode();
        graph.prove(code.generator()).unwrap();
        let parities: Vec<_> = (code.k()..code.n()).map(|b| Vertex(b as u32)).collect();
        assert_eq!(graph.targets(), parities, "{}", code.name());
        if code.family() == "rs" && code.n() - code.k() > 1 {
            assert_eq!(graph.binds_x().len(), 1);
            assert_eq!(graph.binds_x()[0].members, parities);
        }
    }
    let lrc = parse("azure-lrc:n=16,k=12,r=6").unwrap().encode();
    assert_eq!(lrc.binds_x().len(), 1, "the globals share all data, the locals share nothing");
    assert_eq!(lrc.binds_x()[0].members, [Vertex(14), Vertex(15)]);
    assert_eq!(lrc.joins()[&Vertex(12)].children.len(), 6);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..Default::default() })]

    /// A block is lost, available, or neither (its node is busy); available blocks come in any order.
    #[test]
    fn decoding_succeeds_exactly_when_rank_allows(
        pick in any::<prop::sample::Index>(),
        fate in prop::collection::vec((0u8..5, any::<u32>()), 16),
    ) {
        let code = pick.get(&CODES).as_ref();
        let of = |fates: std::ops::Range<u8>| {
            let mut of: Vec<_> = (0..code.n()).filter(|&b| fates.contains(&fate[b].0)).collect();
            of.sort_by_key(|&b| fate[b].1);
            of.into_iter().map(|b| BlockIndex(b as u8)).collect::<Vec<_>>()
        };
        let (lost, left) = (of(0..1), of(2..5));
        let rank = |blocks: &[BlockIndex]| {
            code.generator().select_rows(blocks.iter().map(|b| usize::from(b.0))).rank()
        };
        let short = rank(&[left.clone(), lost.clone()].concat()) - rank(&left);
        match code.decode(&left, &lost) {
            Ok(graph) => {
                prop_assert_eq!(short, 0);
                check(code, &graph, &left, &lost);
            }
            Err(CodeError::Unrecoverable { lost: named, available, needed, missing }) => {
                prop_assert!(short > 0 && missing == short, "{} for {}", missing, short);
                prop_assert!(named.iter().all(|b| lost.contains(b)));
                prop_assert_eq!(&available, &left);
                prop_assert!(needed.len() >= missing && needed.iter().all(|b| !left.contains(b)));
                let helped = [left, needed].concat();
                prop_assert_eq!(rank(&[helped.clone(), lost].concat()), rank(&helped));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
        let gone = of(0..2);
        let whole = of(2..5);
        prop_assert_eq!(code.recoverable(&gone), code.decode(&whole, &gone).is_ok());
    }
}
