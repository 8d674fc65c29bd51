//! What is refused, and with which error text.

use kintsu_algebra::{Matrix, exp, pow};
use kintsu_code::{Code, CodeError, families, from_generator, parse};
use kintsu_dag::BlockIndex;

fn refusal(name: &str) -> String {
    parse(name).expect_err(name).to_string()
}

#[test]
fn names_that_are_malformed_are_refused_in_these_words() {
    let cases = [
        ("rs:n=14,m=10", "invalid parameter of rs: expected one of n, k, matrix, got \"m\""),
        ("rs:n=14,k=10,n=15", "invalid parameter of rs: expected n once, got n=14 and n=15"),
        ("rs:n=14,k", "invalid parameter of rs: expected key=value, as in rs:n=14,k=10, got \"k\""),
        ("rs:n=14,k=10,", "invalid parameter of rs: expected key=value, as in rs:n=14,k=10, got \"\""),
        (
            "rs:n=14",
            "invalid code: expected a value for k (data blocks in a stripe), as in rs:n=14,k=10, got \"rs:n=14\"",
        ),
        ("rs:n=14,k=ten", "invalid k of rs: expected a number up to 255, got \"ten\""),
        ("rs:n=-3,k=1", "invalid n of rs: expected a number up to 255, got \"-3\""),
        (
            "rs:n=99999999999999999999,k=1",
            "invalid n of rs: expected a number up to 255, got \"99999999999999999999\"",
        ),
        ("rs:n=10,k=10", "invalid code shape: expected n > k, got n=10, k=10"),
        ("rs:n=256,k=10", "invalid code shape: expected n <= 255, got n=256, k=10"),
        ("rs:n=3,k=0", "invalid code shape: expected k >= 1, got n=3, k=0"),
        (
            "rs:n=9,k=6,matrix=random",
            "invalid matrix of rs: expected cauchy, vandermonde or isal, got \"random\"",
        ),
        ("azure-lrc:n=16,k=12,r=0", "invalid r of azure-lrc: expected 1 to k = 12, got 0"),
        ("azure-lrc:n=16,k=12,r=13", "invalid r of azure-lrc: expected 1 to k = 12, got 13"),
        (
            "azure-lrc:n=16,k=12,r=3",
            "invalid shape of azure-lrc: expected n - k - l >= 1 global parity, with l = ceil(k/r) = 4 \
             local ones, got n=16, k=12, r=3",
        ),
    ];
    for (name, words) in cases {
        assert_eq!(refusal(name), words);
    }
}

#[test]
fn an_unknown_family_is_refused_with_those_that_exist() {
    let known: Vec<_> = families().iter().map(|f| format!("{} ({})", f.name, f.example)).collect();
    for (name, got) in [("raid:n=4,k=2", "raid"), ("", "")] {
        let words = format!("invalid code family: expected one of {}, got \"{got}\"", known.join(", "));
        assert_eq!(refusal(name), words);
    }
    assert!(known.contains(&"rs (rs:n=14,k=10)".to_owned()), "{known:?}");
}

#[test]
fn an_isal_matrix_beyond_its_limits_is_refused_with_a_loss_or_for_its_size() {
    match parse("rs:n=25,k=20,matrix=isal") {
        Err(CodeError::Distance { claimed: 6, lost, .. }) => assert!(!lost.is_empty() && lost.len() <= 5),
        other => panic!("{other:?}"),
    }
    assert_eq!(parse("rs:n=255,k=252,matrix=isal").unwrap().distance(), 4);
    assert!(parse("rs:n=255,k=251,matrix=isal").is_err());
}

#[test]
fn names_are_canonical_and_shared() {
    let code = parse("rs:matrix=cauchy,k=010,n=14").unwrap();
    assert_eq!((code.name(), code.family()), ("rs:n=14,k=10", "rs"));
    assert_eq!(parse("rs:k=6,matrix=isal,n=9").unwrap().name(), "rs:n=9,k=6,matrix=isal");
    assert_eq!(parse("azure-lrc:r=6,k=12,n=16").unwrap().name(), "azure-lrc:n=16,k=12,r=6");
    let again = parse("rs:matrix=cauchy,k=010,n=14").unwrap();
    assert!(std::sync::Arc::ptr_eq(&code, &again));
    for family in families() {
        let code = parse(family.example).unwrap();
        assert_eq!((code.name(), code.family()), (family.example, family.name));
    }
}

#[test]
fn a_flood_of_names_does_not_spoil_the_cache() {
    for n in 4..=255 {
        for k in [2, 3] {
            assert_eq!(parse(&format!("rs:n={n},k={k}")).unwrap().n(), n);
        }
    }
}

fn systematic(n: usize, k: usize, f: impl Fn(usize, usize) -> u8) -> Matrix {
    Matrix::from_fn(n, k, |i, j| if i < k { u8::from(i == j) } else { f(i - k, j) })
}

