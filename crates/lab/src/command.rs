//! Runs system commands to their end; an error contains what the command wrote.

use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::error::{LabError, Result};

/// What to install when a command is missing.
const INSTALL: &str =
    "the commands ip and tc (apt-get install iproute2) and unshare, nsenter, mount (util-linux)";

/// Runs a command with this input; returns what it wrote on standard output.
pub async fn run(program: &str, args: &[&str], input: &str) -> Result<String> {
    let shown = || format!("{program} {}", args.join(" "));
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // An interrupt should reach only the lab, which then cleans up.
    let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(|e| missing(program, e))?;
    let mut pipe = child.stdin.take();
    let fed = async {
        if let Some(pipe) = &mut pipe {
            pipe.write_all(input.as_bytes()).await?;
        }
        drop(pipe);
        Ok::<_, std::io::Error>(())
    };
    // A command that ends before it has read its input reports the reason itself.
    let (_, out) = tokio::join!(fed, child.wait_with_output());
    let out = out.map_err(LabError::io(shown()))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let got = format!("{} ({}){}", out.status, said.trim(), failed_line(&said, input));
        return Err(LabError::Command { command: shown(), got });
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Runs the lines as one batch of `ip` or `tc`.
pub async fn batch(program: &str, lines: &[String]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    run(program, &["-batch", "-"], &(lines.join("\n") + "\n")).await.map(drop)
}

/// The line at which a batch failed, from the number in `Command failed -:7`.
fn failed_line(said: &str, input: &str) -> String {
    let number = said.rsplit_once("Command failed -:").map(|(_, rest)| rest);
    let number = number.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    let line = number.and_then(|number| input.lines().nth(number.checked_sub(1)?));
    line.map_or_else(String::new, |line| format!(" at: {line}"))
}

/// The error of a command that does not start.
pub fn missing(program: &str, error: std::io::Error) -> LabError {
    if error.kind() == std::io::ErrorKind::NotFound {
        let got = format!("no command {program}");
        return LabError::Unsupported { what: "starting commands", expected: INSTALL.into(), got };
    }
    LabError::Io { what: format!("cannot start {program}"), source: error }
}
