//! Streams through pipes, trees of files, checksums and attributes, through the command line.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use cluster::{Cluster, kintsu, sha256, text, wait};
use redb::ReadableTable as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

const SMALL: [&str; 6] = ["--code", "rs:n=5,k=3", "--block", "64KiB", "--cell", "16KiB"];

/// Bytes of a stripe of a stream with the options `SMALL`.
const FULL: u64 = 3 << 16;

/// The largest memory of a process until now, in KiB.
fn peak_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_pipe_gives_the_same_object_as_a_file() {
    let cluster = Cluster::start(5, 5);
    for bytes in [0, 1, FULL - 1, FULL, FULL + 1, 5 * FULL + 7] {
        let file = cluster.file("source", bytes);
        cluster.put(&file, "file", &[&SMALL[..], &["--replace"]].concat());
        let streamed = cluster.put_stream(&file, "stream", &[&SMALL[..], &["--replace"]].concat());
        let stored = cluster.json(&["stat", "file"]);
        assert_eq!(
            (&streamed["checksum"], &streamed["size"]),
            (&stored["checksum"], &json!(bytes)),
            "{bytes}"
        );
        assert_eq!(cluster.get_sha("stream"), sha256(&file), "{bytes}");
    }
    // A FIFO, a link to standard input, and a shell's pipe.
    let file = cluster.file("source", 2 * FULL + 3);
    let fifo = cluster.dir.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let putting = cluster.spawn(&[&["put", fifo.to_str().unwrap(), "fifo"], &SMALL[..]].concat());
    fs::copy(&file, &fifo).unwrap();
    assert!(putting.wait_with_output().unwrap().status.success());
    assert_eq!(cluster.get_sha("fifo"), sha256(&file));
    let (file_name, program) = (file.display(), env!("CARGO_BIN_EXE_kintsu"));
    let script = format!("cat '{file_name}' | '{program}' put /dev/stdin stdin {}", SMALL.join(" "));
    let put = Command::new("sh").args(["-c", &script]).env("KINTSU_COORDINATOR", &cluster.endpoint).output();
    let put = put.unwrap();
    assert!(put.status.success(), "{}", text(&put.stderr));
    assert_eq!(cluster.get_sha("stdin"), sha256(&file));
}

#[test]
fn a_killed_stream_leaves_nothing() {
    let cluster = Cluster::start(5, 5);
    let data = fs::read(cluster.file("source", 6 * FULL)).unwrap();
    let mut child = cluster.spawn_stream("o", &SMALL);
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&data).unwrap();
    wait("the put to begin", || cluster.json(&["status"])["puts_pending"] == 1);
    child.kill().unwrap();
    child.wait().unwrap();
    wait("the lease to end", || cluster.json(&["status"])["puts_pending"] == 0);
    wait("its blocks to be deleted", || cluster.json(&["status"])["garbage"] == 0);
    assert_eq!(cluster.json(&["ls"]), json!([]));
    for node in 0..5 {
        assert_eq!(block_files(&cluster.node_dir(node).join("blocks")), 0, "node {node}");
    }
}

fn block_files(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| if entry.path().is_dir() { block_files(&entry.path()) } else { 1 }).sum()
}

