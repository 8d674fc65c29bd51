//! What may go wrong while a rebuilt block is handed over: `kintsu hdfs repair` on real daemons, one scene for each hazard.

use std::net::SocketAddr;
use std::time::Duration;

use kintsu_dag::BlockIndex;
use kintsu_hdfs::Group;
use kintsu_hdfs::transfer::{BlockWriter, UNIT_BYTES};
use serde_json::{Value, json};

use crate::blocks::{flip, meta_of, sign_again, stored};
use crate::daemons::{Hdfs, MIB, Patience, Running, noise, sha256, text};

const SMALL: &str = "/ec/small";
const BIG: &str = "/ec/big";

/// A DataNode takes two seconds for the largest block here, so that it can be killed in mid-block on any machine.
pub const SLOW_TO_TAKE: &str = "dfs.datanode.data.write.bandwidthPerSec=16m";

#[test]
#[ignore = "minutes: make test-hdfs"]
fn hazards_of_a_hand_over() {
    let Some(mut hdfs) = Hdfs::start(7, &[SLOW_TO_TAKE]) else { return };
    let small = noise(12 * MIB, 21);
    let big = noise(96 * MIB, 22);
    hdfs.put("RS-3-2-1024k", 4 * MIB, &[(SMALL, small.clone())]);
    hdfs.put_into("/ec", 32 * MIB, &[(BIG, big.clone())]);
    decommissioning_datanodes_get_nothing(&mut hdfs);
    what_contradicts_is_not_handed_over(&mut hdfs);
    a_datanode_that_dies_while_it_takes_a_block_is_replaced(&mut hdfs);
    datanodes_that_refuse_the_id_are_passed_over(&mut hdfs);
    no_datanode_gets_two_indices(&mut hdfs);
    for (path, bytes) in [(SMALL, small), (BIG, big)] {
        assert_eq!(hdfs.get_sha(path), sha256(&bytes), "{path}");
        assert_eq!(hdfs.stock_sha(path), sha256(&bytes), "{path}");
    }
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
}

/// Kills the DataNode with an index of the first group of a file, and waits until the NameNode reports it missing.
pub fn lose(hdfs: &mut Hdfs, path: &str, index: u8) -> u32 {
    let (_, node, _) = stored(hdfs, path, index);
    hdfs.kill_datanode(node);
    hdfs.wait_missing(path, |missing| missing > 0);
    node
}

/// Starts DataNodes again, and waits until HDFS has settled.
fn back(hdfs: &mut Hdfs, nodes: &[u32]) {
    nodes.iter().for_each(|node| hdfs.start_datanode(*node));
    hdfs.wait_live();
    hdfs.wait_each_index_once(&[SMALL, BIG]);
}

/// The DataNodes that got blocks, by number.
pub fn targets(hdfs: &Hdfs, repaired: &Value) -> Vec<u32> {
    let blocks = repaired["blocks"].as_array().unwrap();
    let to =
        blocks.iter().map(|block| block["handed_over"]["To"].as_str().unwrap_or_else(|| panic!("{block}")));
    let port = |to: &str| to.rsplit_once(':').unwrap().1.parse::<u32>().unwrap();
    to.map(|to| (port(to) - u32::from(hdfs.port) - 10) / 3).collect()
}

fn decommissioning_datanodes_get_nothing(hdfs: &mut Hdfs) {
    let (spare, holder) = (hdfs.spare(SMALL), stored(hdfs, SMALL, 1).1);
    // One that holds an index, and one of the two that hold none.
    let leaving = [spare[0], holder];
    let addresses: Vec<String> = leaving.iter().map(|i| hdfs.transfer(*i) + "\n").collect();
    std::fs::write(hdfs.dir.path().join("exclude"), addresses.concat()).unwrap();
    hdfs.stock(&["admin", "-refreshNodes"]);
    let states: Vec<_> = hdfs.live().into_iter().filter(|node| node.admin_state.unwrap_or(0) != 0).collect();
    assert_eq!(states.len(), 2, "{states:?}");
    let status = hdfs.json(0, &["status", SMALL]);
    assert_eq!(status["at_risk"], json!([]), "a block on a DataNode that leaves is still there");

    let node = lose(hdfs, SMALL, 0);
    let repaired = hdfs.json(0, &["repair", SMALL]);
    assert_eq!(targets(hdfs, &repaired), [spare[1]]);
    std::fs::write(hdfs.dir.path().join("exclude"), "").unwrap();
    hdfs.stock(&["admin", "-refreshNodes"]);
    back(hdfs, &[node]);
}

