//! `kintsu code ...`, a file for each. None of them needs a cluster.

mod list;
mod show;

use std::process::ExitCode;

use crate::cli::CodeCommand;

/// Runs `kintsu code ...`.
pub fn run(command: CodeCommand, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        CodeCommand::List => list::run(json)?,
        CodeCommand::Show { code, generator } => show::run(&code, generator, json)?,
    }
    Ok(ExitCode::SUCCESS)
}
