//! Objects of Kintsu in a real, stock HDFS: stored, read, repaired and removed; what kills leave behind; what is refused.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kintsu_hdfs::NameNode;
use serde_json::{Value, json};

use crate::blocks::{flip, sign_again};
use crate::daemons::{Hdfs, MIB, Running, kintsu, noise, sha256, text, user, wait};

/// Asks the NameNode.
fn ask<T>(hdfs: &Hdfs, question: impl AsyncFnOnce(&NameNode) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let namenode = NameNode::at(&hdfs.namenodes(), &user()).unwrap();
    runtime.block_on(question(&namenode))
}

/// The file with the blocks of an index of an object.
pub fn column(hdfs: &Hdfs, folder: &str, index: usize) -> String {
    let end = format!("-{index}");
    names(hdfs, folder).into_iter().find(|name| name.ends_with(&end) && name.contains("/.kintsu-")).unwrap()
}

/// The paths in a folder; none if it is not there.
pub fn names(hdfs: &Hdfs, folder: &str) -> Vec<String> {
    let page = ask(hdfs, async |namenode| namenode.listing(folder, Vec::new()).await);
    let entries = page.map_or(Vec::new(), |page| page.entries);
    let name = |name: &[u8]| format!("{}/{}", folder.trim_end_matches('/'), String::from_utf8_lossy(name));
    entries.iter().map(|entry| name(&entry.name)).collect()
}

/// The block of a stripe in a column: its file on the disk, and its DataNode.
pub fn block(hdfs: &Hdfs, column: &str, stripe: usize) -> (PathBuf, u32) {
    let located = ask(hdfs, async |namenode| namenode.locations(column).await).unwrap();
    let block = &located.blocks[stripe];
    let node = hdfs.number(&block.locations[0]);
    (hdfs.block_file(node, block.block.id).unwrap(), node)
}

/// A local file.
pub fn local(hdfs: &Hdfs, name: &str, bytes: &[u8]) -> String {
    let path = hdfs.dir.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

pub fn store(hdfs: &Hdfs, code: i32, args: &[&str]) -> Value {
    hdfs.json(code, &[&["store"], args].concat())
}

/// What `kintsu hdfs store` says of something that it refuses.
pub fn refused(hdfs: &Hdfs, args: &[&str]) -> String {
    let out = hdfs.kintsu(&[&["store"], args].concat());
    assert!(!out.status.success(), "{args:?}: {}", text(&out));
    text(&out)
}

pub fn got(hdfs: &Hdfs, path: &str) -> String {
    let out = hdfs.kintsu(&["store", "get", path, "-"]);
    assert!(out.status.success(), "{path}: {}", text(&out));
    sha256(&out.stdout)
}

/// Waits until the NameNode no longer lists some block of an object.
pub fn wait_missing(hdfs: &Hdfs, path: &str) {
    hdfs.wait_live();
    wait("blocks to be missing", || {
        let out = hdfs.kintsu(&["store", "stat", path, "--json"]);
        let status: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        status["missing"].as_array().is_some_and(|missing| !missing.is_empty())
    });
}

/// Waits until each block of an object is on one DataNode.
pub fn wait_each_once(hdfs: &Hdfs, path: &str) {
    wait("each block to be there once", || {
        let places = store(hdfs, 0, &["stat", path])["places"].clone();
        let mut all = places.as_array().unwrap().iter().flat_map(|stripe| stripe.as_array().unwrap());
        all.all(|place| !place.as_str().unwrap().contains(' '))
    });
}

/// Kills `kintsu hdfs store ARGS` as soon as something is so.
pub fn kill_when(hdfs: &Hdfs, args: &[&str], what: &str, condition: impl Fn() -> bool) {
    let mut child = Running::new(hdfs.kintsu_command(&[&["store"], args].concat()).spawn().unwrap());
    wait(what, condition);
    child.kill().unwrap();
    let ended = child.wait().unwrap();
    assert!(!ended.success(), "it was over before {what}");
}

/// Objects by code: large ones, less than a cell, nothing.
fn objects() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    vec![
        ("/store/rs", "rs:n=5,k=3", noise(7 * MIB + 12_345, 1)),
        ("/store/clay", "clay:n=5,k=3,d=4", noise(7 * MIB + 54_321, 2)),
        ("/store/lrc", "azure-lrc:n=7,k=4,r=2", noise(5 * MIB, 3)),
        ("/store/tiny", "rs:n=5,k=3", noise(100, 4)),
        ("/store/empty", "rs:n=5,k=3", Vec::new()),
    ]
}

