//! Beside a real, stock HDFS: what is written by its own client is listed, read, verified and repaired.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::json;

use crate::blocks::{flip, meta_of, sign_again, stored};
use crate::daemons::{Daemon, Hdfs, MIB, kintsu, noise, sha256, text, wait};
use crate::few::a_coordinator_repairs_what_too_few_agents_cannot;
use crate::unfit::what_cannot_be_repaired_is_said;

/// Files by name: three groups and a part; less than a row of cells; less than a cell; nothing.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("/ec/large", noise(27 * MIB + 12_345, 1)),
        ("/ec/short", noise(MIB * 3 / 2, 2)),
        ("/ec/tiny", noise(100, 3)),
        ("/ec/empty", Vec::new()),
    ]
}

#[test]
fn files_of_a_stock_hdfs_are_listed_read_verified_and_repaired() {
    let Some(mut hdfs) = Hdfs::start_slow(7, &[]) else { return };
    let files = files();
    hdfs.put("RS-3-2-1024k", 4 * MIB, &files);
    whole_files_are_read(&hdfs, &files);
    a_plain_user_sees_and_reads_but_does_not_repair(&hdfs, &files);
    rot_is_read_around_and_found(&hdfs, &files);
    wrong_bytes_under_valid_checksums_are_found(&hdfs, &files);
    nothing_is_written_in_safe_mode(&hdfs);
    a_dead_datanode_is_repaired(&mut hdfs, &files);
    what_cannot_be_repaired_is_said(&mut hdfs, files[1].0);
    a_coordinator_repairs_what_too_few_agents_cannot(&mut hdfs, &files[0]);
    for (path, bytes) in &files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
    }
}

fn whole_files_are_read(hdfs: &Hdfs, files: &[(&str, Vec<u8>)]) {
    let status = hdfs.json(0, &["status"]);
    assert_eq!((&status["files"], &status["groups"]), (&json!(4), &json!(5)), "{status}");
    assert_eq!(status["at_risk"], json!([]));
    for (path, bytes) in files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
    }
    let (path, bytes) = &files[0];
    // Within a cell; over the border of two groups; the last byte.
    for (first, last) in
        [(MIB + 5, MIB + 70_000), (12 * MIB - 3, 12 * MIB + 4), (bytes.len() - 1, bytes.len() - 1)]
    {
        let out = hdfs.kintsu(&["get", path, "-", "--range", &format!("{first}-{last}")]);
        assert_eq!(out.stdout, bytes[first..=last], "{first}-{last}: {}", text(&out));
    }
    let folder = hdfs.kintsu(&["get", "/ec", "x"]);
    assert!(text(&folder).contains("expected a file, got a folder"), "{}", text(&folder));
    let none = hdfs.kintsu(&["get", "/ec/none", "x"]);
    assert!(text(&none).contains("/ec/none: no such file"), "{}", text(&none));
}

fn a_plain_user_sees_and_reads_but_does_not_repair(hdfs: &Hdfs, files: &[(&str, Vec<u8>)]) {
    hdfs.stock(&["fs", "-mkdir", "/ec/secret"]);
    hdfs.stock(&["fs", "-chmod", "700", "/ec/secret"]);
    let status = hdfs.json(0, &["--user", "somebody", "status", "/ec"]);
    assert_eq!(status["groups"], json!(5));
    let skipped = status["skipped"][0].as_str().unwrap();
    assert!(skipped.contains("user somebody may not read /ec/secret"), "{skipped}");
    let got = hdfs.kintsu(&["--user", "somebody", "get", files[1].0, "-"]);
    assert_eq!(got.stdout, files[1].1);
    let refused = hdfs.kintsu(&["--user", "somebody", "repair"]);
    assert!(!refused.status.success() && text(&refused).contains("needs a superuser"), "{}", text(&refused));
}

fn rot_is_read_around_and_found(hdfs: &Hdfs, files: &[(&str, Vec<u8>)]) {
    let (path, bytes) = &files[0];
    let (file, _, group) = stored(hdfs, path, 1);
    flip(&file, 70_000);
    assert_eq!(hdfs.get_sha(path), sha256(bytes));
    let verified = hdfs.json(2, &["verify", path]);
    let bad = &verified["bad"][0];
    assert_eq!((&bad["group"], &bad["unreadable"][0][0]), (&json!(group), &json!(1)), "{verified}");
    assert!(bad["unreadable"][0][1].as_str().unwrap().contains("wrong bytes at 69632"), "{bad}");
    flip(&file, 70_000);
    assert_eq!(hdfs.json(0, &["verify", "/ec"])["bad"], json!([]));
}