/// One block is missing and another one is wrong: with one block more than needed nobody can tell which.
fn what_contradicts_is_not_handed_over(hdfs: &mut Hdfs) {
    let node = lose(hdfs, SMALL, 2);
    let (file, ..) = stored(hdfs, SMALL, 3);
    flip(&file, 2_000_000);
    let undo = sign_again(&file, 2_000_000);
    let refused = hdfs.json(1, &["repair", SMALL]);
    let why = refused["failed"][0].as_str().unwrap();
    assert!(why.contains("contradict each other") && why.contains("nothing was handed over"), "{why}");
    assert_eq!(refused["blocks"], json!([]));
    hdfs.wait_missing(SMALL, |missing| missing == 1);
    flip(&file, 2_000_000);
    std::fs::write(meta_of(&file), undo).unwrap();
    assert_eq!(targets(hdfs, &hdfs.json(0, &["repair", SMALL])).len(), 1);
    hdfs.json(0, &["repair"]);
    back(hdfs, &[node]);
}

fn a_datanode_that_dies_while_it_takes_a_block_is_replaced(hdfs: &mut Hdfs) {
    let lost = lose(hdfs, BIG, 1);
    let (spare, group) = (hdfs.spare(BIG), hdfs.groups(BIG).remove(0));
    let spare: Vec<u32> = spare.into_iter().filter(|node| *node != lost).collect();
    let mut repair = hdfs.kintsu_command(&["repair", BIG, "--json"]);
    let repair = Running::new(repair.stdout(std::process::Stdio::piped()).spawn().unwrap());
    let (killed, got) = kill_receiver(hdfs, &group, BlockIndex(1), &spare);
    let out = repair.output();
    assert!(out.status.success(), "{}", text(&out));
    let repaired: Value = serde_json::from_slice(&out.stdout).unwrap();
    let others: Vec<u32> = spare.into_iter().filter(|node| *node != killed).collect();
    assert_eq!(targets(hdfs, &repaired), others);
    assert!(got < group.block_bytes(BlockIndex(1)), "it was killed with {got} bytes");
    hdfs.wait_missing(BIG, |missing| missing == 0);
    // Whatever else the two held.
    hdfs.wait_live();
    hdfs.json(0, &["repair"]);
    back(hdfs, &[lost, killed]);
}

/// Kills the first of these DataNodes that receives the block; which one, and how many bytes it had.
pub fn kill_receiver(hdfs: &mut Hdfs, group: &Group, index: BlockIndex, nodes: &[u32]) -> (u32, u64) {
    let (id, mut patience) = (group.block(index).id, Patience::new());
    loop {
        for node in nodes {
            if let Some(file) = hdfs.incoming_file(*node, id) {
                hdfs.kill_datanode(*node);
                return (*node, std::fs::metadata(&file).map_or(0, |file| file.len()));
            }
        }
        assert!(!patience.is_over(), "nobody receives the block");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A short copy of a missing index is not counted, and its DataNode refuses the id.
fn datanodes_that_refuse_the_id_are_passed_over(hdfs: &mut Hdfs) {
    let node = lose(hdfs, SMALL, 4);
    let (group, spare) = (hdfs.groups(SMALL).remove(0), hdfs.spare(SMALL));
    assert_eq!(spare.len(), 2);
    for spare in spare {
        let mut block = group.block(BlockIndex(4));
        block.bytes = Some(1000);
        let address: SocketAddr = hdfs.transfer(spare).parse().unwrap();
        let mut writer = BlockWriter::begin(address, &[], &block, UNIT_BYTES, None, false).unwrap();
        writer.write(&[7; 1000]).unwrap();
        writer.finish().unwrap();
    }
    // Until the NameNode has them deleted, both refuse the id, and only another one helps. One that deletes late may delete the good
    // copy, which then does not count.
    let out = hdfs.kintsu(&["repair", SMALL, "--json"]);
    let first: Value = serde_json::from_slice(&out.stdout).unwrap();
    if !out.status.success() {
        let why = first["failed"][0].as_str().unwrap();
        let late = why.contains("does not count it");
        assert!((late || why.contains("exists")) && why.contains("no further DataNode in service"), "{why}");
        let added = hdfs.add_datanode();
        hdfs.wait_live();
        let took = targets(hdfs, &hdfs.json(0, &["repair", SMALL]));
        assert!(took == [added] || late && took.len() == 1, "{took:?}, added {added}");
    }
    hdfs.wait_missing(SMALL, |missing| missing == 0);
    let (file, ..) = stored(hdfs, SMALL, 4);
    assert_eq!(std::fs::metadata(file).unwrap().len(), group.block_bytes(BlockIndex(4)));
    hdfs.json(0, &["repair"]);
    back(hdfs, &[node]);
}

fn no_datanode_gets_two_indices(hdfs: &mut Hdfs) {
    // All that hold no index are stopped, so there is nobody else.
    let mut stopped = hdfs.spare(BIG);
    stopped.iter().for_each(|node| hdfs.kill_datanode(*node));
    stopped.push(lose(hdfs, BIG, 2));
    hdfs.wait_live();
    let refused = hdfs.json(1, &["repair", BIG]);
    let why = refused["failed"][0].as_str().unwrap();
    assert!(why.contains("no further DataNode in service has room and no index of the group"), "{why}");
    assert_eq!(hdfs.groups(BIG)[0].missing(), [BlockIndex(2)]);
    back(hdfs, &stopped);
}