#[test]
fn objects_are_stored_in_a_stock_hdfs_read_repaired_and_removed() {
    let Some(mut hdfs) = Hdfs::start(8, &[]) else { return };
    let objects = objects();
    let file = local(&hdfs, "f", &objects[0].2);
    what_cannot_be_is_refused_and_nothing_is_written(&hdfs, &file);
    for (path, code, bytes) in &objects {
        let file = local(&hdfs, "object", bytes);
        let written = store(&hdfs, 0, &["put", &file, path, "--code", code, "--block", "1MiB"]);
        assert_eq!((&written["bytes"], &written["refused"]), (&json!(bytes.len()), &json!([])), "{written}");
    }
    whole_objects_are_read(&hdfs, &objects);
    a_killed_write_leaves_the_old_object(&hdfs, &objects[0]);
    a_lost_answer_to_the_renaming_loses_nothing(&hdfs);
    wrong_bytes_are_read_around_found_and_repaired(&hdfs, &objects[0]);
    wrong_bytes_are_read_around_found_and_repaired(&hdfs, &objects[1]);
    a_file_that_is_gone_is_decoded_and_said(&hdfs);
    a_record_that_cannot_be_read_hides_its_object_alone(&mut hdfs, &objects);
    a_dead_datanode_is_repaired(&mut hdfs, &objects);
    what_is_removed_is_gone(&hdfs);
}

fn what_cannot_be_is_refused_and_nothing_is_written(hdfs: &Hdfs, file: &str) {
    let few = refused(hdfs, &["put", file, "/store/x", "--code", "rs:n=9,k=6"]);
    assert!(few.contains("9 usable nodes for rs:n=9,k=6, got 8"), "{few}");
    let small = refused(hdfs, &["put", file, "/store/x", "--code", "rs:n=5,k=3", "--block", "64KiB"]);
    assert!(small.contains("expected 1 MiB or more"), "{small}");
    let relative = refused(hdfs, &["put", file, "store/x"]);
    assert!(relative.contains("expected an absolute one"), "{relative}");
    let own = refused(hdfs, &["put", file, "/store/.kintsu/x"]);
    assert!(own.contains("without names of Kintsu's own"), "{own}");
    let folder = refused(hdfs, &["put", "/", "/store/x"]);
    assert!(folder.contains("expected a regular file"), "{folder}");
    let code = refused(hdfs, &["put", file, "/store/x", "--code", "nonsense:n=3"]);
    assert!(code.contains("nonsense"), "{code}");
    let plain =
        hdfs.kintsu(&["--user", "somebody", "store", "put", file, "/store/x", "--code", "rs:n=5,k=3"]);
    assert!(!plain.status.success() && text(&plain).contains("needs a superuser"), "{}", text(&plain));
    hdfs.stock(&["admin", "-safemode", "enter"]);
    let safe = refused(hdfs, &["put", file, "/store/x", "--code", "rs:n=5,k=3"]);
    assert!(safe.contains("safe mode"), "{safe}");
    hdfs.stock(&["admin", "-safemode", "leave"]);
    assert!(names(hdfs, "/").is_empty(), "{:?}", names(hdfs, "/"));
    hdfs.stock(&["fs", "-mkdir", "-p", "/store/others"]);
    hdfs.stock(&["fs", "-touchz", "/store/others/file"]);
    for path in ["/store/others", "/store/others/file"] {
        let taken = refused(hdfs, &["put", file, path, "--code", "rs:n=5,k=3"]);
        assert!(taken.contains("expected a name that is free"), "{taken}");
        let none = refused(hdfs, &["rm", path]);
        assert!(none.contains("something that Kintsu did not store"), "{none}");
        let none = refused(hdfs, &["get", path, "-"]);
        assert!(none.contains("expected an object of kintsu hdfs store put"), "{none}");
    }
    assert!(refused(hdfs, &["get", "/store/none", "-"]).contains("/store/none: no such file"));
}

