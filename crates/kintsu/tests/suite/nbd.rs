//! `kintsu nbd`: a volume as a disk for other programs, while nodes and servers die.

#![allow(clippy::unwrap_used, reason = "a test's scaffolding: what fails is the test's failure")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, compared, kintsu, skipped, text, wait};

/// A server of a volume; killed when dropped.
struct Server {
    child: Child,
    uri: String,
}

impl Server {
    fn start(cluster: &Cluster, socket: &Path, more: &[&str]) -> Self {
        let mut command = kintsu();
        command.args(["nbd", "disk", "--json", "--unix"]).arg(socket).args(more);
        command.env("KINTSU_COORDINATOR", &cluster.endpoint);
        Self::of(command)
    }

    fn of(command: Command) -> Self {
        let (child, ready) = started(command);
        Self { uri: ready["uri"].as_str().unwrap().to_owned(), child }
    }

    /// SIGTERM, as an operator would.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }

    /// `qemu-io` with these commands; all must succeed.
    fn io(&self, commands: &[&str]) {
        let out = self.try_io(commands);
        let said = text(&out.stdout) + &text(&out.stderr);
        assert!(out.status.success() && !said.contains("failed"), "{commands:?}: {said}");
    }

    fn try_io(&self, commands: &[&str]) -> Output {
        let args = commands.iter().flat_map(|command| ["-c", command]);
        let writes = commands.iter().any(|command| command.starts_with("write"));
        let mode: &[&str] = if writes { &[] } else { &["-r"] };
        Command::new("qemu-io").args(["-f", "raw"]).args(mode).args(args).arg(&self.uri).output().unwrap()
    }
}

/// A process that runs until stopped, and what it says when it is ready.
fn started(mut command: Command) -> (Child, Value) {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("it did not start: {line:?}"));
    (child, ready)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A volume as a file, by `nbdfuse`; unmounted when dropped.
struct Fuse {
    child: Child,
    mount: PathBuf,
}

impl Fuse {
    fn start(file: &Path, uri: &str) -> Self {
        let mut command = Command::new("nbdfuse");
        command.arg(file).arg(uri).stdin(Stdio::null()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap(), mount: file.parent().unwrap().to_owned() }
    }

    fn ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What it says, if it has ended.
    fn failure(&mut self) -> Option<String> {
        let mut said = String::new();
        self.ended().then(|| self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap())?;
        Some(said.replace('\n', " "))
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("fusermount3").arg("-uz").arg(&self.mount).output();
        if !self.ended() {
            // Where the test has failed it may wait for ever.
            if std::thread::panicking() {
                let _ = self.child.kill();
            }
            let _ = self.child.wait();
        }
    }
}

/// A cluster with a volume `disk`; `None` without the tools.
fn with_disk() -> Option<(Cluster, PathBuf)> {
    with_disk_of("64MiB", &["qemu-io"])
}

fn with_disk_of(size: &str, tools: &[&str]) -> Option<(Cluster, PathBuf)> {
    for tool in tools {
        if Command::new(tool).arg("-V").stdin(Stdio::null()).output().is_err() {
            skipped(&format!("no {tool} to try `kintsu nbd` with"));
            return None;
        }
    }
    let cluster = Cluster::start(6, 3);
    cluster.json(&["volume", "create", "disk", "--size", size, "--code", "rs:n=4,k=2", "--block", "256KiB"]);
    let socket = cluster.dir.path().join("disk.sock");
    Some((cluster, socket))
}

