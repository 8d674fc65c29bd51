//! What `kintsu get` does to an existing file at its path: special files stay special files, links and modes are
//! kept, and a failed or killed read changes nothing.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cluster::{Cluster, kintsu, sha256, skipped, text, wait};
use rustix::process::{Pid, Signal, kill_process};

const CODE: [&str; 6] = ["--code", "rs:n=5,k=3", "--block", "256KiB", "--cell", "64KiB"];

struct Scene {
    cluster: Cluster,
    file: PathBuf,
    bytes: Vec<u8>,
    out: PathBuf,
}

/// A cluster with the object `dir/o` and an empty folder to read it into.
fn scene(bytes: u64) -> Scene {
    let cluster = Cluster::start(5, 5);
    let file = cluster.file("object", bytes);
    cluster.put(&file, "dir/o", &CODE);
    let out = cluster.dir.path().join("reads");
    fs::create_dir(&out).unwrap();
    Scene { bytes: fs::read(&file).unwrap(), file, out, cluster }
}

impl Scene {
    fn get(&self, path: &Path) {
        let report = self.cluster.json(&["get", "dir/o", path.to_str().unwrap()]);
        assert_eq!(report["bytes"], self.bytes.len());
    }

    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.out.join(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.out).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn what_is_not_a_regular_file_is_written_to_and_stays_what_it_is() {
    let scene = scene(700_001);
    let fifo = scene.fifo("fifo");
    symlink("fifo", scene.out.join("to-fifo")).unwrap();
    for name in ["fifo", "to-fifo"] {
        let path = fifo.clone();
        // Opened for reading and writing, so that opening never waits; it is read until the last byte has come.
        let (mut reader, len) =
            (fs::File::options().read(true).write(true).open(&path).unwrap(), scene.bytes.len());
        let reading = std::thread::spawn(move || {
            let mut got = vec![0; len];
            reader.read_exact(&mut got).map(|()| got)
        });
        let report = scene.cluster.run(&["get", "dir/o", scene.out.join(name).to_str().unwrap()]);
        // The reader must not wait for ever if nothing comes through the FIFO.
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo(), "{name}");
        assert!(
            fs::symlink_metadata(scene.out.join(name)).unwrap().file_type().is_symlink() == (name != "fifo")
        );
        assert!(report.status.success(), "{}", text(&report.stderr));
        assert!(reading.join().unwrap().unwrap() == scene.bytes, "{name}");
    }
    assert_eq!(scene.names(), ["fifo", "to-fifo"]);

    let socket = scene.out.join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let told = scene.cluster.refused(&["get", "dir/o", socket.to_str().unwrap()]);
    assert!(told.contains("got a socket"), "{told}");
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());

    // A missing object is reported at once, even without a reader.
    let told = scene.cluster.refused(&["get", "nothing", fifo.to_str().unwrap()]);
    assert!(told.contains("nothing"), "{told}");

    for device in ["/dev/null", "/dev/full"] {
        let path = Path::new(device);
        let before = fs::metadata(path).unwrap();
        if !before.file_type().is_char_device() {
            skipped(&format!("{device} is no device here"));
            continue;
        }
        let out = scene.cluster.run(&["get", "dir/o", device]);
        assert_eq!(out.status.success(), device == "/dev/null", "{}", text(&out.stderr));
        let after = fs::symlink_metadata(path).unwrap();
        assert_eq!(
            (before.ino(), before.rdev(), before.mode()),
            (after.ino(), after.rdev(), after.mode()),
            "{device}"
        );
    }
}

#[test]
fn standard_output_keeps_what_is_in_it_and_its_end_is_an_error() {
    let scene = scene(700_001);
    for to in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let log = scene.out.join("log");
        fs::write(&log, "before ").unwrap();
        let appended = fs::File::options().append(true).open(&log).unwrap();
        let mut command = kintsu();
        command.args(["get", "dir/o", to]).env("KINTSU_COORDINATOR", &scene.cluster.endpoint);
        assert!(command.stdout(appended).status().unwrap().success());
        assert!(fs::read(&log).unwrap() == [b"before ", &scene.bytes[..]].concat(), "{to}");
    }
    let mut child = scene.cluster.spawn(&["get", "dir/o", "-"]);
    drop(child.stdout.take());
    assert!(!child.wait().unwrap().success());
    assert_eq!(scene.names(), ["log"]);
}

