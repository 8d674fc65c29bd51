//! Clay codes: repairs read d/q of a block from helpers, and every loss of up to n - k blocks is decoded.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use kintsu_code::{Code, CodeError, parse};
use kintsu_dag::BlockIndex;

fn blocks(range: impl IntoIterator<Item = usize>) -> Vec<BlockIndex> {
    range.into_iter().map(|b| BlockIndex(b as u8)).collect()
}

fn others(code: &dyn Code, lost: &[usize]) -> Vec<BlockIndex> {
    blocks((0..code.n()).filter(|b| !lost.contains(b)))
}

/// Decodes, proves, and returns the symbols read of each block read.
fn decoded(code: &dyn Code, available: &[BlockIndex], lost: &[usize]) -> Vec<usize> {
    let graph = code.decode(available, &blocks(lost.iter().copied())).unwrap();
    graph.prove(code.generator()).unwrap();
    assert_eq!(graph.targets().len(), lost.len() * code.w());
    let mut read = vec![0; code.n()];
    graph.leaves().iter().for_each(|leaf| read[leaf.0 as usize / code.w()] += 1);
    read.retain(|&symbols| symbols > 0);
    read
}

#[test]
fn a_repair_reads_the_qth_part_of_d_helpers() {
    for (n, k, d, w) in [
        (4, 2, 3, 4),
        (5, 3, 4, 8),
        (6, 4, 5, 8),
        (6, 3, 4, 8),
        (6, 3, 5, 9),
        (7, 4, 5, 16),
        (7, 4, 6, 27),
        (9, 6, 8, 27),
        (14, 10, 13, 256),
    ] {
        let code = parse(&format!("clay:n={n},k={k},d={d}")).unwrap();
        assert_eq!((code.w(), code.distance()), (w, n - k + 1));
        for lost in 0..n {
            let read = decoded(&*code, &others(&*code, &[lost]), &[lost]);
            assert_eq!(read, vec![w / (d - k + 1); d], "{} b{lost}", code.name());
        }
    }
}

#[test]
fn every_loss_of_small_codes_is_decoded_from_k_blocks() {
    for name in [
        "clay:n=3,k=1,d=2",
        "clay:n=4,k=2,d=3",
        "clay:n=5,k=3,d=4",
        "clay:n=6,k=4,d=5",
        "clay:n=6,k=3,d=4",
        "clay:n=6,k=3,d=5",
        "clay:n=9,k=6,d=8",
    ] {
        let code = parse(name).unwrap();
        let (n, k) = (code.n(), code.k());
        for pattern in 0u32..1 << n {
            let lost: Vec<usize> = (0..n).filter(|b| pattern >> b & 1 == 1).collect();
            if (2..=n - k).contains(&lost.len()) {
                assert!(decoded(&*code, &others(&*code, &lost), &lost).len() <= k, "{name} without {lost:?}");
                assert!(code.recoverable(&blocks(lost)));
            } else if lost.len() > n - k {
                let refused = code.decode(&others(&*code, &lost), &blocks(lost.iter().copied()));
                assert!(matches!(refused, Err(CodeError::Unrecoverable { .. })), "{refused:?}");
                assert!(!code.recoverable(&blocks(lost)));
            }
        }
    }
}

#[test]
fn a_repair_asks_other_helpers_or_decodes_when_some_are_missing() {
    let code = parse("clay:n=6,k=3,d=4").unwrap();
    // Not b5; then not b1, of the lost block's column.
    assert_eq!(decoded(&*code, &blocks([4, 3, 2, 1]), &[0]), [4; 4]);
    assert_eq!(decoded(&*code, &blocks([5, 4, 3, 2]), &[0]), [8; 3]);
    assert!(decoded(&*code, &blocks([5, 4, 2]), &[0]).len() == 3);
}

/// A repair needs the other blocks of the lost block's column of the grid, and uses any further ones.
#[test]
fn any_choice_of_d_helpers_with_the_column_among_them_repairs() {
    for (n, k, d) in [(6usize, 3, 4), (7, 4, 5), (8, 4, 6)] {
        let code = parse(&format!("clay:n={n},k={k},d={d}")).unwrap();
        let q = d - k + 1;
        let virtual_nodes = n.div_ceil(q) * q - n;
        let column = |b: usize| if b < k { b / q } else { (b + virtual_nodes) / q };
        for lost in 0..n {
            for chosen in (0u32..1 << n).filter(|c| c.count_ones() as usize == d && c >> lost & 1 == 0) {
                let (helpers, unasked): (Vec<_>, Vec<_>) =
                    (0..n).filter(|&b| b != lost).partition(|&b| chosen >> b & 1 == 1);
                let whole = unasked.iter().all(|&b| column(b) != column(lost));
                let expected = if whole { vec![code.w() / q; d] } else { vec![code.w(); k] };
                assert_eq!(decoded(&*code, &blocks(helpers), &[lost]), expected, "{} b{lost}", code.name());
            }
        }
    }
}

#[test]
fn some_losses_of_the_large_code_are_decoded() {
    let code = parse("clay:n=14,k=10,d=13").unwrap();
    for lost in [vec![0, 13], vec![1, 2, 3], vec![10, 11, 12, 13], vec![0, 5, 9, 12]] {
        assert_eq!(decoded(&*code, &others(&*code, &lost), &lost), [256; 10], "{lost:?}");
    }
    assert_eq!(decoded(&*code, &others(&*code, &[3, 4])[..10], &[3]).len(), 10);
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_the_reason() {
    for (name, expected) in [
        ("clay:n=6,k=4,d=4", "d from k + 1 = 5 to n - 1 = 5"),
        ("clay:n=6,k=4,d=6", "d from k + 1 = 5 to n - 1 = 5"),
        ("clay:n=20,k=16,d=19", "at most 256 sub-blocks"),
    ] {
        let error = parse(name).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}
