//! What not all files of an HDFS have: other units under a checksum, encryption, and a copy that goes bad on its disk.

use serde_json::json;

use crate::blocks::{flip, stored};
use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, text, wait};
use crate::hazards::lose;

/// Its checksums are over 4096 bytes each.
const UNITS: &str = "/ec/units";

/// It is in an encryption zone.
const SECRET: &str = "/zone/secret";

#[test]
#[ignore = "minutes: make test-hdfs"]
fn odd_files_are_repaired_as_they_are() {
    let Some(mut hdfs) = Hdfs::start_with_key(7) else { return };
    let files = [(UNITS, noise(9 * MIB + 5, 91)), (SECRET, noise(5 * MIB, 92))];
    hdfs.put("RS-3-2-1024k", 4 * MIB, &[("/ec/other", noise(MIB, 90))]);
    hdfs.put_with("dfs.bytes-per-checksum=4096", "/ec", &files[..1]);
    hdfs.make_zone("/zone");
    hdfs.stock(&["ec", "-setPolicy", "-path", "/zone", "-policy", "RS-3-2-1024k"]);
    hdfs.put_into("/zone", 4 * MIB, &files[1..]);
    hdfs.wait_each_index_once(&[UNITS, SECRET]);
    let checksum = hdfs.stock(&["fs", "-checksum", UNITS]);
    assert!(checksum.contains("4096CRC32C"), "{checksum}");
    let refused = text(&hdfs.kintsu(&["get", SECRET, "-"]));
    assert!(refused.contains("expected a file outside encryption zones"), "{refused}");

    // By one process: a data block, so that HDFS computes its checksum from what was written.
    let lost = lose(&mut hdfs, UNITS, 1);
    let repaired = hdfs.json(0, &["repair"]);
    assert_eq!(repaired["failed"], json!([]), "{repaired}");
    hdfs.wait_missing(SECRET, |missing| missing == 0);
    assert_eq!(hdfs.stock(&["fs", "-checksum", UNITS]), checksum);
    hdfs.start_datanode(lost);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[UNITS, SECRET]);

    // By agents, one of which finds a changed byte when it reads for that.
    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();
    let (rotten, node, group) = stored(&hdfs, UNITS, 0);
    flip(&rotten, 1_500_000);
    let lost = lose(&mut hdfs, UNITS, 2);
    let events = |kind: &str, index: u8| {
        let mut events = watching.events(kind);
        events.retain(|event| event["group"] == json!(group) && event["index"] == json!(index));
        events
    };
    wait("the lost block to be counted", || !events("counted", 2).is_empty());
    wait("the changed block to be found", || !events("wrong", 0).is_empty());
    assert_eq!(events("wrong", 0)[0]["datanode"], json!(hdfs.transfer(node)));
    wait("its copy to be counted", || !events("counted", 0).is_empty());
    assert_eq!(events("reported", 0).len(), 1, "the NameNode is told once");
    assert_eq!(events("counted", 0)[0]["proved"], json!(true));
    assert_ne!(events("counted", 0)[0]["datanode"], json!(hdfs.transfer(node)));
    drop(agents);
    hdfs.start_datanode(lost);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[UNITS, SECRET]);
    assert_eq!(hdfs.stock(&["fs", "-checksum", UNITS]), checksum);
    let verified = hdfs.json(0, &["verify"]);
    assert_eq!((&verified["bad"], &verified["skipped"]), (&json!([]), &json!([])), "{verified}");
    for (path, bytes) in &files {
        assert_eq!(hdfs.stock_sha(path), sha256(bytes), "{path}");
    }
}
