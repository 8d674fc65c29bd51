//! Agents and a coordinator beside a real, stock HDFS: losses are seen and rebuilt before the NameNode knows of them, and
//! handed over when it does.

use kintsu_dag::BlockIndex;
use kintsu_hdfs::Group;
use serde_json::{Value, json};

use crate::blocks::{flip, meta_of, sign_again, stored};
use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, text, wait};

const PATH: &str = "/ec/file";

/// A second file, of a policy of its own: with k = 2 of n = 5 one wrong block among those that are left is found.
const WIDE: &str = "/wide/file";

#[test]
fn losses_are_rebuilt_early_and_handed_over_when_hdfs_knows() {
    let Some(mut hdfs) = Hdfs::start_slow(7, &[]) else { return };
    let (file, wide) = ((PATH, noise(24 * MIB + 77, 9)), (WIDE, noise(6 * MIB + 5, 10)));
    hdfs.put("RS-3-2-1024k", 4 * MIB, std::slice::from_ref(&file));
    add_wide_policy(&hdfs);
    hdfs.put_into("/wide", 4 * MIB, std::slice::from_ref(&wide));
    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let mut agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();

    // A DataNode that comes back before the NameNode calls it dead: nothing is handed over.
    let wide_holders = hdfs.groups(WIDE).remove(0).holders;
    let holds_wide =
        |i: &u32| wide_holders.values().flatten().any(|holder| hdfs.number(&holder.datanode) == *i);
    let node = (0..hdfs.nodes).filter(holds_wide).max_by_key(|i| hdfs.blocks_on(PATH, *i)).unwrap();
    let all = hdfs.blocks_on(PATH, node) + hdfs.blocks_on(WIDE, node);
    hdfs.kill_datanode(node);
    wait("all lost blocks to be staged", || watching.events("staged").len() >= all);
    assert!(watching.events("gone")[0]["why"].as_str().unwrap().contains("refuses connections"));
    assert!(
        hdfs.groups(PATH).iter().all(|group| group.missing().is_empty()),
        "the NameNode knows of nothing"
    );
    a_lost_block_comes_along_a_chain(&hdfs, &at, node, &file.1);
    hdfs.start_datanode(node);
    wait("the staged blocks to be dropped", || watching.events("dropped").len() >= all);
    assert_eq!(watching.events("counted"), Vec::<Value>::new());

    // It goes for good, and a block that is left was changed together with its checksums. The agent beside that one is away while
    // the lost blocks are rebuilt and compared: they are compared once more when it is there. The coordinator is killed while
    // blocks are staged: the next one finds them beside the agents.
    let held = |index: &u8| stored(&hdfs, WIDE, *index).1 != node;
    let changed = (0..5).find(held).unwrap();
    let (spoilt, beside, _) = stored(&hdfs, WIDE, changed);
    flip(&spoilt, 1_234_567);
    let undo = sign_again(&spoilt, 1_234_567);
    let away = &mut agents[beside as usize];
    away.end();
    hdfs.kill_datanode(node);
    wait("all lost blocks to be staged again", || watching.events("staged").len() >= 2 * all);
    *away = agent(&hdfs, &at, beside);
    wait("the wrong block to be found", || !watching.events("wrong").is_empty());
    assert_eq!(watching.events("wrong")[0]["index"], json!(changed));
    // The address is free only when the first one has ended.
    drop(watching);
    let (watching, _) = coordinator(&hdfs, &at);
    hdfs.reconfigure(1);
    wait("the NameNode to count the blocks", || watching.events("counted").len() >= all);
    assert_eq!(of(PATH, watching.events("staged")), Vec::<Value>::new(), "nothing was rebuilt twice");
    assert!(watching.events("counted").iter().all(|counted| counted["proved"] == json!(true)));
    hdfs.wait_each_index_once(&[PATH, WIDE]);
    hdfs.json(0, &["status"]);
    assert_eq!(hdfs.json(2, &["verify"])["bad"][0]["suspects"], json!([changed]));
    flip(&spoilt, 1_234_567);
    std::fs::write(meta_of(&spoilt), undo).unwrap();
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]), "what was handed over is right");
    assert!(hdfs.stock(&["fsck", "/"]).contains("is HEALTHY"));
    for (path, bytes) in [file, wide] {
        assert_eq!(hdfs.get_sha(path), sha256(&bytes), "{path}");
    }
}

/// A block of a DataNode that is gone is read with the help of agents; a whole file gains nothing from them.
fn a_lost_block_comes_along_a_chain(hdfs: &Hdfs, coordinator: &str, node: u32, bytes: &[u8]) {
    let got = |args: &[&str]| {
        let mut command = hdfs.kintsu_command(&["get", PATH, "-", "--agents", "--json"]);
        let out = command.args(["--coordinator", coordinator]).args(args).output().unwrap();
        assert!(out.status.success(), "{}", text(&out));
        (serde_json::from_slice::<Value>(&out.stderr).unwrap(), out.stdout)
    };
    let (report, all) = got(&[]);
    assert!(all == bytes);
    assert_eq!(report["by_agents"], json!(0), "{report}");
    let full = |group: &Group| group.block_bytes(BlockIndex(2)) == 4 * MIB as u64;
    let there = |group: &Group| {
        let ids = group.expected().map(|index| group.block(index).id);
        ids.into_iter().find_map(|id| Some((id as i64, hdfs.block_file(node, id)?)))
    };
    let groups = hdfs.groups(PATH);
    let (id, stored) = groups.iter().filter(|group| full(group)).find_map(there).unwrap();
    let (report, block) = got(&["--block", &format!("blk_{id}")]);
    assert!(block == std::fs::read(stored).unwrap());
    assert_eq!((&report["by_agents"], &report["degraded"]), (&json!(1), &json!(1)), "{report}");
    let refused = hdfs.kintsu(&["get", PATH, "-", "--block", "7"]);
    assert!(text(&refused).contains("expected the id of an internal block"), "{}", text(&refused));
}

/// The events about a file.
fn of(path: &str, events: Vec<Value>) -> Vec<Value> {
    events.into_iter().filter(|event| event["path"] == path).collect()
}

/// Adds RS with k = 2 and m = 3 to the policies of the cluster, for the folder `/wide`.
fn add_wide_policy(hdfs: &Hdfs) {
    let file = hdfs.dir.path().join("policies.xml");
    let policies = "<configuration><layoutversion>1</layoutversion><schemas><schema id=\"wide\"><codec>rs</codec><k>2</k>\
        <m>3</m></schema></schemas><policies><policy><schema>wide</schema><cellsize>1048576</cellsize></policy></policies>\
        </configuration>";
    std::fs::write(&file, policies).unwrap();
    hdfs.stock(&["ec", "-addPolicies", "-policyFile", file.to_str().unwrap()]);
    hdfs.stock(&["ec", "-enablePolicy", "-policy", "RS-2-3-1024k"]);
    hdfs.stock(&["fs", "-mkdir", "/wide"]);
    hdfs.stock(&["ec", "-setPolicy", "-path", "/wide", "-policy", "RS-2-3-1024k"]);
}
