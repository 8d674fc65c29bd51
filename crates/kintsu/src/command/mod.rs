//! The commands, one file for each family.

mod backup;
mod bench;
mod ca;
mod code;
mod config;
mod confirm;
mod destination;
mod explain;
mod generate;
mod hdfs;
mod hdfs_codec;
mod hdfs_daemons;
mod hdfs_store;
mod hdfs_watch;
mod health;
mod input;
mod job;
mod list;
mod load;
mod nbd;
mod node;
mod object;
mod page;
mod quarantine;
mod rates;
mod rebuild;
mod remove;
mod repack;
mod s3;
mod serve;
mod sim;
mod tree;
mod volume;

use std::process::ExitCode;

pub use job::as_json as job_json;

use kintsu_client::Client;

use crate::cli::{BenchCommand, Cli, Command, JobsCommand};

/// What every client command needs.
pub struct Context {
    /// The cluster.
    pub client: Client,
    /// Whether to print JSON.
    pub json: bool,
    /// The job that is followed.
    pub following: job::Following,
}

/// Runs the command.
pub async fn dispatch(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Command::Ca { command } = cli.command {
        return ca::run(command, cli.json);
    }
    if let Command::Config { command } = &cli.command
        && let Some(done) = config::without_cluster(command, cli.config.as_deref(), cli.json)
    {
        return done;
    }
    let endpoint = cli.endpoint();
    if let Command::Health(args) = cli.command {
        return health::health(args, endpoint, cli.json).await;
    }
    let endpoint = endpoint?;
    match cli.command {
        Command::Up(args) => serve::up(args, endpoint, cli.json).await,
        Command::Coordinator(args) => serve::coordinator(args, endpoint, cli.json).await,
        Command::Agent(args) => serve::agent(args, endpoint, cli.json).await,
        Command::Demo(args) => crate::demo::run(args, cli.json).await,
        Command::Code { command } => {
            let client = endpoint.client().await?;
            code::run(command, &Context { client, json: cli.json, following: job::Following::default() })
                .await
        }
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { dir, markdown } => generate::man(&dir, markdown, cli.json),
        Command::Hdfs(args) => hdfs::run(args, endpoint, cli.json).await,
        Command::Nbd(args) => nbd::run(args, endpoint, cli.json).await,
        Command::Page(args) => page::run(args, endpoint, cli.json).await,
        Command::S3(args) => s3::run(args, endpoint, cli.json).await,
        Command::Sim(args) => sim::run(args, cli.json).await,
        Command::Lab { command } => crate::lab::run(command, cli.json).await,
        Command::Bench { command: BenchCommand::Load(args) } => {
            let client = endpoint.client().await?;
            let context = Context { client, json: cli.json, following: job::Following::default() };
            let done = load::run(args, &context).await;
            context.client.close().await;
            done
        }
        Command::Bench { command } => bench::run(command, cli.json).await,
        command => {
            let client = endpoint.client().await?;
            let context = Context { client, json: cli.json, following: job::Following::default() };
            let done = tokio::select! {
                done = on_cluster(command, &context) => done,
                code = interrupted() => {
                    context.following.left(context.json)?;
                    code
                }
            };
            // A put that has failed is undone at once.
            context.client.close().await;
            done
        }
    }
}

async fn on_cluster(command: Command, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        Command::Put(args) => object::put(args, context).await,
        Command::Get(args) => object::get(args, context).await,
        Command::Ls(args) => list::ls(args, context).await,
        Command::Rm(args) => remove::run(args, context).await,
        Command::Stat(args) => object::stat(args, context).await,
        Command::Nodes => node::list(context).await,
        Command::Rates { command } => rates::run(command, context).await,
        Command::Config { command } => config::run(command, context).await,
        Command::Quarantine { command } => quarantine::run(command, context).await,
        Command::Volume { command } => volume::run(command, context).await,
        Command::Rebuild { command } => rebuild::run(command, context).await,
        Command::Status => health::status(context).await,
        Command::Df(args) => health::df(args, context).await,
        Command::Jobs { command: None } => job::list(context).await,
        Command::Jobs { command: Some(JobsCommand::Follow { id }) } => job::follow_id(id, context).await,
        Command::Jobs { command: Some(JobsCommand::Cancel { id }) } => job::cancel(id, context).await,
        Command::Jobs { command: Some(JobsCommand::Pause { id }) } => job::pause(id, context).await,
        Command::Jobs { command: Some(JobsCommand::Resume { id }) } => job::resume(id, context).await,
        Command::Node(args) => node::act(args, context).await,
        Command::Backup(args) => backup::backup(args, context).await,
        Command::Encode(args) => job::encode(args, context).await,
        Command::Repair(args) => job::repair(args, context).await,
        Command::Scrub { node } => job::scrub(node, context).await,
        Command::Rebalance => job::rebalance(context).await,
        Command::Repack(args) => repack::run(args, context).await,
        Command::Explain(args) => explain::run(args, context).await,
        _ => unreachable!("dispatched without a cluster"),
    }
}

/// Waits for Ctrl-C or SIGTERM; the exit code is that of a shell for SIGINT.
pub async fn interrupted() -> anyhow::Result<ExitCode> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt?,
        _ = terminate.recv() => {}
    }
    crate::progress::clear();
    crate::output::interrupted();
    Ok(ExitCode::from(130))
}
