//! Metadata survive the loss of their disk: backups while the cluster works, copies on agents, restoring from
//! either.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use crate::cluster;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use cluster::{Cluster, flip, sha256, wait};
use kintsu_wire::copy::CopyHeader;

/// Puts objects of several codes and sizes; returns the digests.
fn put_some(cluster: &Cluster, prefix: &str) -> BTreeMap<String, String> {
    let code = |i: u64| ["rs:n=6,k=4", "azure-lrc:n=6,k=3,r=2", "rs:n=4,k=2"][i as usize % 3];
    let put = |i: u64| {
        let name = format!("{prefix}-{i}");
        let file = cluster.file(&name, 40_000 + i * 333_333);
        cluster.put(&file, &name, &["--code", code(i), "--block", "64KiB", "--cell", "16KiB"]);
        (name, sha256(&file))
    };
    (0..6).map(put).collect()
}

fn all_are_readable(cluster: &Cluster, objects: &BTreeMap<String, String>) {
    let listed = cluster.json(&["ls"]);
    assert_eq!(listed.as_array().unwrap().len(), objects.len(), "{listed}");
    for (name, sha) in objects {
        assert_eq!(&cluster.get_sha(name), sha, "{name}");
    }
}

/// The newest copy that a node keeps.
fn newest(cluster: &Cluster, node: u32) -> Option<(PathBuf, CopyHeader)> {
    let entries = std::fs::read_dir(cluster.node_dir(node).join("metadata-copies")).ok()?;
    let header = |path: PathBuf| {
        let (header, _) = CopyHeader::parse(&std::fs::read(&path).ok()?).ok()??;
        path.to_str()?.ends_with(".kintsu").then_some((path, header))
    };
    entries.flatten().filter_map(|entry| header(entry.path())).max_by_key(|(_, header)| header.number)
}

/// The nodes whose newest copy has this many objects, with that copy.
fn keepers(cluster: &Cluster, objects: usize) -> Vec<(u32, PathBuf)> {
    let keeper = |node| {
        let (path, header) = newest(cluster, node)?;
        (header.objects == objects as u64).then_some((node, path))
    };
    (0..cluster.nodes).filter_map(keeper).collect()
}

