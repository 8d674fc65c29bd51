//! Agents beside too few DataNodes to rebuild anything: their coordinator does it by itself when HDFS knows of the loss.

use serde_json::{Value, json};

use crate::daemons::{Daemon, Hdfs, agent, coordinator_with, sha256, wait};

/// `file`: of a policy with k = 3 in a cluster of seven DataNodes, all of which run.
pub fn a_coordinator_repairs_what_too_few_agents_cannot(hdfs: &mut Hdfs, file: &(&str, Vec<u8>)) {
    let (path, bytes) = file;
    let node = (0..hdfs.nodes).max_by_key(|node| hdfs.blocks_on(path, *node)).unwrap();
    let lost = hdfs.blocks_on(path, node);
    let (watching, at) = coordinator_with(hdfs, "127.0.0.1:0", &["--repair-max-rate", "50MB/s"]);
    let others = (0..hdfs.nodes).filter(|other| *other != node);
    let _agents: Vec<Daemon> = others.take(2).map(|other| agent(hdfs, &at, other)).collect();
    hdfs.kill_datanode(node);
    let of_file = |kind| -> Vec<Value> {
        watching.events(kind).into_iter().filter(|event| event["path"] == *path).collect()
    };
    wait("all lost blocks to be counted", || of_file("counted").len() == lost);
    assert_eq!(of_file("staged"), Vec::<Value>::new(), "two cannot read three blocks");
    assert!(of_file("counted").iter().all(|counted| counted["proved"] == json!(true)));
    hdfs.wait_each_index_once(&[path]);
    assert_eq!(hdfs.get_sha(path), sha256(bytes));
    assert_eq!(hdfs.json(0, &["verify", path])["bad"], json!([]));
    hdfs.start_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[path]);
    assert_eq!(of_file("counted").len(), lost, "each block once");
}