fn whole_objects_are_read(hdfs: &Hdfs, objects: &[(&str, &str, Vec<u8>)]) {
    let listed = store(hdfs, 0, &["ls"]);
    let codes: Vec<_> =
        listed["objects"].as_array().unwrap().iter().map(|o| (&o["path"], &o["code"])).collect();
    for (path, code, bytes) in objects {
        assert!(codes.contains(&(&json!(path), &json!(code))), "{listed}");
        assert_eq!(got(hdfs, path), sha256(bytes), "{path}");
        let status = store(hdfs, 0, &["stat", path]);
        assert_eq!((&status["missing"], &status["crowded"]), (&json!([]), &json!([])), "{status}");
    }
    let files = hdfs.stock(&["fs", "-stat", "%r %n", "/store/*/.kintsu-*"]);
    assert!(files.lines().all(|line| line.starts_with("1 .kintsu-")), "{files}");
    assert_eq!(files.lines().count(), 5 + 5 + 7 + 3, "a tiny object has one data block: {files}");
    let (path, _, bytes) = &objects[1];
    for (first, last) in
        [(5, 5), (MIB, 2 * MIB), (3 * MIB - 3, 3 * MIB + 4), (bytes.len() - 1, bytes.len() - 1)]
    {
        let out = hdfs.kintsu(&["store", "get", path, "-", "--range", &format!("{first}-{last}")]);
        assert_eq!(out.stdout, bytes[first..=last], "{first}-{last}: {}", text(&out));
    }
    let verified = store(hdfs, 0, &["verify"]);
    assert_eq!((&verified["bad"], &verified["unproved"]), (&json!([]), &json!([])), "{verified}");
    let there = refused(hdfs, &["put", "/etc/passwd", "/store/rs", "--code", "rs:n=5,k=3"]);
    assert!(there.contains("--replace replaces it"), "{there}");
}

fn a_killed_write_leaves_the_old_object(hdfs: &Hdfs, (path, code, bytes): &(&str, &str, Vec<u8>)) {
    let before = names(hdfs, path);
    let larger = local(hdfs, "larger", &noise(90 * MIB, 9));
    let put = |to: &'static str| {
        ["put", &larger, to, "--code", code, "--block", "1MiB", "--replace"].map(str::to_owned)
    };
    for to in ["/store/rs", "/store/new"] {
        let args = put(to);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // Its first stripe is written, and the record is not.
        let there = names(hdfs, to).len();
        kill_when(hdfs, &args, "a write to have begun", || names(hdfs, to).len() >= there + 5);
    }
    assert_eq!(got(hdfs, path), sha256(bytes), "the old object is whole");
    assert!(refused(hdfs, &["get", "/store/new", "-"]).contains("a folder without a record"));
    let listed = store(hdfs, 0, &["ls", "/store"]);
    assert!(listed["objects"].as_array().unwrap().iter().all(|object| object["path"] != "/store/new"));
    let left = store(hdfs, 0, &["leftovers"]);
    let left: Vec<&str> = left["files"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(left.iter().any(|file| file.starts_with("/store/new/.kintsu-")), "{left:?}");
    assert!(left.iter().any(|file| file.starts_with("/store/rs/.kintsu-")), "{left:?}");
    assert!(left.iter().all(|file| !before.contains(&(*file).to_owned())), "{left:?} {before:?}");
    store(hdfs, 0, &["leftovers", "--remove"]);
    assert_eq!(names(hdfs, path), before);
    assert_eq!(got(hdfs, path), sha256(bytes));
    // A name with leftovers, or an empty folder, is free.
    let small = local(hdfs, "small", b"small");
    store(hdfs, 0, &["put", &small, "/store/new", "--code", code]);
    assert_eq!(got(hdfs, "/store/new"), sha256(b"small"));
    let replaced =
        store(hdfs, 0, &["put", &larger, "/store/new", "--code", code, "--block", "8MiB", "--replace"]);
    assert_eq!(replaced["replaced"], json!(true), "{replaced}");
    assert_eq!(got(hdfs, "/store/new"), sha256(&noise(90 * MIB, 9)));
    assert_eq!(names(hdfs, "/store/new").len(), 6, "nothing of the old version is left");
    store(hdfs, 0, &["rm", "/store/new"]);
}

