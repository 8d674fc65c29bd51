//! Stripes of fixed inputs, kept for ever: this version must read what an earlier version wrote.
//!
//! `golden/v1/NAME.txt` holds the n blocks of the code NAME (its first line) in hexadecimal, one a line. A code's
//! bytes never change under its name. The blocks of a new family are written with
//! `KINTSU_GOLDEN=write cargo test -p kintsu-code --test suite golden`, which never changes an existing file.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::support;

use std::fs;
use std::path::PathBuf;

use kintsu_code::{Code, families, parse};
use kintsu_dag::BlockIndex;
use support::{data, encode, hex, run};

/// Bytes of a sub-block.
const SUB_BYTES: usize = 4;

/// Further matrices, coefficients and shapes, besides the example of each family.
const MORE: [&str; 11] = [
    "rs:n=9,k=6",
    "rs:n=9,k=6,matrix=vandermonde",
    "rs:n=9,k=6,matrix=isal",
    "azure-lrc:n=10,k=6,r=3",
    "azure-lrc:n=14,k=10,r=6",
    "azure-lrc:n=15,k=10,r=5",
    "azure-lrc:n=36,k=32,r=16",
    "azure-lrc-plus1:n=11,k=6,r=3",
    "azure-lrc-plus1:n=12,k=6,r=2,matrix=searched",
    "optimal-lrc:n=12,k=6,r=3",
    "clay:n=6,k=4,d=5",
];

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "golden", "v1"].iter().collect()
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{}.txt", name.replace([':', ','], "_")))
}

#[test]
fn every_family_still_writes_the_blocks_it_always_wrote() {
    for name in families().iter().map(|family| family.example).chain(MORE) {
        let code = parse(name).unwrap();
        let blocks = encode(&*code, &data(&*code, SUB_BYTES));
        let text: Vec<_> = [name.to_owned()].into_iter().chain(blocks.iter().map(|b| hex(b))).collect();
        let text = text.join("\n") + "\n";
        let path = path(name);
        if !path.exists() && std::env::var("KINTSU_GOLDEN").as_deref() == Ok("write") {
            fs::write(&path, &text).unwrap();
        }
        let kept = fs::read_to_string(&path)
            .unwrap_or_else(|e| panic!("{name}: {e}; the head of this file says how to write it"));
        assert!(kept == text, "{name} has other bytes than {}", path.display());
    }
}

#[test]
fn blocks_of_all_versions_are_read_whichever_blocks_are_lost() {
    let mut stripes = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let mut lines = text.lines();
        let code = parse(lines.next().unwrap()).unwrap();
        let blocks: Vec<_> = lines.map(unhex).collect();
        assert_eq!(blocks.len(), code.n(), "{}", code.name());
        for first in 0..code.n() {
            check(&*code, &blocks, &[first]);
            // As many consecutive blocks as the code can lose, at any position.
            let run: Vec<_> = (0..code.distance() - 1).map(|i| (first + i) % code.n()).collect();
            check(&*code, &blocks, &run);
        }
        stripes += 1;
    }
    assert!(stripes >= families().len(), "{stripes} stripes are kept");
}

fn check(code: &dyn Code, blocks: &[Vec<u8>], lost: &[usize]) {
    let index = |b: usize| BlockIndex(b as u8);
    let there = |b: &usize| !lost.contains(b);
    let available: Vec<_> = (0..code.n()).filter(there).map(index).collect();
    let graph = code.decode(&available, &lost.iter().map(|&b| index(b)).collect::<Vec<_>>()).unwrap();
    let left: Vec<_> = blocks.iter().enumerate().map(|(b, block)| there(&b).then(|| block.clone())).collect();
    let decoded = run(&graph, code.w(), &left, blocks[0].len());
    for &b in lost {
        assert_eq!(decoded[&index(b)], blocks[b], "{} without {lost:?}", code.name());
    }
}

/// The bytes of a text in hexadecimal.
fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().map(|c| c.to_digit(16).expect("a hexadecimal digit")).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
