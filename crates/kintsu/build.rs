//! Tells the program which commit it was built from, for `kintsu --version`.
//!
//! Only release builds know it. In a debug build every commit would compile the program and its tests again.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // For those who package the source without its history.
    println!("cargo::rerun-if-env-changed=KINTSU_COMMIT");
    let build = match std::env::var("KINTSU_COMMIT") {
        Ok(commit) if !commit.is_empty() => format!(" ({commit})"),
        _ if std::env::var("PROFILE").as_deref() != Ok("release") => " (debug build)".into(),
        _ => commit().map_or_else(String::new, |commit| format!(" ({commit})")),
    };
    println!("cargo::rustc-env=KINTSU_BUILD={build}");
}

/// The commit of the sources; `None` where they are not in a repository of their own.
fn commit() -> Option<String> {
    // Asked at run time: a target folder that two checkouts share keeps the program that was built in one of them.
    let package = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
    let root = package.parent()?.parent()?.canonicalize().ok()?;
    let top = PathBuf::from(git(&root, &["rev-parse", "--show-toplevel"])?);
    if top.canonicalize().ok()? != root {
        return None;
    }
    // This file gets a line with each commit and each checkout.
    let log = root.join(git(&root, &["rev-parse", "--git-path", "logs/HEAD"])?);
    if log.exists() {
        println!("cargo::rerun-if-changed={}", log.display());
    }
    git(&root, &["rev-parse", "--short=12", "HEAD"])
}

/// What a git command prints; `None` if it fails.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