#[test]
fn a_disk_outlives_nodes_and_servers() {
    let Some((mut cluster, socket)) = with_disk() else { return };
    let server = Server::start(&cluster, &socket, &[]);
    server.io(&["write -P 0x11 0 4M", "write -P 0x22 1000000 77777", "flush", "read -P 0x22 1000000 77777"]);
    cluster.kill(1);
    server.io(&["read -P 0x11 0 1000000", "read -P 0x22 1000000 77777", "write -f -P 0x33 2M 1M"]);
    server.io(&["read -P 0x33 2M 1M", "write -z 3M 64k", "discard 8M 4M", "read -P 0 8M 4M"]);
    cluster.start_agent(1);
    // Killed without a word; the next one takes its place, and nothing that was answered is gone.
    drop(server);
    let server = Server::start(&cluster, &socket, &["--take"]);
    server.io(&[
        "read -P 0x33 2M 1M",
        "read -P 0 3M 64k",
        "read -P 0x11 3211264 900k",
        "write -P 0x44 60M 4M",
    ]);
    // Ended in order: the lease is given back, and the socket is gone.
    server.end();
    assert!(!socket.exists());
    let server = Server::start(&cluster, &socket, &[]);
    server.io(&["read -P 0x44 60M 4M", "read -P 0x22 1000000 77777"]);
    compared("a volume, while nodes and servers die, with what qemu-io wrote to it");
}

#[test]
fn there_is_one_writer_and_many_readers() {
    let Some((cluster, socket)) = with_disk() else { return };
    let first = Server::start(&cluster, &socket, &[]);
    first.io(&["write -P 1 0 1M", "flush"]);
    let reader = Server::start(&cluster, &socket.with_extension("reader"), &["--read-only"]);
    reader.io(&["read -P 1 0 1M"]);
    assert!(!reader.try_io(&["write 0 4k"]).status.success());
    let refused = cluster.refused(&["nbd", "disk", "--unix", socket.with_extension("2").to_str().unwrap()]);
    assert!(refused.contains("--take"), "{refused}");
    let second = Server::start(&cluster, &socket.with_extension("2"), &["--take"]);
    second.io(&["write -P 2 0 1M", "read -P 2 0 1M"]);
    // The former writer cannot undo that.
    first.try_io(&["write -P 3 0 1M"]);
    second.io(&["read -P 2 0 1M"]);
    reader.io(&["read -P 2 0 1M"]);
}

/// Runs a tool that must end well; what it prints.
fn run_tool(command: &[&str]) -> String {
    let out = Command::new(command[0]).args(&command[1..]).stdin(Stdio::null()).output().unwrap();
    let said = text(&out.stdout);
    assert!(out.status.success(), "{command:?}: {said}{}", text(&out.stderr));
    said
}

/// The parts of a disk as `nbdinfo --map` tells them: where they begin, and whether something is stored there.
fn map(uri: &str) -> Vec<(u64, bool)> {
    let told: Value = serde_json::from_str(&run_tool(&["nbdinfo", "--json", "--map", uri])).unwrap();
    let mut parts: Vec<(u64, bool)> = Vec::new();
    for part in told.as_array().unwrap() {
        // A hole of zeros, or data.
        let stored = match part["type"].as_u64().unwrap() {
            3 => false,
            0 => true,
            _ => panic!("{told}"),
        };
        if parts.last().is_none_or(|(_, last)| *last != stored) {
            parts.push((part["offset"].as_u64().unwrap(), stored));
        }
    }
    parts
}

