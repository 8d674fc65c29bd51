//! Copies of internal blocks that others make: bad ones and duplicates beside good ones, those of a DataNode that has not told yet what
//! it has, and those that HDFS rebuilds by itself at the same time.

use std::net::SocketAddr;

use kintsu_dag::BlockIndex;
use kintsu_hdfs::proto::names::ExtendedBlock;
use kintsu_hdfs::transfer::{BlockWriter, UNIT_BYTES};
use kintsu_store::{BlockStore as _, FileStore};
use serde_json::{Value, json};

use crate::blocks::stored;
use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, coordinator_with, noise, sha256, wait};
use crate::hazards::{lose, targets};

/// One group, and two.
const ONE: &str = "/ec/one";
const TWO: &str = "/ec/two";

/// A DataNode with these is live for weeks before it reports its blocks.
const REPORTS_NOTHING: [&str; 2] =
    ["dfs.blockreport.initialDelay=1000000", "dfs.blockreport.intervalMsec=2000000000"];

#[test]
#[ignore = "minutes: make test-hdfs"]
fn hazards_of_other_copies() {
    // What HDFS forgot to have deleted it finds in the next report.
    let reports = "dfs.blockreport.intervalMsec=3000";
    let Some(mut hdfs) = Hdfs::start_to_repair(7, &[reports]) else { return };
    let files = [(ONE, noise(12 * MIB, 71)), (TWO, noise(23 * MIB + 5, 72))];
    hdfs.put("RS-3-2-1024k", 4 * MIB, &files);
    bad_copies_beside_good_ones_are_deleted(&hdfs);
    a_bad_copy_is_there_while_another_index_is_repaired(&mut hdfs);
    a_datanode_that_has_not_reported_gets_no_second_index(&mut hdfs);
    whoever_repairs_first_each_index_is_there_once(&mut hdfs);
    for (path, bytes) in &files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
        assert_eq!(hdfs.stock_sha(path), sha256(bytes), "{path}");
    }
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
}

/// HDFS brings a block to a DataNode that has another one of the group: it had chosen it before it knew. The NameNode ignores what
/// came second, so it would stay beside its copy elsewhere.
#[test]
#[ignore = "minutes: make test-hdfs"]
fn hazards_of_a_block_that_hdfs_brings_late() {
    let reports = "dfs.blockreport.intervalMsec=3000";
    let Some(mut hdfs) = Hdfs::start(8, &[reports]) else { return };
    let bytes = noise(12 * MIB, 73);
    hdfs.put("RS-3-2-1024k", 4 * MIB, &[(ONE, bytes.clone())]);
    it_comes_where_a_block_was_handed_over(&mut hdfs);
    it_comes_to_a_datanode_that_is_back(&mut hdfs);
    for sha in [hdfs.get_sha(ONE), hdfs.stock_sha(ONE)] {
        assert_eq!(sha, sha256(&bytes));
    }
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
}

fn it_comes_where_a_block_was_handed_over(hdfs: &mut Hdfs) {
    let late = std::fs::read(stored(hdfs, ONE, 1).0).unwrap();
    let (watching, at) = coordinator(hdfs, "127.0.0.1:0");
    let _agents = agents(hdfs, &at);
    let killed = [0, 1].map(|index| stored(hdfs, ONE, index).1);
    killed.iter().for_each(|node| hdfs.kill_datanode(*node));
    wait("both blocks to be counted", || watching.events("counted").len() == 2);
    let node = stored(hdfs, ONE, 0).1;
    copy(hdfs, &hdfs.groups(ONE)[0].block(BlockIndex(1)), &late, node);
    moved(hdfs, &watching, node);
    killed.iter().for_each(|node| hdfs.start_datanode(*node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[ONE]);
}

/// No DataNode could take what is lost until it is back, so nobody rebuilds it before.
fn it_comes_to_a_datanode_that_is_back(hdfs: &mut Hdfs) {
    let late = std::fs::read(stored(hdfs, ONE, 1).0).unwrap();
    let spare = hdfs.spare(ONE);
    spare.iter().for_each(|node| hdfs.kill_datanode(*node));
    hdfs.wait_live();
    let (watching, at) = coordinator(hdfs, "127.0.0.1:0");
    let [back, lost] = [0, 1].map(|index| {
        let (_, node, _) = stored(hdfs, ONE, index);
        hdfs.kill_datanode(node);
        let gone = json!(hdfs.transfer(node));
        wait("the DataNode to be gone", || {
            watching.events("gone").iter().any(|event| event["datanode"] == gone)
        });
        node
    });
    hdfs.wait_missing(ONE, |missing| missing == 2);
    hdfs.start_datanode(back);
    wait("one to be back", || !watching.events("back").is_empty());
    hdfs.wait_missing(ONE, |missing| missing == 1);
    copy(hdfs, &hdfs.groups(ONE)[0].block(BlockIndex(1)), &late, back);
    assert_eq!(watching.events("counted"), Vec::<Value>::new());
    spare.iter().for_each(|node| hdfs.start_datanode(*node));
    hdfs.wait_live();
    let _agents = agents(hdfs, &at);
    wait("the other block to be counted", || watching.events("counted").len() == 1);
    moved(hdfs, &watching, back);
    hdfs.start_datanode(lost);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[ONE]);
}

