//! Our blocks against those of other implementations: Jerasure (from C) and HDFS (from Java). Each is built into a
//! small program that answers lines of text. Where a program cannot be built, the test says so and skips that
//! part. ISA-L's matrices are compared in `isal.rs`, its encoding in the kernel's tests.
#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use kintsu_code::{Code, parse};
use support::{data, encode, hex};

/// Bytes of a sub-block: Jerasure wants multiples of 8.
const SUB_BYTES: usize = 16;

/// Another implementation, answering questions.
struct Peer {
    process: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let questions = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, questions, answers }
    }

    fn ask(&mut self, question: &str, lines: &[String], answers: usize) -> Vec<String> {
        writeln!(self.questions, "{question}").unwrap();
        for line in lines {
            writeln!(self.questions, "{line}").unwrap();
        }
        self.questions.flush().unwrap();
        let mut answer = || {
            let mut line = String::new();
            self.answers.read_line(&mut line).unwrap();
            line.trim_end().to_owned()
        };
        (0..answers).map(|_| answer()).collect()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn peers() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "peers"].iter().collect()
}

/// Runs a build; returns its output if it fails.
fn build(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(done) if done.status.success() => Ok(()),
        Ok(done) => Err(String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn jerasure() -> Result<Peer, String> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("jerasure-peer");
    let source = peers().join("jerasure.c");
    build(
        Command::new("cc")
            .args(["-O1", "-I/usr/include/jerasure", "-o"])
            .args([&program, &source])
            .arg("-lJerasure"),
    )?;
    Ok(Peer::start(&mut Command::new(program)))
}

fn hdfs() -> Result<Peer, String> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hdfs-peer");
    build(
        Command::new("mvn")
            .args(["-q", "-B", "compile", "dependency:copy-dependencies", "-f"])
            .arg(peers().join("hdfs/pom.xml"))
            .arg(format!("-Dpeer.target={}", target.display())),
    )?;
    let classes = format!("{0}/classes:{0}/dependency/*", target.display());
    Ok(Peer::start(Command::new("java").args(["-cp", &classes, "Peer"])))
}

/// The parity rows, one line each.
fn parity_rows(code: &dyn Code) -> Vec<String> {
    (code.k()..code.n()).map(|i| hex(code.generator().row(i))).collect()
}

fn lines(blocks: &[Vec<u8>]) -> Vec<String> {
    blocks.iter().map(|block| hex(block)).collect()
}

/// All blocks, those in `lost` as "-".
fn without(blocks: &[Vec<u8>], lost: &[usize]) -> Vec<String> {
    let line = |(b, block): (usize, &Vec<u8>)| if lost.contains(&b) { "-".into() } else { hex(block) };
    blocks.iter().enumerate().map(line).collect()
}

/// Every loss of two blocks, and one of the first m.
fn losses(code: &dyn Code) -> Vec<Vec<usize>> {
    let n = code.n();
    let pairs = (0..n).flat_map(|a| (a + 1..n).map(move |b| vec![a, b]));
    pairs.chain([(0..n - code.k()).collect()]).collect()
}

const MATRICES: [&str; 5] = [
    "rs:n=9,k=6",
    "rs:n=14,k=10",
    "rs:n=12,k=8,matrix=vandermonde",
    "rs:n=16,k=12,matrix=isal",
    "azure-lrc:n=16,k=12,r=6",
];

#[test]
fn jerasure_encodes_and_decodes_as_we_do() {
    let mut peer = match jerasure() {
        Ok(peer) => peer,
        Err(error) => {
            return drop(writeln!(std::io::stderr(), "SKIPPED: no Jerasure to compare with ({error})"));
        }
    };
    for name in MATRICES {
        let code = parse(name).unwrap();
        let (n, k) = (code.n(), code.k());
        let blocks = encode(&*code, &data(&*code, SUB_BYTES));
        let question = [parity_rows(&*code), lines(&blocks[..k])].concat();
        let parity = peer.ask(&format!("encode {k} {}", n - k), &question, n - k);
        assert_eq!(parity, lines(&blocks[k..]), "{name}");
        for lost in losses(&*code).iter().filter(|lost| lost.len() < code.distance()) {
            // Jerasure decodes from the first k blocks left, so for any code these must suffice.
            let left: Vec<_> = (0..n).filter(|b| !lost.contains(b)).take(k).collect();
            if code.generator().select_rows(left).rank() < k {
                continue;
            }
            let question = [parity_rows(&*code), without(&blocks, lost)].concat();
            let decoded = peer.ask(&format!("decode {k} {}", n - k), &question, lost.len());
            let expected: Vec<_> = lost.iter().map(|&b| hex(&blocks[b])).collect();
            assert_eq!(decoded, expected, "{name} without {lost:?}");
        }
    }
    for k in 1..=20 {
        let code = parse(&format!("rs:n={},k={k},matrix=isal", k + 2)).unwrap();
        let rows = peer.ask(&format!("matrix r6 {k} 2"), &[], 2);
        assert_eq!(rows, parity_rows(&*code), "RAID-6 rows for k={k}");
    }
    let _ = writeln!(std::io::stderr(), "COMPARED: encoding, decoding and RAID-6 rows with Jerasure's");
}

#[test]
fn hdfs_encodes_and_decodes_as_we_do() {
    let mut peer = match hdfs() {
        Ok(peer) => peer,
        Err(error) => {
            return drop(writeln!(std::io::stderr(), "SKIPPED: no HDFS coder to compare with ({error})"));
        }
    };
    for (k, m) in [(3, 2), (6, 3), (10, 4), (12, 4), (20, 6)] {
        let code = parse(&format!("rs:n={},k={k}", k + m)).unwrap();
        let blocks = encode(&*code, &data(&*code, SUB_BYTES));
        let parity = peer.ask(&format!("encode rs {k} {m}"), &lines(&blocks[..k]), m);
        assert_eq!(parity, lines(&blocks[k..]), "{}", code.name());
        for lost in losses(&*code) {
            let decoded = peer.ask(&format!("decode rs {k} {m}"), &without(&blocks, &lost), lost.len());
            let expected: Vec<_> = lost.iter().map(|&b| hex(&blocks[b])).collect();
            assert_eq!(decoded, expected, "{} without {lost:?}", code.name());
        }
    }
    for k in 2..=12 {
        // One local group of everything: its parity is HDFS's XOR.
        let code = parse(&format!("azure-lrc:n={},k={k},r={k}", k + 2)).unwrap();
        let blocks = encode(&*code, &data(&*code, SUB_BYTES));
        let parity = peer.ask(&format!("encode xor {k} 1"), &lines(&blocks[..k]), 1);
        assert_eq!(parity, lines(&blocks[k..=k]), "xor of {k}");
    }
    for (k, m) in [(10, 4), (6, 3), (12, 4)] {
        let code = parse(&format!("hitchhiker-xor:n={},k={k}", k + m)).unwrap();
        let blocks = encode(&*code, &data(&*code, SUB_BYTES));
        let parity = peer.ask(&format!("encode hhxor {k} {m}"), &lines(&blocks[..k]), m);
        assert_eq!(parity, lines(&blocks[k..]), "{}", code.name());
    }
    let _ = writeln!(
        std::io::stderr(),
        "COMPARED: encoding and decoding (RS, XOR, Hitchhiker-XOR) with HDFS's coders"
    );
}
