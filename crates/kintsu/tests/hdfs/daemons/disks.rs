//! What is on the disks of the DataNodes, also of those that are down.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Hdfs;

impl Hdfs {
    /// A block's file on a DataNode's disk, if it is there.
    pub fn block_file(&self, i: u32, id: u64) -> Option<PathBuf> {
        let name = format!("blk_{}", id as i64);
        self.pool_folder(i, "finalized").and_then(|folder| find(&folder, &name))
    }

    /// All files with blocks or checksums of them that are on the DataNodes' disks, also on those that are down.
    pub fn on_disks(&self) -> BTreeSet<PathBuf> {
        let mut files = BTreeSet::new();
        let mut folders: Vec<PathBuf> =
            (0..self.nodes).map(|i| self.dir.path().join(format!("data{i}/current"))).collect();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if entry.file_name().to_string_lossy().starts_with("blk_") {
                    files.insert(path);
                }
            }
        }
        files
    }

    /// The file of a block that a DataNode is receiving.
    pub fn incoming_file(&self, i: u32, id: u64) -> Option<PathBuf> {
        let file = self.pool_folder(i, "rbw")?.join(format!("blk_{}", id as i64));
        file.exists().then_some(file)
    }

    /// Puts a file where a DataNode would receive a block: it refuses the block until the file is removed.
    pub fn put_in_the_way(&self, i: u32, id: u64) -> PathBuf {
        let file = self.pool_folder(i, "rbw").unwrap().join(format!("blk_{}", id as i64));
        std::fs::write(&file, "in the way").unwrap();
        file
    }

    /// A folder of the block pool on a DataNode's disk.
    fn pool_folder(&self, i: u32, name: &str) -> Option<PathBuf> {
        let current = self.dir.path().join(format!("data{i}/current"));
        let pools = std::fs::read_dir(current).ok()?.flatten().map(|entry| entry.path());
        let mut folders = pools.map(|pool| pool.join("current").join(name));
        folders.find(|folder| folder.is_dir())
    }
}

fn find(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find(&path, name) {
                return Some(found);
            }
        } else if entry.file_name() == *name {
            return Some(path);
        }
    }
    None
}