#[test]
fn the_memory_for_a_stream_does_not_depend_on_its_length() {
    const LIMIT_KIB: u64 = 288 << 10;
    let cluster = Cluster::start(5, 5);
    let agents: Vec<u32> = (0..5).map(|id| cluster.agent_pid(id)).collect();
    let before: Vec<u64> = agents.iter().map(|pid| peak_kib(*pid)).collect();
    let block: Vec<u8> = (0..1u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut child = cluster.spawn_stream("o", &["--code", "rs:n=5,k=3"]);
    let mut pipe = child.stdin.take().unwrap();
    for _ in 0..640 {
        pipe.write_all(&block).unwrap();
    }
    let peak = peak_kib(child.id());
    println!("put of 640 MiB: the client's peak is {peak} KiB");
    drop(pipe);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(peak < LIMIT_KIB, "{peak} KiB");
    let object: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(object["size"], 640 << 20);
    for (pid, before) in agents.into_iter().zip(before) {
        let growth = peak_kib(pid).saturating_sub(before);
        println!("an agent's peak grew by {growth} KiB");
        assert!(growth < 64 << 10, "{growth} KiB");
    }
}

#[test]
fn attributes_are_shown_and_outlast_a_restart() {
    let mut cluster = Cluster::start(5, 5);
    let file = cluster.file("source", 1000);
    let meta = ["--content-type", "text/plain", "--meta", "owner=ada", "--meta", "note=a=b c"];
    cluster.put(&file, "o", &[&SMALL[..], &meta[..]].concat());
    cluster.kill_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(5);
    let told = cluster.json(&["stat", "o"]);
    let expected = json!({"content_type": "text/plain", "user": {"owner": "ada", "note": "a=b c"}});
    assert_eq!(told["attributes"], expected);
    let sum = told["checksum"].as_str().unwrap().to_owned();
    let page = text(&cluster.run(&["stat", "o"]).stdout);
    for words in ["text/plain", "owner=ada", "note=a=b c", "1000 bytes", &sum, " UTC"] {
        assert!(page.contains(words), "{words}: {page}");
    }
    let long = text(&cluster.run(&["ls", "--long"]).stdout);
    assert!(long.contains(&sum) && long.contains("text/plain") && long.starts_with("      SIZE"), "{long}");
    for (wrong, words) in [("x", "KEY=VALUE"), ("=x", "KEY=VALUE"), ("a=\n", "no control characters")] {
        let refused = cluster.refused(&["put", file.to_str().unwrap(), "p", "--meta", wrong]);
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn a_replaced_object_keeps_its_code() {
    let cluster = Cluster::start(9, 3);
    let file = cluster.file("source", 1000);
    let path = file.to_str().unwrap();
    let code = |args: &[&str]| cluster.json(args)["code"].as_str().unwrap().to_owned();
    assert_eq!(code(&["put", path, "o", "--code", "rs:n=5,k=3"]), "rs:n=5,k=3");
    assert_eq!(code(&["put", path, "o", "--replace"]), "rs:n=5,k=3");
    assert_eq!(code(&["put", path, "o", "--replace", "--code", "rs:n=4,k=2"]), "rs:n=4,k=2");
    assert_eq!(cluster.put_stream(&file, "o", &["--replace"])["code"], "rs:n=4,k=2");
    assert_eq!(code(&["put", path, "new", "--replace"]), "rs:n=9,k=6");
}

#[test]
fn errors_are_json_where_that_was_asked_for() {
    let cluster = Cluster::start(4, 4);
    let error = |args: &[&str]| -> Value {
        let out = cluster.run(&[args, &["--json"]].concat());
        assert!(!out.status.success() && out.stdout.is_empty(), "{args:?}: {}", text(&out.stdout));
        let told: Value =
            serde_json::from_slice(&out.stderr).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stderr)));
        told["error"].clone()
    };
    let missing = error(&["stat", "nothing"]);
    assert_eq!(missing["kind"], "not_found");
    let message = missing["message"].as_str().unwrap();
    assert_eq!(message.matches("nothing").count(), 1, "{message}");
    let missing = error(&["put", "/no/such/file", "o"]);
    let message = missing["message"].as_str().unwrap();
    assert_eq!(message.matches("/no/such/file").count(), 1, "{message}");
    let wrong = error(&["put", "--cod", "x", "y", "z"]);
    assert!(wrong["kind"] == "usage" && wrong["message"].as_str().unwrap().contains("--cod"), "{wrong}");
    assert_eq!(error(&["put", "/dev/null", "o", "--code", "rs:n=9,k=x"])["kind"], "invalid");
    // Each name has its row; nothing is said twice.
    let out = cluster.run(&["rm", "nothing", "nought", "--yes", "--json"]);
    let rows: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(rows[1]["error"].as_str().unwrap().contains("nought"), "{rows}");
    assert_eq!((out.status.code(), text(&out.stderr).as_str()), (Some(1), ""));
    let said = text(&cluster.run(&["rm", "nothing", "nought", "--yes"]).stderr);
    assert_eq!((said.matches("nothing").count(), said.matches("nought").count()), (1, 1), "{said}");
    // Ctrl-C.
    let mut put = cluster.spawn_stream("o", &["--code", "rs:n=4,k=2", "--block", "32KiB"]);
    put.stdin.as_mut().unwrap().write_all(&[1; 300_000]).unwrap();
    wait("the put to begin", || cluster.json(&["status"])["puts_pending"] == 1);
    kill_process(Pid::from_child(&put), Signal::INT).unwrap();
    let out = put.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!((out.status.code(), &told["error"]["kind"]), (Some(130), &json!("interrupted")));
}

#[test]
fn a_closed_pipe_ends_a_read_with_an_error() {
    let cluster = Cluster::start(5, 5);
    cluster.put(&cluster.file("source", 8 << 20), "o", &SMALL);
    let mut child = cluster.spawn(&["get", "o", "-"]);
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(text(&out.stderr).contains("reader of the pipe has closed it"), "{}", text(&out.stderr));
}

