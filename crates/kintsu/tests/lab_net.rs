//! The emulated cluster through its commands: real agents behind shaped links, the kernel's counters compared with
//! the bytes that moved, and nothing left on the machine however it ends. Without permission for namespaces the
//! tests say so and are skipped.
#![allow(clippy::unwrap_used, reason = "a test's scaffolding: what fails is the test's failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The longest wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(90);
const NOBODY: u32 = 65534;

/// A user's labs, separate from those of the machine's other users and tests.
struct Site {
    dir: TempDir,
    /// Run as this user, with a copy of the program that the user can execute.
    user: Option<u32>,
    /// The machine's interfaces before anything was done.
    interfaces: BTreeSet<String>,
}

impl Site {
    /// `None` where hosts cannot be emulated.
    fn new() -> Option<Self> {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        if let Err(reason) = runtime.block_on(kintsu_lab::available()) {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
            return None;
        }
        Some(Self { dir: TempDir::new().unwrap(), user: None, interfaces: interfaces() })
    }

    /// The labs of an unprivileged user; `None` if that user is not available or cannot emulate hosts.
    fn of_nobody() -> Option<Self> {
        let mut site = Self::new()?;
        let program = site.dir.path().join("kintsu");
        std::fs::copy(env!("CARGO_BIN_EXE_kintsu"), &program).unwrap();
        site.user = Some(NOBODY);
        if let Err(error) = std::os::unix::fs::chown(site.dir.path(), Some(NOBODY), Some(NOBODY)) {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: labs of an ordinary user: this one cannot give folders away ({error})"
            );
            return None;
        }
        let tried =
            site.command(Path::new("unshare")).args(["--user", "--map-root-user", "--net", "true"]).output();
        match tried {
            Ok(out) if out.status.success() => Some(site),
            _ => {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: an ordinary user may not have namespaces here, or setpriv is missing"
                );
                None
            }
        }
    }

    fn kintsu(&self) -> Command {
        let own = Path::new(env!("CARGO_BIN_EXE_kintsu")).to_owned();
        self.command(&self.user.map_or(own, |_| self.dir.path().join("kintsu")))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
                command.arg("--").arg(program);
                command
            }
            None => Command::new(program),
        };
        command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", self.dir.path()).stdin(Stdio::null());
        command.current_dir(self.dir.path());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.kintsu().args(args).output().unwrap()
    }

    fn says(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// The folders of data and the entries that are left.
    fn left(&self) -> Vec<PathBuf> {
        let inside = |folder: &Path| -> Vec<PathBuf> {
            std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
        };
        let user = self.user.unwrap_or_else(|| rustix::process::getuid().as_raw());
        let entries = self.dir.path().join(format!("kintsu-lab-{user}"));
        let folders = inside(self.dir.path()).into_iter().filter(|path| path.is_dir() && *path != entries);
        folders.chain(inside(&entries)).collect()
    }

    fn lab(&self, args: &[&str]) -> Lab<'_> {
        let mut child =
            self.kintsu().args(["--json", "lab", "up"]).args(args).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).expect("the lab says that it is up");
        let name = ready["name"].as_str().unwrap().to_owned();
        let mut lab = Lab { site: self, name, child, users: BTreeMap::new() };
        let listed = lab.listed().expect("it is listed");
        let inside = listed["inside"].as_u64().unwrap();
        lab.users = users_of(&namespaces_of(inside));
        assert!(lab.processes().len() > 2, "its processes are seen");
        lab
    }
}

/// A lab in the foreground.
struct Lab<'a> {
    site: &'a Site,
    name: String,
    child: Child,
    /// The processes that used its namespaces when it was up, with theirs. A lab that comes up later may get the numbers of
    /// namespaces that are gone.
    users: BTreeMap<u64, BTreeSet<PathBuf>>,
}