fn wrong_bytes_under_valid_checksums_are_found(hdfs: &Hdfs, files: &[(&str, Vec<u8>)]) {
    let (path, at) = (files[0].0, 1_234_567);
    for index in [2, 4] {
        let (file, _, group) = stored(hdfs, path, index);
        flip(&file, at);
        let undo = sign_again(&file, at);
        let verified = hdfs.json(2, &["verify", path]);
        let bad = &verified["bad"][0];
        assert_eq!((&bad["group"], &bad["suspects"]), (&json!(group), &json!([index])), "{verified}");
        assert_eq!((&bad["mismatches"][0], &bad["unreadable"]), (&json!(at), &json!([])), "{verified}");
        flip(&file, at);
        std::fs::write(meta_of(&file), undo).unwrap();
    }
    assert_eq!(hdfs.json(0, &["verify", "/ec"])["bad"], json!([]));
}

fn nothing_is_written_in_safe_mode(hdfs: &Hdfs) {
    hdfs.stock(&["admin", "-safemode", "enter"]);
    let out = hdfs.kintsu(&["repair"]);
    assert!(text(&out).contains("0 blocks repaired"), "nothing is missing: {}", text(&out));
    hdfs.stock(&["admin", "-safemode", "leave"]);
}

fn a_dead_datanode_is_repaired(hdfs: &mut Hdfs, files: &[(&str, Vec<u8>)]) {
    let (path, bytes) = &files[0];
    let (lost_file, node, _) = stored(hdfs, path, 0);
    let lost: Vec<(u64, PathBuf)> = (hdfs.groups(path).iter().chain(&hdfs.groups("/ec/short")))
        .flat_map(|group| group.expected().map(|index| group.block(index).id))
        .filter_map(|id| Some((id, hdfs.block_file(node, id)?)))
        .collect();
    assert!(lost.iter().any(|(_, file)| *file == lost_file));
    let watching = Daemon::start(hdfs.kintsu_command(&["watch", "--scan", "1s"]));
    hdfs.kill_datanode(node);
    // While the NameNode still counts the DataNode as live.
    assert_eq!(hdfs.get_sha(path), sha256(bytes));
    let early = hdfs.json(0, &["repair"]);
    assert_eq!(early["blocks"], json!([]), "nothing is handed over before HDFS knows: {early}");

    // Told only of DataNodes that the NameNode still counts as live: it was seen before HDFS knew.
    wait("the watch to see it", || !watching.events("gone").is_empty());
    wait("the watch to say what is lost", || {
        watching.events("at-risk").iter().any(|risk| risk["blocks"] != json!(0))
    });
    wait("the silent DataNode to be noticed", || {
        let out = hdfs.kintsu(&["status", "--json"]);
        let found: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        let at_risk = found["at_risk"].as_array().unwrap();
        at_risk.iter().any(|group| group["silent"] != json!([]))
    });
    hdfs.reconfigure(1);
    hdfs.wait_live();
    hdfs.wait_missing(path, |missing| missing > 0);
    hdfs.json(1, &["status"]);
    assert_eq!(hdfs.get_sha(path), sha256(bytes));

    let repaired = hdfs.json(0, &["repair"]);
    let blocks = repaired["blocks"].as_array().unwrap();
    assert!(blocks.len() >= lost.len(), "{repaired}");
    assert!(
        blocks.iter().all(|block| block["proved"] == json!(true) && !block["handed_over"]["To"].is_null())
    );
    hdfs.json(0, &["status"]);
    wait("the watch to see everything repaired", || !watching.events("whole").is_empty());
    assert_eq!(watching.events("whole")[0]["blocks"], json!(blocks.len()));
    let back = watching.events("repaired");
    assert!(back.iter().all(|block| hdfs.transfer(node) != block["datanode"].as_str().unwrap()));
    assert_eq!(hdfs.json(0, &["verify"])["bad"], json!([]));
    assert!(hdfs.stock(&["fsck", "/ec"]).contains("is HEALTHY"));
    for (id, old) in &lost {
        let new = (0..hdfs.nodes).filter(|i| *i != node).find_map(|i| hdfs.block_file(i, *id)).unwrap();
        assert!(std::fs::read(&new).unwrap() == std::fs::read(old).unwrap(), "the bytes of {id}");
        assert!(
            std::fs::read(meta_of(&new)).unwrap() == std::fs::read(meta_of(old)).unwrap(),
            "the sums of {id}"
        );
    }
    for (path, bytes) in files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
    }

    // It comes back with its old blocks: HDFS drops duplicates, and nothing is lost.
    hdfs.start_datanode(node);
    hdfs.wait_live();
    wait("no index to be missing or twice", || {
        let groups = hdfs.groups(path);
        groups.iter().all(|g| g.missing().is_empty() && g.holders.values().all(|holders| holders.len() == 1))
    });
    hdfs.json(0, &["status"]);
    for (path, bytes) in files {
        assert_eq!(hdfs.get_sha(path), sha256(bytes), "{path}");
    }
}