#[test]
fn links_are_followed_and_modes_and_owners_kept() {
    let scene = scene(300_001);
    let path = |name: &str| scene.out.join(name);
    for mode in [0o600, 0o755, 0o640] {
        let name = path(&format!("mode-{mode:o}"));
        fs::write(&name, "old").unwrap();
        fs::set_permissions(&name, Permissions::from_mode(mode)).unwrap();
        // Only if this process may change the owner of files.
        let given = std::os::unix::fs::chown(&name, Some(12_345), Some(54_321)).is_ok();
        scene.get(&name);
        let after = fs::metadata(&name).unwrap();
        assert_eq!(after.mode() & 0o7777, mode);
        assert!(!given || (after.uid(), after.gid()) == (12_345, 54_321));
        assert!(fs::read(&name).unwrap() == scene.bytes);
    }

    // Links to a file, to a link, to a file in another folder, and to a file that does not exist yet.
    fs::create_dir(path("else")).unwrap();
    fs::write(path("target"), "old").unwrap();
    fs::set_permissions(path("target"), Permissions::from_mode(0o600)).unwrap();
    fs::write(path("else/target"), "old").unwrap();
    for (link, to, real) in [
        ("link", "target", "target"),
        ("link-to-link", "link", "target"),
        ("elsewhere", "else/target", "else/target"),
        ("dangling", "else/new", "else/new"),
    ] {
        symlink(to, path(link)).unwrap();
        scene.get(&path(link));
        assert_eq!(fs::read_link(path(link)).unwrap(), Path::new(to));
        assert!(fs::symlink_metadata(path(real)).unwrap().is_file(), "{real}");
        assert!(fs::read(path(real)).unwrap() == scene.bytes, "{real}");
        fs::write(path(real), "old").unwrap();
    }
    assert_eq!(fs::metadata(path("target")).unwrap().mode() & 0o7777, 0o600);
    symlink("round", path("round")).unwrap();
    let told = scene.cluster.refused(&["get", "dir/o", path("round").to_str().unwrap()]);
    assert!(told.contains("links"), "{told}");

    // Into a folder, by the last part of the object's name.
    scene.get(&path("else"));
    assert!(fs::read(path("else/o")).unwrap() == scene.bytes);
    fs::create_dir(path("full")).unwrap();
    fs::create_dir(path("full/o")).unwrap();
    let told = scene.cluster.refused(&["get", "dir/o", path("full").to_str().unwrap()]);
    assert!(told.contains("got the folder"), "{told}");
    let told = scene.cluster.refused(&["get", "dir/o", &format!("{}/missing/", scene.out.display())]);
    assert!(told.contains("expected a folder that exists"), "{told}");
    scene.cluster.put(&scene.file, "ends/..", &CODE);
    let told = scene.cluster.refused(&["get", "ends/..", path("else").to_str().unwrap()]);
    assert!(told.contains("is a folder"), "{told}");
    assert!(scene.names().iter().all(|name| !name.contains("part")), "{:?}", scene.names());
}

#[test]
fn a_read_that_fails_leaves_the_old_file() {
    let mut scene = scene(900_001);
    let old = scene.out.join("old");
    fs::write(&old, "old bytes").unwrap();
    fs::set_permissions(&old, Permissions::from_mode(0o640)).unwrap();
    let ino = fs::metadata(&old).unwrap().ino();
    for node in 0..3 {
        scene.cluster.kill(node);
    }
    scene.cluster.wait_dead(3);
    for (name, is_there) in [("old", true), ("new", false)] {
        let path = scene.out.join(name);
        scene.cluster.refused(&["get", "dir/o", path.to_str().unwrap()]);
        assert_eq!(path.exists(), is_there);
    }
    assert_eq!(fs::read(&old).unwrap(), b"old bytes");
    let after = fs::metadata(&old).unwrap();
    assert_eq!((after.ino(), after.mode() & 0o7777), (ino, 0o640));
    assert_eq!(scene.names(), ["old"]);
}

/// Whether a process has a file open below a folder, with or without a name.
fn has_open(pid: u32, folder: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(folder)))
}