impl Lab<'_> {
    fn listed(&self) -> Option<Value> {
        let labs: Value = serde_json::from_str(&self.site.says(&["--json", "lab", "list"])).unwrap();
        labs.as_array().unwrap().iter().find(|lab| lab["name"] == *self.name).cloned()
    }

    /// Runs the program inside.
    fn inside(&self, args: &[&str]) -> String {
        let program = self.site.kintsu();
        let program =
            program.get_args().last().filter(|_| self.site.user.is_some()).unwrap_or(program.get_program());
        let program = program.to_str().unwrap();
        self.site.says(&[&["lab", "exec", &self.name, "--", program], args].concat())
    }

    /// Has the links measured; returns what is known of them then.
    fn measured(&self) -> Value {
        serde_json::from_str(&self.inside(&["rates", "measure", "--json"])).unwrap()
    }

    /// Waits until the links carry nothing. Those that nobody knows are measured when their nodes have come: not while bytes are
    /// counted.
    fn wait_quiet(&self, nodes: usize) {
        self.measured();
        let is_quiet = || {
            let before = self.sent(nodes);
            std::thread::sleep(Duration::from_secs(2));
            self.sent(nodes) - before < 1 << 20
        };
        assert!((0..30).any(|_| is_quiet()), "the links are still measured");
    }

    /// Bytes that the kernel counted as sent by all nodes.
    fn sent(&self, nodes: usize) -> u64 {
        (0..nodes).map(|node| self.counted(node)[0]).sum()
    }

    /// Bytes that the kernel counted as sent and received by node `node`'s host.
    fn counted(&self, node: usize) -> [u64; 2] {
        let device = format!("h{node}");
        let listed =
            self.site.says(&["lab", "exec", &self.name, "--", "ip", "-s", "-j", "link", "show", &device]);
        let listed: Value = serde_json::from_str(&listed).unwrap();
        // Counted at the switch's end, which receives what the host sends.
        ["rx", "tx"].map(|way| listed[0]["stats64"][way]["bytes"].as_u64().unwrap())
    }

    /// Processes of the machine that belong to this lab: its folders are in their arguments.
    fn processes(&self) -> Vec<String> {
        let mark = format!("/{}-", self.name);
        let own = |id: &String| {
            let arguments = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(&mark)
        };
        processes().into_iter().filter(own).collect()
    }

    /// The processes that still use its namespaces.
    fn users_left(&self) -> usize {
        self.users.iter().filter(|(id, used)| !namespaces_of(**id).is_disjoint(used)).count()
    }

    /// Waits until nothing of the lab is left.
    fn assert_gone(mut self) {
        let _ = self.child.wait();
        let deadline = Instant::now() + PATIENCE;
        let left = || (self.processes(), self.users_left(), self.site.left());
        while left() != (Vec::new(), 0, Vec::new()) {
            assert!(Instant::now() < deadline, "processes, users of namespaces, folders left: {:?}", left());
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(interfaces(), self.site.interfaces);
        assert!(self.listed().is_none());
    }
}

impl Drop for Lab<'_> {
    /// A test that failed leaves nothing that would keep its output open.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.site.kintsu().args(["lab", "down", &self.name]).status();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn interfaces() -> BTreeSet<String> {
    let listed = std::fs::read_dir("/sys/class/net").unwrap();
    listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn processes() -> Vec<String> {
    let listed = std::fs::read_dir("/proc").unwrap().flatten();
    listed.filter_map(|e| e.file_name().into_string().ok()).filter(|id| id.parse::<u32>().is_ok()).collect()
}

fn namespaces_of(process: u64) -> BTreeSet<PathBuf> {
    let kinds = ["net", "mnt", "user", "pid"];
    let links = kinds.map(|kind| std::fs::read_link(format!("/proc/{process}/ns/{kind}")));
    links.into_iter().flatten().collect()
}

/// The processes that use some of these namespaces, and which.
fn users_of(namespaces: &BTreeSet<PathBuf>) -> BTreeMap<u64, BTreeSet<PathBuf>> {
    let ids = processes().into_iter().filter_map(|id| id.parse().ok());
    let used = ids.map(|id| (id, &namespaces_of(id) & namespaces));
    used.filter(|(_, used)| !used.is_empty()).collect()
}