#[test]
fn with_block_tokens_blocks_are_read_and_handed_over() {
    let Some(mut hdfs) = Hdfs::start(4, &["dfs.block.access.token.enable=true"]) else { return };
    let file = ("/ec/file", noise(5 * MIB + 1, 4));
    hdfs.put("XOR-2-1-1024k", 4 * MIB, std::slice::from_ref(&file));
    assert_eq!(hdfs.get_sha(file.0), sha256(&file.1));
    let (_, node, _) = stored(&hdfs, file.0, 1);
    hdfs.kill_datanode(node);
    assert_eq!(hdfs.get_sha(file.0), sha256(&file.1));
    hdfs.wait_missing(file.0, |missing| missing > 0);

    hdfs.stock(&["admin", "-safemode", "enter"]);
    let refused = hdfs.json(1, &["repair"]);
    assert!(refused["failed"][0].as_str().unwrap().contains("safe mode"), "{refused}");
    hdfs.stock(&["admin", "-safemode", "leave"]);
    let repaired = hdfs.json(0, &["repair"]);
    // Two blocks are needed and two are there, so nothing confirms them.
    assert!(repaired["blocks"].as_array().unwrap().iter().any(|block| block["proved"] == json!(false)));
    hdfs.json(0, &["status"]);
    assert_eq!(hdfs.get_sha(file.0), sha256(&file.1));
}

/// What is said when nothing can be asked of this NameNode.
fn ask(address: &str) -> String {
    let out = kintsu().args(["hdfs", "--namenode", address, "get", "/x", "-"]).output().unwrap();
    assert!(!out.status.success());
    text(&out)
}

#[test]
fn what_is_no_namenode_is_said_to_be_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        for answer in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"\xff\xff\xff\xffxxxx"] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            stream.write_all(answer).unwrap();
            // Until the client leaves, as a server does that waits for more.
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let web = ask(&address.to_string());
    assert!(web.contains("got an answer in HTTP; give the RPC port of the NameNode"), "{web}");
    let other = ask(&address.to_string());
    assert!(other.contains("got a frame of 4294967295 bytes"), "{other}");
    answering.join().unwrap();
    let closed = ask(&address.to_string());
    assert!(closed.contains(&format!("NameNode at {address}")) && closed.contains("refused"), "{closed}");
    assert!(ask("nowhere:x").contains("expected HOST:PORT"));
    let mut alone = kintsu();
    alone.args(["--coordinator", &address.to_string(), "hdfs", "get", "/x", "-", "--agents"]);
    let alone = text(&alone.output().unwrap());
    assert!(alone.contains("expected the agents, from a coordinator beside HDFS"), "{alone}");
}

/// An answer of a NameNode that ends a connection: the class of an exception, and its message. Each is shorter than 128 bytes.
fn refusal(class: &str, message: &str) -> Vec<u8> {
    // Call -1; status 2, fatal; then both texts.
    let mut header = vec![0x08, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x10, 2];
    for (field, text) in [(0x22, class), (0x2a, message)] {
        header.extend([field, text.len() as u8]);
        header.extend(text.as_bytes());
    }
    let len = header.len();
    let before = [&((len + 2) as u32).to_be_bytes()[..], &[len as u8 | 0x80, (len >> 7) as u8]].concat();
    [before, header].concat()
}

#[test]
fn kerberos_and_another_version_are_refused_in_words() {
    let kerberos = (
        "org.apache.hadoop.security.AccessControlException",
        "SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]",
        "authentication of this HDFS: expected SIMPLE, got Kerberos",
    );
    let version = (
        "org.apache.hadoop.ipc.RPC$VersionMismatch",
        "Server IPC version 10 cannot communicate with client version 9",
        "version of this NameNode: expected Hadoop 3, got VersionMismatch: Server IPC version 10",
    );
    for (class, message, expected) in [kerberos, version] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 7]).unwrap();
            // As Hadoop does it: the rest is not read, so that the connection is reset, maybe before the call is written.
            stream.write_all(&refusal(class, message)).unwrap();
        });
        let said = ask(&address.to_string());
        assert!(said.contains(expected), "{said}");
        answering.join().unwrap();
    }
}