#[test]
fn a_read_that_is_killed_or_interrupted_leaves_no_file_like_another() {
    let scene = scene(3_000_001);
    let old = scene.out.join("old");
    fs::write(&old, "old bytes").unwrap();
    // Stopped agents keep the read from ending.
    let agents: Vec<_> = (0..5)
        .map(|node| Pid::from_raw(i32::try_from(scene.cluster.agent_pid(node)).unwrap()).unwrap())
        .collect();
    let all = |signal| agents.iter().for_each(|pid| kill_process(*pid, signal).unwrap());
    let folder = fs::canonicalize(&scene.out).unwrap();
    // A read that has its file open; `None` if it has ended already, because the stopped nodes count as dead by now.
    let begun = |name: &str| {
        all(Signal::STOP);
        let mut child = scene.cluster.spawn(&["get", "dir/o", scene.out.join(name).to_str().unwrap()]);
        wait("the read to have its file open", || {
            has_open(child.id(), &folder) || child.try_wait().unwrap().is_some()
        });
        child.try_wait().unwrap().is_none().then_some(child)
    };
    for (signal, name) in
        [(Signal::KILL, "old"), (Signal::KILL, "new"), (Signal::INT, "old"), (Signal::TERM, "new")]
    {
        let begun = (0..10).find_map(|_| {
            let child = begun(name);
            if child.is_none() {
                all(Signal::CONT);
                scene.cluster.wait_alive(5);
            }
            child
        });
        let mut child = begun.expect("a read that has its file open");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert!(!child.wait().unwrap().success());
        all(Signal::CONT);
        let mut names = scene.names();
        names.retain(|name| name != "old");
        if signal == Signal::KILL {
            let tells = |left: &String| left.starts_with(&format!(".{name}.kintsu-part-"));
            assert!(names.len() <= 1 && names.iter().all(tells), "{names:?}");
            names.iter().for_each(|left| fs::remove_file(scene.out.join(left)).unwrap());
        } else {
            assert!(names.is_empty(), "{signal:?}: {names:?}");
        }
        assert_eq!(fs::read(&old).unwrap(), b"old bytes");
    }
    scene.cluster.wait_alive(5);
    scene.get(&old);
    assert_eq!(sha256(&old), sha256(&scene.file));
}

/// A user who may write a file but not its folder; this needs root to set up.
#[test]
fn a_file_in_a_folder_that_cannot_be_written_to_is_written_in_place() {
    let scene = scene(300_001);
    let (folder, file) = (scene.out.join("closed"), scene.out.join("closed/file"));
    fs::create_dir(&folder).unwrap();
    let mut old = fs::File::create(&file).unwrap();
    old.write_all(&vec![1; 400_000]).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    for above in [scene.cluster.dir.path(), &scene.out] {
        fs::set_permissions(above, Permissions::from_mode(0o755)).unwrap();
    }
    let ino = fs::metadata(&file).unwrap().ino();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_kintsu"));
    let usable = command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !rustix::process::geteuid().is_root() || !usable.is_ok_and(|status| status.success()) {
        skipped("a folder that is closed to its user takes root, setpriv, and a program that others can run");
        return;
    }
    let run = |name: &str, path: &Path| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_kintsu"));
        command.args(["get", name]).arg(path).env("KINTSU_COORDINATOR", &scene.cluster.endpoint);
        command.output().unwrap()
    };
    let out = run("nothing", &file);
    assert!(!out.status.success() && fs::metadata(&file).unwrap().len() == 400_000);
    let out = run("dir/o", &file);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(fs::read(&file).unwrap() == scene.bytes);
    assert_eq!(fs::metadata(&file).unwrap().ino(), ino);
    // A file without write permission is not replaced.
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o444)).unwrap();
    let out = run("dir/o", &file);
    assert!(!out.status.success(), "a file of somebody else was replaced");
    assert_eq!(fs::metadata(&file).unwrap().ino(), ino);
    // In a folder like /tmp, another user's file can be written but not replaced.
    fs::set_permissions(&folder, Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    fs::write(&file, "old").unwrap();
    let out = run("dir/o", &file);
    assert!(out.status.success(), "{}", text(&out.stderr));
    assert!(fs::read(&file).unwrap() == scene.bytes);
    assert_eq!(fs::metadata(&file).unwrap().ino(), ino);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}
