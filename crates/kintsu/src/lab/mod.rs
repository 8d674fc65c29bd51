//! `kintsu lab`: experiments on a cluster of its own, which is gone when they end. Each measures what
//! agents read and send, and prints it beside what theory says.

mod codes;
mod lrc;
mod site;

use std::process::ExitCode;

use crate::cli::LabCommand;

/// Runs an experiment; Ctrl-C ends it and leaves nothing behind.
pub async fn run(command: LabCommand, json: bool) -> anyhow::Result<ExitCode> {
    let experiment = async {
        match command {
            LabCommand::Codes(args) => codes::run(args, json).await,
            LabCommand::Lrc(args) => lrc::run(args, json).await,
        }
    };
    let code = tokio::select! {
        done = experiment => done,
        code = crate::command::interrupted() => code,
    };
    crate::progress::clear();
    code
}