#[test]
fn a_closed_standard_stream_is_an_error_and_dev_null_is_not() {
    let cluster = Cluster::start(5, 5);
    cluster.put(&cluster.file("source", 100_000), "o", &SMALL);
    // Both ways to give `/dev/null`: as a shell does, and open for reading too, as Rust's runtime and others do.
    let cases = [
        ("get o - >&-", "standard output is closed"),
        ("get o /dev/stdout >&-", "standard output is closed"),
        ("ls >&-", "standard output is closed"),
        ("backup - >&-", "standard output is closed"),
        ("put - empty <&-", "standard input is closed"),
        ("get o - >/dev/null", ""),
        ("get o - 1<>/dev/null", ""),
        ("put - empty </dev/null", ""),
    ];
    for (case, words) in cases {
        let script = format!("'{}' {case}", env!("CARGO_BIN_EXE_kintsu"));
        let out =
            Command::new("sh").args(["-c", &script]).env("KINTSU_COORDINATOR", &cluster.endpoint).output();
        let out = out.unwrap();
        let (said, expected) = (text(&out.stderr), if words.is_empty() { 0 } else { 1 });
        assert!(out.status.code() == Some(expected) && said.contains(words), "{case}: {said}");
    }
    assert_eq!(cluster.json(&["stat", "empty"])["size"], 0);
}

#[test]
fn a_verdict_is_the_same_though_nobody_reads_it() {
    let mut cluster = Cluster::start(6, 3);
    cluster.put(&cluster.file("source", 100_000), "o", &SMALL);
    cluster.put(&cluster.file("more", 100_000), "other", &SMALL);
    cluster.json(&["volume", "create", "disk", "--size", "1MiB", "--code", "rs:n=4,k=2"]);
    let tree = cluster.dir.path().join("tree");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("good"), "good").unwrap();
    std::os::unix::fs::symlink("/no/such/file", tree.join("bad")).unwrap();
    let tree = tree.to_str().unwrap();
    let endpoint = cluster.endpoint.clone();
    let ends_with = |expected: i32, args: &str| {
        // The pipe has no reader from the beginning.
        let (_, writer) = std::io::pipe().unwrap();
        let mut command = kintsu();
        command.args(args.split(' ')).env("KINTSU_COORDINATOR", &endpoint).stdout(writer);
        let out = command.stdin(std::process::Stdio::null()).output().unwrap();
        assert_eq!(out.status.code(), Some(expected), "{args}: {}", text(&out.stderr));
    };
    for list in ["ls", "ls --json", "nodes", "jobs", "volume ls", "scrub"] {
        ends_with(0, list);
    }
    for json in ["", " --json"] {
        ends_with(1, &format!("put {tree} t/ --replace{json}"));
        ends_with(1, &format!("rm other nothing --yes{json}"));
        ends_with(1, &format!("stat nothing{json}"));
    }
    ends_with(1, "get o -");
    ends_with(1, "volume read disk");
    assert_eq!(cluster.json(&["stat", "t/good"])["size"], 4, "what was to be done is done");
    for node in 0..4 {
        cluster.kill(node);
    }
    cluster.wait_dead(4);
    for json in ["", " --json"] {
        ends_with(2, &format!("health{json}"));
        ends_with(1, &format!("repair{json}"));
    }
}

/// Files of a tree: their names below it, and the SHA-256 of each.
fn tree(dir: &Path, below: &str, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().into_string().unwrap());
        match entry.path().is_dir() {
            true => tree(&entry.path(), &format!("{name}/"), found),
            false => drop(found.insert(name, sha256(&entry.path()))),
        }
    }
}

fn tree_of(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    tree(dir, "", &mut found);
    found
}

/// Small files of the tree that is stored while a node is killed.
const FILES: u32 = 1000;

