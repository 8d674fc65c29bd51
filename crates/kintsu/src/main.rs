//! `kintsu`: erasure-coded storage whose codes are programs and whose repairs are as fast as a read.

mod cli;
mod command;
mod config_file;
mod demo;
mod inherited;
mod lab;
mod launcher;
mod output;
mod progress;
mod units;

use anyhow::Context;
use clap::{CommandFactory as _, FromArgMatches as _};

/// The allocators of the C libraries cost more: musl's has one lock for all threads; glibc's gives long buffers back to the system, which
/// clears them again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let command = match command_line(&args) {
        Ok(command) => command,
        Err(error) => {
            let json = args.iter().any(|arg| arg == "--json");
            output::complain(json, "usage", &output::causes(&error));
            return std::process::ExitCode::from(2);
        }
    };
    let parsed = command.try_get_matches_from(args).and_then(|found| cli::Cli::from_arg_matches(&found));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return misused(&error),
    };
    // The library behind the S3 gateway calls every refused request an error.
    const UNLESS_ASKED: &str = "s3s=off";
    // An experiment breaks things on purpose, so warnings are expected.
    let quiet = matches!(cli.command, cli::Command::Lab { .. });
    let daemon =
        matches!(cli.command, cli::Command::Coordinator(_) | cli::Command::Agent(_) | cli::Command::S3(_));
    let level = match (quiet, daemon) {
        (true, _) => "error",
        // Who changed what is for the log of the machine.
        (false, true) => "warn,audit=info",
        (false, false) => "warn",
    };
    let filter = |levels: &str| tracing_subscriber::EnvFilter::try_new(format!("{UNLESS_ASKED},{levels}"));
    let asked = std::env::var("KINTSU_LOG").ok().and_then(|levels| filter(&levels).ok());
    let filter = asked.unwrap_or_else(|| filter(level).unwrap_or_default());
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    match cli.log {
        cli::LogFormat::Text => log.init(),
        cli::LogFormat::Json => log.json().flatten_event(true).init(),
    }
    let json = cli.json;
    output::ask_for_json(json);
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

/// The command line, with the defaults of the file that it names.
fn command_line(args: &[std::ffi::OsString]) -> anyhow::Result<clap::Command> {
    let command = cli::Cli::command();
    match (config_file::named(args), config_file::served(&command, args)) {
        // Other commands take no options from it.
        (Some(path), Some(served)) => {
            let file = config_file::ConfigFile::read(&path, &command)?;
            file.check(&command, Some(served))?;
            Ok(file.applied(command))
        }
        _ => Ok(command),
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
