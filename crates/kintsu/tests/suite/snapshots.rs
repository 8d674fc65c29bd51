//! Snapshots of volumes through the command line: what a snapshot holds never changes, whatever is written to its volume, killed,
//! repaired or removed.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use crate::cluster::{Cluster, kintsu, text, wait};

/// Stripes of 3 blocks.
const BLOCK: usize = 64 << 10;
const STRIPE: usize = 3 * BLOCK;
const SIZE: usize = 8 * STRIPE;

fn create(cluster: &Cluster, size: usize) {
    let size = size.to_string();
    cluster.json(&["volume", "create", "disk", "--size", &size, "--code", "rs:n=5,k=3", "--block", "64KiB"]);
}

fn try_write(cluster: &Cluster, name: &str, at: usize, bytes: &[u8]) -> Output {
    let mut command = kintsu();
    command.args(["volume", "write", name, "--take", "--offset", &at.to_string()]);
    command.env("KINTSU_COORDINATOR", &cluster.endpoint);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

/// Writes to the volume, and to what it should hold.
fn write(cluster: &Cluster, disk: &mut [u8], at: usize, len: usize, fill: u8) {
    let written = try_write(cluster, "disk", at, &vec![fill; len]);
    assert!(written.status.success(), "{}", text(&written.stderr));
    disk[at..at + len].fill(fill);
}

fn read(cluster: &Cluster, name: &str) -> Vec<u8> {
    let read = cluster.run(&["volume", "read", name]);
    assert!(read.status.success(), "{name}: {}", text(&read.stderr));
    read.stdout
}

fn holds(cluster: &Cluster, name: &str, expected: &[u8]) {
    let got = read(cluster, name);
    assert_eq!(got.len(), expected.len(), "{name}");
    let other = got.iter().zip(expected).position(|(got, expected)| got != expected);
    let at = other.map(|at| (at, got[at], expected[at]));
    assert_eq!(at, None, "{name}: the first wrong byte, what it is and should be");
}

#[test]
fn a_snapshot_holds_what_was_there_whatever_comes_later() {
    let mut cluster = Cluster::start(7, 4);
    create(&cluster, SIZE);
    let mut disk = vec![0; SIZE];
    // Whole stripes, updates that are only logged, and stripes that are not there.
    write(&cluster, &mut disk, 0, 4 * STRIPE, 1);
    write(&cluster, &mut disk, BLOCK / 2, BLOCK, 2);
    let taken = cluster.json(&["volume", "snapshot", "disk", "one"]);
    assert_eq!(
        (taken["snapshot"]["snapshot_of"].as_str(), taken["left"].as_array().unwrap().len()),
        (Some("disk"), 0)
    );
    let one = disk.clone();
    holds(&cluster, "one", &one);
    write(&cluster, &mut disk, BLOCK / 2, 5000, 3);
    write(&cluster, &mut disk, 2 * STRIPE + 7, STRIPE, 4);
    write(&cluster, &mut disk, 6 * STRIPE, 100, 5);
    for (name, bytes) in [("one", &one), ("disk", &disk)] {
        holds(&cluster, name, bytes);
    }
    cluster.json(&["volume", "snapshot", "disk", "two"]);
    let two = disk.clone();
    // A node is away: updates of its blocks, copies of its stripes, and reads of all three go on.
    cluster.kill(2);
    write(&cluster, &mut disk, 0, 3 * STRIPE + 9, 6);
    write(&cluster, &mut disk, 6 * STRIPE + 50, 100, 7);
    let all = |cluster: &Cluster, disk: &[u8]| {
        for (name, bytes) in [("one", &one[..]), ("two", &two), ("disk", disk)] {
            holds(cluster, name, bytes);
        }
    };
    all(&cluster, &disk);
    cluster.start_agent(2);
    cluster.wait_alive(7);
    cluster.json(&["repair"]);
    cluster.wait_whole();
    cluster.json(&["volume", "commit", "disk"]);
    cluster.kill_coordinator();
    cluster.start_coordinator();
    cluster.wait_alive(7);
    all(&cluster, &disk);
    // Parity of snapshots and copies is right: every block can be done without.
    for node in [0, 4] {
        cluster.kill(node);
        all(&cluster, &disk);
        cluster.start_agent(node);
        cluster.wait_alive(7);
    }
    // They are seen for what they are, and nobody writes to them.
    let list = cluster.json(&["volume", "ls"]);
    let of: Vec<_> = list["volumes"].as_array().unwrap().iter().map(|v| v["snapshot_of"].as_str()).collect();
    assert_eq!(of, [None, Some("disk"), Some("disk")], "{list}");
    let stat = cluster.json(&["volume", "stat", "disk"]);
    assert_eq!(stat["snapshots"], serde_json::json!(["one", "two"]));
    let refused = try_write(&cluster, "one", 0, &[1]);
    assert!(text(&refused.stderr).contains("those are only read"), "{}", text(&refused.stderr));
    for (args, expected) in [
        (vec!["volume", "snapshot", "one", "x"], "not a snapshot itself"),
        (vec!["volume", "snapshot", "disk", "two"], "expected a free name"),
        (vec!["volume", "snapshot", "disk", "a/b"], "a name without /"),
        (vec!["volume", "snapshot", "none", "x"], "volume \"none\""),
        (vec!["volume", "resize", "one", "--size", "1MiB"], "keeps the size"),
    ] {
        let said = cluster.refused(&args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    // Its volume grows; a snapshot does not.
    let more = (SIZE + STRIPE).to_string();
    cluster.json(&["volume", "resize", "disk", "--size", &more]);
    disk.resize(SIZE + STRIPE, 0);
    write(&cluster, &mut disk, SIZE, 1000, 8);
    all(&cluster, &disk);
    // Removed in any order, each leaves to the others what they share with it.
    cluster.json(&["volume", "rm", "two"]);
    holds(&cluster, "one", &one);
    holds(&cluster, "disk", &disk);
    cluster.json(&["volume", "snapshot", "disk", "three"]);
    let three = disk.clone();
    write(&cluster, &mut disk, STRIPE + 3, 10, 9);
    cluster.json(&["volume", "rm", "disk"]);
    for (name, bytes) in [("one", &one), ("three", &three)] {
        holds(&cluster, name, bytes);
    }
    let stat = cluster.json(&["volume", "stat", "one"]);
    assert_eq!(stat["snapshot_of"], "");
    let scrubbed = cluster.json(&["scrub"]);
    assert_eq!(scrubbed["bad"].as_array().unwrap().len(), 0, "{scrubbed}");
    cluster.json(&["volume", "rm", "three"]);
    holds(&cluster, "one", &one);
    cluster.json(&["volume", "rm", "one"]);
    assert_eq!(cluster.json(&["volume", "ls"])["volumes"].as_array().unwrap().len(), 0);
    wait("every block is deleted", || {
        let (nodes, status) = (cluster.json(&["nodes"]), cluster.json(&["status"]));
        let placed = nodes.as_array().unwrap().iter().map(|node| node["placed_blocks"].as_u64().unwrap());
        placed.sum::<u64>() == 0 && status["garbage"].as_u64().unwrap() == 0
    });
}

#[test]
fn a_snapshot_is_one_moment_of_a_volume_that_is_being_written_while_processes_are_killed() {
    const LEN: usize = 96 * STRIPE;
    let mut cluster = Cluster::start(7, 4);
    create(&cluster, LEN);
    let first = try_write(&cluster, "disk", 0, &vec![1; LEN]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    // One command writes its input in pieces, each after the one before.
    let piece = STRIPE * ((4 << 20) / STRIPE);
    for round in 2..6u8 {
        let mut command = kintsu();
        command.args(["volume", "write", "disk", "--take"]).env("KINTSU_COORDINATOR", &cluster.endpoint);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut writer = command.spawn().unwrap();
        let mut input = writer.stdin.take().unwrap();
        let feeding = std::thread::spawn(move || input.write_all(&vec![round; LEN]));
        std::thread::sleep(Duration::from_millis(100 + 150 * u64::from(round)));
        let name = format!("s{round}");
        if round == 4 {
            // The coordinator dies while it takes one. It is there or not; then it can be taken.
            let mut taking = cluster.spawn(&["volume", "snapshot", "disk", "s0"]);
            std::thread::sleep(Duration::from_millis(15));
            cluster.kill_coordinator();
            cluster.start_coordinator();
            let _ = taking.wait();
            cluster.wait_alive(7);
        }
        if round == 5 {
            cluster.kill(3);
        }
        let taken = cluster.run(&["volume", "snapshot", "disk", &name, "--json"]);
        assert!(taken.status.success(), "{}", text(&taken.stderr));
        let snapshot = read(&cluster, &name);
        if round == 5 {
            // Stripes that it left dirty are copied when it is back.
            cluster.start_agent(3);
        }
        let old = round - 1;
        // What had been acknowledged is in it, and nothing that came after what was not.
        let pieces: Vec<&[u8]> = snapshot.chunks(piece).collect();
        let has_old = |part: &&[u8]| part.contains(&old);
        let from = pieces.iter().position(has_old).unwrap_or(pieces.len());
        for later in pieces.iter().skip(from + 1) {
            assert!(
                later.iter().all(|byte| *byte == old),
                "{name} has a later piece and lacks an earlier one"
            );
        }
        assert!(snapshot.iter().all(|byte| [old, round].contains(byte)));
        let written = writer.wait_with_output().unwrap();
        let _ = feeding.join();
        assert!(written.status.success(), "{}", text(&written.stderr));
        holds(&cluster, &name, &snapshot);
        holds(&cluster, "disk", &vec![round; LEN]);
        if round == 5 {
            cluster.wait_alive(7);
            cluster.json(&["repair"]);
            cluster.wait_whole();
            cluster.json(&["volume", "commit", "disk"]);
            holds(&cluster, &name, &snapshot);
        }
    }
    for volume in cluster.json(&["volume", "ls"])["volumes"].as_array().unwrap() {
        cluster.json(&["volume", "rm", volume["name"].as_str().unwrap()]);
    }
    let scrubbed = cluster.json(&["scrub"]);
    assert_eq!(scrubbed["bad"].as_array().unwrap().len(), 0, "{scrubbed}");
}