#[test]
fn images_travel_to_a_volume_and_back_and_holes_stay_holes() {
    let Some((cluster, socket)) = with_disk_of("64MiB", &["nbdcopy", "nbdinfo", "qemu-img"]) else { return };
    let server = Server::start(&cluster, &socket, &[]);
    let uri = server.uri.as_str();
    assert_eq!(map(uri), [(0, false)], "nothing is stored");
    // Data to the middle of a stripe of 512 KiB, a hole, two stripes, and a hole to the end.
    let [source, back, image] =
        ["source", "back", "image"].map(|name| cluster.dir.path().join(name).to_str().unwrap().to_owned());
    let data = std::fs::read(cluster.file("data", 4 << 20)).unwrap();
    let file = std::fs::File::create(&source).unwrap();
    file.set_len(64 << 20).unwrap();
    use std::os::unix::fs::FileExt as _;
    file.write_all_at(&data[..(3 << 20) + 777], 0).unwrap();
    file.write_all_at(&data[3 << 20..], 40 << 20).unwrap();
    run_tool(&["nbdcopy", "--flush", &source, uri]);
    let stored = [(0, true), (7 << 19, false), (40 << 20, true), (41 << 20, false)];
    assert_eq!(map(uri), stored, "stripes that were written to");
    run_tool(&["nbdcopy", uri, &back]);
    let same = |file: &str| std::fs::read(file).unwrap() == std::fs::read(&source).unwrap();
    assert!(same(&back), "nbdcopy");
    run_tool(&["qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri, &image]);
    run_tool(&["qemu-img", "compare", "-f", "raw", "-F", "qcow2", uri, &image]);
    run_tool(&["qemu-img", "convert", "-f", "qcow2", "-O", "raw", &image, &back]);
    assert!(same(&back), "qemu-img");
    // What is in the blocks after a commit is the same, and told by a server that has seen nothing of the copy.
    let done = cluster.json(&["volume", "commit", "disk"]);
    assert_eq!(done["left"].as_array().map(Vec::len), Some(0), "{done}");
    server.end();
    let server = Server::start(&cluster, &socket, &["--read-only"]);
    assert_eq!(map(&server.uri), stored);
    run_tool(&["qemu-img", "compare", "-f", "raw", "-F", "raw", &server.uri, &source]);
    compared("images that nbdcopy and qemu-img copied to a volume and back");
}

#[test]
fn fio_verifies_what_it_wrote_to_a_volume() {
    let Some((cluster, socket)) = with_disk_of("64MiB", &["fio"]) else { return };
    if !run_tool(&["fio", "--enghelp"]).contains("nbd") {
        return skipped("this fio has no nbd engine");
    }
    let server = Server::start(&cluster, &socket, &[]);
    let uri = format!("--uri={}", server.uri);
    let job = "fio --name=verify --ioengine=nbd --rw=randwrite --bsrange=4k-256k --size=32m --io_size=64m --iodepth=16 \
               --fsync=50 --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=7 \
               --output-format=json --output";
    let report = cluster.dir.path().join("report");
    let more = [report.to_str().unwrap(), &uri];
    run_tool(&job.split_whitespace().chain(more).collect::<Vec<_>>());
    let said: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let job = &said["jobs"][0];
    assert_eq!(job["error"], 0, "{job}");
    assert!(job["read"]["total_ios"].as_u64().unwrap() > 50, "{job}");
    compared("a volume with what fio wrote to it");
}

#[test]
fn what_cannot_be_served_is_refused() {
    let cluster = Cluster::start(4, 2);
    cluster.json(&["volume", "create", "disk", "--size", "1MiB", "--code", "rs:n=4,k=2"]);
    let said = cluster.refused(&["nbd", "other"]);
    assert!(said.contains("other"), "{said}");
    let said = cluster.refused(&["nbd", "disk", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("loopback"), "{said}");
    let file = cluster.file("precious", 100);
    let said = cluster.refused(&["nbd", "disk", "--unix", file.to_str().unwrap()]);
    assert!(said.contains("got a file"), "{said}");
    // What was refused holds no lease.
    let server = Server::start(&cluster, &cluster.dir.path().join("sock"), &[]);
    assert!(server.uri.contains("/disk?socket="), "{}", server.uri);
}

#[test]
fn ext4_is_made_while_a_node_dies() {
    let make = ["mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0"];
    a_file_system_is_made("64MiB", &make, &["e2fsck", "-fn"]);
}

#[test]
fn xfs_is_made_while_a_node_dies() {
    // The smallest that it makes is of 300 MiB.
    a_file_system_is_made("320MiB", &["mkfs.xfs", "-q", "-f"], &["xfs_repair", "-n", "-f"]);
}

/// Makes a file system on a volume while a node dies, and checks it there and in what readers see.
fn a_file_system_is_made(size: &str, make: &[&str], check: &[&str]) {
    let tools = ["nbdfuse", "fusermount3", make[0], check[0]];
    let Some((mut cluster, socket)) = with_disk_of(size, &tools) else { return };
    let server = Server::start(&cluster, &socket, &[]);
    let mount = cluster.dir.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let disk = mount.join("disk");
    let mut fuse = Fuse::start(&disk, &server.uri);
    wait("nbdfuse to mount", || fuse.ended() || disk.exists());
    if let Some(said) = fuse.failure() {
        return skipped(&format!("nbdfuse cannot mount here ({said})"));
    }
    let tool = |command: &[&str], on: &Path| {
        let out = Command::new(command[0]).args(&command[1..]).arg(on).output().unwrap();
        assert!(out.status.success(), "{command:?}: {}{}", text(&out.stdout), text(&out.stderr));
    };
    let making = std::thread::scope(|scope| {
        let making = scope.spawn(|| tool(make, &disk));
        cluster.kill(2);
        making.join()
    });
    making.unwrap();
    tool(check, &disk);
    drop(fuse);
    // What a reader sees from the nodes themselves is the same file system.
    let image = cluster.dir.path().join("image");
    let out = cluster.run(&["volume", "read", "disk"]);
    std::fs::write(&image, out.stdout).unwrap();
    tool(check, &image);
    compared(&format!("a file system of {} on a volume, while a node dies, by {}", make[0], check[0]));
}

#[test]
fn in_a_cluster_with_tls_the_disk_is_in_tls_too() {
    if Command::new("nbdinfo").arg("--version").stdin(Stdio::null()).output().is_err() {
        return skipped("no nbdinfo to try `kintsu nbd` in TLS with");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let run = |command: &mut Command| {
        let out = command.output().unwrap();
        assert!(out.status.success(), "{command:?}: {}", text(&out.stderr));
    };
    let (ca, all) = (path("ca"), path("all"));
    run(kintsu().args(["ca", "init", &ca]));
    let roles = ["coordinator", "agent/0", "agent/1", "agent/2", "operator"].map(|role| ["--role", role]);
    run(kintsu().args(["ca", "issue", &ca, "--host", "127.0.0.1", "--out", &all]).args(roles.concat()));
    for (ours, theirs) in
        [("ca.pem", "ca-cert.pem"), ("cert.pem", "client-cert.pem"), ("key.pem", "client-key.pem")]
    {
        std::os::unix::fs::symlink(ours, dir.path().join("all").join(theirs)).unwrap();
    }
    let mut up = kintsu();
    up.args(["up", "--json", "--no-page", "--nodes", "3", "--racks", "3", "--listen", "127.0.0.1:0"]);
    up.args(["--dir", &path("nodes"), "--tls", &all]);
    let (up, ready) = started(up);
    let _up = Server { child: up, uri: String::new() };
    let ours = |args: &[&str]| {
        let mut command = kintsu();
        command.args(args).env("KINTSU_TLS", &all);
        command.env("KINTSU_COORDINATOR", ready["listen"].as_str().unwrap());
        command
    };
    run(&mut ours(&["volume", "create", "disk", "--size", "1MiB", "--code", "rs:n=3,k=2"]));
    let serve = ["nbd", "disk", "--json", "--listen", "127.0.0.1:0", "--read-only"];
    let server = Server::of(ours(&serve));
    let size = |uri: &str| Command::new("nbdinfo").args(["--size", uri]).output().unwrap();
    let out = size(&format!("{}?tls-certificates={all}", server.uri));
    assert_eq!(text(&out.stdout).trim(), "1048576", "{}: {}", server.uri, text(&out.stderr));
    assert!(!size(&server.uri.replace("nbds:", "nbd:")).status.success());
    let plain = Server::of(ours(&[&serve[..], &["--plain"]].concat()));
    assert_eq!(text(&size(&plain.uri).stdout).trim(), "1048576", "{}", plain.uri);
}
