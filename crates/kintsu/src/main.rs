//! `kintsu`: erasure-coded storage whose codes are programs and whose repairs are as fast as a read.

mod cli;
mod command;
mod demo;
mod lab;
mod launcher;
mod output;
mod progress;
mod units;

use anyhow::Context;
use clap::Parser;

fn main() -> std::process::ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    // An experiment breaks things on purpose, so warnings are expected.
    let quiet = matches!(cli.command, cli::Command::Lab { .. });
    let level = if quiet { "error" } else { "warn" };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("KINTSU_LOG").unwrap_or_else(|_| level.into()),
        )
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .init();
    let json = cli.json;
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            progress::clear();
            let kind = error
                .chain()
                .find_map(|cause| cause.downcast_ref())
                .map_or("failed", kintsu_client::ClientError::kind);
            output::complain(json, kind, &output::causes(&error));
            std::process::ExitCode::FAILURE
        }
    }
}

/// Prints what is wrong with the command line, or the help that was asked for.
fn misused(error: &clap::Error) -> std::process::ExitCode {
    if error.use_stderr() && std::env::args_os().any(|arg| arg == "--json") {
        let text = error.to_string();
        output::complain(true, "usage", text.trim().trim_start_matches("error: "));
    } else if let Err(failed) = error.print() {
        output::complain(false, "io", &failed.to_string());
    }
    std::process::ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn run(cli: cli::Cli) -> anyhow::Result<std::process::ExitCode> {
    allow_many_files();
    let runtime = runtime()?;
    let code = runtime.block_on(command::dispatch(cli));
    // Do not wait for blocking reads of an interrupted command.
    runtime.shutdown_timeout(std::time::Duration::from_millis(500));
    code
}

/// A runtime with one thread for tasks per processor, at most eight, unless tokio's own variable sets the number.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let threads = match std::env::var_os("TOKIO_WORKER_THREADS") {
        None => std::thread::available_parallelism().map_or(2, usize::from).min(8),
        Some(told) => {
            let threads = told.to_str().and_then(|told| told.parse().ok());
            threads.filter(|threads| (1..=1024).contains(threads)).with_context(|| {
                format!("TOKIO_WORKER_THREADS: expected a number from 1 to 1024, got {told:?}")
            })?
        }
    };
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

/// Many nodes in one process hold many sockets and block files, so this raises the soft limit of open files to the
/// hard one.
fn allow_many_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays as it is: {error}");
    }
}
