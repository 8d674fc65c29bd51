//! DataNodes in maintenance: HDFS lists none of their blocks, whether they live or not, and counts on them to come back. So nobody
//! rebuilds these blocks until the maintenance ends, or an operator says so.

use serde_json::{Value, json};

use crate::blocks::stored;
use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, text, wait};
use crate::hazards::targets;

const PATH: &str = "/ec/file";

#[test]
#[ignore = "minutes: make test-hdfs"]
fn what_is_on_datanodes_in_maintenance_is_not_rebuilt() {
    let Some(mut hdfs) = Hdfs::start_maintained(8) else { return };
    let bytes = noise(12 * MIB, 81);
    hdfs.put("RS-3-2-1024k", 4 * MIB, &[(PATH, bytes.clone())]);
    one_process_asks_and_leaves_alone(&mut hdfs);
    a_coordinator_remembers_asks_and_waits(&mut hdfs);
    assert_eq!(hdfs.get_sha(PATH), sha256(&bytes));
    assert_eq!(hdfs.stock_sha(PATH), sha256(&bytes));
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
}

/// The indices of the blocks that were repaired.
fn indices(repaired: &Value) -> Vec<u64> {
    let blocks = repaired["blocks"].as_array().unwrap();
    blocks.iter().map(|block| block["index"].as_u64().unwrap()).collect()
}

fn one_process_asks_and_leaves_alone(hdfs: &mut Hdfs) {
    let [resting, lost] = [0, 1].map(|index| stored(hdfs, PATH, index).1);
    hdfs.maintain(&[resting]);
    hdfs.wait_missing(PATH, |missing| missing == 1);
    let status = hdfs.json(1, &["status", PATH]);
    let note = status["notes"][1].as_str().unwrap_or_default();
    assert!(note.contains("1 DataNodes are in maintenance"), "{status}");

    // It lives, and says what it has; and the block is read there to rebuild one that is lost.
    let alone = hdfs.json(0, &["repair", PATH]);
    assert_eq!((indices(&alone).len(), alone["resting"].as_array().unwrap().len()), (0, 1), "{alone}");
    hdfs.kill_datanode(lost);
    hdfs.wait_missing(PATH, |missing| missing == 2);
    let repaired = hdfs.json(0, &["repair", PATH]);
    assert_eq!(indices(&repaired), [1], "{repaired}");
    assert!(repaired["blocks"][0]["read"].as_array().unwrap().contains(&json!(0)), "{repaired}");
    hdfs.wait_missing(PATH, |missing| missing == 1);

    // It is down, and says nothing.
    hdfs.kill_datanode(resting);
    hdfs.wait_live();
    let before = hdfs.on_disks();
    let refused = hdfs.json(1, &["repair", PATH]);
    let why = refused["failed"][0].as_str().unwrap();
    assert!(
        why.contains("may be on DataNodes in maintenance") && why.contains("--despite-maintenance"),
        "{why}"
    );
    assert_eq!(hdfs.on_disks(), before);
    let said = text(&hdfs.kintsu(&["--user", "somebody", "status", PATH]));
    assert!(said.contains("only superusers of HDFS may ask"), "{said}");
    let repaired = hdfs.json(0, &["repair", PATH, "--despite-maintenance"]);
    assert_eq!((indices(&repaired), targets(hdfs, &repaired).len()), (vec![0], 1), "{repaired}");
    hdfs.wait_missing(PATH, |missing| missing == 0);

    hdfs.start_datanode(resting);
    hdfs.start_datanode(lost);
    hdfs.wait_live();
    hdfs.maintain(&[]);
    hdfs.wait_each_index_once(&[PATH]);
}

fn a_coordinator_remembers_asks_and_waits(hdfs: &mut Hdfs) {
    let [resting, first, second] = [0, 1, 2].map(|index| stored(hdfs, PATH, index).1);
    hdfs.maintain(&[resting]);
    hdfs.wait_missing(PATH, |missing| missing == 1);
    // It did not see the block listed, and asks the DataNode. That another one is rebuilt meanwhile shows that it works.
    let (watching, at) = coordinator(hdfs, "127.0.0.1:0");
    let agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(hdfs, &at, i)).collect();
    hdfs.kill_datanode(first);
    counted(&watching, 1);
    let note =
        watching.events("note").into_iter().find(|note| note["text"].to_string().contains("maintenance"));
    assert!(note.unwrap()["text"].to_string().contains(&hdfs.transfer(resting)));
    hdfs.kill_datanode(resting);
    wait("the DataNode in maintenance to be gone", || {
        watching.events("gone").iter().any(|gone| gone["datanode"] == json!(hdfs.transfer(resting)))
    });
    hdfs.wait_live();

    // One that is started while it is down can ask nobody.
    drop(watching);
    let (watching, _) = coordinator(hdfs, &at);
    hdfs.kill_datanode(second);
    counted(&watching, 2);

    // The maintenance ends, and it does not come back.
    hdfs.maintain(&[]);
    wait("the block to be counted", || watching.events("counted").len() == 2);
    assert_eq!(watching.events("counted")[1]["index"], json!(0));
    [resting, first, second].into_iter().for_each(|node| hdfs.start_datanode(node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[PATH]);
    drop(agents);
}

/// Waits until a block of this index is counted, and no other was rebuilt.
fn counted(watching: &Daemon, index: u8) {
    wait("the lost block to be counted", || !watching.events("counted").is_empty());
    for kind in ["staged", "counted"] {
        let others = watching.events(kind).into_iter().filter(|event| event["index"] != json!(index));
        assert_eq!(others.collect::<Vec<_>>(), Vec::<Value>::new(), "{kind}");
    }
}