#[test]
fn powers_of_p_plus_one_are_not_mds_for_nine_six() {
    let matrix = systematic(9, 6, |p, j| pow(p as u8 + 1, j));
    match from_generator("prototype", 9, 6, 1, matrix.clone(), Vec::new(), 4) {
        Err(error @ CodeError::Distance { .. }) => assert_eq!(
            error.to_string(),
            "prototype does not reach its distance: expected 4 (any 3 losses), got a matrix that cannot \
             decode the loss of b0, b1, b3"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(from_generator("prototype", 9, 6, 1, matrix, Vec::new(), 3).unwrap().distance(), 3);
}

#[test]
fn codes_as_data_are_checked_like_any_other() {
    let good = systematic(6, 4, |p, j| exp(p * j));
    let make = |n, k, w, matrix: &Matrix, groups: &[&[u8]], d| {
        let groups = groups.iter().map(|g| g.iter().copied().map(BlockIndex).collect()).collect();
        from_generator("mine", n, k, w, matrix.clone(), groups, d).map_err(|e| e.to_string())
    };
    let code = make(6, 4, 1, &good, &[&[0, 1, 2, 3, 4]], 3).unwrap();
    assert_eq!((code.family(), code.groups().len(), code.place().len()), ("mine", 1, 2));
    let refused = |result: Result<std::sync::Arc<dyn Code>, String>, words: &str| {
        let error = result.expect_err(words);
        assert!(error.contains(words), "{error:?} does not say {words:?}");
    };
    refused(make(6, 4, 2, &good, &[], 3), "expected (n * w) x (k * w) with n=6, k=4, w=2 >= 1, got 6 x 4");
    refused(make(6, 4, 0, &good, &[], 3), "w=0 >= 1");
    refused(make(4, 6, 1, &good, &[], 1), "n > k");
    refused(make(6, 4, 1, &good, &[], 4), "expected 1 to n - k + 1 = 3, got 4");
    refused(make(6, 4, 1, &good, &[], 0), "got 0");
    refused(make(6, 4, 1, &good, &[&[0, 1, 4]], 3), "each determined by the others, got b0, b1, b4");
    refused(make(6, 4, 1, &good, &[&[0, 0]], 3), "two or more distinct blocks");
    refused(make(6, 4, 1, &good, &[&[0]], 3), "two or more distinct blocks");
    refused(make(6, 4, 1, &good, &[&[0, 6]], 3), "blocks below n");
    let shuffled = good.select_rows([1, 0, 2, 3, 4, 5]);
    refused(make(6, 4, 1, &shuffled, &[], 3), "the identity on top, got row 0: [00, 01, 00, 00]");
    let hollow = systematic(6, 4, |p, _| p as u8);
    refused(make(6, 4, 1, &hollow, &[], 1), "got row 4 all zero");
    let wide = systematic(200, 100, |p, j| kintsu_algebra::inv((p + 100) as u8 ^ j as u8).unwrap());
    refused(make(200, 100, 1, &wide, &[], 101), "every loss pattern can be tried");
}

#[test]
fn losses_that_cannot_be_decoded_name_what_is_left_and_what_is_needed() {
    let blocks = |from: std::ops::Range<u8>| from.map(BlockIndex).collect::<Vec<_>>();
    let rs = parse("rs:n=9,k=6").unwrap();
    assert_eq!(
        rs.decode(&blocks(4..9), &blocks(0..2)).unwrap_err().to_string(),
        "cannot decode b0, b1: expected at least 1 more of b0, b1, b2, b3, got 5 left: b4, b5, b6, b7, b8"
    );
    // Group 1 whole: only blocks of group 0 (or globals) help.
    let lrc = parse("azure-lrc:n=16,k=12,r=6").unwrap();
    let left: Vec<_> = [blocks(4..12), blocks(13..16)].concat();
    assert_eq!(
        lrc.decode(&left, &blocks(0..4)).unwrap_err().to_string(),
        "cannot decode b0, b1, b2, b3: expected at least 2 more of b0, b1, b2, b3, b12, got 11 left: b4, b5, \
         b6, b7, b8, b9, b10, b11, b13, b14, b15"
    );
    let none = rs.decode(&[], &blocks(0..1)).unwrap_err().to_string();
    assert!(none.ends_with("got 0 left: none"), "{none}");
    let twice = rs.decode(&blocks(0..7), &blocks(6..8)).unwrap_err().to_string();
    assert_eq!(twice, "invalid blocks to decode: expected each block once, lost or available, got b6 twice");
    let far = rs.decode(&blocks(0..9), &blocks(9..10)).unwrap_err().to_string();
    assert_eq!(far, "invalid block to decode: expected one of b0 to b8, got b9");
}
