//! Rot on disks: the next read, repair or scrub that touches it finds it; the data is right, and the block is
//! repaired.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::path::Path;

use cluster::{Cluster, flip, sha256, wait};
use serde_json::Value;

fn path(block: &Value) -> &Path {
    Path::new(block["path"].as_str().unwrap())
}

/// Reads an object until the block's file has these bytes behind its header again. Whoever met the rot reports it a moment later; on a
/// loaded machine a read may do without the block's node.
fn read_until_repaired(cluster: &Cluster, (name, expected): (&str, &str), index: u64, sound: &[u8]) {
    wait("the rotten block to be repaired", || {
        assert_eq!(cluster.get_sha(name), expected, "{name} block {index}");
        let blocks = cluster.blocks(name);
        let block =
            blocks.iter().find(|b| b["index"] == index && b["stripe"] == blocks[0]["stripe"]).unwrap();
        block["lost"] == false
            && std::fs::read(path(block)).is_ok_and(|bytes| bytes.get(4096..) == Some(&sound[4096..]))
    });
    cluster.wait_whole();
    let report = cluster.json(&["scrub"]);
    assert_eq!(report["bad"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn a_flipped_byte_is_found_by_a_read_and_repaired() {
    let cluster = Cluster::start(9, 3);
    let file = cluster.file("object", 3_000_000);
    let expected = sha256(&file);
    for (name, code) in [("rs", "rs:n=6,k=4"), ("lrc", "azure-lrc:n=9,k=4,r=2")] {
        cluster.put(&file, name, &["--code", code]);
        for index in 0..4 {
            let block = &cluster.blocks(name)[index];
            let digest = block["checksum"].clone();
            let sound = std::fs::read(path(block)).unwrap();
            flip(path(block), sound.len() as u64 / 2);
            read_until_repaired(&cluster, (name, &expected), index as u64, &sound);
            assert_eq!(cluster.blocks(name)[index]["checksum"], digest);
        }
    }
}

#[test]
fn scrub_finds_flips_truncation_and_missing_files_and_repairs_them() {
    let cluster = Cluster::start(10, 5);
    let file = cluster.file("object", 5_000_000);
    let expected = sha256(&file);
    cluster.put(&file, "object", &["--code", "rs:n=9,k=6"]);
    let blocks = cluster.blocks("object");
    let parity = path(&blocks[8]);
    flip(parity, std::fs::metadata(parity).unwrap().len() - 1);
    std::fs::remove_file(path(&blocks[2])).unwrap();
    let cut = std::fs::OpenOptions::new().write(true).open(path(&blocks[4])).unwrap();
    cut.set_len(100_000).unwrap();
    let report = cluster.json(&["scrub"]);
    assert_eq!(report["bad"].as_array().unwrap().len(), 3, "{report}");
    cluster.wait_whole();
    let again = cluster.json(&["scrub"]);
    assert_eq!((again["bad"].as_array().unwrap().len(), &again["blocks_checked"]), (0, &9.into()), "{again}");
    assert_eq!(cluster.get_sha("object"), expected);
}

#[test]
fn a_repair_that_meets_rot_avoids_it_and_repairs_both() {
    let mut cluster = Cluster::start(13, 1);
    let file = cluster.file("object", 6_000_000);
    let expected = sha256(&file);
    let rot = |block: &Value| flip(path(block), std::fs::metadata(path(block)).unwrap().len() / 2);
    let node = |block: &Value| block["node"].as_u64().unwrap() as u32;
    // Block 0 of the LRC is repaired from blocks 1 and 2 and their parity alone, so its repair must meet the rot.
    cluster.put(&file, "lrc", &["--code", "azure-lrc:n=10,k=6,r=3"]);
    let blocks = cluster.blocks("lrc");
    let lost = node(&blocks[0]);
    rot(&blocks[1]);
    // Of RS, rot in two of the blocks that are left: the repair may happen to choose six others, and then a scrub
    // finds both.
    cluster.put(&file, "rs", &["--code", "rs:n=9,k=6"]);
    let others: Vec<Value> =
        cluster.blocks("rs").into_iter().filter(|block| node(block) != lost).take(2).collect();
    others.iter().for_each(rot);
    cluster.kill(lost);
    cluster.wait_dead(1);
    let report = cluster.json(&["repair", "--node", &lost.to_string(), "--method", "pipeline"]);
    let stripe = blocks[0]["stripe"].as_u64();
    let met = |bad: &Value| bad["id"]["stripe"].as_u64() == stripe && bad["id"]["index"] == 1;
    assert!(report["bad"].as_array().unwrap().iter().any(met), "{report}");
    cluster.json(&["scrub"]);
    cluster.wait_whole();
    assert_eq!(cluster.json(&["scrub"])["bad"].as_array().unwrap().len(), 0);
    for name in ["lrc", "rs"] {
        assert_eq!(cluster.get_sha(name), expected, "{name}");
    }
}

#[test]
fn every_pattern_of_three_losses_of_azure_lrc_16_12_6_is_read_and_repaired() {
    let cluster = Cluster::start(20, 5);
    let file = cluster.file("object", 12 * 16 * 1024 - 7);
    let expected = sha256(&file);
    cluster.put(&file, "object", &["--code", "azure-lrc:n=16,k=12,r=6", "--cell", "4KiB"]);
    let methods = ["conventional", "ppr", "pipeline"];
    let mut count = 0;
    for a in 0..16 {
        for b in a + 1..16 {
            for c in b + 1..16 {
                let blocks = cluster.blocks("object");
                for lost in [a, b, c] {
                    std::fs::remove_file(path(&blocks[lost])).unwrap();
                }
                assert_eq!(cluster.get_sha("object"), expected, "blocks {a}, {b}, {c} lost");
                // The read found only rot in blocks that it needed; a scrub finds the rest.
                cluster.json(&["scrub"]);
                cluster.json(&["repair", "--object", "object", "--method", methods[count % 3]]);
                cluster.wait_whole();
                count += 1;
            }
        }
    }
    assert_eq!(count, 560);
}
