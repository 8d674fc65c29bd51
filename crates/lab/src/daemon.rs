//! A long-running process of the lab: an agent on its host, or the coordinator.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::command::missing;
use crate::error::{LabError, Result};
use crate::net::namespace;

/// How many bytes of a log an error shows.
const LOG_BYTES: usize = 2000;

/// A running daemon; dropping it kills the process.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    log: PathBuf,
    child: Child,
    /// Held open: the process ends when nobody reads its output.
    output: BufReader<ChildStdout>,
}

/// A command that runs in a host's namespace.
pub fn on_host(host: &str, program: &Path) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", namespace(host).display())).arg("--").arg(program);
    command
}

impl Daemon {
    /// Starts a process whose standard error goes into `log`.
    pub fn spawn(name: String, mut command: Command, log: PathBuf) -> Result<Self> {
        let said = std::fs::OpenOptions::new().create(true).append(true).open(&log);
        let said = said.map_err(LabError::io(log.display().to_string()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(said);
        // An interrupt reaches only the lab, which then ends its processes in order.
        let mut child =
            command.process_group(0).kill_on_drop(true).spawn().map_err(|e| missing("nsenter", e))?;
        let output = child.stdout.take().ok_or_else(|| LabError::Start {
            process: name.clone(),
            got: "a process without output".into(),
        })?;
        Ok(Self { name, log, child, output: BufReader::new(output) })
    }

    /// Waits for the line of JSON that says it is ready.
    pub async fn ready(&mut self, patience: Duration) -> Result<Value> {
        let mut line = String::new();
        let read = tokio::time::timeout(patience, self.output.read_line(&mut line)).await;
        let got = match read {
            Err(_) => format!("nothing in {} s", patience.as_secs()),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(0)) => "its end".into(),
            Ok(Ok(_)) => match serde_json::from_str(&line) {
                Ok(value) => return Ok(value),
                Err(_) => format!("{line:?}"),
            },
        };
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let tail = log.char_indices().rev().nth(LOG_BYTES).map_or(log.as_str(), |(at, _)| &log[at..]);
        Err(LabError::Start { process: self.name.clone(), got: format!("{got}; its log: {}", tail.trim()) })
    }

    /// Its process id.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills it, as a crash would, and waits for its end.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.map_err(LabError::io(format!("cannot kill {}", self.name)))
    }
}
