//! `kintsu code ...`, one file for each command. The cluster is contacted only for registered codes.

mod advise;
mod check;
mod compare;
mod list;
mod registry;
mod reliability;
mod show;

use std::process::ExitCode;
use std::sync::Arc;

use kintsu_code::{Code, USER};

use super::Context;
use crate::cli::CodeCommand;

/// Runs `kintsu code ...`.
pub async fn run(command: CodeCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        CodeCommand::List => list::run(context.json)?,
        CodeCommand::Show { code, generator } => {
            show::run(&*resolve(&code, context).await?, generator, context.json)?;
        }
        CodeCommand::Check(args) => {
            check::run(&*resolve(&args.code, context).await?, args.max_patterns, context.json)?;
        }
        CodeCommand::Compare(args) => compare::run(args, context.json)?,
        CodeCommand::Reliability(args) => reliability::run(args, context).await?,
        CodeCommand::Advise(args) => return advise::run(&args, context.json),
        CodeCommand::Register { file } => registry::register(&file, context).await?,
        CodeCommand::Export { code, name } => registry::export(&code, name, context).await?,
        CodeCommand::Registered => registry::registered(context).await?,
        CodeCommand::Unregister { code } => registry::unregister(&code, context).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The code of a name: built in, or registered with the cluster.
pub async fn resolve(name: &str, context: &Context) -> anyhow::Result<Arc<dyn Code>> {
    Ok(match name.starts_with(USER) {
        true => context.client.find_code(name).await?.prove()?,
        false => kintsu_code::parse(name)?,
    })
}
