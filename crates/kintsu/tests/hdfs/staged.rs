//! What may happen while rebuilt blocks wait beside DataNodes: agents and a coordinator beside two NameNodes, with block
//! tokens on.

use kintsu_dag::{BlockId, BlockIndex, StripeId};
use kintsu_hdfs::Group;
use kintsu_store::{BlockStore as _, FileStore, Generation};
use serde_json::{Value, json};

use crate::blocks::stored;
use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, wait};
use crate::hazards::{SLOW_TO_TAKE, kill_receiver};

const BIG: &str = "/ec/big";
const KEPT: &str = "/ec/kept";
const DELETED: &str = "/ec/deleted";
const RENAMED: &str = "/ec/renamed";
const NEW_NAME: &str = "/ec/new-name";
const APPENDED: &str = "/ec/appended";

#[test]
#[ignore = "minutes: make test-hdfs"]
fn hazards_of_waiting_blocks() {
    let tokens = "dfs.block.access.token.enable=true";
    // After a fail-over HDFS trims duplicates only when all DataNodes have reported their blocks.
    let reports = "dfs.blockreport.intervalMsec=3000";
    let Some(mut hdfs) = Hdfs::start_pair(7, &[SLOW_TO_TAKE, tokens, reports]) else { return };
    let mut files: Vec<(&str, Vec<u8>)> = [KEPT, DELETED, RENAMED, APPENDED]
        .into_iter()
        .zip(31..)
        .map(|(path, seed)| (path, noise(6 * MIB + seed as usize, seed)))
        .collect();
    hdfs.put("RS-3-2-1024k", 4 * MIB, &files);
    files.push((BIG, noise(96 * MIB, 35)));
    hdfs.put_into("/ec", 32 * MIB, &files[4..]);
    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let mut agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();

    a_block_of_another_generation_is_dropped(&hdfs, &watching, &at, &mut agents);
    files_change_and_the_namenode_fails_over(&mut hdfs, &watching, &mut files);
    namenodes_restart_and_a_datanode_dies_with_a_block(&mut hdfs, &watching);
    a_block_that_compares_wrong_is_rebuilt_elsewhere(&mut hdfs, &watching, &at, &mut agents);
    a_host_dies_beside_whose_datanode_a_block_waits(&mut hdfs, &watching, &at, &mut agents);
    a_last_copy_waits_until_its_datanode_takes_it(&mut hdfs, &watching, &at, &mut agents);

    for (path, bytes) in &files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
        assert_eq!(hdfs.stock_sha(path), sha256(bytes), "{path}");
    }
    hdfs.json(0, &["status"]);
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
}

/// Staged for a generation stamp that the group has no longer.
fn a_block_of_another_generation_is_dropped(hdfs: &Hdfs, watching: &Daemon, at: &str, agents: &mut [Daemon]) {
    let group = hdfs.groups(KEPT).remove(0);
    let node = hdfs.spare(KEPT)[0];
    agents[node as usize].end();
    stage(hdfs, node, &group, group.generation - 1, 1000);
    agents[node as usize] = agent(hdfs, at, node);
    wait("the old block to be dropped", || {
        let dropped = watching.events("dropped");
        dropped.iter().any(|event| event["why"].as_str().unwrap().contains("of another generation"))
    });
}

/// Puts a block of ones for index 0 of a group into the folder of an agent that does not run.
fn stage(hdfs: &Hdfs, node: u32, group: &Group, generation: u64, bytes: u64) {
    let id = BlockId { stripe: StripeId(group.id), index: BlockIndex(0) };
    let store = FileStore::open(&hdfs.dir.path().join(format!("agent{node}"))).unwrap();
    store.delete(id, None).unwrap();
    let mut block = store.create(id, Generation(generation as u32), bytes, 4096, &[]).unwrap();
    block.write_at(0, &vec![1; bytes as usize]).unwrap();
    block.finish(None).unwrap();
}

/// The bytes of a block that waits are not what the others of its group say. It is rebuilt, and not beside the same DataNode.
fn a_block_that_compares_wrong_is_rebuilt_elsewhere(
    hdfs: &mut Hdfs,
    watching: &Daemon,
    at: &str,
    agents: &mut [Daemon],
) {
    let (group, spare) = (hdfs.groups(KEPT).remove(0), hdfs.spare(KEPT));
    let (_, node, _) = stored(hdfs, KEPT, 0);
    let events = |kind: &str| of(KEPT, &watching.events(kind)).cloned().collect::<Vec<_>>();
    let [staged, dropped, counted] = ["staged", "dropped", "counted"].map(|kind| events(kind).len());
    hdfs.kill_datanode(node);
    wait("the lost block to be staged", || events("staged").len() > staged);
    let beside = events("staged").pop().unwrap()["datanode"].clone();
    let host = spare.into_iter().find(|i| json!(hdfs.transfer(*i)) == beside).unwrap();
    agents[host as usize].end();
    stage(hdfs, host, &group, group.generation, group.block_bytes(BlockIndex(0)));
    agents[host as usize] = agent(hdfs, at, host);
    wait("the wrong block to be dropped", || events("dropped").len() > dropped);
    wait("the block to be staged again", || events("staged").len() > staged + 1);
    assert_ne!(events("staged").pop().unwrap()["datanode"], beside);
    hdfs.start_datanode(node);
    hdfs.wait_live();
    wait("it to be dropped", || events("dropped").len() > dropped + 1);
    assert_eq!(events("counted").len(), counted);
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
}

