//! The process outside of a lab's namespaces: starts the inner one, keeps its entry in the registry, waits.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::{missing, run};
use crate::error::{LabError, Result};
use crate::inside::{END, ENTRY, Entry, FOLDER, Message, NAME};
use crate::registry::{Reservation, reserve};

/// The first process of new namespaces, root in them and nowhere else.
const UNSHARE: [&str; 8] =
    ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child", "--"];

/// The operations of a lab in its namespaces, tried on one cable.
const TRIAL: &str = "\
mount -t tmpfs tmpfs /run
mount -t proc proc /proc
mkdir /run/netns
ip netns add there
ip link add bridge type bridge
ip link add here type veth peer name eth0 netns there
ip link set here master bridge
tc qdisc add dev here root tbf rate 1mbit burst 64k latency 50ms
tc -n there qdisc add dev eth0 root handle 1: htb
tc -n there filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.0.0.1 flowid 1:1
ip link set bridge up
ip route add 10.77.0.0/16 dev bridge congctl cubic
";

/// How long the inner process may take to end after it was asked to. It writes its results first; its lab need not be down,
/// because that ends with it.
const GRACE: Duration = Duration::from_secs(10);

/// Tests, in temporary namespaces, whether this user can emulate hosts here.
///
/// # Errors
/// `Unsupported`, with the reason.
pub async fn available() -> Result<()> {
    let mut args = UNSHARE.to_vec();
    args.extend(["sh", "-e"]);
    run("unshare", &args, TRIAL).await.map(drop).map_err(|error| match error {
        LabError::Command { got, .. } => LabError::Unsupported {
            what: "a trial of one host",
            expected: "user, network, mount and pid namespaces for this user; bridge, veth, tbf, htb and u32"
                .into(),
            got,
        },
        other => other,
    })
}

/// Runs this program once more, inside, and waits until it ends.
pub(crate) async fn supervise(entry: &Entry) -> Result<ExitCode> {
    available().await?;
    let folder = entry.dir.as_deref().map(folder_in).transpose()?;
    let mut reservation = reserve(entry.name.as_deref(), folder.as_ref().map(TempDir::path))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(LabError::io("signals"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(LabError::io("signals"))?;
    let (mut inner, link) = start(&reservation, folder.as_ref().map(TempDir::path))?;
    let (heard, hold) = link.into_split();
    let mut hold = Some(hold);
    let mut lines = BufReader::new(heard).lines();
    let mut listening = true;
    let mut deadline = None;
    let status = loop {
        tokio::select! {
            status = inner.wait() => break status.map_err(LabError::io("waiting for the lab"))?,
            line = lines.next_line(), if listening => match line {
                Ok(Some(line)) => note(&mut reservation, &line),
                _ => listening = false,
            },
            _ = interrupt.recv() => ask_to_end(&mut hold, &mut deadline),
            _ = terminate.recv() => ask_to_end(&mut hold, &mut deadline),
            () = at(deadline), if hold.is_some() => drop(hold.take()),
        }
    };
    drop(reservation);
    Ok(code(status))
}

/// Asks the inner process to end, and gives it some time to show what it has. Asked again, it ends at once. (An
/// interrupt from the terminal has reached the inner process already; it does no harm twice.)
fn ask_to_end(hold: &mut Option<OwnedWriteHalf>, deadline: &mut Option<tokio::time::Instant>) {
    let asked = hold.as_ref().is_some_and(|hold| hold.try_write(END).is_ok());
    if asked && deadline.is_none() {
        *deadline = Some(tokio::time::Instant::now() + GRACE);
    } else {
        drop(hold.take());
    }
}

async fn at(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// A new folder for the data, where the namespace can see it.
fn folder_in(dir: &Path) -> Result<TempDir> {
    let dir = dir.canonicalize().map_err(LabError::io(dir.display().to_string()))?;
    if dir.starts_with("/run") || dir.starts_with("/proc") {
        return Err(LabError::invalid("folder for data", "one outside of /run and /proc", dir.display()));
    }
    tempfile::Builder::new()
        .prefix("kintsu-lab-")
        .tempdir_in(&dir)
        .map_err(LabError::io(format!("a folder in {}", dir.display())))
}

fn start(reservation: &Reservation, folder: Option<&Path>) -> Result<(Child, UnixStream)> {
    let program: PathBuf = std::env::current_exe().map_err(LabError::io("the running program"))?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(LabError::io("a pair of sockets"))?;
    let mut command = Command::new("unshare");
    command.args(UNSHARE).arg(program).args(arguments);
    command.env(NAME, &reservation.listing().name).env(ENTRY, reservation.path());
    if let Some(folder) = folder {
        command.env(FOLDER, folder);
    }
    command.stdin(OwnedFd::from(theirs)).kill_on_drop(true);
    let child = command.spawn().map_err(|e| missing("unshare", e))?;
    // The command holds the other end open until it is dropped.
    drop(command);
    ours.set_nonblocking(true).map_err(LabError::io("a socket"))?;
    let link = UnixStream::from_std(ours).map_err(LabError::io("a socket"))?;
    Ok((child, link))
}

fn note(reservation: &mut Reservation, line: &str) {
    let noted = match serde_json::from_str(line) {
        Ok(Message::Inside(id)) => reservation.update(|listing| listing.inside = Some(id)),
        Ok(Message::Up(cluster)) => reservation.update(|listing| listing.cluster = Some(cluster)),
        Ok(Message::Down) => reservation.update(|listing| listing.cluster = None),
        Err(error) => {
            tracing::error!("the process inside sent an invalid message: {error}");
            Ok(())
        }
    };
    if let Err(error) = noted {
        tracing::error!("`kintsu lab list` will not show this lab: {error}");
    }
}

/// The inner process's exit code; for a killed process by the shell's convention.
fn code(status: ExitStatus) -> ExitCode {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