#[test]
fn a_tree_comes_back_though_a_node_is_killed_meanwhile() {
    let mut cluster = Cluster::start(8, 4);
    let source = cluster.dir.path().join("source");
    for i in 0..FILES {
        let folder = source.join(format!("d{}/e {}", i % 5, i % 3));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("f{i}")), vec![i as u8; (i * 37 % 5000) as usize]).unwrap();
    }
    fs::rename(cluster.file("large", 20 << 20), source.join("large")).unwrap();
    std::os::unix::fs::symlink("d1", source.join("link")).unwrap();
    let mut expected = tree_of(&source);
    expected.retain(|name, _| !name.starts_with("link/"));

    let code = ["--code", "rs:n=5,k=3", "--block", "1MiB"];
    let from = source.to_str().unwrap().to_owned();
    let putting = cluster.spawn(&[&["put", &from, "t/", "--json"], &code[..]].concat());
    wait("some files to be stored", || cluster.json(&["status"])["objects"].as_u64().unwrap() > 50);
    cluster.kill(3);
    let out = putting.wait_with_output().unwrap();
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["files"], &report["failures"]), (&json!(FILES + 1), &json!(1)), "{report}");
    println!("put while a node is killed: {} files a second", report["files_per_second"]);
    assert!(report["failed"][0]["name"].as_str().unwrap().ends_with("link") && !out.status.success());

    let out = cluster.dir.path().join("out");
    let to = out.to_str().unwrap().to_owned();
    let report = cluster.json(&["get", "t", &to]);
    assert_eq!((&report["files"], &report["failures"]), (&json!(FILES + 1), &json!(0)), "{report}");
    println!("get without that node: {} files a second", report["files_per_second"]);
    assert_eq!(tree_of(&out), expected);

    // The second time all names are taken.
    let again = cluster.run(&[&["put", &from, "t", "--json"], &code[..]].concat());
    let report: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(
        (again.status.code(), &report["files"], &report["failures"]),
        (Some(1), &json!(0), &json!(FILES + 2))
    );

    let listed = cluster.json(&["ls", "t/", "--delimiter", "/"]);
    let names: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l["prefix"].as_str().or(l["name"].as_str()).unwrap())
        .collect();
    assert_eq!(names, ["t/d0/", "t/d1/", "t/d2/", "t/d3/", "t/d4/", "t/large"]);
    let page = cluster.run(&["ls", "t/", "--limit", "2", "--delimiter", "/"]);
    assert!(text(&page.stdout).lines().count() == 3 && text(&page.stderr).contains("--after \"t/d1/\""));
}

#[test]
fn names_that_lead_out_of_the_folder_are_not_written() {
    let cluster = Cluster::start(5, 5);
    let file = cluster.file("source", 10);
    for name in ["t/good", "t/../bad", "t//bad", "t/a/../../../bad"] {
        cluster.put(&file, name, &SMALL);
    }
    let out = cluster.dir.path().join("deep/er/out");
    let got = cluster.run(&["get", "t/", out.to_str().unwrap(), "--json"]);
    let report: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!((got.status.code(), &report["files"], &report["failures"]), (Some(1), &json!(1), &json!(3)));
    let found = tree_of(&cluster.dir.path().join("deep"));
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["er/out/good"]);
    assert!(cluster.refused(&["get", "t/", file.to_str().unwrap()]).contains("expected a folder"));
    assert!(cluster.refused(&["get", "no", out.to_str().unwrap()]).contains("\"no\""));
}

#[test]
fn a_folder_in_the_place_of_a_file_stays_as_it_is() {
    let cluster = Cluster::start(5, 5);
    let file = cluster.file("source", 10);
    cluster.put(&file, "t/x", &SMALL);
    let out = cluster.dir.path().join("out");
    std::fs::create_dir_all(out.join("x")).unwrap();
    std::fs::write(out.join("x/x"), "mine").unwrap();
    let got = cluster.run(&["get", "t", out.to_str().unwrap(), "--json"]);
    let report: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!((got.status.code(), &report["files"], &report["failures"]), (Some(1), &json!(0), &json!(1)));
    assert_eq!(std::fs::read_to_string(out.join("x/x")).unwrap(), "mine");
}

#[test]
fn an_object_that_has_another_checksum_is_not_delivered() {
    let mut cluster = Cluster::start(5, 5);
    cluster.put(&cluster.file("source", 300_000), "o", &SMALL);
    cluster.stop_coordinator();
    {
        let table = redb::TableDefinition::<&str, &[u8]>::new("objects");
        let store = redb::Database::open(cluster.coordinator_dir().join("metadata.redb")).unwrap();
        let change = store.begin_write().unwrap();
        {
            let mut objects = change.open_table(table).unwrap();
            let mut row = objects.get("o").unwrap().unwrap().value().to_vec();
            let at = row.windows(8).position(|key| key == b"checksum").unwrap();
            row[at + 8 + 8] ^= 1;
            objects.insert("o", row.as_slice()).unwrap();
        }
        change.commit().unwrap();
    }
    cluster.start_coordinator();
    cluster.wait_alive(5);
    let out = cluster.dir.path().join("kept");
    fs::write(&out, "before").unwrap();
    let refused = cluster.refused(&["get", "o", out.to_str().unwrap()]);
    assert!(refused.contains("expected the checksum crc64nvme:"), "{refused}");
    assert_eq!(fs::read(&out).unwrap(), b"before");
    // A part of it cannot be checked, and each block has a digest of its own.
    cluster.json(&["get", "o", out.to_str().unwrap(), "--range", "5-9"]);
    assert_eq!(fs::read(&out).unwrap().len(), 5);
}