/// Tells a thread to end, also if the test fails: a scope waits for its threads.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_backup_under_load_is_consistent_and_one_at_rest_brings_everything_back() {
    let mut cluster = Cluster::start(6, 3);
    let mut objects = put_some(&cluster, "before");
    let under_load = cluster.dir.path().join("under-load.kintsu");
    let done = AtomicBool::new(false);
    let (during, report) = std::thread::scope(|scope| {
        let puts = scope.spawn(|| {
            let mut put = BTreeMap::new();
            for round in 0.. {
                put.extend(put_some(&cluster, &format!("during-{round}")));
                if done.load(Ordering::SeqCst) {
                    break;
                }
            }
            put
        });
        let ending = Done(&done);
        wait("the puts to begin", || cluster.json(&["ls"]).as_array().unwrap().len() > objects.len());
        let reports: Vec<_> =
            (0..3).map(|_| cluster.json(&["backup", under_load.to_str().unwrap()])).collect();
        drop(ending);
        (puts.join().unwrap(), reports.into_iter().last().unwrap())
    });
    objects.extend(during);
    assert_eq!(report["bytes"], std::fs::metadata(&under_load).unwrap().len());
    // A second coordinator, without agents, has all metadata of the backup.
    let mut beside = Cluster::start(0, 1);
    beside.lose_metadata();
    let ready = beside.start_coordinator_with(&["--restore", under_load.to_str().unwrap()], None).unwrap();
    let listed = beside.json(&["ls"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(ready["restored"]["objects"], names.len());
    assert_eq!(report["objects"], names.len());
    assert!(names.len() > 6, "the backup was taken under load");
    for name in names {
        assert!(!beside.blocks(name).is_empty(), "{name}");
    }

    let at_rest = cluster.dir.path().join("at-rest.kintsu");
    let report = cluster.json(&["backup", at_rest.to_str().unwrap()]);
    assert_eq!(report["objects"], objects.len());
    let piped = cluster.run(&["backup", "-"]).stdout;
    assert_eq!(CopyHeader::parse(&piped).unwrap().unwrap().0.objects, objects.len() as u64);
    cluster.lose_metadata();
    let ready = cluster.start_coordinator_with(&["--restore", at_rest.to_str().unwrap()], None).unwrap();
    assert_eq!(ready["restored"]["objects"], objects.len());
    assert_eq!(ready["restored"]["stripes"], report["stripes"]);
    cluster.wait_alive(6);
    all_are_readable(&cluster, &objects);
    cluster.wait_whole();
    cluster.json(&["scrub"]);
    all_are_readable(&cluster, &objects);
}

#[test]
fn metadata_lost_altogether_come_back_from_copies_on_three_agents() {
    let mut cluster = Cluster::start(7, 3);
    cluster.stop_coordinator();
    cluster.start_coordinator_with(&["--copy-every", "300ms"], None).unwrap();
    cluster.wait_alive(7);
    let objects = put_some(&cluster, "object");
    let mut nodes: Vec<u32> = Vec::new();
    wait("copies on three agents", || {
        nodes = keepers(&cluster, objects.len()).into_iter().map(|(node, _)| node).collect();
        nodes.len() >= 3
    });
    let mut racks: Vec<u32> = nodes.iter().map(|node| node % 3).collect();
    racks.sort_unstable();
    assert_eq!((nodes.len(), racks), (3, vec![0, 1, 2]), "one of each rack: {nodes:?}");
    wait("the status to tell of the copy", || !cluster.json(&["status"])["metadata_copy"].is_null());
    for node in nodes {
        let kept = std::fs::read_dir(cluster.node_dir(node).join("metadata-copies")).unwrap().count();
        assert!(kept <= 3, "{kept} files: the newest two, and one that is being written");
    }

    cluster.lose_metadata();
    let ready = cluster.start_coordinator_with(&["--restore", "auto", "--restore-wait", "6s"], None).unwrap();
    assert_eq!(ready["restored"]["objects"], objects.len());
    assert!(ready["restored"]["from"].as_str().unwrap().contains("agent"), "{ready}");
    cluster.wait_alive(7);
    all_are_readable(&cluster, &objects);
    cluster.wait_whole();
    // The cluster works as before.
    let more = put_some(&cluster, "after");
    all_are_readable(&cluster, &objects.into_iter().chain(more).collect());
}

#[test]
fn a_clean_stop_gives_a_last_copy_and_damaged_ones_are_passed_over() {
    let mut cluster = Cluster::start(6, 6);
    let mut objects = put_some(&cluster, "object");
    // A copy that was due before lacks the last object.
    let last = cluster.file("last", 50_000);
    cluster.put(&last, "last", &["--code", "rs:n=4,k=2"]);
    objects.insert("last".to_owned(), sha256(&last));
    cluster.stop_coordinator();
    let kept = keepers(&cluster, objects.len());
    assert_eq!(kept.len(), 3, "{kept:?}");
    std::fs::remove_dir_all(cluster.coordinator_dir()).unwrap();

    // One is sound, one is cut, one is changed.
    let len = |path: &Path| std::fs::metadata(path).unwrap().len();
    let cut =
        |path: &Path, bytes| std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    let sound = std::fs::read(&kept[2].1).unwrap();
    cut(&kept[0].1, len(&kept[0].1) / 2);
    flip(&kept[1].1, len(&kept[1].1) / 2);
    let auto = ["--restore", "auto", "--restore-wait", "6s"];
    let ready = cluster.start_coordinator_with(&auto, None).unwrap();
    assert_eq!(ready["restored"]["objects"], objects.len());
    cluster.wait_alive(6);
    all_are_readable(&cluster, &objects);

    // No copy is sound: the coordinator says so, and leaves the folder as it was.
    cluster.lose_metadata();
    for node in 0..cluster.nodes {
        let _ = std::fs::remove_dir_all(cluster.node_dir(node).join("metadata-copies"));
    }
    std::fs::create_dir(kept[0].1.parent().unwrap()).unwrap();
    std::fs::write(&kept[0].1, &sound[..sound.len() - 1]).unwrap();
    let log = cluster.dir.path().join("log");
    assert!(cluster.start_coordinator_with(&auto, Some(&log)).is_none());
    assert!(!cluster.coordinator_ended().success());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("keeps a sound copy") && said.contains("--restore FILE"), "{said}");
    assert!(!cluster.coordinator_dir().join("metadata.redb").exists());

    // Restoring from a file works.
    let file = cluster.dir.path().join("copy.kintsu");
    std::fs::write(&file, sound).unwrap();
    cluster.start_coordinator_with(&["--restore", file.to_str().unwrap()], None).unwrap();
    cluster.wait_alive(6);
    all_are_readable(&cluster, &objects);
}

#[test]
fn a_damaged_backup_is_refused_and_so_is_a_folder_with_metadata() {
    let mut cluster = Cluster::start(4, 2);
    let file = cluster.file("small", 100_000);
    cluster.put(&file, "small", &["--code", "rs:n=4,k=2"]);
    let (backup, log) = (cluster.dir.path().join("backup.kintsu"), cluster.dir.path().join("log"));
    cluster.json(&["backup", backup.to_str().unwrap()]);
    let restore = ["--restore", backup.to_str().unwrap()];
    cluster.stop_coordinator();
    let refused = |cluster: &mut Cluster| {
        assert!(cluster.start_coordinator_with(&restore, Some(&log)).is_none());
        assert!(!cluster.coordinator_ended().success());
        std::fs::read_to_string(&log).unwrap()
    };
    let said = refused(&mut cluster);
    assert!(said.contains("a folder without metadata"), "{said}");
    cluster.start_coordinator();
    cluster.wait_alive(4);
    assert_eq!(cluster.get_sha("small"), sha256(&file));

    cluster.lose_metadata();
    let whole = std::fs::read(&backup).unwrap();
    flip(&backup, whole.len() as u64 / 2);
    let said = refused(&mut cluster);
    assert!(said.contains("not a sound copy"), "{said}");
    std::fs::write(&backup, &whole[..whole.len() - 20]).unwrap();
    let said = refused(&mut cluster);
    assert!(said.contains("not a sound copy"), "{said}");
    assert_eq!(std::fs::read_dir(cluster.coordinator_dir()).unwrap().count(), 0, "nothing is left");
    std::fs::write(&backup, &whole).unwrap();
    cluster.start_coordinator_with(&restore, None).unwrap();
    cluster.wait_alive(4);
    assert_eq!(cluster.get_sha("small"), sha256(&file));
}