/// The running DataNode that has an index of all these files.
fn common(hdfs: &Hdfs, paths: &[&str]) -> Option<u32> {
    (0..hdfs.nodes).find(|node| paths.iter().all(|path| hdfs.blocks_on(path, *node) > 0))
}

fn of<'a>(path: &'a str, events: &'a [Value]) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["path"] == path)
}

fn files_change_and_the_namenode_fails_over(
    hdfs: &mut Hdfs,
    watching: &Daemon,
    files: &mut Vec<(&str, Vec<u8>)>,
) {
    // Four files with five of seven DataNodes each need not have one in common: as many as there are.
    let node = common(hdfs, &[KEPT, DELETED, RENAMED, APPENDED]);
    let node = node.or_else(|| common(hdfs, &[DELETED, RENAMED, APPENDED]));
    let node = node.or_else(|| common(hdfs, &[DELETED, RENAMED])).unwrap();
    let paths = [KEPT, DELETED, RENAMED, APPENDED, BIG];
    let deleted = hdfs.groups(DELETED)[0].id as i64;
    let lost: Vec<&str> = paths.into_iter().filter(|path| hdfs.blocks_on(path, node) > 0).collect();
    hdfs.kill_datanode(node);
    wait("the lost blocks to be staged", || {
        let staged = watching.events("staged");
        lost.iter().all(|path| of(path, &staged).next().is_some())
    });
    assert!(watching.events("counted").is_empty());
    // While they wait:
    let leaving = a_block_beside_a_datanode_that_leaves_goes_elsewhere(hdfs, watching);
    let more = hdfs.dir.path().join("more");
    std::fs::write(&more, noise(MIB, 36)).unwrap();
    hdfs.stock(&["fs", "-rm", "-skipTrash", DELETED]);
    hdfs.stock(&["fs", "-mv", RENAMED, NEW_NAME]);
    hdfs.stock(&["fs", "-appendToFile", "-n", more.to_str().unwrap(), APPENDED]);
    for (path, bytes) in files.iter_mut() {
        match *path {
            RENAMED => *path = NEW_NAME,
            APPENDED => bytes.extend(noise(MIB, 36)),
            _ => {}
        }
    }
    files.retain(|(path, _)| *path != DELETED);
    hdfs.kill_namenode(1);
    hdfs.make_active(2);
    hdfs.reconfigure(2);
    wait("the blocks to be counted", || {
        let counted = watching.events("counted");
        let needed = lost.iter().filter(|path| **path != DELETED);
        needed.into_iter().all(|path| {
            let now = if *path == RENAMED { NEW_NAME } else { path };
            of(path, &counted).chain(of(now, &counted)).next().is_some()
        })
    });
    let counted = watching.events("counted");
    assert!(of(NEW_NAME, &counted).chain(of(RENAMED, &counted)).all(|event| event["datanode"] != leaving));
    let of_deleted = |events: Vec<Value>| events.iter().any(|event| event["group"] == json!(deleted));
    wait("the block of the deleted file to be dropped", || of_deleted(watching.events("dropped")));
    assert!(!of_deleted(watching.events("counted")));
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
    hdfs.start_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
    // Back to one that is slow to notice, when it knows where all blocks are. Nobody is to leave for those that start from here on.
    std::fs::write(hdfs.dir.path().join("exclude"), "").unwrap();
    hdfs.start_namenode(1);
    hdfs.wait_each_out_of_safe_mode();
    hdfs.kill_namenode(2);
    hdfs.make_active(1);
    hdfs.start_namenode(2);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
}

/// The first DataNode beside which a block of RENAMED waits is decommissioned from now on. Returns its address.
fn a_block_beside_a_datanode_that_leaves_goes_elsewhere(hdfs: &Hdfs, watching: &Daemon) -> Value {
    let leaving = of(RENAMED, &watching.events("staged")).next().unwrap()["datanode"].clone();
    std::fs::write(hdfs.dir.path().join("exclude"), format!("{}\n", leaving.as_str().unwrap())).unwrap();
    hdfs.stock(&["admin", "-refreshNodes"]);
    wait("the block to be staged elsewhere", || {
        of(RENAMED, &watching.events("staged")).any(|event| event["datanode"] != leaving)
    });
    leaving
}