/// Waits until index 0 is moved away from a DataNode.
fn moved(hdfs: &Hdfs, watching: &Daemon, node: u32) {
    wait("the block that is listed to be moved", || !watching.events("moved").is_empty());
    let moved = watching.events("moved").remove(0);
    assert_eq!((&moved["index"], &moved["from"]), (&json!(0), &json!(hdfs.transfer(node))));
    hdfs.wait_each_index_once(&[ONE]);
}

/// Writes a copy of an internal block to a DataNode.
fn copy(hdfs: &Hdfs, block: &ExtendedBlock, bytes: &[u8], node: u32) {
    let address: SocketAddr = hdfs.transfer(node).parse().unwrap();
    let mut writer = BlockWriter::begin(address, &[], block, UNIT_BYTES, None, false).unwrap();
    writer.write(bytes).unwrap();
    writer.finish().unwrap();
}

/// A short copy of an internal block of the first group of ONE.
fn short_copy(hdfs: &Hdfs, index: u8, node: u32) {
    let block = hdfs.groups(ONE)[0].block(BlockIndex(index));
    copy(hdfs, &ExtendedBlock { bytes: Some(1000), ..block }, &[7; 1000], node);
}

/// The agents beside all running DataNodes.
fn agents(hdfs: &Hdfs, at: &str) -> Vec<Daemon> {
    hdfs.running().into_iter().map(|i| agent(hdfs, at, i)).collect()
}

/// Nothing is lost; agents and a coordinator run, and leave everything as it is.
fn bad_copies_beside_good_ones_are_deleted(hdfs: &Hdfs) {
    let (watching, at) = coordinator(hdfs, "127.0.0.1:0");
    let _agents = agents(hdfs, &at);
    let spare = hdfs.spare(ONE);
    let whole = |path: &str, index: u8| std::fs::read(stored(hdfs, path, index).0).unwrap();
    short_copy(hdfs, 1, spare[0]);
    let twice = hdfs.groups(ONE)[0].block(BlockIndex(3));
    copy(hdfs, &twice, &whole(ONE, 3), spare[1]);
    let mut old = hdfs.groups(TWO)[0].block(BlockIndex(2));
    old.generation -= 1;
    copy(hdfs, &old, &whole(TWO, 2), hdfs.spare(TWO)[0]);
    hdfs.wait_each_index_once(&[ONE, TWO]);
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]), "the good ones are left");
    for kind in ["staged", "wrong", "counted", "reported"] {
        assert_eq!(watching.events(kind), Vec::<Value>::new());
    }
}

/// HDFS keeps a bad copy while fewer good blocks of the group are there than should be.
fn a_bad_copy_is_there_while_another_index_is_repaired(hdfs: &mut Hdfs) {
    let node = lose(hdfs, ONE, 0);
    let spare = hdfs.spare(ONE);
    short_copy(hdfs, 1, spare[0]);
    assert_eq!(targets(hdfs, &hdfs.json(0, &["repair", ONE])), [spare[1]]);
    hdfs.wait_live();
    hdfs.wait_missing(ONE, |missing| missing == 0);
    back(hdfs, &[node]);
}