/// A NameNode whose first answer to a renaming is lost with its connection. Returns its address.
fn forgetful(hdfs: &Hdfs) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, namenode) = (listener.local_addr().unwrap().to_string(), hdfs.namenodes());
    let lost = Arc::new(AtomicBool::new(false));
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(&namenode).unwrap();
            // Whether the answer on its way is to be lost.
            let (losing, lost) = (Arc::new(AtomicBool::new(false)), lost.clone());
            let (mut asking, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let loses = losing.clone();
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(some @ 1..) = asking.read(&mut bytes) {
                    let renames = bytes[..some].windows(7).any(|part| part == b"rename2");
                    if renames && !lost.swap(true, Ordering::SeqCst) {
                        loses.store(true, Ordering::SeqCst);
                    }
                    asked.write_all(&bytes[..some]).unwrap();
                }
                let _ = asked.shutdown(Shutdown::Both);
            });
            let (mut answering, mut answered) = (server, client);
            std::thread::spawn(move || {
                let mut bytes = vec![0; 1 << 16];
                while let Ok(some @ 1..) = answering.read(&mut bytes) {
                    if losing.load(Ordering::SeqCst) || answered.write_all(&bytes[..some]).is_err() {
                        break;
                    }
                }
                let _ = answered.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

fn a_lost_answer_to_the_renaming_loses_nothing(hdfs: &Hdfs) {
    let bytes = noise(3 * MIB, 12);
    let file = local(hdfs, "lost", &bytes);
    for more in [&[][..], &["--replace"]] {
        let address = forgetful(hdfs);
        let mut put = kintsu();
        put.args([
            "hdfs",
            "--namenode",
            &address,
            "store",
            "put",
            &file,
            "/store/lost",
            "--code",
            "rs:n=5,k=3",
        ]);
        let put = put.args(more).output().unwrap();
        assert!(put.status.success(), "the object is there: {}", text(&put));
        assert_eq!(got(hdfs, "/store/lost"), sha256(&bytes));
        assert_eq!(names(hdfs, "/store/lost").len(), 6, "a record, and five files of this version");
    }
    store(hdfs, 0, &["rm", "/store/lost"]);
}

fn wrong_bytes_are_read_around_found_and_repaired(hdfs: &Hdfs, (path, _, bytes): &(&str, &str, Vec<u8>)) {
    let (file, _) = block(hdfs, &column(hdfs, path, 1), 0);
    flip(&file, 70_000);
    assert_eq!(got(hdfs, path), sha256(bytes));
    let verified = store(hdfs, 2, &["verify", path]);
    assert_eq!(verified["bad"][0]["unreadable"][0][0], json!(1), "{verified}");
    let repaired = store(hdfs, 0, &["repair", path, "--deep"]);
    assert_eq!(repaired["blocks"][0]["index"], json!(1), "{repaired}");
    // Under valid checksums too: only the recorded digest tells.
    for index in [2, 4] {
        let (file, _) = block(hdfs, &column(hdfs, path, index), 1);
        flip(&file, 130_000);
        sign_again(&file, 130_000);
        let verified = store(hdfs, 2, &["verify", path]);
        let bad = &verified["bad"][0]["unreadable"][0];
        assert_eq!(bad[0], json!(index), "{verified}");
        assert!(bad[1].as_str().unwrap().contains("expected the recorded digest"), "{bad}");
        let repaired = store(hdfs, 0, &["repair", path, "--deep"]);
        let block = &repaired["blocks"][0];
        assert_eq!((&block["group"], &block["index"]), (&json!(1), &json!(index)), "{repaired}");
    }
    assert_eq!(store(hdfs, 0, &["verify", path])["bad"], json!([]));
    assert_eq!(got(hdfs, path), sha256(bytes));
}

fn a_file_that_is_gone_is_decoded_and_said(hdfs: &Hdfs) {
    let bytes = noise(4 * MIB, 11);
    let file = local(hdfs, "gone", &bytes);
    store(hdfs, 0, &["put", &file, "/store/gone", "--code", "rs:n=5,k=3", "--block", "1MiB"]);
    hdfs.stock(&["fs", "-rm", "-skipTrash", &column(hdfs, "/store/gone", 1)]);
    assert_eq!(got(hdfs, "/store/gone"), sha256(&bytes));
    store(hdfs, 1, &["stat", "/store/gone"]);
    let repaired = store(hdfs, 1, &["repair", "/store/gone"]);
    assert!(repaired["failed"][0].as_str().unwrap().contains("the file that had it is gone"), "{repaired}");
    store(hdfs, 0, &["rm", "/store/gone"]);
}

/// Its only replica is on a DataNode that is down.
fn a_record_that_cannot_be_read_hides_its_object_alone(hdfs: &mut Hdfs, objects: &[(&str, &str, Vec<u8>)]) {
    let file = local(hdfs, "alone", b"alone");
    store(hdfs, 0, &["put", &file, "/store/alone", "--code", "rs:n=5,k=3"]);
    let record = "/store/alone/.kintsu";
    hdfs.stock(&["fs", "-setrep", "1", record]);
    let replicas =
        || ask(hdfs, async |namenode| namenode.locations(record).await).unwrap().blocks.remove(0).locations;
    wait("one replica of the record", || replicas().len() == 1);
    let node = hdfs.number(&replicas()[0]);
    hdfs.kill_datanode(node);
    let listed = store(hdfs, 0, &["ls"]);
    assert_eq!(listed["objects"].as_array().unwrap().len(), objects.len(), "{listed}");
    assert_eq!(listed["skipped"].as_array().unwrap().len(), 1, "{listed}");
    hdfs.start_datanode(node);
    // The NameNode may not have noticed that it was down, and lists it before it is up.
    wait("the record to be read", || store(hdfs, 0, &["ls"])["skipped"] == json!([]));
    hdfs.wait_live();
    store(hdfs, 0, &["rm", "/store/alone"]);
}

fn a_dead_datanode_is_repaired(hdfs: &mut Hdfs, objects: &[(&str, &str, Vec<u8>)]) {
    let (_, node) = block(hdfs, &column(hdfs, "/store/rs", 0), 0);
    hdfs.kill_datanode(node);
    // While the NameNode still counts it as live.
    for (path, _, bytes) in objects {
        assert_eq!(got(hdfs, path), sha256(bytes), "{path}");
    }
    wait_missing(hdfs, "/store/rs");
    let status = store(hdfs, 1, &["stat", "/store/rs"]);
    assert!(status["missing"].as_array().unwrap().contains(&json!([0, 0])), "{status}");
    for (path, _, bytes) in objects {
        assert_eq!(got(hdfs, path), sha256(bytes), "{path}");
    }
    let repaired = store(hdfs, 0, &["repair"]);
    assert!(
        repaired["blocks"].as_array().unwrap().iter().all(|block| block["proved"] == json!(true)),
        "{repaired}"
    );
    for (path, _, bytes) in objects {
        assert_eq!(store(hdfs, 0, &["stat", path])["missing"], json!([]), "{path}");
        assert_eq!(got(hdfs, path), sha256(bytes), "{path}");
    }
    assert_eq!(store(hdfs, 0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/store"]).contains("is HEALTHY"));
    // It comes back with its old blocks: HDFS drops one of each pair.
    hdfs.start_datanode(node);
    hdfs.wait_live();
    for (path, _, bytes) in objects {
        wait_each_once(hdfs, path);
        assert_eq!(got(hdfs, path), sha256(bytes), "{path}");
    }
}

fn what_is_removed_is_gone(hdfs: &Hdfs) {
    hdfs.stock(&["fs", "-mv", "/store/rs", "/store/renamed"]);
    assert_eq!(got(hdfs, "/store/renamed"), sha256(&objects()[0].2), "a stock client renames objects");
    let removed = store(hdfs, 0, &["rm", "/store/renamed"]);
    assert_eq!(removed["left"], json!([]), "{removed}");
    hdfs.stock(&["fs", "-touchz", "/store/clay/mine"]);
    let removed = store(hdfs, 0, &["rm", "/store/clay"]);
    assert_eq!(removed["left"].as_array().unwrap().len(), 1, "what others put there stays: {removed}");
    assert_eq!(names(hdfs, "/store/clay"), ["/store/clay/mine"]);
    assert!(!names(hdfs, "/store").contains(&"/store/renamed".to_owned()));
}