/// A lab name for one test, so that tests can distinguish their processes.
fn named(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// Puts an object and reads it back; the kernel must have counted its blocks at the receivers, and little else.
fn bytes_move_and_are_counted(lab: &Lab<'_>) {
    const SIZE: usize = 3 << 20;
    let (file, copy) = (lab.site.dir.path().join("object"), lab.site.dir.path().join("copy"));
    let bytes: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    lab.wait_quiet(6);
    let mut tried = Vec::new();
    // While the machine has no time for its hosts, one can look slow, and links are measured again: then more is moved.
    let as_expected = (0..5).any(|attempt| {
        let name = format!("object-{attempt}");
        let received = || (0..6).map(|node| lab.counted(node)[1] as usize).collect::<Vec<_>>();
        let before = received();
        lab.inside(&["put", file.to_str().unwrap(), &name, "--code", "rs:n=6,k=3"]);
        let received: Vec<_> = received().iter().zip(before).map(|(after, before)| after - before).collect();
        let before = lab.sent(6);
        lab.inside(&["get", &name, copy.to_str().unwrap()]);
        assert!(std::fs::read(&copy).unwrap() == bytes);
        let sent = (lab.sent(6) - before) as usize;
        // One block each, with headers, and some control.
        let block = SIZE / 3;
        let one_each = received.iter().all(|got| (block..block + block / 8 + 200_000).contains(got));
        tried.push((received, sent));
        one_each && (SIZE..SIZE + SIZE / 8 + 1_200_000).contains(&sent)
    });
    assert!(as_expected, "blocks of {} bytes; received by each node, and sent by all: {tried:?}", SIZE / 3);
    for file in [file, copy] {
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn a_cluster_comes_up_moves_bytes_and_goes_down() {
    let Some(site) = Site::new() else { return };
    let name = named("t-down");
    let lab = site.lab(&[
        "--nodes",
        "6",
        "--racks",
        "2",
        "--rate",
        "40Mb/s",
        "--rack-rate",
        "80Mb/s",
        "--name",
        &name,
    ]);
    bytes_move_and_are_counted(&lab);

    // Shaped as configured, at both ends.
    let shaped =
        site.says(&["lab", "exec", &name, "--node", "4", "--", "tc", "qdisc", "show", "dev", "eth0"]);
    assert!(shaped.contains("tbf") && shaped.contains("rate 40Mbit"), "{shaped}");
    let shaped = site.says(&["lab", "exec", &name, "--", "tc", "qdisc", "show", "dev", "r1up"]);
    assert!(shaped.contains("rate 80Mbit"), "{shaped}");

    // Nobody told the cluster what its links carry; it finds that out. While the machine has no time for its hosts, it finds too
    // little.
    let near = |rates: &Value, what: &str, rate: f64| {
        let links = rates.as_array().unwrap().iter().filter(|link| link["what"] == what);
        let found: Vec<f64> = links.filter_map(|link| link["bytes_per_second"].as_f64()).collect();
        found.len() == 2 && found.iter().all(|found| (0.7..1.3).contains(&(found / rate)))
    };
    let deadline = Instant::now() + PATIENCE;
    let mut rates = lab.measured();
    while !(near(&rates, "node 4", 5e6) && near(&rates, "rack 1", 10e6)) {
        assert!(Instant::now() < deadline, "{rates}");
        rates = lab.measured();
    }
    let shown: Value = serde_json::from_str(&lab.inside(&["rates", "show", "--json"])).unwrap();
    assert!(near(&shown, "node 4", 5e6) && near(&shown, "rack 1", 10e6), "{shown}");

    // A name can be used once; a node must exist.
    let second = site.run(&["lab", "up", "--name", &name]);
    assert!(!second.status.success() && String::from_utf8_lossy(&second.stderr).contains("one that is free"));
    let nobody = site.run(&["lab", "exec", &name, "--node", "6", "--", "true"]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("a number below 6, got 6"));
    assert_eq!(site.run(&["lab", "exec", &name, "--", "sh", "-c", "exit 7"]).status.code(), Some(7));

    site.says(&["lab", "down", &name]);
    lab.assert_gone();
    assert!(!site.run(&["lab", "down", &name]).status.success());
}

/// The node whose link nobody said is slow is left aside, plain and degraded; and no node is while all are alike.
#[test]
fn a_read_does_without_a_node_that_has_become_slow() {
    const SIZE: u64 = 24 << 20;
    let Some(site) = Site::new() else { return };
    let name = named("t-slow");
    let lab = site.lab(&["--nodes", "10", "--rate", "100Mb/s", "--name", &name]);
    let (file, copy) = (site.dir.path().join("object"), site.dir.path().join("copy"));
    let bytes: Vec<u8> = (0..SIZE as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    lab.inside(&["put", file.to_str().unwrap(), "object", "--code", "rs:n=9,k=6"]);
    let stat: Value = serde_json::from_str(&lab.inside(&["stat", "object", "--json"])).unwrap();
    let blocks = stat["blocks"].as_array().unwrap();
    let home = |index: u64| {
        let block = blocks.iter().find(|block| block["index"] == index).unwrap();
        block["node"].as_u64().unwrap()
    };
    lab.wait_quiet(10);
    // The nodes that a read left aside, and the bytes that all nodes sent for it.
    let read = || {
        let before = lab.sent(10);
        let got = lab.inside(&["get", "object", copy.to_str().unwrap(), "--json"]);
        let got: Value = serde_json::from_str(&got).unwrap();
        assert!(std::fs::read(&copy).unwrap() == bytes);
        let slow = got["slow_nodes"].as_array().unwrap().clone();
        (slow.iter().filter_map(Value::as_u64).collect::<Vec<_>>(), lab.sent(10) - before)
    };
    // Every read learns anew. While the machine has no time for its hosts, others can look slow too, and links are
    // measured again.
    let comes_to = |expected: &[u64], most: u64| {
        let mut tried = Vec::new();
        for _ in 0..5 {
            let (aside, moved) = read();
            if aside == expected && moved < most {
                return;
            }
            tried.push((aside, moved));
        }
        panic!("expected {expected:?} to be left aside and less than {most} bytes to move, got {tried:?}");
    };
    comes_to(&[], SIZE * 11 / 10);
    let slow = home(1);
    let shape = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", "10mbit"];
    let on_host = ["lab", "exec", &name, "--node", &slow.to_string(), "--"];
    site.says(&[&on_host[..], &shape, &["burst", "65536", "limit", "200000"]].concat());
    for lost in [None, Some(home(3))] {
        if let Some(lost) = lost {
            lab.inside(&["node", "wipe", &lost.to_string(), "--yes", "--force"]);
        }
        comes_to(&[slow], SIZE * 14 / 10);
    }
    site.says(&["lab", "down", &name]);
    lab.assert_gone();
}

#[test]
fn nothing_is_left_when_its_process_is_killed() {
    let Some(site) = Site::new() else { return };
    for on_disk in [false, true] {
        let name = named(if on_disk { "t-kill-disk" } else { "t-kill" });
        let mut args = vec!["--nodes", "4", "--name", &name];
        if on_disk {
            args.extend(["--dir", site.dir.path().to_str().unwrap()]);
        }
        let mut lab = site.lab(&args);
        lab.child.kill().unwrap();
        lab.assert_gone();
    }
}

#[test]
fn nothing_is_left_after_an_interrupt_nor_when_what_is_inside_is_killed() {
    let Some(site) = Site::new() else { return };
    let name = named("t-interrupt");
    let lab = site.lab(&["--nodes", "3", "--name", &name, "--dir", site.dir.path().to_str().unwrap()]);
    assert!(Command::new("kill").args(["-TERM", &lab.child.id().to_string()]).status().unwrap().success());
    lab.assert_gone();

    let name = named("t-inside");
    let lab = site.lab(&["--nodes", "3", "--name", &name, "--dir", site.dir.path().to_str().unwrap()]);
    let inside = lab.listed().unwrap()["inside"].to_string();
    assert!(Command::new("kill").args(["-KILL", &inside]).status().unwrap().success());
    lab.assert_gone();
}

#[test]
fn an_ordinary_user_can_have_one_in_the_background() {
    let Some(site) = Site::of_nobody() else { return };
    let name = named("t-nobody");
    let args = ["--nodes", "6", "--racks", "3", "--rate", "60Mb/s", "--name", &name];
    let started = site.says(&[&["--json", "lab", "up", "--detach"], &args[..]].concat());
    let started: Value = serde_json::from_str(&started).unwrap();
    let inside = started["inside"].as_u64().unwrap();
    // The foreground process has returned, so the running processes are children of the machine's first process.
    let child = Command::new("true").spawn().unwrap();
    let lab = Lab { site: &site, name, child, users: users_of(&namespaces_of(inside)) };
    assert!(lab.processes().len() > 6, "its processes are seen");
    bytes_move_and_are_counted(&lab);
    site.says(&["lab", "down", "--all"]);
    lab.assert_gone();
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("topology.toml");
    std::fs::write(&file, "nodes = 3\nlinks.node = '5 parsecs'\n").unwrap();
    for (args, expected) in [
        (vec!["up", file.to_str().unwrap()], "expected a number and b/s"),
        (vec!["up", "no-such-file.toml"], "no-such-file.toml"),
        (vec!["up", "--rate", "12"], "Mb/s"),
        (vec!["up", "--nodes", "2", "--racks", "3"], "every rack with a node"),
        (vec!["exec", "nowhere", "--", "true"], "one that is up"),
        (vec!["down", "nowhere"], "one that is up"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kintsu"));
        command.arg("lab").args(&args).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", dir.path());
        let out = command.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn an_entry_whose_process_is_gone_is_noticed_and_removed() {
    let Some(site) = Site::new() else { return };
    assert!(site.says(&["lab", "list"]).contains("no emulated cluster"));
    let entries: Vec<_> = std::fs::read_dir(site.dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let [folder] = &entries[..] else { panic!("one folder of entries, got {entries:?}") };
    let data = site.dir.path().join("kintsu-lab-data");
    std::fs::create_dir(&data).unwrap();
    let stale = serde_json::json!({
        "name": "old", "process": std::process::id(), "started": 1, "inside": null, "dir": data,
        "command": "lab up", "cluster": null,
    });
    std::fs::write(folder.join("old.json"), stale.to_string()).unwrap();
    assert_eq!(site.says(&["--json", "lab", "list"]).trim(), "[]");
    assert!(!data.exists() && !folder.join("old.json").exists());
}
