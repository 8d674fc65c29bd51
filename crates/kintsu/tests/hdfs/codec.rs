//! Codes of Kintsu as codecs of a stock HDFS: its own clients write and read them, also degraded, and Kintsu repairs a lost
//! block, that of an LRC from its local group. One of the codes is a user's own, as a cluster of Kintsu has it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use serde_json::json;

use crate::blocks::stored;
use crate::daemons::{Daemon, Hdfs, MIB, fetched, kintsu, noise, sha256, text, wait};

const POLICY: &str = "AZURE-LRC-N16-K12-R6-12-4-1024k";
const FILE: &str = "/lrc/file";
const SHORT: &str = "/lrc/short";

/// A code that no family here has, each of whose two parities has coefficients of its own.
const OWN: &str = r#"{"name": "user:mine", "n": 5, "k": 3, "w": 1, "distance": 3,
    "generator": ["010000", "000100", "000001", "010101", "010207"]}"#;
const OWN_POLICY: &str = "MINE-3-2-1024k";
const OWN_FILE: &str = "/mine/file";

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
    hdfs.stock(&["fs", "-mkdir", "/lrc", "/mine"]);
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
    a_code_of_a_user_is_written_read_and_repaired(&mut hdfs);
}

/// Builds the jar and the policies.
fn build(out: &Path) {
    let mut coordinator = kintsu();
    coordinator
        .args(["coordinator", "--no-page", "--listen", "127.0.0.1:0", "--dir"])
        .arg(out.join("kintsu"));
    let coordinator = Daemon::start(coordinator);
    let at = coordinator.lines.lock().unwrap()[0]["listen"].as_str().unwrap().to_owned();
    let own = out.join("mine.json");
    std::fs::write(&own, OWN).unwrap();
    let registered = kintsu().args(["--coordinator", &at, "code", "register"]).arg(own).output().unwrap();
    assert!(registered.status.success(), "{}", text(&registered));
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/hdfs-codec.sh"));
    script.env("KINTSU_BIN", env!("CARGO_BIN_EXE_kintsu")).env("KINTSU_COORDINATOR", at);
    let built = script.arg(out).args(["azure-lrc:n=16,k=12,r=6", "user:mine"]).output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    let said = text(&built);
    assert!(said.contains(POLICY) && said.contains(OWN_POLICY), "{said}");
}

/// The cluster of Kintsu that has the code is gone: the policy says it.
fn a_code_of_a_user_is_written_read_and_repaired(hdfs: &mut Hdfs) {
    let file = (OWN_FILE, noise(9 * MIB + 55, 53));
    hdfs.stock(&["ec", "-enablePolicy", "-policy", OWN_POLICY]);
    hdfs.stock(&["ec", "-setPolicy", "-path", "/mine", "-policy", OWN_POLICY]);
    hdfs.put_into("/mine", 4 * MIB, std::slice::from_ref(&file));
    let verified = hdfs.json(0, &["verify", OWN_FILE]);
    assert_eq!((&verified["bad"], &verified["unproved"]), (&json!([]), &json!([])), "{verified}");
    let (_, node, _) = stored(hdfs, OWN_FILE, 1);
    hdfs.kill_datanode(node);
    assert_eq!(hdfs.stock_sha(OWN_FILE), sha256(&file.1));
    assert_eq!(hdfs.get_sha(OWN_FILE), sha256(&file.1));
    hdfs.wait_live();
    hdfs.wait_missing(OWN_FILE, |missing| missing == 1);
    let repaired = hdfs.json(0, &["repair", OWN_FILE]);
    assert_eq!(repaired["blocks"][0]["proved"], json!(true), "{repaired}");
    assert_eq!(hdfs.json(0, &["verify", OWN_FILE])["bad"], json!([]));
    hdfs.start_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[OWN_FILE]);
    assert_eq!(hdfs.stock_sha(OWN_FILE), sha256(&file.1));
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
