//! `kintsu completions` and `kintsu man`: texts generated from the description of the command line.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use serde_json::json;

use crate::cli::Cli;
use crate::output;

/// Prints a completion script on standard output.
pub fn completions(shell: clap_complete::Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "kintsu", &mut script);
    output::line(String::from_utf8(script)?.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page for each command into a folder, which is created if it is missing.
pub fn man(dir: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let write = || {
        std::fs::create_dir_all(dir)?;
        clap_mangen::generate_to(Cli::command(), dir)?;
        let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
        let names = names.collect::<std::io::Result<Vec<_>>>()?;
        Ok::<_, std::io::Error>(names.iter().filter(|name| name.to_string_lossy().ends_with(".1")).count())
    };
    let pages = write().with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    if json {
        output::json(&json!({ "dir": dir, "pages": pages }))?;
    } else {
        let first = dir.join("kintsu.1");
        output::line(&format!(
            "{pages} pages in {}; to read one: man -l {}",
            dir.display(),
            first.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
