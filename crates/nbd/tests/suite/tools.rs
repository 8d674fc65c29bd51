//! The tools that people use with NBD: libnbd's, QEMU's, fio, and file systems on top.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use kintsu_nbd::{Limits, Listen, Server};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use tokio::process::Command;

use crate::file::FileDevice;
use crate::raw::{SIZE, Served, soon};

/// Says aloud what could not be tried.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Says aloud what was compared with what other programs wrote.
pub fn compared(what: &str) {
    let _ = writeln!(std::io::stderr(), "COMPARED: {what}");
}

/// Whether all these tools are here; says aloud which one is not.
pub fn have(tools: &[&str]) -> bool {
    let missing = tools.iter().find(|tool| {
        let about = std::process::Command::new(tool).arg("--version").stdin(Stdio::null()).output();
        about.is_err()
    });
    if let Some(tool) = missing {
        skipped(&format!("no {tool} to try the NBD server with"));
    }
    missing.is_none()
}

pub async fn output<A: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = A>) -> Output {
    let mut command = Command::new(tool);
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    soon(command.output()).await.unwrap()
}

/// What a tool prints; it must end well.
pub async fn run<A: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = A>) -> String {
    let out = output(tool, args).await;
    let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{tool}: {}: {said}", out.status);
    String::from_utf8_lossy(&out.stdout).into_owned()
}

async fn json<A: AsRef<OsStr>>(tool: &str, args: impl IntoIterator<Item = A>) -> Value {
    serde_json::from_str(&run(tool, args).await).unwrap()
}

pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdinfo_sees_what_is_offered() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let served = Served::new().await;
    let uri = served.server.uri();
    let told = json("nbdinfo", ["--json", uri]).await;
    let export = &told["exports"][0];
    assert_eq!(told["protocol"], "newstyle-fixed");
    assert_eq!(told["structured"], true);
    assert_eq!(export["export-name"], "disk");
    assert_eq!(export["export-size"], SIZE);
    assert_eq!(export["contexts"][0], "base:allocation");
    for can in ["can_df", "can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
        assert_eq!(export[can], true, "{can}");
    }
    for is in ["is_read_only", "is_rotational"] {
        assert_eq!(export[is], false, "{is}");
    }
    let sizes = ["block_size_minimum", "block_size_preferred", "block_size_maximum"];
    assert_eq!(sizes.map(|size| export[size].as_u64().unwrap()), [1, 4096, 32 << 20]);
    let listed = json("nbdinfo", ["--json", "--list", &uri.replace("/disk", "")]).await;
    assert_eq!(listed["exports"][0]["export-name"], "disk");
    let mapped = json("nbdinfo", ["--json", "--map", uri]).await;
    assert_eq!((mapped[0]["length"].as_u64(), mapped[0]["type"].as_u64()), (Some(SIZE), Some(3)));
    let unknown = output("nbdinfo", [uri.replace("/disk", "/other")]).await;
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && said.contains("other"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nbdcopy_brings_the_same_bytes_back() {
    if !have(&["nbdcopy"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, back) = (dir.path().join("source"), dir.path().join("back"));
    // Data, a hole, data up to an odd end.
    let file = std::fs::File::create(&source).unwrap();
    use std::os::unix::fs::FileExt;
    file.write_all_at(&noise(9 << 20, 1), 0).unwrap();
    file.write_all_at(&noise((2 << 20) + 77, 2), 40 << 20).unwrap();
    let len = (42u64 << 20) + 77;
    let device = Arc::new(FileDevice::create(&dir.path().join("disk"), len));
    let listen = Listen::Unix(dir.path().join("sock"));
    let server = Server::start(device.clone(), "disk", listen, Limits::default()).await.unwrap();
    run("nbdcopy", ["--flush", "--connections=4", source.to_str().unwrap(), server.uri()]).await;
    assert!(device.flushes.load(std::sync::atomic::Ordering::SeqCst) > 0);
    run("nbdcopy", [server.uri(), back.to_str().unwrap()]).await;
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&back).unwrap());
    let used = |path: &Path| std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(path).unwrap());
    assert!(used(&dir.path().join("disk")) < 20 << 11, "the hole was filled");
    compared("the NBD server's bytes with what nbdcopy sent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qemu_reads_writes_and_compares() {
    if !have(&["qemu-img", "qemu-io"]) {
        return;
    }
    let served = Served::new().await;
    let uri = served.server.uri();
    let dir = served.dir.path();
    let commands = [
        "write -P 0xab 4097 300000",
        "write -f -P 0xcd 1M 64k",
        "write -z -u 1M 4k",
        "discard 2M 1M",
        "write -z 5M 8M",
        "flush",
        "read -P 0xab 4097 300000",
        "read -P 0 1M 4k",
        "read -P 0xcd 1052672 60k",
        "aio_write -P 1 20M 1M",
        "aio_write -P 2 21M 1M",
        "aio_flush",
        "read -P 2 21M 1M",
    ];
    let args = commands.iter().flat_map(|command| ["-c", command]);
    let said = run("qemu-io", ["-f", "raw"].into_iter().chain(args).chain([uri])).await;
    assert!(!said.contains("failed") && !said.contains("error"), "{said}");
    let info = json("qemu-img", ["info", "--output=json", "-f", "raw", uri]).await;
    assert_eq!(info["virtual-size"], SIZE);
    let image = dir.join("copy.qcow2");
    let image = image.to_str().unwrap();
    run("qemu-img", ["convert", "-f", "raw", "-O", "qcow2", uri, image]).await;
    run("qemu-img", ["compare", "-f", "raw", "-F", "qcow2", uri, image]).await;
    let map = json("qemu-img", ["map", "--output=json", "-f", "raw", uri]).await;
    assert!(
        map.as_array().unwrap().iter().any(|part| part["zero"] == true && part["data"] == false),
        "{map}"
    );
    // And back into an empty one.
    let other = Served::new().await;
    let to = other.server.uri();
    run("qemu-img", ["convert", "-n", "-f", "qcow2", "-O", "raw", image, to]).await;
    run("qemu-img", ["compare", "-f", "raw", "-F", "raw", uri, to]).await;
    // A write to a read-only export is refused.
    let fixed = Served::with(Limits::default(), |device| device.read_only = true).await;
    let refused = output("qemu-io", ["-f", "raw", "-c", "write 0 4k", fixed.server.uri()]).await;
    assert!(!refused.status.success());
    compared("the NBD server's bytes with what qemu-io wrote, by qemu-img");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_verifies_what_it_writes() {
    if !have(&["fio"]) {
        return;
    }
    if !run("fio", ["--enghelp"]).await.contains("nbd") {
        return skipped("this fio has no nbd engine");
    }
    let served = Served::new().await;
    let uri = format!("--uri={}", served.server.uri());
    let report = served.dir.path().join("report").to_str().unwrap().to_owned();
    let job = "--name=verify --ioengine=nbd --rw=randwrite --bsrange=4k-256k --size=48m --iodepth=32 --fsync=50 \
               --verify=crc32c --verify_fatal=1 --do_verify=1 --verify_state_save=0 --randseed=7 \
               --output-format=json --output";
    run("fio", job.split_whitespace().chain([report.as_str(), &uri])).await;
    let said: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    let job = &said["jobs"][0];
    assert_eq!(job["error"], 0);
    assert!(job["read"]["total_ios"].as_u64().unwrap() > 100, "{job}");
    compared("the NBD server's bytes with what fio wrote");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_systems_live_on_it() {
    if !have(&["nbdcopy", "mke2fs", "e2fsck", "mkfs.xfs", "xfs_repair"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    // A tree of files becomes an ext4 image, travels, and is checked where it arrives.
    std::fs::create_dir(path("tree")).unwrap();
    for file in 0..50 {
        std::fs::write(dir.path().join(format!("tree/{file}")), noise(1000 * file, file as u64)).unwrap();
    }
    run("mke2fs", ["-q", "-t", "ext4", "-d", &path("tree"), &path("ext4"), "64M"]).await;
    let sparse = std::fs::File::create(path("xfs")).unwrap();
    sparse.set_len(320 << 20).unwrap();
    run("mkfs.xfs", ["-q", &path("xfs")]).await;
    for (image, len, check) in
        [("ext4", 64 << 20, ["e2fsck", "-fn"]), ("xfs", 320 << 20, ["xfs_repair", "-nf"])]
    {
        let device = Arc::new(FileDevice::create(&dir.path().join("disk"), len));
        let listen = Listen::Unix(dir.path().join("sock"));
        let server = Server::start(device, image, listen, Limits::default()).await.unwrap();
        let back = path(&format!("{image}.back"));
        run("nbdcopy", [path(image).as_str(), server.uri()]).await;
        run("nbdcopy", [server.uri(), &back]).await;
        run(check[0], [check[1], &back]).await;
        assert!(server.shutdown(Duration::from_secs(60)).await);
        std::fs::remove_file(path("disk")).unwrap();
    }
    compared("ext4 and XFS that went through the NBD server, by e2fsck and xfs_repair");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_is_made_through_nbdfuse() {
    if !have(&["nbdfuse", "mke2fs", "e2fsck", "fusermount3"]) {
        return;
    }
    let served = Served::new().await;
    let mount = served.dir.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let disk = mount.join("disk");
    let mut nbdfuse = Command::new("nbdfuse");
    nbdfuse
        .arg(&disk)
        .arg(served.server.uri())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = nbdfuse.spawn().unwrap();
    let appeared = soon(async {
        while !tokio::fs::try_exists(&disk).await.unwrap_or(false) {
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    })
    .await;
    if !appeared {
        let said = child.wait_with_output().await.unwrap().stderr;
        let said = String::from_utf8_lossy(&said).replace('\n', " ");
        return skipped(&format!("nbdfuse cannot mount here ({said})"));
    }
    let disk = disk.to_str().unwrap();
    run("mke2fs", ["-q", "-F", "-t", "ext4", disk]).await;
    run("e2fsck", ["-fn", disk]).await;
    run("fusermount3", ["-u", mount.to_str().unwrap()]).await;
    assert!(soon(child.wait()).await.unwrap().success());
    compared("ext4 that was made through the NBD server, by e2fsck");
}
