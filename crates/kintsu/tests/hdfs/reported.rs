//! Losses that the coordinator reports to the NameNode (`--report-after`): they are whole again while HDFS still counts the DataNode
//! as live, and if it comes back nothing is there twice.

use kintsu_hdfs::proto::names::DatanodeInfo;
use serde_json::{Value, json};

use crate::daemons::{AS_SLOW_AS_EVER, Daemon, Hdfs, MIB, agent, coordinator_with, noise, sha256, wait};

const FILES: [&str; 2] = ["/ec/large", "/ec/short"];

#[test]
#[ignore = "minutes: make test-hdfs"]
fn reported_losses_are_counted_before_hdfs_calls_the_datanode_dead() {
    let Some(mut hdfs) = Hdfs::start(7, &[AS_SLOW_AS_EVER]) else { return };
    let files = [(FILES[0], noise(24 * MIB + 77, 61)), (FILES[1], noise(MIB * 3 / 2, 62))];
    hdfs.put("RS-3-2-1024k", 4 * MIB, &files);
    let (watching, at) = coordinator_with(&hdfs, "127.0.0.1:0", &["--report-after", "10s"]);
    let _agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();

    // One DataNode, then another one while the first is still away.
    let mut away = Vec::new();
    for _ in 0..2 {
        let there = (0..hdfs.nodes).filter(|node| !away.contains(node));
        let node = there.max_by_key(|node| blocks_on(&hdfs, *node)).unwrap();
        let (lost, before) = (blocks_on(&hdfs, node), watching.events("counted").len());
        hdfs.kill_datanode(node);
        away.push(node);
        wait("the lost blocks to be counted", || watching.events("counted").len() >= before + lost);
        assert_eq!(hdfs.live().len(), hdfs.nodes as usize, "HDFS calls nobody dead");
        hdfs.wait_each_index_once(&FILES);
        assert_eq!(reported(&hdfs, &watching, node).len(), lost, "each block once");
        read_by_all(&hdfs, &files);
    }
    assert!(watching.events("counted").iter().all(|counted| counted["proved"] == json!(true)));

    // They come back, and what they still had is dropped.
    back(&mut hdfs, &watching, &away);
    read_by_all(&hdfs, &files);

    // Two at once: where both blocks of a group are lost nothing confirms the new ones, so nothing is reported.
    let first = groups_on(&hdfs, 0);
    let shared = |node: &u32| groups_on(&hdfs, *node).iter().filter(|group| first.contains(group)).count();
    let second = (1..hdfs.nodes).max_by_key(shared).unwrap();
    let mut both = groups_on(&hdfs, second);
    let all = first.len() + both.len();
    both.retain(|group| first.contains(group));
    assert!(!both.is_empty(), "other DataNodes have the other blocks of each group");
    let (staged, told) = (watching.events("staged").len(), watching.events("reported").len());
    [0, second].into_iter().for_each(|node| hdfs.kill_datanode(node));
    wait("all lost blocks to be staged", || watching.events("staged").len() >= staged + all);
    let confirmed = all - 2 * both.len();
    wait("the others to be reported", || watching.events("reported").len() >= told + confirmed);
    wait("the others to be due too", || {
        [0, second].into_iter().all(|node| silence_ms(&hdfs, node) >= 13_000)
    });
    let new = watching.events("reported").split_off(told);
    assert_eq!(new.len(), confirmed, "{new:?}");
    assert!(new.iter().all(|event| !both.contains(&event["group"].as_i64().unwrap())), "{new:?}");
    // What the first to come back confirms may be reported until the second is there.
    back(&mut hdfs, &watching, &[0, second]);
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
    read_by_all(&hdfs, &files);
}

fn blocks_on(hdfs: &Hdfs, node: u32) -> usize {
    FILES.iter().map(|path| hdfs.blocks_on(path, node)).sum()
}

/// The groups of which a DataNode has a block.
fn groups_on(hdfs: &Hdfs, node: u32) -> Vec<i64> {
    let groups = FILES.iter().flat_map(|path| hdfs.groups(path));
    let here = groups
        .filter(|group| group.holders.values().flatten().any(|holder| hdfs.number(&holder.datanode) == node));
    here.map(|group| group.id as i64).collect()
}

/// For how long the NameNode has not heard a DataNode, by when it heard the last one.
fn silence_ms(hdfs: &Hdfs, node: u32) -> u64 {
    let live = hdfs.live();
    let heard = |node: &DatanodeInfo| node.last_update.unwrap_or(0);
    let of_node = live.iter().find(|other| hdfs.number(other) == node).map_or(0, heard);
    live.iter().map(heard).max().unwrap_or(0) - of_node
}

/// The blocks of this DataNode of which the NameNode was told.
fn reported(hdfs: &Hdfs, watching: &Daemon, node: u32) -> Vec<Value> {
    let mut events = watching.events("reported");
    events.retain(|event| event["datanode"] == json!(hdfs.transfer(node)));
    events
}

/// Starts DataNodes again, and waits until HDFS has settled.
fn back(hdfs: &mut Hdfs, watching: &Daemon, nodes: &[u32]) {
    let before = watching.events("back").len();
    nodes.iter().for_each(|node| hdfs.start_datanode(*node));
    wait("the DataNodes to be back", || watching.events("back").len() >= before + nodes.len());
    hdfs.wait_each_index_once(&FILES);
}

fn read_by_all(hdfs: &Hdfs, files: &[(&str, Vec<u8>)]) {
    for (path, bytes) in files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
        assert_eq!(hdfs.stock_sha(path), sha256(bytes), "{path}");
    }
}
