//! Volumes through the command line, while processes are killed with SIGKILL. A model of a disk judges each read: a byte is what
//! was acknowledged last, or, as long as a write to it failed or was cut off, that too.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use crate::cluster::{Cluster, Patience, kintsu, text};

const SIZE: usize = 6 << 20;
const PIECE: usize = 64 << 10;

/// What each piece of the disk may hold.
struct Model {
    /// What the last acknowledged write filled it with, and writes after it that were cut off.
    may: Vec<Vec<u8>>,
    seed: u64,
}

impl Model {
    fn random(&mut self, below: usize) -> usize {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) as usize % below
    }
}

/// Writes pieces with one command; `sure` once it has said that they are durable.
fn write(cluster: &Cluster, model: &mut Model, at: usize, count: usize, fill: u8, kill: bool) {
    let mut command = kintsu();
    command.args(["volume", "write", "disk", "--take", "--json", "--offset", &(at * PIECE).to_string()]);
    command.env("KINTSU_COORDINATOR", &cluster.endpoint);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    (at..at + count).for_each(|piece| model.may[piece].push(fill));
    // The other end may be killed or fail while it reads.
    let _ = input.write_all(&vec![fill; count * PIECE]);
    drop(input);
    if kill {
        std::thread::sleep(std::time::Duration::from_millis(model.random(60) as u64));
        let _ = child.kill();
    }
    let ended = child.wait_with_output().unwrap();
    if ended.status.success() {
        (at..at + count).for_each(|piece| model.may[piece] = vec![fill]);
    } else {
        assert!(kill, "{}", text(&ended.stderr));
    }
}

fn check(cluster: &Cluster, model: &mut Model) {
    let read = cluster.run(&["volume", "read", "disk"]);
    assert!(read.status.success(), "{}", text(&read.stderr));
    assert_eq!(read.stdout.len(), SIZE);
    for (piece, bytes) in read.stdout.chunks(PIECE).enumerate() {
        let first = bytes[0];
        assert!(
            model.may[piece].contains(&first),
            "piece {piece}: {first}, expected one of {:?}",
            model.may[piece]
        );
        let cut = bytes.iter().any(|byte| *byte != first);
        // Only a write that was cut off may have come in part, in records of a block each.
        assert!(!cut, "piece {piece} is torn");
    }
}

#[test]
fn what_was_acknowledged_outlives_killed_writers_agents_and_coordinators() {
    let mut cluster = Cluster::start(7, 4);
    cluster.json(&[
        "volume",
        "create",
        "disk",
        "--size",
        "6MiB",
        "--code",
        "rs:n=5,k=3",
        "--block",
        "128KiB",
    ]);
    let mut model = Model { may: vec![vec![0]; SIZE / PIECE], seed: 7 };
    check(&cluster, &mut model);
    let mut dead: Option<u32> = None;
    for round in 0..10u8 {
        let (at, count) = (model.random(80), 1 + model.random(16));
        write(&cluster, &mut model, at, count, 1 + round * 2, round % 3 == 1);
        match round % 5 {
            0 => {
                let node = model.random(7) as u32;
                cluster.kill(node);
                dead = Some(node);
            }
            1 => {
                cluster.kill_coordinator();
                cluster.start_coordinator();
            }
            2 => {
                let done = cluster.run(&["volume", "commit", "disk", "--json"]);
                assert!(!text(&done.stdout).is_empty(), "{}", text(&done.stderr));
            }
            3 => {
                if let Some(node) = dead.take() {
                    cluster.start_agent(node);
                    cluster.wait_alive(7);
                }
            }
            _ => {}
        }
        check(&cluster, &mut model);
    }
    cluster.wait_alive(7);
    // A stripe whose repair is still running is left for later, and the command says so.
    let mut patience = Patience::new();
    loop {
        let done = cluster.run(&["volume", "commit", "disk", "--json"]);
        if done.status.success() {
            break;
        }
        assert!(!patience.is_over(), "{}{}", text(&done.stdout), text(&done.stderr));
        std::thread::sleep(Duration::from_millis(300));
    }
    check(&cluster, &mut model);
    // Parity is right: every node in turn is done without.
    for node in [0, 3, 6] {
        cluster.kill(node);
        check(&cluster, &mut model);
        cluster.start_agent(node);
        cluster.wait_alive(7);
    }
    let scrubbed = cluster.json(&["scrub"]);
    assert_eq!(scrubbed["bad"].as_array().unwrap().len(), 0, "{scrubbed}");
    cluster.json(&["volume", "rm", "disk"]);
    assert_eq!(cluster.json(&["volume", "ls"])["volumes"].as_array().unwrap().len(), 0);
}

#[test]
fn refusals_say_what_was_expected() {
    let cluster = Cluster::start(5, 3);
    let small = ["--size", "1MiB", "--code", "rs:n=5,k=3", "--block", "64KiB"];
    let create = |name: &str, more: &[&str]| {
        let mut args = vec!["volume", "create", name];
        args.extend(more);
        cluster.run(&args)
    };
    assert!(create("disk", &small).status.success());
    for (args, expected) in [
        (
            vec!["volume", "read", "disk", "--offset", "1MiB"],
            "expected at least 1 byte within its 1048576 bytes",
        ),
        (vec!["volume", "read", "disk", "--length", "0"], "expected at least 1 byte"),
        (vec!["volume", "read", "none"], "volume \"none\""),
        (vec!["volume", "resize", "disk", "--size", "1000"], "multiple of 512"),
        (vec!["volume", "commit", "disk", "--scheme", "raid"], "expected baseline"),
        (vec!["put", "/etc/hostname", ".volume/x"], "which is for stripes of volumes"),
    ] {
        let said = cluster.refused(&args);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let again = create("disk", &small);
    assert!(text(&again.stderr).contains("expected a free name"), "{}", text(&again.stderr));
}
