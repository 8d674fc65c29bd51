//! Objects of Kintsu in a real, stock HDFS with agents beside its DataNodes: lost blocks are rebuilt along pipelines before the NameNode
//! knows of the loss, and read along chains.

use serde_json::{Value, json};

use crate::blocks::{flip, sign_again};
use crate::daemons::{Asked, Daemon, Hdfs, MIB, agent, coordinator, noise, sha256, text, wait};
use crate::objects::{block, column, got, local, names, store, wait_each_once};

/// A file that is encoded where it is, and its name then.
const FILE: &str = "/logs/file";
const ENCODED: &str = "/logs/encoded";

/// An object with sub-blocks.
const CLAY: &str = "/store/clay";

/// An object with local groups: of the data blocks 0 and 1, and of 2 and 3.
const LRC: &str = "/store/lrc";

/// An object that is removed while its rebuilt blocks wait.
const GONE: &str = "/store/gone";

/// Objects by code.
const OBJECTS: [(&str, &str); 3] =
    [("/store/rs", "rs:n=5,k=3"), (CLAY, "clay:n=5,k=3,d=4"), (LRC, "azure-lrc:n=7,k=4,r=2")];

#[test]
fn objects_are_rebuilt_early_along_pipelines_and_handed_over_when_hdfs_knows() {
    let Some(mut hdfs) = Hdfs::start_slow(8, &["dfs.block.access.token.enable=true"]) else { return };
    let bytes = noise(13 * MIB + 777, 1);
    hdfs.stock(&["fs", "-mkdir", "/logs"]);
    hdfs.put_into("/logs", MIB, &[("encoded", bytes.clone())]);
    store(&hdfs, 0, &["encode", ENCODED, "--code", "rs:n=5,k=3"]);
    let local = local(&hdfs, "object", &bytes);
    for (path, code) in OBJECTS {
        store(&hdfs, 0, &["put", &local, path, "--code", code, "--block", "1MiB"]);
    }
    store(&hdfs, 0, &["put", &local, GONE, "--code", "azure-lrc:n=7,k=4,r=2", "--block", "1MiB"]);
    let paths: Vec<&str> = OBJECTS.iter().map(|(path, _)| *path).chain([FILE]).collect();
    let (watching, at) = coordinator(&hdfs, "127.0.0.1:0");
    let _agents: Vec<Daemon> = (0..hdfs.nodes).map(|i| agent(&hdfs, &at, i)).collect();
    what_is_unchanged_is_listed_and_nothing_is_read(&hdfs);
    // A file under another name, and an object with other blocks.
    hdfs.stock(&["fs", "-mv", ENCODED, FILE]);
    store(&hdfs, 0, &["put", &local, LRC, "--code", OBJECTS[2].1, "--block", "1MiB", "--replace"]);
    wait_scans(&hdfs);

    // A DataNode with data blocks of both, and some block of an object with sub-blocks. The other data block of a local group was changed together with its checksums, so only its
    // recorded digest tells.
    let (lrc, file) = (places(&hdfs, LRC), places(&hdfs, FILE));
    let with_all = |i| {
        let found = (i, data_block(&hdfs, i, &lrc, 4)?, data_block(&hdfs, i, &file, 3)?);
        (on(&hdfs, CLAY, &hdfs.transfer(i)) > 0).then_some(found)
    };
    let (node, (stripe, index), (row, column_of_file)) = (0..hdfs.nodes).find_map(with_all).unwrap();
    let (place, changed) = (hdfs.transfer(node), index ^ 1);
    let (spoilt, _) = block(&hdfs, &column(&hdfs, LRC, changed), stripe);
    flip(&spoilt, 130_000);
    sign_again(&spoilt, 130_000);
    let lost: usize = paths.iter().map(|path| on(&hdfs, path, &place)).sum();
    let removed = on(&hdfs, GONE, &place);
    let sent = hdfs.sent();
    hdfs.kill_datanode(node);
    wait("all lost blocks to be staged", || watching.events("staged").len() >= lost + removed);
    assert_eq!(watching.events("counted"), Vec::<Value>::new(), "the NameNode knows of nothing");
    assert!(watching.events("staged").iter().any(|staged| staged["path"] == json!(FILE)));
    let wrong = watching.events("wrong");
    let of = |event: &Value| (event["path"].clone(), event["group"].clone(), event["index"].clone());
    assert_eq!(wrong.iter().map(of).collect::<Vec<_>>(), [(json!(LRC), json!(stripe), json!(changed))]);
    // But for records, and for the one stripe that the coordinator read to find out, no DataNode sent anything: agents read the disks.
    // One process that decodes fetches three blocks or more for each.
    let now = hdfs.sent();
    let more: u64 = now.iter().map(|(i, bytes)| bytes - sent[i]).sum();
    assert!(lost >= 8 && more < 10 * MIB as u64, "{more} bytes, to rebuild {lost} blocks of 1 MiB");
    a_lost_block_comes_along_a_chain(&hdfs, &at, &bytes, row * 3 + column_of_file);
    an_object_that_is_removed_gets_nothing(&hdfs, &watching, removed);

    // The next coordinator finds what is staged.
    drop(watching);
    let (watching, _) = coordinator(&hdfs, &at);
    hdfs.reconfigure(1);
    wait("the NameNode to count the blocks", || watching.events("counted").len() >= lost);
    assert_eq!(watching.events("staged"), Vec::<Value>::new(), "nothing was rebuilt twice");
    assert!(watching.events("counted").iter().all(|counted| counted["proved"] == json!(true)));
    for path in &paths {
        assert_eq!(store(&hdfs, 0, &["stat", path])["missing"], json!([]), "{path}");
        assert_eq!(got(&hdfs, path), sha256(&bytes), "{path}");
    }
    assert_eq!(hdfs.stock_sha(FILE), sha256(&bytes));
    let bad = &store(&hdfs, 2, &["verify"])["bad"];
    assert_eq!(bad.as_array().map(Vec::len), Some(1), "what was handed over is right: {bad}");

    // It comes back with its old blocks: HDFS drops one of each pair.
    hdfs.start_datanode(node);
    hdfs.wait_live();
    for path in &paths {
        wait_each_once(&hdfs, path);
        assert_eq!(got(&hdfs, path), sha256(&bytes), "{path}");
    }
    // Seven of eight DataNodes have a block of that stripe, so this needs all.
    assert_eq!(store(&hdfs, 0, &["repair", LRC, "--deep"])["blocks"][0]["index"], json!(changed));
    assert_eq!(store(&hdfs, 0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/"]).contains("is HEALTHY"));
}

/// Waits until the coordinator has gone over all folders, at least once from first to last: those of records, of objects, and those above.
fn wait_scans(hdfs: &Hdfs) -> Asked {
    let before = hdfs.asked();
    let folders = 5 + OBJECTS.len() as u64 + 1;
    wait("scans", || hdfs.asked().listings >= before.listings + 2 * folders);
    hdfs.asked()
}

fn what_is_unchanged_is_listed_and_nothing_is_read(hdfs: &Hdfs) {
    let (before, sent) = (wait_scans(hdfs), hdfs.sent());
    let after = wait_scans(hdfs);
    assert_eq!(after, Asked { listings: after.listings, ..before }, "files and locations were not asked for");
    assert_eq!(hdfs.sent(), sent, "records were not read");
}

/// The DataNodes of each block of each stripe.
fn places(hdfs: &Hdfs, path: &str) -> Vec<Vec<String>> {
    serde_json::from_value(store(hdfs, 0, &["stat", path])["places"].clone()).unwrap()
}

/// How many blocks of an object a DataNode has.
fn on(hdfs: &Hdfs, path: &str, place: &str) -> usize {
    places(hdfs, path).iter().flatten().filter(|other| *other == place).count()
}

/// The first block with an index below k that a DataNode has: its stripe and index.
fn data_block(hdfs: &Hdfs, node: u32, stripes: &[Vec<String>], k: usize) -> Option<(usize, usize)> {
    let place = hdfs.transfer(node);
    let of = |stripe: &Vec<String>| stripe[..k].iter().position(|other| *other == place);
    stripes.iter().enumerate().find_map(|(i, stripe)| Some((i, of(stripe)?)))
}

/// A lost block of the encoded file, and a part of it.
fn a_lost_block_comes_along_a_chain(hdfs: &Hdfs, coordinator: &str, bytes: &[u8], number: usize) {
    let (first, end) = (number * MIB, bytes.len().min((number + 1) * MIB));
    for (first, end) in [(first, end), (end - 100, end - 1)] {
        let range = format!("{first}-{}", end - 1);
        let mut command =
            hdfs.kintsu_command(&["store", "get", FILE, "-", "--range", &range, "--agents", "--json"]);
        let out = command.args(["--coordinator", coordinator]).output().unwrap();
        assert!(out.status.success() && out.stdout == bytes[first..end], "{}", text(&out));
        let report: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!((&report["by_agents"], &report["degraded"]), (&json!(1), &json!(1)), "{report}");
        // HDFS does not know yet, so the DataNode was tried; agents did not fail.
        let causes = report["causes"].as_array().unwrap();
        assert!(causes.len() == 1 && causes[0].as_str().unwrap().contains("refused"), "{report}");
    }
}

/// What is staged for it is dropped.
fn an_object_that_is_removed_gets_nothing(hdfs: &Hdfs, watching: &Daemon, lost: usize) {
    store(hdfs, 0, &["rm", GONE]);
    wait("what was staged of it to be dropped", || watching.events("dropped").len() >= lost);
    assert!(names(hdfs, GONE).is_empty());
}
