//! Completions, manual pages and the version, as a packager uses them.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::process::Command;

fn kintsu(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kintsu")).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_gets_a_script_with_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = kintsu(&["completions", shell]);
        assert!(["quarantine", "explain", "coordinator"].iter().all(|word| script.contains(word)), "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page_with_its_examples() {
    let dir = tempfile::tempdir().unwrap();
    let man = dir.path().join("man");
    kintsu(&["man", man.to_str().unwrap()]);
    for (page, text) in [
        ("kintsu.1", "KINTSU_LOG"),
        ("kintsu-put.1", "kintsu put video.mp4 video"),
        ("kintsu-lab-up.1", "rack\\-rate"),
        ("kintsu-sim-repair.1", "kintsu sim repair"),
    ] {
        let page = std::fs::read_to_string(man.join(page)).unwrap_or_else(|e| panic!("{page}: {e}"));
        assert!(
            page.starts_with(".ie") && page.replace('\\', "").contains(&text.replace('\\', "")),
            "{page}"
        );
    }
}

#[test]
fn one_page_has_every_command_with_its_options() {
    let dir = tempfile::tempdir().unwrap();
    let said = kintsu(&["man", dir.path().to_str().unwrap(), "--markdown"]);
    let page = std::fs::read_to_string(dir.path().join("commands.md")).unwrap();
    let commands = page.lines().filter(|line| line.starts_with("## kintsu")).count();
    assert!(said.starts_with(&format!("{commands} commands in ")), "{said}");
    for heading in ["kintsu", "kintsu put", "kintsu lab up", "kintsu volume abandon-logs", "kintsu man"] {
        assert!(page.contains(&format!("\n## {heading}\n")), "{heading}");
    }
    assert!(page.contains("--quarantine-keep") && page.contains("kintsu put video.mp4 video"), "{page}");
    assert_eq!(page.matches("--token-file").count(), 1, "options of all commands stand with the first");
}

#[test]
fn the_version_says_what_was_built() {
    let version = kintsu(&["--version"]);
    let said = version.trim_end().strip_prefix(concat!("kintsu ", env!("CARGO_PKG_VERSION"))).unwrap();
    let is_commit = |said: &str| said.len() >= 12 && said.chars().all(|digit| digit.is_ascii_hexdigit());
    let in_checkout = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.git").exists();
    let expected = match said.strip_prefix(" (").and_then(|said| said.strip_suffix(')')) {
        Some(build) => match option_env!("KINTSU_COMMIT").filter(|given| !given.is_empty()) {
            Some(given) => build == given,
            // Only release builds know their commit.
            None if cfg!(debug_assertions) => build == "debug build",
            None => is_commit(build),
        },
        // Sources without a repository have only a number.
        None => said.is_empty() && !in_checkout,
    };
    assert!(expected, "{version}");
}
