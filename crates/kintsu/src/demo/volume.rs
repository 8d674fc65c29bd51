//! The second scene: a volume with a file system on it, a node killed before parities have followed, the file system checked
//! clean.
//!
//! It uses what a user would: `kintsu volume`, `kintsu nbd`, libnbd's `nbdcopy`, and the tools of ext4.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use kintsu_client::Client;
use tokio::process::Command;

use super::processes::Processes;
use super::{hex, say};
use crate::units::human;
use sha2::{Digest, Sha256};

const VOLUME: &str = "demo-volume";
const CODE: &str = "rs:n=9,k=6";
const SIZE: u64 = 256 << 20;
/// What the file system holds: files of many sizes, of bytes that are never zero.
const FILES: u32 = 200;
/// What the scene runs, and the package of Debian that has it.
const TOOLS: [(&str, &str); 4] =
    [("mke2fs", "e2fsprogs"), ("nbdcopy", "libnbd-bin"), ("e2fsck", "e2fsprogs"), ("debugfs", "e2fsprogs")];

/// What to say instead of the scene, if a tool for it is missing.
pub async fn not_shown() -> Option<String> {
    for (tool, package) in TOOLS {
        if Command::new(tool).arg("-V").stdin(Stdio::null()).output().await.is_err() {
            return Some(format!(
                "not shown: a volume with a file system that loses a node; {tool} is missing: install {package}"
            ));
        }
    }
    None
}

/// Plays the scene on a cluster that runs. The tools for it are there.
pub async fn scene(
    dir: &Path,
    endpoint: &str,
    client: &Client,
    processes: &mut Processes,
    json: bool,
) -> anyhow::Result<()> {
    say(json, "");
    let dir = dir.join("volume");
    let (tree, image, back) = (dir.join("tree"), dir.join("ext4"), dir.join("ext4.back"));
    std::fs::create_dir_all(&tree)?;
    let size = SIZE.to_string();
    kintsu(endpoint, &["volume", "create", VOLUME, "--size", &size, "--code", CODE]).await?;
    let uri = processes.serve(endpoint, VOLUME, &dir.join("nbd.sock")).await?;
    say(json, &format!("{VOLUME}: a disk of {} with {CODE}, served as {uri}", human(SIZE)));

    let expected = files(&tree)?;
    run("mke2fs", &["-q", "-t", "ext4", "-d", &text(&tree), &text(&image), &format!("{}k", SIZE >> 10)])
        .await?;
    run("nbdcopy", &["--flush", &text(&image), &uri]).await?;
    say(json, &format!("an ext4 with {FILES} files was copied to it (nbdcopy)"));

    // What was written is in logs on two nodes; parities follow later. That bears one loss.
    let victim = *super::victims(client).await?.first().context("expected a node with blocks")?;
    processes.kill(victim).await?;
    say(json, &format!("killed (SIGKILL) node {victim}"));
    run("nbdcopy", &[&uri, &text(&back)]).await?;
    run("e2fsck", &["-fn", &text(&back)]).await?;
    let out = dir.join("last");
    let last = format!("dump {} {}", FILES - 1, out.display());
    run("debugfs", &["-R", &last, &text(&back)]).await?;
    let got = hex(&Sha256::digest(std::fs::read(&out)?));
    ensure!(got == expected, "file {} on {VOLUME}: expected SHA-256 {expected}, got {got}", FILES - 1);
    say(
        json,
        "read back without it: the file system is clean (e2fsck), and its last file has the same SHA-256",
    );
    processes.end_server().await;
    Ok(())
}

/// Writes the files; the SHA-256 of the last one.
fn files(tree: &Path) -> anyhow::Result<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::new();
    for file in 0..FILES {
        bytes.clear();
        for _ in 0..u64::from(file) * 400 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        std::fs::write(tree.join(file.to_string()), &bytes)?;
    }
    Ok(hex(&Sha256::digest(&bytes)))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

async fn kintsu(endpoint: &str, args: &[&str]) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    run(&text(&program), &[&["--coordinator", endpoint], args].concat()).await
}

/// Runs a tool that must end well.
async fn run(tool: &str, args: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(tool);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    let out = command.output().await.with_context(|| format!("cannot run {tool}"))?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "{tool} {}: {}: {said}", args.join(" "), out.status);
    Ok(())
}
