//! A code of Kintsu as a codec of a stock HDFS: its own clients write and read it, also degraded, and Kintsu repairs a lost
//! block from its local group.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use serde_json::json;

use crate::blocks::stored;
use crate::daemons::{Hdfs, MIB, fetched, noise, sha256, text, wait};

const POLICY: &str = "AZURE-LRC-N16-K12-R6-12-4-1024k";
const FILE: &str = "/lrc/file";
const SHORT: &str = "/lrc/short";

/// 16 for the blocks of a group, one to repair to.
const NODES: u32 = 17;

#[test]
#[ignore = "minutes: make test-hdfs"]
fn stock_clients_use_an_lrc_and_kintsu_repairs_it_from_six_blocks() {
    if !fetched() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    build(out.path());
    let jar = out.path().join("kintsu-hdfs-codec.jar");
    let Some(mut hdfs) = Hdfs::start_with(&jar, NODES, &[]) else { return };
    let files = [(FILE, noise(30 * MIB + 4321, 51)), (SHORT, noise(5 * MIB + 99, 52))];
    let policies = out.path().join("policies.xml");
    hdfs.stock(&["ec", "-addPolicies", "-policyFile", policies.to_str().unwrap()]);
    hdfs.stock(&["ec", "-enablePolicy", "-policy", POLICY]);
    hdfs.stock(&["fs", "-mkdir", "/lrc"]);
    hdfs.stock(&["ec", "-setPolicy", "-path", "/lrc", "-policy", POLICY]);
    hdfs.put_into("/lrc", 4 * MIB, &files);
    let read_by_all = |hdfs: &Hdfs| {
        for (path, bytes) in &files {
            assert_eq!(hdfs.stock_sha(path), sha256(bytes), "{path}");
            assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
        }
    };
    read_by_all(&hdfs);
    let verified = hdfs.json(0, &["verify"]);
    assert_eq!(
        (&verified["bad"], &verified["unproved"]),
        (&json!([]), &json!([])),
        "the jar's parity is Kintsu's"
    );

    // Two blocks of one local group: the local parity alone does not bring them back.
    let nodes = [8, 10].map(|index| stored(&hdfs, FILE, index).1);
    for node in nodes {
        hdfs.kill_datanode(node);
        read_by_all(&hdfs);
    }
    hdfs.start_datanode(nodes[1]);
    hdfs.wait_live();
    hdfs.wait_missing(FILE, |missing| missing == 1);
    one_block_is_repaired_from_six(&hdfs);
    hdfs.json(0, &["repair"]);
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    read_by_all(&hdfs);
    assert!(hdfs.stock(&["fsck", "/lrc"]).contains("is HEALTHY"));

    // It comes back, and another NameNode process reads the policy from its own log.
    hdfs.start_datanode(nodes[0]);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[FILE, SHORT]);
    hdfs.kill_namenode(1);
    hdfs.start_namenode(1);
    hdfs.wait_live();
    hdfs.stock(&["admin", "-safemode", "wait"]);
    hdfs.wait_each_index_once(&[FILE, SHORT]);
    read_by_all(&hdfs);
}

/// Builds the jar and the policies.
fn build(out: &Path) {
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/hdfs-codec.sh"));
    script.env("KINTSU_BIN", env!("CARGO_BIN_EXE_kintsu")).arg(out).arg("azure-lrc:n=16,k=12,r=6");
    let built = script.output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    assert!(text(&built).contains(POLICY), "{}", text(&built));
}

/// Block 8 is missing: of the group of blocks 6 to 11 and 15 the six others are read, and nothing else.
fn one_block_is_repaired_from_six(hdfs: &Hdfs) {
    let helpers = [6, 7, 9, 10, 11, 15];
    let mut before = hdfs.sent();
    wait("the DataNodes' counters to stand still", || {
        std::thread::sleep(Duration::from_secs(2));
        let earlier = std::mem::replace(&mut before, hdfs.sent());
        earlier == before
    });
    let repaired = hdfs.json(0, &["repair", FILE]);
    let block = &repaired["blocks"][0];
    assert_eq!((&block["index"], &block["read"]), (&json!(8), &json!(helpers)), "{repaired}");
    assert!(!block["handed_over"]["To"].is_null(), "{repaired}");
    let group = hdfs.groups(FILE).remove(0);
    // A DataNode counts checksums too: 4 bytes for 512.
    let counted = |bytes: u64| bytes + 4 * bytes.div_ceil(512);
    let bytes: u64 = helpers.iter().map(|index| counted(group.block_bytes(BlockIndex(*index)))).sum();
    let holders: BTreeSet<u32> = helpers.iter().map(|index| stored(hdfs, FILE, *index).1).collect();
    let since =
        || hdfs.sent().into_iter().map(|(i, sent)| (i, sent - before[&i])).filter(|(_, sent)| *sent > 0);
    wait("the DataNodes to count what they sent", || since().map(|(_, sent)| sent).sum::<u64>() >= bytes);
    assert_eq!(since().map(|(i, _)| i).collect::<BTreeSet<u32>>(), holders, "these DataNodes sent something");
    assert_eq!(since().map(|(_, sent)| sent).sum::<u64>(), bytes, "each of the six blocks once");
}
