//! Racks as the NameNode tells them: new blocks and rebuilt ones go where a stripe survives the loss of any one rack.

use std::collections::BTreeMap;

use serde_json::json;

use crate::daemons::{Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, wait};
use crate::objects::{got, local, store, wait_each_once, wait_missing};

/// The rack of each DataNode. There is always one left in each rack for a block that is lost there.
const RACKS: &[&str] = &["/a", "/a", "/a", "/a", "/b", "/b", "/b", "/c", "/c", "/c"];

/// As many blocks of a stripe as a rack may have: both codes here bear the loss of two.
const MOST: usize = 2;

/// A file of HDFS's own, and an object that Kintsu places: two blocks of a stripe in each rack, or the rule is broken.
const FILE: &str = "/ec/file";
const OBJECT: &str = "/store/object";
const CODE: &str = "rs:n=6,k=4";

#[test]
#[ignore = "minutes: make test-hdfs"]
fn the_racks_of_the_namenode_are_heeded() {
    let Some(mut hdfs) = Hdfs::start_in_racks(RACKS) else { return };
    let (file, object) = (noise(24 * MIB + 1, 81), noise(32 * MIB - 7, 82));
    for datanode in hdfs.live() {
        assert_eq!(datanode.location.as_deref(), Some(RACKS[hdfs.number(&datanode) as usize]));
    }
    hdfs.put("RS-3-2-1024k", MIB, &[(FILE, file.clone())]);
    let source = local(&hdfs, "object", &object);
    store(&hdfs, 0, &["put", &source, OBJECT, "--code", CODE, "--block", "1MiB"]);
    no_rack_has_too_many(&hdfs);

    let (node, _) = kill(&mut hdfs, "/b");
    hdfs.wait_missing(FILE, |missing| missing > 0);
    wait_missing(&hdfs, OBJECT);
    hdfs.json(0, &["repair", FILE]);
    store(&hdfs, 0, &["repair", OBJECT]);
    no_rack_has_too_many(&hdfs);
    back(&mut hdfs, node);

    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let _agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();
    let (node, lost) = kill(&mut hdfs, "/c");
    wait("the blocks to be counted", || watching.events("counted").len() >= lost);
    no_rack_has_too_many(&hdfs);
    back(&mut hdfs, node);
    assert_eq!(hdfs.get_sha(FILE), sha256(&file));
    assert_eq!(got(&hdfs, OBJECT), sha256(&object));
}

/// The DataNodes with blocks of each group and each stripe.
fn stripes(hdfs: &Hdfs) -> Vec<Vec<u32>> {
    let groups = hdfs.groups(FILE).into_iter().map(|group| {
        let holders = group.holders.into_values().flatten();
        holders.map(|holder| hdfs.number(&holder.datanode)).collect()
    });
    let places: Vec<Vec<String>> =
        serde_json::from_value(store(hdfs, 0, &["stat", OBJECT])["places"].clone()).unwrap();
    // Each is the DataNode's name, with its port.
    let number = |place: &String| {
        let port: u32 = place.rsplit_once(':').unwrap().1.parse().unwrap();
        (port - u32::from(hdfs.port) - 10) / 3
    };
    groups.chain(places.iter().map(|stripe| stripe.iter().map(number).collect())).collect()
}

/// All blocks are there, and each group and stripe survives the loss of any rack.
fn no_rack_has_too_many(hdfs: &Hdfs) {
    hdfs.wait_missing(FILE, |missing| missing == 0);
    assert_eq!(store(hdfs, 0, &["stat", OBJECT])["missing"], json!([]));
    for stripe in stripes(hdfs) {
        let mut racks: BTreeMap<&str, usize> = BTreeMap::new();
        stripe.iter().for_each(|node| *racks.entry(RACKS[*node as usize]).or_default() += 1);
        assert!(racks.values().all(|count| *count <= MOST), "{racks:?}: {stripe:?}");
    }
}

/// Kills the DataNode of a rack with the most blocks; which one, and how many it had.
fn kill(hdfs: &mut Hdfs, rack: &str) -> (u32, usize) {
    let all = stripes(hdfs);
    let blocks = |node: &u32| all.iter().flatten().filter(|other| *other == node).count();
    let of_rack = (0..hdfs.nodes).filter(|node| RACKS[*node as usize] == rack);
    let node = of_rack.max_by_key(blocks).unwrap();
    hdfs.kill_datanode(node);
    (node, blocks(&node))
}

/// It comes back, and HDFS deletes one of each two copies.
fn back(hdfs: &mut Hdfs, node: u32) {
    hdfs.start_datanode(node);
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[FILE]);
    wait_each_once(hdfs, OBJECT);
}
