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

/// The name of the page with all commands.
const REFERENCE: &str = "commands.md";

/// Writes a manual page for each command into a folder, which is created if it is missing; or one page of Markdown.
pub fn man(dir: &Path, markdown: bool, json: bool) -> anyhow::Result<ExitCode> {
    if markdown {
        return reference(dir, json);
    }
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

fn reference(dir: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let file = dir.join(REFERENCE);
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut page = String::from(
        "# Commands\n\nThe help of every command, as `--help` prints it. Options that all commands have \
                                 stand with `kintsu` alone.\n",
    );
    let commands = describe(command, "kintsu", true, &mut page);
    let write = || std::fs::create_dir_all(dir).and_then(|()| std::fs::write(&file, &page));
    write().with_context(|| format!("cannot write {}", file.display()))?;
    if json {
        output::json(&json!({ "file": file, "commands": commands }))?;
    } else {
        output::line(&format!("{commands} commands in {}", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the help of a command and of those below it to a page; returns how many they are.
fn describe(mut command: clap::Command, name: &str, is_first: bool, page: &mut String) -> usize {
    let below: Vec<_> = command.get_subcommands().filter(|below| !below.is_hide_set()).cloned().collect();
    if !is_first {
        let everywhere = command.get_arguments().filter(|arg| arg.is_global_set());
        let everywhere: Vec<_> = everywhere.map(|arg| arg.get_id().clone()).collect();
        for id in everywhere {
            command = command.mut_arg(id, |arg| arg.hide(true));
        }
    }
    let help = command.render_long_help().to_string();
    page.push_str(&format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end()));
    let below = below.into_iter().filter(|below| below.get_name() != "help");
    1 + below
        .map(|below| {
            let name = format!("{name} {}", below.get_name());
            describe(below, &name, false, page)
        })
        .sum::<usize>()
}