/// Starts DataNodes again, and waits until HDFS has settled.
fn back(hdfs: &mut Hdfs, nodes: &[u32]) {
    nodes.iter().for_each(|node| hdfs.start_datanode(*node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[ONE, TWO]);
}

/// A DataNode comes back with index 0, which was rebuilt elsewhere meanwhile. Before it has told so, index 1 is lost, and nobody else could
/// take it: with both, one of them would stay beside its copy elsewhere for ever, because the NameNode lists one of a group a DataNode.
fn a_datanode_that_has_not_reported_gets_no_second_index(hdfs: &mut Hdfs) {
    let late = lose(hdfs, ONE, 0);
    assert_eq!(targets(hdfs, &hdfs.json(0, &["repair", ONE])).len(), 1);
    let spare = hdfs.spare(ONE);
    assert_eq!(spare.len(), 1);
    hdfs.kill_datanode(spare[0]);
    let lost = lose(hdfs, ONE, 1);
    hdfs.start_datanode_with(late, &REPORTS_NOTHING);
    hdfs.wait_live();
    let refused = hdfs.json(1, &["repair", ONE]);
    assert_eq!(refused["blocks"], json!([]), "{refused}");
    assert_eq!(hdfs.groups(ONE)[0].missing(), [BlockIndex(1)]);

    // Agents stage it there, and look into the directories before they hand it over.
    let (watching, at) = coordinator_with(hdfs, "127.0.0.1:0", &[ONE]);
    let mut agents = agents(hdfs, &at);
    wait("the hand-over to be refused", || {
        let dropped = watching.events("dropped");
        dropped.iter().any(|event| event["why"].as_str().unwrap().contains("internal block 0"))
    });
    assert_eq!(watching.events("counted"), Vec::<Value>::new());
    hdfs.start_datanode(spare[0]);
    agents.push(agent(hdfs, &at, spare[0]));
    wait("the block to be counted", || !watching.events("counted").is_empty());
    assert_eq!(watching.events("counted")[0]["datanode"], json!(hdfs.transfer(spare[0])));
    drop((agents, watching));

    // Now it tells what it has, and one of the two copies of index 0 is deleted.
    hdfs.kill_datanode(late);
    back(hdfs, &[late, lost]);
}

/// Kintsu's rebuilt blocks wait, HDFS begins to repair, and the NameNode notices the loss, all at once.
fn whoever_repairs_first_each_index_is_there_once(hdfs: &mut Hdfs) {
    hdfs.restart_slow();
    hdfs.wait_each_index_once(&[ONE, TWO]);
    let (watching, at) = coordinator(hdfs, "127.0.0.1:0");
    let agents = agents(hdfs, &at);
    let node = fullest(hdfs);
    let lost = blocks_on(hdfs, node);
    hdfs.kill_datanode(node);
    wait("the lost blocks to be staged", || watching.events("staged").len() >= lost);
    assert_eq!(watching.events("counted"), Vec::<Value>::new());
    hdfs.reconfigure(1);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[ONE, TWO]);
    let count = |kind| watching.events(kind).len();
    wait("nothing to be staged any more", || count("staged") == count("counted") + count("dropped"));
    eprintln!("of {lost} lost blocks {} came from Kintsu first", count("counted"));
    back(hdfs, &[node]);
    drop((agents, watching));
    for i in hdfs.running() {
        let staged = FileStore::open(&hdfs.dir.path().join(format!("agent{i}"))).unwrap();
        assert!(staged.ids().unwrap().is_empty(), "beside DataNode {i}");
    }

    // HDFS's own repair was on: now it is alone.
    let node = fullest(hdfs);
    hdfs.kill_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[ONE, TWO]);
    back(hdfs, &[node]);
}

fn blocks_on(hdfs: &Hdfs, node: u32) -> usize {
    [ONE, TWO].iter().map(|path| hdfs.blocks_on(path, node)).sum()
}

/// The DataNode with the most blocks.
fn fullest(hdfs: &Hdfs) -> u32 {
    hdfs.running().into_iter().max_by_key(|i| blocks_on(hdfs, *i)).unwrap()
}