/// A NameNode that starts knows nothing of a DataNode that is gone: at once, the index is missing. The DataNode beside the
/// staged block dies while it gets the block.
fn namenodes_restart_and_a_datanode_dies_with_a_block(hdfs: &mut Hdfs, watching: &Daemon) {
    let group = hdfs.groups(BIG).remove(0);
    let (_, node, _) = stored(hdfs, BIG, 0);
    let before = of(BIG, &watching.events("staged")).count();
    hdfs.kill_datanode(node);
    wait("the lost block to be staged", || of(BIG, &watching.events("staged")).count() > before);
    let counted = of(BIG, &watching.events("counted")).count();
    for i in [1, 2] {
        hdfs.kill_namenode(i);
    }
    hdfs.start_namenode(2);
    hdfs.make_active(2);
    let others: Vec<u32> = (0..hdfs.nodes).filter(|i| *i != node).collect();
    let (killed, got) = kill_receiver(hdfs, &group, BlockIndex(0), &others);
    assert!(got < group.block_bytes(BlockIndex(0)), "it was killed with {got} bytes");
    wait("the block to be counted elsewhere", || of(BIG, &watching.events("counted")).count() > counted);
    hdfs.wait_missing(BIG, |missing| missing == 0);
    hdfs.start_namenode(1);
    hdfs.start_datanode(node);
    hdfs.start_datanode(killed);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
}

/// The agent and the DataNode beside a staged block are gone, before the NameNode knows of the loss: the block is rebuilt beside another
/// DataNode, and what they had is dropped when they come back.
fn a_host_dies_beside_whose_datanode_a_block_waits(
    hdfs: &mut Hdfs,
    watching: &Daemon,
    at: &str,
    agents: &mut [Daemon],
) {
    let (_, node, _) = stored(hdfs, KEPT, 0);
    let spare = hdfs.spare(KEPT);
    let events = |kind: &str| of(KEPT, &watching.events(kind)).cloned().collect::<Vec<_>>();
    let (staged, counted) = (events("staged").len(), events("counted").len());
    hdfs.kill_datanode(node);
    wait("the lost block to be staged", || events("staged").len() > staged);
    let beside = events("staged").pop().unwrap()["datanode"].clone();
    let host = spare.into_iter().find(|i| json!(hdfs.transfer(*i)) == beside).unwrap();
    agents[host as usize].end();
    hdfs.kill_datanode(host);
    wait("the lost block to be staged elsewhere", || events("staged").len() > staged + 1);
    assert_ne!(events("staged").pop().unwrap()["datanode"], beside);
    assert_eq!(events("counted").len(), counted, "the NameNode knows of nothing");
    hdfs.reconfigure(2);
    wait("the block to be counted", || events("counted").len() > counted);
    hdfs.wait_missing(KEPT, |missing| missing == 0);
    let dropped = events("dropped").len();
    agents[host as usize] = agent(hdfs, at, host);
    wait("the other one to be dropped", || events("dropped").len() > dropped);
    hdfs.start_datanode(host);
    hdfs.start_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
    assert_eq!(events("counted").len(), counted + 1);
}

/// The DataNode beside a block that waits does not take it, and too little is left to rebuild it.
fn a_last_copy_waits_until_its_datanode_takes_it(
    hdfs: &mut Hdfs,
    watching: &Daemon,
    at: &str,
    agents: &mut [Daemon],
) {
    // The other NameNode is slow to notice.
    hdfs.kill_namenode(2);
    hdfs.make_active(1);
    hdfs.start_namenode(2);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
    let (group, spare) = (hdfs.groups(KEPT).remove(0), hdfs.spare(KEPT));
    let lost = [0, 1, 2].map(|index| stored(hdfs, KEPT, index).1);
    let events = |kind: &str| of(KEPT, &watching.events(kind)).cloned().collect::<Vec<_>>();
    let [staged, dropped, counted] = ["staged", "dropped", "counted"].map(|kind| events(kind).len());
    hdfs.kill_datanode(lost[0]);
    wait("the lost block to be staged", || events("staged").len() > staged);
    let beside = events("staged").pop().unwrap()["datanode"].clone();
    let host = spare.into_iter().find(|i| json!(hdfs.transfer(*i)) == beside).unwrap();
    let in_the_way = hdfs.put_in_the_way(host, group.block(BlockIndex(0)).id);
    let away: Vec<u32> = (0..hdfs.nodes).filter(|i| *i != host).collect();
    away.iter().for_each(|i| agents[*i as usize].end());
    lost[1..].iter().for_each(|node| hdfs.kill_datanode(*node));
    hdfs.reconfigure(1);
    wait("it to be told that the last copy is kept", || {
        let failed = watching.events("failed");
        failed.iter().any(|event| event["why"].as_str().unwrap().contains("may be the last copy"))
    });
    assert_eq!(events("counted").len(), counted);
    std::fs::remove_file(in_the_way).unwrap();
    wait("the last copy to be counted", || events("counted").len() > counted);
    assert_eq!(events("dropped").len(), dropped);
    hdfs.wait_missing(KEPT, |missing| missing == 2);
    away.iter().for_each(|i| agents[*i as usize] = agent(hdfs, at, *i));
    lost.iter().for_each(|node| hdfs.start_datanode(*node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[KEPT, NEW_NAME, APPENDED, BIG]);
}
