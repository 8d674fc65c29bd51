//! `kintsu lab`: emulated clusters, and the commands that run experiments (`kintsu-experiments`).

mod clusters;
mod replay;
mod run;
mod study;
mod up;

use std::process::ExitCode;

use crate::cli::LabCommand;

pub use run::reports_in;

/// Runs a command of the lab; Ctrl-C ends it and leaves nothing behind.
pub async fn run(command: LabCommand, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        LabCommand::Codes(args) => experiment(study::codes(args, json)).await,
        LabCommand::Lrc(args) => experiment(study::lrc(args, json)).await,
        LabCommand::Replay(args) => experiment(replay::run(args, json)).await,
        LabCommand::Run(args) => run::run(args, json).await,
        LabCommand::Page(args) => run::page(&args),
        LabCommand::Up(args) => up::run(args, json).await,
        LabCommand::List => clusters::list(json),
        LabCommand::Exec(args) => clusters::exec(args).await,
        LabCommand::Down(args) => clusters::down(args, json).await,
    }
}

async fn experiment(run: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let code = tokio::select! {
        done = run => done,
        code = crate::command::interrupted() => code,
    };
    crate::progress::clear();
    code
}
